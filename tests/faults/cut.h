/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting a connection at a message. Messages have names: "AgentMessage.hello" on the agents'
 * stream, "RevokeRequest" and "RevokeReply" (also when that is a refusal) in unary calls,
 * "AuditRawItem.record" and, of the end that its server gives it, "AuditRawItem.end" on a stream
 * of the log. Stands around the face of proto/rpc
 * (the linker's --wrap) in both processes' code at once, so it must be up before any server or
 * channel is made. One plan at a time.
 */
#ifndef ROS2_TESTS_FAULTS_CUT_H
#define ROS2_TESTS_FAULTS_CUT_H

#include "proto/rpc/rpc.h"
#include "tests/faults/relay.h"

/* Lines of the relay, by what travels there. */
enum cut_line { CUT_LINK, CUT_ENROL, CUT_ADMIN, CUT_TENANT };

enum cut_when {
	CUT_BEFORE, /* as the message is sent: it is lost, and what was on its way before it may be
	             */
	CUT_AFTER,  /* it has arrived, and is acted on; what it brings about reaches nobody */
};

struct cut {
	const char *name;
	enum cut_when when;
	bool for_good; /* it, and each of its kind after it, until cut_off */
	/* filled by cut_next, or for cut_at */
	unsigned at; /* the message of that name that is lost, from 1 */
};

void cut_init(struct relay *r);
void cut_fini(void); /* servers and channels are gone */

/* Rounds of a sweep: the 1st, 2nd, 3rd ... message of the name, at most @max; false after a round
 * in which it did not come. */
bool cut_next(struct cut *c, unsigned max);
void cut_at(const struct cut *c); /* one round */
void cut_off(void);
/* Messages in between do not count. */
void cut_pause(bool on);
unsigned cut_fired(void); /* in this round */
/* Whether it was cut as often as is looked at: once, or so many times in a row. */
#define CUT_FOR_GOOD 3
bool cut_is_over(const struct cut *c);
/* Which round it is, in words. */
#define CUT_WHERE_MAX 160
void cut_where(const struct cut *c, char ret[CUT_WHERE_MAX]);
unsigned cut_points(void); /* rounds that fired since cut_init */

/* Streams of the log that are open at the controller. */
unsigned cut_readers(void);

/* NULL, or sees each message as it arrives, before it is acted on; its loop's thread. */
typedef void (*cut_witness_fn)(void *arg, const char *name, const ProtobufCMessage *m);
void cut_witness(cut_witness_fn fn, void *arg);
#endif
