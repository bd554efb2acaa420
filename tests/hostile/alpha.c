/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alpha beside a flood over verbs, as `ros2-raw wire` and `ros2-raw hold` are over tcp, and in
 * their words: one JSON object for each thing that is said.
 *
 *   hostile-alpha DIR open         a session, its file and its region, proved on the data port,
 * with a block that it writes and reads back there; exit 0 when all of it went well hostile-alpha
 * DIR hold MS      the same, and then its lease is renewed each MS milliseconds until stdin ends or
 * says 'q'; at 's' it says how the renewals were answered, and so it does in the end, with whether
 * its memory was touched
 *
 * DIR is the cluster's (tests/integration/lib.sh); ROS2_AGENT is set.
 */
#include "tests/attack/agent_end.h"
#include "tests/attack/agent_site.h"
#include "common/clock.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL 0xa5

struct alpha {
	struct cluster cluster;
	struct site site;
	struct end e;
	uint64_t renewed, lapsed, slowest_ms; /* renewals that were answered OK, and those not */
};

static bool opens(struct alpha *a)
{
	int r = end_come(&a->site, ALPHA, &a->e);
	bool works = !r && end_works(&a->e);

	raw_print(json_pack("{s:s, s:s}", "event", "hello", "status",
	                    works ? "OK"
	                    : r   ? strerror(-r)
	                          : "its block is not written and read"));
	return works;
}

static void renew(struct alpha *a)
{
	uint64_t from = clock_monotonic_ns();
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_INTERNAL;
	char uid[60] = "session_uid=", key[24], *v[2] = {uid, key};
	struct raw_args args = {v, 2};
	json_t *j;

	for (size_t i = 0; i < sizeof(a->e.s.uid); i++)
		sprintf(uid + 12 + 2 * i, "%02x", a->e.s.uid[i]);
	snprintf(key, sizeof(key), "key=%u", a->e.s.key);
	j = raw_call(&a->cluster.channels[ALPHA], "RenewRegion", &args, &st, &err);
	a->renewed += st == ROS2_OK;
	a->lapsed += st != ROS2_OK;
	a->slowest_ms = MAX(a->slowest_ms, (clock_monotonic_ns() - from) / NS_PER_MS);
	if (j && st)
		raw_print(json_incref(j));
	json_decref(j);
}

static json_t *renewals(const struct alpha *a, const char *event)
{
	return json_pack("{s:s, s:I, s:I, s:I}", "event", event, "renewed", (json_int_t)a->renewed,
	                 "not_renewed", (json_int_t)a->lapsed, "slowest_renewal_ms",
	                 (json_int_t)a->slowest_ms);
}

static void hold(struct alpha *a, uint64_t each_ms)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t next = 0;
	char said[64];

	for (;;) {
		if (clock_monotonic_ns() >= next) {
			renew(a);
			next = clock_monotonic_ns() + each_ms * NS_PER_MS;
		}
		if (poll(&in, 1, (int)MIN(each_ms, 200u)) <= 0)
			continue;
		if (read(STDIN_FILENO, said, sizeof(said)) <= 0 || said[0] == 'q')
			return;
		if (said[0] == 's')
			raw_print(renewals(a, "renewals"));
	}
}

static bool holds(struct alpha *a, uint64_t each_ms)
{
	const uint8_t *at;
	size_t changed = 0;
	json_t *j;
	bool works;

	if (!opens(a))
		return false;
	at = memset(peer_target(a->e.p), FILL, PEER_TARGET);
	raw_print(json_pack("{s:s}", "event", "holding"));
	hold(a, each_ms);
	for (size_t i = 0; i < PEER_TARGET; i++)
		changed += at[i] != FILL;
	works = end_works(&a->e);
	j = renewals(a, "released");
	json_object_set_new(j, "untouched", json_boolean(!changed));
	json_object_set_new(j, "works", json_boolean(works));
	raw_print(j);
	return works && !changed;
}

int main(int argc, char **argv)
{
	struct alpha a = {0};
	bool well = false;

	if (argc == 3 && !strcmp(argv[2], "open"))
		well = !cluster_connect(&a.cluster, argv[1], &a.site) && opens(&a);
	else if (argc == 4 && !strcmp(argv[2], "hold"))
		well = !cluster_connect(&a.cluster, argv[1], &a.site) &&
		       holds(&a, strtoull(argv[3], NULL, 10));
	else {
		fprintf(stderr, "usage: hostile-alpha DIR open | hold MS\n");
		return 2;
	}
	end_leave(&a.e);
	cluster_close(&a.cluster);
	return well ? 0 : 1;
}
