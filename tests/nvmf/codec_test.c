/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h against bytes written out by hand from the specifications: commands are compared whole,
 * answers are refused for each field that a target could get wrong, with words.
 */
#include "dataplane/nvmf/codec.h"
#include "tests/nvmf/hex.h"

#define SUBNQN "nqn.2026-11.example:volume-1"

static struct nvme_sqe sqe;
static struct ros2_err err;

static int setup(void **state)
{
	memset(&sqe, 0xaa, sizeof(sqe)); /* builders leave nothing of what was there */
	err = (struct ros2_err)ROS2_ERR_INIT;
	return 0;
}

#define assert_sqe(hex)       assert_bytes(&sqe, sizeof(sqe), hex)
#define assert_words(r, c, w) assert_refused(r, c, w, __LINE__)

static void assert_refused(int r, int code, const char *words, int line)
{
	if (r != code || err.code != code || !strstr(err.msg, words))
		fail_msg("line %d: %d, \"%s\": expected %d with \"%s\"", line, r, err.msg, code,
		         words);
	err = (struct ros2_err)ROS2_ERR_INIT;
}

static void nvme_status__has_words_for_every_code_of_spec_h(void **state)
{
	assert_string_equal(nvme_status_text(0), "success");
	assert_string_equal(nvme_status_text(NVME_SC_LBA_RANGE | NVME_STATUS_DNR),
	                    "LBA out of range");
	assert_string_equal(nvme_status_text(0x7ff), "unknown status");
#define X(num, name, text) assert_string_equal(nvme_status_text(num), text);
	NVME_STATUS_LIST(X)
#undef X
}

static void nvme_sqe_name__tells_fabrics_admin_and_io_commands_apart(void **state)
{
	nvme_cmd_connect(&sqe, 0, 32, 0, 0);
	assert_string_equal(nvme_sqe_name(&sqe, false), "Connect");
	assert_string_equal(nvme_sqe_name(&sqe, true), "Connect");
	nvme_cmd_read(&sqe, 1, 0, 1);
	assert_string_equal(nvme_sqe_name(&sqe, true), "Read");
	assert_string_equal(nvme_sqe_name(&sqe, false), "Get Log Page"); /* both are 02h */
	sqe.opcode = 0xc1;
	assert_string_equal(nvme_sqe_name(&sqe, true), "unknown command");
	assert_string_equal(nvme_rdma_status_text(4), "invalid host send queue size");
	assert_string_equal(nvme_rdma_status_text(99), "unknown reason");
}

/* Base 4.1.2.1. */
static void nvme_sgl__is_laid_out_as_each_transport_wants_it(void **state)
{
	nvme_cmd_flush(&sqe, 7);
	assert_int_equal(nvme_sgl_keyed(&sqe, 0x1122334455667788, 0xabcdef, 0xdeadbeef, false), 0);
	assert_sqe("00 40 0000 07000000 00*16"
	           " 8877665544332211 efcdab efbeadde 40 00*24");
	assert_int_equal(nvme_sgl_keyed(&sqe, 0, 0, 0, true), 0);
	assert_sqe("00 40 0000 07000000 00*16 00*15 4f 00*24");
	assert_int_equal(nvme_sgl_keyed(&sqe, 0, 1u << 24, 0, false), -EINVAL);
	nvme_sgl_in_capsule(&sqe, 16, 4096);
	assert_sqe("00 40 0000 07000000 00*16 1000000000000000 00100000 000000 01 00*24");
	nvme_sgl_transport(&sqe, 0x20000);
	assert_sqe("00 40 0000 07000000 00*16 00*8 00000200 000000 5a 00*24");
}

