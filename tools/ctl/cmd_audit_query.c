/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl audit query`: records by what they say, once or as they come. */
#include "common/args.h"
#include "common/clock.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define QUERY_LIMIT  1000u /* the controller's, when none is given */
#define FOLLOW_FIRST 10u   /* records that are there before, when no limit is given */
#define FOLLOW_MS    1000  /* between two looks at the log */

enum { Q_TENANT, Q_ACTION, Q_ACTOR, Q_OBJECT, Q_RESULT, Q_SINCE, Q_LIMIT, Q_NEWEST, Q_FOLLOW };
static const struct ctl_opt query_opts[] = {
	{"tenant", 't', "NAME", "records that touch this tenant"},
	{"action", 'a', "NAME", "e.g. grant.issue, or a prefix such as 'grant.*'"},
	{"actor", 0, "SPIFFE-ID", "who did it"},
	{"object", 0, "NAME|UID", "on which object"},
	{"result", 0, "ok|denied|failed", "with which result"},
	{"since", 0, "DURATION", "not older than this by the clock of this machine, e.g. 10m"},
	{"limit", 'n', "N", "at most N records (default 1000)"},
	{"newest", 0, NULL, "the newest first"},
	{"follow", 'f', NULL,
         "the newest N (default 10), and then each as it comes, until interrupted"},
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

/* What was not asked for: records without end would fill the memory, and behind one of before the
 * same would be asked for again. */
static int check_last(const Ros2__V1__AuditQueryRequest *req, const json_t *items)
{
	size_t n = json_array_size(items), most = req->limit ? req->limit : QUERY_LIMIT;
	const json_t *last = json_array_get(items, n - 1);
	uint64_t seq = (uint64_t)json_integer_value(json_object_get(last, "seq"));

	if (n > most)
		return ctl_fail(CTL_FAILED,
		                "PROTOCOL: the controller sent more than the %zu records that were "
		                "asked for",
		                most);
	if (seq < req->from_seq || (req->to_seq && seq > req->to_seq))
		return ctl_fail(CTL_FAILED,
		                "PROTOCOL: the controller sent record %" PRIu64
		                ": asked for were %" PRIu64 " to %" PRIu64,
		                seq, req->from_seq, req->to_seq);
	return CTL_OK;
}

/* Adds what the controller has to @items. CTL_OK, or an exit code after printing; -1 with @err when
 * the controller did not answer to the end. */
static int fetch(struct ctl *c, const Ros2__V1__AuditQueryRequest *req, json_t *items,
                 struct ros2_err *err)
{
	struct rpc_reader *rd = NULL;
	ProtobufCMessage *msg;
	int r = CTL_OK;

	if (rpc_reader_open(c->channel, &ros2_v1_audit_query, &req->base, 0, &rd, err) < 0)
		return -1;
	while (r == CTL_OK && (r = ctl_read_next(c, rd, &msg, err)) == 0) {
		r = add_item(items, ros2_v1_audit_query_out(msg)->record, c->output != CTL_TABLE);
		protobuf_c_message_free_unpacked(msg, NULL);
		if (r == CTL_OK)
			r = check_last(req, items);
	}
	rpc_reader_close(rd);
	return r == -ENODATA ? CTL_OK : MAX(r, -1);
}

static int query_once(struct ctl *c, const Ros2__V1__AuditQueryRequest *req)
{
	struct ros2_err err = ROS2_ERR_INIT;
	json_t *items = json_array();
	int r = fetch(c, req, items, &err);

	if (r < 0)
		r = ctl_fail_err(&err);
	if (r == CTL_OK && !req->limit && json_array_size(items) >= QUERY_LIMIT)
		fprintf(stderr, "ros2ctl: only the %s %u records are shown; --limit N shows more\n",
		        req->newest ? "newest" : "first", QUERY_LIMIT);
	if (r == CTL_OK && c->output == CTL_TABLE)
		ctl_print_table(query_columns, items);
	else if (r == CTL_OK && c->output == CTL_NAME)
		print_sequence(items);
	else if (r == CTL_OK)
		ctl_print_doc(c, ctl_json_list("AuditRecordList", json_incref(items)));
	json_decref(items);
	return r;
}

/* ---- as they come ---- */
struct follow {
	Ros2__V1__AuditQueryRequest req;
	struct ctl_widths widths;
	bool lost; /* the controller does not answer, and that was said */
};

/* How many records the log has: what is asked of it ends there, so that a filter that finds little
 * does not read the same again and again. */
static int log_end(struct ctl *c, uint64_t *ret, struct ros2_err *err)
{
	Ros2__V1__StatusRequest req = ROS2__V1__STATUS_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;

	if (rpc_unary_sync(c->channel, &ros2_v1_admin_status, &req.base, c->timeout_ms, &msg, err) <
	    0)
		return -1;
	*ret = ros2_v1_admin_status_out(msg)->audit_records;
	protobuf_c_message_free_unpacked(msg, NULL);
	/* Behind the last number there is none to go on with. */
	if (*ret > INT64_MAX)
		return ctl_fail(CTL_FAILED,
		                "PROTOCOL: the controller says that its log has %" PRIu64
		                " records: numbers end at %" PRId64,
		                *ret, INT64_MAX);
	return CTL_OK;
}

/* One record is one line of JSON, one YAML document, one row or one number. */
static void show_more(const struct ctl *c, struct follow *f, const json_t *items)
{
	json_t *item;
	size_t i;

	if (c->output == CTL_TABLE)
		ctl_print_more(query_columns, items, &f->widths);
	else if (c->output == CTL_NAME)
		print_sequence(items);
	else
		json_array_foreach((json_t *)items, i, item) ctl_print_line(c, json_incref(item));
	fflush(stdout);
}

/* A log that was restored from a copy, or cut off, gives numbers anew: who waited for the one after
 * the last would not see what comes under them. */
static void look_back(struct follow *f, uint64_t end)
{
	if (end >= f->req.from_seq - 1)
		return;
	fprintf(stderr,
	        "ros2ctl: the log has %" PRIu64 " records where it had %" PRIu64
	        ": it was restored from a copy, or cut off (`ros2ctl audit verify --checkpoint` "
	        "tells); what comes from here on is shown\n",
	        end, f->req.from_seq - 1);
	f->req.from_seq = end + 1;
}

/* Everything up to @end, a page at a time. */
static int show_until(struct ctl *c, struct follow *f, uint64_t end, struct ros2_err *err)
{
	int r = CTL_OK;

	while (r == CTL_OK && f->req.from_seq <= end) {
		json_t *items = json_array();
		size_t n;

		f->req.to_seq = end;
		r = fetch(c, &f->req, items, err);
		n = json_array_size(items);
		show_more(c, f, items);
		if (n > 0)
			f->req.from_seq = (uint64_t)json_integer_value(json_object_get(
						  json_array_get(items, n - 1), "seq")) +
			                  1;
		if (r == CTL_OK && n < QUERY_LIMIT)
			f->req.from_seq = end + 1;
		json_decref(items);
	}
	return r;
}

/* The newest of what is there, the oldest of them first. */
static int show_first(struct ctl *c, struct follow *f, uint64_t end, struct ros2_err *err)
{
	json_t *items = json_array(), *turned = json_array();
	int r;

	f->req.newest = true;
	f->req.limit = f->req.limit ? f->req.limit : FOLLOW_FIRST;
	f->req.to_seq = end;
	r = end > 0 ? fetch(c, &f->req, items, err) : CTL_OK;
	for (size_t n = json_array_size(items); n > 0; n--)
		json_array_append(turned, json_array_get(items, n - 1));
	if (r == CTL_OK)
		show_more(c, f, turned);
	f->req.newest = false;
	f->req.limit = QUERY_LIMIT;
	f->req.from_seq = end + 1;
	json_decref(items);
	json_decref(turned);
	return r;
}

/* A controller that does not answer is waited for: it may be restarted. */
static int lost(struct follow *f, const struct ros2_err *err)
{
	if (err->status != ROS2_UNAVAILABLE && err->status != ROS2_TIMEOUT &&
	    err->status != ROS2_BUSY)
		return ctl_fail_err(err);
	if (!f->lost)
		fprintf(stderr, "ros2ctl: the controller does not answer (%s): waiting for it\n",
		        err->msg);
	f->lost = true;
	return CTL_OK;
}

static int follow(struct ctl *c, const Ros2__V1__AuditQueryRequest *req)
{
	const struct timespec pause = {.tv_sec = FOLLOW_MS / 1000};
	struct follow f = {.req = *req};
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t end;
	int r = log_end(c, &end, &err);

	r = r == CTL_OK ? show_first(c, &f, end, &err) : r;
	if (r < 0)
		return ctl_fail_err(&err);
	while (r == CTL_OK && !ferror(stdout)) {
		/* poll: the log, which tells nobody that it grew */
		nanosleep(&pause, NULL);
		r = log_end(c, &end, &err);
		if (r == CTL_OK)
			look_back(&f, end);
		r = r == CTL_OK ? show_until(c, &f, end, &err) : r;
		if (r == CTL_OK)
			f.lost = false;
		else if (r < 0)
			r = lost(&f, &err);
	}
	return r;
}

static int run_query(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__AuditQueryRequest req = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	int r = query_request(a, &req);

	if (r == CTL_OK && a->value[Q_FOLLOW] && a->value[Q_NEWEST])
		return ctl_fail(CTL_USAGE, "--follow: shows what comes after what is there; "
		                           "--newest the other way round: give one of them");
	r = r == CTL_OK ? ctl_connect(c) : r;
	if (r != CTL_OK)
		return r;
	return a->value[Q_FOLLOW] ? follow(c, &req) : query_once(c, &req);
}

const struct ctl_cmd ctl_cmd_audit_query = {
	.path = "audit query",
	.args = "",
	.summary = "who did what, on which object, with which result",
	.help = "Every decision of controller and agents is a record. docs/audit.md lists the "
		"actions.\n\n"
		"  ros2ctl audit query --tenant alpha --action 'grant.*'\n"
		"  ros2ctl audit query --result denied --since 10m -o json\n"
		"  ros2ctl audit query --follow --tenant alpha -o json | jq .action\n\n"
		"With --follow, JSON is one record a line; a controller that is restarted "
		"meanwhile "
		"is waited for.",
	.opts = query_opts,
	.run = run_query,
};
