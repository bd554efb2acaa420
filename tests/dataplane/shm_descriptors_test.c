/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile tenant can do with the two descriptors that it has of a session over shared
 * memory: the socket, and the memfd, of which decision 0006 has a table. Nothing is leaked, nothing
 * is cut, nothing of one session is seen in another, and the neighbour goes on; nor is what a
 * session shared kept by what another closes.
 */
#include "tests/await.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/slow_fixture.h"
#include <dirent.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define KIB4 4096u

/* ---- the socket ---- */

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int unsent(int fd)
{
	int n = 0;

	assert_int_equal(ioctl(fd, SIOCOUTQ, &n), 0);
	return n;
}

static void send_descriptors(int fd, uint32_t n, const void *bytes, size_t len)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)bytes, len};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fds[16];

	for (uint32_t i = 0; i < n; i++)
		fds[i] = fd;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	assert_true(sendmsg(fd, &msg, MSG_NOSIGNAL) > 0 || errno == EPIPE || errno == ECONNRESET);
}

static void socket__with_thousands_of_bytes_is_as_good(void **state)
{
	static uint8_t bytes[1000];
	struct fx *fx = *state;
	struct shm_raw n, t;
	unsigned before;

	rs_neighbour(fx, &n);
	rs_ready(fx, &t);
	before = count_fds();
	for (int i = 0; i < 300; i++)
		raw_send_bytes(&t.c, bytes, (uint32_t)i * 13 % sizeof(bytes));
	assert_true(AWAIT(unsent(t.c.fd) == 0));
	rs_works(&t);
	rs_works(&n);
	assert_int_equal(count_fds(), before);
	rs_end(&t);
	rs_end(&n);
	assert_true(AWAIT(count_fds() <= before - 5));
}

/* What lies there when it ends, too; how such a session ends, and that nobody waits for it:
 * shm_strangers_test.c. */
static void socket__with_many_descriptors_leaks_none(void **state)
{
	static uint8_t bytes[1000];
	struct fx *fx = *state;
	struct shm_raw n, t;
	unsigned before;

	rs_neighbour(fx, &n);
	before = count_fds();
	for (uint32_t i = 0; i < 20; i++) {
		rs_ready(fx, &t);
		for (uint32_t k = 0; k < i; k++)
			send_descriptors(t.c.fd, 1 + k % 15, bytes, 1 + k * 7);
		rs_end(&t);
		rs_works(&n);
		fx_forget_events(fx);
	}
	assert_true(AWAIT(count_fds() == before));
	rs_end(&n);
}

/* Before the proof, where the agent reads, too. */
static void socket__that_has_proved_nothing_leaks_no_descriptor(void **state)
{
	struct fx *fx = *state;
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct shm_raw t;
	unsigned before;
	int fd;

	rs_open_session(fx, &t);
	before = count_fds();
	wire_seal(&h);
	for (int i = 0; i < 20; i++) {
		fd = rs_connect_path(t.path);
		send_descriptors(fd, 16, &h, sizeof(h));
		assert_true(AWAIT(unsent(fd) == 0));
		close(fd);
	}
	assert_true(AWAIT(count_fds() == before));
	rs_connect(&t);
	rs_ping(&t);
	rs_end(&t);
}

