/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataplane/fabric without a device: both faces implemented in the memory of one process, so that
 * the agent's and the library's end of the verbs transport run against each other under the
 * sanitizers. It checks what a device checks: protection domain, key, queue pair, range, access,
 * receives; and more strictly: a SEND that finds no receive fails at once, payload is copied byte
 * by byte by code that ASan watches. Linked instead of ros2_fabric. What it is told to hold it
 * moves later, so that a test has transfers in flight.
 */
#ifndef ROS2_TESTS_VERBS_FABRIC_MEM_H
#define ROS2_TESTS_VERBS_FABRIC_MEM_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"

#define FABRIC_MEM_DEVICE "mem0"

struct fabric_mem_counts {
	/* transfers carried out, and refused by the peer's end */
	uint64_t reads, writes, sends, refused, no_receive;
	uint64_t binds, invalidates;                 /* carried out */
	uint64_t sets_made, regions_made, qps_freed; /* ever */
	/* as it was told to; ever. qps_refused: destructions that were tried again */
	uint64_t regions_refused, regions_kept, qps_refused;
	uint64_t flushed, doorbells; /* doorbells: flushes that handed something on to be sent */
	/* there are now; qps_kept: of qps, freed while it hung */
	uint32_t devices, pds, sets, qps, qps_kept, regions, windows, conns, listeners;
};
void fabric_mem_counts(struct fabric_mem_counts *ret);
/* No device in this machine. */
void fabric_mem_absent(bool absent);
/* Forks of this program would take pages from under the device. */
void fabric_mem_forks(bool unsafe);
/* The device takes dma-bufs: any file that can be mapped. It does not, unless told. */
void fabric_mem_dmabuf(bool has);
/* Of devices opened from now on; 0: it does not say. */
void fabric_mem_max_regions(uint32_t max);
/* Likewise: no window of theirs is longer; 0: no limit is known. */
void fabric_mem_max_window(uint64_t bytes);
/* The device of @qp is reset: it says so, its queue pairs fail, and nothing is made of it any more
 * by who had it open; who opens it again has it as new. */
void fabric_mem_reset(struct fabric_qp *qp);
/* It has no memory for a region. */
void fabric_mem_refuse_regions(bool refuse);
/* It gives up none of that many bytes; 0: all. */
void fabric_mem_keep_regions(uint64_t length);
/* Some of [mem, +len) is a region now. */
bool fabric_mem_knows(const void *mem, size_t len);
/* A key is good for all of its window's region, as on soft-RoCE. */
void fabric_mem_lax_windows(bool lax);
/* The next READ or WRITE that is carried out begins so much behind where it should. */
void fabric_mem_aim(uint64_t beyond);
/* READs and WRITEs wait, and flushes of them, until it is taken back. */
void fabric_mem_hold(bool hold);
uint32_t fabric_mem_held(void); /* that wait now */
/* LOCAL_INVs wait, and all that is behind them. */
void fabric_mem_hold_invalidates(bool hold);
/* A message may name any key to invalidate, and is told: a device that does not look whose it is.
 */
void fabric_mem_obey_all(bool obey);
/* Some window is bound under it, and its queue pair has not failed. */
bool fabric_mem_key_lives(uint32_t key);
/*
 * Of the calls that can fail, the @nth (from 1) that the calling thread, or any other, makes from
 * now on fails as fabric.h says it may; with @for_good all behind it, too. 0: none any more.
 */
enum fabric_mem_whose { FABRIC_MEM_MINE, FABRIC_MEM_OTHERS };
void fabric_mem_fail(enum fabric_mem_whose whose, uint32_t nth, bool for_good);
uint32_t fabric_mem_asked(void); /* such calls since then */
/* The device gives up on all queue pairs that there are. */
void fabric_mem_break_all(void);
/* The device gives up on a queue pair. */
void fabric_mem_break(struct fabric_qp *qp);
/* ... as the queue pair's oldest receive (or, FLUSHED, all of them) then ends; @words in an event,
 * if any (static), and of this queue pair or, @of_another, of one that the caller does not have. */
struct fabric_mem_failure {
	enum fabric_end end;
	uint32_t status, vendor_err;
	const char *words;
	bool of_another;
};
void fabric_mem_break_as(struct fabric_qp *qp, const struct fabric_mem_failure *how);
/* ... on the one at the other end of @qp, and says why in an event (static words; NULL: in none).
 */
void fabric_mem_break_peer(struct fabric_qp *qp, const char *words);
/* The device at the other end of @qp says that of it, or of itself, and nothing else happens
 * (static words). */
void fabric_mem_report(struct fabric_qp *qp, enum fabric_event_kind kind, const char *words);
/* The cookie of the set at the other end of @qp. */
uint64_t fabric_mem_peer_cookie(struct fabric_qp *qp);
/* The device at the other end of @qp says that the completion queue of the set @cookie has failed,
 * whether it is there or was. */
void fabric_mem_report_failed(struct fabric_qp *qp, uint64_t cookie);
/* What that device had to say has been taken. */
bool fabric_mem_is_heard(struct fabric_qp *qp);
/* The next work request of that kind towards @qp ends so at who posted it, as by an answer that @qp
 * did not send. */
void fabric_mem_forge(struct fabric_qp *qp, enum fabric_op op, enum fabric_end end);
/* It neither flushes nor gives up queue pairs; taken back, what it had in hand is written into
 * their receives, and with the next tick of their set they go. */
void fabric_mem_hang(bool hang);
/* Every private data that asks for a connection from here on goes through @fn first; NULL: none. */
void fabric_mem_tamper(void (*fn)(void *arg, uint8_t *data, uint32_t len, uint32_t *qpn),
                       void *arg);
#endif
