/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine over real connections to a target of tests/nvmf/target.h: one tenant, one volume
 * (the whole of a namespace), one reactor, driven by the test's thread. Several of them may be open
 * at once, at one target or at many; vol_turn turns only its own.
 */
#ifndef ROS2_TESTS_NVMF_VOL_H
#define ROS2_TESTS_NVMF_VOL_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/nvmf/engine_priv.h"
#include "tests/nvmf/target.h"

#define VOL_NQN   "nqn.2026-11.test:volumes"
#define VOL_IOS   32u
#define VOL_IO    131072u                          /* bytes of the largest request */
#define VOL_BYTES ((uint64_t)VOL_IOS * VOL_IO * 2) /* of namespace 1 */

struct vol_io {
	struct engine_io io; /* first */
	int64_t res;
	unsigned done; /* times */
	uint32_t seed; /* of what it writes */
	uint64_t began_ns, ended_ns;
};

struct vol {
	struct nvmf_config config;
	struct engine_who who;
	uint64_t unquiet_since_ns; /* engine_config's; set before vol_open */
	uint32_t backoff_max_ms;   /* 0 = as always: for many lies at one tenant's controller */
	struct engine *e;
	struct engine_ns *ns;
	struct engine_reactor *r;
	struct engine_file *f;
	struct vol_io ios[VOL_IOS];
	uint8_t *buf; /* owned: VOL_IOS times VOL_IO */
	/* Over RDMA: config.transport says so, and @device is set. */
	const char *device;
	bool peer_invalidates; /* the device was seen to be safe for it */
	struct fabric_dev *dev;
	struct fabric_region *regions[VOL_IOS]; /* one for each VOL_IO of buf */
	uint32_t seed;
	uint64_t lives;  /* of the controller, when it was flushed last */
	char words[400]; /* of what failed last */
};

/* A target with VOL_NQN and its namespace 1 of VOL_BYTES, 512 bytes a block; R2Ts and C2HData in
 * pieces. Fails the test. */
struct target *vol_target(void);
/* What a document would say; the caller changes it before vol_open. @t NULL: it sets the port. */
void vol_init(struct vol *v, struct target *t, const char *tenant);
/* 0, or what engine or target said, in words, too. Whatever it returns vol_close is due. */
int vol_open(struct vol *v);
void vol_close(struct vol *v);

void vol_turn(struct vol *v, int ms);
void vol_submit(struct vol *v, struct vol_io *i, enum engine_op op, uint64_t offset, void *buf,
                uint32_t len);
/* Until it is over. INT64_MIN: not within @ms. */
int64_t vol_wait(struct vol *v, struct vol_io *i, uint64_t ms);
int64_t vol_io(struct vol *v, enum engine_op op, uint64_t offset, void *buf, uint32_t len);
/* Writes, reads and flushes with VOL_IOS requests in flight and compares each byte: 0, -EILSEQ when
 * one was wrong, -ETIME when one stayed, else the first error. */
int vol_scenario(struct vol *v);
void vol_pattern(uint8_t *p, size_t len, uint32_t seed);
bool vol_is_pattern(const uint8_t *p, size_t len, uint32_t seed);

struct nvmf_ctrl_health vol_health(struct vol *v);
/* Turns until the controller is in this state: false when it is not within @ms. */
bool vol_until(struct vol *v, enum nvmf_ctrl_state s, uint64_t ms);
unsigned vol_fds(void); /* that this process has open */
#endif
