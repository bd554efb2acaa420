/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the sweep of failing allocations what takes rights away and gives them back: deleting, the
 * isolation of an agent and its end, a certificate renewed, what an agent has probed, a grant given
 * back. Told that it is done, it is so; told that it is not, the object is there whole or it is
 * gone, and who is isolated is not let in.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/probe.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/controller/alloc_works.h"
#include "tests/sweep/sweep.h"

/* NULL: there is none. Not while allocations fail. */
static Ros2__V1__GetReply *find(struct world *w, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__GetReply *r = NULL;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	/* What is being taken away may hold up the first look. */
	AWAIT(!ros2_v1_admin_get_sync(w->f->admin, &q, AWAIT_MS, &r, &err) ||
	      err.status == ROS2_NOT_FOUND);
	if (!r && err.status != ROS2_NOT_FOUND)
		fail_msg("%s", err.msg);
	return r;
}

static bool exists(struct world *w, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetReply *r = find(w, kind, name);

	if (!r)
		return false;
	if (!r->object->yaml.len || r->object->uid.len != ROS2_UID_LEN)
		fail_msg("of %s there is a part", name);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return true;
}

/* ---- delete ---- */

static int delete (struct world *w, Ros2__V1__ObjectKind kind, const char *name,
                   struct ros2_err *err)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;
	int rc;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	rc = ros2_v1_admin_delete_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (r)
		ros2__v1__delete_reply__free_unpacked(r, NULL);
	sweep_off();
	if (rc && err->status == ROS2_NOT_FOUND && w->tried)
		rc = 0;
	w->tried = rc != 0;
	if (exists(w, kind, name) && !rc)
		fail_msg("%s was deleted, and is there", name);
	return rc;
}

static const char *gone_name(const struct world *w)
{
	static char name[32];

	snprintf(name, sizeof(name), "gone-%u", w->n);
	return name;
}

int works_new_tenant(struct world *w, struct ros2_err *err)
{
	w->n++;
	w->tried = false;
	sf_apply(w->f, sf_tenant(gone_name(w), "1h", "10m", "dpu-0"));
	return 0;
}

int works_delete_tenant(struct world *w, struct ros2_err *err)
{
	return delete (w, KIND(TENANT), gone_name(w), err);
}

/* ---- an agent of the round ---- */

static bool confirm(struct fake *a, const Ros2__V1__ControllerMessage *in)
{
	if (in->msg_case == MSG(REVOKE))
		fake_receipt(a, &in->revoke->revocation_uid, 0);
	return false;
}

/* What a new link of the agent comes to: 0, or why there is none. */
static enum ros2_status link_anew(struct world *w)
{
	struct fake *a = &w->fresh;

	fake_disconnect(a);
	fake_connect(a, NULL, 0);
	if (fake_next(a, MSG(WELCOME), AWAIT_MS))
		return ROS2_OK;
	if (!fake_closed(a))
		fail_msg("a hello was not answered");
	return a->why.status;
}

static void make_agent(struct world *w)
{
	char name[32], doc[200];

	snprintf(name, sizeof(name), "b-%u", ++w->n);
	snprintf(doc, sizeof(doc),
	         "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: %s}\nspec: {}\n", name);
	sf_apply(w->f, doc);
	if (w->fresh.f)
		fake_free(&w->fresh);
	fake_enrol(w->f, &w->fresh, name);
	w->fresh.sees = confirm;
	if (link_anew(w) != ROS2_OK)
		fail_msg("a new agent is not let in: %s", w->fresh.why.msg);
}

/* An agent may say hello, and renew, a hundred times at first: after some rounds there is another.
 */
int works_fresh_agent(struct world *w, struct ros2_err *err)
{
	int rc;

	if (!w->fresh_uses) {
		make_agent(w);
	} else if (w->fresh_uses >= 12) {
		w->tried = true; /* it may be gone already */
		rc = delete (w, KIND(AGENT), w->fresh.name, err);
		if (rc)
			return rc;
		make_agent(w);
		w->fresh_uses = 0;
	} else if (fake_closed(&w->fresh)) {
		rc = works_let_in(w, err); /* the last that was isolated is so */
		if (rc)
			return rc;
		if (link_anew(w) != ROS2_OK)
			fail_msg("an agent is not let in any more: %s", w->fresh.why.msg);
	}
	w->fresh_uses++;
	w->tried = false;
	return 0;
}

