/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First byte 0 to 63: a secret as text. Else: what a target answers in an authentication, two
 * messages with the length of the first in the second byte times 8; bit 6 of the first byte: the
 * target must prove itself. The transaction is made right, so that mutations reach what lies behind
 * it. Claimed: a refusal has words without the secret and leads to failure2 or the end; without the
 * right response nothing that must be proved is ever done. Only the null and the smallest group are
 * let through: the larger ones take too long.
 */
#include "dataplane/nvmf/auth.h"
#include "tests/fuzz/fuzz.h"
#include <errno.h>

static void secret(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char *text = fuzz_text(data, size);
	struct nvme_auth_secret s;
	int r = nvme_auth_secret_parse(text, &s, &err);

	if (r < 0) {
		must(r == -EINVAL);
		must_refuse(r, &err);
	} else {
		must(s.key_len == 32 || s.key_len == 48 || s.key_len == 64);
		must(s.transform <= 3);
	}
	free(text);
}

static void build(struct nvme_auth *a, uint16_t *tid)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t *msg = (uint8_t *)malloc(NVME_AUTH_MESSAGE_MAX);
	size_t len = 0;

	must(msg && nvme_auth_build(a, msg, &len, &err) == 0);
	must(len >= 8 && len <= NVME_AUTH_MESSAGE_MAX);
	memcpy(tid, msg + 4, sizeof(*tid));
	free(msg);
}

/* In an allocation of exactly its size. */
static int take(struct nvme_auth *a, const uint8_t *data, size_t size, uint16_t tid)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t *msg = (uint8_t *)malloc(size ? size : 1);
	int r;

	must(msg != NULL);
	memcpy(msg, data, size);
	if (size >= 6)
		memcpy(msg + 4, &tid, sizeof(tid));
	if (size >= 10 && msg[9] > 1 && msg[9] < 6)
		msg[9] = 1;
	r = nvme_auth_take(a, msg, size, &err);
	if (r < 0)
		must_refuse(r, &err);
	free(msg);
	return r;
}

static void exchange(const uint8_t *data, size_t size, bool mutual)
{
	static const struct nvme_auth_secret key = {
		.key = "0123456789abcdef0123456789abcde", .key_len = 32, .transform = 1};
	const struct nvme_auth_opts o = {.host = &key,
	                                 .target = mutual ? &key : NULL,
	                                 .hostnqn = "nqn.2026-11.example:host",
	                                 .subnqn = "nqn.2026-11.example:sub"};
	size_t first = size ? data[0] * 8u : 0;
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_auth *a;
	uint16_t tid;

	if (!size)
		return;
	data++, size--;
	first = first < size ? first : size;
	must(nvme_auth_new(&o, &a, &err) == 0);
	build(a, &tid);
	if (take(a, data, first, tid) == 0) {
		must(nvme_auth_step(a) == NVME_AUTH_SEND);
		build(a, &tid);
		if (take(a, data + first, size - first, tid) == 0)
			must(!mutual && nvme_auth_step(a) == NVME_AUTH_DONE);
	}
	if (nvme_auth_step(a) == NVME_AUTH_SEND) {
		build(a, &tid);
		must(nvme_auth_step(a) == NVME_AUTH_FAILED);
	}
	nvme_auth_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 || size > 8192)
		return 0;
	if (data[0] < 64)
		secret(data + 1, size - 1);
	else
		exchange(data + 1, size - 1, data[0] & 64);
	return 0;
}
