/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of tombstones. Frame: magic, payload length, CRC of these 12 bytes and of the payload;
 * little-endian. The magic is the format: entries of format 1 are read. Torn = the file ends inside
 * a frame, or only zero bytes follow (a file system that grew the file and lost the data): such a
 * frame was never fsynced, so no receipt spoke of it. Anything else that does not check is damage,
 * and damage denies.
 */
#include "agent/revocations.h"
#include "agent/bytes.h"
#include "common/hash.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/util.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAME_MAGIC_1    0x4b4f5652u /* "RVOK" */
#define FRAME_MAGIC      0x324b5652u /* "RVK2" */
#define FRAME_HEADER_LEN 16u
#define FIXED_LEN_1      72u  /* payload without the reason */
#define FIXED_LEN        104u /* and stamp and sequence */
#define RESERVE_BYTES    (64u * 1024u)
#define COMPACT_MIN      (1024u * 1024u)
/* No grant lives longer, and none that a tombstone is about began after it was received. */
#define GRANT_DEAD_NS (AGENT_GRANT_LIFETIME_MAX_MS * NS_PER_MS + 86400ull * NS_PER_S)

struct by_object {
	struct {
		uint32_t kind;
		struct ros2_uid uid;
	} key;
	uint64_t version;
	struct ros2_uid revocation; /* the newest */
	uint64_t received_unix_ns;
	struct clock_stamp received;
	UT_hash_handle hh;
};
struct by_revocation {
	struct ros2_uid uid;
	UT_hash_handle hh;
};

struct revlog {
	/* loop thread */
	struct by_object *objects;       /* owned */
	struct by_revocation *received;  /* owned */
	uint64_t all_counter, all_batch; /* AGENT tombstones: grants sealed up to here are dead */
	bool has_all;
	uint64_t snapshot_sequence;
	uint64_t bytes, compact_at; /* of the log as the loop knows it */

	/* the writer, after revlog_open */
	int fd;
	uint64_t size;        /* bytes that are whole frames */
	bool broken;          /* an fsync or a truncation failed: nothing is written any more */
	uint64_t reserved_to; /* the blocks up to here are the file's */
	bool refused;         /* the last time room was asked for there was none */
	char path[PATH_MAX];
};

size_t revlog_encode(const struct tombstone *t, uint8_t out[REVLOG_FRAME_MAX])
{
	size_t reason_len = strnlen(t->reason, REVLOG_REASON_MAX);
	uint8_t *p = out + FRAME_HEADER_LEN;
	uint32_t len = (uint32_t)(FIXED_LEN + reason_len);

	memset(out, 0, REVLOG_FRAME_MAX);
	memcpy(p, t->revocation.b, 16);
	memcpy(p + 16, t->uid.b, 16);
	put_le32(p + 32, (uint32_t)t->kind);
	put_le32(p + 36, (uint32_t)reason_len);
	put_le64(p + 40, t->version);
	put_le64(p + 48, t->counter);
	put_le64(p + 56, t->batch);
	put_le64(p + 64, t->received_unix_ns);
	memcpy(p + 72, t->received.boot_id, 16);
	put_le64(p + 88, t->received.boottime_ns);
	put_le64(p + 96, t->snapshot_sequence);
	memcpy(p + FIXED_LEN, t->reason, reason_len);
	put_le32(out, FRAME_MAGIC);
	put_le32(out + 4, len);
	put_le32(out + 8, crypto_crc32c(p, len));
	put_le32(out + 12, crypto_crc32c(out, 12));
	return FRAME_HEADER_LEN + len;
}

