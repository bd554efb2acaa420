/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ros2-agent: flags, the lock on the state directory, enrolment when there is no identity yet, then
 * the agent until SIGTERM. Exit codes: 0 ok, 1 failed, 2 usage.
 */
#include "agent/agent.h"
#include "agent/discover_command.h"
#include "agent/probe_command.h"
#include "agent/secrets.h"
#include "common/args.h"
#include "common/descriptors.h"
#include "common/fsx.h"
#include "common/metrics.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include "dataplane/dp_probe.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_COMPONENT "agent"
#include "common/log.h"

struct program {
	struct loop *loop;
	struct agent_opts o;
	const char *name, *token_file;
	int ready_fd, lock_fd;
	struct join_token token;

	struct loop_post post;
	struct enrol *enrol;
	struct agent *agent;
	int exit_code;
	bool stopping;
};

static const char usage[] =
	"usage: ros2-agent --name NAME --state-dir DIR --controller HOST:PORT --listen HOST:PORT\n"
	"                  [options]\n"
	"       ros2-agent probe [--device NAME] [-o table|json]    what devices here enforce\n"
	"       ros2-agent discover --address A [--port P]          what an NVMe-oF target offers\n"
	"\n"
	"  --name NAME             of the Agent document this agent is\n"
	"  --state-dir DIR         identity, snapshot, revocations, audit spool; made when "
	"missing\n"
	"  --controller HOST:PORT  the controller's agents listener\n"
	"  --enrol HOST:PORT       the controller's enrolment listener; needed once, and when the\n"
	"                          certificate ended while this agent or the controller was down\n"
	"  --token-file FILE       join token from `ros2ctl agent token create`; needed once\n"
	"  --listen HOST:PORT      where tenants call (gRPC, mTLS); port 0: any free one\n"
	"  --data-host HOST        where tenants' data connections come in (127.0.0.1)\n"
	"  --secrets-dir DIR       files that Engine documents name (secretRef); nobody but this "
	"agent\n"
	"                          and root may come in (none: such engines fail)\n"
	"  --rdma-device NAME      also offers sessions over verbs, on this device (none)\n"
	"  --rdma-host HOST        the address of that device, numeric; with --rdma-device\n"
	"  --rdma-memory-total BYTES  most memory pinned for slots of all tenants over RDMA,\n"
	"                          11 MiB (11534336, the least) of a tenant at a reactor; a\n"
	"                          quarter of it is kept for the first of each (as much as for\n"
	"                          --shm-memory-total)\n"
	"  --shm-dir DIR           also offers sessions over shared memory to tenants of this "
	"machine,\n"
	"                          by sockets in DIR that they may connect to (none)\n"
	"  --shm-memory BYTES      most memory that all sessions of one tenant share with this "
	"agent\n"
	"                          together (268435456)\n"
	"  --shm-memory-total BYTES  the same of all tenants; a quarter of it is kept for the\n"
	"                          first session of each (a quarter of this machine's memory, or\n"
	"                          of the least limit of the control groups it is in)\n"
	"  --reactors N            data plane threads (one per core that it may use, or that its\n"
	"                          time is worth: CPUQuota=, a container's CPUs; at most 64)\n"
	"  --poll-us N             a reactor looks for work for N microseconds before it sleeps:\n"
	"                          less latency for a core per reactor while it has work (0)\n"
	"  --io-features WORDS     what file engines do without, commas between: no-uring,\n"
	"                          no-deferred, no-cooperative, no-fixed, no-direct. Without it "
	"all\n"
	"                          that the kernel has is used\n"
	"  --tenant-connections ALL[,EACH]  most connections of tenants, and of one address "
	"(1024,256)\n"
	"  --unproved-connections ALL[,EACH]  most data connections over TCP or shared memory\n"
	"                          of a reactor that have proved nothing yet, and of one\n"
	"                          address or user (64,64)\n"
	"  --tenant-records N      what one tenant may have done that is recorded (sessions, "
	"mounts,\n"
	"                          opens, names, regions), a second; after a quiet hour an hour's\n"
	"                          worth at once (200)\n"
	"  --spool-bytes N         most bytes of audit records waiting for the controller (64 "
	"MiB)\n"
	"  --metrics-listen H:P    serves /metrics for Prometheus there; not encrypted (off)\n"
	"  --metrics-allow-remote  --metrics-listen may be another address than loopback\n"
	"  --ready-fd N            writes one JSON line to this descriptor when serving\n"
	"  --log-level LEVEL       debug, info, warn or error (info)\n"
	"  --version, --help\n"
	"\n"
	"exit codes: 0 ended by SIGTERM, 1 failed, 2 usage\n";

