/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster of tests/integration/lib.sh as a site (agent.h): RPCs by ros2-raw's reflection. */
#include "tests/attack/agent_site.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"alpha", "beta"};

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

/* How it was answered; at a site that is flooded only counted, with the words of the first. */
static void note(struct cluster *c, enum tenant who, const char *method, const json_t *j,
                 enum ros2_status st, const struct ros2_err *err)
{
	const char *words = j ? json_string_value(json_object_get(j, "words")) : err->msg;

	if (st < ROS2_STATUS_COUNT && !c->answers[st]++ && words)
		snprintf(c->words[st], sizeof(c->words[st]), "%.159s", words);
	if (!c->quiet && (!j || st != ROS2_OK))
		printf("# %s, %s: %s\n", names[who], method, j ? ros2_status_to_str(st) : err->msg);
}

/* "Method", then up to 8 "field=value". *ret is the caller's. */
static int call(struct site *site, enum tenant who, json_t **ret, const char *method,
                const char *fmt, ...)
{
	struct cluster *c = site->own;
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
	j = raw_call(&c->channels[who], method, &a, &st, &err);
	note(c, who, method, j, st, &err);
	if (!j || st != ROS2_OK) {
		json_decref(j);
		return st == ROS2_LIMIT ? -EDQUOT : st == ROS2_RATE ? -EAGAIN : -EIO;
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
		s->ttl_ms = (uint32_t)number(j, "ttlMs");
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

int cluster_connect(struct cluster *to, const char *dir, struct site *ret)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char text[3][512], *v[4] = {text[0], text[1], text[2], (char *)"timeout_ms=60000"};
	struct raw_args a = {v, 4}; /* emulated, and beside a flood */
	int r = 0;

	for (int w = 0; w < 2 && !r; w++) {
		snprintf(text[0], sizeof(text[0]), "cert=%s/%s/tls.crt", dir, names[w]);
		snprintf(text[1], sizeof(text[1]), "tls_key=%s/%s/tls.key", dir, names[w]);
		snprintf(text[2], sizeof(text[2]), "ca=%s/%s/infra-bundle.pem", dir, names[w]);
		r = raw_connect(&to->channels[w], &a, &err);
		if (r)
			fprintf(stderr, "attack-agent: %s: %s\n", names[w], err.msg);
	}
	*ret = (struct site){to, open_session, prepare, close_session};
	return r;
}

void cluster_close(struct cluster *c)
{
	for (int w = 0; w < 2; w++)
		rpc_channel_free(c->channels[w].channel);
}
