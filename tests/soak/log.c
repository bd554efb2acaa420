// SPDX-License-Identifier: Apache-2.0
/*
 * The audit log as this checker has seen it: read on from where it was, the last record seen must
 * still be there with the same chain value, and all that follows must fit it. Then: every
 * acknowledged operation has its record, every session that a client had has its own and its
 * grant's.
 */
#include "common/util.h"
#include "proto/audit/audit.h"
#include "tests/soak/history.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define STREAM_MS 60000

static void note_admin(struct world *w, const Ros2__V1__AuditRecord *r)
{
	char key[192];

	if (!strcmp(r->action, "agent.token.create"))
		fact_get(&w->tokens, r->object_uid)->seen++;
	if (strstr(r->action, ".apply"))
		snprintf(key, sizeof(key), "%.40s %.63s %.32s %" PRIu64, r->action, r->object_name,
		         r->object_uid, r->policy_version);
	else if (!strncmp(r->reason, "op-", 3))
		snprintf(key, sizeof(key), "%.40s %.63s", r->action, r->reason);
	else
		snprintf(key, sizeof(key), "%.40s %.63s %.32s", r->action, r->object_name,
		         r->object_uid);
	fact_get(&w->recorded, key);
}

static const char *detail(const Ros2__V1__AuditRecord *r, const char *key)
{
	for (size_t i = 0; i < r->n_details; i++)
		if (!strcmp(r->details[i]->key, key))
			return r->details[i]->value;
	return "";
}

/* AGENT INCARNATION FROM-TO: N, as docs/decisions/0030 has it: N records of that range are in a
 * count. */
static void note_counted(struct world *w, const Ros2__V1__AuditRecord *r, const char *words)
{
	char agent[64], incarnation[33], key[192];
	uint64_t from, to, n;
	struct fact *c;

	if (sscanf(words, "%63s %32s %" SCNu64 "-%" SCNu64 ": %" SCNu64, agent, incarnation, &from,
	           &to, &n) != 5 ||
	    from > to || !n || n > to - from + 1) {
		world_fail(w, "record %" PRIu64 " counts records '%s'", r->seq, words);
		return;
	}
	snprintf(key, sizeof(key), "%s/%s", agent, incarnation);
	(void)fact_get(&w->origins, key);
	c = fact_get(&w->counted, key);
	c->n += n;
	c->seen = MAX(c->seen, to);
}

/* Records of one start of one agent follow each other; what is not there is in a count, or
 * audit.gap says so. */
static void note_origin(struct world *w, const Ros2__V1__AuditRecord *r)
{
	struct fact *f;
	char key[192];

	if (*detail(r, "records")) {
		for (size_t i = 0; i < r->n_details; i++)
			if (!strcmp(r->details[i]->key, "records"))
				note_counted(w, r, r->details[i]->value);
		return;
	}
	snprintf(key, sizeof(key), "%.63s/%.32s", r->origin->agent, r->origin->incarnation);
	f = fact_get(&w->origins, key);
	if (r->origin->seq <= f->n)
		world_fail(w, "record %" PRIu64 " repeats %s seq %" PRIu64, r->seq, key,
		           r->origin->seq);
	f->seen++;
	f->n = MAX(f->n, r->origin->seq);
}

static void note_gap(struct world *w, const Ros2__V1__AuditRecord *r)
{
	char key[192];

	snprintf(key, sizeof(key), "%.63s/%.32s", r->object_name, detail(r, "incarnation"));
	fact_get(&w->gaps, key)->n += strtoull(detail(r, "to_seq"), NULL, 10) -
	                              strtoull(detail(r, "from_seq"), NULL, 10) + 1;
}

static void note_record(struct world *w, const Ros2__V1__AuditRecord *r)
{
	if (r->origin)
		note_origin(w, r);
	else if (!strcmp(r->action, "audit.gap"))
		note_gap(w, r);
	if (r->result != ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK)
		return;
	if (!strcmp(r->role, "admin"))
		note_admin(w, r);
	else if (!strcmp(r->action, "grant.issue"))
		fact_get(&w->issued, r->object_uid);
	else if (!strcmp(r->action, "session.open"))
		snprintf(fact_get(&w->sessions, r->object_uid)->other, ROS2_UID_STR_LEN, "%.32s",
		         detail(r, "grant"));
	else if (!strcmp(r->action, "file.open"))
		fact_get(&w->sessions, detail(r, "session"))->n++;
	else if (!strcmp(r->action, "region.register"))
		fact_get(&w->sessions, detail(r, "session"))->seen++;
}

/* The chain over @s must be what is said; the first one read again must be the last one of before.
 */
