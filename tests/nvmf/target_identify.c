/* SPDX-License-Identifier: Apache-2.0 */
/* Identify (NVMe Base 2.0, 5.17; NVM Command Set 1.0, 4.1.5) and Get Log Page (Base 2.0, 5.16). */
#include "tests/nvmf/target_priv.h"

#include "common/crypto.h"
#include <stdio.h>
#include <string.h>

enum {
	CNS_NS = 0,
	CNS_CTRL = 1,
	CNS_NS_LIST = 2,
	CNS_NS_DESC = 3,
	CNS_CSI_NS = 5,
	CNS_CSI_CTRL = 6
};
enum { LOG_ERRORS = 1, LOG_HEALTH = 2, LOG_FIRMWARE = 3, LOG_CHANGED = 4, LOG_DISCOVERY = 0x70 };

/* Space-padded ASCII. */
static void text(uint8_t *p, size_t n, const char *s)
{
	size_t len = strlen(s);

	memset(p, ' ', n);
	memcpy(p, s, MIN(len, n));
}

static void ctrl_honest(const struct ctrl *k, uint8_t *p)
{
	const struct subsys *s = k->subsys;

	put16(p, 0x1af4);
	text(p + 4, 20, "ros2-test-0001");
	text(p + 24, 40, "ros2 test target");
	text(p + 64, 8, "1");
	p[76] = 2; /* CMIC: several controllers */
	p[77] = s->o.mdts;
	put16(p + 78, k->cntlid);
	put32(p + 80, 0x00020000);
	put32(p + 92, s->discovery ? 0 : 1u << 8); /* OAES: namespace attributes */
	p[111] = s->discovery ? 2 : 1;
	p[258] = 3;
	p[259] = AERL;
	p[261] = 4; /* LPA: offsets and long lengths of log pages */
	put16(p + 320, (uint16_t)s->o.keep_alive_unit);
	put16(p + 386, (uint16_t)s->o.cqt_ms);
	p[512] = 0x66;
	p[513] = 0x44;
	put16(p + 514, (uint16_t)k->t->o.queue_depth);
	put32(p + 516, s->discovery ? 0 : NSID_MAX);
	/* ONCS: dataset management, write zeroes */
	put16(p + 520, s->discovery || s->o.no_clears ? 0 : 0x0c);
	p[525] = s->o.write_cache ? 7 : 6; /* VWC; flush of all namespaces */
	/* SGLS: no alignment, offsets; transport SGL, or keyed */
	put32(p + 536, k->admin->aside || k->admin->carried ? 0x00100005 : 0x00300001);
	snprintf((char *)p + 768, 256, "%s", s->nqn);
	put32(p + 1792, (64 + s->o.in_capsule) / 16);
	put32(p + 1796, 1);
	p[1803] = 1; /* MSDBD */
}

static bool lie(struct conn *c, const struct tcmd *cmd, enum target_fault f, uint64_t *arg)
{
	return target_lies(c, cmd, -1, f, arg);
}

static void ctrl_lies(struct conn *c, const struct tcmd *cmd, uint8_t *p)
{
	uint64_t v;

	if (lie(c, cmd, FAULT_ID_CNTLID, &v))
		put16(p + 78, le16(p + 78) ^ (uint16_t)(v ? v : 1));
	if (lie(c, cmd, FAULT_ID_MDTS, &v))
		p[77] = (uint8_t)v;
	if (lie(c, cmd, FAULT_ID_IOCCSZ, &v))
		put32(p + 1792, (uint32_t)v);
	if (lie(c, cmd, FAULT_ID_IORCSZ, &v))
		put32(p + 1796, (uint32_t)v);
	if (lie(c, cmd, FAULT_ID_ICDOFF, &v))
		put16(p + 1800, (uint16_t)v);
	if (lie(c, cmd, FAULT_ID_SGLS, &v))
		put32(p + 536, (uint32_t)v);
	if (lie(c, cmd, FAULT_ID_SQES, &v))
		p[512] = (uint8_t)v;
	if (lie(c, cmd, FAULT_ID_KAS, &v))
		put16(p + 320, (uint16_t)v);
	if (lie(c, cmd, FAULT_ID_NN, &v))
		put32(p + 516, (uint32_t)v);
	if (lie(c, cmd, FAULT_ID_MAXCMD, &v))
		put16(p + 514, (uint16_t)v);
	if (lie(c, cmd, FAULT_ID_CNTRLTYPE, &v))
		p[111] = (uint8_t)v;
	if (lie(c, cmd, FAULT_ID_SUBNQN, NULL))
		memset(p + 768, 'n', 256);
	if (lie(c, cmd, FAULT_ID_GARBAGE, NULL))
		crypto_random(p, 4096);
}

