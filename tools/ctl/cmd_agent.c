/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl agent token create`: the one-time token with which a new agent enrols, passed by file.
 */
#include "common/args.h"
#include "common/fsx.h"
#include "common/utf8.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <stdio.h>
#include <string.h>

enum { OPT_TTL, OPT_OUT };
static const struct ctl_opt opts[] = {
	{"ttl", 0, "DURATION", "how long the token is good (default 1h)"},
	{"out", 0, "FILE", "write the token file here, mode 0600 (default: standard output)"},
	{0},
};

/* First line: the token. Then the CA bundle the agent shall trust; the token carries its hash. */
static int write_token(struct ctl *c, const char *token, const char *out)
{
	AUTO_FREE char *bundle = NULL, *text = NULL;
	AUTO_FREE void *pem = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	size_t len;
	int n;

	/* With more than one line the controller would say whom the agent shall trust, and what is
	 * no text would drive the terminal. */
	if (!utf8_text_printable(token))
		return ctl_fail(CTL_FAILED, "PROTOCOL: the controller sent a token that is not one "
		                            "line of text");
	bundle = ctl_path(c->context, "infra-bundle.pem");
	if (fsx_read_file(bundle, 65536, &pem, &len, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	n = asprintf(&text, "%s\n%s", token, (char *)pem);
	if (n < 0)
		return ctl_fail(CTL_FAILED, "out of memory");
	if (!out) {
		fputs(text, stdout);
		return CTL_OK;
	}
	if (fsx_write_atomic(out, text, (size_t)n, 0600, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	return CTL_OK;
}

static int run(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__CreateAgentTokenRequest req = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;
	uint64_t ms = 3600000;
	int r;

	if (a->value[OPT_TTL] &&
	    (args_duration_ms(a->value[OPT_TTL], &ms) < 0 || ms < 1000 || ms > 7 * 86400000ull))
		return ctl_fail(CTL_USAGE, "--ttl: expected 1s to 7d, found '%s'",
		                a->value[OPT_TTL]);
	req.agent = (char *)a->pos[0];
	req.ttl_s = (uint32_t)(ms / 1000);
	r = ctl_call(c, &ros2_v1_admin_create_agent_token, &req.base, &msg);
	if (r != CTL_OK)
		return r;
	r = write_token(c, ros2_v1_admin_create_agent_token_out(msg)->token, a->value[OPT_OUT]);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

const struct ctl_cmd ctl_cmd_agent_token = {
	.path = "agent token create",
	.args = "NAME",
	.summary = "make a one-time token with which an agent enrols",
	.help = "The token is bound to the name, good once and for a limited time, and carries the "
		"hash of the CA the agent\n"
		"shall trust. Bring the file to the agent by a channel you trust.\n\n"
		"  ros2ctl agent token create dpu-0 --out dpu-0.token",
	.min_pos = 1,
	.max_pos = 1,
	.opts = opts,
	.run = run,
};
