// SPDX-License-Identifier: Apache-2.0
/* For the negative controls of the soak and of the floods, an agent of which ROS2_SOAK_SWITCHES
 * turns checks off: their names, commas between. A name that is not known ends it, so that no
 * control passes for want of one. Those of the RPC layer, which has no switches, are in its place
 * (--wrap). */
#include "common/util.h"
#include "dataplane/test_switches.h"
#include "proto/rpc/conns_priv.h"
#include "proto/rpc/rpc_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool no_call_share; /* one tenant may have all places for calls */
static bool no_futile;     /* calls may come to nothing */

void __real_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group)
{
	__real_rpc_quota_init(q, of, total, per_group);
	if (!no_call_share)
		return;
	q->share.most = q->share.sure = q->share.total;
	q->share.kept = 0;
}

bool __real_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns)
{
	return __real_conns_futile(k, now_ns) && !no_futile;
}

static bool *switch_of(const char *name)
{
	static const struct {
		const char *name;
		bool *on;
	} all[] = {{"no_expiry", &dp_test_switches.no_expiry},
	           {"no_deadline_recheck", &dp_test_switches.no_deadline_recheck},
	           {"no_slot_share", &dp_test_switches.no_slot_share},
	           {"no_stall_end", &dp_test_switches.no_stall_end},
	           {"no_depth_bound", &dp_test_switches.no_depth_bound},
	           {"no_call_share", &no_call_share},
	           {"no_futile", &no_futile}};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(all[i].name, name))
			return all[i].on;
	return NULL;
}

__attribute__((constructor)) static void turn_off(void)
{
	const char *env = getenv("ROS2_SOAK_SWITCHES");
	char names[256], *save = NULL;

	snprintf(names, sizeof(names), "%s", env ? env : "");
	for (char *w = strtok_r(names, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		bool *on = switch_of(w);

		if (!on) {
			fprintf(stderr, "ROS2_SOAK_SWITCHES: no switch '%s'\n", w);
			_Exit(2);
		}
		*on = true;
	}
}
