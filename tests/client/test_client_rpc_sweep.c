/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each control call of libros2 fails, once, and then that one and all after it. A life uses the
 * whole of ros2.h, in two namespaces. Whatever fails, and however (rpc_tap.h):
 *   1. every call ends in time, with success or with an error that this fault may have;
 *   2. OK is said of what was done once, where it was meant; OUTCOME_UNKNOWN of what was done once
 *      or not at all; anything else of what was not done;
 *   3. what was written and flushed is there;
 *   4. the agent and the library know the same mounts, handles and leases, but for what a failure
 *      left, and that goes with its session;
 *   5. after one failure the program's own second try works.
 */
#include "common/clock.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include "tests/client/rpc_tap.h"
#include "tests/clock_ahead.h"
#include <stdio.h>
#include <stdlib.h>

#define LEN        32768u
#define TIMEOUT_MS 2000u
#define TTL_MS     3600000u
/* A fault that passes leaves time to reconnect, also on a slow machine. */
#define PATIENCE_MS   60000u
#define IMPATIENCE_MS 300u
/* To reconnect (an attempt may begin at the last moment: the old session is ended, one opened, and
 * ended again), and the call itself. */
#define CALL_MS(patience) (2 * (patience) + 5 * TIMEOUT_MS)

static enum ros2_transport over;

struct life {
	struct fake_agent *agent;
	struct rpc_tap tap;
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *data, *other;
	struct ros2_file *file, *beside;
	struct ros2_region *region;
	void *buf;
	uint32_t patience_ms;
	bool in_doubt; /* the last step's first try ended OUTCOME_UNKNOWN */
	bool saved;
	char wrong[300]; /* the first invariant that does not hold; none: empty */
};
static uint8_t own[LEN] __attribute__((aligned(4096)));

static void wrong(struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct life *l, const char *fmt, ...)
{
	va_list ap;

	if (l->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(l->wrong, sizeof(l->wrong), fmt, ap);
	va_end(ap);
}

/* ---- what the agent and the library know ---- */

static void check_mounts(struct life *l, const struct fake_session *at)
{
	struct ros2_mount *m;
	uint32_t n = 0;

	list_for_each (&l->session->mounts, m, link) {
		n += !m->broken.code;
		if (!m->broken.code &&
		    (!m->id || m->id > at->n_mounts || strcmp(at->mounts[m->id - 1], m->name)))
			wrong(l, "mount %u is not '%s' at the agent", m->id, m->name);
	}
	if (at->n_mounts > n + l->tap.stray_mounts)
		wrong(l, "%u mounts at the agent, %u here", at->n_mounts, n);
}

static void check_handles(struct life *l, const struct fake_session *at)
{
	uint32_t n = 0, there = 0;
	struct ros2_mount *m;
	struct ros2_file *f;

	list_for_each (&l->session->mounts, m, link) {
		list_for_each (&m->files, f, link) {
			n += !f->broken.code;
			if (!f->broken.code && ((f->handle & ~0xfffull) != at->handle_base ||
			                        !at->n_open[f->handle % FAKE_FILES]))
				wrong(l, "the agent has no handle of '%s'", f->path);
		}
	}
	for (int i = 0; i < FAKE_FILES; i++)
		there += at->n_open[i];
	if (there > n + l->tap.stray_handles)
		wrong(l, "%u handles at the agent, %u here", there, n);
}

static bool is_leased(const struct life *l, const struct ros2_region *r, uint32_t key,
                      uint32_t generation)
{
	for (int i = 0; i < FAKE_REGIONS; i++) {
		const struct fake_lease *at = &l->agent->leases[i];

		if (at->live && at->key == key && at->generation == generation &&
		    l->agent->sessions[at->session].live && at->len == r->len &&
		    at->access == r->access &&
		    (over == ROS2_TRANSPORT_SHM || at->addr == (uintptr_t)r->addr))
			return true;
	}
	return false;
}

static void check_leases(struct life *l, int session)
{
	uint32_t n = 0, there = 0, missing = 0, key, generation;

	for (uint32_t i = 0; i < l->session->n_regions; i++) {
		struct ros2_region *r = l->session->regions[i];

		if (!region_key(l->session, r, &key, &generation))
			continue;
		n++;
		missing += !is_leased(l, r, key, generation);
	}
	/* Its key is another since, of which the answer was lost. */
	if (missing > l->tap.lost_renewals)
		wrong(l, "the agent does not have %u of %u leases", missing, n);
	for (int i = 0; i < FAKE_REGIONS; i++)
		there += l->agent->leases[i].live && l->agent->leases[i].session == session;
	if (there > n + l->tap.stray_leases)
		wrong(l, "%u leases at the agent, %u here", there, n);
}

static void check_tables(struct life *l)
{
	struct fake_agent *a = l->agent;

	if (!l->session || l->session->state != LINK_UP)
		return;
	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		if (!a->sessions[i].live || memcmp(a->sessions[i].uid, l->session->uid, 16))
			continue;
		check_mounts(l, &a->sessions[i]);
		check_handles(l, &a->sessions[i]);
		check_leases(l, i);
	}
	pthread_mutex_unlock(&a->lock);
}

