/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a storage engine offers the data plane. Control operations may block: the data plane calls
 * them from its control workers, never from a reactor. Data operations are asynchronous, per
 * reactor, in batches: submit, submit, kick, poll. An engine does no rights checks of its own, but
 * keeps every name below the namespace root whatever the path says.
 */
#ifndef ROS2_DATAPLANE_ENGINE_H
#define ROS2_DATAPLANE_ENGINE_H

#include "common/err.h"
#include "common/ids.h"
#include "dataplane/key_info.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct fabric_pd;
struct fabric_region;
struct nvmf_config; /* dataplane/nvmf/config.h */
struct engine;      /* one Engine document at one agent */
struct engine_ns;   /* one namespace root */
struct engine_file; /* one open object; reference-counted by the data plane: closed only at zero in
                       flight */
struct engine_reactor; /* one engine x one reactor: its ring, its registered buffers */

/* For whom a namespace is opened: a target that knows its users by name is told this one's. */
struct engine_who {
	struct ros2_uid uid;
	const char *name; /* borrowed: during the call */
	/* Where its memory is that an engine over RDMA may lend to a target; NULL = none. Stays as
	 * long as the engine uses it. */
	struct fabric_pd *pd;
};

enum engine_open_flags {
	ENGINE_READ = 1,
	ENGINE_WRITE = 2,
	ENGINE_CREATE = 4,
	ENGINE_EXCLUSIVE = 8,
	ENGINE_TRUNCATE = 16,
};

enum engine_file_type { ENGINE_REGULAR = 1, ENGINE_DIRECTORY = 2, ENGINE_OTHER = 3 };

struct engine_attr {
	enum engine_file_type type;
	uint64_t size, mtime_unix_ns, blocks_512;
	uint32_t mode;
	uint32_t block_size; /* of a file: what offsets and lengths are multiples of; 1 = any */
};

struct engine_dirent {
	char name[256];
	enum engine_file_type type;
};

struct engine_config {
	const char *name;     /* of the Engine document */
	const char *root;     /* file: absolute directory */
	uint64_t size_bytes;  /* mem: capacity */
	bool null_mode;       /* mem: reads give what is there, writes are dropped (benchmarks) */
	uint32_t io_features; /* file: ENGINE_IO_* to leave out, for tests of the fallbacks */
	/* nvmf: what the document says, and the directory its secrets are in; NULL = none is there.
	 * Both borrowed during create. */
	const struct nvmf_config *nvmf;
	const char *secrets_dir;
	/* nvmf: since when (boottime) controllers of a process that was killed may be at work at
	 * the target, so that writes must wait; 0 = there are none. And how long these are, by what
	 * that process knew, where it is longer than by what the document says now: 0 = it is not.
	 */
	uint64_t unquiet_since_ns, unquiet_keep_alive_ms, unquiet_quiesce_ms;
};

enum engine_io_features {
	ENGINE_IO_NO_URING = 1,
	ENGINE_IO_NO_DEFER = 2,
	ENGINE_IO_NO_DIRECT = 4,
	ENGINE_IO_NO_FIXED = 8,
	ENGINE_IO_NO_COOP = 16 /* with NO_DEFER: io_uring as Linux 5.15 has it */
};
/* Words with commas between, each "no-" and what to leave out: uring, deferred, cooperative,
 * direct, fixed. Empty is nothing. INVALID names the word. */
int engine_io_features_parse(const char *words, uint32_t *ret, struct ros2_err *err);

/*
 * ZERO: afterwards the bytes read as zeros. DISCARD: nobody needs them any more; afterwards each
 * reads as it was, as 0, or (where a target says so) as 0xff. Both need ENGINE_WRITE, have no buf,
 * take at most ENGINE_ZERO_MAX bytes, and make nothing longer: what lies beyond the end stays as it
 * is, and the result is @len all the same. For fences and unknown outcomes they are writes.
 * -EOPNOTSUPP: the storage cannot; nothing was done.
 */
