/* SPDX-License-Identifier: Apache-2.0 */
/* See bytes_call.h. One completion queue per call; every tag is waited for before it returns. */
#include "tests/rpc/bytes_call.h"
#include "common/clock.h"
#include "common/util.h"
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_STATUS = 1, TAG_SENT, TAG_READ };

struct bytes_channel {
	grpc_channel *channel;
};

struct call {
	grpc_call *call;
	grpc_completion_queue *cq;
	grpc_byte_buffer *out, *in;
	grpc_metadata md;
	grpc_metadata_array init, trail;
	grpc_slice words;
	grpc_status_code code;
	unsigned pending;
};

struct bytes_channel *bytes_channel_new(const char *target, const char *ca, const char *cert,
                                        const char *key)
{
	struct bytes_channel *c = calloc(1, sizeof(*c));
	grpc_tls_credentials_options *o;
	grpc_tls_certificate_verifier *v;
	grpc_tls_certificate_provider *p;
	grpc_channel_credentials *creds;
	grpc_arg arg[] = {{.type = GRPC_ARG_INTEGER,
	                   .key = (char *)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
	                   .value.integer = 1},
	                  /* With them a call whose time is over while it sends a message too long
	                   * to be sent again may never end (gRPC 1.51). */
	                  {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_ENABLE_RETRIES}};
	grpc_channel_args args = {ARRAY_SIZE(arg), arg};

	if (!c)
		abort();
	grpc_init();
	o = grpc_tls_credentials_options_create();
	v = grpc_tls_certificate_verifier_no_op_create();
	p = grpc_tls_certificate_provider_file_watcher_create(key, cert, ca, 1);
	grpc_tls_credentials_options_set_certificate_provider(o, p);
	grpc_tls_credentials_options_watch_root_certs(o);
	if (cert)
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(o);
	grpc_tls_credentials_options_set_certificate_verifier(o, v);
	grpc_tls_credentials_options_set_check_call_host(o, 0);
	creds = grpc_tls_credentials_create(o);
	c->channel = grpc_channel_create(target, creds, &args);
	grpc_channel_credentials_release(creds);
	grpc_tls_certificate_provider_release(p);
	grpc_tls_certificate_verifier_release(v);
	return c;
}

void bytes_channel_free(struct bytes_channel *c)
{
	if (!c)
		return;
	grpc_channel_destroy(c->channel);
	grpc_shutdown_blocking();
	free(c);
}

static void start(struct call *c, const grpc_op *ops, size_t n, intptr_t tag)
{
	if (grpc_call_start_batch(c->call, ops, n, (void *)tag, NULL) != GRPC_CALL_OK)
		abort();
	c->pending++;
}

static void start_status(struct call *c)
{
	grpc_op ops[3];

	memset(ops, 0, sizeof(ops));
	c->md.key = grpc_slice_from_static_string("ros2-protocol");
	c->md.value = grpc_slice_from_static_string("1");
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[0].data.send_initial_metadata.metadata = &c->md;
	ops[0].data.send_initial_metadata.count = 1;
	ops[1].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[1].data.recv_initial_metadata.recv_initial_metadata = &c->init;
	ops[2].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	ops[2].data.recv_status_on_client.trailing_metadata = &c->trail;
	ops[2].data.recv_status_on_client.status = &c->code;
	ops[2].data.recv_status_on_client.status_details = &c->words;
	start(c, ops, 3, TAG_STATUS);
}

static void start_read(struct call *c)
{
	grpc_op op;

	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_RECV_MESSAGE;
	op.data.recv_message.recv_message = &c->in;
	start(c, &op, 1, TAG_READ);
}

/* The next message, or the end after the last. */
static void start_send(struct call *c, const struct bytes_part *m)
{
	grpc_slice bytes;
	grpc_op op;

	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	if (m) {
		bytes = grpc_slice_from_copied_buffer(m->data, m->len);
		c->out = grpc_raw_byte_buffer_create(&bytes, 1);
		grpc_slice_unref(bytes);
		op.op = GRPC_OP_SEND_MESSAGE;
		op.data.send_message.send_message = c->out;
	}
	start(c, &op, 1, TAG_SENT);
}

static void take_reply(struct call *c, struct bytes_result *ret)
{
	grpc_byte_buffer_reader r;
	grpc_slice s;

	if (!ret->replies++ && grpc_byte_buffer_reader_init(&r, c->in)) {
		s = grpc_byte_buffer_reader_readall(&r);
		ret->reply_len = GRPC_SLICE_LENGTH(s) < sizeof(ret->reply) ? GRPC_SLICE_LENGTH(s)
		                                                           : sizeof(ret->reply);
		memcpy(ret->reply, GRPC_SLICE_START_PTR(s), ret->reply_len);
		grpc_slice_unref(s);
		grpc_byte_buffer_reader_destroy(&r);
	}
	grpc_byte_buffer_destroy(c->in);
	c->in = NULL;
}

static void run(struct call *c, const struct bytes_part *messages, size_t n,
                struct bytes_result *ret)
{
	size_t sent = 0;

	start_status(c);
	start_read(c);
	start_send(c, n ? messages : NULL);
	while (c->pending) {
		grpc_event ev = grpc_completion_queue_next(
			c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);

		c->pending--;
		if (ev.tag == (void *)TAG_SENT) {
			if (c->out)
				grpc_byte_buffer_destroy(c->out);
			c->out = NULL;
			if (ev.success && sent < n) {
				sent++;
				start_send(c, sent < n ? &messages[sent] : NULL);
			}
		} else if (ev.tag == (void *)TAG_READ && c->in) {
			take_reply(c, ret);
			start_read(c);
		}
	}
}

void bytes_call(struct bytes_channel *ch, const char *path, const struct bytes_part *messages,
                size_t n, int timeout_ms, struct bytes_result *ret)
{
	uint64_t from_ns = clock_monotonic_ns();
	struct call c = {.code = GRPC_STATUS_UNKNOWN, .words = grpc_empty_slice()};
	size_t len;

	memset(ret, 0, sizeof(*ret));
	grpc_metadata_array_init(&c.init);
	grpc_metadata_array_init(&c.trail);
	c.cq = grpc_completion_queue_create_for_next(NULL);
	c.call = grpc_channel_create_call(
		ch->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c.cq,
		grpc_slice_from_static_string(path), NULL,
		gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
	                     gpr_time_from_millis(timeout_ms, GPR_TIMESPAN)),
		NULL);
	run(&c, messages, n, ret);
	ret->code = (int)c.code;
	len = GRPC_SLICE_LENGTH(c.words) < sizeof(ret->words) ? GRPC_SLICE_LENGTH(c.words)
	                                                      : sizeof(ret->words) - 1;
	memcpy(ret->words, GRPC_SLICE_START_PTR(c.words), len);
	grpc_metadata_array_destroy(&c.init);
	grpc_metadata_array_destroy(&c.trail);
	grpc_slice_unref(c.words);
	grpc_call_unref(c.call);
	grpc_completion_queue_shutdown(c.cq);
	grpc_completion_queue_next(c.cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	grpc_completion_queue_destroy(c.cq);
	ret->seconds = (double)(clock_monotonic_ns() - from_ns) / 1e9;
}