static void nvme_sgl_parse__reads_what_a_host_built_and_refuses_other_types(void **state)
{
	struct nvme_sgl_value v;

	nvme_cmd_flush(&sqe, 1);
	nvme_sgl_keyed(&sqe, 0x1000, 0x800001, 0x80000001, true);
	assert_int_equal(nvme_sgl_parse(&sqe, &v, &err), 0);
	assert_int_equal(v.type, NVME_SGL_KEYED_INVALIDATE);
	assert_int_equal(v.addr, 0x1000);
	assert_int_equal(v.len, 0x800001);
	assert_int_equal(v.key, 0x80000001);
	nvme_sgl_in_capsule(&sqe, 32, 512);
	assert_int_equal(nvme_sgl_parse(&sqe, &v, &err), 0);
	assert_int_equal(v.addr, 32);
	assert_int_equal(v.len, 512);
	assert_int_equal(v.key, 0);
	sqe.dptr.sgl.type = 0x20;
	assert_words(nvme_sgl_parse(&sqe, &v, &err), -EINVAL, "descriptor type 0x20");
	sqe.flags = 0;
	assert_words(nvme_sgl_parse(&sqe, &v, &err), -EINVAL, "flags 0x00");
}

/* Base 6. */
static void nvme_cmd_fabrics__are_as_the_specification_lays_them_out(void **state)
{
	nvme_cmd_connect(&sqe, 0, 32, 0, 5000);
	assert_sqe("7f 40 0000 01 00*19 00*16  0000 0000 1f00 00 00 88130000 00*12");
	nvme_cmd_connect(&sqe, 3, 128, NVME_CONNECT_NO_SQ_FLOW, 0);
	assert_sqe("7f 40 0000 01 00*19 00*16  0000 0300 7f00 04 00 00000000 00*12");
	nvme_cmd_property_get(&sqe, NVME_PROP_CAP);
	assert_sqe("7f 40 0000 04 00*35 01 000000 00000000 00*16");
	nvme_cmd_property_get(&sqe, NVME_PROP_CSTS);
	assert_sqe("7f 40 0000 04 00*35 00 000000 1c000000 00*16");
	nvme_cmd_property_set(&sqe, NVME_PROP_CC, 0x460001);
	assert_sqe("7f 40 0000 00 00*35 00 000000 14000000 0100460000000000 00*8");
	nvme_cmd_auth_send(&sqe, 0x110);
	assert_sqe("7f 40 0000 05 00*19 00*16 00 01 01 e9 10010000 00*16");
	nvme_cmd_auth_receive(&sqe, 4096);
	assert_sqe("7f 40 0000 06 00*19 00*16 00 01 01 e9 00100000 00*16");
	nvme_cmd_disconnect(&sqe);
	assert_sqe("7f 40 0000 08 00*35 0000 00*22");
}

/* Base 6.3. */
static void nvme_connect_data__holds_names_in_fields_of_256_bytes(void **state)
{
	static const uint8_t hostid[16] = {0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	struct nvme_connect_data d;
	char longest[NVMF_NQN_MAX + 2];

	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0xffff, "nqn.a", "nqn.bc"), 0);
	assert_bytes(&d, sizeof(d),
	             "f0 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f ffff 00*238"
	             " 6e716e2e61 00*251 6e716e2e6263 00*250 00*256");
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "nqn.", 4);
	longest[NVMF_NQN_MAX + 1] = '\0';
	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0, longest, "nqn.b"), -EINVAL);
	longest[NVMF_NQN_MAX] = '\0';
	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0, longest, "nqn.b"), 0);
	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0, "iqn.a", "nqn.b"), -EINVAL);
	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0, "nqn.a", "nqn."), -EINVAL);
	assert_int_equal(nvme_connect_data_fill(&d, hostid, 0, "nqn.a\n", "nqn.b"), -EINVAL);
}

static void nvme_connect_parse__takes_a_controller_id_and_the_wish_to_authenticate(void **state)
{
	struct nvme_connected c;
	struct nvme_cqe cqe = {.dw0 = 0x0002ffef};

	assert_int_equal(nvme_connect_parse(&cqe, &c, &err), 0);
	assert_int_equal(c.cntlid, 0xffef);
	assert_true(c.authentication);
	cqe.dw0 = 1;
	assert_int_equal(nvme_connect_parse(&cqe, &c, &err), 0);
	assert_int_equal(c.cntlid, 1);
	assert_false(c.authentication);
	cqe.dw0 = 0xfff0;
	assert_words(nvme_connect_parse(&cqe, &c, &err), -EPROTO, "controller id 0xfff0");
	cqe.dw0 = 0x00040001;
	assert_words(nvme_connect_parse(&cqe, &c, &err), -EOPNOTSUPP, "secure channel");
}

