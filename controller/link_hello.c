/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent's hello must say to be accepted. The certificate was looked at before; here: the
 * agent's uid, the controller it has seen last, and how often it says hello.
 */
#include "common/utf8.h"
#include "controller/link_priv.h"
#include "controller/svc_priv.h"
#include "controller/test_switches.h"
#include "proto/rpc/rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "link"
#include "common/log.h"

#define HAVE_MAX 200000
/* Each hello leaves two records in the log: as many as refusals do (audit.c). A probe report, a
 * renewal of the certificate, and an enrolment but the first by a token, is another one. */
#ifndef HELLOS_FIRST
#define HELLOS_FIRST 100
#define HELLOS_PER_S 10
#endif
/* Each object that it names is looked up, and told to be removed if it is not to be there, on a
 * loop that is everybody's: so many count as one hello more. Twice the most is within the first. */
#define HELLO_OBJECTS 5000

int link_take_stamp(const Ros2__V1__Stamp *in, struct clock_stamp *out)
{
	if (!in || in->boot_id.len != 16)
		return -EINVAL;
	memcpy(out->boot_id, in->boot_id.data, 16);
	out->boottime_ns = in->boottime_ns;
	return 0;
}

void link_take_text(char *out, size_t size, const char *in)
{
	snprintf(out, size, "%s", in);
	utf8_clean(out);
}

int link_check_rate(struct ctl_agent *a, size_t n_have, struct ros2_err *err)
{
	uint64_t each = NS_PER_S / HELLOS_PER_S, now = clock_boottime_ns();
	uint64_t full = now > HELLOS_FIRST * each ? now - HELLOS_FIRST * each : 0;
	uint64_t cost = 1 + MIN(n_have, (size_t)HAVE_MAX) / HELLO_OBJECTS;
	uint64_t then = MAX(a->busy_ns, full) + cost * each;

	if (then > now && !CTL_SWITCH(no_hello_rate))
		return ros2_err_named(
			err, ROS2_BUSY,
			"agent \"%s\" says hello more than %d times a second (fixed): %d objects "
			"in "
			"one, a probe report, a renewal and an enrolment count as another. Is it "
			"one process? Try again in a moment",
			a->obj->name, HELLOS_PER_S, HELLO_OBJECTS);
	a->busy_ns = then;
	return 0;
}

/* The number of this process, which has not told it: the data directory is there twice. */
static int same_epoch(const struct link *l, struct ros2_err *err)
{
	unsigned long long n = l->svc->ctl->epoch.counter;

	log_error("agent %s has seen epoch %llu, which is ours, from another controller: this data "
	          "directory is a copy, or that one is; stop the older of the two",
	          l->name, n);
	return ros2_err_named(err, ROS2_STALE_EPOCH,
	                      "epoch %llu is this controller's and was told by another one: one of "
	                      "the two runs on a copy of the other's data directory",
	                      n);
}

static int check_epoch(struct link *l, const struct ctl_agent *a, const Ros2__V1__Epoch *e,
                       struct ros2_err *err)
{
	const struct store_epoch *ours = &l->svc->ctl->epoch;

	if (!e || !e->counter)
		return 0;
	if (!CTL_SWITCH(no_lineage) &&
	    (e->lineage.len != ROS2_UID_LEN ||
	     memcmp(e->lineage.data, ours->lineage.b, ROS2_UID_LEN) != 0))
		return ros2_err_named(
			err, ROS2_WRONG_DOMAIN,
			"this agent belongs to another controller's history (lineage): "
			"point it to its own controller, or remove its state and enrol it");
	/* Of an agent that was made since, another one of that name may have heard it. */
	if (e->counter == ours->counter && ctl_agent_unheard(a))
		return same_epoch(l, err);
	if (e->counter <= ours->counter || CTL_SWITCH(no_newer_epoch))
		return 0;
	log_error("agent %s has seen epoch %llu, this controller has %llu: this data directory is "
	          "an old copy and another controller is newer; stop this one",
	          l->name, (unsigned long long)e->counter, (unsigned long long)ours->counter);
	return ros2_err_named(
		err, ROS2_STALE_EPOCH,
		"this controller (epoch %llu) has been superseded by one of epoch %llu",
		(unsigned long long)ours->counter, (unsigned long long)e->counter);
}

