/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor under every request/response over TCP on this machine: 32-byte requests, replies of one
 * block, a fixed number in flight, each side sending as much as it can in one call. No framing, no
 * checks beyond the reply's number, no storage. Two processes over loopback; one line of JSON per
 * depth. What ros2-bench reaches is read against this. Each reply is the same memory, so that it is
 * always in a cache; with --span it is somewhere in that much memory, as what a server serves is;
 * with --file it is a block of a file (raw_file.c).
 */
#include "tests/bench/tcp/raw.h"
#include "common/clock.h"
#include "common/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define REPLY_MAX   (1u << 20)
#define SAMPLES_MAX (8u << 20)
#define SPAN_MAX    (1ull << 30)
#define PAGE        4096u

struct opts {
	uint32_t depths[8], n_depths, reply;
	uint64_t span;    /* bytes that replies are taken from; 0: one reply */
	const char *file; /* replies are taken from it; NULL: from memory */
	uint64_t time_ms;
};

static int die(const char *what)
{
	fprintf(stderr, "raw-tcp-bench: %s: %s\n", what, strerror(errno));
	return 1;
}

int raw_send_all(int fd, struct iovec *iov, size_t n)
{
	while (n > 0) {
		ssize_t got = writev(fd, iov, (int)n);

		if (got < 0)
			return -errno;
		for (; n > 0 && (size_t)got >= iov->iov_len; iov++, n--)
			got -= (ssize_t)iov->iov_len;
		if (n > 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + got;
			iov->iov_len -= (size_t)got;
		}
	}
	return 0;
}

/* What replies are taken from. */
struct payload {
	uint8_t *mem; /* owned */
	size_t n;     /* replies that it holds */
};

/* Zeroes that nobody wrote would all be one page of the kernel's, so a span is written. */
static int payload_make(uint64_t span, uint32_t reply, struct payload *ret)
{
	size_t bytes = span > reply ? span : reply;

	ret->n = bytes / reply;
	ret->mem = calloc(1, bytes);
	if (!ret->mem)
		return -ENOMEM;
	if (span > 0)
		memset(ret->mem, 0x5a, bytes);
	return 0;
}

size_t raw_block_of(uint64_t id, size_t n)
{
	uint32_t spread = (uint32_t)id * 2654435761u;

	return (size_t)(((uint64_t)spread * n) >> 32);
}

static int answer(int fd, struct request *reqs, size_t n, const struct payload *p, uint32_t reply)
{
	struct iovec iov[2 * DEPTH_MAX];

	for (size_t i = 0; i < n; i++) {
		uint8_t *from = p->mem + raw_block_of(reqs[i].id, p->n) * reply;

		iov[2 * i] = (struct iovec){&reqs[i].id, sizeof(reqs[i].id)};
		iov[2 * i + 1] = (struct iovec){from, reply - sizeof(reqs[i].id)};
	}
	return raw_send_all(fd, iov, 2 * n);
}

/* Until the client hangs up. */
static int serve(int fd, const struct opts *o)
{
	static struct request reqs[DEPTH_MAX];
	struct payload payload;
	size_t have = 0;
	ssize_t got;

	if (payload_make(o->span, o->reply, &payload) < 0)
		return 1;
	while ((got = recv(fd, (uint8_t *)reqs + have, sizeof(reqs) - have, 0)) > 0) {
		size_t whole;

		have += (size_t)got;
		whole = have / REQUEST;
		if (answer(fd, reqs, whole, &payload, o->reply) < 0)
			break;
		have -= whole * REQUEST;
		memmove(reqs, reqs + whole, have);
	}
	free(payload.mem);
	return got == 0 ? 0 : 1;
}

/* One of depth places for what is in flight. An id is its place and, above SLOT_BITS, its turn
 * there: a file's blocks come in any order. */
#define SLOT_BITS 9
_Static_assert(DEPTH_MAX == 1u << SLOT_BITS, "an id names a place");
struct slot {
	uint64_t id, sent_ns; /* sent_ns 0: nothing is in flight here */
};

struct client {
	int fd;
	uint32_t depth, reply;
	uint64_t sent, done;
	struct slot slots[DEPTH_MAX];
	uint32_t free[DEPTH_MAX], n_free;
	uint32_t *samples; /* owned: ns, capped */
	size_t n_samples;
	uint8_t *buf; /* owned */
	size_t have;  /* bytes of the reply being received */
	uint64_t id;
};

