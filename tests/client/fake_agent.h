/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent for tests of libros2: control calls answered in the caller's thread, and the agent's
 * side of wire.h spoken by hand on a loopback socket, with a few files in memory. It can be told to
 * break the protocol in named ways, to lose connections and to forget leases. It shares no code
 * with the library except the layout in wire.h and the codec.
 */
#ifndef ROS2_TESTS_FAKE_AGENT_H
#define ROS2_TESTS_FAKE_AGENT_H

#include "dataplane/client/control.h"
#include "dataplane/wire.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_FILE_MAX   (4u << 20)
#define FAKE_FILES      4
#define FAKE_DIRS       4
#define FAKE_SESSIONS   64
#define FAKE_MOUNTS     8
#define FAKE_REGIONS    256
#define FAKE_GATE_BYTES 20000
#define FAKE_PAGES      100000

enum evil {
	EVIL_NONE,
	EVIL_DATA_OUTSIDE_REQUEST, /* offset + length beyond the request */
	EVIL_DATA_OUTSIDE_REGION,  /* an address beyond the buffer */
	EVIL_DATA_WRONG_KEY,
	EVIL_DATA_WRONG_GENERATION,
	EVIL_DATA_TWICE,
	EVIL_DATA_UNKNOWN_ID,
	EVIL_DATA_FOR_WRITE,
	EVIL_DATA_LENGTH_LIES,  /* payload_len != length */
	EVIL_DATA_HUGE,         /* payload_len of 4 GiB - 1 */
	EVIL_DATA_ADDRESS_WRAP, /* offset and address near 2^64 */
	EVIL_COMPLETE_TWICE,
	EVIL_COMPLETE_UNKNOWN,
	EVIL_COMPLETE_TOO_LONG,
	EVIL_COMPLETE_SHORT, /* fewer bytes, and OK */
	EVIL_COMPLETE_WITHOUT_DATA,
	EVIL_COMPLETE_BEFORE_PULL,
	EVIL_COMPLETE_PAYLOAD,
	EVIL_PULL_FOREIGN,  /* a range beside the buffer */
	EVIL_PULL_TOO_MUCH, /* the same bytes again and again */
	EVIL_PULL_FOR_READ,
	EVIL_BAD_CRC,
	EVIL_BAD_MAGIC,
	EVIL_RESERVED_BITS,
	EVIL_GARBAGE,
	EVIL_TENANT_OPCODE,
	EVIL_NAK_LONG_WORDS,
	EVIL_NAK_OK,
	/* over shared memory */
	EVIL_SHM_WRITTEN_AHEAD,  /* more messages than the ring has entries */
	EVIL_SHM_WRITTEN_BEHIND, /* fewer than there were */
	EVIL_SHM_TAKEN_AHEAD,    /* more than the program has put there */
	EVIL_SHM_COMPLETE_LONG,
	EVIL_SHM_WORDS_MISSING, /* a NAK without the entries of its words */
	EVIL_SHM_MEMORY_AGAIN,
	EVIL_SHM_FILE, /* an open file with a byte that wakes; then it answers */
	EVIL_LAST,
};

/* What is wrong with a directory. Of one that has no end the fake has had enough after FAKE_PAGES.
 */
enum dir_evil {
	DIR_GOOD,
	DIR_SAME_PAGE,   /* every page is followed by itself */
	DIR_EMPTY_PAGES, /* every page is followed by another, and none has a name */
	DIR_LINKS,       /* the same, and each has one of a link */
};

/* What is wrong with MEMORY. */
enum shm_offer {
	SHM_OFFER_GOOD,
	SHM_OFFER_NO_DESCRIPTOR,
	SHM_OFFER_TWO_DESCRIPTORS,
	SHM_OFFER_MANY_DESCRIPTORS,
	SHM_OFFER_OTHER_SIZE, /* says another than it has */
	SHM_OFFER_SMALL,
	SHM_OFFER_ODD,
	SHM_OFFER_HUGE,
	SHM_OFFER_UNSEALED,
	SHM_OFFER_HUGE_PAGES,
	SHM_OFFER_NO_MEMFD, /* a descriptor of something else */
	SHM_OFFER_OTHER_MESSAGE,
	SHM_OFFER_NAK,
	SHM_OFFER_CLOSE,
	SHM_OFFER_LAST,
};

struct fake_lease {
	uint32_t key, generation;
	uint64_t addr, len;
	uint32_t access;
	int session;
	bool live;
};
struct fake_session {
	uint8_t uid[16], secret[32];
	bool live, proved;
	int fd;
	uint64_t handle_base, shm_bytes;
	char mounts[FAKE_MOUNTS][16]; /* the names of mounts 1 to n_mounts */
	uint32_t n_mounts;
	uint32_t n_open[FAKE_FILES]; /* handles of each */
};
/* Calls that were carried out and changed something. */
struct fake_changes {
	unsigned made, cut, renamed, unlinked, dirs_made, dirs_removed;
};