static int bad_usage(const char *fmt, const char *what)
{
	fprintf(stderr, "ros2-agent: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\ntry `ros2-agent --help`\n");
	return 2;
}

static int parse_number(const char *flag, const char *s, uint64_t max, uint64_t *ret)
{
	int r = args_u64(s, max, ret);

	if (r < 0)
		fprintf(stderr,
		        "ros2-agent: --%s: expected a number up to %" PRIu64 ", found \"%s\"\n",
		        flag, max, s);
	return r;
}

static int set_io_features(struct program *p, const char *words)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = dp_io_features_parse(words, &p->o.io_features, &err);

	if (r < 0)
		fprintf(stderr, "ros2-agent: --io-features: %s\n", err.msg);
	return r;
}

static int parse_caps(const char *flag, const char *s, uint32_t max, uint32_t *all, uint32_t *each)
{
	int r = args_caps(s, max, all, each);

	if (r < 0)
		fprintf(stderr,
		        "ros2-agent: --%s: expected ALL or ALL,EACH from 1 to %u, found \"%s\"\n",
		        flag, max, s);
	return r;
}

/* None at all would let nobody in. */
static int set_records(struct program *p, const char *s)
{
	uint64_t n = 0;
	int r = parse_number("tenant-records", s, 1000000, &n);

	if (!r && !n) {
		fprintf(stderr, "ros2-agent: --tenant-records: expected 1 to 1000000, found 0\n");
		r = -EINVAL;
	}
	p->o.tenant_records_per_s = (uint32_t)n;
	return r;
}

/* Less would pin more than it says: it is had in pieces of that. */
static int set_rdma_total(struct program *p, const char *s)
{
	uint64_t n = 0;
	int r = parse_number("rdma-memory-total", s, 1ull << 46, &n);

	if (!r && n < DP_RDMA_LEAST) {
		fprintf(stderr,
		        "ros2-agent: --rdma-memory-total: expected %llu at least, what one tenant "
		        "has at one reactor, found %" PRIu64 "\n",
		        DP_RDMA_LEAST, n);
		r = -EINVAL;
	}
	p->o.rdma_total_bytes = n;
	return r;
}

enum {
	F_NAME = 256,
	F_STATE,
	F_CONTROLLER,
	F_ENROL,
	F_TOKEN,
	F_LISTEN,
	F_DATA,
	F_SECRETS,
	F_REACTORS,
	F_POLL,
	F_IO,
	F_CONNECTIONS,
	F_UNPROVED,
	F_RECORDS,
	F_SPOOL,
	F_RDMA_DEVICE,
	F_RDMA_HOST,
	F_RDMA_TOTAL,
	F_SHM_DIR,
	F_SHM_MEMORY,
	F_SHM_TOTAL,
	F_METRICS,
	F_METRICS_REMOTE,
	F_READY,
	F_LOG,
	F_VERSION,
	F_HELP
};

/* Those that are taken as they are; NULL: not one of them. */
static const char **word_of(struct program *p, int flag)
{
	switch (flag) {
	case F_NAME:
		return &p->name;
	case F_STATE:
		return &p->o.state_dir;
	case F_CONTROLLER:
		return &p->o.controller;
	case F_ENROL:
		return &p->o.enrol;
	case F_TOKEN:
		return &p->token_file;
	case F_LISTEN:
		return &p->o.listen;
	case F_DATA:
		return &p->o.data_host;
	case F_SECRETS:
		return &p->o.secrets_dir;
	case F_RDMA_DEVICE:
		return &p->o.rdma_device;
	case F_RDMA_HOST:
		return &p->o.rdma_host;
	case F_SHM_DIR:
		return &p->o.shm_dir;
	case F_METRICS:
		return &p->o.metrics_listen;
	default:
		return NULL;
	}
}

