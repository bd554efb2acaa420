/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of ros2-bench. Units are written as people write them (4k, 256MiB, 10s); what cannot be
 * understood is an error that says what was expected.
 */
#include "common/args.h"
#include "common/util.h"
#include "tools/bench/bench.h"
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_load[] =
	"ros2-bench: load on a namespace through libros2\n"
	"\n"
	"  ros2-bench [run] --namespace NS --file PATH [options]     random or sequential I/O\n"
	"  ros2-bench put --namespace NS SRC_DIR DEST_DIR            store a directory tree\n"
	"  ros2-bench get --namespace NS SRC_DIR DEST_DIR            fetch one (local DEST_DIR)\n"
	"  ros2-bench verify-tree --namespace NS LOCAL_DIR NS_DIR    compare SHA-256 of every "
	"file\n"
	"\n"
	"Who and where (default: from the environment):\n"
	"  --agent HOST:PORT  ROS2_AGENT   the agent's tenant service\n"
	"  --cert FILE        ROS2_CERT    this principal's certificate\n"
	"  --key FILE         ROS2_KEY     and its key\n"
	"  --ca FILE          ROS2_CA      whom to trust as agent\n"
	"  --agent-id ID                   SPIFFE ID the agent must have [any agent of our "
	"domain]\n"
	"\n"
	"Load:\n"
	"  --rw KIND      read, write, rw, zero, trim, or randread, randwrite ... [randread]\n"
	"                 zero and trim send no payload: bytes made zeros, bytes given up\n"
	"  --mix N        of rw and randrw: N percent are reads          [50]\n"
	"  --size SIZE    of the file; made when it is shorter           [256MiB]\n"
	"  --bs SIZE      bytes per request                              [4k]\n"
	"  --depth N      requests in flight per job                     [32]\n"
	"  --jobs N       threads, each with a session of its own        [1]\n"
	"  --poll-us N    look for answers for N microseconds before sleeping; takes a core [0]\n"
	"  --time T       how long to measure: 500ms, 10s, 2m            [10s]\n"
	"                 SIGINT or SIGTERM ends it early, with the report\n"
	"  --bytes SIZE   instead of --time: how much to move, all jobs together\n"
	"  --warmup T     not measured, before --time                    [1s]\n"
	"  --verify       every block carries offset, generation and a number of this run; reads "
	"are\n"
	"                 checked, and blocks that are stale, misplaced or broken are told apart;\n"
	"                 what only writes, zeroes or trims reads its blocks back after the\n"
	"                 measurement: zeros must be zeros, of trimmed ones each byte may\n"
	"                 be what it was, 0 or 0xff\n"
	"  --seed N       of the random order                            [1]\n"
	"  --no-layout    never write the file first, fail if it is too short\n"
	"\n"
	"All commands:\n"
	"  --reconnect T    how long a request may wait for a lost agent; 0 = do not reconnect "
	"[30s]\n"
	"  --transport KIND auto, tcp, verbs, or shm: memory shared with an agent on this machine "
	"[auto]\n"
	"  --shm-bytes SIZE per session over shm; 0 = what the agent gives [0]\n"
	"  --timeout T      per control call                             [10s]\n"
	"  --manifest FILE  put, get, verify-tree: write `SHA-256  path` lines there\n"
	"  --no-flush       put: do not wait until each file is durable\n"
	"  -o FORMAT        table or json                                [table]\n"
	"  -q, --quiet      no progress line (there is none without a terminal)\n"
	"  -h, --help       this\n"
	"\n"
	"Exit: 0 good; 1 failed, with the named error on stderr (REVOKED: ...); 2 usage;\n"
	"      3 data came back that is not what was written.\n"
	"\n"
	"Example: 4 KiB random reads, 32 deep, two sessions, five seconds, as JSON:\n"
	"  ros2-bench --namespace data --file bench --bs 4k --depth 32 --jobs 2 --time 5s -o "
	"json\n";

void opts_usage(const char *command)
{
	fputs(usage_load, stdout);
}

static int bad(const char *name, const char *value, const char *expected)
{
	fprintf(stderr, "ros2-bench: --%s '%s': expected %s\n", name, value, expected);
	return EXIT_USAGE;
}

static int parse_size(const char *s, uint64_t *ret)
{
	static const struct args_unit units[] = {
		{"", 1},
		{"B", 1},
		{"k", 1ull << 10},
		{"KiB", 1ull << 10},
		{"M", 1ull << 20},
		{"m", 1ull << 20},
		{"MiB", 1ull << 20},
		{"G", 1ull << 30},
		{"g", 1ull << 30},
		{"GiB", 1ull << 30},
		{"K", 1ull << 10},
		{"TiB", 1ull << 40},
	};

	return args_with_unit(s, units, ARRAY_SIZE(units), ret);
}