struct fake_agent {
	pthread_mutex_t lock; /* guards all below */
	pthread_t thread;
	int listener;
	uint16_t port;
	/* over shared memory, after fake_agent_offer_shm */
	pthread_t shm_thread;
	int shm_listener;
	char shm_dir[64], shm_path[96];
	bool stopping;
	/* what it offers */
	uint32_t credits, max_io, max_inline, ttl_ms, chunk, block_size;
	uint32_t features; /* as WELCOME says them */
	uint64_t region_size_min, region_size_max, region_alignment;
	uint64_t shm_bytes; /* where the program names none */
	/* how it behaves */
	enum evil evil;
	enum shm_offer shm_offer;
	enum dir_evil dir_evil;
	uint64_t stat_size; /* that it says of every file; 0 = the file's */
	/* Over shared memory: what was held when the connection was lost lands when late_now is
	 * set; it is counted then. */
	bool late, late_now;
	unsigned n_late;
	bool hold_ring;    /* takes nothing out of the ring */
	bool byte_by_byte; /* sends every message one byte at a time */
	bool wrong_proof, forget_sessions;
	int greet_bytes;  /* the next greeting ends behind so many; -1 = whole */
	bool greet_reset; /* ... with a reset */
	bool rotate_keys; /* RenewRegion gives a new key */
	bool hold;        /* takes requests and answers none */
	bool hold_flush;
	bool drop_always;     /* closes the connection instead of every answer */
	int expire_next;      /* so many requests are refused LEASE_EXPIRED */
	int pull_then_expire; /* ... after a PULL was answered */
	int nak_next;         /* status of a NAK for the next request */
	int drop_after;       /* closes the connection instead of the n-th answer; 0 = never */
	bool drop_wipes;      /* ... and all files are zeros then: its machine lost its power */
	bool lose_answer;     /* of the next call on a path, which is carried out */
	int busy_next;        /* so many mounts and opens are refused BUSY */
	uint32_t verbs_per_s; /* 0: as many calls as come */
	uint64_t verbs_ns;
	enum ros2_status register_status, renew_status, close_status; /* refuse with */
	int stall;        /* an eventfd: what comes over stalled_fd waits for it. Borrowed. */
	int stalled_fd;   /* of a session; 0 = none */
	int drop_in_data; /* closes in the middle of the n-th DATA; 0 = never */
	int gate;         /* an eventfd: a payload waits for it behind its first and before its last
	                   * FAKE_GATE_BYTES; 0 = none. Borrowed from the test. */
	enum ros2_status open_status, session_status, hello_nak; /* refuse with */
	/* The next session ends so before its HELLO; BAD_SESSION: is forgotten. */
	enum ros2_status ends_before_hello;
	const char *refused_mount;     /* a namespace's name */
	enum ros2_status mount_status; /* of that */
	/* what happened */
	unsigned n_files_sent, n_files_refused; /* by the kernel, at EVIL_SHM_FILE */
	unsigned n_over_rate, n_sessions_opened, n_opens, n_registers, n_renewals, n_reads,
		n_writes, n_flushes, n_clears, n_pings, n_pages, n_registers_refused;
	unsigned n_bad_handles, n_bad_mounts; /* of other sessions, or none */
	unsigned n_dropped;                   /* messages for a session that had ended */
	unsigned n_live_at_open;              /* sessions, when the last one was opened */
	char acted_in[16];                    /* the namespace of the last call on a path */
	uint32_t last_open_flags;
	uint64_t last_shm_bytes;
	bool saw_violation;
	struct fake_changes did;
	struct fake_session sessions[FAKE_SESSIONS];
	int n_sessions;
	struct fake_lease leases[FAKE_REGIONS];
	uint32_t next_key;
	struct {
		char path[64];
		uint8_t *data;
		_Atomic uint64_t size; /* an old connection and its successor may both serve */
	} files[FAKE_FILES];
	char dirs[FAKE_DIRS][64]; /* no name: free */
	struct fake_thread {
		pthread_t thread;
		bool used, over; /* over: to be joined, its place is good for another */
	} conns[FAKE_SESSIONS];
};

struct fake_agent *fake_agent_new(void);
void fake_agent_free(struct fake_agent *a);
void fake_agent_serve(struct rpc_call *c, const ProtobufCMessage *req, void *user);
/* @n is a count of @a's. */
unsigned fake_agent_count(struct fake_agent *a, const unsigned *n);
/* From now on sessions over shared memory can be had. */
void fake_agent_offer_shm(struct fake_agent *a);
struct control *fake_control_new(struct fake_agent *a);
/* Resets every data connection, as a revocation does. */
void fake_agent_reset_all(struct fake_agent *a);
uint8_t *fake_agent_file(struct fake_agent *a, const char *path, uint64_t size);
#define WITH_AGENT(a, statement)                                                                   \
	do {                                                                                       \
		pthread_mutex_lock(&(a)->lock);                                                    \
		statement;                                                                         \
		pthread_mutex_unlock(&(a)->lock);                                                  \
	} while (0)
#endif