/* Not removed, it is let in as before, but by who is still about it. */
int works_delete_agent(struct world *w, struct ros2_err *err)
{
	int rc = delete (w, KIND(AGENT), w->fresh.name, err);
	bool there = exists(w, KIND(AGENT), w->fresh.name);
	enum ros2_status s;

	/* Otherwise than by the controller's answer it may be going on. */
	if (rc && there && err->status != ROS2_BUSY)
		return rc;
	s = link_anew(w);
	w->fresh_uses *= there;
	if (s != (there ? ROS2_OK : ROS2_DENIED))
		fail_msg("an agent that was %sdeleted is answered %s", there ? "not " : "",
		         ros2_status_to_str(s));
	return rc;
}

/* ---- isolation ---- */

static bool is_isolated(struct world *w)
{
	Ros2__V1__GetReply *r = find(w, KIND(AGENT), w->fresh.name);
	bool is = r->object->agent->isolated;

	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

static int ask_isolation(struct world *w, bool lift, struct ros2_err *err)
{
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *r = NULL;
	int rc;

	q.agent = w->fresh.name;
	q.reason = (char *)"test";
	q.lift = lift;
	rc = ros2_v1_admin_isolate_agent_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (r)
		ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
	sweep_off();
	return rc;
}

static void stays_out(struct world *w)
{
	enum ros2_status s;

	/* Its link ends with the answer. */
	(void)fake_wait_closed(&w->fresh, AWAIT_MS);
	s = link_anew(w);
	if (s != ROS2_REVOKED)
		fail_msg("an isolated agent is answered %s", ros2_status_to_str(s));
}

int works_isolate(struct world *w, struct ros2_err *err)
{
	int rc = ask_isolation(w, false, err);
	bool is = is_isolated(w);

	if (!is && (!rc || w->tried))
		fail_msg("an agent that was isolated is not");
	if (is)
		stays_out(w);
	w->tried |= is;
	return rc;
}

int works_let_in(struct world *w, struct ros2_err *err)
{
	int rc = ask_isolation(w, true, err);

	return rc && err->status == ROS2_CONFLICT ? 0 : rc;
}

int works_isolated_agent(struct world *w, struct ros2_err *err)
{
	int rc = works_fresh_agent(w, err);

	rc = rc ? rc : works_isolate(w, err);
	w->tried = false;
	return rc;
}

int works_lift(struct world *w, struct ros2_err *err)
{
	int rc = ask_isolation(w, true, err);
	enum ros2_status s;

	/* Not isolated any more: it was lifted by who was not told. */
	if (rc && err->status == ROS2_CONFLICT && w->tried)
		rc = 0;
	w->tried = rc != 0;
	if (rc && is_isolated(w)) {
		stays_out(w);
		return rc;
	}
	s = link_anew(w);
	if (s != ROS2_OK)
		fail_msg("the isolation is lifted, and the agent is answered %s",
		         ros2_status_to_str(s));
	return rc;
}

/* ---- what an agent asks for itself ---- */

static int renew_with(struct world *w, const char *key, struct ros2_err *err)
{
	struct rpc_channel *ch = sf_channel(w->f, w->fresh.dir, w->f->ports.agent, NULL);
	Ros2__V1__RenewRequest q = ROS2__V1__RENEW_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;
	AUTO_FREE char *csr = NULL;
	int rc;

	assert_int_equal(pki_csr_create(key, NULL, &csr, NULL), 0);
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	rc = ros2_v1_agent_link_renew_sync(ch, &q, AWAIT_MS, &r, err);
	rpc_channel_free(ch);
	sweep_off();
	if (rc)
		return rc;
	assert_int_equal(fsx_write_atomic(sf_path("%s/tls.crt", w->fresh.dir), r->cert_pem.data,
	                                  r->cert_pem.len, 0644, NULL),
	                 0);
	ros2__v1__enrol_reply__free_unpacked(r, NULL);
	return 0;
}

/* With the certificate that it has, new or old, it is let in. */
int works_renew(struct world *w, struct ros2_err *err)
{
	int rc = renew_with(w, sf_path("%s/tls.key", w->fresh.dir), err);
	enum ros2_status s = link_anew(w);

	if (s != ROS2_OK)
		fail_msg("after a renewal that was answered %s the agent is answered %s",
		         rc ? err->msg : "well", ros2_status_to_str(s));
	return rc;
}

/* What was sent before is heard by then. */
static bool beats(struct fake *a)
{
	fake_beat(a, NULL, 0);
	return fake_next(a, MSG(CONTACT), 300) ||
	       (!sweep_fired() && fake_next(a, MSG(CONTACT), AWAIT_MS));
}

static void say_probed(struct fake *a, bool enforced)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ProbeReport r = ROS2__V1__PROBE_REPORT__INIT;
	Ros2__V1__ProbeSubject s = ROS2__V1__PROBE_SUBJECT__INIT, *subjects = &s;
	Ros2__V1__ProbeFinding f = ROS2__V1__PROBE_FINDING__INIT, *findings = &f;

	f.result = enforced ? PROBE_ENFORCED : PROBE_NOT_ENFORCED;
	f.seen = (char *)"tried";
	s.name = s.transport = s.device = s.firmware = s.kernel = (char *)"rxe0";
	s.findings = &findings;
	s.n_findings = 1;
	r.subjects = &subjects;
	r.n_subjects = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_PROBE;
	m.probe = &r;
	fake_send(a, &m);
}

