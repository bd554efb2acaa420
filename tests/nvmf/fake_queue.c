/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_queue.h. One lock for everything: done is called without it. */
#include "tests/nvmf/fake_queue.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define RULES_MAX   16
#define ORPHANS_MAX 64

struct nvmf_queue {
	uint16_t qid;
	uint32_t depth, n;
	enum nvmf_queue_state state;
	const char *fault;
	int fd, epoll_fd;
	struct list queued, handed, answers; /* reqs; handed: the target has it */
	struct list link;
	_Atomic bool die;
	struct nvmf_queue_counters counters;
};

struct orphan {
	uint32_t nsid, len;
	uint64_t offset;
	uint8_t data[65536];
};

static struct {
	pthread_mutex_t lock;
	struct list queues;
	struct fake_rule rules[RULES_MAX];
	uint32_t n_rules, seen[RULES_MAX], hits;
	struct fake_stats stats;
	bool refuse, write_cache;
	uint16_t cqt, descriptors;
	uint8_t uuid[FAKE_NAMESPACES];
	uint8_t ready_time;
	uint32_t queues_given, cc;
	uint64_t blocks[FAKE_NAMESPACES];
	uint32_t changed; /* bit nsid: in the log */
	bool tell;
	uint8_t media[FAKE_NAMESPACES][FAKE_NS_BYTES];
	struct orphan orphans[ORPHANS_MAX];
	uint32_t n_orphans;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void ring(struct nvmf_queue *q)
{
	uint64_t one = 1;

	if (write(q->fd, &one, sizeof(one)) < 0)
		abort();
}

#define LOCKED(...)                                                                                \
	do {                                                                                       \
		pthread_mutex_lock(&fake.lock);                                                    \
		__VA_ARGS__;                                                                       \
		pthread_mutex_unlock(&fake.lock);                                                  \
	} while (0)

void fake_reset(void)
{
	pthread_mutex_lock(&fake.lock);
	if (!fake.queues.next)
		list_init(&fake.queues);
	fake.n_rules = fake.hits = fake.n_orphans = fake.changed = 0;
	fake.refuse = fake.tell = fake.write_cache = false;
	fake.cqt = fake.descriptors = 0;
	memset(fake.uuid, 0, sizeof(fake.uuid));
	fake.ready_time = 1;
	fake.queues_given = 8;
	memset(&fake.stats, 0, sizeof(fake.stats));
	memset(fake.media, 0, sizeof(fake.media));
	memset(fake.blocks, 0, sizeof(fake.blocks));
	fake.blocks[0] = fake.blocks[1] = FAKE_NS_BYTES / FAKE_BLOCK;
	pthread_mutex_unlock(&fake.lock);
}

void fake_rule(const struct fake_rule *r)
{
	LOCKED(fake.seen[fake.n_rules] = 0; fake.rules[fake.n_rules++] = *r);
}

void fake_rules_off(void)
{
	struct nvmf_queue *q;

	pthread_mutex_lock(&fake.lock);
	fake.n_rules = 0;
	list_for_each (&fake.queues, q, link)
		ring(q);
	pthread_mutex_unlock(&fake.lock);
}

uint32_t fake_hits(void)
{
	uint32_t n;

	LOCKED(n = fake.hits);
	return n;
}

void fake_cut(void)
{
	struct nvmf_queue *q;

	pthread_mutex_lock(&fake.lock);
	list_for_each (&fake.queues, q, link) {
		q->die = true;
		ring(q);
	}
	pthread_mutex_unlock(&fake.lock);
}

void fake_refuse(bool on)
{
	LOCKED(fake.refuse = on);
}

void fake_orphans(void)
{
	pthread_mutex_lock(&fake.lock);
	for (uint32_t i = 0; i < fake.n_orphans; i++)
		memcpy(fake.media[fake.orphans[i].nsid - 1] + fake.orphans[i].offset,
		       fake.orphans[i].data, fake.orphans[i].len);
	fake.n_orphans = 0;
	pthread_mutex_unlock(&fake.lock);
}

static void tell_change(uint32_t nsid)
{
	struct nvmf_queue *q;

	fake.changed |= 1u << nsid;
	fake.tell = true;
	list_for_each (&fake.queues, q, link)
		ring(q);
}

void fake_resize(uint32_t nsid, uint64_t blocks)
{
	LOCKED(fake.blocks[nsid - 1] = blocks; tell_change(nsid));
}

void fake_uuid(uint32_t nsid, uint8_t value)
{
	LOCKED(fake.uuid[nsid - 1] = value; tell_change(nsid));
}

void fake_descriptors(uint16_t status)
{
	LOCKED(fake.descriptors = status);
}

void fake_write_cache(bool on)
{
	LOCKED(fake.write_cache = on);
}

void fake_cqt(uint16_t ms)
{
	LOCKED(fake.cqt = ms);
}

void fake_ready_time(uint8_t halves)
{
	LOCKED(fake.ready_time = halves);
}

void fake_give_queues(uint32_t n)
{
	LOCKED(fake.queues_given = n);
}

uint8_t *fake_media(uint32_t nsid)
{
	return fake.media[nsid - 1];
}

struct fake_stats fake_stats(void)
{
	struct fake_stats s;