static void nvme_connect_refusal__names_the_parameter_that_the_target_points_at(void **state)
{
	struct nvme_cqe cqe = {.dw0 = 0x00010100, .status = 0x4182 << 1};
	char buf[128];

	nvme_connect_refusal(&cqe, buf, sizeof(buf));
	assert_string_equal(buf,
	                    "the target does not take the subsystem NQN (byte 256 of the data)");
	cqe.dw0 = 44;
	nvme_connect_refusal(&cqe, buf, sizeof(buf));
	assert_string_equal(buf,
	                    "the target does not take the queue size (byte 44 of the command)");
	cqe.dw0 = 0xffff;
	nvme_connect_refusal(&cqe, buf, sizeof(buf));
	assert_non_null(strstr(buf, "unnamed field"));
	cqe.status = 0x184 << 1;
	nvme_connect_refusal(&cqe, buf, sizeof(buf));
	assert_string_equal(buf, "the target does not allow this host");
	cqe.status = 0x4191 << 1;
	nvme_connect_refusal(&cqe, buf, sizeof(buf));
	assert_string_equal(buf, "authentication required (status 0x4191)");
}

/* Base 3.1.3.1. */
static void nvme_cap_parse__says_depth_time_page_and_how_to_enable(void **state)
{
	struct nvme_cap c;

	/* As nvmet tells it: 128 entries, 7.5 s, NVM command set, pages of 4 KiB. */
	assert_int_equal(nvme_cap_parse(0x200f01007f, &c, &err), 0);
	assert_int_equal(c.entries_max, 128);
	assert_int_equal(c.ready_ms, 7500);
	assert_int_equal(c.page_size_min, 4096);
	assert_int_equal(c.cc, 0x460001);
	/* Only the list of command sets (bit 43), TO 0, pages of 8 to 64 KiB. */
	assert_int_equal(nvme_cap_parse(0x004108000000ffff, &c, &err), 0);
	assert_int_equal(c.entries_max, 65536);
	assert_int_equal(c.ready_ms, 500);
	assert_int_equal(c.page_size_min, 8192);
	assert_int_equal(c.cc, 0x4600e1);
	assert_words(nvme_cap_parse(0x200f010000, &c, &err), -EPROTO, "CAP.MQES 0");
	assert_words(nvme_cap_parse(0x000f01007f, &c, &err), -EPROTO, "CAP.CSS 0x00");
	assert_words(nvme_cap_parse(0x0001002000000001, &c, &err), -EPROTO, "CAP.MPSMIN 1");
}

static void nvme_property_value__has_eight_bytes_for_cap_and_four_for_others(void **state)
{
	const struct nvme_cqe cqe = {.dw0 = 0xf0000001, .dw1 = 0x23};

	assert_true(nvme_property_value(&cqe, NVME_PROP_CAP) == 0x23f0000001);
	assert_true(nvme_property_value(&cqe, NVME_PROP_CSTS) == 0xf0000001);
}

