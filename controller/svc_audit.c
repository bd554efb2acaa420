/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log for readers: Query (filtered) and Raw (every record as stored, with the checkpoints
 * that cover them). A stream reads one page at a time and only when the last one was taken, so a
 * slow reader costs one page of memory and never holds up a commit.
 */
#include "controller/svc_priv.h"
#include "proto/ros2/v1/audit.rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define QUERY_LIMIT_DEFAULT 1000
#define STREAM_LOW          64 /* messages queued: below this the next page is read */
#define PAGE_RECORDS        90 /* each may bring a checkpoint: with STREAM_LOW below the queue's 256 */

struct reader {
	struct svc *s;
	struct rpc_stream *stream; /* a reference */
	struct store_audit_query q;
	bool raw, closed, end;
	uint64_t left;           /* records that may still be sent (query) */
	bool reading;            /* a page is on its way */
	struct loop_timer timer; /* the next page, after what else is due */
	unsigned refs;
};

static void read_more(void *arg);

static void reader_unref(struct reader *r)
{
	if (--r->refs)
		return;
	loop_timer_stop(&r->timer);
	rpc_stream_unref(r->stream);
	free(r);
}

static void reader_fail(struct reader *r, int rc)
{
	char words[SVC_WORDS_MAX];

	snprintf(words, sizeof(words), SVC_TOO_MANY_READS, STORE_READS_MAX);
	if (rc == -EBUSY) {
		svc_crowded(r->s, rpc_stream_peer(r->stream), rpc_stream_method(r->stream), words);
		rpc_stream_close(r->stream, ROS2_BUSY, "%s", words);
	} else if (rc == -ENOMEM) {
		rpc_stream_close(r->stream, ROS2_BUSY, "out of memory: try again");
	} else {
		rpc_stream_close(r->stream, ROS2_IO, "reading the log failed");
	}
}

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)p, .len = n};
}

/* 0, or the stream is over. A page always fits: it is read only when the queue is short. */
static int send_record(struct reader *r, const struct store_audit_row *row)
{
	Ros2__V1__StoredRecord rec = ROS2__V1__STORED_RECORD__INIT;
	Ros2__V1__AuditQueryItem item = ROS2__V1__AUDIT_QUERY_ITEM__INIT;
	Ros2__V1__AuditRawItem raw = ROS2__V1__AUDIT_RAW_ITEM__INIT;

	rec.seq = row->seq;
	rec.record = bytes(row->record, row->record_len);
	rec.chain = bytes(row->chain, SHA256_LEN);
	item.record = &rec;
	raw.item_case = ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD;
	raw.record = &rec;
	return rpc_stream_send(r->stream, r->raw ? &raw.base : &item.base);
}

static int send_note(struct reader *r, const struct store_audit_row *row)
{
	Ros2__V1__AuditRawItem raw = ROS2__V1__AUDIT_RAW_ITEM__INIT;
	Ros2__V1__StoredCheckpoint c = ROS2__V1__STORED_CHECKPOINT__INIT;

	c.size = row->seq;
	c.note = bytes(row->note, strlen(row->note));
	raw.item_case = ROS2__V1__AUDIT_RAW_ITEM__ITEM_CHECKPOINT;
	raw.checkpoint = &c;
	return rpc_stream_send(r->stream, &raw.base);
}

static void on_page(void *arg, const struct store_audit_page *p)
{
	struct reader *r = arg;
	int rc = p->rc;

	r->reading = false;
	rpc_stream_cork(r->stream);
	for (size_t i = 0; !r->closed && !rc && i < p->n && r->left; i++, r->left--) {
		rc = send_record(r, &p->rows[i]);
		if (!rc && r->raw && p->rows[i].note)
			rc = send_note(r, &p->rows[i]);
	}
	rpc_stream_uncork(r->stream);
	if (r->closed || p->rc < 0 || rc < 0) {
		if (!r->closed)
			reader_fail(r, p->rc < 0 ? p->rc : -ENOMEM);
		reader_unref(r);
		return;
	}
	r->q.to_seq = p->to_seq;
	if (r->q.newest)
		r->q.to_seq = p->next_seq;
	else
		r->q.from_seq = p->next_seq;
	r->end = p->end || !r->left || (r->q.newest && !r->q.to_seq);
	if (!r->end)
		loop_timer_in_ms(r->s->ctl->loop, &r->timer, 0, read_more, r);
	else
		rpc_stream_close(r->stream, ROS2_OK, NULL);
	reader_unref(r);
}

