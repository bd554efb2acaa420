/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP and a target that lies, over real connections with commands in flight:
 * each row is one lie. The queue names it and ends, every command comes back once, no descriptor is
 * left, and a host at an honest target beside it goes on with each byte right. Control: the same
 * scenario at the same target passes as soon as it is honest.
 */
#include "tests/nvmf/host.h"
#include "tests/await.h"
#include "tests/testing.h"

#include "common/util.h"
#include <dirent.h>

#define NQN  "nqn.2026-11.test:volumes"
#define HOST "nqn.2026-11.test:host"

#define TIME "no answer to"
enum digests { PLAIN = 1, DIGESTS = 2, BOTH = 3 };
enum { OP_WRITE = 1 + 1, OP_READ = 2 + 1, OP_FLUSH = 0 + 1 };
enum { PDU_RESP = 5 + 1, PDU_DATA = 7 + 1, PDU_R2T = 9 + 1 };

struct lie {
	struct target_rule rule;
	enum digests digests;
	const char *words; /* what the fault must say; NULL: the queue lives, @rc is the result */
	int rc;
};

struct rig {
	struct target *liar, *honest;
	struct host bystander;
};

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct target *honest_target(void)
{
	struct target_opts o = {.r2t_bytes = 32768, .c2h_bytes = 65536};
	struct target_subsys_opts s = {.nqn = NQN, .in_capsule = 8192, .mdts = 5};
	struct target_ns_opts n = {
		.nsid = 1, .block_size = 512, .blocks = HOST_DEPTH * HOST_LEN / 512};
	struct target *t = NULL;

	assert_int_equal(target_new(&o, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, NQN, &n), 0);
	return t;
}

static int open_at(struct host *h, struct target *t, bool digests, uint64_t timeout_ms)
{
	struct host_opts o = {.port = target_port(t),
	                      .nqn = NQN,
	                      .host_nqn = HOST,
	                      .digests = digests,
	                      .timeout_ms = timeout_ms};

	return host_open(h, &o);
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->liar = honest_target();
	r->honest = honest_target();
	*state = r;
	return open_at(&r->bystander, r->honest, true, 0);
}

static int teardown(void **state)
{
	struct rig *r = *state;

	host_close(&r->bystander);
	target_free(r->liar);
	target_free(r->honest);
	free(r);
	return 0;
}

static void passes(struct host *h, struct target *t)
{
	int rc = host_scenario(h);
	char words[256];

	target_violations(t, words, sizeof(words));
	if (rc || words[0])
		fail_msg("honest target: %d, %s, %s", rc, host_words(h), words);
}

/* At the liar, once: what host_open or the scenario said. */
static int once(struct rig *r, bool digests, uint64_t timeout_ms, char words[512])
{
	struct host h;
	int rc = open_at(&h, r->liar, digests, timeout_ms);

	if (!rc)
		rc = host_scenario(&h);
	snprintf(words, 512, "%s", host_words(&h));
	host_close(&h);
	return rc;
}

static void one(struct rig *r, const struct lie *l, bool digests)
{
	const char *name = target_fault_to_str(l->rule.fault);
	unsigned fds = open_fds();
	uint64_t hits = target_fault_hits(r->liar, l->rule.fault);
	char words[512];
	bool timed;
	int rc;

	assert_int_equal(target_fault_on(r->liar, &l->rule), 0);
	timed = l->words && (strstr(l->words, TIME) || strstr(l->words, "answer ICReq") ||
	                     strstr(l->words, "in time"));
	rc = once(r, digests, timed ? (getenv("ROS2_EMULATED") ? 2000 : 300) : 0, words);
	target_faults_off(r->liar);
	if (getenv("ROS2_SHOW_FAULTS"))
		printf("# %s%s: %d %s\n", name, digests ? ", digests" : "", rc, words);
	if (target_fault_hits(r->liar, l->rule.fault) == hits)
		fail_msg("%s: was never let loose", name);
	if (!l->words && (rc != l->rc || words[0]))
		fail_msg("%s: expected %d and a queue that lives, found %d: %s", name, l->rc, rc,
		         words);
	if (l->words &&
	    (!rc || rc == -ETIME || rc == -EALREADY || rc == -EILSEQ || !strstr(words, l->words)))
		fail_msg("%s: expected \"%s\", found %d: \"%s\"", name, l->words, rc, words);
	/* The liar's thread may still have to see the end of the connections. */
	target_drop(r->liar, -1);
	AWAIT(open_fds() == fds);
	assert_int_equal(open_fds(), fds);
}

