/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a revocation in the controller's journal, behind the CRC of its slot. What is
 * accepted is a kind and texts that end within their bounds; written again and read again it is the
 * same revocation. No agent is known here, so nobody owes a receipt.
 */
#include "controller/revoke_priv.h"
#include "tests/fuzz/fuzz.h"

static void let_go(struct ctl_revocation *r)
{
	must(list_empty(&r->owed));
	free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ctl nobody;
	uint8_t note[STORE_NOTE_MAX], again[STORE_NOTE_MAX];
	struct ctl_revocation *r, *same;
	size_t n, n_again;

	if (revoke_note_unpack(&nobody, data, size, &r) < 0)
		return 0;
	must(r->kind >= STORE_TENANT && r->kind <= STORE_LEASE);
	must(memchr(r->name, '\0', sizeof(r->name)) && memchr(r->reason, '\0', sizeof(r->reason)) &&
	     memchr(r->tenant, '\0', sizeof(r->tenant)));
	n = revoke_note_pack(r, &r->unrecorded.who, note);
	must(n <= sizeof(note));
	must(revoke_note_unpack(&nobody, note, n, &same) == 0);
	n_again = revoke_note_pack(same, &same->unrecorded.who, again);
	must(n == n_again && !memcmp(note, again, n));
	let_go(same);
	let_go(r);
	return 0;
}
