/* SPDX-License-Identifier: Apache-2.0 */
/* The history: what goes in, what is heard of it, and what must be true after a start. */
#include "tests/agent/history.h"
#include "agent/service.h"
#include "agent/uplink_priv.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/step_writer.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <sys/stat.h>

struct history hist;

/* ---- what was told ---- */

void hist_tell_object(enum obj_kind kind, const struct ros2_uid *uid, uint64_t version)
{
	assert_true(hist.told.n_objects < TOLD_MAX);
	if (hist_has_ended())
		return;
	for (unsigned i = 0; i < hist.told.n_objects; i++) {
		struct told_object *o = &hist.told.objects[i];

		if (o->kind == kind && ros2_uid_eq(&o->uid, uid)) {
			o->version = version > o->version ? version : o->version;
			return;
		}
	}
	hist.told.objects[hist.told.n_objects++] = (struct told_object){kind, *uid, version};
}

static void on_ack(uint64_t nonce)
{
	for (unsigned i = 0; i < hist.told.n_sent; i++)
		if (hist.told.nonce_of[i] == nonce)
			hist_tell_object(hist.told.sent[i].kind, &hist.told.sent[i].uid,
			                 hist.told.sent[i].version);
}

static void on_receipt(const Ros2__V1__Receipt *r)
{
	assert_true(hist.told.n_receipts < TOLD_MAX);
	if (r->durable && !hist_has_ended())
		hist.told.receipts[hist.told.n_receipts++] = r->revocation_uid.data[0];
	else if (!hist_has_ended())
		hist.told.n_unwritten++;
}

int __wrap_uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m);
int __wrap_service_new(struct agent *a, struct service **ret, struct ros2_err *err);

int __wrap_uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m)
{
	if (m->msg_case == ROS2__V1__AGENT_MESSAGE__MSG_ACK)
		on_ack(m->ack->nonce);
	else if (m->msg_case == ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT)
		on_receipt(m->receipt);
	return 0;
}

int __wrap_service_new(struct agent *a, struct service **ret, struct ros2_err *err)
{
	return 0;
}

/* ---- the process ---- */

static void on_fatal(void *arg, const struct ros2_err *err)
{
	hist.fatals++;
	if (!hist.ends_when_fatal)
		return;
	disk_arm(hist.disk, 0);
	disk_call(hist.disk);
}

bool hist_has_ended(void)
{
	return hist.ends_when_fatal && disk_is_off(hist.disk);
}

int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);

/* Time does not pass here: the loop never turns, it only runs what was posted. */
static struct {
	struct loop_timer *t;
	loop_fn fn;
	void *arg;
} again[256];
static unsigned n_again;

int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	if (ms == 1000) {
		assert_true(n_again < ARRAY_SIZE(again));
		again[n_again].t = t;
		again[n_again].fn = fn;
		again[n_again++].arg = arg;
	}
	return __real_loop_timer_in_ms(l, t, ms, fn, arg);
}

unsigned hist_retry(void)
{
	unsigned n = n_again, fired = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!again[i].t->loop || again[i].t->fn != again[i].fn)
			continue;
		loop_timer_stop(again[i].t);
		again[i].fn(again[i].arg);
		fired++;
	}
	n_again -= n;
	memmove(again, again + n, n_again * sizeof(again[0]));
	return fired;
}

void hist_stop_loop(void *arg)
{
	loop_stop(arg);
}

/* Until nothing is left to do: disk, answers of the data plane, and what these bring. */
void hist_settle(void)
{
	unsigned n;

	do {
		n = step_writer_run(hist.agent->revoke_writer) +
		    step_writer_run(hist.agent->disk_writer);
		loop_post(hist.agent->o.loop, hist_stop_loop, hist.agent->o.loop);
		loop_run(hist.agent->o.loop);
	} while (n);
}

static void tell_have(void *arg, const struct state_have *h)
{
	hist_tell_object(h->kind, &h->uid, h->version);
}

bool hist_boot(void)
{
	struct agent_opts o = {.state_dir = hist.dir,
	                       .listen = "127.0.0.1:0",
	                       .snapshot_slack_bytes = hist.slack,
	                       .revlog_compact_bytes = hist.slack,
	                       .on_fatal = on_fatal};
	struct ros2_err err = ROS2_ERR_INIT;

	n_again = 0;
	assert_int_equal(loop_new(&(struct loop_opts){.name = "agent"}, &o.loop), 0);
	strcpy(o.identity.name, "dpu-0");
	o.identity.agent_uid = hist.fix.trust.agent_uid;
	memcpy(o.identity.snapshot_pub, hist.fix.trust.snapshot_pub, ED25519_PUB_LEN);
	if (agent_new(&o, &hist.agent, &err) < 0) {
		hist.agent = NULL;
		return false;
	}
	state_untell_all(hist.agent->state);
	/* The hello names the epoch and what is here. */
	hist.told.epoch = hist.agent->epoch.counter > hist.told.epoch ? hist.agent->epoch.counter
	                                                              : hist.told.epoch;
	state_each_have(hist.agent->state, tell_have, NULL);
	return true;
}

