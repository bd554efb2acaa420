// SPDX-License-Identifier: Apache-2.0
/*
 * ros2-soak-history: an administrator at work on one thread, and the checks that the driver asks
 * for on standard input. Each command is answered with lines "FAIL ..." for what is broken, and
 * "done ...".
 */
#include "tests/soak/history.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define CALL_MS  15000
#define REACH_MS 30000

uint64_t world_random(struct world *w, uint64_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % below;
}

void world_fail(struct world *w, const char *fmt, ...)
{
	va_list ap;

	w->failures++;
	fputs("FAIL ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void world_journal(struct world *w, const char *fmt, ...)
{
	va_list ap;

	fprintf(w->journal, "%" PRIu64 " ", clock_boottime_ns());
	va_start(ap, fmt);
	vfprintf(w->journal, fmt, ap);
	va_end(ap);
	putc('\n', w->journal);
	if (fflush(w->journal) || fdatasync(fileno(w->journal)))
		world_fail(w, "the history cannot be written: %m");
}

struct fact *fact_find(struct fact *set, const char *key)
{
	struct fact *f;

	HASH_FIND_STR(set, key, f);
	return f;
}

struct fact *fact_get(struct fact **set, const char *key)
{
	struct fact *f = fact_find(*set, key);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	snprintf(f->key, sizeof(f->key), "%s", key);
	HASH_ADD_STR(*set, key, f);
	return f;
}

void world_expect(struct world *w, const char *key)
{
	fact_get(&w->expected, key);
	w->acks++;
	world_journal(w, "%s", key);
}

void world_window(struct world *w, int tenant, uint64_t from_ns, uint64_t until_ns, const char *why)
{
	if (tenant < 0 || !from_ns || until_ns <= from_ns || w->n_windows == WINDOWS_MAX)
		return;
	w->window[w->n_windows++] = (struct window){tenant, from_ns, until_ns, why};
}

int world_call(struct world *w, const struct rpc_method *m, const ProtobufCMessage *req,
               ProtobufCMessage **ret, bool *ret_unanswered, struct ros2_err *err)
{
	int r = rpc_unary_sync(w->channel, m, req, CALL_MS, ret, err);

	*ret_unanswered = r < 0 && (err->status == ROS2_UNAVAILABLE ||
	                            err->status == ROS2_TIMEOUT || err->status == ROS2_CANCELLED ||
	                            err->status == ROS2_CLOSED || err->status == ROS2_BUSY);
	return r;
}

static int connect_admin(struct world *w, const char *context, const char *controller)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char crt[512], key[512], ca[512];
	struct rpc_channel_opts o = {.name = "history",
	                             .target = controller,
	                             .ca_path = ca,
	                             .cert_path = crt,
	                             .key_path = key,
	                             .server_id = "spiffe://ros2.test/controller/",
	                             .server_id_is_prefix = true,
	                             .max_message_bytes = 16u << 20,
	                             .reconnect_max_ms = 100};

	snprintf(crt, sizeof(crt), "%s/tls.crt", context);
	snprintf(key, sizeof(key), "%s/tls.key", context);
	snprintf(ca, sizeof(ca), "%s/infra-bundle.pem", context);
	if (rpc_channel_new(&o, &w->channel, &err) < 0) {
		fprintf(stderr, "history: %s\n", err.msg);
		return -1;
	}
	return 0;
}

/* Rights that hang on the controller have an end while it is away; ops.c has the documents. */
static void outage_windows(struct world *w)
{
	static const uint64_t limit_s[LIVE_TENANTS] = {600, 2, 3, 600};

	for (int t = 0; t < LIVE_TENANTS && w->down_since_ns; t++)
		world_window(w, t, w->down_since_ns + limit_s[t] * NS_PER_S + CONTACT_SLACK,
		             clock_boottime_ns(), "the controller had been away too long");
	w->down_since_ns = 0;
}

static void check_all(struct world *w)
{
	if (!check_reach(w))
		return;
	log_read(w);
	log_expect(w);
	check_objects(w);
	check_rights(w);
	check_notes(w);
	w->checks++;
}

/* Agents are there and revocations confirmed, or it is tried again for a while. */
static void settle(struct world *w)
{
	for (int i = 0; i < w->n_objects; i++) {
		struct object *o = &w->object[i];
		bool ok = o->live < 0;

		for (int n = 0; !ok && n < 20; n++) {
			ok = ops_confirm(w, o);
			if (!ok)
				poll(NULL, 0, 500);
		}
		if (!ok)
			world_fail(w, "the revocation of %s is not confirmed by all agents",
			           o->name);
	}
	check_all(w);
}

static void restore(struct world *w)
{
	bool ok = false;

	for (int n = 0; !ok && n < 40; n++) {
		ok = ops_restore(w);
		if (!ok)
			poll(NULL, 0, 250);
	}
	if (!ok)
		world_fail(w, "the tenants cannot be brought back");
}

static void end(struct world *w)
{
	check_all(w);
	check_idle(w);
	log_read(w);
	log_end(w);
}

static void set_run(struct world *w, bool run)
{
	w->run_ops = run;
	pthread_cond_broadcast(&w->wake);
}

static void controller_lost(struct world *w)
{
	w->down_since_ns = clock_boottime_ns();
	w->all_there_ns = 0;
}

static bool command(struct world *w, const char *line)
{
	if (!strcmp(line, "lost"))
		w->all_there_ns = 0;
	else if (!strcmp(line, "down"))
		controller_lost(w);
	else if (!strcmp(line, "up"))
		outage_windows(w);
	else if (!strcmp(line, "check"))
		check_all(w);
	else if (!strcmp(line, "settle"))
		settle(w);
	else if (!strcmp(line, "restore"))
		restore(w);
	else if (!strcmp(line, "idle"))
		check_idle(w);
	else if (!strcmp(line, "notes"))
		check_notes(w);
	else if (!strcmp(line, "revoke"))
		ops_take(w, &w->object[0]);
	else if (!strncmp(line, "grant ", 6))
		ops_take_grant(w, line + 6);
	else if (!strcmp(line, "end"))
		end(w);
	else if (!strcmp(line, "go") || !strcmp(line, "hold"))
		set_run(w, *line == 'g');
	else
		return false;
	return true;
}

static void serve(struct world *w)
{
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		pthread_mutex_lock(&w->lock);
		if (!command(w, line))
			world_fail(w, "no command '%s'", line);
		printf("done acks=%" PRIu64 " unanswered=%" PRIu64 " checks=%" PRIu64
		       " windows=%" PRIu64 " records=%" PRIu64 " epoch=%" PRIu64
		       " failures=%" PRIu64 "\n",
		       w->acks, w->unanswered, w->checks, w->n_windows, w->log_seq, w->epoch,
		       w->failures);
		fflush(stdout);
		pthread_mutex_unlock(&w->lock);
	}
}

