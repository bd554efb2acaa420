/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log, read by Query and Raw, while the stream ends in the middle: the connection is cut at its
 * messages, or the store does not give a page; once, and again and again. Whoever reads has got the
 * first records as they are stored and is told an error, never the end of the log; the controller
 * keeps neither the stream nor a page; the next reading is whole. So it is with ros2ctl: no copy is
 * left that could be taken for the log, and who follows it sees each record once.
 */
#include "controller/store.h"
#include "tests/await.h"
#include "tests/faults/pair.h"
#include "common/util.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#define PAGE      90  /* of controller/svc_audit.c */
#define DOCUMENTS 200 /* with what else there is, three pages and a part */
#define LOG_MAX   1000
#define PLACES    256 /* for streams, of one identity: rpc.h */

extern char **environ;

/* ---- pages of the store ---- */

static struct {
	_Atomic unsigned asked, open; /* open: on their way */
	_Atomic unsigned at;          /* the page that is not given, from 1; 0: all are */
	_Atomic bool for_good, at_once, ends, stalls;
	_Atomic int rc;
} store_pages;
struct page_read {
	store_audit_fn fn;
	void *arg;
	bool meant;
};

/* Those that stall; the controller's thread. */
static struct {
	struct store *s;
	struct store_audit_query q;
	struct page_read *j;
} stalled[PLACES];
static _Atomic unsigned n_stalled;

int __real_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg);
int __wrap_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg);

static void page_done(void *arg, const struct store_audit_page *page)
{
	struct page_read *j = arg;
	struct store_audit_page p = *page;

	if (j->meant && store_pages.ends)
		p.end = true;
	else if (j->meant)
		p.rc = store_pages.rc;
	j->fn(j->arg, &p);
	free(j);
	store_pages.open--;
}

int __wrap_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg)
{
	unsigned n = ++store_pages.asked, at = store_pages.at;
	struct page_read *j = malloc(sizeof(*j));
	int rc;

	*j = (struct page_read){fn, arg, n == at || (at && n > at && store_pages.for_good)};
	store_pages.open++;
	if (j->meant && store_pages.stalls) {
		assert_true(n_stalled < PLACES);
		stalled[n_stalled].s = s;
		stalled[n_stalled].q = *q;
		stalled[n_stalled++].j = j;
		return 0;
	}
	rc = j->meant && store_pages.at_once ? store_pages.rc
	                                     : __real_store_read_audit(s, q, page_done, j);
	if (rc < 0) {
		free(j);
		store_pages.open--;
	}
	return rc;
}

/* One page after the other: the store takes only so many at once. */
static void go_on(void *unused)
{
	unsigned i = n_stalled - 1;

	assert_int_equal(
		__real_store_read_audit(stalled[i].s, &stalled[i].q, page_done, stalled[i].j), 0);
	n_stalled = i;
}

static void all_go_on(struct pair *p)
{
	while (n_stalled) {
		unsigned open = store_pages.open;

		loop_call(p->f->loop, go_on, NULL);
		assert_true(AWAIT(store_pages.open < open));
	}
}

/* ---- readers at the controller ---- */

/* Streams that svc_audit.c keeps, which has these instead (CMakeLists.txt). */
static _Atomic unsigned kept;
static _Atomic bool forgets;
static struct rpc_stream *_Atomic forgotten;

struct rpc_stream *audit_stream_ref(struct rpc_stream *s);
void audit_stream_unref(struct rpc_stream *s);

struct rpc_stream *audit_stream_ref(struct rpc_stream *s)
{
	kept++;
	return rpc_stream_ref(s);
}

void audit_stream_unref(struct rpc_stream *s)
{
	if (forgets) {
		forgets = false;
		forgotten = s;
		return;
	}
	rpc_stream_unref(s);
	kept--;
}

/* ---- one reading ---- */

/* The log as it is, of the first test that reads it. */
static struct {
	unsigned n;
	uint8_t record[LOG_MAX][SHA256_LEN], chain[LOG_MAX][SHA256_LEN];
} whole;

struct reading {
	bool raw;
	unsigned n, notes; /* records, checkpoints */
	int rc;
	struct ros2_err err;
};

static const Ros2__V1__StoredRecord *record_of(const struct reading *g, const ProtobufCMessage *m)
{
	const Ros2__V1__AuditRawItem *item = (const Ros2__V1__AuditRawItem *)m;

	if (!g->raw)
		return ros2_v1_audit_query_out(m)->record;
	return item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD ? item->record : NULL;
}

