/* SPDX-License-Identifier: Apache-2.0 */
/* See discover_command.h. Every text of the target was checked to be printable. */
#include "agent/discover_command.h"
#include "common/args.h"
#include "common/util.h"
#include "dataplane/dp_discover.h"
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 10000u

static const char usage[] =
	"usage: ros2-agent discover --address A [--port P] [--transport tcp|rdma] [OPTIONS]\n"
	"\n"
	"Asks a discovery controller of NVMe over Fabrics for its log: subsystems and where they "
	"are,\n"
	"as an Engine document of type nvmf names them. What is shown is what the target says.\n"
	"\n"
	"  --address A             IPv4 or IPv6, numeric\n"
	"  --port P                8009, over rdma 4420; many targets answer at 4420 over both\n"
	"  --transport T           tcp, or rdma (tcp)\n"
	"  --rdma-device NAME      rdma: the device that reaches the target (the only one there "
	"is)\n"
	"  --host-nqn NQN          as this host: targets show what it may use (a random one)\n"
	"  --header-digest         tcp: CRC32C over headers; a target that does not give it is "
	"refused\n"
	"  --data-digest           tcp: likewise over payload\n"
	"  --secret FILE           proves this host by DH-HMAC-CHAP where the target asks for it: "
	"one\n"
	"                          line DHHC-1:hh:BASE64:, mode 0600, as `nvme gen-dhchap-key` "
	"makes\n"
	"  --target-secret FILE    the target must prove that it knows this one; with --secret\n"
	"  -o FORMAT               table, or json (apiVersion ros2/v1; fields: docs/discover.md)\n"
	"\n"
	"examples:\n"
	"  ros2-agent discover --address 192.0.2.7 --host-nqn nqn.2026-11.example:host:alpha\n"
	"  ros2-agent discover --address 192.0.2.7 --transport rdma -o json | jq -r "
	"'.entries[].subsystem'\n"
	"  ros2-agent discover --address 192.0.2.7 --host-nqn NQN --secret "
	"/etc/ros2/secrets/alpha\n"
	"\n"
	"exit codes: 0 shown, also when there is nothing; 1 failed; 2 usage\n";

struct flags {
	struct dp_discover_opts o;
	bool json;
};

static int bad_usage(const char *fmt, const char *what)
{
	fprintf(stderr, "ros2-agent discover: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\ntry `ros2-agent discover --help`\n");
	return 2;
}

/* -1: go on; otherwise the exit code. */
static int set(struct flags *f, int flag, const char *v)
{
	uint64_t n;

	switch (flag) {
	case 'h':
		fputs(usage, stdout);
		return 0;
	case 'a':
		f->o.address = v;
		return -1;
	case 'n':
		f->o.host_nqn = v;
		return -1;
	case 'p':
		if (args_u64(v, 65535, &n) < 0 || !n)
			return bad_usage("--port: expected 1 to 65535, found \"%s\"", v);
		f->o.port = (uint16_t)n;
		return -1;
	case 't':
		f->o.rdma = strcmp(v, "rdma") == 0;
		return f->o.rdma || strcmp(v, "tcp") == 0
		               ? -1
		               : bad_usage("--transport: expected tcp or rdma, found \"%s\"", v);
	case 'd':
		f->o.device = v;
		return -1;
	case 'H':
		f->o.header_digest = true;
		return -1;
	case 'D':
		f->o.data_digest = true;
		return -1;
	case 's':
		f->o.secret = v;
		return -1;
	case 'S':
		f->o.target_secret = v;
		return -1;
	case 'o':
		f->json = strcmp(v, "json") == 0;
		return f->json || strcmp(v, "table") == 0
		               ? -1
		               : bad_usage("-o: expected table or json, found \"%s\"", v);
	default:
		return bad_usage("%s", "the command line was not understood");
	}
}

