/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device (dma-buf) as a region of libros2 over verbs, against the real data plane. The
 * device that is memory maps the file behind the descriptor for itself; the addresses by which the
 * program calls it allow nothing, so that a library that looks there dies.
 */
#include "tests/client/direct.h"
#include "tests/verbs/fabric_mem.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES  (1u << 20)
#define OFFSET 4096u /* of the memory in its dma-buf */

struct gpu {
	int fd;
	uint8_t *is; /* what the device sees; the test's own look */
	uint8_t *at; /* what the program calls it: nobody may look there */
	struct ros2_region *region;
};

static void gpu_make(struct gpu *g)
{
	*g = (struct gpu){.fd = memfd_create("gpu", MFD_CLOEXEC)};
	assert_true(g->fd >= 0);
	assert_int_equal(ftruncate(g->fd, OFFSET + BYTES), 0);
	g->is = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, OFFSET);
	g->at = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g->is != MAP_FAILED && g->at != MAP_FAILED);
}

static void gpu_drop(struct gpu *g)
{
	munmap(g->is, BYTES);
	munmap(g->at, BYTES);
	if (g->fd >= 0)
		close(g->fd);
}

static int gpu_register(struct user *u, struct gpu *g, uint32_t access)
{
	u->err = (struct ros2_err)ROS2_ERR_INIT;
	return ros2_region_register_dmabuf(u->session, g->fd, OFFSET, g->at, BYTES, access,
	                                   &g->region, &u->err);
}

#define BOTH (ROS2_REGION_READ | ROS2_REGION_WRITE)

static uint32_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int setup(void **state)
{
	fabric_mem_dmabuf(true);
	return fx_setup(state);
}

/* Down and up again through the device's memory; what lies around it is not touched. */
static void there_and_back(struct user *u, struct gpu *g, uint32_t len, uint32_t seed)
{
	uint32_t from = 8192 + seed * 3;

	user_fill(u->buf, len, seed);
	memcpy(g->is + from, u->buf, len);
	assert_int_equal(ros2_pwrite(u->file, g->at + from, len, 77, &u->err), len);
	memset(u->buf, 0, len);
	assert_int_equal(ros2_pread(u->file, u->buf, len, 77, &u->err), len);
	assert_memory_equal(u->buf, g->is + from, len);
	memset(g->is, 0xee, BYTES);
	assert_int_equal(ros2_pread(u->file, g->at + from, len, 77, &u->err), len);
	assert_memory_equal(u->buf, g->is + from, len);
	assert_int_equal(g->is[from - 1], 0xee);
	assert_int_equal(g->is[from + len], 0xee);
}

static void dmabuf__memory_of_a_device_is_moved_and_never_looked_into(void **state)
{
	static const uint32_t sizes[] = {1, 100, 512, 4096, 4097, 65536, 900001};
	struct fabric_mem_counts before, after;
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open(fx, &u);
	assert_true(u.session->max_inline > 100); /* such a write goes with its header */
	there_and_back(&u, &(struct gpu){.is = u.buf + (2u << 20), .at = u.buf + (2u << 20)}, 100,
	               1);
	fabric_mem_counts(&before);
	ok(&u, gpu_register(&u, &g, BOTH));
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
		there_and_back(&u, &g, sizes[i], i);
	ros2_region_deregister(g.region);
	fabric_mem_counts(&after);
	assert_int_equal(after.regions, before.regions);
	assert_int_equal(after.refused, 0);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
	gpu_drop(&g);
}

