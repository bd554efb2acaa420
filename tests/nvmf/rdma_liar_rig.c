/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nvmf/rdma_liar_rig.h"

#include "common/clock.h"
#include "common/log.h"

#define ADDRESS "10.77.0.1"
#define GUARD   1000u /* seeds of slots */
#define HELD    64u

struct liar liar;

/* ---- keys that do not end ---- */

int __real_fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn,
                                void *arg);
int __wrap_fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn,
                                void *arg);

static _Thread_local bool leaves_keys;
static _Thread_local struct fabric_window *held[HELD];
static _Thread_local unsigned n_held;

int __wrap_fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn,
                                void *arg)
{
	struct fabric_receipt r = {.invalidated_ns = now_ns, .how = FABRIC_BY_INVALIDATE};

	if (!leaves_keys || n_held == HELD)
		return __real_fabric_window_revoke(w, now_ns, fn, arg);
	held[n_held++] = w;
	if (fn)
		fn(arg, &r);
	return 0;
}

void liar_revoke(bool on)
{
	leaves_keys = !on;
	while (on && n_held)
		(void)__real_fabric_window_revoke(held[--n_held], clock_boottime_ns(), NULL, NULL);
}

/* ---- targets and tenants ---- */

static struct target *target_open(void)
{
	struct target_opts o = {.address = ADDRESS, .carrier = &target_verbs};
	struct target_subsys_opts s = {
		.nqn = VOL_NQN, .in_capsule = 8192, .mdts = 5, .write_cache = true};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = NULL;

