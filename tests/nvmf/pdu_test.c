/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pdu.h against PDUs written out by hand from NVMe/TCP 1.0, 3.6. CRC32C values in the vectors come
 * from another implementation (bitwise, in crc32c_slow below), not from the one that is used.
 */
#include "dataplane/nvmf/pdu.h"
#include "tests/nvmf/hex.h"

static const struct pdu_params plain = {.align = 4, .data_max = 1u << 20};
static const struct pdu_params digests = {
	.header_digest = true, .data_digest = true, .align = 4, .data_max = 1u << 20};

static struct ros2_err err;
static struct pdu_fault flt;
static uint8_t bytes[8192];

static uint32_t crc32c_slow(const uint8_t *p, size_t n)
{
	uint32_t crc = 0xffffffff;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void put_digest(size_t hlen)
{
	uint32_t crc = crc32c_slow(bytes, hlen);

	for (int i = 0; i < 4; i++)
		bytes[hlen + i] = (uint8_t)(crc >> 8 * i);
}

static int head(const char *hex, enum pdu_side from, bool first, const struct pdu_params *p,
                struct pdu_head *h)
{
	hex_bytes(hex, bytes, sizeof(bytes));
	err = (struct ros2_err)ROS2_ERR_INIT;
	return pdu_head_parse(bytes, from, first, p, h, &flt, &err);
}

/* Both steps; @h of the second. */
static int both(const char *hex, enum pdu_side from, bool first, const struct pdu_params *p,
                struct pdu *ret)
{
	struct pdu_head h;
	int r = head(hex, from, first, p, &h);

	return r < 0 ? r : pdu_parse(bytes, &h, ret, &flt, &err);
}

static void refused(int r, int code, unsigned fes, uint32_t fei, const char *words, int line)
{
	if (r != code || err.code != code || flt.fes != fes || flt.fei != fei ||
	    !strstr(err.msg, words))
		fail_msg("line %d: %d, fes %u, fei %u, \"%s\"", line, r, flt.fes, flt.fei, err.msg);
}
#define assert_refused(r, fes, fei, words) refused(r, -EPROTO, fes, fei, words, __LINE__)

/* 3.6.2.2, 3.6.2.3. */
static void pdu_ic__offers_and_answers_are_as_laid_out(void **state)
{
	uint8_t out[PDU_SEND_MAX];
	struct pdu p;

	assert_int_equal(pdu_build_icreq(out, 4, 1, false, false), 128);
	assert_bytes(out, 128, "00 00 80 00 80000000 0000 00 00 00000000 00*112");
	assert_int_equal(pdu_build_icreq(out, 128, 16, true, true), 128);
	assert_bytes(out, 128, "00 00 80 00 80000000 0000 1f 03 0f000000 00*112");
	assert_int_equal(pdu_build_icresp(out, 8, 0x20000, false, true), 128);
	assert_bytes(out, 128, "01 00 80 00 80000000 0000 01 02 00000200 00*112");

	assert_int_equal(both("00 00 80 00 80000000 0000 1f 01 ffffffff 00*112", PDU_FROM_HOST,
	                      true, &plain, &p),
	                 0);
	assert_int_equal(p.head.header_bytes, 128);
	assert_int_equal(p.icreq.align, 128);
	assert_true(p.icreq.r2ts_max == UINT32_MAX);
	assert_true(p.icreq.header_digest && !p.icreq.data_digest);
	assert_int_equal(both("01 00 80 00 80000000 0000 01 02 00000200 00*112", PDU_FROM_TARGET,
	                      true, &plain, &p),
	                 0);
	assert_int_equal(p.icresp.align, 8);
	assert_int_equal(p.icresp.h2c_data_max, 0x20000);
	assert_true(!p.icresp.header_digest && p.icresp.data_digest);
}

static void pdu_ic__refuses_versions_alignments_and_sizes_that_cannot_be(void **state)
{
	struct pdu p;

	assert_refused(both("01 00 80 00 80000000 0100 00 00 00100000 00*112", PDU_FROM_TARGET,
	                    true, &plain, &p),
	               NVME_TCP_FES_UNSUPPORTED, 8, "ICResp with format version 1: expected 0");
	assert_refused(both("01 00 80 00 80000000 0000 20 00 00100000 00*112", PDU_FROM_TARGET,
	                    true, &plain, &p),
	               NVME_TCP_FES_HEADER, 10, "data alignment 32");
	assert_refused(both("01 00 80 00 80000000 0000 00 00 ff0f0000 00*112", PDU_FROM_TARGET,
	                    true, &plain, &p),
	               NVME_TCP_FES_HEADER, 12, "MAXH2CDATA 4095");
	assert_refused(both("01 00 80 00 80000000 0000 00 00 02100000 00*112", PDU_FROM_TARGET,
	                    true, &plain, &p),
	               NVME_TCP_FES_HEADER, 12, "a multiple of 4");
	assert_refused(both("00 00 80 00 80000000 0000 20 00 00000000 00*112", PDU_FROM_HOST, true,
	                    &plain, &p),
	               NVME_TCP_FES_HEADER, 10, "host sent ICReq");
	assert_refused(both("01 00 80 00 81000000 00*120", PDU_FROM_TARGET, true, &plain, &p),
	               NVME_TCP_FES_HEADER, 4, "ICResp with PLEN 129: expected 128");
	assert_refused(both("01 00 18 00 18000000 00*120", PDU_FROM_TARGET, true, &plain, &p),
	               NVME_TCP_FES_HEADER, 2, "ICResp with HLEN 24: expected 128");
	assert_refused(both("01 01 80 00 80000000 00*120", PDU_FROM_TARGET, true, &plain, &p),
	               NVME_TCP_FES_HEADER, 1, "ICResp with flags 0x01: expected 0x00");
}

static void pdu_head_parse__takes_an_ic_pdu_first_and_only_first(void **state)
{
	struct pdu_head h;

	assert_refused(head("05 00 18 00 18000000", PDU_FROM_TARGET, true, &plain, &h),
	               NVME_TCP_FES_SEQUENCE, 0, "CapsuleResp as the first PDU");
	assert_refused(head("01 00 80 00 80000000", PDU_FROM_TARGET, false, &plain, &h),
	               NVME_TCP_FES_SEQUENCE, 0, "only as the first PDU");
	assert_int_equal(head("03 00 18 00 18000000", PDU_FROM_TARGET, true, &plain, &h), 0);
}

static void pdu_head_parse__takes_only_types_that_the_sender_may_send(void **state)
{
	/* 3.6.1: who sends what; all others do not exist. */
	static const uint8_t of_target[] = {1, 3, 5, 7, 9}, of_host[] = {0, 2, 4, 6};
	struct pdu_head h;

	for (unsigned type = 0; type < 256; type++) {
		bool host = memchr(of_host, (int)type, sizeof(of_host));
		bool target = memchr(of_target, (int)type, sizeof(of_target));
		char hex[64];

		snprintf(hex, sizeof(hex), "%02x 00 00 00 00000000", type);
		assert_int_equal(head(hex, PDU_FROM_TARGET, type < 2, &plain, &h), -EPROTO);
		assert_int_equal(!strstr(err.msg, "one that a target sends"), target);
		assert_int_equal(head(hex, PDU_FROM_HOST, type < 2, &plain, &h), -EPROTO);
		assert_int_equal(!strstr(err.msg, "one that a host sends"), host);
		assert_int_equal(strcmp(pdu_type_to_str(type), "unknown PDU") != 0, host || target);
	}
}

/* 3.6.2.6. */
static void pdu_capsule_cmd__is_built_and_read_with_and_without_data(void **state)
{
	const struct pdu_params far = {
		.header_digest = true, .data_digest = true, .align = 128, .data_max = 4096};
	uint8_t out[PDU_SEND_MAX];
	struct nvme_sqe sqe;
	struct pdu p;

	memset(&sqe, 0x11, sizeof(sqe));
	assert_int_equal(pdu_build_capsule_cmd(out, &sqe, 0, &plain), 72);
	assert_bytes(out, 72, "04 00 48 00 48000000 11*64");
	assert_int_equal(pdu_build_capsule_cmd(out, &sqe, 4096, &plain), 72);
	assert_bytes(out, 72, "04 00 48 48 48100000 11*64");
	assert_int_equal(pdu_build_capsule_cmd(out, &sqe, 4096, &far), 128);
	/* data at 128; 128 + 4096 + 4 = 0x1084 */
	hex_bytes("04 03 48 80 84100000 11*64", bytes, sizeof(bytes));
	put_digest(72);
	memset(bytes + 76, 0, 52);
	assert_memory_equal(out, bytes, 128);

	assert_int_equal(both("04 00 48 00 48000000 11*64", PDU_FROM_HOST, false, &plain, &p), 0);
	assert_int_equal(p.head.data_len, 0);
	assert_memory_equal(&p.sqe, &sqe, sizeof(sqe));
	assert_int_equal(both("04 00 48 50 50100000 11*64", PDU_FROM_HOST, false, &plain, &p), 0);
	assert_int_equal(p.head.pad, 8);
	assert_int_equal(p.head.data_len, 4096);
	assert_int_equal(p.head.data_digest_len, 0);
	hex_bytes("04 03 48 80 84100000 11*64", bytes, sizeof(bytes));
	put_digest(72);
	err = (struct ros2_err)ROS2_ERR_INIT;
	assert_int_equal(pdu_head_parse(bytes, PDU_FROM_HOST, false, &far, &p.head, &flt, &err), 0);
	assert_int_equal(p.head.header_bytes, 76);
	assert_int_equal(p.head.pad, 52);
	assert_int_equal(p.head.data_len, 4096);
	assert_int_equal(p.head.data_digest_len, 4);
	assert_int_equal(pdu_parse(bytes, &p.head, &p, &flt, &err), 0);
}

/* 3.6.2.7. */
static void pdu_capsule_resp__is_built_and_read(void **state)
{
	const struct nvme_cqe cqe = {.dw0 = 0x04030201, .sq_head = 5, .cid = 0x1234, .status = 2};
	uint8_t out[PDU_SEND_MAX];
	struct pdu p;

	assert_int_equal(pdu_build_capsule_resp(out, &cqe, &plain), 24);
	assert_bytes(out, 24, "05 00 18 00 18000000 01020304 00000000 0500 0000 3412 0200");
	assert_int_equal(pdu_build_capsule_resp(out, &cqe, &digests), 28);
	assert_bytes(out, 8, "05 01 18 00 1c000000");
	assert_int_equal(both("05 00 18 00 18000000 01020304 00000000 0500 0000 3412 0200",
	                      PDU_FROM_TARGET, false, &plain, &p),
	                 0);
	assert_memory_equal(&p.cqe, &cqe, sizeof(cqe));
	assert_refused(both("05 00 18 00 19000000", PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 4, "CapsuleResp with PLEN 25: expected 24");
	assert_refused(both("05 02 18 00 1c000000", PDU_FROM_TARGET, false, &digests, &p),
	               NVME_TCP_FES_HEADER, 1, "flags 0x02: expected 0x01");
}

/* 3.6.2.8, 3.6.2.9. */
static void pdu_data__is_built_and_read_on_both_sides(void **state)
{
	uint8_t out[PDU_SEND_MAX];
	struct pdu p;

	assert_int_equal(pdu_build_h2c_data(out, 7, 0x55aa, 4096, 8192, true, &plain), 24);
	assert_bytes(out, 24, "06 04 18 18 18200000 0700 aa55 00100000 00200000 00000000");
	assert_int_equal(pdu_build_c2h_data(out, 7, 512, 1024, true, true, &plain), 24);
	assert_bytes(out, 24, "07 0c 18 18 18040000 0700 0000 00020000 00040000 00000000");
	assert_int_equal(pdu_build_c2h_data(out, 7, 0, 512, false, false, &digests), 28);
	assert_bytes(out, 24, "07 03 18 1c 20020000 0700 0000 00000000 00020000 00000000");

	assert_int_equal(both("06 04 18 18 18200000 0700 aa55 00100000 00200000 00000000",
	                      PDU_FROM_HOST, false, &plain, &p),
	                 0);
	assert_int_equal(p.data.cid, 7);
	assert_int_equal(p.data.tag, 0x55aa);
	assert_int_equal(p.data.offset, 4096);
	assert_int_equal(p.data.length, 8192);
	assert_true(p.data.last && !p.data.success);
	assert_int_equal(both("07 0c 18 18 18040000 0700 ffff 00020000 00040000 00000000",
	                      PDU_FROM_TARGET, false, &plain, &p),
	                 0);
	assert_int_equal(p.data.tag, 0);
	assert_true(p.data.last && p.data.success);
}

static void pdu_data__refuses_lengths_offsets_and_flags_that_contradict(void **state)
{
	const struct pdu_params small = {.align = 8, .data_max = 1024};
	struct pdu p;

#define C2H(hex, params) both(hex, PDU_FROM_TARGET, false, params, &p)
	assert_refused(C2H("07 08 18 18 18040000", &plain), NVME_TCP_FES_HEADER, 1,
	               "SUCCESS: expected LAST_PDU with it");
	assert_refused(C2H("07 10 18 18 18040000", &plain), NVME_TCP_FES_HEADER, 1, "flags 0x10");
	assert_refused(C2H("07 01 18 1c 1c040000", &plain), NVME_TCP_FES_HEADER, 1,
	               "flags 0x01: expected 0x00");
	assert_refused(C2H("07 02 18 18 1c040000", &digests), NVME_TCP_FES_HEADER, 1,
	               "flags 0x02: expected 0x03");
	assert_refused(C2H("07 00 18 14 18040000", &plain), NVME_TCP_FES_HEADER, 3,
	               "PDO 20: expected at least 24");
	assert_refused(C2H("07 00 18 1c 1c040000", &small), NVME_TCP_FES_HEADER, 3,
	               "a multiple of 8");
	assert_refused(C2H("07 00 18 00 18040000", &plain), NVME_TCP_FES_HEADER, 3, "PDO 0");
	assert_refused(C2H("07 00 18 18 18000000", &plain), NVME_TCP_FES_HEADER, 4,
	               "PLEN 24: expected more than 24, for data");
	assert_refused(C2H("07 03 18 1c 20000000", &digests), NVME_TCP_FES_HEADER, 4,
	               "PLEN 32: expected more than 32");
	assert_refused(C2H("07 00 18 18 19040000", &small), NVME_TCP_FES_OUT_OF_RANGE, 0,
	               "1025 bytes of data: expected at most 1024");
	assert_refused(C2H("07 00 18 18 ffffffff", &small), NVME_TCP_FES_OUT_OF_RANGE, 0,
	               "4294967271 bytes of data");
	assert_refused(both("06 00 18 18 19040000", PDU_FROM_HOST, false, &small, &p),
	               NVME_TCP_FES_LIMIT, 0, "host sent H2CData with 1025 bytes");
	assert_refused(C2H("07 00 18 18 18040000 0700 0000 00000000 ff030000 00000000", &plain),
	               NVME_TCP_FES_HEADER, 16, "DATAL 1023: expected 1024, as PLEN says");
	assert_refused(C2H("07 00 18 18 18040000 0700 0000 00fcffff 00040000 00000000", &plain),
	               NVME_TCP_FES_HEADER, 16, "1024 bytes at 4294966272");
	assert_int_equal(C2H("07 00 18 18 18040000 0700 0000 fffbffff 00040000 00000000", &plain),
	                 0);
#undef C2H
}

/* 3.6.2.10. */
static void pdu_r2t__is_built_read_and_refused_for_nothing_or_too_much(void **state)
{
	uint8_t out[PDU_SEND_MAX];
	struct pdu p;

	assert_int_equal(pdu_build_r2t(out, 3, 9, 0x10000, 0x20000, &plain), 24);
	assert_bytes(out, 24, "09 00 18 00 18000000 0300 0900 00000100 00000200 00000000");
	assert_int_equal(both("09 00 18 00 18000000 0300 0900 00000100 00000200 00000000",
	                      PDU_FROM_TARGET, false, &plain, &p),
	                 0);
	assert_int_equal(p.data.tag, 9);
	assert_int_equal(p.data.length, 0x20000);
	assert_refused(both("09 00 18 00 18000000 0300 0900 00000100 00000000 00000000",
	                    PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 16, "R2T for 0 bytes at 65536");
	assert_refused(both("09 00 18 00 18000000 0300 0900 01000000 ffffffff 00000000",
	                    PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 16, "below 4 GiB");
	assert_refused(both("09 04 18 00 18000000", PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 1, "R2T with flags 0x04");
	assert_refused(both("09 00 18 18 18100000", PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 4, "R2T with PLEN 4120");
}

/* 3.6.2.4, 3.6.2.5. */
static void pdu_term__carries_the_fault_and_the_header_at_fault(void **state)
{
	const struct pdu_fault f = {NVME_TCP_FES_HEADER_DIGEST, 0x11223344};
	uint8_t out[NVME_TCP_TERM_MAX], bad[200];
	struct pdu p;

	memset(bad, 0xee, sizeof(bad));
	assert_int_equal(pdu_build_term(out, PDU_FROM_HOST, &f, bad, 24), 48);
	assert_bytes(out, 48, "02 00 18 00 30000000 0300 44332211 00*10 ee*24");
	assert_int_equal(pdu_build_term(out, PDU_FROM_TARGET, &f, bad, 200), 152);
	assert_bytes(out, 152, "03 00 18 00 98000000 0300 44332211 00*10 ee*128");
	assert_int_equal(pdu_build_term(out, PDU_FROM_HOST, &f, NULL, 0), 24);

	assert_int_equal(both("03 00 18 00 98000000 0300 44332211 00*10 ee*128", PDU_FROM_TARGET,
	                      false, &digests, &p),
	                 0);
	assert_int_equal(p.head.header_bytes, 24);
	assert_int_equal(p.head.data_len, 128);
	assert_int_equal(p.head.data_digest_len, 0);
	assert_int_equal(p.term.fes, 3);
	assert_int_equal(p.term.fei, 0x11223344);
	assert_refused(both("03 00 18 00 99000000", PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 4, "PLEN 153: expected 24 to 152");
	assert_refused(both("03 00 18 00 17000000", PDU_FROM_TARGET, false, &plain, &p),
	               NVME_TCP_FES_HEADER, 4, "PLEN 23");
	assert_string_equal(pdu_fes_to_str(2), "PDU sequence error");
	assert_string_equal(pdu_fes_to_str(0), "unknown error");
	assert_string_equal(pdu_fes_to_str(7), "unknown error");
}

static void pdu_parse__checks_the_header_digest(void **state)
{
	struct pdu_head h;
	struct pdu p;

	assert_int_equal(head("05 01 18 00 1c000000 00*16", PDU_FROM_TARGET, false, &digests, &h),
	                 0);
	put_digest(24);
	assert_int_equal(pdu_parse(bytes, &h, &p, &flt, &err), 0);
	for (size_t bit = 0; bit < 28 * 8; bit += 5) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(pdu_parse(bytes, &h, &p, &flt, &err), -EBADMSG);
		assert_int_equal(flt.fes, NVME_TCP_FES_HEADER_DIGEST);
		assert_memory_equal(&flt.fei, bytes + 24, 4); /* what was received */
		assert_non_null(strstr(err.msg, "CapsuleResp with header digest 0x"));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void pdu_data_digest__is_the_same_in_pieces_and_at_once(void **state)
{
	uint8_t out[4];
	uint32_t crc = 0;

	/* RFC 3720 B.4: 32 bytes of zeroes give aa 36 91 8a. */
	memset(bytes, 0, 32);
	crc = pdu_data_digest(pdu_data_digest(0, bytes, 13), bytes + 13, 19);
	pdu_data_digest_put(crc, out);
	assert_bytes(out, 4, "aa 36 91 8a");
	assert_int_equal(pdu_data_digest_check(crc, out, &err), 0);
	out[3] ^= 0x80;
	assert_int_equal(pdu_data_digest_check(crc, out, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "data digest 0x0a9136aa: expected 0x8a9136aa"));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + (i >> 8));
	crc = 0;
	for (size_t at = 0, n = 1; at < sizeof(bytes); at += n, n = n * 3 % 1009) {
		n = n < sizeof(bytes) - at ? n : sizeof(bytes) - at;
		crc = pdu_data_digest(crc, bytes + at, n);
	}
	assert_int_equal(crc, crc32c_slow(bytes, sizeof(bytes)));
	assert_int_equal(pdu_data_digest(crc, NULL, 0), crc);
}

static void pdu_build__what_is_built_is_read_back_for_every_alignment(void **state)
{
	uint8_t out[PDU_SEND_MAX];

	for (uint32_t align = 4; align <= 128; align += 4) {
		for (int d = 0; d < 4; d++) {
			const struct pdu_params prm = {.header_digest = d & 1,
			                               .data_digest = d & 2,
			                               .align = align,
			                               .data_max = 65536};
			struct pdu p;
			size_t n = pdu_build_h2c_data(out, 1, 2, 512, 65536, false, &prm);

			assert_true(n <= PDU_SEND_MAX && n % align == 0);
			assert_int_equal(pdu_head_parse(out, PDU_FROM_HOST, false, &prm, &p.head,
			                                NULL, NULL),
			                 0);
			assert_int_equal(p.head.header_bytes + p.head.pad, n);
			assert_int_equal(pdu_parse(out, &p.head, &p, NULL, NULL), 0);
			assert_int_equal(p.data.length, 65536);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pdu_ic__offers_and_answers_are_as_laid_out),
		cmocka_unit_test(pdu_ic__refuses_versions_alignments_and_sizes_that_cannot_be),
		cmocka_unit_test(pdu_head_parse__takes_an_ic_pdu_first_and_only_first),
		cmocka_unit_test(pdu_head_parse__takes_only_types_that_the_sender_may_send),
		cmocka_unit_test(pdu_capsule_cmd__is_built_and_read_with_and_without_data),
		cmocka_unit_test(pdu_capsule_resp__is_built_and_read),
		cmocka_unit_test(pdu_data__is_built_and_read_on_both_sides),
		cmocka_unit_test(pdu_data__refuses_lengths_offsets_and_flags_that_contradict),
		cmocka_unit_test(pdu_r2t__is_built_read_and_refused_for_nothing_or_too_much),
		cmocka_unit_test(pdu_term__carries_the_fault_and_the_header_at_fault),
		cmocka_unit_test(pdu_parse__checks_the_header_digest),
		cmocka_unit_test(pdu_data_digest__is_the_same_in_pieces_and_at_once),
		cmocka_unit_test(pdu_build__what_is_built_is_read_back_for_every_alignment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