	LOCKED(s = fake.stats);
	return s;
}

/* ---- the target: under the lock ---- */

static bool is_fabrics(const struct nvmf_req *req)
{
	return req->sqe.opcode == NVME_FABRICS;
}

static bool fits(const struct fake_rule *r, const struct nvmf_queue *q, const struct nvmf_req *req)
{
	const struct nvme_property_cmd *p = (const void *)&req->sqe;

	if (r->qid == FAKE_IO ? q->qid == 0 : r->qid && r->qid - 1 != q->qid)
		return false;
	if (r->opcode && r->opcode - 1 != req->sqe.opcode)
		return false;
	if (r->fctype && (!is_fabrics(req) || p->fctype != r->fctype - 1))
		return false;
	return !r->offset || (is_fabrics(req) && (int)p->offset == r->offset - 1);
}

static const struct fake_rule *rule_for(const struct nvmf_queue *q, const struct nvmf_req *req)
{
	for (uint32_t i = 0; i < fake.n_rules; i++) {
		const struct fake_rule *r = &fake.rules[i];
		uint32_t n;

		if (!fits(r, q, req))
			continue;
		n = fake.seen[i]++;
		if (n < r->skip || (r->times && n >= r->skip + r->times))
			continue;
		fake.hits++;
		return r;
	}
	return NULL;
}

static uint16_t fabrics(struct nvmf_queue *q, struct nvmf_req *req, struct nvme_cqe *cqe)
{
	const struct nvme_property_cmd *p = (const void *)&req->sqe;
	const struct nvme_connect_data *d = req->buf;
	uint64_t cap = 127 | (uint64_t)fake.ready_time << 24 | 1ull << 37;
	uint32_t was = fake.cc;

	switch (p->fctype) {
	case NVME_FC_CONNECT:
		fake.stats.connects += q->qid == 0;
		fake.stats.io_connects += q->qid != 0;
		memcpy(fake.stats.host_nqn, d->hostnqn, sizeof(fake.stats.host_nqn));
		cqe->dw0 = 7;
		return 0;
	case NVME_FC_PROPERTY_GET:
		if (p->offset == NVME_PROP_CAP) {
			cqe->dw0 = (uint32_t)cap;
			cqe->dw1 = (uint32_t)(cap >> 32);
		} else if (p->offset == NVME_PROP_CSTS) {
			cqe->dw0 = (fake.cc & NVME_CC_EN) |
			           (fake.cc & NVME_CC_SHN_MASK ? NVME_SHST_DONE << 2 : 0);
		}
		return 0;
	case NVME_FC_PROPERTY_SET:
		fake.cc = (uint32_t)p->value;
		fake.stats.disables += (was & NVME_CC_EN) && !(fake.cc & NVME_CC_EN);
		fake.stats.shutdowns += (fake.cc & NVME_CC_SHN_MASK) != 0;
		return 0;
	}
	return NVME_SC_INVALID_FIELD;
}

static uint16_t descriptors(struct nvmf_req *req)
{
	uint8_t value = fake.uuid[req->sqe.nsid - 1];
	uint8_t *p = req->buf;

	if (fake.descriptors)
		return fake.descriptors;
	if (value) {
		p[0] = NVME_NIDT_UUID;
		p[1] = 16;
		memset(p + 4, value, 16);
	}
	return 0;
}

static uint16_t identify(struct nvmf_req *req)
{
	uint32_t nsid = req->sqe.nsid;

	memset(req->buf, 0, NVME_IDENTIFY_LEN);
	if (req->sqe.cdw10 == NVME_CNS_CONTROLLER) {
		struct nvme_identify_ctrl *id = req->buf;

		id->mdts = 3; /* 32 KiB */
		id->cntlid = 7;
		id->ver = 0x20000;
		id->oaes = NVME_AEC_NS_ATTRIBUTE;
		id->cntrltype = NVME_CNTRLTYPE_IO;
		id->sqes = 0x66;
		id->cqes = 0x44;
		id->nn = FAKE_NAMESPACES;
		id->kas = 1;
		id->cqt = fake.cqt;
		id->vwc = fake.write_cache;
		id->sgls = NVME_SGLS_OFFSET | NVME_SGLS_KEYED | 1;
		id->ioccsz = (64 + 8192) / 16;
		id->iorcsz = 1;
		id->msdbd = 1;
		strcpy(id->subnqn, "nqn.2026-11.test:sub");
		return 0;
	}
	if (req->sqe.cdw10 == NVME_CNS_NS_DESCRIPTORS)
		return descriptors(req);
	if (nsid && nsid <= FAKE_NAMESPACES && fake.blocks[nsid - 1]) {
		struct nvme_identify_ns *ns = req->buf;

		ns->nsze = ns->ncap = ns->nuse = fake.blocks[nsid - 1];
		ns->lbaf[0].lbads = 9;
	}
	return 0;
}

static uint16_t changed_log(struct nvmf_req *req)
{
	uint32_t *ids = req->buf, n = 0;

	memset(req->buf, 0, req->len);
	for (uint32_t i = 1; i <= FAKE_NAMESPACES; i++)
		if (fake.changed & (1u << i))
			ids[n++] = i;
	fake.changed = 0;
	return 0;
}

static uint16_t admin(struct nvmf_req *req, struct nvme_cqe *cqe)
{
	switch (req->sqe.opcode) {
	case NVME_ADMIN_IDENTIFY:
		return identify(req);
	case NVME_ADMIN_SET_FEATURES:
		cqe->dw0 = (req->sqe.cdw10 & 0xff) == NVME_FEAT_QUEUES
		                   ? (fake.queues_given - 1) | (fake.queues_given - 1) << 16
		                   : 0;
		return 0;
	case NVME_ADMIN_GET_LOG_PAGE:
		return changed_log(req);
	case NVME_ADMIN_KEEP_ALIVE:
		fake.stats.keep_alives++;
		return 0;
	}
	return NVME_SC_INVALID_OPCODE;
}

static uint8_t *medium(const struct nvmf_req *req, uint32_t *len, uint64_t *offset)
{
	uint64_t lba = req->sqe.cdw10 | (uint64_t)req->sqe.cdw11 << 32;
	uint32_t blocks = (req->sqe.cdw12 & 0xffff) + 1, nsid = req->sqe.nsid;

	if (nsid == 0 || nsid > FAKE_NAMESPACES || lba + blocks > fake.blocks[nsid - 1])
		return NULL;
	*len = blocks * FAKE_BLOCK;
	*offset = lba * FAKE_BLOCK;
	if (*len != req->len)
		abort();
	return fake.media[nsid - 1] + *offset;
}

static uint16_t io(struct nvmf_req *req)
{
	uint64_t offset;
	uint32_t len;
	uint8_t *at;

	if (req->sqe.opcode == NVME_IO_FLUSH) {
		fake.stats.flushes++;
		return 0;
	}
	at = medium(req, &len, &offset);
	if (!at)
		return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
	if (req->sqe.opcode == NVME_IO_READ) {
		fake.stats.reads++;
		memcpy(req->buf, at, len);
	} else {
		fake.stats.writes++;
		fake.stats.write_blocks_max = MAX(fake.stats.write_blocks_max, len / FAKE_BLOCK);
		memcpy(at, req->buf, len);
	}
	return 0;
}

static void orphan(const struct nvmf_req *req)
{
	struct orphan *o = &fake.orphans[fake.n_orphans];
	uint32_t len;

	if (req->sqe.opcode != NVME_IO_WRITE || fake.n_orphans == ORPHANS_MAX ||
	    !medium(req, &len, &o->offset))
		return;
	o->nsid = req->sqe.nsid;
	o->len = len;
	memcpy(o->data, req->buf, len);
	fake.n_orphans++;
}

/* True: answered, *cqe says what. */
static bool execute(struct nvmf_queue *q, struct nvmf_req *req, struct nvme_cqe *cqe)
{
	const struct fake_rule *r = rule_for(q, req);
	uint16_t status;

	memset(cqe, 0, sizeof(*cqe));
	if (r && (r->action == FAKE_HANG || r->action == FAKE_DIE || r->action == FAKE_WAIT)) {
		if (r->action == FAKE_DIE)
			q->die = true;
		req->priv[0] = r->action != FAKE_WAIT;
		return false;
	}
	if (q->qid == 0 && req->sqe.opcode == NVME_ADMIN_ASYNC_EVENT && !r) {
		if (!fake.tell)
			return false;
		fake.tell = false;
		cqe->dw0 = NVME_EVENT_NOTICE | NVME_NOTICE_NS_ATTRIBUTE << 8 |
		           NVME_LOG_CHANGED_NAMESPACES << 16;
		return true;
	}
	if (r && r->action == FAKE_STATUS) {
		cqe->status = (uint16_t)(r->arg << 1);
		return true;
	}
	status = is_fabrics(req) ? fabrics(q, req, cqe) : q->qid == 0 ? admin(req, cqe) : io(req);
	cqe->status = (uint16_t)(status << 1);
	if (r && r->action == FAKE_VALUE)
		cqe->dw0 = r->arg;
	if (r && r->action == FAKE_ZERO && req->len)
		memset(req->buf, 0, req->len);
	return true;
}

/* ---- the queue ---- */

static int fq_open(const struct nvmf_queue_opts *o, struct nvmf_queue **ret, struct ros2_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = o->epoll_word};
	struct nvmf_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return ros2_err_set(err, -ENOMEM, "no memory");
	q->qid = o->qid;
	q->depth = o->depth;
	q->state = NVMF_QUEUE_CONNECTING;
	q->fault = "";
	q->epoll_fd = o->epoll_fd;
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	list_init(&q->queued);
	list_init(&q->handed);
	list_init(&q->answers);
	if (q->fd < 0 || epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->fd, &ev) < 0) {
		util_close_cleanup(&q->fd);
		free(q);
		return ros2_err_set(err, -EMFILE, "no descriptors");
	}
	LOCKED(list_add_tail(&fake.queues, &q->link); fake.stats.open++);
	ring(q);
	*ret = q;
	return 0;
}

