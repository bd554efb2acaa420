/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane over real TCP, with the mem and the file engine: what works for a tenant that
 * keeps the rules.
 */
#include "tests/dataplane/fixture.h"

static uint8_t out[1u << 20], in[1u << 20];

static void fill(uint8_t *p, size_t n, uint8_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed + i * 31 + (i >> 8));
}

static void dp_write__in_capsule_is_read_back_equal(void **state)
{
	struct raw c;
	uint32_t done;

	raw_ready(*state, &c);
	fill(out, 16384, 1);
	assert_int_equal(raw_write(&c, 0, out, 16384, true), ROS2_OK);
	assert_int_equal(raw_read(&c, 0, in, 16384, &done), ROS2_OK);
	assert_int_equal(done, 16384);
	assert_memory_equal(in, out, 16384);
	raw_close(&c);
}

static void dp_write__is_pulled_when_it_is_large(void **state)
{
	struct raw c;
	uint32_t done;

	raw_ready(*state, &c);
	fill(out, sizeof(out), 7);
	assert_int_equal(raw_write(&c, 4096, out, sizeof(out), false), ROS2_OK);
	assert_int_equal(raw_read(&c, 4096, in, sizeof(in), &done), ROS2_OK);
	assert_int_equal(done, sizeof(in));
	assert_memory_equal(in, out, sizeof(out));
	assert_int_equal(raw_flush(&c), ROS2_OK);
	raw_close(&c);
}

static void dp_read__is_short_only_at_the_end_of_the_file(void **state)
{
	struct raw c;
	uint32_t done;

	raw_ready(*state, &c);
	fill(out, 5000, 3);
	assert_int_equal(raw_write(&c, 0, out, 5000, true), ROS2_OK);
	assert_int_equal(raw_read(&c, 4096, in, 4096, &done), ROS2_OK);
	assert_int_equal(done, 904);
	assert_memory_equal(in, out + 4096, 904);
	assert_int_equal(raw_read(&c, 1 << 20, in, 4096, &done), ROS2_OK);
	assert_int_equal(done, 0);
	raw_close(&c);
}

static void dp_request__of_zero_length_completes_and_is_counted(void **state)
{
	struct dp_session_stats st;
	struct raw c;
	uint32_t done = 1;

	raw_ready(*state, &c);
	assert_int_equal(raw_read(&c, 0, in, 0, &done), ROS2_OK);
	assert_int_equal(done, 0);
	assert_int_equal(raw_write(&c, 0, out, 0, true), ROS2_OK);
	/* As its rates count it: the audit log and the metrics have every operation. */
	st = fx_stats(*state, &c.session);
	assert_int_equal(st.read_ops, 1);
	assert_int_equal(st.write_ops, 1);
	assert_int_equal(st.read_bytes + st.write_bytes, 0);
	raw_close(&c);
}

static void dp_session__many_requests_in_flight_all_complete(void **state)
{
	struct raw c;
	struct wire_header h;
	uint32_t completes = 0, data = 0;

	raw_ready(*state, &c);
	fill(out, sizeof(out), 9);
	assert_int_equal(raw_write(&c, 0, out, sizeof(out), false), ROS2_OK);
	for (int i = 0; i < 128; i++) {
		h = raw_header(&c, WIRE_READ, (uint64_t)i * 4096, FX_BASE + (uint64_t)i * 4096,
		               4096);
		raw_send(&c, &h, NULL, 0);
	}
	while (completes < 128) {
		assert_true(raw_recv(&c, &h, in, sizeof(in)));
		if (h.opcode == WIRE_DATA) {
			assert_memory_equal(in, out + (h.address - FX_BASE), 4096);
			data++;
			continue;
		}
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		completes++;
	}
	assert_int_equal(data, 128);
	raw_close(&c);
}

static void dp_session__tells_stats_and_events(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct dp_session_stats st;
	struct dp_event ev;

	raw_ready(fx, &c);
	fx_event(fx, DP_EVENT_CONNECTED, -1);
	assert_int_equal(raw_write(&c, 0, out, 8192, true), ROS2_OK);
	assert_int_equal(raw_read(&c, 0, in, 4096, NULL), ROS2_OK);
	st = fx_stats(fx, &c.session);
	assert_int_equal(st.write_bytes, 8192);
	assert_int_equal(st.read_bytes, 4096);
	assert_int_equal(st.read_ops, 1);
	assert_int_equal(st.regions, 1);
	assert_int_equal(st.handles, 1);
	assert_true(st.connected);
	/* The part of an inline payload that came with its header is copied to its slot; beyond
	 * that only the mem engine copies what is written, and says so. */
	if (fx_engine_root)
		assert_in_range(st.copied_bytes, 0, 8192);
	else
		assert_in_range(st.copied_bytes, 8192, 8192 + 8192);
	raw_close(&c);
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_int_equal(ev.stats.write_bytes, 8192);
	assert_int_equal(fx_lease_count(fx), 0);
}

