/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine is made of: that a configuration reaches it whole, with the directory of secrets;
 * that the same one again makes nothing, and each other one a new engine; what is refused, and by
 * which words.
 */
#include "tests/dataplane/fixture.h"
#include "common/log.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The mem engine under the name of nvmf, which writes down what it was made of. */
static struct engine_ops spy_ops;
static struct nvmf_config seen;
static char seen_secrets[64];
static unsigned made;
static struct engine_config seen_unquiet;

static int spy_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	struct engine_config mem = {.name = c->name, .size_bytes = 1u << 20};

	made++;
	seen_unquiet = *c;
	memset(&seen, 0, sizeof(seen));
	if (c->nvmf)
		seen = *c->nvmf;
	snprintf(seen_secrets, sizeof(seen_secrets), "%s", c->secrets_dir ? c->secrets_dir : "");
	return engine_mem_ops.create(&mem, ret, err);
}

static _Atomic bool destroy_waits, destroy_runs;
static _Atomic uint32_t destroyed, waited_in_vain;

/* As for a target that does not answer: at most 10 s, so that a loop that waits here is seen. */
static void spy_destroy(struct engine *e)
{
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;

	if (!e)
		return;
	atomic_store(&destroy_runs, true);
	while (atomic_load(&destroy_waits) && clock_monotonic_ns() < until)
		/* poll: a switch that a test turns */
		usleep(1000);
	atomic_fetch_add(&waited_in_vain, atomic_load(&destroy_waits));
	engine_mem_ops.destroy(e);
	atomic_fetch_add(&destroyed, 1);
}

static _Atomic uint32_t rings, rings_of_workers, rings_freed;

static void spy_reactor_free(struct engine_reactor *r)
{
	atomic_fetch_add(&rings_freed, 1);
	engine_mem_ops.reactor_free(r);
}

static int spy_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                           struct engine_reactor **ret, struct ros2_err *err)
{
	char name[16];

	assert_int_equal(pthread_getname_np(pthread_self(), name, sizeof(name)), 0);
	atomic_fetch_add(&rings, 1);
	atomic_fetch_add(&rings_of_workers, strcmp(name, "control") == 0);
	return engine_mem_ops.reactor_new(e, o, ret, err);
}

static int setup(void **state)
{
	spy_ops = engine_mem_ops;
	spy_ops.type = "nvmf";
	spy_ops.create = spy_create;
	spy_ops.destroy = spy_destroy;
	spy_ops.reactor_new = spy_reactor_new;
	spy_ops.reactor_free = spy_reactor_free;
	atomic_store(&rings, 0);
	atomic_store(&rings_freed, 0);
	atomic_store(&rings_of_workers, 0);
	atomic_store(&destroy_waits, false);
	atomic_store(&destroy_runs, false);
	atomic_store(&destroyed, 0);
	atomic_store(&waited_in_vain, 0);
	dp_test_switches = (struct dp_test_switches){.extra_engine = &spy_ops};
	fx_engine_type = "nvmf";
	fx_secrets_dir = "/etc/ros2/agent/secrets";
	made = 0;
	return fx_setup(state);
}

static int setup_without_secrets(void **state)
{
	int r = setup(state);

	fx_secrets_dir = NULL;
	if (r < 0 || fx_teardown(state) < 0)
		return -1;
	made = 0;
	return fx_setup(state);
}

static int teardown(void **state)
{
	int r = fx_teardown(state);

	dp_test_switches = (struct dp_test_switches){0};
	fx_engine_type = "mem";
	fx_secrets_dir = NULL;
	return r;
}

struct put {
	struct fx *fx;
	struct dp_engine_config c;
	struct ros2_err err;
	int r;
};

static void run_put(void *arg)
{
	struct put *p = arg;

	p->r = dp_engine_put(p->fx->dp, &p->c, &p->err);
}

static struct put put(struct fx *fx, const char *name, const struct nvmf_config *n)
{
	struct put p = {
		.fx = fx, .c = {.name = name, .type = "nvmf", .nvmf = n}, .err = ROS2_ERR_INIT};

