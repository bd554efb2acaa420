/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a session over shm that storage targets over RDMA read and write as it is: pieces of
 * it, each registered in its tenant's domain; each command gets a key of its own over its bytes
 * (nvmf/queue.h). A key is as good as what the device was seen to enforce: a piece is exactly the
 * bytes of a request, so that no key over it reaches more than the region's own bounds let it; or,
 * where windows inside a region were seen to be enforced, the whole region of the request's lease.
 *
 * A piece that a request needs and that is not there is registered by a worker, and is there for
 * later ones. Until then, and whenever a limit or the device refuses it, payload goes through a
 * slot, is copied, and counted.
 *
 *   free --a request misses it--> asked --registered--> there --not used, place needed--> asked
 *                                    \--refused--> free    \--the session is gone--> ending
 *
 * Invariants: (1) only requests of the session find its pieces, and only after their lease was
 * checked: a piece is a means and no right; (2) it is in use from a request's begin until the
 * engine does not touch the memory any more, when the request's keys are dead; what is in use is
 * not taken away; (3) memory is unmapped only when the device knows none of it any more, and
 * counts for its tenant meanwhile.
 *
 * End of life of a piece: 1. nobody finds it; 2. requests give it back; 3. a worker takes it from
 * the device; what the device keeps (-EBUSY: a window of a queue that it did not give up) is tried
 * again; 4. the memory is unmapped.
 */
#ifndef ROS2_DATAPLANE_SHM_LEND_PRIV_H
#define ROS2_DATAPLANE_SHM_LEND_PRIV_H

#include "dataplane/dp_priv.h"
#include "common/share.h"

/* Of a session: as many as it may have requests. Together never more bytes than its memory has, so
 * what bounds that bounds them. */
#define SHM_PIECES DP_CREDITS
/* Of a tenant, and of all at this agent; a device with few regions gives a quarter of them. */
#define SHM_PIECES_TENANT 512u
#define SHM_PIECES_ALL    8192u
/* A piece that was used within this time keeps its place; so long nothing is asked for after a
 * refusal. */
#define SHM_PIECE_IDLE_NS NS_PER_S

struct lease;
struct session;

struct shm_piece {
	struct fabric_region *region; /* owned; NULL = free */
	uint64_t bytes, used_ns;
	uint32_t users; /* requests */
};

/* A session's. The reactor's, until it is gone; but the place that is asked for, which is the
 * loop's and then a worker's while @asking. Afterwards the loop's, or a worker's. */
struct shm_lend {
	/* What each is good for; length 0 = nothing. Apart, because every request searches them. */
	uint64_t base[SHM_PIECES], length[SHM_PIECES];
	struct shm_piece pieces[SHM_PIECES];
	uint64_t bytes; /* registered */
	uint64_t not_before_ns;
	uint32_t last; /* found: the next is often behind it */
	bool asking;
	bool full; /* one more was refused by a limit: the next takes a place that is */
	/* what is asked for */
	uint32_t place;
	uint64_t want_base, want_length; /* length 0: what is there goes, no more */
	struct dp_post post;
	struct dp_op op;
	/* loop */
	uint32_t n; /* places with a region, or about to have one: counted */
	struct loop_timer timer;
	uint32_t look_ms;
	bool ending;
};

/* The device's share of this tenant's, when the domain is made: regions and bytes. */
void shm_lend_caps(const struct dp *dp, uint32_t *regions, uint64_t *bytes);

/* Reactor. A piece that [address, +len) lies in, in use from now on; NULL: none, and one was asked
 * for if it may be. @l allows those bytes. */
struct shm_piece *shm_lend_take(struct session *s, const struct lease *l, uint64_t address,
                                uint32_t len);
void shm_lend_give(struct shm_piece *p, uint64_t now_ns);

/* Loop, of a session that is gone and that nothing names. True: the device knows some of its memory
 * yet; dp_session_release is called again. */
bool shm_lend_ends(struct dp_session *ds);
/* Loop, with no worker and no reactor left: whatever is left. What the device keeps even now stays
 * mapped: the kernel takes it back with the process. */
void shm_lend_drop(struct dp_session *ds);
#endif