static void dp_session__ends_in_order_on_bye(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;
	uint32_t completes = 0;

	raw_ready(fx, &c);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	raw_send(&c, &h, NULL, 0);
	h = raw_header(&c, WIRE_PING, 0, 0, 0);
	raw_send(&c, &h, NULL, 0);
	h = raw_header(&c, WIRE_BYE, 0, 0, 0);
	raw_send(&c, &h, NULL, 0);
	while (raw_recv(&c, &h, in, sizeof(in)))
		completes += h.opcode == WIRE_COMPLETE || h.opcode == WIRE_PONG;
	assert_int_equal(completes, 2);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	raw_close(&c);
}

static void dp_control__names_and_attributes_work(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct fx_args a;
	struct dp_result res;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, out, 4096, true), ROS2_OK);
	a = (struct fx_args){.session = c.session, .a = c.handle, .mount = 1};
	res = fx_do(fx, FX_FSTAT, &a);
	assert_int_equal(res.status, ROS2_OK);
	assert_int_equal(res.attr.size, 4096);
	a.b = 100;
	assert_int_equal(fx_do(fx, FX_TRUNCATE, &a).status, ROS2_OK);
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	a.path = "file";
	a.path_op = DP_STAT;
	res = fx_do(fx, FX_PATH, &a);
	assert_int_equal(res.attr.size, 100);
	a.path_op = DP_RENAME;
	a.to = "other";
	assert_int_equal(fx_do(fx, FX_PATH, &a).status, ROS2_OK);
	a.path_op = DP_STAT;
	assert_int_equal(fx_do(fx, FX_PATH, &a).status, ROS2_NOT_FOUND);
	a.path_op = DP_MKDIR;
	a.path = "dir";
	assert_int_equal(fx_do(fx, FX_PATH, &a).status, ROS2_OK);
	a.path = "";
	a.a = 0;
	res = fx_do(fx, FX_READDIR, &a);
	assert_int_equal(res.status, ROS2_OK);
	assert_int_equal(res.dir.n, 2);
	a.path_op = DP_RMDIR;
	a.path = "dir";
	assert_int_equal(fx_do(fx, FX_PATH, &a).status, ROS2_OK);
	a.path_op = DP_UNLINK;
	a.path = "other";
	assert_int_equal(fx_do(fx, FX_PATH, &a).status, ROS2_OK);
	a.a = c.handle;
	assert_int_equal(fx_do(fx, FX_CLOSE, &a).status, ROS2_OK);
	assert_int_equal(fx_do(fx, FX_CLOSE, &a).status, ROS2_BAD_HANDLE);
	raw_close(&c);
}

static void dp_leases__lists_live_leases_with_their_owners(void **state)
{
	struct fx *fx = *state;
	struct raw c, d;
	struct dp_lease_info info[8];
	struct ros2_uid stranger = ros2_uid_new();

	raw_ready(fx, &c);
	raw_open(fx, &d);
	raw_register(&d, FX_BASE, 8192, 1);
	assert_int_equal(fx_leases(fx, &fx->tenant, info, 8), 2);
	assert_int_equal(fx_leases(fx, NULL, info, 1), 1);
	assert_true(ros2_uid_eq(&info[0].tenant, &fx->tenant));
	assert_true(ros2_uid_eq(&info[0].grant, &fx->grant));
	assert_int_equal(fx_leases(fx, &stranger, info, 8), 0);
	assert_int_equal(fx_lease_count(fx), 2);
	raw_close(&c);
}

/* Until the agent does no more reads: the socket is full, and the replies that have no place wait.
 */
static void await_stall(struct fx *fx, const struct ros2_uid *session)
{
	uint64_t seen = 0;

	/* poll: until the counter stands still */
	for (int same = 0; same < 20; usleep(5000)) {
		uint64_t now = fx_stats(fx, session).read_ops;

		same = now && now == seen ? same + 1 : 0;
		seen = now;
	}
}

