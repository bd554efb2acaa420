/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target itself, by bytes written out by hand from NVMe/TCP 1.0 and NVMe Base 2.0: what it
 * answers, and that it notices a host that goes against them; the suites rely on both.
 */
#include "tests/nvmf/target_priv.h"
#include "tests/await.h"
#include "tests/testing.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#define NQN  "nqn.2026-11.test:volumes"
#define HOST "nqn.2026-11.test:host"

struct wire {
	struct target *t;
	int fd;
};

static int setup(void **state)
{
	struct target_subsys_opts s = {.nqn = NQN, .in_capsule = 4096, .mdts = 5};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = 1000};
	struct target_opts o = {0};
	static struct wire w;

	assert_int_equal(target_new(&o, &w.t), 0);
	assert_int_equal(target_add_subsystem(w.t, &s), 0);
	assert_int_equal(target_add_ns(w.t, NQN, &n), 0);
	w.fd = -1;
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct wire *w = *state;

	if (w->fd >= 0)
		close(w->fd);
	target_free(w->t);
	return 0;
}

static void dial(struct wire *w)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons(target_port(w->t)),
	                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (w->fd >= 0)
		close(w->fd);
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(w->fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void say(struct wire *w, const void *p, size_t n)
{
	assert_int_equal(send(w->fd, p, n, MSG_NOSIGNAL), n);
}

static void hear(struct wire *w, void *p, size_t n)
{
	size_t at = 0;

	while (at < n) {
		struct pollfd pfd = {.fd = w->fd, .events = POLLIN};
		ssize_t got;

		assert_int_equal(poll(&pfd, 1, 10000), 1);
		got = recv(w->fd, (uint8_t *)p + at, n - at, 0);
		if (got <= 0)
			fail_msg("expected %zu bytes, found %zu", n, at);
		at += (size_t)got;
	}
}

static void greet(struct wire *w)
{
	uint8_t ic[128] = {0x00, 0, 128, 0, 128}, expect[16] = {0x01, 0, 128, 0, 128};

	expect[14] = 2; /* MAXH2CDATA: 131072 */
	dial(w);
	say(w, ic, sizeof(ic));
	hear(w, ic, sizeof(ic));
	assert_memory_equal(ic, expect, sizeof(expect));
}

/* A capsule: @sqe has all but flags and SGL; @len bytes of data in it. */
static void command(struct wire *w, uint8_t sqe[64], const void *data, uint32_t len)
{
	uint8_t pdu[72 + 1024] = {0x04, 0, 72, len ? 72 : 0};

	put32(pdu + 4, 72 + len);
	sqe[1] = 0x40;
	if (len) {
		put32(sqe + 32, len);
		sqe[39] = 0x01;
	} else {
		sqe[39] = 0x5a;
	}
	memcpy(pdu + 8, sqe, 64);
	if (len)
		memcpy(pdu + 72, data, len);
	say(w, pdu, 72 + len);
}

/* The answer to @cid: its status; *ret_result may be NULL. */
static uint16_t answer(struct wire *w, uint16_t cid, uint64_t *ret_result)
{
	uint8_t pdu[24];

	hear(w, pdu, sizeof(pdu));
	assert_int_equal(pdu[0], 0x05);
	assert_int_equal(le32(pdu + 4), 24);
	assert_int_equal(le16(pdu + 8 + 12), cid);
	if (ret_result)
		*ret_result = le64(pdu + 8);
	return le16(pdu + 8 + 14) >> 1;
}

/* Connect: its status. */
static uint16_t join(struct wire *w, const char *nqn, const char *host, uint64_t *ret_result)
{
	uint8_t sqe[64] = {0x7f, 0, 7, 0, 0x01}, data[1024] = {1, 2, 3};

	put16(sqe + 44, 31); /* SQSIZE */
	put16(data + 16, 0xffff);
	snprintf((char *)data + 256, 256, "%s", nqn);
	snprintf((char *)data + 512, 256, "%s", host);
	command(w, sqe, data, sizeof(data));
	return answer(w, 7, ret_result);
}

static uint64_t property(struct wire *w, uint32_t offset, bool wide)
{
	uint8_t sqe[64] = {0x7f, 0, 9, 0, 0x04};
	uint64_t v;

	sqe[40] = wide;
	put32(sqe + 44, offset);
	command(w, sqe, NULL, 0);
	assert_int_equal(answer(w, 9, &v), 0);
	return v;
}

static void enable(struct wire *w)
{
	uint8_t sqe[64] = {0x7f, 0, 8, 0, 0x00};

	put32(sqe + 44, 0x14);
	put32(sqe + 48, 0x00460001);
	command(w, sqe, NULL, 0);
	assert_int_equal(answer(w, 8, NULL), 0);
	for (int i = 0; !(property(w, 0x1c, false) & 1); i++)
		assert_true(i < 10000);
}

static void in_order(struct wire *w)
{
	char words[256];

	target_violations(w->t, words, sizeof(words));
	assert_string_equal(words, "");
}

/* Until it has noted something with these words. */
static void noted(struct wire *w, const char *expect)
{
	char words[256] = "";

	AWAIT((target_violations(w->t, words, sizeof(words)), words[0]));
	if (!strstr(words, expect))
		fail_msg("expected \"%s\", found \"%s\"", expect, words);
}

static void nvmf_target__a_controller_byte_by_byte(void **state)
{
	uint8_t sqe[64] = {0x06, 0, 3}, data[24 + 4096];
	struct wire *w = *state;
	uint64_t cntlid;

	greet(w);
	assert_int_equal(join(w, NQN, HOST, &cntlid), 0);
	assert_int_equal(cntlid, 1);
	assert_int_equal(property(w, 0x08, false), 0x00020000);
	assert_int_equal(property(w, 0x00, true) & 0x1ffff, 0x1007f);
	assert_int_equal(property(w, 0x1c, false), 0);
	enable(w);
	sqe[40] = 1; /* CNS: controller */
	sqe[33] = 0x10;
	command(w, sqe, NULL, 0);
	hear(w, data, sizeof(data));
	assert_memory_equal(data, ((uint8_t[]){0x07, 4, 24, 24, 0x18, 0x10, 0, 0, 3, 0}), 10);
	assert_int_equal(data[24 + 77], 5);            /* MDTS */
	assert_int_equal(le16(data + 24 + 78), 1);     /* CNTLID */
	assert_int_equal(le32(data + 24 + 1792), 260); /* IOCCSZ */
	assert_string_equal((char *)data + 24 + 768, NQN);
	assert_int_equal(answer(w, 3, NULL), 0);
	in_order(w);
}

static void nvmf_target__refuses_as_the_specification_says(void **state)
{
	uint8_t sqe[64] = {0x18, 0, 4};
	struct wire *w = *state;
	uint64_t result;

	greet(w);
	assert_int_equal(join(w, "nqn.2026-11.test:none", HOST, &result), 0x4182);
	assert_int_equal(result, 0x10100); /* in the data, SUBNQN */
	assert_int_equal(target_allow(w->t, NQN, "nqn.2026-11.test:other"), 0);
	assert_int_equal(join(w, NQN, HOST, &result), 0x4184);
	assert_int_equal(target_allow(w->t, NQN, HOST), 0);
	assert_int_equal(join(w, NQN, HOST, &result), 0);
	in_order(w);
	/* Taken from the list, it is cut. */
	assert_int_equal(target_disallow(w->t, NQN, HOST), 0);
	assert_true(recv(w->fd, sqe, 1, 0) <= 0);
}

static void nvmf_target__keep_alive_has_a_real_timer(void **state)
{
	uint8_t sqe[64] = {0x09, 0, 5};
	struct wire *w = *state;
	struct target_stats s;

	greet(w);
	assert_int_equal(join(w, NQN, HOST, NULL), 0);
	enable(w);
	sqe[40] = 0x0f; /* Keep Alive Timer */
	put32(sqe + 44, 200);
	command(w, sqe, NULL, 0);
	assert_int_equal(answer(w, 5, NULL), 0);
	assert_true(recv(w->fd, sqe, 1, 0) <= 0);
	target_stats(w->t, &s);
	assert_int_equal(s.expired, 1);
	assert_int_equal(s.controllers, 0);
}

static void nvmf_target__notes_a_host_that_breaks_the_rules(void **state)
{
	static const struct {
		uint8_t bytes[16];
		const char *words;
	} rows[] = {
		{{0x04, 0, 72, 0, 72}, "flags 0x00 of a command"},
		{{0x04, 0, 71, 0, 72}, "HLEN"},
		{{0x04, 0, 72, 0, 71}, "PLEN out of range"},
		{{0x04, 0, 72, 0, 0xff, 0xff, 0xff, 0xff}, "PLEN out of range"},
		{{0x04, 0x80, 72, 0, 72}, "flags"},
		{{0x05, 0, 24, 0, 24}, "unknown type"},
		{{0x00, 0, 128, 0, 128}, "not in this state"},
		{{0x06, 0, 24, 0, 24}, "DATAL"},
		{{0x06, 4, 24, 24, 28, 0, 0, 0, 0, 0, 5, 0}, "DATAL"},
		{{0x04, 0, 72, 70, 80}, "PDO"},
	};
	struct wire *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint8_t pdu[128] = {0};

		greet(w);
		pthread_mutex_lock(&w->t->lock);
		w->t->violation[0] = 0;
		pthread_mutex_unlock(&w->t->lock);
		memcpy(pdu, rows[i].bytes, 16);
		say(w, pdu, i ? sizeof(pdu) : 72);
		noted(w, rows[i].words);
		if (i) { /* C2HTermReq, and the end */
			hear(w, pdu, 24);
			assert_int_equal(pdu[0], 0x03);
		}
	}
}

