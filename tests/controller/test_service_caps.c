/* SPDX-License-Identifier: Apache-2.0 */
/* A listener of the controller that has all the connections it may have of one address: the log
 * says by which flag, for each of the three. One that has as many streams of one caller as it may,
 * likewise. */
#include "common/log.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/rpc/bare.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FEW 3 /* connections of an address */

static int setup(void **state)
{
	struct sf *f;

	sf_setup(state);
	f = *state;
	sf_stop(f);
	f->opts.admin_caps.per_address = FEW;
	f->opts.agent_caps.per_address = FEW;
	f->opts.enrol_caps.per_address = FEW;
	sf_start(f);
	return 0;
}

static int dial(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void assert_named(struct sf *f, uint16_t port, const char *listener, const char *flag)
{
	char words[160];
	int fd[FEW + 1];

	snprintf(words, sizeof(words),
	         "max-connections-per-address of %s: the listener has its 3 connections from this "
	         "address",
	         flag);
	for (int i = 0; i < FEW + 1; i++)
		fd[i] = dial(port);
	if (!AWAIT(sf_audit_says(f, "connection.refused", listener, words)))
		fail_msg("no record at %s says: %s", listener, words);
	for (int i = 0; i < FEW + 1; i++)
		close(fd[i]);
}

static void connections__beyond_a_flag_are_recorded_with_its_name(void **state)
{
	struct sf *f = *state;

	assert_named(f, f->ports.admin, "admin", "--admin-connections");
	assert_named(f, f->ports.agent, "agents", "--agent-connections");
	assert_named(f, f->ports.enrol, "enrol", "--enrol-connections");
}

/* Headers alone take the place of one. */
static void streams__beyond_a_callers_share_are_recorded_with_its_name(void **state)
{
	static const char words[] = "Audit.Query: too many open at once from this caller: it has "
				    "256 open streams, and its share of the 1024 is 256 (fixed)";
	char target[64], cert[512], key[512], ca[512], told[512] = "";
	struct bare r = {.target = target,
	                 .path = "/ros2.v1.Audit/Query",
	                 .ca = ca,
	                 .cert = cert,
	                 .key = key};
	struct sf *f = *state;
	struct bare_held *h;
	int code;

	snprintf(target, sizeof(target), "127.0.0.1:%u", f->ports.admin);
	snprintf(cert, sizeof(cert), "%s", sf_path("eye/tls.crt"));
	snprintf(key, sizeof(key), "%s", sf_path("eye/tls.key"));
	snprintf(ca, sizeof(ca), "%s", sf_path("controller/infra-bundle.pem"));
	h = bare_hold(&r, 257);
	if (!AWAIT(sf_audit_says(f, "admin.denied", "admin", words)))
		fail_msg("no record says: %s", words);
	assert_int_equal(bare_held_free(h, 1, &code, told), 1);
	assert_non_null(strstr(told, words + strlen("Audit.Query: ")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			connections__beyond_a_flag_are_recorded_with_its_name, setup, sf_teardown),
		cmocka_unit_test_setup_teardown(
			streams__beyond_a_callers_share_are_recorded_with_its_name, sf_setup,
			sf_teardown),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