/* Replies wait in the agent while the file goes and another tenant's data takes its place. */
static void dp_read__that_waits_to_be_sent_never_shows_another_file(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid other = ros2_uid_new(), grant = ros2_uid_new();
	struct wire_header h;
	struct raw c, d;
	struct fx_args a;
	uint32_t completes = 0, old = 0;

	assert_null(fx_engine_root);
	fx_tenant(fx, &other);
	fx_grant(fx, &grant, &other, clock_boottime_ns() + 60 * NS_PER_S);
	raw_ready(fx, &c);
	memset(out, 0xaa, sizeof(out));
	assert_int_equal(raw_write(&c, 0, out, sizeof(out), false), ROS2_OK);
	for (int i = 0; i < 32; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE, sizeof(out));
		raw_send(&c, &h, NULL, 0);
	}
	await_stall(fx, &c.session);
	assert_in_range(fx_stats(fx, &c.session).read_ops, 1, 31);
	a = (struct fx_args){.session = c.session, .a = c.handle};
	assert_int_equal(fx_do(fx, FX_TRUNCATE, &a).status, ROS2_OK);
	raw_open_as(fx, &d, &other, &grant, UINT64_MAX);
	raw_connect(&d);
	raw_file(&d, "other");
	d.key = raw_register(&d, FX_BASE, 4u << 20, 3);
	memset(out, 0xbb, sizeof(out));
	for (uint64_t at = 0; at < 16u << 20; at += sizeof(out))
		assert_int_equal(raw_write(&d, at, out, sizeof(out), false), ROS2_OK);
	while (completes < 32 && raw_recv(&c, &h, in, sizeof(in))) {
		completes += h.opcode == WIRE_COMPLETE;
		for (uint32_t i = 0; h.opcode == WIRE_DATA && i < h.payload_len; i++) {
			assert_true(in[i] == 0xaa || in[i] == 0);
			old += in[i] == 0xaa;
		}
	}
	assert_int_equal(completes, 32);
	assert_true(old > 0);
	raw_close(&c);
	raw_close(&d);
}

static void dp_free__ends_what_is_under_way(void **state)
{
	struct raw c;
	struct wire_header h;

	/* The teardown frees the data plane while these are in flight; the sanitizer says whether
	 * anything was left. */
	raw_ready(*state, &c);
	for (int i = 0; i < 64; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE, 65536);
		raw_send(&c, &h, NULL, 0);
	}
	raw_close(&c);
}

static void dp_write__pulled_into_the_file_engine_is_copied_by_nobody(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, out, sizeof(out), false), ROS2_OK);
	assert_int_equal(raw_read(&c, 0, in, sizeof(in), NULL), ROS2_OK);
	assert_int_equal(fx_stats(fx, &c.session).copied_bytes, 0);
	raw_close(&c);
}

int main(void)
{
	const struct CMUnitTest mem[] = {
		FX_TEST(dp_write__in_capsule_is_read_back_equal),
		FX_TEST(dp_write__is_pulled_when_it_is_large),
		FX_TEST(dp_read__is_short_only_at_the_end_of_the_file),
		FX_TEST(dp_request__of_zero_length_completes_and_is_counted),
		FX_TEST(dp_session__many_requests_in_flight_all_complete),
		FX_TEST(dp_session__tells_stats_and_events),
		FX_TEST(dp_session__ends_in_order_on_bye),
		FX_TEST(dp_control__names_and_attributes_work),
		FX_TEST(dp_leases__lists_live_leases_with_their_owners),
		FX_TEST(dp_read__that_waits_to_be_sent_never_shows_another_file),
		FX_TEST(dp_free__ends_what_is_under_way),
	};
	const struct CMUnitTest file[] = {
		FX_FILE_TEST(dp_write__in_capsule_is_read_back_equal, fx_file_setup),
		FX_FILE_TEST(dp_write__is_pulled_when_it_is_large, fx_file_setup),
		FX_FILE_TEST(dp_read__is_short_only_at_the_end_of_the_file, fx_file_setup),
		FX_FILE_TEST(dp_request__of_zero_length_completes_and_is_counted, fx_file_setup),
		FX_FILE_TEST(dp_session__many_requests_in_flight_all_complete, fx_file_setup),
		FX_FILE_TEST(dp_session__tells_stats_and_events, fx_file_setup),
		FX_FILE_TEST(dp_session__ends_in_order_on_bye, fx_file_setup),
		FX_FILE_TEST(dp_control__names_and_attributes_work, fx_file_setup),
		FX_FILE_TEST(dp_leases__lists_live_leases_with_their_owners, fx_file_setup),
		FX_FILE_TEST(dp_free__ends_what_is_under_way, fx_file_setup),
		FX_FILE_TEST(dp_write__pulled_into_the_file_engine_is_copied_by_nobody,
	                     fx_file_setup),
	};
	int failed = cmocka_run_group_tests_name("mem engine", mem, NULL, NULL);

	return failed + cmocka_run_group_tests_name("file engine", file, NULL, NULL);
}
