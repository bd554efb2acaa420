/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rpc/full.h"
#include "tests/testing.h"
#include "common/util.h"
#include <errno.h>
#include <unistd.h>

void full_take(struct full *f)
{
	int top = dup(STDIN_FILENO), fd;

	assert_true(top >= 0);
	close(top);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->was), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE,
	                           &(struct rlimit){(rlim_t)top + FULL_ABOVE, f->was.rlim_max}),
	                 0);
	for (f->n = 0; (size_t)f->n < ARRAY_SIZE(f->fds) && (fd = dup(STDIN_FILENO)) >= 0; f->n++)
		f->fds[f->n] = fd;
	assert_int_equal(fd, -1);
	assert_int_equal(errno, EMFILE);
}

void full_give(struct full *f)
{
	while (f->n)
		close(f->fds[--f->n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->was), 0);
}
