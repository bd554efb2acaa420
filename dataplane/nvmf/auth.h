/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DH-HMAC-CHAP (NVMe Base 2.0, 8.13), the host's side: proves that we know the host's secret and,
 * where the document asks for it, makes the target prove that it knows its own. No I/O: the caller
 * carries the messages in Authentication Send and Receive. One thread; secrets are wiped when
 * freed.
 *
 *   SEND negotiate > RECEIVE challenge > SEND reply > RECEIVE success1 [> SEND success2] > DONE
 *   any message that cannot be so: > SEND failure2 > FAILED; failure1 of the target: > FAILED
 */
#ifndef ROS2_DATAPLANE_NVMF_AUTH_H
#define ROS2_DATAPLANE_NVMF_AUTH_H

#include "common/err.h"
#include "dataplane/nvmf/spec.h"
#include <stdbool.h>

#define NVME_AUTH_SECRET_TEXT_MAX 128  /* with the NUL: DHHC-1 of 64 bytes has 103 */
#define NVME_AUTH_MESSAGE_MAX     4096 /* both ways; also the allocation length of Receive */

/* "DHHC-1:hh:BASE64:", Base 8.13.5.8: 32, 48 or 64 bytes and their CRC-32. */
struct nvme_auth_secret {
	uint8_t key[64];
	uint8_t key_len;
	uint8_t transform; /* hh: 0 = used as it is, else enum nvme_auth_hash */
};
/* -EINVAL with words that never hold a part of the secret. Blanks and one newline at the end are
 * no part of it. */
int nvme_auth_secret_parse(const char *text, struct nvme_auth_secret *ret, struct ros2_err *err);
/* From the file @name in the directory @dir. @name has no '/'. -EINVAL, -ENOENT, -EPERM (not a
 * regular file, or others than its owner may read it), -EIO ... */
int nvme_auth_secret_load(const char *dir, const char *name, struct nvme_auth_secret *ret,
                          struct ros2_err *err);
void nvme_auth_secret_wipe(struct nvme_auth_secret *s);

struct nvme_auth_opts {
	const struct nvme_auth_secret *host;   /* copied */
	const struct nvme_auth_secret *target; /* copied; NULL: the target need not prove itself */
	const char *hostnqn, *subnqn;          /* copied */
	bool require_dh; /* do not offer the null group, in which no Diffie-Hellman is done */
};
struct nvme_auth;
/* -ENOMEM, -EINVAL (a name that is no NQN). */
int nvme_auth_new(const struct nvme_auth_opts *o, struct nvme_auth **ret, struct ros2_err *err);
void nvme_auth_free(struct nvme_auth *a); /* NULL is accepted */

enum nvme_auth_step {
	NVME_AUTH_SEND,    /* build a message, and send it */
	NVME_AUTH_RECEIVE, /* receive one, and take it */
	NVME_AUTH_DONE,    /* both sides are who they say, as far as was asked */
	NVME_AUTH_FAILED,  /* the queue must be ended */
};
const char *nvme_auth_step_to_str(enum nvme_auth_step s);
enum nvme_auth_step nvme_auth_step(const struct nvme_auth *a);
/* In step SEND: the message into @buf (NVME_AUTH_MESSAGE_MAX bytes), *ret_len of them. 0, or -EIO
 * where OpenSSL cannot; then FAILED. Diffie-Hellman takes its milliseconds here and in take. */
int nvme_auth_build(struct nvme_auth *a, uint8_t *buf, size_t *ret_len, struct ros2_err *err);
/* In step RECEIVE: what has come; bytes after the message are not looked at. -EKEYREJECTED: the
 * target refused us, or did not prove itself; -EPROTO: it broke the protocol; words say how. After
 * an error the step is SEND (of failure2) or FAILED. */
int nvme_auth_take(struct nvme_auth *a, const void *data, size_t len, struct ros2_err *err);
#endif
