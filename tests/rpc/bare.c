/* SPDX-License-Identifier: Apache-2.0 */
/* See bare.h. */
#include "tests/rpc/bare.h"
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static grpc_channel *channel_of(const struct bare *r)
{
	grpc_tls_credentials_options *o = grpc_tls_credentials_options_create();
	grpc_tls_certificate_verifier *v = grpc_tls_certificate_verifier_no_op_create();
	grpc_tls_certificate_provider *p =
		grpc_tls_certificate_provider_file_watcher_create(r->key, r->cert, r->ca, 1);
	grpc_arg arg = {.type = GRPC_ARG_INTEGER,
	                .key = (char *)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL};
	grpc_channel_args args = {1, &arg};
	grpc_channel_credentials *creds;
	grpc_channel *c;

	arg.value.integer = 1;
	grpc_tls_credentials_options_set_certificate_provider(o, p);
	grpc_tls_credentials_options_watch_root_certs(o);
	if (r->cert)
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(o);
	grpc_tls_credentials_options_set_certificate_verifier(o, v);
	grpc_tls_credentials_options_set_check_call_host(o, 0);
	creds = grpc_tls_credentials_create(o);
	c = grpc_channel_create(r->target, creds, &args);
	grpc_channel_credentials_release(creds);
	grpc_tls_certificate_provider_release(p);
	grpc_tls_certificate_verifier_release(v);
	return c;
}

