/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP beside a target that lies: each lie is a row, told whole and byte by
 * byte, with and without digests. The queue names it, tells the target, gives back every request
 * once, as unknown, and ends with a reset; no byte outside a request's buffer is touched.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <sys/socket.h>

#define LEN   65536u
#define GUARD 64u

static uint8_t buf[LEN + 2 * GUARD], src[LEN], data[LEN * 2], sink[LEN * 2];
static struct rig_bytes out;

/* In flight: a read and a write of LEN, a write in its capsule, a command without data. */
static uint16_t rd, wr, in_capsule, plain;

static void get_ready(struct rig *r)
{
	rig_ready(r);
	memset(buf, 0x5a, sizeof(buf));
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf + GUARD, LEN), 0);
	assert_int_equal(rig_submit(r, 1, NVMF_TO_TARGET, src, LEN), 0);
	assert_int_equal(rig_submit(r, 2, NVMF_TO_TARGET, src, 4096), 0);
	assert_int_equal(rig_submit(r, 3, NVMF_NO_DATA, NULL, 0), 0);
	rig_kick(r);
	rd = rig_read_cmd(r, NULL, 0);
	wr = rig_read_cmd(r, NULL, 0);
	in_capsule = rig_read_cmd(r, sink, sizeof(sink));
	plain = rig_read_cmd(r, NULL, 0);
	out.n = 0;
}

static void guards_are_whole(void)
{
	for (uint32_t i = 0; i < GUARD; i++) {
		assert_int_equal(buf[i], 0x5a);
		assert_int_equal(buf[GUARD + LEN + i], 0x5a);
	}
}

/* ---- lies ---- */

#define LAST   NVME_TCP_LAST_PDU
#define FINISH (NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS)

static void cqe(struct rig *r, struct nvme_cqe c)
{
	out.n += pdu_build_capsule_resp(out.b + out.n, &c, &r->from_peer);
}

static void resp_other_generation(struct rig *r)
{
	rig_put_resp(r, &out, plain ^ 0x8000, 0);
}
static void resp_beyond(struct rig *r)
{
	rig_put_resp(r, &out, 31, 0);
}
static void resp_twice(struct rig *r)
{
	rig_put_resp(r, &out, plain, 0);
	rig_put_resp(r, &out, plain, 0);
}
static void resp_all_ones(struct rig *r)
{
	rig_put_resp(r, &out, 0xffff, 0);
}
static void resp_no_data(struct rig *r)
{
	rig_put_resp(r, &out, rd, 0);
}
static void resp_not_asked(struct rig *r)
{
	rig_put_resp(r, &out, wr, 0);
}
static void resp_half_asked(struct rig *r)
{
	struct rig_bytes *o = &out;

	rig_put_r2t(r, o, wr, 1, 0, LEN / 2);
	rig_send(r, o->b, o->n, 0);
	assert_int_equal(rig_read_pdu(r, sink, sizeof(sink)).data.length, LEN / 2);
	o->n = 0;
	rig_put_resp(r, o, wr, 0);
}
static void resp_before_its_data(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0, LEN);
	rig_put_resp(r, &out, wr, NVME_SC_INTERNAL);
}
static void sq_head_beyond(struct rig *r)
{
	cqe(r, (struct nvme_cqe){.cid = plain, .sq_head = (uint16_t)(r->depth + 1)});
}
static void sqid_foreign(struct rig *r)
{
	cqe(r, (struct nvme_cqe){.cid = plain, .sqid = 5});
}
static void data_for_write(struct rig *r)
{
	rig_put_data(r, &out, wr, 0, data, 512, LAST);
}
static void data_for_none(struct rig *r)
{
	rig_put_data(r, &out, rd ^ 0x4000, 0, data, 512, LAST);
}
static void data_beyond(struct rig *r)
{
	rig_put_data(r, &out, rd, LEN, data, 512, LAST);
}
static void data_long(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN + 4, LAST);
}
static void data_long_in_two(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN - 512, 0);
	rig_put_data(r, &out, rd, LEN - 512, data, 516, LAST);
}
static void data_twice(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN / 2, 0);
	rig_put_data(r, &out, rd, 0, data, LEN / 2, 0);
}
static void data_gap(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, 512, 0);
	rig_put_data(r, &out, rd, 1024, data, 512, 0);
}
static void data_order(struct rig *r)
{
	rig_put_data(r, &out, rd, LEN / 2, data, LEN / 2, LAST);
}
static void data_after_last(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, 512, LAST);
	rig_put_data(r, &out, rd, 512, data, 512, 0);
}
static void data_after_answer(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN, LAST);
	rig_put_resp(r, &out, rd, 0);
	rig_put_data(r, &out, rd, 0, data, 512, LAST);
}
static void data_after_success(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN, FINISH);
	rig_put_resp(r, &out, rd, 0);
}
static void data_no_last(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN, 0);
}
static void data_success_early(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN / 2, FINISH);
}
static void data_last_early(struct rig *r)
{
	rig_put_data(r, &out, rd, 0, data, LEN / 2, LAST);
	rig_put_resp(r, &out, rd, 0);
}
static void data_offset_wraps(struct rig *r)
{
	rig_put_data(r, &out, rd, 0xfffffe00, data, 1024, LAST);
}
static void r2t_for_read(struct rig *r)
{
	rig_put_r2t(r, &out, rd, 1, 0, 512);
}
static void r2t_for_none(struct rig *r)
{
	rig_put_r2t(r, &out, wr ^ 0x4000, 1, 0, 512);
}
static void r2t_plain(struct rig *r)
{
	rig_put_r2t(r, &out, plain, 1, 0, 512);
}
static void r2t_in_capsule(struct rig *r)
{
	rig_put_r2t(r, &out, in_capsule, 1, 0, 4096);
}
static void r2t_long(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0, LEN + 4);
}
static void r2t_beyond(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, LEN, 512);
}
static void r2t_wraps(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0xfffffe00, 0x400);
}
static void r2t_empty(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0, 0);
}
static void r2t_twice(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0, LEN / 2);
	rig_put_r2t(r, &out, wr, 2, LEN / 2, LEN / 2);
}
static void r2t_again(struct rig *r)
{
	rig_put_r2t(r, &out, wr, 1, 0, 4096);
	rig_send(r, out.b, out.n, 0);
	rig_read_pdu(r, sink, sizeof(sink));
	out.n = 0;
	rig_put_r2t(r, &out, wr, 2, 0, 4096);
}

