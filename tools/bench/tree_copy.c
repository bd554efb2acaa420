/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves files between a local directory and a namespace, several pieces in flight, and takes the
 * SHA-256 of what was really moved. Workers take the next file from one counter; the first error
 * stops them all.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "tools/bench/tree_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PIECES    8
#define PIECE_MAX (1u << 20)
#define PAGE      4096u

struct worker {
	struct tree *tree; /* borrowed */
	struct ros2_session *session;
	struct ros2_mount *mount;
	uint8_t *buf[PIECES];
	uint32_t len[PIECES]; /* READ: what came */
	uint32_t piece;
};

/* How far a file is copied. One that grows as fast as it is copied has no end: when it is seen to
 * be longer than it was, what there is then is the end. */
struct extent {
	uint64_t end;
	bool grows;
};

/* ---- pieces ---- */

/* Hands over what is prepared and waits for @n requests; the first error of them, or that none has
 * ended for too long: the agent may be there, and hang in its engine. */
static int run_pieces(struct worker *w, int n, const char *path, struct ros2_err *err)
{
	uint64_t ms = opts_patience_ms(w->tree->o), heard_ns = clock_monotonic_ns();
	struct ros2_completion c[PIECES], none;
	int rc = ros2_submit(w->session, err), done = 0;
	enum ros2_status bad = ROS2_OK;

	if (rc < 0)
		return rc;
	while (done < n) {
		int got = ros2_wait(w->session, c, 1, PIECES, 1000, err);

		if (got < 0)
			return got;
		if (got > 0)
			heard_ns = clock_monotonic_ns();
		else if (clock_monotonic_ns() - heard_ns > ms * NS_PER_MS)
			return ros2_err_named(err, ROS2_TIMEOUT,
			                      "%s: of %d requests none has ended for %llu s", path,
			                      n - done, (unsigned long long)ms / 1000);
		for (int i = 0; i < got; i++) {
			bad = bad ? bad : c[i].status;
			w->len[c[i].tag] = c[i].result > 0 ? (uint32_t)c[i].result : 0;
		}
		done += got;
	}
	if (!bad)
		return 0;
	/* A session that has ended knows more words. */
	rc = ros2_peek(w->session, &none, 0, err);
	return rc < 0 ? rc : ros2_err_named(err, bad, "%s: %s", path, ros2_status_text(bad));
}