static void wait_tag(grpc_completion_queue *cq)
{
	grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

/* False: not until then. */
static bool wait_tag_until(grpc_completion_queue *cq, gpr_timespec until)
{
	return grpc_completion_queue_next(cq, until, NULL).type == GRPC_OP_COMPLETE;
}

static void text_of(grpc_slice words, char text[512])
{
	size_t len = GRPC_SLICE_LENGTH(words) < 512 ? GRPC_SLICE_LENGTH(words) : 511;

	memcpy(text, GRPC_SLICE_START_PTR(words), len);
	text[len] = '\0';
}

static void run(struct bare *r, grpc_call *call, grpc_completion_queue *cq)
{
	grpc_byte_buffer *out = NULL, *in = NULL;
	grpc_metadata_array init, trail;
	grpc_slice words = grpc_empty_slice(), bytes;
	grpc_metadata md = {.key = grpc_slice_from_static_string("ros2-protocol")};
	grpc_status_code code = GRPC_STATUS_UNKNOWN;
	grpc_op ops[6];
	size_t n = 0;

	memset(ops, 0, sizeof(ops));
	grpc_metadata_array_init(&init);
	grpc_metadata_array_init(&trail);
	ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
	if (r->version) {
		md.value = grpc_slice_from_copied_string(r->version);
		ops[0].data.send_initial_metadata.metadata = &md;
		ops[0].data.send_initial_metadata.count = 1;
	}
	if (r->bytes) {
		bytes = grpc_slice_from_copied_buffer(r->bytes, r->n);
		out = grpc_raw_byte_buffer_create(&bytes, 1);
		grpc_slice_unref(bytes);
		ops[n].op = GRPC_OP_SEND_MESSAGE;
		ops[n++].data.send_message.send_message = out;
	}
	if (!r->keep_open)
		ops[n++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	ops[n].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[n++].data.recv_initial_metadata.recv_initial_metadata = &init;
	ops[n].op = GRPC_OP_RECV_MESSAGE;
	ops[n++].data.recv_message.recv_message = &in;
	ops[n].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	ops[n].data.recv_status_on_client.trailing_metadata = &trail;
	ops[n].data.recv_status_on_client.status = &code;
	ops[n++].data.recv_status_on_client.status_details = &words;
	grpc_call_start_batch(call, ops, n, r, NULL);
	wait_tag(cq);
	r->code = (int)code;
	r->got_reply = in;
	text_of(words, r->message);
	grpc_metadata_array_destroy(&init);
	grpc_metadata_array_destroy(&trail);
	grpc_slice_unref(words);
	if (r->version)
		grpc_slice_unref(md.value);
	if (out)
		grpc_byte_buffer_destroy(out);
	if (in)
		grpc_byte_buffer_destroy(in);
}

void bare_call(struct bare *r)
{
	grpc_completion_queue *cq;
	grpc_channel *channel;
	grpc_call *call;

	grpc_init();
	cq = grpc_completion_queue_create_for_next(NULL);
	channel = channel_of(r);
	call = grpc_channel_create_call(
		channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, grpc_slice_from_static_string(r->path),
		NULL,
		gpr_time_add(
			gpr_now(GPR_CLOCK_MONOTONIC),
			gpr_time_from_millis(r->timeout_ms ? r->timeout_ms : 5000, GPR_TIMESPAN)),
		NULL);
	run(r, call, cq);
	grpc_call_unref(call);
	grpc_channel_destroy(channel);
	grpc_completion_queue_shutdown(cq);
	wait_tag(cq);
	grpc_completion_queue_destroy(cq);
	grpc_shutdown_blocking();
}

/* ---- headers only ---- */

struct held_call {
	grpc_call *call;
	grpc_metadata_array init, trail;
	grpc_status_code code;
	grpc_slice words;
};

struct bare_held {
	grpc_channel *channel;
	grpc_completion_queue *cq;
	size_t n;
	struct held_call calls[];
};

static void hold(struct bare_held *h, struct held_call *c, const struct bare *r)
{
	grpc_metadata md = {.key = grpc_slice_from_static_string("ros2-protocol"),
	                    .value = grpc_slice_from_static_string("1")};
	grpc_op ops[3];

	memset(ops, 0, sizeof(ops));
	grpc_metadata_array_init(&c->init);
	grpc_metadata_array_init(&c->trail);
	c->words = grpc_empty_slice();
	c->call = grpc_channel_create_call(h->channel, NULL, GRPC_PROPAGATE_DEFAULTS, h->cq,
	                                   grpc_slice_from_static_string(r->path), NULL,
	                                   gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[0].data.send_initial_metadata.metadata = &md;
	ops[0].data.send_initial_metadata.count = 1;
	ops[1].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[1].data.recv_initial_metadata.recv_initial_metadata = &c->init;
	ops[2].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	ops[2].data.recv_status_on_client.trailing_metadata = &c->trail;
	ops[2].data.recv_status_on_client.status = &c->code;
	ops[2].data.recv_status_on_client.status_details = &c->words;
	if (grpc_call_start_batch(c->call, ops, 3, c, NULL) != GRPC_CALL_OK)
		abort();
}

struct bare_held *bare_hold(const struct bare *r, size_t n)
{
	struct bare_held *h = calloc(1, sizeof(*h) + n * sizeof(h->calls[0]));

	if (!h)
		abort();
	grpc_init();
	h->n = n;
	h->cq = grpc_completion_queue_create_for_next(NULL);
	h->channel = channel_of(r);
	for (size_t i = 0; i < n; i++)
		hold(h, &h->calls[i], r);
	return h;
}

size_t bare_held_free(struct bare_held *h, size_t refused, int *code, char message[512])
{
	gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
	                                  gpr_time_from_millis(BARE_HELD_MS, GPR_TIMESPAN));
	size_t waited = 0, ended = 0;

	/* The answer to a call comes behind the count of it at the server. */
	while (waited < refused && wait_tag_until(h->cq, until))
		waited++;
	for (size_t i = 0; i < h->n; i++)
		grpc_call_cancel(h->calls[i].call, NULL);
	for (; waited < h->n; waited++)
		wait_tag(h->cq);
	for (size_t i = 0; i < h->n; i++) {
		struct held_call *c = &h->calls[i];

		if (c->code != GRPC_STATUS_CANCELLED) {
			ended++;
			*code = (int)c->code;
			text_of(c->words, message);
		}
		grpc_metadata_array_destroy(&c->init);
		grpc_metadata_array_destroy(&c->trail);
		grpc_slice_unref(c->words);
		grpc_call_unref(c->call);
	}
	grpc_channel_destroy(h->channel);
	grpc_completion_queue_shutdown(h->cq);
	wait_tag(h->cq);
	grpc_completion_queue_destroy(h->cq);
	grpc_shutdown_blocking();
	free(h);
	return ended;
}