enum engine_op {
	ENGINE_OP_READ = 1,
	ENGINE_OP_WRITE,
	ENGINE_OP_FLUSH,
	ENGINE_OP_ZERO,
	ENGINE_OP_DISCARD,
};
/* A request's work is bounded: whoever wants more asks again, and is charged again. */
#define ENGINE_ZERO_MAX (4u << 20)
static inline bool engine_op_clears(enum engine_op op)
{
	return op == ENGINE_OP_ZERO || op == ENGINE_OP_DISCARD;
}
static inline bool engine_op_changes(enum engine_op op)
{
	return op == ENGINE_OP_WRITE || engine_op_clears(op);
}

/* The most parts a lent read has: 1 MiB that begins inside a chunk of 64 KiB. */
#define ENGINE_PARTS_MAX 17

/* The result of what came too late: nothing of it was done. */
#define ENGINE_LATE (-ETIME)
/* The result of what would have waited for storage that is away, beyond the first few: nothing of
 * it was done, or it changes nothing. It may be submitted again, as the same io. */
#define ENGINE_AWAY (-EHOSTDOWN)

/* Embedded in the data plane's request. The engine owns it from submit to done. */
struct engine_io {
	struct engine_file *file; /* borrowed: until done */
	enum engine_op op;
	uint64_t offset;
	uint32_t len;
	void *buf;     /* a slot, or part of one; NULL where nothing is moved */
	int buf_index; /* index in engine_reactor_opts.buffers, -1 when not one of them */
	/* A tenant reads and writes buf meanwhile (takes_any_memory, or region is of it): what is
	 * not this io's goes never there, nothing is read back from it, and a key that storage gets
	 * to it is this io's alone. */
	bool tenant_memory;
	/* what buf lies in, of an engine that needs regions; else NULL */
	struct fabric_region *region;
	/* CLOCK_BOOTTIME from which on it may not be handed on any more; 0 = no such time. The
	 * engine reads the clock right before a call that hands on, once for all that goes with it,
	 * also before a later call for the same io; what is late ends with ENGINE_LATE, but a write
	 * of which a part is done, or may be, with -EREMOTEIO. */
	uint64_t until_ns;
	/* @res: bytes done (short only at end of file) or negative errno. Called from poll on the
	 * reactor's thread. -EREMOTEIO for a write whose outcome is unknown. */
	void (*done)(struct engine_io *io, int64_t res);
	uint64_t priv[4]; /* the engine's own, while it owns the io */
	bool may_return;  /* ENGINE_AWAY is understood */
	/* A flush: since when (CLOCK_BOOTTIME) who asked for it waits, maybe longer than the engine
	 * has it; 0 = since submit. It speaks for all that was written before. */
	uint64_t asked_ns;
	/* Until when it waits for storage that is away: 0 at the first submit, then the engine's,
	 * and kept until the next one after ENGINE_AWAY. */
	uint64_t wait_until_ns;
	/* The engine owns the io still, and will not touch @buf any more. NULL: nobody asks. As
	 * done. */
	void (*unneeded)(struct engine_io *io);
	/* A read whose bytes lie in the engine's memory need not be copied: where @may_lend is set
	 * the engine may answer with @n_parts pieces of its own instead of filling @buf, together
	 * as long as the result. They stay readable until unlend, whatever happens to the file;
	 * what others write into the file meanwhile may show in them. */
	bool may_lend;
	uint32_t n_parts; /* 0 = the bytes are in buf; 0 at submit */
	struct iovec parts[ENGINE_PARTS_MAX];
	uint32_t lent[ENGINE_PARTS_MAX]; /* the engine's own, until unlend */
};

/* How an engine's way to its storage is, for one tenant. */
struct engine_health {
	struct ros2_uid tenant;
	const char *name;  /* of the tenant; borrowed: during the callback */
	const char *state; /* literal */
	bool live;         /* requests are handed on now */
	bool lost;         /* they are not, though it was live once, an attempt failed, or nothing
	                      was answered for some seconds; not while it shuts down */
	uint64_t since_ns; /* boottime: when it became so, or ceased to be */
	uint64_t connects; /* times it became live, since its first mount */
	uint64_t unknown_writes, retries, given_up;
	const char *words; /* of the last fault; "" */
};

