/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a target, into a queue over NVMe/TCP with a real connection. The first byte of an input
 * says how: bit 0 header digest and bit 1 data digest are on; bit 2 the bytes stand in place of
 * ICResp; bit 3 they come in pieces; bit 4 reads were answered in order before, so that payloads
 * are placed ahead; bit 5 the buffers are a tenant's (without data digest). Five commands are in
 * flight, with the ids 0 to 4, with bit 4 32 to 36. Whatever comes, and then the connection's end:
 * each request comes back once, the queue has failed with words, and no byte beside the buffers of
 * the reads has changed.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/nvmf/tcp_rig.h"
#include <sys/socket.h>

#define LEN   8192u
#define GUARD 256u

static uint8_t big[LEN + 2 * GUARD], small[512 + 2 * GUARD], src[LEN];
static struct rig *rig;

static void stop(void)
{
	rig_fini(rig);
	free(rig);
}

static struct rig *fixture(void)
{
	if (rig)
		return rig;
	rig = malloc(sizeof(*rig));
	must(rig != NULL);
	rig_init(rig);
	rig->depth = 8;
	rig->in_capsule_max = 512;
	atexit(stop);
	return rig;
}

static void submit_all(struct rig *r, bool tenant)
{
	memset(big, 0x5a, sizeof(big));
	memset(small, 0x5a, sizeof(small));
	r->tenant_memory = tenant;
	must(rig_submit(r, 0, NVMF_FROM_TARGET, big + GUARD, LEN) == 0);
	must(rig_submit(r, 1, NVMF_FROM_TARGET, small + GUARD, 512) == 0);
	must(rig_submit(r, 2, NVMF_TO_TARGET, src, LEN) == 0);
	must(rig_submit(r, 3, NVMF_TO_TARGET, src, 512) == 0);
	must(rig_submit(r, 4, NVMF_NO_DATA, NULL, 0) == 0);
	r->tenant_memory = false;
	must(r->ops->kick(r->q, r->now_ns) == 0);
}

/* An even number of rounds, so that ids go up again. */
static uint32_t warm_up(struct rig *r)
{
	static struct rig_bytes out;
	static uint8_t mem[8][512];

	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < 8; i++)
			must(rig_submit(r, i, NVMF_FROM_TARGET, mem[i], 512) == 0);
		must(r->ops->kick(r->q, r->now_ns) == 0);
		out.n = 0;
		for (uint32_t i = 0; i < 8; i++) {
			uint16_t cid = rig_read_cmd(r, NULL, 0);

			rig_put_data(r, &out, cid, 0, mem[i], 512, NVME_TCP_LAST_PDU);
			rig_put_resp(r, &out, cid, 0);
		}
		rig_send(r, out.b, out.n, 0);
		rig_until_done(r, 8 * (round + 1));
	}
	r->n_done = 0;
	return 32;
}

static void guards_are_whole(void)
{
	for (uint32_t i = 0; i < GUARD; i++) {
		must(big[i] == 0x5a && big[GUARD + LEN + i] == 0x5a);
		must(small[i] == 0x5a && small[GUARD + 512 + i] == 0x5a);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rig *r = fixture();
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvmf_queue_counters c;
	uint32_t n = 0, warm = 0;

	if (size < 1 || size > 65536)
		return 0;
	r->header_digest = data[0] & 1;
	r->data_digest = data[0] & 2;
	must(rig_open(r, &err) == 0);
	rig_accept(r);
	rig_take_icreq(r);
	if (!(data[0] & 4)) {
		rig_send_icresp(r);
		rig_until_state(r, NVMF_QUEUE_READY);
		warm = data[0] & 16 ? warm_up(r) : 0;
		submit_all(r, (data[0] & 34) == 32);
		n = 5;
	}
	rig_send(r, data + 1, size - 1, data[0] & 8 ? 19 : 0);
	shutdown(r->peer, SHUT_WR);
	rig_until_state(r, NVMF_QUEUE_FAILED);
	must(r->ops->fault(r->q)[0]);
	must(r->n_done == n && r->ops->in_flight(r->q) == 0);
	r->ops->counters(r->q, &c);
	must(c.answered + c.unknown == n + warm && c.cancelled == 0);
	must(c.bytes_in <= LEN + 512 + warm * 512 && c.bytes_out <= LEN + 512);
	guards_are_whole();
	rig_close(r);
	return 0;
}
