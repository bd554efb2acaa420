/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP: what its files share. tcp_queue.c has its life and its commands,
 * tcp_queue_send.c PDUs to the target, tcp_queue_recv.c PDUs from it, tcp_queue_place.c where their
 * bytes go.
 *
 *   command:  FREE --submit--> FRESH --kick--> QUEUED --whole capsule handed on--> SENT --> FREE
 *
 * A command is in one list at most: `fresh` (submitted, not kicked), or `out` (it has a PDU to
 * send: its capsule while QUEUED, H2CData while SENT). Bounds: `depth` commands, one PDU being sent
 * and one R2T for each; input TCP_QUEUE_INPUT bytes.
 */
#ifndef ROS2_DATAPLANE_NVMF_TCP_QUEUE_PRIV_H
#define ROS2_DATAPLANE_NVMF_TCP_QUEUE_PRIV_H

#include "dataplane/nvmf/pdu.h"
#include "dataplane/nvmf/queue.h"
#include <sys/uio.h>

#define TCP_QUEUE_INPUT (128u * 1024)
/* Payloads that one system call puts in place, and the parts that takes: a header before each, and
 * what comes behind the last. */
#define TCP_QUEUE_AHEAD 31u
#define TCP_QUEUE_IOV   (2 * TCP_QUEUE_AHEAD + 1)

enum tcp_cmd_state { TCP_CMD_FREE, TCP_CMD_FRESH, TCP_CMD_QUEUED, TCP_CMD_SENT };

struct tcp_cmd {
	struct list link; /* fresh or out; empty: in neither */
	struct nvmf_req *req;
	/* Index in the low bits, above it a generation: another one each time it is used. */
	uint16_t cid;
	uint8_t state;
	bool handed_on;  /* a byte of its capsule, or more, is with the kernel */
	bool in_capsule; /* its data is */
	/* from the target */
	struct list order; /* the queue's */
	bool unordered;    /* sent, and not in it although its answer is due */
	uint8_t n_places;  /* in the queue's places */
	bool last;         /* LAST_PDU has come */
	uint32_t got;
	/* to the target, without in_capsule */
	uint32_t asked; /* by R2Ts so far */
	uint32_t todo;  /* of that: not in a PDU yet */
	uint16_t tag;   /* of the R2T */
	/* The PDU that it sends: head, data of req->buf, digest. */
	bool digest_made;
	uint32_t head_len, data_at, data_len, digest_len;
	uint8_t digest[NVME_TCP_DIGEST_LEN];
	uint8_t head[PDU_SEND_MAX];
};

/* Bytes of the stream that lie in a buffer: they come after in[pos - 1] and before in[pos]. */
struct tcp_place {
	struct tcp_cmd *cmd;
	uint32_t at, len; /* of its buffer */
	uint32_t pos;
};

struct tcp_queue { /* what struct nvmf_queue is here */
	enum nvmf_queue_state state;
	int fd; /* -1 = none */
	int epoll_fd;
	uint64_t epoll_word;
	uint32_t interest; /* epoll events */
	bool polling;      /* in poll: a done that polls finds nothing */
	/* from the options */
	uint16_t qid;
	uint32_t depth, in_capsule_max, transfer_max;
	bool header_digest, data_digest;
	uint64_t connect_deadline_ns;
	/* commands */
	struct tcp_cmd *cmds; /* owned: depth of them */
	uint16_t *free;       /* owned: a stack of indices */
	uint32_t n_free;
	uint32_t index_mask;
	bool no_sq_flow;   /* Connect asked for it: SQHD then means nothing */
	struct list timed; /* nvmf_req.link, by deadline; those without a time limit are not in */
	struct list fresh; /* tcp_cmd */
	uint32_t n_unstamped; /* at the end of fresh: without a deadline so far */
	uint32_t n_done;
	/* sending */
	struct list out;  /* tcp_cmd */
	size_t sent;      /* bytes of the first of out's PDU that the kernel has */
	bool blocked;     /* the socket has no room */
	uint64_t last_ns; /* of the capsules in out: before the first until_ns; UINT64_MAX = none */
	struct pdu_params to_target;
	uint32_t h2c_max;
	uint32_t ic_sent, ic_len;
	uint8_t ic[PDU_SEND_MAX];
	/* receiving */
	struct pdu_params from_target;
	uint32_t in_at, in_end;
	uint32_t head_want; /* bytes of the header in hand; 0 = not known yet */
	uint32_t n_pdus;
	bool first;               /* nothing has come: ICResp is due */
	struct tcp_cmd *rx;       /* its payload, or the digest of it, comes next */
	uint32_t rx_begin, rx_at; /* in its buffer: where this PDU's payload began, and is */
	uint32_t rx_left;
	uint8_t rx_digest_len;
	bool rx_success;
	/* where the next payloads are awaited: tcp_queue_place.c */
	/* tcp_cmd in the order in which they were sent: all but those that are given by R2T, and
	 * those that may never be answered */
	struct list order;
	uint32_t n_unordered;   /* sent, by R2T */
	uint32_t in_order;      /* how many payloads came in that order, up to now */
	bool answers_follow;    /* the last read ended with a response capsule of its own */
	uint32_t data_head_len; /* of the last C2HData: bytes before its payload */
	uint32_t data_max;      /* payload of the last C2HData that was not its command's last */
	uint32_t place_at, n_places; /* of places: those that are not taken yet */
	struct tcp_place places[TCP_QUEUE_AHEAD];
	struct nvmf_queue_counters counters;
	char fault[320];
	uint8_t in[TCP_QUEUE_INPUT];
};

