/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page and the server of it. The only owner of libmicrohttpd. Invariant: the page that is given
 * out is complete; the lock is held for a copy of it, never while it is written.
 */
#include "common/metrics.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct metrics_page {
	char *p; /* owned */
	size_t n, cap;
	bool failed, no_memory; /* nothing is added any more */
};

struct metrics {
	struct metrics_opts o;
	struct loop_timer timer;
	struct MHD_Daemon *http;
	uint16_t port;
	pthread_mutex_t lock;
	/* guarded by lock */
	char *text; /* owned */
	size_t text_len;
};

/* ---- writing ---- */

static void put(struct metrics_page *p, const char *s, size_t n)
{
	if (p->failed)
		return;
	if (p->n + n > p->cap) {
		size_t cap = MIN(MAX(p->cap * 2, p->n + n + 8192), METRICS_PAGE_MAX);
		bool fits = p->n + n <= METRICS_PAGE_MAX;
		char *q = fits ? realloc(p->p, cap) : NULL;

		if (!q) {
			p->failed = true;
			p->no_memory = fits;
			return;
		}
		p->p = q;
		p->cap = cap;
	}
	memcpy(p->p + p->n, s, n);
	p->n += n;
}

static void puts_in(struct metrics_page *p, const char *s)
{
	put(p, s, strlen(s));
}

void metrics_family(struct metrics_page *p, const char *name, enum metrics_type type,
                    const char *help)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};
	char line[512];

	snprintf(line, sizeof(line), "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
	puts_in(p, line);
}

static void put_label(struct metrics_page *p, const char *name, const char *value, bool first)
{
	puts_in(p, first ? "{" : ",");
	puts_in(p, name);
	puts_in(p, "=\"");
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			put(p, "\\", 1);
		if (*value == '\n')
			puts_in(p, "\\n");
		else
			put(p, value, 1);
	}
	put(p, "\"", 1);
}

/* All of a sample or nothing. */
static void sample(struct metrics_page *p, const char *name, const char *value, va_list ap)
{
	size_t before = p->n;
	const char *label;
	bool first = true;

	if (p->failed)
		return;
	puts_in(p, name);
	while ((label = va_arg(ap, const char *))) {
		const char *v = va_arg(ap, const char *);

		put_label(p, label, v ? v : "", first);
		first = false;
	}
	puts_in(p, first ? " " : "} ");
	puts_in(p, value);
	puts_in(p, "\n");
	if (p->failed)
		p->n = before;
}

void metrics_u64(struct metrics_page *p, const char *name, uint64_t value, ...)
{
	char text[32];
	va_list ap;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	va_start(ap, value);
	sample(p, name, text, ap);
	va_end(ap);
}

void metrics_f64(struct metrics_page *p, const char *name, double value, ...)
{
	char text[64];
	va_list ap;

	snprintf(text, sizeof(text), "%.9g", value);
	va_start(ap, value);
	sample(p, name, text, ap);
	va_end(ap);
}

/* ---- latencies ---- */

#define FIRST_BOUND_NS 250000ull

void metrics_latency_add(struct metrics_latency *l, uint64_t ns)
{
	unsigned i = 0;

	while (i + 1 < METRICS_BUCKETS && ns > FIRST_BOUND_NS << i)
		i++;
	__atomic_fetch_add(&l->bucket[i], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&l->sum_ns, ns, __ATOMIC_RELAXED);
}

void metrics_latency_write(struct metrics_page *p, const char *name, struct metrics_latency *l,
                           const char *help)
{
	char full[128], le[32];
	uint64_t n = 0;

	metrics_family(p, name, METRICS_HISTOGRAM, help);
	snprintf(full, sizeof(full), "%s_bucket", name);
	for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
		n += __atomic_load_n(&l->bucket[i], __ATOMIC_RELAXED);
		if (i + 1 == METRICS_BUCKETS)
			strcpy(le, "+Inf");
		else
			snprintf(le, sizeof(le), "%.6g", (double)(FIRST_BOUND_NS << i) / 1e9);
		metrics_u64(p, full, n, "le", le, NULL);
	}
	snprintf(full, sizeof(full), "%s_sum", name);
	metrics_f64(p, full, (double)__atomic_load_n(&l->sum_ns, __ATOMIC_RELAXED) / 1e9, NULL);
	snprintf(full, sizeof(full), "%s_count", name);
	metrics_u64(p, full, n, NULL);
}

/* ---- serving ---- */

