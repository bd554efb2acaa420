/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles that change while everybody is connected: tenants whose CA is gone lose their connection
 * and their sessions, a controller whose CA is gone loses the agent, an agent whose CA is gone
 * keeps the rules of a lost contact until it has another certificate. Negative controls: with the
 * judgements off the old connection and its sessions go on; with the contact file kept a kill gives
 * back what was taken away. session_events.c and persist.c are compiled into this test with their
 * switches.
 */
#include "agent/bundles.h"
#include "agent/test_switches.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

struct agent_test_switches agent_test_switches;

static _Atomic bool judge_calls = true;
struct grpc_call;
int __real_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err)
{
	return judge_calls ? __real_rpc_trust_admit(s, call, peer, err) : 0;
}

/* ---- the world, with a second authority of each kind ---- */

static void join(struct world *w, const char *a, const char *b, const char *to)
{
	AUTO_FREE char *pa = NULL, *pb = NULL, *both = NULL;
	char path[4200];
	size_t n;

	testing_path(path, w->dir, a);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pa, &n, NULL), 0);
	testing_path(path, w->dir, b);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pb, &n, NULL), 0);
	assert_true(asprintf(&both, "%s%s", pa, pb) > 0);
	testing_path(path, w->dir, to);
	assert_int_equal(fsx_write_atomic(path, both, strlen(both), 0644, NULL), 0);
}

static struct world *begin(void)
{
	struct world *w = calloc(1, sizeof(*w));

	judge_calls = true;
	agent_test_switches.no_session_trust = false;
	world_start(w);
	world_make_ca(w->dir, "infra2");
	world_make_ca(w->dir, "tenant2");
	world_issue(w->dir, "tenant2", "alpha2", FIX_ALPHA);
	world_issue(w->dir, "infra2", "ctl2", "spiffe://ros2.test/controller/ctl-0");
	world_issue(w->dir, "infra2", "agent2", "spiffe://ros2.test/agent/dpu-0");
	join(w, "tenant.crt", "tenant2.crt", "tenants.pem");
	join(w, "infra.crt", "infra2.crt", "infras.pem");
	world_copy(w->dir, "tenants.pem", "state/tenant-bundle.pem");
	return w;
}

static void end(struct world *w)
{
	world_stop(w);
	free(w);
}

/* How often an action, or a word, was recorded. */
static unsigned times(struct world *w, const char *list, const char *word)
{
	unsigned n = 0;

	pthread_mutex_lock(&w->lock);
	for (const char *p = list; (p = strstr(p, word)); p++)
		n++;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static void wait_times(struct world *w, const char *list, const char *word, unsigned n)
{
	for (int i = 0; i < 6000 && times(w, list, word) < n; i++)
		/* poll: records that another thread hears */
		usleep(10000);
	if (times(w, list, word) != n)
		fail_msg("\"%s\" %u times, expected %u", word, times(w, list, word), n);
}

/* The controller gives this bundle from now on; the agent has it when this returns. */
static void give_tenants(struct world *w, const char *file)
{
	unsigned n = times(w, w->actions, "trust.reload");

	w->tenant_bundle = file;
	world_cut(w);
	wait_times(w, w->actions, "trust.reload", n + 1);
}

/* As world_wait, for what may take an agent's longest back-off. */
static void wait_count(const _Atomic unsigned *counter, unsigned n)
{
	for (int i = 0; i < 6000 && *counter < n; i++)
		/* poll: a counter of another thread */
		usleep(10000);
	assert_true(*counter >= n);
}

static enum ros2_status stat_as(struct rpc_channel *c, struct ros2_uid *s, char words[320])
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = 77;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, words);
}
#define WORKS ROS2_BAD_HANDLE /* it got as far as that */

/* ---- tenants ---- */

