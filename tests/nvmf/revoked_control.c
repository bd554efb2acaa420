/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of revoked.h at the data plane in this process, with an nvmf engine at the same kind of
 * target: a revocation ends it, and where a revocation is only answered (dataplane/test_switches.h)
 * bytes move after the receipt, which must be seen in memory and on the disk.
 *
 *   nvmf-revoked-control DEVICE HOST SUBSYSTEM DISK
 */
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include "tests/nvmf/revoked.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TRIES 8u

static const char *host, *subsystem, *disk;
static struct fx_revoked revoked; /* called again when the data plane ends */
static unsigned lines;

static int open_session(struct site *site, enum tenant who, struct peer_session *ret)
{
	struct fx *fx = site->own;
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX};
	struct dp_result res = fx_do(fx, FX_OPEN_SESSION, &a);

	*ret = (struct peer_session){0};
	if (res.status != ROS2_OK)
		return -EIO;
	memcpy(ret->uid, a.session.b, sizeof(ret->uid));
	memcpy(ret->secret, res.session.secret, sizeof(ret->secret));
	snprintf(ret->data, sizeof(ret->data), "%s:%u", host, res.session.port);
	return 0;
}

static int prepare(struct site *site, enum tenant who, struct peer_session *s, uint64_t address)
{
	struct fx_args a = {.to = "flash", .path = "alpha", .flags = 3};
	struct dp_result res;

	memcpy(a.session.b, s->uid, sizeof(s->uid));
	res = fx_do(site->own, FX_MOUNT, &a);
	if (res.status == ROS2_OK) {
		a.mount = res.mount.mount;
		a.path = "attacked";
		a.flags = ENGINE_READ | ENGINE_WRITE;
		res = fx_do(site->own, FX_OPEN, &a);
	}
	if (res.status == ROS2_OK) {
		s->handle = res.open.handle;
		a.a = address;
		a.b = PEER_TARGET;
		a.flags = 3;
		res = fx_do(site->own, FX_REGISTER, &a);
	}
	if (res.status != ROS2_OK) {
		printf("# %s: %s\n", ros2_status_to_str(res.status), res.words);
		return -EIO;
	}
	s->key = res.region.key;
	s->generation = res.region.generation;
	return 0;
}

struct put {
	struct fx *fx;
	bool keys_per_command;
	struct ros2_err err;
	int rc;
};

static void put_engine(void *arg)
{
	struct put *p = arg;
	struct nvmf_config n = {.transport = NVMF_RDMA,
	                        .port = NVMF_PORT,
	                        .host_nqn = "nqn.2014-08.org.example:control:" NVMF_TENANT_MARK,
	                        .queue_depth = 64,
	                        .keep_alive_ms = 10000,
	                        .command_timeout_ms = 20000,
	                        .quiesce_ms = 2000,
	                        .keys_per_command = p->keys_per_command,
	                        .n_volumes = 1,
	                        .volumes = {{"alpha/attacked", 1, 0, REVOKED_VOLUME}}};
	struct dp_engine_config c = {.name = "flash", .type = "nvmf", .nvmf = &n};

	snprintf(n.address, sizeof(n.address), "%s", host);
	snprintf(n.subsystem, sizeof(n.subsystem), "%s", subsystem);
	p->rc = dp_engine_put(p->fx->dp, &c, &p->err);
}

static int withdraw(struct fx *fx, struct revoked *load)
{
	int r;

	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	r = revoked_receipt(load);
	printf("# the receipt: %u sessions, %u windows, draining %u\n",
	       revoked.first.revoke.sessions, revoked.first.revoke.windows,
	       revoked.first.revoke.draining);
	if (revoked.first.revoke.draining)
		fx_wait_calls(fx, &revoked, 2);
	return r ? r : revoked_drained(load);
}

static int one(struct fx *fx, bool keys_per_command, struct revoked_result *ret)
{
	struct site site = {fx, open_session, prepare, NULL};
	struct put p = {.fx = fx, .keys_per_command = keys_per_command, .err = ROS2_ERR_INIT};
	struct revoked *load = NULL;
	int r;

	loop_call(fx->loop, put_engine, &p);
	if (p.rc < 0)
		printf("# %s\n", p.err.msg);
	r = p.rc < 0 ? p.rc : revoked_begin(&site, disk, &load);
	if (!r)
		r = withdraw(fx, load);
	if (!r)
		r = revoked_look(load, ret);
	if (!r)
		revoked_print(ret);
	revoked_end(load);
	return r;
}

static bool shown(bool ends, unsigned tries, const char *name)
{
	bool good = true;

	dp_test_switches = (struct dp_test_switches){.no_session_end = !ends};
	for (unsigned i = 0; i < tries && good; i++) {
		struct revoked_result is = {0};
		void *state = NULL;

		good = fx_setup(&state) == 0 && one(state, i % 2 == 0, &is) == 0 && is.answers &&
		       is.in_flight;
		if (ends)
			good = good && !is.late && !is.landed && !is.marks && !is.changed;
		else
			good = good && is.late && is.landed && is.marks && is.changed;
		fx_teardown(&state);
	}
	printf("%s %u - %s\n", good ? "ok" : "not ok", ++lines, name);
	fflush(stdout);
	return good;
}

int main(int argc, char **argv)
{
	bool good;

	if (argc != 5) {
		fprintf(stderr, "usage: nvmf-revoked-control DEVICE HOST SUBSYSTEM DISK\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = argv[1];
	fx_rdma_host = host = argv[2];
	subsystem = argv[3];
	disk = argv[4];
	/* The marks of the second stay on the disk. */
	good = shown(true, TRIES, "a revocation ends what moves, in memory and on the disk");
	good = shown(false, 1, "one that is only answered does not, and it is seen (control)") &&
	       good;
	printf("1..%u\n", lines);
	return good ? 0 : 1;
}
