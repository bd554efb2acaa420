/* SPDX-License-Identifier: Apache-2.0 */
/* The wire half of the fake agent: proof, reads, writes and the named ways to break the protocol.
 */
#include "tests/client/fake_wire.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/client/codec.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Sends what is left to be sent, and vanishes. */
static int cut(struct fake_conn *c, const void *p)
{
	struct linger l = {1, 0};

	(void)send(c->fd, p, (size_t)c->left, MSG_NOSIGNAL);
	if (c->agent->greet_reset)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	return -1;
}

static int send_all(struct fake_conn *c, const void *p, size_t n)
{
	size_t step = c->agent->byte_by_byte ? 1 : n;

	if (c->left >= 0 && (size_t)c->left < n)
		return cut(c, p);
	c->left -= c->left >= 0 ? (int)n : 0;

	for (size_t at = 0; at < n;) {
		ssize_t sent = send(c->fd, (const char *)p + at, MIN(step, n - at), MSG_NOSIGNAL);

		if (sent <= 0)
			return -1;
		at += (size_t)sent;
	}
	return 0;
}

static int recv_all(struct fake_conn *c, void *p, size_t n)
{
	return !n || recv(c->fd, p, n, MSG_WAITALL) == (ssize_t)n ? 0 : -1;
}

static int send_message(struct fake_conn *c, struct wire_header h, const void *payload)
{
	codec_seal(&h);
	if (c->shm.mem)
		return fake_shm_send(c, &h, payload);
	return send_all(c, &h, sizeof(h)) || send_all(c, payload, h.payload_len) ? -1 : 0;
}

static int complete(struct fake_conn *c, uint64_t id, enum ros2_status st, uint32_t length)
{
	struct wire_header h = {.opcode = WIRE_COMPLETE,
	                        .request_id = id,
	                        .status = (uint16_t)st,
	                        .length = length};

	return send_message(c, h, NULL);
}

static int nak(struct fake_conn *c, uint64_t id, enum ros2_status st, const char *words)
{
	struct wire_header h = {.opcode = WIRE_NAK,
	                        .request_id = id,
	                        .status = (uint16_t)st,
	                        .payload_len = (uint32_t)strlen(words)};

	return send_message(c, h, words);
}

/* ---- proof ---- */

static int find_session(struct fake_agent *a, const uint8_t uid[16])
{
	for (int i = 0; i < MIN(a->n_sessions, FAKE_SESSIONS); i++)
		if (a->sessions[i].live && !a->sessions[i].proved &&
		    !memcmp(a->sessions[i].uid, uid, 16))
			return i;
	return -1;
}

static int welcome(struct fake_conn *c, const struct wire_hello *hello,
                   const struct wire_challenge *ch)
{
	struct fake_agent *a = c->agent;
	struct wire_header h = {.opcode = WIRE_WELCOME, .payload_len = sizeof(struct wire_welcome)};
	struct wire_welcome w = {.credits = a->credits,
	                         .max_io = a->max_io,
	                         .max_inline = a->max_inline,
	                         .features = a->features};
	struct codec_proof p = {a->sessions[c->session].secret, hello->session_uid, ch->agent_nonce,
	                        hello->tenant_nonce};
	uint8_t proof[WIRE_MAC_LEN];

	codec_prove(&p, WIRE_LABEL_TENANT, proof);
	if (memcmp(proof, hello->proof, sizeof(proof)))
		return -1;
	codec_prove(&p, WIRE_LABEL_AGENT, w.proof);
	w.proof[0] ^= a->wrong_proof;
	return send_message(c, h, &w);
}

static void end_before_hello(struct fake_agent *a, const uint8_t uid[16])
{
	int session = find_session(a, uid);

	if (!a->ends_before_hello || session < 0)
		return;
	if (a->ends_before_hello != ROS2_BAD_SESSION)
		a->session_status = a->ends_before_hello;
	a->sessions[session].live = false;
	a->ends_before_hello = ROS2_OK;
}