struct lie {
	const char *name;
	void (*put)(struct rig *r);
	const char *words;
	uint16_t fes;
	int answered; /* requests that were answered before */
};
#define ROW(f, w, ...)                                                                             \
	{                                                                                          \
		.name = #f, .put = f, .words = w, __VA_ARGS__                                      \
	}
static const struct lie lies[] = {
	ROW(resp_other_generation, "CapsuleResp: expected the id of a command in flight",
            .fes = NVME_TCP_FES_HEADER),
	ROW(resp_beyond, "found 31, which names none", .fes = NVME_TCP_FES_HEADER),
	ROW(resp_all_ones, "found 65535, which", .fes = NVME_TCP_FES_HEADER),
	ROW(resp_twice, "or one that was answered", .fes = NVME_TCP_FES_HEADER, .answered = 1),
	ROW(resp_no_data, "expected 65536 bytes sent before, found 0",
            .fes = NVME_TCP_FES_SEQUENCE),
	ROW(resp_not_asked, "expected 65536 bytes asked for before, found 0",
            .fes = NVME_TCP_FES_SEQUENCE),
	ROW(resp_half_asked, "expected 65536 bytes asked for before, found 32768",
            .fes = NVME_TCP_FES_SEQUENCE),
	ROW(sq_head_beyond, "expected an SQ head of 0..32, found 33", .fes = NVME_TCP_FES_HEADER),
	ROW(sqid_foreign, "expected SQ id 0 or 1, found 5", .fes = NVME_TCP_FES_HEADER),
	ROW(data_for_write, "expected a command that reads", .fes = NVME_TCP_FES_SEQUENCE),
	ROW(data_for_none, "C2HData: expected the id of a command in flight",
            .fes = NVME_TCP_FES_HEADER),
	ROW(data_beyond, "expected offset 0 and at most 65536 bytes, found offset 65536",
            .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_long, "at most 65536 bytes, found offset 0 and 65540",
            .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_long_in_two, "expected offset 65024 and at most 512",
            .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_twice, "expected offset 32768", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_gap, "expected offset 512", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_order, "expected offset 0", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_after_last, "at most 0 bytes after LAST_PDU", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(data_after_answer, "C2HData: expected the id", .fes = NVME_TCP_FES_HEADER,
            .answered = 1),
	ROW(data_after_success, "CapsuleResp: expected the id", .fes = NVME_TCP_FES_HEADER,
            .answered = 1),
	ROW(data_no_last, "expected LAST_PDU with the last byte", .fes = NVME_TCP_FES_HEADER),
	ROW(data_success_early, "SUCCESS only with it", .fes = NVME_TCP_FES_HEADER),
	ROW(data_last_early, "expected 65536 bytes sent before, found 32768",
            .fes = NVME_TCP_FES_SEQUENCE),
	ROW(data_offset_wraps, "C2HData for 1024 bytes at 4294966784", .fes = NVME_TCP_FES_HEADER),
	ROW(r2t_for_read, "expected a command that writes", .fes = NVME_TCP_FES_SEQUENCE),
	ROW(r2t_for_none, "R2T: expected the id of a command", .fes = NVME_TCP_FES_HEADER),
	ROW(r2t_plain, "expected a command that writes", .fes = NVME_TCP_FES_SEQUENCE),
	ROW(r2t_in_capsule, "whose data was not in its capsule", .fes = NVME_TCP_FES_SEQUENCE),
	ROW(r2t_long, "expected offset 0 and at most 65536", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(r2t_beyond, "found offset 65536 and 512", .fes = NVME_TCP_FES_OUT_OF_RANGE),
	ROW(r2t_wraps, "R2T for 1024 bytes at 4294966784", .fes = NVME_TCP_FES_HEADER),
	ROW(r2t_empty, "R2T for 0 bytes", .fes = NVME_TCP_FES_HEADER),
	ROW(r2t_again, "expected offset 4096", .fes = NVME_TCP_FES_OUT_OF_RANGE),
};

static void tell(struct rig *r, const struct lie *l, size_t piece)
{
	uint16_t fes;

	get_ready(r);
	l->put(r);
	rig_send(r, out.b, out.n, piece);
	rig_expect_fault(r, l->words, &fes);
	if (fes != l->fes)
		fail_msg("%s: TermReq with %u, expected %u", l->name, fes, l->fes);
	assert_int_equal(rig_counters(r).answered, l->answered);
	assert_int_equal(rig_counters(r).unknown, 4 - l->answered);
	guards_are_whole();
	rig_close(r);
}

static void tell_all(struct rig *r, size_t piece)
{
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		tell(r, &lies[i], piece);
}

static void lies__of_every_kind_are_named(void **state)
{
	tell_all(*state, 0);
}

static void lies__under_digests_are_named(void **state)
{
	struct rig *r = *state;

	r->header_digest = r->data_digest = true;
	tell_all(r, 0);
}

static void lies__in_small_pieces_are_named(void **state)
{
	tell_all(*state, 1009);
}

/* What is wrong only because both came before the queue could send anything between them. */
static void lies__of_two_pdus_at_once_are_named(void **state)
{
	static const struct lie both[] = {
		ROW(r2t_twice, "expected one at a time, found a second", .fes = NVME_TCP_FES_LIMIT),
		ROW(resp_before_its_data, "found 65536 bytes of its R2T not sent",
	            .fes = NVME_TCP_FES_SEQUENCE),
	};

	for (size_t i = 0; i < ARRAY_SIZE(both); i++)
		tell(*state, &both[i], 0);
}

/* ---- bytes that are no PDU of a target ---- */

struct raw {
	const char *words;
	size_t at;
	uint8_t bytes[4];
	uint32_t n;
};

/* A C2HData PDU with some bytes changed. */
static void headers__that_are_not_sound_are_named(void **state)
{
	static const struct raw rows[] = {
		{"PDU type 0x42", 0, {0x42}, 1},
		{"PDU type 0x06 (H2CData): expected one that a target sends", 0, {6}, 1},
		{"PDU type 0x00 (ICReq)", 0, {0}, 1},
		{"ICResp: expected it only as the first PDU", 0, {1}, 1},
		{"flags 0x01", 1, {0x01}, 1},
		{"flags 0xff", 1, {0xff}, 1},
		{"SUCCESS", 1, {8}, 1},
		{"HLEN 0", 2, {0}, 1},
		{"HLEN 255", 2, {255}, 1},
		{"PDO 0", 3, {0}, 1},
		{"PDO 20", 3, {20}, 1},
		{"PDO 26", 3, {26}, 1},
		{"PLEN 0", 4, {0, 0, 0, 0}, 4},
		{"PLEN 24", 4, {24, 0, 0, 0}, 4},
		{"bytes of data: expected at most 1048576", 4, {0xff, 0xff, 0xff, 0xff}, 4},
		{"bytes of data: expected at most 1048576", 4, {0x19, 0, 0x10, 0}, 4},
		{"DATAL 513", 16, {1, 2, 0, 0}, 4},
	};
	struct rig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		get_ready(r);
		rig_put_data(r, &out, rd, 0, data, 512, 0);
		memcpy(out.b + rows[i].at, rows[i].bytes, rows[i].n);
		rig_send(r, out.b, out.n, i & 1);
		rig_expect_fault(r, rows[i].words, NULL);
		assert_int_equal(rig_counters(r).unknown, 4);
		guards_are_whole();
		rig_close(r);
	}
}

static void digest__that_is_wrong_ends_the_queue(void **state)
{
	struct rig *r = *state;

	r->header_digest = r->data_digest = true;
	for (size_t at = 0; at < 24 + 4 + 512 + 4; at += 13) {
		uint16_t fes;

		get_ready(r);
		rig_put_data(r, &out, rd, 0, data, 512, 0);
		assert_int_equal(out.n, 24 + 4 + 512 + 4);
		if (at < 8 || (at >= 16 && at < 20)) /* told before the digest is looked at */
			at += 8;
		out.b[at] ^= 1;
		rig_send(r, out.b, out.n, at & 1);
		rig_expect_fault(r, at < 28 ? "header digest" : "data digest", &fes);
		assert_int_equal(fes, at < 28 ? NVME_TCP_FES_HEADER_DIGEST : 0);
		rig_close(r);
	}
}

static void term__of_the_target_is_told(void **state)
{
	struct rig *r = *state;
	struct pdu_fault f = {NVME_TCP_FES_LIMIT, 17};
	uint16_t fes;

	get_ready(r);
	out.n = pdu_build_term(out.b, PDU_FROM_TARGET, &f, data, 72);
	rig_send(r, out.b, out.n, 0);
	rig_expect_fault(r, "C2HTermReq", &fes);
	assert_int_equal(fes, 0);
	assert_non_null(strstr(r->ops->fault(r->q), "(5)"));
	assert_non_null(strstr(r->ops->fault(r->q), "17"));
}

/* ---- ICResp ---- */

static void open_for_icresp(struct rig *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	rig_take_icreq(r);
}

static void icresp__that_is_not_sound_is_named(void **state)
{
	static const struct raw rows[] = {
		{"format version 1", 8, {1}, 1},
		{"data alignment 32", 10, {32}, 1},
		{"found on and off", 11, {1}, 1},
		{"found off and on", 11, {2}, 1},
		{"MAXH2CDATA 4095", 12, {0xff, 0x0f, 0, 0}, 4},
		{"MAXH2CDATA 0", 12, {0, 0, 0, 0}, 4},
		{"PLEN 2147483776", 4, {128, 0, 0, 0x80}, 4},
		{"HLEN 24", 2, {24}, 1},
		{"CapsuleResp as the first PDU", 0, {5}, 1},
		{"PDU type 0x00 (ICReq)", 0, {0}, 1},
		{"PDU type 0x48", 0, {'H', 'T', 'T', 'P'}, 4},
	};
	struct rig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		open_for_icresp(r);
		out.n = pdu_build_icresp(out.b, 4, 4096, false, false);
		memcpy(out.b + rows[i].at, rows[i].bytes, rows[i].n);
		rig_send(r, out.b, out.n, i & 1);
		rig_expect_fault(r, rows[i].words, NULL);
		rig_close(r);
	}
}

