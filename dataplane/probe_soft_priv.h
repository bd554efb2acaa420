/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of probe_soft*.c: a data plane with one reactor (so that both tenants share one table of
 * leases), an engine in memory, and peers with a socket and wire.h alone, over shm with a mapping
 * beside it. Calls block until the data plane has answered; nothing is checked on the peers' side.
 */
#ifndef ROS2_DATAPLANE_PROBE_SOFT_PRIV_H
#define ROS2_DATAPLANE_PROBE_SOFT_PRIV_H

#include "common/probe.h"
#include "dataplane/dp.h"
#include "dataplane/wire.h"
#include <sys/types.h>

#define PS_REGION_BYTES   65536u
#define PS_FILE_BYTES     (1u << 20)
#define PS_WAIT_MS        5000
#define PS_FLIGHT_READS   16u
#define PS_FLIGHT_BYTES   ((uint64_t)PS_FLIGHT_READS * PS_FILE_BYTES)
#define PS_CONTROL_MS     250
#define PS_CONTROL_SLOWER 8
#define PS_DIR_MAX        93 /* a socket in it has a path of at most 107 bytes */

struct ps_way;

struct ps {
	const struct ps_way *way;
	struct loop *loop;
	struct dp *dp;
	char dir[PS_DIR_MAX]; /* of the sockets; "" = none was made */
	struct ros2_err err;
};

struct ps_tenant {
	struct ros2_uid tenant, grant;
};

/* What a peer over shm has of its session: probe_soft_shm.c. */
struct ps_memory {
	int fd; /* kept open, to try what a tenant may try */
	ino_t ino;
	uint8_t *map;
	uint64_t bytes;
	bool was_zero; /* its data, when it came */
	uint32_t written, taken;
	/* when ps_way.mark was called */
	uint32_t marked_written, marked_taken;
};

/* One session of a tenant with its connection, a file of PS_FILE_BYTES and no region. */
struct ps_peer {
	struct ps *p;
	const struct ps_tenant *of;
	struct ros2_uid session;
	uint8_t secret[DP_SECRET_LEN];
	uint16_t port;
	const char *path; /* borrowed: of the data plane */
	uint32_t credits;
	uint64_t handle, next_id;
	int fd; /* -1 = not connected */
	uint32_t flooded;
	uint64_t marked_bytes; /* over tcp: in the peer's socket when ps_way.mark was called */
	struct ps_memory m;
};

struct ps_case {
	struct ps *p;
	struct ps_tenant ta, tb;
	struct ps_peer a, b;
	uint32_t key; /* of A's region: at ps_way.base, PS_REGION_BYTES, both ways */
	struct probe_subject *s;
};

/* How peers of one transport speak. What is NULL there is nothing to do for, or to show. */
struct ps_way {
	const char *name; /* of the subject, and of its transport */
	enum dp_transport transport;
	uint64_t base;             /* of every region */
	uint64_t memory_bytes;     /* asked for with a session */
	uint64_t read_bytes_per_s; /* of a tenant whose reads are cut off; 0 = as fast as it goes */
	int quiet_ms;              /* how long is waited for what comes after a receipt */
	bool lands; /* what an engine holds at the receipt reaches the tenant all the same */
	/* words */
	const char *in_flight, *receives_full, *no_dmabuf;

	/* A socket that is connected, for CHALLENGE. -errno. */
	int (*dial)(const struct ps_peer *c);
	/* After WELCOME, on c->fd. -errno. */
	int (*join)(struct ps_peer *c);
	void (*leave)(struct ps_peer *c);
	/* One request; its answer, with what there is of payload thrown away. -errno. */
	int (*ask)(struct ps_peer *c, struct wire_header *h);
	int (*answer)(struct ps_peer *c, struct wire_header *h);
	/* A READ to its end: what it was answered with, and how many bytes came of it. */
	enum ros2_status (*read)(struct ps_peer *c, uint32_t key, uint64_t address, uint32_t length,
	                         uint32_t *ret_bytes);
	/* Waits for the first of what was asked for. -ETIMEDOUT. */
	int (*await)(struct ps_peer *c);
	/* What comes from here on counts; on any thread. */
	void (*mark)(struct ps_peer *c);
	/* Asks for more where nobody takes it any more. */
	void (*knock)(struct ps_peer *c, uint32_t key);
	/* Bytes since the mark, until the end of the connection or for @quiet_ms. */
	uint64_t (*came)(struct ps_peer *c, int quiet_ms);
	/* Bytes that had come until the mark, and were asked for. */
	uint64_t (*had_come)(const struct ps_peer *c);
	/* As many requests as there is room for, now and again; @takes: their answers are taken.
	 * How many it were. */
	uint32_t (*flood)(struct ps_peer *c, enum wire_opcode op, uint32_t key, bool takes);
	/* More that belongs to a property, when it holds so far or (the first) in any case. */
	void (*more_pd_isolation)(struct ps_case *c, struct probe_finding *f);
	void (*more_mr_range)(struct ps_case *c, struct probe_finding *f);
	void (*more_zero_length)(struct ps_case *c, struct probe_finding *f);
	/* NULL, or what the memory of a new session tells of another. */
	const char *(*tells)(const struct ps_peer *c);
};
extern const struct ps_way ps_way_tcp, ps_way_shm;

/* probe_soft_rig.c */
int ps_open(struct ps *p, const struct ps_way *way, struct ros2_err *err);
void ps_close(struct ps *p);
/* @read_bytes_per_s: 0 = not limited. */
int ps_tenant_add(struct ps *p, const char *name, uint64_t read_bytes_per_s, struct ps_tenant *ret);

int ps_peer_open(struct ps *p, const struct ps_tenant *of, struct ps_peer *ret);
void ps_peer_close(struct ps_peer *c);
/* The connection is over; the session is not told. */
void ps_peer_hang_up(struct ps_peer *c);
/* Another connection of the session, with its secret. The agent's answer to HELLO. */
enum ros2_status ps_hello(struct ps_peer *c, int *ret_fd);
/* Connected, CHALLENGE received, no HELLO. -errno. */
int ps_dial(const struct ps_peer *c);

/* @access: 1 the agent may read it, 2 write into it. */
enum ros2_status ps_register(struct ps_peer *c, uint64_t base, uint64_t length, uint32_t access,
                             uint32_t *ret_key);
enum ros2_status ps_deregister(struct ps_peer *c, uint32_t key);
/* Marks the peer at the receipt, and returns when nothing drains any more. */
int ps_revoke(struct ps_peer *c, uint64_t *ret_took_ns);

/* probe_soft_wire.c */
struct wire_header ps_header(struct ps_peer *c, enum wire_opcode op, uint32_t key, uint64_t address,
                             uint32_t length);
int ps_all(int fd, const void *p, size_t n);
int ps_exactly(int fd, void *p, size_t n);
int ps_send(int fd, struct wire_header *h, const void *payload, uint32_t length);
/* One message; what is longer than @max is an error. -errno, -ECONNRESET at the end. */
int ps_recv(int fd, struct wire_header *h, void *payload, uint32_t max);

void ps_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* probe_soft_flows.c */
void ps_case_revoke_complete(struct ps_case *c, struct probe_finding *f);
void ps_case_cq_separation(struct ps_case *c, struct probe_finding *f);
void ps_case_rq_separation(struct ps_case *c, struct probe_finding *f);
#endif