/* Base 5. */
static void nvme_cmd_admin__are_as_the_specification_lays_them_out(void **state)
{
	nvme_cmd_identify(&sqe, NVME_CNS_CONTROLLER, 0);
	assert_sqe("06 40 0000 00*36 01000000 00*20");
	nvme_cmd_identify(&sqe, NVME_CNS_NAMESPACE, 5);
	assert_sqe("06 40 0000 05000000 00*32 00000000 00*20");
	nvme_cmd_get_log(&sqe, NVME_LOG_DISCOVERY, 0x100000400, 0x40004, true);
	/* 0x10001 dwords, so NUMD 0x10000: NUMDL 0, NUMDU 1 */
	assert_sqe("02 40 0000 00*36 7080 0000 0100 0000 00040000 01000000 00*8");
	nvme_cmd_get_log(&sqe, NVME_LOG_CHANGED_NAMESPACES, 0, 4096, false);
	assert_sqe("02 40 0000 ffffffff 00*32 0400 ff03 0000 0000 00*16");
	nvme_cmd_set_feature(&sqe, NVME_FEAT_QUEUES, nvme_queues_value(4));
	assert_sqe("09 40 0000 00*36 07000000 03000300 00*16");
	nvme_cmd_get_feature(&sqe, NVME_FEAT_ASYNC_EVENTS);
	assert_sqe("0a 40 0000 00*36 0b000000 00*20");
	nvme_cmd_keep_alive(&sqe);
	assert_sqe("18 40 00*62");
	nvme_cmd_async_event(&sqe);
	assert_sqe("0c 40 00*62");
	nvme_cmd_abort(&sqe, 2, 0x1234);
	assert_sqe("08 40 0000 00*36 0200 3412 00*20");
}

static void nvme_queues__are_the_lesser_of_what_was_given_and_never_none(void **state)
{
	struct nvme_cqe cqe = {.dw0 = 0x00030007};

	assert_int_equal(nvme_queues_given(&cqe), 4);
	cqe.dw0 = 0;
	assert_int_equal(nvme_queues_given(&cqe), 1);
	assert_int_equal(nvme_queues_value(0), 0);
	assert_int_equal(nvme_queues_value(1u << 20), 0xfffefffe);
}

static void nvme_event__is_taken_apart(void **state)
{
	const struct nvme_cqe cqe = {.dw0 = 0x0004f002};
	struct nvme_event e;

	nvme_event_parse(&cqe, &e);
	assert_int_equal(e.type, NVME_EVENT_NOTICE);
	assert_int_equal(e.info, NVME_NOTICE_DISCOVERY);
	assert_int_equal(e.log, NVME_LOG_CHANGED_NAMESPACES);
}

/* NVM 3.2, Base 7.1. */
static void nvme_cmd_io__are_as_the_specification_lays_them_out(void **state)
{
	nvme_cmd_read(&sqe, 1, 0x1122334455, 8);
	assert_sqe("02 40 0000 01000000 00*32 55443322 11000000 0700 0000 00*12");
	nvme_cmd_write(&sqe, 0xfffffffe, 1, 65536, true);
	assert_sqe("01 40 0000 feffffff 00*32 01000000 00000000 ffff 0040 00*12");
	nvme_cmd_flush(&sqe, 2);
	assert_sqe("00 40 0000 02000000 00*56");
	nvme_cmd_write_zeroes(&sqe, 2, 16, 256, true);
	assert_sqe("08 40 0000 02000000 00*32 10000000 00000000 ff00 0002 00*12");
	nvme_cmd_deallocate(&sqe, 2, 3);
	assert_sqe("09 40 0000 02000000 00*32 02000000 04000000 00*16");
}

/* Offsets by number, from the figure of Base 5.17.2.1, not through spec.h. */
static void controller_bytes(uint8_t id[4096])
{
	static const char nvmet_sgls[] = {0x05, 0x00, 0x10, 0x00};

	memset(id, 0, 4096);
	id[77] = 8;                   /* MDTS: 1 MiB */
	id[78] = 0x34, id[79] = 0x12; /* CNTLID */
	id[92] = 0, id[93] = 0x01;    /* OAES: namespace attributes */
	id[96] = 0x40;                /* CTRATT: TBKAS */
	id[111] = 1;                  /* CNTRLTYPE: I/O */
	id[259] = 3;                  /* AERL */
	id[320] = 10;                 /* KAS: 1 s */
	id[386] = 0xe8, id[387] = 3;  /* CQT: 1 s */
	id[512] = 0x66, id[513] = 0x44;
	id[514] = 128;            /* MAXCMD */
	id[516] = 0, id[517] = 4; /* NN: 1024 */
	id[520] = 0x0c;           /* ONCS: DSM, write zeroes */
	id[525] = 1;              /* VWC */
	memcpy(id + 536, nvmet_sgls, 4);
	strcpy((char *)id + 768, SUBNQN);
	id[1792] = 4, id[1793] = 1; /* IOCCSZ: 260 */
	id[1796] = 1;               /* IORCSZ */
	id[1803] = 1;               /* MSDBD */
}

