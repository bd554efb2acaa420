/* SPDX-License-Identifier: Apache-2.0 */
/* Floods of the data port: over tcp, or with transport=shm over the socket and the rings of shared
 * memory; what is different with transport=verbs is in flood_verbs.c. */
#include "tests/hostile/flood.h"
#include "common/crypto.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TINY_BATCH    16
#define UNPACED_DEPTH 100 /* requests of a session; credits are 128 */
#define UNREAD_TAKEN  4096
#define UNREAD_DEPTH  100
#define WAKES         128 /* bytes of a turn */
#define ADDRESS       65536

static uint8_t scratch[WIRE_IO_MAX];

/* ---- sessions ---- */

static uint64_t base_of(const struct flood *f, size_t i)
{
	return f->raw.over_verbs ? flood_verbs_address(f, i)
	       : f->raw.over_shm ? WIRE_SHM_DATA_OFF
	                         : ADDRESS;
}

/* Proved; over shm its memory has come, and nobody has said MAPPED. */
static bool joined(struct flood *f, size_t i)
{
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	char words[257];
	int rc;

	raw_shm_free(&f->m[i]);
	rc = raw_session_open(&f->raw, &f->s[i], &err);
	f->fd[i] = -1;
	if (rc) {
		flood_answered_rpc(f, rc, &err);
		return false;
	}
	if (f->raw.over_verbs)
		return flood_verbs_join(f, i);
	f->fd[i] = flood_dial(f->s[i].data_address);
	return f->fd[i] >= 0 && !raw_hello(f->fd[i], &f->s[i], &st, words) && !st &&
	       (!f->raw.over_shm || !raw_shm_memory(f->fd[i], &f->m[i]));
}

bool flood_session(struct flood *f, size_t i)
{
	Ros2__V1__MountRequest m = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest o = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__RegisterRegionRequest g = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__MountReply *mr = NULL;
	Ros2__V1__OpenReply * or = NULL;
	Ros2__V1__RegisterRegionReply *gr = NULL;

	m.session_uid = o.session_uid = g.session_uid = (ProtobufCBinaryData){16, f->s[i].uid};
	m.namespace_name = (char *)"data";
	o.path = (char *)"flood";
	o.flags = 7;
	o.mode = 0644;
	g.length = 1u << 20;
	g.access = 3;
	if (!joined(f, i) || (f->m[i].map && raw_shm_mapped(f->fd[i])) ||
	    ros2_v1_tenant_mount_sync(f->raw.channel, &m, FLOOD_CALL_MS, &mr, NULL))
		return false;
	o.mount = mr->mount;
	protobuf_c_message_free_unpacked(&mr->base, NULL);
	if (ros2_v1_tenant_open_sync(f->raw.channel, &o, FLOOD_CALL_MS, & or, NULL))
		return false;
	f->handle[i] = or->handle;
	protobuf_c_message_free_unpacked(& or->base, NULL);
	g.address = base_of(f, i);
	if (ros2_v1_tenant_register_region_sync(f->raw.channel, &g, FLOOD_CALL_MS, &gr, NULL))
		return false;
	f->key[i] = gr->key;
	f->generation[i] = gr->generation;
	protobuf_c_message_free_unpacked(&gr->base, NULL);
	return !f->raw.over_verbs || flood_verbs_window(f, i);
}

void flood_session_end(struct flood *f, size_t i)
{
	if (f->fd[i] >= 0)
		close(TAKE_FD(f->fd[i]));
	raw_shm_free(&f->m[i]);
	flood_verbs_leave(f, i);
	raw_session_close(&f->raw, &f->s[i]);
}

static bool put(struct flood *f, size_t i, struct wire_header *h)
{
	if (f->raw.over_verbs)
		return flood_verbs_put(f, i, h);
	raw_seal(h);
	return f->m[i].map
	               ? raw_shm_put(&f->m[i], f->fd[i], h)
	               : send(f->fd[i], h, sizeof(*h), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*h);
}

bool flood_request(struct flood *f, size_t i, uint8_t opcode, uint32_t length, uint32_t key)
{
	struct wire_header h = {.opcode = opcode,
	                        .request_id = ++f->next_id,
	                        .handle = f->handle[i],
	                        .address = base_of(f, i),
	                        .length = length,
	                        .key = key};

	if (put(f, i, &h))
		return true;
	flood_answered(f, "not taken", NULL);
	return false;
}

static int receive(struct flood *f, size_t i, struct wire_header *h)
{
	if (f->raw.over_verbs)
		return flood_verbs_take(f, i, h, scratch);
	return f->m[i].map ? raw_shm_take(&f->m[i], f->fd[i], h, scratch, 2000)
	                   : raw_receive(f->fd[i], h, scratch, 2000);
}