static void bundle__without_a_tenants_ca_ends_his_sessions_and_nobody_elses(void **state)
{
	struct world *w = begin();
	struct rpc_channel *a, *a2;
	struct ros2_uid s, s2[2];
	char words[320];

	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(world_open_session(a2, &s2[0]), ROS2_OK);
	assert_int_equal(world_open_session(a2, &s2[1]), ROS2_OK);
	/* Controls: with both judgements off he goes on where he is. */
	judge_calls = false;
	agent_test_switches.no_session_trust = true;
	give_tenants(w, "tenant.crt");
	assert_int_equal(stat_as(a2, &s2[0], NULL), WORKS);
	judge_calls = true;
	assert_int_equal(stat_as(a2, &s2[0], words), ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(words, "not trusted any more"));
	give_tenants(w, "tenants.pem");
	assert_int_equal(stat_as(a2, &s2[0], NULL), WORKS);
	assert_int_equal(fake_dp_sessions(), 3);
	/* And on. */
	agent_test_switches.no_session_trust = false;
	give_tenants(w, "tenant.crt");
	wait_times(w, w->actions, "session.close", 2);
	assert_int_equal(fake_dp_sessions(), 1);
	assert_int_equal(times(w, w->reasons,
	                       "the client certificate is not trusted any more: "
	                       "certificate: unknown issuer"),
	                 3); /* both sessions, and the call above */
	assert_int_equal(stat_as(a2, &s2[0], NULL), ROS2_UNAUTHENTICATED);
	judge_calls = false; /* the session itself says so, too */
	assert_int_equal(stat_as(a2, &s2[1], words), ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(words, "the session has ended: the client certificate is not"));
	judge_calls = true;
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	rpc_channel_free(a);
	rpc_channel_free(a2);
	end(w);
}

struct opening {
	struct rpc_channel *c;
	enum ros2_status status;
};

static void *open_one(void *arg)
{
	struct opening *o = arg;
	struct ros2_uid s;

	o->status = world_open_session(o->c, &s);
	return NULL;
}

static void take_first(void *arg)
{
	struct world *w = arg;
	AUTO_FREE void *pem = NULL;
	char path[4200];
	size_t n;

	testing_path(path, w->dir, "tenant.crt");
	assert_int_equal(fsx_read_file(path, 1 << 20, &pem, &n, NULL), 0);
	bundles_take(w->agent->bundles, BUNDLE_TENANT, pem, n);
}

/* The call was let in under the old bundle; its session is judged all the same. */
static void bundle__that_changes_while_a_session_opens_judges_it(void **state)
{
	struct world *w = begin();
	struct opening o;
	pthread_t t;

	world_agent_start(w);
	world_populate(w);
	o.c = world_tenant(w, "alpha2");
	w->hold_grants = true;
	assert_int_equal(pthread_create(&t, NULL, open_one, &o), 0);
	world_wait(w, &w->grant_requests, 1);
	/* As if it came with a renewal: the stream stays. */
	loop_call(w->loop, take_first, w);
	wait_times(w, w->actions, "trust.reload", 1);
	world_answer_grant(w);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(o.status, ROS2_CLOSED); /* "ended while it was being opened" */
	assert_int_equal(fake_dp_sessions(), 0);
	assert_int_equal(world_open_session(o.c, &(struct ros2_uid){0}), ROS2_UNAUTHENTICATED);
	rpc_channel_free(o.c);
	end(w);
}

/* ---- what cannot be put in force ---- */

static _Atomic unsigned troubled, fine;

static void sees_beat(const Ros2__V1__Beat *b)
{
	bool is = false;

	for (size_t i = 0; i < b->n_conditions; i++)
		is |= !strcmp(b->conditions[i]->name, "ReloadFailed");
	if (is)
		troubled++;
	else
		fine++;
}

static void wait_more(_Atomic unsigned *v)
{
	unsigned from = *v;

	for (int i = 0; i < 6000 && *v == from; i++)
		/* poll: beats that another thread hears */
		usleep(10000);
	assert_true(*v > from);
}

/* A directory is in its way. */
static void block(struct world *w, const char *file, bool is)
{
	char path[4200], inside[4300];

	testing_path(path, w->dir, file);
	snprintf(inside, sizeof(inside), "%s/x", path);
	if (is) {
		assert_int_equal(unlink(path), 0);
		assert_int_equal(mkdir(path, 0700), 0);
		assert_int_equal(mkdir(inside, 0700), 0);
	} else {
		assert_int_equal(rmdir(inside), 0);
		assert_int_equal(rmdir(path), 0);
	}
}

/* Whom it names no more is believed no more, disk or not; whom it names first waits for the disk.
 */
