/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 over memory shared with the agent: what is copied and what not, what happens when rings,
 * stage and memory are full, when the agent is lost, and when it is hostile.
 */
#include "tests/await.h"
#include "tests/client/rig.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/shm_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define PIECE (256u << 10)

static const struct ros2_session_opts over_shm = {.transport = ROS2_TRANSPORT_SHM};

static int setup(void **state)
{
	int rc = rig_setup(state);

	fake_agent_offer_shm(((struct rig *)*state)->agent);
	return rc;
}

/* Parts of this program's address space that are memory of the agent's. */
static unsigned count_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:ros2-fake") != NULL;
	fclose(f);
	return n;
}

/* Told of before each session is asked for. */
static bool must_hold_none, held_some;

int __real_control_open_session(struct control *c, enum ros2_transport transport,
                                uint64_t shm_bytes, struct control_session *ret,
                                struct ros2_err *err);
int __wrap_control_open_session(struct control *c, enum ros2_transport transport,
                                uint64_t shm_bytes, struct control_session *ret,
                                struct ros2_err *err);

int __wrap_control_open_session(struct control *c, enum ros2_transport transport,
                                uint64_t shm_bytes, struct control_session *ret,
                                struct ros2_err *err)
{
	/* The fake agent's own goes with the thread of its connection. */
	if (must_hold_none)
		held_some |= !AWAIT(count_mappings() == 0);
	return __real_control_open_session(c, transport, shm_bytes, ret, err);
}

static int teardown(void **state)
{
	struct rig *r = *state;
	bool violated;
	int rc;

	WITH_AGENT(r->agent, violated = r->agent->saw_violation);
	rc = rig_teardown(state);

	return rc || violated || count_mappings() ? -1 : 0;
}

static uint64_t copied(const struct rig *r)
{
	struct ros2_session_info info;

	ros2_session_info(r->session, &info);
	assert_int_equal(info.transport, ROS2_TRANSPORT_SHM);
	return info.copied_bytes;
}

static bool is_shared(const struct rig *r, const void *p)
{
	return shm_region_is_shared(r->session, region_find(r->session, p, 1));
}

/* Memory of the program's own. */
static uint8_t *own_memory(struct rig *r, size_t len, struct ros2_region **ret)
{
	uint8_t *p = malloc(len);

	assert_non_null(p);
	rig_ok(r, ros2_region_register(r->session, p, len, ROS2_REGION_READ | ROS2_REGION_WRITE,
	                               ret, &r->err));
	return p;
}

static void shared_memory__is_written_and_read_without_a_copy(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);

	rig_open(r, &over_shm);
	assert_true(is_shared(r, r->buf));
	for (size_t i = 0; i < r->buf_len; i++)
		assert_int_equal(r->buf[i], 0);
	rig_pattern(r->buf, r->buf_len, 1);
	assert_int_equal(rig_write(r, r->buf + 5, 100001, 3).result, 100001);
	assert_memory_equal(file + 3, r->buf + 5, 100001);
	rig_pattern(file, 1u << 20, 2);
	assert_int_equal(rig_read(r, r->buf + 7, PIECE, 9).result, PIECE);
	assert_memory_equal(r->buf + 7, file + 9, PIECE);
	/* Short at the end of the file. */
	assert_int_equal(rig_read(r, r->buf, 1000, (1u << 20) - 10).result, 10);
	assert_int_equal(ros2_pwrite(r->file, r->buf, r->buf_len, 0, &r->err), r->buf_len);
	rig_meet(r);
	assert_memory_equal(file, r->buf, r->buf_len);
	rig_ok(r, ros2_zero(r->file, 4096, 0, &r->err));
	rig_ok(r, ros2_flush(r->file, &r->err));
	rig_meet(r);
	assert_int_equal(file[1], 0);
	assert_int_equal(copied(r), 0);
	/* The stage was not needed: no lease for it. */
	assert_int_equal(r->agent->n_registers, 1);
	/* Room that is given back is had again, and reads as zeros. */
	ros2_buf_free(r->session, r->buf);
	rig_ok(r, ros2_buf_alloc(r->session, 5000, (void **)&r->buf, &r->err));
	assert_true(is_shared(r, r->buf));
	assert_int_equal(r->buf[0] | r->buf[4999], 0);
}