static void socket__closed_with_requests_in_flight_ends_the_session(void **state)
{
	struct fx *fx = *state;
	struct shm_raw n, t;
	struct wire_header h;

	rs_neighbour(fx, &n);
	for (int i = 0; i < 4; i++) {
		struct fx_args a;

		rs_ready(fx, &t);
		slow_engine_shut(true);
		for (uint32_t k = 0; k < 64; k++) {
			h = raw_header(&t.c, k % 2 ? WIRE_READ : WIRE_WRITE, 0, SHM_BASE, KIB4);
			rs_put(&t, &h);
		}
		slow_engine_wait_held(64);
		/* All of it at once; the memory is the agent's as long as the engine has it. */
		rs_close(&t);
		assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_CLOSED);
		a = (struct fx_args){.session = t.c.session};
		assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_CLOSED);
		slow_engine_shut(false);
		assert_true(AWAIT(fx_do(fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
		rs_works(&n);
	}
	rs_end(&n);
}

/* ---- the memfd: decision 0006 ---- */

static void refused(int rc, int want)
{
	assert_int_equal(rc, -1);
	assert_string_equal(strerror(errno), strerror(want));
}

static void no_other_size(int fd, off_t bytes)
{
	char path[64];

	refused(ftruncate(fd, 0), EPERM);
	refused(ftruncate(fd, bytes - 4096), EPERM);
	refused(ftruncate(fd, bytes + 4096), EPERM);
	refused(fallocate(fd, 0, bytes, 4096), EPERM);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	refused(open(path, O_RDWR | O_TRUNC | O_CLOEXEC), EPERM);
}

/* But that it cannot be executed, which newer kernels know. */
static int seals_of(int fd)
{
	return fcntl(fd, F_GET_SEALS) & ~0x20;
}

static void memfd__cannot_be_cut_before_it_is_sealed(void **state)
{
	struct shm_raw t;

	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(seals_of(t.memfd), F_SEAL_SHRINK | F_SEAL_GROW);
	no_other_size(t.memfd, (off_t)t.bytes);
	refused(fcntl(t.memfd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	rs_mapped(&t);
	rs_ping(&t);
	rs_end(&t);
}

static void no_new_writing(struct shm_raw *t, int fd)
{
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	refused((int)pwrite(fd, "x", 1, 0), EPERM);
	refused(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SHM_BASE, 4096), EPERM);
	refused(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
	no_other_size(fd, (off_t)t->bytes);
}

static void memfd__is_sealed_when_it_is_mapped(void **state)
{
	struct shm_raw t;
	char path[64];
	uint8_t *p;
	int again;

	rs_ready(*state, &t);
	rs_ping(&t);
	assert_int_equal(seals_of(t.memfd),
	                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	no_new_writing(&t, t.memfd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t.memfd);
	again = open(path, O_RDWR | O_CLOEXEC);
	assert_true(again >= 0);
	no_new_writing(&t, again);
	close(again);
	t.map[SHM_BASE] = 'r';
	/* Under qemu-user it does nothing, and says that it is well. */
	assert_true(madvise(t.map + SHM_BASE, 4096, MADV_REMOVE) < 0 || getenv("ROS2_EMULATED"));
	assert_int_equal(t.map[SHM_BASE], 'r');
	p = mmap(NULL, t.bytes, PROT_READ, MAP_SHARED, t.memfd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	t.map[SHM_BASE] = 'm';
	assert_int_equal(p[SHM_BASE], 'm');
	refused(mprotect(p, 4096, PROT_READ | PROT_WRITE), EACCES);
	munmap(p, t.bytes);
	p = mmap(NULL, t.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, t.memfd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	p[SHM_BASE] = 'p';
	assert_int_equal(t.map[SHM_BASE], 'm');
	munmap(p, t.bytes);
	rs_works(&t);
	rs_end(&t);
}

/* Seals only take; one more than is wanted is no harm. Or the tenant takes the agent's part. */
static void memfd__that_the_tenant_seals_first_has_a_named_end(void **state)
{
	struct shm_raw t;

	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fcntl(t.memfd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	rs_mapped(&t);
	rs_expect_end(&t, ROS2_INTERNAL, "could not be sealed");
	rs_end(&t);
	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fcntl(t.memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
	rs_mapped(&t);
	rs_expect_end(&t, ROS2_INTERNAL, "could not be sealed");
	rs_end(&t);
}

/* Then a page that is missing would be asked for by the agent, in the middle of a request. */
static void memfd__with_holes_is_not_accepted(void **state)
{
	static const int modes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct shm_raw t;

	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fallocate(t.memfd, modes, (off_t)SHM_BASE + KIB4, KIB4), 0);
	rs_mapped(&t);
	rs_expect_end(&t, ROS2_PROTOCOL, "holes");
	rs_end(&t);
	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	t.map[SHM_BASE] = 'r';
	assert_int_equal(madvise(t.map + SHM_BASE, t.offered, MADV_REMOVE), 0);
	if (t.map[SHM_BASE] == 'r') /* under qemu-user it does nothing */
		fallocate(t.memfd, modes, (off_t)SHM_BASE, (off_t)t.offered);
	else
		madvise(t.map + SHM_BASE, t.offered, MADV_REMOVE); /* the look has filled it */
	rs_mapped(&t);
	rs_expect_end(&t, ROS2_PROTOCOL, "holes");
	rs_end(&t);
	/* The control: those that were filled again are none. */
	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fallocate(t.memfd, modes, (off_t)SHM_BASE, (off_t)t.offered), 0);
	assert_int_equal(fallocate(t.memfd, 0, 0, (off_t)t.bytes), 0);
	rs_mapped(&t);
	rs_ping(&t);
	rs_end(&t);
}

/* Where the agent has it: every page. */
static void expect_all_mapped(const struct shm_raw *t)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib;
	unsigned n = 0;
	char line[512];
	bool ours = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2)
			ours = strstr(line, "memfd:ros2-session") && to - from == t->bytes &&
			       (uint8_t *)from != t->map;
		if (!ours || sscanf(line, "Rss: %lu", &kib) != 1)
			continue;
		assert_int_equal(kib, t->bytes / 1024);
		n++;
	}
	fclose(f);
	assert_int_equal(n, 1);
}

/* Else the agent would ask for each page when a request comes to it, and wait where the tenant's
 * own cgroup has put it into swap. */
static void memfd__with_pages_of_the_tenant_is_mapped_by_the_agent(void **state)
{
	static const int modes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct shm_raw t;

	if (getenv("ROS2_EMULATED"))
		skip();
	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fallocate(t.memfd, modes, 0, (off_t)t.bytes), 0);
	memset(t.map, 0, t.bytes);
	rs_mapped(&t);
	rs_ping(&t);
	expect_all_mapped(&t);
	rs_end(&t);
}

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif

/* As every memfd has it where vm.memfd_noexec is set. */
static void memfd__with_one_more_seal_is_as_good(void **state)
{
	struct shm_raw t;
	bool known;

	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fchmod(t.memfd, 0600), 0);
	known = fcntl(t.memfd, F_ADD_SEALS, F_SEAL_EXEC) == 0;
	if (!known)
		print_message("# before Linux 6.3: there is no such seal\n");
	rs_mapped(&t);
	rs_ping(&t);
	assert_int_equal(fcntl(t.memfd, F_GET_SEALS) & F_SEAL_EXEC, known ? F_SEAL_EXEC : 0);
	raw_file(&t.c, "file");
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
	rs_works(&t);
	rs_end(&t);
}

/* The control: it is the seals that keep the tenant from cutting what the agent has. */
static void control__without_the_seals_holes_are_punched(void **state)
{
	static const int modes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct shm_raw t;

	dp_test_switches.no_seal = true;
	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	rs_mapped(&t);
	rs_ping(&t);
	assert_int_equal(fallocate(t.memfd, modes, (off_t)SHM_BASE, KIB4), 0);
	rs_end(&t);
}

static void mapping__that_is_kept_sees_nothing_of_later_sessions(void **state)
{
	struct fx *fx = *state;
	struct stat before, after;
	struct shm_raw t, kept;
	uint8_t *was = malloc(SHM_BYTES);

	rs_ready(fx, &t);
	rs_works(&t);
	memset(t.map + SHM_BASE, 'k', t.offered);
	kept = t;
	t.map = NULL;
	t.memfd = -1;
	rs_end(&t);
	assert_int_equal(fstat(kept.memfd, &before), 0);
	memcpy(was, kept.map + SHM_BASE, SHM_BYTES);
	for (int i = 0; i < 4; i++) {
		rs_open_session(fx, &t);
		rs_hello(&t);
		rs_memory(&t);
		assert_int_equal(fstat(t.memfd, &after), 0);
		assert_int_not_equal(before.st_ino, after.st_ino);
		for (uint64_t k = SHM_BASE; k < t.bytes; k++)
			if (t.map[k])
				fail_msg("byte %llu is not 0", (unsigned long long)k);
		rs_mapped(&t);
		raw_file(&t.c, "file");
		t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
		rs_works(&t);
		/* Nor does it reach into one. */
		memset(kept.map, 0xff, KIB4);
		rs_works(&t);
		rs_end(&t);
	}
	assert_memory_equal(was, kept.map + SHM_BASE, SHM_BYTES);
	free(was);
	munmap(kept.map, kept.bytes);
	close(kept.memfd);
}

/* ---- the end ---- */

struct going {
	struct fx *fx;
	const struct ros2_uid *session;
	struct dp_gone w;
	_Atomic bool is_gone;
};

static void on_gone(struct dp_gone *w)
{
	container_of(w, struct going, w)->is_gone = true;
}

static void await_gone(void *arg)
{
	struct going *g = arg;

	g->w.fn = on_gone;
	if (!dp_session_await_gone(g->fx->dp, g->session, &g->w))
		g->is_gone = true;
}

/* What the neighbour's session shared is given back behind nothing of the other's. */
static void closing__of_one_tenant_does_not_keep_anothers_session_from_its_end(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fx *fx = *state;
	struct shm_raw t, n;
	struct going g;

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	rs_open_as(fx, &n, &tenant, &grant, UINT64_MAX);
	rs_connect(&n);
	rs_ready(fx, &t);
	for (int i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%d", i);
		raw_file(&t.c, name);
	}
	slow_engine_shut_closes(true);
	rs_close(&t);
	assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_CLOSED);
	slow_engine_wait_closes(1);
	g = (struct going){.fx = fx, .session = &n.c.session};
	loop_call(fx->loop, await_gone, &g);
	rs_close(&n);
	assert_true(AWAIT(g.is_gone));
	slow_engine_wait_closes(1);
	rs_open_as(fx, &n, &tenant, &grant, UINT64_MAX);
	rs_connect(&n);
	rs_end(&n);
	slow_engine_shut_closes(false);
}

