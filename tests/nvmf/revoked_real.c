/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of revoked.h at a real agent with its controller: says `loading`, waits until a file
 * says that the receipt is here and nothing drains, and says as JSON what moved after it.
 *
 *   nvmf-revoked DIR DISK FILE    the cluster's directory (tests/integration/lib.sh); ROS2_AGENT is
 * set
 */
#include "tests/attack/agent_site.h"
#include "tests/nvmf/revoked.h"
#include <stdio.h>
#include <unistd.h>

#define RECEIPT_MS 120000u

static int until_there(const char *file)
{
	for (uint32_t waited = 0; waited < RECEIPT_MS; waited++) {
		if (access(file, F_OK) == 0)
			return 0;
		/* poll: a file that another process makes */
		usleep(1000);
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct cluster cluster = {0};
	struct revoked_result is = {0};
	struct revoked *load = NULL;
	struct site site;
	int r;

	if (argc != 4) {
		fprintf(stderr, "usage: nvmf-revoked DIR DISK FILE\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	r = cluster_connect(&cluster, argv[1], &site);
	if (!r)
		r = revoked_begin(&site, argv[2], &load);
	if (!r) {
		printf("loading\n");
		r = until_there(argv[3]);
	}
	if (!r)
		r = revoked_receipt(load);
	if (!r)
		r = revoked_drained(load);
	if (!r)
		r = revoked_look(load, &is);
	if (!r)
		revoked_print(&is);
	revoked_end(load);
	cluster_close(&cluster);
	return r ? 1 : 0;
}
