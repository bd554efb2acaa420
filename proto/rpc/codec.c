/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from bytes. protobuf-c limits neither depth nor memory and takes any bytes as a string,
 * so every message is first walked by rpc_message_check with its descriptor: bounded depth, bounded
 * decoded size (a two-byte empty submessage costs a hundred bytes of memory), UTF-8 without NUL.
 * Only then is it unpacked, into one arena.
 *
 * A submessage that is no list's comes once. Of one that comes again protobuf-c makes one with that
 * before, as the format has it, and copies all lists of both each time: a message of 1 MiB would
 * take 13 GB. No encoder of ours, nor any that is known, writes such.
 */
#include "proto/rpc/rpc_priv.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WIRE_VARINT  0
#define WIRE_FIXED64 1
#define WIRE_LEN     2
#define WIRE_FIXED32 5

/* About what protobuf-c keeps per occurrence of a field while it unpacks, and per unknown field for
 * good. */
#define COST_FIELD   24
#define COST_UNKNOWN 64
/* Memory per byte of encoding: the densest honest message (a list of small objects) takes about
 * ten. */
#define COST_FACTOR 24

struct walk {
	size_t cost, cost_max; /* bytes of memory the decoded message takes, about */
	struct ros2_err *err;
};

struct cursor {
	const uint8_t *p, *end;
	uint64_t seen; /* submessages that came, by their fields' places in the descriptor */
};
#define SEEN_FIELDS 64

/* protobuf-c reads tags and lengths from at most this many bytes. */
#define PREFIX_BYTES_MAX 5
#define VARINT_BYTES_MAX 10

static int varint_upto(struct cursor *c, int bytes_max, uint64_t *ret)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 7 * bytes_max; shift += 7) {
		if (c->p == c->end)
			return -EBADMSG;
		uint8_t b = *c->p++;

		if (shift == 63 && b > 1)
			return -EBADMSG;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

static int varint(struct cursor *c, uint64_t *ret)
{
	return varint_upto(c, VARINT_BYTES_MAX, ret);
}

static int prefix(struct cursor *c, uint64_t *ret)
{
	return varint_upto(c, PREFIX_BYTES_MAX, ret);
}

/* RFC 3629; no surrogates, no overlong forms, no NUL. */
static bool utf8_text(const uint8_t *p, size_t n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

	for (size_t i = 0; i < n;) {
		uint8_t b = p[i];
		size_t len = b < 0x80 ? 1 : (b & 0xe0) == 0xc0 ? 2 : (b & 0xf0) == 0xe0 ? 3 : 4;
		uint32_t cp = len == 1 ? b : b & (0x7fu >> len);

		if (!b || (len == 4 && (b & 0xf8) != 0xf0) || n - i < len)
			return false;
		for (size_t k = 1; k < len; k++) {
			if ((p[i + k] & 0xc0) != 0x80)
				return false;
			cp = cp << 6 | (p[i + k] & 0x3f);
		}
		if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
			return false;
		i += len;
	}
	return true;
}

static int bad(struct walk *w, const ProtobufCMessageDescriptor *d, const char *field,
               const char *why)
{
	return ros2_err_set(w->err, -EBADMSG, "%s%s%s: %s", d->name, field ? "." : "",
	                    field ? field : "", why);
}

static unsigned wire_type_of(ProtobufCType t)
{
	switch (t) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return WIRE_LEN;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return WIRE_FIXED32;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return WIRE_FIXED64;
	default:
		return WIRE_VARINT;
	}
}

static int skip_scalar(struct cursor *c, unsigned wire)
{
	uint64_t v;
	size_t n = wire == WIRE_FIXED64 ? 8 : 4;

	if (wire == WIRE_VARINT)
		return varint(c, &v);
	if ((size_t)(c->end - c->p) < n)
		return -EBADMSG;
	c->p += n;
	return 0;
}

static int check_packed(struct walk *w, const ProtobufCMessageDescriptor *d,
                        const ProtobufCFieldDescriptor *f, struct cursor body)
{
	while (body.p < body.end) {
		if (skip_scalar(&body, wire_type_of(f->type)))
			return bad(w, d, f->name, "malformed packed values");
		w->cost += 8;
	}
	return 0;
}

static int check_message(struct walk *w, const ProtobufCMessageDescriptor *d, struct cursor c,
                         unsigned depth);