/* NVM 4.1.5.2 */
static uint16_t command_set(struct conn *c, const struct tcmd *cmd)
{
	const struct subsys *s = c->ctrl->subsys;
	uint64_t v;

	cmd->data[1] = s->o.wzsl;
	put32(cmd->data + 4, s->o.dmrsl);
	if (lie(c, cmd, FAULT_ID_LIMITS, &v))
		memset(cmd->data, (int)v, 4096);
	return ST_OK;
}

static void ns_honest(const struct ns *n, uint8_t *p)
{
	put64(p, n->blocks);
	put64(p + 8, n->blocks);
	put64(p + 16, n->blocks);
	p[30] = 1; /* NMIC: shared */
	p[33] = 1; /* DLFEAT: what was deallocated reads as zeros */
	p[99] = n->read_only;
	memcpy(p + 104, n->nguid, 16);
	p[130] = n->block_size == 4096 ? 12 : 9; /* format 0: no metadata */
}

static void ns_lies(struct conn *c, const struct tcmd *cmd, uint8_t *p)
{
	uint64_t v;

	if (lie(c, cmd, FAULT_NS_NSZE, &v))
		put64(p, v);
	if (lie(c, cmd, FAULT_NS_NCAP, &v))
		put64(p + 8, v);
	if (lie(c, cmd, FAULT_NS_LBADS, &v))
		p[130] = (uint8_t)v;
	if (lie(c, cmd, FAULT_NS_MS, &v))
		put16(p + 128, (uint16_t)v);
	if (lie(c, cmd, FAULT_NS_FLBAS, &v))
		p[26] = (uint8_t)v;
	if (lie(c, cmd, FAULT_NS_NLBAF, &v))
		p[25] = (uint8_t)v;
	if (lie(c, cmd, FAULT_ID_GARBAGE, NULL)) {
		crypto_random(p, 4096);
		/* More formats than can be: one page in 60 would else be one that may be sent, of
		 * blocks that are too large. */
		p[25] |= 0x40;
	}
}

/* Ascending, those after @after. */
static void ns_list(struct conn *c, const struct tcmd *cmd, uint32_t after, uint8_t *p)
{
	struct subsys *s = c->ctrl->subsys;
	unsigned n = 0;

	for (uint32_t nsid = after + 1; nsid <= NSID_MAX && n < 1024; nsid++)
		if (target_ns_find(s, nsid))
			put32(p + (size_t)n++ * 4, nsid);
	if (lie(c, cmd, FAULT_NS_LIST, NULL))
		for (unsigned i = 0; i < 1024; i++)
			put32(p + (size_t)i * 4, 0xfffffffeu - i * 7919u % 1000u);
}

static uint16_t ns_descriptors(const struct ns *n, uint8_t *p)
{
	p[0] = 2; /* NGUID */
	p[1] = 16;
	memcpy(p + 4, n->nguid, 16);
	p[20] = 4; /* CSI: NVM */
	p[21] = 1;
	return ST_OK;
}

uint16_t target_identify(struct conn *c, struct tcmd *cmd)
{
	struct subsys *s = c->ctrl->subsys;
	uint32_t nsid = le32(cmd->sqe + 4);
	struct ns *n = target_ns_find(s, nsid);
	uint8_t cns = cmd->sqe[40], csi = cmd->sqe[47];

	if (cmd->len != 4096)
		return ST_SGL_LENGTH;
	switch (cns) {
	case CNS_CTRL:
		ctrl_honest(c->ctrl, cmd->data);
		ctrl_lies(c, cmd, cmd->data);
		return ST_OK;
	case CNS_NS:
		if (!nsid || nsid > NSID_MAX)
			return ST_NAMESPACE;
		if (n)
			ns_honest(n, cmd->data); /* else zeros: inactive */
		ns_lies(c, cmd, cmd->data);
		return ST_OK;
	case CNS_NS_LIST:
		if (nsid >= 0xfffffffe)
			return ST_NAMESPACE;
		ns_list(c, cmd, nsid, cmd->data);
		return ST_OK;
	case CNS_NS_DESC:
		return n ? ns_descriptors(n, cmd->data) : ST_NAMESPACE;
	case CNS_CSI_NS:
		return csi == 0 ? ST_OK : ST_FIELD;
	case CNS_CSI_CTRL:
		return csi == 0 ? command_set(c, cmd) : ST_FIELD;
	default:
		return ST_FIELD;
	}
}

