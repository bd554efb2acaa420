/* SPDX-License-Identifier: Apache-2.0 */
/* See garbage.h. */
#include "tests/dataplane/garbage.h"
#include "common/crypto.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

#define PING_ID 0x70696e67u
#define LENGTH  4096u

#define FIELD(f)                                                                                   \
	{                                                                                          \
#f, offsetof(struct wire_header, f), sizeof(((struct wire_header *)0)->f)          \
	}
static const struct field {
	const char *name;
	size_t offset, size;
} fields[] = {
	FIELD(magic),  FIELD(version),  FIELD(flags),       FIELD(request_id), FIELD(handle),
	FIELD(offset), FIELD(address),  FIELD(length),      FIELD(key),        FIELD(generation),
	FIELD(status), FIELD(reserved), FIELD(payload_len), FIELD(header_crc),
};

static const char *const names[] = {
	[WIRE_CHALLENGE] = "CHALLENGE", [WIRE_HELLO] = "HELLO", [WIRE_WELCOME] = "WELCOME",
	[WIRE_READ] = "READ",           [WIRE_WRITE] = "WRITE", [WIRE_FLUSH] = "FLUSH",
	[WIRE_WINDOW] = "WINDOW",       [WIRE_ZERO] = "ZERO",   [WIRE_DISCARD] = "DISCARD",
	[WIRE_MAPPED] = "MAPPED",       [WIRE_DATA] = "DATA",   [WIRE_PULL] = "PULL",
	[WIRE_COMPLETE] = "COMPLETE",   [WIRE_NAK] = "NAK",     [WIRE_MEMORY] = "MEMORY",
	[WIRE_PING] = "PING",           [WIRE_PONG] = "PONG",   [WIRE_BYE] = "BYE",
};

static const char *name_of(unsigned op)
{
	return op < ARRAY_SIZE(names) && names[op] ? names[op] : "unknown";
}

static bool clears(const struct wire_header *h)
{
	return h->opcode == WIRE_ZERO || h->opcode == WIRE_DISCARD;
}

static bool moves(const struct wire_header *h)
{
	return h->opcode == WIRE_READ || h->opcode == WIRE_WRITE;
}

/* ---- what is due ---- */

static bool is_asked_for(const struct garbage *g, const struct wire_header *h)
{
	const struct wire_header *d = &g->asked;

	return d->opcode && h->opcode == d->opcode && h->request_id == d->request_id &&
	       h->key == d->key && h->address == d->address && h->generation == d->generation &&
	       h->length == d->length && h->offset == d->offset;
}

static bool is_known(const struct garbage *g, const struct wire_header *h)
{
	return moves(h) || clears(h) || h->opcode == WIRE_FLUSH || h->opcode == WIRE_PING ||
	       h->opcode == WIRE_PONG || h->opcode == WIRE_BYE ||
	       (h->opcode == WIRE_WINDOW && g->window.opcode) || is_asked_for(g, h);
}

static bool in_capsule(const struct garbage *g, const struct wire_header *h)
{
	return g->inline_max && h->opcode == WIRE_WRITE && h->flags == WIRE_F_INLINE;
}

/* Its flags, and how much is behind it. */
static bool is_framed(const struct garbage *g, const struct wire_header *h)
{
	if (in_capsule(g, h))
		return h->payload_len == h->length && h->length <= g->inline_max;
	if (is_asked_for(g, h))
		return !(h->flags & ~WIRE_F_LAST) && h->payload_len == h->length;
	return !h->flags && !h->payload_len;
}

static bool must_end(const struct garbage *g, const struct wire_header *h)
{
	return h->magic != WIRE_MAGIC || h->version != WIRE_VERSION || h->reserved ||
	       h->header_crc != crypto_crc32c(h, offsetof(struct wire_header, header_crc)) ||
	       !is_known(g, h) || !is_framed(g, h) ||
	       (clears(h) && (h->key || h->address || h->generation));
}

static enum ros2_status request_due(const struct garbage *g, const struct wire_header *h)
{
	if (h->opcode == WIRE_DATA)
		return ROS2_OK;
	if (h->opcode != WIRE_FLUSH && h->length > WIRE_IO_MAX)
		return ROS2_TOO_LARGE;
	if (h->offset > (uint64_t)INT64_MAX - h->length)
		return ROS2_OUT_OF_RANGE;
	if (h->handle != g->handle)
		return ROS2_BAD_HANDLE;
	if (!moves(h) || !h->length)
		return ROS2_OK;
	if (h->key != g->key)
		return ROS2_BAD_KEY;
	return h->address != g->address ? ROS2_OUT_OF_RANGE : ROS2_OK;
}

