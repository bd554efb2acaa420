/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl get` and `ros2ctl describe`: what there is, and everything about one object. */
#include "common/ids.h"
#include "common/utf8.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of one list. A page has 500 rows, or what 64 agents have: more is no fleet, and what a controller
 * says without end would fill the memory. */
#define LIST_PAGES_MAX 20000u
#define LIST_BYTES_MAX (256u << 20)
/* Of JSON, each about a hundred bytes of memory: in a message two bytes may be five of them. */
#ifndef LIST_VALUES_MAX /* a test's are fewer */
#define LIST_VALUES_MAX (20u << 20)
#endif
#define UNREACHABLE_MAX 256u /* that a page names: four times what it may */

enum { OPT_TENANT, OPT_AGENT, OPT_ALL };
static const struct ctl_opt get_opts[] = {
	{"tenant", 't', "NAME", "only of this tenant"},
	{"agent", 'a', "NAME", "only at this agent"},
	{"all", 'A', NULL, "ended grants too"},
	{0},
};

static const struct ctl_column tenant_columns[] = {
	{"NAME", "name", CTL_TEXT},
	{"VERSION", "version", CTL_NUMBER},
	{"REVOKED", "tenant.revoked", CTL_YESNO},
	{"AGENTS", "tenant.agents", CTL_TEXT},
	{"GRANTS", "tenant.grants", CTL_NUMBER},
	{"SESSIONS", "tenant.sessions", CTL_NUMBER},
	{"REVOKE-BOUND", "tenant.contactLimitMs", CTL_MS},
	{"AGE", "createdUnixNs", CTL_AGE_UNIX_NS},
	{"UID", "uid", CTL_TEXT, .wide = true},
	{"CHANGED", "updatedUnixNs", CTL_TIME_UNIX_NS, .wide = true},
	{0},
};
static const struct ctl_column engine_columns[] = {
	{"NAME", "name", CTL_TEXT},
	{"VERSION", "version", CTL_NUMBER},
	{"UID", "uid", CTL_SHORT_ID},
	{"AGE", "createdUnixNs", CTL_AGE_UNIX_NS},
	{"CHANGED", "updatedUnixNs", CTL_TIME_UNIX_NS, .wide = true},
	{0},
};
static const struct ctl_column agent_columns[] = {
	{"NAME", "name", CTL_TEXT},
	{"ENROLLED", "agent.enrolled", CTL_YESNO},
	{"CONNECTED", "agent.connected", CTL_YESNO},
	{"ISOLATED", "agent.isolated", CTL_YESNO},
	{"TENANTS", "agent.tenants", CTL_NUMBER},
	{"SESSIONS", "agent.sessions", CTL_NUMBER},
	{"LEASES", "agent.leases", CTL_NUMBER},
	{"TROUBLE", "trouble", CTL_TEXT},
	{"ADDRESS", "agent.address", CTL_TEXT},
	{"LAST-BEAT", "agent.lastBeatUnixNs", CTL_AGE_UNIX_NS},
	{"SOFTWARE", "agent.version", CTL_TEXT, .wide = true},
	{"ACTS-UNTIL", "agent.contactUntilUnixNs", CTL_TIME_UNIX_NS, .wide = true},
	{"SPOOL", "agent.spoolRecords", CTL_NUMBER, .wide = true},
	{"CERTIFICATE-ENDS", "agent.certNotAfterUnixS", CTL_TIME_UNIX_S, .wide = true},
	{"UID", "uid", CTL_SHORT_ID, .wide = true},
	{0},
};
static const struct ctl_column grant_columns[] = {
	{"GRANT", "grantUid", CTL_TEXT},
	{"TENANT", "tenant", CTL_TEXT},
	{"AGENT", "agent", CTL_TEXT},
	{"STATE", "state", CTL_TEXT},
	{"KEYS", "maxKeys", CTL_NUMBER},
	{"BYTES", "maxBytes", CTL_BYTES},
	{"ACCESS", "access", CTL_TEXT},
	{"EXPIRES", "expiresUnixNs", CTL_TIME_UNIX_NS},
	{"PRINCIPAL", "principal", CTL_TEXT},
	{"ISSUED", "issuedUnixNs", CTL_TIME_UNIX_NS, .wide = true},
	{"POLICY", "policyVersion", CTL_NUMBER, .wide = true},
	{"EPOCH", "epochCounter", CTL_NUMBER, .wide = true},
	{0},
};
static const struct ctl_column session_columns[] = {
	{"SESSION", "sessionUid", CTL_TEXT},
	{"TENANT", "tenant", CTL_TEXT},
	{"AGENT", "agent", CTL_TEXT},
	{"TRANSPORT", "transport", CTL_TEXT},
	{"REGIONS", "regions", CTL_NUMBER},
	{"HANDLES", "handles", CTL_NUMBER},
	{"READ", "readBytes", CTL_BYTES},
	{"WRITTEN", "writeBytes", CTL_BYTES},
	{"CLEARED", "clearedBytes", CTL_BYTES},
	{"COPIED", "copiedBytes", CTL_BYTES},
	{"VIOLATIONS", "violations", CTL_NUMBER},
	{"AGE", "openedUnixNs", CTL_AGE_UNIX_NS},
	{"PEER", "peer", CTL_TEXT, .wide = true},
	{"PRINCIPAL", "principal", CTL_TEXT, .wide = true},
	{"GRANT", "grantUid", CTL_TEXT, .wide = true},
	{0},
};
static const struct ctl_column lease_columns[] = {
	{"LEASE", "leaseId", CTL_NUMBER},
	{"TENANT", "tenant", CTL_TEXT},
	{"AGENT", "agent", CTL_TEXT},
	{"KIND", "kind", CTL_TEXT},
	{"ENGINE", "engine", CTL_TEXT},
	{"DEVICE", "device", CTL_TEXT},
	{"KEYS", "count", CTL_NUMBER},
	{"ISSUED", "issued", CTL_NUMBER},
	{"LENGTH", "length", CTL_BYTES},
	{"ACCESS", "access", CTL_TEXT},
	{"STATE", "state", CTL_TEXT},
	{"AGE", "sinceUnixNs", CTL_AGE_UNIX_NS},
	{"EXPIRES-IN", "expiresInMs", CTL_MS},
	{"GRANT", "grantUid", CTL_TEXT},
	{"SESSION", "sessionUid", CTL_TEXT, .wide = true},
	{0},
};

static const struct noun {
	const char *list_kind; /* of the JSON document */
	const char *field;     /* of ListReply, as JSON */
	const char *id;        /* of an item, for -o name */
	const struct ctl_column *columns;
} nouns[] = {
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT] = {"TenantList", "objects", "name",
                                                       tenant_columns},
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE] = {"EngineList", "objects", "name",
                                                       engine_columns},
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT] = {"AgentList", "objects", "name",
                                                      agent_columns},
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT] = {"GrantList", "grants", "grantUid",
                                                      grant_columns},
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION] = {"SessionList", "sessions", "sessionUid",
                                                        session_columns},
	[ROS2__V1__OBJECT_KIND__OBJECT_KIND_LEASE] = {"LeaseList", "leases", "leaseId",
                                                      lease_columns},
};

static void warn_agent(const char *agent)
{
	char shown[256];

	utf8_escape(agent, shown, sizeof(shown));
	fprintf(stderr, "ros2ctl: agent %s was not reached: what it holds is not in this list\n",
	        shown);
}

static bool warned(const Ros2__V1__ListReply *reply, const char *agent)
{
	for (size_t i = 0; i < MIN(reply->n_unreachable_agents, (size_t)UNREACHABLE_MAX); i++)
		if (strcmp(reply->unreachable_agents[i], agent) == 0)
			return true;
	return false;
}

/* An agent at the border of two pages is named in both. */
static void warn_unreachable(const Ros2__V1__ListReply *reply, const Ros2__V1__ListReply *before)
{
	for (size_t i = 0; i < reply->n_unreachable_agents; i++)
		if (!before || !warned(before, reply->unreachable_agents[i]))
			warn_agent(reply->unreachable_agents[i]);
}

/* For the table: which of what an agent says of itself holds, in one word each. */
static void add_trouble(json_t *object)
{
	json_t *conditions = json_object_get(object, "conditions"), *c;
	char words[256] = "";
	size_t i, n = 0;

	json_array_foreach(conditions, i, c)
	{
		const char *name = json_string_value(json_object_get(c, "name"));

		if (!name || !strcmp(name, "Ready") || !strcmp(name, "Isolated") ||
		    !json_is_true(json_object_get(c, "status")) ||
		    n + strlen(name) + 2 > sizeof(words))
			continue;
		n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s", n ? "," : "", name);
	}
	json_object_set_new(object, "trouble", json_string(words));
}

struct walk {
	uint32_t pages;
	uint64_t bytes, values;
};

static uint64_t count_values(const json_t *v)
{
	uint64_t n = 1;
	const char *key;
	json_t *child;
	size_t i;

	json_object_foreach((json_t *)v, key, child) n += count_values(child);
	json_array_foreach((json_t *)v, i, child) n += count_values(child);
	return n;
}

static int check_page(const Ros2__V1__ListReply *reply, const char *asked, const struct walk *w)
{
	if (!strcmp(reply->next_page_token, asked))
		return ctl_fail(CTL_FAILED,
		                "PROTOCOL: the controller's list does not go on: behind a page it "
		                "names the same page again");
	if (w->pages >= LIST_PAGES_MAX || w->bytes > LIST_BYTES_MAX || w->values > LIST_VALUES_MAX)
		return ctl_fail(CTL_FAILED,
		                "TOO_LARGE: the controller's list has no end after %" PRIu32
		                " pages with %" PRIu64
		                " bytes: ask for those of one --tenant or --agent",
		                w->pages, w->bytes);
	return CTL_OK;
}

/* All pages into one array. */
static int list_all(struct ctl *c, Ros2__V1__ListRequest *req, const char *field, json_t *items)
{
	ProtobufCMessage *last = NULL;
	struct walk w = {0};
	int r;

	for (;;) {
		ProtobufCMessage *msg = NULL;
		const Ros2__V1__ListReply *reply;
		json_t *page;

		r = ctl_call(c, &ros2_v1_admin_list, &req->base, &msg);
		if (r != CTL_OK)
			break;
		reply = ros2_v1_admin_list_out(msg);
		page = ctl_json(msg, true);
		w.pages++;
		w.bytes += protobuf_c_message_get_packed_size(msg);
		w.values += count_values(page);
		json_array_extend(items, json_object_get(page, field));
		json_decref(page);
		warn_unreachable(reply, last ? ros2_v1_admin_list_out(last) : NULL);
		if (*reply->next_page_token)
			r = check_page(reply, req->page_token, &w);
		if (last)
			protobuf_c_message_free_unpacked(last, NULL);
		last = msg;
		if (r != CTL_OK || !*reply->next_page_token)
			break;
		req->page_token = reply->next_page_token;
	}
	if (last)
		protobuf_c_message_free_unpacked(last, NULL);
	return r;
}

static void keep_only(json_t *items, const char *id, const char *name)
{
	for (size_t i = json_array_size(items); i > 0; i--) {
		const json_t *v = json_object_get(json_array_get(items, i - 1), id);
		char number[32];

		/* A lease's name is a number. */
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(v));
		if (strcmp(json_is_string(v) ? json_string_value(v) : number, name))
			json_array_remove(items, i - 1);
	}
}

static void print_names(const char *kind, const char *id, const json_t *items)
{
	char shown[1024];
	json_t *item;
	size_t i;

	json_array_foreach((json_t *)items, i, item)
	{
		const json_t *v = json_object_get(item, id);

		if (json_is_string(v)) {
			utf8_escape(json_string_value(v), shown, sizeof(shown));
			printf("%s/%s\n", kind, shown);
		} else {
			printf("%s/%lld\n", kind, (long long)json_integer_value(v));
		}
	}
}

/* "KINDS", "KINDS NAME" or "KIND/NAME"; *ret_name NULL: all of them. */
static int what_to_get(const struct ctl_args *a, int *ret_kind, const char **ret_name)
{
	*ret_name = a->n_pos == 2 ? a->pos[1] : NULL;
	if (a->n_pos == 1 && strchr(a->pos[0], '/'))
		return ctl_ref(a, ret_kind, ret_name);
	*ret_kind = ctl_kind(a->pos[0]);
	if (!*ret_kind)
		return ctl_fail(CTL_USAGE,
		                "get: expected tenants, engines, agents, grants, sessions or "
		                "leases, found '%s'",
		                a->pos[0]);
	return CTL_OK;
}

static int run_get(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__ListRequest req = ROS2__V1__LIST_REQUEST__INIT;
	const char *name;
	int kind, r = what_to_get(a, &kind, &name);
	json_t *items;

	if (r != CTL_OK)
		return r;
	const struct noun *n = &nouns[kind];
	items = json_array();
	req.kind = (Ros2__V1__ObjectKind)kind;
	req.tenant = (char *)(a->value[OPT_TENANT] ? a->value[OPT_TENANT] : "");
	req.agent = (char *)(a->value[OPT_AGENT] ? a->value[OPT_AGENT] : "");
	req.all = a->value[OPT_ALL] != NULL;
	r = list_all(c, &req, n->field, items);
	if (r == CTL_OK && name) {
		keep_only(items, n->id, name);
		if (!json_array_size(items))
			r = ctl_fail(CTL_FAILED, "NOT_FOUND: no %s '%s'", ctl_kind_to_str(kind),
			             name);
	}
	if (r == CTL_OK && c->output == CTL_TABLE) {
		json_t *item;
		size_t i;

		if (kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT)
			json_array_foreach(items, i, item) add_trouble(item);
		ctl_print_columns(n->columns, items, c->wide);
	} else if (r == CTL_OK && c->output == CTL_NAME)
		print_names(ctl_kind_to_str(kind), n->id, items);
	else if (r == CTL_OK)
		ctl_print_doc(c, ctl_json_list(n->list_kind, json_incref(items)));
	json_decref(items);
	/* Who looks at the agents looks for trouble: not all of it is theirs. */
	if (r == CTL_OK && kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT)
		r = ctl_warn_controller(c);
	return r;
}

const struct ctl_cmd ctl_cmd_get = {
	.path = "get",
	.args = "KINDS [NAME] | KIND/NAME",
	.summary = "list tenants, engines, agents, grants, sessions or leases",
	.help = "Sessions and leases live at the agents and are asked for there; an agent that "
		"does not answer is named.\n"
		"Leases of KIND `region` are of tenants' memory; `standing` and `perCommand` are "
		"keys that a storage target\n"
		"holds to the agent's slots (engines over RDMA). Those of commands are one row for "
		"each queue and direction:\n"
		"KEYS live at this instant, ISSUED so far. ACCESS is what the holder may do.\n"
		"With -o wide also whose program a session is (PRINCIPAL, PEER), which build an "
		"agent runs (SOFTWARE),\n"
		"until when it acts without a controller (ACTS-UNTIL), and more.\n"
		"REVOKE-BOUND is the worst time until a revocation holds at an agent that cannot "
		"be reached.\n"
		"With agents, what is wrong with the controller itself is told on stderr, as by "
		"`ros2ctl status`.\n\n"
		"  ros2ctl get tenants\n"
		"  ros2ctl get grants --tenant alpha -o json\n"
		"  ros2ctl get agents dpu-0 -o yaml\n"
		"  ros2ctl get agents -o wide\n"
		"  ros2ctl get sessions --agent dpu-0 -o name",
	.min_pos = 1,
	.max_pos = 2,
	.opts = get_opts,
	.run = run_get,
};

/* ---- describe ---- */
static const struct ctl_column rollout_columns[] = {
	{"AGENT", "agent", CTL_TEXT},
	{"SENT", "sentVersion", CTL_NUMBER},
	{"RECEIVED", "receivedVersion", CTL_NUMBER},
	{"APPLIED", "appliedVersion", CTL_NUMBER},
	{"FAILED", "failedReason", CTL_TEXT},
	{0},
};
static const struct ctl_column condition_columns[] = {
	{"CONDITION", "name", CTL_TEXT},
	{"STATUS", "status", CTL_YESNO},
	{"REASON", "reason", CTL_TEXT},
	{0},
};

static const struct ctl_column target_columns[] = {
	{"ENGINE", "engine", CTL_TEXT},
	{"TENANT", "tenant", CTL_TEXT},
	{"STATE", "state", CTL_TEXT},
	{"LOST", "lost", CTL_YESNO},
	{"SINCE", "sinceUnixNs", CTL_TIME_UNIX_NS},
	{"REASON", "reason", CTL_TEXT},
	{0},
};

static void section(const char *title, const struct ctl_column *columns, const json_t *items)
{
	if (!json_array_size(items))
		return;
	printf("\n%s:\n", title);
	ctl_print_table(columns, items);
}

/* What an agent does not say of its targets is said, too. */
static void print_targets(const json_t *object)
{
	const json_t *agent = json_object_get(object, "agent");
	json_int_t left_out = json_integer_value(json_object_get(agent, "targetsLeftOut"));

	section("Targets", target_columns, json_object_get(agent, "targets"));
	if (left_out > 0)
		printf("(and %lld more)\n", (long long)left_out);
}

/* As it was applied, line by line; what would drive the terminal is escaped. */
static void print_document(const char *yaml)
{
	AUTO_FREE char *shown = malloc(4 * strlen(yaml) + 1);
	char *copy = strdup(yaml), *rest = copy, *line;

	printf("\nDocument:\n");
	while (shown && rest && (line = strsep(&rest, "\n")) && (rest || *line)) {
		utf8_escape(line, shown, 4 * strlen(yaml) + 1);
		puts(shown);
	}
	free(copy);
}

/* A section that is not all there is says where all of it is. */
static void print_more(const json_t *doc, const char *field, const char *noun, int kind)
{
	const json_t *object = json_object_get(doc, "object");
	const char *name = json_string_value(json_object_get(object, "name"));
	char shown[256];

	if (!name || !json_is_true(json_object_get(doc, field)))
		return;
	utf8_escape(name, shown, sizeof(shown));
	printf("(and more: ros2ctl get %s --%s %s)\n", noun, ctl_kind_to_str(kind), shown);
}

static void describe_text(int kind, const json_t *doc)
{
	json_t *object = json_deep_copy(json_object_get(doc, "object")), *one = json_array();
	const char *yaml = json_string_value(json_object_get(object, "yaml"));

	if (kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT)
		add_trouble(object);
	if (json_is_object(object))
		json_array_append(one, object);
	else
		json_array_append(one, json_object_get(doc, "grant"));
	ctl_print_table(nouns[kind].columns, one);
	section("Rollout", rollout_columns, json_object_get(object, "rollout"));
	section("Conditions", condition_columns, json_object_get(object, "conditions"));
	print_targets(object);
	ctl_probes_print(object);
	section("Grants", grant_columns, json_object_get(doc, "grants"));
	print_more(doc, "moreGrants", "grants", kind);
	section("Sessions", session_columns, json_object_get(doc, "sessions"));
	print_more(doc, "moreSessions", "sessions", kind);
	if (yaml && *yaml)
		print_document(yaml);
	json_decref(object);
	json_decref(one);
}

static int run_describe(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__GetRequest req = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	ProtobufCMessage *msg = NULL;
	const Ros2__V1__GetReply *reply;
	const char *name;
	json_t *doc;
	int kind, r = ctl_ref(a, &kind, &name);

	if (r != CTL_OK)
		return r;
	if (kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION ||
	    kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_LEASE)
		return ctl_fail(
			CTL_USAGE,
			"describe: a %s is known to its agent only: ros2ctl get %s/%s -o yaml",
			ctl_kind_to_str(kind), ctl_kind_to_str(kind), name);
	ref.kind = (Ros2__V1__ObjectKind)kind;
	ref.name = (char *)name;
	req.ref = &ref;
	r = ctl_call(c, &ros2_v1_admin_get, &req.base, &msg);
	if (r != CTL_OK)
		return r;
	doc = ctl_json(msg, c->output != CTL_TABLE);
	reply = ros2_v1_admin_get_out(msg);
	for (size_t i = 0; i < reply->n_unreachable_agents; i++)
		warn_agent(reply->unreachable_agents[i]);
	protobuf_c_message_free_unpacked(msg, NULL);
	ctl_probes_name(json_object_get(doc, "object"));
	if (c->output == CTL_TABLE) {
		describe_text(kind, doc);
		json_decref(doc);
	} else if (c->output == CTL_NAME) {
		printf("%s/%s\n", ctl_kind_to_str(kind), name);
		json_decref(doc);
	} else {
		ctl_print_doc(c, ctl_json_kind("Description", doc));
	}
	return CTL_OK;
}

static const struct ctl_opt no_opts[] = {{0}};
const struct ctl_cmd ctl_cmd_describe = {
	.path = "describe",
	.args = "KIND/NAME",
	.summary = "everything about one tenant, engine, agent or grant",
	.help = "Shows how far each version of the object has come at each agent (sent, received, "
		"applied, failed), its\n"
		"grants and sessions, what an agent's devices were seen to enforce, which targets\n"
		"of its engines are lost, since when and why, and the document as it was "
		"applied.\n\n"
		"  ros2ctl describe tenant/alpha",
	.min_pos = 1,
	.max_pos = 2,
	.opts = no_opts,
	.run = run_describe,
};