static int set_flag(struct program *p, int flag, const char *v)
{
	const char **word = word_of(p, flag);
	uint64_t n;

	if (word) {
		*word = v;
		return 0;
	}
	switch (flag) {
	case F_REACTORS:
		if (parse_number("reactors", v, 64, &n) < 0)
			return -EINVAL;
		p->o.reactors = (uint32_t)n;
		return 0;
	case F_POLL:
		if (parse_number("poll-us", v, DP_POLL_US_MAX, &n) < 0)
			return -EINVAL;
		p->o.poll_us = (uint32_t)n;
		return 0;
	case F_IO:
		return set_io_features(p, v);
	case F_CONNECTIONS:
		return parse_caps("tenant-connections", v, 65536, &p->o.tenant_connections,
		                  &p->o.tenant_connections_per_address);
	case F_UNPROVED:
		return parse_caps("unproved-connections", v, DP_UNPROVED_MAX,
		                  &p->o.unproved_connections,
		                  &p->o.unproved_connections_per_address);
	case F_RECORDS:
		return set_records(p, v);
	case F_SPOOL:
		if (parse_number("spool-bytes", v, 1ull << 40, &n) < 0)
			return -EINVAL;
		p->o.spool_quota_bytes = n;
		return 0;
	case F_RDMA_TOTAL:
		return set_rdma_total(p, v);
	case F_SHM_MEMORY:
		if (parse_number("shm-memory", v, 1ull << 40, &n) < 0)
			return -EINVAL;
		p->o.shm_tenant_bytes = n;
		return 0;
	case F_SHM_TOTAL:
		if (parse_number("shm-memory-total", v, 1ull << 46, &n) < 0)
			return -EINVAL;
		p->o.shm_total_bytes = n;
		return 0;
	case F_METRICS_REMOTE:
		p->o.metrics_allow_remote = true;
		return 0;
	case F_READY:
		if (parse_number("ready-fd", v, 1 << 20, &n) < 0)
			return -EINVAL;
		p->ready_fd = (int)n;
		return 0;
	case F_LOG:
		if (log_set_level_str(v) == 0)
			return 0;
		fprintf(stderr,
		        "ros2-agent: --log-level: expected debug, info, warn or error, "
		        "found \"%s\"\n",
		        v);
		return -EINVAL;
	default:
		return -EINVAL;
	}
}