static int greet(struct fake_conn *c)
{
	struct fake_agent *a = c->agent;
	struct wire_header h = {.opcode = WIRE_CHALLENGE,
	                        .payload_len = sizeof(struct wire_challenge)};
	struct wire_challenge ch;
	struct wire_hello hello;
	int rc;

	crypto_random(&ch, sizeof(ch));
	if (send_message(c, h, &ch) || recv_all(c, &h, sizeof(h)) || codec_check(&h, NULL) ||
	    h.opcode != WIRE_HELLO || recv_all(c, &hello, sizeof(hello)))
		return -1;
	pthread_mutex_lock(&a->lock);
	end_before_hello(a, hello.session_uid);
	c->session = find_session(a, hello.session_uid);
	if (a->hello_nak || c->session < 0) {
		pthread_mutex_unlock(&a->lock);
		nak(c, 0, a->hello_nak ? a->hello_nak : ROS2_UNAUTHENTICATED, "no such session");
		return -1;
	}
	a->sessions[c->session].proved = true;
	a->sessions[c->session].fd = c->fd;
	rc = welcome(c, &hello, &ch);
	c->left = -1;
	pthread_mutex_unlock(&a->lock);
	return rc;
}

/* ---- reads ---- */

static struct wire_header data_for(const struct wire_header *q, uint32_t at, uint32_t n)
{
	return (struct wire_header){
		.opcode = WIRE_DATA,
		.request_id = q->request_id,
		.offset = at,
		.address = q->address + at,
		.length = n,
		.key = q->key,
		.generation = q->generation,
		.payload_len = n,
	};
}

/* Until the test opens it, or the program has gone. */
static int wait_at_gate(const struct fake_conn *c)
{
	struct pollfd p[] = {{.fd = c->agent->gate, .events = POLLIN},
	                     {.fd = c->fd, .events = POLLRDHUP}};
	uint64_t n;

	if (poll(p, ARRAY_SIZE(p), -1) < 0 || p[1].revents)
		return -1;
	return read(p[0].fd, &n, sizeof(n)) == sizeof(n) ? 0 : -1;
}

static int send_through_gate(struct fake_conn *c, struct wire_header h, const uint8_t *payload)
{
	uint32_t middle = h.payload_len - 2 * FAKE_GATE_BYTES;

	codec_seal(&h);
	if (send_all(c, &h, sizeof(h)) || send_all(c, payload, FAKE_GATE_BYTES) ||
	    wait_at_gate(c) || send_all(c, payload + FAKE_GATE_BYTES, middle) || wait_at_gate(c))
		return -1;
	return send_all(c, payload + FAKE_GATE_BYTES + middle, FAKE_GATE_BYTES);
}

static int serve_read(struct fake_conn *c, const struct wire_header *q, int drop_in_data)
{
	struct fake_agent *a = c->agent;
	uint64_t file = q->handle & 0xfff;
	uint64_t size = a->files[file].size;
	uint32_t n = q->offset >= size ? 0 : (uint32_t)MIN(q->length, size - q->offset);

	if (c->shm.mem) {
		uint8_t *to = fake_shm_payload(c, q, ROS2_REGION_WRITE);

		if (!to)
			return -1;
		memcpy(to, a->files[file].data + q->offset, n);
		return complete(c, q->request_id, ROS2_OK, n);
	}
	for (uint32_t at = 0; at < n; at += a->chunk) {
		struct wire_header h = data_for(q, at, MIN(a->chunk, n - at));

		if (drop_in_data == 1) {
			codec_seal(&h);
			send_all(c, &h, sizeof(h));
			send_all(c, a->files[file].data + q->offset + at, h.length / 2);
			return -1;
		}
		if (a->gate ? send_through_gate(c, h, a->files[file].data + q->offset + at)
		            : send_message(c, h, a->files[file].data + q->offset + at))
			return -1;
	}
	return complete(c, q->request_id, ROS2_OK, n);
}

/* ---- writes ---- */

