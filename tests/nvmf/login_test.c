/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine at a target that wants an authentication on each queue: with the right secrets
 * data flows, with any other the tenant hears why, and a new secret counts from the next connection
 * on. The target carries out nothing before (target_auth.c counts that as a violation).
 */
#include "tests/nvmf/engine_rig.h"
#include "tests/nvmf/target.h"
#include "tests/testing.h"
#include "common/crypto_dh.h"
#include "dataplane/nvmf/login.h"
#include <pthread.h>
#include <stdatomic.h>

#define NQN "nqn.2026-11.test:sub"
/* The secret that the specification shows, and 64 bytes 00 01 02 ... */
#define SECRET_A "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
#define SECRET_B                                                                                   \
	"DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OT" \
	"o7PD0+P4zODhA=:"

/* Diffie-Hellman, by the thread that drives the reactor (which is the test's) and by others. */
static pthread_t reactor;
static _Atomic unsigned here, elsewhere;
int __real_crypto_dh_secret(const struct crypto_dh *d, const uint8_t *peer, uint8_t *ret,
                            struct ros2_err *err);
int __wrap_crypto_dh_secret(const struct crypto_dh *d, const uint8_t *peer, uint8_t *ret,
                            struct ros2_err *err);

int __wrap_crypto_dh_secret(const struct crypto_dh *d, const uint8_t *peer, uint8_t *ret,
                            struct ros2_err *err)
{
	atomic_fetch_add(pthread_equal(pthread_self(), reactor) ? &here : &elsewhere, 1);
	return __real_crypto_dh_secret(d, peer, ret, err);
}

struct bed {
	struct rig g;
	struct target *t;
};