static uint8_t id[4096];

static int parse_controller(struct nvme_controller *c)
{
	return nvme_controller_parse(id, 0x1234, SUBNQN, 4096, c, &err);
}

static void nvme_controller_parse__reads_each_field(void **state)
{
	struct nvme_controller c;

	controller_bytes(id);
	assert_int_equal(parse_controller(&c), 0);
	assert_int_equal(c.cntlid, 0x1234);
	assert_int_equal(c.type, NVME_CNTRLTYPE_IO);
	assert_int_equal(c.max_transfer, 1 << 20);
	assert_int_equal(c.in_capsule_bytes, 4096);
	assert_int_equal(c.in_capsule_offset, 0);
	assert_int_equal(c.max_commands, 128);
	assert_int_equal(c.namespaces, 1024);
	assert_int_equal(c.keep_alive_unit_ms, 1000);
	assert_int_equal(c.command_quiesce_ms, 1000);
	assert_int_equal(c.events, NVME_AEC_NS_ATTRIBUTE);
	assert_int_equal(c.sgl_descriptors_max, 1);
	assert_int_equal(c.async_events_max, 4);
	assert_true(c.sgl_keyed && c.sgl_offset && !c.sgl_dword_aligned);
	assert_true(c.volatile_write_cache && c.has_dsm && c.has_write_zeroes);
	assert_true(c.traffic_keeps_alive);
	assert_string_equal(c.subnqn, SUBNQN);
}

static void nvme_controller_parse__knows_no_limit_and_offsets_in_capsules(void **state)
{
	struct nvme_controller c;

	controller_bytes(id);
	id[77] = 0;
	id[1800] = 2; /* ICDOFF: 32 bytes */
	id[111] = 0;  /* before Base 1.4 */
	assert_int_equal(parse_controller(&c), 0);
	assert_true(c.max_transfer == UINT64_MAX);
	assert_int_equal(c.in_capsule_offset, 32);
	assert_int_equal(c.in_capsule_bytes, 4096 - 32);
	assert_int_equal(c.type, NVME_CNTRLTYPE_IO);
	id[77] = 255;
	id[1801] = 0xff; /* beyond the capsule */
	assert_int_equal(parse_controller(&c), 0);
	assert_true(c.max_transfer == UINT64_MAX);
	assert_int_equal(c.in_capsule_bytes, 0);
	id[77] = 52; /* 4 KiB << 52 does not fit */
	assert_int_equal(parse_controller(&c), 0);
	assert_true(c.max_transfer == UINT64_MAX);
}

static void nvme_controller_parse__lets_a_discovery_controller_have_its_own_name(void **state)
{
	struct nvme_controller c;

	memset(id, 0, sizeof(id));
	id[78] = 1;
	strcpy((char *)id + 768, "nqn.2026-11.example:discovery");
	assert_int_equal(nvme_controller_parse(id, 1, NVME_DISCOVERY_NQN, 4096, &c, &err), 0);
	assert_int_equal(c.type, NVME_CNTRLTYPE_DISCOVERY);
	assert_string_equal(c.subnqn, "nqn.2026-11.example:discovery");
	assert_int_equal(c.in_capsule_bytes, 0);
}

