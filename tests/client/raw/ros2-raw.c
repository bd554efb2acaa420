/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of ros2-raw; see raw.h and `ros2-raw --help`. */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "tests/client/raw/raw.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define FILL 0xa5

static const char usage[] =
	"ros2-raw: a tenant that does not keep the rules (for tests; JSON lines on stdout)\n"
	"\n"
	"  ros2-raw call METHOD [field=value ...]    any call of tenant.proto, bytes in hex\n"
	"  ros2-raw calls                            one such call per line of stdin, on one\n"
	"        connection; a string may be %hex:DIGITS: any bytes, NUL too\n"
	"  ros2-raw race METHOD field=value ... race_ms=N     the same call again and again;\n"
	"        prints each distinct answer (status and size) with how often it came\n"
	"  ros2-raw wire [session_uid=H secret=H data=HOST:PORT] MESSAGE [field=value ...] ...\n"
	"        HELLO by hand, then messages: READ, WRITE, FLUSH, PULL, BYE ... with request_id,\n"
	"        handle, offset, address, length, key, generation, flags, payload=BYTES (sent),\n"
	"        fill=N (each of them), payload_len=N (claimed), crc=bad, magic=N, wait_ms=N;\n"
	"        GARBAGE length=N; WAIT length=MS.\n"
	"        Without session_uid it opens a session first (transport=shm [shm_bytes=N]: over\n"
	"        shared memory, for HELLO alone). skip_hello=1: none is sent.\n"
	"  ros2-raw hold namespace=NS path=P [seconds=N] [renew_ms=N] [half_write=1]\n"
	"        the victim: a session with a file and a region, whose lease it renews; prints\n"
	"        session_uid, handle, key, generation, address; ends with stdin or a line 'q', "
	"and\n"
	"        says whether its memory was touched, and how its renewals were answered; that\n"
	"        also at a line 's';\n"
	"        half_write: of a WRITE it never sends the payload\n"
	"  ros2-raw attack session_uid=H handle=N key=N generation=N address=N namespace=NS "
	"path=P\n"
	"        [own_namespace=NS]\n"
	"        with another tenant's values, as the caller: every way to use them; exit 1 if "
	"one\n"
	"        of them worked\n"
	"  ros2-raw regions length=N [count=N]       registers until it is refused\n"
	"\n"
	"Who: agent=, cert=, tls_key=, ca= or ROS2_AGENT, ROS2_CERT, ROS2_KEY, ROS2_CA; "
	"timeout_ms=;\n"
	"server=controller: not an agent (for Health.Check).\n"
	"Exit: 0 done (attack: all refused), 1 failed, 2 usage.\n";

static int complain(const struct ros2_err *err)
{
	raw_print(json_pack("{s:s, s:s}", "error",
	                    err->status ? ros2_status_to_str(err->status) : "ERROR", "words",
	                    err->msg));
	return 1;
}

static json_t *callf(struct raw *r, enum ros2_status *st, const char *method, int n, ...)
{
	char text[8][600];
	char *v[8];
	struct raw_args f = {v, 0};
	struct ros2_err err = ROS2_ERR_INIT;
	json_t *j;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < n && i < 8; i++) {
		const char *name = va_arg(ap, const char *);
		const char *value = va_arg(ap, const char *);

		snprintf(text[f.n], sizeof(text[f.n]), "%s=%s", name, value);
		v[f.n] = text[f.n];
		f.n++;
	}
	va_end(ap);
	*st = ROS2_INTERNAL;
	j = raw_call(r, method, &f, st, &err);
	return j ? j : json_pack("{s:s, s:s}", "call", method, "words", err.msg);
}

/* ---- call ---- */

static bool is_identity(const char *arg)
{
	static const char *const names[] = {
		"agent=", "cert=", "tls_key=", "ca=", "server=", "timeout_ms="};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(arg, names[i], strlen(names[i])))
			return true;
	return false;
}

static int cmd_call(struct raw *r, const struct raw_args *a)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct raw_args fields = {a->v, 0};
	enum ros2_status st = ROS2_OK;
	const char *method = a->n ? a->v[0] : "";
	json_t *j;

	for (int i = 1; i < a->n; i++)
		if (!is_identity(a->v[i]))
			a->v[fields.n++] = a->v[i];
	j = raw_call(r, method, &fields, &st, &err);
	if (!j)
		return complain(&err);
	raw_print(j);
	return 0;
}

