/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every call of `ros2ctl init`, `ros2ctl admin cert` and `ros2ctl agent token
 * create --out`. A trust domain that was said to be made is whole; one that was not is not there,
 * or marked as unfinished, and made anew when its parts are removed. A context whose certificate is
 * renewed keeps its key and has a certificate that fits it, and of its bundle the old one or the
 * new one. A token file that was said to be written is whole; before, it is the old one, whole, or
 * none. Negative controls: without the fsync of any kind of file, or of a directory, the sweep
 * finds losses.
 */
#include "common/pki.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tests/common/disk_fsx.h"
#include "tests/testing.h"
#include "tools/ctl/ctl.h"
#include <sys/stat.h>

/* What the commands need of ros2ctl: main.c and connect.c have it there. */
static char words[2048];
int ctl_fail(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return code;
}
char *ctl_path(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", dir, name) < 0 ? abort(), NULL : path;
}

static const char *token; /* that the controller gives */
int ctl_call(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
             ProtobufCMessage **ret)
{
	Ros2__V1__CreateAgentTokenReply *r = calloc(1, sizeof(*r));

	assert_ptr_equal(m, &ros2_v1_admin_create_agent_token);
	ros2__v1__create_agent_token_reply__init(r);
	r->token = strdup(token);
	*ret = &r->base;
	return CTL_OK;
}

static char *parent, dir[512], context[600], token_file[600];

static int group_setup(void **state)
{
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&parent) < 0)
		return -1;
	snprintf(dir, sizeof(dir), "%s/td", parent);
	snprintf(context, sizeof(context), "%s/admin", dir);
	snprintf(token_file, sizeof(token_file), "%s/tokens/dpu-0", dir);
	return 0;
}

static int group_teardown(void **state)
{
	return testing_dir_teardown((void **)&parent);
}

static const char *value_of(const char *option, const char *out)
{
	return !strcmp(option, "dir")            ? dir
	       : !strcmp(option, "trust-domain") ? "ros2.test"
	       : !strcmp(option, "id")           ? "spiffe://ros2.test/admin/root"
	       : !strcmp(option, "out")          ? out
	                                         : NULL;
}

/* What it says of its success is not shown: some thousand times. */
static int run(const struct ctl_cmd *cmd)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), real = dup(STDERR_FILENO), r;
	struct ctl_args a = {.pos = (const char *const[]){"dpu-0"}, .n_pos = 1};
	struct ctl c = {.context = context};

	for (int i = 0; cmd->opts[i].name; i++)
		a.value[i] = value_of(cmd->opts[i].name,
		                      cmd == &ctl_cmd_agent_token ? token_file : context);
	dup2(null, STDERR_FILENO);
	r = cmd->run(&c, &a);
	dup2(real, STDERR_FILENO);
	close(real);
	close(null);
	return r;
}

static bool is_there(const char *name)
{
	AUTO_FREE char *path = ctl_path(dir, name);

	return access(path, F_OK) == 0;
}

static char *text_of(const char *name)
{
	AUTO_FREE char *path = ctl_path(dir, name);
	void *text = NULL;
	size_t len;

	return fsx_read_file(path, 65536, &text, &len, NULL) == 0 && len ? text
	                                                                 : (free(text), NULL);
}

static bool fits(const char *cert, const char *key)
{
	AUTO_FREE char *c = text_of(cert), *k = text_of(key);

	return c && k && pki_key_matches(c, strlen(c), k, strlen(k), NULL) == 0;
}

static bool is_copy(const char *name, const char *of)
{
	AUTO_FREE char *a = text_of(name), *b = text_of(of);

	return a && b && !strcmp(a, b);
}

/* NULL, or what is wrong with a trust domain that was made. */
static const char *damage(void)
{
	static const char *const pairs[][2] = {{"ca/infra-ca.crt", "ca/infra-ca.key"},
	                                       {"ca/admin-ca.crt", "ca/admin-ca.key"},
	                                       {"ca/tenant-ca.crt", "ca/tenant-ca.key"},
	                                       {"controller/issuer.crt", "controller/issuer.key"},
	                                       {"controller/tls.crt", "controller/tls.key"},
	                                       {"admin/tls.crt", "admin/tls.key"}};
	static const char *const copies[][2] = {
		{"controller/infra-bundle.pem", "ca/infra-ca.crt"},
		{"controller/admin-bundle.pem", "ca/admin-ca.crt"},
		{"controller/tenant-bundle.pem", "ca/tenant-ca.crt"},
		{"admin/infra-bundle.pem", "ca/infra-ca.crt"},
		{"admin/trust-domain", "controller/trust-domain"}};
	static const char *const texts[] = {"controller/audit.key", "controller/snapshot.key",
	                                    "controller/mac.key", "controller/roles",
	                                    "admin/audit.vkey"};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		if (!fits(pairs[i][0], pairs[i][1]))
			return pairs[i][0];
	for (size_t i = 0; i < ARRAY_SIZE(copies); i++)
		if (!is_copy(copies[i][0], copies[i][1]))
			return copies[i][0];
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		AUTO_FREE char *text = text_of(texts[i]);

		if (!text)
			return texts[i];
	}
	return is_there("unfinished") ? "unfinished" : NULL;
}

