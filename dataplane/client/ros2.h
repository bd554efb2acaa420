/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * libros2: what a tenant's program uses to reach its storage through an agent. Begin with
 *
 *   struct ros2_err err = ROS2_ERR_INIT;         // every call takes it; NULL is fine
 *   struct ros2_client_opts opts;
 *   struct ros2_client *c;                       // one per agent and identity: gRPC over mTLS
 *   struct ros2_session *s;                      // one per thread: a data connection of its own
 *   struct ros2_mount *m;                        // a namespace of the tenant
 *   struct ros2_file *f;
 *   void *buf;                                   // memory the agent may reach, without a copy
 *
 *   ros2_client_opts_from_env(&opts, &err);      // ROS2_AGENT, ROS2_CERT, ROS2_KEY, ROS2_CA
 *   ros2_connect(&opts, &c, &err);
 *   ros2_session_open(c, NULL, &s, &err);
 *   ros2_mount(s, "data", &m, &err);
 *   ros2_open(m, "a/b", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &f, &err);
 *   ros2_buf_alloc(s, 1 << 20, &buf, &err);
 *   ros2_pwrite(f, buf, 1 << 20, 0, &err);       // or, many at once: prep, submit, wait (below)
 *   ros2_flush(f, &err);                         // what was written is durable now
 *   ros2_session_close(s);                       // with all below it: mounts, files, memory
 *   ros2_disconnect(c);
 *
 * Results: a `ret` pointer is set only on success. int: 0 (or the count that the function names) or
 * a negative errno; then err.status is the named error (common/status.h: ROS2_REVOKED ...,
 * ros2_status_to_str) and err.msg one line that may be shown to people.
 *
 * Threads: a client may be used by many threads; a session and everything below it by one thread
 * at a time (open several sessions). A background thread of the client renews leases; it never
 * touches user memory. No thread of the library's, nor of gRPC's that it began, takes signals.
 *
 * Processes: what a process opened is its own. In a child that was forked of it every call on that
 * fails with BAD_SESSION (-EBADFD), or does nothing where it has no result, at once and without a
 * trace in the parent's session; ros2_session_close closes the child's copy of the socket. A child
 * of a process that has ever connected cannot connect (UNSUPPORTED): make children first, or exec.
 * Memory that is shared with the agent (SHM) is not there in a child. See docs/libros2.md.
 *
 * The library reconnects, registers memory and opens files again by itself: a named error means
 * that a right was really withdrawn, that the agent stayed away too long, or that the outcome of a
 * write is unknown (OUTCOME_UNKNOWN: the library never replays it). See docs/libros2.md.
 */
/* clang-format on */
#ifndef ROS2_H
#define ROS2_H

#include "common/err.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ros2_client;
struct ros2_session;
struct ros2_mount;
struct ros2_file;
struct ros2_region;

struct ros2_client_opts {
	const char *agent; /* host:port of the agent's tenant service */
	/* This principal's certificate and key (PEM). Read again when they are replaced, for the
	 * next connection: there is one as soon as the agent refuses what this one was made with.
	 */
	const char *cert_path;
	const char *key_path;
	const char *ca_path;  /* whom to trust as agent */
	const char *agent_id; /* SPIFFE ID the agent must have; NULL: any /agent/ of the CA's trust
	                         domain */
	uint32_t timeout_ms;  /* per control call; 0 = 10000 */
};
/* Reads the files; the strings of @o need not outlive the call. The agent is first spoken to by
 * ros2_session_open. */
int ros2_connect(const struct ros2_client_opts *o, struct ros2_client **ret, struct ros2_err *err);
/* Opts from the environment: ROS2_AGENT, ROS2_CERT, ROS2_KEY, ROS2_CA. -EINVAL with words naming
 * what is missing. */
int ros2_client_opts_from_env(struct ros2_client_opts *ret, struct ros2_err *err);
/* NULL is fine. Sessions that are still open go on; the last one to be closed ends the client. */
void ros2_disconnect(struct ros2_client *c);

/* "0.1.0" */
const char *ros2_client_version(void);

/* How payload travels. AUTO: verbs where the agent and this machine have a device for it, else tcp.
 * SHM: through memory shared with an agent on this machine; see ros2_session_opts.shm_bytes. */
