/* SPDX-License-Identifier: Apache-2.0 */
/* See payloads.h. Encoded by hand: protobuf-c would not write what is wrong. */
#include "tests/hostile/payloads.h"
#include "common/util.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 5
#define MIB       (1u << 20)

void bytes_add(struct bytes *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		b->cap = (b->len + n) * 2 + 64;
		b->p = realloc(b->p, b->cap);
		if (!b->p)
			abort();
	}
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
}

void bytes_varint(struct bytes *b, uint64_t v)
{
	do {
		uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

		bytes_add(b, &byte, 1);
		v >>= 7;
	} while (v);
}

void bytes_field(struct bytes *b, unsigned id, const void *p, size_t n)
{
	bytes_varint(b, (uint64_t)id << 3 | 2);
	bytes_varint(b, n);
	bytes_add(b, p, n);
}

void bytes_number(struct bytes *b, unsigned id, uint64_t v)
{
	bytes_varint(b, (uint64_t)id << 3);
	bytes_varint(b, v);
}

void bytes_fini(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){0};
}

static bool is_number(const ProtobufCFieldDescriptor *f)
{
	return f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_BYTES &&
	       f->type != PROTOBUF_C_TYPE_MESSAGE;
}

static const struct known_value *known_of(const struct payload_opts *o, const char *field)
{
	for (const struct known_value *k = o->known; k && k->field; k++)
		if (!strcmp(k->field, field))
			return k;
	return NULL;
}

static bool in_oneof(const ProtobufCFieldDescriptor *f)
{
	return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

static bool is_one_message(const ProtobufCFieldDescriptor *f)
{
	return f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED;
}

/* @follows: the field that is going to be behind it, or NULL: a message does not come twice. */
static void base_of(const ProtobufCMessageDescriptor *d, const struct payload_opts *o, int depth,
                    const ProtobufCFieldDescriptor *follows, struct bytes *b)
{
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		const struct known_value *k = known_of(o, f->name);

		if (f == follows && is_one_message(f))
			continue;
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth < DEPTH_MAX && !in_oneof(f)) {
			struct bytes sub = {0};

			base_of(f->descriptor, o, depth + 1, NULL, &sub);
			if (sub.len)
				bytes_field(b, f->id, sub.p, sub.len);
			bytes_fini(&sub);
		} else if (k && is_number(f) && !k->data) {
			bytes_number(b, f->id, k->number);
		} else if (k && k->data && !is_number(f)) {
			bytes_field(b, f->id, k->data, k->len);
		}
	}
}

void payload_base(const ProtobufCMessageDescriptor *d, const struct payload_opts *o,
                  struct bytes *b)
{
	base_of(d, o, 0, NULL, b);
}

/* ---- one bad field ---- */

/* Where we are: the fields that lead from the message to the one at hand. */
struct place {
	const ProtobufCMessageDescriptor *top;
	const ProtobufCFieldDescriptor *path[DEPTH_MAX + 1];
	int n;
	const struct payload_opts *o;
	payload_fn fn;
	void *arg;
};

/* The base, then @inner wrapped in the path; the base of each message of the path with it. */
static void give(struct place *at, const char *how, const struct bytes *inner)
{
	struct bytes now = {0}, out = {0};
	char what[256] = "";
	size_t n = 0;

	bytes_add(&now, inner->p, inner->len);
	for (int i = at->n - 2; i >= 0; i--) {
		struct bytes up = {0};

		base_of(at->path[i]->descriptor, at->o, i + 1, at->path[i + 1], &up);
		bytes_add(&up, now.p, now.len);
		bytes_fini(&now);
		bytes_field(&now, at->path[i]->id, up.p, up.len);
		bytes_fini(&up);
	}
	base_of(at->top, at->o, 0, at->path[0], &out);
	bytes_add(&out, now.p, now.len);
	for (int i = 0; i < at->n && n < sizeof(what) - 1; i++)
		n += (size_t)snprintf(what + n, sizeof(what) - n, "%s%s", i ? "." : "",
		                      at->path[i]->name);
	snprintf(what + MIN(n, sizeof(what) - 64), 64, " = %s", how);
	at->fn(at->arg, what, out.p, out.len);
	bytes_fini(&now);
	bytes_fini(&out);
}

static void give_number(struct place *at, const char *how, uint64_t v)
{
	struct bytes b = {0};

	bytes_number(&b, at->path[at->n - 1]->id, v);
	give(at, how, &b);
	bytes_fini(&b);
}

static void give_data(struct place *at, const char *how, const void *p, size_t n)
{
	struct bytes b = {0};

	bytes_field(&b, at->path[at->n - 1]->id, p, n);
	give(at, how, &b);
	bytes_fini(&b);
}

static void numbers(struct place *at)
{
	const struct known_value *k = known_of(at->o, at->path[at->n - 1]->name);

	give_number(at, "0", 0);
	give_number(at, "1", 1);
	give_number(at, "2^31", 1ull << 31);
	give_number(at, "2^32-1", UINT32_MAX);
	give_number(at, "2^63", 1ull << 63);
	give_number(at, "2^63-1", INT64_MAX);
	give_number(at, "max", UINT64_MAX);
	if (k && !k->data)
		give_number(at, "another tenant's", k->foreign_number);
	give_data(at, "bytes where a number belongs", "abc", 3);
}

