/* SPDX-License-Identifier: Apache-2.0 */
/* What the target has: subsystems, who may reach them, namespaces and their media; what it counted.
 */
#include "tests/nvmf/target_priv.h"

#include "common/crypto.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct subsys *target_subsys_find(struct target *t, const char *nqn)
{
	for (unsigned i = 0; i < t->n_subsystems; i++)
		if (!strcmp(t->subsystems[i]->nqn, nqn))
			return t->subsystems[i];
	return NULL;
}

struct ns *target_ns_find(struct subsys *s, uint32_t nsid)
{
	for (unsigned i = 0; i < TARGET_NAMESPACES; i++)
		if (s->ns[i].used && s->ns[i].nsid == nsid)
			return &s->ns[i];
	return NULL;
}

bool target_host_allowed(const struct subsys *s, const char *host_nqn)
{
	for (unsigned i = 0; i < s->n_hosts; i++)
		if (!strcmp(s->hosts[i], host_nqn))
			return true;
	return !s->listed;
}

static int add_subsystem(struct target *t, const struct target_subsys_opts *o)
{
	struct subsys *s;

	if (strlen(o->nqn) > 223 || o->in_capsule % 16 || o->in_capsule > RX_MAX / 2)
		return -EINVAL;
	if (target_subsys_find(t, o->nqn))
		return -EEXIST;
	if (t->n_subsystems == TARGET_SUBSYSTEMS)
		return -ENOSPC;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->o = *o;
	snprintf(s->nqn, sizeof(s->nqn), "%s", o->nqn);
	s->o.nqn = s->nqn;
	s->o.io_queues = o->io_queues ? o->io_queues : 8;
	s->o.keep_alive_unit = o->keep_alive_unit ? o->keep_alive_unit : 1;
	t->subsystems[t->n_subsystems++] = s;
	t->genctr++;
	return 0;
}