static void other_memory__is_copied_once_and_has_no_lease(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20), *own;
	struct ros2_region *region;

	rig_open(r, &over_shm);
	own = own_memory(r, PIECE, &region);
	assert_int_equal(r->agent->n_registers, 1);
	rig_pattern(own, PIECE, 3);
	assert_int_equal(rig_write(r, own + 1, 70000, 11).result, 70000);
	assert_memory_equal(file + 11, own + 1, 70000);
	assert_int_equal(copied(r), 70000);
	rig_pattern(file, 1u << 20, 4);
	assert_int_equal(rig_read(r, own, PIECE, 1).result, PIECE);
	assert_memory_equal(own, file + 1, PIECE);
	assert_int_equal(copied(r), 70000 + PIECE);
	/* Only what came is copied. */
	memset(own, 0x5a, PIECE);
	assert_int_equal(rig_read(r, own, 100, (1u << 20) - 10).result, 10);
	assert_int_equal(own[10], 0x5a);
	assert_int_equal(copied(r), 70000 + PIECE + 10);
	assert_int_equal(r->agent->n_registers, 2);
	ros2_region_deregister(region);
	free(own);
}

static void unregistered_memory__of_any_length_is_copied_once(void **state)
{
	struct rig *r = *state;
	size_t len = 3u << 20;
	uint8_t *file = fake_agent_file(r->agent, "f", len), *own = malloc(len);

	rig_open(r, &over_shm);
	rig_pattern(own, len, 5);
	assert_int_equal(ros2_pwrite(r->file, own, len, 0, &r->err), len);
	rig_meet(r);
	assert_memory_equal(file, own, len);
	memset(own, 0, len);
	assert_int_equal(ros2_pread(r->file, own, len, 0, &r->err), len);
	assert_memory_equal(file, own, len);
	assert_int_equal(copied(r), 2 * len);
	free(own);
}

static void access_of_a_region__is_checked_here(void **state)
{
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t own[4096] = {1};

	rig_open(r, &over_shm);
	rig_ok(r, ros2_region_register(r->session, own, sizeof(own), ROS2_REGION_READ, &region,
	                               &r->err));
	assert_int_equal(ros2_prep_read(r->file, own, 10, 0, 0, &r->err), -EPERM);
	assert_int_equal(r->err.status, ROS2_ACCESS);
	assert_int_equal(rig_write(r, own, 10, 0).result, 10);
	/* The program may read into memory that is its own. */
	assert_int_equal(ros2_pread(r->file, own, 10, 0, &r->err), 10);
	ros2_region_deregister(region);
}

static void full_memory__is_followed_by_memory_that_is_not_shared(void **state)
{
	struct rig *r = *state;
	unsigned n_shared = 0, n_other = 0;

	rig_open(r, &over_shm);
	for (int i = 0; i < 6; i++) {
		void *p = NULL;

		rig_ok(r, ros2_buf_alloc(r->session, 1u << 20, &p, &r->err));
		memset(p, i, 1u << 20);
		n_shared += is_shared(r, p);
		n_other += !is_shared(r, p);
		assert_int_equal(rig_write(r, p, PIECE, 0).result, PIECE);
		assert_int_equal(fake_agent_file(r->agent, "f", 1u << 20)[PIECE - 1], i);
	}
	/* 4 MiB, a quarter for the stage, one for the rig's buffer. */
	assert_int_equal(n_shared, 2);
	assert_int_equal(n_other, 4);
	assert_int_equal(copied(r), 4 * PIECE);
}