/* As a crash: what has not reached the disk by now never does. */
void hist_die(void)
{
	disk_arm(hist.disk, 0);
	disk_call(hist.disk);
	if (hist.agent)
		agent_free(hist.agent);
	hist.agent = NULL;
	n_again = 0;
}

/* ---- the history ---- */

void hist_tell_reports(void)
{
	struct state_report r;

	while (state_next_untold(hist.agent->state, &r)) {
		if (r.applied)
			hist_tell_object(r.what.kind, &r.what.uid, r.what.version);
		state_told(hist.agent->state, &r);
	}
}

static void on_epoch_durable(void *arg)
{
	if (!hist_has_ended())
		hist.told.epoch = hist.fix.epoch.counter;
}

void hist_epoch(uint64_t counter)
{
	hist.fix.epoch.counter = counter;
	hist.agent->epoch = hist.fix.epoch;
	persist_request(hist.agent->persist, on_epoch_durable, NULL);
	hist_settle();
}

void hist_delta(uint64_t nonce, Ros2__V1__AgentObject **objs, size_t n)
{
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__SealedObject *sealed[8];
	struct fix_bytes b[8];

	for (size_t i = 0; i < n; i++) {
		struct told_object *o = &hist.told.sent[hist.told.n_sent];

		*o = (struct told_object){.kind = (enum obj_kind)objs[i]->kind,
		                          .version = objs[i]->version};
		memcpy(o->uid.b, objs[i]->uid.data, 16);
		hist.told.nonce_of[hist.told.n_sent++] = nonce;
	}
	fix_seal(&hist.fix, objs, n, b);
	for (size_t i = 0; i < n; i++)
		sealed[i] = ros2__v1__sealed_object__unpack(NULL, b[i].n, b[i].p);
	d.nonce = nonce;
	d.n_upserts = n;
	d.upserts = sealed;
	d.initial_done = nonce == 1;
	uplink_on_delta(hist.agent, &d);
	for (size_t i = 0; i < n; i++) {
		ros2__v1__sealed_object__free_unpacked(sealed[i], NULL);
		free(b[i].p);
	}
	hist_settle();
	hist_tell_reports();
}

void hist_send_revoke(uint8_t seed)
{
	Ros2__V1__Revoke m = ROS2__V1__REVOKE__INIT;
	struct ros2_uid rev = fix_uid(seed), target = fix_uid((uint8_t)(seed - 100));

	m.revocation_uid = (ProtobufCBinaryData){16, rev.b};
	m.uid = (ProtobufCBinaryData){16, target.b};
	m.kind = seed == 110 ? ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT
	                     : ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	m.version = seed == 110 ? 0 : 4;
	m.reason = (char *)"key leaked, seen at a place that takes some words to describe, so that "
			   "an entry of the log may cross the border of a sector of the disk";
	revoker_on_revoke(hist.agent, &m);
	hist_settle();
}

static void revoke_seed(uint8_t seed)
{
	hist.told.grants_dead = true;
	hist.told.revoked[hist.told.n_revoked++] = seed;
	hist_send_revoke(seed);
}

static void on_recorded(void *arg, const struct ros2_err *err)
{
	if (!err && !hist_has_ended())
		snprintf(hist.told.records[hist.told.n_records++], sizeof(hist.told.records[0]),
		         "%s", (const char *)arg);
}

static void record(enum spool_class c, const char *text)
{
	struct ros2_uid t = fix_uid(2);

	spool_put(hist.agent->spool, c, &t, text, strlen(text),
	          c == SPOOL_WIDEN ? on_recorded : NULL, (void *)(uintptr_t)text, NULL);
}

void hist_beat(void)
{
	struct clock_stamp s = contact_stamp(&hist.agent->contact, clock_boottime_ns());

	contact_echo(&hist.agent->contact, &s, NULL);
	persist_contact(hist.agent->persist, true);
	hist_settle();
}

static void first_day(void)
{
	Ros2__V1__AgentObject *objs[3];

	hist_epoch(3);
	hist_beat();
	objs[0] = fix_engine(&hist.fix, "files", 1, 1);
	objs[1] = fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 2);
	objs[2] = fix_tenant(&hist.fix, "beta", FIX_BETA, 3, 3);
	hist_delta(1, objs, 3);
	record(SPOOL_DENIAL, "denial-1");
	hist_settle();
	record(SPOOL_WIDEN, "open-1");
	record(SPOOL_DENIAL, "denial-2");
	record(SPOOL_WIDEN, "open-2");
	hist_settle();
	objs[0] = fix_grant(&hist.fix, 10, 2, FIX_ALPHA, 5, clock_boottime_ns(), 3600000, 2);
	hist_delta(2, objs, 1);
	revoke_seed(110);
}