static bool decode(const uint8_t *p, uint32_t len, uint32_t fixed, struct tombstone *t)
{
	uint32_t kind = get_le32(p + 32), reason_len = get_le32(p + 36);

	if (len != fixed + reason_len || reason_len > REVLOG_REASON_MAX)
		return false;
	if ((kind != REVLOG_MARK || fixed == FIXED_LEN_1) && kind != OBJ_TENANT &&
	    kind != OBJ_GRANT && kind != OBJ_SESSION && kind != OBJ_AGENT)
		return false;
	*t = (struct tombstone){.kind = (enum obj_kind)kind,
	                        .version = get_le64(p + 40),
	                        .counter = get_le64(p + 48),
	                        .batch = get_le64(p + 56),
	                        .received_unix_ns = get_le64(p + 64)};
	memcpy(t->revocation.b, p, 16);
	memcpy(t->uid.b, p + 16, 16);
	memcpy(t->reason, p + fixed, reason_len);
	if (fixed == FIXED_LEN_1)
		return true;
	memcpy(t->received.boot_id, p + 72, 16);
	t->received.boottime_ns = get_le64(p + 88);
	t->snapshot_sequence = get_le64(p + 96);
	return true;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

bool revlog_parse(const void *data, size_t len, void (*fn)(void *arg, const struct tombstone *t),
                  void *arg, size_t *ret_good)
{
	const uint8_t *p = data;
	size_t at = 0;

	while (at < len) {
		const uint8_t *f = p + at;
		size_t left = len - at;
		struct tombstone t;
		uint32_t n, fixed;

		*ret_good = at;
		if (all_zero(f, left) || left < FRAME_HEADER_LEN)
			return true;
		n = get_le32(f + 4);
		fixed = get_le32(f) == FRAME_MAGIC_1 ? FIXED_LEN_1 : FIXED_LEN;
		if ((get_le32(f) != FRAME_MAGIC && get_le32(f) != FRAME_MAGIC_1) ||
		    get_le32(f + 12) != crypto_crc32c(f, 12) || n < fixed ||
		    n > REVLOG_FRAME_MAX - FRAME_HEADER_LEN)
			return false;
		if (n > left - FRAME_HEADER_LEN)
			return true;
		if (crypto_crc32c(f + FRAME_HEADER_LEN, n) != get_le32(f + 8))
			/* The header reached the disk and the payload did not: zeros to the end. */
			return all_zero(f + FRAME_HEADER_LEN, left - FRAME_HEADER_LEN);
		if (!decode(f + FRAME_HEADER_LEN, n, fixed, &t))
			return false;
		fn(arg, &t);
		at += FRAME_HEADER_LEN + n;
	}
	*ret_good = at;
	return true;
}

int revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err)
{
	struct by_object *o, key = {0};
	struct by_revocation *r;

	l->bytes += FRAME_HEADER_LEN + FIXED_LEN + strlen(t->reason);
	l->snapshot_sequence = MAX(l->snapshot_sequence, t->snapshot_sequence);
	if (t->kind == REVLOG_MARK)
		return 0;
	if (t->kind == OBJ_AGENT) {
		if (!l->has_all || t->counter > l->all_counter ||
		    (t->counter == l->all_counter && t->batch > l->all_batch)) {
			l->all_counter = t->counter;
			l->all_batch = t->batch;
		}
		l->has_all = true;
	}
	key.key.kind = (uint32_t)t->kind;
	key.key.uid = t->uid;
	HASH_FIND(hh, l->objects, &key.key, sizeof(key.key), o);
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return ros2_err_set(err, -ENOMEM, "no memory for a tombstone");
		o->key = key.key;
		HASH_ADD(hh, l->objects, key, sizeof(o->key), o);
		if (!HASH_TOOK(hh, o)) {
			free(o);
			return ros2_err_set(err, -ENOMEM, "no memory for a tombstone");
		}
	}
	o->version = MAX(o->version, t->version);
	o->revocation = t->revocation;
	o->received_unix_ns = t->received_unix_ns;
	o->received = t->received;
	HASH_FIND(hh, l->received, &t->revocation, sizeof(t->revocation), r);
	if (r)
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a tombstone");
	r->uid = t->revocation;
	HASH_ADD(hh, l->received, uid, sizeof(r->uid), r);
	if (!HASH_TOOK(hh, r)) {
		free(r);
		return ros2_err_set(err, -ENOMEM, "no memory for a tombstone");
	}
	return 0;
}

static const struct by_object *find(const struct revlog *l, enum obj_kind kind,
                                    const struct ros2_uid *uid)
{
	struct by_object *o, key = {0};

	key.key.kind = (uint32_t)kind;
	key.key.uid = *uid;
	HASH_FIND(hh, l->objects, &key.key, sizeof(key.key), o);
	return o;
}

bool revlog_has(const struct revlog *l, const struct ros2_uid *revocation)
{
	struct by_revocation *r;

	HASH_FIND(hh, l->received, revocation, sizeof(*revocation), r);
	return r != NULL;
}

size_t revlog_count(const struct revlog *l)
{
	return HASH_COUNT(l->received);
}

bool revlog_covers_tenant(const struct revlog *l, const struct ros2_uid *tenant, uint64_t version)
{
	const struct by_object *o = find(l, OBJ_TENANT, tenant);

	return o && version <= o->version;
}

