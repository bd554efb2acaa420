/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of revocations that the database had no room for: a file of fixed slots, written in
 * full and synced while there is space, then only ever overwritten in place, so a full disk cannot
 * refuse it. A slot is taken before the revocation is answered and given back after its commit;
 * what is found at start was not recorded. Store thread, and store_open before that runs. Layout:
 * docs/decisions/0014-revocation-journal.md. Invariants: (1) a slot is whole or does not count
 * (CRC32C); (2) a failed write or sync loses no more than the memory of it: the revocation is
 * effective and is tried again, and the log says that it is in memory only.
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

void store_journal_open(struct store *s)
{
	char path[4160];
	int r = 0;

	snprintf(path, sizeof(path), "%s/revocations", s->dir);
	s->journal.fd = fsx_io->open(path, O_RDWR | O_CLOEXEC, 0600);
	if (s->journal.fd < 0 && errno == ENOENT) {
		r = make_file(path, s->dir);
		if (!r)
			s->journal.fd = fsx_io->open(path, O_RDWR | O_CLOEXEC, 0600);
	}
	if (s->journal.fd < 0)
		log_error("%s: %s: a revocation that finds no space is kept in memory only", path,
		          strerror(r < 0 ? -r : errno));
}

void store_journal_close(struct store *s)
{
	if (s->journal.fd >= 0)
		close(TAKE_FD(s->journal.fd));
}

static int write_slot(struct store *s, unsigned slot, const uint8_t b[SLOT_LEN])
{
	ssize_t n = pwrite(s->journal.fd, b, SLOT_LEN, (off_t)slot * SLOT_LEN);

	return n == SLOT_LEN ? 0 : (n < 0 ? -errno : -EIO);
}

static int sync_slots(struct store *s)
{
	return fsx_io->fsync(s->journal.fd) < 0 ? -errno : 0;
}

/* ---- at start ---- */

int store_journal_load(struct store *s,
                       int (*fn)(void *arg, const void *p, size_t n, unsigned slot), void *arg)
{
	uint8_t b[SLOT_LEN];
	int r = 0;

	for (unsigned i = 0; s->journal.fd >= 0 && i < STORE_JOURNAL_SLOTS && !r; i++) {
		uint32_t len;

		if (pread(s->journal.fd, b, SLOT_LEN, (off_t)i * SLOT_LEN) != SLOT_LEN)
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

static void journal_put(struct store *s, struct store_txn *t)
{
	uint8_t b[SLOT_LEN] = {0};
	unsigned i = 0;
	int r;

	while (i < STORE_JOURNAL_SLOTS && s->journal.used[i])
		i++;
	if (s->journal.fd < 0 || i == STORE_JOURNAL_SLOTS)
		return;
	memcpy(b, magic, sizeof(magic));
	put32(b + 8, (uint32_t)t->note_len);
	put32(b + 12, crypto_crc32c(t->note, t->note_len));
	memcpy(b + HEAD_LEN, t->note, t->note_len);
	r = write_slot(s, i, b);
	if (!r) {
		s->journal.used[i] = true;
		t->slot = (int)i;
	}
}

void store_journal_keep(struct store *s, struct list *txns)
{
	struct store_txn *t;
	unsigned n = 0;
	int r = 0;

	list_for_each (txns, t, link) {
		if (!t->result.record_pending || !t->note || t->slot >= 0)
			continue;
		journal_put(s, t);
		n += t->slot >= 0;
		if (t->slot < 0)
			log_error("a revocation is effective, but in memory only: the journal "
			          "does not take it");
	}
	if (n)
		r = sync_slots(s);
	if (r < 0)
		log_error("the journal of revocations cannot be synced: %s", strerror(-r));
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