/* Sessions that somebody could still use, and others that live. */
static unsigned sessions_of(struct fake_agent *a, bool *ret_connected)
{
	unsigned n = 0;

	*ret_connected = false;
	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		n += a->sessions[i].live;
		*ret_connected |= a->sessions[i].live && a->sessions[i].fd >= 0;
	}
	pthread_mutex_unlock(&a->lock);
	return n;
}

/* A session that nobody has proved, or whose connection has ended, the agent ends by itself. */
static void check_end(struct life *l)
{
	bool connected;
	unsigned n;

	if (!AWAIT((n = sessions_of(l->agent, &connected), !connected)))
		wrong(l, "a session is connected yet");
	if (n > l->tap.stray_sessions)
		wrong(l, "%u sessions are left at the agent", n);
	if (l->tap.elsewhere)
		wrong(l, "%u changes in another namespace", l->tap.elsewhere);
}

/* ---- steps ---- */

#define AT(field)  (offsetof(struct life, field) + 1)
#define DID(field) (offsetof(struct fake_changes, field) + 1)

struct step {
	const char *name;
	int (*fn)(struct life *l, struct ros2_err *err);
	size_t needs; /* AT what must be there; 0 = nothing */
	size_t did;   /* DID what it counts as; 0 = it changes nothing */
	const char *ns;
	bool idempotent; /* whether it is done anew or was done before is the same */
	bool doubts;     /* may end OUTCOME_UNKNOWN, though it changes no name */
};

static int open_session(struct life *l, struct ros2_err *err)
{
	struct ros2_session_opts o = {.reconnect_ms = l->patience_ms, .transport = over};

	return ros2_session_open(l->client, &o, &l->session, err);
}

static int mount_data(struct life *l, struct ros2_err *err)
{
	return ros2_mount(l->session, "data", &l->data, err);
}

static int mount_other(struct life *l, struct ros2_err *err)
{
	return ros2_mount(l->session, "other", &l->other, err);
}

static int make_dir(struct life *l, struct ros2_err *err)
{
	return ros2_mkdir(l->data, "d", 0755, err);
}

static int make_file(struct life *l, struct ros2_err *err)
{
	return ros2_open(l->data, "a", ROS2_O_RDWR | ROS2_O_CREAT | ROS2_O_EXCL, 0644, &l->file,
	                 err);
}

static int open_made(struct life *l, struct ros2_err *err)
{
	return ros2_open(l->data, "a", ROS2_O_RDWR, 0, &l->file, err);
}

static int open_renamed(struct life *l, struct ros2_err *err)
{
	return ros2_open(l->data, "c", ROS2_O_RDWR, 0, &l->file, err);
}

static int open_beside(struct life *l, struct ros2_err *err)
{
	return ros2_open(l->other, "b", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &l->beside, err);
}

static int alloc_buf(struct life *l, struct ros2_err *err)
{
	return ros2_buf_alloc(l->session, LEN, &l->buf, err);
}

static int register_own(struct life *l, struct ros2_err *err)
{
	return ros2_region_register(l->session, own, LEN, ROS2_REGION_READ | ROS2_REGION_WRITE,
	                            &l->region, err);
}

