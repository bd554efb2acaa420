/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP with buffers that a tenant reads and writes meanwhile. It is as fast as
 * can be: it looks, and writes all of them, after each call that receives and before each that
 * sends. It sees nothing but what is its own; spoils nothing but that; and nothing is copied. The
 * controls: the same buffers, of which the queue is told that they are its caller's alone.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <sys/socket.h>
#include <sys/uio.h>

#define BUF   65536u
#define SLOTS 24u
#define MARK  0xee /* what the tenant writes */

struct slot {
	uint8_t mem[BUF], want[BUF];
	uint32_t len;
	enum nvmf_dir dir;
	bool tenant, in_flight;
};

static struct slot slots[SLOTS];
static struct peer peer;
static uint32_t state;

static struct {
	const struct rig *rig; /* whose queue's calls are followed; NULL = none */
	bool told;             /* the queue is told which buffers are a tenant's */
	bool sleeps, writes;   /* the tenant does */
	uint64_t looks;
} tenant;

static struct {
	uint64_t foreign; /* bytes that the tenant saw and that are not its own */
	uint64_t wrong;   /* reads of the others that are not what they should be */
	bool fault;
} found;

static uint32_t any(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

/* ---- the tenant ---- */

/* In pieces, most of which are wholly the one or the other. */
static void look(const struct slot *s)
{
	static uint8_t marks[64];
	uint32_t n;

	memset(marks, MARK, sizeof(marks));
	for (uint32_t at = 0; at < s->len; at += n) {
		n = MIN(s->len - at, (uint32_t)sizeof(marks));
		if (!memcmp(s->mem + at, marks, n) || !memcmp(s->mem + at, s->want + at, n))
			continue;
		for (uint32_t i = at; i < at + n; i++)
			found.foreign += s->mem[i] != MARK && s->mem[i] != s->want[i];
	}
}

static void tenant_acts(int fd)
{
	if (!tenant.rig || fd == tenant.rig->peer || tenant.sleeps)
		return;
	tenant.looks++;
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *s = &slots[i];

		if (!s->tenant || !s->in_flight)
			continue;
		if (s->dir == NVMF_FROM_TARGET)
			look(s);
		if (tenant.writes)
			memset(s->mem, MARK, s->len);
	}
}

ssize_t __real_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags)
{
	ssize_t got = __real_recv(fd, buf, n, flags);

	tenant_acts(fd);
	return got;
}

ssize_t __real_readv(int fd, const struct iovec *iov, int parts);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int parts);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int parts)
{
	ssize_t got = __real_readv(fd, iov, parts);

	tenant_acts(fd);
	return got;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	tenant_acts(fd);
	return __real_sendmsg(fd, msg, flags);
}

/* ---- requests ---- */

struct mix {
	uint32_t size;        /* 0 = any */
	uint32_t reads_of_10; /* the others are writes, and a flush now and then */
	bool only_tenants;    /* else every third is the queue's caller's alone */
	uint32_t commands;
};

static void give(struct rig *r, uint32_t i, const struct mix *m)
{
	struct slot *s = &slots[i];
	uint8_t seed = (uint8_t)any(256);

	s->tenant = m->only_tenants || i % 3;
	s->len = m->size ? m->size : 1 + any(any(4) ? 8192 : BUF - 1);
	s->dir = any(10) < m->reads_of_10 ? NVMF_FROM_TARGET : NVMF_TO_TARGET;
	if (s->dir == NVMF_TO_TARGET && any(5) == 0) {
		s->dir = NVMF_NO_DATA;
		s->len = 0;
	}
	rig_pattern(s->want, s->len, seed);
	memset(s->mem, MARK, s->len);
	if (s->dir == NVMF_TO_TARGET)
		memcpy(s->mem, s->want, s->len);
	s->in_flight = true;
	r->cdw10 = 0x100u | seed;
	r->tenant_memory = tenant.told && s->tenant;
	assert_int_equal(rig_submit(r, i, s->dir, s->len ? s->mem : NULL, s->len), 0);
}

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct rig_req *rr = (struct rig_req *)req;
	struct slot *s = &slots[rr - rr->rig->reqs];

	rig_on_done(req, rc, cqe);
	s->in_flight = false;
	if (rc < 0 || s->dir != NVMF_FROM_TARGET || cqe->status)
		return;
	if (!s->tenant || !tenant.writes)
		found.wrong += memcmp(s->mem, s->want, s->len) != 0;
}

/* Until all came back, or the queue has failed. */
static void run(struct rig *r, struct peer_opts o, struct mix m)
{
	uint64_t until = clock_boottime_ns() + 60 * NS_PER_S;
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t given = 0;

	r->header_digest = o.header_digest;
	r->on_done = on_done;
	memset(slots, 0, sizeof(slots));
	memset(&found, 0, sizeof(found));
	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	peer_init(&peer, &o, r->peer);
	tenant.rig = r;
	while (r->n_done < m.commands && !found.fault) {
		if (r->ops->state(r->q) == NVMF_QUEUE_READY) {
			for (uint32_t i = 0; i < SLOTS && given < m.commands; i++)
				if (!r->reqs[i].rig || r->reqs[i].done) {
					give(r, i, &m);
					given++;
				}
			r->ops->kick(r->q, r->now_ns);
		}
		peer_turn(&peer);
		rig_turn(r, 0);
		found.fault = r->ops->state(r->q) == NVMF_QUEUE_FAILED;
		assert_true(clock_boottime_ns() < until);
	}
	tenant.rig = NULL;
	found.fault |= peer.ended; /* it could make nothing of what was sent */
	/* What a tenant changes is not what the peer compares it with. */
	found.wrong += tenant.writes ? 0 : peer.wrong;
	rig_close(r);
}