bool revlog_covers_grant(const struct revlog *l, const struct agent_object *g)
{
	if (find(l, OBJ_GRANT, &g->uid) ||
	    revlog_covers_tenant(l, &g->grant.tenant, g->grant.policy_version))
		return true;
	return l->has_all && (g->epoch.counter < l->all_counter ||
	                      (g->epoch.counter == l->all_counter && g->batch <= l->all_batch));
}

uint64_t revlog_snapshot_sequence(const struct revlog *l)
{
	return l->snapshot_sequence;
}

/* ---- leaving out ---- */

/* Sessions are named by uids that the process that made them took with it, and nothing asks for
 * their tombstones. A grant counts in one boot only, and there not beyond its longest life. Tenants
 * and the agent as a whole stay, one entry each. */
static bool is_over(const struct by_object *o, const struct clock_stamp *now)
{
	if (o->key.kind == OBJ_SESSION)
		return true;
	if (o->key.kind != OBJ_GRANT)
		return false;
	return memcmp(o->received.boot_id, now->boot_id, 16) != 0 ||
	       now->boottime_ns >= clock_add_ns(o->received.boottime_ns, GRANT_DEAD_NS);
}

static void put_entry(const struct revlog *l, const struct by_object *o, struct buf *b)
{
	struct tombstone t = {.revocation = o->revocation,
	                      .uid = o->key.uid,
	                      .kind = (enum obj_kind)o->key.kind,
	                      .version = o->version,
	                      .received_unix_ns = o->received_unix_ns,
	                      .received = o->received,
	                      .snapshot_sequence = l->snapshot_sequence};
	uint8_t frame[REVLOG_FRAME_MAX];

	if (t.kind == OBJ_AGENT) {
		t.counter = l->all_counter;
		t.batch = l->all_batch;
	}
	buf_put(b, frame, revlog_encode(&t, frame));
}

/* The index keeps what the image says, so that what comes again is written again. */
static int forget_over(struct revlog *l, const struct clock_stamp *now)
{
	struct by_object *o, *tmp;
	struct by_revocation *r, *rtmp, *kept = NULL;

	HASH_ITER (hh, l->objects, o, tmp) {
		if (is_over(o, now)) {
			HASH_DEL(l->objects, o);
			free(o);
			continue;
		}
		HASH_FIND(hh, l->received, &o->revocation, sizeof(o->revocation), r);
		if (!r)
			continue;
		HASH_DEL(l->received, r);
		HASH_ADD(hh, kept, uid, sizeof(r->uid), r);
		if (!HASH_TOOK(hh, r))
			free(r); /* it would be written once more */
	}
	HASH_ITER (hh, l->received, r, rtmp) {
		HASH_DEL(l->received, r);
		free(r);
	}
	l->received = kept;
	return 0;
}

int revlog_compact(struct revlog *l, const struct clock_stamp *now, uint64_t min_bytes, void **ret,
                   size_t *ret_len)
{
	struct tombstone mark = {.kind = REVLOG_MARK, .snapshot_sequence = l->snapshot_sequence};
	uint64_t min = min_bytes ? min_bytes : COMPACT_MIN;
	uint8_t frame[REVLOG_FRAME_MAX];
	struct by_object *o, *tmp;
	struct buf b = {0};

	if (l->bytes < MAX(min, l->compact_at))
		return 0;
	buf_put(&b, frame, revlog_encode(&mark, frame));
	HASH_ITER (hh, l->objects, o, tmp) {
		/* Format 1 does not say when: from now on it counts as received now. */
		if (all_zero(o->received.boot_id, 16))
			o->received = *now;
		if (!is_over(o, now))
			put_entry(l, o, &b);
	}
	/* Twice what is left: the work per entry does not grow. */
	l->compact_at = b.n * 2;
	if (b.failed || b.n >= l->bytes) {
		bool failed = b.failed;

		buf_fini(&b);
		return failed ? -ENOMEM : 0;
	}
	forget_over(l, now);
	l->bytes = b.n;
	*ret = b.p;
	*ret_len = b.n;
	return 1;
}

/* ---- the file ---- */

struct loading {
	struct revlog *l;
	int r;
	struct ros2_err *err;
};

static void load_one(void *arg, const struct tombstone *t)
{
	struct loading *ld = arg;

	if (!ld->r)
		ld->r = revlog_add(ld->l, t, ld->err);
}

static const char *base_name(const char *path)
{
	const char *name = strrchr(path, '/');

	return name ? name + 1 : path;
}