static ssize_t read_full(int fd, void *p, size_t n)
{
	size_t at = 0;

	while (at < n) {
		ssize_t got = read(fd, (char *)p + at, n - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		at += (size_t)got;
	}
	return (ssize_t)at;
}

/* As read_full(), @at of the file, up to its end. */
static ssize_t read_more(int fd, void *p, size_t n, uint64_t at, struct extent *e)
{
	struct stat st;

	if (!e->grows && at > e->end) {
		if (fstat(fd, &st) < 0)
			return -errno;
		*e = (struct extent){MAX((uint64_t)st.st_size, at), true};
	}
	return read_full(fd, p, e->grows ? MIN(n, e->end - at) : n);
}

static int write_full(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t put = write(fd, p, n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		p = (const char *)p + put;
		n -= (size_t)put;
	}
	return 0;
}

static void note_moved(struct worker *w, uint64_t n)
{
	atomic_fetch_add_explicit(&w->tree->moved, n, memory_order_relaxed);
}

static uint64_t sum_of(const struct worker *w, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += w->len[i];
	return sum;
}

/* ---- one file ---- */

/* *ret_size: the expected size, then what there was. */
static int put_pieces(struct worker *w, int fd, struct ros2_file *f, const char *path,
                      struct crypto_sha256 *h, uint64_t *ret_size, struct ros2_err *err)
{
	struct extent e = {.end = *ret_size};
	uint64_t at = 0;
	bool more = true;
	int rc = 0;

	while (more && !rc && !atomic_load(&w->tree->stop)) {
		uint64_t began = at;
		int n = 0;

		for (; n < PIECES && more && !rc; n++) {
			ssize_t got = read_more(fd, w->buf[n], w->piece, at, &e);

			if (got < 0)
				return ros2_err_set(err, (int)got, "%s: %s", path,
				                    strerror((int)-got));
			more = got == (ssize_t)w->piece;
			if (!got)
				break;
			crypto_sha256_update(h, w->buf[n], (size_t)got);
			rc = ros2_prep_write(f, w->buf[n], (uint32_t)got, at, (uint64_t)n, err);
			at += (uint64_t)got;
		}
		if (!rc && n)
			rc = run_pieces(w, n, path, err);
		if (!rc && sum_of(w, n) != at - began)
			rc = ros2_err_named(err, ROS2_IO, "%s: a write was cut short", path);
		note_moved(w, at - began);
	}
	*ret_size = at;
	return rc;
}

static int sees_growth(struct ros2_file *f, uint64_t at, struct extent *e, struct ros2_err *err)
{
	struct ros2_stat st;
	int rc = ros2_fstat(f, &st, err);

	if (!rc)
		*e = (struct extent){MAX(st.size, at), true};
	return rc;
}

/* Pieces of a file that is expected to end at @e: one byte more is asked for, so that its end is
 * seen, and no more, because what is asked for counts against the tenant's rate. Returns how many,
 * or negative errno; their lengths go to @asked. */
static int ask_pieces(struct worker *w, struct ros2_file *f, uint64_t at, struct extent *e,
                      uint32_t asked[PIECES], struct ros2_err *err)
{
	uint64_t most = (uint64_t)PIECES * w->piece, want;
	int n = !e->grows && at > e->end ? sees_growth(f, at, e, err) : 0;

	if (n < 0)
		return n;
	want = MIN(e->end - at, most);
	if (!e->grows)
		want = MIN(e->end - at, most - 1) + 1; /* of a file of 2^64 - 1 bytes, too */
	for (; n < PIECES && want; n++) {
		int rc;

		asked[n] = (uint32_t)MIN(want, (uint64_t)w->piece);
		rc = ros2_prep_read(f, w->buf[n], asked[n], at, (uint64_t)n, err);
		if (rc)
			return rc;
		at += asked[n];
		want -= asked[n];
	}
	return n;
}

/* @fd -1: only the SHA-256. *ret_size: the expected size, then what there was. */
static int get_pieces(struct worker *w, int fd, struct ros2_file *f, const char *path,
                      struct crypto_sha256 *h, uint64_t *ret_size, struct ros2_err *err)
{
	struct extent e = {.end = *ret_size};
	uint32_t asked[PIECES];
	uint64_t at = 0;
	bool more = true;
	int rc = 0;

	while (more && !rc && !atomic_load(&w->tree->stop)) {
		int n = ask_pieces(w, f, at, &e, asked, err);

		rc = n < 0 ? n : run_pieces(w, n, path, err);
		more = n > 0;
		for (int i = 0; i < n && more && !rc; i++) {
			crypto_sha256_update(h, w->buf[i], w->len[i]);
			if (fd >= 0)
				rc = write_full(fd, w->buf[i], w->len[i]);
			if (rc)
				ros2_err_set(err, rc, "%s: %s", path, strerror(-rc));
			at += w->len[i];
			note_moved(w, w->len[i]);
			more = w->len[i] == asked[i];
		}
	}
	*ret_size = at;
	return rc;
}

/* *ret_size: as put_pieces(). */
static int sha256_of_local(const char *path, uint8_t *scratch, size_t n, uint8_t out[SHA256_LEN],
                           uint64_t *ret_size, struct ros2_err *err)
{
	struct crypto_sha256 h;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct extent e = {.end = *ret_size};
	ssize_t got = 0;

	if (fd < 0)
		return ros2_err_set(err, -errno, "%s: %s", path, strerror(errno));
	crypto_sha256_init(&h);
	*ret_size = 0;
	while ((got = read_more(fd, scratch, n, *ret_size, &e)) > 0) {
		crypto_sha256_update(&h, scratch, (size_t)got);
		*ret_size += (uint64_t)got;
	}
	if (!got)
		crypto_sha256_end(&h, out);
	return got < 0 ? ros2_err_set(err, (int)got, "%s: %s", path, strerror((int)-got)) : 0;
}

static int put_file(struct worker *w, struct tree_file *t, const char *local, const char *remote,
                    struct ros2_err *err)
{
	struct crypto_sha256 h;
	struct ros2_file *f;
	AUTO_CLOSE int fd = open(local, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int rc, closed;

	if (fd < 0)
		return ros2_err_set(err, -errno, "%s: %s", local, strerror(errno));
	rc = ros2_open(w->mount, remote, ROS2_O_RDWR | ROS2_O_CREAT | ROS2_O_TRUNC, 0644, &f, err);
	if (rc)
		return rc;
	crypto_sha256_init(&h);
	rc = put_pieces(w, fd, f, remote, &h, &t->size, err);
	if (!rc)
		crypto_sha256_end(&h, t->sha256);
	if (!rc && !w->tree->o->no_flush)
		rc = ros2_flush(f, err);
	closed = ros2_close(f, rc ? NULL : err);
	return rc ? rc : closed;
}

static int get_file(struct worker *w, struct tree_file *t, const char *local, const char *remote,
                    struct ros2_err *err)
{
	bool verify = w->tree->op == TREE_VERIFY;
	struct crypto_sha256 h;
	struct ros2_file *f;
	AUTO_CLOSE int fd = -1;
	int rc = ros2_open(w->mount, remote, ROS2_O_RDONLY, 0, &f, err);

	if (rc)
		return rc;
	if (!verify) {
		fd = open(local, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fd < 0) {
			ros2_close(f, NULL);
			return ros2_err_set(err, -errno, "%s: %s", local, strerror(errno));
		}
	}
	crypto_sha256_init(&h);
	rc = get_pieces(w, fd, f, remote, &h, &t->size, err);
	/* Some file systems say only then that they had no room. */
	if (fd >= 0 && close(TAKE_FD(fd)) < 0 && !rc)
		rc = ros2_err_set(err, -errno, "%s: %s", local, strerror(errno));
	if (!rc)
		crypto_sha256_end(&h, t->sha256);
	ros2_close(f, NULL);
	return rc;
}

/* A file that is missing or differs is counted, not an error: the others are still compared. */
static int verify_file(struct worker *w, struct tree_file *t, const char *local, const char *remote,
                       struct ros2_err *err)
{
	uint8_t want[SHA256_LEN];
	uint64_t size = t->size;
	int rc = sha256_of_local(local, w->buf[0], w->piece, want, &size, err);

	if (rc)
		return rc;
	rc = get_file(w, t, local, remote, err);
	if (rc == -ENOENT) {
		t->differs = true;
		return 0;
	}
	if (!rc && !atomic_load(&w->tree->stop))
		t->differs = size != t->size || !crypto_equal(want, t->sha256, SHA256_LEN);
	return rc;
}

/* ---- the worker ---- */

static int set_up(struct worker *w, struct ros2_err *err)
{
	struct ros2_session_opts so = opts_session(w->tree->o, PIECES);
	int rc = ros2_session_open(w->tree->client, &so, &w->session, err);
	struct ros2_session_info info;
	uint64_t total;
	void *p = NULL;

	if (rc)
		return rc;
	ros2_session_info(w->session, &info);
	/* One region for all pieces: a tenant may have few, and small ones. */
	total = (uint64_t)PIECES * MIN(info.max_io, PIECE_MAX);
	if (info.region_size_max && info.region_size_max < total)
		total = info.region_size_max;
	w->piece = (uint32_t)(total / PIECES);
	if (w->piece > PAGE)
		w->piece -= w->piece % PAGE;
	if (!w->piece)
		return ros2_err_set(err, -EINVAL, "the policy's largest region is too small");
	rc = ros2_mount(w->session, w->tree->o->ns, &w->mount, err);
	if (!rc)
		rc = ros2_buf_alloc(w->session, (size_t)w->piece * PIECES, &p, err);
	for (int i = 0; i < PIECES && !rc; i++)
		w->buf[i] = (uint8_t *)p + (size_t)i * w->piece;
	return rc;
}

static int one_file(struct worker *w, struct tree_file *f, struct ros2_err *err)
{
	char local[4096], remote[4096];
	int rc = tree_join(local, w->tree->local, f->path, err);

	if (!rc)
		rc = tree_join(remote, w->tree->remote, f->path, err);
	if (rc)
		return rc;
	if (w->tree->op == TREE_PUT)
		return put_file(w, f, local, remote, err);
	if (w->tree->op == TREE_GET)
		return get_file(w, f, local, remote, err);
	return verify_file(w, f, local, remote, err);
}

void *tree_worker(void *arg)
{
	struct tree *t = arg;
	struct worker w = {.tree = t};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = set_up(&w, &err);

	while (!rc && !atomic_load(&t->stop)) {
		size_t i = atomic_fetch_add(&t->next, 1);

		if (i >= t->n_files)
			break;
		rc = one_file(&w, &t->files[i], &err);
		t->files[i].done = !rc && !atomic_load(&t->stop);
	}
	if (rc) {
		pthread_mutex_lock(&t->lock);
		if (!t->err.code)
			t->err = err;
		pthread_mutex_unlock(&t->lock);
		atomic_store(&t->stop, true);
	}
	ros2_session_close(w.session);
	atomic_fetch_add(&t->n_finished, 1);
	return NULL;
}
