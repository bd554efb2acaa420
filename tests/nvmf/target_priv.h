/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the target: what its files share. Everything below is guarded by target.lock; the
 * functions are called with it held. A connection that has ended is marked and closed at once, and
 * freed by the target's thread after the events in its hands.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_PRIV_H
#define ROS2_TESTS_NVMF_TARGET_PRIV_H

#include "common/util.h"
#include "tests/nvmf/target.h"
#include <pthread.h>

#define RULES_MAX     64
#define LOG_MAX       65536
#define R2T_MAX       4          /* in flight, of one command */
#define TRANSFER_MAX  (4u << 20) /* bytes of one command */
#define RX_MAX        ((size_t)2 << 20)
#define ADMIN_CAPSULE 8192 /* in-capsule data of admin commands: NVMe/TCP 1.0, 3.6 */
#define NSID_MAX      1024
#define AERL          3 /* event requests a controller takes, less one */
#define SEEN_KEYS     256u

enum pdu_type {
	PDU_ICREQ = 0x00,
	PDU_ICRESP = 0x01,
	PDU_H2CTERM = 0x02,
	PDU_C2HTERM = 0x03,
	PDU_CMD = 0x04,
	PDU_RESP = 0x05,
	PDU_H2CDATA = 0x06,
	PDU_C2HDATA = 0x07,
	PDU_R2T = 0x09,
};
enum pdu_flags { F_HDGST = 1, F_DDGST = 2, F_LAST = 4, F_SUCCESS = 8 };

/* Status: type << 8 | code, and DNR; NVMe Base 2.0, figures 93 ff. */
enum status {
	ST_OK = 0,
	ST_OPCODE = 0x4001,
	ST_FIELD = 0x4002,
	ST_ABORTED = 0x0007,
	ST_NAMESPACE = 0x400b,
	ST_SEQUENCE = 0x400c,
	ST_SGL_LENGTH = 0x400f,
	ST_SGL_TYPE = 0x4011,
	ST_PROTECTED = 0x4020,
	ST_TRANSIENT = 0x0022,
	ST_RANGE = 0x4080,
	ST_AER_LIMIT = 0x4105,
	ST_LOG_PAGE = 0x4109,
	ST_CONNECT_FORMAT = 0x4180,
	ST_CONNECT_BUSY = 0x0181,
	ST_CONNECT_PARAM = 0x4182,
	ST_CONNECT_HOST = 0x4184,
};

struct ns {
	bool used, read_only;
	uint32_t nsid, block_size;
	uint64_t blocks;
	uint8_t *media; /* owned: mapped */
	uint8_t nguid[16];
};

struct subsys {
	struct target_subsys_opts o; /* nqn points to the next */
	char nqn[224];
	bool discovery, listed; /* listed: only these hosts */
	char hosts[TARGET_HOSTS][224];
	unsigned n_hosts;
	char host_secret[128], own_secret[128]; /* host_secret "": no authentication */
	uint8_t auth_hash, auth_group;
	struct ns ns[TARGET_NAMESPACES];
};

struct r2t {
	bool used;
	uint32_t off, len, done;
};

struct tcmd {
	bool used;
	bool waiting; /* for due_ns */
	bool event;   /* an asynchronous event request */
	bool held;    /* by a fault, until it is aborted */
	bool bad_digest, capsule;
	uint16_t cid;
	uint8_t sqe[64];
	uint8_t *data; /* owned; NULL with no data */
	uint32_t len;
	uint32_t asked, got; /* by R2T */
	uint64_t addr;       /* of the host's memory, with its key: over RDMA */
	uint32_t key;
	bool invalidate; /* the answer is to invalidate it */
	struct r2t r2ts[R2T_MAX];
	uint64_t due_ns;
};

struct conn;

/* A transport besides TCP. Its connections are in target.conns, too, with a @side of its own; what
 * it is asked to do with one that is dead it does not do. */
