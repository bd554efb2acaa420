/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of revocations that the database had no room for: a file of fixed slots, written in
 * full and synced while there is space, then only ever overwritten in place, so a full disk cannot
 * refuse it. A slot is taken before the revocation is answered and given back after its commit;
 * what is found at start was not recorded. Store thread, and store_open before that runs. Layout:
 * docs/decisions/0014-revocation-journal.md. Invariants: (1) a slot is whole or does not count
 * (CRC32C); (2) the image in memory is what the file should hold; after a failed write or sync the
 * file is suspect, and nothing counts as synced until all of the image was written anew, to a file
 * of its own or over the old one, and synced; (3) what a start found is written anew and synced
 * before anybody hears of it: another process may have failed to sync it, and the page cache does
 * not say; (4) a journal that cannot be read is no empty one: the start fails. Behind the slots is
 * the filter of what found none (store_doubt.c).
 */
#include "controller/store_front_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define SLOT_LEN  STORE_JOURNAL_SLOT
#define HEAD_LEN  16
#define SLOTS_LEN ((size_t)STORE_JOURNAL_SLOTS * SLOT_LEN)
#define IMAGE_LEN ((size_t)STORE_JOURNAL_LEN)

static const char magic[8] = "ROS2REV1";

_Static_assert(STORE_NOTE_MAX + HEAD_LEN <= SLOT_LEN, "a note fits into its slot");

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- the file ---- */

static void journal_path(const struct store *s, const char *suffix, char out[4200])
{
	snprintf(out, 4200, "%s/revocations%s", s->dir, suffix);
}

static uint8_t *image_of(struct store *s, unsigned slot)
{
	return s->journal.image + (size_t)slot * SLOT_LEN;
}

/* The whole image, or as much of it as the file has room for, synced. */
static int write_image(struct store *s, int fd, size_t len)
{
	int r = fsx_pwrite_all(fd, s->journal.image, len, 0);

	if (r < 0)
		return r;
	return fsx_io->fsync(fd) < 0 ? -errno : 0;
}

/* Made under another name: under its own it is of full length and on the disk. *ret_fd is the new
 * file's from the rename on, also when the directory could not be synced. */
static int make_file(struct store *s, int *ret_fd)
{
	char path[4200], tmp[4200];
	int fd, r;

	journal_path(s, "", path);
	journal_path(s, ".new", tmp);
	fd = fsx_io->open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_image(s, fd, IMAGE_LEN);
	if (!r && fsx_io->rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		fsx_io->unlink(tmp);
		return r;
	}
	*ret_fd = fd;
	return fsx_sync_dir(s->dir, NULL);
}

static int renew(struct store *s)
{
	int fd = -1, r = make_file(s, &fd);

	if (fd >= 0) {
		store_journal_close(s);
		s->journal.fd = fd;
		s->journal.is_short = false;
	}
	return r;
}

static int write_over(struct store *s)
{
	size_t len = s->journal.is_short ? SLOTS_LEN : IMAGE_LEN;
	int r = s->journal.fd >= 0 ? write_image(s, s->journal.fd, len) : -EBADF;

	return r ? r : fsx_sync_dir(s->dir, NULL);
}

/* What a start finds under its name is what was opened. */
static bool is_named(const struct store *s)
{
	struct stat own, named;
	char path[4200];

	journal_path(s, "", path);
	return !fstat(s->journal.fd, &own) && !stat(path, &named) && own.st_dev == named.st_dev &&
	       own.st_ino == named.st_ino;
}

/* A new file first: it does not touch what the old one may have, nor its blocks. A full disk has no
 * room for it. */
static int mend(struct store *s)
{
	int r = renew(s);

	if (r < 0 && is_named(s))
		r = write_over(s);
	if (r < 0)
		return r;
	s->journal.suspect = s->journal.doubt_dirty = false;
	log_info("the journal of revocations was written anew");
	return 0;
}

static void distrust(struct store *s, int r, const char *what)
{
	if (!s->journal.suspect)
		log_error("%s the journal of revocations: %s: it is written anew, until then a "
		          "revocation that finds no space is kept in memory only",
		          what, strerrordesc_np(-r));
	s->journal.suspect = true;
}

void store_journal_tend(struct store *s)
{
	if (s->journal.suspect)
		(void)mend(s);
}

