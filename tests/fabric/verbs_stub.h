/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device in memory behind the symbols of libibverbs and librdmacm, linked in their place. By
 * itself it is a device as the specification wants it: two queue pairs of it can be connected and
 * move bytes, windows are bound to one queue pair and their bounds hold. On order its calls fail,
 * its completions wait, end otherwise, or never come. It watches its user: what would be an error
 * of ours on a real device is the violation, which a test compares with NULL. Any thread (one lock
 * for all). No types of the libraries here.
 */
#ifndef ROS2_TESTS_FABRIC_VERBS_STUB_H
#define ROS2_TESTS_FABRIC_VERBS_STUB_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define STUB_CALLS(X) \
	X(get_device_list) \
	X(open_device) \
	X(query_device) \
	X(query_port) \
	X(alloc_pd) \
	X(dealloc_pd) \
	X(reg_mr) \
	X(reg_dmabuf_mr) \
	X(dereg_mr) \
	X(alloc_mw) \
	X(dealloc_mw) \
	X(create_comp_channel) \
	X(create_cq) \
	X(destroy_cq) \
	X(create_qp) \
	X(modify_qp) \
	X(query_qp) \
	X(destroy_qp) \
	X(post_send) \
	X(post_recv) \
	X(poll_cq) \
	X(req_notify_cq) \
	X(create_event_channel) \
	X(create_id) \
	X(bind_addr) \
	X(listen) \
	X(resolve_addr) \
	X(resolve_route) \
	X(connect) \
	X(accept) \
	X(establish) \
	X(reject) \
	X(init_qp_attr)
/* clang-format on */

enum stub_call {
#define X(name) STUB_##name,
	STUB_CALLS(X)
#undef X
		STUB_N_CALLS
};
const char *stub_call_to_str(enum stub_call c);

enum stub_op {
	STUB_SEND = 1,
	STUB_READ = 2,
	STUB_WRITE = 4,
	STUB_BIND = 8,
	STUB_INV = 16,
	STUB_ALL = 31
};
/* Completion status as ibv_wc_status numbers. */
enum {
	STUB_OK = 0,
	STUB_PROT = 4,
	STUB_FLUSH = 5,
	STUB_BIND_ERR = 6,
	STUB_REM_ACCESS = 10,
	STUB_RETRY = 12,
	STUB_RNR = 13
};
#define STUB_VENDOR_ERR 0x5au /* of every completion, good ones too, as a device may leave it */

/* Everything as new: one device `stub0` (or `n` of them), no faults. What is alive is forgotten. */
void stub_reset(void);
void stub_devices(uint32_t n);
/* Live objects of all kinds. */
uint32_t stub_alive(void);
/* The first thing its user did that a real device would punish; NULL = none. */
const char *stub_violation(void);

/* The @nth call (from 1, counted from now) of its kind fails with @code, and all later ones if
 * @for_good. */
void stub_fail(enum stub_call c, uint32_t nth, int code, bool for_good);
/* The same over all kinds but those that only destroy, poll or arm. */
void stub_fail_any(uint32_t nth, bool for_good);
/* Calls meanwhile fail by no order and are not counted: those of a test's own peer. */
void stub_pause(bool on);
uint32_t stub_failures(void); /* ordered ones that happened */
uint64_t stub_count(enum stub_call c);
/* Names of dealloc_mw, destroy_qp, dereg_mr, destroy_cq, dealloc_pd in the order they were done;
 * runs of one name once. */
const char *stub_order(void);
void stub_order_clear(void);

/* Work requests of these kinds, and all behind them, wait until stub_release. */
void stub_hold(uint32_t ops);
void stub_release(void);
/* What waits ends well, and moves nothing. */
void stub_end_held(void);
/* The next work request of this kind ends with @status; the queue pair fails unless it is STUB_OK.
 */
void stub_end_next(enum stub_op op, int status);
/* Completions vanish: the device has lost them. */
void stub_lose(bool on);

/* What device and peers do by themselves. */
void stub_event_port(bool up);
void stub_event_device(void);
void stub_event_qp(uint32_t qpn);
void stub_event_cq_of(uint32_t qpn);
void stub_event_other(void);
void stub_port(bool active);
/* Some window is bound under it, and its queue pair answers; how many there are of these. */
bool stub_key_lives(uint32_t key);
uint32_t stub_keys_live(void);
/* The peer of @qpn sends a message that invalidates @key. */
void stub_foreign_invalidate(uint32_t qpn, uint32_t key);
void stub_spurious_completion(uint32_t qpn, uint64_t wr_id);
/* What query_qp will say of access flags; -1 = the truth. */
void stub_show_access(int flags);
void stub_access_sticks(bool on); /* modify_qp of the flags alone is accepted, and forgotten */
void stub_windows(bool claimed);
/* What ibv_is_fork_initialized says, in its numbers; ibv_fork_init fails with @code, or it is
 * ENABLED then. */
enum stub_forks { STUB_FORKS_DISABLED, STUB_FORKS_ENABLED, STUB_FORKS_UNNEEDED };
void stub_forks(enum stub_forks status, int code);
enum stub_forks stub_forks_now(void);
void stub_software(bool on); /* it says that it is soft-RoCE */
/* It says that it is of Mellanox, and its library posts no window of more than 2 GiB. */
void stub_mellanox(bool on);
/* The kernel takes no MW_BIND for a dma-buf, as Linux does not. */
void stub_dmabuf_as_linux(bool on);
/* How many interrupts there are for completion queues, and of which (bits) there was one. */
#define STUB_VECTORS 4
uint32_t stub_cq_vectors(void);
void stub_inline_limit(uint32_t bytes);
int stub_qp_access(uint32_t qpn);
int stub_qp_ack_timeout(uint32_t qpn);
int stub_qp_retries(uint32_t qpn); /* of what was not acknowledged */
bool stub_qp_in_error(uint32_t qpn);
/* Connections: all of them end as if the peer, or the device, had gone. */
void stub_cm_disconnect_all(void);
void stub_cm_remove_device(void);
void stub_cm_silent(bool on); /* requests are not answered, nor heard of */
/* What requests and answers say of how long to wait for an ACK of their sender. */
void stub_cm_ack_timeout(uint8_t said);
#endif
