/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of probe_tcp*.c: a data plane with one reactor (so that both tenants share one table of
 * leases), an engine in memory, and peers with a socket and wire.h alone. Calls block until the
 * data plane has answered; nothing is checked on the peers' side.
 */
#ifndef ROS2_DATAPLANE_PROBE_TCP_PRIV_H
#define ROS2_DATAPLANE_PROBE_TCP_PRIV_H

#include "common/probe.h"
#include "dataplane/dp.h"
#include "dataplane/wire.h"

#define PT_BASE       0x7f0000000000ull /* tenants' addresses: nothing here looks there */
#define PT_FILE_BYTES (1u << 20)
#define PT_WAIT_MS    5000

struct pt {
	struct loop *loop;
	struct dp *dp;
	struct ros2_err err;
};

struct pt_tenant {
	struct ros2_uid tenant, grant;
};

/* One session of a tenant with its connection, a file of PT_FILE_BYTES and no region. */
struct pt_peer {
	struct pt *p;
	const struct pt_tenant *of;
	struct ros2_uid session;
	uint8_t secret[DP_SECRET_LEN];
	uint16_t port;
	uint32_t credits;
	uint64_t handle, next_id;
	int fd; /* -1 = not connected */
};

int pt_open(struct pt *p, struct ros2_err *err);
void pt_close(struct pt *p);
int pt_tenant_add(struct pt *p, const char *name, struct pt_tenant *ret);

int pt_peer_open(struct pt *p, const struct pt_tenant *of, struct pt_peer *ret);
void pt_peer_close(struct pt_peer *c);
/* Another connection of the session, with its secret. The agent's answer to HELLO. */
enum ros2_status pt_hello(struct pt_peer *c, int *ret_fd);
/* Connected, CHALLENGE received, no HELLO. -errno. */
int pt_dial(const struct pt_peer *c);

/* @access: 1 the agent may read it, 2 write into it. */
enum ros2_status pt_register(struct pt_peer *c, uint64_t base, uint64_t length, uint32_t access,
                             uint32_t *ret_key);
enum ros2_status pt_deregister(struct pt_peer *c, uint32_t key);
struct pt_receipt {
	uint64_t took_ns;
	int queued_bytes; /* in the peer's socket when the answer came */
};
int pt_revoke(struct pt_peer *c, struct pt_receipt *ret);

struct wire_header pt_header(struct pt_peer *c, enum wire_opcode op, uint32_t key, uint64_t address,
                             uint32_t length);
int pt_send(int fd, struct wire_header *h, const void *payload, uint32_t length);
/* One message; what is longer than @max is an error. -errno, -ECONNRESET at the end. */
int pt_recv(int fd, struct wire_header *h, void *payload, uint32_t max);
/* A READ to its end: what it was answered with, and how many bytes came for @address. */
enum ros2_status pt_read(struct pt_peer *c, uint32_t key, uint64_t address, uint32_t length,
                         uint32_t *ret_bytes);
/* Bytes until the end of the connection or nothing comes for @quiet_ms. */
uint64_t pt_drain(struct pt_peer *c, int quiet_ms);

void pt_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct pt_case {
	struct pt *p;
	struct pt_tenant ta, tb;
	struct pt_peer a, b;
	uint32_t key; /* of A's region: PT_BASE, 64 KiB, both ways */
	struct probe_subject *s;
};
#define PT_REGION_BYTES 65536u

void pt_case_revoke_complete(struct pt_case *c, struct probe_finding *f);
void pt_case_cq_separation(struct pt_case *c, struct probe_finding *f);
void pt_case_rq_separation(struct pt_case *c, struct probe_finding *f);
#endif
