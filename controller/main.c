/* SPDX-License-Identifier: Apache-2.0 */
/* The ros2-controller program: flags, signals, the ready line, exit codes. */
#include "controller/controller.h"
#include "common/args.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "common/notify.h"
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_COMPONENT "controller"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] =
	"ros2-controller: decides who may reach which storage over RDMA, and records it.\n"
	"\n"
	"  ros2-controller --config-dir DIR --data-dir DIR [options]\n"
	"\n"
	"  --config-dir DIR      certificates, keys and roles: the controller/ part of what\n"
	"                        `ros2ctl init` made\n"
	"  --data-dir DIR        the database and its lock; made when it does not exist\n"
	"  --admin-listen H:P    administrators and auditors (mTLS, admin bundle)  "
	"[127.0.0.1:4433]\n"
	"  --agent-listen H:P    agents (mTLS, infrastructure bundle)              "
	"[127.0.0.1:4434]\n"
	"  --enrol-listen H:P    agents that have a join token only (TLS)          "
	"[127.0.0.1:4435]\n"
	"                        port 0 takes a free one; see --ready-fd\n"
	"  --admin-connections ALL[,EACH]  most connections there, and of one address  [1024,256]\n"
	"  --agent-connections ALL[,EACH]                                          [8192,4096]\n"
	"  --enrol-connections ALL[,EACH]                                          [256,64]\n"
	"  --agent-cert-ttl T    life of agents' certificates: 90s, 10m, 24h, 7d   [24h]\n"
	"  --metrics-listen H:P  /metrics for Prometheus, not encrypted            [off]\n"
	"  --metrics-allow-remote  --metrics-listen may be another address than loopback\n"
	"  --ready-fd N          when serving, write one JSON line with the addresses to N, close "
	"it\n"
	"  --log-level L         debug, info, warn, error                          [info]\n"
	"  --check               check the configuration and end\n"
	"  --version, --help\n"
	"\n"
	"SIGTERM ends it in order. SIGHUP reads the roles and the trust bundles again; whose "
	"authority\n"
	"is gone from them is cut off.\n"
	"Certificates are read again when their files change.\n"
	"Exit: 0 in order, 1 it failed (the log says why), 2 wrong usage.\n"
	"\n"
	"First steps:\n"
	"  ros2ctl init --dir td --trust-domain ros2.test\n"
	"  ros2-controller --config-dir td/controller --data-dir ctl-data\n";

struct flags {
	struct controller_opts o;
	int ready_fd;
	bool check;
};

static const struct option longs[] = {
	{"config-dir", required_argument, NULL, 'c'},
	{"data-dir", required_argument, NULL, 'd'},
	{"admin-listen", required_argument, NULL, 'a'},
	{"agent-listen", required_argument, NULL, 'g'},
	{"enrol-listen", required_argument, NULL, 'e'},
	{"admin-connections", required_argument, NULL, 'A'},
	{"agent-connections", required_argument, NULL, 'G'},
	{"enrol-connections", required_argument, NULL, 'E'},
	{"agent-cert-ttl", required_argument, NULL, 't'},
	{"metrics-listen", required_argument, NULL, 'm'},
	{"metrics-allow-remote", no_argument, NULL, 'M'},
	{"ready-fd", required_argument, NULL, 'r'},
	{"log-level", required_argument, NULL, 'l'},
	{"check", no_argument, NULL, 'k'},
	{"version", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage(const char *fmt, const char *what)
{
	fprintf(stderr, "ros2-controller: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\nTry ros2-controller --help.\n");
	return EXIT_USAGE;
}

/* In seconds; 0 when it is no duration, or longer than a certificate may live (pki_issue.c). */
static uint64_t parse_ttl(const char *s)
{
	uint64_t ms;

	return args_duration_ms(s, &ms) == 0 && ms <= 86400000ull * 36600 ? ms / 1000 : 0;
}

static int parse_fd(const char *s)
{
	uint64_t n;

	return args_u64(s, 65535, &n) == 0 ? (int)n : -1;
}

static int parse_caps(const char *s, struct controller_caps *ret)
{
	return args_caps(s, 65536, &ret->connections, &ret->per_address) == 0
	               ? -1
	               : usage("connections: expected ALL or ALL,EACH from 1 to 65536, found "
	                       "\"%s\"",
	                       s);
}

/* -1: go on; otherwise the exit code. */
static int take_flag(int c, struct flags *f)
{
	switch (c) {
	case 'c':
		f->o.config_dir = optarg;
		return -1;
	case 'd':
		f->o.data_dir = optarg;
		return -1;
	case 'a':
		f->o.admin_listen = optarg;
		return -1;
	case 'g':
		f->o.agent_listen = optarg;
		return -1;
	case 'e':
		f->o.enrol_listen = optarg;
		return -1;
	case 'A':
		return parse_caps(optarg, &f->o.admin_caps);
	case 'G':
		return parse_caps(optarg, &f->o.agent_caps);
	case 'E':
		return parse_caps(optarg, &f->o.enrol_caps);
	case 't':
		f->o.agent_cert_ttl_s = parse_ttl(optarg);
		return f->o.agent_cert_ttl_s >= 10
		               ? -1
		               : usage("--agent-cert-ttl: expected 10s to 36600d, like 10m or 24h, "
		                       "found \"%s\"",
		                       optarg);
	case 'm':
		f->o.metrics_listen = optarg;
		return -1;
	case 'M':
		f->o.metrics_allow_remote = true;
		return -1;
	case 'r':
		f->ready_fd = parse_fd(optarg);
		return f->ready_fd >= 0
		               ? -1
		               : usage("--ready-fd: expected a descriptor number, found \"%s\"",
		                       optarg);
	case 'l':
		return log_set_level_str(optarg) == 0 ? -1
		                                      : usage("--log-level: expected debug, info, "
		                                              "warn or error, found \"%s\"",
		                                              optarg);
	case 'k':
		f->check = true;
		return -1;
	case 'v':
		printf("ros2-controller %s\n", ROS2_VERSION_STRING);
		return EXIT_DONE;
	case 'h':
		fputs(help, stdout);
		return EXIT_DONE;
	default:
		fprintf(stderr, "Try ros2-controller --help.\n");
		return EXIT_USAGE;
	}
}

static int parse(int argc, char **argv, struct flags *f)
{
	int c, r;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		r = take_flag(c, f);
		if (r >= 0)
			return r;
	}
	if (optind < argc)
		return usage("unexpected argument \"%s\"", argv[optind]);
	if (!f->o.config_dir)
		return usage("%s is missing: the controller/ directory that `ros2ctl init` made",
		             "--config-dir");
	if (!f->o.data_dir && !f->check)
		return usage("%s is missing: where the database lives", "--data-dir");
	return -1;
}

static int check_config(const struct flags *f)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct config c;

	if (config_load(f->o.config_dir, &c, &err) < 0) {
		fprintf(stderr, "ros2-controller: %s\n", err.msg);
		return EXIT_FAILED;
	}
	printf("configuration of trust domain %s is good\n", c.trust_domain);
	config_fini(&c);
	return EXIT_DONE;
}

