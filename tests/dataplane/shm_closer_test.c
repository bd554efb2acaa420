/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that close sockets have the stack that was meant for them, on machines that take no
 * small one, too: a stranger can have many of them. */
#include "dataplane/shm_socket.h"
#include "tests/testing.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEAST (128u << 10) /* PTHREAD_STACK_MIN of aarch64 */

static _Atomic uint32_t asked, refused;

int __real_pthread_attr_setstacksize(pthread_attr_t *attr, size_t size);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attr, size_t size);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attr, size_t size)
{
	int rc = size < LEAST ? EINVAL : __real_pthread_attr_setstacksize(attr, size);

	atomic_fetch_add(&asked, 1);
	atomic_fetch_add(&refused, rc != 0);
	return rc;
}

static void closer__has_small_stacks_on_every_machine(void **state)
{
	struct shm_closer *c = NULL;
	char byte;
	int fds[2];

	assert_int_equal(shm_closer_new(&c, NULL), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	shm_socket_close_listener(c, fds[0]);
	/* Until it was closed. */
	assert_int_equal(read(fds[1], &byte, 1), 0);
	close(fds[1]);
	shm_closer_free(c);
	assert_true(atomic_load(&asked) > 0);
	assert_int_equal(atomic_load(&refused), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closer__has_small_stacks_on_every_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
