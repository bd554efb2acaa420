/* SPDX-License-Identifier: Apache-2.0 */
/* What the probe makes of what a kernel says to a dma-buf: it asks for what the product asks for.
 */
#include "dataplane/fabric/probe_verbs_priv.h"
#include "tests/testing.h"
#include <errno.h>

static int without_windows, with_windows; /* what the kernel says of each */

struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                        uint64_t iova, int fd, int access);
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                        uint64_t iova, int fd, int access)
{
	assert_int_equal(fd, -1);
	errno = access & IBV_ACCESS_MW_BIND ? with_windows : without_windows;
	return NULL;
}

static struct probe_finding asked(int without, int with)
{
	struct probe_finding f = {0};
	struct vp_case c = {0};

	without_windows = without;
	with_windows = with;
	vp_case_dmabuf(&c, &f);
	return f;
}

static void probe__a_dma_buf_that_takes_windows_is_supported(void **state)
{
	assert_int_equal(asked(EBADF, EBADF).result, PROBE_ENFORCED);
}

/* Linux: the flag is looked at before the descriptor is. */
static void probe__a_dma_buf_without_windows_is_of_no_use(void **state)
{
	struct probe_finding f = asked(EBADF, EINVAL);

	assert_int_equal(f.result, PROBE_NOT_SUPPORTED);
	assert_non_null(strstr(f.seen, "no windows over dma-bufs"));
}

static void probe__a_kernel_without_dma_bufs_says_so(void **state)
{
	assert_int_equal(asked(EOPNOTSUPP, EOPNOTSUPP).result, PROBE_NOT_SUPPORTED);
	assert_int_equal(asked(ENOSYS, ENOSYS).result, PROBE_NOT_SUPPORTED);
	assert_int_equal(asked(EIO, EIO).result, PROBE_NOT_TRIED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe__a_dma_buf_that_takes_windows_is_supported),
		cmocka_unit_test(probe__a_dma_buf_without_windows_is_of_no_use),
		cmocka_unit_test(probe__a_kernel_without_dma_bufs_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