/* Each is the next one, as it is stored. */
static void take(struct pair *p, struct reading *g, const Ros2__V1__StoredRecord *r)
{
	uint8_t hash[SHA256_LEN];

	if (r->seq != ++g->n)
		pair_wrong(p, "record %llu comes as the %uth", (unsigned long long)r->seq, g->n);
	if (g->n > whole.n)
		return;
	crypto_sha256(r->record.data, r->record.len, hash);
	if (memcmp(hash, whole.record[g->n - 1], SHA256_LEN) != 0 ||
	    memcmp(r->chain.data, whole.chain[g->n - 1], SHA256_LEN) != 0)
		pair_wrong(p, "record %u is another", g->n);
}

static int open_log(struct rpc_channel *c, bool raw, struct rpc_reader **ret, struct ros2_err *err)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	Ros2__V1__AuditRawRequest rq = ROS2__V1__AUDIT_RAW_REQUEST__INIT;

	q.to_seq = whole.n;
	q.limit = LOG_MAX;
	rq.from_seq = 1;
	rpc_channel_reset_backoff(c);
	if (raw)
		return rpc_reader_open(c, &ros2_v1_audit_raw, &rq.base, 60000, ret, err);
	return rpc_reader_open(c, &ros2_v1_audit_query, &q.base, 60000, ret, err);
}

static void read_log(struct pair *p, struct rpc_channel *c, struct reading *g)
{
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;

	*g = (struct reading){.raw = g->raw, .err = ROS2_ERR_INIT};
	g->rc = open_log(c, g->raw, &r, &g->err);
	while (!g->rc && !(g->rc = rpc_reader_next(r, AWAIT_MS, &m, &g->err))) {
		const Ros2__V1__StoredRecord *record = record_of(g, m);

		if (record)
			take(p, g, record);
		else
			g->notes++;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(r);
}

static bool was_not_heard(enum ros2_status s)
{
	return s == ROS2_UNAVAILABLE || s == ROS2_CANCELLED || s == ROS2_CLOSED;
}

static void expect_error(struct pair *p, const struct reading *g)
{
	if (g->rc == -ENODATA)
		pair_wrong(p, "it ended after %u records as if that were all", g->n);
	else if (g->rc == -EAGAIN || !g->err.status || !g->err.msg[0])
		pair_wrong(p, "it ended without a word");
}

/* The log as it was when the test began, and perhaps what came since. */
static bool is_whole(struct pair *p, void *arg)
{
	struct reading *g = arg;

	read_log(p, p->admin, g);
	if (g->rc != -ENODATA)
		return false;
	if (g->n < whole.n)
		pair_wrong(p, "it ended after %u records as if that were all", g->n);
	return true;
}

static bool is_free(struct pair *p, void *arg)
{
	return cut_readers() == 0 && store_pages.open == 0 && kept == 0;
}

static void check_mended(struct pair *p, struct reading *g, const char *where)
{
	if (!pair_until(p, is_free, NULL))
		fail_msg("%s: %u streams, %u pages and %u readers are left", where, cut_readers(),
		         store_pages.open, (unsigned)kept);
	if (!pair_until(p, is_whole, g))
		fail_msg("%s: the next one is not whole: %s", where, g->err.msg);
	if (!pair_until(p, is_free, NULL))
		fail_msg("%s: %u streams, %u pages and %u readers are left of a whole one", where,
		         cut_readers(), store_pages.open, (unsigned)kept);
	pair_check(p, where);
}

static void keep_record(unsigned i, const Ros2__V1__StoredRecord *r)
{
	crypto_sha256(r->record.data, r->record.len, whole.record[i]);
	memcpy(whole.chain[i], r->chain.data, SHA256_LEN);
}

/* What the readings are held against; it may grow, as when a connection is refused. */
static void remember(struct pair *p)
{
	struct reading g = {.raw = true};
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	unsigned n = 0;

	assert_int_equal(open_log(p->f->admin, true, &r, &g.err), 0);
	while (!(g.rc = rpc_reader_next(r, AWAIT_MS, &m, &g.err))) {
		const Ros2__V1__StoredRecord *record = record_of(&g, m);

		if (record && n < LOG_MAX)
			keep_record(n++, record);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(g.rc, -ENODATA);
	rpc_reader_close(r);
	assert_in_range(n, 2 * PAGE + 2, LOG_MAX - 1);
	whole.n = n;
}

static int setup(void **state)
{
	AUTO_FREE char *text = calloc(1, DOCUMENTS * 128);
	struct pair *p;
	size_t n = 0;

	if (pair_setup(state))
		return -1;
	p = *state;
	for (int i = 0; i < DOCUMENTS; i++)
		n += (size_t)snprintf(text + n, DOCUMENTS * 128 - n,
		                      "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                      "a-%d}\nspec: {}\n",
		                      i);
	sf_apply(p->f, text);
	remember(p);
	return 0;
}

/* ---- the connection is cut ---- */

struct attempt {
	const struct cut *cut;
	struct reading g;
};

static bool has_met(struct pair *p, void *arg)
{
	struct attempt *a = arg;

	read_log(p, p->admin, &a->g);
	if (a->g.rc != -ENODATA && !was_not_heard(a->g.err.status))
		pair_wrong(p, "it ended with %s", ros2_status_to_str(a->g.err.status));
	expect_error(p, &a->g);
	return cut_is_over(a->cut);
}

static void one(struct pair *p, const struct cut *c, bool raw)
{
	struct attempt a = {.cut = c, .g.raw = raw};
	char where[CUT_WHERE_MAX];

	cut_where(c, where);
	cut_at(c);
	if (!pair_until(p, has_met, &a))
		fail_msg("%s never came", where);
	cut_off();
	check_mended(p, &a.g, where);
}

static void sweep(struct pair *p, bool raw)
{
	const char *record = raw ? "AuditRawItem.record" : "AuditQueryItem";
	const char *request = raw ? "AuditRawRequest" : "AuditQueryRequest";
	const char *end = raw ? "AuditRawItem.end" : "AuditQueryItem.end";
	const struct cut points[] = {
		{request, CUT_BEFORE, .at = 1},      {request, CUT_AFTER, .at = 1},
		{record, CUT_BEFORE, .at = 1},       {record, CUT_BEFORE, .at = 2},
		{record, CUT_BEFORE, .at = PAGE},    {record, CUT_BEFORE, .at = PAGE + 1},
		{record, CUT_BEFORE, .at = whole.n}, {end, CUT_BEFORE, .at = 1}};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		struct cut c = points[i / 2];

		c.for_good = i % 2;
		one(p, &c, raw);
	}
}

