/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_peer.h, with librdmacm in its blocking mode. */
#include "tests/attack/verbs_peer.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECVS      64u
#define RECV_BYTES 1024u
#define SEND_BYTES 1024u
#define SEND_AT    (RECVS * RECV_BYTES)
#define TARGET_AT  (SEND_AT + PEER_SENDS * SEND_BYTES)
#define MEMORY     (TARGET_AT + PEER_TARGET)
#define WAIT_MS    10000

enum wr { WR_RECV, WR_SEND = 1000, WR_BIND = 2000, WR_EMPTY };

struct peer {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint8_t *mem;
	uint8_t agent_nonce[WIRE_NONCE_LEN];
	uint32_t recvs;   /* posted in the beginning; fewer than RECVS: never again */
	uint64_t sending; /* a bit for each place in the send memory: not ended yet */
	/* receives that ended while a place was waited for, oldest first */
	uint32_t came[RECVS], came_at, n_came;
	char words[WIRE_WORDS_MAX + 1];
};
_Static_assert(PEER_SENDS == 64, "a bit for each");

static int resolve(struct peer *p, const char *data)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *to;
	const char *colon = strrchr(data, ':');
	char host[80];
	int r;

	if (!colon)
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - data), data);
	if (rdma_getaddrinfo(host, colon + 1, &hints, &to))
		return -errno;
	r = rdma_create_id(NULL, &p->id, NULL, RDMA_PS_TCP) ? -errno : 0;
	if (!r && rdma_resolve_addr(p->id, NULL, to->ai_dst_addr, 2000))
		r = -errno;
	if (!r && rdma_resolve_route(p->id, 2000))
		r = -errno;
	rdma_freeaddrinfo(to);
	return r;
}

static int post_recv(struct peer *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)p->mem + i * RECV_BYTES, RECV_BYTES, p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = WR_RECV + i, .sg_list = &sge, .num_sge = 1}, *bad;

	return -ibv_post_recv(p->id->qp, &wr, &bad);
}

static int make(struct peer *p)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
	                             .sq_sig_all = 1,
	                             .cap = {.max_send_wr = PEER_SENDS + 8,
	                                     .max_recv_wr = RECVS,
	                                     .max_send_sge = 1,
	                                     .max_recv_sge = 1}};
	int r = 0;

	p->pd = ibv_alloc_pd(p->id->verbs);
	p->mem = aligned_alloc(4096, MEMORY);
	if (!p->pd || !p->mem)
		return -ENOMEM;
	memset(p->mem, 0, MEMORY);
	p->mr = ibv_reg_mr(p->pd, p->mem, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	p->channel = ibv_create_comp_channel(p->id->verbs);
	if (!p->mr || !p->channel)
		return -ENOMEM;
	p->cq = ibv_create_cq(p->id->verbs, 256, NULL, p->channel, 0);
	if (!p->cq)
		return -ENOMEM;
	a.send_cq = a.recv_cq = p->cq;
	if (rdma_create_qp(p->id, p->pd, &a))
		return -errno;
	for (uint64_t i = 0; i < p->recvs && !r; i++)
		r = post_recv(p, i);
	return r;
}

int peer_open_with(struct peer **ret, const char *data, uint32_t recvs)
{
	struct peer *p = calloc(1, sizeof(*p));
	int r = p ? resolve(p, data) : -ENOMEM;

	if (!r) {
		p->recvs = MIN(recvs, RECVS);
		r = make(p);
	}
	if (r) {
		peer_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

int peer_open(struct peer **ret, const char *data)
{
	return peer_open_with(ret, data, RECVS);
}

void peer_close(struct peer *p)
{
	if (!p)
		return;
	/* no rdma_disconnect: after a refusal it would wait for an event that does not come; the
	 * end of the id says it, too */
	if (p->mw)
		ibv_dealloc_mw(p->mw);
	if (p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->channel)
		ibv_destroy_comp_channel(p->channel);
	if (p->mr)
		ibv_dereg_mr(p->mr);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->id)
		rdma_destroy_id(p->id);
	free(p->mem);
	free(p);
}

void peer_vanish(struct peer *p)
{
	/* with a window on it soft-RoCE waits for most of a minute */
	if (p->mw)
		ibv_dealloc_mw(p->mw);
	p->mw = NULL;
	rdma_destroy_qp(p->id);
}

void peer_prove(const struct peer *p, const struct peer_session *s, struct wire_verbs_ask *ret)
{
	uint32_t qpn = p->id->qp->qp_num;
	struct crypto_span parts[] = {{WIRE_LABEL_VERBS, sizeof(WIRE_LABEL_VERBS)},
	                              {ret->session_uid, sizeof(ret->session_uid)},
	                              {ret->tenant_nonce, sizeof(ret->tenant_nonce)},
	                              {&qpn, sizeof(qpn)}};
	uint8_t mac[SHA256_LEN];

	*ret = (struct wire_verbs_ask){.version = WIRE_VERBS_VERSION};
	memcpy(ret->session_uid, s->uid, sizeof(ret->session_uid));
	crypto_random(ret->tenant_nonce, sizeof(ret->tenant_nonce));
	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), mac);
	memcpy(ret->proof, mac, sizeof(ret->proof));
}