static void nvmf_target__takes_lines_of_text(void **state)
{
	struct wire *w = *state;
	char out[65536];

	assert_int_equal(target_line(w->t, "help", out, sizeof(out)), 0);
	for (unsigned f = 1; f < FAULTS_N; f++) {
		assert_non_null(strstr(out, target_fault_to_str((enum target_fault)f)));
		assert_int_equal(target_fault_parse(target_fault_to_str((enum target_fault)f)), f);
	}
	assert_int_equal(target_line(w->t, "fault no-such-fault", out, sizeof(out)), -ENOENT);
	assert_int_equal(target_line(w->t, "namespace " NQN, out, sizeof(out)), -EINVAL);
	assert_int_equal(target_line(w->t, "resize " NQN " 9 100", out, sizeof(out)), -ENOENT);
	assert_int_equal(target_line(w->t, "fault connect-status arg=0x4006", out, sizeof(out)), 0);
	greet(w);
	assert_int_equal(join(w, NQN, HOST, NULL), 0x4006);
	assert_int_equal(target_line(w->t, "hits connect-status", out, sizeof(out)), 0);
	assert_string_equal(out, "1");
}

#define T(name) cmocka_unit_test_setup_teardown(nvmf_target__##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_controller_byte_by_byte),   T(refuses_as_the_specification_says),
		T(keep_alive_has_a_real_timer), T(notes_a_host_that_breaks_the_rules),
		T(takes_lines_of_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
