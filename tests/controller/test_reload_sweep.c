/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP without memory: each allocation of the controller's loop, and of its store, fails once and
 * then for good while an authority and a role are taken away and others are given. In the end,
 * without another signal, what the files say is in force and in the log. Until then nobody has what
 * no record tells, and from the moment at which the files were read nobody has what they took.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "controller/store_txn.h"
#include "proto/rpc/rpc.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/sweep/sweep.h"

/* What is tried again later is tried soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms >= 1000 && ms <= 5000 ? ms / 50 : ms, fn, arg);
}

/* ---- who may be let in, seen from outside ---- */

/* Records of reloads: given to the store; taken by it, on disk or not, or refused. */
static _Atomic unsigned given, taken, refused;
static struct pki_trust *last; /* a reference; what the administrators' listener has */
static bool is_durable;        /* we are in the word that a record is */
static _Atomic bool early;     /* somebody was let in without */

struct told {
	store_done_fn done;
	void *arg;
};

static void told(void *arg, const struct store_result *r)
{
	struct told *t = arg;

	bool is = r->rc == 0 || r->record_pending;

	is_durable = r->rc == 0;
	t->done(t->arg, r); /* which may give another */
	is_durable = false;
	taken += is;
	refused += !is;
	free(t);
}

/* Refusals, too, wait for their records. */
static bool is_reload(const struct store_txn *t)
{
	for (size_t i = 0; t && i < t->n_drafts; i++)
		if (t->drafts[i]->action && !strcmp(t->drafts[i]->action, "trust.reload"))
			return true;
	return false;
}

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	struct told *x;
	int rc;

	if (!is_reload(t))
		return __real_store_submit(s, t, done, arg, err);
	sweep_hold();
	x = malloc(sizeof(*x));
	sweep_release();
	*x = (struct told){done, arg};
	rc = __real_store_submit(s, t, told, x, err);
	if (rc < 0)
		free(x);
	else
		given++;
	return rc;
}

/* Nobody more than before, but when a record is durable. */
bool __real_rpc_server_set_trust(struct rpc_server *s, struct pki_trust *t);
bool __wrap_rpc_server_set_trust(struct rpc_server *s, struct pki_trust *t);
bool __wrap_rpc_server_set_trust(struct rpc_server *s, struct pki_trust *t)
{
	static struct rpc_server *admin;
	struct pki_trust_changes c;

	if (!last)
		admin = s; /* it is told first */
	if (s == admin) {
		pki_trust_changes(last ? last : t, t, &c);
		early |= c.added && !is_durable;
		pki_trust_unref(last);
		last = pki_trust_ref(t);
	}
	return __real_rpc_server_set_trust(s, t);
}

/* ---- the files ---- */

static void put(const char *file, const char *const *parts, size_t n_parts)
{
	AUTO_FREE char *all = strdup("");

	for (size_t i = 0; i < n_parts; i++) {
		AUTO_FREE char *text = NULL;
		char *more;
		size_t n;

		assert_int_equal(
			fsx_read_file(sf_path("%s", parts[i]), 65536, (void **)&text, &n, NULL), 0);
		assert_true(asprintf(&more, "%s%s", all, text) > 0);
		free(all);
		all = more;
	}
	assert_int_equal(
		fsx_write_atomic(sf_path("controller/%s", file), all, strlen(all), 0600, NULL), 0);
}

/* "" for a role: no line. */
static void roles(const char *eye, const char *nobody)
{
	char text[300];
	int n = snprintf(text, sizeof(text), "spiffe://" TD "/admin/root admin\n");

	if (*eye)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "spiffe://" TD "/admin/eye %s\n",
		              eye);
	if (*nobody)
		snprintf(text + n, sizeof(text) - (size_t)n, "spiffe://" TD "/admin/nobody %s\n",
		         nobody);
	assert_int_equal(
		fsx_write_atomic(sf_path("controller/roles"), text, strlen(text), 0600, NULL), 0);
}

/* One of the two sets. */
static void files(bool second)
{
	put("admin-bundle.pem",
	    (const char *const[]){"admin.crt", second ? "extra2.crt" : "extra1.crt"}, 2);
	roles(second ? "" : "auditor", second ? "auditor" : "");
}

static void reload_on_loop(void *arg)
{
	controller_reload(arg);
}

/* ---- what holds ---- */

/* Connections that stand: each call on them is judged. */
static const char *const who[] = {"e1", "eye", "e2", "nobody"};
static struct rpc_channel *of[4];