static int ask(struct client *c, uint32_t n)
{
	struct request reqs[DEPTH_MAX];
	struct iovec iov = {reqs, n * sizeof(reqs[0])};
	uint64_t now = clock_monotonic_ns();

	memset(reqs, 0, n * sizeof(reqs[0]));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = c->free[--c->n_free];

		reqs[i].id = c->sent++ << SLOT_BITS | at;
		c->slots[at] = (struct slot){.id = reqs[i].id, .sent_ns = now};
	}
	return raw_send_all(c->fd, &iov, 1);
}

/* The reply to c->id is whole; -EBADMSG: that is not in flight. */
static int take_reply(struct client *c, uint64_t now)
{
	uint32_t at = c->id & (DEPTH_MAX - 1);
	struct slot *slot = &c->slots[at];

	if (!slot->sent_ns || slot->id != c->id)
		return -EBADMSG;
	if (c->n_samples < SAMPLES_MAX)
		c->samples[c->n_samples++] =
			(uint32_t)MIN(now - slot->sent_ns, (uint64_t)UINT32_MAX);
	slot->sent_ns = 0;
	c->free[c->n_free++] = at;
	c->done++;
	c->have = 0;
	return 0;
}

/* Counts whole replies in @n received bytes. */
static int take_replies(struct client *c, const uint8_t *p, size_t n, uint32_t *ret)
{
	uint64_t now = clock_monotonic_ns();

	for (*ret = 0; n > 0;) {
		size_t part = MIN(n, c->reply - c->have);

		if (c->have < sizeof(c->id))
			memcpy((uint8_t *)&c->id + c->have, p, MIN(part, sizeof(c->id) - c->have));
		c->have += part;
		p += part;
		n -= part;
		if (c->have < c->reply)
			break;
		if (take_reply(c, now) < 0)
			return -EBADMSG;
		++*ret;
	}
	return 0;
}

