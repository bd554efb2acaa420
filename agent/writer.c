/* SPDX-License-Identifier: Apache-2.0 */
/* The writer thread: a queue, a condition, one worker. Invariant: a submitted job's work and done
 * each run exactly once, also when the writer is freed. */
#include "agent/writer.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct writer {
	struct loop *loop; /* borrowed */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* guarded by lock */
	struct writer_job *head, **tail;
	bool stopping;
};

static void run_done(void *arg)
{
	struct writer_job *j = arg;

	j->done(j);
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct writer_job *j;

		while (!w->head && !w->stopping)
			pthread_cond_wait(&w->cond, &w->lock);
		j = w->head;
		if (!j)
			break;
		w->head = j->next;
		if (!w->head)
			w->tail = &w->head;
		pthread_mutex_unlock(&w->lock);
		j->work(j);
		loop_post_urgent(w->loop, &j->post, run_done, j);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int writer_new(struct loop *loop, const char *name, struct writer **ret)
{
	struct writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->loop = loop;
	w->tail = &w->head;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	r = pthread_create(&w->thread, NULL, writer_main, w);
	if (r) {
		pthread_cond_destroy(&w->cond);
		pthread_mutex_destroy(&w->lock);
		free(w);
		return -r;
	}
	pthread_setname_np(w->thread, name);
	*ret = w;
	return 0;
}

void writer_submit(struct writer *w, struct writer_job *j)
{
	j->next = NULL;
	j->writer = w;
	pthread_mutex_lock(&w->lock);
	*w->tail = j;
	w->tail = &j->next;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

void writer_free(struct writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
