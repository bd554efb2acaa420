/* SPDX-License-Identifier: Apache-2.0 */
/* The engine at a target of our own: see vol.h. */
#include "tests/nvmf/vol.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include "tests/testing.h"

#include "common/clock.h"
#include "common/log.h"
#include <dirent.h>
#include <poll.h>

struct target *vol_target(void)
{
	struct target_opts o = {.r2t_bytes = 32768, .c2h_bytes = 65536};
	struct target_subsys_opts s = {.nqn = VOL_NQN, .in_capsule = 8192, .mdts = 4};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = NULL;

	s.write_cache = true;
	assert_int_equal(target_new(&o, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	return t;
}

void vol_init(struct vol *v, struct target *t, const char *tenant)
{
	log_set_level(LOG_LEVEL_ERROR);
	*v = (struct vol){.config = {.transport = NVMF_TCP,
	                             .address = "127.0.0.1",
	                             .port = t ? target_port(t) : 0,
	                             .subsystem = VOL_NQN,
	                             .host_nqn = "nqn.2026-11.test:host:" NVMF_TENANT_MARK,
	                             .queue_depth = 16,
	                             .keep_alive_ms = 1000,
	                             .command_timeout_ms = 1000,
	                             .quiesce_ms = 500,
	                             .n_volumes = 1}};
	snprintf(v->config.volumes[0].name, sizeof(v->config.volumes[0].name), "v/all");
	v->config.volumes[0].nsid = 1;
	memset(&v->who.uid, 7, sizeof(v->who.uid));
	v->who.name = tenant;
}

/* The device, a domain for the tenant, and its memory in it. */
static int open_memory(struct vol *v, struct ros2_err *err)
{
	struct fabric_pd_opts caps = {.pinned_bytes_max = 64u << 20,
	                              .regions_max = VOL_IOS + 4 * NVMF_RDMA_REGIONS_MAX,
	                              .windows_max = 4 * NVMF_RDMA_WINDOWS_MAX,
	                              .qps_max = 8};
	int rc;

	v->buf = aligned_alloc(4096, (size_t)VOL_IOS * VOL_IO);
	assert_non_null(v->buf);
	if (v->config.transport != NVMF_RDMA)
		return 0;
	rc = fabric_dev_open(v->device, &v->dev, err);
	if (rc == 0 && v->peer_invalidates)
		fabric_dev_set_peer_invalidates(v->dev, true);
	if (rc == 0)
		rc = fabric_pd_new(v->dev, &caps, &v->who.pd, err);
	for (unsigned i = 0; i < VOL_IOS && rc == 0; i++) {
		struct fabric_region_opts o = {
			.addr = v->buf + (size_t)i * VOL_IO, .length = VOL_IO, .bindable = true};

		rc = fabric_region_new(v->who.pd, &o, &v->regions[i], err);
	}
	return rc;
}

static void close_memory(struct vol *v)
{
	for (unsigned i = 0; i < VOL_IOS; i++) {
		assert_int_equal(fabric_region_free(v->regions[i]), 0);
		v->regions[i] = NULL;
	}
	assert_int_equal(fabric_pd_free(v->who.pd), 0);
	assert_int_equal(fabric_dev_close(v->dev), 0);
	v->who.pd = NULL;
	v->dev = NULL;
	free(v->buf);
	v->buf = NULL;
}

int vol_open(struct vol *v)
{
	struct engine_config c = {
		.name = "store", .nvmf = &v->config, .unquiet_since_ns = v->unquiet_since_ns};
	struct engine_reactor_opts o = {.depth = VOL_IOS};
	const struct engine_ops *ops = &engine_nvmf_ops;
	bool rdma = v->config.transport == NVMF_RDMA;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = open_memory(v, &err);

	if (!rc)
		rc = nvmf_engine_create(&c, rdma ? &nvmf_rdma_queue_ops : &nvmf_tcp_queue_ops,
		                        &v->e, &err);
	/* Nothing has been made of it yet. */
	if (!rc && v->backoff_max_ms)
		v->e->admin->backoff_max_ns = v->backoff_max_ms * NS_PER_MS;
	if (!rc)
		rc = ops->ns_open(v->e, &v->who, "v", &v->ns, &err);
	if (!rc)
		rc = ops->reactor_new(v->e, &o, &v->r, &err);
	if (!rc)
		rc = ops->open(v->ns, "all", ENGINE_READ | ENGINE_WRITE, 0, &v->f, NULL, &err);
	if (rc)
		snprintf(v->words, sizeof(v->words), "%s", err.msg);
	return rc;
}

void vol_close(struct vol *v)
{
	const struct engine_ops *ops = &engine_nvmf_ops;

	if (v->f)
		ops->close(v->f);
	if (v->ns)
		ops->ns_close(v->ns);
	if (v->r)
		ops->reactor_free(v->r);
	if (v->e)
		ops->destroy(v->e);
	close_memory(v);
	v->f = NULL;
	v->ns = NULL;
	v->r = NULL;
	v->e = NULL;
}

static void on_done(struct engine_io *io, int64_t res)
{
	struct vol_io *i = (struct vol_io *)io;

	i->done++;
	i->res = res;
	i->ended_ns = clock_monotonic_ns();
}

void vol_turn(struct vol *v, int ms)
{
	const struct engine_ops *ops = &engine_nvmf_ops;
	struct pollfd p = {.fd = ops->event_fd(v->r), .events = POLLIN};

	ops->kick(v->r);
	if (ops->poll(v->r, 64) == 0)
		poll(&p, 1, ms);
}

void vol_submit(struct vol *v, struct vol_io *i, enum engine_op op, uint64_t offset, void *buf,
                uint32_t len)
{
	struct fabric_region *region = buf ? v->regions[((uint8_t *)buf - v->buf) / VOL_IO] : NULL;

	*i = (struct vol_io){.io = {.file = v->f,
	                            .op = op,
	                            .offset = offset,
	                            .len = len,
	                            .buf = buf,
	                            .buf_index = -1,
	                            .region = region,
	                            .done = on_done},
	                     .seed = i->seed,
	                     .began_ns = clock_monotonic_ns()};
	assert_int_equal(engine_nvmf_ops.submit(v->r, &i->io), 0);
}

int64_t vol_wait(struct vol *v, struct vol_io *i, uint64_t ms)
{
	uint64_t end = clock_monotonic_ns() + ms * NS_PER_MS;

	while (!i->done) {
		vol_turn(v, 20);
		if (clock_monotonic_ns() > end)
			return INT64_MIN;
	}
	assert_int_equal(i->done, 1);
	return i->res;
}

int64_t vol_io(struct vol *v, enum engine_op op, uint64_t offset, void *buf, uint32_t len)
{
	struct vol_io i = {0};

	vol_submit(v, &i, op, offset, buf, len);
	return vol_wait(v, &i, 20000);
}

void vol_pattern(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t at = 0; at < len; at++)
		p[at] = (uint8_t)(at * 31 + at / 251 + seed * 67 + (seed >> 8));
}

bool vol_is_pattern(const uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t at = 0; at < len; at++)
		if (p[at] != (uint8_t)(at * 31 + at / 251 + seed * 67 + (seed >> 8)))
			return false;
	return true;
}

