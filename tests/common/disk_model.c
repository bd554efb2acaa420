/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: inodes with synced bytes and a list of unsynced changes, names with a list of unsynced
 * changes. Files are few and small: everything is a flat array that is searched.
 */
#include "tests/common/disk_model.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bytes {
	uint8_t *p;
	size_t n, cap;
};
struct change { /* of a file: a write, or with data NULL a truncation to @off */
	uint64_t off;
	size_t n;
	uint8_t *data;
};
struct inode {
	bool is_dir;
	struct bytes synced;
	struct change *changes;
	size_t n_changes, cap;
};
struct name {
	char *path;
	int inode; /* -1: no file of that name */
};
struct names {
	struct name *v;
	size_t n, cap;
};
struct name_change { /* @gone is removed and @path is @inode, in one step; either may be NULL */
	char *gone, *path;
	int inode;
};

struct disk {
	pthread_mutex_t lock;
	char root[256];
	uint64_t calls, cut_at, rng;
	struct inode *inodes;
	size_t n_inodes, inodes_cap;
	struct names live, synced;
	struct name_change *changes;
	size_t n_changes, changes_cap;
};

static void *grow(void *p, size_t *cap, size_t need, size_t size)
{
	if (need <= *cap)
		return p;
	*cap = MAX(need, *cap * 2);
	p = realloc(p, *cap * size);
	if (!p)
		abort();
	return p;
}

static char *copy_text(const char *s)
{
	char *c = s ? strdup(s) : NULL;

	if (s && !c)
		abort();
	return c;
}

static uint64_t next_random(struct disk *d)
{
	uint64_t z = d->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* ---- bytes ---- */

static void resize(struct bytes *b, size_t n)
{
	b->p = grow(b->p, &b->cap, n, 1);
	if (n > b->n)
		memset(b->p + b->n, 0, n - b->n);
	b->n = n;
}

static void put(struct bytes *b, uint64_t off, const void *p, size_t n)
{
	if (!n)
		return;
	if (off + n > b->n)
		resize(b, off + n);
	memcpy(b->p + off, p, n);
}

static void apply_change(struct bytes *b, const struct change *c)
{
	if (c->data)
		put(b, c->off, c->data, c->n);
	else
		resize(b, c->off);
}

static void drop_changes(struct inode *i)
{
	for (size_t k = 0; k < i->n_changes; k++)
		free(i->changes[k].data);
	i->n_changes = 0;
}

/* A write falls apart into sectors, and each of them arrives or does not, alone. */
static void tear_change(struct disk *d, struct bytes *b, const struct change *c)
{
	uint64_t at = c->off, end = c->off + c->n;

	if (!c->data) {
		if (next_random(d) & 1)
			resize(b, c->off);
		return;
	}
	while (at < end) {
		uint64_t stop = MIN(end, (at / DISK_SECTOR + 1) * DISK_SECTOR);

		if (next_random(d) & 1)
			put(b, at, c->data + (at - c->off), stop - at);
		at = stop;
	}
}

/* ---- names ---- */

static struct name *find(struct names *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->v[i].path, path))
			return &t->v[i];
	return NULL;
}

static void set_name(struct names *t, const char *path, int inode)
{
	struct name *at = find(t, path);

	if (!at) {
		t->v = grow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
		at = &t->v[t->n++];
		at->path = copy_text(path);
	}
	at->inode = inode;
}

static void apply_names(struct names *t, const struct name_change *c)
{
	if (c->gone)
		set_name(t, c->gone, -1);
	if (c->path)
		set_name(t, c->path, c->inode);
}

static void change_names(struct disk *d, const char *gone, const char *path, int inode)
{
	struct name_change c = {copy_text(gone), copy_text(path), inode};

	apply_names(&d->live, &c);
	d->changes = grow(d->changes, &d->changes_cap, d->n_changes + 1, sizeof(*d->changes));
	d->changes[d->n_changes++] = c;
}

static bool is_in(const char *path, const char *dir)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	size_t n = strlen(dir);

	while (n > 1 && dir[n - 1] == '/')
		n--;
	return slash && (size_t)(slash - path) == n && !memcmp(path, dir, n);
}