static void log_changed(struct ctrl *k, uint8_t *p, bool retain)
{
	for (unsigned i = 0; i < k->n_changed; i++)
		put32(p + (size_t)i * 4, k->changed[i]);
	if (k->n_changed == TARGET_NAMESPACES)
		put32(p, 0xffffffff); /* more than fit; they are all to be looked at */
	if (!retain) {
		k->n_changed = 0;
		k->changed_masked = false;
	}
}

/* Records of the subsystems that this host may reach. */
static size_t log_discovery(struct conn *c, const struct tcmd *cmd, uint8_t *p)
{
	struct target *t = c->t;
	uint64_t n = 0, v;

	for (unsigned i = 1; i < t->n_subsystems; i++) {
		uint8_t *e = p + 1024 + n * 1024;

		if (!target_host_allowed(t->subsystems[i], c->ctrl->host_nqn))
			continue;
		e[0] = t->o.carrier ? t->o.carrier->trtype : 3; /* TCP */
		e[1] = 1;                                       /* IPv4 */
		e[2] = 2;                                       /* NVM subsystem */
		put16(e + 4, 1);
		put16(e + 6, 0xffff); /* dynamic controllers */
		put16(e + 8, 32);
		snprintf((char *)e + 32, 32, "%u", t->port);
		snprintf((char *)e + 256, 256, "%s", t->subsystems[i]->nqn);
		snprintf((char *)e + 512, 256, "%s", t->o.address);
		n++;
	}
	if (lie(c, cmd, FAULT_DISC_GENCTR, NULL))
		t->genctr++;
	put64(p, t->genctr);
	put64(p + 8, n);
	if (lie(c, cmd, FAULT_DISC_NUMREC, &v))
		put64(p + 8, v);
	return 1024 + n * 1024;
}

#define LOG_BYTES ((size_t)(TARGET_SUBSYSTEMS + 1) * 1024)

/* The whole page into @page: its length, or 0 for one that there is not. */
static size_t log_make(struct conn *c, const struct tcmd *cmd, uint8_t *page)
{
	bool discovery = c->ctrl->subsys->discovery, retain = cmd->sqe[41] & 0x80;

	switch (cmd->sqe[40]) {
	case LOG_ERRORS:
		return 64;
	case LOG_HEALTH:
	case LOG_FIRMWARE:
		return discovery ? 0 : 512;
	case LOG_CHANGED:
		if (discovery)
			return 0;
		log_changed(c->ctrl, page, retain);
		return 4096;
	case LOG_DISCOVERY:
		return discovery ? log_discovery(c, cmd, page) : 0;
	default:
		return 0;
	}
}

uint16_t target_log_page(struct conn *c, struct tcmd *cmd)
{
	uint64_t want = (((uint64_t)le16(cmd->sqe + 44) << 16 | le16(cmd->sqe + 42)) + 1) * 4;
	uint64_t offset = le64(cmd->sqe + 48);
	uint8_t *page = calloc(1, LOG_BYTES);
	size_t len;

	if (!page)
		abort(); /* of a test */
	len = log_make(c, cmd, page);
	if (len && lie(c, cmd, FAULT_LOG_GARBAGE, NULL))
		crypto_random(page, LOG_BYTES);
	if (len && want == cmd->len && offset % 4 == 0 && offset <= len)
		memcpy(cmd->data, page + offset, MIN(want, len - offset));
	free(page);
	if (!len)
		return ST_LOG_PAGE;
	if (want != cmd->len)
		return ST_SGL_LENGTH;
	return offset % 4 || offset > len ? ST_FIELD : ST_OK;
}