static bool add_notes(struct world *w, const char *arg) /* TENANT=PATH */
{
	const char *eq = strchr(arg, '=');

	if (!eq || w->n_notes == NOTES_MAX)
		return false;
	w->notes_tenant[w->n_notes] = atoi(arg);
	w->notes[w->n_notes] = notes_open(eq + 1, (uint64_t)w->n_notes + 1);
	return w->notes[w->n_notes++] != NULL;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"context", 1, NULL, 'c'},
		{"controller", 1, NULL, 'a'},
		{"root", 1, NULL, 'r'},
		{"seed", 1, NULL, 's'},
		{"journal", 1, NULL, 'j'},
		{"notes", 1, NULL, 'n'},
		{"long-contact", 0, NULL, 'l'},
		{"tries", 1, NULL, 't'},
		{0},
	};
	static struct world w = {.lock = PTHREAD_MUTEX_INITIALIZER,
	                         .wake = PTHREAD_COND_INITIALIZER};
	const char *context = "", *controller = "", *journal = "";
	pthread_t ops;
	int o;

	w.tries = 300;
	w.random = 88172645463325252ull;
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'c':
			context = optarg;
			break;
		case 'a':
			controller = optarg;
			break;
		case 'r':
			w.engine_root = optarg;
			break;
		case 's':
			w.random ^= strtoull(optarg, NULL, 10) * 0x9e3779b97f4a7c15ull;
			break;
		case 'j':
			journal = optarg;
			break;
		case 't':
			w.tries = atoi(optarg);
			break;
		case 'l':
			w.long_contact = true;
			break;
		case 'n':
			if (add_notes(&w, optarg))
				break;
			/* fall through */
		default:
			return 2;
		}
	}
	w.journal = fopen(journal, "ae");
	if (!w.journal || !w.engine_root || connect_admin(&w, context, controller) < 0)
		return 2;
	ops_init(&w);
	if (pthread_create(&ops, NULL, ops_main, &w))
		return 1;
	serve(&w);
	pthread_mutex_lock(&w.lock);
	w.stopping = true;
	set_run(&w, false);
	pthread_mutex_unlock(&w.lock);
	pthread_join(ops, NULL);
	rpc_channel_free(w.channel);
	fclose(w.journal);
	return w.failures ? 1 : 0;
}
