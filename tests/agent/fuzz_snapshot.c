/* SPDX-License-Identifier: Apache-2.0 */
/* Everything the agent reads back from its disk: snapshot, sealed object, revocation log, contact
 * file, join token. Whatever the bytes: no crash, and nothing without a good seal is handed on (the
 * key is one nobody signed with). */
#include "agent/contact.h"
#include "agent/identity.h"
#include "agent/revocations.h"
#include "agent/snapshot.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_object(void *arg, struct agent_object *o)
{
	abort();
}

static void on_gone(void *arg, const struct snapshot_gone *g)
{
	*(unsigned *)arg += g->uid.b[0];
}

static void on_tombstone(void *arg, const struct tombstone *t)
{
	uint8_t again[REVLOG_FRAME_MAX];

	if (revlog_encode(t, again) > sizeof(again))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct agent_trust trust = {.snapshot_pub = {9}};
	unsigned sum = 0;
	struct snapshot_reader rd = {.on_object = on_object, .on_gone = on_gone, .arg = &sum};
	struct snapshot_info info;
	struct agent_object *o = NULL;
	struct contact_saved saved;
	struct join_token token;
	size_t good = 0;

	/* The corpus is made for this agent uid, so that parsing goes beyond the header. */
	memset(trust.agent_uid.b, 200, sizeof(trust.agent_uid.b));
	(void)snapshot_parse(data, size, &trust, 0, &rd, &info, NULL);
	if (agent_object_open(&trust, NULL, data, size, &o, NULL) == 0)
		abort();
	(void)revlog_parse(data, size, on_tombstone, NULL, &good);
	if (good > size)
		abort();
	(void)contact_decode(data, size, &saved, NULL);
	if (join_token_parse((const char *)data, size, "dpu-0", &token, NULL) == 0)
		join_token_fini(&token);
	return 0;
}