static void policy__shapes_regions_by_their_offset(void **state)
{
	struct rig *r = *state;
	void *p = NULL;

	r->agent->region_alignment = 1u << 18;
	r->agent->region_size_min = 1u << 18;
	rig_open(r, &over_shm);
	rig_ok(r, ros2_buf_alloc(r->session, 100, &p, &r->err));
	assert_true(is_shared(r, p));
	assert_int_equal(ros2_pwrite(r->file, "x", 1, 0, &r->err), 1);
	for (int i = 0; i < FAKE_REGIONS; i++) {
		const struct fake_lease *l = &r->agent->leases[i];

		assert_int_equal(l->addr % (1u << 18), 0);
		assert_true(!l->live || l->len >= 1u << 18);
	}
}

static void size__is_asked_for_in_whole_units(void **state)
{
	struct ros2_session_opts o = over_shm;
	struct rig *r = *state;

	o.shm_bytes = (3u << 20) + 1;
	rig_open(r, &o);
	assert_int_equal(r->agent->last_shm_bytes, (3u << 20) + WIRE_SHM_DATA_UNIT);
}

static void request__longer_than_the_stage_is_too_large_by_name(void **state)
{
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *own;

	r->agent->region_size_max = 65536;
	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	rig_ok(r, ros2_session_open(r->client, &over_shm, &r->session, &r->err));
	rig_ok(r, ros2_mount(r->session, "data", &r->mount, &r->err));
	rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDWR, 0, &r->file, &r->err));
	own = own_memory(r, PIECE, &region);
	assert_int_equal(rig_write(r, own, 65537, 0).status, ROS2_TOO_LARGE);
	assert_int_equal(rig_write(r, own, 65536, 0).result, 65536);
	/* Plain I/O is split. */
	assert_int_equal(ros2_pwrite(r->file, own, PIECE, 0, &r->err), PIECE);
	ros2_region_deregister(region);
	free(own);
}

/* ---- what is full ---- */