static void second_day(void)
{
	Ros2__V1__AgentObject *objs[2];

	hist_epoch(4);
	objs[0] = fix_tenant(&hist.fix, "beta", FIX_BETA, 3, 6);
	hist_delta(3, objs, 1);
	objs[0] = fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 7);
	objs[1] = fix_tenant(&hist.fix, "beta", FIX_BETA, 3, 8);
	hist_delta(4, objs, 2);
	objs[0] = fix_engine(&hist.fix, "files", 1, 9);
	hist_delta(5, objs, 1);
	hist_beat();
	revoke_seed(102);
	record(SPOOL_WIDEN, "open-3");
	hist_settle();
}

/* Two starts of the process. */
void hist_live(void)
{
	hist.fix.epoch.counter = 3;
	if (!hist_boot())
		return;
	first_day();
	agent_free(hist.agent);
	hist.agent = NULL;
	if (disk_is_off(hist.disk) || !hist_boot())
		return;
	second_day();
}

/* ---- after it ---- */

void hist_collect_have(void *arg, const struct state_have *h)
{
	hist.now_have[hist.n_have++] = (struct told_object){h->kind, h->uid, h->version};
}

bool hist_in_have(const struct told_object *o)
{
	for (unsigned i = 0; i < hist.n_have; i++)
		if (hist.now_have[i].kind == o->kind && ros2_uid_eq(&hist.now_have[i].uid, &o->uid))
			return hist.now_have[i].version >= o->version;
	return false;
}

static const char *check_records(void)
{
	bool seen[TOLD_MAX] = {false};
	struct spool_batch b;

	spool_rewind(hist.agent->spool);
	while (spool_next(hist.agent->spool, SPOOL_BATCH_MAX, 1 << 20, &b))
		for (uint32_t i = 0; i < b.n; i++)
			for (unsigned k = 0; k < hist.told.n_records; k++)
				seen[k] |= b.v[i].len == strlen(hist.told.records[k]) &&
				           !memcmp(b.v[i].p, hist.told.records[k], b.v[i].len);
	for (unsigned k = 0; k < hist.told.n_records; k++)
		if (!seen[k])
			return "the audit record of an operation that went on is lost";
	return NULL;
}

static const char *check_tombstones(void)
{
	for (unsigned i = 0; i < hist.told.n_receipts; i++) {
		struct ros2_uid u = fix_uid(hist.told.receipts[i]);

		if (!revlog_has(hist.agent->revlog, &u))
			return "a revocation with a durable receipt is lost";
	}
	return NULL;
}

/* A log that was torn inside an entry nobody was told of may look damaged: then everything stored
 * is refused, which is safe, and only the tombstones, the records and the epoch must be there. */
static bool is_refused(void)
{
	char path[4200];

	testing_path(path, hist.dir, "revocations.damaged-1");
	return access(path, F_OK) == 0;
}

static const char *check_contact(void)
{
	struct contact_saved c;
	char path[4200];
	void *p;
	size_t n;
	int r;

	testing_path(path, hist.dir, "contact");
	r = fsx_read_file(path, 4096, &p, &n, NULL);
	if (r == -ENOENT)
		return NULL;
	r = r < 0 ? r : contact_decode(p, n, &c, NULL);
	free(p);
	return r < 0 ? "the contact file is damaged" : NULL;
}

const char *hist_compare(void)
{
	const char *bad = check_contact();

	bad = bad ? bad : check_tombstones();
	bad = bad ? bad : check_records();
	if (bad)
		return bad;
	if (hist.agent->epoch.counter < hist.told.epoch)
		return "an epoch that was acted on is forgotten";
	if (is_refused()) {
		hist.refused++;
		return NULL;
	}
	hist.compared++;
	hist.n_have = 0;
	state_each_have(hist.agent->state, hist_collect_have, NULL);
	for (unsigned i = 0; i < hist.told.n_objects; i++) {
		const struct told_object *o = &hist.told.objects[i];

		if (!(o->kind == OBJ_GRANT && hist.told.grants_dead) && !hist_in_have(o))
			return "an object that was told to be here is lost";
	}
	return NULL;
}

void hist_begin(const char *no_fsync)
{
	testing_dir_setup((void **)&hist.parent);
	snprintf(hist.dir, sizeof(hist.dir), "%s/state", hist.parent);
	assert_int_equal(mkdir(hist.dir, 0700), 0);
	hist.disk = disk_new(hist.dir);
	memset(&hist.told, 0, sizeof(hist.told));
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk, .no_fsync = no_fsync});
}

void hist_end(void)
{
	disk_fsx_end();
	disk_free(hist.disk);
	testing_dir_teardown((void **)&hist.parent);
}