void flood_hellos(struct flood *f)
{
	struct raw_session s = f->s[0];

	if (f->raw.over_verbs) {
		flood_verbs_hellos(f);
		return;
	}
	crypto_random(s.secret, sizeof(s.secret));
	while (flood_turn(f)) {
		enum ros2_status st = ROS2_OK;
		char words[257] = "";
		int fd = flood_dial(s.data_address);
		int rc = fd < 0 ? fd : raw_hello(fd, &s, &st, words);

		flood_answered(f, rc ? "closed" : ros2_status_to_str(st), words);
		if (fd >= 0)
			close(fd);
	}
}

/* The end of one request. */
static void drain(struct flood *f, size_t i)
{
	struct wire_header h = {.opcode = WIRE_DATA};
	int rc = 0;

	while (!rc && h.opcode != WIRE_COMPLETE && h.opcode != WIRE_NAK)
		rc = receive(f, i, &h);
	if (rc) {
		flood_answered(f, "closed", NULL);
		flood_session_end(f, i);
		(void)flood_session(f, i);
		return;
	}
	scratch[MIN(h.payload_len, 256u)] = '\0';
	flood_answered(f, ros2_status_to_str((enum ros2_status)h.status),
	               h.opcode == WIRE_NAK ? (const char *)scratch : NULL);
}

void flood_tiny(struct flood *f)
{
	while (flood_turn(f)) {
		for (int i = 0; i < TINY_BATCH; i++)
			flood_request(f, 0, WIRE_READ, 1, f->key[0]);
		for (int i = 0; i < TINY_BATCH && (f->fd[0] >= 0 || f->p[0]); i++)
			drain(f, 0);
	}
}

void flood_violations(struct flood *f)
{
	while (flood_turn(f)) {
		flood_request(f, 0, WIRE_READ, 4096, f->key[0] ^ 0x55aa0000u);
		drain(f, 0);
	}
}

/* The kernel takes little for it, so that what it does not read waits in slots. */
static void deafen(struct flood *f, size_t i)
{
	if (f->fd[i] >= 0)
		setsockopt(f->fd[i], SOL_SOCKET, SO_RCVBUF, &(int){UNREAD_TAKEN}, sizeof(int));
}

/* Over shm what is not taken, one entry for each answer, is in flight no more: so the ring to it
 * fills, and then there are as many that wait for room in it. */
static unsigned may_ask(const struct flood *f, size_t i, unsigned asked)
{
	unsigned in_flight = asked - (f->m[i].map ? raw_shm_untaken(&f->m[i]) : 0);

	if (f->fd[i] < 0 || in_flight >= UNREAD_DEPTH)
		return 0;
	return f->m[i].map ? UNREAD_DEPTH - in_flight : 1;
}

static void ask(struct flood *f, size_t i, unsigned *asked)
{
	uint32_t length = f->raw.over_shm ? 1 : WIRE_IO_MAX;
	bool was_full = f->is_full[i];

	for (unsigned n = may_ask(f, i, *asked); n > 0; n--, ++*asked)
		if (flood_request(f, i, WIRE_READ, length, f->key[i]))
			flood_answered(f, "asked", NULL);
	f->is_full[i] = f->m[i].map && raw_shm_untaken(&f->m[i]) == WIRE_SHM_RING_ENTRIES;
	if (f->is_full[i] && !was_full)
		flood_answered(f, "full", NULL);
}

/* As many megabytes as the credits allow are asked for, and none is read; over shm as many answers
 * as the ring takes, of a byte each, for payload waits nowhere there. One session after the
 * other is given up for a new one, so that at each turn there is one that asks. */
void flood_unread(struct flood *f)
{
	unsigned asked[FLOOD_SESSIONS] = {0};

	if (f->raw.over_verbs) {
		flood_verbs_unread(f);
		return;
	}
	for (size_t i = 1; i < FLOOD_SESSIONS; i++)
		f->n_sessions += flood_session(f, i);
	for (size_t i = 0; i < f->n_sessions; i++)
		deafen(f, i);
	while (flood_turn(f)) {
		size_t next = f->done / UNREAD_DEPTH % f->n_sessions;

		if (f->done % UNREAD_DEPTH == 0) {
			flood_session_end(f, next);
			(void)flood_session(f, next);
			deafen(f, next);
			asked[next] = 0;
		}
		for (size_t i = 0; i < f->n_sessions; i++)
			ask(f, i, &asked[i]);
	}
}

/* With its payload behind it, however long the kernel takes to take it. */
static void write_request(struct flood *f, size_t i, uint32_t length)
{
	static uint8_t bytes[sizeof(struct wire_header) + WIRE_INLINE_MAX];
	struct wire_header h = {.opcode = WIRE_WRITE,
	                        .flags = WIRE_F_INLINE,
	                        .request_id = ++f->next_id,
	                        .handle = f->handle[i],
	                        .address = ADDRESS,
	                        .length = length,
	                        .payload_len = length,
	                        .key = f->key[i]};
	size_t n = sizeof(h) + length, sent = 0;
	ssize_t k = 1;

	raw_seal(&h);
	memcpy(bytes, &h, sizeof(h));
	while (sent < n && k > 0) {
		k = send(f->fd[i], bytes + sent, n - sent, MSG_NOSIGNAL);
		sent += k > 0 ? (size_t)k : 0;
	}
}

