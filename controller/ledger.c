/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts become records here, on the store thread, in commit order. The heads in memory equal
 * the heads in the last commit except between ledger_mark and save/undo. What a peer or tenant can
 * put into a draft is cut to bounds first, so a record always fits.
 */
#include "controller/ledger.h"
#include "common/hash.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "proto/audit/audit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TENANTS_CACHED 8192
#define TEXT_MAX       512 /* bytes of one string of a record */

struct tenant {
	struct ros2_uid uid;
	struct audit_tenant_head now, marked;
	bool moved;
	struct tenant *next_moved; /* borrowed */
	UT_hash_handle hh;
};

struct ledger {
	const struct store_ops *ops;
	void *backend; /* borrowed: until ledger_free */
	struct store_epoch epoch;
	struct audit_head now, marked;
	struct tenant *tenants; /* owned */
	struct tenant *moved;
};

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

size_t ledger_head_pack(const struct audit_head *h, uint8_t out[LEDGER_HEAD_MAX])
{
	size_t n = LEDGER_HEAD_FIXED;

	put64(out, h->seq);
	memcpy(out + 8, h->chain, SHA256_LEN);
	put64(out + 8 + SHA256_LEN, h->tree.size);
	for (int i = 0; i < 64; i++) {
		if (!(h->tree.size >> i & 1))
			continue;
		memcpy(out + n, h->tree.peaks[i], SHA256_LEN);
		n += SHA256_LEN;
	}
	return n;
}

int ledger_head_unpack(const uint8_t *p, size_t len, struct audit_head *h)
{
	size_t n = LEDGER_HEAD_FIXED;

	memset(h, 0, sizeof(*h));
	if (len < LEDGER_HEAD_FIXED)
		return -EBADMSG;
	h->seq = get64(p);
	memcpy(h->chain, p + 8, SHA256_LEN);
	h->tree.size = get64(p + 8 + SHA256_LEN);
	for (int i = 0; i < 64; i++) {
		if (!(h->tree.size >> i & 1))
			continue;
		if (n + SHA256_LEN > len)
			return -EBADMSG;
		memcpy(h->tree.peaks[i], p + n, SHA256_LEN);
		n += SHA256_LEN;
	}
	return n == len && h->tree.size == h->seq ? 0 : -EBADMSG;
}

static int load_head(struct ledger *l, struct ros2_err *err)
{
	uint8_t chain[SHA256_LEN] = {0};
	AUTO_FREE void *blob = NULL;
	uint64_t last, note;
	size_t len;
	int r = l->ops->audit_last(l->backend, &last, chain, &note, err);

	if (r < 0)
		return r;
	r = l->ops->meta_get(l->backend, "audit_head", &blob, &len, err);
	if (r == -ENOENT)
		r = last ? -EBADMSG : 0;
	else if (!r)
		r = ledger_head_unpack(blob, len, &l->now);
	if (!r && (last != l->now.seq || memcmp(chain, l->now.chain, SHA256_LEN) != 0))
		r = -EBADMSG;
	if (r == -EBADMSG)
		ros2_err_set(
			err, r,
			"the audit log ends at record %llu, but its saved end says %llu or another "
			"hash: the database was changed outside ros2-controller; restore a backup",
			(unsigned long long)last, (unsigned long long)l->now.seq);
	return r;
}

