/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit-fill: appends genuine audit records to a controller's store until the log has a wished
 * number of rows: the controller's own store and ledger, so chain, tree, tenants' histories and
 * signed checkpoints are what they would be. Many records go into one transaction, which is all
 * that is not as in life. The controller must not run (the store's lock says so).
 */
#include "common/clock.h"
#include "common/util.h"
#include "controller/config.h"
#include "controller/store.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PER_TXN   4096u
#define IN_FLIGHT 8u
#define TENANTS   64u
#define ROWS_MAX  1000000000ull

struct fill {
	struct config cfg;
	struct loop *loop; /* owned; runs on a thread of its own */
	struct store *store;
	uint64_t have, want, sent; /* main thread */
	struct ros2_uid tenant[TENANTS], agent;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t in_flight; /* guarded by lock */
	struct ros2_err failure;
};

static void committed(void *arg, const struct store_result *r)
{
	struct fill *f = arg;

	pthread_mutex_lock(&f->lock);
	f->in_flight--;
	if (r->rc < 0 && !f->failure.code)
		f->failure = r->err;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

/* What the issue of a grant leaves behind. */
static void one(struct fill *f, struct store_txn *t, uint64_t i)
{
	struct store_draft *d = store_txn_audit(t);
	struct ros2_uid grant = ros2_uid_new();
	uint32_t n = (uint32_t)(i % TENANTS);

	d->actor = store_txn_str(t, "spiffe://ros2.test/agent/dpu-0");
	d->role = "agent";
	d->peer = "127.0.0.1:40000";
	d->action = "grant.issue";
	d->object_kind = "grant";
	d->object_name = store_txn_fmt(t, "spiffe://ros2.test/tenant/fill-%u/load", n);
	d->object_uid = store_txn_uid(t, &grant);
	d->result = STORE_AUDIT_OK;
	d->policy_version = 1;
	d->tenant = store_txn_fmt(t, "fill-%u", n);
	d->tenant_uid = f->tenant[n];
	store_draft_detail(t, d, "agent", "dpu-0");
	store_draft_detail(t, d, "lifetimeMs", "3600000");
	store_draft_detail(t, d, "peer", "127.0.0.1:40000");
}

static void submit(void *arg)
{
	struct fill *f = arg;
	struct store_txn *t = store_txn_new();
	struct ros2_err err = ROS2_ERR_INIT;

	for (uint32_t i = 0; i < PER_TXN && f->have + f->sent < f->want; i++)
		one(f, t, f->sent++);
	if (store_submit(f->store, t, committed, f, &err) == 0)
		return;
	pthread_mutex_lock(&f->lock);
	f->in_flight--;
	f->failure = err;
	pthread_mutex_unlock(&f->lock);
}

static int fill(struct fill *f)
{
	uint64_t began = clock_monotonic_ns();

	pthread_mutex_lock(&f->lock);
	while (f->have + f->sent < f->want && !f->failure.code) {
		while (f->in_flight == IN_FLIGHT)
			pthread_cond_wait(&f->cond, &f->lock);
		f->in_flight++;
		pthread_mutex_unlock(&f->lock);
		loop_call(f->loop, submit, f);
		pthread_mutex_lock(&f->lock);
	}
	while (f->in_flight)
		pthread_cond_wait(&f->cond, &f->lock);
	pthread_mutex_unlock(&f->lock);
	if (f->failure.code) {
		fprintf(stderr, "audit-fill: %s\n", f->failure.msg);
		return 1;
	}
	printf("{\"had\":%" PRIu64 ",\"appended\":%" PRIu64 ",\"seconds\":%.1f}\n", f->have,
	       f->sent, (double)(clock_monotonic_ns() - began) / 1e9);
	return 0;
}

static int open_store(struct fill *f, const char *config, const char *data, struct ros2_err *err)
{
	struct store_stats st;
	int r = config_load(config, &f->cfg, err);

	if (r < 0)
		return r;
	const struct store_opts so = {.dir = data,
	                              .trust_domain = f->cfg.trust_domain,
	                              .loop = f->loop,
	                              .audit_key = f->cfg.audit_key,
	                              .audit_origin = f->cfg.audit_origin,
	                              .arg = f};
	const struct store_loader nothing = {.arg = f};

	r = store_open(&so, &f->store, err);
	if (!r)
		r = store_load(f->store, &nothing, err);
	if (!r)
		r = store_start(f->store, err);
	if (r < 0)
		return r;
	store_stats(f->store, &st);
	f->have = st.audit_records;
	return 0;
}

static void close_store(void *arg)
{
	store_close(arg);
}

static int run(const char *config, const char *data, uint64_t rows)
{
	struct fill f = {.want = rows,
	                 .lock = PTHREAD_MUTEX_INITIALIZER,
	                 .cond = PTHREAD_COND_INITIALIZER,
	                 .agent = ros2_uid_new()};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = 1;

	for (uint32_t i = 0; i < TENANTS; i++)
		f.tenant[i] = ros2_uid_new();
	if (loop_new(&(struct loop_opts){.name = "fill"}, &f.loop) < 0 ||
	    loop_thread_start(f.loop) < 0)
		return 1;
	if (open_store(&f, config, data, &err) < 0)
		fprintf(stderr, "audit-fill: %s\n", err.msg);
	else
		rc = fill(&f);
	loop_call(f.loop, close_store, f.store);
	loop_stop(f.loop);
	loop_thread_join(f.loop);
	loop_free(f.loop);
	config_fini(&f.cfg);
	return rc;
}

static int usage(FILE *to)
{
	fputs("audit-fill --config-dir DIR --data-dir DIR --rows N\n"
	      "Appends audit records to a controller's store until it has N; one line of JSON.\n",
	      to);
	return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"config-dir", 1, NULL, 'c'},
	                                      {"data-dir", 1, NULL, 'd'},
	                                      {"rows", 1, NULL, 'n'},
	                                      {"help", 0, NULL, 'h'},
	                                      {0}};
	const char *config = NULL, *data = NULL;
	uint64_t rows = 0;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'c')
			config = optarg;
		else if (c == 'd')
			data = optarg;
		else if (c == 'n')
			rows = strtoull(optarg, NULL, 10);
		else
			return usage(c == 'h' ? stdout : stderr);
	}
	if (!config || !data || !rows || rows > ROWS_MAX || optind < argc)
		return usage(stderr);
	return run(config, data, rows);
}
