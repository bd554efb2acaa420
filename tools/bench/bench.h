/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of ros2-bench share: options, the histogram, the block pattern, progress and
 * reports. Data goes to stdout, everything for people to stderr.
 */
#ifndef ROS2_TOOLS_BENCH_H
#define ROS2_TOOLS_BENCH_H

#include "common/err.h"
#include "dataplane/client/ros2.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_exit { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CORRUPT = 3 };
enum bench_rw { RW_READ = 1, RW_WRITE = 2, RW_BOTH = 3, RW_ZERO = 4, RW_TRIM = 8 };

struct bench_opts {
	struct ros2_client_opts client;
	const char *ns, *file, *manifest;
	uint64_t size, bytes, time_ms, warmup_ms;
	uint32_t bs, depth, jobs, mix, reconnect_ms, poll_us;
	uint64_t seed;
	enum bench_rw rw;
	enum ros2_transport transport;
	uint64_t shm_bytes;
	bool random, verify, json, quiet, no_layout, no_flush;
	char **args; /* what is left: directories */
	int n_args;
};

/* opts.c: 0, or an enum bench_exit to end with (after words on stderr), or -1: help was shown. */
int opts_parse(int argc, char **argv, struct bench_opts *ret);
/* What sessions are opened with. */
struct ros2_session_opts opts_session(const struct bench_opts *o, uint32_t depth);
void opts_usage(const char *command);
/* For an agent that says nothing. One whose NVMe-oF target was lost is right to hold writes for 10
 * s and more (docs/nvmf.md). */
#define MUTE_MS 45000u
/* For how long none of the requests may end: as one may wait for a lost agent, and then for one
 * that is there and says nothing. */
uint64_t opts_patience_ms(const struct bench_opts *o);

/* hist.c: latencies in ns, log-linear, 1/64 resolution. One writer. */
#define HIST_SUB   64
#define HIST_SLOTS (59 * HIST_SUB)
struct hist {
	uint64_t count, sum, max;
	uint64_t slots[HIST_SLOTS];
};
void hist_add(struct hist *h, uint64_t ns);
void hist_merge(struct hist *to, const struct hist *from);
/* @p in 0..100: the smallest value that at least @p percent of all do not exceed (the upper end of
 * its slot); 0 of nothing. */
uint64_t hist_percentile(const struct hist *h, double p);

/* pattern.c: every 512 bytes say which file offset and which generation they are, so that stale and
 * misplaced blocks are told apart from broken ones. */
void pattern_fill(void *p, size_t n, uint64_t seed, uint64_t offset, uint32_t generation);
/* 0, or -EBADMSG with words. */
int pattern_check(const void *p, size_t n, uint64_t seed, uint64_t offset, uint32_t generation,
                  struct ros2_err *err);
/* What was made zeros; what was given up: each byte may also be what it was, or 0xff. As
 * pattern_check. */
int pattern_check_zeros(const void *p, size_t n, uint64_t offset, struct ros2_err *err);
int pattern_check_trimmed(const void *p, size_t n, uint64_t seed, uint64_t offset,
                          uint32_t generation, struct ros2_err *err);
/* Before a read: what is there already must not pass for what was read. */
void pattern_spoil(void *p, size_t n);

/* progress.c: a line on a terminal, nothing elsewhere. Main thread. */
struct progress {
	const char *what;
	uint64_t total, began_ns, shown_ns;
	bool on;
};
void progress_begin(struct progress *p, const char *what, uint64_t total, bool quiet);
void progress_show(struct progress *p, uint64_t done, const char *extra);
void progress_end(struct progress *p);
void format_bytes(double v, char out[32]);

/* report.c */
/* A JSON string of any bytes: what is not UTF-8 is shown as \xNN. Never NULL. */
json_t *report_text_json(const char *s);
/* On a terminal, too: nothing in @s drives it. */
void report_text(FILE *to, const char *s);
/* "ros2-bench: REVOKED: words" on stderr. */
void report_error(const struct ros2_err *err);
json_t *report_error_json(const struct ros2_err *err);
void report_print_json(json_t *j); /* takes @j */
json_t *report_latency_json(const struct hist *h);
void report_latency_table(const char *name, const struct hist *h, uint64_t ops, uint64_t bytes,
                          double seconds);

/* The commands; each returns an enum bench_exit. */
int cmd_load(const struct bench_opts *o);
int cmd_put(const struct bench_opts *o);
int cmd_get(const struct bench_opts *o);
int cmd_verify_tree(const struct bench_opts *o);
#endif
