/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any protocol message as JSON, from its descriptor, so that the JSON is as stable as the protocol:
 * camelCase names, enums as lower-case words, uids and digests in hex.
 */
#include "common/crypto.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void *must(void *p)
{
	if (!p)
		exit(ctl_fail(CTL_FAILED, "out of memory"));
	return p;
}

/* What is left out of a list for want of memory would look as if it were not there. */
static void *json_memory(size_t n)
{
	return must(malloc(n));
}

void ctl_json_begin(void)
{
	json_set_alloc_funcs(json_memory, free);
}

static void camel(const char *snake, char *out, size_t max)
{
	size_t n = 0;

	for (const char *p = snake; *p && n + 1 < max; p++) {
		if (*p == '_' && p[1])
			out[n++] = (char)toupper((unsigned char)*++p);
		else
			out[n++] = *p;
	}
	out[n] = 0;
}

static json_t *text_value(const void *p, size_t n)
{
	json_t *v = json_stringn(n ? p : "", n); /* NULL when it is not UTF-8 */

	return v ? v : must(json_string("(not UTF-8)"));
}

static json_t *bytes_value(const ProtobufCFieldDescriptor *f, const ProtobufCBinaryData *b)
{
	AUTO_FREE char *hex = NULL;

	if (!strcmp(f->name, "yaml") || !strcmp(f->name, "note"))
		return text_value(b->data, b->len);
	hex = must(malloc(2 * b->len + 1));
	crypto_hex(b->data, b->len, hex);
	return must(json_string(hex));
}

/* RECEIPT_STATE_CONFIRMED of enum ReceiptState -> "confirmed": what follows the common prefix. */
static json_t *enum_value(const ProtobufCEnumDescriptor *d, int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);
	const ProtobufCEnumValue *first = &d->values[0];
	const char *tail = strstr(first->name, "UNSPECIFIED");
	size_t skip = tail ? (size_t)(tail - first->name) : 0;
	char word[64];
	size_t n = 0;

	if (!v)
		return must(json_integer(value));
	for (const char *p = v->name + MIN(skip, strlen(v->name)); *p && n + 1 < sizeof(word); p++)
		word[n++] = (char)tolower((unsigned char)*p);
	word[n] = 0;
	return must(json_string(word));
}

static json_t *scalar(const ProtobufCFieldDescriptor *f, const void *p, bool all)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return text_value(*(char *const *)p, strlen(*(char *const *)p));
	case PROTOBUF_C_TYPE_BYTES:
		return bytes_value(f, p);
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)p);
	case PROTOBUF_C_TYPE_ENUM:
		return enum_value(f->descriptor, *(const int *)p);
	case PROTOBUF_C_TYPE_MESSAGE:
		return ctl_json(*(ProtobufCMessage *const *)p, all);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return must(json_integer(*(const uint32_t *)p));
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
		return must(json_integer(*(const int32_t *)p));
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		/* What JSON readers cannot tell from a negative number is as good as the largest.
		 */
		return must(
			json_integer((json_int_t)MIN(*(const uint64_t *)p, (uint64_t)INT64_MAX)));
	default:
		return must(json_integer((json_int_t) * (const int64_t *)p));
	}
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return 4;
	default:
		return 8;
	}
}

static bool is_empty(const ProtobufCFieldDescriptor *f, const void *p)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return !*(char *const *)p || !**(char *const *)p;
	case PROTOBUF_C_TYPE_MESSAGE:
		return !*(void *const *)p;
	case PROTOBUF_C_TYPE_BYTES:
		return !((const ProtobufCBinaryData *)p)->len;
	case PROTOBUF_C_TYPE_BOOL:
		return !*(const protobuf_c_boolean *)p;
	default:
		return element_size(f) == 4 ? !*(const uint32_t *)p : !*(const uint64_t *)p;
	}
}

static json_t *repeated(const ProtobufCFieldDescriptor *f, const char *base, bool all)
{
	size_t n = *(const size_t *)(base + f->quantifier_offset), size = element_size(f);
	const char *v = *(char *const *)(base + f->offset);
	json_t *list = must(json_array());

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, scalar(f, v + i * size, all));
	return list;
}

json_t *ctl_json(const ProtobufCMessage *m, bool all)
{
	const char *base = (const char *)m;
	json_t *out = must(json_object());

	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		char name[64];

		camel(f->name, name, sizeof(name));
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			if (all || *(const size_t *)(base + f->quantifier_offset))
				json_object_set_new(out, name, repeated(f, base, all));
			continue;
		}
		if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
		    *(const uint32_t *)(base + f->quantifier_offset) != f->id)
			continue;
		if (is_empty(f, base + f->offset) && (!all || f->type == PROTOBUF_C_TYPE_MESSAGE))
			continue;
		json_object_set_new(out, name, scalar(f, base + f->offset, all));
	}
	return out;
}

json_t *ctl_json_kind(const char *kind, json_t *object)
{
	json_t *doc = must(json_object());

	json_object_set_new(doc, "apiVersion", must(json_string("ros2/v1")));
	json_object_set_new(doc, "kind", must(json_string(kind)));
	json_object_update(doc, object);
	json_decref(object);
	return doc;
}

json_t *ctl_json_list(const char *kind, json_t *items)
{
	json_t *doc = must(json_object());

	json_object_set_new(doc, "items", items);
	return ctl_json_kind(kind, doc);
}