/* ---- running ---- */

struct run {
	struct loop *loop;
	struct controller *c;
	bool stopping;
};

static void stopped(void *arg)
{
	loop_stop(((struct run *)arg)->loop);
}

static void on_term(void *arg)
{
	struct run *r = arg;

	if (r->stopping) {
		log_warn("second signal: ending at once");
		loop_stop(r->loop);
		return;
	}
	r->stopping = true;
	log_info("ending");
	controller_stop(r->c, stopped, r);
}

static void on_hup(void *arg)
{
	controller_reload(((struct run *)arg)->c);
}

/* HOST of "HOST:PORT", with the port that was bound. */
static void address(const char *listen, uint16_t port, char *out, size_t max)
{
	const char *colon = strrchr(listen, ':');

	snprintf(out, max, "%.*s:%u", colon ? (int)(colon - listen) : 0, listen, port);
}

static int say_ready(const struct flags *f, const struct run *r)
{
	char admin[300], agent[300], enrol[300], line[1600];
	struct ros2_err err = ROS2_ERR_INIT;
	struct controller_ports p;
	FILE *out;

	controller_ports(r->c, &p);
	address(f->o.admin_listen, p.admin, admin, sizeof(admin));
	address(f->o.agent_listen, p.agent, agent, sizeof(agent));
	address(f->o.enrol_listen, p.enrol, enrol, sizeof(enrol));
	log_info("serving trust domain %s, epoch %llu: admin %s, agents %s, enrolment %s",
	         p.trust_domain, (unsigned long long)p.epoch, admin, agent, enrol);
	if (notify_ready(&err) < 0) {
		log_error("%s", err.msg);
		return -1;
	}
	if (f->ready_fd < 0)
		return 0;
	snprintf(line, sizeof(line),
	         "{\"admin\":\"%s\",\"agent\":\"%s\",\"enrol\":\"%s\",\"epoch\":%llu,"
	         "\"trust_domain\":\"%s\",\"metrics\":%u}\n",
	         admin, agent, enrol, (unsigned long long)p.epoch, p.trust_domain, p.metrics);
	out = fdopen(f->ready_fd, "w");
	if (!out || fputs(line, out) < 0 || fclose(out) != 0) {
		log_error("--ready-fd %d: %s", f->ready_fd, strerror(errno));
		return -1;
	}
	return 0;
}

static int serve(struct flags *f)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct run r = {0};
	int rc;

	if (loop_new(&(struct loop_opts){.name = "controller"}, &r.loop) < 0 ||
	    loop_signals(r.loop, on_term, on_hup, &r) < 0) {
		fprintf(stderr, "ros2-controller: out of memory\n");
		return EXIT_FAILED;
	}
	f->o.loop = r.loop;
	rc = controller_new(&f->o, &r.c, &err);
	if (rc < 0) {
		fprintf(stderr, "ros2-controller: %s\n", err.msg);
		loop_free(r.loop);
		return EXIT_FAILED;
	}
	rc = say_ready(f, &r);
	if (!rc)
		rc = loop_run(r.loop);
	controller_free(r.c);
	loop_free(r.loop);
	log_info("ended");
	return rc < 0 ? EXIT_FAILED : EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct flags f = {.o = {.admin_listen = "127.0.0.1:4433",
	                        .agent_listen = "127.0.0.1:4434",
	                        .enrol_listen = "127.0.0.1:4435"},
	                  .ready_fd = -1};
	int r = parse(argc, argv, &f);

	if (r >= 0)
		return r;
	descriptors_raise();
	return f.check ? check_config(&f) : serve(&f);
}
