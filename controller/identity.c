/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents' identities: one-time join tokens, certificates from a request, renewal, rejoin. A private
 * key never comes here; of a token only the hash is kept; a token is bound to one Agent object (its
 * uid, so a re-created name inherits nothing) and is used once, except that the same key may ask
 * again until the token expires (an answer that was lost) or the agent has another key. The proof
 * of possession of a key is the request's own signature.
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include "common/pki.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_TTL_DEFAULT_S 3600
#define TOKEN_TTL_MAX_S     (7 * 24 * 3600)
#define TOKENS_PER_AGENT    16   /* that can be used */
#define TOKENS_KEPT         1024 /* with those that were */
#define SECRET_LEN          32
#define REJOIN_S            (7 * 24 * 3600)
#define SET_BACK_S          60 /* by so much a clock that is kept right may be */

struct ctl_token {
	uint8_t hash[32];
	struct ros2_uid agent_uid;
	uint64_t created_unix_s, expires_unix_s;
	uint64_t until_ns; /* the same end by boottime: putting the clock back gives no time */
	bool used;
	uint8_t used_spki[32];
	UT_hash_handle hh;
};

static uint64_t now_s(void)
{
	return clock_unix_ns() / NS_PER_S;
}

/* ---- tokens in memory ---- */

static bool is_over(const struct ctl_token *t)
{
	return t->expires_unix_s <= now_s() || t->until_ns <= clock_boottime_ns();
}

int ctl_token_load(struct ctl *c, const struct store_token *row)
{
	uint64_t now = now_s(), left_s = row->expires_unix_s - MIN(now, row->expires_unix_s);
	struct ctl_token *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	memcpy(t->hash, row->secret_sha256, sizeof(t->hash));
	t->agent_uid = row->agent_uid;
	t->created_unix_s = row->created_unix_s;
	t->expires_unix_s = row->expires_unix_s;
	left_s = MIN(left_s, row->expires_unix_s - row->created_unix_s);
	t->until_ns = clock_boottime_ns() + MIN(left_s, (uint64_t)TOKEN_TTL_MAX_S) * NS_PER_S;
	t->used = row->used;
	memcpy(t->used_spki, row->used_spki, sizeof(t->used_spki));
	HASH_ADD(hh, c->tokens, hash, sizeof(t->hash), t);
	if (!HASH_TOOK(hh, t)) {
		free(t);
		return -ENOMEM;
	}
	return 0;
}

void ctl_tokens_free(struct ctl *c)
{
	struct ctl_token *t, *tmp;

	HASH_ITER (hh, c->tokens, t, tmp) {
		HASH_DEL(c->tokens, t);
		free(t);
	}
}

void ctl_tokens_forget(struct ctl *c, const struct ros2_uid *agent_uid)
{
	struct ctl_token *t, *tmp;

	HASH_ITER (hh, c->tokens, t, tmp) {
		if (!ros2_uid_eq(&t->agent_uid, agent_uid))
			continue;
		HASH_DEL(c->tokens, t);
		free(t);
	}
}

/* Is it of any use yet? One that was used is for the key that the agent has, whose answer may have
 * been lost. */
static bool is_usable(const struct ctl_token *t, const struct ctl_agent *a)
{
	return !t->used || crypto_equal(t->used_spki, a->spki, sizeof(t->used_spki));
}

/* Drops what expired (its row goes by pruning); how many are left for this agent, and of these, how
 * many can be used. */
static unsigned tokens_of(struct ctl *c, const struct ctl_agent *a, unsigned *ret_usable)
{
	struct ctl_token *t, *tmp;
	unsigned n = 0;

	*ret_usable = 0;

	HASH_ITER (hh, c->tokens, t, tmp) {
		if (is_over(t)) {
			HASH_DEL(c->tokens, t);
			free(t);
		} else if (ros2_uid_eq(&t->agent_uid, &a->obj->uid)) {
			n++;
			*ret_usable += is_usable(t, a);
		}
	}
	return n;
}

/* ---- creating a token ---- */

struct token_op {
	struct ctl *c;
	struct store_token row;
	char text[256];
	ctl_token_fn fn;
	void *arg;
};

static void token_done(void *arg, const struct store_result *r)
{
	struct token_op *op = arg;
	struct ros2_err err = r->err;

	if (!r->rc && ctl_token_load(op->c, &op->row) < 0)
		ros2_err_named(&err, ROS2_BUSY,
		               "out of memory: this token is not known before the next start, "
		               "create another one");
	ctl_gate_leave(op->c);
	op->fn(op->arg, &err, err.code ? "" : op->text, op->row.expires_unix_s);
	crypto_wipe(op->text, sizeof(op->text));
	free(op);
}