static void bundle__that_finds_no_place_takes_and_does_not_give_until_it_does(void **state)
{
	struct world *w = begin();
	struct rpc_channel *a, *a2;
	struct ros2_uid s, s2;

	w->sees_beat = sees_beat;
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(world_open_session(a2, &s2), ROS2_OK);
	wait_more(&fine);
	block(w, "state/tenant-bundle.pem", true);
	w->tenant_bundle = "tenant.crt";
	world_cut(w);
	wait_times(w, w->actions, "trust.reload", 2); /* it is in force, and found no place */
	wait_times(w, w->actions, "session.close", 1);
	assert_int_equal(stat_as(a2, &s2, NULL), ROS2_UNAUTHENTICATED);
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	wait_more(&troubled);
	assert_true(times(w, w->reasons, "tenant-bundle.pem") > 0);
	/* Back it does not come before the disk has it. */
	w->tenant_bundle = "tenants.pem";
	world_cut(w);
	wait_more(&troubled);
	wait_more(&troubled);
	assert_int_equal(stat_as(a2, &s2, NULL), ROS2_UNAUTHENTICATED);
	assert_int_equal(times(w, w->actions, "trust.reload"), 2);
	/* It is tried again by itself. */
	block(w, "state/tenant-bundle.pem", false);
	wait_times(w, w->actions, "trust.reload", 3);
	wait_more(&fine);
	assert_int_equal(world_open_session(a2, &s2), ROS2_OK);
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	rpc_channel_free(a);
	rpc_channel_free(a2);
	end(w);
}

static const struct fsx_ops *real_io;
static _Atomic bool hold; /* who syncs a directory */

static int held_fsync(int fd)
{
	struct stat st;

	if (hold && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold);
	return real_io->fsync(fd);
}

/* The same with each stream, and a revocation behind it. */
static void bundle__that_is_known_waits_for_no_disk(void **state)
{
	struct world *w = begin();
	static struct fsx_ops io;
	unsigned hellos, revokes;

	(void)state;
	real_io = fsx_io;
	io = *fsx_io;
	io.fsync = held_fsync;
	fsx_io = &io;
	w->tenant_bundle = "tenants.pem";
	w->infra_bundle = "infra.crt";
	world_agent_start(w);
	world_populate(w);
	hellos = w->hellos;
	revokes = fake_dp_log.revokes;
	hold = true;
	world_cut(w);
	world_wait(w, &w->hellos, hellos + 1);
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	assert_true(AWAIT(fake_dp_log.revokes == revokes + 1));
	hold = false;
	end(w);
	fsx_io = real_io;
}

/* Nobody waits for the disk but what it gives: neither a revocation, nor a beat, nor what it takes.
 */
static void bundle__that_is_new_keeps_nobody_waiting_for_its_disk(void **state)
{
	struct fsx_ops io = *fsx_io;
	struct world *w = begin();
	struct rpc_channel *a, *a2;
	struct ros2_uid s, s2;
	unsigned hellos, revokes;

	real_io = fsx_io;
	io.fsync = held_fsync;
	fsx_io = &io;
	w->sees_beat = sees_beat;
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(world_open_session(a2, &s2), ROS2_OK);
	hellos = w->hellos;
	revokes = fake_dp_log.revokes;
	hold = true;
	w->tenant_bundle = "tenant.crt";
	world_cut(w);
	world_wait(w, &w->hellos, hellos + 1);
	world_revoke(w, OBJ_TENANT, WORLD_BETA_SEED, 1);
	assert_true(AWAIT(fake_dp_log.revokes == revokes + 1));
	assert_true(AWAIT(fake_dp_sessions() == 1));
	assert_int_equal(stat_as(a2, &s2, NULL), ROS2_UNAUTHENTICATED);
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	wait_more(&troubled);
	/* One that gives it back waits for both, and is in force when the disk has it. */
	w->tenant_bundle = "tenants.pem";
	world_cut(w);
	world_wait(w, &w->hellos, hellos + 2);
	wait_more(&troubled);
	assert_int_equal(stat_as(a2, &s2, NULL), ROS2_UNAUTHENTICATED);
	hold = false;
	wait_more(&fine);
	assert_int_equal(world_open_session(a2, &s2), ROS2_OK);
	assert_true(AWAIT(world_has_stamp(w)));
	/* In force without what it named; not on disk in time; given back. */
	wait_times(w, w->actions, "trust.reload", 3);
	rpc_channel_free(a);
	rpc_channel_free(a2);
	end(w);
	fsx_io = real_io;
}

static _Atomic bool due, hold_certificate; /* half of its life is over; who renames it */
static _Atomic bool watched;               /* it is looked at each second */
static _Atomic unsigned held_certificates;

