/* SPDX-License-Identifier: Apache-2.0 */
/* Load and a model of what may lie where: see storm.h. */
#include "tests/nvmf/storm.h"
#include "tests/testing.h"

#include "common/clock.h"
#include "common/crypto.h"

/* Both ways of a write: in the capsule, and by R2T. */
static uint32_t len_of(unsigned slot)
{
	return slot % 2 ? 4096 : STORM_STRIDE;
}

static bool holds(const uint8_t *p, uint32_t len, uint32_t seed)
{
	if (seed)
		return vol_is_pattern(p, len, seed);
	for (uint32_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

static void wrong(struct storm *s, unsigned slot, const uint8_t *p, const char *where)
{
	if (!s->wrong++)
		snprintf(s->words, sizeof(s->words),
		         "%s of slot %u: expected write %u or one of %u others, found %02x %02x",
		         where, slot, s->slots[slot].committed, s->slots[slot].n_maybe, p[0], p[1]);
}

/* What is there now stays. */
static void see(struct storm *s, unsigned slot, const uint8_t *p, const char *where)
{
	struct slot *x = &s->slots[slot];
	uint32_t len = len_of(slot);

	for (unsigned i = 0; i < x->n_maybe; i++) {
		if (!holds(p, len, x->maybe[i]))
			continue;
		x->committed = x->maybe[i];
		x->n_maybe = 0;
		return;
	}
	if (!holds(p, len, x->committed))
		wrong(s, slot, p, where);
	x->n_maybe = 0;
}

static void ended(struct storm *s, unsigned i)
{
	struct vol_io *io = &s->v.ios[i];
	struct slot *x = &s->slots[s->what[i].slot];

	assert_int_equal(io->done, 1);
	x->busy = false;
	s->idle[i] = true;
	if (io->res == io->io.len) {
		s->good++;
		s->slowest_ns = MAX(s->slowest_ns, io->ended_ns - io->began_ns);
		if (s->what[i].write) {
			x->committed = io->seed;
			x->n_maybe = 0;
		} else {
			see(s, s->what[i].slot, io->io.buf, "a read");
		}
		return;
	}
	s->last_error = (int)io->res;
	if (io->res == -EREMOTEIO) {
		s->unknown++;
		assert_true(s->what[i].write);
		assert_true(x->n_maybe < STORM_MAYBE);
		x->maybe[x->n_maybe++] = io->seed;
	} else if (io->res == -ENOTCONN || io->res == -ETIMEDOUT) {
		s->refused++; /* a write was surely not carried out */
	} else {
		s->other++;
	}
}

static void begin(struct storm *s, unsigned i)
{
	unsigned slot = crypto_random_u32() % STORM_SLOTS;
	struct slot *x = &s->slots[slot];
	uint8_t *buf = s->v.buf + (size_t)i * VOL_IO;
	bool full = x->n_maybe == STORM_MAYBE;

	if (x->busy)
		return;
	x->busy = true;
	s->idle[i] = false;
	s->what[i].slot = slot;
	s->what[i].write = !full && crypto_random_u32() % 5 < 3;
	if (s->what[i].write) {
		s->v.ios[i].seed = ++s->seed;
		vol_pattern(buf, len_of(slot), s->seed);
	}
	vol_submit(&s->v, &s->v.ios[i], s->what[i].write ? ENGINE_OP_WRITE : ENGINE_OP_READ,
	           (uint64_t)slot * STORM_STRIDE, buf, len_of(slot));
}

/* Returns how many are in flight. */
static unsigned turn(struct storm *s, bool more)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VOL_IOS; i++) {
		if (!s->idle[i] && s->v.ios[i].done)
			ended(s, i);
		if (s->idle[i] && more)
			begin(s, i);
		n += !s->idle[i];
	}
	if (n)
		vol_turn(&s->v, 1);
	return n;
}

void storm_run(struct storm *s, unsigned n, unsigned ms, void (*event)(void *arg, unsigned at_ms),
               void *arg)
{
	uint64_t begin_ns = clock_monotonic_ns(), at_ms = 0;
	unsigned left;

	do {
		left = 0;
		at_ms = (clock_monotonic_ns() - begin_ns) / NS_PER_MS;
		if (event)
			event(arg, (unsigned)at_ms);
		for (unsigned i = 0; i < n; i++)
			left += turn(&s[i], at_ms < ms);
		if (at_ms > ms + 30000)
			fail_msg("%u requests never end: %s", left, vol_health(&s[0].v).words);
	} while (at_ms < ms || left);
}

void storm_init(struct storm *s, struct target *t, const char *tenant)
{
	*s = (struct storm){.seed = 1000};
	vol_init(&s->v, t, tenant);
	for (unsigned i = 0; i < VOL_IOS; i++)
		s->idle[i] = true;
}

void storm_open(struct storm *s)
{
	if (vol_open(&s->v))
		fail_msg("%s", s->v.words);
}

void storm_check_by(struct storm *s, int (*medium)(void *arg, uint64_t at, void *buf, size_t len),
                    void *arg)
{
	for (unsigned slot = 0; slot < STORM_SLOTS; slot++) {
		uint32_t len = len_of(slot);
		uint64_t at = (uint64_t)slot * STORM_STRIDE;

		assert_int_equal(medium(arg, at, s->v.buf, len), 0);
		see(s, slot, s->v.buf, "the medium");
		memset(s->v.buf, 0, len);
		if (vol_io(&s->v, ENGINE_OP_READ, at, s->v.buf, len) != len)
			fail_msg("the last reading of slot %u: %s", slot, vol_health(&s->v).words);
		see(s, slot, s->v.buf, "the last reading");
	}
}

struct medium {
	struct target *t;
	const struct nvmf_config *c;
};

static int of_target(void *arg, uint64_t at, void *buf, size_t len)
{
	const struct medium *m = arg;

	return target_media_read(m->t, m->c->subsystem, m->c->volumes[0].nsid, at, buf, len);
}

void storm_check(struct storm *s, struct target *t)
{
	storm_check_by(s, of_target, &(struct medium){t, &s->v.config});
}

void storm_close(struct storm *s)
{
	vol_close(&s->v);
}
