/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For planted-race: a race of ours behind an answer of gRPC. A counter is written where the answer
 * is heard, on the loop, and by who asked, who does not wait for it; with `ordered` he does.
 */
#include "tests/rpc/fixture.h"
#include <string.h>

static int planted_counter;
static atomic_int heard;

static void planted_on_reply(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	planted_counter++;
	atomic_fetch_add(&heard, 1);
}

int main(int argc, char **argv)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	bool ordered = argc > 1 && !strcmp(argv[1], "ordered");
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	void *state = NULL;
	struct fx f;

	if (fx_group_setup(&state))
		return 1;
	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	req.text = (char *)"hello";
	if (rpc_unary(c, &ros2_test_echo_say, &req.base, 60000, planted_on_reply, NULL, NULL, &err))
		return 1;
	if (ordered)
		fx_wait(&heard, 1);
	planted_counter++;
	fx_wait(&heard, 1);
	fx_channel_free(&f, c);
	fx_stop(&f);
	fx_group_teardown(&state);
	return 0;
}