static void is_well(void)
{
	assert_true(tenant.looks > 0 || tenant.sleeps);
	assert_int_equal(found.foreign, 0);
	assert_int_equal(found.wrong, 0);
	assert_false(found.fault);
}

static void begin(bool told, bool writes)
{
	memset(&tenant, 0, sizeof(tenant));
	tenant.told = told;
	tenant.writes = writes;
}

/* ---- what is copied ---- */

static void payload__of_a_tenants_memory_is_not_copied(void **st)
{
	static const uint32_t sizes[] = {512, 4096, 16384, 65536};
	struct rig *r = *st;

	begin(true, false);
	tenant.sleeps = true;
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (uint32_t how = 0; how < 16; how++) {
			struct peer_opts o = {.success = how & 1,
			                      .header_digest = how & 2,
			                      .c2h_max = how & 8 ? 3000 : 0};
			struct mix m = {.size = sizes[i],
			                .reads_of_10 = how & 4 ? 7 : 10,
			                .only_tenants = true,
			                .commands = 200};

			run(r, o, m);
			is_well();
			assert_int_equal(r->counted.copied_bytes, 0);
			assert_true(r->counted.bytes_in > 0);
		}
}

/* From a target that answers in any order: nothing is guessed of what follows. */
static void payload__that_comes_in_another_order_is_not_copied(void **st)
{
	struct rig *r = *st;
	struct mix m = {.size = 4096, .reads_of_10 = 10, .only_tenants = true, .commands = 1000};

	begin(true, false);
	run(r, (struct peer_opts){.reverse = true}, m);
	is_well();
	assert_int_equal(r->counted.bytes_in, 1000 * 4096);
	assert_true(r->counted.copied_bytes <= r->counted.bytes_in / 500);
}

/* ---- what a tenant sees, and spoils ---- */

static void mixes(struct rig *r)
{
	for (uint32_t seed = 1; seed <= 12; seed++) {
		struct peer_opts o = {.chaos = seed & 1 ? seed * 77 : 0,
		                      .reverse = !(seed & 1),
		                      .success = seed & 2,
		                      .header_digest = seed & 4,
		                      .c2h_max = seed & 8 ? 5000 : 0,
		                      .r2t_max = 9000,
		                      .piece = seed % 3 ? 0 : 1777,
		                      .maxh2c = 4096};
		struct mix m = {.reads_of_10 = seed % 3 ? 10 : 7, .commands = 500};

		state = seed;
		run(r, o, m);
		is_well();
	}
}

static void tenant__that_looks_sees_nothing_but_its_own(void **st)
{
	begin(true, false);
	mixes(*st);
}

static void tenant__that_writes_spoils_nothing_but_its_own(void **st)
{
	begin(true, true);
	mixes(*st);
}

/* Nearly in order, so that much is expected ahead; and of one size. */
static const struct peer_opts nearly = {.chaos = 3};
static const struct mix small = {.size = 512, .reads_of_10 = 10, .commands = 700};

static void tenant__of_a_target_that_is_nearly_in_order(void **st)
{
	begin(true, false);
	run(*st, nearly, small);
	is_well();
	begin(true, true);
	run(*st, nearly, small);
	is_well();
}

static void control__a_queue_that_is_not_told_shows_what_is_others(void **st)
{
	begin(false, false);
	run(*st, nearly, small);
	assert_true(found.foreign > 0);
	assert_int_equal(found.wrong, 0);
	assert_false(found.fault);
}

static void control__a_queue_that_is_not_told_takes_what_a_tenant_writes(void **st)
{
	begin(false, true);
	run(*st, nearly, small);
	assert_true(found.fault || found.wrong);
}

/* ---- digests ---- */

static void digest__of_data_refuses_a_tenants_memory(void **st)
{
	static uint8_t mem[4096];
	struct rig *r = *st;

	r->data_digest = true;
	rig_ready(r);
	r->tenant_memory = true;
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, mem, sizeof(mem)), -EINVAL);
	assert_int_equal(rig_submit(r, 0, NVMF_TO_TARGET, mem, sizeof(mem)), -EINVAL);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	r->tenant_memory = false;
	assert_int_equal(rig_submit(r, 1, NVMF_TO_TARGET, mem, sizeof(mem)), 0);
	rig_close(r);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(payload__of_a_tenants_memory_is_not_copied),
		T(payload__that_comes_in_another_order_is_not_copied),
		T(tenant__that_looks_sees_nothing_but_its_own),
		T(tenant__that_writes_spoils_nothing_but_its_own),
		T(tenant__of_a_target_that_is_nearly_in_order),
		T(control__a_queue_that_is_not_told_shows_what_is_others),
		T(control__a_queue_that_is_not_told_takes_what_a_tenant_writes),
		T(digest__of_data_refuses_a_tenants_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
