/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contact with the controller. The agent stamps its beats {boot id, CLOCK_BOOTTIME}; the controller
 * echoes a stamp and contact is counted from that stamp. Only a stamp of this boot that this
 * process sent counts; it never moves back. The last one survives a restart of the process in the
 * file `contact`; after a reboot it gives nothing. Loop thread.
 */
#ifndef ROS2_AGENT_CONTACT_H
#define ROS2_AGENT_CONTACT_H

#include "agent/object.h"
#include "common/clock.h"

#define CONTACT_SENT_MAX 128 /* stamps of beats, sent and not yet too old to be echoed */
#define CONTACT_FILE_LEN 76

struct contact {
	uint8_t boot_id[16];
	uint64_t sent_ns[CONTACT_SENT_MAX]; /* ring, growing values */
	uint32_t n_sent;                    /* ever */
	uint64_t last_sent_ns;
	bool known;
	uint64_t last_ns; /* boottime of the last stamp that came back; valid when known */
};

void contact_init(struct contact *c, const uint8_t boot_id[16]);
/* A stamp to send: later than every one before, remembered. @now_ns: boottime. */
struct clock_stamp contact_stamp(struct contact *c, uint64_t now_ns);
/* The same for what is not echoed as contact, a request for a grant: not remembered. Tenants decide
 * how many there are, and those of beats must not be forgotten for them. */
struct clock_stamp contact_now(const struct contact *c, uint64_t now_ns);
/* An echoed stamp: 1 = contact moved on, 0 = an older one of ours; INVALID with words: another
 * boot's, or never sent by this process. */
int contact_echo(struct contact *c, const struct clock_stamp *s, struct ros2_err *err);
/* May a right with this limit be used at @now_ns? False when there was no contact at all. */
bool contact_live(const struct contact *c, uint64_t limit_ms, uint64_t now_ns);

/* What is kept in the file `contact`. */
struct contact_saved {
	struct clock_stamp stamp;
	struct agent_epoch epoch;
	uint64_t snapshot_sequence; /* of the newest snapshot on disk: an older one was put back */
};
void contact_encode(const struct contact_saved *s, uint8_t out[CONTACT_FILE_LEN]);
int contact_decode(const void *p, size_t len, struct contact_saved *ret, struct ros2_err *err);
/* Takes a saved stamp over: false when it is of another boot, or from the future. */
bool contact_restore(struct contact *c, const struct contact_saved *s, uint64_t now_ns);
#endif