struct target_side {
	void (*turn)(struct target *t); /* its descriptor is readable */
	void (*answer)(struct conn *c, uint16_t cid, uint16_t status, uint64_t result);
	/* The data of a command that succeeded, and then its answer. */
	void (*give)(struct conn *c, const struct tcmd *cmd, uint64_t result);
	/* Takes the data of a command: target_cmd_taken when they are there. */
	void (*take)(struct conn *c, struct tcmd *cmd);
	void (*end)(struct conn *c);
};

enum conn_state { CONN_IC, CONN_CONNECT, CONN_LIVE, CONN_ENDING /* sends what is left */ };

struct conn {
	struct list link;
	struct target *t;
	int fd;
	enum conn_state state;
	bool dead, lied, reset;
	bool aside; /* not over TCP */
	void *side; /* owned, of its transport; NULL when it has ended */
	bool hdgst, ddgst, no_flow;
	uint8_t hpda;
	uint32_t maxr2t;   /* in flight for one command, from 1 */
	struct ctrl *ctrl; /* NULL before Connect */
	uint16_t qid, sqsize, sqhd;
	struct tcmd *cmds; /* owned: TARGET_DEPTH_MAX + 1 */
	unsigned in_flight, waiting;
	struct auth_target *auth; /* owned; from Connect on, where it is asked for */
	uint8_t *rx;              /* owned: RX_MAX */
	size_t rx_len;
	uint8_t *tx; /* owned */
	size_t tx_len, tx_at, tx_cap;
	uint64_t slow_ns, slow_next_ns;
	uint32_t events; /* what epoll looks for */
	void *carried;   /* the carrier's; NULL: TCP */
};

struct ctrl {
	struct list link;
	struct target *t;
	struct subsys *subsys;
	uint16_t cntlid;
	char host_nqn[224];
	uint8_t host_id[16];
	struct conn *admin;
	uint32_t cc, csts;
	uint64_t ready_at_ns, stopped_at_ns; /* 0 = not on the way */
	uint32_t kato_ms;
	uint64_t expires_ns; /* 0 = no timer */
	uint32_t queues;     /* granted */
	uint32_t aec;
	bool changed_masked, write_cache;
	unsigned n_changed;
	uint32_t changed[TARGET_NAMESPACES];
};

/* A write whose connection has ended. */
struct orphan {
	struct list link;
	struct subsys *subsys;
	uint16_t cntlid;
	uint64_t due_ns;
	uint8_t sqe[64];
	uint8_t *data; /* owned */
	uint32_t len;
};

/* A key that a host gave with an I/O command. */
struct seen_key {
	char host_nqn[224];
	uint8_t opcode;
	uint64_t addr;
	uint32_t key, len;
};

/* What carries queues in place of TCP. Called with the lock. A connection begins with
 * target_conn_new, in CONN_CONNECT. */
struct target_carrier {
	uint8_t trtype;                  /* of the discovery log: NVMe Base 2.0, 5.16.1.23 */
	int (*listen)(struct target *t); /* at o.address and t->port, which it sets where it is 0 */
	void (*unlisten)(struct target *t);
	void (*close)(struct target *t); /* its connections have gone */
	/* What target.carried_fd told, of the listener or of any connection. */
	void (*event)(struct target *t);
	void (*conn_event)(struct conn *c); /* of conn.fd */
	void (*end)(struct conn *c, bool reset);
	void (*free)(struct conn *c);
	/* @invalidate: a key of the host's, 0 = none. */
	void (*answer)(struct conn *c, const uint8_t *cqe, uint32_t len, uint32_t invalidate);
	/* @data to the command's memory, from @off on. */
	void (*write)(struct conn *c, const struct tcmd *cmd, uint32_t off, const void *data,
	              uint32_t len);
	/* The command's memory from @off on; target_cmd_data_in follows. */
	void (*read)(struct conn *c, const struct tcmd *cmd, uint16_t ttag, uint32_t off,
	             uint32_t len);
};

