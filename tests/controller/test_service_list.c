/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists in pages: nothing that stays is left out or shown twice, whatever comes and goes between
 * the pages and whatever agents answer; tokens of other lists are refused.
 */
#include "controller/ctl.h"
#include "controller/page.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/controller/service_rows.h"
#include "common/util.h"
#include <stdatomic.h>
#include <stdio.h>

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

static Ros2__V1__ListReply *page(struct sf *f, Ros2__V1__ListRequest *q)
{
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__ListReply *r = NULL;

	if (ros2_v1_admin_list_sync(f->admin, q, 9000, &r, &err))
		fail_msg("list: %s", err.msg);
	return r;
}

/* Agents have a second to say what they have. Where all do, a machine that is busy gets more. */
static _Atomic bool patient;

int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, patient && ms == 1000 ? 8000 : ms, fn, arg);
}

struct walk {
	unsigned n, pages;
	char last[ROS2_NAME_MAX + 64];
};

/* Takes a page: rows come in strictly ascending order, so none twice. False at the end. */
static bool walk_page(struct sf *f, Ros2__V1__ListRequest *q, struct walk *w)
{
	static char token[256];
	Ros2__V1__ListReply *r;
	bool more;

	patient = true;
	r = page(f, q);
	patient = false;
	more = r->next_page_token[0] != '\0';
	assert_true(r->n_sessions + r->n_leases <= q->page_size);
	assert_int_equal(r->n_unreachable_agents, 0);
	for (size_t i = 0; i < r->n_sessions + r->n_leases; i++) {
		char at[sizeof(w->last)];

		if (q->kind == KIND(SESSION))
			snprintf(at, sizeof(at), "%s %02x%02x", r->sessions[i]->agent,
			         r->sessions[i]->session_uid.data[0],
			         r->sessions[i]->session_uid.data[1]);
		else
			snprintf(at, sizeof(at), "%s %08llx", r->leases[i]->agent,
			         (unsigned long long)r->leases[i]->lease_id);
		assert_true(strcmp(at, w->last) > 0);
		strcpy(w->last, at);
		w->n++;
	}
	w->pages++;
	snprintf(token, sizeof(token), "%s", r->next_page_token);
	q->page_token = token;
	ros2__v1__list_reply__free_unpacked(r, NULL);
	return more;
}

static void list__pages_go_through_the_rows_of_all_agents(void **state)
{
	struct sf *f = *state;
	static struct fake a, b;
	static struct rows ra, rb;
	Ros2__V1__ObjectKind kinds[] = {KIND(SESSION), KIND(LEASE)};

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	rows_have(&a, &ra, 700);
	rows_have(&b, &rb, 5);
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
		struct walk w = {0};

		q.kind = kinds[k];
		q.page_size = 100;
		while (walk_page(f, &q, &w))
			;
		assert_int_equal(w.n, 705);
		assert_in_range(w.pages, 8, 9);
	}
	assert_true(rb.asked <= 4); /* not for the pages that the first agent fills */
	fake_free(&a);
	fake_free(&b);
}

static void list__pages_hold_while_rows_come_and_go(void **state)
{
	struct sf *f = *state;
	static struct fake a;
	static struct rows r;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct walk w = {0};

	memset(&r, 0, sizeof(r));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &r);
	rows_have(&a, &r, 50);
	q.kind = KIND(SESSION);
	q.agent = (char *)"dpu-0";
	q.page_size = 10;
	assert_true(walk_page(f, &q, &w));
	/* All that was shown goes, among it the row the token names; and one that was not shown. */
	for (size_t i = 0; i < 10; i++)
		r.gone[i] = true;
	r.gone[12] = true;
	assert_true(walk_page(f, &q, &w));
	rows_have(&a, &r, 55);
	while (walk_page(f, &q, &w))
		;
	assert_int_equal(w.n, 54);
	fake_free(&a);
}

static void list__an_agent_that_lies_holds_up_no_page(void **state)
{
	struct sf *f = *state;
	static struct fake a, b;
	static struct rows ra, rb;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct walk w = {0};

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	ra.lies = true;
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	rows_have(&a, &ra, 300);
	rows_have(&b, &rb, 20);
	q.kind = KIND(SESSION);
	q.page_size = 50;
	while (walk_page(f, &q, &w))
		assert_true(w.pages < 20);
	assert_int_equal(w.n, 320);
	fake_free(&a);
	fake_free(&b);
}

