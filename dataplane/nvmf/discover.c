/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log is read as: its header, the entries in parts, the header again. Only if the generation
 * counter is the same at the end are the entries of one log (Base 5.16.1.23).
 */
#include "dataplane/nvmf/discover.h"
#include "common/util.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY    sizeof(struct nvme_discovery_entry)
#define HEADER   sizeof(struct nvme_discovery_header)
#define PER_PART (NVME_DISCOVERY_PART / ENTRY)

enum stage { BEGIN, ENTRIES, END, DONE, FAILED };

struct nvme_discovery {
	enum stage stage;
	uint32_t restarts;
	uint64_t generation;
	size_t n, taken;                 /* entries told, and read */
	struct nvme_discovered *entries; /* owned: n of them */
};

const char *nvme_trtype_to_str(uint8_t transport)
{
	switch (transport) {
	case NVME_TRTYPE_RDMA:
		return "rdma";
	case NVME_TRTYPE_FC:
		return "fc";
	case NVME_TRTYPE_TCP:
		return "tcp";
	case NVME_TRTYPE_LOOP:
		return "loop";
	default:
		return "unknown";
	}
}

const char *nvme_adrfam_to_str(uint8_t family)
{
	switch (family) {
	case NVME_ADRFAM_IPV4:
		return "ipv4";
	case NVME_ADRFAM_IPV6:
		return "ipv6";
	case NVME_ADRFAM_IB:
		return "ib";
	case NVME_ADRFAM_FC:
		return "fc";
	case NVME_ADRFAM_LOOP:
		return "loop";
	default:
		return "unknown";
	}
}

const char *nvme_subtype_to_str(uint8_t kind)
{
	switch (kind) {
	case NVME_SUBTYPE_REFERRAL:
		return "referral";
	case NVME_SUBTYPE_NVM:
		return "nvme";
	case NVME_SUBTYPE_CURRENT:
		return "this";
	default:
		return "unknown";
	}
}

int nvme_discovered_parse(const void *entry, struct nvme_discovered *ret, struct ros2_err *err)
{
	struct nvme_discovery_entry e;
	struct nvme_discovered d;
	int r;

	memcpy(&e, entry, sizeof(e));
	d = (struct nvme_discovered){
		.transport = e.trtype,
		.family = e.adrfam,
		.kind = e.subtype,
		.requires = e.treq & (NVME_TREQ_SECURE_MASK | NVME_TREQ_NO_SQ_FLOW),
		.tls = e.trtype == NVME_TRTYPE_TCP && e.tsas[0] != NVME_TSAS_TCP_SECTYPE_NONE,
		.port_id = e.portid,
		.cntlid = e.cntlid,
		.admin_entries = e.asqsz,
	};
	if (d.kind < NVME_SUBTYPE_REFERRAL || d.kind > NVME_SUBTYPE_CURRENT)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a discovery entry of type %u: expected 1 to 3",
		                    d.kind);
	r = nvme_text_parse(e.trsvcid, sizeof(e.trsvcid), "service in a discovery entry", d.service,
	                    sizeof(d.service), err);
	if (r == 0)
		r = nvme_text_parse(e.traddr, sizeof(e.traddr), "address in a discovery entry",
		                    d.address, sizeof(d.address), err);
	if (r == 0)
		r = nvme_text_parse(e.subnqn, sizeof(e.subnqn), "NQN in a discovery entry",
		                    d.subnqn, sizeof(d.subnqn), err);
	if (r < 0)
		return r;
	if (!nvme_nqn_valid(d.subnqn))
		return ros2_err_set(err, -EPROTO,
		                    "target sent NQN \"%s\" in a discovery entry: expected an NQN",
		                    d.subnqn);
	*ret = d;
	return 0;
}

int nvme_discovery_new(struct nvme_discovery **ret, struct ros2_err *err)
{
	struct nvme_discovery *d = calloc(1, sizeof(*d));

	if (!d)
		return ros2_err_set(err, -ENOMEM, "discovery: no memory");
	*ret = d;
	return 0;
}

void nvme_discovery_free(struct nvme_discovery *d)
{
	if (!d)
		return;
	free(d->entries);
	free(d);
}

static size_t part(const struct nvme_discovery *d)
{
	return MIN(d->n - d->taken, PER_PART);
}

bool nvme_discovery_next(const struct nvme_discovery *d, uint64_t *ret_offset, uint32_t *ret_len)
{
	switch (d->stage) {
	case BEGIN:
	case END:
		*ret_offset = 0;
		*ret_len = HEADER;
		return true;
	case ENTRIES:
		*ret_offset = HEADER + d->taken * ENTRY;
		*ret_len = (uint32_t)(part(d) * ENTRY);
		return true;
	default:
		return false;
	}
}

static int begin(struct nvme_discovery *d, const struct nvme_discovery_header *h,
                 struct ros2_err *err)
{
	if (h->recfmt)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a discovery log of format %u: expected 0",
		                    h->recfmt);
	if (h->numrec > NVME_DISCOVERY_MAX)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a discovery log of %llu entries: expected at most "
		                    "%u",
		                    (unsigned long long)h->numrec, NVME_DISCOVERY_MAX);
	free(d->entries);
	d->n = (size_t)h->numrec;
	d->taken = 0;
	d->generation = h->genctr;
	d->entries = calloc(MAX(d->n, 1), sizeof(*d->entries));
	if (!d->entries)
		return ros2_err_set(err, -ENOMEM, "discovery: no memory");
	d->stage = d->n ? ENTRIES : DONE;
	return 0;
}

static int take_entries(struct nvme_discovery *d, const uint8_t *at, struct ros2_err *err)
{
	for (size_t n = part(d); n; n--, at += ENTRY) {
		int r = nvme_discovered_parse(at, &d->entries[d->taken], err);

		if (r < 0)
			return r;
		d->taken++;
	}
	if (d->taken == d->n)
		d->stage = END;
	return 0;
}

static int finish(struct nvme_discovery *d, const struct nvme_discovery_header *h,
                  struct ros2_err *err)
{
	if (h->genctr == d->generation && h->numrec == d->n) {
		d->stage = DONE;
		return 0;
	}
	if (h->genctr == d->generation)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a discovery log of %llu entries: expected %zu, as "
		                    "its generation is the same",
		                    (unsigned long long)h->numrec, d->n);
	if (++d->restarts > NVME_DISCOVERY_RESTARTS)
		return ros2_err_set(err, -EAGAIN,
		                    "the discovery log changed each of the %u times that it was "
		                    "read",
		                    NVME_DISCOVERY_RESTARTS + 1);
	return begin(d, h, err);
}

int nvme_discovery_take(struct nvme_discovery *d, const void *data, struct ros2_err *err)
{
	struct nvme_discovery_header h;
	int r;

	if (d->stage == ENTRIES) {
		r = take_entries(d, data, err);
	} else {
		memcpy(&h, data, sizeof(h));
		r = d->stage == BEGIN ? begin(d, &h, err) : finish(d, &h, err);
	}
	if (r < 0)
		d->stage = FAILED;
	return r;
}

const struct nvme_discovered *nvme_discovery_entries(const struct nvme_discovery *d, size_t *ret_n,
                                                     uint64_t *ret_generation)
{
	*ret_n = d->n;
	*ret_generation = d->generation;
	return d->entries;
}
