/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs_link.c and verbs_memory.c share. */
#ifndef ROS2_CLIENT_VERBS_PRIV_H
#define ROS2_CLIENT_VERBS_PRIV_H

#include "dataplane/client/internal_priv.h"
#include "dataplane/client/verbs.h"
#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"

#define VERBS_SPARE      32u /* receives beyond the credits: WELCOME, NAK, PONG */
#define VERBS_RECV_BYTES (WIRE_HEADER_LEN + WIRE_WORDS_MAX)
#define VERBS_SEND_BYTES 160u /* a header; the first message is a HELLO */
#define VERBS_WINDOWS    256u
#define VERBS_READS_IN   16u
#define VERBS_KEPT       16u   /* registrations that the device did not end when it was asked to */
#define VERBS_GRACE_MS   5000u /* a lease has ended, but what was sent under it is not answered */

_Static_assert(WIRE_HEADER_LEN + sizeof(struct wire_hello) <= VERBS_SEND_BYTES, "HELLO");

/* Bits above the index in cookies. */
enum verbs_kind { VERBS_RECV = 1, VERBS_SEND, VERBS_BIND };

/* A window that is being ended. Its receipt may come when its region is gone: from a queue pair
 * that the device kept. */
struct verbs_revoke {
	struct verbs_link *link;
	struct ros2_region *region; /* borrowed: until verbs_region_end, then NULL */
	bool due;
};

struct verbs_link {
	/* one device at a time, as long as the session */
	struct fabric_cm *cm;
	char device[FABRIC_NAME_MAX];
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	bool ending; /* all of it is being given back: no connection can be made with it */
	/* What the device has not given up; asked again now and then. Whatever it still writes
	 * there meets nobody: the memory is not used, nor freed, before. */
	struct {
		struct fabric_region *region;
		uint8_t *mem; /* owned, of verbs_pages_new; NULL: the program's */
		size_t bytes;
	} kept[VERBS_KEPT];
	uint32_t n_kept;
	struct verbs_revoke revokes[2 * VERBS_WINDOWS]; /* as many as a domain has windows */
	struct list link; /* of a session that was closed: client->verbs_kept */
	/* one connection */
	struct fabric_conn *conn;
	struct fabric_qp *qp;
	struct fabric_region *region; /* of mem */
	uint8_t *mem;                 /* owned, of verbs_pages_new: receives, then sends */
	size_t mem_bytes;
	uint32_t n_recv, n_send, n_send_free;
	uint32_t *send_free; /* owned: stack of free places */
	int *send_slot;      /* owned: by place; the request it is of, or -1 */
	uint32_t n_revoking;
	bool resolved, established, over;
	uint8_t answer[sizeof(struct wire_verbs_answer)];
	uint32_t answer_len;
	struct wire_verbs_ask ask;
	struct ros2_err why; /* over */
	/* before the proof: where the first message goes */
	uint8_t *first;
	uint32_t first_len;
	bool has_first;
};

/* verbs_memory.c */
int verbs_use_device(struct ros2_session *s, const char *name, struct ros2_err *err);
/* Whole pages with nothing else in them, all zero: pages that are registered may be missing in a
 * child of the program's (fabric_fork_init). NULL: no memory. */
uint8_t *verbs_pages_new(size_t bytes);
/* The registration ends and @mem, of verbs_pages_new (or NULL), is freed: now, or when the device
 * has given it up. */
void verbs_give_back(struct verbs_link *v, struct fabric_region *region, uint8_t *mem,
                     size_t bytes);
/* The queue pair goes, and with it every window. */
void verbs_windows_lost(struct ros2_session *s);
/* Ends windows whose lease has ended. */
void verbs_windows_expire(struct ros2_session *s);
struct fabric_region *verbs_region_of(struct ros2_session *s, struct ros2_region *r,
                                      struct ros2_err *err);
/* verbs_link.c: takes completions that are there. 0, or the end of the connection. */
int verbs_take(struct ros2_session *s, bool *ret_moved, struct ros2_err *err);
#endif