static void give_back(struct nvmf_queue *q, struct list *of, int rc)
{
	while (!list_empty(of)) {
		struct nvmf_req *req = list_first(of, struct nvmf_req, link);

		list_del(&req->link);
		if (rc == -EREMOTEIO)
			LOCKED(orphan(req));
		q->n--;
		req->done(req, rc, NULL);
	}
}

static void fail(struct nvmf_queue *q, const char *why)
{
	if (q->state == NVMF_QUEUE_FAILED)
		return;
	q->state = NVMF_QUEUE_FAILED;
	q->fault = why;
	give_back(q, &q->handed, -EREMOTEIO);
	give_back(q, &q->queued, -ECANCELED);
}

static void fq_kill(struct nvmf_queue *q, const char *why)
{
	fail(q, "killed");
}

static void fq_free(struct nvmf_queue *q)
{
	if (!q)
		return;
	fail(q, "freed");
	LOCKED(list_del(&q->link); fake.stats.open--);
	epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, q->fd, NULL);
	close(q->fd);
	free(q);
}

static enum nvmf_queue_state fq_state(const struct nvmf_queue *q)
{
	return q->state;
}

static const char *fq_fault(const struct nvmf_queue *q)
{
	return q->fault;
}

static int fq_submit(struct nvmf_queue *q, struct nvmf_req *req)
{
	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	if (q->n == q->depth)
		return -EAGAIN;
	req->deadline_ns = 0;
	req->priv[0] = 0;
	list_add_tail(&q->queued, &req->link);
	q->n++;
	return 0;
}