static int serve_write(struct fake_conn *c, const struct wire_header *q, const uint8_t *payload,
                       bool expire)
{
	struct fake_agent *a = c->agent;
	uint64_t file = q->handle & 0xfff;
	int w = 0;

	if (c->shm.mem) {
		payload = fake_shm_payload(c, q, ROS2_REGION_READ);
		if (!payload)
			return -1;
	}
	if (q->flags & WIRE_F_INLINE || c->shm.mem) {
		memcpy(a->files[file].data + q->offset, payload, q->length);
		a->files[file].size = MAX(a->files[file].size, q->offset + q->length);
		return complete(c, q->request_id, ROS2_OK, q->length);
	}
	while (w < FAKE_WRITES && c->writes[w].id)
		w++;
	if (w == FAKE_WRITES)
		return -1;
	c->writes[w].id = q->request_id;
	c->writes[w].file = file;
	c->writes[w].offset = q->offset;
	c->writes[w].left = c->writes[w].length = q->length;
	c->writes[w].expire = expire;
	for (uint32_t at = 0; at < q->length; at += a->chunk) {
		struct wire_header h = data_for(q, at, MIN(a->chunk, q->length - at));

		h.opcode = WIRE_PULL;
		h.payload_len = 0;
		if (send_message(c, h, NULL))
			return -1;
	}
	return 0;
}

static int take_data(struct fake_conn *c, const struct wire_header *h, const uint8_t *payload)
{
	struct fake_agent *a = c->agent;
	int w = 0;

	while (w < FAKE_WRITES && c->writes[w].id != h->request_id)
		w++;
	if (w == FAKE_WRITES || h->payload_len != h->length) {
		a->saw_violation = true;
		return -1;
	}
	memcpy(a->files[c->writes[w].file].data + c->writes[w].offset + h->offset, payload,
	       h->length);
	c->writes[w].left -= h->length;
	if (c->writes[w].left)
		return 0;
	c->writes[w].id = 0;
	a->files[c->writes[w].file].size =
		MAX(a->files[c->writes[w].file].size, c->writes[w].offset + c->writes[w].length);
	return complete(c, h->request_id, c->writes[w].expire ? ROS2_LEASE_EXPIRED : ROS2_OK,
	                c->writes[w].length);
}

static int serve_clear(struct fake_conn *c, const struct wire_header *q)
{
	struct fake_agent *a = c->agent;
	uint64_t file = q->handle & 0xfff, size = a->files[file].size;

	/* What an agent of the first release does with an opcode that it does not know. */
	if (!(a->features & WIRE_FEATURE_CLEAR) || q->key || q->address || q->generation) {
		a->saw_violation = true;
		return -1;
	}
	if (q->offset < size)
		memset(a->files[file].data + q->offset, 0, MIN(q->length, size - q->offset));
	return complete(c, q->request_id, ROS2_OK, q->length);
}

/* ---- breaking the protocol ---- */

static uint8_t junk[FAKE_FILE_MAX];

static int evil_data(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	struct wire_header h = data_for(q, 0, q->length);

	switch (evil) {
	case EVIL_DATA_OUTSIDE_REQUEST:
		h.offset = q->length - 1;
		h.address = q->address + h.offset;
		return send_message(c, h, junk);
	case EVIL_DATA_OUTSIDE_REGION:
		h.address += q->length;
		return send_message(c, h, junk);
	case EVIL_DATA_WRONG_KEY:
		h.key ^= 1;
		return send_message(c, h, junk);
	case EVIL_DATA_WRONG_GENERATION:
		h.generation++;
		return send_message(c, h, junk);
	case EVIL_DATA_TWICE:
		return send_message(c, h, junk) || send_message(c, h, junk);
	case EVIL_DATA_UNKNOWN_ID:
		h.request_id += 1u << 16;
		return send_message(c, h, junk);
	case EVIL_DATA_FOR_WRITE:
		return send_message(c, h, junk);
	case EVIL_DATA_LENGTH_LIES:
		h.length = 1;
		return send_message(c, h, junk);
	case EVIL_DATA_HUGE:
		h.payload_len = h.length = UINT32_MAX;
		codec_seal(&h);
		return send_all(c, &h, sizeof(h)) || send_all(c, junk, sizeof(junk));
	case EVIL_DATA_ADDRESS_WRAP:
		h.offset = UINT64_MAX - 15;
		h.address = q->address - 16;
		return send_message(c, h, junk);
	default:
		return -1;
	}
}