static void collect(struct rig *r, uint32_t n, int64_t result)
{
	struct ros2_completion c[64];

	rig_meet(r);
	while (n) {
		int got = ros2_wait(r->session, c, 1, 64, AWAIT_MS, &r->err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(c[i].result, result);
		n -= (uint32_t)got;
	}
	rig_meet(r);
}

static void full_rings__both_ways_lose_nothing(void **state)
{
	struct ros2_session_opts o = over_shm;
	struct wire_shm_control *ctl;
	struct rig *r = *state;
	bool moved = false;
	uint32_t n = 900;

	o.depth = n;
	r->agent->credits = 1024;
	rig_open(r, &o);
	ctl = (struct wire_shm_control *)r->session->shm->arena->map;
	WITH_AGENT(r->agent, r->agent->hold_ring = true);
	for (uint32_t i = 0; i < n; i++)
		rig_ok(r, ros2_prep_read(r->file, r->buf + i, 1, i, i, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(r->session->tx.count, n - WIRE_SHM_RING_ENTRIES);
	/* The agent answers until it has no room, and then waits for a byte. */
	WITH_AGENT(r->agent, r->agent->hold_ring = false);
	assert_true(AWAIT(__atomic_load_n(&ctl->to_tenant.written, __ATOMIC_ACQUIRE) ==
	                  WIRE_SHM_RING_ENTRIES));
	rig_ok(r, shm_link_ops.send(r->session, &moved, &r->err));
	assert_int_equal(r->session->tx.count, 0);
	/* time: until it found no room; nothing tells it from an agent that found no message */
	usleep(100000);
	collect(r, n, 1);
	/* A PING would have woken it, too, but so late that it must not be needed. */
	WITH_AGENT(r->agent, assert_int_equal(r->agent->n_pings, 0));
}

/* No answer comes that could wake it: it is the room. */
static void full_ring__to_the_agent_is_gone_on_with_when_it_takes(void **state)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;
	struct ros2_session_opts o = over_shm;
	struct rig *r = *state;
	bool moved = false;
	uint32_t n = 900;

	o.depth = n;
	r->agent->credits = 1024;
	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->hold_ring = r->agent->hold = true);
	for (uint32_t i = 0; i < n; i++)
		rig_ok(r, ros2_prep_read(r->file, r->buf + i, 1, i, i, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(r->session->tx.count, n - WIRE_SHM_RING_ENTRIES);
	WITH_AGENT(r->agent, r->agent->hold_ring = false);
	while (r->session->tx.count) {
		shm_link_ops.poll(r->session, 2 * AWAIT_MS);
		assert_true(clock_monotonic_ns() < until);
		rig_ok(r, shm_link_ops.send(r->session, &moved, &r->err));
	}
	assert_int_equal(r->session->n_sent, n);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void full_stage__waits_without_spinning(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *own, *file = fake_agent_file(r->agent, "f", 4u << 20);
	uint64_t used;

	rig_open(r, &over_shm);
	own = own_memory(r, 4u << 20, &region);
	rig_pattern(own, 4u << 20, 6);
	WITH_AGENT(r->agent, r->agent->hold_ring = true);
	for (uint32_t i = 0; i < 16; i++)
		rig_ok(r, ros2_prep_write(r->file, own + i * PIECE, PIECE, i * PIECE, i, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(r->session->n_sent, 4);
	assert_true(r->session->stage_is_full);
	used = cpu_ns();
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 400, &r->err), 0);
	assert_true(cpu_ns() - used < 200 * NS_PER_MS);
	WITH_AGENT(r->agent, r->agent->hold_ring = false);
	collect(r, 16, PIECE);
	assert_memory_equal(file, own, 4u << 20);
	assert_int_equal(copied(r), 4u << 20);
	assert_false(r->session->stage_is_full);
	ros2_region_deregister(region);
	free(own);
}

/* Pieces of many sizes come and go in another order than they were taken. */
static void stage__is_shared_out_to_requests_of_any_length(void **state)
{
	struct ros2_completion c[32];
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *own, *file = fake_agent_file(r->agent, "f", 4u << 20);
	uint32_t next = 0, at = 0, x = 12345, done = 0;

	rig_open(r, &over_shm);
	own = own_memory(r, 4u << 20, &region);
	rig_pattern(file, 4u << 20, 7);
	rig_meet(r);
	while (done < 300) {
		int got;

		while (next < 300 && next - done < 30) {
			uint32_t len = 1 + (x = x * 1664525 + 1013904223) % 100000;

			at = at + len > 4u << 20 ? 0 : at;
			rig_ok(r, ros2_prep_read(r->file, own + at, len, at, len, &r->err));
			at += len;
			next++;
		}
		rig_ok(r, ros2_submit(r->session, &r->err));
		got = ros2_wait(r->session, c, 1, 32, AWAIT_MS, &r->err);
		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(c[i].result, c[i].tag);
		done += (uint32_t)got;
	}
	rig_meet(r);
	assert_memory_equal(own, file, 1u << 20);
	for (size_t i = 0; i < ARRAY_SIZE(r->session->shm->pages_in_use); i++)
		assert_int_equal(r->session->shm->pages_in_use[i], 0);
	ros2_region_deregister(region);
	free(own);
}

/* ---- what is lost ---- */

static void reconnect__keeps_bytes_and_copies_them_from_then_on(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20), want[4096];
	void *fresh = NULL;

	rig_open(r, &over_shm);
	rig_pattern(r->buf, r->buf_len, 8);
	memcpy(want, r->buf, sizeof(want));
	assert_int_equal(rig_write(r, r->buf, PIECE, 0).result, PIECE);
	assert_int_equal(copied(r), 0);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf + PIECE, PIECE, 0).result, PIECE);
	assert_int_equal(r->session->reconnects, 1);
	assert_false(is_shared(r, r->buf));
	assert_memory_equal(r->buf, want, sizeof(want));
	assert_memory_equal(r->buf + PIECE, file, PIECE);
	assert_int_equal(copied(r), PIECE);
	assert_int_equal(rig_write(r, r->buf + 100, 1000, 0).result, 1000);
	assert_memory_equal(file, r->buf + 100, 1000);
	rig_ok(r, ros2_buf_alloc(r->session, 1u << 20, &fresh, &r->err));
	assert_true(is_shared(r, fresh));
	assert_int_equal(rig_read(r, fresh, 1000, 0).result, 1000);
	assert_memory_equal(fresh, r->buf + 100, 1000);
	assert_int_equal(copied(r), PIECE + 1000);
	/* With the last region of the old memory that is gone, too. */
	ros2_buf_free(r->session, r->buf);
	assert_true(AWAIT(count_mappings() == 2));
}

/* The agent counts what is kept: it would refuse another where its limit is one session's. */
static void reconnect__keeps_nothing_that_the_program_does_not(void **state)
{
	struct ros2_region *region;
	struct rig *r = *state;
	uint8_t *own;

	rig_open(r, &over_shm);
	own = own_memory(r, PIECE, &region);
	assert_int_equal(rig_write(r, own, PIECE, 0).result, PIECE);
	ros2_buf_free(r->session, TAKE_PTR(r->buf));
	held_some = false;
	must_hold_none = true;
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, own, PIECE, 0).result, PIECE);
	must_hold_none = false;
	assert_int_equal(r->session->reconnects, 1);
	assert_false(held_some);
	ros2_region_deregister(region);
	free(own);
}

