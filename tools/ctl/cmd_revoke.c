/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl revoke`, `delete` and `agent isolate`: what withdraws rights. Each waits for the agents'
 * receipts and shows them. */
#include "common/args.h"
#include "common/ids.h"
#include "common/utf8.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <stdio.h>
#include <string.h>

#define RECEIPT_MARGIN_MS 5000
/* The controller's: it would answer then, whatever was asked for. */
#define WAIT_MAX_MS 25000

static const struct ctl_column outcome_columns[] = {
	{"AGENT", "agent", CTL_TEXT},
	{"STATE", "state", CTL_TEXT},
	{"SESSIONS", "sessions", CTL_NUMBER},
	{"LEASES", "leases", CTL_NUMBER},
	{"WINDOWS", "windows", CTL_NUMBER},
	{"DRAINING", "draining", CTL_NUMBER},
	{"COMMAND->RECEIPT", "controllerToReceiptNs", CTL_NS},
	{"->LAST-BYTE", "agentReceiveToLastByteNs", CTL_NS},
	{"->LAST-ENGINE", "agentReceiveToLastEngineNs", CTL_NS},
	{"->LAST-WINDOW", "agentReceiveToLastWindowNs", CTL_NS},
	{"->DURABLE", "agentReceiveToDurableNs", CTL_NS},
	{"HELD-UNTIL", "unconfirmedUntilUnixNs", CTL_TIME_UNIX_NS},
	{0},
};

static const struct ctl_column pending_columns[] = {
	{"AGENT", "agent", CTL_TEXT},
	{"TENANT", "tenant", CTL_TEXT},
	{"KEYS-PENDING", "keys", CTL_NUMBER},
	{"DEVICE", "device", CTL_TEXT},
	{0},
};

static int unconfirmed(Ros2__V1__RevokeOutcome **v, size_t n)
{
	int count = 0;

	for (size_t i = 0; i < n; i++)
		count += v[i]->state == ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED;
	return count;
}

/* Whose keys an agent's device has not ended: a table of its own, under the other. */
static void show_pending(Ros2__V1__RevokeOutcome **v, size_t n)
{
	json_t *items = json_array();

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < v[i]->n_pending; j++) {
			json_t *row = ctl_json(&v[i]->pending[j]->base, false);

			json_object_set_new(row, "agent", json_string(v[i]->agent));
			/* It may be deleted: by its uid then. */
			if (!v[i]->pending[j]->tenant[0])
				json_object_set(row, "tenant", json_object_get(row, "tenantUid"));
			json_array_append_new(items, row);
		}
	if (json_array_size(items)) {
		putchar('\n');
		ctl_print_table(pending_columns, items);
	}
	json_decref(items);
}

/* How many agents have some; what to do is said for each. */
static int warn_pending(Ros2__V1__RevokeOutcome **v, size_t n)
{
	int agents = 0;

	for (size_t i = 0; i < n; i++) {
		const Ros2__V1__RevokeOutcome *o = v[i];
		size_t tenants = o->n_pending + o->pending_left_out;
		char agent[256];

		if (!tenants)
			continue;
		agents++;
		utf8_escape(o->agent, agent, sizeof(agent));
		fprintf(stderr,
		        "ros2ctl: agent/%s: its RDMA device has not ended keys of %zu tenant%s"
		        "%s: their storage targets may still reach those tenants' buffers at this "
		        "agent, no new work begins. Ask again with `ros2ctl revoke agent/%s`; if "
		        "they stay, end ros2-agent there: the kernel takes the keys back "
		        "(docs/operations.md)\n",
		        agent, tenants, tenants > 1 ? "s" : "",
		        o->pending_left_out ? " (not all are listed)" : "", agent);
	}
	return agents;
}

/* Prints outcomes; the exit code says whether every agent gave its receipt, and whether no key is
 * pending. */
static int show(struct ctl *c, const char *kind, const ProtobufCMessage *msg,
                Ros2__V1__RevokeOutcome **v, size_t n)
{
	int missing = unconfirmed(v, n), pending;

	if (c->output == CTL_TABLE) {
		json_t *items = json_array();

		for (size_t i = 0; i < n; i++)
			json_array_append_new(items, ctl_json(&v[i]->base, false));
		if (n)
			ctl_print_table(outcome_columns, items);
		else
			puts("No agent held a right under it.");
		json_decref(items);
		show_pending(v, n);
	} else if (c->output != CTL_NAME) {
		ctl_print_doc(c, ctl_json_kind(kind, ctl_json(msg, true)));
	}
	fflush(stdout);
	pending = warn_pending(v, n);
	if (missing)
		return ctl_fail(CTL_FAILED,
		                "%d agent%s gave no receipt yet: the rights there end at "
		                "HELD-UNTIL at the latest, and the "
		                "revocation is sent again when the agent returns",
		                missing, missing > 1 ? "s" : "");
	if (pending)
		return ctl_fail(CTL_FAILED,
		                "keys are pending at %d agent%s: what they give has "
		                "not ended for sure",
		                pending, pending > 1 ? "s" : "");
	return CTL_OK;
}

enum { OPT_REASON, OPT_WAIT };
static const struct ctl_opt revoke_opts[] = {
	{"reason", 'r', "WORDS",
         "why; goes into the audit log (default \"revoked by administrator\")"},
	{"wait", 'w', "DURATION", "how long to wait for receipts, up to 25s (default 5s)"},
	{0},
};

static int run_revoke(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__RevokeRequest req = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	ProtobufCMessage *msg = NULL;
	const char *name;
	uint64_t wait_ms = 5000;
	int kind, r = ctl_ref(a, &kind, &name);

	if (r != CTL_OK)
		return r;
	if (a->value[OPT_WAIT] &&
	    (args_duration_ms(a->value[OPT_WAIT], &wait_ms) < 0 || wait_ms > WAIT_MAX_MS))
		return ctl_fail(CTL_USAGE, "--wait: expected a duration of up to 25s, found '%s'",
		                a->value[OPT_WAIT]);
	ref.kind = (Ros2__V1__ObjectKind)kind;
	ref.name = (char *)name;
	req.ref = &ref;
	req.reason =
		(char *)(a->value[OPT_REASON] ? a->value[OPT_REASON] : "revoked by administrator");
	req.wait_ms = (uint32_t)wait_ms;
	r = ctl_call_wait(c, &ros2_v1_admin_revoke, &req.base, req.wait_ms + RECEIPT_MARGIN_MS,
	                  &msg);
	if (r != CTL_OK)
		return r;
	const Ros2__V1__RevokeReply *reply = ros2_v1_admin_revoke_out(msg);
	if (reply->record_pending)
		fprintf(stderr, "ros2ctl: the revocation is effective; its audit record waits for "
		                "disk space\n");
	r = show(c, "Revocation", msg, reply->outcomes, reply->n_outcomes);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

const struct ctl_cmd ctl_cmd_revoke = {
	.path = "revoke",
	.args = "KIND/NAME",
	.summary = "withdraw the rights of a tenant, grant, session or agent, in the data plane",
	.help = "A receipt (state `confirmed`) says: after it no byte is handed to kernel, device "
		"or engine under that\n"
		"right, and every key that a storage target was given for it is dead in the RDMA "
		"device (WINDOWS).\n"
		"`draining` counts what is still inside an engine, and, of a whole agent, keys "
		"that its device has not ended:\n"
		"a second table says whose (KEYS-PENDING). A revoked tenant gets nothing "
		"new until\n"
		"`ros2ctl tenant reinstate`. Times: COMMAND->RECEIPT is the controller's clock; "
		"the others are the\n"
		"agent's, from the arrival of the revocation.\n\n"
		"  ros2ctl revoke tenant/alpha --reason 'key leaked'\n"
		"  ros2ctl revoke grant/$(ros2ctl get grants -t alpha -o json | jq -r "
		"'.items[0].grantUid')",
	.min_pos = 1,
	.max_pos = 2,
	.opts = revoke_opts,
	.run = run_revoke,
};

enum { OPT_UID };
static const struct ctl_opt delete_opts[] = {
	{"uid", 0, "HEX", "delete only if the object of that name is this one"},
	{0},
};

static int run_delete(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__DeleteRequest req = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	ProtobufCMessage *msg = NULL;
	struct ros2_uid uid;
	const char *name;
	int kind, r = ctl_ref(a, &kind, &name);

	if (r != CTL_OK)
		return r;
	if (a->value[OPT_UID] && ros2_uid_from_str(a->value[OPT_UID], &uid) < 0)
		return ctl_fail(CTL_USAGE, "--uid: expected 32 hex digits, found '%s'",
		                a->value[OPT_UID]);
	if (a->value[OPT_UID]) {
		req.expect_uid.data = uid.b;
		req.expect_uid.len = sizeof(uid.b);
	}
	ref.kind = (Ros2__V1__ObjectKind)kind;
	ref.name = (char *)name;
	req.ref = &ref;
	r = ctl_call_wait(c, &ros2_v1_admin_delete, &req.base, c->timeout_ms + RECEIPT_MARGIN_MS,
	                  &msg);
	if (r != CTL_OK)
		return r;
	const Ros2__V1__DeleteReply *reply = ros2_v1_admin_delete_out(msg);
	if (c->output == CTL_TABLE || c->output == CTL_NAME)
		printf("%s/%s%s\n", ctl_kind_to_str(kind), name,
		       c->output == CTL_TABLE ? " deleted" : "");
	if (reply->n_outcomes || c->output != CTL_TABLE)
		r = show(c, "Deletion", msg, reply->outcomes, reply->n_outcomes);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

const struct ctl_cmd ctl_cmd_delete = {
	.path = "delete",
	.args = "KIND/NAME",
	.summary = "delete a tenant, engine or agent; what rests on it is revoked",
	.help = "The name may be used again; the new object has another UID and inherits "
		"nothing.\n\n"
		"  ros2ctl delete tenant/alpha\n"
		"  ros2ctl delete tenant/alpha --uid $(ros2ctl get tenant/alpha -o json | jq -r "
		"'.items[0].uid')",
	.min_pos = 1,
	.max_pos = 2,
	.opts = delete_opts,
	.run = run_delete,
};

enum { OPT_ISO_REASON, OPT_ISO_LIFT };
static const struct ctl_opt isolate_opts[] = {
	{"reason", 'r', "WORDS", "why; goes into the audit log", .required = true},
	{"lift", 0, NULL, "end the isolation"},
	{0},
};

static int run_isolate(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__IsolateAgentRequest req = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;
	int r;

	req.agent = (char *)a->pos[0];
	req.reason = (char *)a->value[OPT_ISO_REASON];
	req.lift = a->value[OPT_ISO_LIFT] != NULL;
	r = ctl_call_wait(c, &ros2_v1_admin_isolate_agent, &req.base,
	                  c->timeout_ms + RECEIPT_MARGIN_MS, &msg);
	if (r != CTL_OK)
		return r;
	Ros2__V1__IsolateAgentReply *reply = (Ros2__V1__IsolateAgentReply *)msg;
	if (req.lift && c->output == CTL_TABLE)
		printf("agent/%s is no longer isolated\n", a->pos[0]);
	else
		r = show(c, "Isolation", msg, &reply->outcome, reply->outcome ? 1 : 0);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

const struct ctl_cmd ctl_cmd_agent_isolate = {
	.path = "agent isolate",
	.args = "NAME",
	.summary = "cut an agent off: its rights are revoked, it gets nothing, it cannot connect",
	.help = "An agent that is not trusted any more also keeps what it can reach at the storage "
		"engine by itself: remove\n"
		"its access there too. Until it gave a receipt its state is `unconfirmed`.\n\n"
		"  ros2ctl agent isolate dpu-0 --reason 'stolen'\n"
		"  ros2ctl agent isolate dpu-0 --lift --reason 'found, keys replaced'",
	.min_pos = 1,
	.max_pos = 1,
	.opts = isolate_opts,
	.run = run_isolate,
};