int target_add_subsystem(struct target *t, const struct target_subsys_opts *o)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = add_subsystem(t, o);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int target_allow(struct target *t, const char *nqn, const char *host_nqn)
{
	struct subsys *s;
	int rc = -ENOENT;

	if (strlen(host_nqn) > 223)
		return -EINVAL;
	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	if (s && s->n_hosts == TARGET_HOSTS) {
		rc = -ENOSPC;
	} else if (s) {
		snprintf(s->hosts[s->n_hosts++], sizeof(s->hosts[0]), "%s", host_nqn);
		s->listed = true;
		t->genctr++;
		rc = 0;
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

static int disallow(struct target *t, struct subsys *s, const char *host_nqn)
{
	struct ctrl *k, *next;
	int rc = -ENOENT;

	for (unsigned i = 0; i < s->n_hosts; i++) {
		if (strcmp(s->hosts[i], host_nqn))
			continue;
		memmove(s->hosts[i], s->hosts[i + 1], (s->n_hosts - i - 1) * sizeof(s->hosts[0]));
		s->n_hosts--;
		i--;
		rc = 0;
	}
	list_for_each_safe (&t->ctrls, k, next, link)
		if (k->subsys == s && !target_host_allowed(s, k->host_nqn))
			target_ctrl_end(k, true);
	return rc;
}

int target_disallow(struct target *t, const char *nqn, const char *host_nqn)
{
	struct subsys *s;
	int rc = -ENOENT;

	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	if (s)
		rc = disallow(t, s, host_nqn);
	t->genctr++;
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

static uint8_t *media_new(uint64_t blocks, uint32_t block_size)
{
	void *p = MAP_FAILED;

	if (blocks <= (1ull << 40) / block_size)
		p = mmap(NULL, MAX(blocks, 1) * block_size, PROT_READ | PROT_WRITE,
		         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static int add_ns(struct subsys *s, const struct target_ns_opts *o)
{
	struct ns *n = NULL;

	if (!o->nsid || o->nsid > NSID_MAX || (o->block_size != 512 && o->block_size != 4096))
		return -EINVAL;
	if (target_ns_find(s, o->nsid))
		return -EEXIST;
	for (unsigned i = 0; i < TARGET_NAMESPACES && !n; i++)
		n = s->ns[i].used ? NULL : &s->ns[i];
	if (!n)
		return -ENOSPC;
	*n = (struct ns){.nsid = o->nsid,
	                 .block_size = o->block_size,
	                 .blocks = o->blocks,
	                 .read_only = o->read_only};
	n->media = media_new(o->blocks, o->block_size);
	if (!n->media)
		return -ENOMEM;
	crypto_random(n->nguid, sizeof(n->nguid));
	n->used = true;
	return 0;
}

int target_add_ns(struct target *t, const char *nqn, const struct target_ns_opts *o)
{
	struct subsys *s;
	int rc = -ENOENT;

	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	if (s)
		rc = add_ns(s, o);
	if (!rc)
		target_ns_changed(t, s, o->nsid);
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int target_remove_ns(struct target *t, const char *nqn, uint32_t nsid)
{
	struct subsys *s;
	struct ns *n;
	int rc = -ENOENT;

	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	n = s ? target_ns_find(s, nsid) : NULL;
	if (n) {
		munmap(n->media, MAX(n->blocks, 1) * n->block_size);
		*n = (struct ns){0};
		target_ns_changed(t, s, nsid);
		rc = 0;
	}
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

static int resize(struct ns *n, uint64_t blocks)
{
	uint8_t *media = media_new(blocks, n->block_size);

	if (!media)
		return -ENOMEM;
	memcpy(media, n->media, MIN(blocks, n->blocks) * n->block_size);
	munmap(n->media, MAX(n->blocks, 1) * n->block_size);
	n->media = media;
	n->blocks = blocks;
	return 0;
}

int target_resize_ns(struct target *t, const char *nqn, uint32_t nsid, uint64_t blocks)
{
	struct subsys *s;
	struct ns *n;
	int rc = -ENOENT;

	pthread_mutex_lock(&t->lock);
	s = target_subsys_find(t, nqn);
	n = s ? target_ns_find(s, nsid) : NULL;
	if (n)
		rc = resize(n, blocks);
	if (!rc)
		target_ns_changed(t, s, nsid);
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

static int media_copy(struct target *t, const char *nqn, uint32_t nsid, uint64_t offset, void *in,
                      const void *out, size_t len)
{
	struct subsys *s = target_subsys_find(t, nqn);
	struct ns *n = s ? target_ns_find(s, nsid) : NULL;

	if (!n)
		return -ENOENT;
	if (offset > n->blocks * n->block_size || len > n->blocks * n->block_size - offset)
		return -ERANGE;
	if (in)
		memcpy(in, n->media + offset, len);
	else
		memcpy(n->media + offset, out, len);
	return 0;
}

int target_media_read(struct target *t, const char *nqn, uint32_t nsid, uint64_t offset, void *buf,
                      size_t len)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = media_copy(t, nqn, nsid, offset, buf, NULL, len);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int target_media_write(struct target *t, const char *nqn, uint32_t nsid, uint64_t offset,
                       const void *buf, size_t len)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = media_copy(t, nqn, nsid, offset, NULL, buf, len);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void target_stats(struct target *t, struct target_stats *ret)
{
	struct conn *c;
	struct ctrl *k;
	struct orphan *o;

	pthread_mutex_lock(&t->lock);
	*ret = t->stats;
	list_for_each (&t->conns, c, link) {
		ret->open += !c->dead;
		ret->waiting += c->waiting;
	}
	list_for_each (&t->orphans, o, link)
		ret->waiting++;
	list_for_each (&t->ctrls, k, link)
		ret->controllers++;
	pthread_mutex_unlock(&t->lock);
}

size_t target_log(struct target *t, uint64_t from, struct target_log_entry *ret, size_t max)
{
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	if (t->logged > LOG_MAX)
		from = MAX(from, t->logged - LOG_MAX);
	for (; from < t->logged && n < max; from++)
		ret[n++] = t->log[from % LOG_MAX];
	pthread_mutex_unlock(&t->lock);
	return n;
}

void target_violations(struct target *t, char *buf, size_t size)
{
	pthread_mutex_lock(&t->lock);
	snprintf(buf, size, "%s", t->violation);
	pthread_mutex_unlock(&t->lock);
}
