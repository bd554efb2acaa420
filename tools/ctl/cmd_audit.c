/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ros2ctl audit query|export|verify`. verify trusts nothing but the verifier key: it hashes every
 * record again, from a live controller or from an exported file, and names the first bad one.
 */
#include "common/args.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STREAM_IDLE_MS 30000
#define QUERY_LIMIT    1000u /* the controller's, when none is given */

/* ---- query ---- */
enum { Q_TENANT, Q_ACTION, Q_ACTOR, Q_OBJECT, Q_RESULT, Q_SINCE, Q_LIMIT, Q_NEWEST };
static const struct ctl_opt query_opts[] = {
	{"tenant", 't', "NAME", "records that touch this tenant"},
	{"action", 'a', "NAME", "e.g. grant.issue, or a prefix such as 'grant.*'"},
	{"actor", 0, "SPIFFE-ID", "who did it"},
	{"object", 0, "NAME|UID", "on which object"},
	{"result", 0, "ok|denied|failed", "with which result"},
	{"since", 0, "DURATION", "not older than this, e.g. 10m"},
	{"limit", 'n', "N", "at most N records (default 1000)"},
	{"newest", 0, NULL, "the newest first"},
	{0},
};
static const struct ctl_column query_columns[] = {
	{"SEQ", "seq", CTL_NUMBER},     {"TIME", "timeUnixNs", CTL_TIME_UNIX_NS},
	{"RESULT", "result", CTL_TEXT}, {"ACTION", "action", CTL_TEXT},
	{"TENANT", "tenant", CTL_TEXT}, {"OBJECT", "objectName", CTL_TEXT},
	{"ACTOR", "actor", CTL_TEXT},   {"AGENT", "origin.agent", CTL_TEXT},
	{"STATUS", "status", CTL_TEXT}, {"COUNT", "aggregate.count", CTL_TEXT},
	{"REASON", "reason", CTL_TEXT}, {0},
};

static int parse_result(const char *word)
{
	static const char *const words[] = {"", "ok", "denied", "failed"};

	for (size_t i = 1; i < ARRAY_SIZE(words); i++)
		if (!strcmp(word, words[i]))
			return (int)i;
	return -EINVAL;
}

static int query_request(const struct ctl_args *a, Ros2__V1__AuditQueryRequest *req)
{
	uint64_t ms, now = clock_unix_ns();

	req->tenant = (char *)(a->value[Q_TENANT] ? a->value[Q_TENANT] : "");
	req->action = (char *)(a->value[Q_ACTION] ? a->value[Q_ACTION] : "");
	req->actor = (char *)(a->value[Q_ACTOR] ? a->value[Q_ACTOR] : "");
	req->object = (char *)(a->value[Q_OBJECT] ? a->value[Q_OBJECT] : "");
	req->newest = a->value[Q_NEWEST] != NULL;
	if (a->value[Q_RESULT]) {
		int result = parse_result(a->value[Q_RESULT]);

		if (result < 0)
			return ctl_fail(CTL_USAGE,
			                "--result: expected ok, denied or failed, found '%s'",
			                a->value[Q_RESULT]);
		req->result = (Ros2__V1__AuditResult)result;
	}
	if (a->value[Q_SINCE]) {
		if (args_duration_ms(a->value[Q_SINCE], &ms) < 0 || ms > now / NS_PER_MS)
			return ctl_fail(CTL_USAGE,
			                "--since: expected a duration such as 10m, found '%s'",
			                a->value[Q_SINCE]);
		req->since_unix_ns = now - ms * NS_PER_MS;
	}
	if (a->value[Q_LIMIT]) {
		uint64_t limit;

		if (args_u64(a->value[Q_LIMIT], UINT32_MAX, &limit) < 0 || !limit)
			return ctl_fail(CTL_USAGE, "--limit: expected a number, found '%s'",
			                a->value[Q_LIMIT]);
		req->limit = (uint32_t)limit;
	}
	return CTL_OK;
}

static int add_item(json_t *items, const Ros2__V1__StoredRecord *stored, bool all)
{
	Ros2__V1__AuditRecord *rec = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	if (!stored || audit_record_parse(stored->record.data, stored->record.len, &rec, &err) < 0)
		return ctl_fail(CTL_FAILED, "the controller sent a record that does not parse: %s",
		                err.msg);
	json_array_append_new(items, ctl_json(&rec->base, all));
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	return CTL_OK;
}

/* -o name: a record's name is its number. */
static void print_sequence(const json_t *items)
{
	json_t *item;
	size_t i;

	json_array_foreach((json_t *)items, i, item)
		printf("%lld\n", (long long)json_integer_value(json_object_get(item, "seq")));
}

static int run_query(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__AuditQueryRequest req = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *rd = NULL;
	ProtobufCMessage *msg;
	json_t *items;
	int r = query_request(a, &req);

	r = r == CTL_OK ? ctl_connect(c) : r;
	if (r != CTL_OK)
		return r;
	if (rpc_reader_open(c->channel, &ros2_v1_audit_query, &req.base, 0, &rd, &err) < 0)
		return ctl_fail_err(&err);
	items = json_array();
	while (r == CTL_OK && (r = rpc_reader_next(rd, STREAM_IDLE_MS, &msg, &err)) == 0) {
		r = add_item(items, ros2_v1_audit_query_out(msg)->record, c->output != CTL_TABLE);
		protobuf_c_message_free_unpacked(msg, NULL);
	}
	rpc_reader_close(rd);
	if (r == -ENODATA)
		r = CTL_OK;
	else if (r < 0)
		r = ctl_fail_err(&err);
	if (r == CTL_OK && !req.limit && json_array_size(items) >= QUERY_LIMIT)
		fprintf(stderr, "ros2ctl: only the %s %u records are shown; --limit N shows more\n",
		        req.newest ? "newest" : "first", QUERY_LIMIT);
	if (r == CTL_OK && c->output == CTL_TABLE)
		ctl_print_table(query_columns, items);
	else if (r == CTL_OK && c->output == CTL_NAME)
		print_sequence(items);
	else if (r == CTL_OK)
		ctl_print_doc(c, ctl_json_list("AuditRecordList", json_incref(items)));
	json_decref(items);
	return r;
}

const struct ctl_cmd ctl_cmd_audit_query = {
	.path = "audit query",
	.args = "",
	.summary = "who did what, on which object, with which result",
	.help = "Every decision of controller and agents is a record. docs/audit.md lists the "
		"actions.\n\n"
		"  ros2ctl audit query --tenant alpha --action 'grant.*'\n"
		"  ros2ctl audit query --result denied --since 10m -o json",
	.opts = query_opts,
	.run = run_query,
};

/* ---- export and verify: both read the raw log ---- */
struct sink {
	struct audit_verifier *verifier; /* may be NULL */
	struct audit_file *file;         /* may be NULL */
	uint64_t records;
};

static int sink_item(struct sink *s, const Ros2__V1__AuditRawItem *item, struct ros2_err *err)
{
	const Ros2__V1__StoredRecord *rec = item->record;
	const Ros2__V1__StoredCheckpoint *cp = item->checkpoint;
	int r = 0;

	if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD) {
		if (rec->chain.len != SHA256_LEN)
			return ros2_err_set(err, -EBADMSG, "record %" PRIu64 ": has no chain value",
			                    rec->seq);
		s->records++;
		if (s->verifier)
			r = audit_verifier_record(s->verifier, rec->seq, rec->record.data,
			                          rec->record.len, rec->chain.data, err);
		if (r == 0 && s->file)
			r = audit_file_write_record(s->file, rec->seq, rec->record.data,
			                            rec->record.len, rec->chain.data, err);
	} else if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_CHECKPOINT) {
		if (s->verifier)
			r = audit_verifier_checkpoint(s->verifier, cp->note.data, cp->note.len,
			                              err);
		if (r == 0 && s->file)
			r = audit_file_write_checkpoint(s->file, cp->note.data, cp->note.len, err);
	}
	return r;
}

static int read_raw(struct ctl *c, struct sink *s, struct ros2_err *err)
{
	Ros2__V1__AuditRawRequest req = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct rpc_reader *rd = NULL;
	ProtobufCMessage *msg;
	bool tty = isatty(STDERR_FILENO);
	int r;

	req.from_seq = 1;
	r = rpc_reader_open(c->channel, &ros2_v1_audit_raw, &req.base, 0, &rd, err);
	while (r == 0 && (r = rpc_reader_next(rd, STREAM_IDLE_MS, &msg, err)) == 0) {
		r = sink_item(s, ros2_v1_audit_raw_out(msg), err);
		protobuf_c_message_free_unpacked(msg, NULL);
		if (tty && s->records % 4096 == 0)
			fprintf(stderr, "\r%" PRIu64 " records", s->records);
	}
	if (tty)
		fputs("\r\033[K", stderr);
	rpc_reader_close(rd);
	return r == -ENODATA ? 0 : r;
}

static int run_export(struct ctl *c, const struct ctl_args *a)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sink s = {0};
	int r = ctl_connect(c);

	if (r != CTL_OK)
		return r;
	if (audit_file_create(a->pos[0], &s.file, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	if (read_raw(c, &s, &err) < 0) {
		audit_file_abort(s.file);
		return ctl_fail_err(&err);
	}
	if (audit_file_finish(s.file, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	fprintf(stderr, "%" PRIu64 " records written to %s\n", s.records, a->pos[0]);
	return CTL_OK;
}

static const struct ctl_opt no_opts[] = {{0}};
const struct ctl_cmd ctl_cmd_audit_export = {
	.path = "audit export",
	.args = "FILE",
	.summary = "copy the whole log, record by record as stored, with its checkpoints",
	.help = "The copy can be verified anywhere, without a controller.\n\n"
		"  ros2ctl audit export copy.audit\n"
		"  ros2ctl audit verify --file copy.audit --key audit.vkey",
	.min_pos = 1,
	.max_pos = 1,
	.opts = no_opts,
	.run = run_export,
};

enum { V_FILE, V_KEY, V_KEPT, V_KEEP };
static const struct ctl_opt verify_opts[] = {
	{"file", 0, "FILE", "an exported copy instead of the controller's log"},
	{"key", 'k', "FILE",
         "verifier key of the checkpoints (default: audit.vkey of the context)"},
	{"checkpoint", 0, "FILE",
         "a checkpoint kept from before: the log must still begin with its records"},
	{"keep-checkpoint", 0, "FILE",
         "write the last good checkpoint here, for the next --checkpoint"},
	{0},
};

/* *ret malloc'd; NULL when there is no key at all. */
static int load_key(const struct ctl *c, const char *path, char **ret)
{
	AUTO_FREE char *standard = c->context ? ctl_path(c->context, "audit.vkey") : NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	void *text = NULL;
	size_t len;

	*ret = NULL;
	/* only a file that is not there means "no key": one that cannot be read is a fault */
	if (!path && (!standard || (access(standard, F_OK) < 0 && errno == ENOENT)))
		return CTL_OK;
	if (fsx_read_file(path ? path : standard, AUDIT_VKEY_MAX, &text, &len, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	((char *)text)[strcspn(text, "\r\n")] = 0;
	*ret = text;
	return CTL_OK;
}

static void say_verdict(const struct audit_verdict *v, const char *root)
{
	printf("intact: %" PRIu64 " records, %" PRIu64 " tenants' histories, %" PRIu64
	       " checkpoints, %" PRIu64 " records covered by %s",
	       v->records, v->tenants, v->checkpoints, v->covered,
	       v->signatures ? "a good signature"
	                     : "a checkpoint (signatures NOT checked: no --key)");
	if (v->covered < v->records)
		printf(", the last %" PRIu64 " by none yet", v->records - v->covered);
	if (v->held)
		printf("\nbegins with the %" PRIu64 " records of the kept checkpoint", v->held);
	printf("\nroot %s\n", root);
}

static int show_verdict(const struct ctl *c, const struct audit_verdict *v)
{
	char root[2 * SHA256_LEN + 1];
	json_t *o;

	crypto_hex(v->root, SHA256_LEN, root);
	if (c->output != CTL_JSON && c->output != CTL_YAML) {
		say_verdict(v, root);
		return CTL_OK;
	}
	o = json_pack("{s:b,s:I,s:I,s:I,s:I,s:I,s:b,s:s}", "intact", 1, "records",
	              (json_int_t)v->records, "tenants", (json_int_t)v->tenants, "checkpoints",
	              (json_int_t)v->checkpoints, "coveredBySignature",
	              (json_int_t)(v->signatures ? v->covered : 0), "keptCheckpoint",
	              (json_int_t)v->held, "signaturesChecked", v->signatures, "root", root);
	ctl_print_doc(c, ctl_json_kind("AuditVerdict", o));
	return CTL_OK;
}

static int show_bad(const struct ctl *c, uint64_t seq, uint64_t offset, const struct ros2_err *err)
{
	if (c->output == CTL_JSON || c->output == CTL_YAML) {
		/* Words about bytes that are not intact may be no text. */
		json_t *words = json_string(err->msg);

		words = words ? words : json_string("(not UTF-8)");
		ctl_print_doc(
			c, ctl_json_kind("AuditVerdict",
		                         json_pack("{s:b,s:I,s:I,s:o}", "intact", 0,
		                                   "firstBadRecord", (json_int_t)seq, "fileOffset",
		                                   (json_int_t)offset, "reason", words)));
	}
	if (!seq)
		return ctl_fail(CTL_FAILED, "NOT INTACT: %s", err->msg);
	return ctl_fail(CTL_FAILED, "NOT INTACT: first bad record %" PRIu64 "%s: %s", seq,
	                offset ? " of the file" : "", err->msg);
}

static int verify_live(struct ctl *c, struct audit_verifier *v, struct audit_verdict *verdict)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sink s = {.verifier = v};
	int r = ctl_connect(c);

	if (r != CTL_OK)
		return r;
	r = read_raw(c, &s, &err);
	if (r == 0)
		r = audit_verifier_end(v, &err);
	audit_verifier_result(v, verdict);
	if (r == -EBADMSG)
		return show_bad(c, s.records, 0, &err);
	return r < 0 ? ctl_fail_err(&err) : CTL_OK;
}

static int verify_file(struct ctl *c, const char *path, struct audit_verifier *v,
                       struct audit_verdict *verdict)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t seq, offset;
	int r = audit_file_verify(path, v, verdict, &seq, &offset, &err);

	if (r == -EBADMSG)
		return show_bad(c, seq, offset, &err);
	return r < 0 ? ctl_fail(CTL_FAILED, "%s", err.msg) : CTL_OK;
}

static int take_kept(struct audit_verifier *v, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE void *note = NULL;
	size_t len;

	if (fsx_read_file(path, AUDIT_NOTE_MAX, &note, &len, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	if (audit_verifier_hold(v, note, len, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s: %s", path, err.msg);
	return CTL_OK;
}

static int keep(const struct audit_verdict *verdict, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (!verdict->note)
		return ctl_fail(CTL_FAILED, "there is no checkpoint to keep");
	if (fsx_write_atomic(path, verdict->note, strlen(verdict->note), 0644, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	return CTL_OK;
}

static int run_verify(struct ctl *c, const struct ctl_args *a)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct audit_verifier *v = NULL;
	struct audit_verdict verdict;
	AUTO_FREE char *key = NULL;
	int r = load_key(c, a->value[V_KEY], &key);

	if (r != CTL_OK)
		return r;
	if (audit_verifier_new(key, &v, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	if (a->value[V_KEPT])
		r = take_kept(v, a->value[V_KEPT]);
	if (r == CTL_OK)
		r = a->value[V_FILE] ? verify_file(c, a->value[V_FILE], v, &verdict)
		                     : verify_live(c, v, &verdict);
	if (r == CTL_OK)
		r = show_verdict(c, &verdict);
	if (r == CTL_OK && a->value[V_KEEP])
		r = keep(&verdict, a->value[V_KEEP]);
	audit_verifier_free(v);
	return r;
}

const struct ctl_cmd ctl_cmd_audit_verify = {
	.path = "audit verify",
	.args = "",
	.summary = "prove that the log is intact, or name the first bad record",
	.help = "Hashes every record again and checks the chain, each tenant's own history, the "
		"tree and every signed\n"
		"checkpoint. Needs no trust in the controller, only the verifier key.\n"
		"An end that was cut off, or cut off and written anew, shows only beside a "
		"checkpoint "
		"that was kept elsewhere.\n\n"
		"  ros2ctl audit verify --keep-checkpoint monday.note\n"
		"  ros2ctl audit verify --checkpoint monday.note\n"
		"  ros2ctl audit verify --file copy.audit --key audit.vkey",
	.opts = verify_opts,
	.run = run_verify,
};
