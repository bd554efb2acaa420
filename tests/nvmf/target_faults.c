/* SPDX-License-Identifier: Apache-2.0 */
/* The table of faults, and whether a rule lets one loose here and now. */
#include "tests/nvmf/target_priv.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *name, *what;
} faults[FAULTS_N] = {[FAULT_NONE] = {"none", "nothing"},
#define X(id, name, what) [FAULT_##id] = {name, what},
                      TARGET_FAULTS(X)
#undef X
};

const char *target_fault_to_str(enum target_fault f)
{
	return (unsigned)f < FAULTS_N ? faults[f].name : NULL;
}

const char *target_fault_what(enum target_fault f)
{
	return (unsigned)f < FAULTS_N ? faults[f].what : NULL;
}

enum target_fault target_fault_parse(const char *name)
{
	for (unsigned f = 1; f < FAULTS_N; f++)
		if (!strcmp(faults[f].name, name))
			return (enum target_fault)f;
	return FAULT_NONE;
}

static bool fits(const struct target_rule *r, const struct conn *c, const struct tcmd *cmd, int pdu)
{
	if (r->host_nqn[0] && (!c->ctrl || strcmp(c->ctrl->host_nqn, r->host_nqn)))
		return false;
	if (r->qid && (!c->ctrl || c->qid != r->qid - 1))
		return false;
	if (r->opcode && (!cmd || cmd->sqe[0] != r->opcode - 1))
		return false;
	return !r->pdu || r->pdu - 1 == pdu;
}

bool target_lies(struct conn *c, const struct tcmd *cmd, int pdu, enum target_fault f,
                 uint64_t *ret_arg)
{
	for (unsigned i = 0; i < c->t->n_rules; i++) {
		struct rule *r = &c->t->rules[i];

		if (r->r.fault != f || !fits(&r->r, c, cmd, pdu) || r->seen++ < r->r.skip)
			continue;
		if (r->r.times && r->hits >= r->r.times)
			continue;
		r->hits++;
		c->t->fault_hits[f]++;
		c->lied = true;
		if (ret_arg)
			*ret_arg = r->r.arg;
		return true;
	}
	return false;
}

int target_fault_on(struct target *t, const struct target_rule *r)
{
	int rc = -ENOSPC;

	pthread_mutex_lock(&t->lock);
	if (t->n_rules < RULES_MAX) {
		t->rules[t->n_rules++] = (struct rule){.r = *r};
		rc = 0;
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void target_faults_off(struct target *t)
{
	pthread_mutex_lock(&t->lock);
	t->n_rules = 0;
	pthread_mutex_unlock(&t->lock);
}

uint64_t target_fault_hits(struct target *t, enum target_fault f)
{
	uint64_t n;

	pthread_mutex_lock(&t->lock);
	n = t->fault_hits[f];
	pthread_mutex_unlock(&t->lock);
	return n;
}
