/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reserve: a file that takes space while there is some, and is removed on a full disk so that
 * what shrinks rights can be recorded (rule 10). From then on its space is for nothing else, until
 * there is a reserve again; after a start, as much of it as a part of the reserve takes. And what
 * gives rights does not overtake what waits to be recorded.
 * A smaller file beside it is for a process that begins on a disk where all of that has been used:
 * without an epoch nobody could take anything away.
 * Store thread, and store_open before that runs.
 */
#include "controller/store_front_priv.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST_PART 128 /* of it: less is no reserve */
#define START_PART 16  /* as much as this of it for a start, and of that no less than an eighth */

#define LOG_COMPONENT "store"
#include "common/log.h"

void store_reserve_free(struct store *s)
{
	if (s->reserve_used)
		return;
	s->reserve_used = true;
	s->reserve_lent = true;
	s->reserve_short = false;
	if (fsx_io->unlink(s->reserve_path) < 0 && errno != ENOENT)
		log_error("cannot free the reserve %s: %s", s->reserve_path, strerror(errno));
	else
		log_warn("the disk is full: the reserve of %llu bytes was freed for revocations",
		         (unsigned long long)s->reserve_bytes);
}

/* The disk, or a quota of it. */
static bool is_no_room(int r)
{
	return r == ENOSPC || r == EDQUOT;
}

/* What the file has of @most; 0: nothing is known of it. */
static off_t size_of(int fd, off_t most)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : MIN(st.st_size, most);
}

/* Of what a start has not used the next one has the rest. A call that fails for another reason than
 * room takes nothing of what there is. */
static int take_for_start(int fd, off_t whole, off_t *ret_bytes)
{
	int r = posix_fallocate(fd, 0, *ret_bytes = whole);

	while (is_no_room(r) && *ret_bytes > whole / 8)
		r = posix_fallocate(fd, 0, *ret_bytes /= 2);
	if (r && !is_no_room(r) && (*ret_bytes = size_of(fd, whole)) > 0)
		return 0;
	if (!r && ftruncate(fd, *ret_bytes) < 0) /* what did not fit may have been begun */
		r = errno;
	return r;
}

void store_reserve_make_for_start(struct store *s)
{
	off_t whole = (off_t)(s->reserve_bytes / START_PART), bytes = 0;
	bool was_short = s->start_short;
	int fd = open(s->start_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	int r = fd < 0 ? errno : take_for_start(fd, whole, &bytes);

	if (fd >= 0)
		close(fd);
	s->start_short = r || bytes < whole;
	if (r && !was_short)
		log_warn("no room can be kept for a start on a full disk, at %s: %s", s->start_path,
		         strerror(r));
	if (r && fd >= 0)
		fsx_io->unlink(s->start_path);
}

bool store_reserve_free_for_start(struct store *s)
{
	if (fsx_io->unlink(s->start_path) < 0)
		return false;
	s->start_short = true;
	log_warn("the disk is full: what was kept for a start was freed");
	return true;
}

void store_reserve_make_at_start(struct store *s)
{
	store_reserve_make_for_start(s);
	store_reserve_make(s);
}

/* Where there is no room for all of it, half of that, or of the half: a process that lent it may
 * have ended, and what it left of it is not to go to what gives rights. So stays what there is when
 * a call fails for another reason. */
static int take_space(struct store *s, int fd)
{
	uint64_t bytes = s->reserve_bytes, there;
	int r = posix_fallocate(fd, 0, (off_t)bytes);

	while (is_no_room(r) && !s->reserve_lent && bytes > s->reserve_bytes / LEAST_PART) {
		bytes /= 2;
		r = posix_fallocate(fd, 0, (off_t)bytes);
	}
	there = r && !is_no_room(r) ? (uint64_t)size_of(fd, (off_t)s->reserve_bytes) : 0;
	if (there && !s->reserve_lent) {
		bytes = there;
		r = 0;
	}
	s->reserve_short = !r && bytes < s->reserve_bytes;
	if (s->reserve_short && ftruncate(fd, (off_t)bytes) < 0)
		r = errno; /* what did not fit may have been begun */
	return r;
}

void store_reserve_make(struct store *s)
{
	bool was_short = s->reserve_short;
	int fd = open(s->reserve_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	int r = fd < 0 ? errno : take_space(s, fd);

	if (fd >= 0)
		close(fd);
	if (r) {
		if (fd >= 0)
			fsx_io->unlink(s->reserve_path);
		/* There is none: tried again each second. */
		if (!s->reserve_used)
			log_warn("no reserve for revocations can be made at %s: %s",
			         s->reserve_path, strerror(r));
		s->reserve_used = true;
		s->reserve_short = false;
		return;
	}
	s->reserve_used = false;
	if (s->reserve_short && !was_short)
		log_warn("there is room for a part of the reserve for revocations only");
	if (s->reserve_lent || was_short > s->reserve_short) {
		log_info("there is space again, and a reserve");
		if (!s->reserve_short)
			store_reserve_make_for_start(s);
	}
	s->reserve_lent = false;
	atomic_store(&s->full, false);
}

void store_refuse_waiting(struct store_txn *t)
{
	t->result.rc = ros2_err_set(&t->result.err, -EBUSY,
	                            "what was taken away before is not recorded yet: try again in "
	                            "a moment");
}

bool store_reserve_may_refuse(const struct list *txns)
{
	const struct store_txn *t;

	list_for_each (txns, t, link)
		if (!t->shrinks)
			return true;
	return false;
}

void store_reserve_refuse(struct store *s, struct list *txns, bool waits, struct list *ret_refused)
{
	struct store_txn *t, *tmp;

	list_for_each_safe (txns, t, tmp, link) {
		if (t->shrinks || !(s->reserve_lent || waits))
			continue;
		if (s->reserve_lent)
			t->result.rc =
				ros2_err_set(&t->result.err, -ENOSPC,
			                     "the disk is full: what is left is for revocations");
		else
			store_refuse_waiting(t);
		list_del(&t->link);
		list_add_tail(ret_refused, &t->link);
	}
}
