/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a target go. Headers go into the input buffer, payload into req->buf, and one
 * system call should do both for many commands. So the queue expects: targets answer most commands
 * in the order in which they got them, and how they cut data into PDUs is seen from the last ones.
 * The parts of a readv are then header, payload of the first read, header, payload of the second
 * ... Nothing is expected while writes are in flight whose data the target has to ask for.
 *
 * Nothing rests on that being right. What lies in a place is taken for that payload only when the
 * header before it says exactly so (tcp_queue_recv.c); else everything from there on is put back
 * into one stream in the input buffer, from where payload is copied; before a command with bytes in
 * its buffer is given back, the same. Until then such bytes may lie in the buffer of another
 * read of this queue that is in flight: it belongs to the same tenant, and is not yet anyone's to
 * look at. The more payloads came in order, the more are placed ahead; one that did not, and none
 * is.
 *
 * Where a tenant reads and writes the buffer meanwhile, such guesses would show it what is not its
 * own, and make headers of what it writes there. Into that goes only the payload of a PDU whose
 * header was looked at, and nothing is put back from it. So that its payload does not come with the
 * header before it, and need a copy, no more is received behind a payload than headers.
 *
 * copied_bytes counts what was copied: nothing with a target that answers in order, each byte of
 * small reads once or twice with one that does not, for which a copy is cheaper than a system call
 * for each.
 */
#include "dataplane/nvmf/tcp_queue_priv.h"
#include <assert.h>
#include <string.h>

#define RESP_LEN 24u
/* Received behind a payload when nothing is known of what comes, while large reads are in flight:
 * some headers, and not much payload to be copied. */
#define LEAN  128u
#define LARGE 16384u

/* ---- what to expect ---- */

static struct tcp_cmd *next_of(const struct tcp_queue *q, const struct list *at)
{
	return at->next == &q->order ? NULL : list_entry(at->next, struct tcp_cmd, order);
}

/* All that is to come for it is a response capsule. */
static bool needs_answer_only(const struct tcp_cmd *c)
{
	return !tcp_queue_reads(c) || c->got == c->req->len;
}

void tcp_queue_expect(struct tcp_queue *q, struct tcp_cmd *c)
{
	if (!c->req->timeout_ns) /* an event request */
		return;
	if (c->req->dir == NVMF_TO_TARGET && !c->in_capsule) {
		c->unordered = true;
		q->n_unordered++;
	} else {
		list_add_tail(&q->order, &c->order);
	}
}

void tcp_queue_learn_data(struct tcp_queue *q, const struct tcp_cmd *c, uint32_t n, bool last,
                          uint32_t head_len)
{
	q->in_order = c != next_of(q, &q->order) ? 0 : MIN(q->in_order + 1, 4 * TCP_QUEUE_AHEAD);
	q->data_head_len = head_len;
	if (!last)
		q->data_max = n;
	else if (n > q->data_max)
		q->data_max = q->transfer_max;
}

void tcp_queue_learn_end(struct tcp_queue *q, const struct tcp_cmd *c, bool answer)
{
	if (c != next_of(q, &q->order) && !c->unordered)
		q->in_order = 0;
	if (tcp_queue_reads(c))
		q->answers_follow = answer;
}

static uint32_t digest_len(const struct tcp_queue *q)
{
	return q->from_target.data_digest ? NVME_TCP_DIGEST_LEN : 0;
}

static uint32_t resp_len(const struct tcp_queue *q)
{
	return RESP_LEN + (q->from_target.header_digest ? NVME_TCP_DIGEST_LEN : 0);
}

/* ---- a plan ---- */

struct plan {
	struct tcp_queue *q;
	struct iovec *iov;
	int parts;
	uint32_t in;    /* bytes of the input buffer in parts so far, from its begin */
	uint32_t pos;   /* where the next payload would be in it */
	uint32_t bytes; /* of payloads that may have to be put back */
	/* The read whose payload is next, NULL when there is none, and how much of it came before.
	 */
	struct tcp_cmd *next;
	uint32_t got;
};

static void add_input(struct plan *p, uint32_t to)
{
	if (to == p->in)
		return;
	p->iov[p->parts++] = (struct iovec){p->q->in + p->in, to - p->in};
	p->in = to;
}

static void add_place(struct plan *p, struct tcp_cmd *c, uint32_t at, uint32_t len)
{
	p->q->places[p->q->n_places++] =
		(struct tcp_place){.cmd = c, .at = at, .len = len, .pos = p->pos};
	add_input(p, p->pos);
	p->iov[p->parts++] = (struct iovec){(uint8_t *)c->req->buf + at, len};
}

/* @c, or the first after it that has payload to come. */
static void go_on_with(struct plan *p, struct tcp_cmd *c)
{
	for (; c && needs_answer_only(c); c = next_of(p->q, &c->order))
		p->pos += resp_len(p->q);
	p->next = c;
	p->got = c ? c->got : 0;
}

