/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of a session over shared memory, from its opening to its first requests: memory, the
 * memfd, its mapping, the socket, epoll. What fails has its name or ends the connection; the tenant
 * may have just one such session, so that the next one shows that nothing is left of it, and a
 * neighbour goes on.
 */
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/sweep/sweep.h"
#include <sys/mman.h>
#include <sys/socket.h>

#define KIB4 4096u

static enum ros2_status some_work(struct shm_raw *t)
{
	enum ros2_status st;

	memset(t->map + SHM_BASE, 'w', KIB4);
	st = rs_write(t, 0, SHM_BASE, KIB4);
	memset(t->map + SHM_BASE, 0, KIB4);
	if (st == ROS2_OK)
		st = rs_read(t, 0, SHM_BASE, KIB4);
	if (st == ROS2_OK)
		assert_int_equal(t->map[SHM_BASE + KIB4 - 1], 'w');
	return st;
}

/* False: the agent ended the connection. The fault is the agent's alone. */
static bool proved(struct shm_raw *t)
{
	uint8_t nonce[WIRE_NONCE_LEN], answer[WIRE_WORDS_MAX];
	struct wire_hello hello;
	struct wire_header h;

	t->c.fd = rs_connect_path(t->path);
	if (!raw_recv(&t->c, &h, nonce, sizeof(nonce)))
		return false;
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	raw_hello(&t->c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO};
	raw_send(&t->c, &h, &hello, sizeof(hello));
	if (!raw_recv(&t->c, &h, answer, sizeof(answer)))
		return false;
	assert_int_equal(h.opcode, WIRE_WELCOME);
	/* MEMORY, or the end. */
	return recv(t->c.fd, &h, sizeof(h), MSG_PEEK | MSG_WAITALL) == sizeof(h);
}

static bool connected(struct shm_raw *t)
{
	struct wire_header ping = {.opcode = WIRE_PING, .request_id = 7};
	bool is;

	sweep_hold();
	is = proved(t);
	if (is) {
		rs_memory(t);
		rs_mapped(t);
		rs_put(t, &ping);
		is = rs_take(t, &ping, NULL);
	}
	sweep_release();
	return is;
}

/* False: it was refused, by name. */
static bool opened(struct fx *fx, struct shm_raw *t)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = SHM_BYTES};
	struct dp_result res = rs_try_open(fx, &a);

	if (res.status != ROS2_OK) {
		assert_true(strlen(res.words) > 0);
		if (res.status == ROS2_INTERNAL)
			fail_msg("%s: %s", ros2_status_to_str(res.status), res.words);
		return false;
	}
	*t = (struct shm_raw){.c = {.fx = fx, .session = a.session, .fd = -1}, .memfd = -1};
	memcpy(t->c.secret, res.session.secret, sizeof(t->c.secret));
	strcpy(t->path, res.session.shm_path);
	t->offered = res.session.shm_bytes;
	return true;
}

/* What the fault may do. */
enum effect {
	PASSES,   /* nothing */
	REFUSES,  /* the opening, by name */
	CUTS,     /* the connection */
	DOES_ALL, /* either */
};

static void sweep_sessions(struct fx *fx, struct sweep s, enum effect effect, uint32_t points)
{
	struct shm_raw n, t;
	unsigned fds;

	rs_neighbour(fx, &n);
	assert_int_equal(some_work(&n), ROS2_OK);
	fds = sweep_fds();
	while (sweep_next(&s)) {
		bool is_open = opened(fx, &t), works = is_open && connected(&t);

		sweep_off();
		assert_true(works || sweep_fired());
		assert_true(works || effect != PASSES);
		assert_true(is_open || effect != CUTS);
		assert_true(works || !is_open || effect != REFUSES);
		if (is_open)
			rs_end(&t);
		/* Again, and all of it. */
		rs_ready(fx, &t);
		assert_int_equal(some_work(&t), ROS2_OK);
		rs_end(&t);
		assert_int_equal(some_work(&n), ROS2_OK);
		fx_no_slots(fx);
		assert_int_equal(fx_lease_count(fx), 1);
		assert_true(sweep_fds_back(fds));
		fx_forget_events(fx);
	}
	assert_true(s.points >= points);
	rs_end(&n);
}

