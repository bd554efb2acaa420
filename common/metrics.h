/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as Prometheus reads them: one page, "/metrics", over HTTP, for programs that have a
 * loop. The page is written on the loop once a second, from what the loop knows; a request gets the
 * last one, so that nobody who asks, however often, costs the loop or the data path anything. At
 * most METRICS_CONNECTIONS at once. Not encrypted and not authenticated: only on loopback unless
 * told.
 */
#ifndef ROS2_COMMON_METRICS_H
#define ROS2_COMMON_METRICS_H

#include "common/err.h"
#include "common/loop.h"

#define METRICS_CONNECTIONS 16
#define METRICS_PAGE_MAX    (4u * 1024u * 1024u) /* bytes; what is beyond is left out */
#define METRICS_PERIOD_MS   1000

struct metrics;
struct metrics_page;

struct metrics_opts {
	const char *listen; /* "HOST:PORT", numeric host; borrowed during metrics_start */
	bool allow_remote;  /* other addresses than loopback */
	struct loop *loop;  /* borrowed: until metrics_stop */
	void (*render)(void *arg, struct metrics_page *p); /* on the loop */
	void *arg;
};
/* Loop thread, or before the loop runs. -EINVAL: not HOST:PORT, or not loopback; -EADDRINUSE. */
int metrics_start(const struct metrics_opts *o, struct metrics **ret, struct ros2_err *err);
/* Loop thread, or after the loop has ended but is not freed. NULL is accepted. */
void metrics_stop(struct metrics *m);
uint16_t metrics_port(const struct metrics *m); /* 0 for NULL */

/* ---- writing the page ---- */

enum metrics_type { METRICS_GAUGE, METRICS_COUNTER, METRICS_HISTOGRAM };
/* Before the samples of @name. @name and @help are literals. */
void metrics_family(struct metrics_page *p, const char *name, enum metrics_type type,
                    const char *help);
/* One sample. @...: pairs of label name (a literal) and value (any text: escaped), then NULL. */
void metrics_u64(struct metrics_page *p, const char *name, uint64_t value, ...)
	__attribute__((sentinel));
void metrics_f64(struct metrics_page *p, const char *name, double value, ...)
	__attribute__((sentinel));

/* Buckets of a latency: upper bounds double from 0.25 ms to 4.096 s, then all. Any thread adds. */
#define METRICS_BUCKETS 16
struct metrics_latency {
	/* only by the two functions below */
	uint64_t bucket[METRICS_BUCKETS]; /* not cumulative; the last: longer */
	uint64_t sum_ns;
};
void metrics_latency_add(struct metrics_latency *l, uint64_t ns);
/* NAME_bucket, NAME_sum, NAME_count, in seconds. */
void metrics_latency_write(struct metrics_page *p, const char *name, struct metrics_latency *l,
                           const char *help);
#endif