int __real_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);
int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);
int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err)
{
	int r = __real_identity_check_certificate(dir, name, ret_renew_in_s, err);

	if (r == 0 && due)
		*ret_renew_in_s = 0;
	else if (r == 0 && watched)
		*ret_renew_in_s = 1;
	return r;
}

static int held_rename(const char *from, const char *to)
{
	if (hold_certificate && strstr(to, "/tls.crt")) {
		held_certificates++;
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold_certificate);
	}
	return real_io->rename(from, to);
}

static void certificate__that_is_new_keeps_nobody_waiting_for_its_disk(void **state)
{
	struct fsx_ops io = *fsx_io;
	struct world *w = begin();
	unsigned hellos, revokes, beats;

	real_io = fsx_io;
	io.rename = held_rename;
	fsx_io = &io;
	due = hold_certificate = true;
	world_agent_start(w);
	world_populate(w);
	assert_true(AWAIT(held_certificates == 1));
	due = false;
	hellos = w->hellos;
	revokes = fake_dp_log.revokes;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	assert_true(AWAIT(fake_dp_log.revokes == revokes + 1));
	beats = w->beats;
	world_wait(w, &w->beats, beats + 2);
	assert_int_equal(w->hellos, hellos);
	/* With it another connection begins. */
	hold_certificate = false;
	wait_count(&w->hellos, hellos + 1);
	assert_int_equal(held_certificates, 1);
	end(w);
	fsx_io = real_io;
}

static void goes_back(void *arg)
{
	((struct world *)arg)->f.epoch.counter--;
}

static void comes_back(void *arg)
{
	((struct world *)arg)->f.epoch.counter++;
}

/* A controller on an old copy of the data directory names whom the one that came after it took out.
 * It renews certificates, and no stream of it has said which one it is. */
static void bundle__of_a_superseded_controller_gives_nobody_back(void **state)
{
	struct world *w = begin();
	struct rpc_channel *a2;
	struct ros2_uid s;
	unsigned n;

	watched = true;
	world_agent_start(w);
	world_populate(w);
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a2, &s), ROS2_OK);
	give_tenants(w, "tenant.crt");
	assert_int_equal(world_open_session(a2, &s), ROS2_UNAUTHENTICATED);
	loop_call(w->ctl_loop, goes_back, w);
	w->tenant_bundle = "tenants.pem";
	world_cut(w);
	due = true;
	/* The next is asked for when what came with the one before has been heard. */
	n = w->renewals;
	wait_count(&w->renewals, n + 3);
	assert_int_equal(world_open_session(a2, &s), ROS2_UNAUTHENTICATED);
	/* The one that may brings it as well, with its first word. */
	loop_call(w->ctl_loop, comes_back, w);
	wait_times(w, w->actions, "trust.reload", 2);
	due = watched = false;
	assert_int_equal(world_open_session(a2, &s), ROS2_OK);
	rpc_channel_free(a2);
	end(w);
}

static void bundle__that_is_none_changes_nothing_and_shows(void **state)
{
	struct world *w = begin();
	struct rpc_channel *a2;
	struct ros2_uid s;

	w->sees_beat = sees_beat;
	world_agent_start(w);
	world_populate(w);
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a2, &s), ROS2_OK);
	give_tenants(w, "alpha.crt"); /* no authority */
	wait_more(&troubled);
	assert_true(times(w, w->reasons, "is not an authority") > 0);
	assert_int_equal(stat_as(a2, &s, NULL), WORKS);
	/* What is in force comes again: nothing is wrong any more. */
	w->tenant_bundle = "tenants.pem";
	world_cut(w);
	wait_more(&fine);
	assert_int_equal(stat_as(a2, &s, NULL), WORKS);
	assert_int_equal(times(w, w->actions, "trust.reload"), 1);
	rpc_channel_free(a2);
	end(w);
}

/* ---- controller and agent ---- */