/* Documents have numbers that are given out once, so a higher one than ours was given out by
 * another controller: a newer copy of this data directory is, or was, in use. The agent would keep
 * that document against each of ours, and against revocations, up to that number. */
int link_check_documents(struct link *l, const Ros2__V1__AgentHello *h, struct ros2_err *err)
{
	for (size_t i = 0; i < h->n_have; i++) {
		const Ros2__V1__HaveObject *v = h->have[i];
		const struct ctl_object *o = NULL;
		struct ros2_uid u;

		if (!ros2_uid_from_bytes(v->uid.data, v->uid.len, &u))
			o = ctl_find_uid(l->svc->ctl, &u);
		if (!o || (int)o->kind != (int)v->kind || v->version <= o->version)
			continue;
		log_error("agent %s has %s \"%s\" in version %llu, this controller in version "
		          "%llu: this data directory is an old copy, and what was changed since is "
		          "not known here; stop this one",
		          l->name, ctl_kind_to_str(o->kind), o->name,
		          (unsigned long long)v->version, (unsigned long long)o->version);
		return ros2_err_named(err, ROS2_STALE_EPOCH,
		                      "the agent has a document in version %llu, which this "
		                      "controller has not given out: it runs on an old copy of its "
		                      "data directory",
		                      (unsigned long long)v->version);
	}
	return 0;
}

int link_check_hello(struct link *l, struct ctl_agent *a, const Ros2__V1__AgentHello *h,
                     struct ros2_err *err)
{
	struct clock_stamp stamp;
	int r = link_check_rate(a, h->n_have, err);

	if (r < 0)
		return r;
	if (h->protocol != RPC_PROTOCOL_VERSION)
		return ros2_err_named(err, ROS2_VERSION, "agent speaks protocol %u, controller %u",
		                      h->protocol, RPC_PROTOCOL_VERSION);
	if (!CTL_SWITCH(no_agent_uid) &&
	    (h->agent_uid.len != ROS2_UID_LEN ||
	     memcmp(h->agent_uid.data, a->obj->uid.b, ROS2_UID_LEN) != 0))
		return ros2_err_named(
			err, ROS2_DENIED,
			"the agent's uid is not the one of agent \"%s\": it was created "
			"again since; enrol with a new token and an empty --state-dir",
			l->name);
	if (h->incarnation.len != ROS2_UID_LEN || link_take_stamp(h->stamp, &stamp) < 0)
		return ros2_err_named(err, ROS2_INVALID, "hello without incarnation or stamp");
	if (h->n_have > HAVE_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE,
		                      "hello with %zu objects, at most %d (fixed)", h->n_have,
		                      HAVE_MAX);
	return check_epoch(l, a, h->epoch, err);
}

bool link_take_have(struct ctl_agent *a, const Ros2__V1__AgentHello *h)
{
	bool all = true;

	ctl_rollout_free(a);
	a->gone_limit_ms = 0;
	list_init(&a->unacked);
	for (size_t i = 0; i < h->n_have && all; i++) {
		const struct ctl_grant *g;
		struct ros2_uid u;

		if (ros2_uid_from_bytes(h->have[i]->uid.data, h->have[i]->uid.len, &u) < 0)
			continue;
		/* A tenant may have moved while the agent was away; a grant never does. */
		g = ctl_grant_find(a->ctl, &u);
		if (g && g->agent != a)
			ctl_agent_claim(a, "it says that it holds a grant of another agent");
		else
			all = ctl_rollout_have(a, (enum store_kind)h->have[i]->kind, &u,
			                       h->have[i]->version);
	}
	return all;
}
