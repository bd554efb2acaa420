/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem engine's names: directories with a hash by name and a list in cookie order. Everything
 * here runs with engine.lock held. A cookie is given once per directory and never again, so paging
 * is stable while names come and go.
 */
#include "dataplane/engines/mem_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <string.h>

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

void mem_node_unref(struct engine *e, struct mem_node *n)
{
	/* A directory leaves the tree only when empty, so a last reference never drags children
	 * along. */
	if (n && --n->refs == 0)
		mem_node_destroy(e, n);
}

struct mem_node *mem_child(struct mem_node *dir, const char *name, size_t len)
{
	struct mem_node *c;

	HASH_FIND(hh, dir->children, name, len, c);
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
	HASH_ADD_KEYPTR(hh, dir->children, child->name, len, child);
	dir->dir_mtime_unix_ns = clock_unix_ns();
	return 0;
}

void mem_dir_remove(struct mem_node *child)
{
	struct mem_node *dir = child->parent;

	HASH_DEL(dir->children, child);
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