struct rule {
	struct target_rule r;
	uint64_t seen, hits;
};

struct target {
	pthread_mutex_t lock;
	pthread_t thread;
	int epoll_fd, wake_fd, listen_fd;
	bool ending, stopped, refusing, frozen, keep_orphans;
	struct target_opts o;
	uint16_t port;
	uint32_t delay_ms;
	uint64_t pace_ns, idle_at_ns; /* the medium is busy until then */
	struct list conns, ctrls, orphans;
	struct subsys *subsystems[TARGET_SUBSYSTEMS]; /* [0] is discovery */
	unsigned n_subsystems;
	uint16_t next_cntlid;
	uint64_t genctr;
	struct rule rules[RULES_MAX];
	unsigned n_rules;
	uint64_t fault_hits[FAULTS_N];
	struct target_stats stats;
	struct target_log_entry *log; /* owned: LOG_MAX */
	uint64_t logged;
	char violation[256];
	uint64_t now_ns;
	/* a transport besides TCP: set before its first connection */
	const struct target_side *side; /* NULL = none */
	void *side_arg;
	int side_fd;
	void *carried; /* the carrier's */
	int carried_fd;
	struct seen_key seen[SEEN_KEYS];
	unsigned n_seen;
};

static inline uint16_t le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t le32(const uint8_t *p)
{
	return le16(p) | (uint32_t)le16(p + 2) << 16;
}
static inline uint64_t le64(const uint8_t *p)
{
	return le32(p) | (uint64_t)le32(p + 4) << 32;
}
static inline void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}
static inline void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)v);
	put16(p + 2, (uint16_t)(v >> 16));
}
static inline void put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)v);
	put32(p + 4, (uint32_t)(v >> 32));
}

/* target.c */
void target_wake(struct target *t);
struct subsys *target_subsys_find(struct target *t, const char *nqn);
struct ns *target_ns_find(struct subsys *s, uint32_t nsid);
bool target_host_allowed(const struct subsys *s, const char *host_nqn);

/* target_faults.c. Whether this fault is due here; then @c has lied. @cmd: NULL = of no command;
 * @pdu: -1 = no PDU. */
bool target_lies(struct conn *c, const struct tcmd *cmd, int pdu, enum target_fault f,
                 uint64_t *ret_arg);

