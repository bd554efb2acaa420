/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data plane on a loop of its own thread, and a raw client: sockets and wire.h only, never our
 * library, because it has to do what a library would not. Calls of fx_* block until the
 * asynchronous call is done.
 */
#ifndef ROS2_TESTS_DATAPLANE_FIXTURE_H
#define ROS2_TESTS_DATAPLANE_FIXTURE_H

#include "tests/testing.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include "dataplane/engine.h"
#include "dataplane/wire.h"
#include <pthread.h>

#define FX_EVENTS 64
#define FX_BASE   0x7f0000000000ull

struct fx {
	struct loop *loop;
	struct dp *dp;
	struct ros2_uid tenant, grant;
	struct dp_tenant_limits limits;
	uint32_t max_keys; /* of grants made from here on */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t n_events;   /* guarded by lock, as events */
	uint64_t violations; /* guarded by lock: sum of counts told */
	uint64_t refused;    /* the same of refused HELLOs and connection requests */
	struct dp_event events[FX_EVENTS];
	void *base;        /* owned; NULL = not over shm */
	char shm_dir[256]; /* below it, made by the data plane */
};

/* Engine type of the fixture's "ram"; "mem" unless a test says otherwise. */
/* 0: the default; set before the data plane is made. Of control workers a tenant has half. */
extern uint32_t fx_unproved_per_address, fx_poll_us, fx_control_workers;
extern uint32_t fx_slot_bytes; /* dp_opts.slot_bytes_total; 0 = 16 MiB */
extern const char *fx_engine_type, *fx_engine_root, *fx_secrets_dir, *fx_state_dir;
/* What sessions are opened over, and the device of the data plane: from ROS2_TEST_TRANSPORT (tcp,
 * verbs, shm), ROS2_TEST_RDMA_DEVICE and ROS2_TEST_RDMA_HOST, when fx_from_env was called; else
 * tcp. */
extern enum dp_transport fx_transport;
extern const char *fx_rdma_device, *fx_rdma_host;
extern uint32_t fx_rdma_keep_ms;     /* dp_opts.rdma_keep_ms */
extern uint64_t fx_rdma_total_bytes; /* dp_opts.rdma_total_bytes; 0 = 4 GiB */
void fx_from_env(void);
/* The data plane offers the shm transport, with dp_opts.shm_tenant_bytes and shm_total_bytes (0: 4
 * GiB, whatever the machine has). */
extern bool fx_shm;
extern uint64_t fx_shm_tenant_bytes, fx_shm_total_bytes;
extern const char *fx_seal_program; /* dp_opts.seal_program */
/* ENGINE_IO_* that the engine does without. */
extern uint32_t fx_io_features;
/* Generous limits; tests narrow them with fx_limits. */
int fx_setup(void **state);
int fx_teardown(void **state);
/* The same over the file engine, in a directory of its own, the second with threads instead of
 * io_uring. */
int fx_file_setup(void **state);
int fx_threads_setup(void **state);
int fx_file_teardown(void **state);
#define FX_TEST(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
/* A test over files, with fx_file_setup or one that calls it; skipped where there is no openat2. */
#define FX_FILE_TEST(f, setup)                                                                     \
	{                                                                                          \
#f, testing_has_openat2() ? f : testing_no_openat2,                                \
			testing_has_openat2() ? setup : NULL,                                      \
			testing_has_openat2() ? fx_file_teardown : NULL, NULL                      \
	}
void fx_limits(struct fx *fx);
void fx_contact(struct fx *fx, uint64_t stamp_ns);
int fx_grant(struct fx *fx, const struct ros2_uid *grant, const struct ros2_uid *tenant,
             uint64_t deadline_ns);
void fx_tenant(struct fx *fx, const struct ros2_uid *tenant);
/* Waits up to 20 s, more than any limit of the data plane, for an event of the type and, unless
 * UNKNOWN (-1), the status. */
struct dp_event fx_event(struct fx *fx, enum dp_event_type type, int status);
uint32_t fx_count_events(struct fx *fx, enum dp_event_type type, int status);
/* So many were told so far. */
uint64_t fx_violations(struct fx *fx);
/* There is room for FX_EVENTS again. */
void fx_forget_events(struct fx *fx);
/* As fx_event, for the end of this session. */
struct dp_event fx_ended(struct fx *fx, const struct ros2_uid *session);

enum fx_kind {
	FX_OPEN_SESSION,
	FX_CLOSE_SESSION,
	FX_MOUNT,
	FX_OPEN,
	FX_CLOSE,
	FX_FSTAT,
	FX_TRUNCATE,
	FX_FLUSH,
	FX_PATH,
	FX_READDIR,
	FX_REGISTER,
	FX_RENEW,
	FX_DEREGISTER
};
struct fx_args {
	struct ros2_uid session, tenant, grant;
	uint64_t a, b;
	uint64_t shm_bytes;
	uint32_t mount, flags, key;
	const char *path, *to;
	enum dp_path_op path_op;
};
struct dp_result fx_do(struct fx *fx, enum fx_kind kind, const struct fx_args *a);

