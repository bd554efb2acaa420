/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem engine's names: one hash of all by directory and name, and of each directory a list in
 * cookie order. Everything
 * here runs with engine.lock held. A cookie is given once per directory and never again, so paging
 * is stable while names come and go.
 */
#include "dataplane/engines/mem_priv.h"

#include "common/clock.h"
#include "common/crypto.h"
#include <errno.h>
#include <string.h>

#define NAMES_MIN 1024u
#define NAMES_MAX (1u << 20)

int mem_names_init(struct mem_names *m, uint32_t max_nodes)
{
	uint32_t n = NAMES_MIN;

	while (n < max_nodes && n < NAMES_MAX)
		n *= 2;
	m->bucket = calloc(n, sizeof(*m->bucket));
	if (!m->bucket)
		return -ENOMEM;
	m->mask = n - 1;
	crypto_random(m->seed, sizeof(m->seed));
	return 0;
}

void mem_names_fini(struct mem_names *m)
{
	free(m->bucket);
	m->bucket = NULL;
}

/* Both halves of a 128-bit product: every bit of each reaches all. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static struct mem_node **chain(const struct mem_node *dir, const char *name, size_t len)
{
	const struct mem_names *m = dir->names;
	uint64_t h = mix((uintptr_t)dir ^ m->seed[0], len ^ m->seed[1]);

	while (len) {
		uint64_t part = 0;
		size_t n = MIN(len, sizeof(part));

		memcpy(&part, name, n);
		h = mix(h ^ part ^ m->seed[0], m->seed[1] | 1);
		name += n;
		len -= n;
	}
	return &m->bucket[h & m->mask];
}

struct mem_node *mem_node_new(struct engine *e, enum engine_file_type type, uint32_t mode, int *rc)
{
	struct mem_node *n;

	if (e->n_nodes >= e->max_nodes) {
		*rc = -ENOSPC;
		return NULL;
	}
	n = calloc(1, sizeof(*n));
	if (n && type == ENGINE_REGULAR)
		n->data = mem_data_new();
	if (!n || (type == ENGINE_REGULAR && !n->data)) {
		free(n);
		*rc = -ENOMEM;
		return NULL;
	}
	n->names = &e->names;
	n->type = type;
	n->mode = mode & 0777;
	n->refs = 1;
	n->dir_mtime_unix_ns = clock_unix_ns();
	list_add_tail(&e->nodes, &n->all);
	e->n_nodes++;
	return n;
}

void mem_node_destroy(struct engine *e, struct mem_node *n)
{
	list_del(&n->all);
	e->n_nodes--;
	mem_data_free(e, n->data);
	free(n->slots);
	free(n);
}

struct mem_data *mem_node_unref(struct engine *e, struct mem_node *n)
{
	struct mem_data *data;

	/* A directory leaves the tree only when empty, so a last reference never drags children
	 * along. */
	if (!n || --n->refs)
		return NULL;
	data = TAKE_PTR(n->data);
	mem_node_destroy(e, n);
	return data;
}

struct mem_node *mem_child(struct mem_node *dir, const char *name, size_t len)
{
	struct mem_node *c = *chain(dir, name, len);

	while (c && (c->parent != dir || memcmp(c->name, name, len) || c->name[len]))
		c = c->next_name;
	return c;
}

struct mem_node *mem_lookup(struct mem_node *from, const char *path, size_t len, int *rc,
                            struct ros2_err *err)
{
	const char *end = path + len;
	struct names_part part;

	while (path < end && names_next(&path, &part)) {
		if (from->type != ENGINE_DIRECTORY) {
			*rc = ros2_err_set(err, -ENOTDIR, "\"%s\" is not a directory", from->name);
			return NULL;
		}
		from = mem_child(from, part.p, part.len);
		if (!from) {
			*rc = ros2_err_set(err, -ENOENT, "no \"%.*s\"", (int)part.len, part.p);
			return NULL;
		}
	}
	return from;
}

static void compact(struct mem_node *dir)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < dir->n_slots; i++)
		if (dir->slots[i].node)
			dir->slots[to++] = dir->slots[i];
	dir->n_slots = to;
	dir->dead_slots = 0;
}

static uint32_t slot_after(const struct mem_node *dir, uint64_t cookie)
{
	uint32_t lo = 0, hi = dir->n_slots;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (dir->slots[mid].cookie > cookie)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

int mem_dir_add(struct mem_node *dir, struct mem_node *child, const char *name)
{
	size_t len = strlen(name);
	struct mem_node **head = chain(dir, name, len);

	if (dir->n_slots == dir->cap_slots) {
		uint32_t cap = dir->cap_slots ? dir->cap_slots * 2 : 8;
		struct mem_dir_slot *slots = reallocarray(dir->slots, cap, sizeof(*slots));

		if (slots) {
			dir->slots = slots;
			dir->cap_slots = cap;
		} else if (dir->dead_slots > 0) {
			compact(dir); /* so a name that has just left can always come back */
		} else {
			return -ENOSPC;
		}
	}
	memcpy(child->name, name, len + 1);
	child->parent = dir;
	child->cookie = ++dir->last_cookie;
	dir->slots[dir->n_slots++] = (struct mem_dir_slot){child->cookie, child};
	child->next_name = *head;
	*head = child;
	dir->n_children++;
	dir->dir_mtime_unix_ns = clock_unix_ns();
	return 0;
}

void mem_dir_remove(struct mem_node *child)
{
	struct mem_node *dir = child->parent;
	struct mem_node **at = chain(dir, child->name, strlen(child->name));

	while (*at != child)
		at = &(*at)->next_name;
	*at = child->next_name;
	dir->n_children--;
	dir->slots[slot_after(dir, child->cookie - 1)].node = NULL;
	if (++dir->dead_slots > 16 && dir->dead_slots > dir->n_slots / 2)
		compact(dir);
	child->parent = NULL;
	dir->dir_mtime_unix_ns = clock_unix_ns();
}

void mem_dir_read(const struct mem_node *dir, uint64_t cookie, struct engine_dirent *out,
                  uint32_t max, uint32_t *ret_n, uint64_t *next)
{
	uint32_t i = slot_after(dir, cookie), n = 0;
	uint64_t last = cookie;

	for (; i < dir->n_slots; i++) {
		const struct mem_node *c = dir->slots[i].node;

		if (!c)
			continue;
		if (n == max)
			break;
		memset(&out[n], 0, sizeof(out[n]));
		memcpy(out[n].name, c->name, strlen(c->name) + 1);
		out[n++].type = c->type;
		last = c->cookie;
	}
	*ret_n = n;
	*next = i < dir->n_slots ? last : 0;
}