static int save(struct life *l, struct ros2_err *err)
{
	int rc;

	rig_pattern(l->buf, LEN, 5);
	rc = (int)ros2_pwrite(l->file, l->buf, LEN, 0, err);
	if (rc >= 0)
		rc = ros2_flush(l->file, err);
	l->saved = rc >= 0;
	return rc;
}

static int load_into(struct life *l, uint8_t *to, size_t len, struct ros2_err *err)
{
	static uint8_t want[LEN];
	ssize_t n = ros2_pread(l->file, to, len, 0, err);

	rig_pattern(want, LEN, 5);
	if (n >= 0 && l->saved && ((size_t)n != len || memcmp(to, want, len)))
		wrong(l, "what was saved is not read: %zd bytes of %zu", n, len);
	return (int)n;
}

static int load_buf(struct life *l, struct ros2_err *err)
{
	return load_into(l, l->buf, LEN, err);
}

static int load_own(struct life *l, struct ros2_err *err)
{
	return load_into(l, own, LEN, err);
}

static int load_elsewhere(struct life *l, struct ros2_err *err)
{
	uint8_t small[100];

	return load_into(l, small, sizeof(small), err);
}

static int rename_file(struct life *l, struct ros2_err *err)
{
	return ros2_rename(l->data, "a", "c", err);
}

static int stat_file(struct life *l, struct ros2_err *err)
{
	struct ros2_stat st;

	return ros2_stat(l->other, "b", &st, err);
}

static int fstat_file(struct life *l, struct ros2_err *err)
{
	struct ros2_stat st;

	return ros2_fstat(l->file, &st, err);
}

static int list_files(struct life *l, struct ros2_err *err)
{
	struct ros2_dirent e[FAKE_FILES];
	uint64_t cookie = 0;

	return ros2_readdir(l->data, "", &cookie, e, FAKE_FILES, err);
}

static int cut_file(struct life *l, struct ros2_err *err)
{
	l->saved = false;
	return ros2_truncate(l->file, 10, err);
}

static int free_region(struct life *l, struct ros2_err *err)
{
	ros2_region_deregister(TAKE_PTR(l->region));
	return 0;
}

static int close_file(struct life *l, struct ros2_err *err)
{
	return ros2_close(TAKE_PTR(l->file), err);
}

static int unlink_file(struct life *l, struct ros2_err *err)
{
	return ros2_unlink(l->data, "c", err);
}

static int remove_dir(struct life *l, struct ros2_err *err)
{
	return ros2_rmdir(l->data, "d", err);
}

static int free_buf(struct life *l, struct ros2_err *err)
{
	ros2_buf_free(l->session, TAKE_PTR(l->buf));
	return 0;
}

static int unmount_other(struct life *l, struct ros2_err *err)
{
	l->beside = NULL;
	ros2_unmount(TAKE_PTR(l->other));
	/* There is no call for it: the agent keeps it as long as the session. */
	l->tap.stray_mounts++;
	return 0;
}

static int close_session(struct life *l, struct ros2_err *err)
{
	ros2_session_close(TAKE_PTR(l->session));
	return 0;
}

static bool is_settled(struct life *l)
{
	struct ros2_session *s = l->session;
	bool settled = true;

	client_wake(l->client);
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_regions; i++)
		settled &= s->regions[i]->stale || s->regions[i]->renew_at_ns > clock_boottime_ns();
	pthread_mutex_unlock(&s->lock);
	return settled;
}

/* By the background thread; a second time what it could not renew the first. */
static int renew_leases(struct life *l, struct ros2_err *err)
{
	rpc_tap_in_library = false;
	for (int i = 0; i < 2; i++) {
		clock_ahead_ns += i ? NS_PER_S : TTL_MS / 2 * NS_PER_MS;
		if (!AWAIT(is_settled(l)))
			wrong(l, "leases are not renewed");
	}
	return 0;
}

/* Nobody renewed them in time. */
static int end_leases(struct life *l, struct ros2_err *err)
{
	clock_ahead_ns += 2 * TTL_MS * NS_PER_MS;
	WITH_AGENT(l->agent,
	           for (int i = 0; i < FAKE_REGIONS; i++) l->agent->leases[i].live = false);
	return 0;
}