int ledger_open(const struct store_ops *ops, void *backend, const struct store_epoch *epoch,
                struct ledger **ret, struct ros2_err *err)
{
	struct ledger *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	l->ops = ops;
	l->backend = backend;
	l->epoch = *epoch;
	r = load_head(l, err);
	if (r < 0) {
		ledger_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void forget_tenants(struct ledger *l)
{
	struct tenant *t, *tmp;

	HASH_ITER (hh, l->tenants, t, tmp) {
		HASH_DEL(l->tenants, t);
		free(t);
	}
}

void ledger_free(struct ledger *l)
{
	if (!l)
		return;
	forget_tenants(l);
	free(l);
}

int ledger_check(struct ledger *l, struct ros2_err *err)
{
	uint8_t chain[SHA256_LEN] = {0};
	uint64_t last, note;
	int r = l->ops->audit_last(l->backend, &last, chain, &note, err);

	if (r < 0 || (last == l->now.seq && !memcmp(chain, l->now.chain, SHA256_LEN)))
		return r;
	return ros2_err_set(err, -EIO,
	                    "the database is not as it was left: its log should end with record "
	                    "%llu and ends with %s%llu: another program has written to it",
	                    (unsigned long long)l->now.seq, last == l->now.seq ? "another " : "",
	                    (unsigned long long)last);
}

void ledger_mark(struct ledger *l)
{
	if (HASH_COUNT(l->tenants) > TENANTS_CACHED)
		forget_tenants(l);
	l->marked = l->now;
	l->moved = NULL;
}

static int find_tenant(struct ledger *l, const struct ros2_uid *uid, struct tenant **ret,
                       struct ros2_err *err)
{
	struct store_tenant_head h = {0};
	struct tenant *t;
	int r;

	HASH_FIND(hh, l->tenants, uid->b, ROS2_UID_LEN, t);
	if (!t) {
		r = l->ops->tenant_get(l->backend, uid, &h, err);
		if (r < 0 && r != -ENOENT)
			return r;
		t = calloc(1, sizeof(*t));
		if (!t)
			return ros2_err_set(err, -ENOMEM, "out of memory");
		t->uid = *uid;
		t->now.seq = h.seq;
		memcpy(t->now.prev, h.prev, SHA256_LEN);
		HASH_ADD(hh, l->tenants, uid.b, ROS2_UID_LEN, t);
		if (!HASH_TOOK(hh, t)) {
			free(t);
			return ros2_err_set(err, -ENOMEM, "out of memory");
		}
	}
	if (!t->moved) {
		t->marked = t->now;
		t->moved = true;
		t->next_moved = l->moved;
		l->moved = t;
	}
	*ret = t;
	return 0;
}

/* Records come partly from peers: each string within its bound, and UTF-8. A record that is not
 * does not parse again, and the log would be "not intact" from there on, for ever. */
static char *fit(const char *s, char *room)
{
	const char *p = s ? s : "";
	size_t at = 0, n;
	uint32_t cp;

	while (*p && at + 4 < TEXT_MAX) {
		n = utf8_decode(p, strnlen(p, 4), &cp);
		memcpy(room + at, n ? p : "?", n ? n : 1);
		at += n ? n : 1;
		p += n ? n : 1;
	}
	room[at] = '\0';
	return room;
}

struct record {
	Ros2__V1__AuditRecord rec;
	Ros2__V1__Epoch epoch;
	Ros2__V1__AuditOrigin origin;
	Ros2__V1__AuditAggregate aggregate;
	Ros2__V1__AuditDetail details[STORE_DETAILS_MAX], *detail_ptrs[STORE_DETAILS_MAX];
	char tenant_uid[ROS2_UID_STR_LEN];
	char room[16 + 2 * STORE_DETAILS_MAX][TEXT_MAX];
};

static void fill_parts(struct record *r, struct store_draft *d)
{
	size_t room = 16;

	if (d->has_origin) {
		ros2__v1__audit_origin__init(&r->origin);
		r->origin.agent = fit(d->origin_agent, r->room[0]);
		r->origin.agent_uid = fit(d->origin_agent_uid, r->room[1]);
		r->origin.incarnation = fit(d->origin_incarnation, r->room[2]);
		r->origin.seq = d->origin_seq;
		r->origin.time_unix_ns = d->origin_time_unix_ns;
		r->rec.origin = &r->origin;
	}
	if (d->count) {
		ros2__v1__audit_aggregate__init(&r->aggregate);
		r->aggregate.count = d->count;
		r->aggregate.first_unix_ns = d->first_unix_ns;
		r->aggregate.last_unix_ns = d->last_unix_ns;
		r->rec.aggregate = &r->aggregate;
	}
	for (size_t i = 0; i < d->n_details; i++) {
		ros2__v1__audit_detail__init(&r->details[i]);
		r->details[i].key = fit(d->details[i].key, r->room[room++]);
		r->details[i].value = fit(d->details[i].value, r->room[room++]);
		r->detail_ptrs[i] = &r->details[i];
	}
	r->rec.n_details = d->n_details;
	r->rec.details = r->detail_ptrs;
}

/* The strings of @d end up bounded too: they are index columns. */
static void fill_record(struct ledger *l, struct record *r, struct store_draft *d, uint64_t now)
{
	Ros2__V1__AuditRecord *a = &r->rec;

	ros2__v1__audit_record__init(a);
	ros2__v1__epoch__init(&r->epoch);
	r->epoch.lineage.data = l->epoch.lineage.b;
	r->epoch.lineage.len = ROS2_UID_LEN;
	r->epoch.counter = l->epoch.counter;
	a->epoch = &r->epoch;
	a->time_unix_ns = now;
	a->actor = fit(d->actor, r->room[3]);
	a->role = fit(d->role, r->room[4]);
	a->peer = fit(d->peer, r->room[5]);
	a->action = fit(d->action, r->room[6]);
	a->object_kind = fit(d->object_kind, r->room[7]);
	a->object_name = fit(d->object_name, r->room[8]);
	a->object_uid = fit(d->object_uid, r->room[9]);
	a->result = (Ros2__V1__AuditResult)d->result;
	a->status = fit(d->status, r->room[10]);
	a->reason = fit(d->reason, r->room[11]);
	a->policy_version = d->policy_version;
	a->tenant = fit(d->tenant, r->room[12]);
	a->tenant_uid = (char *)"";
	if (!ros2_uid_is_zero(&d->tenant_uid)) {
		ros2_uid_to_str(&d->tenant_uid, r->tenant_uid);
		a->tenant_uid = r->tenant_uid;
	}
	fill_parts(r, d);
	d->tenant = a->tenant;
	d->action = a->action;
	d->actor = a->actor;
	d->object_name = a->object_name;
	d->object_uid = a->object_uid;
}

/* Far beyond the record's bound only with many long details: those go first. */
static int append_cut(struct ledger *l, struct audit_tenant_head *t, struct record *r,
                      struct audit_appended *out, struct ros2_err *err)
{
	for (;;) {
		int rc = audit_append(&l->now, t, &r->rec, out, err);

		if (rc != -EMSGSIZE || r->rec.n_details == 0)
			return rc;
		r->rec.n_details--;
	}
}

int ledger_append(struct ledger *l, struct store_draft *d, struct ros2_err *err)
{
	struct record r;
	struct audit_appended out = {0};
	struct tenant *t = NULL;
	struct store_row_audit row;
	struct store_draft as_given = *d;
	int rc;

	memset(&r, 0, offsetof(struct record, room));
	if (!ros2_uid_is_zero(&d->tenant_uid)) {
		rc = find_tenant(l, &d->tenant_uid, &t, err);
		if (rc < 0)
			return rc;
	}
	row.time_unix_ns = clock_unix_ns();
	fill_record(l, &r, d, row.time_unix_ns);
	rc = append_cut(l, t ? &t->now : NULL, &r, &out, err);
	if (rc < 0)
		return rc;
	row.seq = out.seq;
	row.draft = d;
	row.record = out.bytes;
	row.record_len = out.len;
	row.chain = out.chain;
	rc = l->ops->audit(l->backend, &row, err);
	free(out.bytes);
	*d = as_given; /* the cut copies live in this frame, and the draft may be appended again */
	return rc;
}

int ledger_save(struct ledger *l, struct ros2_err *err)
{
	uint8_t blob[LEDGER_HEAD_MAX];
	int r = 0;

	if (l->now.seq == l->marked.seq)
		return 0;
	for (struct tenant *t = l->moved; t && !r; t = t->next_moved) {
		struct store_tenant_head h = {.seq = t->now.seq};

		memcpy(h.prev, t->now.prev, SHA256_LEN);
		r = l->ops->tenant_put(l->backend, &t->uid, &h, err);
	}
	if (!r)
		r = l->ops->meta_put(l->backend, "audit_head", blob,
		                     ledger_head_pack(&l->now, blob), err);
	return r;
}

static void unmark(struct ledger *l, bool back)
{
	for (struct tenant *t = l->moved; t; t = t->next_moved) {
		if (back)
			t->now = t->marked;
		t->moved = false;
	}
	l->moved = NULL;
}

void ledger_undo(struct ledger *l)
{
	l->now = l->marked;
	unmark(l, true);
}

void ledger_settle(struct ledger *l)
{
	unmark(l, false);
}

uint64_t ledger_seq(const struct ledger *l)
{
	return l->now.seq;
}

int ledger_checkpoint(struct ledger *l, const char *origin, const struct crypto_sign_key *key,
                      struct ros2_err *err)
{
	char note[AUDIT_NOTE_MAX];
	uint8_t root[SHA256_LEN];
	int r;

	merkle_acc_root(&l->now.tree, root);
	r = audit_checkpoint_sign(origin, l->now.seq, root, key, note);
	if (r < 0)
		return ros2_err_set(err, r, "cannot sign a checkpoint of the audit log");
	return l->ops->note(l->backend, l->now.seq, note, err);
}
