/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a disk still has when the power goes. Beside real files it keeps, per file, the bytes that
 * were synced and the writes that were not; per directory, the names that were synced and those
 * that were not (fsync of a file does not keep its name: POSIX does not promise it). After a cut
 * disk_restore makes the real directory what the disk would have. One thread at a time may use it:
 * its lock is inside. Paths are compared as text.
 */
#ifndef ROS2_TESTS_COMMON_DISK_MODEL_H
#define ROS2_TESTS_COMMON_DISK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_SECTOR 512

enum disk_loss {
	DISK_LOSE_UNSYNCED, /* nothing that was not synced survives */
	DISK_TEAR, /* per sector, one of the versions since the last sync; names: any subset */
};

struct disk;
/* @root: a real directory, which always survives. Aborts without memory, as everything here. */
struct disk *disk_new(const char *root);
void disk_free(struct disk *d);

/* The calls that change something are counted; from the cut on each gives false: the caller must
 * fail and do nothing. @cut_at: so many calls succeed; UINT64_MAX: no cut. */
void disk_arm(struct disk *d, uint64_t cut_at);
bool disk_call(struct disk *d);
/* Is the power off? For calls that change nothing. */
bool disk_is_off(struct disk *d);
uint64_t disk_calls(struct disk *d); /* since disk_arm */
uint64_t disk_cut_at(struct disk *d);

/* Mirror of what was done to the real files, after it was done. An inode number, or -1: no such
 * name. A real file that is not known yet is taken over with its bytes as synced. */
int disk_lookup(struct disk *d, const char *path);
int disk_create(struct disk *d, const char *path);
void disk_write(struct disk *d, int inode, uint64_t off, const void *p, size_t n);
void disk_truncate(struct disk *d, int inode, uint64_t len);
void disk_sync(struct disk *d, int inode);
/* A sync that failed: what it should have kept never will be, whatever is synced later. */
void disk_forget(struct disk *d, int inode);
void disk_mkdir(struct disk *d, const char *path);
void disk_rename(struct disk *d, const char *from, const char *to);
void disk_link(struct disk *d, const char *from, const char *to);
void disk_unlink(struct disk *d, const char *path);
void disk_sync_dir(struct disk *d, const char *dir);

/* The machine is on again: real files and model are what survived, all of it synced; the count of
 * calls starts again, without a cut. Nobody has the files open. */
void disk_restore(struct disk *d, enum disk_loss loss, uint64_t seed);
#endif