static void put_secret(const char *dir, const char *name, const char *text)
{
	char path[4096];
	int fd;

	testing_path(path, dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The document names both; @dir has the host's as SECRET_A and the target's as SECRET_B. */
static void bed_init(struct bed *b, const char *dir)
{
	struct target_opts o = {.queue_depth = 64};
	struct target_subsys_opts so = {.nqn = NQN, .mdts = 5, .in_capsule = 8192};
	struct target_ns_opts ns = {.nsid = 1, .block_size = 512, .blocks = 8192};

	rig_init(&b->g);
	assert_int_equal(target_new(&o, &b->t), 0);
	assert_int_equal(target_add_subsystem(b->t, &so), 0);
	assert_int_equal(target_add_ns(b->t, NQN, &ns), 0);
	ns.nsid = 2;
	assert_int_equal(target_add_ns(b->t, NQN, &ns), 0);
	b->g.queue = &nvmf_tcp_queue_ops;
	b->g.secrets_dir = dir;
	b->g.config.port = target_port(b->t);
	/* The largest groups take their time, and on a busy machine more. */
	b->g.config.command_timeout_ms = 5000;
	b->g.config.keep_alive_ms = 30000;
	strcpy(b->g.config.secret, "host-" NVMF_TENANT_MARK ".key");
	strcpy(b->g.config.target_secret, "target");
	put_secret(dir, "host-tenant-a.key", SECRET_A "\n");
	put_secret(dir, "target", SECRET_B "\n");
}

static void bed_free(struct bed *b)
{
	char words[200];

	target_violations(b->t, words, sizeof(words));
	assert_string_equal(words, "");
	target_free(b->t);
}

/* Of one queue, how many authentication messages came, either way. */
static unsigned messages(struct bed *b, bool admin)
{
	struct target_log_entry e[256];
	size_t n = target_log(b->t, 0, e, 256);
	unsigned found = 0;

	for (size_t i = 0; i < n; i++)
		found += e[i].opcode == 0x7f && (e[i].fctype == 5 || e[i].fctype == 6) &&
		         (e[i].qid == 0) == admin;
	return found;
}

static void write_and_read(struct bed *b)
{
	uint8_t seen[8192];

	rig_pattern(b->g.buf, sizeof(seen), 5);
	assert_int_equal(rig_io(&b->g, b->g.all, ENGINE_OP_WRITE, 4096, sizeof(seen), b->g.buf),
	                 sizeof(seen));
	assert_int_equal(target_media_read(b->t, NQN, 1, 4096, seen, sizeof(seen)), 0);
	assert_memory_equal(seen, b->g.buf, sizeof(seen));
}

static void nvmf_login__every_hash_and_group_lets_data_flow(void **state)
{
	static const uint8_t pairs[][2] = {{1, 0}, {2, 1}, {3, 2}, {1, 3}, {2, 4}, {3, 5}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct bed b;

		bed_init(&b, *state);
		assert_int_equal(
			target_authenticate(b.t, NQN, SECRET_A, SECRET_B, pairs[i][0], pairs[i][1]),
			0);
		rig_start(&b.g);
		write_and_read(&b);
		/* negotiate, challenge, reply, success1, success2 */
		assert_int_equal(messages(&b, true), 5);
		assert_int_equal(messages(&b, false), 5);
		rig_stop(&b.g);
		bed_free(&b);
	}
}

/* The same steps by the thread itself: what the count would see. */
static void prove_here(struct bed *b)
{
	struct nvmf_secrets s = {.has_host = true};
	struct nvme_auth_challenge m = {
		.head = {.type = NVME_AUTH_DHCHAP, .id = NVME_AUTH_CHALLENGE},
		.hl = 32,
		.hash = NVME_AUTH_SHA256,
		.group = 1,
		.dhvlen = 256,
		.seqnum = 1};
	struct nvme_cqe ok = {0};
	struct nvmf_login l = {0};
	struct nvmf_req req;

	assert_int_equal(nvme_auth_secret_parse(SECRET_A, &s.host, NULL), 0);
	assert_int_equal(nvmf_login_begin(&l, &s, "nqn.2026-11.test:h", NQN, NULL), 0);
	assert_int_equal(nvmf_login_fill(&l, &req, NULL), 0);
	memcpy(&m.head.tid, l.msg + offsetof(struct nvme_auth_head, tid), sizeof(m.head.tid));
	assert_int_equal(nvmf_login_got(&l, &ok, NULL), 0);
	assert_int_equal(nvmf_login_fill(&l, &req, NULL), 0);
	memcpy(l.msg, &m, sizeof(m));
	l.msg[sizeof(m) + 32 + 255] = 5;
	assert_int_equal(nvmf_login_got(&l, &ok, NULL), 0);
	nvmf_login_end(&l);
}

static void nvmf_login__no_reactor_computes(void **state)
{
	struct bed b;

	reactor = pthread_self();
	here = elsewhere = 0;
	bed_init(&b, *state);
	assert_int_equal(target_authenticate(b.t, NQN, SECRET_A, SECRET_B, 3, 5), 0);
	rig_start(&b.g);
	write_and_read(&b);
	assert_int_equal(elsewhere, 2); /* the admin queue's, and the I/O queue's */
	assert_int_equal(here, 0);
	prove_here(&b);
	assert_int_equal(here, 1);
	rig_stop(&b.g);
	bed_free(&b);
}

static void nvmf_login__a_queue_that_ends_in_the_middle_leaves_nothing(void **state)
{
	for (unsigned n = 0; n < 6; n++) {
		struct rig_io io;
		struct bed b;

		bed_init(&b, *state);
		assert_int_equal(target_authenticate(b.t, NQN, SECRET_A, SECRET_B, 3, 5), 0);
		rig_start(&b.g);
		rig_submit(&b.g, &io, b.g.all, ENGINE_OP_READ, 0, 512, b.g.buf);
		while (messages(&b, false) < MIN(n, 5u))
			rig_turn(&b.g, 1);
		target_drop(b.t, -1);
		assert_int_equal(rig_wait(&b.g, &io), 512);
		rig_stop(&b.g);
		bed_free(&b);
	}
}

static void nvmf_login__one_way_and_with_digests(void **state)
{
	struct bed b;

	bed_init(&b, *state);
	b.g.config.target_secret[0] = '\0';
	b.g.config.header_digest = b.g.config.data_digest = true;
	assert_int_equal(target_authenticate(b.t, NQN, SECRET_A, NULL, 1, 1), 0);
	rig_start(&b.g);
	write_and_read(&b);
	assert_int_equal(messages(&b, true), 4);
	rig_stop(&b.g);
	bed_free(&b);
}

/* The namespace cannot be opened, and these are the words. */
static void refused(struct bed *b, const char *words)
{
	struct engine_config c = {
		.name = "store", .nvmf = &b->g.config, .secrets_dir = b->g.secrets_dir};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns;
	struct engine *e;

	assert_int_equal(nvmf_engine_create(&c, b->g.queue, &e, &err), 0);
	assert_true(b->g.ops->ns_open(e, &rig_who, "t/a", &ns, &err) < 0);
	if (!strstr(err.msg, words))
		fail_msg("\"%s\": expected \"%s\"", err.msg, words);
	b->g.ops->destroy(e);
}

static void nvmf_login__a_wrong_or_missing_secret_is_told(void **state)
{
	static const struct {
		const char *host_file, *target_wants, *target_has, *words;
		bool no_dir, none_named;
	} cases[] = {
		{SECRET_B, SECRET_A, SECRET_B, "refused to authenticate us: authentication failed"},
		{SECRET_A, SECRET_A, SECRET_A, "its response is wrong"},
		{SECRET_A, SECRET_A, NULL, "target did not prove that it knows its secret"},
		{"DHHC-1:00:xx:", SECRET_A, SECRET_B, "secret host-tenant-a.key"},
		{NULL, SECRET_A, SECRET_B, "secret host-tenant-a.key: No such file"},
		{SECRET_A, SECRET_A, SECRET_B, "--secrets-dir", .no_dir = true},
		{SECRET_A, SECRET_A, SECRET_B, "expected a secret in the Engine document",
	         .none_named = true},
		{SECRET_A, NULL, NULL, "does not prove its secret, which is asked for"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bed b;
		char path[4096];

		bed_init(&b, *state);
		if (cases[i].target_wants)
			assert_int_equal(target_authenticate(b.t, NQN, cases[i].target_wants,
			                                     cases[i].target_has, 1, 1),
			                 0);
		testing_path(path, *state, "host-tenant-a.key");
		if (cases[i].host_file)
			put_secret(*state, "host-tenant-a.key", cases[i].host_file);
		else
			unlink(path);
		if (cases[i].no_dir)
			b.g.secrets_dir = NULL;
		if (cases[i].none_named)
			b.g.config.secret[0] = '\0';
		refused(&b, cases[i].words);
		bed_free(&b);
	}
}

static void nvmf_login__a_new_secret_counts_from_the_next_connection(void **state)
{
	struct bed b;

	bed_init(&b, *state);
	assert_int_equal(target_authenticate(b.t, NQN, SECRET_A, SECRET_B, 1, 0), 0);
	rig_start(&b.g);
	write_and_read(&b);
	assert_int_equal(target_authenticate(b.t, NQN, SECRET_B, SECRET_A, 2, 1), 0);
	put_secret(*state, "host-tenant-a.key", SECRET_B);
	put_secret(*state, "target", SECRET_A);
	assert_true(target_drop(b.t, -1) > 0);
	write_and_read(&b);
	assert_true(rig_health(&b.g).lives >= 2);
	rig_stop(&b.g);
	bed_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, testing_dir_setup, testing_dir_teardown)
		T(nvmf_login__every_hash_and_group_lets_data_flow),
		T(nvmf_login__no_reactor_computes),
		T(nvmf_login__a_queue_that_ends_in_the_middle_leaves_nothing),
		T(nvmf_login__one_way_and_with_digests),
		T(nvmf_login__a_wrong_or_missing_secret_is_told),
		T(nvmf_login__a_new_secret_counts_from_the_next_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
