/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle's way: given -> with the disk writer -> on disk -> in force. One that does not parse
 * goes nowhere; one that the disk does not take, or is slow to take, waits in memory, at most
 * PKI_PEM_MAX of each kind and as much with the writer, and of what is in force that holds which it
 * names, too (ARCHITECTURE, rule 10). A start meanwhile reads the old one, and has no contact
 * (persist_doubt), so it gives nothing to whom that names, until the controller gives the new one
 * again, with the first word of the stream. Which controller that may be is all that the old one
 * still says. While one is with the writer no newer contact goes to disk (bundles_writing): it
 * would be contact with a controller that has said what the disk does not know.
 */
#include "agent/bundles.h"
#include "agent/service.h"
#include "agent/uplink_priv.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "bundles"
#include "common/log.h"

#define RETRY_MS 1000
#define SLOW_MS  2000 /* so long what takes away waits for the disk */

struct one {
	const char *name, *file; /* static */
	char *given;             /* owned; waits; NULL: nothing does */
	size_t given_len;
	struct bundles *b;
	struct writer_job job;
	char *text; /* owned; with the writer; NULL: none is */
	size_t text_len;
	int r; /* the writer's answer */
	struct ros2_err err;
	struct loop_timer slow;
	struct pki_trust *trust; /* a reference: in force; NULL: none that parses */
	bool unwritten;          /* the disk has another */
	bool on_disk;            /* it has this, durably: it need not be asked */
	char failed[256];        /* why what was given is not in force; "" */
};

struct bundles {
	struct agent *a;
	struct one v[BUNDLE_KINDS];
	struct loop_timer retry;
};

static void store(struct writer_job *j)
{
	struct one *o = container_of(j, struct one, job);

	o->err = (struct ros2_err)ROS2_ERR_INIT;
	o->r = identity_store_bundle(o->b->a->o.state_dir, o->file, o->text, o->text_len, &o->err);
}

static void stored(struct writer_job *j);