/* Lines of "METHOD field=value ...": no quoting, so no blanks in values. */
static int cmd_calls(struct raw *r, const struct raw_args *a)
{
	AUTO_FREE char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&line, &cap, stdin)) > 0) {
		struct ros2_err err = ROS2_ERR_INIT;
		enum ros2_status st;
		char *words[16], *save = NULL;
		struct raw_args fields = {words + 1, -1};
		json_t *j;

		line[n - 1] = line[n - 1] == '\n' ? '\0' : line[n - 1];
		for (char *w = strtok_r(line, " ", &save); w && fields.n < 15;
		     w = strtok_r(NULL, " ", &save))
			words[++fields.n] = w;
		if (fields.n < 0)
			continue;
		j = raw_call(r, words[0], &fields, &st, &err);
		if (!j)
			return complain(&err);
		raw_print(j);
	}
	return a->n ? 2 : 0;
}

/* An open that worked is closed again, so that the race can go on. */
static void close_opened(struct raw *r, const struct raw_args *f, json_t *j)
{
	json_t *handle = json_object_get(j, "handle");
	char text[32];
	enum ros2_status st;

	if (!handle)
		return;
	snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(handle));
	json_decref(callf(r, &st, "Close", 2, "session_uid", raw_arg(f, "session_uid", ""),
	                  "handle", text));
}

static int cmd_race(struct raw *r, const struct raw_args *a)
{
	uint64_t end = clock_monotonic_ns() + raw_arg_u64(a, "race_ms", 1000) * NS_PER_MS;
	struct raw_args fields = {a->v, 0};
	struct ros2_err err = ROS2_ERR_INIT;
	const char *method = a->n ? a->v[0] : "";
	json_t *seen = json_object();

	for (int i = 1; i < a->n; i++)
		if (!is_identity(a->v[i]) && strncmp(a->v[i], "race_ms=", 8) != 0)
			a->v[fields.n++] = a->v[i];
	while (clock_monotonic_ns() < end) {
		enum ros2_status st;
		json_t *j = raw_call(r, method, &fields, &st, &err);
		json_t *size = json_object_get(j, "size");
		char what[64];

		if (!j) {
			json_decref(seen);
			return complain(&err);
		}
		snprintf(what, sizeof(what), size ? "%s %lld" : "%s", ros2_status_to_str(st),
		         (long long)json_integer_value(size));
		json_object_set_new(
			seen, what,
			json_integer(json_integer_value(json_object_get(seen, what)) + 1));
		close_opened(r, &fields, j);
		json_decref(j);
	}
	raw_print(seen);
	return 0;
}

/* ---- wire ---- */

static int print_until_quiet(int fd, int timeout_ms)
{
	AUTO_FREE uint8_t *payload = malloc(WIRE_IO_MAX);
	struct wire_header h;
	int rc;

	while (!(rc = raw_receive(fd, &h, payload, timeout_ms)))
		raw_print(raw_message_json(&h, payload));
	if (rc == -ETIMEDOUT)
		return 0;
	raw_print(json_pack("{s:s, s:s}", "event", "closed", "words", strerror(-rc)));
	return rc;
}