/* All requests at once; @len bytes each, the space of one apart. */
static int batch(struct vol *v, enum engine_op op, uint32_t len)
{
	int rc = 0;

	for (unsigned i = 0; i < VOL_IOS; i++) {
		uint8_t *p = v->buf + (size_t)i * VOL_IO;

		if (op == ENGINE_OP_WRITE)
			vol_pattern(p, len, v->seed + i);
		else
			memset(p, 0, len);
		vol_submit(v, &v->ios[i], op, (uint64_t)i * VOL_IO, p, len);
	}
	for (unsigned i = 0; i < VOL_IOS; i++) {
		int64_t res = vol_wait(v, &v->ios[i], 20000);

		if (res == INT64_MIN)
			return -ETIME;
		if (!rc && res != len)
			rc = res < 0 ? (int)res : -EIO;
		if (!rc && op == ENGINE_OP_READ &&
		    !vol_is_pattern(v->buf + (size_t)i * VOL_IO, len, v->seed + i))
			rc = -EILSEQ;
	}
	return rc;
}

static void take_health(void *arg, const struct nvmf_ctrl_health *h)
{
	*(struct nvmf_ctrl_health *)arg = *h;
}

struct nvmf_ctrl_health vol_health(struct vol *v)
{
	struct nvmf_ctrl_health h = {0};

	if (v->e)
		nvmf_admin_health(v->e->admin, take_health, &h);
	return h;
}

int vol_scenario(struct vol *v)
{
	static const uint32_t lens[] = {4096, VOL_IO};
	int64_t res;
	int rc;

	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++) {
		v->seed += VOL_IOS;
		rc = batch(v, ENGINE_OP_WRITE, lens[i]);
		if (!rc)
			rc = batch(v, ENGINE_OP_READ, lens[i]);
		if (rc)
			return rc;
	}
	res = vol_io(v, ENGINE_OP_FLUSH, 0, NULL, 0);
	/* Said once, of what the cache of a target that went meanwhile may have lost. */
	if (res == -EREMOTEIO && vol_health(v).lives > v->lives)
		res = vol_io(v, ENGINE_OP_FLUSH, 0, NULL, 0);
	v->lives = vol_health(v).lives;
	return res == INT64_MIN ? -ETIME : (int)res;
}

bool vol_until(struct vol *v, enum nvmf_ctrl_state s, uint64_t ms)
{
	uint64_t end = clock_monotonic_ns() + ms * NS_PER_MS;

	while (vol_health(v).state != s) {
		vol_turn(v, 5);
		if (clock_monotonic_ns() > end)
			return false;
	}
	return true;
}

unsigned vol_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