static void icresp__without_the_digests_asked_for_is_refused(void **state)
{
	struct rig *r = *state;

	r->header_digest = r->data_digest = true;
	open_for_icresp(r);
	out.n = pdu_build_icresp(out.b, 4, 4096, false, true);
	rig_send(r, out.b, out.n, 0);
	rig_expect_fault(r, "expected header digest on and data digest on, found off and on", NULL);
}

static void icresp__with_more_behind_it_is_refused(void **state)
{
	struct rig *r = *state;

	open_for_icresp(r);
	out.n = pdu_build_icresp(out.b, 4, 4096, false, false);
	rig_put_resp(r, &out, 0, 0);
	rig_send(r, out.b, out.n, 0);
	rig_expect_fault(r, "expected the id of a command in flight, found 0", NULL);
}

static void icresp__never_whole_gives_nothing_back_to_wait_for(void **state)
{
	struct rig *r = *state;

	out.n = pdu_build_icresp(out.b, 4, 4096, false, false);
	for (size_t cut = 0; cut < out.n; cut++) {
		open_for_icresp(r);
		rig_send(r, out.b, cut, 0);
		assert_int_equal(shutdown(r->peer, SHUT_WR), 0);
		rig_expect_fault(r, "the target closed the connection before ICResp", NULL);
		rig_close(r);
	}
}

