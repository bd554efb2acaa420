/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of revocations that the database had no room for: a file of fixed slots, written in
 * full and synced while there is space, then only ever overwritten in place, so a full disk cannot
 * refuse it. A slot is taken before the revocation is answered and given back after its commit;
 * what is found at start was not recorded. Store thread, and store_open before that runs. Layout:
 * docs/decisions/0014-revocation-journal.md. Invariants: (1) a slot is whole or does not count
 * (CRC32C); (2) a failed write or sync loses no more than the memory of it: the revocation is
 * effective, the log says that it is in memory only, and its slot is written anew, whole, with the
 * next try of its commit; (3) what a start reads is synced before it is read; (4) a journal that
 * cannot be read is no empty one: the start fails.
 */
#include "controller/store_front_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define SLOT_LEN 4096
#define HEAD_LEN 16

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

static int write_zeros(int fd)
{
	uint8_t zeros[SLOT_LEN] = {0};

	for (int i = 0; i < STORE_JOURNAL_SLOTS; i++) {
		int r = fsx_write_all(fd, zeros, sizeof(zeros));

		if (r < 0)
			return r;
	}
	return fsx_io->fsync(fd) < 0 ? -errno : 0;
}

/* Made under another name: under its own it is of full length and on the disk. */
static int make_file(const char *path, const char *dir)
{
	char tmp[4200];
	int fd, r;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	fd = fsx_io->open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_zeros(fd);
	close(fd);
	if (!r && fsx_io->rename(tmp, path) < 0)
		r = -errno;
	if (!r)
		r = fsx_sync_dir(dir, NULL);
	if (r < 0)
		fsx_io->unlink(tmp);
	return r;
}

/* There was none: nothing that was answered is lost without it. */
static void journal_begin(struct store *s, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = make_file(path, s->dir);

	if (r < 0)
		ros2_err_set(&err, r, "make %s: %s", path, strerrordesc_np(-r));
	else
		r = fsx_open(path, O_RDWR, 0600, &s->journal.fd, &err);
	if (r < 0)
		log_error("%s: a revocation that finds no space is kept in memory only", err.msg);
}

int store_journal_open(struct store *s, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	char path[4160];
	int r;

	snprintf(path, sizeof(path), "%s/revocations", s->dir);
	r = fsx_open(path, O_RDWR, 0600, &s->journal.fd, &why);
	if (r == -ENOENT) {
		journal_begin(s, path);
		return 0;
	}
	if (r < 0 && err)
		*err = why;
	/* A killed process may have written without a sync: agents hear of it from here on. */
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

static int write_slot(struct store *s, unsigned slot, const uint8_t b[SLOT_LEN])
{
	return fsx_pwrite_all(s->journal.fd, b, SLOT_LEN, (off_t)slot * SLOT_LEN);
}

static int sync_slots(struct store *s)
{
	return fsx_io->fsync(s->journal.fd) < 0 ? -errno : 0;
}

/* ---- at start ---- */

int store_journal_load(struct store *s,
                       int (*fn)(void *arg, const void *p, size_t n, unsigned slot), void *arg,
                       struct ros2_err *err)
{
	uint8_t b[SLOT_LEN];
	int r = 0;

	for (unsigned i = 0; s->journal.fd >= 0 && i < STORE_JOURNAL_SLOTS && !r; i++) {
		ssize_t n = pread(s->journal.fd, b, SLOT_LEN, (off_t)i * SLOT_LEN);
		uint32_t len;

		if (n < 0)
			return ros2_err_set(err, -errno, "read slot %u of %s/revocations: %s", i,
			                    s->dir, strerrordesc_np(errno));
		if (n != SLOT_LEN)
			continue; /* a short file: what is missing holds nothing */
		len = get32(b + 8);
		if (memcmp(b, magic, sizeof(magic)) != 0)
			continue;
		if (len < ROS2_UID_LEN || len > STORE_NOTE_MAX ||
		    crypto_crc32c(b + HEAD_LEN, len) != get32(b + 12)) {
			log_error("slot %u of the journal of revocations is torn: it was never "
			          "answered",
			          i);
			continue;
		}
		s->journal.used[i] = true;
		if (fn)
			r = fn(arg, b + HEAD_LEN, len, i);
	}
	return r;
}

/* ---- taking and giving back ---- */

/* Beginning behind the last one that could not be written. */
static int free_slot(const struct store *s)
{
	for (unsigned n = 0; n < STORE_JOURNAL_SLOTS; n++) {
		unsigned i = (s->journal.next + n) % STORE_JOURNAL_SLOTS;

		if (!s->journal.used[i])
			return (int)i;
	}
	return -1;
}

static bool journal_put(struct store *s, struct store_txn *t)
{
	int slot = t->slot >= 0 ? t->slot : free_slot(s);
	uint8_t b[SLOT_LEN] = {0};

	if (s->journal.fd < 0 || slot < 0)
		return false;
	memcpy(b, magic, sizeof(magic));
	put32(b + 8, (uint32_t)t->note_len);
	put32(b + 12, crypto_crc32c(t->note, t->note_len));
	memcpy(b + HEAD_LEN, t->note, t->note_len);
	if (write_slot(s, (unsigned)slot, b) < 0) {
		s->journal.next = (unsigned)slot + 1;
		return false;
	}
	s->journal.used[slot] = true;
	t->slot = slot;
	return true;
}

/* After a failed sync nobody knows what the disk has of these slots: they are not synced again as
 * they are, but written anew. */
unsigned store_journal_keep(struct store *s, struct list *txns)
{
	struct store_txn *t;
	unsigned due = 0, put = 0;

	list_for_each (txns, t, link) {
		t->in_slot = false;
		if (!t->result.record_pending || !t->note || t->noted)
			continue;
		due++;
		t->in_slot = journal_put(s, t);
		put += t->in_slot;
	}
	if (!put || sync_slots(s) < 0)
		return due;
	list_for_each (txns, t, link)
		t->noted |= t->in_slot;
	return due - put;
}

void store_journal_done(struct store *s, struct list *txns)
{
	static const uint8_t none[SLOT_LEN];
	struct store_txn *t;
	unsigned n = 0;

	list_for_each (txns, t, link) {
		if (t->slot < 0 || t->result.rc < 0)
			continue;
		if (write_slot(s, (unsigned)t->slot, none) < 0)
			continue; /* found again at start, and known there by its uid */
		s->journal.used[t->slot] = false;
		t->slot = -1;
		n++;
	}
	if (n && sync_slots(s) < 0)
		log_error("the journal of revocations cannot be synced");
}

void store_journal_drop(struct store *s, unsigned slot)
{
	static const uint8_t none[SLOT_LEN];

	if (!write_slot(s, slot, none) && !sync_slots(s))
		s->journal.used[slot] = false;
}