/* N of a name BASE.damaged-N; 0: it is none. */
static unsigned damaged_number(const char *name, const char *base)
{
	size_t len = strlen(base);
	unsigned n;
	int end = 0;

	if (strncmp(name, base, len) != 0 || sscanf(name + len, ".damaged-%9u%n", &n, &end) != 1 ||
	    !isdigit((unsigned char)name[len + strlen(".damaged-")]) || name[len + (size_t)end])
		return 0;
	return n;
}

/* The highest number of those beside @path; removes the ones up to @remove_to. */
static unsigned newest_damaged(const char *path, unsigned remove_to, unsigned *ret_removed)
{
	const char *base = base_name(path);
	char dir[PATH_MAX], old[PATH_MAX];
	const struct dirent *e;
	unsigned newest = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "%.*s", base > path ? (int)(base - path) : 1,
	         base > path ? path : ".");
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		unsigned n = damaged_number(e->d_name, base);

		newest = MAX(newest, n);
		if (n && n <= remove_to &&
		    (size_t)snprintf(old, sizeof(old), "%.*s%s", (int)(base - path), path,
		                     e->d_name) < sizeof(old))
			*ret_removed += fsx_io->unlink(old) == 0;
	}
	if (d)
		closedir(d);
	return newest;
}

/* Keeps the damaged file for people to look at, with the last ones before it, and goes on with the
 * frames that are good. */
static int replace_damaged(const char *path, const void *good, size_t n, struct revlog_opened *info,
                           struct ros2_err *err)
{
	unsigned i = newest_damaged(path, 0, &info->removed), last = i + 1000;
	char keep[PATH_MAX];

	do {
		snprintf(info->saved_as, sizeof(info->saved_as), "%.40s.damaged-%u",
		         base_name(path), ++i);
		if ((size_t)snprintf(keep, sizeof(keep), "%s.damaged-%u", path, i) >= sizeof(keep))
			return ros2_err_set(err, -ENAMETOOLONG, "path %s is too long", path);
	} while (fsx_io->link(path, keep) < 0 && errno == EEXIST && i < last);
	if (i > REVLOG_DAMAGED_KEPT)
		newest_damaged(path, i - REVLOG_DAMAGED_KEPT, &info->removed);
	return fsx_write_atomic(path, good, n, 0600, err);
}

/* In place: a disk without room for another file, for which it may have been torn, is no reason not
 * to start. Not synced: what comes back is cut off again, and the next entry goes before it. */
static int cut_off(const struct revlog *l, struct ros2_err *err)
{
	AUTO_CLOSE int fd = fsx_io->open(l->path, O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0 || fsx_io->ftruncate(fd, (off_t)l->size) < 0)
		return ros2_err_set(err, -errno, "%s %s: %s", fd < 0 ? "open" : "truncate", l->path,
		                    strerrordesc_np(errno));
	return 0;
}

static int load(struct revlog *l, int (*before_replace)(void *, struct ros2_err *), void *arg,
                struct revlog_opened *info, struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	struct loading ld = {.l = l, .err = err};
	size_t len = 0, good = 0;
	bool clean;
	int r;

	/* A process that was killed, or whose own sync failed, may have left an entry in the page
	 * cache only. It is in the index from now on and counts as durable, so it has to be. */
	r = fsx_write_anew(l->path, err);
	if (r == 0)
		r = fsx_read_file(l->path, REVLOG_MAX, &p, &len, err);
	if (r == -ENOENT)
		return fsx_write_atomic(l->path, "", 0, 0600, err);
	if (r < 0)
		return r;
	clean = revlog_parse(p, len, load_one, &ld, &good);
	if (ld.r < 0)
		return ld.r;
	l->size = good;
	if (clean && good == len)
		return 0;
	if (clean) {
		info->torn = true;
		snprintf(info->words, sizeof(info->words),
		         "an unfinished entry of %zu bytes was cut off: no receipt was sent for it",
		         len - good);
		return cut_off(l, err);
	}
	info->damaged = true;
	snprintf(
		info->words, sizeof(info->words),
		"damaged at byte %zu of %zu: revocations may be missing, so nothing stored here is "
		"used until the controller has sent everything anew",
		good, len);
	r = before_replace ? before_replace(arg, err) : 0;
	return r < 0 ? r : replace_damaged(l->path, p, good, info, err);
}

/* Room that a full disk cannot take away from a revocation (rule 10). A file system that cannot
 * reserve leaves the receipt saying `durable: no`. */