/* A message holds 4 MiB, of an answer, too. */
static void list__rows_of_any_length_hold_up_no_page(void **state)
{
	struct sf *f = *state;
	static struct fake a, b;
	static struct rows ra, rb;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct walk w = {0};

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	/* As long as none can be: they are not shown, and that is said of who says so. */
	ra.peer_bytes = ROWS_PEER_MAX;
	rb.peer_bytes = 3500;
	rows_have(&a, &ra, 39);
	rows_have(&b, &rb, 60);
	q.kind = KIND(SESSION);
	q.page_size = 5000;
	while (walk_page(f, &q, &w))
		;
	assert_int_equal(w.n, 60);
	sf_audit_wait(f, "agent.claim", 1);
	/* As long as they may be, and more than a message holds: pages are shorter. */
	ra.peer_bytes = rb.peer_bytes = 3500;
	rows_have(&a, &ra, 1000);
	rows_have(&b, &rb, 1000);
	w = (struct walk){0};
	q.page_token = (char *)"";
	while (walk_page(f, &q, &w))
		;
	assert_int_equal(w.n, 2000);
	assert_in_range(w.pages, 3, 5);
	fake_free(&a);
	fake_free(&b);
}

static void list__refuses_tokens_of_other_lists(void **state)
{
	struct sf *f = *state;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	const char *bad[] = {"dpu-0", "AAAA", "%%%", "YQ==", NULL};
	Ros2__V1__ListReply *r, *none = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	char *long_one = calloc(1, 100001);

	rows_documents(f);
	q.kind = KIND(AGENT);
	q.page_size = 1;
	r = page(f, &q);
	assert_int_equal(r->n_objects, 1);
	q.page_token = r->next_page_token;
	assert_true(*q.page_token);
	ros2__v1__list_reply__free_unpacked(page(f, &q), NULL);
	q.tenant = (char *)"alpha"; /* another filter */
	assert_int_not_equal(ros2_v1_admin_list_sync(f->admin, &q, 9000, &none, &err), 0);
	assert_int_equal(err.status, ROS2_INVALID);
	q.tenant = (char *)"";
	q.kind = KIND(TENANT);
	assert_int_not_equal(ros2_v1_admin_list_sync(f->admin, &q, 9000, &none, &err), 0);
	assert_int_equal(err.status, ROS2_INVALID);
	memset(long_one, 'A', 100000);
	bad[4] = long_one;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		q.page_token = (char *)bad[i];
		assert_int_not_equal(ros2_v1_admin_list_sync(f->admin, &q, 9000, &none, &err), 0);
		assert_int_equal(err.status, ROS2_INVALID);
	}
	ros2__v1__list_reply__free_unpacked(r, NULL);
	free(long_one);
}

static void ask_grants(struct sf *f, struct fake *a, unsigned n)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), "alpha");
	struct ros2_uid alpha;

	memcpy(alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	for (unsigned i = 0; i < n; i++) {
		fake_ask_grant(a, i + 1, &alpha, TRAINER);
		assert_non_null(fake_next(a, MSG(GRANT_REPLY), AWAIT_MS));
	}
}

static unsigned count_grants(struct sf *f, Ros2__V1__ListRequest *q, const char *revoke_after_first)
{
	char token[256] = "";
	unsigned n = 0;

	for (bool more = true, first = true; more; first = false) {
		Ros2__V1__ListReply *r;

		q->page_token = token;
		r = page(f, q);
		assert_true(r->n_grants <= q->page_size);
		for (size_t i = 0; i < r->n_grants; i++)
			assert_string_equal(r->grants[i]->tenant, "alpha");
		n += r->n_grants;
		if (first && revoke_after_first) {
			Ros2__V1__RevokeReply *gone = NULL;
			char uid[ROS2_UID_STR_LEN];
			struct ros2_uid u;

			memcpy(u.b, r->grants[r->n_grants - 1]->grant_uid.data, ROS2_UID_LEN);
			ros2_uid_to_str(&u, uid);
			assert_int_equal(sf_revoke(f, KIND(GRANT), uid, 1, &gone, NULL), 0);
			ros2__v1__revoke_reply__free_unpacked(gone, NULL);
		}
		more = r->next_page_token[0] != '\0';
		snprintf(token, sizeof(token), "%s", r->next_page_token);
		ros2__v1__list_reply__free_unpacked(r, NULL);
	}
	return n;
}

