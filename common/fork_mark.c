/* SPDX-License-Identifier: Apache-2.0 */
/* See fork_mark.h. */
#include "common/fork_mark.h"
#include <sys/mman.h>

#define NO_ADVICE (-1)

/* An emulator may say yes to whatever it does not know: of that no advice is believed. */
static bool wipes(void *page, size_t len)
{
	return madvise(page, len, NO_ADVICE) != 0 && madvise(page, len, MADV_WIPEONFORK) == 0;
}

void fork_mark_init(struct fork_mark *m)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*m = (struct fork_mark){0};
	if (page != MAP_FAILED && wipes(page, len))
		m->here = page;
	else if (page != MAP_FAILED)
		munmap(page, len);
	fork_mark_adopt(m);
}

void fork_mark_adopt(struct fork_mark *m)
{
	__atomic_store_n(&m->pid, getpid(), __ATOMIC_RELAXED);
	if (m->here)
		__atomic_store_n(m->here, 1, __ATOMIC_RELAXED);
}

void fork_mark_fini(struct fork_mark *m)
{
	if (m->here)
		munmap((void *)m->here, (size_t)sysconf(_SC_PAGESIZE));
	m->here = NULL;
}