static bool is_probed_as(struct world *w, bool enforced)
{
	Ros2__V1__GetReply *r = find(w, KIND(AGENT), w->fresh.name);
	const Ros2__V1__AgentInfo *i = r->object->agent;
	bool is = i->n_probes == 1 && i->probes[0]->n_findings > 0 &&
	          (i->probes[0]->findings[0]->result == PROBE_ENFORCED) == enforced;

	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

/* First that it is enforced, then that it is not: what was heard to the end counts. */
int works_probe(struct world *w, struct ros2_err *err)
{
	int rc;

	say_probed(&w->fresh, true);
	say_probed(&w->fresh, false);
	if (!beats(&w->fresh)) {
		sweep_off();
		rc = works_lost(&w->fresh, err);
		if (link_anew(w) != ROS2_OK)
			fail_msg("the link does not come back");
		return rc;
	}
	sweep_off();
	if (!is_probed_as(w, false))
		fail_msg("a report that the link has outlived does not count");
	return 0;
}

/* ---- status: all of it or none ---- */

int works_status(struct world *w, struct ros2_err *err)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	int rc = ros2_v1_admin_status_sync(w->f->admin, &q, AWAIT_MS, &r, err);

	if (rc)
		return rc;
	assert_string_equal(r->trust_domain, TD);
	assert_string_not_equal(r->audit_key, "");
	assert_int_equal(r->epoch->lineage.len, ROS2_UID_LEN);
	assert_int_equal(r->n_conditions, 5);
	ros2__v1__status_reply__free_unpacked(r, NULL);
	return 0;
}

/* ---- a grant that is given back ---- */

int works_given_grant(struct world *w, struct ros2_err *err)
{
	const Ros2__V1__GrantReply *r;
	Ros2__V1__AgentObject *o;
	int rc = works_grant(w, &r, err);

	if (rc)
		return rc;
	o = fake_open(&w->a, r->grant);
	memcpy(w->given.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return 0;
}

static bool is_released(struct world *w)
{
	char uid[ROS2_UID_STR_LEN];
	Ros2__V1__GetReply *r;
	bool is;

	ros2_uid_to_str(&w->given, uid);
	r = find(w, KIND(GRANT), uid);
	if (!r)
		fail_msg("a grant is forgotten");
	is = !strcmp(r->grant->state, "released");
	if (!is)
		assert_string_equal(r->grant->state, "live");
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

/* It is said once: what was heard ends, at the latest when there is room for that. */
int works_release(struct world *w, struct ros2_err *err)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRelease g = ROS2__V1__GRANT_RELEASE__INIT;

	g.grant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, w->given.b};
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_RELEASE;
	m.grant_release = &g;
	fake_send(&w->a, &m);
	if (!beats(&w->a)) {
		w->linked = false;
		return works_lost(&w->a, err);
	}
	sweep_off();
	if (!AWAIT(is_released(w)))
		fail_msg("a grant that was given back is live");
	return 0;
}
