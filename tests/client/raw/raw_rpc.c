/* SPDX-License-Identifier: Apache-2.0 */
/* Any call of tenant.proto by name, and Health.Check, its fields by reflection over the message
 * descriptors. */
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/grpc/health/v1/health.rpc.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/raw/raw.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *raw_arg(const struct raw_args *a, const char *name, const char *fallback)
{
	size_t n = strlen(name);

	for (int i = 0; i < a->n; i++)
		if (!strncmp(a->v[i], name, n) && a->v[i][n] == '=')
			return a->v[i] + n + 1;
	return fallback;
}

uint64_t raw_arg_u64(const struct raw_args *a, const char *name, uint64_t fallback)
{
	const char *s = raw_arg(a, name, NULL);

	return s ? strtoull(s, NULL, 0) : fallback;
}

void raw_print(json_t *line)
{
	json_dumpf(line, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	putchar('\n');
	fflush(stdout);
	json_decref(line);
}

static const char *from_env(const struct raw_args *a, const char *name, const char *env)
{
	const char *s = raw_arg(a, name, getenv(env));

	return s ? s : "";
}

int raw_connect(struct raw *r, const struct raw_args *a, struct ros2_err *err)
{
	const char *cert = from_env(a, "cert", "ROS2_CERT");
	char server[ROS2_SPIFFE_MAX + 16];
	struct rpc_channel_opts co = {
		.name = "raw",
		.target = from_env(a, "agent", "ROS2_AGENT"),
		.ca_path = from_env(a, "ca", "ROS2_CA"),
		.cert_path = cert,
		.key_path = from_env(a, "tls_key", "ROS2_KEY"),
		.server_id = server,
		.server_id_is_prefix = true,
		.any_domain = true, /* it is the agent that is to refuse */
	};
	AUTO_FREE void *pem = NULL;
	struct pki_cert_info info;
	size_t len = 0, domain = 0;
	int rc = fsx_read_file(cert, PKI_PEM_MAX, &pem, &len, err);

	if (!rc)
		rc = pki_cert_info(pem, len, &info, err);
	if (rc)
		return rc;
	if (!ros2_spiffe_valid(info.uri, &domain, NULL))
		return ros2_err_set(err, -EINVAL, "%s has no SPIFFE ID", cert);
	snprintf(server, sizeof(server), "%s", from_env(a, "server_id", "ROS2_SERVER_ID"));
	if (!*server)
		snprintf(server, sizeof(server), "%.*s/%s/", (int)(9 + domain), info.uri,
		         raw_arg(a, "server", "agent"));
	r->timeout_ms = (uint32_t)raw_arg_u64(a, "timeout_ms", 10000);
	r->over_shm = !strcmp(raw_arg(a, "transport", ""), "shm");
	r->over_verbs = !strcmp(raw_arg(a, "transport", ""), "verbs");
	r->shm_bytes = raw_arg_u64(a, "shm_bytes", 0);
	return rpc_channel_new(&co, &r->channel, err);
}

/* ---- messages by reflection ---- */

static int set_bytes(ProtobufCBinaryData *b, const char *hex, struct ros2_err *err)
{
	size_t n = strlen(hex) / 2;

	b->data = malloc(n + 1);
	b->len = n;
	if (!b->data || crypto_hex_decode(hex, b->data, n))
		return ros2_err_set(err, -EINVAL, "'%s' is not hex", hex);
	return 0;
}

static size_t put_varint(uint8_t *at, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		at[n++] = (uint8_t)(v | 0x80);
	at[n++] = (uint8_t)v;
	return n;
}

/* Any bytes as a string: protobuf-c ends a string at its first NUL, but packs what it does not know
 * as it came. */
static int set_raw_string(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const char *hex,
                          struct ros2_err *err)
{
	size_t n = strlen(hex) / 2, head;
	ProtobufCMessageUnknownField *u;
	void *grown = realloc(m->unknown_fields, (m->n_unknown_fields + 1) * sizeof(*u));

	if (!grown)
		return ros2_err_set(err, -ENOMEM, "no memory");
	m->unknown_fields = grown;
	u = &m->unknown_fields[m->n_unknown_fields];
	*u = (ProtobufCMessageUnknownField){.tag = f->id,
	                                    .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
	                                    .data = malloc(n + 10)};
	if (!u->data)
		return ros2_err_set(err, -ENOMEM, "no memory");
	m->n_unknown_fields++;
	head = put_varint(u->data, n);
	u->len = head + n;
	if (crypto_hex_decode(hex, u->data + head, n))
		return ros2_err_set(err, -EINVAL, "'%s' is not hex", hex);
	return 0;
}

static int set_field(ProtobufCMessage *m, const char *name, const char *value, struct ros2_err *err)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
	void *at;

	if (!f || f->label == PROTOBUF_C_LABEL_REPEATED)
		return ros2_err_set(err, -EINVAL, "%s has no field '%s'", m->descriptor->name,
		                    name);
	at = (char *)m + f->offset;
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		if (!strncmp(value, "%hex:", 5))
			return set_raw_string(m, f, value + 5, err);
		*(char **)at = strdup(value);
		return 0;
	case PROTOBUF_C_TYPE_BYTES:
		return set_bytes(at, value, err);
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)at = strtoull(value, NULL, 0);
		return 0;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_ENUM:
		*(uint32_t *)at = (uint32_t)strtoull(value, NULL, 0);
		return 0;
	default:
		return ros2_err_set(err, -EINVAL, "field '%s' cannot be set here", name);
	}
}