enum ros2_transport {
	ROS2_TRANSPORT_AUTO,
	ROS2_TRANSPORT_TCP,
	ROS2_TRANSPORT_VERBS,
	ROS2_TRANSPORT_SHM,
};

struct ros2_session_opts {
	uint32_t depth;                /* requests in flight; 0 = what the agent offers */
	uint32_t reconnect_ms;         /* how long a request may wait for a lost agent; 0 = 30000;
	                                  UINT32_MAX = do not reconnect */
	enum ros2_transport transport; /* VERBS: UNSUPPORTED if either side has no RDMA device; SHM:
	                                  if the agent does not offer it */
	/* ros2_wait looks again for so long before it sleeps: takes a core, and saves the time that
	 * waking one takes. At most 1 s; 0 = over tcp and shm 50 us while that pays, else not. */
	uint32_t poll_us;
	/* SHM: bytes shared with the agent, rounded up to 64 KiB; 0 = what the agent gives by
	 * itself. A part of it is the library's, for memory that is not shared: its payload is
	 * copied once, by this program. The rest is what ros2_buf_alloc gives, and nothing of that
	 * is copied; when it is used up ros2_buf_alloc gives memory that is not shared. So does
	 * a reconnect: what was allocated before it keeps its bytes and is copied from then on. */
	uint64_t shm_bytes;
};
int ros2_session_open(struct ros2_client *c, const struct ros2_session_opts *o,
                      struct ros2_session **ret, struct ros2_err *err);
/* NULL is fine. Ends what is below it: mounts, files, regions, ros2_buf_alloc memory. Requests that
 * are not complete end, and no completion is left to take: take them first. Does not flush. */
void ros2_session_close(struct ros2_session *s);

struct ros2_session_info {
	char tenant[64];
	uint8_t session_uid[16];
	uint32_t credits; /* requests that the agent takes at once */
	uint32_t max_io;  /* bytes of one ring request */
	/* The tenant's policy; 0 = not limited. region_bytes_max: of all regions together. */
	uint32_t regions_max, lease_ttl_ms;
	uint64_t region_size_min, region_size_max, region_alignment, region_bytes_max;
	uint32_t reconnects;           /* since ros2_session_open */
	enum ros2_transport transport; /* of the connection: TCP, VERBS or SHM */
	uint64_t copied_bytes;         /* SHM: payload that this library has copied so far */
};
void ros2_session_info(const struct ros2_session *s, struct ros2_session_info *ret);

int ros2_mount(struct ros2_session *s, const char *namespace_name, struct ros2_mount **ret,
               struct ros2_err *err);
/* NULL is fine. Closes its files; requests on them as ros2_region_deregister does, with CLOSED. */
void ros2_unmount(struct ros2_mount *m);

enum ros2_open_flags {
	ROS2_O_RDONLY = 1, /* not 0, as in <fcntl.h> */
	ROS2_O_WRONLY = 2,
	ROS2_O_RDWR = 3,
	ROS2_O_CREAT = 4,
	ROS2_O_EXCL = 8, /* with CREAT: EXISTS when it is there */
	ROS2_O_TRUNC = 16,
};
/* @path, here and below: '/'-separated below the namespace, at most 4096 bytes, no "." or "..".
 * @mode: permission bits of a new file. After a lost agent the file is opened again by its path
 * (this program's own renames are followed). */
int ros2_open(struct ros2_mount *m, const char *path, uint32_t flags, uint32_t mode,
              struct ros2_file **ret, struct ros2_err *err);
/* NULL is fine. BUSY while requests on it are prepared or in flight, and for nothing else.
 * Otherwise @f is gone, whatever is returned. An agent that is away, does not answer in time or is
 * too busy to be asked is no error: what it may still have open ends with the session at the
 * latest. Does not flush, and what was not flushed is nobody's afterwards: if the agent is lost no
 * later flush tells it. */
int ros2_close(struct ros2_file *f, struct ros2_err *err);