static void nvme_controller_parse__refuses_each_field_that_cannot_be_so(void **state)
{
	static const struct {
		int at, value;
		const char *words;
	} cases[] = {
		{78, 0x35, "controller id 4661 in Identify: expected 4660"},
		{111, 4, "controller type 4"},
		{512, 0x67, "SQES 0x67"},
		{512, 0x56, "SQES 0x56"},
		{513, 0x45, "CQES 0x45"},
		{513, 0x34, "CQES 0x34"},
		{1795, 0x10, "IOCCSZ 268435716"},
		{1796, 0, "IORCSZ 0"},
		{536, 4, "SGLS 0x100004"},
		{536, 3, "SGLS 0x100003"},
		{768, 'x', "subsystem NQN \"xqn."},
		{772, '3', "expected \"" SUBNQN "\""},
		{772, 0x1b, "expected printable UTF-8"},
		{772, 0xff, "nqn.\\xff"},
	};
	struct nvme_controller c;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		controller_bytes(id);
		id[cases[i].at] = (uint8_t)cases[i].value;
		assert_words(parse_controller(&c), -EPROTO, cases[i].words);
	}
	controller_bytes(id);
	id[1793] = 0, id[1792] = 3;
	assert_words(parse_controller(&c), -EPROTO, "IOCCSZ 3");
	controller_bytes(id);
	memset(id + 516, 0xff, 4);
	assert_words(parse_controller(&c), -EPROTO, "NN 0xffffffff");
	controller_bytes(id);
	memset(id + 768 + 4, 'a', 252); /* no NUL in the field */
	assert_words(parse_controller(&c), -EPROTO, "subsystem NQN of 256 bytes");
}

/* Offsets by number, from NVM 4.1.5.1. */
static void namespace_bytes(void)
{
	memset(id, 0, sizeof(id));
	id[2] = 1;    /* NSZE: 65536 blocks */
	id[10] = 1;   /* NCAP */
	id[25] = 1;   /* NLBAF: two formats */
	id[26] = 1;   /* FLBAS: the second */
	id[30] = 1;   /* NMIC */
	id[104] = 7;  /* NGUID */
	id[120] = 9;  /* EUI64 */
	id[130] = 9;  /* first format: 512 */
	id[134] = 12; /* second: 4096 */
}

static void nvme_namespace_parse__reads_size_format_and_names(void **state)
{
	struct nvme_namespace n;

	namespace_bytes();
	assert_int_equal(nvme_namespace_parse(id, &n, &err), 0);
	assert_int_equal(n.blocks, 65536);
	assert_int_equal(n.capacity, 65536);
	assert_int_equal(n.block_shift, 12);
	assert_true(n.shared);
	assert_int_equal(n.ids.nguid[0], 7);
	assert_int_equal(n.ids.eui64[0], 9);
	id[26] = 0x20; /* bits 6:5 do not count with few formats */
	assert_int_equal(nvme_namespace_parse(id, &n, &err), 0);
	assert_int_equal(n.block_shift, 9);
	id[25] = 19;
	id[128 + 16 * 4 + 2] = 16; /* the seventeenth format: 64 KiB */
	assert_int_equal(nvme_namespace_parse(id, &n, &err), 0);
	assert_int_equal(n.block_shift, 16);
}

static void nvme_namespace_parse__refuses_what_it_cannot_use_or_cannot_be(void **state)
{
	static const struct {
		int at, value, code;
		const char *words;
	} cases[] = {
		{26, 2, -EPROTO, "LBA format 2 of 2"},
		{25, 64, -EPROTO, "of at most 64"},
		{134, 0, -EPROTO, "blocks of 2^0 bytes"},
		{134, 8, -EPROTO, "blocks of 2^8 bytes"},
		{134, 17, -EOPNOTSUPP, "blocks of 2^17 bytes"},
		{132, 8, -EOPNOTSUPP, "8 bytes of metadata"},
		{29, 1, -EOPNOTSUPP, "protection information of type 1"},
		{2, 0, -EPROTO, "namespace of 0 blocks"},
		{7, 0x80, -EPROTO, "to 2^63 bytes"},
		{10, 2, -EPROTO, "NCAP 131072"},
	};
	struct nvme_namespace n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		namespace_bytes();
		id[cases[i].at] = (uint8_t)cases[i].value;
		assert_words(nvme_namespace_parse(id, &n, &err), cases[i].code, cases[i].words);
	}
	memset(id, 0, sizeof(id));
	assert_words(nvme_namespace_parse(id, &n, &err), -ENOENT, "no active namespace");
}

