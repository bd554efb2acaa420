/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arc4random for programs that link c-ares statically (preset static): the one function of glibc
 * 2.36 that they would need, where a BlueField's Ubuntu 22.04 has 2.35. Linked nowhere else.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void);

uint32_t arc4random(void)
{
	uint32_t v;

	/* Up to 256 bytes come whole or not at all. */
	while (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		if (errno != EINTR)
			abort();
	return v;
}