int store_journal_open(struct store *s, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	char path[4200];
	int r;

	s->journal.image = calloc(1, IMAGE_LEN);
	if (!s->journal.image)
		return ros2_err_set(err, -ENOMEM, "no memory for the journal of revocations");
	journal_path(s, "", path);
	r = fsx_open(path, O_RDWR, 0600, &s->journal.fd, &why);
	if (r == -ENOENT) {
		/* There was none: nothing that was answered is lost without it. */
		r = renew(s);
		if (r < 0)
			distrust(s, r, "make");
		return 0;
	}
	if (r < 0 && err)
		*err = why;
	/* What a killed process wrote without a sync is the disk's from here on. */
	if (!r && fsx_io->fsync(s->journal.fd) < 0)
		r = ros2_err_set(err, -EIO, "fsync %s: %s: what it holds may be lost", path,
		                 strerrordesc_np(errno));
	return r ? r : fsx_sync_dir(s->dir, err);
}

void store_journal_close(struct store *s)
{
	if (s->journal.fd >= 0)
		close(TAKE_FD(s->journal.fd));
}

void store_journal_fini(struct store *s)
{
	store_journal_close(s);
	free(TAKE_PTR(s->journal.image));
}

static int write_slot(struct store *s, unsigned slot)
{
	return fsx_pwrite_all(s->journal.fd, image_of(s, slot), SLOT_LEN, (off_t)slot * SLOT_LEN);
}

/* ---- at start ---- */

/* 1: it names something, 0: nothing, or there is none. */
static int read_doubt(struct store *s, struct ros2_err *err)
{
	uint8_t *b = s->journal.image + SLOTS_LEN;
	ssize_t n = pread(s->journal.fd, b, STORE_DOUBT_LEN, (off_t)SLOTS_LEN);

	if (n < 0)
		return ros2_err_set(err, -errno, "read %s/revocations: %s", s->dir,
		                    strerrordesc_np(errno));
	s->journal.is_short = n < (ssize_t)STORE_DOUBT_LEN;
	return store_doubt_any(s);
}

/* 1: a slot is taken, or something is in doubt, 0: neither. */
static int read_image(struct store *s, struct ros2_err *err)
{
	static const uint8_t none[SLOT_LEN];
	int found = read_doubt(s, err);

	if (found < 0)
		return found;

	for (unsigned i = 0; i < STORE_JOURNAL_SLOTS; i++) {
		uint8_t *b = image_of(s, i);
		ssize_t n = pread(s->journal.fd, b, SLOT_LEN, (off_t)i * SLOT_LEN);
		uint32_t len = get32(b + 8);

		if (n < 0)
			return ros2_err_set(err, -errno, "read slot %u of %s/revocations: %s", i,
			                    s->dir, strerrordesc_np(errno));
		/* A short file: what is missing holds nothing. */
		s->journal.used[i] = n == SLOT_LEN && !memcmp(b, magic, sizeof(magic));
		if (s->journal.used[i] && (len < ROS2_UID_LEN || len > STORE_NOTE_MAX ||
		                           crypto_crc32c(b + HEAD_LEN, len) != get32(b + 12))) {
			log_error("slot %u of the journal of revocations is torn: it was never "
			          "answered",
			          i);
			s->journal.used[i] = false;
		}
		if (s->journal.used[i])
			found = 1;
		else
			memcpy(b, none, SLOT_LEN);
	}
	return found;
}

int store_journal_load(struct store *s,
                       int (*fn)(void *arg, const void *p, size_t n, unsigned slot), void *arg,
                       struct ros2_err *err)
{
	int r = s->journal.fd >= 0 ? read_image(s, err) : 0;

	if (r < 0)
		return r;
	/* What is written over what is there is the same bytes: it cannot tear them. */
	if (r > 0)
		r = write_over(s);
	if (r < 0)
		r = renew(s);
	if (r < 0)
		return ros2_err_set(err, -EIO,
		                    "write %s/revocations anew: %s: what it holds may be lost",
		                    s->dir, strerrordesc_np(-r));
	/* Without room for that the slots are used as they are. */
	if (s->journal.is_short && renew(s) < 0 && s->journal.is_short)
		log_warn("the journal of revocations has no place for more than %u of them: "
		         "there is no room to write it anew",
		         STORE_JOURNAL_SLOTS);
	for (unsigned i = 0; fn && i < STORE_JOURNAL_SLOTS && !r; i++)
		if (s->journal.used[i])
			r = fn(arg, image_of(s, i) + HEAD_LEN, get32(image_of(s, i) + 8), i);
	return r;
}