/* -1: go on; otherwise the exit code. */
static int parse_flags(struct program *p, int argc, char **argv)
{
	static const struct option options[] = {
		{"name", required_argument, NULL, F_NAME},
		{"state-dir", required_argument, NULL, F_STATE},
		{"controller", required_argument, NULL, F_CONTROLLER},
		{"enrol", required_argument, NULL, F_ENROL},
		{"token-file", required_argument, NULL, F_TOKEN},
		{"listen", required_argument, NULL, F_LISTEN},
		{"data-host", required_argument, NULL, F_DATA},
		{"secrets-dir", required_argument, NULL, F_SECRETS},
		{"rdma-device", required_argument, NULL, F_RDMA_DEVICE},
		{"rdma-host", required_argument, NULL, F_RDMA_HOST},
		{"rdma-memory-total", required_argument, NULL, F_RDMA_TOTAL},
		{"shm-dir", required_argument, NULL, F_SHM_DIR},
		{"shm-memory", required_argument, NULL, F_SHM_MEMORY},
		{"shm-memory-total", required_argument, NULL, F_SHM_TOTAL},
		{"reactors", required_argument, NULL, F_REACTORS},
		{"poll-us", required_argument, NULL, F_POLL},
		{"io-features", required_argument, NULL, F_IO},
		{"tenant-connections", required_argument, NULL, F_CONNECTIONS},
		{"unproved-connections", required_argument, NULL, F_UNPROVED},
		{"tenant-records", required_argument, NULL, F_RECORDS},
		{"spool-bytes", required_argument, NULL, F_SPOOL},
		{"metrics-listen", required_argument, NULL, F_METRICS},
		{"metrics-allow-remote", no_argument, NULL, F_METRICS_REMOTE},
		{"ready-fd", required_argument, NULL, F_READY},
		{"log-level", required_argument, NULL, F_LOG},
		{"version", no_argument, NULL, F_VERSION},
		{"help", no_argument, NULL, F_HELP},
		{0},
	};
	int flag;

	while ((flag = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (flag == F_HELP) {
			fputs(usage, stdout);
			return 0;
		}
		if (flag == F_VERSION) {
			puts("ros2-agent " ROS2_VERSION_STRING);
			return 0;
		}
		if (flag == '?' || set_flag(p, flag, optarg) < 0)
			return bad_usage("%s", "the command line was not understood");
	}
	if (optind < argc)
		return bad_usage("unexpected argument \"%s\"", argv[optind]);
	if (!p->name || !ros2_name_valid(p->name))
		return bad_usage("--name: expected 1 to 63 of a-z, 0-9 and '-', found \"%s\"",
		                 p->name ? p->name : "");
	if (!p->o.state_dir)
		return bad_usage("%s", "--state-dir is missing");
	if (!p->o.controller || !strrchr(p->o.controller, ':'))
		return bad_usage("--controller: expected HOST:PORT, found \"%s\"",
		                 p->o.controller ? p->o.controller : "");
	if (!p->o.listen || !strrchr(p->o.listen, ':'))
		return bad_usage("--listen: expected HOST:PORT, found \"%s\"",
		                 p->o.listen ? p->o.listen : "");
	if (!p->o.rdma_device != !p->o.rdma_host)
		return bad_usage("%s", "--rdma-device and --rdma-host are given together");
	if (p->o.shm_dir && p->o.shm_dir[0] != '/')
		return bad_usage("--shm-dir: expected an absolute path, found \"%s\"",
		                 p->o.shm_dir);
	return -1;
}

/* ---- running ---- */

static void fail(struct program *p, const struct ros2_err *err)
{
	log_error("%s", err->msg);
	p->exit_code = 1;
	loop_stop(p->loop);
}

static void on_ready(void *arg)
{
	struct program *p = arg;
	char line[512];
	int n = snprintf(line, sizeof(line),
	                 "{\"name\":\"%s\",\"tenant\":\"%.*s:%u\",\"metrics\":%u}\n", p->name,
	                 (int)(strrchr(p->o.listen, ':') - p->o.listen), p->o.listen,
	                 agent_tenant_port(p->agent), metrics_port(p->agent->metrics));

	log_info("serving tenants at port %u", agent_tenant_port(p->agent));
	if (p->ready_fd < 0)
		return;
	if (write(p->ready_fd, line, (size_t)n) != n)
		log_warn("--ready-fd %d: %s", p->ready_fd, strerrordesc_np(errno));
	close(p->ready_fd);
	p->ready_fd = -1;
}

/* Nothing may be promised any more: not even an orderly end. */
static void on_fatal(void *arg, const struct ros2_err *err)
{
	log_error("%s: what is on disk is not known any more: ending at once, start again when the "
	          "disk is good",
	          err->msg);
	_exit(1);
}

static void start_agent(struct program *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t renew_in_s;

	if (identity_check_certificate(p->o.state_dir, p->name, &renew_in_s, &err) < 0)
		log_error("%s", err.msg); /* it still serves what it may, until the contact limit */
	err = (struct ros2_err)ROS2_ERR_INIT;
	if (agent_new(&p->o, &p->agent, &err) < 0) {
		/* The loop went with it. */
		log_error("%s", err.msg);
		exit(1);
	}
	if (agent_start(p->agent, &err) < 0)
		fail(p, &err);
}

static void free_enrol(void *arg)
{
	struct program *p = arg;

	enrol_free(TAKE_PTR(p->enrol));
	if (!p->stopping && !p->exit_code)
		start_agent(p);
}

static void on_enrolled(void *arg, const struct ros2_err *why)
{
	struct program *p = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (why) {
		fail(p, why);
		return;
	}
	log_info("enrolled as agent %s", p->name);
	join_token_fini(&p->token);
	if (identity_load(p->o.state_dir, p->name, &p->o.identity, &err) < 0) {
		fail(p, &err);
		return;
	}
	loop_post_urgent(p->loop, &p->post, free_enrol, p); /* not from inside its callback */
}

static int begin_enrol(struct program *p, struct ros2_err *err)
{
	struct enrol_opts eo = {.loop = p->loop,
	                        .dir = p->o.state_dir,
	                        .address = p->o.enrol,
	                        .token = &p->token,
	                        .done = on_enrolled,
	                        .arg = p};

	if (!p->token_file || !p->o.enrol)
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"agent %s is not enrolled (no identity.json in %s): `ros2ctl agent "
			"token create %s`, then start with --token-file and --enrol",
			p->name, p->o.state_dir, p->name);
	if (join_token_load(p->token_file, p->name, &p->token, err) < 0)
		return err->code;
	return enrol_start(&eo, &p->enrol, err);
}

