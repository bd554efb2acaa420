/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trust bundles that the controller gives: whom this agent believes. A new one is written to
 * disk, for which the loop does not wait, and then everybody is judged by it: tenants' connections
 * at their next call, their sessions within a moment, the controller's own connection at once. One
 * that the disk does not take is tried again each second, and like one that it has not taken after
 * two seconds it shows as ReloadFailed (health.h) and is recorded once; until then whom it names no
 * more is believed no more, and whom it names first is not believed yet. Loop thread.
 */
#ifndef ROS2_AGENT_BUNDLES_H
#define ROS2_AGENT_BUNDLES_H

#include "agent/agent.h"

enum bundle { BUNDLE_INFRA, BUNDLE_TENANT };
#define BUNDLE_KINDS 2

/* What is on disk is in force: nobody is connected yet. */
int bundles_new(struct agent *a, struct bundles **ret);
void bundles_free(struct bundles *b); /* NULL is fine */
/* What a Welcome or a renewal brought; nothing when @len is 0. Not from inside a call that needs
 * the stream afterwards: it may be replaced on the loop's next turn. */
void bundles_take(struct bundles *b, enum bundle which, const void *pem, size_t len);
/* One is with the disk writer. False for NULL. */
bool bundles_writing(const struct bundles *b);
/* What is in force while the disk has something else; borrowed until the next call. NULL: it has
 * the same. */
struct pki_trust *bundles_unwritten(const struct bundles *b, enum bundle which);
/* What is not in force, and why, for people; NULL: all is. */
const char *bundles_failed(const struct bundles *b);
#endif