/* As before Linux 6.16, where no kernel keeps descriptors away. */
static int setup_passing(void **state)
{
	slow_prepare();
	dp_test_switches.passes_descriptors = true;
	return fx_setup(state);
}

#define PASSING_TEST(f) cmocka_unit_test_setup_teardown(f, setup_passing, slow_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(socket__with_thousands_of_bytes_is_as_good),
		PASSING_TEST(socket__with_many_descriptors_leaks_none),
		PASSING_TEST(socket__that_has_proved_nothing_leaks_no_descriptor),
		SLOW_TEST(socket__closed_with_requests_in_flight_ends_the_session),
		SLOW_TEST(memfd__cannot_be_cut_before_it_is_sealed),
		SLOW_TEST(memfd__is_sealed_when_it_is_mapped),
		SLOW_TEST(memfd__that_the_tenant_seals_first_has_a_named_end),
		SLOW_TEST(memfd__with_holes_is_not_accepted),
		SLOW_TEST(memfd__with_pages_of_the_tenant_is_mapped_by_the_agent),
		SLOW_TEST(memfd__with_one_more_seal_is_as_good),
		SLOW_TEST(control__without_the_seals_holes_are_punched),
		SLOW_TEST(mapping__that_is_kept_sees_nothing_of_later_sessions),
		SLOW_TEST(closing__of_one_tenant_does_not_keep_anothers_session_from_its_end),
	};

	fx_shm = true;
	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