struct engine_reactor_opts {
	uint32_t depth;              /* most operations in flight */
	uint32_t tenant_depth;       /* of those of one tenant; 0 = depth */
	const struct iovec *buffers; /* memory the data plane will use again and again (slots);
	                                borrowed: until reactor_free */
	uint32_t n_buffers;
	/* Threads that the kernel may make for this reactor's calls that block, at all its engines
	 * together; 0 = as many as there are such calls. */
	uint32_t io_workers;
};

/* Paths: relative to the namespace root, NUL-terminated, '/'-separated, not empty except for "" =
 * the root itself (stat, readdir). Errors: negative errno with words; -ENOENT, -EEXIST, -ENOTDIR,
 * -EISDIR, -ENOTEMPTY, -EMEDIUMTYPE (not a regular file), -ELIBBAD (a path that leaves the root,
 * crosses a mount or a magic link), -ENOSPC, -EIO. */
struct engine_ops {
	const char *type; /* "file", "mem", "nvmf" */
	int (*create)(const struct engine_config *c, struct engine **ret, struct ros2_err *err);
	void (*destroy)(struct engine *e);

	/* Control: any thread but a reactor; may block; may run concurrently. */
	/* Makes the directory when it is missing (not where an engine has volumes). */
	int (*ns_open)(struct engine *e, const struct engine_who *who, const char *path,
	               struct engine_ns **ret, struct ros2_err *err);
	void (*ns_close)(struct engine_ns *ns);
	int (*open)(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
	            struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err);
	void (*close)(struct engine_file *f);
	int (*stat)(struct engine_ns *ns, const char *path, struct engine_attr *ret,
	            struct ros2_err *err);
	int (*fstat)(struct engine_file *f, struct engine_attr *ret, struct ros2_err *err);
	/* Up to @max entries after @cookie (0 = start); *next = 0 at the end. Never "." or "..". */
	int (*readdir)(struct engine_ns *ns, const char *path, uint64_t cookie,
	               struct engine_dirent *out, uint32_t max, uint32_t *ret_n, uint64_t *next,
	               struct ros2_err *err);
	int (*mkdir)(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err);
	int (*unlink)(struct engine_ns *ns, const char *path, struct ros2_err *err);
	int (*rmdir)(struct engine_ns *ns, const char *path, struct ros2_err *err);
	int (*rename)(struct engine_ns *ns, const char *from, const char *to, struct ros2_err *err);
	int (*truncate)(struct engine_file *f, uint64_t size, struct ros2_err *err);
	int (*fsync)(struct engine_file *f, struct ros2_err *err);

	/* Any thread, does not block: @fn once for each tenant that uses the engine. NULL: its
	 * storage is always there. */
	void (*health)(struct engine *e, void (*fn)(void *arg, const struct engine_health *h),
	               void *arg);

	/* Any thread, does not block long: might a control call of this tenant wait for storage
	 * that does not answer now, or never did? NULL: never. */
	bool (*lost)(struct engine *e, const struct ros2_uid *tenant);

	/* Any thread, does not block long: is anything left of this tenant's, so that its
	 * engine_who.pd must stay? NULL: as long as the engine is there. */
	bool (*uses)(struct engine *e, const struct ros2_uid *tenant);

