/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the store's front (threads, group commit, audit chain) and a backend (rows). A backend
 * never starts a thread and never decides about retries; it says -ENOSPC, -EIO (the file may be
 * broken), -EBADMSG (damaged) or -EBUSY.
 */
#ifndef ROS2_CONTROLLER_STORE_PRIV_H
#define ROS2_CONTROLLER_STORE_PRIV_H

#include "controller/store.h"

struct store_row_audit {
	uint64_t seq, time_unix_ns;
	const struct store_draft *draft;
	const void *record; /* serialised, as hashed */
	size_t record_len;
	const uint8_t *chain; /* SHA256_LEN */
};

#define STORE_PRUNE_ROWS 2000

struct store_tenant_head {
	uint64_t seq;
	uint8_t prev[SHA256_LEN];
};

struct store_grants_page {
	struct store_grant *v; /* owned, and its strings */
	size_t n;
	bool more; /* beyond next */
	struct ros2_uid next;
};

/* "front thread" = the store thread, or the opener before it runs. */
struct store_ops {
	int (*open)(const struct store_opts *o, void **ret, struct ros2_err *err);
	void (*close)(void *b);
	int (*load)(void *b, const struct store_loader *l, struct ros2_err *err);
	/* front thread; between begin and commit or, where that or begin itself fails, rollback.
	 * begin waits for another process's lock for a tenth of a second: -EBUSY. */
	int (*begin)(void *b, struct ros2_err *err);
	int (*apply)(void *b, const struct store_mut *m, struct ros2_err *err);
	int (*audit)(void *b, const struct store_row_audit *r, struct ros2_err *err);
	int (*note)(void *b, uint64_t size, const char *note, struct ros2_err *err);
	int (*meta_put)(void *b, const char *key, const void *p, size_t n, struct ros2_err *err);
	int (*tenant_put)(void *b, const struct ros2_uid *u, const struct store_tenant_head *h,
	                  struct ros2_err *err);
	int (*commit)(void *b, struct ros2_err *err);
	void (*rollback)(void *b);
	/* front thread; -ENOENT when absent. meta_get: *ret is malloc'd. */
	int (*meta_get)(void *b, const char *key, void **ret, size_t *ret_len,
	                struct ros2_err *err);
	int (*tenant_get)(void *b, const struct ros2_uid *u, struct store_tenant_head *ret,
	                  struct ros2_err *err);
	/* 0: this revocation has its row; -ENOENT. */
	int (*revocation_get)(void *b, const struct ros2_uid *u, struct ros2_err *err);
	/* The last stored record: seq 0 when the log is empty. */
	int (*audit_last)(void *b, uint64_t *ret_seq, uint8_t chain[SHA256_LEN],
	                  uint64_t *ret_note_size, struct ros2_err *err);
	/* Removes ended grants, spent tokens older than @before; a bounded number. In a commit. The
	 * number of grants: when that is STORE_PRUNE_ROWS there may be more. */
	int (*prune)(void *b, uint64_t before_unix_ns, struct ros2_err *err);
	/* reader thread */
	int (*page_audit)(void *b, const struct store_audit_query *q, struct store_audit_page *p,
	                  struct ros2_err *err); /* rows: malloc'd, store_page_fini */
	int (*page_grants)(void *b, const struct store_grant_query *q, struct store_grants_page *p,
	                   struct ros2_err *err);
	/* compaction thread: bounds the log that commits write. */
	int (*compact)(void *b, bool hard);
	/* any thread: the length of the log, and what of it is not in the database yet */
	uint64_t (*wal_bytes)(void *b);
	uint64_t (*wal_left)(void *b);
};

void store_page_fini(struct store_audit_page *p);
void store_grants_fini(struct store_grants_page *p);
#endif