static void remove_all(void)
{
	nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* As an operator who was told: what is left is removed, and init is asked again. */
static const char *begins_anew(void)
{
	if (is_there("ca") && !is_there("unfinished"))
		return "half a trust domain looks like a whole one";
	if (is_there("unfinished") &&
	    (run(&ctl_cmd_init) == CTL_OK || !strstr(words, "unfinished")))
		return "an init that had not ended is not named";
	remove_all();
	return run(&ctl_cmd_init) == CTL_OK ? damage() : words;
}

/* The parent survives: the disk is it. */
static struct disk *disk_at(uint64_t call, const char *no_fsync)
{
	struct disk *disk = disk_new(parent);

	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	return disk;
}

static const char *cut_init(uint64_t call, enum disk_loss loss, const char *no_fsync,
                            bool *ret_done)
{
	struct disk *disk = disk_at(call, no_fsync);
	const char *bad;

	*ret_done = run(&ctl_cmd_init) == CTL_OK;
	disk_restore(disk, loss, call + 1);
	bad = *ret_done ? damage() : NULL;
	disk_fsx_end();
	disk_free(disk);
	if (!*ret_done)
		bad = begins_anew();
	remove_all();
	return bad;
}

static const char *cut_cert(uint64_t call, enum disk_loss loss, const char *no_fsync,
                            bool *ret_done)
{
	AUTO_FREE char *key = NULL, *now = NULL, *old = NULL, *new = NULL, *left = NULL;
	struct disk *disk;
	const char *bad;

	disk = disk_at(UINT64_MAX, NULL);
	assert_int_equal(run(&ctl_cmd_init), CTL_OK);
	key = text_of("admin/tls.key");
	old = text_of("admin/tls.crt");
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	*ret_done = run(&ctl_cmd_admin_cert) == CTL_OK;
	new = text_of("admin/tls.crt");
	disk_restore(disk, loss, call + 1);
	bad = damage();
	now = text_of("admin/tls.key");
	if (!bad && (!now || strcmp(now, key)))
		bad = "the key is another one";
	left = text_of("admin/tls.crt");
	if (!bad && *ret_done && (!left || !strcmp(left, old) || strcmp(left, new)))
		bad = "a certificate that was said to be written is not there";
	disk_fsx_end();
	disk_free(disk);
	remove_all();
	return bad;
}

/* The authorities of the domain were changed since the context was made. */
static const char *cut_bundle(uint64_t call, enum disk_loss loss, const char *no_fsync,
                              bool *ret_done)
{
	AUTO_FREE char *old = NULL, *new = NULL, *other = NULL, *left = NULL, *path = NULL;
	struct disk *disk;
	const char *bad = NULL;

	disk = disk_at(UINT64_MAX, NULL);
	assert_int_equal(run(&ctl_cmd_init), CTL_OK);
	old = text_of("ca/infra-ca.crt");
	other = text_of("ca/tenant-ca.crt");
	path = ctl_path(dir, "ca/infra-ca.crt");
	assert_true(asprintf(&new, "%s%s", old, other) > 0);
	assert_int_equal(fsx_write_atomic(path, new, strlen(new), 0644, NULL), 0);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	*ret_done = run(&ctl_cmd_admin_cert) == CTL_OK;
	disk_restore(disk, loss, call + 1);
	left = text_of("admin/infra-bundle.pem");
	if (!left || (strcmp(left, old) && strcmp(left, new)))
		bad = "the bundle is torn or lost";
	else if (*ret_done && strcmp(left, new))
		bad = "a bundle that was said to be written is not there";
	else if (!fits("admin/tls.crt", "admin/tls.key"))
		bad = "the certificate does not fit";
	disk_fsx_end();
	disk_free(disk);
	remove_all();
	return bad;
}

/* The second one is written over the first. */
static const char *cut_token(uint64_t call, enum disk_loss loss, const char *no_fsync,
                             bool *ret_done)
{
	AUTO_FREE char *tokens = ctl_path(dir, "tokens"), *left = NULL,
		       *bundle = ctl_path(context, "infra-bundle.pem");
	static const char *const want[] = {"ros2-join-v1 dpu-0 first hash\nCA\n",
	                                   "ros2-join-v1 dpu-0 second hash\nCA\n"};
	struct disk *disk = disk_at(UINT64_MAX, NULL);
	const char *bad = NULL;
	int done = 0;

	assert_int_equal(fsx_mkdirs(context, 0700, NULL), 0);
	assert_int_equal(fsx_mkdirs(tokens, 0700, NULL), 0);
	assert_int_equal(fsx_write_atomic(bundle, "CA\n", 3, 0644, NULL), 0);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	for (int i = 0; i < 2; i++) {
		token = i ? "ros2-join-v1 dpu-0 second hash" : "ros2-join-v1 dpu-0 first hash";
		if (done == i)
			done += run(&ctl_cmd_agent_token) == CTL_OK;
	}
	*ret_done = done == 2;
	disk_restore(disk, loss, call + 1);
	left = text_of("tokens/dpu-0");
	if (left ? strcmp(left, want[0]) && strcmp(left, want[1]) : is_there("tokens/dpu-0"))
		bad = "the token file is torn";
	else if (done && (!left || (done == 2 && strcmp(left, want[1]))))
		bad = "a token file that was said to be written is not there";
	disk_fsx_end();
	disk_free(disk);
	remove_all();
	return bad;
}

/* ---- two at once ---- */

static const struct fsx_ops *others_io;

/* The other one, which was under way until now, ends. */
static int link_when_the_other_has_ended(const char *from, const char *to)
{
	AUTO_FREE char *mark = ctl_path(dir, "unfinished");

	(void)unlink(mark);
	return others_io->link(from, to);
}

static void domain__that_another_has_just_made_is_left_as_it_is(void **state)
{
	AUTO_FREE char *mark = ctl_path(dir, "unfinished"), *key = NULL, *now = NULL;
	struct fsx_ops ops = *fsx_io;
	int r;

	assert_int_equal(run(&ctl_cmd_init), CTL_OK);
	key = text_of("ca/infra-ca.key");
	assert_int_equal(fsx_write_atomic(mark, "x", 1, 0600, NULL), 0);
	others_io = fsx_io;
	ops.link = link_when_the_other_has_ended;
	fsx_io = &ops;
	r = run(&ctl_cmd_init);
	fsx_io = others_io;
	assert_int_equal(r, CTL_FAILED);
	assert_non_null(strstr(words, "holds a trust domain already"));
	assert_null(damage());
	now = text_of("ca/infra-ca.key");
	assert_string_equal(now, key);
	remove_all();
}

typedef const char *cut_fn(uint64_t, enum disk_loss, const char *, bool *);

static const char *sweep(cut_fn *cut, enum disk_loss loss, const char *no_fsync,
                         uint64_t *ret_calls)
{
	const char *bad = NULL;
	bool done = false;

	for (*ret_calls = 0; !done && !bad; (*ret_calls)++)
		bad = cut(*ret_calls, loss, no_fsync, &done);
	return bad;
}

static void at_any_call(cut_fn *cut, uint64_t least)
{
	for (enum disk_loss loss = DISK_LOSE_UNSYNCED; loss <= DISK_TEAR; loss++) {
		uint64_t calls;
		const char *bad = sweep(cut, loss, NULL, &calls);

		if (bad)
			fail_msg("cut at call %llu: %s", (unsigned long long)calls - 1, bad);
		assert_true(calls > least);
	}
}

static void domain__is_whole_or_unfinished_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_init, 80);
}

