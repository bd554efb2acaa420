/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile payloads for a message type, made from its descriptor: one by one, each with a name. They
 * stand on a base in which every field that has a known good value holds it, so that the one bad
 * field is what is looked at (a later value of a field wins over an earlier one).
 */
#ifndef ROS2_TESTS_HOSTILE_PAYLOADS_H
#define ROS2_TESTS_HOSTILE_PAYLOADS_H

#include "proto/rpc/rpc.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
	uint8_t *p; /* owned */
	size_t len, cap;
};
void bytes_add(struct bytes *b, const void *p, size_t n);
void bytes_varint(struct bytes *b, uint64_t v);
void bytes_field(struct bytes *b, unsigned id, const void *p, size_t n); /* length-delimited */
void bytes_number(struct bytes *b, unsigned id, uint64_t v);
void bytes_fini(struct bytes *b);

/* A field by its name, anywhere: a good value for the base, and one of another tenant's. */
struct known_value {
	const char *field;
	uint64_t number, foreign_number;
	const void *data, *foreign_data; /* for strings and bytes; NULL: a number */
	size_t len, foreign_len;
};

struct payload_opts {
	const struct known_value *known; /* ended by field NULL */
	size_t too_large;                /* more than the listener takes in one message */
	uint64_t seed;
};

typedef void (*payload_fn)(void *arg, const char *what, const void *p, size_t n);

/* Message @d with all known values. */
void payload_base(const ProtobufCMessageDescriptor *d, const struct payload_opts *o,
                  struct bytes *b);
/* Every payload in turn, the good one last; @p is valid during the callback. */
void payloads_each(const ProtobufCMessageDescriptor *d, const struct payload_opts *o, payload_fn fn,
                   void *arg);
#endif