static int parse_time(const char *s, uint64_t *ret_ms)
{
	static const struct args_unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"", 1000}};

	return args_with_unit(s, units, ARRAY_SIZE(units), ret_ms);
}

static int parse_rw(const char *s, struct bench_opts *o)
{
	static const struct {
		const char *name;
		enum bench_rw rw;
		bool random;
	} kinds[] = {
		{"read", RW_READ, false},      {"write", RW_WRITE, false},
		{"rw", RW_BOTH, false},        {"randread", RW_READ, true},
		{"randwrite", RW_WRITE, true}, {"randrw", RW_BOTH, true},
		{"zero", RW_ZERO, false},      {"randzero", RW_ZERO, true},
		{"trim", RW_TRIM, false},      {"randtrim", RW_TRIM, true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(s, kinds[i].name))
			continue;
		o->rw = kinds[i].rw;
		o->random = kinds[i].random;
		return 0;
	}
	return bad("rw", s, "read, write, rw, zero or trim, or one of them after rand");
}

static int parse_transport(const char *s, struct bench_opts *o)
{
	static const char *const names[] = {[ROS2_TRANSPORT_AUTO] = "auto",
	                                    [ROS2_TRANSPORT_TCP] = "tcp",
	                                    [ROS2_TRANSPORT_VERBS] = "verbs",
	                                    [ROS2_TRANSPORT_SHM] = "shm"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(s, names[i]))
			continue;
		o->transport = (enum ros2_transport)i;
		return 0;
	}
	return bad("transport", s, "auto, tcp, verbs or shm");
}

struct ros2_session_opts opts_session(const struct bench_opts *o, uint32_t depth)
{
	return (struct ros2_session_opts){.depth = depth,
	                                  .reconnect_ms = o->reconnect_ms,
	                                  .transport = o->transport,
	                                  .poll_us = o->poll_us,
	                                  .shm_bytes = o->shm_bytes};
}

uint64_t opts_patience_ms(const struct bench_opts *o)
{
	/* UINT32_MAX: it does not reconnect. */
	return MUTE_MS + (o->reconnect_ms == UINT32_MAX ? 0ull : o->reconnect_ms);
}

static int parse_output(const char *s, struct bench_opts *o)
{
	o->json = !strcmp(s, "json");
	return o->json || !strcmp(s, "table") ? 0 : bad("output", s, "table or json");
}

enum opt_kind {
	OPT_STRING,
	OPT_SIZE,
	OPT_SIZE32,
	OPT_TIME,
	OPT_TIME32,
	OPT_COUNT,
	OPT_U64,
	OPT_FLAG,
	OPT_RW,
	OPT_TRANSPORT,
	OPT_OUTPUT
};

#define OPTIONS(X)                                                                                 \
	X("agent", 'a', OPT_STRING, client.agent)                                                  \
	X("cert", 'C', OPT_STRING, client.cert_path)                                               \
	X("key", 'K', OPT_STRING, client.key_path)                                                 \
	X("ca", 'A', OPT_STRING, client.ca_path)                                                   \
	X("agent-id", 'I', OPT_STRING, client.agent_id)                                            \
	X("namespace", 'n', OPT_STRING, ns)                                                        \
	X("file", 'f', OPT_STRING, file)                                                           \
	X("manifest", 'm', OPT_STRING, manifest)                                                   \
	X("size", 's', OPT_SIZE, size)                                                             \
	X("bytes", 'B', OPT_SIZE, bytes)                                                           \
	X("bs", 'b', OPT_SIZE32, bs)                                                               \
	X("depth", 'd', OPT_COUNT, depth)                                                          \
	X("jobs", 'j', OPT_COUNT, jobs)                                                            \
	X("mix", 'M', OPT_COUNT, mix)                                                              \
	X("poll-us", 'P', OPT_COUNT, poll_us)                                                      \
	X("time", 't', OPT_TIME, time_ms)                                                          \
	X("warmup", 'w', OPT_TIME, warmup_ms)                                                      \
	X("reconnect", 'R', OPT_TIME32, reconnect_ms)                                              \
	X("timeout", 'T', OPT_TIME32, client.timeout_ms)                                           \
	X("seed", 'S', OPT_U64, seed)                                                              \
	X("shm-bytes", 'H', OPT_SIZE, shm_bytes)                                                   \
	X("transport", 'X', OPT_TRANSPORT, transport)                                              \
	X("rw", 'r', OPT_RW, rw)                                                                   \
	X("output", 'o', OPT_OUTPUT, json)                                                         \
	X("verify", 'v', OPT_FLAG, verify)                                                         \
	X("quiet", 'q', OPT_FLAG, quiet)                                                           \
	X("no-layout", 'N', OPT_FLAG, no_layout)                                                   \
	X("no-flush", 'F', OPT_FLAG, no_flush)