static void read_more(void *arg)
{
	struct reader *r = arg;
	struct ctl_caller who;
	int rc;

	if (r->closed || r->reading || r->end || rpc_stream_wait_low(r->stream, STREAM_LOW))
		return;
	/* A stream lives as long as its reader likes; a role may be gone before. */
	if (!svc_authorise(r->s, rpc_stream_peer(r->stream), rpc_stream_method(r->stream), &who)) {
		r->end = true;
		rpc_stream_close(r->stream, ROS2_DENIED, "your role may not read this any more");
		return;
	}
	r->q.limit = (uint32_t)MIN(r->left, (uint64_t)PAGE_RECORDS);
	r->refs++;
	r->reading = true;
	rc = store_read_audit(r->s->ctl->store, &r->q, on_page, r);
	if (rc < 0) {
		r->reading = false;
		r->refs--;
		reader_fail(r, rc);
	}
}

static struct reader *reader_new(struct svc *s, struct rpc_stream *stream)
{
	struct ctl_caller who;
	struct reader *r;

	if (!svc_authorise(s, rpc_stream_peer(stream), rpc_stream_method(stream), &who)) {
		rpc_stream_close(stream, ROS2_DENIED, "your role may not read this");
		return NULL;
	}
	r = calloc(1, sizeof(*r));
	if (!r) {
		rpc_stream_close(stream, ROS2_BUSY, "out of memory");
		return NULL;
	}
	r->s = s;
	r->refs = 1;
	r->left = UINT64_MAX;
	r->stream = rpc_stream_ref(stream);
	rpc_stream_set_data(stream, r);
	return r;
}

static int copy_filter(char *out, size_t max, const char *in, const char *name,
                       struct rpc_stream *stream)
{
	if (strlen(in) < max) {
		strcpy(out, in);
		return 0;
	}
	rpc_stream_close(stream, ROS2_INVALID, "%s is longer than %zu bytes", name, max - 1);
	return -EINVAL;
}

static void query_open(struct rpc_stream *stream, const ProtobufCMessage *req, void *user)
{
	const Ros2__V1__AuditQueryRequest *m = (const Ros2__V1__AuditQueryRequest *)req;
	struct reader *r = reader_new(user, stream);

	if (!r)
		return;
	if (copy_filter(r->q.tenant, sizeof(r->q.tenant), m->tenant, "tenant", stream) ||
	    copy_filter(r->q.action, sizeof(r->q.action), m->action, "action", stream) ||
	    copy_filter(r->q.actor, sizeof(r->q.actor), m->actor, "actor", stream) ||
	    copy_filter(r->q.object, sizeof(r->q.object), m->object, "object", stream))
		return;
	r->q.result = (uint32_t)m->result;
	r->q.from_seq = m->from_seq;
	r->q.to_seq = m->to_seq;
	r->q.since_unix_ns = m->since_unix_ns;
	r->q.until_unix_ns = m->until_unix_ns;
	r->q.newest = m->newest;
	r->left = m->limit ? m->limit : QUERY_LIMIT_DEFAULT;
	read_more(r);
}

static void raw_open(struct rpc_stream *stream, const ProtobufCMessage *req, void *user)
{
	const Ros2__V1__AuditRawRequest *m = (const Ros2__V1__AuditRawRequest *)req;
	struct reader *r = reader_new(user, stream);

	if (!r)
		return;
	r->raw = true;
	r->q.from_seq = m->from_seq ? m->from_seq : 1;
	read_more(r);
}

static void on_writable(struct rpc_stream *stream, void *user)
{
	struct reader *r = rpc_stream_data(stream);

	if (r)
		read_more(r);
}

static void on_closed(struct rpc_stream *stream, const struct ros2_err *why, void *user)
{
	struct reader *r = rpc_stream_data(stream);

	if (!r)
		return;
	r->closed = true;
	loop_timer_stop(&r->timer);
	reader_unref(r);
}

const struct rpc_stream_ops svc_audit_query_ops = {
	.on_open = query_open, .on_writable = on_writable, .on_closed = on_closed};
const struct rpc_stream_ops svc_audit_raw_ops = {
	.on_open = raw_open, .on_writable = on_writable, .on_closed = on_closed};

int svc_add_audit(struct svc *s, struct rpc_server *server, struct ros2_err *err)
{
	const struct rpc_handler rows[] = {
		{.method = &ros2_v1_audit_query, .stream = &svc_audit_query_ops, .user = s},
		{.method = &ros2_v1_audit_raw, .stream = &svc_audit_raw_ops, .user = s},
	};

	return rpc_server_add(server, &ros2_v1_audit_service, rows, ARRAY_SIZE(rows), err);
}