static void on_timer(void *arg)
{
	struct metrics *m = arg;
	struct metrics_page p = {0};
	char *old = NULL;

	m->o.render(m->o.arg, &p);
	/* A part of a page would say that what it leaves out is not so: the last one stays. */
	if (p.no_memory)
		free(TAKE_PTR(p.p));
	pthread_mutex_lock(&m->lock);
	if (p.p) {
		old = m->text;
		m->text = p.p;
		m->text_len = p.n;
	}
	pthread_mutex_unlock(&m->lock);
	free(old);
	loop_timer_in_ms(m->o.loop, &m->timer, METRICS_PERIOD_MS, on_timer, m);
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *text, size_t n)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	(void)MHD_add_response_header(r, "Content-Type",
	                              "text/plain; version=0.0.4; charset=utf-8");
	ok = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ok;
}

/* The server's thread. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **state)
{
	static const char none[] = "only /metrics is here\n", not_allowed[] = "only GET\n",
			  not_yet[] = "there is no page yet\n";
	static int seen;
	struct metrics *m = arg;
	enum MHD_Result ok;

	/* First with the headers, then again when the request is complete; a body is not read. */
	if (!*state) {
		*state = &seen;
		return MHD_YES;
	}
	if (*upload_len) {
		*upload_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return answer(c, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed, sizeof(not_allowed) - 1);
	if (strcmp(url, "/metrics") != 0)
		return answer(c, MHD_HTTP_NOT_FOUND, none, sizeof(none) - 1);
	pthread_mutex_lock(&m->lock);
	if (m->text)
		ok = answer(c, MHD_HTTP_OK, m->text, m->text_len);
	else
		ok = answer(c, MHD_HTTP_SERVICE_UNAVAILABLE, not_yet, sizeof(not_yet) - 1);
	pthread_mutex_unlock(&m->lock);
	return ok;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* "1.2.3.4:5", "[::1]:5" */
static struct addrinfo *parse_address(const char *s)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	const char *colon = strrchr(s, ':');
	struct addrinfo *ai = NULL;
	char host[64];
	size_t n = colon ? (size_t)(colon - s) : 0;

	/* getaddrinfo takes a port modulo 65536. */
	if (!n || n >= sizeof(host) || !colon[1] || strlen(colon + 1) > 5 ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) || atoi(colon + 1) > 65535)
		return NULL;
	memcpy(host, s, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	return getaddrinfo(host, colon + 1, &hints, &ai) == 0 ? ai : NULL;
}

static int listen_at(const struct metrics_opts *o, uint16_t *ret_port, struct ros2_err *err)
{
	struct addrinfo *ai = parse_address(o->listen);
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	int fd, one = 1, r = 0;

	if (!ai)
		return ros2_err_set(err, -EINVAL,
		                    "--metrics-listen: expected HOST:PORT with a numeric host, "
		                    "found \"%s\"",
		                    o->listen);
	if (!o->allow_remote && !is_loopback(ai->ai_addr)) {
		freeaddrinfo(ai);
		return ros2_err_set(
			err, -EINVAL,
			"--metrics-listen %s is not a loopback address, and metrics are "
			"neither encrypted nor authenticated: add "
			"--metrics-allow-remote if the network may read them",
			o->listen);
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, METRICS_CONNECTIONS) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
		r = ros2_err_set(err, -errno, "--metrics-listen %s: %s", o->listen,
		                 strerrordesc_np(errno));
	freeaddrinfo(ai);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	*ret_port = ntohs(bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
	                                             : ((struct sockaddr_in6 *)&bound)->sin6_port);
	return fd;
}

int metrics_start(const struct metrics_opts *o, struct metrics **ret, struct ros2_err *err)
{
	struct metrics *m = calloc(1, sizeof(*m));
	int fd;

	if (!m)
		return ros2_err_set(err, -ENOMEM, "no memory for metrics");
	m->o = *o;
	fd = listen_at(o, &m->port, err);
	if (fd < 0) {
		free(m);
		return fd;
	}
	m->o.listen = NULL;
	pthread_mutex_init(&m->lock, NULL);
	m->http =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, m,
	                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
	                         (unsigned)METRICS_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, 10u,
	                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
	if (!m->http) {
		close(fd);
		pthread_mutex_destroy(&m->lock);
		free(m);
		return ros2_err_set(err, -EIO, "--metrics-listen: the server does not start");
	}
	loop_timer_in_ms(o->loop, &m->timer, 0, on_timer, m);
	*ret = m;
	return 0;
}

void metrics_stop(struct metrics *m)
{
	if (!m)
		return;
	loop_timer_stop(&m->timer);
	MHD_stop_daemon(m->http);
	pthread_mutex_destroy(&m->lock);
	free(m->text);
	free(m);
}

uint16_t metrics_port(const struct metrics *m)
{
	return m ? m->port : 0;
}