	loop_call(fx->loop, run_put, &p);
	return p;
}

static void config(struct nvmf_config *c)
{
	*c = (struct nvmf_config){
		.transport = NVMF_TCP,
		.address = "192.0.2.10",
		.port = 4420,
		.subsystem = "nqn.2014-08.org.example:storage:1",
		.host_nqn = "nqn.2014-08.org.example:{tenant}",
		.secret = "nvme-{tenant}",
		.target_secret = "nvme-target",
		.header_digest = true,
		.queue_depth = 128,
		.keep_alive_ms = 5000,
		.command_timeout_ms = 30000,
		.n_volumes = 2,
		.volumes = {{"a/vol0", 1, 0, 0}, {"b/vol0", 2, 1 << 20, 1 << 20}},
	};
}

static void engine__is_given_its_whole_configuration_and_the_secrets(void **state)
{
	struct fx *fx = *state;
	struct nvmf_config c;

	config(&c);
	assert_int_equal(put(fx, "flash", &c).r, 0);
	assert_int_equal(made, 2); /* the fixture's, and this one */
	assert_string_equal(seen_secrets, "/etc/ros2/agent/secrets");
	assert_string_equal(seen.subsystem, c.subsystem);
	assert_string_equal(seen.target_secret, "nvme-target");
	assert_true(seen.header_digest && !seen.data_digest);
	assert_int_equal(seen.n_volumes, 2);
	assert_string_equal(seen.volumes[1].name, "b/vol0");
	assert_int_equal(seen.volumes[1].offset, 1 << 20);
}

/* Every field by itself: one that was not compared would leave an old engine in force. */
static void engine__is_made_anew_when_any_field_changed_and_only_then(void **state)
{
	struct fx *fx = *state;
	struct nvmf_config c;
	unsigned n = 1;

	config(&c);
	assert_int_equal(put(fx, "flash", &c).r, 0);
	assert_int_equal(made, ++n);
	assert_int_equal(put(fx, "flash", &c).r, 0);
	assert_int_equal(made, n);
#define CHANGE(field, v)                                                                           \
	do {                                                                                       \
		c.field = v;                                                                       \
		assert_int_equal(put(fx, "flash", &c).r, 0);                                       \
		assert_int_equal(made, ++n);                                                       \
		assert_int_equal(put(fx, "flash", &c).r, 0);                                       \
		assert_int_equal(made, n);                                                         \
	} while (0)
	CHANGE(transport, NVMF_RDMA);
	CHANGE(address[8], '3');
	CHANGE(port, 4421);
	CHANGE(subsystem[4], '3');
	CHANGE(host_nqn[4], '3');
	CHANGE(secret[0], 'm');
	CHANGE(target_secret[0], 'm');
	CHANGE(header_digest, false);
	CHANGE(data_digest, true);
	CHANGE(keys_per_command, true);
	CHANGE(queue_depth, 64);
	CHANGE(keep_alive_ms, 6000);
	CHANGE(command_timeout_ms, 6000);
	CHANGE(quiesce_ms, 6000);
	CHANGE(volumes[1].name[0], 'c');
	CHANGE(volumes[1].nsid, 3);
	CHANGE(volumes[1].offset, 0);
	CHANGE(volumes[1].size, 512);
	CHANGE(n_volumes, 1);
#undef CHANGE
	assert_int_equal(put(fx, "flash", NULL).r, 0);
	assert_int_equal(made, ++n);
}

static void engine__is_not_replaced_while_a_namespace_is_open(void **state)
{
	struct fx *fx = *state;
	struct raw a;
	struct nvmf_config c;
	struct put p;

	raw_ready(fx, &a); /* mounts `ram`, which is of this type here */
	config(&c);
	p = put(fx, "ram", &c);
	assert_int_equal(p.r, -EBUSY);
	assert_non_null(strstr(p.err.msg, "namespaces are open"));
	assert_int_equal(made, 1);
	raw_close(&a);
}

/* A document gives a volume from one engine to another: not while the old engine is mounted, and
 * not to both. */