static void query__cut_at_its_messages_never_looks_whole(void **state)
{
	sweep(*state, false);
}

/* A second after its first record; a quick machine is done with all the others before. */
static bool has_checkpoint(struct pair *p, void *arg)
{
	return is_whole(p, arg) && ((struct reading *)arg)->notes;
}

static void raw__cut_at_its_messages_never_looks_whole(void **state)
{
	struct cut c = {"AuditRawItem.checkpoint", CUT_BEFORE, .at = 1};
	struct reading g = {.raw = true};

	sweep(*state, true);
	assert_true(pair_until(*state, has_checkpoint, &g));
	one(*state, &c, true);
}

/* ---- the store does not give a page ---- */

static void without_page(struct pair *p, bool raw, unsigned page, int rc, bool at_once)
{
	enum ros2_status expected = rc == -EIO ? ROS2_IO : ROS2_BUSY;
	struct reading g = {.raw = raw};
	char where[100];

	snprintf(where, sizeof(where), "page %u: %s%s%s", page, strerror(-rc),
	         at_once ? ", at once" : "", store_pages.for_good ? ", for good" : "");
	for (unsigned i = 0; i < (store_pages.for_good ? CUT_FOR_GOOD : 1); i++) {
		store_pages.rc = rc;
		store_pages.at_once = at_once;
		/* For good: also the first page of who asks again. */
		store_pages.asked = store_pages.for_good && i ? page : 0;
		store_pages.at = page;
		read_log(p, p->admin, &g);
		expect_error(p, &g);
		if (g.err.status != expected)
			pair_wrong(p, "it ended with %s: %s", ros2_status_to_str(g.err.status),
			           g.err.msg);
		if (g.n != (store_pages.asked > page ? 0 : (page - 1) * PAGE))
			pair_wrong(p, "%u records came before", g.n);
	}
	store_pages.at = 0;
	check_mended(p, &g, where);
}

static void log__of_which_a_page_cannot_be_read_never_looks_whole(void **state)
{
	struct pair *p = *state;

	for (unsigned page = 1; page <= 3; page++)
		for (int kind = 0; kind < 4; kind++) {
			bool raw = kind & 1;

			store_pages.for_good = kind & 2;
			without_page(p, raw, page, -EIO, false);
			without_page(p, raw, page, -ENOMEM, true);
			without_page(p, raw, page, -EBUSY, true);
		}
	store_pages.for_good = store_pages.at_once = false;
}

/* ---- who reads goes ---- */