/* A file is closed, whether the agent was heard or not; only what it says by name is told. */
static bool is_no_error_of_close(enum ros2_status said)
{
	return said != ROS2_LIMIT;
}

static bool may_end_with(const struct life *l, const struct step *s, enum ros2_status st)
{
	enum ros2_status said = fault_says(l->tap.fault);
	bool loses = said == ROS2_UNAVAILABLE || said == ROS2_TIMEOUT || said == ROS2_BAD_SESSION;

	if (s->fn == close_file && is_no_error_of_close(said))
		return false;
	return l->tap.fired &&
	       (st == said || (st == ROS2_OUTCOME_UNKNOWN && loses && (s->did || s->doubts)));
}

static unsigned sum(const struct fake_changes *c)
{
	return c->made + c->cut + c->renamed + c->unlinked + c->dirs_made + c->dirs_removed;
}

static unsigned count_of(const struct fake_changes *c, const struct step *s)
{
	return s->did ? *(const unsigned *)((const char *)c + s->did - 1) : 0;
}

static void check_done(struct life *l, const struct step *s, int rc, enum ros2_status st,
                       const struct fake_changes *before)
{
	struct fake_changes now;
	unsigned mine, least, most;

	WITH_AGENT(l->agent, now = l->agent->did);
	mine = count_of(&now, s) - count_of(before, s);
	least = s->did && rc >= 0 && !s->idempotent;
	most = s->did && (rc >= 0 || st == ROS2_OUTCOME_UNKNOWN || s->idempotent);
	if (mine < least || mine > most)
		wrong(l, "%s ended with %s and was done %u times", s->name, ros2_status_to_str(st),
		      mine);
	if (sum(&now) - sum(before) != mine)
		wrong(l, "%s did something else", s->name);
}

static int attempt(struct life *l, const struct step *s, struct ros2_err *err)
{
	unsigned vain = rpc_tap_vain_waits;
	uint64_t began = rpc_tap_passed_ns;
	struct fake_changes before;
	int rc;

	*err = (struct ros2_err)ROS2_ERR_INIT;
	WITH_AGENT(l->agent, before = l->agent->did);
	l->tap.ns = s->ns ? s->ns : "";
	rpc_tap_in_library = true;
	rc = s->fn(l, err);
	rpc_tap_in_library = false;
	if (s->fn != renew_leases &&
	    rpc_tap_passed_ns - began > CALL_MS(l->patience_ms) * NS_PER_MS)
		wrong(l, "%s took %llu ms", s->name,
		      (unsigned long long)((rpc_tap_passed_ns - began) / NS_PER_MS));
	/* Refused by name, so there was nothing to wait for. */
	if (rc < 0 && err->status == ROS2_LIMIT && rpc_tap_vain_waits != vain)
		wrong(l, "%s was refused and waited on", s->name);
	if (rc < 0 && (rc != err->code || !err->msg[0]))
		wrong(l, "%s: %d with '%s'", s->name, rc, err->msg);
	check_done(l, s, rc, rc < 0 ? err->status : ROS2_OK, &before);
	check_tables(l);
	return rc;
}

static bool take(struct life *l, const struct step *s)
{
	struct ros2_err err, again;
	int rc;

	l->in_doubt = false;
	if (l->tap.fault >= FAULT_LIE && l->wrong[0])
		return false;
	if (s->needs && !*(void **)((char *)l + s->needs - 1))
		return false;
	rc = attempt(l, s, &err);
	if (rc >= 0)
		return true;
	if (!may_end_with(l, s, err.status))
		wrong(l, "%s: %s", s->name, err.msg);
	l->in_doubt = err.status == ROS2_OUTCOME_UNKNOWN;
	/* What is closed is gone, whatever was said. */
	if (l->tap.for_good || s->fn == close_file)
		return false;
	rc = attempt(l, s, &again);
	if (rc >= 0 ||
	    (l->in_doubt && (again.status == ROS2_EXISTS || again.status == ROS2_NOT_FOUND)))
		return true;
	wrong(l, "%s: %s; then: %s", s->name, err.msg, again.msg);
	return false;
}

#define TAKE(l, ...) take(l, &(const struct step){__VA_ARGS__})

/* ---- a life ---- */