static int evil_complete(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	struct wire_header h = data_for(q, 0, q->length);

	switch (evil) {
	case EVIL_COMPLETE_TWICE:
		return complete(c, q->request_id, ROS2_IO, 0) ||
		       complete(c, q->request_id, ROS2_IO, 0);
	case EVIL_COMPLETE_UNKNOWN:
		return complete(c, q->request_id ^ 1, ROS2_IO, 0);
	case EVIL_COMPLETE_TOO_LONG:
		return send_message(c, h, junk) ||
		       complete(c, q->request_id, ROS2_OK, q->length + 1);
	case EVIL_COMPLETE_SHORT:
		return complete(c, q->request_id, ROS2_OK, q->length - 1);
	case EVIL_COMPLETE_WITHOUT_DATA:
	case EVIL_COMPLETE_BEFORE_PULL:
		return complete(c, q->request_id, ROS2_OK, q->length);
	case EVIL_COMPLETE_PAYLOAD:
		h = (struct wire_header){
			.opcode = WIRE_COMPLETE, .request_id = q->request_id, .payload_len = 64};
		return send_message(c, h, junk);
	default:
		return -1;
	}
}

static int evil_pull(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	struct wire_header pull = data_for(q, 0, q->length);

	pull.opcode = WIRE_PULL;
	pull.payload_len = 0;
	switch (evil) {
	case EVIL_PULL_FOREIGN:
		pull.address -= 4096;
		return send_message(c, pull, NULL);
	case EVIL_PULL_TOO_MUCH:
		return send_message(c, pull, NULL) || send_message(c, pull, NULL);
	case EVIL_PULL_FOR_READ:
		return send_message(c, pull, NULL);
	default:
		return -1;
	}
}

static int evil_header(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	struct wire_header h = data_for(q, 0, q->length);

	switch (evil) {
	case EVIL_BAD_CRC:
		codec_seal(&h);
		h.header_crc ^= 1;
		return send_all(c, &h, sizeof(h));
	case EVIL_BAD_MAGIC:
		codec_seal(&h);
		h.magic ^= 1;
		return send_all(c, &h, sizeof(h));
	case EVIL_RESERVED_BITS:
		h.flags = WIRE_F_PAYLOAD_CRC;
		return send_message(c, h, junk);
	case EVIL_TENANT_OPCODE:
		h.opcode = WIRE_READ;
		h.payload_len = 0;
		return send_message(c, h, NULL);
	case EVIL_NAK_LONG_WORDS:
		h = (struct wire_header){.opcode = WIRE_NAK, .payload_len = 4096, .status = 6};
		return send_message(c, h, junk);
	case EVIL_NAK_OK:
		h = (struct wire_header){.opcode = WIRE_NAK, .request_id = q->request_id};
		return send_message(c, h, NULL);
	default:
		return send_all(c, junk, 4096);
	}
}

static int be_evil(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	memset(junk, 0xee, 4096);
	if (evil <= EVIL_DATA_ADDRESS_WRAP)
		return evil_data(c, q, evil);
	if (evil <= EVIL_COMPLETE_PAYLOAD)
		return evil_complete(c, q, evil);
	if (evil <= EVIL_PULL_FOR_READ)
		return evil_pull(c, q, evil);
	if (evil >= EVIL_SHM_WRITTEN_AHEAD)
		return fake_shm_evil(c, q, evil);
	return evil_header(c, q, evil);
}

/* ---- the connection ---- */

struct orders {
	enum evil evil;
	int expire, pull_then_expire, nak, drop, drop_in_data, hold;
};

static int count_down(int *n)
{
	return *n ? (*n)-- : 0;
}

static struct orders orders_for(struct fake_agent *a, const struct wire_header *h)
{
	struct orders o = {.evil = a->evil};