static void reconnect__in_the_middle_of_reads_loses_none(void **state)
{
	struct ros2_session_opts o = over_shm;
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *own, *file = fake_agent_file(r->agent, "f", 1u << 20);

	o.depth = 32;
	rig_pattern(file, 1u << 20, 9);
	rig_open(r, &o);
	own = own_memory(r, 1u << 20, &region);
	for (int round = 0; round < 4; round++) {
		WITH_AGENT(r->agent, r->agent->drop_after = 9);
		for (uint32_t i = 0; i < 32; i++) {
			uint8_t *to = (i % 2 ? own : r->buf) + i * 32768;

			memset(to, 0, 32768);
			rig_ok(r, ros2_prep_read(r->file, to, 32768, i * 32768, i, &r->err));
		}
		rig_ok(r, ros2_submit(r->session, &r->err));
		collect(r, 32, 32768);
		for (uint32_t i = 0; i < 32; i++)
			assert_memory_equal((i % 2 ? own : r->buf) + i * 32768, file + i * 32768,
			                    32768);
	}
	assert_true(r->session->reconnects >= 4);
	ros2_region_deregister(region);
	free(own);
}

/* The agent's engine has begun a read when the connection is lost, and ends it after the program
 * has its bytes from the new one. */
static void lost_agent__reaches_no_buffer_that_the_program_has_back(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;
	uint8_t want[16384];

	rig_open(r, &over_shm);
	rig_pattern(want, sizeof(want), 10);
	memcpy(r->buf, want, sizeof(want));
	WITH_AGENT(r->agent, r->agent->hold = r->agent->late = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf + 4096, 8192, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_true(AWAIT(fake_agent_count(r->agent, &r->agent->n_reads) == 1));
	WITH_AGENT(r->agent, r->agent->hold = false);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, AWAIT_MS, &r->err), 1);
	assert_int_equal(c.result, 8192);
	memcpy(r->buf + 4096, want + 4096, 8192);
	WITH_AGENT(r->agent, r->agent->late_now = true);
	assert_true(AWAIT(fake_agent_count(r->agent, &r->agent->n_late) == 1));
	assert_memory_equal(r->buf, want, sizeof(want));
	/* What it has for the file is what the program wrote meanwhile. */
	assert_int_equal(rig_write(r, r->buf, sizeof(want), 0).result, sizeof(want));
	assert_memory_equal(fake_agent_file(r->agent, "f", 1u << 20), want, sizeof(want));
}

static void lost_connection__writes_in_the_ring_are_in_doubt(void **state)
{
	struct rig *r = *state;

	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(fake_agent_count(r->agent, &r->agent->n_writes), 1);
	/* After the reconnect by a copy. */
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(fake_agent_count(r->agent, &r->agent->n_writes), 3);
}

static void lease__that_ended_is_had_again(void **state)
{
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *own;
	unsigned before;

	rig_open(r, &over_shm);
	own = own_memory(r, 4096, &region);
	assert_int_equal(rig_write(r, own, 4096, 0).result, 4096);
	before = r->agent->n_registers;
	WITH_AGENT(r->agent, r->agent->expire_next = 1);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_registers, before + 1);
	WITH_AGENT(r->agent, r->agent->expire_next = 2);
	assert_int_equal(rig_write(r, own, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_registers, before + 3);
	ros2_region_deregister(region);
	free(own);
}

