/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the parts of the parser: a schema is tables of fields, each with the function that reads
 * its value. Every function reports what is wrong and goes on, so that one run finds all faults.
 */
#ifndef ROS2_POLICY_PARSE_H
#define ROS2_POLICY_PARSE_H

#include "policy/arena.h"
#include "policy/diags.h"
#include "policy/tree.h"
#include "policy/units.h"

#define API_VERSION "ros2/v1"

struct parser {
	struct arena *arena; /* of the document being read */
	struct policy_diags *diags;
	const char *file;
	bool stored;    /* see policy_source */
	char path[160]; /* where we are: "spec.memory" */
};

struct field;
/* Reads @n into the field's place. */
typedef void parse_fn(struct parser *p, const struct node *n, const struct field *f, void *out);

struct field {
	const char *key;
	enum {
		FIELD_REQUIRED = 1,
		FIELD_NOT_ENFORCED = 2, /* known to the schema, refused by this version */
	} flags;
	parse_fn *parse;
	size_t offset; /* of the value in the struct the table is for */
	const void *arg;
};
struct field_table {
	const struct field *v;
	size_t n;
};
#define FIELD_TABLE(a) (&(const struct field_table){a, ARRAY_SIZE(a)})

/* "path: words" at the node, or at the key when @n is a mapping's value that has none. */
void parse_error(struct parser *p, const struct node *n, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void parse_warning(struct parser *p, const struct node *n, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "path: expected @expected, found ..." */
void parse_expected(struct parser *p, const struct node *n, const char *expected);
/* "path: expected @expected, found `x`, did you mean `y`?" */
void parse_expected_word(struct parser *p, const struct node *n, const char *expected,
                         const char *const *words, size_t n_words);

/* Longer path; give the returned value back to path_pop. */
size_t path_push(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void path_pop(struct parser *p, size_t saved);

/* A mapping by its table: unknown, refused and missing keys are reported, the others parsed into
 * @out. False when
 * @n is no mapping. */
bool parse_fields(struct parser *p, const struct node *n, const struct field_table *t, void *out);
/* A list of 1..@max or 0..@max items, each read by @fn into a zeroed element. NULL, reported, when
 * it is none. */
void *parse_list(struct parser *p, const struct node *n, size_t min, size_t max, size_t size,
                 parse_fn *fn, size_t *ret_n);

/* Text of a scalar that is not null; NULL when it was something else (reported). */
const char *parse_text(struct parser *p, const struct node *n, const char *expected);

parse_fn parse_section;   /* arg: struct field_table; the section's struct is at the offset */
parse_fn parse_limit;     /* arg: struct limit_field of limit_fields; out: struct policy_limits */
parse_fn parse_name;      /* const char *: an RFC 1123 label */
parse_fn parse_bool;      /* bool */
parse_fn parse_access;    /* uint32_t: r, w, rw */
parse_fn parse_rw_list;   /* uint32_t: [read, write] */
parse_fn parse_word;      /* unsigned: its place, from 1, in arg: struct word_list */
parse_fn parse_only_word; /* arg: the one word that is enforced; others of the schema are not */
/* Words of a choice; they stand for 1, 2, ... */
struct word_list {
	const char *expected; /* "tcp or rdma" */
	const char *const *words;
	size_t n;
};
/* A quantity within bounds into *ret; false when it is none (reported). */
bool parse_quantity(struct parser *p, const struct node *n, enum unit_kind unit, uint64_t min,
                    uint64_t max, uint64_t *ret);
/* Labels, sorted by key. NULL with *ret_n 0 when there are none or they are wrong (reported). */
const struct policy_label *parse_labels(struct parser *p, const struct node *n, size_t *ret_n);

/* Specs; @n is the spec node. Never NULL except without memory; faults are reported. */
const struct policy_tenant_spec *parse_tenant(struct parser *p, const struct node *n);
const struct policy_engine_spec *parse_engine(struct parser *p, const struct node *n);
/* An engine of type nvmf: its keys below spec are read into the draft, which begins with _init;
 * _finish, when all are read, says how they fit each other. */
struct nvmf_draft {
	struct policy_nvmf v;
	const struct policy_place *volumes_at;
};
extern const struct field_table nvmf_fields;
void nvmf_draft_init(struct nvmf_draft *d);
void nvmf_draft_finish(struct parser *p, const struct node *n, struct nvmf_draft *d);
void parse_agent(struct parser *p, const struct node *n); /* nothing in it is enforced yet */

/* The canonical text of a finished document, in @a; NULL without memory. */
const char *canonical_text(struct arena *a, const struct policy_doc *d);

/* A document with its own memory and one reference. */
struct policy_doc_box {
	struct policy_doc doc; /* first: handed out as const struct policy_doc * */
	struct arena arena;
	unsigned refs; /* atomic */
};
#endif
