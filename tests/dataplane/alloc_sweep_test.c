/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept allocations of the data plane's control operations, over both engines. Without memory what
 * would widen rights is refused by name; deregistration and every revocation are carried out all
 * the same, however much they have to close; then everything works again and nothing is left.
 */
#include "tests/dataplane/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>

static void allowed(const struct dp_result *res)
{
	if (res->status != ROS2_OK && res->status != ROS2_BUSY && res->status != ROS2_BAD_SESSION)
		fail_msg("%s: %s", ros2_status_to_str(res->status), res->words);
}

static void revoked(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid)
{
	struct fx_revoked r = {0};

	fx_revoke(fx, scope, uid, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, 0);
}

/* Each is done or refused; what one left undone, the next does not find. */
static void use_names(struct fx *fx, struct fx_args *a)
{
	static const struct {
		enum dp_path_op op;
		const char *path, *to;
	} calls[] = {{DP_MKDIR, "d", NULL},
	             {DP_STAT, "d", NULL},
	             /* the first name of a directory, and the last that moves out of one */
	             {DP_MKDIR, "d/x", NULL},
	             {DP_MKDIR, "e", NULL},
	             {DP_RENAME, "d/x", "e/x"},
	             {DP_UNLINK, "d", NULL},
	             {DP_RMDIR, "d/x", NULL},
	             {DP_RMDIR, "e/x", NULL},
	             {DP_RMDIR, "d", NULL},
	             {DP_RMDIR, "e", NULL}};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct dp_result res;

		a->path_op = calls[i].op;
		a->path = calls[i].path;
		a->to = calls[i].to;
		res = fx_do(fx, FX_PATH, a);
		if (res.status != ROS2_NOT_FOUND && res.status != ROS2_IS_DIR &&
		    res.status != ROS2_EXISTS && res.status != ROS2_NOT_EMPTY &&
		    res.status != ROS2_NO_SPACE)
			allowed(&res);
	}
	a->path = "";
	a->a = 0;
	{
		struct dp_result res = fx_do(fx, FX_READDIR, a);

		allowed(&res);
	}
}

static void use_file(struct fx *fx, struct fx_args a, uint64_t handle)
{
	static const enum fx_kind kinds[] = {FX_FSTAT, FX_TRUNCATE, FX_FLUSH, FX_CLOSE};

	a.a = handle;
	a.b = 8192;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct dp_result res = fx_do(fx, kinds[i], &a);

		allowed(&res);
	}
}

/* Goes as far as it is let. */
static void open_all(struct fx *fx, struct fx_args *a)
{
	struct dp_result res = fx_do(fx, FX_OPEN_SESSION, a);
	bool is_open = res.status == ROS2_OK;

	allowed(&res);
	a->to = "ram";
	a->path = "ns";
	a->flags = 3;
	res = fx_do(fx, FX_MOUNT, a);
	allowed(&res);
	if (res.status == ROS2_OK) {
		a->mount = res.mount.mount;
		use_names(fx, a);
		a->path = "file";
		a->flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
		res = fx_do(fx, FX_OPEN, a);
		allowed(&res);
		if (res.status == ROS2_OK)
			use_file(fx, *a, res.open.handle);
	}
	a->a = FX_BASE;
	a->b = 1 << 20;
	a->flags = 3;
	res = fx_do(fx, FX_REGISTER, a);
	allowed(&res);
	if (res.status == ROS2_OK) {
		a->key = res.region.key;
		res = fx_do(fx, FX_RENEW, a);
		allowed(&res);
		if (res.status == ROS2_OK)
			a->key = res.region.key;
		res = fx_do(fx, FX_DEREGISTER, a);
		assert_int_equal(res.status, ROS2_OK);
	}
	assert_true(is_open || !a->key);
}

static void data_plane__without_memory_refuses_and_still_revokes(void **state)
{
	struct fx *fx = *state;
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	uint8_t byte = 7;

	while (sweep_next(&s)) {
		struct fx_args a = {.session = ros2_uid_new(),
		                    .tenant = fx->tenant,
		                    .grant = fx->grant,
		                    .a = UINT64_MAX};
		struct ros2_uid unknown = ros2_uid_new();
		struct dp_lease_info infos[4];
		struct dp_result res;
		struct raw c;

		open_all(fx, &a);
		revoked(fx, DP_SCOPE_SESSION, &a.session);
		revoked(fx, DP_SCOPE_GRANT, &unknown);
		(void)fx_leases(fx, NULL, infos, 4);
		sweep_off();
		res = fx_do(fx, FX_OPEN_SESSION, &a);
		assert_int_equal(res.status, ROS2_REVOKED);
		a.session = ros2_uid_new();
		a.grant = unknown;
		res = fx_do(fx, FX_OPEN_SESSION, &a);
		assert_int_equal(res.status, ROS2_REVOKED);
		assert_int_equal(fx_lease_count(fx), 0);
		raw_ready(fx, &c);
		assert_int_equal(raw_write(&c, 0, &byte, 1, true), ROS2_OK);
		revoked(fx, DP_SCOPE_SESSION, &c.session);
		raw_close(&c);
	}
	assert_true(s.points >= 20);
}

