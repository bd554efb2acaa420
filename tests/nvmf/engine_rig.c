/* SPDX-License-Identifier: Apache-2.0 */
/* See engine_rig.h. */
#include "tests/nvmf/engine_rig.h"
#include "common/clock.h"
#include "common/log.h"
#include "tests/await.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

const struct engine_who rig_who = {{{7}}, "tenant-a"};
static uint64_t ends;

static void volume(struct nvmf_volume *v, const char *name, uint32_t nsid, uint64_t offset,
                   uint64_t size)
{
	*v = (struct nvmf_volume){.nsid = nsid, .offset = offset, .size = size};
	snprintf(v->name, sizeof(v->name), "%s", name);
}

void rig_init(struct rig *g)
{
	*g = (struct rig){.ops = &engine_nvmf_ops, .queue = &fake_queue_ops};
	g->config = (struct nvmf_config){.transport = NVMF_TCP,
	                                 .address = "127.0.0.1",
	                                 .port = 4420,
	                                 .subsystem = "nqn.2026-11.test:sub",
	                                 .host_nqn = "nqn.2026-11.test:host:{tenant}",
	                                 .queue_depth = 16,
	                                 .keep_alive_ms = 1000,
	                                 .command_timeout_ms = 400,
	                                 .quiesce_ms = 300,
	                                 .n_volumes = 4};
	volume(&g->config.volumes[0], "t/a/all", 1, 0, 0);
	volume(&g->config.volumes[1], "t/a/part", 2, 65536, 131072);
	volume(&g->config.volumes[2], "t/a/deep/gone", 3, 0, 0);
	volume(&g->config.volumes[3], "t/b/other", 2, 0, 65536);
	log_set_level(LOG_LEVEL_ERROR);
	fake_reset();
}

void rig_start_engine(struct rig *g)
{
	struct engine_config c = {
		.name = "store", .nvmf = &g->config, .secrets_dir = g->secrets_dir};
	struct ros2_err err = ROS2_ERR_INIT;

	if (nvmf_engine_create(&c, g->queue, &g->e, &err) < 0)
		fail_msg("%s", err.msg);
}

void rig_start(struct rig *g)
{
	struct engine_reactor_opts o = {.depth = RIG_DEPTH};
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t rw = ENGINE_READ | ENGINE_WRITE;

	g->buf = malloc(RIG_BUF);
	assert_non_null(g->buf);
	rig_start_engine(g);
	if (g->ops->ns_open(g->e, &rig_who, "t/a", &g->ns, &err) < 0 ||
	    g->ops->reactor_new(g->e, &o, &g->r, &err) < 0 ||
	    g->ops->open(g->ns, "all", rw, 0, &g->all, NULL, &err) < 0 ||
	    g->ops->open(g->ns, "part", rw, 0, &g->part, NULL, &err) < 0)
		fail_msg("%s", err.msg);
}

void rig_stop(struct rig *g)
{
	if (g->r)
		assert_int_equal(g->ops->in_flight(g->r), 0);
	g->ops->close(g->all);
	g->ops->close(g->part);
	g->ops->ns_close(g->ns);
	g->ops->reactor_free(g->r);
	g->ops->destroy(g->e);
	free(g->buf);
	assert_int_equal(fake_stats().open, 0);
}

int rig_setup(void **state)
{
	static struct rig g;

	rig_init(&g);
	rig_start(&g);
	*state = &g;
	return 0;
}

int rig_teardown(void **state)
{
	rig_stop(*state);
	return 0;
}

static void on_done(struct engine_io *io, int64_t res)
{
	struct rig_io *i = container_of(io, struct rig_io, io);

	assert_false(i->done);
	i->res = res;
	i->done = true;
	i->order = ++ends;
}

void rig_blank(struct rig_io *i, struct engine_file *f, enum engine_op op, uint64_t offset,
               uint32_t len, void *buf)
{
	*i = (struct rig_io){.io = {.file = f,
	                            .op = op,
	                            .offset = offset,
	                            .len = len,
	                            .buf = buf,
	                            .buf_index = -1,
	                            .done = on_done}};
}

int rig_try(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
            uint64_t offset, uint32_t len, void *buf)
{
	int rc;

	rig_blank(i, f, op, offset, len, buf);
	rc = g->ops->submit(g->r, &i->io);
	if (rc == 0)
		g->ops->kick(g->r);
	return rc;
}

void rig_submit_until(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
                      uint64_t offset, uint32_t len, void *buf, uint64_t until_ns)
{
	rig_blank(i, f, op, offset, len, buf);
	i->io.until_ns = until_ns;
	assert_int_equal(g->ops->submit(g->r, &i->io), 0);
	g->ops->kick(g->r);
}

void rig_submit(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
                uint64_t offset, uint32_t len, void *buf)
{
	rig_submit_until(g, i, f, op, offset, len, buf, 0);
}

void rig_turn(struct rig *g, int ms)
{
	struct pollfd p = {.fd = g->ops->event_fd(g->r), .events = POLLIN};

	g->ops->kick(g->r);
	if (g->ops->poll(g->r, 16) == 0)
		(void)poll(&p, 1, ms);
}

int64_t rig_wait(struct rig *g, struct rig_io *i)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	while (!i->done) {
		rig_turn(g, 20);
		assert_true(clock_monotonic_ns() < until);
	}
	return i->res;
}

int64_t rig_io(struct rig *g, struct engine_file *f, enum engine_op op, uint64_t offset,
               uint32_t len, void *buf)
{
	struct rig_io i;

	rig_submit(g, &i, f, op, offset, len, buf);
	return rig_wait(g, &i);
}

void rig_turns_ms(struct rig *g, uint64_t ms)
{
	uint64_t until = clock_monotonic_ns() + ms * NS_PER_MS;

	while (clock_monotonic_ns() < until)
		rig_turn(g, 5);
}

void rig_nap(void)
{
	(void)poll(NULL, 0, 10);
}

static void take_health(void *arg, const struct nvmf_ctrl_health *h)
{
	if (ros2_uid_eq(&h->tenant, &rig_who.uid))
		*(struct nvmf_ctrl_health *)arg = *h;
}

struct nvmf_ctrl_health rig_health(struct rig *g)
{
	struct nvmf_ctrl_health h = {0};

	nvmf_admin_health(g->e->admin, take_health, &h);
	return h;
}

void rig_until(struct rig *g, enum nvmf_ctrl_state s)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	while (rig_health(g).state != s) {
		rig_turn(g, 5);
		assert_true(clock_monotonic_ns() < until);
	}
}

void rig_pattern(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}