	/* Data: the reactor's thread only. But where reactor_new takes long (it does more than take
	 * some memory), a control worker calls it, and reactor_free of one that was never used. */
	bool reactor_new_is_slow;
	int (*reactor_new)(struct engine *e, const struct engine_reactor_opts *o,
	                   struct engine_reactor **ret, struct ros2_err *err);
	void (*reactor_free)(struct engine_reactor *r); /* with nothing in flight */
	/* Becomes readable when poll has something to do, and now and then when it has nothing:
	 * call poll then too, whatever in_flight says. -1 when poll must be called each turn while
	 * in_flight > 0. */
	int (*event_fd)(struct engine_reactor *r);
	/* 0 = owned by the engine until done; -EAGAIN = full (depth); -ENOMEM. Never calls done
	 * itself. */
	int (*submit)(struct engine_reactor *r, struct engine_io *io);
	/* Hands what was submitted to the kernel or device: at most one system call. */
	int (*kick)(struct engine_reactor *r);
	/* Calls done for up to @max finished ios; returns how many. */
	uint32_t (*poll)(struct engine_reactor *r, uint32_t max);
	uint32_t (*in_flight)(const struct engine_reactor *r);
	/* Would an io of this file wait in the engine now, because its storage does not answer?
	 * NULL: never. */
	bool (*away)(const struct engine_reactor *r, const struct engine_file *f);
	/* How many ios are in flight whose storage is away. They take no place of others:
	 * tenant_depth of each tenant fit, whatever depth is. NULL: none ever. */
	uint32_t (*parked)(const struct engine_reactor *r);
	/* Nobody wants the result of this io any more, and its right has ended: what was not handed
	 * to the storage yet is not handed on, and comes back with -ECANCELED by the next poll, or,
	 * where the engine waits in a queue of the kernel's or of threads, as what is late, by its
	 * turn; what was comes back when it does. Harmless for an io that is over. Never calls done
	 * itself. NULL when nothing ever waits in the engine. */
	void (*withdraw)(struct engine_reactor *r, struct engine_io *io);
	/* Gives back what a read lent (n_parts > 0); the io's file is still open. NULL when the
	 * engine never lends. */
	void (*unlend)(struct engine_io *io);
	/*
	 * Of engines that give their storage keys to the memory of ios; NULL, all four, for others.
	 * Keys over regions of @pd, NULL = any.
	 */
	/* Keys that no io needs now end, others with their last io; how many ended now. Their
	 * regions can be freed as soon as the device has said so. Hands on what end_keys began. */
	uint32_t (*forget_regions)(struct engine_reactor *r, const struct fabric_pd *pd);
	/* The right of an io has ended: keys that the storage was given for it end now, answer or
	 * not; how many. The io comes back as it does. Harmless for one that is over. */
	uint32_t (*end_keys)(struct engine_reactor *r, struct engine_io *io);
	/* Keys whose end began at @until_ns (CLOCK_BOOTTIME) or before and that the device has not
	 * yet confirmed to be dead. *ret_last_ns: when it was confirmed of the last one that
	 * end_keys or forget_regions ended; 0 = of none. */
	uint32_t (*keys_ending)(const struct engine_reactor *r, const struct fabric_pd *pd,
	                        uint64_t until_ns, uint64_t *ret_last_ns);
	/* The keys there are: standing ones each, or @folded one for all of a queue and direction;
	 * keys of commands always so. @fn runs in the call. */
	void (*keys)(const struct engine_reactor *r, const struct fabric_pd *pd, bool folded,
	             key_info_fn fn, void *arg);
	/* May an io's buf be memory that a tenant reads and writes meanwhile (engine_io's
	 * tenant_memory) that lies in no region? Then nothing is computed over it. The same for
	 * ever. NULL: no. */
	bool (*takes_any_memory)(const struct engine *e);
	/* Payload bytes copied by this process (not by the kernel) so far. */
	uint64_t (*copied_bytes)(const struct engine_reactor *r);
	/* What was lost is told to one flush of a file only, so that no two may be under way at
	 * once: the data plane gives one at a time. */
	bool flushes_in_turn;
	/* Descriptors of this process that an open file takes, and an open namespace: at most. */
	uint8_t file_descriptors, ns_descriptors;
};

extern const struct engine_ops engine_mem_ops;
extern const struct engine_ops engine_file_ops;
extern const struct engine_ops engine_nvmf_ops;
/* NULL for an unknown type. */
const struct engine_ops *engine_ops_find(const char *type);
#endif
