/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a directory of its own, with helpers to submit and wait. */
#ifndef ROS2_TESTS_CONTROLLER_STORE_FIXTURE_H
#define ROS2_TESTS_CONTROLLER_STORE_FIXTURE_H

#include "controller/store.h"
#include "tests/testing.h"
#include <stdatomic.h>

struct fixture {
	char dir[64];
	struct loop *loop;
	struct crypto_sign_key *key;
	char vkey[256];
	struct store *store;
	struct store_opts opts;
	unsigned objects, agents, grants, revocations, receipts, tokens, origins; /* loaded */
	struct store_grant last_grant;
	unsigned notes;
	uint8_t last_note[ROS2_UID_LEN]; /* as it begins */
	unsigned batches;
};

void fixture_init(struct fixture *f);
void fixture_fini(struct fixture *f);
int fixture_open(struct fixture *f, struct ros2_err *err); /* and load and start */
void fixture_close(struct fixture *f);                     /* the directory stays */
void fixture_path(const struct fixture *f, const char *name, char out[128]);
/* Files of its directory. */
void fixture_remove(const struct fixture *f, const char *name);
bool fixture_has(const struct fixture *f, const char *name);
int fixture_rename(const struct fixture *f, const char *from, const char *to);
void fixture_copy(const struct fixture *f, const char *from, const char *to);

/* A transaction with one grant and one audit record of its tenant. */
struct store_txn *fixture_grant(const struct ros2_uid *uid, const struct ros2_uid *tenant);
struct wait {
	unsigned due, failed, pending;
	_Atomic unsigned done;
	struct store_result last;
};
/* fixture_wait returns when everything that was submitted with @w is answered. */
void fixture_submit(struct fixture *f, struct wait *w, struct store_txn *t);
void fixture_wait(struct fixture *f, struct wait *w);
int fixture_commit(struct fixture *f, struct store_txn *t); /* one, and its result */

struct verdict {
	uint64_t records, checkpoints;
	int rc;
	struct ros2_err err;
};
/* Reads the whole log out of the file with SQLite itself and runs the verifier over it. */
void fixture_verify(const struct fixture *f, struct verdict *v);
int64_t fixture_sql(const struct fixture *f,
                    const char *sql); /* first column of the first row; -1: damaged */
#endif
