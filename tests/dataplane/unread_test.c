/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant that does not read keeps in the agent's kernel, where nothing counts for it: a
 * small part of what it asked for. The rest waits in slots, and comes when it reads.
 */
#include "dataplane/tcp_priv.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PIECE  (128u * 1024)
#define PIECES 48u /* more than the kernel would take */

static uint8_t data[PIECE];

/* The agent is in this process. */
static int agents_end(const struct raw *c)
{
	struct sockaddr_storage here = {0}, there;
	socklen_t n = sizeof(here), m;

	assert_int_equal(getsockname(c->fd, (struct sockaddr *)&here, &n), 0);
	for (int fd = 3; fd < 1024; fd++) {
		m = sizeof(there);
		memset(&there, 0, sizeof(there));
		if (fd != c->fd && getpeername(fd, (struct sockaddr *)&there, &m) == 0 && m == n &&
		    !memcmp(&here, &there, n))
			return fd;
	}
	return -1;
}

static bool is_full(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 0;
}

static void tenant__that_does_not_read_keeps_little_in_the_kernel(void **state)
{
	struct wire_header h;
	struct raw c;
	int fd, unsent = -1;

	raw_ready(*state, &c);
	fd = agents_end(&c);
	assert_true(fd >= 0);
	assert_int_equal(raw_write(&c, 0, data, PIECE, false), ROS2_OK);
	for (uint32_t i = 0; i < PIECES; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE, PIECE);
		raw_send(&c, &h, NULL, 0);
	}
	assert_true(AWAIT(is_full(fd)));
	if (ioctl(fd, SIOCOUTQNSD, &unsent) < 0) {
		raw_close(&c);
		print_message("# SKIP no SIOCOUTQNSD here (qemu-user)\n");
		skip();
	}
	/* with the last segment */
	assert_in_range(unsent, 1, TCP_UNSENT + 64 * 1024);
	/* Nothing waits for an event that does not come. */
	for (uint32_t got = 0; got < PIECES * PIECE; got += h.payload_len)
		assert_true(raw_recv(&c, &h, data, PIECE));
	raw_close(&c);
}

static int setup(void **state)
{
	fx_slot_bytes = 64u << 20;
	return fx_setup(state);
}

static int teardown(void **state)
{
	fx_slot_bytes = 0;
	return fx_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			tenant__that_does_not_read_keeps_little_in_the_kernel, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