#define SWEEP(name, k, e, who, effect, points)                                                     \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_sessions(*state,                                                             \
		               (struct sweep){.kind = k, .error = e, .thread = who, .most = 60},   \
		               effect, points);                                                    \
	}
SWEEP(session__without_memory_is_refused_by_name, SWEEP_ALLOC, ENOMEM, NULL, REFUSES, 4)
/* The opening is refused or, when it is sealed, the connection ends. */
SWEEP(session__without_a_memfd_is_refused_by_name, SWEEP_MEMFD, ENOMEM, "control", DOES_ALL, 8)
SWEEP(session__without_a_descriptor_for_a_memfd_is_refused_by_name, SWEEP_MEMFD, EMFILE, "control",
      DOES_ALL, 8)
SWEEP(session__without_pages_is_refused_by_name, SWEEP_MEMFD, ENOSPC, "control", DOES_ALL, 8)
SWEEP(session__that_cannot_be_mapped_is_refused_by_name, SWEEP_MMAP, ENOMEM, "control", REFUSES, 2)
SWEEP(session__that_cannot_be_sealed_ends, SWEEP_MEMFD, EPERM, "control", DOES_ALL, 8)
SWEEP(session__ends_when_a_send_finds_no_buffers, SWEEP_SEND, ENOBUFS, "reactor", CUTS, 6)
SWEEP(session__ends_when_a_send_finds_too_many_descriptors, SWEEP_SEND, ETOOMANYREFS, "reactor",
      CUTS, 6)
SWEEP(session__ends_when_a_send_is_reset, SWEEP_SEND, EPIPE, "reactor", CUTS, 6)
SWEEP(session__ends_when_a_send_is_short, SWEEP_SEND, SWEEP_SHORT, "reactor", CUTS, 6)
SWEEP(session__ends_when_a_receive_is_reset, SWEEP_RECV, ECONNRESET, "reactor", CUTS, 2)
SWEEP(session__goes_on_or_ends_after_eintr_of_a_send, SWEEP_SEND, EINTR, "reactor", CUTS, 6)
SWEEP(session__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR, "reactor", PASSES, 2)
SWEEP(session__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN, "reactor", PASSES, 2)
SWEEP(session__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT, "reactor", PASSES, 2)
SWEEP(session__ends_without_memory_in_epoll, SWEEP_EPOLL_CTL, ENOMEM, "reactor", CUTS, 4)

static int setup(void **state)
{
	int rc;

	/* Of each tenant's; and of both that are here together, with the quarter that is kept for
	 * others: what is not given back leaves no room for the next. */
	fx_shm_tenant_bytes = SHM_BYTES + SHM_BASE;
	fx_shm_total_bytes = (2 * (SHM_BYTES + SHM_BASE) + 2) / 3 * 4;
	rc = fx_setup(state);
	fx_shm_tenant_bytes = fx_shm_total_bytes = 0;
	return rc;
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	sweep_off();
	return rc;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(session__without_memory_is_refused_by_name),
		T(session__without_a_memfd_is_refused_by_name),
		T(session__without_a_descriptor_for_a_memfd_is_refused_by_name),
		T(session__without_pages_is_refused_by_name),
		T(session__that_cannot_be_mapped_is_refused_by_name),
		T(session__that_cannot_be_sealed_ends),
		T(session__ends_when_a_send_finds_no_buffers),
		T(session__ends_when_a_send_finds_too_many_descriptors),
		T(session__ends_when_a_send_is_reset),
		T(session__ends_when_a_send_is_short),
		T(session__ends_when_a_receive_is_reset),
		T(session__goes_on_or_ends_after_eintr_of_a_send),
		T(session__goes_on_after_eintr_of_a_receive),
		T(session__goes_on_after_eagain_of_a_receive),
		T(session__goes_on_after_receives_of_one_byte),
		T(session__ends_without_memory_in_epoll),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
