/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of ros2ctl share: the table of commands, parsed arguments, the connection and the
 * output. Data goes to stdout, everything else to stderr. Exit codes: see enum ctl_exit.
 */
#ifndef ROS2_TOOLS_CTL_CTL_H
#define ROS2_TOOLS_CTL_CTL_H

#include "common/err.h"
#include "proto/rpc/rpc.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_UNREACHABLE = 3 };
enum ctl_output { CTL_TABLE, CTL_JSON, CTL_YAML, CTL_NAME };

#define CTL_OPTS_MAX  16
#define CTL_FILES_MAX 256

/* One option of a command. A long name without argument has @arg NULL. */
struct ctl_opt {
	const char *name;
	char letter; /* 0 = none */
	const char *arg;
	const char *help;
	bool required;
	bool repeats; /* values are collected in ctl_args.list */
};

struct ctl_args {
	const char *value[CTL_OPTS_MAX]; /* by index of the command's options; "" for a flag that is
	                                    set; NULL = absent */
	const char *list[CTL_FILES_MAX]; /* of the one option that repeats */
	int n_list;
	const char *const *pos; /* what follows the command */
	int n_pos;
};

struct ctl;
struct ctl_cmd {
	const char *path; /* "agent token create" */
	const char *args; /* "NAME", "" */
	const char *summary;
	const char *help; /* what it does, what it proves, examples */
	int min_pos, max_pos;
	const struct ctl_opt *opts;                          /* ends with a NULL name */
	int (*run)(struct ctl *c, const struct ctl_args *a); /* an enum ctl_exit */
};

extern const struct ctl_cmd ctl_cmd_init, ctl_cmd_apply, ctl_cmd_get, ctl_cmd_describe,
	ctl_cmd_delete, ctl_cmd_revoke, ctl_cmd_agent_token, ctl_cmd_agent_isolate,
	ctl_cmd_tenant_cert, ctl_cmd_admin_cert, ctl_cmd_tenant_reinstate, ctl_cmd_audit_query,
	ctl_cmd_audit_verify, ctl_cmd_audit_export, ctl_cmd_status, ctl_cmd_completion,
	ctl_cmd_version;

/* ---- one run of the program ---- */
struct ctl {
	const char *context;    /* directory with tls.crt, tls.key, infra-bundle.pem, controller */
	const char *controller; /* host:port; NULL: the file `controller` of the context */
	uint32_t timeout_ms;
	enum ctl_output output;
	bool wide;                   /* a table with every column */
	struct rpc_channel *channel; /* owned; made by the first call */
};

/* "ros2ctl: words" on stderr; returns @code. */
int ctl_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints @err as "ros2ctl: NAME: words" and returns CTL_UNREACHABLE for a peer that was not
 * reached, or not as one that both sides believe, else CTL_FAILED. */
int ctl_fail_err(const struct ros2_err *err);

/* Connects on first use. CTL_OK, or an exit code after printing. */
int ctl_connect(struct ctl *c);
/* Is the certificate of the context over? Then says so on stderr, and what to do. */
bool ctl_certificate_ended(const struct ctl *c);
/* One unary call; *ret: protobuf_c_message_free_unpacked. CTL_OK, or an exit code after printing.
 */
int ctl_call(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
             ProtobufCMessage **ret);
/* As ctl_call with a longer wait. */
int ctl_call_wait(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
                  uint32_t timeout_ms, ProtobufCMessage **ret);
/* rpc_reader_next, for three times --timeout: of a long log a filter may let nothing through for
 * longer than a call takes. TIMEOUT, with words, when nothing came. */
int ctl_read_next(const struct ctl *c, struct rpc_reader *r, ProtobufCMessage **ret,
                  struct ros2_err *err);
/* cmd_status.c: what is wrong with the controller itself, a line each on stderr, for who asks about
 * something else. CTL_OK, or an exit code after printing. */
int ctl_warn_controller(struct ctl *c);
/* "DIR/NAME", malloc'd; the process ends without memory. */
char *ctl_path(const char *dir, const char *name);