static void dmabuf__many_at_once_over_the_ring(void **state)
{
	enum { OPS = 16, SIZE = 20000 };
	struct ros2_completion c[OPS];
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open(fx, &u);
	ok(&u, gpu_register(&u, &g, BOTH));
	user_fill(g.is, OPS * SIZE, 9);
	for (uint32_t way = 0; way < 2; way++) {
		for (uint32_t i = 0; i < OPS; i++)
			ok(&u,
			   way ? ros2_prep_read(u.file, g.at + i * SIZE, SIZE, i * SIZE, i, &u.err)
			       : ros2_prep_write(u.file, g.at + i * SIZE, SIZE, i * SIZE, i,
			                         &u.err));
		assert_int_equal(ros2_submit(u.session, &u.err), OPS);
		for (int n = 0; n < OPS;) {
			int got = ros2_wait(u.session, c, 1, OPS, 5000, &u.err);

			assert_true(got > 0);
			for (int i = 0; i < got; i++)
				assert_int_equal(c[i].status, ROS2_OK);
			n += got;
		}
		if (!way)
			memset(g.is, 0, OPS * SIZE);
	}
	user_fill(u.buf, OPS * SIZE, 9);
	assert_memory_equal(u.buf, g.is, OPS * SIZE);
	/* Ends with its session. */
	user_close(&u);
	gpu_drop(&g);
}

/* The caller's descriptor may go at once: the library has its own, also for the next connection. */
static void dmabuf__outlives_its_descriptor_and_its_connection(void **state)
{
	struct fx *fx = *state;
	uint32_t before;
	struct gpu g;
	struct user u;

	before = descriptors();
	gpu_make(&g);
	user_open(fx, &u);
	ok(&u, gpu_register(&u, &g, BOTH));
	close(g.fd);
	g.fd = -1;
	there_and_back(&u, &g, 30000, 1);
	for (uint32_t i = 0; i < 3; i++) {
		user_lose_session(&u);
		there_and_back(&u, &g, 30000, 2 + i);
	}
	assert_int_equal(u.session->reconnects, 3);
	user_close(&u);
	gpu_drop(&g);
	assert_int_equal(descriptors(), before);
}

static void dmabuf__a_device_that_cannot_is_named_and_no_lease_is_taken(void **state)
{
	struct fx *fx = *state;
	uint32_t leases, before;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open(fx, &u);
	fabric_mem_dmabuf(false);
	leases = u.control->registered;
	before = descriptors();
	assert_true(gpu_register(&u, &g, BOTH) < 0);
	assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
	assert_non_null(strstr(u.err.msg, "dma-buf: not supported by mem0"));
	assert_int_equal(u.control->registered, leases);
	assert_int_equal(descriptors(), before);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	user_close(&u);
	gpu_drop(&g);
}

