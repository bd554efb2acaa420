/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subsystem whose hosts must authenticate themselves (NVMe Base 2.0, 8.13), on each queue: after
 * Connect nothing but Authentication Send and Receive is carried out until auth_target.h says good.
 */
#include "tests/nvmf/target_priv.h"

#include "tests/nvmf/auth_target.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { AUTH_SECP = 0xe9, ST_AUTH_REQUIRED = 0x4191 };

int target_authenticate(struct target *t, const char *nqn, const char *host_secret,
                        const char *own_secret, uint8_t hash, uint8_t group)
{
	struct subsys *s;

	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	if (s) {
		snprintf(s->host_secret, sizeof(s->host_secret), "%s", host_secret);
		snprintf(s->own_secret, sizeof(s->own_secret), "%s", own_secret ? own_secret : "");
		s->auth_hash = hash;
		s->auth_group = group;
	}
	pthread_mutex_unlock(&t->lock);
	return s ? 0 : -ENOENT;
}

bool target_auth_begin(struct conn *c)
{
	const struct subsys *s = c->ctrl->subsys;

	if (!s->host_secret[0])
		return false;
	auth_target_free(c->auth);
	c->auth = auth_target_new(s->host_secret, s->own_secret[0] ? s->own_secret : NULL,
	                          c->ctrl->host_nqn, s->nqn, s->auth_hash, s->auth_group);
	return true;
}

void target_auth_end(struct conn *c)
{
	auth_target_free(TAKE_PTR(c->auth));
}

bool target_auth_holds(struct conn *c, struct tcmd *cmd)
{
	bool auth = cmd->sqe[0] == 0x7f && (cmd->sqe[4] == 5 || cmd->sqe[4] == 6);

	if (!c->auth || auth || auth_target_state(c->auth) == AUTH_TARGET_GOOD)
		return false;
	target_violates(c, "opcode 0x%02x before the authentication is done", cmd->sqe[0]);
	target_cqe_send(c, cmd, ST_AUTH_REQUIRED, 0);
	return true;
}

void target_auth_run(struct conn *c, struct tcmd *cmd)
{
	uint8_t reply[AUTH_TARGET_MESSAGE_MAX];
	const uint8_t *sqe = cmd->sqe;
	size_t len;

	if (!c->auth) {
		target_cqe_send(c, cmd, ST_SEQUENCE, 0);
		return;
	}
	if (sqe[41] != 1 || sqe[42] != 1 || sqe[43] != AUTH_SECP || le32(sqe + 44) != cmd->len) {
		target_violates(c, "authentication: protocol %02x %02x %02x, length %u of %u",
		                sqe[41], sqe[42], sqe[43], le32(sqe + 44), cmd->len);
		target_cqe_send(c, cmd, ST_FIELD, 0);
		return;
	}
	if (sqe[4] == 5) {
		auth_target_take(c->auth, cmd->data, cmd->len);
		target_cqe_send(c, cmd, ST_OK, 0);
		return;
	}
	len = auth_target_reply(c->auth, reply);
	if (!len || len > cmd->len) {
		target_cqe_send(c, cmd, len ? ST_FIELD : ST_SEQUENCE, 0);
		return;
	}
	memcpy(cmd->data, reply, len);
	target_data_answer(c, cmd, 0);
}