static int new_inode(struct disk *d, bool is_dir)
{
	d->inodes = grow(d->inodes, &d->inodes_cap, d->n_inodes + 1, sizeof(*d->inodes));
	d->inodes[d->n_inodes] = (struct inode){.is_dir = is_dir};
	return (int)d->n_inodes++;
}

/* ---- life ---- */

struct disk *disk_new(const char *root)
{
	struct disk *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	pthread_mutex_init(&d->lock, NULL);
	snprintf(d->root, sizeof(d->root), "%s", root);
	d->cut_at = UINT64_MAX;
	return d;
}

static void free_names(struct names *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].path);
	free(t->v);
}

static void drop_name_changes(struct disk *d)
{
	for (size_t i = 0; i < d->n_changes; i++) {
		free(d->changes[i].gone);
		free(d->changes[i].path);
	}
	d->n_changes = 0;
}

void disk_free(struct disk *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n_inodes; i++) {
		drop_changes(&d->inodes[i]);
		free(d->inodes[i].changes);
		free(d->inodes[i].synced.p);
	}
	drop_name_changes(d);
	free(d->changes);
	free(d->inodes);
	free_names(&d->live);
	free_names(&d->synced);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void disk_arm(struct disk *d, uint64_t cut_at)
{
	pthread_mutex_lock(&d->lock);
	d->calls = 0;
	d->cut_at = cut_at;
	pthread_mutex_unlock(&d->lock);
}

bool disk_call(struct disk *d)
{
	bool on;

	pthread_mutex_lock(&d->lock);
	on = d->calls < d->cut_at;
	d->calls++;
	pthread_mutex_unlock(&d->lock);
	return on;
}

bool disk_is_off(struct disk *d)
{
	bool off;

	pthread_mutex_lock(&d->lock);
	off = d->calls > d->cut_at;
	pthread_mutex_unlock(&d->lock);
	return off;
}

uint64_t disk_calls(struct disk *d)
{
	return d->calls;
}

uint64_t disk_cut_at(struct disk *d)
{
	return d->cut_at;
}

/* ---- mirror ---- */

static int adopt(struct disk *d, const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int i;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	/* What is above the root is nobody's to take away. */
	if (S_ISDIR(st.st_mode) && strncmp(path, d->root, strlen(d->root)) != 0)
		return -1;
	i = new_inode(d, S_ISDIR(st.st_mode));
	if (S_ISREG(st.st_mode) && st.st_size) {
		resize(&d->inodes[i].synced, (size_t)st.st_size);
		if (pread(fd, d->inodes[i].synced.p, (size_t)st.st_size, 0) != st.st_size)
			abort();
	}
	set_name(&d->live, path, i);
	set_name(&d->synced, path, i);
	return i;
}

static int lookup(struct disk *d, const char *path)
{
	struct name *at = find(&d->live, path);

	return at ? at->inode : adopt(d, path);
}

int disk_lookup(struct disk *d, const char *path)
{
	int i;

	pthread_mutex_lock(&d->lock);
	i = lookup(d, path);
	pthread_mutex_unlock(&d->lock);
	return i;
}

int disk_create(struct disk *d, const char *path)
{
	int i;

	pthread_mutex_lock(&d->lock);
	i = new_inode(d, false);
	change_names(d, NULL, path, i);
	pthread_mutex_unlock(&d->lock);
	return i;
}

static void change(struct disk *d, int inode, struct change c)
{
	struct inode *i;

	pthread_mutex_lock(&d->lock);
	i = &d->inodes[inode];
	i->changes = grow(i->changes, &i->cap, i->n_changes + 1, sizeof(*i->changes));
	i->changes[i->n_changes++] = c;
	pthread_mutex_unlock(&d->lock);
}

void disk_write(struct disk *d, int inode, uint64_t off, const void *p, size_t n)
{
	struct change c = {.off = off, .n = n, .data = malloc(n ? n : 1)};

	if (!c.data)
		abort();
	memcpy(c.data, p, n);
	change(d, inode, c);
}

void disk_truncate(struct disk *d, int inode, uint64_t len)
{
	change(d, inode, (struct change){.off = len});
}

void disk_sync(struct disk *d, int inode)
{
	struct inode *i;

	pthread_mutex_lock(&d->lock);
	i = &d->inodes[inode];
	for (size_t k = 0; k < i->n_changes; k++)
		apply_change(&i->synced, &i->changes[k]);
	drop_changes(i);
	pthread_mutex_unlock(&d->lock);
}