static void dmabuf__what_a_region_does_not_allow_is_refused_and_not_copied(void **state)
{
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open(fx, &u);
	ok(&u, gpu_register(&u, &g, ROS2_REGION_READ));
	assert_int_equal(ros2_pwrite(u.file, g.at, 4096, 0, &u.err), 4096);
	assert_true(ros2_pread(u.file, g.at, 4096, 0, &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_ACCESS);
	assert_true(ros2_prep_read(u.file, g.at, 4096, 0, 1, &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_ACCESS);
	/* Partly in it: the other part may be anything. */
	assert_true(ros2_pwrite(u.file, g.at + BYTES - 10, 20, 0, &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_ACCESS);
	assert_true(ros2_pwrite(u.file, g.at - 10, 20, 0, &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_ACCESS);
	assert_true(ros2_prep_write(u.file, g.at + BYTES - 10, 20, 0, 1, &u.err) < 0);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
	gpu_drop(&g);
}

static void dmabuf__bad_arguments_are_named(void **state)
{
	struct ros2_region *r = NULL, *kept;
	struct fx *fx = *state;
	uint32_t before;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open(fx, &u);
	before = descriptors();
#define BAD(fd, offset, addr, len, access)                                                         \
	assert_true(ros2_region_register_dmabuf(u.session, fd, offset, addr, len, access, &r,      \
	                                        &u.err) < 0)
	BAD(-1, 0, g.at, BYTES, BOTH);
	assert_non_null(strstr(u.err.msg, "descriptor -1"));
	BAD(g.fd, 0, NULL, BYTES, BOTH);
	BAD(g.fd, 0, g.at, 0, BOTH);
	BAD(g.fd, UINT64_MAX - 10, g.at, 4096, BOTH);
	BAD(g.fd, 0, g.at, BYTES, 0);
	BAD(g.fd, 0, g.at, BYTES, 4);
	assert_int_equal(descriptors(), before);
	ok(&u, gpu_register(&u, &g, BOTH));
	kept = g.region;
	assert_true(gpu_register(&u, &g, BOTH) < 0);
	assert_int_equal(u.err.status, ROS2_EXISTS);
	BAD(g.fd, 0, u.buf, 4096, BOTH); /* over other memory */
	assert_int_equal(u.err.status, ROS2_EXISTS);
	ros2_buf_free(u.session, g.at); /* is none of its */
	there_and_back(&u, &g, 5000, 1);
	assert_null(r);
	ros2_region_deregister(kept);
	assert_int_equal(descriptors(), before);
	user_close(&u);
	gpu_drop(&g);
}

static void dmabuf__needs_verbs(void **state)
{
	static const struct ros2_session_opts over_tcp = {.transport = ROS2_TRANSPORT_TCP};
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open_as(fx, &u, &over_tcp);
	assert_true(gpu_register(&u, &g, BOTH) < 0);
	assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
	assert_non_null(strstr(u.err.msg, "this session is over tcp"));
	user_close(&u);
	gpu_drop(&g);
}

/* A session that may be over anything finds itself over tcp after a loss. */
static void dmabuf__after_a_reconnect_over_tcp_its_requests_end_by_name(void **state)
{
	static const struct ros2_session_opts over_any = {.transport = ROS2_TRANSPORT_AUTO};
	struct ros2_completion c;
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open_as(fx, &u, &over_any);
	assert_int_equal(u.session->over, ROS2_TRANSPORT_VERBS);
	ok(&u, gpu_register(&u, &g, BOTH));
	there_and_back(&u, &g, 30000, 1);
	u.control->verbs_nowhere = true;
	user_lose_session(&u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	assert_int_equal(u.session->over, ROS2_TRANSPORT_TCP);
	for (uint32_t len = 100; len <= 100000; len *= 1000) {
		u.err = (struct ros2_err)ROS2_ERR_INIT;
		assert_true(ros2_pwrite(u.file, g.at, len, 0, &u.err) < 0);
		assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
		ok(&u, ros2_prep_read(u.file, g.at, len, 0, 1, &u.err));
		ok(&u, ros2_submit(u.session, &u.err));
		assert_int_equal(ros2_wait(u.session, &c, 1, 1, 5000, &u.err), 1);
		assert_int_equal(c.status, ROS2_UNSUPPORTED);
	}
	assert_int_equal(fx->violations, 0);
	ros2_region_deregister(g.region);
	user_close(&u);
	gpu_drop(&g);
}

/* That no agent answered for a while says nothing of the device. */
static void auto__over_verbs_is_over_verbs_again_when_the_agent_is_back(void **state)
{
	static const struct ros2_session_opts over_any = {.transport = ROS2_TRANSPORT_AUTO};
	struct fx *fx = *state;
	struct gpu g;
	struct user u;

	gpu_make(&g);
	user_open_as(fx, &u, &over_any);
	assert_int_equal(u.session->over, ROS2_TRANSPORT_VERBS);
	ok(&u, gpu_register(&u, &g, BOTH));
	u.control->away = 4;
	user_lose_session(&u);
	there_and_back(&u, &g, 30000, 1);
	assert_int_equal(u.control->away, 0);
	assert_int_equal(u.session->over, ROS2_TRANSPORT_VERBS);
	ros2_region_deregister(g.region);
	user_close(&u);
	gpu_drop(&g);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(dmabuf__memory_of_a_device_is_moved_and_never_looked_into),
		T(dmabuf__many_at_once_over_the_ring),
		T(dmabuf__outlives_its_descriptor_and_its_connection),
		T(dmabuf__a_device_that_cannot_is_named_and_no_lease_is_taken),
		T(dmabuf__what_a_region_does_not_allow_is_refused_and_not_copied),
		T(dmabuf__bad_arguments_are_named),
		T(dmabuf__needs_verbs),
		T(dmabuf__after_a_reconnect_over_tcp_its_requests_end_by_name),
		T(auto__over_verbs_is_over_verbs_again_when_the_agent_is_back),
	};

	fx_from_env();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
