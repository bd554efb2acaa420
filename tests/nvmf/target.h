/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVMe target of our own for tests, over TCP or (target_verbs.h) RDMA: subsystems with
 * namespaces in memory, several controllers and connections, one thread. Honest, it keeps to the
 * specifications and notes what an initiator does against them (target_violations); each fault of
 * target_faults.h, switched on by a rule, makes it lie in exactly one way. It shares no code with
 * dataplane/nvmf, so that a mistake is not made on both sides.
 *
 * Every function may be called from any thread, and acts at once: the target's own thread holds the
 * same lock while it handles what has come.
 *
 * Sources: NVM Express Base 2.0, NVM Command Set 1.0, NVMe/TCP Transport 1.0.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_H
#define ROS2_TESTS_NVMF_TARGET_H

#include "tests/nvmf/target_faults.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
#define TARGET_NAMESPACES    64 /* most of one subsystem */
#define TARGET_SUBSYSTEMS    16
#define TARGET_HOSTS         32   /* most of an access list */
#define TARGET_DEPTH_MAX     1024 /* entries of a queue */

struct target;
struct target_carrier;

/* Zero or NULL gives what the comment says. */
struct target_opts {
	const char *address;                  /* 127.0.0.1 */
	uint16_t port;                        /* a free one; kept over stop and start */
	const struct target_carrier *carrier; /* TCP; else target_verbs.h */
	uint32_t queue_depth;                 /* most entries of a queue, CAP.MQES + 1: 128 */
	uint32_t maxh2cdata;                  /* most bytes of an H2CData PDU: 131072 */
	uint8_t cpda;       /* alignment that a host's PDUs must have, (n + 1) * 4 bytes: 0 */
	uint32_t r2t_bytes; /* most bytes of one R2T: all that is wanted */
	uint32_t c2h_bytes; /* most bytes of one C2HData PDU: 131072 */
	bool no_header_digest, no_data_digest; /* a host that asks does not get it */
	bool success_flag; /* reads end in the C2HData PDU where the host wants no flow control */
	uint32_t ready_ms; /* from CC.EN = 1 to CSTS.RDY = 1 */
	uint32_t slow_stop_ms; /* from CC.EN = 0 to CSTS.RDY = 0, at least */
};

struct target_subsys_opts {
	const char *nqn;
	uint8_t mdts;             /* 2^n * 4096 bytes: 0 = no limit */
	uint32_t in_capsule;      /* bytes of data of a capsule, a multiple of 16: 0 = none */
	bool write_cache;         /* VWC */
	uint32_t io_queues;       /* most that a host gets: 8 */
	uint32_t keep_alive_unit; /* KAS, in 100 ms: 1 */
	uint32_t cqt_ms;          /* told as the command quiesce time: none */
	bool no_clears;           /* neither write zeroes nor dataset management */
	uint8_t wzsl;             /* most of a write zeroes, 2^n * 4096 bytes: 0 = no limit */
	uint32_t dmrsl;           /* most blocks of a range to deallocate: 0 = no limit */
};

struct target_ns_opts {
	uint32_t nsid;
	uint32_t block_size; /* 512 or 4096 */
	uint64_t blocks;
	bool read_only; /* write protected */
};

/* Starts to listen and to answer. 0, -EADDRINUSE, -ENOMEM ... */
int target_new(const struct target_opts *o, struct target **ret);
/* Ends every connection; the media are gone. NULL is accepted. */
void target_free(struct target *t);
uint16_t target_port(const struct target *t);

/* As the end of its process: connections are reset, controllers forgotten, nothing listens, writes
 * that wait are lost unless orphans are kept (target_delay). The media stay. */
void target_stop(struct target *t);
/* Listens again, at the same port. */
int target_start(struct target *t);

/* -EEXIST, -ENOENT, -ENOSPC (too many), -EINVAL. The changes of namespaces are told by an event to
 * controllers that asked for it. */
int target_add_subsystem(struct target *t, const struct target_subsys_opts *o);
/* Once called for a subsystem, only the hosts that were allowed may connect. Taking one away ends
 * its controllers. */
int target_allow(struct target *t, const char *nqn, const char *host_nqn);
int target_disallow(struct target *t, const char *nqn, const char *host_nqn);
/* From now on hosts of this subsystem must authenticate themselves on each queue, with this hash
 * (1..3) and group (0..5): auth_target.h. @own_secret NULL: it does not prove itself. */
int target_authenticate(struct target *t, const char *nqn, const char *host_secret,
                        const char *own_secret, uint8_t hash, uint8_t group);
