/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ros2-bench run`: the whole of one measurement. Every job has a thread, a session and a slice of
 * the file of its own (job.c); this file prepares the namespace, starts and stops them together and
 * reports.
 */
#include "tools/bench/load_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Asked to end early: the report is of what was measured until then, and an error when that is
 * nothing. A second signal kills. */
static volatile sig_atomic_t interrupted;

static void on_signal(int signo)
{
	interrupted = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* Opens the file once, so that it exists, and says whether it must be written first. */
static int prepare(const struct bench_opts *o, struct ros2_client *c, bool *ret_layout,
                   struct ros2_err *err)
{
	uint32_t flags =
		o->no_layout && o->rw == RW_READ ? ROS2_O_RDONLY : ROS2_O_RDWR | ROS2_O_CREAT;
	struct ros2_session_opts so = opts_session(o, 0);
	struct ros2_session *s = NULL;
	struct ros2_session_info info;
	struct ros2_mount *m;
	struct ros2_file *f;
	struct ros2_stat st;
	int rc = ros2_session_open(c, &so, &s, err);

	if (rc)
		return rc;
	ros2_session_info(s, &info);
	if (o->bs > info.max_io)
		rc = ros2_err_set(err, -EINVAL, "--bs %u: the agent takes at most %u per request",
		                  o->bs, info.max_io);
	if (!rc)
		rc = ros2_mount(s, o->ns, &m, err);
	if (!rc)
		rc = ros2_open(m, o->file, flags, 0644, &f, err);
	if (!rc)
		rc = ros2_fstat(f, &st, err);
	if (!rc && st.block_size && o->bs % st.block_size)
		rc = ros2_err_set(err, -EINVAL,
		                  "--bs %u: '%s' has blocks of %u bytes, expected a multiple",
		                  o->bs, o->file, st.block_size);
	if (!rc) {
		bool is_short = st.size < o->size / o->bs * o->bs;

		*ret_layout = o->rw != RW_WRITE && (o->verify || is_short);
		if (*ret_layout && o->no_layout)
			rc = ros2_err_set(
				err, -EINVAL,
				"'%s' has %" PRIu64 " bytes, --size wants more "
				"(or --verify wants it written), and --no-layout was given",
				o->file, st.size);
	}
	ros2_session_close(s);
	return rc;
}

static uint64_t total_done(const struct load *l)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < l->n_jobs; i++)
		n += atomic_load_explicit(&l->jobs[i].moved, memory_order_relaxed);
	return n;
}

/* Waits for the jobs with a progress line. @until_ns 0: until they end by themselves. */
static void watch(struct load *l, const char *what, uint64_t total, uint64_t until_ns,
                  atomic_uint *counter)
{
	struct progress p;
	uint64_t began = clock_monotonic_ns(), before = total_done(l);

	progress_begin(&p, what, total, l->o->quiet);
	while (atomic_load(counter) < l->n_jobs) {
		uint64_t now = clock_monotonic_ns(), moved = total_done(l) - before;
		char rate[32], extra[64];

		if ((until_ns && now >= until_ns) || interrupted)
			break;
		format_bytes((double)moved / ((double)(now - began + 1) / 1e9), rate);
		snprintf(extra, sizeof(extra), "%s/s", rate);
		progress_show(&p, until_ns ? (now - began) / NS_PER_MS : moved, extra);
		/* time: the pace of the progress bar */
		usleep(2000);
	}
	progress_end(&p);
}

static void measure(struct load *l)
{
	const struct bench_opts *o = l->o;

	catch_signals();
	watch(l, "preparing", l->layout ? o->size : 0, 0, &l->n_ready);
	if (interrupted) {
		atomic_store(&l->stop, true);
		atomic_store(&l->go, true);
		ros2_err_named(&l->err, ROS2_CANCELLED,
		               "asked to end while it prepared: nothing was measured");
		return;
	}
	if (o->bytes) {
		atomic_store(&l->bytes_left, (int64_t)MIN(o->bytes, (uint64_t)INT64_MAX));
		l->began_ns = clock_monotonic_ns();
		atomic_store(&l->measuring, true);
		atomic_store(&l->go, true);
		watch(l, "moving", o->bytes, 0, &l->n_finished);
		atomic_store(&l->stop, true);
		l->ended_ns = clock_monotonic_ns();
		return;
	}
	atomic_store(&l->bytes_left, INT64_MAX);
	atomic_store(&l->go, true);
	watch(l, "warm-up", o->warmup_ms, clock_monotonic_ns() + o->warmup_ms * NS_PER_MS,
	      &l->n_finished);
	l->began_ns = clock_monotonic_ns();
	atomic_store(&l->measuring, true);
	watch(l, "measuring", o->time_ms, l->began_ns + o->time_ms * NS_PER_MS, &l->n_finished);
	atomic_store(&l->measuring, false);
	atomic_store(&l->stop, true);
	l->ended_ns = clock_monotonic_ns();
}

struct totals {
	struct hist read, write, clear;
	uint64_t verified, unknown, reconnects, copied, flush_ns;
	struct ros2_err err;
};

static void add_up(const struct load *l, struct totals *t)
{
	t->err = l->err;
	for (uint32_t i = 0; i < l->n_jobs; i++) {
		const struct job *j = &l->jobs[i];

		hist_merge(&t->read, &j->read);
		hist_merge(&t->write, &j->write);
		hist_merge(&t->clear, &j->clear);
		t->verified += j->verified;
		t->unknown += j->unknown;
		t->reconnects += j->reconnects;
		t->copied += j->copied;
		t->flush_ns = MAX(t->flush_ns, j->flush_ns);
		/* What came back wrong matters more than any other failure. */
		if (j->err.code && (!t->err.code || j->err.status == ROS2_CORRUPT))
			t->err = j->err;
	}
}

static json_t *side_json(const struct hist *h, uint32_t bs, double seconds)
{
	return json_pack("{s:I, s:I, s:f, s:f, s:o}", "operations", (json_int_t)h->count, "bytes",
	                 (json_int_t)(h->count * bs), "operations_per_s",
	                 (double)h->count / seconds, "bytes_per_s", (double)h->count * bs / seconds,
	                 "latency_ns", report_latency_json(h));
}

static void print_json(const struct bench_opts *o, const struct totals *t, double seconds)
{
	json_t *j = json_pack(
		"{s:i, s:s, s:o, s:o, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, "
		"s:o}",
		"version", 1, "command", "run", "namespace", report_text_json(o->ns), "file",
		report_text_json(o->file), "bs", (int)o->bs, "depth", (int)o->depth, "jobs",
		(int)o->jobs, "seconds", seconds, "read", side_json(&t->read, o->bs, seconds),
		"write", side_json(&t->write, o->bs, seconds), "clear",
		side_json(&t->clear, o->bs, seconds), "verified_blocks", (json_int_t)t->verified,
		"outcome_unknown", (json_int_t)t->unknown, "reconnects", (json_int_t)t->reconnects,
		"copied_bytes", (json_int_t)t->copied, "flush_ns", (json_int_t)t->flush_ns, "error",
		report_error_json(&t->err));

	report_print_json(j);
}

static void print_table(const struct bench_opts *o, const struct totals *t, double seconds)
{
	report_latency_table("read", &t->read, t->read.count, t->read.count * o->bs, seconds);
	report_latency_table("write", &t->write, t->write.count, t->write.count * o->bs, seconds);
	report_latency_table(o->rw == RW_TRIM ? "trim" : "zero", &t->clear, t->clear.count,
	                     t->clear.count * o->bs, seconds);
	if (o->verify)
		printf("verified: %" PRIu64 " blocks\n", t->verified);
	if (t->unknown)
		printf("outcome unknown: %" PRIu64 " writes\n", t->unknown);
	if (t->reconnects)
		printf("reconnects: %" PRIu64 "\n", t->reconnects);
	if (t->copied)
		printf("copied by libros2: %" PRIu64 " bytes (not shared: see --shm-bytes)\n",
		       t->copied);
	if (o->rw != RW_READ)
		printf("flush: %.1f ms\n", (double)t->flush_ns / 1e6);
}

static int report(const struct load *l)
{
	double seconds = (double)(l->ended_ns - l->began_ns) / 1e9;
	struct totals *t = calloc(1, sizeof(*t));
	int rc = EXIT_GOOD;

	if (!t)
		return EXIT_FAILED;
	add_up(l, t);
	if (seconds <= 0)
		seconds = 1e-9;
	if (l->o->json)
		print_json(l->o, t, seconds);
	else
		print_table(l->o, t, seconds);
	fflush(stdout);
	if (t->err.code) {
		report_error(&t->err);
		rc = t->err.status == ROS2_CORRUPT ? EXIT_CORRUPT : EXIT_FAILED;
	}
	free(t);
	return rc;
}

static int run_jobs(struct load *l)
{
	uint32_t started = 0;
	int rc = EXIT_GOOD;

	for (; started < l->n_jobs; started++) {
		struct job *j = &l->jobs[started];

		job_init(j, l, started);
		if (pthread_create(&j->thread, NULL, job_main, j))
			break;
	}
	if (started < l->n_jobs) {
		fprintf(stderr, "ros2-bench: cannot start %u threads\n", l->n_jobs);
		atomic_store(&l->stop, true);
		atomic_store(&l->go, true);
		rc = EXIT_FAILED;
	} else {
		measure(l);
	}
	for (uint32_t i = 0; i < started; i++)
		pthread_join(l->jobs[i].thread, NULL);
	return rc ? rc : report(l);
}

int cmd_load(const struct bench_opts *o)
{
	struct load l = {
		.o = o,
		.n_jobs = o->jobs,
	};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	crypto_random(&l.pattern, sizeof(l.pattern));
	l.pattern ^= o->seed;
	if (!o->file) {
		fprintf(stderr, "ros2-bench: --file is missing; see --help\n");
		return EXIT_USAGE;
	}
	if (o->size / o->bs < o->jobs || (o->verify && o->size / o->bs / o->jobs <= o->depth)) {
		fprintf(stderr,
		        "ros2-bench: --size is too small: every job needs more than --depth "
		        "blocks of its own\n");
		return EXIT_USAGE;
	}
	rc = ros2_connect(&o->client, &l.client, &err);
	if (!rc)
		rc = prepare(o, l.client, &l.layout, &err);
	l.jobs = rc ? NULL : calloc(l.n_jobs, sizeof(*l.jobs));
	if (rc) {
		if (o->json)
			report_print_json(json_pack("{s:i, s:s, s:o}", "version", 1, "command",
			                            "run", "error", report_error_json(&err)));
		report_error(&err);
		rc = EXIT_FAILED;
	} else {
		rc = l.jobs ? run_jobs(&l) : EXIT_FAILED;
	}
	free(l.jobs);
	ros2_disconnect(l.client);
	return rc;
}
