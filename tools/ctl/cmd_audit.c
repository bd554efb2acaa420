/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ros2ctl audit export|verify`. verify trusts nothing but the verifier key: it hashes every
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

struct sink {
	struct audit_verifier *verifier; /* may be NULL */
	struct audit_file *file;         /* may be NULL */
	uint64_t records;
	bool signs; /* the last that came is a checkpoint */
};

static int sink_item(struct sink *s, const Ros2__V1__AuditRawItem *item, struct ros2_err *err)
{
	const Ros2__V1__StoredRecord *rec = item->record;
	const Ros2__V1__StoredCheckpoint *cp = item->checkpoint;
	int r = 0;

	if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD) {
		s->records++;
		s->signs = false;
		if (rec->chain.len != SHA256_LEN)
			return ros2_err_set(err, -EBADMSG, "record %" PRIu64 ": has no chain value",
			                    rec->seq);
		if (s->verifier)
			r = audit_verifier_record(s->verifier, rec->seq, rec->record.data,
			                          rec->record.len, rec->chain.data, err);
		if (r == 0 && s->file)
			r = audit_file_write_record(s->file, rec->seq, rec->record.data,
			                            rec->record.len, rec->chain.data, err);
	} else if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_CHECKPOINT) {
		if (s->signs)
			return ros2_err_set(err, -EBADMSG,
			                    "two checkpoints, and no record between them");
		s->signs = true;
		if (s->verifier)
			r = audit_verifier_checkpoint(s->verifier, cp->note.data, cp->note.len,
			                              err);
		if (r == 0 && s->file)
			r = audit_file_write_checkpoint(s->file, cp->note.data, cp->note.len, err);
	} else {
		/* Passed over, there could be any number of them. */
		r = ros2_err_set(err, -EBADMSG,
		                 "the controller sent neither a record nor a checkpoint");
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
	while (r == 0 && (r = ctl_read_next(c, rd, &msg, err)) == 0) {
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
         "write the last good checkpoint here, for the next --checkpoint; never an older one"},
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

/* What is kept only grows, also when it was not given as --checkpoint. */
static int check_older(const struct audit_verdict *verdict, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct audit_checkpoint before;
	AUTO_FREE void *note = NULL;
	size_t len;
	int r = fsx_read_file(path, AUDIT_NOTE_MAX, &note, &len, &err);

	if (r == -ENOENT)
		return CTL_OK;
	if (r < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	if (audit_checkpoint_open(note, len, NULL, &before, NULL) < 0 ||
	    before.size <= verdict->covered)
		return CTL_OK;
	return ctl_fail(CTL_FAILED,
	                "%s: covers %" PRIu64 " records, the log's last checkpoint %" PRIu64
	                ": not replaced by an older one",
	                path, before.size, verdict->covered);
}

static int keep(const struct audit_verdict *verdict, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r;

	if (!verdict->note)
		return ctl_fail(CTL_FAILED, "there is no checkpoint to keep");
	r = check_older(verdict, path);
	if (r != CTL_OK)
		return r;
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
