/* SPDX-License-Identifier: Apache-2.0 */
/* A listener goes on when a connection could not be accepted. */
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/rpc/full.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How often a listener was told to look again, and whether it was. */
static atomic_int again;
static atomic_bool not_again;

void __real_rpc_socket_accept_again(int fd);
void __wrap_rpc_socket_accept_again(int fd);
void __wrap_rpc_socket_accept_again(int fd)
{
	again++;
	if (!not_again)
		__real_rpc_socket_accept_again(fd);
}

static int connect_to(const char *target, int fd)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(strrchr(target, ':') + 1));
	return connect(fd, (struct sockaddr *)&to, sizeof(to));
}

/* Somebody comes while no descriptor is left. *ret: is his. */
static struct rpc_channel *start_full(struct fx *f, int least, int *ret)
{
	struct rpc_channel *before;
	struct full full;
	bool waited;
	int rc;

	fx_start(f, NULL);
	before = fx_channel(f, NULL);
	fx_say_x(before);
	*ret = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(*ret >= 0);
	again = 0;
	full_take(&full);
	rc = connect_to(f->target, *ret);
	waited = AWAIT(again >= least);
	full_give(&full);
	assert_int_equal(rc, 0);
	assert_true(waited);
	return before;
}

static void end_full(struct fx *f, struct rpc_channel *before, int waits)
{
	struct rpc_channel *after = fx_channel(f, NULL);

	fx_say_x(after);
	fx_say_x(before);
	close(waits);
	rpc_channel_free(after);
	rpc_channel_free(before);
	fx_stop(f);
}

static void rpc_server__without_descriptors_who_comes_waits(void **state)
{
	struct rpc_channel *before;
	struct fx f;
	int waits;

	/* Again and again. */
	before = start_full(&f, 3, &waits);
	/* And is taken though nobody else comes. */
	assert_true(AWAIT(fx_stats(&f).connections_now == 2));
	end_full(&f, before, waits);
}

static void control__who_is_not_looked_for_waits_for_the_next(void **state)
{
	struct rpc_channel *before;
	struct fx f;
	int waits;

	not_again = true;
	before = start_full(&f, 1, &waits);
	assert_int_equal(again, 1);
	assert_int_equal(fx_stats(&f).connections_now, 1);
	end_full(&f, before, waits);
	not_again = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__without_descriptors_who_comes_waits),
		cmocka_unit_test(control__who_is_not_looked_for_waits_for_the_next),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