struct ros2_stat {
	uint64_t size, mtime_unix_ns, blocks_512;
	uint32_t mode;
	uint8_t type; /* 1 regular, 2 directory, 3 other */
	/* What offsets and lengths of reads, writes, zeroes and discards must be multiples of
	 * (INVALID otherwise); 1: any. 0: a directory, or an older agent, which does not say. */
	uint32_t block_size;
};
int ros2_stat(struct ros2_mount *m, const char *path, struct ros2_stat *ret, struct ros2_err *err);
int ros2_fstat(struct ros2_file *f, struct ros2_stat *ret, struct ros2_err *err);
int ros2_mkdir(struct ros2_mount *m, const char *path, uint32_t mode, struct ros2_err *err);
int ros2_unlink(struct ros2_mount *m, const char *path, struct ros2_err *err);
int ros2_rmdir(struct ros2_mount *m, const char *path, struct ros2_err *err);
int ros2_rename(struct ros2_mount *m, const char *from, const char *to, struct ros2_err *err);
int ros2_truncate(struct ros2_file *f, uint64_t size, struct ros2_err *err);
/* Data written before is durable when this returns 0. OUTCOME_UNKNOWN, once, when the agent was
 * lost after it had taken writes that were not flushed: they may be gone, and only the caller knows
 * them. Told are losses of what was written through @f: not through another ros2_file of the same
 * object, nor through one that was closed before this one was opened. */
int ros2_flush(struct ros2_file *f, struct ros2_err *err);

struct ros2_dirent {
	char name[256];
	uint8_t type;
};
/* @max entries at most, without "." and ".."; @path "" is the namespace itself. *cookie: 0 to
 * begin, 0 again at the end; a reply may be empty before the end. PROTOCOL: the agent gave the
 * cookie that it was asked with. Returns the number of entries or negative errno. */
int ros2_readdir(struct ros2_mount *m, const char *path, uint64_t *cookie, struct ros2_dirent *out,
                 uint32_t max, struct ros2_err *err);

/* ---- memory ---- */
/* Page-aligned zeroed memory, registered for reading and writing by the agent. LIMIT: more than the
 * policy allows (ros2_session_info). -ENOMEM. */
int ros2_buf_alloc(struct ros2_session *s, size_t size, void **ret, struct ros2_err *err);
/* @buf as ros2_buf_alloc gave it, NULL is fine. Waits as ros2_region_deregister. */
void ros2_buf_free(struct ros2_session *s, void *buf);
enum ros2_region_access { ROS2_REGION_READ = 1, ROS2_REGION_WRITE = 2 }; /* what the agent may do */
/* Memory of the caller's, any address and length the policy allows; it stays the caller's and must
 * stay mapped, with that access, until the region is deregistered. Regions may not overlap: EXISTS.
 */
int ros2_region_register(struct ros2_session *s, void *addr, size_t len, uint32_t access,
                         struct ros2_region **ret, struct ros2_err *err);
/* The same for memory of a device, a GPU's for example, over verbs: [@offset, +@len) of the dma-buf
 * @fd (of CUDA: cuMemGetHandleForAddressRange), which the library keeps a duplicate of until the
 * region is deregistered. @addr is what requests call its first byte: the device pointer, or any
 * range of addresses in which this program has no other region. The library and the agent never
 * look into it; the RDMA device moves the bytes, of small writes too. UNSUPPORTED: the session is
 * not over verbs, or its RDMA device has no ibv_reg_dmabuf_mr(3) (`ros2-agent probe` shows it as
 * `dmabuf`). After a reconnect over another transport requests on it end UNSUPPORTED. Source:
 * docs/libros2.md. */
int ros2_region_register_dmabuf(struct ros2_session *s, int fd, uint64_t offset, void *addr,
                                size_t len, uint32_t access, struct ros2_region **ret,
                                struct ros2_err *err);
/* NULL is fine. Afterwards nothing reads or writes the memory. Requests that use it and were not
 * submitted end with CANCELLED; those with the agent are waited for, at most 5 s: then the
 * connection is cut and they end with CANCELLED (writes: OUTCOME_UNKNOWN), the session reconnects.
 */
void ros2_region_deregister(struct ros2_region *r);

/* ---- plain I/O: any memory; memory that is not registered goes through a bounce buffer ---- */
/* Bytes done (short only at end of file, or before an error, for reads) or negative errno. Any
 * length, also 0; split into max_io pieces. They wait as long as the agent is there, however slow.
 * The bounce buffer is a region of the session (max_io, or the policy's largest) and counts against
 * its limits. */
ssize_t ros2_pread(struct ros2_file *f, void *buf, size_t len, uint64_t offset,
                   struct ros2_err *err);
ssize_t ros2_pwrite(struct ros2_file *f, const void *buf, size_t len, uint64_t offset,
                    struct ros2_err *err);

