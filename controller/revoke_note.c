/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A revocation as a note for the store's journal: what a start needs to carry it out again when its
 * rows found no room. Layout: docs/decisions/0014-revocation-journal.md. Loop thread.
 */
#include "controller/revoke_priv.h"
#include <errno.h>
#include <string.h>

#define NOTE_ALL 0xffff /* instead of a number of agents: every enrolled one */

static uint8_t *put_number(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*p++ = (uint8_t)(v >> (8 * i));
	return p;
}

static uint8_t *put_text(uint8_t *p, const char *s)
{
	size_t n = strlen(s);

	p = put_number(p, n, 2);
	memcpy(p, s, n);
	return p + n;
}

/* Five texts of at most 255 bytes: always less than a third of the room. */
size_t revoke_note_pack(const struct ctl_revocation *r, const struct ctl_caller *who,
                        uint8_t out[STORE_NOTE_MAX])
{
	uint8_t *p = out, *count;
	const struct ctl_owed *o;
	size_t n = 0;

	memcpy(p, r->uid.b, ROS2_UID_LEN);
	memcpy(p + 16, r->target_uid.b, ROS2_UID_LEN);
	memcpy(p + 32, r->tenant_uid.b, ROS2_UID_LEN);
	p = put_number(p + 48, r->version, 8);
	p = put_number(p, r->created_unix_ns, 8);
	p = put_number(p, r->kind, 1);
	p = put_number(p, r->unrecorded.isolate, 1);
	p = put_number(p, who->role, 2);
	p = put_text(p, r->name);
	p = put_text(p, r->reason);
	p = put_text(p, r->tenant);
	p = put_text(p, who->spiffe);
	p = put_text(p, who->peer);
	count = p;
	p += 2;
	list_for_each (&r->owed, o, link) {
		if (p + ROS2_UID_LEN > out + STORE_NOTE_MAX) {
			n = NOTE_ALL;
			p = count + 2;
			break;
		}
		memcpy(p, o->agent_uid.b, ROS2_UID_LEN);
		p += ROS2_UID_LEN;
		n++;
	}
	put_number(count, n, 2);
	return (size_t)(p - out);
}

struct note_reader {
	const uint8_t *p, *end;
	bool bad;
};

static const uint8_t *get(struct note_reader *in, size_t n)
{
	const uint8_t *at = in->p;

	if (in->bad || (size_t)(in->end - in->p) < n) {
		in->bad = true;
		return NULL;
	}
	in->p += n;
	return at;
}

static uint64_t get_number(struct note_reader *in, int bytes)
{
	const uint8_t *p = get(in, (size_t)bytes);
	uint64_t v = 0;

	for (int i = bytes; p && i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

static void get_text(struct note_reader *in, char *out, size_t max)
{
	size_t n = (size_t)get_number(in, 2);
	const uint8_t *p = n < max ? get(in, n) : NULL;

	in->bad |= !p || memchr(p, '\0', n);
	if (p)
		memcpy(out, p, n);
	out[p ? n : 0] = '\0';
}

static void get_uid(struct note_reader *in, struct ros2_uid *u)
{
	const uint8_t *p = get(in, ROS2_UID_LEN);

	if (p)
		memcpy(u->b, p, ROS2_UID_LEN);
}

static int note_owed(struct ctl *c, struct ctl_revocation *r, struct note_reader *in)
{
	size_t n = (size_t)get_number(in, 2);
	struct ctl_object *o, *tmp;
	int rc = 0;

	for (size_t i = 0; n != NOTE_ALL && i < n && !in->bad; i++) {
		struct ros2_uid u = {{0}};
		struct ctl_agent *a;

		get_uid(in, &u);
		a = ctl_agent_uid(c, &u);
		if (a)
			rc |= revoke_owe(r, a, UINT64_MAX);
	}
	if (n == NOTE_ALL)
		HASH_ITER (by_key, c->by_key, o, tmp)
			if (o->agent)
				rc |= revoke_owe(r, o->agent, UINT64_MAX);
	return rc ? -ENOMEM : 0;
}

int revoke_note_unpack(struct ctl *c, const void *note, size_t len, struct ctl_revocation **ret)
{
	struct note_reader in = {note, (const uint8_t *)note + len, false};
	struct ctl_revocation *r = calloc(1, sizeof(*r));
	struct ctl_owed *o, *tmp;
	struct ctl_caller *who;
	int rc;

	if (!r)
		return -ENOMEM;
	who = &r->unrecorded.who;
	list_init(&r->owed);
	get_uid(&in, &r->uid);
	get_uid(&in, &r->target_uid);
	get_uid(&in, &r->tenant_uid);
	r->version = get_number(&in, 8);
	r->created_unix_ns = get_number(&in, 8);
	r->kind = (enum store_kind)get_number(&in, 1);
	r->unrecorded.isolate = get_number(&in, 1) != 0;
	who->role = (enum ctl_role)get_number(&in, 2);
	get_text(&in, r->name, sizeof(r->name));
	get_text(&in, r->reason, sizeof(r->reason));
	get_text(&in, r->tenant, sizeof(r->tenant));
	get_text(&in, who->spiffe, sizeof(who->spiffe));
	get_text(&in, who->peer, sizeof(who->peer));
	in.bad |= r->kind < STORE_TENANT || r->kind > STORE_LEASE;
	rc = note_owed(c, r, &in);
	if (in.bad || in.p != in.end)
		rc = -EBADMSG;
	if (!rc) {
		*ret = r;
		return 0;
	}
	list_for_each_safe (&r->owed, o, tmp, link)
		free(o);
	free(r);
	return rc;
}