/* ---- args.c ---- */
#define CTL_WORDS_MAX 4
struct ctl_words {
	const char *word[CTL_WORDS_MAX]; /* borrowed from argv */
	int n, n_found;                  /* n_found: of them are the command's */
};
/* Where the words of the command begin: after global options, and after a `help`. */
int ctl_first_word(int argc, char **argv, bool *ret_help);
/* The row of @table with the longest path that the words from argv[i] on begin with, or NULL. */
const struct ctl_cmd *ctl_find(const struct ctl_cmd *const *table, size_t n_table, int argc,
                               char **argv, int i, struct ctl_words *ret);
/* Options into @c and @a; moves what is none to the end of @argv. CTL_OK, CTL_USAGE after printing,
 * -1: help is asked for. @cmd NULL: global options only. */
int ctl_args_parse(struct ctl *c, const struct ctl_cmd *cmd, int argc, char **argv,
                   struct ctl_args *a);
/* Required options, and how many words follow the @n_words of the command. */
int ctl_args_check(const struct ctl_cmd *cmd, const struct ctl_args *a, int n_words);
/* "tenant", "tenants", "grant", ...: an object kind of the protocol, 0 if none. */
int ctl_kind(const char *word);
const char *ctl_kind_to_str(int kind);
/* Options that every command takes, ends with a NULL name. */
extern const struct ctl_opt ctl_global_opts[];
/* The words of -o, ends with NULL. */
extern const char *const ctl_output_words[];
/* "tenant/alpha" or two words "tenant" "alpha". CTL_OK or CTL_USAGE after printing. @name borrowed.
 */
int ctl_ref(const struct ctl_args *a, int *ret_kind, const char **ret_name);

/* ---- cmd_completion.c ---- */
/* What the last of the @n words may become, one a line on stdout; nothing when there is nothing to
 * say. Names of objects are asked of the controller, if it answers within 2 s. Never says anything
 * on stderr. */
void ctl_complete(struct ctl *c, const struct ctl_cmd *const *table, size_t n_table,
                  const char *const *words, int n);

/* ---- messages as JSON ---- */
/* First of all. From here on no function of the JSON library fails for want of memory: the process
 * says so and ends (exit code 1), whoever called it. */
void ctl_json_begin(void);
/* Field names in camelCase, enums without their prefix in lower case, bytes as hex (text fields as
 * text), uint64 as numbers; empty fields are left out unless @all. Never NULL: the process ends
 * without memory. */
json_t *ctl_json(const ProtobufCMessage *m, bool all);
/* {"apiVersion":"ros2/v1","kind":KIND,"items":ITEMS}; steals @items. */
json_t *ctl_json_list(const char *kind, json_t *items);
/* Sets kind and apiVersion in an object. */
json_t *ctl_json_kind(const char *kind, json_t *object);

struct ctl_column {
	const char *title;
	const char *key; /* of the JSON item; "a.b" goes down */
	enum {
		CTL_TEXT,
		CTL_NUMBER,
		CTL_BYTES,
		CTL_AGE_UNIX_NS,
		CTL_TIME_UNIX_NS,
		CTL_TIME_UNIX_S,
		CTL_NS,
		CTL_MS,
		CTL_SHORT_ID,
		CTL_YESNO
	} as;
	bool wide; /* only with -o wide; such columns are the last ones */
};
/* Rows of @items as an aligned table; @columns ends with a NULL title, or without @wide before the
 * first wide one. Control characters are escaped. */
void ctl_print_columns(const struct ctl_column *columns, const json_t *items, bool wide);
void ctl_print_table(const struct ctl_column *columns, const json_t *items);
/* Rows of a table that goes on: titles before the first one, columns as wide as they were, or
 * wider. */
#define CTL_COLUMNS_MAX 16
struct ctl_widths {
	size_t of[CTL_COLUMNS_MAX]; /* begins as zeros */
};
void ctl_print_more(const struct ctl_column *columns, const json_t *items, struct ctl_widths *w);
/* One of many, by c->output: a line of JSON, or a YAML document. Takes the reference. */
void ctl_print_line(const struct ctl *c, json_t *doc);
/* JSON or YAML by c->output. Takes the reference. */
void ctl_print_doc(const struct ctl *c, json_t *doc);
/* probes.c: numbers become names, in place; and as tables. @object: of a Description. */
void ctl_probes_name(json_t *object);
void ctl_probes_print(json_t *object);
void ctl_print_yaml(const json_t *doc, int indent);
#endif