static int run_load(struct client *c, uint64_t time_ms)
{
	uint64_t end = clock_monotonic_ns() + time_ms * 1000000;
	int rc = ask(c, c->depth);

	while (rc == 0 && c->done < c->sent) {
		ssize_t got = recv(c->fd, c->buf, REPLY_MAX, 0);
		uint32_t whole;

		if (got <= 0)
			return got < 0 ? -errno : -ECONNRESET;
		rc = take_replies(c, c->buf, (size_t)got, &whole);
		if (rc == 0 && whole > 0 && clock_monotonic_ns() < end)
			rc = ask(c, whole);
	}
	return rc;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static double percentile_us(const struct client *c, double p)
{
	return c->n_samples ? c->samples[(size_t)((double)(c->n_samples - 1) * p / 100)] / 1e3 : 0;
}

static void report(struct client *c, uint64_t took_ns)
{
	double seconds = (double)took_ns / 1e9;
	json_t *j;

	qsort(c->samples, c->n_samples, sizeof(c->samples[0]), by_value);
	j = json_pack("{s:s, s:i, s:i, s:i, s:f, s:I, s:f, s:f, s:{s:f, s:f, s:f, s:f}}", "bench",
	              "raw-tcp", "request_bytes", (int)REQUEST, "reply_bytes", (int)c->reply,
	              "depth", (int)c->depth, "seconds", seconds, "ops", (json_int_t)c->done,
	              "ops_per_s", (double)c->done / seconds, "bytes_per_s",
	              (double)c->done * c->reply / seconds, "latency_us", "p50",
	              percentile_us(c, 50), "p99", percentile_us(c, 99), "p99_9",
	              percentile_us(c, 99.9), "max", percentile_us(c, 100));
	json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
	putchar('\n');
	fflush(stdout);
	json_decref(j);
}

/* A connected pair over loopback; both ends without Nagle's delay. */
static int connect_pair(int ret[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	AUTO_CLOSE int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	int one = 1;

	ret[0] = ret[1] = -1;
	if (l < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ret[0] < 0 || connect(ret[0], (struct sockaddr *)&a, len) < 0)
		return -errno;
	ret[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (ret[1] < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		setsockopt(ret[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

static int run_client(struct client *c, uint64_t time_ms)
{
	uint64_t began;
	int rc;

	for (; c->n_free < c->depth; c->n_free++)
		c->free[c->n_free] = c->n_free;
	c->samples = calloc(SAMPLES_MAX, sizeof(*c->samples));
	c->buf = malloc(REPLY_MAX);
	if (!c->samples || !c->buf)
		return -ENOMEM;
	began = clock_monotonic_ns();
	rc = run_load(c, time_ms);
	if (rc == 0)
		report(c, clock_monotonic_ns() - began);
	return rc;
}

static int run_depth(const struct opts *o, uint32_t depth)
{
	struct client c = {.depth = depth, .reply = o->reply};
	int fds[2], rc, status = 1;
	pid_t server;

	if (connect_pair(fds) < 0)
		return die("cannot connect over loopback");
	server = fork();
	if (server < 0)
		return die("fork");
	if (server == 0) {
		close(fds[0]);
		if (o->file)
			_exit(raw_file_serve(fds[1], o->file, o->reply, depth) < 0);
		_exit(serve(fds[1], o));
	}
	close(fds[1]);
	c.fd = fds[0];
	rc = run_client(&c, o->time_ms);
	close(fds[0]);
	free(c.samples);
	free(c.buf);
	waitpid(server, &status, 0);
	errno = -rc;
	return rc < 0 ? die("the load failed") : status != 0;
}

static int parse_number(const char *name, const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;
	unsigned long long v = strtoull(s, &end, 10);

	if (s[0] < '0' || s[0] > '9' || *end || v < min || v > max) {
		fprintf(stderr, "raw-tcp-bench: --%s '%s': expected %llu to %llu\n", name, s,
		        (unsigned long long)min, (unsigned long long)max);
		return -EINVAL;
	}
	*ret = v;
	return 0;
}

static int parse(int argc, char **argv, struct opts *o)
{
	static const struct option longs[] = {{"depth", required_argument, NULL, 'd'},
	                                      {"reply", required_argument, NULL, 'r'},
	                                      {"span", required_argument, NULL, 's'},
	                                      {"time-ms", required_argument, NULL, 't'},
	                                      {"file", required_argument, NULL, 'f'},
	                                      {"help", no_argument, NULL, 'h'},
	                                      {0}};
	uint64_t v;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'd' && o->n_depths < ARRAY_SIZE(o->depths) &&
		    parse_number("depth", optarg, 1, DEPTH_MAX, &v) == 0)
			o->depths[o->n_depths++] = (uint32_t)v;
		else if (c == 'r' && parse_number("reply", optarg, 8, REPLY_MAX, &v) == 0)
			o->reply = (uint32_t)v;
		else if (c == 's' && parse_number("span", optarg, 0, SPAN_MAX, &v) == 0)
			o->span = v;
		else if (c == 't' && parse_number("time-ms", optarg, 1, 3600000, &v) == 0)
			o->time_ms = v;
		else if (c == 'f')
			o->file = optarg;
		else
			return c == 'h' ? 1 : -EINVAL;
	}
	if (o->file && (o->span || o->reply % PAGE)) {
		fprintf(stderr, "raw-tcp-bench: --file: expected no --span, and replies of whole "
		                "pages of 4096 bytes\n");
		return -EINVAL;
	}
	return optind < argc ? -EINVAL : 0;
}

int main(int argc, char **argv)
{
	struct opts o = {.reply = 4096, .time_ms = 5000};
	int rc = parse(argc, argv, &o);

	if (rc != 0) {
		fprintf(rc > 0 ? stdout : stderr,
		        "raw-tcp-bench [--depth N]... [--reply BYTES] [--span BYTES | --file PATH] "
		        "[--time-ms N]\n"
		        "Request/response over loopback, one line of JSON per depth [32, 128].\n"
		        "--span: replies are taken from so much memory [one reply's, in a "
		        "cache]\n"
		        "--file: from blocks all over a file, by io_uring, past the page cache\n");
		return rc > 0 ? 0 : 2;
	}
	if (o.n_depths == 0) {
		o.depths[o.n_depths++] = 32;
		o.depths[o.n_depths++] = 128;
	}
	for (uint32_t i = 0; rc == 0 && i < o.n_depths; i++)
		rc = run_depth(&o, o.depths[i]);
	return rc;
}