static bool take(struct world *w, const Ros2__V1__StoredRecord *s)
{
	Ros2__V1__AuditRecord *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t leaf[SHA256_LEN], both[2 * SHA256_LEN], chain[SHA256_LEN];

	if (s->chain.len != SHA256_LEN ||
	    audit_record_parse(s->record.data, s->record.len, &r, &err))
		return false;
	if (s->seq == w->log_seq) {
		bool same = !memcmp(s->chain.data, w->log_chain, SHA256_LEN);

		ros2__v1__audit_record__free_unpacked(r, NULL);
		return same;
	}
	merkle_leaf(s->record.data, s->record.len, leaf);
	memcpy(both, w->log_chain, SHA256_LEN);
	memcpy(both + SHA256_LEN, leaf, SHA256_LEN);
	crypto_sha256(both, sizeof(both), chain);
	if (s->seq == w->log_seq + 1 && !memcmp(chain, s->chain.data, SHA256_LEN)) {
		w->log_seq = s->seq;
		memcpy(w->log_chain, chain, SHA256_LEN);
		note_record(w, r);
		ros2__v1__audit_record__free_unpacked(r, NULL);
		return true;
	}
	ros2__v1__audit_record__free_unpacked(r, NULL);
	return false;
}

void log_read(struct world *w)
{
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *rd = NULL;
	ProtobufCMessage *m = NULL;
	uint64_t before = w->log_seq, n = 0;
	bool good = true;
	int r;

	q.from_seq = MAX(w->log_seq, 1u);
	if (rpc_reader_open(w->channel, &ros2_v1_audit_raw, &q.base, 0, &rd, &err) < 0) {
		world_fail(w, "the log cannot be read: %s", err.msg);
		return;
	}
	while (good && !(r = rpc_reader_next(rd, STREAM_MS, &m, &err))) {
		const Ros2__V1__AuditRawItem *i = ros2_v1_audit_raw_out(m);

		if (i->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD) {
			n++;
			good = take(w, i->record);
			if (!good)
				world_fail(w,
				           "audit record %" PRIu64
				           " is not what follows the %" PRIu64 " that were seen",
				           i->record->seq, w->log_seq);
		}
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(rd);
	if (good && r != -ENODATA)
		world_fail(w, "the log could not be read to its end: %s", err.msg);
	else if (good && before && !n)
		world_fail(w, "audit record %" PRIu64 " was there and is lost", before);
}

void log_expect(struct world *w)
{
	struct fact *f, *tmp;

	HASH_ITER (hh, w->expected, f, tmp) {
		if (!fact_find(w->recorded, f->key))
			world_fail(w, "acknowledged, and not in the log: %s", f->key);
		HASH_DEL(w->expected, f);
		free(f);
	}
	for (f = w->tokens; f; f = f->hh.next)
		if (f->n > f->seen)
			world_fail(w,
			           "agent %s: %" PRIu64 " tokens were made, %" PRIu64
			           " are recorded",
			           f->key, f->n, f->seen);
}

static void session_end(struct world *w, const struct notes_session *s)
{
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid u;
	struct fact *f;

	memcpy(u.b, s->uid, sizeof(u.b));
	ros2_uid_to_str(&u, uid);
	f = fact_find(w->sessions, uid);
	if (!f || !f->other[0])
		world_fail(w, "session %s was opened, and not recorded", uid);
	else if (!fact_find(w->issued, f->other))
		world_fail(w, "session %s rests on grant %s, which no record issued", uid,
		           f->other);
	else if (f->n < s->files || f->seen < s->regions)
		world_fail(w,
		           "session %s: %u files and %u regions were answered, %" PRIu64
		           " and %" PRIu64 " are recorded",
		           uid, s->files, s->regions, f->n, f->seen);
}

static void origin_end(struct world *w, const struct fact *f)
{
	const struct fact *c = fact_find(w->counted, f->key), *g = fact_find(w->gaps, f->key);
	uint64_t last = MAX(f->n, c ? c->seen : 0), there = f->seen + (c ? c->n : 0);

	if (there > last)
		world_fail(w, "%s: %" PRIu64 " records and counted ones up to seq %" PRIu64, f->key,
		           there, last);
	else if (last - there > (g ? g->n : 0))
		world_fail(w, "%s: %" PRIu64 " records are missing, gaps tell of %" PRIu64, f->key,
		           last - there, g ? g->n : 0);
}

void log_end(struct world *w)
{
	const struct fact *f;

	for (int i = 0; i < w->n_notes; i++)
		for (uint64_t s = 0; s < w->notes[i]->n_sessions; s++)
			session_end(w, &w->notes[i]->session[s]);
	for (f = w->origins; f; f = f->hh.next)
		origin_end(w, f);
	for (f = w->grants; f; f = f->hh.next)
		if (!fact_find(w->issued, f->key))
			world_fail(w, "grant %s was listed, and no record issued it", f->key);
}