static int send_message(int fd, const char *name, const struct raw_args *f)
{
	uint64_t payload = raw_arg_u64(f, "payload", 0);
	AUTO_FREE uint8_t *bytes = malloc(payload + 1);
	struct wire_header h = {
		.opcode = (uint8_t)raw_arg_u64(f, "opcode", (uint64_t)raw_opcode_of(name)),
		.flags = (uint16_t)raw_arg_u64(f, "flags", 0),
		.request_id = raw_arg_u64(f, "request_id", 1),
		.handle = raw_arg_u64(f, "handle", 0),
		.offset = raw_arg_u64(f, "offset", 0),
		.address = raw_arg_u64(f, "address", 0),
		.length = (uint32_t)raw_arg_u64(f, "length", payload),
		.key = (uint32_t)raw_arg_u64(f, "key", 0),
		.generation = (uint32_t)raw_arg_u64(f, "generation", 0),
		.payload_len = (uint32_t)raw_arg_u64(f, "payload_len", payload),
		.status = (uint16_t)raw_arg_u64(f, "status", 0),
	};

	if (!bytes)
		return -ENOMEM;
	memset(bytes, (int)raw_arg_u64(f, "fill", FILL), payload);
	if (!strcmp(name, "GARBAGE")) {
		crypto_random(&h, sizeof(h));
		return raw_send(fd, &h, NULL);
	}
	raw_seal(&h);
	h.magic = (uint32_t)raw_arg_u64(f, "magic", h.magic);
	if (!strcmp(raw_arg(f, "crc", ""), "bad"))
		h.header_crc ^= 1;
	/* What is claimed may be more than what is sent. */
	if (send(fd, &h, sizeof(h), MSG_NOSIGNAL) != (ssize_t)sizeof(h) ||
	    (payload && send(fd, bytes, payload, MSG_NOSIGNAL) != (ssize_t)payload))
		return -ECONNRESET;
	return 0;
}

static int wire_session(struct raw *r, const struct raw_args *a, struct raw_session *s, bool *own,
                        struct ros2_err *err)
{
	const char *uid = raw_arg(a, "session_uid", NULL), *secret = raw_arg(a, "secret", NULL);

	*own = !uid;
	if (!uid)
		return raw_session_open(r, s, err);
	memset(s, 0, sizeof(*s));
	snprintf(s->data_address, sizeof(s->data_address), "%s", raw_arg(a, "data", ""));
	if (crypto_hex_decode(uid, s->uid, 16) ||
	    (secret && crypto_hex_decode(secret, s->secret, 32)))
		return ros2_err_set(err, -EINVAL, "session_uid: 32 hex digits, secret: 64");
	return 0;
}

static int say_hello(int fd, const struct raw_session *s)
{
	enum ros2_status st = ROS2_OK;
	char words[257] = "";
	int rc = raw_hello(fd, s, &st, words);

	raw_print(json_pack("{s:s, s:s, s:s}", "event", "hello", "status",
	                    rc ? "CLOSED" : ros2_status_to_str(st), "words",
	                    rc ? strerror(-rc) : words));
	return rc ? rc : st ? -EACCES : 0;
}

static void run_messages(int fd, const struct raw_args *a, int timeout_ms)
{
	for (int i = 0; i < a->n;) {
		struct raw_args f = {a->v + i + 1, 0};
		const char *name = a->v[i];

		if (strchr(name, '=')) {
			i++;
			continue;
		}
		while (i + 1 + f.n < a->n && strchr(f.v[f.n], '='))
			f.n++;
		i += 1 + f.n;
		if (!strcmp(name, "WAIT")) {
			poll(NULL, 0, (int)raw_arg_u64(&f, "length", 100));
			continue;
		}
		if (send_message(fd, name, &f) ||
		    print_until_quiet(fd, (int)raw_arg_u64(&f, "wait_ms", (uint64_t)timeout_ms)))
			return;
	}
}

static int cmd_wire(struct raw *r, const struct raw_args *a)
{
	int timeout_ms = (int)raw_arg_u64(a, "quiet_ms", 300);
	struct ros2_err err = ROS2_ERR_INIT;
	struct raw_session s;
	AUTO_CLOSE int fd = -1;
	bool own;

	if (wire_session(r, a, &s, &own, &err))
		return complain(&err);
	fd = raw_dial(s.data_address, &err);
	if (fd < 0)
		return complain(&err);
	if (raw_arg_u64(a, "skip_hello", 0) || !say_hello(fd, &s))
		run_messages(fd, a, timeout_ms);
	if (own)
		raw_session_close(r, &s);
	return 0;
}

/* ---- hold ---- */

struct victim {
	struct raw_session s;
	char uid[33];
	uint8_t *memory;
	size_t len;
	char key[16];
	uint64_t renewed, lapsed, slowest_ms; /* renewals that were answered OK, and those not */
};

static json_int_t number(json_t *j, const char *name)
{
	return json_integer_value(json_object_get(j, name));
}