	assert_int_equal(target_new(&o, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	return t;
}

static void tenant_at(struct vol *v, struct target *t, const char *tenant, bool per_command)
{
	vol_init(v, t, tenant);
	memset(&v->who.uid, tenant[strlen(tenant) - 1], sizeof(v->who.uid));
	snprintf(v->config.address, sizeof(v->config.address), "%s", ADDRESS);
	if (getenv("ROS2_SHOW_FAULTS"))
		log_set_level(LOG_LEVEL_INFO);
	v->config.transport = NVMF_RDMA;
	v->config.keys_per_command = per_command;
	v->config.keep_alive_ms = 20000;
	v->config.command_timeout_ms = 20000;
	v->config.quiesce_ms = 100;
	v->backoff_max_ms = 100;
	v->device = liar.device;
}

void liar_tenant(struct vol *v, const char *tenant, bool per_command)
{
	tenant_at(v, liar.liar, tenant, per_command);
}

void liar_open(struct vol *v)
{
	if (vol_open(v))
		fail_msg("tenant %s: %s", v->who.name, v->words);
}

int liar_setup(void **state)
{
	char names[1][FABRIC_NAME_MAX];
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t n = 0;

	if (fabric_list(names, 1, &n, &err) < 0 || !n) {
		print_message(
			"1..0 # SKIP no RDMA device: run tests/guest/run nvmf_rdma_liar_test\n");
		exit(77);
	}
	snprintf(liar.device, sizeof(liar.device), "%s", names[0]);
	liar.liar = target_open();
	liar.honest = target_open();
	tenant_at(&liar.bystander, liar.honest, "bystander", true);
	liar_open(&liar.bystander);
	liar_bystander("the beginning");
	/* once, so that what libraries keep for good is not counted */
	liar.fds = vol_fds();
	return 0;
}

int liar_teardown(void **state)
{
	char words[256];

	target_violations(liar.honest, words, sizeof(words));
	vol_close(&liar.bystander);
	target_free(liar.liar);
	target_free(liar.honest);
	assert_string_equal(words, "");
	return 0;
}

int liar_begin(void **state)
{
	target_faults_off(liar.liar);
	target_verbs_keep(liar.liar, false);
	return 0;
}

void liar_close(struct vol *v, const char *after)
{
	uint64_t end = clock_monotonic_ns() + LIAR_WAIT_MS * NS_PER_MS;
	struct target_stats s;

	vol_close(v); /* asserts that the device has nothing of it */
	for (;;) {
		target_stats(liar.liar, &s);
		if (!s.open && !s.controllers && vol_fds() <= liar.fds)
			return;
		if (clock_monotonic_ns() > end)
			fail_msg("%s: %u connections, %u controllers, %u descriptors of %u are "
			         "left",
			         after, s.open, s.controllers, vol_fds(), liar.fds);
		usleep(2000); /* poll: the end of connections, seen by the target's thread */
	}
}

/* ---- slots ---- */

uint8_t *liar_slot(struct vol *v, unsigned i)
{
	return v->buf + (size_t)i * VOL_IO;
}

void liar_fill(struct vol *v)
{
	for (unsigned i = 0; i < VOL_IOS; i++)
		vol_pattern(liar_slot(v, i), VOL_IO, GUARD + i);
}

void liar_unharmed(struct vol *v, int but, const char *after)
{
	for (int i = 0; i < (int)VOL_IOS; i++)
		if (i != but &&
		    !vol_is_pattern(liar_slot(v, (unsigned)i), VOL_IO, GUARD + (unsigned)i))
			fail_msg("%s: slot %d of tenant %s was changed", after, i, v->who.name);
}

void liar_media(unsigned i, uint32_t seed)
{
	uint8_t *p = malloc(LIAR_LEN);

	assert_non_null(p);
	vol_pattern(p, LIAR_LEN, seed);
	assert_int_equal(
		target_media_write(liar.liar, VOL_NQN, 1, (uint64_t)i * VOL_IO, p, LIAR_LEN), 0);
	free(p);
}

void liar_submit(struct vol *v, enum engine_op op)
{
	vol_submit(v, &v->ios[LIAR_SLOT], op, (uint64_t)LIAR_SLOT * VOL_IO, liar_slot(v, LIAR_SLOT),
	           LIAR_LEN);
}

int64_t liar_wait(struct vol *v)
{
	return vol_wait(v, &v->ios[LIAR_SLOT], LIAR_WAIT_MS);
}

int64_t liar_io(struct vol *v, enum engine_op op)
{
	liar_submit(v, op);
	return liar_wait(v);
}

/* ---- what became of it ---- */

void liar_until_hit(struct vol *v, enum target_fault f, uint64_t n, const char *name)
{
	uint64_t end = clock_monotonic_ns() + LIAR_WAIT_MS * NS_PER_MS;

	while (target_fault_hits(liar.liar, f) < n) {
		vol_turn(v, 5);
		if (clock_monotonic_ns() > end)
			fail_msg("%s: was never let loose", name);
	}
}

/* One tenant, one controller: one lane. NULL before its first request. */
static struct nvmf_lane *lane_of(struct vol *v)
{
	return list_empty(&v->r->lanes) ? NULL : list_first(&v->r->lanes, struct nvmf_lane, link);
}

struct liar_past liar_past(struct vol *v)
{
	struct nvmf_lane *l = lane_of(v);

	if (l)
		l->fault[0] = '\0';
	return (struct liar_past){.lives = vol_health(v).lives};
}

void liar_lost(struct vol *v, const struct liar_past *p, const char *words, const char *name)
{
	uint64_t end = clock_monotonic_ns() + LIAR_WAIT_MS * NS_PER_MS;
	struct nvmf_ctrl_health h = vol_health(v);

	while (h.lives == p->lives || h.state != NVMF_CTRL_LIVE) {
		vol_turn(v, 5);
		h = vol_health(v);
		if (clock_monotonic_ns() > end)
			fail_msg("%s: does not come back: %s, %lu lives of %lu: %s", name,
			         nvmf_ctrl_state_to_str(h.state), h.lives, p->lives + 1, h.words);
	}
	if (getenv("ROS2_SHOW_FAULTS"))
		print_message("# %s: %s\n", name, h.words);
	if (h.lives != p->lives + 1 || !strstr(h.words, words))
		fail_msg("%s: expected one loss with \"%s\", found %lu: \"%s\"", name, words,
		         h.lives - p->lives, h.words);
}

void liar_reopened(struct vol *v, const struct liar_past *p, const char *words, const char *name)
{
	uint64_t end = clock_monotonic_ns() + LIAR_WAIT_MS * NS_PER_MS;
	struct nvmf_lane *l = lane_of(v);

	while (!l->fault[0] || l->state != LANE_READY) {
		vol_turn(v, 5);
		if (clock_monotonic_ns() > end)
			fail_msg("%s: its queue is not opened again: \"%s\", controller %s", name,
			         l->fault, nvmf_ctrl_state_to_str(vol_health(v).state));
	}
	if (getenv("ROS2_SHOW_FAULTS"))
		print_message("# %s: %s\n", name, l->fault);
	if (vol_health(v).lives != p->lives || !strstr(l->fault, words))
		fail_msg("%s: expected the end of a queue with \"%s\", found \"%s\", %lu lives",
		         name, words, l->fault, vol_health(v).lives - p->lives);
}

void liar_bystander(const char *after)
{
	struct vol *v = &liar.bystander;
	uint8_t *p = liar_slot(v, LIAR_SLOT);

	vol_pattern(p, LIAR_LEN, ++v->seed);
	if (liar_io(v, ENGINE_OP_WRITE) != LIAR_LEN)
		fail_msg("%s: the other target's tenant cannot write: %s", after,
		         vol_health(v).words);
	memset(p, 0, LIAR_LEN);
	if (liar_io(v, ENGINE_OP_READ) != LIAR_LEN || !vol_is_pattern(p, LIAR_LEN, v->seed))
		fail_msg("%s: the other target's tenant reads other bytes: %s", after,
		         vol_health(v).words);
	assert_int_equal(vol_health(v).lives, 1);
}
