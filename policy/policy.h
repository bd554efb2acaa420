/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy documents as people write them: YAML text -> parse -> check -> compile -> image
 * (policy/image.h). Pure: no files, no clock, no network; the caller brings the text. All faults
 * are reported at once, each as file:line:col and what was expected, what was found, did you mean.
 * A field this version does not enforce is an error, never decoration. Every field is told in
 * docs/policy.md.
 */
#ifndef ROS2_POLICY_POLICY_H
#define ROS2_POLICY_POLICY_H

#include "policy/image.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POLICY_SOURCE_MAX    (1024u * 1024u) /* one source text, bytes */
#define POLICY_FILE_NAME_MAX 4096            /* of a source, bytes */
#define POLICY_SOURCES_MAX   1024
#define POLICY_DOCUMENTS_MAX 4096 /* documents of one parse */
#define POLICY_DIAGS_MAX     100  /* kept, errors before warnings; more are only counted */
#define POLICY_DEPTH_MAX     16   /* nesting of one document */

/* ---- diagnostics ---- */

enum policy_severity {
	POLICY_WARNING = 1,
	POLICY_ERROR = 2,
};
const char *policy_severity_to_str(enum policy_severity s); /* "warning", "error" */

struct policy_diag {
	char file[256];
	int line, col; /* from 1; 0 = the file as a whole */
	enum policy_severity severity;
	char msg[640]; /* one printable line of UTF-8 */
};

/* Begins as POLICY_DIAGS_INIT, ends with policy_diags_fini; the same one may be handed to parse and
 * check. */
struct policy_diags {
	struct policy_diag
		*v; /* owned, n entries in order of file, line, column within each call */
	size_t n;
	size_t errors, warnings; /* counted, kept or not */
	size_t fresh;            /* private: where the entries of the running call begin */
};
#define POLICY_DIAGS_INIT                                                                          \
	{                                                                                          \
		0                                                                                  \
	}
void policy_diags_fini(struct policy_diags *d);
/* "file:line:col: error: msg", cut to fit, always terminated. Returns the length written. */
size_t policy_diag_format(const struct policy_diag *d, char *out, size_t max);
/* The first error, past any warnings; NULL only when @d counts none (or there was no memory). */
const struct policy_diag *policy_diags_first_error(const struct policy_diags *d);
/* All lines, each ended by '\n', and one more saying how many were not kept. malloc'd; NULL without
 * memory. */
char *policy_diags_to_str(const struct policy_diags *d);

/* ---- documents ---- */

struct policy_path_rule {
	const char *pattern;
	uint32_t access;
	int line, col;
};

struct policy_namespace_spec {
	const char *name, *engine, *path;
	uint32_t access;
	bool shared;
	const struct policy_path_rule *rules;
	size_t n_rules;
	int line, col;
};

struct policy_string {
	const char *s;
	int line, col;
};

struct policy_tenant_spec {
	const struct policy_string *principals;
	size_t n_principals;
	const struct policy_string *agents; /* placement.agents */
	size_t n_agents;
	const struct policy_label *selector; /* placement.selector */
	size_t n_selector;
	uint32_t require; /* placement.require: a set of properties, common/probe.h */
	const struct policy_namespace_spec *namespaces;
	size_t n_namespaces;
	struct policy_limits limits;
};

struct policy_place {
	int line, col;
};

struct policy_engine_spec {
	enum policy_engine_type type;
	const char *root;                      /* file; else "" */
	uint64_t size_bytes;                   /* mem */
	bool null_mode;                        /* mem */
	const struct policy_nvmf *nvmf;        /* nvmf; else NULL */
	const struct policy_place *volumes_at; /* where each of its volumes stands */
};

/* One document, immutable. Everything in it is borrowed from it. */
struct policy_doc {
	enum policy_kind kind;
	const char *name;
	const struct policy_label *labels; /* sorted by key */
	size_t n_labels;
	const char *file; /* the source's name */
	int line;         /* where the document begins in it */
	int name_line, name_col;
	const char *text; /* as written, comments included, without '---'; ends with '\n'. Parses by
	                   * itself (hand @line as first_line to get the same positions) */
	const char *canonical; /* the same policy in fixed order, with defaults and plain units:
	                        * equal canonical text = equal policy. Parses by itself. */
	const struct policy_tenant_spec *tenant; /* of a Tenant, else NULL */
	const struct policy_engine_spec *engine; /* of an Engine, else NULL */
};

