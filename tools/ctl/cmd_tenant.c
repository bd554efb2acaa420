/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl tenant reinstate`: the end of a revocation. */
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <stdio.h>

enum { REINSTATE_REASON };
static const struct ctl_opt reinstate_opts[] = {
	{"reason", 'r', "WORDS", "why; goes into the audit log", .required = true},
	{0},
};

static int run_reinstate(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__ReinstateRequest req = ROS2__V1__REINSTATE_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	req.tenant = (char *)a->pos[0];
	req.reason = (char *)a->value[REINSTATE_REASON];
	r = ctl_call(c, &ros2_v1_admin_reinstate, &req.base, &reply);
	if (r != CTL_OK)
		return r;
	if (c->output == CTL_TABLE || c->output == CTL_NAME)
		printf("tenant/%s reinstated\n", a->pos[0]);
	else
		ctl_print_doc(c, ctl_json_kind("Reinstatement", ctl_json(reply, true)));
	protobuf_c_message_free_unpacked(reply, NULL);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_tenant_reinstate = {
	.path = "tenant reinstate",
	.args = "NAME",
	.summary = "let a revoked tenant have rights again",
	.help = "What was revoked stays dead: the tenant gets new grants under a higher "
		"version.\n\n"
		"  ros2ctl tenant reinstate alpha --reason 'new key handed out'",
	.min_pos = 1,
	.max_pos = 1,
	.opts = reinstate_opts,
	.run = run_reinstate,
};
