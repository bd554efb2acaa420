// SPDX-License-Identifier: Apache-2.0
/*
 * Slots in huge pages, over the stub and a kernel that has such pages of another size, too, or lets
 * them be mapped and not touched (a control group that allows none): as mmap(2), madvise(2).
 */
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include <errno.h>
#include <linux/mman.h>
#include <sys/mman.h>

#define MANY 16

static size_t default_bytes;
static bool untouchable;
static uint32_t made;
static struct {
	void *at; /* NULL: none */
	size_t len, unit;
} huge[MANY];

static uint32_t left(void)
{
	uint32_t n = 0;

	for (int i = 0; i < MANY; i++)
		n += huge[i].at != NULL;
	return n;
}

static int find(const void *at)
{
	for (int i = 0; i < MANY; i++)
		if (huge[i].at == at)
			return i;
	return -1;
}

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	unsigned int shift = (unsigned int)flags >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;
	size_t unit = shift ? (size_t)1 << shift : default_bytes;
	int i = find(NULL);

	if (!(flags & MAP_HUGETLB))
		return __real_mmap(at, len, prot, flags, fd, off);
	assert_true(i >= 0);
	huge[i].unit = unit;
	huge[i].len = (len + unit - 1) / unit * unit;
	huge[i].at = __real_mmap(NULL, huge[i].len, untouchable ? PROT_NONE : prot,
	                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(huge[i].at, MAP_FAILED);
	made++;
	return huge[i].at;
}

int __real_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len)
{
	int i = find(at), rc;

	if (i < 0 || !at)
		return __real_munmap(at, len);
	if (len % huge[i].unit) {
		errno = EINVAL;
		return -1;
	}
	rc = __real_munmap(at, huge[i].len);
	huge[i].at = NULL;
	return rc;
}

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice)
{
	if (find(at) < 0 || !untouchable)
		return __real_madvise(at, len, advice);
	errno = EFAULT;
	return -1;
}

static void open_and_close(void)
{
	struct world w = {0};
	struct fabric_slot slot;

	world_open(&w);
	slot = world_slot(&w, OURS, 4096);
	if (!untouchable || !left())
		slot.mem[0] = 1;
	fabric_slot_give(w.set[OURS], &slot);
	world_close(&w);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
}

static void slots__give_huge_pages_back_whatever_the_machines_own_size_is(void **state)
{
	default_bytes = (size_t)1 << 30;
	open_and_close();
	assert_true(made > 0);
	assert_int_equal(left(), 0);
}

static void slots__are_of_other_pages_where_huge_ones_cannot_be_touched(void **state)
{
	struct world w = {0};

	untouchable = true;
	world_open(&w);
	assert_true(made > 0);
	assert_int_equal(left(), 0);
	world_close(&w);
	open_and_close();
}

static int setup(void **state)
{
	stub_reset();
	default_bytes = (size_t)2 << 20;
	untouchable = false;
	made = 0;
	memset(huge, 0, sizeof(huge));
	return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(slots__give_huge_pages_back_whatever_the_machines_own_size_is),
		T(slots__are_of_other_pages_where_huge_ones_cannot_be_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