static void load(struct bundles *b, struct one *o)
{
	AUTO_FREE void *pem = NULL;
	char path[PATH_MAX];
	size_t len;

	o->b = b;
	o->job.work = store;
	o->job.done = stored;
	agent_path(b->a, o->file, path);
	if (fsx_read_file(path, PKI_PEM_MAX, &pem, &len, NULL) < 0)
		return;
	/* The names here were made durable at the start. */
	o->on_disk = pki_trust_new(pem, len, &o->trust, NULL) == 0;
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
		loop_timer_stop(&b->v[i].slow);
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

	snprintf(words, sizeof(words), "%s: what is new is not in force: %.200s", o->name,
	         err->msg);
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

/* All of them are on disk, or a process that started now would believe who is believed no more. */
static void tell_doubt(struct bundles *b)
{
	bool unwritten = false;

	for (size_t i = 0; i < BUNDLE_KINDS; i++)
		unwritten |= b->v[i].unwritten;
	if (unwritten)
		persist_doubt(b->a->persist, DOUBT_BUNDLE);
	else
		persist_trust(b->a->persist, DOUBT_BUNDLE);
}

/* It needs nothing, so it is done; but for the record, which says when one is missing. */
static void put_in_force(struct bundles *b, struct one *o, struct pki_trust *trust, bool written)
{
	struct pki_trust_changes c;

	if (o == &b->v[BUNDLE_TENANT]) {
		service_set_trust(b->a->service, trust);
		sessions_on_trust(b->a->sessions, trust, service_trust_generation(b->a->service));
	}
	pki_trust_changes(o->trust, trust, &c);
	pki_trust_unref(o->trust);
	o->trust = pki_trust_ref(trust);
	o->unwritten = !written;
	o->on_disk = written;
	tell_doubt(b);
	record(b, o, &c, NULL);
	log_info("%s: %zu authorities, %zu new, %zu gone%s", o->name, c.authorities, c.added,
	         c.removed, written ? "" : ": in force, and not on disk");
	if (o != &b->v[BUNDLE_INFRA])
		return;
	if (b->a->uplink)
		rpc_channel_set_trust(uplink_channel(b->a->uplink),
		                      bundles_unwritten(b, BUNDLE_INFRA));
	judge_controller(b);
}

static bool is_text(const struct pki_trust *t, const char *text, size_t len)
{
	size_t n = 0;
	const char *p = t ? pki_trust_text(t, &n) : "";

	return n == len && !memcmp(p, text, len);
}

/* The disk does not take it. */
static int take_away(struct bundles *b, struct one *o, struct pki_trust *given,
                     struct ros2_err *err)
{
	struct pki_trust_changes c;
	struct pki_trust *common;
	int r;

	if (!o->trust)
		return 0;
	pki_trust_changes(o->trust, given, &c);
	if (!c.removed)
		return 0;
	r = pki_trust_common(o->trust, given, &common, err);
	if (r < 0)
		return r;
	put_in_force(b, o, common, false);
	pki_trust_unref(common);
	return 0;
}

static int take_away_text(struct bundles *b, struct one *o, const char *text, size_t len,
                          struct ros2_err *err)
{
	struct pki_trust *trust = NULL;
	int r;

	if (!text)
		return 0;
	r = pki_trust_new(text, len, &trust, err);
	if (!r)
		r = take_away(b, o, trust, err);
	pki_trust_unref(trust);
	if (o->unwritten)
		tell_doubt(b); /* again: the stamp may not be out yet */
	return r;
}

/* The writer has it still: whom it names no more waits no longer, nor whom one that came since then
 * names no more. */
static void on_slow(void *arg)
{
	struct one *o = arg;
	struct ros2_err err = ROS2_ERR_INIT, why = ROS2_ERR_INIT;

	(void)take_away_text(o->b, o, o->text, o->text_len, &why);
	(void)take_away_text(o->b, o, o->given, o->given_len, &why);
	ros2_err_named(&err, ROS2_BUSY, "the disk has not taken %s yet", o->file);
	if (!o->failed[0]) /* else it has been said why */
		failed(o->b, o, &err);
	if (!o->b->a->stopping)
		loop_timer_in_ms(o->b->a->o.loop, &o->slow, SLOW_MS, on_slow, o);
}

static void try_now(void *arg);

static void try_one(struct bundles *b, struct one *o)
{
	if (!o->given || o->text || b->a->ended)
		return;
	/* As with nearly every stream: no disk is asked. */
	if (o->on_disk && is_text(o->trust, o->given, o->given_len)) {
		free(TAKE_PTR(o->given));
		o->failed[0] = '\0';
		return;
	}
	o->on_disk = false;
	o->text = TAKE_PTR(o->given);
	o->text_len = o->given_len;
	loop_timer_in_ms(b->a->o.loop, &o->slow, SLOW_MS, on_slow, o);
	writer_submit(b->a->disk_writer, &o->job);
}

/* The disk has it, and it is not in force: a process that starts now would believe whom it names,
 * and so would the connection to the controller, which reads the file. That the next process is in
 * doubt is told when the newer one finds no place either, or waits too long. */
static void only_on_disk(struct bundles *b, struct one *o)
{
	if (!o->trust || is_text(o->trust, o->text, o->text_len))
		return;
	o->unwritten = true;
	if (o == &b->v[BUNDLE_INFRA] && b->a->uplink)
		rpc_channel_set_trust(uplink_channel(b->a->uplink), o->trust);
}

/* With a newer one waiting it takes away and gives nothing: what it names the newer one may not. */
static int settle(struct bundles *b, struct one *o, struct ros2_err *err)
{
	bool known = is_text(o->trust, o->text, o->text_len), written = o->r >= 0;
	struct pki_trust *trust = NULL;

	*err = o->err;
	if (!written && err->status == ROS2_CORRUPT)
		return o->r;
	if (!written || o->given) {
		struct ros2_err why = ROS2_ERR_INIT;

		/* Without memory: with the next try. */
		(void)take_away_text(b, o, o->text, o->text_len, &why);
		if (written)
			only_on_disk(b, o);
		return MIN(o->r, 0);
	}
	if (known) {
		o->unwritten = false;
		o->on_disk = true;
		tell_doubt(b);
		return 0;
	}
	if (pki_trust_new(o->text, o->text_len, &trust, err) < 0) {
		only_on_disk(b, o);
		return -ENOMEM;
	}
	put_in_force(b, o, trust, true);
	pki_trust_unref(trust);
	return 0;
}

/* Nobody is left to be judged. What the next process must not give is known by what is not on disk.
 */
static void stored_at_end(struct bundles *b, struct one *o)
{
	if (o->given || (o->r < 0 && o->err.status != ROS2_CORRUPT))
		persist_doubt(b->a->persist, DOUBT_BUNDLE);
	free(TAKE_PTR(o->text));
}

static void stored(struct writer_job *j)
{
	struct one *o = container_of(j, struct one, job);
	struct bundles *b = o->b;
	struct ros2_err err;
	int r;

	loop_timer_stop(&o->slow);
	if (b->a->ended) {
		stored_at_end(b, o);
		return;
	}
	r = settle(b, o, &err);
	if (r >= 0)
		o->failed[0] = '\0';
	else
		failed(b, o, &err);
	if (r < 0 && err.status != ROS2_CORRUPT && !o->given) {
		o->given = TAKE_PTR(o->text);
		o->given_len = o->text_len;
		if (!b->a->stopping)
			loop_timer_in_ms(b->a->o.loop, &b->retry, RETRY_MS, try_now, b);
	} else {
		free(TAKE_PTR(o->text));
		try_one(b, o);
	}
	if (!bundles_writing(b))
		persist_contact_unheld(b->a->persist);
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

bool bundles_writing(const struct bundles *b)
{
	bool is = false;

	for (size_t i = 0; b && i < BUNDLE_KINDS; i++)
		is |= b->v[i].text != NULL;
	return is;
}

struct pki_trust *bundles_unwritten(const struct bundles *b, enum bundle which)
{
	return b && b->v[which].unwritten ? b->v[which].trust : NULL;
}

const char *bundles_failed(const struct bundles *b)
{
	for (size_t i = 0; b && i < BUNDLE_KINDS; i++)
		if (b->v[i].failed[0])
			return b->v[i].failed;
	return NULL;
}
