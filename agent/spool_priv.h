/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the spool: spool.c admits and writes, spool_read.c loads, sends and acknowledges,
 * spool_format.c knows the bytes. */
#ifndef ROS2_AGENT_SPOOL_PRIV_H
#define ROS2_AGENT_SPOOL_PRIV_H

#include "agent/bytes.h"
#include "agent/spool.h"
#include "common/hash.h"
#include "common/util.h"
#include <limits.h>

#define SPOOL_FRAME_MAGIC      0x46445541u /* "AUDF" */
#define SPOOL_FRAME_HEADER_LEN 24u
#define SPOOL_NAME_LEN         54u /* "seg-SERIAL-INCARNATION" with the NUL: 16 and 32 digits */

struct spool_item {
	struct list link;
	enum spool_class class;
	spool_done_fn fn;
	void *arg;
	uint32_t len;
	uint8_t bytes[];
};

/* What one tenant has in the spool. The zero uid: records that touch no tenant. */
struct spool_account {
	struct ros2_uid tenant;
	struct list waiting; /* spool_item, owned */
	struct list turn;    /* on spool.turns while something waits */
	uint64_t bytes;      /* waiting, being written, or written and not acknowledged */
	uint32_t unacked;    /* records in spool.written */
	UT_hash_handle hh;
};

struct spool_segment {
	struct list link;
	struct ros2_uid incarnation;
	uint64_t serial, first_seq, last_seq;
	uint64_t size; /* bytes of whole frames */
	uint64_t records;
	/* Loaded: written behind these, and cannot be read: at least so many. Told before it goes,
	 * unless the controller sees the hole, because more of the same start came behind it. */
	uint64_t lost;
	struct writer_job going; /* of its file; the segment is its own then */
	const struct spool *spool;
	struct buf data; /* cached frames; empty and size > 0: on disk only */
	bool active;     /* the one that is appended to */
	char name[SPOOL_NAME_LEN];
};

struct spool_written {
	uint64_t seq;
	struct spool_account *account;
	uint32_t len;
};

struct spool_flush {
	struct writer_job job;
	struct spool *spool;
	bool busy;
	/* set by the loop, used by the writer */
	struct buf frames;
	char path[PATH_MAX];
	bool create, sync;
	uint64_t offset;
	/* set by the writer */
	int r;
	bool fatal;
	struct ros2_err err;
	/* the loop's */
	struct list items;
	struct spool_account *accounts[SPOOL_BATCH_MAX];
	uint32_t n;
};

struct spool {
	struct spool_opts o;
	char dir[PATH_MAX];
	struct spool_account *accounts; /* owned */
	struct list turns;              /* spool_account */
	/* spool_segment, owned, oldest first; each has frames in its file */
	struct list segments;
	/* Likewise, in any order: nothing of it is to be sent any more, and what of it cannot be
	 * read is not told. Not in disk_bytes: what tells it must find room. */
	struct list holes;
	struct spool_segment *active; /* owned until its first frames are in its file */
	int fd;                       /* of active */
	uint64_t serial, next_seq, disk_bytes, waiting_bytes;
	uint64_t n_records, n_sent;    /* unacknowledged; of these sent since the last rewind */
	struct spool_written *written; /* owned ring of this incarnation's unacknowledged records */
	size_t written_head, written_n, written_cap;
	/* the send cursor */
	struct spool_segment *at;
	uint64_t at_offset;
	uint64_t n_gone;         /* records of earlier starts whose segment somebody removed */
	uint64_t unread_told_ns; /* not before is it logged again that nothing can be read there */
	struct spool_flush flush;
	struct loop_timer retry;
	bool closing;
};

void spool_segment_free(struct spool_segment *g);
/* Offset of the next frame, its view; false at the end of what is readable. */
bool spool_frame_at(const struct buf *b, uint64_t offset, struct spool_view *ret,
                    uint64_t *ret_next);
void spool_frame_put(struct buf *b, uint64_t seq, const void *p, uint32_t len);
/* The frames that can be read from the beginning of a segment: their seqs are above 0 and follow
 * each other. */
struct spool_scan {
	uint64_t records, first_seq, last_seq;
	uint64_t size; /* bytes of whole frames */
};
/* False when there is more than could be read. */
bool spool_scan(const struct buf *b, struct spool_scan *ret);
/* How many records were written from @from on, where a scan ended, as far as headers that are left
 * tell; 0 where an append was torn: nobody was told of it. */
uint64_t spool_lost(const struct buf *b, uint64_t from);
/* The one spelling that spool_name_format writes, or -EINVAL. */
int spool_name_parse(const char *name, uint64_t *ret_serial, struct ros2_uid *ret_incarnation);
void spool_name_format(uint64_t serial, const struct ros2_uid *incarnation,
                       char out[SPOOL_NAME_LEN]);
int spool_load_segments(struct spool *s, struct spool_opened *info, struct ros2_err *err);
void spool_account_put(struct spool *s, struct spool_account *a);
#endif