/* target_conn.c */
void target_accept(struct target *t);
/* A connection of another transport, which waits for Connect. NULL: no memory. */
struct conn *target_conn_aside(struct target *t, void *side);
/* @fd: TCP's; NULL: no memory. */
struct conn *target_conn_new(struct target *t, int fd);
void target_conn_event(struct conn *c, uint32_t revents);
void target_conn_end(struct conn *c, bool reset);
void target_conn_free(struct conn *c);
void target_conn_flush(struct conn *c);
/* An initiator has gone against the specifications. */
void target_violates(struct conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* target_pdu.c, target_data.c: into the output, which the turn sends */
struct pdu {
	uint8_t type, flags;
	uint8_t head[128]; /* from byte 8 on */
	uint8_t hlen;
	const void *data;
	uint32_t len;
};
void target_pdu_send(struct conn *c, const struct tcmd *cmd, const struct pdu *p);
void target_icresp_send(struct conn *c, uint8_t dgst);
void target_term_send(struct conn *c, uint16_t fes, uint32_t fei, const uint8_t *pdu, size_t len);
/* The command's answer; frees its place. */
void target_cqe_send(struct conn *c, struct tcmd *cmd, uint16_t status, uint64_t result);
void target_r2ts_send(struct conn *c, struct tcmd *cmd);
void target_r2t_one(struct conn *c, const struct tcmd *cmd, uint16_t cid, uint16_t ttag,
                    uint32_t off, uint32_t len);
/* The data of a command that succeeded, and its answer. */
void target_data_answer(struct conn *c, struct tcmd *cmd, uint64_t result);
void target_data_one(struct conn *c, const struct tcmd *cmd, uint16_t cid, uint32_t off,
                     const void *data, uint32_t len, uint8_t flags);
/* A command id that nothing in flight has, near @cid. */
uint16_t target_free_cid(const struct conn *c, uint16_t cid);

/* target_cmd.c */
/* @data: what the capsule holds besides the command. */
void target_cmd_in(struct conn *c, const uint8_t *sqe, const uint8_t *data, uint32_t len,
                   bool digest_ok);
/* The data of an R2T: true when it was what was asked for. */
bool target_cmd_data_in(struct conn *c, const uint8_t *head, const uint8_t *data, uint32_t len,
                        bool last, bool digest_ok);
/* Its data, of another transport, are there. */
void target_cmd_taken(struct conn *c, struct tcmd *cmd);
void target_cmd_free(struct conn *c, struct tcmd *cmd);
struct tcmd *target_cmd_find(struct conn *c, uint16_t cid);
/* Carries out what waited and is due. */
void target_cmds_due(struct conn *c);
void target_cmds_orphan(struct conn *c);
void target_orphans_due(struct target *t);

/* target_io.c: ST_OK, or why not */
uint16_t target_io_check(struct subsys *s, const uint8_t *sqe, const struct tcmd *cmd);
uint16_t target_io_run(struct target *t, struct subsys *s, const uint8_t *sqe, uint8_t *data,
                       uint32_t len);

/* target_keyed.c: private data of connections over RDMA, NVMe/RDMA 1.0, 3.2 */
#define RDMA_HELLO   32u
#define RDMA_REFUSAL 4u
enum rdma_status {
	RDMA_BAD_LENGTH = 1,
	RDMA_BAD_FORMAT = 2,
	RDMA_NO_RESOURCES = 6,
	RDMA_BAD_IRD = 7
};
/* What a request comes to: 0 = accept it; else @words are what is said. @nobody has lied. */
uint16_t target_rdma_judge(struct target *t, const uint8_t *asked, size_t len,
                           uint8_t words[RDMA_REFUSAL]);
/* It is to be left without an answer: a lie. */
bool target_rdma_silent(struct target *t);
/* The answer to a request that is accepted. */
void target_rdma_hello(struct conn *c, const uint8_t *asked, uint8_t hello[RDMA_HELLO]);
/* Which key an answer invalidates; 0 = none. */
uint32_t target_rdma_invalidates(struct conn *c, const struct tcmd *cmd);
/* Where, and under which key, the command's data is reached. */
void target_rdma_reach(struct conn *c, const struct tcmd *cmd, uint64_t *ret_addr,
                       uint32_t *ret_key);

/* target_fabrics.c */
void target_fabrics_run(struct conn *c, struct tcmd *cmd);
void target_ctrl_end(struct ctrl *k, bool reset);
void target_ctrl_tick(struct ctrl *k);
/* The next moment at which something of it happens. */
uint64_t target_ctrl_next(const struct ctrl *k);
struct ctrl *target_ctrl_find(struct target *t, uint16_t cntlid);
void target_keep_alive(struct ctrl *k);

/* target_auth.c */
bool target_auth_begin(struct conn *c); /* after Connect: whether it is asked for */
void target_auth_end(struct conn *c);
bool target_auth_holds(struct conn *c, struct tcmd *cmd); /* it was refused: not proved yet */
void target_auth_run(struct conn *c, struct tcmd *cmd);

/* target_admin.c, target_identify.c */
void target_admin_run(struct conn *c, struct tcmd *cmd);
uint16_t target_identify(struct conn *c, struct tcmd *cmd);
uint16_t target_log_page(struct conn *c, struct tcmd *cmd);
void target_ns_changed(struct target *t, struct subsys *s, uint32_t nsid);
/* Answers an event request that waits: whether one did. */
bool target_event_send(struct ctrl *k, uint32_t dword0);
#endif