static void log__whose_reader_goes_is_let_go(void **state)
{
	struct pair *p = *state;
	struct reading g = {.raw = true};
	ProtobufCMessage *m;

	/* More than there are places. */
	for (int i = 0; i < PLACES + 40; i++) {
		struct rpc_reader *r = NULL;

		assert_int_equal(open_log(p->f->admin, i % 2, &r, &g.err), 0);
		for (int n = 0; n < i % 40; n++) {
			if (rpc_reader_next(r, AWAIT_MS, &m, &g.err))
				fail_msg("reader %d: %s", i, g.err.msg);
			protobuf_c_message_free_unpacked(m, NULL);
		}
		rpc_reader_close(r);
	}
	check_mended(p, &g, "afterwards");
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

/* Its exit code; *ret_err, of @size: what it says about errors. */
static int ctl(struct pair *p, const char *args, char *ret_err, size_t size)
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
	return WEXITSTATUS(rc);
}

static void copy__of_a_log_that_is_cut_is_not_left(void **state)
{
	struct cut c = {"AuditRawItem.record", CUT_BEFORE, .at = PAGE + 1};
	char args[600], said[2000];
	struct pair *p = *state;
	struct reading g = {.raw = true};

	make_context();
	for (int i = 0; i < 2; i++) {
		c.for_good = i;
		snprintf(args, sizeof(args), "audit export '%s'", sf_path("copy-%d", i));
		cut_at(&c);
		if (ctl(p, args, said, sizeof(said)) == 0 || !strstr(said, "UNAVAILABLE"))
			fail_msg("export of a log that is cut says: %s", said);
		assert_int_equal(cut_fired() > 0, 1);
		assert_int_not_equal(access(sf_path("copy-%d", i), F_OK), 0);
		assert_int_not_equal(access(sf_path("copy-%d.partial", i), F_OK), 0);
		cut_at(&c);
		if (ctl(p, "audit verify", said, sizeof(said)) == 0 || !strstr(said, "UNAVAILABLE"))
			fail_msg("verification of a log that is cut says: %s", said);
		cut_off();
		if (ctl(p, args, said, sizeof(said)) != 0)
			fail_msg("and again: %s", said);
		assert_int_equal(access(sf_path("copy-%d", i), F_OK), 0);
	}
	check_mended(p, &g, "afterwards");
}

/* A controller that says nothing more, and is there. */
static void copy__of_a_log_that_stalls_is_not_left(void **state)
{
	char args[2][600], said[2000];
	struct reading g = {.raw = true};
	struct pair *p = *state;

	make_context();
	snprintf(args[0], sizeof(args[0]), "--timeout 2s audit export '%s'", sf_path("stalled"));
	snprintf(args[1], sizeof(args[1]), "--timeout 2s audit query --limit %d", LOG_MAX);
	for (int i = 0; i < 2; i++) {
		store_pages.stalls = true;
		store_pages.asked = 0;
		store_pages.at = 2;
		/* Once more while it is too slow to connect. */
		for (int tries = 0; tries < 20 && store_pages.asked < 2; tries++)
			if (ctl(p, args[i], said, sizeof(said)) == 0)
				fail_msg("it ended as if that were all");
		store_pages.stalls = false;
		store_pages.at = 0;
		all_go_on(p);
		if (!strstr(said, "TIMEOUT: nothing has come"))
			fail_msg("a log that stalls: %s", said);
	}
	assert_int_not_equal(access(sf_path("stalled"), F_OK), 0);
	check_mended(p, &g, "afterwards");
}

/* ros2ctl that follows the log: a line with the number of each record. */
struct following {
	pid_t pid;
	FILE *out;
	unsigned long last;
};

static void follow_start(struct pair *p, struct following *f)
{
	char context[512];
	const char *argv[] = {getenv("ROS2CTL"),
	                      "--context",
	                      context,
	                      "--controller",
	                      p->target[CUT_ADMIN],
	                      "audit",
	                      "query",
	                      "--follow",
	                      "-o",
	                      "name",
	                      NULL};
	posix_spawn_file_actions_t to;
	int fd[2];

	snprintf(context, sizeof(context), "%s", sf_path("root"));
	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&to);
	posix_spawn_file_actions_adddup2(&to, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&to, STDERR_FILENO, sf_path("ctl.err"),
	                                 O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(posix_spawn(&f->pid, argv[0], &to, NULL, (char **)argv, environ), 0);
	posix_spawn_file_actions_destroy(&to);
	close(fd[1]);
	f->out = fdopen(fd[0], "r");
	assert_non_null(f->out);
}