static void engine__gets_no_block_that_another_still_has(void **state)
{
	struct fx *fx = *state;
	struct raw a;
	struct nvmf_config old, c;
	struct put p;

	config(&old);
	assert_int_equal(put(fx, "ram", &old).r, 0);
	raw_ready(fx, &a); /* mounts `ram` */
	config(&c);
	strcpy(c.address, "192.0.2.11");
	strcpy(c.volumes[0].name, "c/vol0");
	strcpy(c.volumes[1].name, "d/vol0");
	c.volumes[0].nsid = 3;
	p = put(fx, "other", &c); /* d/vol0 is b/vol0 */
	assert_int_equal(p.r, -EBUSY);
	assert_string_equal(p.err.msg,
	                    "engine 'other': volume b/vol0 is still one of engine 'ram', "
	                    "of which 1 namespaces are open");
	c.volumes[1].offset = 2 << 20; /* behind it */
	assert_int_equal(put(fx, "other", &c).r, 0);
	c.volumes[1].offset = (2 << 20) - 512;
	assert_int_equal(put(fx, "other", &c).r, -EBUSY);
	strcpy(c.subsystem, "nqn.2014-08.org.example:storage:2");
	assert_int_equal(put(fx, "other", &c).r, 0);
	raw_close(&a);
}

/* Two documents that change places, in either order. */
static void engine__gives_its_volumes_up_when_nobody_has_it_mounted(void **state)
{
	struct fx *fx = *state;
	struct nvmf_config one, two;
	unsigned n;

	config(&one);
	config(&two);
	one.n_volumes = two.n_volumes = 1;
	two.volumes[0].nsid = 9;
	assert_int_equal(put(fx, "one", &one).r, 0);
	assert_int_equal(put(fx, "two", &two).r, 0);
	n = made;
	assert_int_equal(put(fx, "one", &two).r, 0); /* `two` goes */
	assert_int_equal(put(fx, "two", &one).r, 0);
	assert_int_equal(made, n + 2);
	assert_int_equal(put(fx, "one", &two).r, 0);
	assert_int_equal(put(fx, "two", &one).r, 0);
	assert_int_equal(made, n + 2); /* both are in force */
}

/* A ring, for which the kernel pins memory, is made while others are served: each reactor's once,
 * and by no reactor. */
static void engine__that_is_slow_to_begin_at_a_reactor_begins_on_a_worker(void **state)
{
	struct fx *fx = *state;
	struct raw a[6];

	spy_ops.reactor_new_is_slow = true;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		raw_ready(fx, &a[i]);
	assert_in_range(atomic_load(&rings), 1, 2); /* reactors */
	assert_int_equal(atomic_load(&rings_of_workers), atomic_load(&rings));
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		raw_close(&a[i]);
}

/* An open that comes to nothing at each reactor, and, at the first, one behind it. */
static void opens_in_vain(struct fx *fx)
{
	struct fx_args at = {.to = "ram", .path = "ns", .flags = 3};
	struct raw a, b;

	spy_ops.reactor_new_is_slow = true;
	raw_open(fx, &a);
	at.session = a.session;
	at.mount = fx_do(fx, FX_MOUNT, &at).mount.mount;
	at.path = "nothing";
	at.flags = ENGINE_READ;
	assert_int_equal(fx_do(fx, FX_OPEN, &at).status, ROS2_NOT_FOUND);
	assert_int_equal(atomic_load(&rings), 1);
	assert_int_equal(atomic_load(&rings_freed), 0);
	raw_connect(&a);
	raw_file(&a, "file");
	assert_int_equal(atomic_load(&rings), 1);
	raw_open(fx, &b); /* at the other */
	at.session = b.session;
	at.path = "ns";
	at.flags = 3;
	at.mount = fx_do(fx, FX_MOUNT, &at).mount.mount;
	at.path = "nothing";
	at.flags = ENGINE_READ;
	assert_int_equal(fx_do(fx, FX_OPEN, &at).status, ROS2_NOT_FOUND);
	raw_close(&a);
}

