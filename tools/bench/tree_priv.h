/* SPDX-License-Identifier: Apache-2.0 */
/* What put, get and verify-tree share: the list of files and what became of each. */
#ifndef ROS2_TOOLS_BENCH_TREE_PRIV_H
#define ROS2_TOOLS_BENCH_TREE_PRIV_H

#include "tools/bench/bench.h"
#include <pthread.h>
#include <stdatomic.h>

#define TREE_FILES_MAX 4000000u
#define TREE_PATH_MAX  3500u

enum tree_op { TREE_PUT, TREE_GET, TREE_VERIFY };

struct tree_file {
	char *path;    /* owned; relative, '/'-separated */
	uint64_t size; /* when listed; then what was moved */
	uint8_t sha256[32];
	bool done, differs;
};

struct tree {
	const struct bench_opts *o; /* borrowed */
	enum tree_op op;
	const char *local, *remote;     /* borrowed; roots */
	struct ros2_client *client;     /* owned */
	struct tree_file *files, *dirs; /* owned; dirs: parents first */
	size_t n_files, n_dirs, cap_files, cap_dirs;
	uint64_t bytes, skipped;
	/* any thread */
	_Atomic size_t next;
	_Atomic uint64_t moved;
	atomic_bool stop;
	atomic_uint n_finished;
	/* guarded by lock */
	pthread_mutex_t lock;
	struct ros2_err err; /* the first */
};

/* tree_list.c: fill files and dirs. */
int tree_list_local(struct tree *t, struct ros2_err *err);
int tree_list_remote(struct tree *t, struct ros2_mount *m, struct ros2_err *err);
void tree_free(struct tree *t);
/* "root/path"; -ENAMETOOLONG. An empty root gives "path". */
int tree_join(char out[4096], const char *root, const char *path, struct ros2_err *err);

/* tree_copy.c: one worker, with a session of its own. @arg is the struct tree. */
void *tree_worker(void *arg);
#endif