static bool step_ok(json_t *j, enum ros2_status st)
{
	if (st)
		raw_print(json_incref(j));
	return !st;
}

static bool victim_register(struct raw *r, struct victim *v, json_t *out)
{
	char address[32], length[32];
	enum ros2_status st;
	json_t *j;
	bool ok;

	snprintf(address, sizeof(address), "%llu", (unsigned long long)(uintptr_t)v->memory);
	snprintf(length, sizeof(length), "%zu", v->len);
	j = callf(r, &st, "RegisterRegion", 4, "session_uid", v->uid, "address", address, "length",
	          length, "access", "3");
	ok = step_ok(j, st);
	json_object_set_new(out, "key", json_integer(number(j, "key")));
	json_object_set_new(out, "generation", json_integer(number(j, "generation")));
	json_object_set_new(out, "address", json_integer((json_int_t)(uintptr_t)v->memory));
	snprintf(v->key, sizeof(v->key), "%lld", (long long)number(j, "key"));
	json_decref(j);
	return ok;
}

static bool victim_open(struct raw *r, struct victim *v, const struct raw_args *a, json_t *out)
{
	char mount[16];
	enum ros2_status st;
	json_t *j = callf(r, &st, "Mount", 2, "session_uid", v->uid, "namespace_name",
	                  raw_arg(a, "namespace", ""));
	bool ok = step_ok(j, st);

	snprintf(mount, sizeof(mount), "%lld", (long long)number(j, "mount"));
	json_object_set_new(out, "mount", json_integer(number(j, "mount")));
	json_decref(j);
	if (!ok)
		return false;
	j = callf(r, &st, "Open", 5, "session_uid", v->uid, "mount", mount, "path",
	          raw_arg(a, "path", ""), "flags", "7", "mode", "420");
	ok = step_ok(j, st);
	json_object_set_new(out, "handle", json_integer(number(j, "handle")));
	json_decref(j);
	return ok;
}

static void renew(struct raw *r, struct victim *v)
{
	uint64_t from = clock_monotonic_ns();
	enum ros2_status st;
	json_t *j = callf(r, &st, "RenewRegion", 2, "session_uid", v->uid, "key", v->key);

	v->renewed += st == ROS2_OK;
	v->lapsed += st != ROS2_OK;
	v->slowest_ms = MAX(v->slowest_ms, (clock_monotonic_ns() - from) / NS_PER_MS);
	if (st)
		raw_print(json_incref(j));
	json_decref(j);
}

static void say_renewals(const struct victim *v)
{
	raw_print(json_pack("{s:s, s:I, s:I, s:I}", "event", "renewals", "renewed",
	                    (json_int_t)v->renewed, "not_renewed", (json_int_t)v->lapsed,
	                    "slowest_renewal_ms", (json_int_t)v->slowest_ms));
}

/* Until stdin ends or the time is over; says what came on the data connection unasked. */
static void hold(struct raw *r, struct victim *v, int fd, const struct raw_args *a)
{
	uint64_t until = clock_monotonic_ns() + raw_arg_u64(a, "seconds", 3600) * NS_PER_S;
	uint64_t each = raw_arg_u64(a, "renew_ms", 1000) * NS_PER_MS, next = 0;
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	char scratch[512];

	while (clock_monotonic_ns() < until) {
		if (clock_monotonic_ns() >= next) {
			renew(r, v);
			next = clock_monotonic_ns() + each;
		}
		poll(p, 2, (int)MIN(each / NS_PER_MS, 200u));
		if (p[0].revents &&
		    (read(STDIN_FILENO, scratch, sizeof(scratch)) <= 0 || scratch[0] == 'q'))
			return;
		if (p[0].revents && scratch[0] == 's')
			say_renewals(v);
		if (p[1].revents && print_until_quiet(fd, 100))
			p[1].fd = -1;
	}
}

static void say_touched(const struct victim *v)
{
	size_t changed = 0;

	for (size_t i = 0; i < v->len; i++)
		changed += v->memory[i] != FILL;
	raw_print(json_pack("{s:s, s:I, s:b, s:I, s:I, s:I}", "event", "released", "bytes_changed",
	                    (json_int_t)changed, "untouched", !changed, "renewed",
	                    (json_int_t)v->renewed, "not_renewed", (json_int_t)v->lapsed,
	                    "slowest_renewal_ms", (json_int_t)v->slowest_ms));
}

