/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One YAML document as a tree of scalars, mappings and lists with positions. The only face of
 * libyaml: bounds on depth, size and number of keys are kept here, and anchors, aliases, tags,
 * duplicate keys and characters that are not seen are refused here.
 */
#ifndef ROS2_POLICY_TREE_H
#define ROS2_POLICY_TREE_H

#include "policy/arena.h"
#include "policy/diags.h"

#define TREE_NODES_MAX 65536 /* values of one document */
#define TREE_KEYS_MAX  128   /* keys of one mapping: duplicates are looked for pairwise */

enum node_type {
	NODE_SCALAR,
	NODE_MAP,
	NODE_LIST,
};

struct node {
	enum node_type type;
	int line, col;
	const char *s; /* scalar: UTF-8, NUL-terminated, no NUL inside */
	size_t len;
	bool plain;                /* scalar without quotes */
	size_t n;                  /* children */
	struct node *first, *next; /* children; next sibling */
	const char *key;           /* under a mapping */
	int key_line, key_col;
};

/* An empty value, `~` or `null` without quotes. */
bool node_is_null(const struct node *n);
/* NULL when there is no such key. */
const struct node *node_get(const struct node *map, const char *key);

struct tree_reader;
int tree_reader_new(const struct policy_source *src, struct policy_diags *diags,
                    struct tree_reader **ret);
void tree_reader_free(struct tree_reader *r);

struct tree_doc {
	struct node *root;
	const char *text; /* borrowed from the source */
	size_t text_len;
	int line; /* of the text's first line */
};
/* The next document, its nodes in @a. 1; 0 at the end; -EINVAL when the source cannot be read
 * further (reported); -ENOMEM. A document with a refused construct is reported and still returned,
 * so that its other faults are found too. */
int tree_next(struct tree_reader *r, struct arena *a, struct tree_doc *ret);
#endif