static void list__grants_in_pages_live_then_ended(void **state)
{
	struct sf *f = *state;
	static struct rows rows;
	static struct fake a;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__DeleteRequest d = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *dr = NULL;

	rows_documents(f);
	rows_up(f, &a, "dpu-0", &rows);
	ask_grants(f, &a, 8);
	q.kind = KIND(GRANT);
	q.page_size = 3;
	assert_int_equal(count_grants(f, &q, NULL), 8);
	/* The grant that the token names ends: the next page begins behind its place. */
	assert_int_equal(count_grants(f, &q, "the last one"), 8);
	assert_int_equal(count_grants(f, &q, NULL), 7);
	q.all = true;
	assert_int_equal(count_grants(f, &q, NULL), 8);
	/* Of a tenant that was deleted the grants keep the name. */
	fake_disconnect(&a);
	ref.kind = KIND(TENANT);
	ref.name = (char *)"alpha";
	d.ref = &ref;
	assert_int_equal(ros2_v1_admin_delete_sync(f->admin, &d, 20000, &dr, NULL), 0);
	ros2__v1__delete_reply__free_unpacked(dr, NULL);
	assert_int_equal(count_grants(f, &q, NULL), 8);
	fake_free(&a);
}

static void revoke__session_is_owed_by_every_agent_that_may_have_it(void **state)
{
	struct sf *f = *state;
	static struct rows ra, rb;
	static struct fake a, b;
	Ros2__V1__RevokeReply *r = NULL;
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid u;

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	ra.n = 1000;
	rows_session_uid(700, u.b);
	ros2_uid_to_str(&u, uid);
	/* One agent says that it has it: the other owes nothing. */
	assert_int_equal(sf_revoke(f, KIND(SESSION), uid, 1, &r, NULL), 0);
	assert_int_equal(r->n_outcomes, 1);
	assert_string_equal(r->outcomes[0]->agent, "dpu-0");
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	fake_disconnect(&a);
	fake_disconnect(&b);
	/* Nobody answers: both may have it. */
	assert_int_equal(sf_revoke(f, KIND(SESSION), uid, 1, &r, NULL), 0);
	assert_int_equal(r->n_outcomes, 2);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	fake_connect(&b, NULL, 0);
	assert_non_null(fake_next(&b, MSG(REVOKE), AWAIT_MS));
	fake_free(&a);
	fake_free(&b);
}