/* The agent asks for its payload, which never comes: its buffer is taken as long as the lease is
 * renewed. */
static int half_a_write(int fd, const struct victim *v, json_t *out)
{
	struct wire_header h = {.opcode = WIRE_WRITE,
	                        .request_id = 1,
	                        .handle = (uint64_t)number(out, "handle"),
	                        .address = (uint64_t)(uintptr_t)v->memory,
	                        .length = 65536,
	                        .key = (uint32_t)number(out, "key")};

	raw_seal(&h);
	return raw_send(fd, &h, NULL);
}

static int cmd_hold(struct raw *r, const struct raw_args *a)
{
	struct victim v = {.len = raw_arg_u64(a, "length", 1u << 20)};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_CLOSE int fd = -1;
	json_t *out;

	v.memory = mmap(NULL, v.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v.memory == MAP_FAILED || raw_session_open(r, &v.s, &err))
		return complain(&err);
	memset(v.memory, FILL, v.len);
	crypto_hex(v.s.uid, 16, v.uid);
	fd = raw_dial(v.s.data_address, &err);
	if (fd < 0)
		return complain(&err);
	if (say_hello(fd, &v.s))
		return 1;
	out = json_pack("{s:s, s:s, s:s}", "event", "holding", "session_uid", v.uid, "data",
	                v.s.data_address);
	if (!victim_open(r, &v, a, out) || !victim_register(r, &v, out)) {
		json_decref(out);
		return 1;
	}
	if (raw_arg_u64(a, "half_write", 0) && half_a_write(fd, &v, out)) {
		json_decref(out);
		return 1;
	}
	raw_print(out);
	hold(r, &v, fd, a);
	say_touched(&v);
	raw_session_close(r, &v.s);
	munmap(v.memory, v.len);
	return 0;
}

/* ---- attack ---- */

struct attack {
	struct raw *raw;
	const struct raw_args *a;
	const char *uid, *handle, *key, *ns, *path;
	unsigned tried, worked;
};

static void judge(struct attack *t, const char *step, const char *status, const char *words,
                  bool worked)
{
	t->tried++;
	t->worked += worked;
	raw_print(json_pack("{s:s, s:s, s:s, s:b}", "step", step, "status", status, "words",
	                    words ? words : "", "refused", !worked));
}

static void judge_call(struct attack *t, const char *step, json_t *j, enum ros2_status st)
{
	const char *words = json_string_value(json_object_get(j, "words"));

	judge(t, step, ros2_status_to_str(st), words, st == ROS2_OK);
	json_decref(j);
}

static void try_calls(struct attack *t, const char *own_uid)
{
	struct raw *r = t->raw;
	enum ros2_status st;
	json_t *j;

	j = callf(r, &st, "Mount", 2, "session_uid", own_uid, "namespace_name", t->ns);
	judge_call(t, "mount the other's namespace", j, st);
	j = callf(r, &st, "Mount", 2, "session_uid", t->uid, "namespace_name", t->ns);
	judge_call(t, "mount on the other's session", j, st);
	j = callf(r, &st, "Open", 4, "session_uid", t->uid, "mount", raw_arg(t->a, "mount", "1"),
	          "path", t->path, "flags", "1");
	judge_call(t, "open a file on the other's session", j, st);
	j = callf(r, &st, "StatHandle", 2, "session_uid", t->uid, "handle", t->handle);
	judge_call(t, "stat the other's handle on its session", j, st);
	j = callf(r, &st, "StatHandle", 2, "session_uid", own_uid, "handle", t->handle);
	judge_call(t, "stat the other's handle on an own session", j, st);
	j = callf(r, &st, "Truncate", 3, "session_uid", t->uid, "handle", t->handle, "size", "0");
	judge_call(t, "truncate the other's file", j, st);
	j = callf(r, &st, "RenewRegion", 2, "session_uid", own_uid, "key", t->key);
	judge_call(t, "renew the other's key on an own session", j, st);
	j = callf(r, &st, "RenewRegion", 2, "session_uid", t->uid, "key", t->key);
	judge_call(t, "renew the other's key on its session", j, st);
	j = callf(r, &st, "DeregisterRegion", 2, "session_uid", t->uid, "key", t->key);
	judge_call(t, "deregister the other's region", j, st);
	j = callf(r, &st, "CloseSession", 1, "session_uid", t->uid);
	judge_call(t, "close the other's session", j, st);
}