static void live_begin(struct life *l)
{
	TAKE(l, "open a session", open_session);
	TAKE(l, "mount data", mount_data, AT(session));
	TAKE(l, "mount other", mount_other, AT(session));
	TAKE(l, "mkdir", make_dir, AT(data), DID(dirs_made), "data");
	TAKE(l, "create", make_file, AT(data), DID(made), "data");
	if (l->in_doubt && !l->file)
		TAKE(l, "open what was created", open_made, AT(data));
	TAKE(l, "open", open_beside, AT(other), DID(made), "other", .idempotent = true);
	TAKE(l, "allocate", alloc_buf, AT(session));
	TAKE(l, "register", register_own, AT(session));
}

static void live_files(struct life *l)
{
	if (l->buf) {
		TAKE(l, "save", save, AT(file), .doubts = true);
		TAKE(l, "load", load_buf, AT(file));
	}
	if (l->region)
		TAKE(l, "load into own memory", load_own, AT(file));
	TAKE(l, "load elsewhere", load_elsewhere, AT(file));
	TAKE(l, "renew", renew_leases, AT(session));
	TAKE(l, "rename", rename_file, AT(data), DID(renamed), "data");
	/* Its name was not known any more. */
	if (l->in_doubt) {
		TAKE(l, "close", close_file, AT(file));
		TAKE(l, "open what was renamed", open_renamed, AT(data));
	}
	TAKE(l, "stat", stat_file, AT(other));
	TAKE(l, "fstat", fstat_file, AT(file));
	TAKE(l, "readdir", list_files, AT(data));
	TAKE(l, "truncate", cut_file, AT(file), DID(cut), "data");
	TAKE(l, "end leases", end_leases, AT(session));
	if (l->buf) {
		TAKE(l, "save anew", save, AT(file), .doubts = true);
		TAKE(l, "load anew", load_buf, AT(file));
	}
	if (l->region)
		TAKE(l, "load into own memory anew", load_own, AT(file));
}

static void live_end(struct life *l)
{
	TAKE(l, "deregister", free_region, AT(region));
	TAKE(l, "close", close_file, AT(file));
	TAKE(l, "unlink", unlink_file, AT(data), DID(unlinked), "data");
	TAKE(l, "rmdir", remove_dir, AT(data), DID(dirs_removed), "data");
	TAKE(l, "free", free_buf, AT(buf));
	TAKE(l, "unmount", unmount_other, AT(other));
	TAKE(l, "close the session", close_session, AT(session));
}

/* What one life did, whatever failed on the way. */
static void check_changes(struct life *l)
{
	const struct fake_changes *d = &l->agent->did;

	if (d->made != 2 || d->renamed != 1 || d->unlinked != 1 || d->dirs_made != 1 ||
	    d->dirs_removed != 1)
		wrong(l, "made %u, renamed %u, unlinked %u; directories: made %u, removed %u",
		      d->made, d->renamed, d->unlinked, d->dirs_made, d->dirs_removed);
}

/* Whose call @at fails with @f; returns how many calls it made. */
static unsigned live(struct life *l, enum fault f, unsigned at, bool for_good)
{
	struct ros2_err err = ROS2_ERR_INIT;

	*l = (struct life){.agent = fake_agent_new()};
	rpc_tap_init(&l->tap, l->agent);
	l->tap.fault = f;
	l->tap.at = at;
	l->tap.for_good = for_good;
	l->agent->ttl_ms = TTL_MS;
	l->agent->rotate_keys = true;
	if (over == ROS2_TRANSPORT_SHM)
		fake_agent_offer_shm(l->agent);
	l->patience_ms = for_good ? IMPATIENCE_MS : PATIENCE_MS;
	if (client_new(&l->tap.base, TIMEOUT_MS, &l->client, &err))
		fail_msg("%s", err.msg);
	live_begin(l);
	live_files(l);
	live_end(l);
	/* One whose fault was seen on the way. */
	ros2_session_close(l->session);
	ros2_disconnect(l->client);
	check_end(l);
	if (!for_good)
		check_changes(l);
	fake_agent_free(l->agent);
	return l->tap.calls;
}