/* Base 5.17.2.3. */
static void nvme_ns_ids_parse__takes_names_of_known_types_and_their_lengths(void **state)
{
	struct nvme_ns_ids ids = {.nguid = {1}, .eui64 = {2}, .uuid = {3}}, was = ids;

	memset(id, 0, sizeof(id));
	assert_int_equal(nvme_ns_ids_parse(id, &ids, &err), 0); /* none: what was known stays */
	assert_memory_equal(&ids, &was, sizeof(ids));
	id[0] = 4, id[1] = 1; /* CSI: no name */
	id[5] = 3, id[6] = 16, id[9] = 7, id[24] = 8;
	id[25] = 0x77, id[26] = 0; /* of no known type, and empty */
	id[29] = 1, id[30] = 8, id[33] = 6;
	assert_int_equal(nvme_ns_ids_parse(id, &ids, &err), 0);
	assert_int_equal(ids.uuid[0], 7);
	assert_int_equal(ids.uuid[15], 8);
	assert_int_equal(ids.eui64[0], 6);
	assert_int_equal(ids.nguid[0], 1);
	was = ids;
	id[41] = 2, id[42] = 15;
	assert_words(nvme_ns_ids_parse(id, &ids, &err), -EPROTO, "type 2 and 15 bytes at 45");
	id[42] = 16, id[45] = 5;
	id[5] = 1; /* a good one behind it is not taken alone */
	assert_words(nvme_ns_ids_parse(id, &ids, &err), -EPROTO, "type 1 and 16 bytes at 9");
	assert_memory_equal(&ids, &was, sizeof(ids));
	/* To the end of the page, and beyond it. */
	memset(id, 0, sizeof(id));
	for (uint32_t at = 0; at < sizeof(id); at += 256)
		id[at] = 0x77, id[at + 1] = 252;
	assert_int_equal(nvme_ns_ids_parse(id, &ids, &err), 0);
	id[4096 - 256 + 1] = 253;
	assert_words(nvme_ns_ids_parse(id, &ids, &err), -EPROTO, "253 bytes at 3844");
	assert_memory_equal(&ids, &was, sizeof(ids));
}