static void context__has_a_certificate_that_fits_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_cert, 8);
}

static void context__has_a_whole_bundle_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_bundle, 8);
}

static void token__that_was_said_to_be_written_is_whole_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_token, 8);
}

static void found(cut_fn *cut, const char *const *kinds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t calls;
		bool done;

		/* Most is lost when the power goes behind the last call. */
		if (!cut(UINT64_MAX, DISK_LOSE_UNSYNCED, kinds[i], &done) &&
		    !sweep(cut, DISK_LOSE_UNSYNCED, kinds[i], &calls))
			fail_msg("nothing is lost without the fsyncs of %s", kinds[i]);
	}
}

static void power__sweep_finds_the_losses_without_the_fsync_of_any_kind_of_file(void **state)
{
	static const char *const made[] = {
		".tls.key.tmp-",    ".tls.crt.tmp-", "-ca.key.tmp-",    "-ca.crt.tmp-",
		"-bundle.pem.tmp-", ".mac.key.tmp-", ".audit.key.tmp-", ".audit.vkey.tmp-",
		".roles.tmp-",      "=/td",          "=/td/ca",         "=/td/controller",
		"=/td/admin"};
	static const char *const renewed[] = {".tls.crt.tmp-", "=/td/admin"};
	static const char *const replaced[] = {".infra-bundle.pem.tmp-", "=/td/admin"};
	static const char *const tokens[] = {".dpu-0.tmp-", "=/td/tokens"};

	found(cut_init, made, ARRAY_SIZE(made));
	found(cut_cert, renewed, ARRAY_SIZE(renewed));
	found(cut_bundle, replaced, ARRAY_SIZE(replaced));
	found(cut_token, tokens, ARRAY_SIZE(tokens));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domain__that_another_has_just_made_is_left_as_it_is),
		cmocka_unit_test(domain__is_whole_or_unfinished_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			context__has_a_certificate_that_fits_after_a_power_cut_at_any_call),
		cmocka_unit_test(context__has_a_whole_bundle_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			token__that_was_said_to_be_written_is_whole_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			power__sweep_finds_the_losses_without_the_fsync_of_any_kind_of_file),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