static void lies(struct rig *r, const struct lie *l, size_t n)
{
	char words[512];

	for (size_t i = 0; i < n; i++)
		for (int digests = 0; digests < 2; digests++) {
			if (!(l[i].digests & (digests ? DIGESTS : PLAIN)))
				continue;
			one(r, &l[i], digests);
			passes(&r->bystander, r->honest);
		}
	/* Control: it was the lies. */
	for (int digests = 0; digests < 2; digests++)
		if (once(r, digests, 0, words))
			fail_msg("the target is honest again: %s", words);
}

#define IO .qid = 1 + 1

#define DIES(when, said, f, ...)                                                                   \
	{                                                                                          \
		.rule = {.fault = FAULT_##f, .times = 1, ##__VA_ARGS__}, .digests = when,          \
		.words = said                                                                      \
	}
#define LIVES(when, result, f, ...)                                                                \
	{                                                                                          \
		.rule = {.fault = FAULT_##f, .times = 1, ##__VA_ARGS__}, .digests = when,          \
		.rc = result                                                                       \
	}

static void nvmf_hostile__answers_that_no_command_waits_for(void **state)
{
	static const struct lie rows[] = {
		DIES(BOTH, "expected the id of a command in flight", CQE_WRONG_ID, IO),
		DIES(BOTH, "expected the id of a command", CQE_WRONG_ID, IO, .skip = 20,
	             .arg = 0x20),
		DIES(BOTH, "expected the id of a command in flight", CQE_WRONG_ID, .arg = 0xffff),
		DIES(BOTH, "names none, or one that was answered", CQE_TWICE, IO,
	             .opcode = OP_READ),
		DIES(BOTH, "expected the id of a command", CQE_FREE_ID, IO, .opcode = OP_WRITE),
		DIES(BOTH, TIME, CQE_NEVER, IO, .opcode = OP_READ),
		DIES(BOTH, TIME, CQE_NEVER, IO, .opcode = OP_WRITE, .skip = 20),
		DIES(BOTH, TIME, CQE_NEVER, IO, .opcode = OP_FLUSH),
		LIVES(BOTH, -EREMOTE, CQE_WRONG_STATUS, IO, .opcode = OP_WRITE, .arg = 0x4006),
		LIVES(BOTH, -EREMOTE, CQE_WRONG_STATUS, IO, .opcode = OP_FLUSH, .arg = 0x7fff),
		LIVES(BOTH, 0, CQE_RESULT, IO, .opcode = OP_WRITE, .arg = UINT64_MAX),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile__data_that_is_not_what_was_asked_for(void **state)
{
	static const struct lie rows[] = {
		DIES(BOTH, "target sent success", DATA_SHORT, IO),
		DIES(BOTH, "target sent success", DATA_SHORT, IO, .arg = 512),
		DIES(BOTH, "C2HData", DATA_LONG, IO),
		DIES(BOTH, "C2HData", DATA_LONG, IO, .skip = 16, .arg = 65536),
		DIES(BOTH, "expected offset 0", DATA_BEYOND, IO),
		DIES(BOTH, "expected offset 0", DATA_BEYOND, IO, .arg = 4),
		DIES(BOTH, "C2HData", DATA_BEYOND, IO, .arg = 0xfffff000),
		DIES(BOTH, "C2HData", DATA_OVERFLOW, IO, .skip = 16),
		DIES(BOTH, "expected a command that reads", DATA_FOR_WRITE, IO, .opcode = OP_WRITE),
		DIES(BOTH, "a command that reads", DATA_FOR_WRITE, IO, .opcode = OP_WRITE,
	             .skip = 20),
		DIES(BOTH, "expected a command that reads", DATA_FOR_WRITE, IO, .opcode = OP_FLUSH),
		DIES(BOTH, "expected the id of a command in flight", DATA_WRONG_ID, IO,
	             .arg = 0x8000),
		/* The id of a read that the target has not seen yet: then the first has no data. */
		DIES(BOTH, "target sent", DATA_WRONG_ID, IO),
		DIES(BOTH, "expected offset 0", DATA_ORDER, IO, .skip = 16),
		DIES(BOTH, "C2HData", DATA_TWICE, IO),
		DIES(BOTH, "C2HData", DATA_TWICE, IO, .skip = 16),
		DIES(BOTH, "C2HData", DATA_ZERO, IO),
		DIES(BOTH, "expected LAST_PDU with the last byte", DATA_NO_LAST, IO),
		DIES(BOTH, "target sent C2HData", DATA_LAST_EARLY, IO, .skip = 16),
		DIES(BOTH, "SUCCESS", DATA_SUCCESS_EARLY, IO, .skip = 16),
		DIES(BOTH, "target sent success", DATA_LATE, IO),
		DIES(BOTH, "target sent success", DATA_NONE, IO),
		DIES(BOTH, TIME, ABORT_LATE, IO, .opcode = OP_READ),
		DIES(DIGESTS, "data digest", PDU_DDGST, IO),
		DIES(DIGESTS, "data digest", PDU_DDGST, IO, .skip = 20),
		DIES(DIGESTS, "data digest", PDU_BIT, IO),
		/* Control of the digest: without, the host alone sees it. */
		LIVES(PLAIN, -EILSEQ, PDU_BIT, IO),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile__requests_for_data_that_is_not_there(void **state)
{
	static const struct lie rows[] = {
		DIES(BOTH, "R2T", R2T_BEYOND, IO, .skip = 3),
		DIES(BOTH, "R2T", R2T_BEYOND, IO, .arg = 0x7fffffff),
		DIES(BOTH, "R2T", R2T_OVERFLOW, IO),
		DIES(BOTH, "expected offset 32768", R2T_OVERLAP, IO),
		DIES(BOTH, "R2T", R2T_TWICE, IO),
		DIES(BOTH, "expected one at a time", R2T_FLOOD, IO),
		DIES(BOTH, "expected a command that writes", R2T_FOR_READ, IO, .opcode = OP_READ),
		DIES(BOTH, "expected a command that writes", R2T_FOR_READ, IO, .opcode = OP_FLUSH),
		DIES(BOTH, "data was not in its capsule", R2T_IN_CAPSULE, IO),
		DIES(BOTH, "R2T", R2T_ZERO, IO),
		DIES(BOTH, "expected the id of a command in flight", R2T_WRONG_ID, IO),
		DIES(BOTH, TIME, R2T_NEVER, IO),
		DIES(BOTH, "target sent", R2T_EARLY_CQE, IO),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile__headers_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		DIES(DIGESTS, "header digest", PDU_HDGST, IO),
		DIES(DIGESTS, "header digest", PDU_HDGST, IO, .pdu = PDU_DATA),
		DIES(DIGESTS, "header digest", PDU_HDGST, IO, .pdu = PDU_R2T),
		DIES(DIGESTS, "flags", PDU_NO_HDGST, IO),
		DIES(PLAIN, "flags", PDU_HDGST_UNASKED, IO),
		DIES(BOTH, "PLEN", PDU_PLEN_HUGE, IO, .pdu = PDU_RESP),
		DIES(BOTH, "C2HData", PDU_PLEN_HUGE, IO, .pdu = PDU_DATA),
		DIES(BOTH, "PLEN", PDU_PLEN_HUGE, IO, .pdu = PDU_R2T),
		DIES(BOTH, "PLEN", PDU_PLEN_SHORT, IO, .pdu = PDU_RESP),
		DIES(BOTH, "PLEN", PDU_PLEN_SHORT, IO, .pdu = PDU_DATA),
		DIES(BOTH, "HLEN 0", PDU_HLEN, IO, .pdu = PDU_RESP),
		DIES(BOTH, "HLEN 255", PDU_HLEN, IO, .pdu = PDU_DATA, .arg = 255),
		DIES(BOTH, "PDO 4", PDU_PDO, IO, .pdu = PDU_DATA),
		DIES(BOTH, "PDO 29", PDU_PDO, IO, .pdu = PDU_DATA, .arg = 29),
		DIES(BOTH, "C2HData", PDU_PDO, IO, .pdu = PDU_DATA, .arg = 252),
		DIES(BOTH, "type 0xff", PDU_TYPE, IO),
		DIES(BOTH, "type 0x08", PDU_TYPE, IO, .arg = 8),
		DIES(BOTH, "type 0x06", PDU_TYPE, IO, .arg = 6),
		DIES(BOTH, "flags", PDU_FLAGS, IO, .pdu = PDU_RESP, .arg = 0xf0),
		DIES(PLAIN, "SUCCESS", PDU_FLAGS, IO, .pdu = PDU_DATA, .arg = 8),
		DIES(BOTH, "ICResp", PDU_ICRESP_AGAIN, IO),
		DIES(BOTH, "expected one that a target sends", PDU_COMMAND, IO),
		DIES(BOTH, "C2HTermReq", PDU_TERM, IO),
		DIES(BOTH, "C2HTermReq", PDU_TERM_GARBAGE, IO),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile__a_setup_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		DIES(BOTH, "did not answer ICReq", IC_NEVER),
		DIES(BOTH, "target sent", IC_TYPE, .arg = 4),
		DIES(BOTH, "CapsuleResp", IC_TYPE, .arg = 5),
		DIES(BOTH, "HLEN 24", IC_HLEN, .arg = 24),
		DIES(BOTH, "PLEN 0", IC_PLEN, .arg = 0),
		DIES(BOTH, "PLEN 4294967295", IC_PLEN, .arg = 0xffffffff),
		DIES(BOTH, "version", IC_PFV),
		DIES(BOTH, "data alignment 32", IC_CPDA),
		DIES(BOTH, "expected header digest", IC_DIGEST),
		DIES(BOTH, "MAXH2CDATA", IC_MAXDATA, .arg = 0),
		DIES(BOTH, "MAXH2CDATA", IC_MAXDATA, .arg = 4095),
		DIES(BOTH, "MAXH2CDATA", IC_MAXDATA, .arg = 4098),
		DIES(BOTH, "target sent", IC_GARBAGE),
		DIES(BOTH, "did not answer ICReq", IC_NEVER, .skip = 1),
		DIES(BOTH, TIME, CONNECT_NEVER),
		DIES(BOTH, TIME, CONNECT_NEVER, .skip = 1),
		LIVES(BOTH, -EREMOTE, CONNECT_STATUS, .arg = 0x4182),
		LIVES(BOTH, -EREMOTE, CONNECT_STATUS, .skip = 1, .arg = 0x7fff),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile__connections_cut_in_every_pdu(void **state)
{
	/* Header, digest, data: before, within and after each. */
	static const uint64_t at[] = {0, 1, 7, 8, 23, 24, 25, 28, 40, 100, 5000};
	struct lie l = {.rule = {.qid = 2, .times = 1}, .digests = BOTH};
	static const int pdus[] = {PDU_RESP, PDU_DATA, PDU_R2T};

	for (unsigned f = 0; f < 2; f++)
		for (unsigned p = 0; p < ARRAY_SIZE(pdus); p++)
			for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
				l.rule.fault = f ? FAULT_PDU_RESET : FAULT_PDU_CLOSE;
				l.words = "connection"; /* was lost, or was closed: unread bytes
				                           decide */
				l.rule.pdu = pdus[p];
				l.rule.skip = i;
				l.rule.arg = at[i];
				one(*state, &l, i & 1);
			}
	lies(*state, &l, 1);
}

/* Each command that is sent is the last that the target takes. */
static void nvmf_hostile__connections_cut_after_every_command(void **state)
{
	struct lie l = {.rule = {.fault = FAULT_RX_CLOSE, .times = 1},
	                .digests = BOTH,
	                .words = "connection"};

	for (l.rule.skip = 0; l.rule.skip < 90; l.rule.skip += l.rule.skip < 20 ? 1 : 7)
		one(*state, &l, l.rule.skip & 1);
	lies(*state, &l, 1);
}

static void nvmf_hostile__garbage_and_a_byte_at_a_time(void **state)
{
	static const struct lie rows[] = {
		DIES(BOTH, "target sent", PDU_GARBAGE, IO, .pdu = PDU_RESP),
		DIES(BOTH, "target sent", PDU_GARBAGE, IO, .pdu = PDU_DATA, .skip = 3),
		DIES(BOTH, "target sent", PDU_GARBAGE),
		DIES(BOTH, TIME, PDU_SLOW, IO, .arg = 50),
		DIES(BOTH, "in time", PDU_SLOW, .arg = 50),
		DIES(BOTH, TIME, PDU_SLOW, IO, .pdu = PDU_DATA, .skip = 20, .arg = 1000),
	};

	lies(*state, rows, ARRAY_SIZE(rows));
}

#define T(name) cmocka_unit_test_setup_teardown(nvmf_hostile__##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(answers_that_no_command_waits_for),
		T(data_that_is_not_what_was_asked_for),
		T(requests_for_data_that_is_not_there),
		T(headers_that_cannot_be),
		T(a_setup_that_cannot_be),
		T(connections_cut_in_every_pdu),
		T(connections_cut_after_every_command),
		T(garbage_and_a_byte_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
