/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every call of `ros2ctl init` and `ros2ctl admin cert`. A trust domain that
 * was said to be made is whole; one that was not is not there, or marked as unfinished, and made
 * anew when its parts are removed. A context whose certificate is renewed keeps its key and has a
 * certificate that fits it. Negative controls: without the fsync of any kind of file, or of a
 * directory, the sweep finds losses.
 */
#include "common/pki.h"
#include "common/util.h"
#include "tests/common/disk_fsx.h"
#include "tests/testing.h"
#include "tools/ctl/ctl.h"
#include <sys/stat.h>

/* What the two commands need of ros2ctl: main.c and connect.c have it there. */
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

static char *parent, dir[512];

static int group_setup(void **state)
{
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&parent) < 0)
		return -1;
	snprintf(dir, sizeof(dir), "%s/td", parent);
	return 0;
}

static int group_teardown(void **state)
{
	return testing_dir_teardown((void **)&parent);
}

static const char *value_of(const char *option)
{
	static char context[600];

	snprintf(context, sizeof(context), "%s/admin", dir);
	return !strcmp(option, "dir")            ? dir
	       : !strcmp(option, "trust-domain") ? "ros2.test"
	       : !strcmp(option, "id")           ? "spiffe://ros2.test/admin/root"
	       : !strcmp(option, "out")          ? context
	                                         : NULL;
}

/* What it says of its success is not shown: some thousand times. */
static int run(const struct ctl_cmd *cmd)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), real = dup(STDERR_FILENO), r;
	struct ctl_args a = {0};

	for (int i = 0; cmd->opts[i].name; i++)
		a.value[i] = value_of(cmd->opts[i].name);
	dup2(null, STDERR_FILENO);
	r = cmd->run(NULL, &a);
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

	found(cut_init, made, ARRAY_SIZE(made));
	found(cut_cert, renewed, ARRAY_SIZE(renewed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domain__is_whole_or_unfinished_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			context__has_a_certificate_that_fits_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			power__sweep_finds_the_losses_without_the_fsync_of_any_kind_of_file),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
