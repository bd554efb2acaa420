/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the mem engine: a pool of 64 KiB chunks, a tree of nodes that name them, and reactors that
 * copy.
 *
 * Who may touch what:
 * 1. The tree (names, parents, reference counts) is guarded by engine.lock; only control threads
 * take it.
 * 2. A file's bytes are reached by reactors without a lock: size and every slot of the chunk table
 * are atomics, a chunk never moves, and a slot goes from 0 to a chunk by compare-and-swap.
 * 3. A slot goes back to 0 only inside truncate (or with the file's end). Truncate first closes the
 * file's gate, then waits until each reactor has left the poll it was in; from then on it is alone
 * with the file. Reactors leave the operations of a gated file in their queue. So no lock is on the
 * data path and truncate still happens at one instant.
 * 4. A chunk in the pool reads as zeros: what one tenant wrote never shows in another's file.
 * 5. A chunk is counted: one for the file that names it, one per read that lends it. It goes back
 * to the pool with the last of them, so what is lent stays what it was when its file is truncated.
 * A read lends only inside poll and with the gate open, when the file's own count is held.
 */
#ifndef ROS2_DATAPLANE_ENGINES_MEM_PRIV_H
#define ROS2_DATAPLANE_ENGINES_MEM_PRIV_H

#include "common/util.h"
#include "dataplane/engine.h"
#include "dataplane/engines/names.h"
#include <pthread.h>
#include <stdatomic.h>

#define MEM_CHUNK_SHIFT 16
#define MEM_CHUNK       ((size_t)1 << MEM_CHUNK_SHIFT)
#define MEM_DIRECT      16u /* chunks named in the node itself: files up to 1 MiB */
#define MEM_PER_TABLE   (MEM_CHUNK / sizeof(uint32_t)) /* one table chunk names 1 GiB */
#define MEM_TABLES      1024u
#define MEM_FILE_MAX                                                                               \
	((uint64_t)MEM_TABLES * MEM_PER_TABLE *                                                    \
	 MEM_CHUNK) /* 1 TiB; the direct part shadows table 0's first */
#define MEM_CAPACITY_MAX ((uint64_t)16 << 40)

/* Chunk ids begin at 1; 0 = none. Lock-free: any thread. */
struct mem_pool {
	uint8_t *base;          /* owned: chunks x 64 KiB, reserved, not touched */
	_Atomic uint32_t *next; /* owned: the free stack's links */
	_Atomic uint32_t *refs; /* owned: by chunk, rule 5; 0 in the pool */
	uint32_t chunks;
	_Atomic uint32_t fresh; /* chunks never handed out begin here */
	_Atomic uint64_t head;  /* tag << 32 | id; the tag keeps a popped and re-pushed id apart */
	_Atomic uint32_t used;
};

int mem_pool_init(struct mem_pool *p, uint64_t bytes, struct ros2_err *err);
void mem_pool_fini(struct mem_pool *p);
/* A chunk of zeros, or 0 when the capacity is used up. */
uint32_t mem_pool_get(struct mem_pool *p);
/* One more that lends a chunk which a file names. */
void mem_pool_ref(struct mem_pool *p, uint32_t id);
/* One less; after the last one nobody can reach the chunk any more, and its pages go back to the
 * system, so that it reads as zeros again. Any thread, though a reactor is the last one only where
 * a file was truncated under a read. */
void mem_pool_put(struct mem_pool *p, uint32_t id);
/* As mem_pool_put for a chunk just got and never written. Any thread. */
void mem_pool_put_clean(struct mem_pool *p, uint32_t id);

static inline uint8_t *mem_pool_at(const struct mem_pool *p, uint32_t id)
{
	return p->base + (size_t)(id - 1) * MEM_CHUNK;
}

/* The bytes of a regular file. */
struct mem_data {
	_Atomic uint64_t size;
	_Atomic uint64_t mtime_unix_ns;
	_Atomic uint32_t chunks; /* data and tables, for stat */
	_Atomic uint32_t gate;   /* 1 = truncate has it: reactors wait */
	pthread_mutex_t truncate_lock;
	_Atomic uint32_t direct[MEM_DIRECT];
	_Atomic uint32_t tables[MEM_TABLES];
};

struct mem_dir_slot {
	uint64_t cookie;
	struct mem_node *node; /* NULL = was removed */
};

/* All names of an engine by directory and name: chains whose heads are made with the engine, so
 * that a name that moves, or comes back, needs no memory. */
struct mem_names {
	struct mem_node **bucket; /* owned: array of borrowed nodes */
	uint32_t mask;
	uint64_t seed[2]; /* so that nobody can choose names of one chain */
};

struct mem_node {
	/* guarded by engine.lock */
	char name[NAMES_NAME_MAX + 1];
	struct mem_node *parent; /* NULL = root or removed */
	uint64_t cookie;         /* in the parent */
	uint32_t refs;           /* one for the parent's entry, one per open file or namespace */
	struct mem_names *names; /* borrowed: the engine's */
	struct mem_node *next_name;
	struct list all; /* in engine.nodes */
	/* directory: how many, and in the order of their cookies for readdir */
	uint32_t n_children;
	struct mem_dir_slot *slots; /* owned */
	uint32_t n_slots, cap_slots, dead_slots;
	uint64_t last_cookie;
	uint64_t dir_mtime_unix_ns;
	/* immutable after init */
	enum engine_file_type type;
	uint32_t mode;
	struct mem_data *data; /* owned; regular files */
};

struct engine {
	pthread_mutex_t lock;
	struct mem_node *root;
	struct list nodes;
	uint32_t n_nodes, max_nodes;
	struct mem_names names;
	struct mem_pool pool;
	bool null_mode;
	pthread_mutex_t reactors_lock;
	struct list reactors;
};

struct engine_ns {
	struct engine *engine;
	struct mem_node *root; /* holds a reference */
};

struct engine_file {
	struct engine *engine;
	struct mem_node *node; /* holds a reference */
	uint32_t flags;
};

/* ---- mem_tree.c: all with engine.lock held ---- */
/* For so many nodes. -ENOMEM. */
int mem_names_init(struct mem_names *m, uint32_t max_nodes);
void mem_names_fini(struct mem_names *m);
struct mem_node *mem_node_new(struct engine *e, enum engine_file_type type, uint32_t mode, int *rc);
/* After the last one its bytes, if it has any, are the caller's, for mem_data_free when it has
 * given the lock back: of a large file that takes as long as nobody else should wait for. */
struct mem_data *mem_node_unref(struct engine *e, struct mem_node *n);
/* Frees whatever its references say: for the engine's end. */
void mem_node_destroy(struct engine *e, struct mem_node *n);
/* NULL and *rc = -ENOENT or -ENOTDIR with words. */
struct mem_node *mem_lookup(struct mem_node *from, const char *path, size_t len, int *rc,
                            struct ros2_err *err);
struct mem_node *mem_child(struct mem_node *dir, const char *name, size_t len);
/* Takes over the caller's reference of @child on success. -ENOSPC. */
int mem_dir_add(struct mem_node *dir, struct mem_node *child, const char *name);
/* The reference goes back to the caller. */
void mem_dir_remove(struct mem_node *child);
void mem_dir_read(const struct mem_node *dir, uint64_t cookie, struct engine_dirent *out,
                  uint32_t max, uint32_t *ret_n, uint64_t *next);

/* ---- mem_data.c ---- */
struct mem_data *mem_data_new(void);
/* Takes NULL. Without engine.lock. */
void mem_data_free(struct engine *e, struct mem_data *d);
int mem_data_truncate(struct engine *e, struct mem_data *d, uint64_t size);
/* Returns once each reactor of @e is outside poll, or in a later poll than at the call. */
void mem_reactors_pass(struct engine *e);

/* ---- mem_reactor.c: the data half of engine_mem_ops ---- */
int mem_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                    struct engine_reactor **ret, struct ros2_err *err);
void mem_reactor_free(struct engine_reactor *r);
int mem_event_fd(struct engine_reactor *r);
int mem_submit(struct engine_reactor *r, struct engine_io *io);
void mem_withdraw(struct engine_reactor *r, struct engine_io *io);
int mem_kick(struct engine_reactor *r);
uint32_t mem_poll(struct engine_reactor *r, uint32_t max);
uint32_t mem_in_flight(const struct engine_reactor *r);
uint64_t mem_copied_bytes(const struct engine_reactor *r);
void mem_unlend(struct engine_io *io);
/* The slot of the chunk table for chunk @index, making the table when @make; NULL when there is
 * none or no room. */
_Atomic uint32_t *mem_slot(struct engine *e, struct mem_data *d, uint64_t index, bool make);
#endif