struct opt_row {
	const char *name;
	char letter;
	enum opt_kind kind;
	size_t at;
};
static const struct opt_row rows[] = {
#define X(name_, letter_, kind_, field_)                                                           \
	{name_, letter_, kind_, offsetof(struct bench_opts, field_)},
	OPTIONS(X)
#undef X
};

static int take_u32(const struct opt_row *row, int rc, uint64_t v, const char *s, uint32_t *ret,
                    const char *expected)
{
	if (rc || v > UINT32_MAX)
		return bad(row->name, s, expected);
	*ret = (uint32_t)v;
	return 0;
}

static int take(const struct opt_row *row, const char *s, struct bench_opts *o)
{
	static const struct args_unit none = {"", 1};
	void *at = (char *)o + row->at;
	uint64_t v = 0;
	int rc;

	switch (row->kind) {
	case OPT_STRING:
		*(const char **)at = s;
		return 0;
	case OPT_FLAG:
		*(bool *)at = true;
		return 0;
	case OPT_RW:
		return parse_rw(s, o);
	case OPT_TRANSPORT:
		return parse_transport(s, o);
	case OPT_OUTPUT:
		return parse_output(s, o);
	case OPT_SIZE:
		return parse_size(s, at) ? bad(row->name, s, "a size like 4k, 1MiB or 2GiB") : 0;
	case OPT_SIZE32:
		rc = parse_size(s, &v);
		return take_u32(row, rc, v, s, at, "a size like 4k or 1MiB");
	case OPT_TIME:
		return parse_time(s, at) ? bad(row->name, s, "a time like 500ms, 10s or 2m") : 0;
	case OPT_TIME32:
		rc = parse_time(s, &v);
		return take_u32(row, rc, v, s, at, "a time like 500ms, 10s or 2m");
	case OPT_COUNT:
		rc = args_with_unit(s, &none, 1, &v);
		return take_u32(row, rc, v, s, at, "a number");
	default:
		return args_with_unit(s, &none, 1, at) ? bad(row->name, s, "a number") : 0;
	}
}

static int check(struct bench_opts *o)
{
	struct ros2_client_opts env = {0};
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_client_opts *c = &o->client;

	if (!o->ns) {
		fprintf(stderr, "ros2-bench: --namespace is missing; see --help\n");
		return EXIT_USAGE;
	}
	if (!o->time_ms && !o->bytes) {
		fprintf(stderr, "ros2-bench: --time 0 measures nothing: expected 1ms or more\n");
		return EXIT_USAGE;
	}
	if (!o->bs || !o->depth || !o->jobs || o->depth > 1024 || o->jobs > 256 || o->mix > 100 ||
	    o->poll_us > 1000000 || o->size < o->bs) {
		fprintf(stderr, "ros2-bench: expected --bs, --depth (to 1024) and --jobs (to 256) "
		                "from 1, --mix 0 to 100, --poll-us to 1000000, --size at least "
		                "--bs\n");
		return EXIT_USAGE;
	}
	if (!o->reconnect_ms)
		o->reconnect_ms = UINT32_MAX;
	if (c->agent && c->cert_path && c->key_path && c->ca_path)
		return 0;
	if (ros2_client_opts_from_env(&env, &err)) {
		fprintf(stderr, "ros2-bench: %s\n", err.msg);
		return EXIT_USAGE;
	}
	c->agent = c->agent ? c->agent : env.agent;
	c->cert_path = c->cert_path ? c->cert_path : env.cert_path;
	c->key_path = c->key_path ? c->key_path : env.key_path;
	c->ca_path = c->ca_path ? c->ca_path : env.ca_path;
	return 0;
}

int opts_parse(int argc, char **argv, struct bench_opts *ret)
{
	struct option longs[ARRAY_SIZE(rows) + 2] = {{"help", no_argument, NULL, 'h'}};
	struct bench_opts o = {.size = 256u << 20,
	                       .bs = 4096,
	                       .depth = 32,
	                       .jobs = 1,
	                       .mix = 50,
	                       .time_ms = 10000,
	                       .warmup_ms = 1000,
	                       .reconnect_ms = 30000,
	                       .seed = 1,
	                       .rw = RW_READ,
	                       .random = true};
	int letter, rc;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		longs[i + 1] = (struct option){
			rows[i].name, rows[i].kind == OPT_FLAG ? no_argument : required_argument,
			NULL, rows[i].letter};
	while ((letter = getopt_long(argc, argv, "hqo:n:f:", longs, NULL)) != -1) {
		size_t i = 0;

		if (letter == 'h') {
			opts_usage(argv[0]);
			return -1;
		}
		while (i < ARRAY_SIZE(rows) && rows[i].letter != letter)
			i++;
		if (i == ARRAY_SIZE(rows))
			return EXIT_USAGE;
		rc = take(&rows[i], optarg, &o);
		if (rc)
			return rc;
	}
	rc = check(&o);
	o.args = argv + optind;
	o.n_args = argc - optind;
	*ret = o;
	return rc;
}
