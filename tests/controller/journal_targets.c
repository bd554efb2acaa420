/* SPDX-License-Identifier: Apache-2.0 */
/* Names, reasons and documents of the targets. */
#include "tests/controller/journal_targets.h"
#include <stddef.h>
#include <stdio.h>

const char *journal_name(unsigned i)
{
	static char names[4][16];
	static unsigned next;
	char *out = names[next++ % 4];

	snprintf(out, 16, i == JOURNAL_TENANTS ? "dpu-%u" : "t-%u", i == JOURNAL_TENANTS ? 1 : i);
	return out;
}

const char *journal_reason(unsigned i)
{
	static char text[256];

	snprintf(text, sizeof(text), "%u%.*s", i, 250,
	         "a key of this one was found where none should be found, and until somebody has "
	         "looked at all that it has touched nothing of it is trusted, which is a sentence "
	         "that goes on for as long as reasons may, so that a note of it takes more than a "
	         "sector of the disk............................");
	return text;
}

static char documents[16384];

const char *journal_documents(void)
{
	size_t n = (size_t)snprintf(
		documents, sizeof(documents),
		"apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: ram}\n"
		"spec: {type: mem, size: 16MiB}\n"
		"---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: dpu-0}\nspec: {}\n"
		"---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: dpu-1}\nspec: {}\n");

	for (unsigned i = 0; i < JOURNAL_TENANTS; i++)
		n += (size_t)snprintf(
			documents + n, sizeof(documents) - n,
			"---\napiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s}\nspec:\n"
			"  principals: [spiffe://ros2.test/tenant/%s/x]\n"
			"  placement: {agents: [dpu-0, dpu-1]}\n"
			"  namespaces: [{name: data, engine: ram, path: %s, access: rw}]\n"
			"  memory: {registeredBytes: 64MiB, regions: 4, access: [read, write]}\n"
			"  times: {grantLifetime: 1h, contactLimit: 1m}\n  sessions: {max: 2}\n",
			journal_name(i), journal_name(i), journal_name(i));
	return documents;
}