static void refused_stage__names_the_agents_reason(void **state)
{
	struct rig *r = *state;
	uint8_t byte = 1;

	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_LIMIT);
	assert_true(ros2_pwrite(r->file, &byte, 1, 0, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_LIMIT);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_OK);
	assert_int_equal(ros2_pwrite(r->file, &byte, 1, 0, &r->err), 1);
}

static void agent__that_is_not_there_is_named(void **state)
{
	struct rig *r = *state;

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	WITH_AGENT(r->agent, snprintf(r->agent->shm_path, sizeof(r->agent->shm_path), "/nowhere"));
	assert_true(ros2_session_open(r->client, &over_shm, &r->session, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_UNAVAILABLE);
	WITH_AGENT(r->agent, snprintf(r->agent->shm_path, sizeof(r->agent->shm_path), "x/y"));
	assert_true(ros2_session_open(r->client, &over_shm, &r->session, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_PROTOCOL);
}

static void nak__brings_its_words(void **state)
{
	struct rig *r = *state;

	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->nak_next = ROS2_RATE);
	assert_true(ros2_pread(r->file, r->buf, 10, 0, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_RATE);
	assert_non_null(strstr(r->err.msg, "not allowed here"));
}

/* ---- a hostile agent ---- */

static void hostile_agent__cannot_share_what_is_no_shared_memory(void **state)
{
	static const enum ros2_status expected[SHM_OFFER_LAST] = {
		[SHM_OFFER_NAK] = ROS2_LIMIT,
		[SHM_OFFER_CLOSE] = ROS2_CLOSED,
	};

	for (int i = SHM_OFFER_GOOD + 1; i < SHM_OFFER_LAST; i++) {
		enum ros2_status want = expected[i] ? expected[i] : ROS2_PROTOCOL;
		void *fresh = NULL;
		struct rig *r;

		setup(&fresh);
		r = fresh;
		r->agent->shm_offer = i;
		rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
		assert_true(ros2_session_open(r->client, &over_shm, &r->session, &r->err) < 0);
		if (r->err.status != want)
			fail_msg("offer %d: %s", i, r->err.msg);
		assert_int_equal(teardown(&fresh), 0);
	}
}

static void hostile_agent__ends_the_session_by_name(void **state)
{
	static const enum evil attacks[] = {
		EVIL_DATA_OUTSIDE_REQUEST, EVIL_DATA_UNKNOWN_ID,    EVIL_COMPLETE_UNKNOWN,
		EVIL_COMPLETE_PAYLOAD,     EVIL_PULL_FOREIGN,       EVIL_RESERVED_BITS,
		EVIL_TENANT_OPCODE,        EVIL_NAK_LONG_WORDS,     EVIL_NAK_OK,
		EVIL_SHM_WRITTEN_AHEAD,    EVIL_SHM_WRITTEN_BEHIND, EVIL_SHM_COMPLETE_LONG,
		EVIL_SHM_WORDS_MISSING,    EVIL_SHM_MEMORY_AGAIN,
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(attacks); i++) {
		struct ros2_region *region;
		struct ros2_completion c;
		void *fresh = NULL;
		uint8_t *own, *to;
		struct rig *r;

		setup(&fresh);
		r = fresh;
		rig_open(r, &over_shm);
		/* Where it lies, and by a copy. */
		own = own_memory(r, PIECE, &region);
		to = i % 2 ? own : r->buf;
		memset(own, 0x5a, PIECE);
		WITH_AGENT(r->agent, r->agent->evil = attacks[i / 2]);
		c = rig_read(r, to + 4096, 8192, 0);
		if (c.status != ROS2_PROTOCOL)
			fail_msg("attack %d: %s", attacks[i / 2], ros2_status_to_str(c.status));
		for (uint32_t k = 0; k < PIECE; k++)
			assert_int_equal(own[k], 0x5a);
		assert_int_equal(ros2_pread(r->file, own, 1, 0, &r->err), -EPROTO);
		ros2_region_deregister(region);
		free(own);
		assert_int_equal(teardown(&fresh), 0);
	}
}

/* Where the kernel keeps them away it is the agent that fails. */
static void hostile_agent__sends_no_open_files_beside_the_memory(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;

	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_SHM_FILE);
	c = rig_read(r, r->buf, 100, 0);
	if (fake_agent_count(r->agent, &r->agent->n_files_refused)) {
		assert_int_equal(c.result, 100);
		return;
	}
	assert_int_equal(fake_agent_count(r->agent, &r->agent->n_files_sent), 1);
	if (c.status == ROS2_OK)
		c = rig_read_until_it_looks(r);
	assert_int_equal(c.status, ROS2_PROTOCOL);
}

static void hostile_agent__cannot_have_taken_what_was_not_sent(void **state)
{
	struct rig *r = *state;

	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_SHM_TAKEN_AHEAD);
	assert_int_equal(rig_read(r, r->buf, 100, 0).result, 100);
	assert_int_equal(rig_read(r, r->buf, 100, 0).status, ROS2_PROTOCOL);
}