/*
 * Bytes of a file that nobody has to send. @f open for writing; any length, also 0; split into
 * max_io pieces; 0, or negative errno: then some of it may be done. Both need a flush to be
 * durable, cost as much of the tenant's write rates as writing @len bytes would, and make no file
 * longer: what lies behind its end stays as it is, and is no error. Without memory: no region, no
 * lease.
 * UNSUPPORTED: the storage cannot, or the agent is of a release without them; nothing was done.
 * INVALID: the storage has blocks, and offset or @len are not whole ones (nvmf). OUTCOME_UNKNOWN
 * as for a write. Source: docs/decisions/0024.
 */
/* Afterwards all of it reads as zeros. */
int ros2_zero(struct ros2_file *f, uint64_t len, uint64_t offset, struct ros2_err *err);
/* Nobody needs these bytes any more. Until they are written again each reads as it was before, as
 * 0, or (an NVMe target may say so) as 0xff, and not necessarily twice the same; never as bytes of
 * another tenant. Whoever needs zeros calls ros2_zero. */
int ros2_discard(struct ros2_file *f, uint64_t len, uint64_t offset, struct ros2_err *err);

/* ---- ring ---- */
/* clang-format off */
/*
 *   for (i = 0; i < n; i++)
 *           ros2_prep_read(f, buf + i * 4096, 4096, i * 4096, i, &err);
 *   ros2_submit(s, &err);
 *   for (done = 0; done < n; done += got)
 *           if ((got = ros2_wait(s, c, 1, 16, -1, &err)) < 0)
 *                   break;
 *
 * c[0] to c[got - 1] hold tag, result and status. Every request completes exactly once.
 */
/* clang-format on */

/* @buf must lie in ONE registered region or ros2_buf_alloc memory and 1 <= len <= max_io; it is the
 * library's until the completion. Any offset and length: no block size. -EAGAIN (without words)
 * when depth requests are prepared, in flight or complete and not yet taken; ACCESS when file or
 * region do not allow it; -EINVAL with words otherwise. @tag comes back with the completion.
 * Requests may complete in any order, and be carried out in any order while in flight together. */
int ros2_prep_read(struct ros2_file *f, void *buf, uint32_t len, uint64_t offset, uint64_t tag,
                   struct ros2_err *err);
int ros2_prep_write(struct ros2_file *f, const void *buf, uint32_t len, uint64_t offset,
                    uint64_t tag, struct ros2_err *err);
/* As ros2_zero and ros2_discard; 1 <= len <= max_io; the result is @len or an error, told by the
 * completion, UNSUPPORTED too. */
int ros2_prep_zero(struct ros2_file *f, uint32_t len, uint64_t offset, uint64_t tag,
                   struct ros2_err *err);
int ros2_prep_discard(struct ros2_file *f, uint32_t len, uint64_t offset, uint64_t tag,
                      struct ros2_err *err);
int ros2_prep_flush(struct ros2_file *f, uint64_t tag, struct ros2_err *err);
/* Hands all prepared requests to the agent in one go. Returns how many; negative errno when the
 * session had ended before. What goes wrong from here on is told by the completions. */
int ros2_submit(struct ros2_session *s, struct ros2_err *err);

struct ros2_completion {
	uint64_t tag;
	int64_t result;          /* bytes, or negative errno */
	enum ros2_status status; /* the named error */
};
/* Up to @max completions that are there; does not block, except for control calls while it
 * reconnects or registers memory anew (each at most timeout_ms of the client). Returns how many;
 * negative errno and words when there are none and the session has ended for good. ros2_wait
 * likewise. Nothing moves between these calls: a program that makes none for a while delays only
 * itself. */
int ros2_peek(struct ros2_session *s, struct ros2_completion *out, uint32_t max,
              struct ros2_err *err);
/* Blocks until @min are there or @timeout_ms (-1 = no limit) passed; returns at once with what
 * there is when nothing is submitted that is not complete. A signal does not end it. Returns how
 * many. */
int ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min, uint32_t max,
              int timeout_ms, struct ros2_err *err);

/* For tests of isolation and for diagnosis: what the agent knows this memory as. -ENOENT when not
 * registered. */
int ros2_debug_key(struct ros2_session *s, const void *addr, uint32_t *ret_key,
                   uint64_t *ret_handle_of, const struct ros2_file *f);

#ifdef __cplusplus
}
#endif
#endif