static bool comes_again(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f,
                        struct cursor *c)
{
	uint64_t bit;
	bool again;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return false;
	assert(d->n_fields <= SEEN_FIELDS);
	bit = (uint64_t)1 << (f - d->fields);
	again = c->seen & bit;
	c->seen |= bit;
	return again;
}

static int check_len_field(struct walk *w, const ProtobufCMessageDescriptor *d,
                           const ProtobufCFieldDescriptor *f, struct cursor *c, unsigned depth)
{
	struct cursor body;
	uint64_t n;

	if (prefix(c, &n) || n > (size_t)(c->end - c->p))
		return bad(w, d, f ? f->name : NULL, "longer than the message");
	body = (struct cursor){.p = c->p, .end = c->p + n};
	c->p += n;
	if (!f) {
		w->cost += n;
		return 0;
	}
	if (f->type == PROTOBUF_C_TYPE_MESSAGE && comes_again(d, f, c))
		return bad(w, d, f->name, "expected once at most, comes again");
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return check_message(w, (const ProtobufCMessageDescriptor *)f->descriptor, body,
		                     depth + 1);
	if (wire_type_of(f->type) != WIRE_LEN)
		return check_packed(w, d, f, body);
	if (f->type == PROTOBUF_C_TYPE_STRING && !utf8_text(body.p, n))
		return bad(w, d, f->name, "expected UTF-8 text without NUL");
	w->cost += n + 16;
	return 0;
}