static void bundle__without_the_controllers_ca_ends_its_connection(void **state)
{
	struct world *w = begin();
	struct rpc_channel *a;
	struct ros2_uid s;
	unsigned closed;

	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	/* Its own certificate is of the first one. */
	closed = w->closed;
	w->infra_bundle = "infra2.crt";
	world_cut(w);
	wait_count(&w->closed, closed + 2); /* cut by us, then by the agent */
	assert_int_equal(times(w, w->actions, "controller.refused"), 0);
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	/* With one of the second it is believed again, and hears what happened. */
	world_copy(w->dir, "ctl2.key", "ctl.key");
	world_copy(w->dir, "ctl2.crt", "ctl.crt");
	wait_times(w, w->actions, "controller.refused", 1);
	wait_times(w, w->actions, "trust.reload", 1);
	assert_int_equal(stat_as(a, &s, NULL), WORKS);
	rpc_channel_free(a);
	end(w);
}

static void reload_ctl(struct world *w, const char *file)
{
	AUTO_FREE char *pem = NULL;
	struct pki_trust *t = NULL;
	char path[4200];
	size_t n;

	testing_path(path, w->dir, file);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pem, &n, NULL), 0);
	assert_int_equal(pki_trust_new(pem, n, &t, NULL), 0);
	assert_true(rpc_server_set_trust(w->ctl, t));
	pki_trust_unref(t);
}

/* The disk is full for it, and has the old one. */
static _Atomic bool full;
static const struct fsx_ops *real_io;

static int full_rename(const char *from, const char *to)
{
	if (full && strstr(to, "-bundle.pem")) {
		errno = ENOSPC;
		return -1;
	}
	return real_io->rename(from, to);
}

/* Another connection ended before its first call. */
static void wait_handshake(struct world *w)
{
	struct rpc_server_stats st;
	uint64_t n;

	rpc_server_stats(w->ctl, &st);
	n = st.refused_handshakes;
	for (int i = 0; i < 6000 && st.refused_handshakes == n; i++) {
		rpc_server_stats(w->ctl, &st);
		/* poll: a counter of gRPC's threads */
		usleep(10000);
	}
	assert_true(st.refused_handshakes > n);
}

/* Likewise of the controller: its connection ends, and no other begins, although the disk still
 * names its authority. */
static void bundle__without_the_controllers_ca_that_finds_no_place_ends_its_connection(void **state)
{
	struct fsx_ops io = *fsx_io;
	struct world *w = begin();
	unsigned closed, hellos;

	real_io = fsx_io;
	io.rename = full_rename;
	fsx_io = &io;
	world_copy(w->dir, "infras.pem", "state/infra-bundle.pem");
	w->infra_bundle = "infras.pem";
	world_agent_start(w);
	world_populate(w);
	full = true;
	closed = w->closed;
	w->infra_bundle = "infra2.crt";
	world_cut(w);
	wait_count(&w->closed, closed + 2); /* cut by us, then by the agent */
	hellos = w->hellos;
	/* It tries again, and is not heard. */
	for (int i = 0; i < 3; i++)
		wait_handshake(w);
	assert_int_equal(w->hellos, hellos);
	/* With a certificate that both bundles believe it is. */
	world_copy(w->dir, "ctl2.key", "ctl.key");
	world_copy(w->dir, "ctl2.crt", "ctl.crt");
	wait_count(&w->hellos, hellos + 1);
	wait_times(w, w->actions, "controller.refused", 1);
	full = false;
	end(w);
	fsx_io = real_io;
}

/* What found no place is not known to the next process, which reads the old bundle. */
static struct rpc_channel *take_and_kill(struct world *w)
{
	struct rpc_channel *a2;
	struct ros2_uid s2;

	world_agent_start(w);
	world_populate(w);
	a2 = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(a2, &s2), ROS2_OK);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	full = true;
	w->tenant_bundle = "tenant.crt";
	world_cut(w);
	wait_times(w, w->actions, "trust.reload", 2); /* it is in force, and found no place */
	assert_int_equal(stat_as(a2, &s2, NULL), ROS2_UNAUTHENTICATED);
	if (!agent_test_switches.contact_kept)
		assert_true(AWAIT(!world_has_stamp(w)));
	rpc_channel_free(a2);
	world_controller_stop(w);
	/* Killed: nothing of its end is written. */
	world_copy(w->dir, "state/contact", "contact");
	world_agent_stop(w);
	world_copy(w->dir, "contact", "state/contact");
	world_agent_start(w);
	return world_tenant(w, "alpha2");
}