/* ---- taking and giving back ---- */

static int free_slot(const struct store *s)
{
	int n = s->o.journal_slots ? (int)s->o.journal_slots : STORE_JOURNAL_SLOTS;

	for (int i = 0; i < n; i++)
		if (!s->journal.used[i])
			return i;
	return -1;
}

uint8_t *store_journal_doubt(const struct store *s)
{
	return s->journal.is_short ? NULL : s->journal.image + SLOTS_LEN;
}

void store_journal_doubt_changed(struct store *s)
{
	s->journal.doubt_dirty = true;
}

/* In the image only. */
static bool doubt_put(struct store *s, const struct store_txn *t)
{
	if (!store_doubt_put(s, t))
		return false;
	store_journal_doubt_changed(s);
	return true;
}

/* In the image, and in the file unless that is suspect already. */
static bool journal_put(struct store *s, struct store_txn *t)
{
	int slot = t->slot >= 0 ? t->slot : t->unkept ? -1 : free_slot(s), r;
	uint8_t *b;

	if (slot < 0)
		return doubt_put(s, t);
	b = image_of(s, (unsigned)slot);
	memset(b, 0, SLOT_LEN);
	memcpy(b, magic, sizeof(magic));
	put32(b + 8, (uint32_t)t->note_len);
	put32(b + 12, crypto_crc32c(t->note, t->note_len));
	memcpy(b + HEAD_LEN, t->note, t->note_len);
	s->journal.used[slot] = true;
	t->slot = slot;
	if (s->journal.suspect)
		return true;
	r = write_slot(s, (unsigned)slot);
	if (r < 0)
		distrust(s, r, "write");
	return true;
}

static void journal_clear(struct store *s, unsigned slot)
{
	int r;

	memset(image_of(s, slot), 0, SLOT_LEN);
	s->journal.used[slot] = false;
	if (s->journal.suspect)
		return;
	r = write_slot(s, slot);
	if (r < 0)
		distrust(s, r, "write");
}

/* 0: the disk has what the image has. */
static int settle_file(struct store *s)
{
	int r = 0;

	if (s->journal.doubt_dirty && !s->journal.suspect)
		r = fsx_pwrite_all(s->journal.fd, s->journal.image + SLOTS_LEN, STORE_DOUBT_LEN,
		                   (off_t)SLOTS_LEN);
	if (r < 0)
		distrust(s, r, "write");
	s->journal.doubt_dirty = false;
	if (!s->journal.suspect && fsx_io->fsync(s->journal.fd) < 0)
		distrust(s, -errno, "sync");
	if (!s->journal.suspect && !is_named(s))
		distrust(s, -ENOENT, "find");
	return s->journal.suspect ? mend(s) : 0;
}

unsigned store_journal_keep(struct store *s, struct list *txns)
{
	struct store_txn *t;
	unsigned due = 0, put = 0;

	list_for_each (txns, t, link) {
		t->in_slot = false;
		if (!(t->result.record_pending || t->unkept) || !t->note || t->noted)
			continue;
		due++;
		t->in_slot = journal_put(s, t);
		put += t->in_slot;
	}
	if (!put || settle_file(s) < 0)
		return due;
	list_for_each (txns, t, link)
		t->noted |= t->in_slot;
	return due - put;
}

/* In the image: those that it names are all recorded. */
static void empty_doubt(struct store *s)
{
	memset(s->journal.image + SLOTS_LEN, 0, STORE_DOUBT_LEN);
	store_journal_doubt_changed(s);
}

void store_journal_doubt_drop(struct store *s)
{
	empty_doubt(s);
	(void)settle_file(s);
}

void store_journal_done(struct store *s, struct list *txns)
{
	struct store_txn *t;
	unsigned n = 0;

	list_for_each (txns, t, link) {
		if (t->result.rc < 0)
			continue;
		if (store_doubt_done(s, t)) {
			empty_doubt(s);
			n++;
		}
		if (t->slot < 0)
			continue;
		journal_clear(s, (unsigned)t->slot);
		t->slot = -1;
		n++;
	}
	/* Until it is through, a start finds it again, and knows it by its uid. */
	if (n)
		(void)settle_file(s);
}

void store_journal_drop(struct store *s, unsigned slot)
{
	journal_clear(s, slot);
	(void)settle_file(s);
}