/* A file of our own on session @s, so that only the other's key is wrong. */
static bool own_handle(struct attack *t, const struct raw_session *s, uint64_t *ret)
{
	const char *ns = raw_arg(t->a, "own_namespace", NULL);
	char uid[33], mount[16];
	enum ros2_status st;
	json_t *j;

	crypto_hex(s->uid, 16, uid);
	j = callf(t->raw, &st, "Mount", 2, "session_uid", uid, "namespace_name", ns);
	snprintf(mount, sizeof(mount), "%lld", (long long)number(j, "mount"));
	json_decref(j);
	if (st)
		return false;
	j = callf(t->raw, &st, "Open", 5, "session_uid", uid, "mount", mount, "path",
	          "ros2-raw-own", "flags", "7", "mode", "420");
	*ret = (uint64_t)number(j, "handle");
	json_decref(j);
	return !st;
}

/* The last word of the agent about one request on a connection of our own. Handle 0: one of our
 * own. */
static void try_message(struct attack *t, const char *step, struct wire_header h,
                        const uint8_t *bytes)
{
	AUTO_FREE uint8_t *payload = malloc(WIRE_IO_MAX);
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	struct raw_session s;
	char words[257] = "";
	bool moved = false;
	AUTO_CLOSE int fd = -1;
	int rc = raw_session_open(t->raw, &s, &err);

	if (rc) {
		judge(t, step, ros2_status_to_str(err.status), err.msg, false);
		return;
	}
	fd = raw_dial(s.data_address, &err);
	rc = fd < 0 ? fd : raw_hello(fd, &s, &st, words);
	if (!rc && !st && !h.handle && !own_handle(t, &s, &h.handle))
		rc = -ENOENT;
	if (!rc && !st) {
		raw_seal(&h);
		rc = raw_send(fd, &h, bytes);
	}
	while (!rc && !st && !(rc = raw_receive(fd, &h, payload, 3000))) {
		/* DATA or a PULL would already be the breach. */
		moved |= h.opcode == WIRE_DATA || h.opcode == WIRE_PULL;
		if (h.opcode == WIRE_NAK)
			snprintf(words, sizeof(words), "%.*s", (int)MIN(h.payload_len, 256u),
			         (const char *)payload);
		st = (enum ros2_status)h.status;
		if (h.opcode == WIRE_COMPLETE || h.opcode == WIRE_NAK)
			break;
	}
	judge(t, step, rc ? "CLOSED" : ros2_status_to_str(st), rc ? strerror(-rc) : words,
	      moved || (!rc && !st));
	raw_session_close(t->raw, &s);
}

static void try_wire(struct attack *t)
{
	static const uint8_t bytes[4096];
	struct wire_header h = {
		.opcode = WIRE_READ,
		.request_id = 1,
		.handle = strtoull(t->handle, NULL, 0),
		.key = (uint32_t)strtoul(t->key, NULL, 0),
		.generation = (uint32_t)raw_arg_u64(t->a, "generation", 0),
		.address = raw_arg_u64(t->a, "address", 0),
		.length = 4096,
	};

	try_message(t, "read the other's handle into the other's region", h, NULL);
	h.opcode = WIRE_FLUSH;
	try_message(t, "flush the other's handle", h, NULL);
	h.opcode = WIRE_WRITE;
	try_message(t, "write the other's region to the other's handle (pulled)", h, NULL);
	h.flags = WIRE_F_INLINE;
	h.payload_len = sizeof(bytes);
	try_message(t, "write the other's handle from the capsule", h, bytes);
	if (!raw_arg(t->a, "own_namespace", NULL))
		return;
	h.handle = 0;
	h.payload_len = 0;
	h.flags = 0;
	try_message(t, "pull the other's region into an own file by its key", h, NULL);
	h.opcode = WIRE_READ;
	try_message(t, "push an own file into the other's region by its key", h, NULL);
}

