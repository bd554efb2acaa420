/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over TCP against Linux nvmet-tcp (tests/nvmf/guest_tcp): bytes are equal with the block
 * device, with and without digests, with a response for each read or with the SUCCESS flag; a queue
 * that is ended in the middle of its work leaves a target that takes the next one.
 */
#include "tests/nvmf/host.h"
#include "tests/testing.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/nvmf/codec.h"

#define OFFSET (8u << 20) /* beside what the scenario writes */

static struct host host;
static int disk;

static struct host_opts opts(bool digests, uint8_t cattr)
{
	return (struct host_opts){.port = (uint16_t)atoi(getenv("NVMET_PORT")),
	                          .nqn = getenv("NVMET_NQN"),
	                          .host_nqn = "nqn.2024-01.test:host",
	                          .digests = digests,
	                          .cattr = cattr,
	                          .timeout_ms = 20000};
}

static void open_host(bool digests, uint8_t cattr)
{
	struct host_opts o = opts(digests, cattr);
	int rc = host_open(&host, &o);

	if (rc)
		fail_msg("host_open: %d, %s", rc, host_words(&host));
}

static int setup(void **state)
{
	disk = open(getenv("NVMET_DISK"), O_RDWR | O_DIRECT | O_CLOEXEC);
	return disk < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	close(disk);
	return 0;
}

static void fill(uint8_t *mem, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		mem[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8) + (i >> 16) + 1);
}

static void command(bool write, uint8_t *mem, uint32_t len)
{
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	int rc;

	if (write)
		nvme_cmd_write(&sqe, 1, OFFSET / 512, len / 512, false);
	else
		nvme_cmd_read(&sqe, 1, OFFSET / 512, len / 512);
	rc = host_run(&host, host.io, &sqe, write ? NVMF_TO_TARGET : NVMF_FROM_TARGET, mem, len,
	              &cqe);
	if (rc)
		fail_msg("%u bytes: %d, %s", len, rc, host_words(&host));
	assert_int_equal(cqe.status >> 1, 0);
}

/* Written here, read at the device; written at the device, read here. */
static void both_ways(uint32_t len, uint32_t seed)
{
	static uint8_t mem[HOST_LEN] __attribute__((aligned(4096)));
	static uint8_t other[HOST_LEN] __attribute__((aligned(4096)));

	fill(mem, seed, len);
	command(true, mem, len);
	assert_int_equal(pread(disk, other, len, OFFSET), len);
	assert_memory_equal(mem, other, len);
	fill(other, seed + 1, len);
	assert_int_equal(pwrite(disk, other, len, OFFSET), len);
	command(false, mem, len);
	assert_memory_equal(mem, other, len);
}

static struct nvmf_queue_counters everything(bool digests, bool tenant_memory, uint8_t cattr)
{
	static const uint32_t sizes[] = {512, 4096, 8192, 16384, 20480, 65536, HOST_LEN};
	struct nvmf_queue_counters c;

	open_host(digests, cattr);
	host.tenant_memory = tenant_memory;
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
		both_ways(sizes[i], i * 3);
	for (int i = 0; i < 4; i++) {
		int rc = host_scenario(&host);

		if (rc)
			fail_msg("scenario: %d, %s", rc, host_words(&host));
	}
	nvmf_tcp_queue_ops.counters(host.io, &c);
	printf("# in capsules up to %u; of %llu bytes read %llu were copied; %llu sends for %llu "
	       "commands\n",
	       host.in_capsule, (unsigned long long)c.bytes_in, (unsigned long long)c.copied_bytes,
	       (unsigned long long)c.calls, (unsigned long long)c.answered);
	assert_int_equal(c.unknown + c.cancelled, 0);
	assert_true(c.copied_bytes < c.bytes_in / 2);
	host_close(&host);
	return c;
}

static void nvmet_tcp__keeps_and_gives_what_is_on_the_disk(void **state)
{
	everything(false, false, 0);
}

static void nvmet_tcp__with_digests(void **state)
{
	everything(true, false, 0);
}

static void nvmet_tcp__without_sq_flow_control_ends_reads_with_their_data(void **state)
{
	everything(false, false, NVME_CONNECT_NO_SQ_FLOW);
}

static void nvmet_tcp__with_digests_without_sq_flow_control(void **state)
{
	everything(true, false, NVME_CONNECT_NO_SQ_FLOW);
}

/* Of some reads the first bytes come with a header, where the target answers in another order. */
static void nvmet_tcp__and_memory_of_a_tenant_without_a_copy(void **state)
{
	static const uint8_t cattrs[] = {0, NVME_CONNECT_NO_SQ_FLOW};
	struct nvmf_queue_counters c;

	for (uint32_t i = 0; i < ARRAY_SIZE(cattrs); i++) {
		c = everything(false, true, cattrs[i]);
		assert_true(c.bytes_in > 0 && c.copied_bytes <= c.bytes_in / 1000);
	}
}

static void ignore(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	((struct host_req *)req)->done++;
	((struct host_req *)req)->rc = rc;
}

/* Many commands in flight, some with their data half sent. */
static void nvmet_tcp__takes_the_next_queue_after_one_was_killed(void **state)
{
	const struct nvmf_queue_ops *ops = &nvmf_tcp_queue_ops;

	for (int round = 0; round < 8; round++) {
		uint64_t now = clock_boottime_ns();

		open_host(round & 1, 0);
		for (uint32_t i = 0; i < HOST_DEPTH; i++) {
			struct nvmf_req *req = &host.reqs[i].req;

			host.reqs[i] = (struct host_req){.host = &host};
			*req = (struct nvmf_req){.dir = i & 1 ? NVMF_TO_TARGET : NVMF_FROM_TARGET,
			                         .buf = host.buf + i * (size_t)HOST_LEN,
			                         .len = HOST_LEN,
			                         .done = ignore};
			if (i & 1)
				nvme_cmd_write(&req->sqe, 1, i * (HOST_LEN / 512), HOST_LEN / 512,
				               false);
			else
				nvme_cmd_read(&req->sqe, 1, i * (HOST_LEN / 512), HOST_LEN / 512);
			assert_int_equal(ops->submit(host.io, req), 0);
		}
		assert_int_equal(ops->kick(host.io, now), 0);
		for (int i = 0; i < round * 3; i++)
			ops->poll(host.io, 4, now);
		ops->kill(host.io, "killed by the test");
		for (uint32_t i = 0; i < HOST_DEPTH; i++)
			assert_int_equal(host.reqs[i].done, 1);
		host_close(&host);
	}
	open_host(false, 0);
	assert_int_equal(host_scenario(&host), 0);
	host_close(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmet_tcp__keeps_and_gives_what_is_on_the_disk),
		cmocka_unit_test(nvmet_tcp__with_digests),
		cmocka_unit_test(nvmet_tcp__without_sq_flow_control_ends_reads_with_their_data),
		cmocka_unit_test(nvmet_tcp__with_digests_without_sq_flow_control),
		cmocka_unit_test(nvmet_tcp__and_memory_of_a_tenant_without_a_copy),
		cmocka_unit_test(nvmet_tcp__takes_the_next_queue_after_one_was_killed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