static void begin(void *arg)
{
	struct program *p = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	int r = identity_load(p->o.state_dir, p->name, &p->o.identity, &err);

	if (identity_must_enrol(p->o.state_dir, p->name, r, &err, p->token_file)) {
		err = (struct ros2_err)ROS2_ERR_INIT;
		if (begin_enrol(p, &err) < 0)
			fail(p, &err);
		return;
	}
	if (r < 0) {
		fail(p, &err);
		return;
	}
	start_agent(p);
}

static void stopped(void *arg)
{
	loop_stop(((struct program *)arg)->loop);
}

static void on_term(void *arg)
{
	struct program *p = arg;

	if (p->stopping)
		return;
	p->stopping = true;
	log_info("ending");
	if (p->agent)
		agent_stop(p->agent, stopped, p);
	else
		loop_stop(p->loop);
}

static int run(struct program *p, struct ros2_err *err)
{
	int r = p->o.secrets_dir ? agent_secrets_check(p->o.secrets_dir, err) : 0;

	if (r < 0)
		return ros2_err_prefix(err, "--secrets-dir"), r;
	r = fsx_mkdirs(p->o.state_dir, 0700, err);
	if (!r)
		r = fsx_lock_dir(p->o.state_dir, &p->lock_fd, err);
	if (r < 0)
		return ros2_err_prefix(err, "--state-dir"), r;
	r = loop_new(&(struct loop_opts){.name = "agent"}, &p->loop);
	if (!r)
		r = loop_signals(p->loop, on_term, NULL, p);
	if (r < 0)
		return ros2_err_set(err, r, "cannot make the event loop");
	p->o.loop = p->loop;
	loop_post_urgent(p->loop, &p->post, begin, p);
	r = loop_run(p->loop);
	return r < 0 ? ros2_err_set(err, r, "the event loop failed") : 0;
}

int main(int argc, char **argv)
{
	struct program p = {.ready_fd = -1,
	                    .lock_fd = -1,
	                    .o = {.data_host = "127.0.0.1",
	                          .seal_program = "/proc/self/exe",
	                          .probe = dp_probe_offered}};
	struct ros2_err err = ROS2_ERR_INIT;
	int code;

	/* Asked for by an agent, of itself. */
	if (argc > 1 && !strcmp(argv[1], DP_SEAL_COMMAND))
		_exit(dp_seal_memory());
	if (argc > 1 && !strcmp(argv[1], "probe"))
		return agent_probe_command(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "discover"))
		return agent_discover_command(argc - 1, argv + 1);
	code = parse_flags(&p, argc, argv);
	if (code >= 0)
		return code;
	/* Whoever started this may have it ignored: then nobody hears how a process has ended. */
	signal(SIGCHLD, SIG_DFL);
	descriptors_raise();
	p.o.on_ready = on_ready;
	p.o.on_fatal = on_fatal;
	p.o.arg = &p;
	if (run(&p, &err) < 0) {
		log_error("%s", err.msg);
		p.exit_code = 1;
	}
	enrol_free(p.enrol);
	join_token_fini(&p.token);
	if (p.agent)
		agent_free(p.agent);
	else
		loop_free(p.loop);
	util_close_cleanup(&p.lock_fd);
	return p.exit_code;
}