/* What was made for them is the next one's, or ends with the engine. */
static void engine__ends_with_what_no_reactor_took(void **state)
{
	void *own;

	assert_int_equal(setup(&own), 0);
	opens_in_vain(own);
	assert_int_equal(atomic_load(&rings), 2);
	assert_int_equal(teardown(&own), 0);
	assert_int_equal(atomic_load(&rings_freed), 2);
}

/* The control: one that is not begins where it is used. */
static void engine__that_is_not_begins_at_the_reactor(void **state)
{
	struct fx *fx = *state;
	struct raw a;

	raw_ready(fx, &a);
	assert_int_equal(atomic_load(&rings), 1);
	assert_int_equal(atomic_load(&rings_of_workers), 0);
	raw_close(&a);
}

/* Its target is slow to let go, and meanwhile the loop does what else there is: the newer document
 * is in force, others come and go. */
static void engine__that_ends_slowly_keeps_nobody_waiting(void **state)
{
	struct fx *fx = *state;
	struct nvmf_config c;
	struct raw a;

	config(&c);
	assert_int_equal(put(fx, "x", &c).r, 0);
	atomic_store(&destroy_waits, true);
	c.queue_depth++;
	assert_int_equal(put(fx, "x", &c).r, 0);
	AWAIT(atomic_load(&destroy_runs));
	c.queue_depth++;
	assert_int_equal(put(fx, "x", &c).r, 0);
	raw_ready(fx, &a);
	raw_close(&a);
	assert_int_equal(atomic_load(&destroyed), 0);
	atomic_store(&destroy_waits, false);
	AWAIT(atomic_load(&destroyed) == 2);
	assert_int_equal(atomic_load(&waited_in_vain), 0);
}

/* The data plane ends, with one engine at its end and another that waits for a worker: each is
 * destroyed once. */
static void engine__that_is_ending_when_the_data_plane_does_is_destroyed_once(void **state)
{
	struct nvmf_config c;
	struct fx *fx;
	void *own;

	assert_int_equal(setup(&own), 0);
	fx = own;
	config(&c);
	assert_int_equal(put(fx, "x", &c).r, 0);
	for (int i = 0; i < 4; i++) {
		c.queue_depth++;
		assert_int_equal(put(fx, "x", &c).r, 0);
	}
	assert_int_equal(teardown(&own), 0);
	assert_int_equal(made, 6);
	assert_int_equal(atomic_load(&destroyed), 6);
}

static void engine__that_needs_secrets_says_that_there_are_none(void **state)
{
	struct fx *fx = *state;
	struct nvmf_config c;
	struct put p;

	config(&c);
	p = put(fx, "flash", &c);
	assert_int_equal(p.r, -EOPNOTSUPP);
	assert_string_equal(p.err.msg,
	                    "engine 'flash' needs secrets (secretRef), and this agent has no "
	                    "directory of secrets (--secrets-dir)");
	c.secret[0] = c.target_secret[0] = '\0';
	assert_int_equal(put(fx, "flash", &c).r, 0);
	assert_string_equal(seen_secrets, "");
}

static void engine__of_a_type_that_is_not_here_is_refused_by_name(void **state)
{
	struct fx *fx = *state;
	struct put p = {.fx = fx, .c = {.name = "x", .type = "dfs"}, .err = ROS2_ERR_INIT};

	loop_call(fx->loop, run_put, &p);
	assert_int_equal(p.r, -EOPNOTSUPP);
	assert_string_equal(p.err.msg, "engine 'x': no type 'dfs' here");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
static enum ros2_status mount_flash(struct fx *fx)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX,
	                    .to = "flash",
	                    .path = "ns",
	                    .flags = 3};

	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_OK);
	return fx_do(fx, FX_MOUNT, &a).status;
}

struct note {
	const char *dir;
	ssize_t len; /* negative: there is none */
	char text[4096];
};

static void note_take(struct note *n)
{
	char path[4096];
	int fd AUTO_CLOSE = -1;

	testing_path(path, n->dir, "unquiet-targets");
	fd = open(path, O_RDONLY);
	n->len = fd < 0 ? -1 : read(fd, n->text, sizeof(n->text));
}

