/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads of this process would take a signal, as the kernel says it. Not under an emulator,
 * whose own threads have masks of their own. */
#ifndef ROS2_TESTS_TAKERS_H
#define ROS2_TESTS_TAKERS_H

#include "tests/await.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TAKERS_OF_LIBC 32 /* SIGCANCEL of glibc */

static inline uint64_t takers_blocked(const char *tid)
{
	char path[64], text[64];
	uint64_t set = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", tid);
	f = fopen(path, "r");
	while (f && fgets(text, sizeof(text), f))
		(void)sscanf(text, "SigBlk: %" SCNx64, &set);
	if (f)
		fclose(f);
	return set;
}

/* Threads beside the first that block @sig, or do not. */
static inline int takers_look(int sig, bool block)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	while (tasks && (e = readdir(tasks)))
		if (e->d_name[0] != '.' && atoi(e->d_name) != getpid())
			n += (takers_blocked(e->d_name) >> (sig - 1) & 1) == block;
	if (tasks)
		closedir(tasks);
	return n;
}

/* Beside the first thread. One that has not begun blocks all, also what nobody can block who asks
 * libc for it. */
static inline int takers_count(int sig)
{
	(void)AWAIT(!takers_look(TAKERS_OF_LIBC, true));
	return takers_look(sig, false);
}
#endif
