/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks a real agent, as tenants that its controller knows: RPCs by ros2-raw's reflection, data
 * by raw verbs. Prints TAP and the table; tests/attack/agent starts the cluster and looks at the
 * log.
 *
 *   attack-agent DIR [ATTACK]    the cluster's directory (tests/integration/lib.sh); ROS2_AGENT is
 * set
 */
#include "tests/attack/agent.h"
#include "tests/client/raw/raw.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"alpha", "beta"};
static unsigned lines;

/* @out of @size bytes from a field of hex. */
static bool hex_field(const json_t *j, const char *name, uint8_t *out, size_t size)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s && strlen(s) == 2 * size && crypto_hex_decode(s, out, size) == 0;
}

static uint64_t number(const json_t *j, const char *name)
{
	const json_t *v = json_object_get(j, name);

	return json_is_string(v) ? strtoull(json_string_value(v), NULL, 0)
	                         : (uint64_t)json_integer_value(v);
}

/* "Method", then up to 8 "field=value". *ret is the caller's. */
static int call(struct site *site, enum tenant who, json_t **ret, const char *method,
                const char *fmt, ...)
{
	struct raw *r = &((struct raw *)site->own)[who];
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	char text[600], *v[8], *save = NULL;
	struct raw_args a = {v, 0};
	json_t *j;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *w = strtok_r(text, " ", &save); w && a.n < 8; w = strtok_r(NULL, " ", &save))
		v[a.n++] = w;
	j = raw_call(r, method, &a, &st, &err);
	if (!j || st != ROS2_OK)
		printf("# %s, %s: %s\n", names[who], method, j ? ros2_status_to_str(st) : err.msg);
	if (!j || st != ROS2_OK) {
		json_decref(j);
		return st == ROS2_LIMIT ? -EDQUOT : -EIO;
	}
	*ret = j;
	return 0;
}

static int open_session(struct site *site, enum tenant who, struct peer_session *ret)
{
	json_t *j = NULL;
	const char *data;
	int r = call(site, who, &j, "OpenSession", "protocol=1 transport=2");

	if (r)
		return r;
	data = json_string_value(json_object_get(j, "dataAddress"));
	*ret = (struct peer_session){0};
	if (!hex_field(j, "sessionUid", ret->uid, sizeof(ret->uid)) ||
	    !hex_field(j, "secret", ret->secret, sizeof(ret->secret)) || !data)
		r = -EPROTO;
	else
		snprintf(ret->data, sizeof(ret->data), "%s", data);
	json_decref(j);
	return r;
}

static void uid_of(const struct peer_session *s, char out[33])
{
	for (int i = 0; i < 16; i++)
		sprintf(out + 2 * i, "%02x", s->uid[i]);
}

static int prepare(struct site *site, enum tenant who, struct peer_session *s, uint64_t address)
{
	json_t *j = NULL;
	uint64_t mount = 0;
	char uid[33];
	int r;

	uid_of(s, uid);
	r = call(site, who, &j, "Mount", "session_uid=%s namespace_name=data", uid);
	if (!r) {
		mount = number(j, "mount");
		json_decref(j);
		r = call(site, who, &j, "Open",
		         "session_uid=%s mount=%llu path=attacked flags=7 mode=420", uid,
		         (unsigned long long)mount);
	}
	if (!r) {
		s->handle = number(j, "handle");
		json_decref(j);
		r = call(site, who, &j, "RegisterRegion",
		         "session_uid=%s address=%llu length=%u access=3", uid,
		         (unsigned long long)address, PEER_TARGET);
	}
	if (!r) {
		s->key = (uint32_t)number(j, "key");
		s->generation = (uint32_t)number(j, "generation");
		json_decref(j);
	}
	return r;
}

static int close_session(struct site *site, enum tenant who, const struct peer_session *s)
{
	json_t *j = NULL;
	char uid[33];
	int r;

	uid_of(s, uid);
	r = call(site, who, &j, "CloseSession", "session_uid=%s", uid);
	json_decref(j);
	return r;
}

static int connect_tenants(struct raw *to, const char *dir)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char text[3][512], *v[3] = {text[0], text[1], text[2]};
	struct raw_args a = {v, 3};
	int r = 0;

	for (int w = 0; w < 2 && !r; w++) {
		snprintf(text[0], sizeof(text[0]), "cert=%s/%s/tls.crt", dir, names[w]);
		snprintf(text[1], sizeof(text[1]), "tls_key=%s/%s/tls.key", dir, names[w]);
		snprintf(text[2], sizeof(text[2]), "ca=%s/%s/infra-bundle.pem", dir, names[w]);
		r = raw_connect(&to[w], &a, &err);
		if (r)
			fprintf(stderr, "attack-agent: %s: %s\n", names[w], err.msg);
	}
	return r;
}

static bool line(bool ok, const char *name, const char *what, const char *seen)
{
	printf("%s %u - attack__%s__%s (%s)\n", ok ? "ok" : "not ok", ++lines, name, what, seen);
	fflush(stdout);
	return ok;
}

static bool judge(struct site *site, const struct agent_attack *a, const char **ret)
{
	struct attack_try t = {.defended = true}, control = {.defended = false};
	bool good = true;
	int r = a->run(site, &t);

	if (a->own_control) {
		int c = a->run(site, &control);

		good = line(!c && control.worked, a->name, "works_without_the_defence",
		            control.seen);
	}
	*ret = "NOT DEFEATED";
	if (r)
		return line(false, a->name, "is_shown", t.seen);
	if (a->defect) {
		*ret = t.neighbour_harmed || !t.worked ? *ret : "device defect";
		return line(!t.neighbour_harmed && t.worked, a->name,
		            "is_a_defect_that_the_victim_survives", t.seen) &&
		       good;
	}
	if (!t.worked && !t.neighbour_harmed)
		*ret = "defeated";
	return line(!t.worked && !t.neighbour_harmed, a->name, "is_defeated", t.seen) && good;
}

int main(int argc, char **argv)
{
	const char *result[32];
	struct raw channels[2] = {0};
	struct site site = {channels, open_session, prepare, close_session};
	bool good = true;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: attack-agent DIR [ATTACK]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (connect_tenants(channels, argv[1]))
		return 1;
	for (unsigned i = 0; i < n_agent_attacks; i++) {
		result[i] = "not tried";
		if (argc == 2 || !strcmp(argv[2], agent_attacks[i].name))
			good = judge(&site, &agent_attacks[i], &result[i]) && good;
	}
	printf("# attack | published source | defence | result\n");
	for (unsigned i = 0; i < n_agent_attacks; i++)
		printf("# %s | %s | %s | %s\n", agent_attacks[i].words, agent_attacks[i].source,
		       agent_attacks[i].defence, result[i]);
	for (int w = 0; w < 2; w++)
		rpc_channel_free(channels[w].channel);
	return good ? 0 : 1;
}