int peer_connect(struct peer *p, const void *request, uint32_t len, enum ros2_status *ret_refusal)
{
	struct rdma_conn_param c = {.private_data = request,
	                            .private_data_len = (uint8_t)len,
	                            .responder_resources = 16,
	                            .initiator_depth = 0,
	                            .retry_count = 7,
	                            .rnr_retry_count = 3};
	struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
	                                           IBV_ACCESS_REMOTE_WRITE};
	const struct rdma_conn_param *got;
	int r = rdma_connect(p->id, &c) ? -errno : 0;

	*ret_refusal = ROS2_OK;
	got = p->id->event ? &p->id->event->param.conn : NULL;
	if (r && got && got->private_data_len >= sizeof(struct wire_verbs_refusal)) {
		struct wire_verbs_refusal no;

		memcpy(&no, got->private_data, sizeof(no));
		*ret_refusal = (enum ros2_status)no.status;
	}
	if (r)
		return r;
	if (!got || got->private_data_len < sizeof(struct wire_verbs_answer))
		return -EPROTO;
	memcpy(p->agent_nonce,
	       (const uint8_t *)got->private_data + offsetof(struct wire_verbs_answer, agent_nonce),
	       sizeof(p->agent_nonce));
	return -ibv_modify_qp(p->id->qp, &a, IBV_QP_ACCESS_FLAGS);
}

/* An end that is here; its place is free again. */
static int poll_end(struct peer *p, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(p->cq, 1, wc);

	if (n == 1 && wc->wr_id >= WR_SEND && wc->wr_id < WR_SEND + PEER_SENDS)
		p->sending &= ~(1ull << (wc->wr_id - WR_SEND));
	return n;
}

/* The next end; 1 = there is one. */
static int next_end(struct peer *p, struct ibv_wc *wc, int timeout_ms)
{
	struct pollfd pfd = {.fd = p->channel->fd, .events = POLLIN};
	int n = poll_end(p, wc);

	while (n == 0) {
		struct ibv_cq *cq;
		void *ctx;

		if (ibv_req_notify_cq(p->cq, 0))
			return -EIO;
		n = poll_end(p, wc);
		if (n)
			break;
		if (poll(&pfd, 1, timeout_ms) <= 0)
			return -ETIMEDOUT;
		if (ibv_get_cq_event(p->channel, &cq, &ctx))
			return -EIO;
		ibv_ack_cq_events(cq, 1);
		n = poll_end(p, wc);
	}
	return n;
}

static int take_message(struct peer *p, uint64_t buffer, struct wire_header *h)
{
	const uint8_t *at = p->mem + buffer * RECV_BYTES;

	memcpy(h, at, sizeof(*h));
	if (h->opcode == WIRE_NAK)
		snprintf(p->words, sizeof(p->words), "%.*s",
		         (int)MIN(h->payload_len, WIRE_WORDS_MAX), (const char *)at + sizeof(*h));
	return p->recvs == RECVS ? post_recv(p, buffer) : 0;
}

static int take_one_that_came(struct peer *p, struct wire_header *h)
{
	uint32_t buffer = p->came[p->came_at];

	p->came_at = (p->came_at + 1) % RECVS;
	p->n_came--;
	return take_message(p, buffer, h);
}

int peer_receive(struct peer *p, struct wire_header *h, int timeout_ms)
{
	struct ibv_wc wc;
	int r;

	if (p->n_came)
		return take_one_that_came(p, h);
	for (;;) {
		r = next_end(p, &wc, timeout_ms);
		if (r < 0)
			return r;
		if (wc.status != IBV_WC_SUCCESS)
			return -ECONNRESET;
		if (wc.wr_id < RECVS)
			return take_message(p, wc.wr_id, h);
	}
}

const char *peer_words(const struct peer *p)
{
	return p->words;
}