static int fq_kick(struct nvmf_queue *q, uint64_t now_ns)
{
	struct nvmf_req *req, *tmp;
	bool lose = false;

	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	pthread_mutex_lock(&fake.lock);
	list_for_each_safe (&q->queued, req, tmp, link) {
		for (uint32_t i = 0; i < fake.n_rules; i++)
			lose |= fake.rules[i].action == FAKE_LOSE && fits(&fake.rules[i], q, req) &&
			        rule_for(q, req);
		if (lose)
			break;
		list_del(&req->link);
		list_add_tail(&q->handed, &req->link);
		req->deadline_ns = req->timeout_ns ? now_ns + req->timeout_ns : UINT64_MAX;
	}
	pthread_mutex_unlock(&fake.lock);
	if (lose)
		fail(q, "lost before it was handed on");
	ring(q);
	return 0;
}

static uint32_t fq_poll(struct nvmf_queue *q, uint32_t max, uint64_t now_ns)
{
	struct nvmf_req *req, *tmp;
	struct nvme_cqe cqe;
	uint64_t count;
	uint32_t n = 0;
	bool refuse;

	if (read(q->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		abort();
	LOCKED(refuse = fake.refuse; fake.stats.admin_polls += q->qid == 0);
	if (q->state == NVMF_QUEUE_CONNECTING && refuse)
		fail(q, "refused");
	else if (q->state == NVMF_QUEUE_CONNECTING)
		q->state = NVMF_QUEUE_READY;
	list_for_each_safe (&q->handed, req, tmp, link) {
		bool event = q->qid == 0 && req->sqe.opcode == NVME_ADMIN_ASYNC_EVENT, yes;

		if (q->die || (req->priv[0] && !event))
			continue;
		req->priv[0] = 1; /* looked at once; hangs after */
		LOCKED(yes = execute(q, req, &cqe));
		if (!yes)
			continue;
		list_del(&req->link);
		q->n--;
		n++;
		req->done(req, 0, &cqe);
	}
	if (q->die)
		fail(q, "the target is gone");
	return n;
}

static uint64_t next_deadline(const struct nvmf_queue *q)
{
	uint64_t next = UINT64_MAX;
	const struct nvmf_req *req;

	list_for_each (&q->handed, req, link)
		next = MIN(next, req->deadline_ns);
	return next;
}

/* Like the queues of the product: what was answered while nobody looked is no late answer. */
static uint64_t fq_tick(struct nvmf_queue *q, uint64_t now_ns)
{
	if (next_deadline(q) <= now_ns)
		(void)fq_poll(q, UINT32_MAX, now_ns);
	if (next_deadline(q) <= now_ns)
		fail(q, "a command was not answered in time");
	return next_deadline(q);
}

static uint32_t fq_in_flight(const struct nvmf_queue *q)
{
	return q->n;
}

static uint32_t fq_end_key(struct nvmf_queue *q, struct nvmf_req *req, uint64_t now_ns)
{
	const struct nvmf_req *it;

	/* Only what is the queue's may be named. */
	list_for_each (&q->handed, it, link)
		if (it == req) {
			LOCKED(fake.stats.keys_ended++);
			return 1;
		}
	abort();
}

static uint32_t fq_keys_ending(const struct nvmf_queue *q, uint64_t until_ns)
{
	return fake_stats().keys_ended;
}

static void fq_counters(const struct nvmf_queue *q, struct nvmf_queue_counters *ret)
{
	*ret = q->counters;
}

const struct nvmf_queue_ops fake_queue_ops = {.name = "fake",
                                              .open = fq_open,
                                              .free = fq_free,
                                              .state = fq_state,
                                              .fault = fq_fault,
                                              .submit = fq_submit,
                                              .kick = fq_kick,
                                              .poll = fq_poll,
                                              .tick = fq_tick,
                                              .kill = fq_kill,
                                              .end_key = fq_end_key,
                                              .keys_ending = fq_keys_ending,
                                              .in_flight = fq_in_flight,
                                              .counters = fq_counters};