/* Documents live as long as a reference does (a set holds one each). The counter is atomic; the
 * rest never changes. */
const struct policy_doc *policy_doc_ref(const struct policy_doc *d);
void policy_doc_unref(const struct policy_doc *d); /* takes NULL */

/* ---- sets ---- */

struct policy_set; /* owned by one thread at a time */
int policy_set_new(struct policy_set **ret);
void policy_set_free(struct policy_set *s); /* takes NULL */
size_t policy_set_count(const struct policy_set *s);
const struct policy_doc *policy_set_at(const struct policy_set *s,
                                       size_t i); /* NULL past the end */
/* The first of that kind and name, or NULL. */
const struct policy_doc *policy_set_find(const struct policy_set *s, enum policy_kind kind,
                                         const char *name);
/* Takes a reference; a document of the same kind and name is replaced in its place. 0 or -ENOMEM.
 * For the controller: stored set, then put every applied document, then policy_check. */
int policy_set_put(struct policy_set *s, const struct policy_doc *d);
int policy_set_remove(struct policy_set *s, enum policy_kind kind, const char *name); /* -ENOENT */

/* ---- parse, check, compile ---- */

struct policy_source {
	const char *name; /* for diagnostics: a file name, "-" */
	const char *text; /* @len bytes, any bytes */
	size_t len;
	int first_line; /* line number of the text's first line; 0 means 1 */
	bool stored;    /* was accepted before: how it is written is not judged again */
};

/* All documents of all sources, in order. 0: *ret is a new set and there are no errors (maybe
 * warnings). -EINVAL: @diags says everything that is wrong, no set. -ENOMEM. Every bound of this
 * header is enforced here; anchors, aliases, tags, duplicate keys and a second document of the same
 * kind and name are errors. */
int policy_parse(const struct policy_source *sources, size_t n, struct policy_set **ret,
                 struct policy_diags *diags);

/* Across documents: engines that namespaces name exist; two namespaces on one engine whose paths
 * overlap both say `shared: true`; a principal belongs to one tenant; two file engines have
 * disjoint roots; volumes of two nvmf engines do not overlap. Agents named in a placement that do
 * not exist, and namespaces on an nvmf engine without a volume, are warnings. 0, -EINVAL (new
 * errors in @diags) or -ENOMEM. */
int policy_check(const struct policy_set *s, struct policy_diags *diags);

/* The image of one object: the same document, uid and version give the same bytes, wherever and
 * whenever. -ENOENT: no such document. *ret is malloc'd, the caller frees. Compile only what passed
 * policy_check. */
int policy_compile_tenant(const struct policy_set *s, const char *name, const struct ros2_uid *uid,
                          uint64_t version, void **ret, size_t *ret_len, struct ros2_err *err);
int policy_compile_engine(const struct policy_set *s, const char *name, const struct ros2_uid *uid,
                          uint64_t version, void **ret, size_t *ret_len, struct ros2_err *err);
/* Of one document that the caller holds; -EINVAL for an Agent document, which has no image. */
int policy_compile_doc(const struct policy_doc *d, const struct ros2_uid *uid, uint64_t version,
                       void **ret, size_t *ret_len, struct ros2_err *err);

/* policy_placed() on documents: @tenant a Tenant document, @agent an Agent document. */
bool policy_doc_placed(const struct policy_doc *tenant, const struct policy_doc *agent);

/* ---- explain ---- */

struct policy_explanation {
	struct policy_verdict verdict;
	const char *file; /* borrowed from the document */
	int line, col;    /* of the rule, else of the namespace, else of the document */
	char text[512];   /* one printable line: "denied: alpha.yaml:12:11: rule 0 `/secret` of
	                   * namespace `data` gives none, r was asked for" */
};
/* What policy_eval_path answers for this Tenant document, and which line of which file says so.
 * -ENOENT when there is no such namespace (the text says so, with the names there are). */
int policy_explain(const struct policy_doc *tenant, const char *ns, const char *path,
                   uint32_t wanted, struct policy_explanation *ret);

#ifdef __cplusplus
}
#endif
#endif
