/* SPDX-License-Identifier: Apache-2.0 */
/* An nvmf engine, over fake queues unless told, with one tenant's volumes open, driven by the
 * test's thread. */
#ifndef ROS2_TESTS_NVMF_ENGINE_RIG_H
#define ROS2_TESTS_NVMF_ENGINE_RIG_H

#include "dataplane/nvmf/engine_priv.h"
#include "tests/nvmf/fake_queue.h"

#define RIG_BUF   (256u * 1024)
#define RIG_DEPTH 64u

struct rig {
	struct nvmf_config config;
	const char *secrets_dir;            /* NULL unless set before rig_start */
	const struct nvmf_queue_ops *queue; /* the fake's, unless changed before rig_start */
	const struct engine_ops *ops;
	struct engine *e;
	struct engine_ns *ns;
	struct engine_reactor *r;
	struct engine_file *all, *part; /* volumes: "t/a/all" is namespace 1, "t/a/part" 128 KiB of
	                                   namespace 2 from 64 KiB on */
	uint8_t *buf;
};

struct rig_io {
	struct engine_io io;
	int64_t res;
	bool done;
	uint64_t order; /* of its end among all */
};

extern const struct engine_who rig_who;
/* The target and its configuration, and nothing begun. */
void rig_init(struct rig *g);
void rig_start_engine(struct rig *g); /* the engine alone */
void rig_start(struct rig *g);        /* engine and namespace, volumes open, reactor */
void rig_stop(struct rig *g);
int rig_setup(void **state);    /* cmocka: init and start */
int rig_teardown(void **state); /* and that nothing is left */

/* Not submitted. */
void rig_blank(struct rig_io *i, struct engine_file *f, enum engine_op op, uint64_t offset,
               uint32_t len, void *buf);
/* 0, or that the engine did not take it. */
int rig_try(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
            uint64_t offset, uint32_t len, void *buf);
void rig_submit(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
                uint64_t offset, uint32_t len, void *buf);
/* The same with the io's until_ns. */
void rig_submit_until(struct rig *g, struct rig_io *i, struct engine_file *f, enum engine_op op,
                      uint64_t offset, uint32_t len, void *buf, uint64_t until_ns);
/* Turns the reactor once, waiting up to @ms for something to happen. */
void rig_turn(struct rig *g, int ms);
/* Turns until it is done; fails after 10 s. */
int64_t rig_wait(struct rig *g, struct rig_io *i);
int64_t rig_io(struct rig *g, struct engine_file *f, enum engine_op op, uint64_t offset,
               uint32_t len, void *buf);
/* Turns for this long, whatever comes. */
void rig_turns_ms(struct rig *g, uint64_t ms);
/* A moment, where there is nothing to wait for. */
void rig_nap(void);
/* What the tenant's controller is like. */
struct nvmf_ctrl_health rig_health(struct rig *g);
/* Turns until the controller is in this state; fails after 10 s. */
void rig_until(struct rig *g, enum nvmf_ctrl_state s);
void rig_pattern(uint8_t *p, size_t len, uint32_t seed);
#endif