void disk_forget(struct disk *d, int inode)
{
	pthread_mutex_lock(&d->lock);
	drop_changes(&d->inodes[inode]);
	pthread_mutex_unlock(&d->lock);
}

void disk_mkdir(struct disk *d, const char *path)
{
	pthread_mutex_lock(&d->lock);
	change_names(d, NULL, path, new_inode(d, true));
	pthread_mutex_unlock(&d->lock);
}

void disk_rename(struct disk *d, const char *from, const char *to)
{
	pthread_mutex_lock(&d->lock);
	change_names(d, from, to, lookup(d, from));
	pthread_mutex_unlock(&d->lock);
}

void disk_link(struct disk *d, const char *from, const char *to)
{
	pthread_mutex_lock(&d->lock);
	change_names(d, NULL, to, lookup(d, from));
	pthread_mutex_unlock(&d->lock);
}

void disk_unlink(struct disk *d, const char *path)
{
	pthread_mutex_lock(&d->lock);
	change_names(d, path, NULL, -1);
	pthread_mutex_unlock(&d->lock);
}

void disk_sync_dir(struct disk *d, const char *dir)
{
	size_t kept = 0;

	pthread_mutex_lock(&d->lock);
	for (size_t k = 0; k < d->n_changes; k++) {
		struct name_change *c = &d->changes[k];

		if (!is_in(c->path ? c->path : c->gone, dir)) {
			d->changes[kept++] = *c;
			continue;
		}
		apply_names(&d->synced, c);
		free(c->gone);
		free(c->path);
	}
	d->n_changes = kept;
	pthread_mutex_unlock(&d->lock);
}

/* ---- power on ---- */

static bool parent_survives(struct disk *d, const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[512];
	struct name *at;

	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	at = find(&d->synced, dir);
	if (!at) /* the root, or a directory that was there before; or one that was never synced */
		return !find(&d->live, dir);
	return at->inode >= 0 && parent_survives(d, dir);
}

static void write_real(const char *path, const struct bytes *b)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t at = 0;

	if (fd < 0)
		abort();
	while (at < b->n) {
		ssize_t k = write(fd, b->p + at, b->n - at);

		if (k <= 0)
			abort();
		at += (size_t)k;
	}
}

static void settle(struct disk *d, enum disk_loss loss)
{
	for (size_t i = 0; i < d->n_inodes; i++) {
		struct inode *f = &d->inodes[i];

		for (size_t k = 0; k < f->n_changes && loss == DISK_TEAR; k++)
			tear_change(d, &f->synced, &f->changes[k]);
		drop_changes(f);
	}
	for (size_t k = 0; k < d->n_changes && loss == DISK_TEAR; k++)
		if (next_random(d) & 1)
			apply_names(&d->synced, &d->changes[k]);
	drop_name_changes(d);
}

/* Files first away, then directories (deepest last made is first away); then the other way round.
 */
static void make_real(struct disk *d)
{
	for (size_t i = d->live.n; i-- > 0;)
		if (remove(d->live.v[i].path) < 0 && errno != ENOENT && errno != ENOTEMPTY)
			abort();
	for (int dirs = 1; dirs >= 0; dirs--) {
		for (size_t i = 0; i < d->synced.n; i++) {
			struct name *n = &d->synced.v[i];

			if (n->inode >= 0 && !parent_survives(d, n->path))
				n->inode = -1;
			if (n->inode < 0 || d->inodes[n->inode].is_dir != dirs)
				continue;
			if (!dirs)
				write_real(n->path, &d->inodes[n->inode].synced);
			else if (mkdir(n->path, 0700) < 0 && errno != EEXIST)
				abort();
		}
	}
}

void disk_restore(struct disk *d, enum disk_loss loss, uint64_t seed)
{
	pthread_mutex_lock(&d->lock);
	d->rng = seed;
	settle(d, loss);
	make_real(d);
	for (size_t i = 0; i < d->live.n; i++)
		d->live.v[i].inode = -1;
	for (size_t i = 0; i < d->synced.n; i++)
		set_name(&d->live, d->synced.v[i].path, d->synced.v[i].inode);
	d->calls = 0;
	d->cut_at = UINT64_MAX;
	pthread_mutex_unlock(&d->lock);
}