	a->n_reads += h->opcode == WIRE_READ;
	a->n_writes += h->opcode == WIRE_WRITE;
	a->n_flushes += h->opcode == WIRE_FLUSH;
	a->n_clears += h->opcode == WIRE_ZERO || h->opcode == WIRE_DISCARD;
	o.hold = a->hold || (a->hold_flush && h->opcode == WIRE_FLUSH);
	o.drop = count_down(&a->drop_after) == 1 || a->drop_always;
	if (h->opcode == WIRE_READ)
		o.drop_in_data = count_down(&a->drop_in_data);
	o.expire = count_down(&a->expire_next);
	if (h->opcode == WIRE_WRITE && !(h->flags & WIRE_F_INLINE))
		o.pull_then_expire = count_down(&a->pull_then_expire);
	o.nak = a->nak_next;
	a->nak_next = 0;
	return o;
}

/* Until the test says that its connection goes on. */
static void wait_if_stalled(const struct fake_conn *c)
{
	struct pollfd p = {.fd = c->agent->stall, .events = POLLIN};

	if (c->agent->stalled_fd == c->fd)
		poll(&p, 1, -1);
}

/* What comes for a session that has ended, or whose place is another's, is read and forgotten. */
static bool is_ended(struct fake_conn *c)
{
	struct fake_agent *a = c->agent;
	bool ended;

	pthread_mutex_lock(&a->lock);
	ended = !a->sessions[c->session].live || a->sessions[c->session].fd != c->fd;
	a->n_dropped += ended;
	pthread_mutex_unlock(&a->lock);
	return ended;
}

static int serve(struct fake_conn *c, const struct wire_header *h, const uint8_t *payload)
{
	struct fake_agent *a = c->agent;
	struct orders o;

	wait_if_stalled(c);
	if (is_ended(c))
		return 0;
	if (h->opcode == WIRE_PING) {
		struct wire_header pong = {.opcode = WIRE_PONG, .request_id = h->request_id};

		WITH_AGENT(a, a->n_pings++);
		return send_message(c, pong, NULL);
	}
	if (h->opcode == WIRE_DATA)
		return take_data(c, h, payload);
	WITH_AGENT(a, o = orders_for(a, h));
	if (o.hold) {
		c->held = *h;
		return 0;
	}
	if (o.drop) {
		for (int i = 0; i < FAKE_FILES && a->drop_wipes; i++)
			if (a->files[i].data)
				memset(a->files[i].data, 0, a->files[i].size);
		return -1;
	}
	if (o.evil == EVIL_SHM_FILE)
		fake_shm_file(c);
	else if (o.evil)
		return be_evil(c, h, o.evil);
	if (o.expire)
		return complete(c, h->request_id, ROS2_LEASE_EXPIRED, 0);
	if (o.nak)
		return nak(c, h->request_id, (enum ros2_status)o.nak, "not allowed here");
	if (h->opcode == WIRE_READ)
		return serve_read(c, h, o.drop_in_data);
	if (h->opcode == WIRE_WRITE)
		return serve_write(c, h, payload, o.pull_then_expire);
	if (h->opcode == WIRE_ZERO || h->opcode == WIRE_DISCARD)
		return serve_clear(c, h);
	return complete(c, h->request_id, ROS2_OK, 0);
}

void *fake_wire_thread(void *arg)
{
	struct fake_conn *c = arg;
	struct fake_agent *a = c->agent;
	uint8_t *payload = malloc(WIRE_IO_MAX);
	struct wire_header h;
	int rc = greet(c);

	if (!rc && c->shm.wanted)
		rc = fake_shm_share(c);
	while (!rc) {
		rc = c->shm.mem ? fake_shm_recv(c, &h) : recv_all(c, &h, sizeof(h));
		if (!rc && (codec_check(&h, NULL) || h.payload_len > WIRE_IO_MAX)) {
			a->saw_violation = true;
			rc = -1;
		}
		if (!rc)
			rc = recv_all(c, payload, h.payload_len);
		if (!rc)
			rc = serve(c, &h, payload);
	}
	if (c->shm.mem && c->held.length)
		fake_shm_late(c);
	pthread_mutex_lock(&a->lock);
	if (c->session >= 0 && a->sessions[c->session].fd == c->fd)
		a->sessions[c->session].fd = -1;
	close(c->fd);
	c->thread->over = true;
	pthread_mutex_unlock(&a->lock);
	fake_shm_end(c);
	free(payload);
	free(c);
	return NULL;
}
