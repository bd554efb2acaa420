/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What administrators read, Get, List and Status, with the call or its answer lost: once, and again
 * and again. Who asked is told an error and has nothing in hand, or has all of it; the next answer
 * is whole. A list of two pages that is lost in the second is none, to ros2ctl neither: it says so,
 * ends with an error and prints nothing that could be taken for the list.
 */
#include "tests/await.h"
#include "tests/faults/pair.h"
#include "common/util.h"
#include <sys/wait.h>

#define KIND(k)   ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define DOCUMENTS 510 /* ros2ctl asks for pages of 500 */
#define PAGE      300

/* ---- what is asked: all of it, or the error ---- */

struct question {
	const char *request, *reply;
	int (*ask)(struct rpc_channel *c, struct ros2_err *err);
	unsigned calls;   /* that it takes */
	const char *ctl;  /* the same of ros2ctl */
	unsigned answers; /* that ros2ctl takes for it */
};

static int ask_get(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *r = NULL;
	int rc;

	ref.kind = KIND(ENGINE);
	ref.name = (char *)"e-7";
	q.ref = &ref;
	rc = ros2_v1_admin_get_sync(c, &q, 20000, &r, err);
	assert_int_equal(r != NULL, rc == 0);
	if (rc)
		return rc;
	assert_non_null(r->object);
	assert_string_equal(r->object->name, "e-7");
	assert_true(r->object->version && r->object->yaml.len);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return 0;
}

static int ask_list(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	char token[1024] = "";
	size_t n = 0;

	q.kind = KIND(ENGINE);
	q.page_size = PAGE;
	q.page_token = token;
	do {
		Ros2__V1__ListReply *r = NULL;
		int rc = ros2_v1_admin_list_sync(c, &q, 20000, &r, err);

		assert_int_equal(r != NULL, rc == 0);
		if (rc)
			return rc;
		n += r->n_objects;
		assert_true(strlen(r->next_page_token) < sizeof(token));
		strcpy(token, r->next_page_token);
		ros2__v1__list_reply__free_unpacked(r, NULL);
	} while (*token);
	/* That of the fixture is one more. */
	assert_int_equal(n, DOCUMENTS + 1);
	return 0;
}

static int ask_status(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	int rc = ros2_v1_admin_status_sync(c, &q, 20000, &r, err);

	assert_int_equal(r != NULL, rc == 0);
	if (rc)
		return rc;
	assert_string_equal(r->trust_domain, TD);
	assert_true(r->audit_records && r->n_conditions);
	ros2__v1__status_reply__free_unpacked(r, NULL);
	return 0;
}

static const struct question get = {"GetRequest", "GetReply", ask_get, 1, "describe engine/e-7", 1};
static const struct question list = {"ListRequest", "ListReply", ask_list, 2, "get engines", 2};
static const struct question status = {"StatusRequest", "StatusReply", ask_status, 1, "status", 1};

static int setup(void **state)
{
	AUTO_FREE char *text = calloc(1, DOCUMENTS * 128);
	size_t n = 0;

	if (pair_setup(state))
		return -1;
	for (int i = 0; i < DOCUMENTS; i++)
		n += (size_t)snprintf(text + n, DOCUMENTS * 128 - n,
		                      "---\napiVersion: ros2/v1\nkind: Engine\nmetadata: {name: "
		                      "e-%d}\nspec: {type: mem, size: 1MiB}\n",
		                      i);
	sf_apply(((struct pair *)*state)->f, text);
	return 0;
}

/* ---- the connection is cut ---- */

static bool was_lost(enum ros2_status s)
{
	return s == ROS2_UNAVAILABLE || s == ROS2_CANCELLED || s == ROS2_CLOSED;
}

struct attempt {
	const struct question *q;
	const struct cut *cut;
	struct ros2_err err;
	unsigned lost;
};

static bool answered(struct pair *p, void *arg)
{
	struct attempt *a = arg;
	int rc;

	a->err = (struct ros2_err)ROS2_ERR_INIT;
	rpc_channel_reset_backoff(p->admin);
	rc = a->q->ask(p->admin, &a->err);
	if (rc && !was_lost(a->err.status))
		fail_msg("%s: %s: %s", a->q->request, ros2_status_to_str(a->err.status),
		         a->err.msg);
	a->lost += rc != 0;
	return rc == 0;
}

static bool has_met(struct pair *p, void *arg)
{
	struct attempt *a = arg;
	unsigned before = cut_fired();
	bool whole = answered(p, a);

	/* A call that did arrive may have been answered before its line was cut. */
	if (whole && cut_fired() > before && a->cut->when == CUT_BEFORE &&
	    !strcmp(a->cut->name, a->q->reply))
		pair_wrong(p, "an answer was lost, and is there");
	return cut_is_over(a->cut);
}

