/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h, with the tools of iproute2. */
#include "tests/attack/wire.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SETTLE_MS 200

static const char setup[] = "echo 1 >/proc/sys/net/ipv4/conf/all/accept_local && "
			    "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter && "
			    "echo 0 >/proc/sys/net/ipv4/conf/v0/rp_filter && "
			    "echo 0 >/proc/sys/net/ipv4/conf/v1/rp_filter && "
			    "ip -n peer1 route replace 10.77.0.1 via 10.77.1.1 && "
			    "ip netns exec peer0 busybox ping -q -c1 -W2 10.77.0.1 >/dev/null && "
			    "ip netns exec peer1 busybox ping -q -c1 -W2 10.77.0.1 >/dev/null";

/* The rules of docs/rdma.md on the representor's side of peer0's function, in software. */
static const char rule_on[] =
	"tc qdisc add dev v0 ingress && "
	"tc filter add dev v0 ingress protocol ip prio 1 flower src_ip 10.77.0.2 action pass && "
	"tc filter add dev v0 ingress protocol arp prio 2 flower action pass && "
	"tc filter add dev v0 ingress protocol all prio 9 flower action drop && "
	"ip netns exec peer0 busybox ping -q -c1 -W2 10.77.0.1 >/dev/null";
static const char rule_off[] = "tc qdisc del dev v0 ingress";

static int run(const char *command)
{
	int r = system(command); /* fixed words only */

	return r ? -EIO : 0;
}

/* Packets that the last rule dropped. */
unsigned wire_dropped(void)
{
	FILE *f = popen("tc -j -s filter show dev v0 ingress | "
	                "jq '[.[] | select(.pref == 9) | .options.actions[]?.stats.drops] | add'",
	                "r");
	unsigned n = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%u", &n) != 1)
		n = 0;
	pclose(f);
	return n;
}

int wire_open(void)
{
	return run(setup);
}

int wire_rule(bool on)
{
	return run(on ? rule_on : rule_off);
}

/* Whatever is on its way has arrived: memory sends no event. */
void wire_settle(void)
{
	struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000l};

	nanosleep(&pause, NULL); /* poll: packets that do nothing show nothing */
}