/* The other's session with a secret of our own: what knowing a uid is worth. */
static void try_hello(struct attack *t, const struct raw_session *own)
{
	struct raw_session s = *own;
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	char words[257] = "";
	AUTO_CLOSE int fd = raw_dial(s.data_address, &err);
	int rc = fd < 0 || crypto_hex_decode(t->uid, s.uid, 16) ? -EINVAL
	                                                        : raw_hello(fd, &s, &st, words);

	judge(t, "prove the other's session with an own secret",
	      rc ? "CLOSED" : ros2_status_to_str(st), rc ? strerror(-rc) : words, !rc && !st);
}

static int cmd_attack(struct raw *r, const struct raw_args *a)
{
	struct attack t = {.raw = r,
	                   .a = a,
	                   .uid = raw_arg(a, "session_uid", NULL),
	                   .handle = raw_arg(a, "handle", NULL),
	                   .key = raw_arg(a, "key", NULL),
	                   .ns = raw_arg(a, "namespace", NULL),
	                   .path = raw_arg(a, "path", "f")};
	struct ros2_err err = ROS2_ERR_INIT;
	struct raw_session own;
	char own_uid[33];

	if (!t.uid || !t.handle || !t.key || !t.ns) {
		fputs(usage, stderr);
		return 2;
	}
	if (raw_session_open(r, &own, &err))
		return complain(&err);
	crypto_hex(own.uid, 16, own_uid);
	try_calls(&t, own_uid);
	try_hello(&t, &own);
	raw_session_close(r, &own);
	try_wire(&t);
	raw_print(json_pack("{s:s, s:i, s:i}", "event", "attack", "tried", (int)t.tried, "worked",
	                    (int)t.worked));
	return t.worked ? 1 : 0;
}

/* ---- regions ---- */

static int cmd_regions(struct raw *r, const struct raw_args *a)
{
	uint64_t length = raw_arg_u64(a, "length", 1u << 20), address = 1ull << 32;
	uint64_t count = raw_arg_u64(a, "count", 100000), n = 0;
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	struct raw_session s;
	char uid[33];
	json_t *j = NULL;

	if (raw_session_open(r, &s, &err))
		return complain(&err);
	crypto_hex(s.uid, 16, uid);
	for (; n < count; n++) {
		char at[32], len[32];

		snprintf(at, sizeof(at), "%llu", (unsigned long long)(address + n * length));
		snprintf(len, sizeof(len), "%llu", (unsigned long long)length);
		json_decref(j);
		j = callf(r, &st, "RegisterRegion", 4, "session_uid", uid, "address", at, "length",
		          len, "access", "3");
		if (st)
			break;
	}
	raw_print(json_pack("{s:s, s:I, s:I, s:s, s:s?}", "event", "regions", "registered",
	                    (json_int_t)n, "bytes", (json_int_t)(n * length), "status",
	                    ros2_status_to_str(st), "words",
	                    json_string_value(json_object_get(j, "words"))));
	json_decref(j);
	raw_session_close(r, &s);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct raw *r, const struct raw_args *a);
	} commands[] = {{"call", cmd_call},      {"calls", cmd_calls}, {"race", cmd_race},
	                {"wire", cmd_wire},      {"hold", cmd_hold},   {"attack", cmd_attack},
	                {"regions", cmd_regions}};
	struct raw_args a = {argv + 2, argc > 2 ? argc - 2 : 0};
	struct ros2_err err = ROS2_ERR_INIT;
	struct raw r = {0};
	size_t i = 0;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	while (i < ARRAY_SIZE(commands) && (argc < 2 || strcmp(argv[1], commands[i].name)))
		i++;
	if (i == ARRAY_SIZE(commands)) {
		bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));

		fputs(usage, help ? stdout : stderr);
		return help ? 0 : 2;
	}
	rc = raw_connect(&r, &a, &err) ? complain(&err) : commands[i].run(&r, &a);
	rpc_channel_free(r.channel);
	return rc;
}