static int ask(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	int rc = ros2_v1_admin_status_sync(c, &q, AWAIT_MS, &r, err);

	if (rc == 0)
		ros2__v1__status_reply__free_unpacked(r, NULL);
	return rc;
}

static bool let_in(struct rpc_channel *c)
{
	return c && ask(c, NULL) == 0;
}

static bool may(struct rpc_channel *c)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (ask(c, &err) == 0)
		return true;
	if (err.code && err.status != ROS2_UNAUTHENTICATED && err.status != ROS2_DENIED)
		fail_msg("%s: %s", ros2_status_to_str(err.status), err.msg);
	return false;
}

static void settled(bool second, const struct sweep *s)
{
	for (unsigned i = 0; i < 2; i++)
		if (!AWAIT(may(of[second ? 2 + i : i])))
			fail_msg("allocation %u%s: what is new does not come into force", s->at,
			         s->persistent ? " and on" : "");
	for (unsigned i = 0; i < 2; i++)
		if (may(of[second ? i : 2 + i]))
			fail_msg("allocation %u%s: what was taken away is there", s->at,
			         s->persistent ? " and on" : "");
}

static void connect_all(struct sf *f)
{
	static const char *const all[3] = {"admin.crt", "extra1.crt", "extra2.crt"};

	put("admin-bundle.pem", all, 3);
	roles("auditor", "auditor");
	loop_call(f->loop, reload_on_loop, f->c);
	for (unsigned i = 0; i < ARRAY_SIZE(of); i++) {
		/* Its first connection may come before the bundle. */
		do {
			rpc_channel_free(of[i]);
			of[i] = sf_channel(f, who[i], f->ports.admin, NULL);
		} while (!let_in(of[i]));
	}
}

static void sweep_reload(void **state, const char *thread, unsigned at_least)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = thread};
	struct sf *f = *state;
	bool second = false;

	given = taken = refused = 0;
	connect_all(f);
	files(second);
	loop_call(f->loop, reload_on_loop, f->c);
	settled(second, &s);
	assert_true(AWAIT(given == taken + refused));
	for (;;) {
		unsigned n = taken;

		second = !second;
		files(second);
		if (!sweep_next(&s))
			break;
		loop_call(f->loop, reload_on_loop, f->c);
		if (s.persistent)
			/* time: so that it is tried again while it fails */
			usleep(30000);
		sweep_off();
		settled(second, &s);
		if (early)
			fail_msg("allocation %u%s: somebody is let in before a record says so",
			         s.at, s.persistent ? " and on" : "");
		/* One for what is gone, one for what came. */
		if (!AWAIT(taken == n + 2))
			fail_msg("allocation %u%s: %u records", s.at, s.persistent ? " and on" : "",
			         taken - n);
	}
	assert_true(s.points >= at_least);
	assert_true(AWAIT(sf_audit_count_action(f, "trust.reload", NULL) == taken));
	for (unsigned i = 0; i < ARRAY_SIZE(of); i++)
		rpc_channel_free(TAKE_PTR(of[i]));
	pki_trust_unref(TAKE_PTR(last));
}

static void reload__without_memory_of_the_loop(void **state)
{
	sweep_reload(state, "controller", 60);
}

static void reload__without_memory_of_the_store(void **state)
{
	sweep_reload(state, "store", 1);
}

/* ---- the trust domain ---- */

static int group_setup(void **state)
{
	static const char *const names[] = {"extra1", "extra2"};

	if (sf_group_setup(state))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct pki_ca_opts o = {.common_name = names[i],
		                        .trust_domain = TD,
		                        .key_path = sf_path("%s.key", names[i]),
		                        .cert_path = sf_path("%s.crt", names[i]),
		                        .lifetime_s = 86400};

		assert_int_equal(pki_key_create(o.key_path, NULL), 0);
		assert_int_equal(pki_ca_create(&o, NULL), 0);
	}
	sf_cert("extra1", "e1", "admin/root");
	sf_cert("extra2", "e2", "admin/root");
	return 0;
}

/* Each begins with the first set. */
static int setup(void **state)
{
	put("admin-bundle.pem", (const char *const[]){"admin.crt"}, 1);
	return sf_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(reload__without_memory_of_the_loop, setup,
	                                        sf_teardown),
		cmocka_unit_test_setup_teardown(reload__without_memory_of_the_store, setup,
	                                        sf_teardown),
	};

	/* The program's own name begins as the loop's. */
	pthread_setname_np(pthread_self(), "test");
	return cmocka_run_group_tests(tests, group_setup, sf_group_teardown);
}