static json_t *field_json(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	const void *at = (const char *)m + f->offset;
	const ProtobufCBinaryData *b = at;
	char hex[129];

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return json_string(*(char *const *)at);
	case PROTOBUF_C_TYPE_BYTES:
		crypto_hex(b->data, MIN(b->len, (size_t)64), hex);
		return json_string(hex);
	case PROTOBUF_C_TYPE_UINT64:
		return json_integer((json_int_t) * (const uint64_t *)at);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_ENUM:
		return json_integer(*(const uint32_t *)at);
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)at);
	default:
		return json_null();
	}
}

/* As ros2ctl names them: session_uid becomes sessionUid. */
static void camel(const char *snake, char out[64])
{
	size_t n = 0;

	for (; *snake && n < 63; snake++) {
		bool up = *snake == '_' && snake[1];

		snake += up;
		out[n++] =
			(char)(up && *snake >= 'a' && *snake <= 'z' ? *snake - 'a' + 'A' : *snake);
	}
	out[n] = 0;
}

static const struct rpc_method *find_method(const char *name)
{
	const char *dot = strchr(name, '.');

	if (!strcmp(name, grpc_health_v1_health_check.name))
		return &grpc_health_v1_health_check;
	name = dot ? dot + 1 : name;
	for (size_t i = 0; i < ros2_v1_tenant_service.n_methods; i++) {
		const struct rpc_method *m = ros2_v1_tenant_service.methods[i];

		if (!strcmp(strchr(m->name, '.') + 1, name))
			return m;
	}
	return NULL;
}

static ProtobufCMessage *make_request(const struct rpc_method *m, const struct raw_args *fields,
                                      struct ros2_err *err)
{
	ProtobufCMessage *req = calloc(1, m->input->sizeof_message);

	if (!req)
		abort();
	protobuf_c_message_init(m->input, req);
	for (int i = 0; i < fields->n; i++) {
		char name[64];
		const char *eq = strchr(fields->v[i], '=');

		snprintf(name, sizeof(name), "%.*s", eq ? (int)(eq - fields->v[i]) : 0,
		         fields->v[i]);
		if (!eq || set_field(req, name, eq + 1, err)) {
			protobuf_c_message_free_unpacked(req, NULL);
			return NULL;
		}
	}
	return req;
}

/* The names of a directory: what a cookie gave. */
static json_t *names_json(const ProtobufCMessage *reply)
{
	const Ros2__V1__ReaddirReply *dir = (const Ros2__V1__ReaddirReply *)reply;
	json_t *names = json_array();

	for (size_t i = 0; i < dir->n_entries; i++)
		json_array_append_new(names, json_string(dir->entries[i]->name));
	return names;
}

json_t *raw_call(struct raw *r, const char *method, const struct raw_args *fields,
                 enum ros2_status *ret_status, struct ros2_err *err)
{
	const struct rpc_method *m = find_method(method);
	ProtobufCMessage *req, *reply = NULL;
	struct ros2_err own = ROS2_ERR_INIT;
	json_t *j;
	int rc;

	if (!m) {
		ros2_err_set(err, -EINVAL, "no method '%s' in tenant.proto", method);
		return NULL;
	}
	req = make_request(m, fields, err);
	if (!req)
		return NULL;
	rc = rpc_unary_sync(r->channel, m, req, r->timeout_ms, &reply, &own);
	protobuf_c_message_free_unpacked(req, NULL);
	*ret_status = rc ? own.status : ROS2_OK;
	j = json_pack("{s:s, s:s}", "call", m->name, "status",
	              rc && !own.status ? "ERROR" : ros2_status_to_str(*ret_status));
	if (rc)
		json_object_set_new(j, "words", json_string(own.msg));
	for (unsigned i = 0; !rc && i < m->output->n_fields; i++) {
		char name[64];

		camel(m->output->fields[i].name, name);
		if (m->output->fields[i].label != PROTOBUF_C_LABEL_REPEATED)
			json_object_set_new(j, name, field_json(reply, &m->output->fields[i]));
	}
	if (!rc && m->output == &ros2__v1__readdir_reply__descriptor)
		json_object_set_new(j, "names", names_json(reply));
	protobuf_c_message_free_unpacked(reply, NULL);
	return j;
}