static inline struct tcp_queue *tcp_queue_of(const struct nvmf_queue *q)
{
	return (struct tcp_queue *)q;
}
static inline bool tcp_queue_reads(const struct tcp_cmd *c)
{
	return c->req->dir == NVMF_FROM_TARGET;
}

/*
 * Ends the connection and gives everything back. With @term and the header @bad it is at (NULL:
 * nothing to show) the target is told why, if the socket takes that at once: this is said for its
 * log, nothing depends on it. Words: printf. Nothing happens to a queue that failed before.
 */
void tcp_queue_fail(struct tcp_queue *q, const struct pdu_fault *term, const uint8_t *bad,
                    size_t bad_len, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Forgets a command that is not in the target's hands, then runs done. */
void tcp_queue_give_back(struct tcp_queue *q, struct tcp_cmd *c);
/* The answer is here. Forgets the command, then runs done. */
void tcp_queue_answered(struct tcp_queue *q, struct tcp_cmd *c, const struct nvme_cqe *cqe);
/* The system calls for more room or for input; a queue that cannot be watched fails. */
void tcp_queue_watch(struct tcp_queue *q, uint32_t events);

/* tcp_queue_send.c */
/* ICReq, or the rest of it. False: not all is sent, perhaps because the connection is not there. */
bool tcp_queue_send_ic(struct tcp_queue *q);
void tcp_queue_make_capsule(struct tcp_queue *q, struct tcp_cmd *c);
/* @c was asked for todo bytes, up to asked: its next H2CData PDU joins out. */
void tcp_queue_make_h2c(struct tcp_queue *q, struct tcp_cmd *c);
/* As much of out as the socket takes. May fail the queue. */
void tcp_queue_flush(struct tcp_queue *q);
void tcp_queue_send_term(struct tcp_queue *q, const struct pdu_fault *f, const uint8_t *bad,
                         size_t bad_len);

/* tcp_queue_place.c */
/* Where the next bytes go; returns the parts. */
int tcp_queue_place(struct tcp_queue *q, struct iovec iov[TCP_QUEUE_IOV]);
/* @n bytes went there. */
void tcp_queue_placed(struct tcp_queue *q, const struct iovec *iov, int parts, size_t n);
/* The bytes in all places go where they belong in the stream: into the input buffer. */
void tcp_queue_misplaced(struct tcp_queue *q);
/* The whole capsule of @c is sent. */
void tcp_queue_expect(struct tcp_queue *q, struct tcp_cmd *c);
/* A C2HData PDU with @n bytes for @c, and the end of @c: what to expect of the next. */
void tcp_queue_learn_data(struct tcp_queue *q, const struct tcp_cmd *c, uint32_t n, bool last,
                          uint32_t head_len);
void tcp_queue_learn_end(struct tcp_queue *q, const struct tcp_cmd *c, bool answer);

/* tcp_queue_recv.c */
/* Takes what one system call gives; done may run. False: there is no more now, or the queue failed.
 */
bool tcp_queue_receive(struct tcp_queue *q);
#endif
