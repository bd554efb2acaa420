/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl status` and `ros2ctl version`. */
#include "common/utf8.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <stdio.h>

static const struct ctl_opt no_opts[] = {{0}};

static const struct ctl_column status_columns[] = {
	{"VERSION", "version", CTL_TEXT},
	{"TRUST-DOMAIN", "trustDomain", CTL_TEXT},
	{"EPOCH", "epoch.counter", CTL_NUMBER},
	{"AGENTS", "agentsConnected", CTL_NUMBER},
	{"GRANTS", "grantsLive", CTL_NUMBER},
	{"AUDIT-RECORDS", "auditRecords", CTL_NUMBER},
	{"SIGNED", "lastCheckpointSize", CTL_NUMBER},
	{"UPTIME", "startedUnixNs", CTL_AGE_UNIX_NS},
	{0},
};

static const struct ctl_column wrong_columns[] = {
	{"CONDITION", "name", CTL_TEXT},
	{"REASON", "reason", CTL_TEXT},
	{0},
};

/* Only the conditions that hold: nothing of it when all is well. */
static void print_wrong(const json_t *status)
{
	json_t *conditions = json_object_get(status, "conditions"), *wrong = json_array(), *one;
	size_t i;

	json_array_foreach(conditions, i, one) if (json_is_true(json_object_get(one, "status")))
		json_array_append(wrong, one);
	if (json_array_size(wrong)) {
		printf("\n");
		ctl_print_table(wrong_columns, wrong);
	}
	json_decref(wrong);
}

static int run_status(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__StatusRequest req = ROS2__V1__STATUS_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;
	json_t *items;
	int r = ctl_call(c, &ros2_v1_admin_status, &req.base, &msg);

	if (r != CTL_OK)
		return r;
	if (c->output == CTL_TABLE || c->output == CTL_NAME) {
		items = json_array();
		json_array_append_new(items, ctl_json(msg, false));
		ctl_print_table(status_columns, items);
		print_wrong(json_array_get(items, 0));
		json_decref(items);
	} else {
		ctl_print_doc(c, ctl_json_kind("Status", ctl_json(msg, true)));
	}
	protobuf_c_message_free_unpacked(msg, NULL);
	return CTL_OK;
}

int ctl_warn_controller(struct ctl *c)
{
	Ros2__V1__StatusRequest req = ROS2__V1__STATUS_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;
	const Ros2__V1__StatusReply *reply;
	int r = ctl_call(c, &ros2_v1_admin_status, &req.base, &msg);

	if (r != CTL_OK)
		return r;
	reply = ros2_v1_admin_status_out(msg);
	for (size_t i = 0; i < reply->n_conditions; i++) {
		const Ros2__V1__Condition *k = reply->conditions[i];
		char name[256], why[1024];

		if (!k->status)
			continue;
		utf8_escape(k->name, name, sizeof(name));
		utf8_escape(k->reason, why, sizeof(why));
		fprintf(stderr, "ros2ctl: the controller itself: %s: %s\n", name, why);
	}
	protobuf_c_message_free_unpacked(msg, NULL);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_status = {
	.path = "status",
	.args = "",
	.summary = "the controller: version, epoch, audit log, what is wrong",
	.help = "  ros2ctl status -o json",
	.opts = no_opts,
	.run = run_status,
};

static int run_version(struct ctl *c, const struct ctl_args *a)
{
	if (c->output == CTL_JSON || c->output == CTL_YAML)
		ctl_print_doc(c, ctl_json_kind("Version", json_pack("{s:s,s:i}", "version",
		                                                    ROS2_VERSION_STRING, "protocol",
		                                                    RPC_PROTOCOL_VERSION)));
	else
		printf("ros2ctl %s (protocol %d)\n", ROS2_VERSION_STRING, RPC_PROTOCOL_VERSION);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_version = {
	.path = "version",
	.args = "",
	.summary = "the version of this program",
	.help = "  ros2ctl version",
	.opts = no_opts,
	.run = run_version,
};