static void nvme_ns_list_parse__takes_rising_ids_only(void **state)
{
	static uint32_t list[1024], out[1024];
	uint32_t n;
	bool all;

	memset(list, 0, sizeof(list));
	list[0] = 3, list[1] = 9;
	assert_int_equal(nvme_ns_list_parse(list, 0, out, &n, &all, &err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(out[1], 9);
	assert_false(all);
	assert_words(nvme_ns_list_parse(list, 3, out, &n, &all, &err), -EPROTO, "place 0");
	list[1] = 3;
	assert_words(nvme_ns_list_parse(list, 0, out, &n, &all, &err), -EPROTO, "0x3 at place 1");
	list[1] = 0xffffffff;
	assert_words(nvme_ns_list_parse(list, 0, out, &n, &all, &err), -EPROTO, "0xffffffff");
	list[0] = 0xffffffff, list[1] = 0;
	assert_int_equal(nvme_ns_list_parse(list, 0, out, &n, &all, &err), 0);
	assert_true(all && n == 0);
	for (uint32_t i = 0; i < 1024; i++)
		list[i] = i + 1;
	assert_int_equal(nvme_ns_list_parse(list, 0, out, &n, &all, &err), 0);
	assert_int_equal(n, 1024);
}

/* RDMA 3.2. */
static void nvme_rdma__private_data_is_built_and_checked(void **state)
{
	struct nvme_rdma_request req;
	uint8_t in[64];
	uint32_t depth;
	uint16_t status;

	nvme_rdma_request_fill(&req, 0, 32, 0);
	assert_bytes(&req, sizeof(req), "0000 0000 2000 1f00 0000 00*22");
	nvme_rdma_request_fill(&req, 2, 128, 0x1234);
	assert_bytes(&req, sizeof(req), "0000 0200 8000 7f00 3412 00*22");
	hex_bytes("0000 8000 00*60", in, sizeof(in));
	assert_int_equal(nvme_rdma_accept_parse(in, 56, &depth, &err), 0);
	assert_int_equal(depth, 128);
	assert_words(nvme_rdma_accept_parse(in, 31, &depth, &err), -EPROTO, "31 bytes");
	in[0] = 1;
	assert_words(nvme_rdma_accept_parse(in, 32, &depth, &err), -EPROTO, "format 1");
	in[0] = in[2] = 0;
	assert_words(nvme_rdma_accept_parse(in, 32, &depth, &err), -EPROTO, "0 entries");
	hex_bytes("0000 0400", in, sizeof(in));
	assert_int_equal(nvme_rdma_reject_parse(in, 4, &status, &err), 0);
	assert_int_equal(status, 4);
	assert_words(nvme_rdma_reject_parse(in, 3, &status, &err), -EPROTO, "3 bytes");
	in[2] = 0;
	assert_words(nvme_rdma_reject_parse(in, 4, &status, &err), -EPROTO, "status 0");
}

static void nvme_text_parse__ends_at_nul_and_drops_padding(void **state)
{
	char out[8];

	assert_int_equal(nvme_text_parse("4420    ", 8, "port", out, sizeof(out), &err), 0);
	assert_string_equal(out, "4420");
	assert_int_equal(nvme_text_parse("ab\0cdefg", 8, "port", out, sizeof(out), &err), 0);
	assert_string_equal(out, "ab");
	assert_words(nvme_text_parse("12345678", 8, "port", out, sizeof(out), &err), -EPROTO,
	             "port of 8 bytes: expected at most 7");
	assert_words(nvme_text_parse("\x1b[0m", 4, "port", out, sizeof(out), &err), -EPROTO,
	             "port \"\\x1b[0m\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, setup)
		T(nvme_status__has_words_for_every_code_of_spec_h),
		T(nvme_sqe_name__tells_fabrics_admin_and_io_commands_apart),
		T(nvme_sgl__is_laid_out_as_each_transport_wants_it),
		T(nvme_sgl_parse__reads_what_a_host_built_and_refuses_other_types),
		T(nvme_cmd_fabrics__are_as_the_specification_lays_them_out),
		T(nvme_connect_data__holds_names_in_fields_of_256_bytes),
		T(nvme_connect_parse__takes_a_controller_id_and_the_wish_to_authenticate),
		T(nvme_connect_refusal__names_the_parameter_that_the_target_points_at),
		T(nvme_cap_parse__says_depth_time_page_and_how_to_enable),
		T(nvme_property_value__has_eight_bytes_for_cap_and_four_for_others),
		T(nvme_cmd_admin__are_as_the_specification_lays_them_out),
		T(nvme_queues__are_the_lesser_of_what_was_given_and_never_none),
		T(nvme_event__is_taken_apart),
		T(nvme_cmd_io__are_as_the_specification_lays_them_out),
		T(nvme_controller_parse__reads_each_field),
		T(nvme_controller_parse__knows_no_limit_and_offsets_in_capsules),
		T(nvme_controller_parse__lets_a_discovery_controller_have_its_own_name),
		T(nvme_controller_parse__refuses_each_field_that_cannot_be_so),
		T(nvme_namespace_parse__reads_size_format_and_names),
		T(nvme_namespace_parse__refuses_what_it_cannot_use_or_cannot_be),
		T(nvme_ns_ids_parse__takes_names_of_known_types_and_their_lengths),
		T(nvme_ns_list_parse__takes_rising_ids_only),
		T(nvme_rdma__private_data_is_built_and_checked),
		T(nvme_text_parse__ends_at_nul_and_drops_padding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