static void token_text(struct token_op *op, const struct ctl_agent *a)
{
	uint8_t secret[SECRET_LEN];
	char hex[2 * SECRET_LEN + 1], ca[65];

	crypto_random(secret, sizeof(secret));
	crypto_sha256(secret, sizeof(secret), op->row.secret_sha256);
	crypto_hex(secret, sizeof(secret), hex);
	crypto_hex(op->c->cfg->rights.infra_hash, 32, ca);
	snprintf(op->text, sizeof(op->text), "ros2-join-v1 %s %s %s", a->obj->name, hex, ca);
	crypto_wipe(secret, sizeof(secret));
	crypto_wipe(hex, sizeof(hex));
}

void ctl_token_create(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a,
                      uint32_t ttl_s, ctl_token_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct token_op *op = NULL;
	struct store_txn *t;
	struct store_draft *d;
	unsigned usable, all = tokens_of(c, a, &usable);
	int r = 0;

	if (ttl_s > TOKEN_TTL_MAX_S)
		r = ros2_err_named(&err, ROS2_INVALID,
		                   "a token lives at most %d s (7 days), not %u s", TOKEN_TTL_MAX_S,
		                   ttl_s);
	else if (all >= TOKENS_KEPT)
		r = ros2_err_named(
			&err, ROS2_LIMIT,
			"agent %s had %u tokens that have not expired: wait until some have",
			a->obj->name, all);
	else if (usable >= TOKENS_PER_AGENT)
		r = ros2_err_named(
			&err, ROS2_LIMIT,
			"agent %s has %u tokens that have not expired and can be used: use "
			"one of them",
			a->obj->name, usable);
	else if (!(op = calloc(1, sizeof(*op))))
		r = ros2_err_set(&err, -ENOMEM, "out of memory");
	if (!r) {
		*op = (struct token_op){.c = c, .fn = fn, .arg = arg};
		op->row.agent_uid = a->obj->uid;
		op->row.created_unix_s = now_s();
		op->row.expires_unix_s = now_s() + (ttl_s ? ttl_s : TOKEN_TTL_DEFAULT_S);
		token_text(op, a);
		t = store_txn_new();
		store_txn_add(t, STORE_TOKEN_PUT)->token = op->row;
		d = ctl_audit(t, who, "agent.token.create", STORE_AGENT, a->obj->name,
		              &a->obj->uid);
		store_draft_detail(
			t, d, "expires_unix_s",
			store_txn_fmt(t, "%llu", (unsigned long long)op->row.expires_unix_s));
		r = store_submit(c->store, t, token_done, op, &err);
	}
	if (r < 0) {
		free(op);
		ctl_gate_leave(c);
		fn(arg, &err, "", 0);
	}
}

/* ---- certificates ---- */

struct cert_op {
	struct ctl *c;
	struct ctl_agent *a; /* borrowed: the gate keeps it */
	char *pem;           /* owned */
	struct pki_cert_info info;
	uint8_t token_hash[32];
	bool by_token, renewal;
	ctl_enrol_fn fn;
	void *arg;
};

static void take_identity(struct cert_op *op)
{
	struct ctl_agent *a = op->a;

	if (memcmp(a->spki, op->info.spki_sha256, 32) != 0) {
		if (op->renewal)
			memcpy(a->prev_spki, a->spki, 32);
		else
			memset(a->prev_spki, 0, 32);
		/* A token for a new key takes the agent from whoever holds the old one. */
		if (!op->renewal && a->link)
			link_end(a->link, ROS2_UNAUTHENTICATED,
			         "the agent has enrolled again, with another key");
		memcpy(a->spki, op->info.spki_sha256, 32);
	}
	if (!a->enrolled)
		a->last_contact_ns = clock_boottime_ns();
	a->enrolled = true;
	a->cert_not_after_unix_s = op->info.not_after_unix_s;
	a->enrolled_unix_ns = clock_unix_ns();
	snprintf(a->cert_serial, sizeof(a->cert_serial), "%s", op->info.serial);
}

static void cert_done(void *arg, const struct store_result *r)
{
	struct cert_op *op = arg;
	struct ctl_enrolled res = {.agent_uid = op->a->obj->uid,
	                           .cert_pem = op->pem,
	                           .not_after_unix_s = op->info.not_after_unix_s};
	struct ctl_token *t = NULL;

	if (!r->rc) {
		take_identity(op);
		HASH_FIND(hh, op->c->tokens, op->token_hash, sizeof(op->token_hash), t);
		if (t && op->by_token) {
			t->used = true;
			memcpy(t->used_spki, op->info.spki_sha256, 32);
		}
	}
	ctl_gate_leave(op->c);
	op->fn(op->arg, &r->err, &res);
	free(op->pem);
	free(op);
}