int target_add_ns(struct target *t, const char *nqn, const struct target_ns_opts *o);
int target_remove_ns(struct target *t, const char *nqn, uint32_t nsid);
int target_resize_ns(struct target *t, const char *nqn, uint32_t nsid, uint64_t blocks);

/* The media themselves, in bytes. -ENOENT, -ERANGE. */
int target_media_read(struct target *t, const char *nqn, uint32_t nsid, uint64_t offset, void *buf,
                      size_t len);
int target_media_write(struct target *t, const char *nqn, uint32_t nsid, uint64_t offset,
                       const void *buf, size_t len);

/* Resets every connection, or those of one queue identifier (@qid >= 0). Returns how many. */
unsigned target_drop(struct target *t, int qid);
/* Connections are refused (nothing listens), those that are there go on. */
int target_refuse(struct target *t, bool on);
/* Takes nothing from its connections and sends nothing, as a machine that hangs; no timer of it
 * ends. */
void target_freeze(struct target *t, bool on);
/*
 * Each I/O command takes effect and is answered only after this time. With @orphans a write whose
 * connection ends meanwhile still takes effect at its time; when its controller is disabled (CC.EN
 * = 0) CSTS.RDY goes to 0 only after the last of them. This is what makes the outcome of a write
 * unknown. Without, such a write is lost.
 */
void target_delay(struct target *t, uint32_t ms, bool orphans);
/* One medium for all: it is busy with each I/O command for this time, one after the other as they
 * come, of whichever host. 0 = none. */
void target_pace(struct target *t, uint32_t us);
/* All that waits for its time takes effect now, what has lost its connection, too. */
void target_release(struct target *t);
/* Carries out and answers each command that FAULT_ABORT_LATE holds: how many. */
unsigned target_let_go(struct target *t);
/* Sends this asynchronous event (dword 0 of its completion) to each controller that waits for
 * one. Returns to how many. */
unsigned target_event(struct target *t, uint32_t dword0);

struct target_stats {
	uint64_t connections;   /* that were accepted, so far */
	uint64_t admin, io;     /* commands that came whole */
	uint64_t reads, writes; /* I/O commands that took effect */
	uint64_t bytes_read, bytes_written;
	uint64_t orphans; /* writes that took effect after their connection had ended */
	uint64_t keep_alives, expired; /* controllers that ended for want of a keep alive */
	uint64_t violations;           /* of the specifications, by hosts */
	uint64_t keyed, to_invalidate; /* over RDMA: with a key, so far; to be invalidated by us */
	uint32_t open, controllers,
		waiting; /* now: connections, controllers, commands with delay */
};
void target_stats(struct target *t, struct target_stats *ret);

/* The last commands, oldest first; 65536 are kept. */
struct target_log_entry {
	uint64_t order; /* from 0, over all connections */
	char host_nqn[224];
	uint16_t cntlid, qid, cid;
	uint8_t opcode, fctype; /* fctype with opcode 0x7f */
	uint32_t nsid, nlb;     /* nlb: blocks; of admin commands cdw10 is in slba */
	uint64_t slba;
};
/* Entries from @from on, at most @max; returns how many. */
size_t target_log(struct target *t, uint64_t from, struct target_log_entry *ret, size_t max);
/* What the last host did against the specifications, in words; "" when none did. */
void target_violations(struct target *t, char *buf, size_t size);

/* Where and how often one fault is let loose. Zeroed, with a fault, it fits always. */
struct target_rule {
	enum target_fault fault;
	char host_nqn[224]; /* "" = any; else from Connect on */
	int qid;            /* of the queue + 1; 0 = any */
	int opcode;         /* of the command + 1; 0 = any */
	int pdu;            /* type of the PDU + 1, of faults of PDUs; 0 = any */
	uint32_t skip;      /* that many chances are let go first */
	uint32_t times;     /* 0 = for ever */
	uint64_t arg;       /* target_faults.h says what of */
};
/* 0 or -ENOSPC (64 rules). */
int target_fault_on(struct target *t, const struct target_rule *r);
void target_faults_off(struct target *t);
/* How often this fault was let loose. */
uint64_t target_fault_hits(struct target *t, enum target_fault f);

/*
 * The same as lines of text, for the program: "subsystem NQN [mdts=N] [in-capsule=N] ...",
 * "namespace NQN NSID BLOCKS BLOCK_SIZE", "allow NQN HOST", "resize NQN NSID BLOCKS", "fault NAME
 * [qid=N] [opcode=N] [skip=N] [times=N] [arg=N]", "stats" ... (target_text.c has the table; "help"
 * prints it). Answers one line or more into @out, always NUL-terminated; 0 or negative errno.
 */
int target_line(struct target *t, const char *line, char *out, size_t size);
#endif