static void hostile_agent__cannot_answer_what_it_has_not_got(void **state)
{
	struct ros2_session_opts o = over_shm;
	struct wire_header h = {.opcode = WIRE_COMPLETE};
	struct ros2_completion c[8];
	struct rig *r = *state;
	struct wire_shm_control *ctl;
	uint32_t n = 600;

	o.depth = n;
	r->agent->credits = 1024;
	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->hold_ring = true);
	for (uint32_t i = 0; i < n; i++)
		rig_ok(r, ros2_prep_read(r->file, r->buf + i, 1, i, i, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	h.request_id = list_entry(r->session->sent.prev, struct request, link)->id;
	codec_seal(&h);
	memcpy(r->session->shm->arena->map + WIRE_SHM_TO_TENANT_OFF, &h, sizeof(h));
	ctl = (struct wire_shm_control *)r->session->shm->arena->map;
	__atomic_store_n(&ctl->to_tenant.written, 1, __ATOMIC_SEQ_CST);
	assert_true(ros2_wait(r->session, c, 1, 8, AWAIT_MS, &r->err) > 0);
	assert_int_equal(c[0].status, ROS2_PROTOCOL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(shared_memory__is_written_and_read_without_a_copy),
		T(other_memory__is_copied_once_and_has_no_lease),
		T(unregistered_memory__of_any_length_is_copied_once),
		T(access_of_a_region__is_checked_here),
		T(full_memory__is_followed_by_memory_that_is_not_shared),
		T(policy__shapes_regions_by_their_offset),
		T(size__is_asked_for_in_whole_units),
		T(request__longer_than_the_stage_is_too_large_by_name),
		T(full_rings__both_ways_lose_nothing),
		T(full_ring__to_the_agent_is_gone_on_with_when_it_takes),
		T(full_stage__waits_without_spinning),
		T(stage__is_shared_out_to_requests_of_any_length),
		T(reconnect__keeps_bytes_and_copies_them_from_then_on),
		T(reconnect__keeps_nothing_that_the_program_does_not),
		T(reconnect__in_the_middle_of_reads_loses_none),
		T(lost_agent__reaches_no_buffer_that_the_program_has_back),
		T(lost_connection__writes_in_the_ring_are_in_doubt),
		T(lease__that_ended_is_had_again),
		T(refused_stage__names_the_agents_reason),
		T(agent__that_is_not_there_is_named),
		T(nak__brings_its_words),
		cmocka_unit_test(hostile_agent__cannot_share_what_is_no_shared_memory),
		cmocka_unit_test(hostile_agent__ends_the_session_by_name),
		T(hostile_agent__sends_no_open_files_beside_the_memory),
		T(hostile_agent__cannot_have_taken_what_was_not_sent),
		T(hostile_agent__cannot_answer_what_it_has_not_got),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