/* A PDU of p->next ends at p->got; @answer: a response capsule of its own follows the last. */
static void pdu_ends(struct plan *p, bool answer)
{
	p->pos += digest_len(p->q);
	if (p->got < p->next->req->len)
		return;
	p->pos += answer ? resp_len(p->q) : 0;
	go_on_with(p, next_of(p->q, &p->next->order));
}

/* From where the stream is now to where the next header of a payload would begin. */
static void begin(struct plan *p)
{
	struct tcp_queue *q = p->q;

	if (q->rx) {
		p->next = q->rx;
		p->got = q->rx_at + q->rx_left;
		if (q->rx_left)
			add_place(p, q->rx, q->rx_at, q->rx_left);
		pdu_ends(p, !q->rx_success);
		return;
	}
	go_on_with(p, next_of(q, &q->order));
}

/* As many payloads as earlier order promises. */
static void look_ahead(struct plan *p, uint32_t most)
{
	struct tcp_queue *q = p->q;

	while (p->next && !p->next->req->tenant_memory && most-- && q->n_places < TCP_QUEUE_AHEAD) {
		uint32_t len = MIN(p->next->req->len - p->got, q->data_max);

		if (p->pos + q->data_head_len <= p->in ||
		    p->pos + p->bytes + len > TCP_QUEUE_INPUT / 2)
			return;
		p->pos += q->data_head_len;
		add_place(p, p->next, p->got, len);
		p->bytes += len;
		p->got += len;
		pdu_ends(p, q->answers_follow);
	}
}

/* Which of them comes next is not known. */
static bool has_large(const struct tcp_queue *q)
{
	const struct tcp_cmd *c = next_of(q, &q->order);

	while (c && needs_answer_only(c))
		c = next_of(q, &c->order);
	return c && c->req->len > LARGE;
}

static bool has_tenant_memory(const struct tcp_queue *q)
{
	const struct tcp_cmd *c = next_of(q, &q->order);

	while (c && (needs_answer_only(c) || !c->req->tenant_memory))
		c = next_of(q, &c->order);
	return c != NULL;
}

/* Behind the last payload: with more to come in order, up to it; else all there is room for, or, so
 * that nothing has to be copied, the one header that comes whatever it is. */
static void add_rest(struct plan *p, bool ahead)
{
	struct tcp_queue *q = p->q;
	uint32_t head = MAX(q->data_head_len, resp_len(q)), to = TCP_QUEUE_INPUT - p->bytes;

	if (p->next && ahead && p->pos + head > p->in)
		to = p->pos + head;
	else if (has_tenant_memory(q))
		to = MAX(p->in + 1, MAX(resp_len(q), q->head_want));
	else if (has_large(q))
		to = p->in + LEAN;
	add_input(p, to);
}

int tcp_queue_place(struct tcp_queue *q, struct iovec iov[TCP_QUEUE_IOV])
{
	uint32_t have = q->in_end - q->in_at;
	struct plan p = {.q = q, .iov = iov, .in = have};

	memmove(q->in, q->in + q->in_at, have);
	q->in_at = 0;
	q->in_end = have;
	q->place_at = q->n_places = 0;
	begin(&p);
	if (!q->n_unordered)
		look_ahead(&p, q->in_order / 4);
	add_rest(&p, !q->n_unordered && q->in_order >= 4);
	return p.parts;
}

/* ---- what came of it ---- */

void tcp_queue_placed(struct tcp_queue *q, const struct iovec *iov, int parts, size_t n)
{
	uint32_t place = 0;

	for (int i = 0; i < parts && n > 0; i++) {
		uint32_t len = (uint32_t)MIN(iov[i].iov_len, n);
		const uint8_t *base = iov[i].iov_base;

		n -= len;
		if (base >= q->in && base < q->in + sizeof(q->in)) {
			q->in_end += len;
			continue;
		}
		q->places[place].len = len;
		q->places[place++].cmd->n_places++;
	}
	q->n_places = place;
}

void tcp_queue_misplaced(struct tcp_queue *q)
{
	uint32_t n = q->n_places, end = q->in_end, bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += q->places[q->place_at + i].len;
	q->in_end += bytes;
	q->counters.copied_bytes += bytes;
	q->in_order = 0;
	/* From the last to the first: what is behind it moves up, then it goes before that. */
	while (n--) {
		const struct tcp_place *p = &q->places[q->place_at + n];

		assert(!p->cmd->req->tenant_memory);
		memmove(q->in + p->pos + bytes, q->in + p->pos, end - p->pos);
		bytes -= p->len;
		memcpy(q->in + p->pos + bytes, (const uint8_t *)p->cmd->req->buf + p->at, p->len);
		end = p->pos;
		p->cmd->n_places--;
	}
	q->n_places = 0;
}