static void datas(struct place *at)
{
	const struct known_value *k = known_of(at->o, at->path[at->n - 1]->name);
	AUTO_FREE char *big = malloc(MIB);
	uint8_t uid[17];

	if (!big)
		abort();
	memset(big, 'a', MIB);
	memset(uid, 0x5a, sizeof(uid));
	give_data(at, "empty", "", 0);
	give_data(at, "256 characters", big, 256);
	give_data(at, "1 MiB", big, MIB);
	give_data(at, "invalid UTF-8", "a\xff\xfe\xc0\x80z", 6);
	give_data(at, "a surrogate", "\xed\xa0\x80", 3);
	give_data(at, "with a NUL", "a\0b", 3);
	give_data(at, "../../..", "../../..", 8);
	give_data(at, "%s%n, quotes and a newline", "%s%n\"'\n\r\x1b[2J", 13);
	give_data(at, "15 bytes", uid, 15);
	give_data(at, "17 bytes", uid, 17);
	give_data(at, "16 unknown bytes", uid, 16);
	if (k && k->foreign_data)
		give_data(at, "another tenant's", k->foreign_data, k->foreign_len);
	give_number(at, "a number where bytes belong", 7);
}

static void fields_of(struct place *at, const ProtobufCMessageDescriptor *d);

static void field(struct place *at, const ProtobufCFieldDescriptor *f)
{
	at->path[at->n++] = f;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		give_data(at, "an empty message", "", 0);
		give_data(at, "broken", "\x0a\xff\xff", 3);
		if (at->n < DEPTH_MAX)
			fields_of(at, f->descriptor);
	} else if (is_number(f)) {
		numbers(at);
	} else {
		datas(at);
	}
	if (is_one_message(f)) {
		struct bytes twice = {0};

		bytes_field(&twice, f->id, "", 0);
		bytes_field(&twice, f->id, "", 0);
		give(at, "twice", &twice);
		bytes_fini(&twice);
	}
	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		struct bytes many = {0};

		for (int i = 0; i < 20000; i++)
			bytes_field(&many, f->id, "", 0);
		give(at, "20,000 times", &many);
		bytes_fini(&many);
	}
	at->n--;
}

static void fields_of(struct place *at, const ProtobufCMessageDescriptor *d)
{
	for (unsigned i = 0; i < d->n_fields; i++)
		field(at, &d->fields[i]);
}

/* ---- the whole message ---- */

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void random_bytes(const struct payload_opts *o, payload_fn fn, void *arg)
{
	uint64_t s = o->seed | 1;
	uint8_t noise[512];
	char what[64];

	for (int i = 0; i < 16; i++) {
		size_t n = 1 + next_random(&s) % sizeof(noise);

		for (size_t k = 0; k < n; k++)
			noise[k] = (uint8_t)next_random(&s);
		snprintf(what, sizeof(what), "random %d of seed %llu", i,
		         (unsigned long long)o->seed);
		fn(arg, what, noise, n);
	}
}

static void deep(payload_fn fn, void *arg)
{
	struct bytes b = {0};

	for (int i = 0; i < 3000; i++) {
		struct bytes up = {0};

		bytes_field(&up, 1, b.p, b.len);
		bytes_fini(&b);
		b = up;
	}
	fn(arg, "3,000 deep in field 1", b.p, b.len);
	bytes_fini(&b);
	for (int i = 0; i < 20000; i++) /* groups: start, start, start ... */
		bytes_varint(&b, 1 << 3 | 3);
	fn(arg, "20,000 groups that do not end", b.p, b.len);
	bytes_fini(&b);
}

static void large(const struct payload_opts *o, payload_fn fn, void *arg)
{
	struct bytes b = {0};
	uint8_t *zero = calloc(1, o->too_large);

	if (!zero)
		abort();
	bytes_field(&b, 1000, zero, o->too_large);
	fn(arg, "too large", b.p, b.len);
	bytes_fini(&b);
	for (int i = 0; i < 60000; i++)
		bytes_number(&b, 1000 + (unsigned)i % 1000, 1);
	fn(arg, "60,000 unknown fields", b.p, b.len);
	bytes_fini(&b);
	bytes_add(&b, "\x0a\xff\xff\xff\xff\x0f", 6);
	fn(arg, "a length of 4 GiB", b.p, b.len);
	bytes_fini(&b);
	free(zero);
}

void payloads_each(const ProtobufCMessageDescriptor *d, const struct payload_opts *o, payload_fn fn,
                   void *arg)
{
	struct place at = {.top = d, .o = o, .fn = fn, .arg = arg};
	struct bytes base = {0};

	fn(arg, "empty", "", 0);
	payload_base(d, o, &base);
	for (size_t n = 1; n < base.len; n += 1 + base.len / 12)
		fn(arg, "truncated", base.p, n);
	random_bytes(o, fn, arg);
	deep(fn, arg);
	large(o, fn, arg);
	fields_of(&at, d);
	fn(arg, "nothing but good values", base.p ? base.p : (const uint8_t *)"", base.len);
	bytes_fini(&base);
}
