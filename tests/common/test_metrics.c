/* SPDX-License-Identifier: Apache-2.0 */
/* The page of metrics over real HTTP: escaping, types, who may listen where. */
#include "common/metrics.h"
#include "common/util.h"
#include "tests/testing.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct metrics_latency latency;
static unsigned many;

static void render(void *arg, struct metrics_page *p)
{
	metrics_family(p, "x_things", METRICS_GAUGE, "Things.");
	metrics_u64(p, "x_things", UINT64_MAX, NULL);
	metrics_u64(p, "x_things", 1, "name", "a\"b\\c\nd", "other", "", NULL);
	metrics_f64(p, "x_things", 0.25, "name", "x", NULL);
	metrics_latency_write(p, "x_wait_seconds", &latency, "Waits.");
	for (unsigned i = 0; i < many; i++)
		metrics_u64(p, "x_things", i, "name", "something that is long enough to fill it",
		            NULL);
}

static void stop(void *arg)
{
	metrics_stop(*(struct metrics **)arg);
}

static char *scrape(uint16_t port)
{
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons(port),
	                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char *text = malloc(METRICS_PAGE_MAX + 4096);
	size_t n = 0;
	ssize_t k;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(write(fd, request, sizeof(request) - 1), sizeof(request) - 1);
	while ((k = read(fd, text + n, METRICS_PAGE_MAX + 4000 - n)) > 0)
		n += (size_t)k;
	text[n] = '\0';
	close(fd);
	return text;
}

/* The first page is there when the loop has turned once. */
static char *page(struct metrics **m, struct loop **l)
{
	struct metrics_opts o = {.listen = "127.0.0.1:0", .render = render};
	char *text;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "metrics"}, l), 0);
	o.loop = *l;
	assert_int_equal(metrics_start(&o, m, NULL), 0);
	assert_int_equal(loop_thread_start(*l), 0);
	for (text = scrape(metrics_port(*m)); !strstr(text, "x_things");
	     text = scrape(metrics_port(*m)))
		free(text);
	return text;
}

static void end(struct metrics **m, struct loop *l)
{
	loop_call(l, stop, m);
	loop_stop(l);
	loop_thread_join(l);
	loop_free(l);
}

static void metrics__tell_types_and_escape_what_others_chose(void **state)
{
	struct metrics *m;
	struct loop *l;
	char *text;

	metrics_latency_add(&latency, 250000);
	metrics_latency_add(&latency, 250001);
	metrics_latency_add(&latency, UINT64_MAX / 4);
	text = page(&m, &l);
	assert_non_null(strstr(text, " 200 OK"));
	assert_non_null(strstr(text, "text/plain; version=0.0.4"));
	assert_non_null(strstr(text, "# HELP x_things Things.\n# TYPE x_things gauge\n"));
	assert_non_null(strstr(text, "\nx_things 18446744073709551615\n"));
	assert_non_null(strstr(text, "\nx_things{name=\"a\\\"b\\\\c\\nd\",other=\"\"} 1\n"));
	assert_non_null(strstr(text, "\nx_things{name=\"x\"} 0.25\n"));
	assert_non_null(strstr(text, "\nx_wait_seconds_bucket{le=\"0.00025\"} 1\n"));
	assert_non_null(strstr(text, "\nx_wait_seconds_bucket{le=\"0.0005\"} 2\n"));
	assert_non_null(strstr(text, "\nx_wait_seconds_bucket{le=\"4.096\"} 2\n"));
	assert_non_null(strstr(text, "\nx_wait_seconds_bucket{le=\"+Inf\"} 3\n"));
	assert_non_null(strstr(text, "\nx_wait_seconds_count 3\n"));
	free(text);
	end(&m, l);
}

static void metrics__that_do_not_fit_end_with_a_whole_line(void **state)
{
	struct metrics *m;
	struct loop *l;
	char *text;
	size_t n;

	many = 100000;
	text = page(&m, &l);
	many = 0;
	n = strlen(text);
	assert_true(n > METRICS_PAGE_MAX - 1000 && n < METRICS_PAGE_MAX + 1000);
	assert_int_equal(text[n - 1], '\n');
	free(text);
	end(&m, l);
}

static void metrics__listen_on_loopback_unless_told(void **state)
{
	static const char *const bad[] = {
		"0.0.0.0:0", "[::]:0", "localhost:0", "127.0.0.1",      "127.0.0.1:x", "127.0.0.1:",
		":9",        "",       "[::1:0",      "127.0.0.1:99999"};
	struct metrics_opts o = {.render = render};
	struct metrics *m;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "metrics"}, &o.loop), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ros2_err err = ROS2_ERR_INIT;

		o.listen = bad[i];
		if (metrics_start(&o, &m, &err) >= 0)
			fail_msg("%s was taken", bad[i]);
		assert_non_null(strstr(err.msg, "--metrics-listen"));
	}
	o.listen = "0.0.0.0:0";
	o.allow_remote = true;
	assert_int_equal(metrics_start(&o, &m, NULL), 0);
	metrics_stop(m);
	loop_free(o.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metrics__tell_types_and_escape_what_others_chose),
		cmocka_unit_test(metrics__that_do_not_fit_end_with_a_whole_line),
		cmocka_unit_test(metrics__listen_on_loopback_unless_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