/* As a process that is killed leaves it. */
static void note_put(const struct note *n)
{
	char path[4096];
	int fd AUTO_CLOSE = -1;

	testing_path(path, n->dir, "unquiet-targets");
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	assert_true(fd >= 0);
	if (n->len > 0)
		assert_int_equal(write(fd, n->text, (size_t)n->len), n->len);
}

static bool note_there(const struct note *n)
{
	char path[4096];

	testing_path(path, n->dir, "unquiet-targets");
	return access(path, F_OK) == 0;
}

/* One life of a data plane, which mounts if told: a document with these times, and what its engine
 * was told of the process before. @note: NULL, or where a copy of the note goes, as a process that
 * is killed now leaves it. */
static struct engine_config one_life(uint64_t keep_alive_ms, uint64_t quiesce_ms, bool mounts,
                                     struct note *note)
{
	struct nvmf_config c;
	void *state;
	struct fx *fx;

	assert_int_equal(setup(&state), 0);
	fx = state;
	config(&c);
	c.secret[0] = '\0';
	c.keep_alive_ms = keep_alive_ms;
	c.quiesce_ms = quiesce_ms;
	assert_int_equal(put(fx, "flash", &c).r, 0);
	if (mounts)
		assert_int_equal(mount_flash(fx), ROS2_OK);
	if (note)
		note_take(note);
	assert_int_equal(teardown(&state), 0);
	return seen_unquiet;
}

static void process__that_was_killed_is_known_to_the_next(void **state)
{
	struct note note = {.dir = *state}, none = {.dir = *state};

	fx_state_dir = *state;
	log_set_level(LOG_LEVEL_ERROR);
	assert_int_equal(one_life(5000, 0, false, &none).unquiet_since_ns, 0);
	assert_int_equal(none.len, -1);
	assert_int_equal(one_life(5000, 0, true, &note).unquiet_since_ns, 0);
	assert_true(note.len > 0);
	/* It ended in order. */
	assert_false(note_there(&note));
	assert_int_equal(one_life(5000, 0, true, NULL).unquiet_since_ns, 0);
	note_put(&note);
	assert_int_not_equal(one_life(5000, 0, false, NULL).unquiet_since_ns, 0);
	/* What the killed one left may not be over, so that the next must know, too. */
	assert_int_not_equal(one_life(5000, 0, true, NULL).unquiet_since_ns, 0);
	assert_true(note_there(&note));
	/* As agents before 0025 leave it. */
	note_put(&none);
	assert_int_not_equal(one_life(5000, 0, false, NULL).unquiet_since_ns, 0);
	assert_int_equal(seen_unquiet.unquiet_quiesce_ms, 0);
	fx_state_dir = NULL;
}

static void process__that_was_killed_is_waited_for_as_its_own_document_said(void **state)
{
	struct note note = {.dir = *state};

	fx_state_dir = *state;
	log_set_level(LOG_LEVEL_ERROR);
	one_life(5000, 900000, true, &note);
	note_put(&note);
	/* A shorter one came while it was dead. */
	assert_int_equal(one_life(1000, 2000, true, &note).unquiet_quiesce_ms, 900000);
	assert_int_equal(seen_unquiet.unquiet_keep_alive_ms, 0);
	/* And this process is killed, too, before that is over. */
	note_put(&note);
	assert_int_equal(one_life(7000, 0, true, &note).unquiet_quiesce_ms, 900000);
	note_put(&note);
	assert_int_equal(one_life(1000, 0, false, NULL).unquiet_quiesce_ms, 900000);
	assert_int_equal(seen_unquiet.unquiet_keep_alive_ms, 7000);
	fx_state_dir = NULL;
}