static int issue(struct cert_op *op, const void *csr, size_t len, struct ros2_err *err)
{
	const struct config *cfg = op->c->cfg;
	char uri[ROS2_SPIFFE_MAX + 80];
	struct pki_issue_opts o = {.csr_pem = csr,
	                           .csr_len = len,
	                           .uri = uri,
	                           .issuer_cert_path = cfg->issuer_crt,
	                           .issuer_key_path = cfg->issuer_key,
	                           .lifetime_s = cfg->agent_cert_ttl_s};
	int r;

	snprintf(uri, sizeof(uri), "spiffe://%s/agent/%s", cfg->trust_domain, op->a->obj->name);
	r = pki_issue(&o, &op->pem, err);
	return r ? r : pki_cert_info(op->pem, strlen(op->pem), &op->info, err);
}

/* The actor is the agent: by token, old key or certificate it has proved that it may be it. */
static int cert_commit(struct cert_op *op, const struct ctl_caller *from, const char *action,
                       struct ros2_err *err)
{
	struct ctl_caller who = ctl_agent_caller(op->a);
	struct store_txn *t = store_txn_new();
	struct store_agent *row = &store_txn_add(t, STORE_AGENT_PUT)->agent;
	struct ctl_token *tok = NULL;
	struct store_draft *d;

	ctl_agent_row(t, op->a, row);
	row->enrolled = true;
	if (memcmp(row->spki_sha256, op->info.spki_sha256, 32) != 0) {
		if (op->renewal)
			memcpy(row->prev_spki_sha256, row->spki_sha256, 32);
		else
			memset(row->prev_spki_sha256, 0, 32);
		memcpy(row->spki_sha256, op->info.spki_sha256, 32);
	}
	row->cert_serial = store_txn_str(t, op->info.serial);
	row->cert_not_after_unix_s = op->info.not_after_unix_s;
	row->enrolled_unix_ns = clock_unix_ns();
	HASH_FIND(hh, op->c->tokens, op->token_hash, sizeof(op->token_hash), tok);
	if (tok && op->by_token) {
		struct store_token *tr = &store_txn_add(t, STORE_TOKEN_PUT)->token;

		*tr = (struct store_token){.agent_uid = tok->agent_uid,
		                           .created_unix_s = tok->created_unix_s,
		                           .expires_unix_s = tok->expires_unix_s,
		                           .used = true};
		memcpy(tr->secret_sha256, tok->hash, 32);
		memcpy(tr->used_spki, op->info.spki_sha256, 32);
	}
	strcpy(who.peer, from->peer);
	d = ctl_audit(t, &who, action, STORE_AGENT, op->a->obj->name, &op->a->obj->uid);
	store_draft_detail(t, d, "serial", op->info.serial);
	store_draft_detail(t, d, "not_after_unix_s",
	                   store_txn_fmt(t, "%lld", (long long)op->info.not_after_unix_s));
	store_draft_detail(t, d, "by",
	                   op->by_token ? "token" : (op->renewal ? "certificate" : "same key"));
	return store_submit(op->c->store, t, cert_done, op, err);
}

/* Why this secret does not open the door; 0 when it does. */
static int check_token(struct ctl *c, const struct ctl_agent *a, const char *secret,
                       const uint8_t spki[32], uint8_t hash[32], struct ros2_err *err)
{
	uint8_t raw[SECRET_LEN];
	struct ctl_token *t = NULL;

	if (strlen(secret) == 2 * SECRET_LEN && crypto_hex_decode(secret, raw, SECRET_LEN) == 0) {
		crypto_sha256(raw, sizeof(raw), hash);
		HASH_FIND(hh, c->tokens, hash, 32, t);
	}
	crypto_wipe(raw, sizeof(raw));
	if (!t || !a)
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"this token is not known: it was never made, or has long expired");
	if (!CTL_SWITCH(no_token_agent) && !ros2_uid_eq(&t->agent_uid, &a->obj->uid))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED, "this token is for another agent");
	/* By a clock that is wrong none is over. */
	if (now_s() + SET_BACK_S < t->created_unix_s)
		return ros2_err_named(
			err, ROS2_UNAVAILABLE,
			"by the controller's clock this token is not made yet: that clock is "
			"wrong, or was then: set it, or create a new one");
	if (is_over(t))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "this token has expired: create a new one");
	if (!CTL_SWITCH(no_token_once) && t->used && !crypto_equal(t->used_spki, spki, 32))
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"this token was used already, by another key: create a new one");
	/* Whoever stole the key had the token, too. */
	if (!CTL_SWITCH(no_token_once) && t->used && !crypto_equal(a->spki, spki, 32))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "this token was used already, and the agent has enrolled "
		                      "with another key since: create a new one");
	return 0;
}

