/* SPDX-License-Identifier: Apache-2.0 */
/* fork_mark: parent, child and grandchild are told apart, however they were made, on kernels that
 * wipe a page for children, that do not, and that say yes to whatever they are asked. */
#include "common/fork_mark.h"
#include "tests/testing.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static enum { KERNEL_AS_IT_IS, KERNEL_OLD, KERNEL_SAYS_YES } kernel;

int __real_madvise(void *p, size_t len, int advice);
int __wrap_madvise(void *p, size_t len, int advice);
int __wrap_madvise(void *p, size_t len, int advice)
{
	if (kernel == KERNEL_SAYS_YES)
		return 0;
	if (kernel == KERNEL_OLD) {
		errno = EINVAL;
		return -1;
	}
	return __real_madvise(p, len, advice);
}

static pid_t fork_without_handlers(void)
{
	return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
}

/* What @fn says in a child. */
static bool in_child(pid_t (*copy)(void), bool (*fn)(struct fork_mark *m), struct fork_mark *m)
{
	pid_t pid = copy();
	int status;

	if (pid == 0)
		_exit(fn(m));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool is_child(struct fork_mark *m)
{
	return fork_mark_is_child(m);
}

static bool adopts(struct fork_mark *m)
{
	fork_mark_adopt(m);
	return !fork_mark_is_child(m) && in_child(fork, is_child, m);
}

static void fork_mark__tells_the_maker_from_its_children(void **state)
{
	for (kernel = KERNEL_AS_IT_IS; kernel <= KERNEL_SAYS_YES; kernel++) {
		struct fork_mark m;

		fork_mark_init(&m);
		if (kernel != KERNEL_AS_IT_IS)
			assert_null(m.here);
		assert_false(fork_mark_is_child(&m));
		assert_true(in_child(fork, is_child, &m));
		assert_true(in_child(fork_without_handlers, is_child, &m));
		assert_true(in_child(fork, adopts, &m));
		assert_false(fork_mark_is_child(&m));
		fork_mark_fini(&m);
	}
	kernel = KERNEL_AS_IT_IS;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork_mark__tells_the_maker_from_its_children),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