static void follow_until(struct following *f, unsigned long seq)
{
	char line[64];

	while (f->last < seq) {
		unsigned long n;

		if (!fgets(line, sizeof(line), f->out))
			fail_msg("it ended after record %lu", f->last);
		n = strtoul(line, NULL, 10);
		if (f->last && n != f->last + 1)
			fail_msg("record %lu comes after %lu", n, f->last);
		f->last = n;
	}
}

/* @n documents, each of which is a record. */
static void apply_more(struct pair *p, const char *name, unsigned n)
{
	char text[4096];
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
		                        "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                        "%s-%u}\nspec: {}\n",
		                        name, i);
	sf_apply(p->f, text);
}

static bool has_fired(struct pair *p, void *arg)
{
	const struct cut *c = arg;

	return cut_is_over(c);
}

static void follow__of_a_log_that_is_cut_shows_each_record_once(void **state)
{
	struct following f = {0};
	struct pair *p = *state;
	int status;

	make_context();
	follow_start(p, &f);
	follow_until(&f, whole.n);
	for (int i = 0; i < 2; i++) {
		struct cut c = {"AuditQueryItem", CUT_BEFORE, .for_good = i, .at = 3};

		cut_at(&c);
		apply_more(p, i ? "good" : "once", 9);
		assert_true(pair_until(p, has_fired, &c));
		cut_off();
		remember(p);
		follow_until(&f, whole.n);
	}
	assert_int_equal(kill(f.pid, SIGTERM), 0);
	assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
	fclose(f.out);
}

/* ---- control ---- */

static void control__log_that_ends_too_early_is_noticed(void **state)
{
	struct reading g = {.raw = true};
	struct pair *p = *state;

	assert_true(is_whole(p, &g));
	pair_check(p, "a log that ends when it ends");
	store_pages.ends = true;
	store_pages.asked = 0;
	store_pages.at = 2;
	assert_true(is_whole(p, &g));
	store_pages.at = 0;
	store_pages.ends = false;
	assert_string_equal(p->wrong, "it ended after 180 records as if that were all");
}

/* All places have readers whose pages do not come: who comes then is refused, also when they have
 * gone, for a reader has its place as long as anything of it is left. */
static void control__readers_that_stay_are_noticed(void **state)
{
	struct rpc_reader *r[PLACES];
	struct pair *p = *state;
	struct reading g = {.raw = true};

	store_pages.at = 1;
	store_pages.asked = 0;
	store_pages.for_good = store_pages.stalls = true;
	for (unsigned i = 0; i < PLACES; i++)
		assert_int_equal(open_log(p->admin, i % 2, &r[i], &g.err), 0);
	assert_true(AWAIT(n_stalled == PLACES));
	read_log(p, p->admin, &g);
	assert_int_equal(g.err.status, ROS2_BUSY);
	store_pages.for_good = store_pages.stalls = false;
	store_pages.at = 0;
	for (unsigned i = 0; i < PLACES; i++)
		rpc_reader_close(r[i]);
	assert_true(AWAIT(cut_readers() == 0));
	assert_false(is_free(p, NULL));
	assert_int_equal(kept, PLACES);
	read_log(p, p->admin, &g);
	assert_int_equal(g.err.status, ROS2_BUSY);
	all_go_on(p);
	check_mended(p, &g, "afterwards");
}

/* Its stream has ended and its pages are back: only what it keeps is left of it. */
static void control__reader_that_is_not_let_go_is_noticed(void **state)
{
	struct reading g = {.raw = true};
	struct pair *p = *state;

	forgets = true;
	read_log(p, p->admin, &g);
	assert_int_equal(g.rc, -ENODATA);
	assert_true(AWAIT(forgotten && cut_readers() == 0 && store_pages.open == 0));
	assert_false(is_free(p, NULL));
	audit_stream_unref(atomic_exchange(&forgotten, NULL));
	check_mended(p, &g, "afterwards");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(query__cut_at_its_messages_never_looks_whole),
		T(raw__cut_at_its_messages_never_looks_whole),
		T(log__of_which_a_page_cannot_be_read_never_looks_whole),
		T(log__whose_reader_goes_is_let_go),
		T(copy__of_a_log_that_is_cut_is_not_left),
		T(copy__of_a_log_that_stalls_is_not_left),
		T(follow__of_a_log_that_is_cut_shows_each_record_once),
		T(control__log_that_ends_too_early_is_noticed),
		T(control__readers_that_stay_are_noticed),
		T(control__reader_that_is_not_let_go_is_noticed),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