struct fx_revoked {
	struct dp_result first, last;
	uint64_t first_at_ns, last_at_ns;
	uint32_t calls;
};
/* Returns after the first callback; the second fills r->last. */
void fx_revoke(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid,
               struct fx_revoked *r);
/* The same without waiting. */
void fx_revoke_begin(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid,
                     struct fx_revoked *r);
void fx_wait_calls(struct fx *fx, struct fx_revoked *r, uint32_t calls);
uint32_t fx_leases(struct fx *fx, const struct ros2_uid *tenant, struct dp_lease_info *out,
                   uint32_t max);
struct dp_session_stats fx_stats(struct fx *fx, const struct ros2_uid *session);
/* So many READs are over and nothing else is in flight; or the session is gone. */
bool fx_has_read(struct fx *fx, const struct ros2_uid *session, uint64_t n);
uint32_t fx_lease_count(struct fx *fx);
/* Taken, of all reactors. */
uint32_t fx_slots(struct fx *fx);
/* Waits up to 5 s until no slot is taken. */
void fx_no_slots(struct fx *fx);

/* ---- raw client ---- */
struct raw {
	struct fx *fx;
	struct ros2_uid session;
	uint8_t secret[DP_SECRET_LEN];
	uint16_t port;
	int fd;
	uint64_t handle;
	uint32_t key, generation; /* of the last region registered */
	uint64_t next_id;
};

/* What HELLO says that the client knows; 0 = as the first release. */
extern uint32_t raw_features;
/* A session with the fixture's tenant and grant, not connected. */
void raw_open(struct fx *fx, struct raw *c);
void raw_open_as(struct fx *fx, struct raw *c, const struct ros2_uid *tenant,
                 const struct ros2_uid *grant, uint64_t cert_deadline_ns);
int raw_connect_port(uint16_t port);
void raw_connect(struct raw *c); /* CHALLENGE, HELLO, WELCOME: all checked */
/* The proof of the one who knows the session's secret, for the uid and nonce of @h. */
void raw_prove(const struct raw *c, const uint8_t agent_nonce[WIRE_NONCE_LEN],
               const struct wire_hello *h, uint8_t ret[WIRE_MAC_LEN]);
void raw_hello(struct raw *c, const uint8_t agent_nonce[WIRE_NONCE_LEN], struct wire_hello *ret);
/* open + connect + mount "ns" + open "file" read-write + register 4 MiB at FX_BASE. */
void raw_ready(struct fx *fx, struct raw *c);
void raw_file(struct raw *c, const char *path);
uint32_t raw_register(struct raw *c, uint64_t base, uint64_t length, uint32_t access);
void raw_close(struct raw *c);

struct wire_header raw_header(struct raw *c, enum wire_opcode op, uint64_t offset, uint64_t address,
                              uint32_t length);
void raw_seal(struct wire_header *h, uint32_t payload_len); /* raw_send does it */
void raw_send(struct raw *c, struct wire_header *h, const void *payload, uint32_t len);
void raw_send_bytes(struct raw *c, const void *p, size_t n);
/* Exactly @n bytes; false when the connection ends before. */
bool raw_recv_bytes(struct raw *c, void *p, size_t n);
/* Whatever comes, until the end: 0, or -1 and errno. */
ssize_t raw_recv_end(struct raw *c);
/* False at the end of the connection, whatever it was. Payload up to @max into @payload. */
bool raw_recv(struct raw *c, struct wire_header *h, void *payload, size_t max);
/* One request to its end. Data of a read goes to @buf; returns the status. */
enum ros2_status raw_read(struct raw *c, uint64_t offset, void *buf, uint32_t len,
                          uint32_t *ret_done);
enum ros2_status raw_write(struct raw *c, uint64_t offset, const void *buf, uint32_t len,
                           bool in_capsule);
enum ros2_status raw_flush(struct raw *c);
/* ZERO or DISCARD to its end: OK only when all of it is done. */
enum ros2_status raw_clear(struct raw *c, enum wire_opcode op, uint64_t offset, uint32_t len);
struct wire_header raw_clear_header(struct raw *c, enum wire_opcode op, uint64_t offset,
                                    uint32_t len);
/* raw_ready; asks for 1 MiB, more than its own socket takes unread, and says BYE behind it. All of
 * it is the agent's kernel's then, and BYE has been taken: both came in one piece. */
void raw_bye_unread(struct fx *fx, struct raw *c);
/* Sends a header, expects a NAK with this status. */
void raw_expect_nak(struct raw *c, struct wire_header *h, enum ros2_status want);
void raw_expect_end(struct raw *c);
#endif