/* What does not go together. */
static int check(struct flags *f)
{
	if (f->o.rdma && (f->o.header_digest || f->o.data_digest))
		return bad_usage("%s",
		                 "--header-digest and --data-digest are for tcp: over rdma the "
		                 "device checks what it carries");
	if (!f->o.rdma && f->o.device)
		return bad_usage("%s", "--rdma-device is for --transport rdma");
	if (f->o.target_secret && !f->o.secret)
		return bad_usage("%s",
		                 "--target-secret needs --secret: a target proves itself only "
		                 "to a host that does");
	if (f->o.secret && !f->o.host_nqn)
		return bad_usage("%s", "--secret needs --host-nqn: a secret is that of one host");
	if (!f->o.port)
		f->o.port = f->o.rdma ? NVMF_PORT : NVMF_DISCOVERY_PORT;
	return -1;
}

static int parse(int argc, char **argv, struct flags *f)
{
	static const struct option options[] = {
		{"address", required_argument, NULL, 'a'},
		{"port", required_argument, NULL, 'p'},
		{"transport", required_argument, NULL, 't'},
		{"host-nqn", required_argument, NULL, 'n'},
		{"rdma-device", required_argument, NULL, 'd'},
		{"header-digest", no_argument, NULL, 'H'},
		{"data-digest", no_argument, NULL, 'D'},
		{"secret", required_argument, NULL, 's'},
		{"target-secret", required_argument, NULL, 'S'},
		{"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int flag, code;

	while ((flag = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		code = set(f, flag, optarg);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return bad_usage("unexpected argument \"%s\"", argv[optind]);
	return f->o.address ? check(f) : bad_usage("%s", "--address is needed");
}

static void print_string(const char *key, const char *s, const char *end)
{
	printf("\"%s\": \"", key);
	for (; *s; s++)
		printf(*s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
	printf("\"%s", end);
}

static void print_json(const struct nvme_discovered *e, size_t n, uint64_t generation)
{
	printf("{\n  \"apiVersion\": \"ros2/v1\",\n  \"kind\": \"DiscoveryLog\",\n"
	       "  \"generation\": %" PRIu64 ",\n  \"entries\": [\n",
	       generation);
	for (size_t i = 0; i < n; i++) {
		printf("    {");
		print_string("subsystem", e[i].subnqn, ", ");
		print_string("type", nvme_subtype_to_str(e[i].kind), ", ");
		print_string("transport", nvme_trtype_to_str(e[i].transport), ", ");
		print_string("family", nvme_adrfam_to_str(e[i].family), ", ");
		print_string("address", e[i].address, ", ");
		print_string("port", e[i].service, ", ");
		printf("\"portId\": %u, \"tls\": %s}%s\n", e[i].port_id,
		       e[i].tls ? "true" : "false", i + 1 < n ? "," : "");
	}
	printf("  ]\n}\n");
}

static void print_table(const struct nvme_discovered *e, size_t n)
{
	printf("%-10s%-10s%-24s%-8s%s\n", "TYPE", "TRANSPORT", "ADDRESS", "PORT", "SUBSYSTEM");
	for (size_t i = 0; i < n; i++)
		printf("%-10s%-10s%-24s%-8s%s%s\n", nvme_subtype_to_str(e[i].kind),
		       nvme_trtype_to_str(e[i].transport), e[i].address[0] ? e[i].address : "-",
		       e[i].service[0] ? e[i].service : "-", e[i].subnqn, e[i].tls ? " (TLS)" : "");
}

int agent_discover_command(int argc, char **argv)
{
	struct flags f = {.o = {.timeout_ms = TIMEOUT_MS}};
	struct ros2_err err = ROS2_ERR_INIT;
	const struct nvme_discovered *e;
	struct nvme_discovery *d;
	uint64_t generation;
	size_t n;
	int code = parse(argc, argv, &f);

	if (code >= 0)
		return code;
	if (dp_discover(&f.o, &d, &err) < 0) {
		fprintf(stderr, "ros2-agent discover: %s port %u: %s\n", f.o.address, f.o.port,
		        err.msg);
		return 1;
	}
	e = nvme_discovery_entries(d, &n, &generation);
	if (f.json)
		print_json(e, n, generation);
	else
		print_table(e, n);
	nvme_discovery_free(d);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "ros2-agent discover: standard output cannot be written\n");
		return 1;
	}
	return 0;
}
