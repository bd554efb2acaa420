/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle's way: given -> on disk -> in force. One that does not parse goes nowhere; one that the
 * disk does not take waits in memory, at most PKI_PEM_MAX of each kind.
 */
#include "agent/bundles.h"
#include "agent/service.h"
#include "agent/uplink_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "bundles"
#include "common/log.h"

#define RETRY_MS 1000

struct one {
	const char *name, *file; /* static */
	char *given;             /* owned; waits; NULL: nothing does */
	size_t given_len;
	uint8_t in_force[SHA256_LEN]; /* of its text */
	struct pki_trust *trust;      /* a reference; NULL: none that parses */
	char failed[256];             /* why what was given is not in force; "" */
};

struct bundles {
	struct agent *a;
	struct one v[BUNDLE_KINDS];
	struct loop_timer retry;
};

static void load(struct bundles *b, struct one *o)
{
	AUTO_FREE void *pem = NULL;
	char path[PATH_MAX];
	size_t len;

	agent_path(b->a, o->file, path);
	if (fsx_read_file(path, PKI_PEM_MAX, &pem, &len, NULL) < 0)
		return;
	crypto_sha256(pem, len, o->in_force);
	(void)pki_trust_new(pem, len, &o->trust, NULL);
}

int bundles_new(struct agent *a, struct bundles **ret)
{
	struct bundles *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->a = a;
	b->v[BUNDLE_INFRA] = (struct one){"infra-bundle", "infra-bundle.pem"};
	b->v[BUNDLE_TENANT] = (struct one){"tenant-bundle", "tenant-bundle.pem"};
	for (size_t i = 0; i < BUNDLE_KINDS; i++)
		load(b, &b->v[i]);
	*ret = b;
	return 0;
}

void bundles_free(struct bundles *b)
{
	if (!b)
		return;
	loop_timer_stop(&b->retry);
	for (size_t i = 0; i < BUNDLE_KINDS; i++) {
		free(b->v[i].given);
		pki_trust_unref(b->v[i].trust);
	}
	free(b);
}

/* ---- records ---- */

static void record(struct bundles *b, const struct one *o, const struct pki_trust_changes *c,
                   const struct ros2_err *err)
{
	char n[24];
	struct agent_audit_event ev = {
		.action = "trust.reload",
		.object_kind = "bundle",
		.object_name = o->name,
		.result = err ? AGENT_AUDIT_FAILED : AGENT_AUDIT_OK,
		.status = err ? err->status : ROS2_OK,
		.reason = err ? err->msg : "",
	};

	if (c) {
		snprintf(n, sizeof(n), "%zu", c->authorities);
		ev.details[ev.n_details++] = (struct agent_audit_detail){"authorities", n};
		if (c->added)
			ev.details[ev.n_details++] =
				(struct agent_audit_detail){"added", c->added_text};
		if (c->removed)
			ev.details[ev.n_details++] =
				(struct agent_audit_detail){"removed", c->removed_text};
	}
	agent_audit_note(b->a->audit, &ev);
}

static void failed(struct bundles *b, struct one *o, const struct ros2_err *err)
{
	char words[sizeof(o->failed)];

	snprintf(words, sizeof(words), "%s stays as it was: %.200s", o->name, err->msg);
	if (!strcmp(words, o->failed))
		return; /* said and recorded */
	memcpy(o->failed, words, sizeof(words));
	log_error("%s", words);
	record(b, o, NULL, err);
}

/* ---- in force ---- */

/* The controller itself: the connection ends, and another begins if its certificate is believed. */
static void judge_controller(struct bundles *b)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_audit_event ev = {
		.action = "controller.refused",
		.object_kind = "controller",
		.object_name = b->a->o.identity.trust_domain,
		.result = AGENT_AUDIT_DENIED,
		.reason = err.msg,
	};

	if (!b->a->uplink || rpc_channel_check_server(uplink_channel(b->a->uplink), &err) == 0)
		return;
	ev.status = err.status;
	log_warn("%s", err.msg);
	agent_audit_note(b->a->audit, &ev);
	uplink_reopen(b->a->uplink);
}

static int put_in_force(struct bundles *b, struct one *o, struct ros2_err *err)
{
	struct pki_trust_changes c;
	struct pki_trust *trust;
	int r = pki_trust_new(o->given, o->given_len, &trust, err);

	if (!r && o == &b->v[BUNDLE_TENANT]) {
		r = service_reload(b->a->service, err);
		if (r < 0)
			pki_trust_unref(trust);
		else
			sessions_on_trust(b->a->sessions, trust,
			                  service_trust_generation(b->a->service));
	}
	if (r < 0)
		return r;
	pki_trust_changes(o->trust, trust, &c);
	pki_trust_unref(o->trust);
	o->trust = trust;
	crypto_sha256(o->given, o->given_len, o->in_force);
	record(b, o, &c, NULL);
	log_info("%s: %zu authorities, %zu new, %zu gone", o->name, c.authorities, c.added,
	         c.removed);
	if (o == &b->v[BUNDLE_INFRA])
		judge_controller(b);
	return 0;
}

static void try_now(void *arg);

static bool is_in_force(const struct one *o)
{
	uint8_t hash[SHA256_LEN];

	crypto_sha256(o->given, o->given_len, hash);
	return !memcmp(hash, o->in_force, sizeof(hash));
}

static void try_one(struct bundles *b, struct one *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	bool is_none;
	int r;

	if (!o->given)
		return;
	/* Also when it is in force: on disk may be what came meanwhile. */
	r = identity_store_bundle(b->a->o.state_dir, o->file, o->given, o->given_len, &err);
	is_none = r < 0 && err.status == ROS2_CORRUPT;
	if (r >= 0 && !is_in_force(o))
		r = put_in_force(b, o, &err);
	if (r >= 0)
		o->failed[0] = '\0';
	else
		failed(b, o, &err);
	if (r < 0 && !is_none)
		loop_timer_in_ms(b->a->o.loop, &b->retry, RETRY_MS, try_now, b);
	else
		free(TAKE_PTR(o->given));
}

static void try_now(void *arg)
{
	struct bundles *b = arg;

	for (size_t i = 0; i < BUNDLE_KINDS && !b->a->stopping; i++)
		try_one(b, &b->v[i]);
}

void bundles_take(struct bundles *b, enum bundle which, const void *pem, size_t len)
{
	struct one *o = &b->v[which];
	struct ros2_err err = ROS2_ERR_INIT;
	char *copy;

	if (!len)
		return;
	copy = len <= PKI_PEM_MAX ? malloc(len) : NULL;
	if (!copy) {
		ros2_err_named(&err, len <= PKI_PEM_MAX ? ROS2_BUSY : ROS2_TOO_LARGE,
		               "a bundle of %zu bytes finds no place", len);
		failed(b, o, &err);
		if (len <= PKI_PEM_MAX) /* it comes again with the next stream */
			uplink_abort(b->a->uplink, err.status, err.msg);
		return;
	}
	memcpy(copy, pem, len);
	free(o->given);
	o->given = copy;
	o->given_len = len;
	try_one(b, o);
}

const char *bundles_failed(const struct bundles *b)
{
	for (size_t i = 0; b && i < BUNDLE_KINDS; i++)
		if (b->v[i].failed[0])
			return b->v[i].failed;
	return NULL;
}