static enum ros2_status window_due(const struct garbage *g, const struct wire_header *h)
{
	if (h->handle > UINT32_MAX || h->length)
		return ROS2_INVALID;
	if (h->key != g->key)
		return ROS2_BAD_KEY;
	return h->generation != g->generation || h->address != g->address ||
	                       h->offset != g->window.offset
	               ? ROS2_OUT_OF_RANGE
	               : ROS2_OK;
}

/* ---- one message ---- */

static void wrong(struct garbage *g, const char *what, const char *due, const char *found)
{
	if (g->wrong++ < 10)
		fprintf(stderr, "# %s: %s is due, %s came\n", what, due, found);
}

static enum ros2_status renew(struct garbage *g)
{
	g->here = 0;
	return g->renew(g->arg, g);
}

static void judge_answer(struct garbage *g, const char *what, const struct wire_header *h,
                         const struct wire_header *in)
{
	bool window = h->opcode == WIRE_WINDOW;
	enum ros2_status due = window ? window_due(g, h) : request_due(g, h);
	/* Far out there may be no room. */
	bool far = h->offset && !window;

	if (due != ROS2_OK) {
		g->naks++;
		g->here++;
		if (in->opcode != WIRE_NAK || in->status != due)
			wrong(g, what, ros2_status_to_str(due),
			      in->opcode == WIRE_NAK
			              ? ros2_status_to_str((enum ros2_status)in->status)
			              : name_of(in->opcode));
	} else if (window) {
		if (in->opcode)
			wrong(g, what, "no answer", name_of(in->opcode));
	} else {
		g->done++;
		if (in->opcode != WIRE_COMPLETE ||
		    (in->status != ROS2_OK && !(far && in->status != ROS2_INTERNAL)))
			wrong(g, what, "OK", ros2_status_to_str((enum ros2_status)in->status));
	}
	if (in->opcode && in->request_id != h->request_id)
		wrong(g, what, "its own id", "another");
}

static void judge_end(struct garbage *g, const char *what, const struct wire_header *h)
{
	enum ros2_status due = must_end(g, h) ? ROS2_PROTOCOL : ROS2_CLOSED;
	bool may = must_end(g, h) || h->opcode == WIRE_BYE;
	enum ros2_status st = renew(g);

	g->ended++;
	if (!may)
		wrong(g, what, "no end", ros2_status_to_str(st));
	else if (st != due)
		wrong(g, what, ros2_status_to_str(due), ros2_status_to_str(st));
}

/* A request is answered when it is done, which may be behind the answer to the PING. */
static bool is_answered(const struct garbage *g, const struct wire_header *h)
{
	if (must_end(g, h))
		return false;
	if (h->opcode == WIRE_WINDOW)
		return window_due(g, h) != ROS2_OK;
	return moves(h) || clears(h) || h->opcode == WIRE_FLUSH || h->opcode == WIRE_DATA;
}

static void judge(struct garbage *g, const char *what, const struct wire_header *h,
                  const struct wire_header *answer)
{
	if (must_end(g, h))
		wrong(g, what, "the end", name_of(answer->opcode));
	else if (is_answered(g, h) || h->opcode == WIRE_WINDOW)
		judge_answer(g, what, h, answer);
	else if (answer->opcode != (h->opcode == WIRE_PING ? WIRE_PONG : 0))
		wrong(g, what, "PONG to PING only", name_of(answer->opcode));
	/* Whatever it is about now; or before it is ended for what it did. */
	if (h->opcode == WIRE_WINDOW || must_end(g, h) || (g->patience && g->here >= g->patience))
		(void)renew(g);
}

/* Until what it is due, or the end, has come. */
static bool await(struct garbage *g, const char *what, const struct wire_header *h,
                  struct wire_header *answer)
{
	struct wire_header in;
	bool pong = false;

	while (!pong || (is_answered(g, h) && !answer->opcode)) {
		if (!g->take(g->arg, &in))
			return false;
		if (in.opcode == WIRE_PONG && in.request_id == PING_ID)
			pong = true;
		else if (answer->opcode)
			wrong(g, what, "one answer", "another one");
		else
			*answer = in;
	}
	return true;
}

static void try_one(struct garbage *g, const char *what, const struct wire_header *h)
{
	struct wire_header ping = {.magic = WIRE_MAGIC,
	                           .version = WIRE_VERSION,
	                           .opcode = WIRE_PING,
	                           .request_id = PING_ID};
	struct wire_header answer = {0};

	ping.header_crc = crypto_crc32c(&ping, offsetof(struct wire_header, header_crc));
	g->tried++;
	g->send(g->arg, h);
	if (h->opcode != WIRE_BYE)
		g->send(g->arg, &ping);
	if (await(g, what, h, &answer))
		judge(g, what, h, &answer);
	else
		judge_end(g, what, h);
	g->asked.opcode = 0;
}