/* ---- the connection ends at every byte ---- */

static void honest(struct rig *r)
{
	rig_put_resp(r, &out, plain, 0);
	rig_put_data(r, &out, rd, 0, data, 100, 0);
	rig_put_data(r, &out, rd, 100, data, 60, 0);
	rig_put_resp(r, &out, in_capsule, 0);
	rig_put_r2t(r, &out, wr, 7, 0, 8192);
}

static void connection__closed_at_every_byte_gives_everything_back_once(void **state)
{
	struct rig *r = *state;
	size_t n;

	r->header_digest = r->data_digest = true;
	get_ready(r);
	honest(r);
	n = out.n;
	rig_close(r);
	for (size_t cut = 0; cut <= n; cut++) {
		get_ready(r);
		honest(r);
		assert_int_equal(send(r->peer, out.b, cut, 0), (ssize_t)cut);
		assert_int_equal(shutdown(r->peer, SHUT_WR), 0);
		rig_expect_fault(r, "the target closed the connection", NULL);
		assert_int_equal(rig_counters(r).answered + rig_counters(r).unknown, 4);
		guards_are_whole();
		rig_close(r);
	}
}

static void connection__reset_is_told(void **state)
{
	struct linger l = {.l_onoff = 1};
	struct rig *r = *state;

	get_ready(r);
	setsockopt(r->peer, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(TAKE_FD(r->peer));
	rig_until_state(r, NVMF_QUEUE_FAILED);
	assert_non_null(strstr(r->ops->fault(r->q), "the connection was lost"));
	assert_int_equal(r->n_done, 4);
}

/* ---- noise: honest bytes with a few of them changed ---- */

static void noise__is_answered_or_named_and_touches_nothing_else(void **state)
{
	struct rig *r = *state;
	uint32_t seed = 1;

	for (int round = 0; round < 400; round++) {
		r->header_digest = r->data_digest = round & 1;
		get_ready(r);
		honest(r);
		for (int k = 0; k < 3; k++) {
			seed = seed * 1103515245 + 12345;
			out.b[(seed >> 8) % out.n] ^= (uint8_t)(1u << (seed >> 29));
		}
		rig_send(r, out.b, out.n, 0);
		for (int i = 0; i < 4; i++)
			rig_turn(r, 0);
		guards_are_whole();
		rig_close(r);
	}
}

/* An answer to a command that waits for room in the socket. */
static void answer__to_a_command_that_was_not_sent_is_named(void **state)
{
	struct rig *r = *state;

	r->in_capsule_max = 1u << 20;
	r->depth = 1024;
	rig_ready(r);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, src, LEN), 0);
	rig_kick(r);
	out.n = 0;
	rig_put_resp(r, &out, 999, 0); /* the thousandth place, used for the first time */
	assert_int_equal(send(r->peer, out.b, out.n, 0), (ssize_t)out.n);
	rig_until_state(r, NVMF_QUEUE_FAILED);
	assert_non_null(strstr(r->ops->fault(r->q), "found 999, which was not sent yet"));
	assert_true(rig_counters(r).cancelled > 0);
	assert_int_equal(rig_counters(r).cancelled + rig_counters(r).unknown, 1000);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(lies__of_every_kind_are_named),
		T(lies__under_digests_are_named),
		T(lies__in_small_pieces_are_named),
		T(lies__of_two_pdus_at_once_are_named),
		T(headers__that_are_not_sound_are_named),
		T(digest__that_is_wrong_ends_the_queue),
		T(term__of_the_target_is_told),
		T(icresp__that_is_not_sound_is_named),
		T(icresp__without_the_digests_asked_for_is_refused),
		T(icresp__with_more_behind_it_is_refused),
		T(icresp__never_whole_gives_nothing_back_to_wait_for),
		T(connection__closed_at_every_byte_gives_everything_back_once),
		T(connection__reset_is_told),
		T(noise__is_answered_or_named_and_touches_nothing_else),
		T(answer__to_a_command_that_was_not_sent_is_named),
	};

	rig_pattern(data, sizeof(data), 1);
	rig_pattern(src, sizeof(src), 2);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
