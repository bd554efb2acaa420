/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving half of the data connection; see rx_priv.h for its states and invariants. */
#include "dataplane/client/rx_priv.h"
#include "common/util.h"
#include "dataplane/client/codec.h"
#include <errno.h>
#include <string.h>

void rx_reset(struct rx *r, const struct rx_ops *ops, void *arg)
{
	uint64_t copied = r->copied_bytes;

	memset(r, 0, offsetof(struct rx, stage));
	r->ops = ops;
	r->arg = arg;
	r->copied_bytes = copied;
}

int rx_iov(struct rx *r, enum rx_expect expect, struct iovec iov[2])
{
	static const size_t rooms[] = {[RX_EXPECT_NO_PAYLOAD] = RX_STAGE_MAX,
	                               [RX_EXPECT_PAYLOAD] = RX_STAGE_BYTES,
	                               [RX_EXPECT_SMALL_READS] = RX_STAGE_BULK};
	size_t room = rooms[expect];
	int n = 0;

	if (r->in_payload) {
		iov[n++] = (struct iovec){r->dst, r->left};
		room = expect == RX_EXPECT_SMALL_READS ? room : RX_STAGE_BYTES;
	}
	/* What is staged is less than one header, so there is always room. */
	memmove(r->stage, r->stage + r->at, r->staged);
	r->at = 0;
	iov[n++] = (struct iovec){r->stage + r->staged, room - r->staged};
	return n;
}

static int end_message(struct rx *r, struct ros2_err *err)
{
	r->in_payload = false;
	r->dst = NULL;
	return r->ops->on_message(r->arg, &r->head, err);
}

/* Takes one message's bytes off the stage. Returns 1 when it took some, 0 when it needs more. */
static int take_staged(struct rx *r, struct ros2_err *err)
{
	void *dst = NULL;
	size_t n;
	int rc;

	if (r->staged < WIRE_HEADER_LEN)
		return 0;
	memcpy(&r->head, r->stage + r->at, WIRE_HEADER_LEN);
	rc = codec_check(&r->head, err);
	if (!rc)
		rc = r->ops->on_header(r->arg, &r->head, &dst, err);
	if (rc)
		return rc;
	n = MIN(r->staged - WIRE_HEADER_LEN, (size_t)r->head.payload_len);
	if (n)
		memcpy(dst, r->stage + r->at + WIRE_HEADER_LEN, n);
	r->copied_bytes += n;
	r->staged -= WIRE_HEADER_LEN + n;
	r->at += WIRE_HEADER_LEN + n;
	r->left = r->head.payload_len - (uint32_t)n;
	r->dst = r->left ? (uint8_t *)dst + n : NULL;
	r->in_payload = true;
	if (r->left)
		return 0;
	rc = end_message(r, err);
	return rc ? rc : 1;
}

int rx_advance(struct rx *r, size_t n, struct ros2_err *err)
{
	int rc = 1;

	if (r->failed)
		return ros2_err_named(err, ROS2_CLOSED, "the connection has failed before");
	if (r->in_payload) {
		size_t take = MIN(n, (size_t)r->left);

		r->dst += take;
		r->left -= (uint32_t)take;
		n -= take;
		rc = r->left ? 0 : end_message(r, err);
		if (!rc && !r->left)
			rc = 1;
	}
	r->staged += n;
	while (rc > 0)
		rc = take_staged(r, err);
	r->failed = rc < 0;
	return rc;
}
