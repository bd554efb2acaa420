/* SPDX-License-Identifier: Apache-2.0 */
/* The first commit of a process: whose store this is, and its fencing number. Before the store
 * thread runs. */
#include "controller/store_front_priv.h"
#include <errno.h>
#include <string.h>

static int meta_text(struct store *s, const char *key, const char *want, struct ros2_err *err)
{
	AUTO_FREE void *have = NULL;
	size_t n;
	int r = s->ops->meta_get(s->backend, key, &have, &n, err);

	if (r == -ENOENT)
		return s->ops->meta_put(s->backend, key, want, strlen(want), err);
	if (!r && strcmp(have, want) != 0)
		r = ros2_err_set(
			err, -EXDEV,
			"%s belongs to trust domain \"%s\", this configuration is for \"%s\": "
			"choose the matching --data-dir",
			s->dir, (char *)have, want);
	return r;
}

static int get_u64(struct store *s, const char *key, uint64_t *ret, struct ros2_err *err)
{
	AUTO_FREE void *have = NULL;
	size_t n;
	int r = s->ops->meta_get(s->backend, key, &have, &n, err);

	*ret = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (n != 8)
		return ros2_err_set(err, -EBADMSG, "%s: meta row %s has %zu bytes instead of 8",
		                    s->dir, key, n);
	for (int i = 7; i >= 0; i--)
		*ret = *ret << 8 | ((uint8_t *)have)[i];
	return 0;
}

/* The fencing number is durable before anything listens. */
static int next_epoch(struct store *s, struct ros2_err *err)
{
	AUTO_FREE void *have = NULL;
	uint8_t b[8];
	size_t n;
	int r = s->ops->meta_get(s->backend, "lineage", &have, &n, err);

	if (!r) {
		r = ros2_uid_from_bytes(have, n, &s->epoch.lineage);
		if (r < 0)
			return ros2_err_set(err, -EBADMSG, "%s: the lineage is damaged", s->dir);
	} else if (r == -ENOENT) {
		s->epoch.lineage = ros2_uid_new();
		r = s->ops->meta_put(s->backend, "lineage", s->epoch.lineage.b, ROS2_UID_LEN, err);
	}
	if (!r)
		r = get_u64(s, "epoch", &s->epoch.counter, err);
	if (r < 0)
		return r;
	s->epoch.counter++;
	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(s->epoch.counter >> (8 * i));
	return s->ops->meta_put(s->backend, "epoch", b, sizeof(b), err);
}

int store_first_commit(struct store *s, struct ros2_err *err)
{
	int r = store_begin(s, err);

	if (!r)
		r = meta_text(s, "trust_domain", s->domain, err);
	if (!r)
		r = next_epoch(s, err);
	if (!r)
		r = get_u64(s, "revision", &s->revision_saved, err);
	if (!r)
		r = s->ops->commit(s->backend, err);
	if (r < 0)
		s->ops->rollback(s->backend);
	s->revision_next = s->revision_open = s->revision_saved;
	return r;
}
