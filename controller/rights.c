/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the roles and the trust bundles name, as sets that can be compared: what somebody loses by
 * another set, what somebody gets, and what of it holds for whoever had it before. Sets are shared
 * by reference and never changed, so that putting one in force needs nothing.
 */
#include "common/util.h"
#include "controller/config_priv.h"
#include "controller/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

static int by_id_and_line(const void *a, const void *b)
{
	const struct config_role *x = a, *y = b;
	int r = strcmp(x->spiffe, y->spiffe);

	return r ? r : (x->line > y->line) - (x->line < y->line);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(a, ((const struct config_role *)b)->spiffe);
}

static struct config_roles *roles_room(size_t n, struct ros2_err *err)
{
	struct config_roles *r = calloc(1, sizeof(*r) + n * sizeof(r->v[0]));

	if (r)
		r->refs = 1;
	else
		ros2_err_set(err, -ENOMEM, "no memory for the roles");
	return r;
}

int config_roles_new(struct config_role *v, size_t n, struct config_roles **ret,
                     struct ros2_err *err)
{
	struct config_roles *r = roles_room(n, err);

	if (!r)
		return -ENOMEM;
	qsort(v, n, sizeof(*v), by_id_and_line);
	for (size_t i = 0; i < n; i++)
		if (!r->n || strcmp(r->v[r->n - 1].spiffe, v[i].spiffe) != 0)
			r->v[r->n++] = v[i];
	*ret = r;
	return 0;
}

void config_roles_unref(struct config_roles *r)
{
	if (r && !--r->refs)
		free(r);
}

static int role_in(const struct config_roles *r, const char *spiffe)
{
	const struct config_role *found =
		r ? bsearch(spiffe, r->v, r->n, sizeof(r->v[0]), by_id) : NULL;

	return found ? found->role : CTL_NOBODY;
}

int config_role_of(const struct config *c, const char *spiffe)
{
	return role_in(c->rights.roles, spiffe);
}

/* What of @to somebody may have at once who is @from: the other roles each have something that the
 * others have not, but an administrator has it all (authz.c). */
static int common_role(int from, int to)
{
	return from == to || from == CTL_ADMIN ? to : CTL_NOBODY;
}

static int roles_common(const struct config_roles *from, const struct config_roles *to,
                        struct config_roles **ret, struct ros2_err *err)
{
	struct config_roles *r = roles_room(to->n, err);

	if (!r)
		return -ENOMEM;
	for (size_t i = 0; i < to->n; i++) {
		const struct config_role *x = &to->v[i];

		if (common_role(role_in(from, x->spiffe), x->role))
			r->v[r->n++] = *x;
	}
	*ret = r;
	return 0;
}

/* Lines of @a that @b has not: how many, and the first few by name. */
static size_t only_in(const struct config_roles *a, const struct config_roles *b, char out[480])
{
	size_t n = 0, named = 0, o = 0;
	char line[ROS2_SPIFFE_MAX + 16];

	out[0] = '\0';
	for (size_t i = 0; a && i < a->n; i++) {
		size_t len;

		if (role_in(b, a->v[i].spiffe) == a->v[i].role)
			continue;
		n++;
		len = (size_t)snprintf(line, sizeof(line), "%s%s %s", o ? ", " : "", a->v[i].spiffe,
		                       ctl_role_to_str((enum ctl_role)a->v[i].role));
		/* The rest of the room is for the number of the others. */
		if (named + 1 != n || o + len > 480 - 32)
			continue;
		memcpy(out + o, line, len + 1);
		o += len;
		named++;
	}
	if (n > named)
		snprintf(out + o, 480 - o, "%s%zu more", o ? " and " : "", n - named);
	return n;
}

/* ---- all of it ---- */

int config_hash_infra(struct config_rights *r, struct ros2_err *err)
{
	size_t len;
	const char *text = pki_trust_text(r->trust[CONFIG_INFRA], &len);

	memset(r->infra_hash, 0, sizeof(r->infra_hash));
	return len ? pki_bundle_hash(text, len, r->infra_hash, err) : 0;
}

void config_rights_changes(const struct config_rights *from, const struct config_rights *to,
                           struct config_changes *ret)
{
	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		pki_trust_changes(from->trust[i], to->trust[i], &ret->bundles[i]);
	ret->roles = to->roles ? to->roles->n : 0;
	ret->roles_added = only_in(to->roles, from->roles, ret->roles_added_text);
	ret->roles_removed = only_in(from->roles, to->roles, ret->roles_removed_text);
}

bool config_takes(const struct config_changes *c)
{
	size_t n = c->roles_removed;

	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		n += c->bundles[i].removed;
	return n;
}

bool config_gives(const struct config_changes *c)
{
	size_t n = c->roles_added;

	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		n += c->bundles[i].added;
	return n;
}

int config_rights_common(const struct config_rights *from, const struct config_rights *to,
                         struct config_rights *ret, struct ros2_err *err)
{
	struct config_rights new = {0};
	int r = 0;

	for (size_t i = 0; i < CONFIG_BUNDLES && !r; i++)
		r = pki_trust_common(from->trust[i], to->trust[i], &new.trust[i], err);
	if (!r)
		r = config_hash_infra(&new, err);
	if (!r)
		r = roles_common(from->roles, to->roles, &new.roles, err);
	if (r < 0) {
		config_rights_fini(&new);
		return r;
	}
	*ret = new;
	return 0;
}

void config_rights_set(struct config_rights *ret, const struct config_rights *from)
{
	struct config_rights new = *from;

	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		if (new.trust[i])
			pki_trust_ref(new.trust[i]);
	if (new.roles)
		new.roles->refs++;
	config_rights_fini(ret);
	*ret = new;
}

void config_rights_fini(struct config_rights *r)
{
	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		pki_trust_unref(r->trust[i]);
	config_roles_unref(r->roles);
	memset(r, 0, sizeof(*r));
}