int revlog_reserve(struct revlog *l, struct ros2_err *err)
{
	if (l->broken || l->reserved_to >= l->size + REVLOG_RESERVE_MIN)
		return 0;
	if (fallocate(l->fd, FALLOC_FL_KEEP_SIZE, (off_t)l->size, RESERVE_BYTES) < 0) {
		l->refused = true;
		return ros2_err_set(err, errno == ENOSYS ? -EOPNOTSUPP : -errno,
		                    "no room is kept for revocations in %s: %s", l->path,
		                    strerrordesc_np(errno));
	}
	l->refused = false;
	l->reserved_to = l->size + RESERVE_BYTES;
	return 0;
}

/* Once refused it is left to who asks each second: a receipt waits for what is done here, and a
 * full file system may look for long. */
static void reserve_on(struct revlog *l)
{
	if (!l->refused)
		(void)revlog_reserve(l, NULL);
}

/* Does the name still lead to what is written to? */
static bool is_in_place(const struct revlog *l)
{
	struct stat name, file;

	return stat(l->path, &name) == 0 && fstat(l->fd, &file) == 0 &&
	       name.st_ino == file.st_ino && name.st_dev == file.st_dev;
}

int revlog_replace(struct revlog *l, const void *p, size_t len, struct ros2_err *err)
{
	int r, fd;

	if (l->broken)
		return ros2_err_set(err, -EIO, "%s: an earlier fsync failed", l->path);
	r = fsx_write_atomic(l->path, p, len, 0600, err);
	if (r < 0 && is_in_place(l))
		return r;
	/* The old descriptor is of a file without a name: nothing may go there. And if the last
	 * step failed nobody knows which of the two the disk has. */
	if (r < 0) {
		l->broken = true;
		return ros2_err_set(err, -EIO, "%s: %s", l->path, strerrordesc_np(-r));
	}
	fd = fsx_io->open(l->path, O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0) {
		l->broken = true;
		return ros2_err_set(err, -EIO, "open %s: %s", l->path, strerrordesc_np(errno));
	}
	close(l->fd);
	l->fd = fd;
	l->size = len;
	l->reserved_to = 0;
	reserve_on(l);
	return 0;
}

int revlog_open(const char *path, int (*before_replace)(void *, struct ros2_err *), void *arg,
                struct revlog **ret, struct revlog_opened *info, struct ros2_err *err)
{
	struct revlog *l = calloc(1, sizeof(*l));
	int r;

	*info = (struct revlog_opened){0};
	if (!l)
		return ros2_err_set(err, -ENOMEM, "no memory for the revocation log");
	l->fd = -1;
	if ((size_t)snprintf(l->path, sizeof(l->path), "%s", path) >= sizeof(l->path)) {
		r = ros2_err_set(err, -ENAMETOOLONG, "path %s is too long", path);
		goto fail;
	}
	r = load(l, before_replace, arg, info, err);
	if (r < 0)
		goto fail;
	l->fd = fsx_io->open(path, O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	if (l->fd < 0) {
		r = ros2_err_set(err, -errno, "open %s: %s", path, strerrordesc_np(errno));
		goto fail;
	}
	reserve_on(l);
	*ret = l;
	return 0;
fail:
	revlog_free(l);
	return r;
}

int revlog_write(struct revlog *l, const struct tombstone *t, struct ros2_err *err)
{
	uint8_t frame[REVLOG_FRAME_MAX];
	size_t n = revlog_encode(t, frame);
	int r;

	if (l->broken)
		return ros2_err_set(err, -EIO, "%s: an earlier fsync failed", l->path);
	r = fsx_write_all(l->fd, frame, n);
	if (r < 0) {
		if (fsx_io->ftruncate(l->fd, (off_t)l->size) < 0) {
			l->broken = true;
			return ros2_err_set(err, -EIO, "truncate %s: %s", l->path,
			                    strerrordesc_np(errno));
		}
		/* ext4 and others give back with it what was reserved behind the end. */
		l->reserved_to = 0;
		reserve_on(l);
		return ros2_err_set(err, r, "write %s: %s", l->path, strerrordesc_np(-r));
	}
	if (fsx_io->fsync(l->fd) < 0) {
		l->broken = true;
		return ros2_err_set(err, -EIO, "fsync %s: %s", l->path, strerrordesc_np(errno));
	}
	l->size += n;
	reserve_on(l);
	return 0;
}

void revlog_free(struct revlog *l)
{
	struct by_object *o, *otmp;
	struct by_revocation *r, *rtmp;

	if (!l)
		return;
	HASH_ITER (hh, l->objects, o, otmp) {
		HASH_DEL(l->objects, o);
		free(o);
	}
	HASH_ITER (hh, l->received, r, rtmp) {
		HASH_DEL(l->received, r);
		free(r);
	}
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}