static unsigned calls_of_a_life(void)
{
	struct life l;
	unsigned n = live(&l, FAULT_NONE, 0, false);

	assert_string_equal(l.wrong, "");
	/* All but Flush: libros2 asks for it on the data connection. */
	assert_int_equal(l.tap.methods, ((1u << ros2_v1_tenant_service.n_methods) - 1) &
	                                        ~rpc_tap_method(&ros2_v1_tenant_flush));
	return n;
}

/* On an emulated processor not each call fails: as in tests/sweep. */
static unsigned stride(void)
{
	const char *n = getenv("ROS2_SWEEP_STRIDE");

	return n ? MAX((unsigned)atoi(n), 1u) : 1;
}

static void fails(enum fault f, unsigned at, bool for_good)
{
	struct life l;

	live(&l, f, at, for_good);
	assert_true(l.tap.fired > 0);
	if (l.wrong[0])
		fail_msg("%s, call %u%s: %s", fault_to_str(f), at,
		         for_good ? " and all after it" : "", l.wrong);
}

static void sweep(enum fault f)
{
	unsigned n = calls_of_a_life();

	for (unsigned at = 1; at <= n; at += stride()) {
		fails(f, at, false);
		fails(f, at, true);
	}
}

/* Wherever it happens it is seen. */
static void control(enum fault f, unsigned least)
{
	unsigned n = calls_of_a_life(), seen = 0;
	struct life l;

	for (unsigned i = 1; i <= n; i++) {
		live(&l, f, i, false);
		if (l.tap.misbehaved && !l.wrong[0])
			fail_msg("%s, call %u: not seen", fault_to_str(f), i);
		seen += l.tap.misbehaved;
	}
	assert_true(seen >= least);
}

#define SWEEP(name, f)                                                                             \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep(f);                                                                          \
	}
#define CONTROL(name, f, least)                                                                    \
	static void name(void **state)                                                             \
	{                                                                                          \
		control(f, least);                                                                 \
	}
SWEEP(call__that_never_arrives, FAULT_NOT_SENT)
SWEEP(call__whose_answer_is_lost, FAULT_LOST)
SWEEP(call__that_nobody_answers, FAULT_STUCK)
SWEEP(call__that_is_answered_too_late, FAULT_LATE)
SWEEP(call__that_finds_the_agent_busy, FAULT_BUSY)
SWEEP(call__beyond_a_limit, FAULT_LIMIT)
SWEEP(call__on_a_session_that_the_agent_does_not_know, FAULT_NO_SESSION)
SWEEP(call__to_an_agent_that_begins_anew, FAULT_RESTARTED)
SWEEP(call__after_which_the_agent_begins_anew, FAULT_DIED)
CONTROL(control__an_ok_for_nothing_is_seen, FAULT_LIE, 9)
CONTROL(control__a_call_that_is_made_again_is_seen, FAULT_TWICE, 7)
CONTROL(control__a_change_in_another_namespace_is_seen, FAULT_ELSEWHERE, 6)
CONTROL(control__a_lease_that_nobody_knows_is_seen, FAULT_LEAK, 4)

static int over_tcp(void **state)
{
	over = ROS2_TRANSPORT_TCP;
	return 0;
}

static int over_shm(void **state)
{
	over = ROS2_TRANSPORT_SHM;
	return 0;
}

#define T(fn) cmocka_unit_test_setup(fn, over_tcp)
#define S(fn) cmocka_unit_test_setup(fn, over_shm)
#define SWEEPS(X)                                                                                  \
	X(call__beyond_a_limit), X(call__that_never_arrives), X(call__whose_answer_is_lost),       \
		X(call__that_nobody_answers), X(call__that_is_answered_too_late),                  \
		X(call__that_finds_the_agent_busy),                                                \
		X(call__on_a_session_that_the_agent_does_not_know),                                \
		X(call__to_an_agent_that_begins_anew), X(call__after_which_the_agent_begins_anew)
int main(void)
{
	const struct CMUnitTest tests[] = {
		SWEEPS(T),
		T(control__an_ok_for_nothing_is_seen),
		T(control__a_call_that_is_made_again_is_seen),
		T(control__a_change_in_another_namespace_is_seen),
		T(control__a_lease_that_nobody_knows_is_seen),
		SWEEPS(S),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
