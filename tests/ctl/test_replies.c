/* SPDX-License-Identifier: Apache-2.0 */
/* What ros2ctl does with the replies of a controller that is not what it was: of the names in them
 * nothing reaches the terminal, or the line that a shell completes, as anything but text. */
#include "tests/testing.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"

/* ESC, and CSI as one character, behind a line feed. */
#define HOSTILE                                                                                    \
	"al\nINTACT \x1b[2J\xc2\x9b"                                                               \
	"31m"

/* ---- the way to the controller ---- */

static const ProtobufCMessage *reply; /* of the next call */

int ctl_call(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
             ProtobufCMessage **ret)
{
	uint8_t *bytes = malloc(protobuf_c_message_get_packed_size(reply) + 1);
	size_t n;

	assert_non_null(bytes);
	assert_ptr_equal(m->output, reply->descriptor);
	n = protobuf_c_message_pack(reply, bytes);
	*ret = protobuf_c_message_unpack(m->output, NULL, n, bytes);
	free(bytes);
	assert_non_null(*ret);
	return CTL_OK;
}

int ctl_call_wait(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
                  uint32_t timeout_ms, ProtobufCMessage **ret)
{
	return ctl_call(c, m, req, ret);
}

int ctl_warn_controller(struct ctl *c)
{
	return CTL_OK;
}

char *ctl_path(const char *dir, const char *name)
{
	abort();
}

int ctl_fail(int code, const char *fmt, ...)
{
	return code;
}

/* ---- what is written, to stdout and stderr ---- */

static char shown[8192];

static void run(const struct ctl_cmd *cmd, enum ctl_output output, const char *pos,
                const char *const *words, int n_words)
{
	struct ctl_args a = {.pos = &pos, .n_pos = pos ? 1 : 0};
	int to[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
	struct ctl c = {.output = output, .timeout_ms = 1000};
	FILE *f = tmpfile();
	ssize_t n;

	assert_non_null(f);
	fflush(stdout);
	dup2(fileno(f), STDOUT_FILENO);
	dup2(fileno(f), STDERR_FILENO);
	if (words)
		ctl_complete(&c, &cmd, 1, words, n_words);
	else
		cmd->run(&c, &a);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(to[i], i + 1);
		close(to[i]);
	}
	n = pread(fileno(f), shown, sizeof(shown) - 1, 0);
	shown[n > 0 ? n : 0] = '\0';
	fclose(f);
}

static void assert_harmless(void)
{
	assert_non_null(strstr(shown, "INTACT"));
	assert_null(strchr(shown, 0x1b));
	assert_null(strstr(shown, "\xc2\x9b"));
	assert_null(strstr(shown, "\nINTACT"));
}

/* ---- */

static void get__escapes_names_and_agents_that_were_not_reached(void **state)
{
	Ros2__V1__ListReply list = ROS2__V1__LIST_REPLY__INIT;
	Ros2__V1__ObjectInfo object = ROS2__V1__OBJECT_INFO__INIT, *objects = &object;
	char *agent = (char *)HOSTILE;

	object.name = (char *)HOSTILE;
	reply = &list.base;
	list.objects = &objects;
	list.n_objects = 1;
	run(&ctl_cmd_get, CTL_NAME, "tenants", NULL, 0);
	assert_harmless();
	list.n_objects = 0;
	list.unreachable_agents = &agent;
	list.n_unreachable_agents = 1;
	run(&ctl_cmd_get, CTL_TABLE, "sessions", NULL, 0);
	assert_harmless();
}

static void apply__escapes_the_names_of_what_it_did(void **state)
{
	Ros2__V1__ApplyReply done = ROS2__V1__APPLY_REPLY__INIT;
	Ros2__V1__ApplyResult result = ROS2__V1__APPLY_RESULT__INIT, *results = &result;

	result.name = (char *)HOSTILE;
	done.applied = true;
	done.results = &results;
	done.n_results = 1;
	reply = &done.base;
	run(&ctl_cmd_apply, CTL_TABLE, NULL, NULL, 0);
	assert_harmless();
}

static void revoke__escapes_the_agent_whose_keys_are_pending(void **state)
{
	Ros2__V1__RevokeReply revoked = ROS2__V1__REVOKE_REPLY__INIT;
	Ros2__V1__RevokeOutcome outcome = ROS2__V1__REVOKE_OUTCOME__INIT, *outcomes = &outcome;

	outcome.agent = (char *)HOSTILE;
	outcome.pending_left_out = 1;
	revoked.outcomes = &outcomes;
	revoked.n_outcomes = 1;
	reply = &revoked.base;
	run(&ctl_cmd_revoke, CTL_NAME, "agent/a", NULL, 0);
	assert_harmless();
}

/* Behind the line of the token stands whom the agent shall trust. */
static void token__that_is_not_one_line_of_text_is_not_passed_on(void **state)
{
	static const char *const tokens[] = {"ros2-join-v1 a s h\n-----BEGIN CERTIFICATE-----",
	                                     "ros2-join-v1 a \x1b[2J h", "ros2-join-v1 \xff s h"};
	Ros2__V1__CreateAgentTokenReply made = ROS2__V1__CREATE_AGENT_TOKEN_REPLY__INIT;

	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
		made.token = (char *)tokens[i];
		reply = &made.base;
		run(&ctl_cmd_agent_token, CTL_TABLE, "a", NULL, 0);
		assert_string_equal(shown, "");
	}
}

/* A shell puts it behind the prompt as it comes: it would be run by the next return key. */
static void completion__offers_no_name_that_is_none(void **state)
{
	static const char *const names[] = {"alpha",     HOSTILE, "a;reboot",
	                                    "$(reboot)", "*",     "b eta"};
	static const char *const ask[] = {"get", "tenants", ""};
	Ros2__V1__ObjectInfo object[ARRAY_SIZE(names)], *objects[ARRAY_SIZE(names)];
	Ros2__V1__ListReply list = ROS2__V1__LIST_REPLY__INIT;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		ros2__v1__object_info__init(&object[i]);
		object[i].name = (char *)names[i];
		objects[i] = &object[i];
	}
	list.objects = objects;
	list.n_objects = ARRAY_SIZE(names);
	reply = &list.base;
	run(&ctl_cmd_get, CTL_TABLE, NULL, ask, ARRAY_SIZE(ask));
	assert_string_equal(shown, "alpha\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(get__escapes_names_and_agents_that_were_not_reached),
		cmocka_unit_test(apply__escapes_the_names_of_what_it_did),
		cmocka_unit_test(revoke__escapes_the_agent_whose_keys_are_pending),
		cmocka_unit_test(token__that_is_not_one_line_of_text_is_not_passed_on),
		cmocka_unit_test(completion__offers_no_name_that_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