static void sweep(struct pair *p, const struct question *q)
{
	const struct cut points[] = {{.name = q->request, .when = CUT_BEFORE},
	                             {.name = q->request, .when = CUT_AFTER},
	                             {.name = q->reply, .when = CUT_BEFORE}};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		struct cut c = points[i / 2];
		unsigned before = cut_points();

		c.for_good = i % 2;
		while (cut_next(&c, q->calls)) {
			struct attempt a = {.q = q, .cut = &c};
			char where[CUT_WHERE_MAX];

			cut_where(&c, where);
			if (!pair_until(p, has_met, &a) || !a.lost)
				fail_msg("%s: nothing was lost", where);
			cut_off();
			if (!pair_until(p, answered, &a))
				fail_msg("%s: no answer after it was mended", where);
			pair_check(p, where);
		}
		if (cut_points() - before != q->calls)
			fail_msg("%s was cut %u times, expected %u", c.name, cut_points() - before,
			         q->calls);
	}
}

static void get__is_whole_or_an_error(void **state)
{
	sweep(*state, &get);
}

static void list__of_two_pages_is_whole_or_an_error(void **state)
{
	sweep(*state, &list);
}

static void status__is_whole_or_an_error(void **state)
{
	sweep(*state, &status);
}

/* ---- ros2ctl ---- */

static void make_context(void)
{
	char from[512];
	FILE *f = fopen(sf_path("root/trust-domain"), "w");

	assert_non_null(f);
	fputs(TD "\n", f);
	assert_int_equal(fclose(f), 0);
	snprintf(from, sizeof(from), "%s", sf_path("controller/infra-bundle.pem"));
	(void)!symlink(from, sf_path("root/infra-bundle.pem"));
}

/* Its exit code; *ret_err, of @size: what it says about errors; *ret_lines: what it prints. */
static int ctl(struct pair *p, const char *args, char *ret_err, size_t size, unsigned *ret_lines)
{
	char cmd[2048];
	FILE *f;
	int rc;

	snprintf(cmd, sizeof(cmd), "exec '%s' --context '%s' --controller %s %s 2>&1 >'%s'",
	         getenv("ROS2CTL"), sf_path("root"), p->target[CUT_ADMIN], args,
	         sf_path("ctl.out"));
	f = popen(cmd, "r");
	assert_non_null(f);
	ret_err[fread(ret_err, 1, size - 1, f)] = '\0';
	rc = pclose(f);
	assert_true(WIFEXITED(rc));
	f = fopen(sf_path("ctl.out"), "r");
	assert_non_null(f);
	for (*ret_lines = 0; fscanf(f, "%*[^\n]") != EOF && fgetc(f) != EOF;)
		++*ret_lines;
	assert_int_equal(fclose(f), 0);
	return WEXITSTATUS(rc);
}

static void expect_nothing(struct pair *p, const struct question *q, const struct cut *c,
                           const char *form)
{
	char args[200], said[2000], where[CUT_WHERE_MAX];
	unsigned lines;
	int rc;

	snprintf(args, sizeof(args), "%s %s", q->ctl, form);
	cut_where(c, where);
	cut_at(c);
	rc = ctl(p, args, said, sizeof(said), &lines);
	if (!cut_fired())
		fail_msg("ros2ctl %s: %s never came", args, where);
	if (rc == 0 || lines || !strstr(said, "UNAVAILABLE"))
		fail_msg("ros2ctl %s, %s: ends with %d, prints %u lines, and says: %s", args, where,
		         rc, lines, said);
	cut_off();
	rc = ctl(p, args, said, sizeof(said), &lines);
	if (rc || !lines || *said)
		fail_msg("ros2ctl %s, afterwards: ends with %d, and says: %s", args, rc, said);
	if (q == &list && !strcmp(form, "-o name"))
		assert_int_equal(lines, DOCUMENTS + 1);
}

static void ros2ctl__of_an_answer_that_is_lost_prints_nothing(void **state)
{
	static const struct question *const questions[] = {&get, &list, &status};
	static const char *const forms[] = {"", "-o json", "-o name"};
	struct pair *p = *state;

	make_context();
	for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
		const struct question *q = questions[i];
		size_t n_forms = q == &list ? 3 : 2; /* the others have no names */
		struct cut c = {.name = q->reply, .when = CUT_BEFORE};

		for (size_t k = 0; k < 2 * n_forms; k++) {
			c.for_good = k % 2;
			for (c.at = 1; c.at <= q->answers; c.at++)
				expect_nothing(p, q, &c, forms[k / 2]);
		}
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(get__is_whole_or_an_error),
		T(list__of_two_pages_is_whole_or_an_error),
		T(status__is_whole_or_an_error),
		T(ros2ctl__of_an_answer_that_is_lost_prints_nothing),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