/* ---- much to close ---- */

#define FILES 200

static void many_files(struct fx *fx, struct fx_args *a)
{
	struct dp_result res;

	*a = (struct fx_args){.session = ros2_uid_new(),
	                      .tenant = fx->tenant,
	                      .grant = fx->grant,
	                      .a = UINT64_MAX,
	                      .to = "ram",
	                      .path = "ns",
	                      .flags = 3};
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, a).status, ROS2_OK);
	res = fx_do(fx, FX_MOUNT, a);
	assert_int_equal(res.status, ROS2_OK);
	a->mount = res.mount.mount;
	a->path = "file";
	a->flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	for (int i = 0; i < FILES; i++)
		assert_int_equal(fx_do(fx, FX_OPEN, a).status, ROS2_OK);
}

/* More files and mounts than operations are set aside: 256. */
static void revocation__without_memory_closes_all_that_is_open(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	unsigned fds = sweep_fds();
	struct fx_args a, b, c;
	bool has_fds;

	many_files(fx, &a);
	many_files(fx, &b);
	many_files(fx, &c);
	has_fds = sweep_fds() > fds + FILES;
	assert_int_equal(has_fds, fx_engine_root != NULL);
	assert_true(sweep_next(&s));
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
	revoked(fx, DP_SCOPE_TENANT, &fx->tenant);
	/* While there is still none. The engine keeps a few of its own. */
	assert_true(sweep_fds_back(fds + 20));
	assert_true(sweep_fired());
	sweep_off();
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &b).status, ROS2_REVOKED);
}

/* The same, and the data plane ends at once: what is not closed yet is closed by its end. */
static void end__without_memory_closes_all_that_is_open(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	struct fx_args a, b;

	many_files(fx, &a);
	many_files(fx, &b);
	assert_true(sweep_next(&s));
	revoked(fx, DP_SCOPE_ALL, NULL);
	/* The teardown frees it, with the fault. */
}

static int ram_setup(void **state)
{
	fx_engine_type = "mem";
	fx_engine_root = NULL;
	return fx_setup(state);
}

static void *dir;

static int file_setup(void **state)
{
	if (testing_dir_setup(&dir))
		return -1;
	fx_engine_type = "file";
	fx_engine_root = dir;
	return fx_setup(state);
}

static int file_teardown(void **state)
{
	int rc = fx_teardown(state);

	sweep_off();
	return testing_dir_teardown(&dir) || rc;
}

static int ram_teardown(void **state)
{
	int rc = fx_teardown(state);

	sweep_off();
	return rc;
}

#define RAM(fn)                                                                                    \
	{                                                                                          \
		"ram " #fn, fn, ram_setup, ram_teardown, NULL                                      \
	}
#define FILE_(fn)                                                                                  \
	{                                                                                          \
		"file " #fn, fn, file_setup, file_teardown, NULL                                   \
	}
int main(void)
{
	const struct CMUnitTest ram[] = {
		RAM(data_plane__without_memory_refuses_and_still_revokes),
		RAM(revocation__without_memory_closes_all_that_is_open),
		RAM(end__without_memory_closes_all_that_is_open),
	};
	const struct CMUnitTest all[] = {
		RAM(data_plane__without_memory_refuses_and_still_revokes),
		RAM(revocation__without_memory_closes_all_that_is_open),
		RAM(end__without_memory_closes_all_that_is_open),
		FILE_(data_plane__without_memory_refuses_and_still_revokes),
		FILE_(revocation__without_memory_closes_all_that_is_open),
		FILE_(end__without_memory_closes_all_that_is_open),
	};

	if (!testing_has_openat2()) {
		print_message("# no openat2 here (qemu-user): without the file engine\n");
		return cmocka_run_group_tests(ram, NULL, NULL);
	}
	return cmocka_run_group_tests(all, NULL, NULL);
}
