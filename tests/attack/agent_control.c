/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The negative controls of the attacks on an agent: the data plane in this process, on the same
 * device, with one check switched off for each (dataplane/test_switches.h). Each attack must work
 * here.
 *
 *   attack-agent-control [ATTACK]
 */
#include "tests/attack/agent.h"
#include "tests/dataplane/fixture.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct ros2_uid tenants[2], grants[2];
static unsigned lines;
static uint16_t port; /* of the reactor */
static bool pin;

#define REACTOR_TRIES 8
#define SHORT_TTL_MS  1000u

/* With @pin sessions of one reactor, as a real agent with one has them: keys are looked up there.
 * Those of the other wait until they expire, so that it does not seem free. */
static int open_session(struct site *site, enum tenant who, struct peer_session *ret)
{
	struct fx_args a = {.tenant = tenants[who], .grant = grants[who], .a = UINT64_MAX};
	struct dp_result res;

	for (int tries = 0; tries < REACTOR_TRIES; tries++) {
		a.session = ros2_uid_new();
		res = fx_do(site->own, FX_OPEN_SESSION, &a);
		if (res.status != ROS2_OK)
			return res.status == ROS2_LIMIT ? -EDQUOT : -EIO;
		if (!pin || !port || port == res.session.port)
			break;
	}
	port = res.session.port;
	*ret = (struct peer_session){0};
	memcpy(ret->uid, a.session.b, sizeof(ret->uid));
	memcpy(ret->secret, res.session.secret, sizeof(ret->secret));
	snprintf(ret->data, sizeof(ret->data), "%s:%u", fx_rdma_host, res.session.port);
	return 0;
}

static int prepare(struct site *site, enum tenant who, struct peer_session *s, uint64_t address)
{
	struct fx_args a = {.to = "ram", .path = who == ALPHA ? "alpha" : "beta", .flags = 3};
	struct dp_result res;

	memcpy(a.session.b, s->uid, sizeof(s->uid));
	res = fx_do(site->own, FX_MOUNT, &a);
	if (res.status != ROS2_OK)
		return -EIO;
	a.mount = res.mount.mount;
	a.path = "attacked";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	res = fx_do(site->own, FX_OPEN, &a);
	if (res.status != ROS2_OK)
		return -EIO;
	s->handle = res.open.handle;
	a.a = address;
	a.b = PEER_TARGET;
	a.flags = 3;
	res = fx_do(site->own, FX_REGISTER, &a);
	if (res.status != ROS2_OK)
		return -EIO;
	s->key = res.region.key;
	s->generation = res.region.generation;
	/* without expiry the answer has no end; what the policy says is over then */
	s->ttl_ms = dp_test_switches.no_expiry ? SHORT_TTL_MS : res.region.ttl_ms;
	return 0;
}

static int close_session(struct site *site, enum tenant who, const struct peer_session *s)
{
	struct fx_args a = {0};

	memcpy(a.session.b, s->uid, sizeof(s->uid));
	(void)fx_do(site->own, FX_CLOSE_SESSION, &a);
	return 0;
}

/* Which check each control leaves out. */
static bool turn_off(const char *what)
{
	dp_test_switches = (struct dp_test_switches){0};
	pin = !strcmp(what, "no_key_owner") || !strcmp(what, "no_turn_bounds");
	fx_rdma_keep_ms = !strcmp(what, "no_kept_slots") ? DP_RDMA_KEEP_NONE : 0;
	if (!strcmp(what, "no_proof"))
		dp_test_switches.no_proof = true;
	else if (!strcmp(what, "no_key_owner"))
		dp_test_switches.no_key_owner = true;
	else if (!strcmp(what, "no_expiry"))
		dp_test_switches.no_expiry = true;
	else if (!strcmp(what, "no_session_caps"))
		dp_test_switches.no_session_share = true;
	else if (!strcmp(what, "no_rnr_limit"))
		dp_test_switches.no_rnr_limit = true;
	else if (!strcmp(what, "no_turn_bounds"))
		dp_test_switches.no_turn_bounds = true;
	else if (!strcmp(what, "remote_operations"))
		dp_test_switches.remote_operations = true;
	else
		return fx_rdma_keep_ms == DP_RDMA_KEEP_NONE;
	return true;
}

/* What of it is the tenants' policy. */
static void narrow(struct fx *fx, const char *what)
{
	if (!strcmp(what, "no_session_caps") || !strcmp(what, "no_turn_bounds"))
		fx->limits.sessions_max = UINT32_MAX;
	if (!strcmp(what, "no_expiry"))
		fx->limits.lease_ttl_ms = SHORT_TTL_MS;
	fx_limits(fx);
}

static bool control(const struct agent_attack *a)
{
	struct attack_try t = {.defended = false};
	void *state = NULL;
	struct site site = {NULL, open_session, prepare, close_session};
	int r = turn_off(a->control) ? fx_setup(&state) : -EINVAL;

	port = 0;
	if (!r) {
		struct fx *fx = site.own = state;

		narrow(fx, a->control);
		tenants[ALPHA] = fx->tenant;
		grants[ALPHA] = fx->grant;
		tenants[BETA] = ros2_uid_new();
		grants[BETA] = ros2_uid_new();
		fx_tenant(fx, &tenants[BETA]);
		r = fx_grant(fx, &grants[BETA], &tenants[BETA], UINT64_MAX);
		if (!r)
			r = a->run(&site, &t);
		fx_teardown(&state);
	}
	printf("%s %u - attack__%s__works_without_the_defence (%s: %s)\n",
	       !r && t.worked ? "ok" : "not ok", ++lines, a->name, a->control, t.seen);
	fflush(stdout);
	return !r && t.worked;
}

int main(int argc, char **argv)
{
	bool good = true;

	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = "rxe0";
	fx_rdma_host = "10.77.0.1";
	for (unsigned i = 0; i < n_agent_attacks; i++)
		if (agent_attacks[i].control &&
		    (argc < 2 || !strcmp(argv[1], agent_attacks[i].name)))
			good = control(&agent_attacks[i]) && good;
	printf("1..%u\n", lines);
	return good ? 0 : 1;
}