/* A process after a killed one ends in order, so much later: is the note still there? */
static bool stays_after(const struct note *note, uint64_t ms, uint64_t quiesce_ms)
{
	struct note now = *note;
	struct nvmf_config c;
	void *state;

	note_put(&now);
	clock_ahead_ns = 0;
	assert_int_equal(setup(&state), 0);
	config(&c);
	c.secret[0] = '\0';
	c.quiesce_ms = quiesce_ms;
	assert_int_equal(put(state, "flash", &c).r, 0);
	assert_int_equal(mount_flash(state), ROS2_OK);
	clock_ahead_ns = ms * NS_PER_MS;
	assert_int_equal(teardown(&state), 0);
	clock_ahead_ns = 0;
	return note_there(&now);
}

static void note__stays_until_the_longest_time_of_a_document_is_over(void **state)
{
	struct note long_one = {.dir = *state}, short_one = {.dir = *state};

	fx_state_dir = *state;
	log_set_level(LOG_LEVEL_ERROR);
	one_life(5000, 900000, true, &long_one);
	one_life(5000, 1000, true, &short_one);
	/* 300 s, which were all that was known before 0025. */
	assert_true(stays_after(&long_one, 310000, 1000));
	assert_true(stays_after(&long_one, 890000, 1000));
	assert_false(stays_after(&long_one, 910000, 1000));
	assert_true(stays_after(&short_one, 290000, 1000));
	assert_false(stays_after(&short_one, 310000, 1000));
	/* Somebody has found out since that it takes longer. */
	assert_true(stays_after(&short_one, 310000, 900000));
	fx_state_dir = NULL;
}

static void note__that_cannot_be_read_counts_for_every_target(void **state)
{
	static const char *const bad[] = {"ros2 unquiet targets 2\n", "x",
	                                  "ros2 unquiet targets 1\n1000 2000"};
	struct note note = {.dir = *state};

	fx_state_dir = *state;
	log_set_level(LOG_LEVEL_ERROR);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		note.len = snprintf(note.text, sizeof(note.text), "%s", bad[i]);
		note_put(&note);
		assert_int_equal(one_life(1000, 1000, false, NULL).unquiet_quiesce_ms, 300000);
	}
	fx_state_dir = NULL;
}

static void mount__fails_when_it_cannot_be_noted(void **state)
{
	struct nvmf_config c;
	void *fx;

	fx_state_dir = "/nonexistent/ros2-state";
	assert_int_equal(setup(&fx), 0);
	config(&c);
	assert_int_equal(put(fx, "flash", &c).r, 0);
	assert_int_not_equal(mount_flash(fx), ROS2_OK);
	assert_int_equal(teardown(&fx), 0);
	fx_state_dir = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(engine__is_given_its_whole_configuration_and_the_secrets),
		T(engine__is_made_anew_when_any_field_changed_and_only_then),
		T(engine__is_not_replaced_while_a_namespace_is_open),
		T(engine__gets_no_block_that_another_still_has),
		T(engine__gives_its_volumes_up_when_nobody_has_it_mounted),
		T(engine__that_is_slow_to_begin_at_a_reactor_begins_on_a_worker),
		cmocka_unit_test(engine__ends_with_what_no_reactor_took),
		T(engine__that_is_not_begins_at_the_reactor),
		T(engine__that_ends_slowly_keeps_nobody_waiting),
		cmocka_unit_test(engine__that_is_ending_when_the_data_plane_does_is_destroyed_once),
		cmocka_unit_test_setup_teardown(engine__that_needs_secrets_says_that_there_are_none,
	                                        setup_without_secrets, teardown),
		T(engine__of_a_type_that_is_not_here_is_refused_by_name),
		cmocka_unit_test_setup_teardown(process__that_was_killed_is_known_to_the_next,
	                                        testing_dir_setup, testing_dir_teardown),
		cmocka_unit_test_setup_teardown(
			process__that_was_killed_is_waited_for_as_its_own_document_said,
			testing_dir_setup, testing_dir_teardown),
		cmocka_unit_test_setup_teardown(
			note__stays_until_the_longest_time_of_a_document_is_over, testing_dir_setup,
			testing_dir_teardown),
		cmocka_unit_test_setup_teardown(note__that_cannot_be_read_counts_for_every_target,
	                                        testing_dir_setup, testing_dir_teardown),
		cmocka_unit_test(mount__fails_when_it_cannot_be_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
