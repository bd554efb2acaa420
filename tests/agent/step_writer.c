/* SPDX-License-Identifier: Apache-2.0 */
/* See step_writer.h. Takes the place of agent/writer.c in the programs that link it. */
#include "tests/agent/step_writer.h"
#include <stdlib.h>

struct writer {
	struct writer_job *head, **tail;
};

int writer_new(struct loop *loop, const char *name, struct writer **ret)
{
	struct writer *w = calloc(1, sizeof(*w));

	w->tail = &w->head;
	*ret = w;
	return 0;
}

void writer_submit(struct writer *w, struct writer_job *j)
{
	j->next = NULL;
	*w->tail = j;
	w->tail = &j->next;
}

unsigned step_writer_run(struct writer *w)
{
	unsigned n = 0;

	while (w->head) {
		struct writer_job *j = w->head;

		w->head = j->next;
		if (!w->head)
			w->tail = &w->head;
		j->work(j);
		j->done(j);
		n++;
	}
	return n;
}

void writer_free(struct writer *w)
{
	if (!w)
		return;
	step_writer_run(w);
	free(w);
}