/* An expired agent with the key it had, and no ban. The request's signature proves the key. */
static int check_rejoin(const struct ctl_agent *a, const uint8_t spki[32], struct ros2_err *err)
{
	if (!a || !a->enrolled || !crypto_equal(a->spki, spki, 32))
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"no token, and not the key of an enrolled agent of that name");
	if (a->cert_not_after_unix_s + REJOIN_S < (int64_t)now_s())
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"the certificate expired more than 7 days ago: a token is needed");
	return 0;
}

/* One key for each status, as in svc_refused.c: strangers with many addresses make no more of them.
 */
static void enrol_denied(struct ctl *c, const struct ctl_caller *who, const char *agent,
                         const struct ros2_err *err)
{
	char key[80];

	snprintf(key, sizeof(key), "enrol/%s", ros2_status_to_str(err->status));
	ctl_audit_denied(c, key, who, "agent.enrol", NULL, "agent", agent, err->status, err->msg);
}

/* @token_hash: of the token, if there is one. */
static int check_enrol(struct ctl *c, const struct ctl_caller *who, const char *agent,
                       const char *secret, const void *csr, size_t csr_len, uint8_t token_hash[32],
                       struct ros2_err *err)
{
	struct ctl_agent *a = ctl_agent(c, agent);
	uint8_t spki[32];
	int r = pki_csr_claimed_spki(csr, csr_len, spki, err);

	if (!r)
		r = *secret ? check_token(c, a, secret, spki, token_hash, err)
		            : check_rejoin(a, spki, err);
	/* The loop is everybody's: a stranger makes it compute nothing. */
	if (!r)
		r = pki_csr_spki(csr, csr_len, spki, err);
	if (!r && (a->isolated || a->deleting))
		r = ros2_err_named(err, ROS2_REVOKED, "agent %s is isolated", agent);
	if (r < 0 && r != -ENOMEM)
		enrol_denied(c, who, agent, err);
	return r;
}

int ctl_enrol_check(struct ctl *c, const struct ctl_caller *who, const char *agent,
                    const char *secret, const void *csr, size_t csr_len, bool *ret_again,
                    struct ros2_err *err)
{
	struct ctl_token *t = NULL;
	uint8_t hash[32];
	int r = check_enrol(c, who, agent, secret, csr, csr_len, hash, err);

	if (r < 0)
		return r;
	if (*secret)
		HASH_FIND(hh, c->tokens, hash, sizeof(hash), t);
	*ret_again = !t || t->used;
	return 0;
}

void ctl_enrol(struct ctl *c, const struct ctl_caller *who, const char *agent, const char *secret,
               const void *csr, size_t csr_len, ctl_enrol_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct cert_op *op = calloc(1, sizeof(*op));
	struct ctl_enrolled none = {0};
	int r;

	if (!op) {
		r = ros2_err_set(&err, -ENOMEM, "out of memory");
	} else {
		*op = (struct cert_op){.c = c,
		                       .a = ctl_agent(c, agent),
		                       .by_token = *secret,
		                       .fn = fn,
		                       .arg = arg};
		r = check_enrol(c, who, agent, secret, csr, csr_len, op->token_hash, &err);
	}
	if (!r)
		r = issue(op, csr, csr_len, &err);
	if (!r)
		r = cert_commit(op, who, "agent.enrol", &err);
	if (!r)
		return;
	if (op)
		free(op->pem);
	free(op);
	ctl_gate_leave(c);
	fn(arg, &err, &none);
}

void ctl_renew(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a, const void *csr,
               size_t csr_len, ctl_enrol_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct cert_op *op = calloc(1, sizeof(*op));
	struct ctl_enrolled none = {0};
	int r = op ? 0 : ros2_err_set(&err, -ENOMEM, "out of memory");

	if (!r) {
		*op = (struct cert_op){.c = c, .a = a, .renewal = true, .fn = fn, .arg = arg};
		r = issue(op, csr, csr_len, &err);
	}
	if (!r)
		r = cert_commit(op, who, "agent.renew", &err);
	if (!r)
		return;
	if (op)
		free(op->pem);
	free(op);
	ctl_gate_leave(c);
	fn(arg, &err, &none);
}