static void ask_more(struct flood *f, size_t i, uint32_t length, bool writes)
{
	if (writes && !f->raw.over_shm)
		write_request(f, i, MIN(length, WIRE_INLINE_MAX));
	else
		flood_request(f, i, writes ? WIRE_WRITE : WIRE_READ, length, f->key[i]);
}

/* All the credits of all its sessions, all the time: what comes back is asked for again at once. */
void flood_unpaced(struct flood *f)
{
	uint32_t length = (uint32_t)raw_arg_u64(f->args, "length", 16384);
	bool writes = !strcmp(raw_arg(f->args, "op", "read"), "write");

	for (size_t i = 1; i < FLOOD_SESSIONS; i++)
		f->n_sessions += flood_session(f, i);
	for (size_t i = 0; i < f->n_sessions; i++)
		for (int k = 0; k < UNPACED_DEPTH; k++)
			ask_more(f, i, length, writes);
	while (!flood_is_over(f)) {
		for (size_t i = 0; i < f->n_sessions && f->fd[i] >= 0; i++) {
			drain(f, i);
			ask_more(f, i, length, writes);
			f->done++;
		}
	}
}

/* What was said to one that said nothing, or too little, and never reads; then it goes. */
static void let_go(struct flood *f, size_t at)
{
	struct wire_header h = {0};
	int fd = f->sockets[at];
	uint8_t byte;
	ssize_t n;

	if (fd < 0)
		return;
	while (f->is_data[at] && h.opcode != WIRE_NAK && !raw_receive(fd, &h, scratch, 1))
		;
	if (h.opcode == WIRE_NAK) {
		scratch[MIN(h.payload_len, 256u)] = '\0';
		flood_answered(f, ros2_status_to_str((enum ros2_status)h.status),
		               (const char *)scratch);
	} else {
		n = recv(fd, &byte, 1, MSG_DONTWAIT);
		flood_answered(f,
		               n < 0 && errno == EAGAIN ? "left open"
		               : f->is_data[at]         ? "data closed"
		                                        : "closed",
		               NULL);
	}
	close(TAKE_FD(f->sockets[at]));
}

/* Of three connections to the data port over shm one says nothing, the others a part of HELLO. */
static void begin_hello(struct flood *f, int fd)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};

	raw_seal(&h);
	if (fd >= 0 && f->done % 3 &&
	    send(fd, &h, f->done % 3 == 1 ? sizeof(h) / 2 : sizeof(h), MSG_NOSIGNAL) < 0)
		flood_answered(f, strerror(errno), NULL);
}

static void begin_tls(struct flood *f, int fd)
{
	static const uint8_t hello_begins[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};

	if (fd >= 0 && f->done % 3 == 1 &&
	    send(fd, hello_begins, sizeof(hello_begins), MSG_NOSIGNAL) < 0)
		flood_answered(f, strerror(errno), NULL);
}

/* To the data port, to the calls' port without a word, and there with the beginning of a TLS
 * handshake, and of what stands behind one; over shm only to the data port, beside sessions that
 * have their memory and never say MAPPED. The oldest goes when there are too many. */
void flood_halfopen(struct flood *f)
{
	bool shm = f->raw.over_shm;

	for (size_t i = 1; shm && i < FLOOD_SESSIONS; i++)
		f->n_sessions += joined(f, i);
	while (flood_turn(f)) {
		bool data = shm || (f->n_sessions && f->done % 3 == 0);
		size_t at = f->n_sockets++ % FLOOD_SOCKETS;
		int fd;

		if (f->n_sockets > FLOOD_SOCKETS)
			let_go(f, at);
		fd = flood_dial(data ? f->s[0].data_address : flood_port(f));
		flood_answered(f, fd < 0 ? strerror(-fd) : "connected", NULL);
		f->is_data[at] = data;
		f->sockets[at] = fd;
		if (shm)
			begin_hello(f, fd);
		else
			begin_tls(f, fd);
	}
	for (size_t i = 0; i < MIN(f->n_sockets, (size_t)FLOOD_SOCKETS); i++)
		let_go(f, i);
}

/* Over shm: bytes that say only that there is something, and there is nothing. */
void flood_wakes(struct flood *f)
{
	static const char bytes[WAKES];

	while (flood_turn(f)) {
		ssize_t n = send(f->fd[0], bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);

		flood_answered(f, n > 0 ? "woken" : errno == EAGAIN ? "not taken" : "closed", NULL);
	}
}
