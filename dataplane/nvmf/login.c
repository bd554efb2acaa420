/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the target breaks off, or does not prove itself, it is still told so (failure2) before the
 * queue ends; what the caller hears is what went wrong first.
 */
#include "dataplane/nvmf/login.h"
#include "common/crypto.h"
#include "dataplane/nvmf/codec.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int load(const char *pattern, const char *dir, const char *tenant,
                struct nvme_auth_secret *ret, struct ros2_err *err)
{
	const char *mark = strstr(pattern, NVMF_TENANT_MARK);
	char name[2 * NVMF_SECRET_NAME_MAX + 2];

	if (!dir)
		return ros2_err_set(err, -ENOENT,
		                    "secret %s: the agent has no directory of secrets "
		                    "(--secrets-dir)",
		                    pattern);
	if (mark)
		snprintf(name, sizeof(name), "%.*s%s%s", (int)(mark - pattern), pattern, tenant,
		         mark + strlen(NVMF_TENANT_MARK));
	else
		snprintf(name, sizeof(name), "%s", pattern);
	return nvme_auth_secret_load(dir, name, ret, err);
}

int nvmf_secrets_load(const struct nvmf_config *k, const char *dir, const char *tenant,
                      struct nvmf_secrets *ret, struct ros2_err *err)
{
	struct nvmf_secrets s = {.has_host = k->secret[0], .has_target = k->target_secret[0]};
	int r = 0;

	if (s.has_host)
		r = load(k->secret, dir, tenant, &s.host, err);
	if (r == 0 && s.has_target)
		r = load(k->target_secret, dir, tenant, &s.target, err);
	if (r == 0)
		*ret = s;
	nvmf_secrets_wipe(&s);
	return r;
}

void nvmf_secrets_wipe(struct nvmf_secrets *s)
{
	crypto_wipe(s, sizeof(*s));
}

int nvmf_login_begin(struct nvmf_login *l, const struct nvmf_secrets *s, const char *hostnqn,
                     const char *subnqn, struct ros2_err *err)
{
	const struct nvme_auth_opts o = {.host = &s->host,
	                                 .target = s->has_target ? &s->target : NULL,
	                                 .hostnqn = hostnqn,
	                                 .subnqn = subnqn};

	nvmf_login_end(l);
	if (!s->has_host)
		return ros2_err_set(err, -EKEYREJECTED,
		                    "the target asks for authentication: expected a secret in the "
		                    "Engine document, found none");
	return nvme_auth_new(&o, &l->auth, err);
}

void nvmf_login_not_here(struct nvmf_login *l)
{
	l->not_by = pthread_self();
	l->elsewhere = true;
}

static void assert_here(const struct nvmf_login *l)
{
	assert(!l->elsewhere || !pthread_equal(l->not_by, pthread_self()));
}

int nvmf_login_fill(struct nvmf_login *l, struct nvmf_req *req, struct ros2_err *err)
{
	enum nvme_auth_step step = nvme_auth_step(l->auth);
	size_t len = sizeof(l->msg);
	int r;

	assert_here(l);
	if (step == NVME_AUTH_DONE)
		return 1;
	l->receives = step == NVME_AUTH_RECEIVE;
	if (l->receives) {
		memset(l->msg, 0, sizeof(l->msg));
		nvme_cmd_auth_receive(&req->sqe, (uint32_t)len);
	} else {
		r = nvme_auth_build(l->auth, l->msg, &len, err);
		if (r < 0)
			return r;
		nvme_cmd_auth_send(&req->sqe, (uint32_t)len);
	}
	req->dir = l->receives ? NVMF_FROM_TARGET : NVMF_TO_TARGET;
	req->buf = l->msg;
	req->len = (uint32_t)len;
	return 0;
}

static int fail(struct nvmf_login *l, struct ros2_err *err)
{
	return ros2_err_set(err, l->why.code, "%s", l->why.msg);
}

int nvmf_login_got(struct nvmf_login *l, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	assert_here(l);
	if (NVME_STATUS_CODE(cqe->status >> 1) != NVME_SC_SUCCESS) {
		if (l->why.code)
			return fail(l, err);
		return ros2_err_set(err, -EKEYREJECTED, "the target refuses Authentication %s: %s",
		                    l->receives ? "Receive" : "Send",
		                    nvme_status_text(cqe->status >> 1));
	}
	if (l->receives)
		(void)nvme_auth_take(l->auth, l->msg, sizeof(l->msg), &l->why);
	return nvme_auth_step(l->auth) == NVME_AUTH_FAILED ? fail(l, err) : 0;
}

void nvmf_login_end(struct nvmf_login *l)
{
	nvme_auth_free(l->auth);
	crypto_wipe(l, sizeof(*l));
}
