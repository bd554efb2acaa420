/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading in pages, on the reader thread with its own connection: a long audit query never holds up
 * a commit, and a page looks at a bounded number of rows. Results are posted to the loop; the
 * memory of a page lives until its callback has returned.
 */
#include "controller/store_front_priv.h"
#include "controller/test_switches.h"
#include <errno.h>
#include <string.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

enum read_kind { READ_AUDIT, READ_GRANTS };

struct read_job {
	struct list link;
	struct loop_post post;
	struct store *store; /* a reference while posted */
	enum read_kind kind;
	int rc;
	void *fn_arg;
	union {
		struct {
			struct store_audit_query q;
			struct store_audit_page page;
			store_audit_fn fn;
		} audit;
		struct {
			struct store_grant_query q;
			struct store_grants_page page;
			store_grants_fn fn;
		} grants;
	};
};

void store_page_fini(struct store_audit_page *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free((void *)p->rows[i].record);
		free((void *)p->rows[i].note);
	}
	free((void *)p->rows);
	*p = (struct store_audit_page){0};
}

void store_grants_fini(struct store_grants_page *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free((void *)p->v[i].principal);
		free((void *)p->v[i].tenant_gone);
		free((void *)p->v[i].agent_gone);
	}
	free(p->v);
	*p = (struct store_grants_page){0};
}

static void free_job(struct read_job *j)
{
	if (j->kind == READ_AUDIT)
		store_page_fini(&j->audit.page);
	else
		store_grants_fini(&j->grants.page);
	free(j);
}

static void job_done(void *arg)
{
	struct read_job *j = arg;
	struct store *s = j->store;

	if (s->closed)
		j->rc = -ESHUTDOWN;
	if (j->kind == READ_AUDIT) {
		j->audit.page.rc = j->rc;
		j->audit.fn(j->fn_arg, &j->audit.page);
	} else {
		j->grants.fn(j->fn_arg, j->rc, j->grants.page.v, j->grants.page.n,
		             j->grants.page.more ? &j->grants.page.next : NULL);
	}
	free_job(j);
	store_unref(s);
}

static void run_job(struct store *s, struct read_job *j)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (j->kind == READ_AUDIT)
		j->rc = s->ops->page_audit(s->backend, &j->audit.q, &j->audit.page, &err);
	else
		j->rc = s->ops->page_grants(s->backend, &j->grants.q, &j->grants.page, &err);
	if (j->rc < 0)
		log_error("reading failed: %s", err.msg);
}

void *store_reader_thread(void *arg)
{
	struct store *s = arg;
	struct read_job *j;

	pthread_mutex_lock(&s->read_lock);
	for (;;) {
		if (list_empty(&s->reads)) {
			if (s->read_stop)
				break;
			pthread_cond_wait(&s->read_wake, &s->read_lock);
			continue;
		}
		j = list_first(&s->reads, struct read_job, link);
		list_del(&j->link);
		s->n_reads--;
		pthread_mutex_unlock(&s->read_lock);
		run_job(s, j);
		store_ref(s);
		loop_post_urgent(s->o.loop, &j->post, job_done, j);
		pthread_mutex_lock(&s->read_lock);
	}
	pthread_mutex_unlock(&s->read_lock);
	return NULL;
}

static int enqueue(struct store *s, struct read_job *j)
{
	int r = 0;

	pthread_mutex_lock(&s->read_lock);
	if (s->read_stop || !s->reading)
		r = -ESHUTDOWN;
	else if (s->n_reads >= STORE_READS_MAX && !CTL_SWITCH(no_page_max))
		r = -EBUSY;
	if (!r) {
		list_add_tail(&s->reads, &j->link);
		s->n_reads++;
		pthread_cond_signal(&s->read_wake);
	}
	pthread_mutex_unlock(&s->read_lock);
	if (r)
		free(j);
	return r;
}

static struct read_job *new_job(struct store *s, enum read_kind kind, void *arg)
{
	struct read_job *j = calloc(1, sizeof(*j));

	if (j) {
		j->store = s;
		j->kind = kind;
		j->fn_arg = arg;
	}
	return j;
}

int store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                     void *arg)
{
	struct read_job *j = new_job(s, READ_AUDIT, arg);

	if (!j)
		return -ENOMEM;
	j->audit.q = *q;
	j->audit.fn = fn;
	return enqueue(s, j);
}

int store_read_grants(struct store *s, const struct store_grant_query *q, store_grants_fn fn,
                      void *arg)
{
	struct read_job *j = new_job(s, READ_GRANTS, arg);

	if (!j)
		return -ENOMEM;
	j->grants.q = *q;
	j->grants.fn = fn;
	return enqueue(s, j);
}

void store_stats(struct store *s, struct store_stats *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = (struct store_stats){
		.commits = s->commits,
		.transactions = s->transactions,
		.audit_records = s->audit_records,
		.checkpoint_size = s->checkpoint_size,
		.waiting = s->n_queue,
		.record_pending = MAX(s->n_pending, s->n_doubted),
		.wal_bytes = s->ops->wal_bytes(s->backend),
		.full = atomic_load(&s->full),
		.full_since_unix_ns = s->full_since_unix_ns,
		.reserve_used = s->reserve_used,
		.journal_failed = s->journal.suspect,
	};
	pthread_mutex_unlock(&s->lock);
}

struct metrics_latency *store_commit_latency(struct store *s)
{
	return &s->commit_latency;
}

const struct store_epoch *store_epoch(const struct store *s)
{
	return &s->epoch;
}

uint64_t store_revision(const struct store *s)
{
	return s->revision_open;
}