/* Rows are in order of agents' names: those of dpu-0 come before what dpu-1 says. */
static void revoke__session_is_found_beside_an_agent_that_answers_with_others(void **state)
{
	struct sf *f = *state;
	static struct rows ra, rb;
	static struct fake a, b;
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid u;

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	ra.others = true;
	rb.n = 1000;
	rows_session_uid(700, u.b);
	ros2_uid_to_str(&u, uid);
	if (sf_revoke(f, KIND(SESSION), uid, 1, &r, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(r->n_outcomes, 1);
	assert_string_equal(r->outcomes[0]->agent, "dpu-1");
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	assert_non_null(fake_next(&b, MSG(REVOKE), AWAIT_MS));
	fake_free(&a);
	fake_free(&b);
}

/* ---- what a list of agents costs ---- */

static _Atomic unsigned passes, placements;

void __real_ctl_agents_sum(const struct ctl *c, struct ctl_agent_sum *v, size_t n);
void __wrap_ctl_agents_sum(const struct ctl *c, struct ctl_agent_sum *v, size_t n);
void __wrap_ctl_agents_sum(const struct ctl *c, struct ctl_agent_sum *v, size_t n)
{
	passes++;
	__real_ctl_agents_sum(c, v, n);
}

bool __real_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	placements++;
	return __real_ctl_placed(tenant, a);
}

/* A page of agents; what it says of dpu-0 and dpu-1 is added to what is there. */
static void agents_page(struct sf *f, Ros2__V1__ListRequest *q, Ros2__V1__AgentInfo said[2])
{
	Ros2__V1__ListReply *r = page(f, q);
	static char token[PAGE_TOKEN_MAX];

	for (size_t i = 0; i < r->n_objects; i++) {
		const Ros2__V1__ObjectInfo *o = r->objects[i];

		if (!strncmp(o->name, "dpu-", 4))
			said[o->name[4] - '0'] = *o->agent;
		else
			assert_int_equal(o->agent->tenants, 0);
	}
	assert_int_equal(r->n_objects, 11);
	snprintf(token, sizeof(token), "%s", r->next_page_token);
	q->page_token = token;
	ros2__v1__list_reply__free_unpacked(r, NULL);
}

static void list__of_agents_looks_at_each_tenant_and_agent_once(void **state)
{
	struct sf *f = *state;
	static struct fake a, b;
	static struct rows ra, rb;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__AgentInfo said[2] = {0};
	char text[2048];
	size_t n = 0;

	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	sf_apply(f, sf_tenant("beta", "1h", "30m", "dpu-1"));
	sf_apply(f, sf_tenant("gamma", "1h", "5m", "dpu-1"));
	for (int i = 0; i < 20; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		                      "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                      "a-%d}\nspec: {}\n",
		                      i);
	sf_apply(f, text);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
	q.kind = KIND(AGENT);
	q.page_size = 11;
	passes = placements = 0;
	agents_page(f, &q, said);
	agents_page(f, &q, said);
	assert_string_equal(q.page_token, "");
	assert_int_equal(passes, 2); /* one for each page */
	assert_int_equal(placements, 22 * 3);
	assert_int_equal(said[0].tenants, 1);
	assert_int_equal(said[1].tenants, 3);
	/* 10m and 30m, the largest, since they were enrolled a moment ago. */
	assert_in_range(said[0].contact_until_unix_ns, clock_unix_ns() + 1 * 60 * NS_PER_S,
	                clock_unix_ns() + 11 * 60 * NS_PER_S);
	assert_in_range(said[1].contact_until_unix_ns, clock_unix_ns() + 21 * 60 * NS_PER_S,
	                clock_unix_ns() + 31 * 60 * NS_PER_S);
	fake_free(&a);
	fake_free(&b);
}

/* ---- what a list of tenants costs ---- */

int __real_ctl_agents_list(const struct ctl *c, struct ctl_agents *ret);
int __wrap_ctl_agents_list(const struct ctl *c, struct ctl_agents *ret);
int __wrap_ctl_agents_list(const struct ctl *c, struct ctl_agents *ret)
{
	passes++;
	return __real_ctl_agents_list(c, ret);
}

static _Atomic unsigned choices;

