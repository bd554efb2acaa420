/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Authentications of I/O queues, computed by the admin thread: Diffie-Hellman takes milliseconds,
 * in which a reactor would serve nobody. One step of one of them in each turn of that thread, so
 * that keep alives of other controllers are not late. A reactor that gives up in the middle leaves
 * the proof to the thread.
 *
 *   IDLE --ask--> QUEUED --the thread takes it--> RUNNING --> DONE --take--> IDLE
 */
#include "dataplane/nvmf/ctrl_priv.h"
#include <errno.h>
#include <string.h>

enum proof_state { PROOF_IDLE, PROOF_QUEUED, PROOF_RUNNING, PROOF_DONE };

struct nvmf_proof {
	struct nvmf_admin *admin; /* borrowed: outlives it */
	/* the reactor's while IDLE, the thread's while RUNNING */
	struct nvmf_login login;
	struct nvmf_req req;
	struct nvme_cqe answer;
	bool answered;
	int rc;
	struct ros2_err err;
	/* admin.lock */
	enum proof_state state;
	bool dropped;
	struct list link; /* admin.proofs */
};

static void proof_free(struct nvmf_proof *p)
{
	nvmf_login_end(&p->login);
	free(p);
}

int nvmf_proof_new(const struct nvmf_ctrl *c, struct nvmf_proof **ret, struct ros2_err *err)
{
	struct nvmf_proof *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return ros2_err_set(err, -ENOMEM, "no memory for an authentication");
	p->admin = c->admin;
	list_init(&p->link);
	rc = nvmf_login_begin(&p->login, &c->secrets, c->host_nqn, c->admin->config.subsystem, err);
	if (rc < 0) {
		proof_free(p);
		return rc;
	}
	nvmf_login_not_here(&p->login);
	*ret = p;
	return 0;
}

void nvmf_proof_drop(struct nvmf_proof *p)
{
	bool running;

	if (!p)
		return;
	pthread_mutex_lock(&p->admin->lock);
	list_del(&p->link);
	running = p->state == PROOF_RUNNING;
	p->dropped = true;
	pthread_mutex_unlock(&p->admin->lock);
	if (!running)
		proof_free(p);
}

void nvmf_proof_ask(struct nvmf_proof *p, const struct nvme_cqe *answer)
{
	struct nvmf_admin *a = p->admin;

	p->answered = answer != NULL;
	if (answer)
		p->answer = *answer;
	pthread_mutex_lock(&a->lock);
	p->state = PROOF_QUEUED;
	list_add_tail(&a->proofs, &p->link);
	pthread_mutex_unlock(&a->lock);
	nvmf_admin_wake(a);
}

int nvmf_proof_take(struct nvmf_proof *p, struct nvmf_req *ret, struct ros2_err *err)
{
	bool done;

	pthread_mutex_lock(&p->admin->lock);
	done = p->state == PROOF_DONE;
	if (done)
		p->state = PROOF_IDLE;
	pthread_mutex_unlock(&p->admin->lock);
	if (!done)
		return -EINPROGRESS;
	if (p->rc < 0)
		return ros2_err_set(err, p->rc, "%s", p->err.msg);
	if (p->rc == 0) {
		ret->sqe = p->req.sqe;
		ret->dir = p->req.dir;
		ret->buf = p->req.buf;
		ret->len = p->req.len;
	}
	return p->rc;
}

static void compute(struct nvmf_proof *p)
{
	p->rc = p->answered ? nvmf_login_got(&p->login, &p->answer, &p->err) : 0;
	p->req = (struct nvmf_req){.dir = NVMF_NO_DATA};
	if (p->rc == 0)
		p->rc = nvmf_login_fill(&p->login, &p->req, &p->err);
}

bool nvmf_proofs_run(struct nvmf_admin *a)
{
	struct nvmf_proof *p = NULL;
	bool more, dropped;

	pthread_mutex_lock(&a->lock);
	if (!list_empty(&a->proofs)) {
		p = list_first(&a->proofs, struct nvmf_proof, link);
		list_del(&p->link);
		p->state = PROOF_RUNNING;
	}
	pthread_mutex_unlock(&a->lock);
	if (!p)
		return false;
	compute(p);
	pthread_mutex_lock(&a->lock);
	p->state = PROOF_DONE;
	dropped = p->dropped;
	more = !list_empty(&a->proofs);
	pthread_mutex_unlock(&a->lock);
	/* From here on it is the reactor's, unless that has gone. */
	if (dropped)
		proof_free(p);
	else
		nvmf_admin_wake_ports(a);
	return more;
}
