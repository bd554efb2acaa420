/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage against a cluster of real processes; tests/hostile/garbage starts it and this. TAP. */
#include "tests/hostile/hostile.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct hostile h;

	if (argc != 2 || (strcmp(argv[1], "rpc") && strcmp(argv[1], "wire"))) {
		fprintf(stderr, "usage: hostile-garbage rpc|wire (with HOSTILE_* set)\n");
		return 2;
	}
	hostile_init(&h);
	servers_live(&h);
	hostile_test(&h, "before: both serve");
	if (argv[1][0] == 'r')
		rpc_garbage(&h);
	else
		wire_garbage(&h);
	hostile_fini(&h);
	printf("1..%u\n", h.tests);
	return h.failed > 0;
}