static int check_field(struct walk *w, const ProtobufCMessageDescriptor *d, struct cursor *c,
                       unsigned depth)
{
	const ProtobufCFieldDescriptor *f;
	unsigned wire;
	uint64_t key;

	if (prefix(c, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
		return bad(w, d, NULL, "malformed field number");
	wire = key & 7;
	f = protobuf_c_message_descriptor_get_field(d, (unsigned)(key >> 3));
	w->cost += f ? COST_FIELD : COST_UNKNOWN;
	if (w->cost > w->cost_max)
		return bad(w, d, NULL, "decodes to more than is accepted");
	if (f && wire != wire_type_of(f->type) &&
	    !(wire == WIRE_LEN && f->label == PROTOBUF_C_LABEL_REPEATED))
		return bad(w, d, f->name, "has another type on the wire");
	switch (wire) {
	case WIRE_LEN:
		return check_len_field(w, d, f, c, depth);
	case WIRE_VARINT:
	case WIRE_FIXED32:
	case WIRE_FIXED64:
		if (skip_scalar(c, wire))
			return bad(w, d, f ? f->name : NULL, "cut short or malformed");
		return 0;
	default:
		return bad(w, d, NULL, "groups are not accepted");
	}
}

static int check_message(struct walk *w, const ProtobufCMessageDescriptor *d, struct cursor c,
                         unsigned depth)
{
	int rc = 0;

	if (depth > RPC_DEPTH_MAX)
		return bad(w, d, NULL, "nested too deep");
	w->cost += d->sizeof_message + 16;
	while (c.p < c.end && !rc)
		rc = check_field(w, d, &c, depth);
	if (!rc && w->cost > w->cost_max)
		rc = bad(w, d, NULL, "decodes to more than is accepted");
	return rc;
}

static int check_cost(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n,
                      size_t *ret_cost, struct ros2_err *err)
{
	struct walk w = {.cost_max = COST_FACTOR * n + 65536, .err = err};
	struct cursor c = {.p = bytes, .end = (const uint8_t *)bytes + n};
	int rc = check_message(&w, d, c, 1);

	*ret_cost = w.cost;
	return rc;
}

int rpc_message_check(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n,
                      struct ros2_err *err)
{
	size_t cost;

	return check_cost(d, bytes ? bytes : "", n, &cost, err);
}

/* That nothing came of the bytes does not say whether it was for them or for want of memory. */
static void *heap_alloc(void *no_memory, size_t n)
{
	void *p = malloc(n);

	if (!p)
		*(bool *)no_memory = true;
	return p;
}

static void heap_free(void *unused, void *p)
{
	free(p);
}

int rpc_message_decode(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n,
                       ProtobufCMessage **ret, struct ros2_err *err)
{
	bool no_memory = false;
	ProtobufCAllocator alloc = {
		.alloc = heap_alloc, .free = heap_free, .allocator_data = &no_memory};
	ProtobufCMessage *m;
	int rc = rpc_message_check(d, bytes, n, err);

	if (rc)
		return rc;
	m = protobuf_c_message_unpack(d, &alloc, n, bytes ? bytes : (const void *)"");
	if (!m)
		return no_memory ? ros2_err_set(err, -ENOMEM, "no memory for a message")
		                 : ros2_err_set(err, -EBADMSG, "%s: does not decode", d->name);
	*ret = m;
	return 0;
}

/* ---- arena: all of one message, freed at once ---- */

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, size;
	_Alignas(max_align_t) uint8_t bytes[];
};

struct rpc_arena {
	struct arena_chunk *chunks;
	size_t chunk_size;
	bool no_memory;
};

static void *arena_alloc(void *data, size_t n)
{
	struct rpc_arena *a = data;
	struct arena_chunk *c = a->chunks;
	size_t size;

	n = (n + 15) & ~(size_t)15;
	if (!c || c->size - c->used < n) {
		size = MAX(a->chunk_size, n);
		c = malloc(sizeof(*c) + size);
		if (!c) {
			a->no_memory = true;
			return NULL;
		}
		*c = (struct arena_chunk){.next = a->chunks, .size = size};
		a->chunks = c;
	}
	c->used += n;
	return c->bytes + c->used - n;
}

static void arena_free(void *data, void *p)
{
}

static void arena_drop(struct rpc_arena *a)
{
	for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(a);
}

/* ---- decoded messages as the layer hands them about ---- */

void rpc_msg_free(struct rpc_msg *m)
{
	if (m->arena)
		arena_drop(m->arena);
	else if (m->msg)
		protobuf_c_message_free_unpacked(m->msg, NULL);
	*m = (struct rpc_msg){0};
}

static int decode_arena(const ProtobufCMessageDescriptor *d, const void *p, size_t n,
                        struct rpc_msg *ret, struct ros2_err *err)
{
	struct rpc_arena *a = calloc(1, sizeof(*a));
	ProtobufCAllocator alloc = {.alloc = arena_alloc, .free = arena_free, .allocator_data = a};
	size_t cost;
	int rc;

	if (!a)
		return ros2_err_set(err, -ENOMEM, "no memory for a message");
	rc = check_cost(d, p, n, &cost, err);
	a->chunk_size = MIN(cost + 256, (size_t)65536);
	if (!rc) {
		ret->msg = protobuf_c_message_unpack(d, &alloc, n, p);
		if (!ret->msg)
			rc = a->no_memory
			             ? ros2_err_named(err, ROS2_BUSY, "no memory for a message")
			             : ros2_err_set(err, -EBADMSG, "%s: does not decode", d->name);
	}
	if (rc)
		arena_drop(a);
	else
		*ret = (struct rpc_msg){.msg = ret->msg, .arena = a, .cost = cost};
	return rc;
}

int rpc_msg_decode(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *bb, size_t max, bool heap,
                   struct rpc_msg *ret, struct ros2_err *err)
{
	size_t n = grpc_byte_buffer_length(bb);
	grpc_byte_buffer_reader reader;
	grpc_slice all;
	int rc;

	*ret = (struct rpc_msg){0};
	if (n > max)
		return ros2_err_named(err, ROS2_TOO_LARGE,
		                      "%s: %zu bytes, at most %zu (fixed) are accepted", d->name, n,
		                      max);
	/* Decompression is switched off: a few compressed bytes could stand for any amount of
	 * memory. */
	if (bb->data.raw.compression != GRPC_COMPRESS_NONE ||
	    !grpc_byte_buffer_reader_init(&reader, bb))
		return ros2_err_named(err, ROS2_INVALID, "%s: compressed messages are not accepted",
		                      d->name);
	all = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	if (heap)
		rc = rpc_message_decode(d, GRPC_SLICE_START_PTR(all), n, &ret->msg, err);
	else
		rc = decode_arena(d, GRPC_SLICE_START_PTR(all), n, ret, err);
	grpc_slice_unref(all);
	/* Whatever is wrong with the bytes is the sender's fault: INVALID, not CORRUPT. */
	if (rc == -EBADMSG && err)
		err->status = ROS2_INVALID;
	return rc;
}

int rpc_msg_encode(const ProtobufCMessageDescriptor *d, const ProtobufCMessage *m, size_t max,
                   grpc_byte_buffer **ret)
{
	grpc_slice slice;
	size_t n;

	if (!m || m->descriptor != d)
		return -EINVAL;
	n = protobuf_c_message_get_packed_size(m);
	if (n > max)
		return -EMSGSIZE;
	slice = grpc_slice_malloc(n);
	protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(slice));
	*ret = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_slice_unref(slice);
	return 0;
}