static void
bundle__that_took_and_found_no_place_holds_after_a_kill_without_a_controller(void **state)
{
	struct fsx_ops io = *fsx_io;
	struct world *w = begin();
	struct rpc_channel *a2;
	struct ros2_uid s;

	real_io = fsx_io;
	io.rename = full_rename;
	fsx_io = &io;
	a2 = take_and_kill(w);
	assert_int_equal(world_open_session(a2, &s), ROS2_CONTACT_LOST);
	rpc_channel_free(a2);
	/* With a place for it all others have their rights again after a restart. */
	w->done_at_hello = true;
	full = false;
	world_controller_start(w);
	assert_true(AWAIT(world_has_stamp(w)));
	world_controller_stop(w);
	world_agent_stop(w);
	world_agent_start(w);
	a2 = world_tenant(w, "alpha2");
	assert_int_not_equal(world_open_session(a2, &s), ROS2_OK); /* no handshake */
	rpc_channel_free(a2);
	a2 = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(a2, &s), ROS2_OK);
	rpc_channel_free(a2);
	end(w);
	fsx_io = real_io;
}

static void control__with_the_contact_file_kept_a_bundle_gives_it_back(void **state)
{
	struct fsx_ops io = *fsx_io;
	struct world *w = begin();
	struct rpc_channel *a2;
	struct ros2_uid s;

	real_io = fsx_io;
	io.rename = full_rename;
	fsx_io = &io;
	agent_test_switches.contact_kept = true;
	a2 = take_and_kill(w);
	assert_int_equal(world_open_session(a2, &s), ROS2_OK);
	agent_test_switches.contact_kept = full = false;
	rpc_channel_free(a2);
	end(w);
	fsx_io = real_io;
}

static void agent__whose_ca_is_gone_has_lost_contact_until_it_has_another_certificate(void **state)
{
	struct rpc_channel *a;
	struct world *w;
	struct ros2_uid s;
	enum ros2_status st = ROS2_OK;
	unsigned hellos;

	fix_contact_limit = "2s";
	w = begin();
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	hellos = w->hellos;
	world_copy(w->dir, "infra2.crt", "infra.crt"); /* tenants and agent have copies */
	reload_ctl(w, "infra2.crt");
	wait_count(&w->closed, 1);
	/* The rules of a lost contact: after its limit nothing begins, whatever else it was given.
	 */
	for (int i = 0; i < 6000 && st != ROS2_CONTACT_LOST; i++) {
		st = stat_as(a, &s, NULL);
		/* poll: the limit passes without an event that is seen from here */
		usleep(10000);
	}
	assert_int_equal(st, ROS2_CONTACT_LOST);
	assert_int_equal(w->hellos, hellos);
	/* The same key, the other authority: on disk it is enough. */
	world_copy(w->dir, "agent2.key", "state/tls.key");
	world_copy(w->dir, "agent2.crt", "state/tls.crt");
	wait_count(&w->hellos, hellos + 1);
	for (int i = 0; i < 6000 && st == ROS2_CONTACT_LOST; i++) {
		st = stat_as(a, &s, NULL);
		/* poll: contact comes with the next answer to a beat */
		usleep(10000);
	}
	assert_int_not_equal(st, ROS2_CONTACT_LOST);
	fix_contact_limit = "60s";
	rpc_channel_free(a);
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bundle__without_a_tenants_ca_ends_his_sessions_and_nobody_elses),
		cmocka_unit_test(bundle__that_changes_while_a_session_opens_judges_it),
		cmocka_unit_test(bundle__that_finds_no_place_takes_and_does_not_give_until_it_does),
		cmocka_unit_test(bundle__that_is_known_waits_for_no_disk),
		cmocka_unit_test(bundle__that_is_new_keeps_nobody_waiting_for_its_disk),
		cmocka_unit_test(certificate__that_is_new_keeps_nobody_waiting_for_its_disk),
		cmocka_unit_test(bundle__of_a_superseded_controller_gives_nobody_back),
		cmocka_unit_test(bundle__that_is_none_changes_nothing_and_shows),
		cmocka_unit_test(bundle__without_the_controllers_ca_ends_its_connection),
		cmocka_unit_test(
			bundle__without_the_controllers_ca_that_finds_no_place_ends_its_connection),
		cmocka_unit_test(
			bundle__that_took_and_found_no_place_holds_after_a_kill_without_a_controller),
		cmocka_unit_test(control__with_the_contact_file_kept_a_bundle_gives_it_back),
		cmocka_unit_test(
			agent__whose_ca_is_gone_has_lost_contact_until_it_has_another_certificate),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