bool __real_ctl_chosen(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_chosen(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_chosen(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	choices++;
	return __real_ctl_chosen(tenant, a);
}

#define TENANTS 20

/* What a page says of where its tenants are; @required: they want what nobody was seen to enforce.
 */
static void tenants_page(struct sf *f, Ros2__V1__ListRequest *q, bool required)
{
	Ros2__V1__ListReply *r = page(f, q);
	static char token[PAGE_TOKEN_MAX];

	assert_int_equal(r->n_objects, TENANTS / 2);
	for (size_t i = 0; i < r->n_objects; i++) {
		const Ros2__V1__ObjectInfo *o = r->objects[i];

		assert_int_equal(o->tenant->n_agents, required ? 0 : 1);
		if (!required)
			assert_string_equal(o->tenant->agents[0], "dpu-1");
		assert_int_equal(o->n_conditions, required ? 2 : 1);
		if (required)
			assert_string_equal(o->conditions[1]->name, "RequirementsUnmet");
	}
	snprintf(token, sizeof(token), "%s", r->next_page_token);
	q->page_token = token;
	ros2__v1__list_reply__free_unpacked(r, NULL);
}

static void apply_tenants(struct sf *f, const char *require)
{
	char text[8192];
	size_t n = 0;

	for (int i = 0; i < TENANTS; i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n,
			"---\napiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: t-%d}\nspec:\n"
			"  principals:\n    - spiffe://" TD "/tenant/t-%d/x\n"
			"  placement: {agents: [dpu-1]%s}\n"
			"  namespaces:\n    - {name: data, engine: ram, path: t-%d, access: rw}\n",
			i, i, require, i);
	sf_apply(f, text);
}

/* The control is that it costs something: without requirements nobody is chosen twice. */
static void list__of_tenants_walks_over_all_objects_once(void **state)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct sf *f = *state;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	sf_apply(f, sf_engine);
	for (int required = 0; required < 2; required++) {
		apply_tenants(f, required ? ", require: [foreign-invalidate]" : "");
		q.kind = KIND(TENANT);
		q.page_token = (char *)"";
		q.page_size = TENANTS / 2;
		passes = placements = choices = 0;
		tenants_page(f, &q, required);
		assert_int_equal(passes, 1);
		/* Two agents; for each tenant each is looked at once, and once for what it wants.
		 */
		assert_int_equal(placements, TENANTS / 2 * 2);
		assert_int_equal(choices, required ? TENANTS / 2 * 2 : 0);
		tenants_page(f, &q, required);
		assert_string_equal(q.page_token, "");
		assert_int_equal(passes, 2); /* one for each page */
	}
}

#define MANY_AGENTS  300
#define MANY_TENANTS 260

static char *many_agents(void)
{
	char *text = malloc(MANY_AGENTS * 200);
	size_t n = 0;

	assert_non_null(text);
	for (int i = 0; i < MANY_AGENTS; i++)
		n += (size_t)sprintf(text + n,
		                     "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                     "a%062d, labels: {pool: all}}\nspec: {}\n",
		                     i);
	return text;
}

static char *many_tenants(void)
{
	char *text = malloc(MANY_TENANTS * 400);
	size_t n = 0;

	assert_non_null(text);
	for (int i = 0; i < MANY_TENANTS; i++)
		n += (size_t)sprintf(
			text + n,
			"---\napiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: t-%03d}\nspec:\n"
			"  principals:\n    - spiffe://" TD "/tenant/t-%03d/x\n"
			"  placement: {selector: {pool: all}}\n"
			"  namespaces:\n    - {name: data, engine: ram, path: t-%03d, access: "
			"rw}\n",
			i, i, i);
	return text;
}

/* Each is 19 KiB, for it names where it is: they are more than a message holds (4 MiB). */
static void list__of_tenants_that_are_everywhere_comes_in_pages(void **state)
{
	AUTO_FREE char *agents = many_agents(), *tenants = many_tenants();
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	char token[PAGE_TOKEN_MAX] = "", name[16];
	struct sf *f = *state;
	unsigned n = 0, pages = 0;

	sf_apply(f, sf_engine);
	sf_apply(f, agents);
	sf_apply(f, tenants);
	q.kind = KIND(TENANT);
	q.page_size = 1000;
	q.page_token = token;
	do {
		Ros2__V1__ListReply *r = page(f, &q);

		assert_true(r->n_objects > 0);
		for (size_t i = 0; i < r->n_objects; i++) {
			snprintf(name, sizeof(name), "t-%03u", n++);
			assert_string_equal(r->objects[i]->name, name);
			assert_int_equal(r->objects[i]->tenant->n_agents, MANY_AGENTS);
		}
		strcpy(token, r->next_page_token);
		ros2__v1__list_reply__free_unpacked(r, NULL);
		pages++;
	} while (token[0]);
	assert_int_equal(n, MANY_TENANTS);
	assert_int_equal(pages, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(list__pages_go_through_the_rows_of_all_agents),
		T(list__pages_hold_while_rows_come_and_go),
		T(list__an_agent_that_lies_holds_up_no_page),
		T(list__rows_of_any_length_hold_up_no_page),
		T(list__refuses_tokens_of_other_lists),
		T(list__grants_in_pages_live_then_ended),
		T(list__of_agents_looks_at_each_tenant_and_agent_once),
		T(list__of_tenants_walks_over_all_objects_once),
		T(list__of_tenants_that_are_everywhere_comes_in_pages),
		T(revoke__session_is_owed_by_every_agent_that_may_have_it),
		T(revoke__session_is_found_beside_an_agent_that_answers_with_others),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