/* ---- all of them ---- */

/* What stands behind a message: nothing; of a WRITE its payload; or it is the DATA that such a one
 * without it was asked for. */
enum kind { ALONE, IN_CAPSULE, ASKED_FOR };

static const char *kind_to_str(enum kind kind)
{
	switch (kind) {
	case ALONE:
		break;
	case IN_CAPSULE:
		return " with its payload";
	case ASKED_FOR:
		return " that is asked for";
	}
	return "";
}

static void seal(struct wire_header *h)
{
	h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
}

static struct wire_header good(struct garbage *g, uint8_t op, enum kind kind)
{
	struct wire_header h = {.opcode = op,
	                        .handle = g->handle,
	                        .address = g->address,
	                        .length = LENGTH,
	                        .key = g->key,
	                        .generation = g->generation};

	if (op == WIRE_WINDOW && g->window.opcode)
		h = g->window;
	if (clears(&h))
		h.address = h.key = h.generation = 0;
	h.request_id = g->tried + 1000;
	if (kind == IN_CAPSULE) {
		h.flags = WIRE_F_INLINE;
		h.payload_len = h.length;
	} else if (kind == ASKED_FOR) {
		h = g->asked = g->invite(g->arg);
	}
	h.magic = WIRE_MAGIC;
	h.version = WIRE_VERSION;
	seal(&h);
	return h;
}

static void one_field(struct garbage *g, uint8_t op, enum kind kind, const struct field *f)
{
	const uint64_t values[] = {0,           1,
	                           2,           0x7f,
	                           0xfff,       0x8000,
	                           UINT16_MAX,  1u << 31,
	                           INT32_MAX,   UINT32_MAX,
	                           1ull << 32,  1ull << 63,
	                           INT64_MAX,   UINT64_MAX - 4095,
	                           UINT64_MAX,  g->other_handle,
	                           g->other_key};

	for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
		struct wire_header h;
		char what[128];

		if (f->size < 8 && values[v] >> (8 * f->size))
			continue;
		/* Another's number may be a good address. */
		if (v + 2 >= ARRAY_SIZE(values) && !strcmp(f->name, "address"))
			continue;
		h = good(g, op, kind);
		/* What is never right is tried with fewer. */
		if (v % 4 && !is_known(g, &h))
			continue;
		memcpy((uint8_t *)&h + f->offset, &values[v], f->size);
		if (strcmp(f->name, "header_crc"))
			seal(&h);
		snprintf(what, sizeof(what), "%s (%u)%s %s = %#llx", name_of(op), op,
		         kind_to_str(kind), f->name, (unsigned long long)values[v]);
		try_one(g, what, &h);
	}
}

static void walk(struct garbage *g, uint8_t op, enum kind kind, const char *field)
{
	struct wire_header h = good(g, op, kind);

	try_one(g, name_of(op), &h);
	for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
		if (!field || !strcmp(field, fields[f].name))
			one_field(g, op, kind, &fields[f]);
}

/* As long as it says it is. */
static void lengths_in_capsule(struct garbage *g)
{
	const uint32_t lengths[] = {
		0, 1, LENGTH - 1, g->inline_max, g->inline_max + 1, WIRE_IO_MAX, UINT32_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct wire_header h = good(g, WIRE_WRITE, IN_CAPSULE);
		char what[64];

		h.length = h.payload_len = lengths[i];
		seal(&h);
		snprintf(what, sizeof(what), "WRITE with %u bytes behind it", lengths[i]);
		try_one(g, what, &h);
	}
}

void garbage_walk_some(struct garbage *g, enum wire_opcode op, const char *field)
{
	walk(g, (uint8_t)op, ALONE, field);
	if (g->invite && op == WIRE_DATA)
		walk(g, (uint8_t)op, ASKED_FOR, field);
	if (!g->inline_max || op != WIRE_WRITE)
		return;
	walk(g, (uint8_t)op, IN_CAPSULE, field);
	if (!field)
		lengths_in_capsule(g);
}

void garbage_walk(struct garbage *g)
{
	for (unsigned op = 0; op < 256; op++) {
		struct wire_header h = good(g, (uint8_t)op, ALONE);

		if (op < ARRAY_SIZE(names) && names[op])
			garbage_walk_some(g, (enum wire_opcode)op, NULL);
		else
			try_one(g, "an opcode that nobody knows", &h);
	}
}