int peer_look(struct peer *p, struct wire_header *h)
{
	struct ibv_wc wc;

	if (p->n_came)
		return take_one_that_came(p, h);
	while (poll_end(p, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return -ECONNRESET;
		if (wc.wr_id < RECVS)
			return take_message(p, wc.wr_id, h);
	}
	return -EAGAIN;
}

/* A place for a message; what is received meanwhile waits for whoever asks for it. */
static int take_place(struct peer *p, uint32_t *ret)
{
	struct ibv_wc wc;
	int r;

	while (!~p->sending) {
		r = next_end(p, &wc, WAIT_MS);
		if (r < 0)
			return r;
		if (wc.status != IBV_WC_SUCCESS)
			return -ECONNRESET;
		if (wc.wr_id < RECVS)
			p->came[(p->came_at + p->n_came++) % RECVS] = (uint32_t)wc.wr_id;
	}
	*ret = (uint32_t)__builtin_ctzll(~p->sending);
	return 0;
}

uint32_t peer_registration(const struct peer *p)
{
	return p->mr->lkey >> 8;
}

bool peer_is_ended(struct peer *p, int timeout_ms)
{
	struct pollfd pfd = {.fd = p->id->channel->fd, .events = POLLIN};

	return poll(&pfd, 1, timeout_ms) == 1;
}

int peer_empty(struct peer *p, bool write)
{
	struct ibv_send_wr wr = {.wr_id = WR_EMPTY,
	                         .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ},
			   *bad;
	struct ibv_wc wc;
	int r = -ibv_post_send(p->id->qp, &wr, &bad);

	do
		r = r < 0 ? r : next_end(p, &wc, WAIT_MS);
	while (r > 0 && wc.status == IBV_WC_SUCCESS && wc.wr_id != WR_EMPTY);
	return r < 0 ? r : wc.status == IBV_WC_SUCCESS ? 0 : -ECONNRESET;
}

static uint8_t *place_at(const struct peer *p, uint32_t place)
{
	return p->mem + SEND_AT + place * SEND_BYTES;
}

static int send_place(struct peer *p, uint32_t place, uint32_t len, uint32_t invalidate)
{
	struct ibv_sge sge = {(uintptr_t)place_at(p, place), len, p->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = WR_SEND + place,
	                         .opcode = invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
	                         .sg_list = &sge,
	                         .num_sge = len ? 1 : 0,
	                         .invalidate_rkey = invalidate},
			   *bad;
	int r = -ibv_post_send(p->id->qp, &wr, &bad);

	p->sending |= r ? 0 : 1ull << place;
	return r;
}

int peer_noise(struct peer *p, uint32_t len)
{
	uint32_t place;
	int r = take_place(p, &place);

	if (r)
		return r;
	crypto_random(place_at(p, place), len);
	return send_place(p, place, len, 0);
}

int peer_send(struct peer *p, struct wire_header *h, const void *payload)
{
	uint32_t place;
	int r = take_place(p, &place);

	if (r)
		return r;
	wire_seal(h);
	memcpy(place_at(p, place), h, sizeof(*h));
	if (payload)
		memcpy(place_at(p, place) + sizeof(*h), payload, h->payload_len);
	return send_place(p, place, (uint32_t)sizeof(*h) + (payload ? h->payload_len : 0), 0);
}

int peer_say_hello(struct peer *p, const struct peer_session *s)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct wire_hello hello = {0};
	struct crypto_span parts[] = {{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
	                              {hello.session_uid, sizeof(hello.session_uid)},
	                              {p->agent_nonce, WIRE_NONCE_LEN},
	                              {hello.tenant_nonce, WIRE_NONCE_LEN}};

	memcpy(hello.session_uid, s->uid, sizeof(hello.session_uid));
	crypto_random(hello.tenant_nonce, sizeof(hello.tenant_nonce));
	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), hello.proof);
	return peer_send(p, &h, &hello);
}

int peer_hello(struct peer *p, const struct peer_session *s)
{
	struct wire_header h;
	int r = peer_say_hello(p, s);

	if (!r)
		r = peer_receive(p, &h, WAIT_MS);
	return r ? r : h.opcode == WIRE_WELCOME ? 0 : -EPROTO;
}

int peer_join(struct peer *p, const struct peer_session *s)
{
	struct wire_verbs_ask ask;
	enum ros2_status st;
	int r;

	peer_prove(p, s, &ask);
	r = peer_connect(p, &ask, sizeof(ask), &st);
	return r ? r : peer_hello(p, s);
}

uint8_t *peer_target(struct peer *p)
{
	return p->mem + TARGET_AT;
}

int peer_bind(struct peer *p, uint32_t *ret_key)
{
	struct ibv_send_wr wr = {.wr_id = WR_BIND, .opcode = IBV_WR_BIND_MW}, *bad;

	p->mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	if (!p->mw)
		return -errno;
	wr.bind_mw.mw = p->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(p->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = p->mr,
		.addr = (uintptr_t)peer_target(p),
		.length = PEER_TARGET,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	*ret_key = wr.bind_mw.rkey;
	/* The key leaves by a SEND behind it: no need to wait for its end. */
	return -ibv_post_send(p->id->qp, &wr, &bad);
}

int peer_invalidate(struct peer *p, uint32_t key)
{
	struct wire_header h = {.opcode = WIRE_PING};
	uint32_t place;
	int r = take_place(p, &place);

	if (r)
		return r;
	wire_seal(&h);
	memcpy(place_at(p, place), &h, sizeof(h));
	return send_place(p, place, sizeof(h), key);
}

void peer_numbers(struct peer *p, uint32_t *ret_qpn, uint32_t *ret_psn, uint32_t *ret_ip)
{
	const struct sockaddr_in *here = (const struct sockaddr_in *)rdma_get_local_addr(p->id);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = {0};

	(void)ibv_query_qp(p->id->qp, &a, IBV_QP_SQ_PSN | IBV_QP_DEST_QPN, &init);
	*ret_qpn = a.dest_qp_num;
	*ret_psn = a.sq_psn;
	*ret_ip = here->sin_addr.s_addr;
}
