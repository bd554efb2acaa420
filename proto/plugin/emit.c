/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of the tables and wrappers. Names: service ros2.v1.AgentLink, method Session gives
 * ros2_v1_agent_link_service, ros2_v1_agent_link_session (the rpc_method) and wrappers that begin
 * with it. Types follow protobuf-c's spelling (Ros2__V1__AgentHello,
 * ros2__v1__agent_hello__descriptor).
 */
#include "proto/plugin/emit.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Google__Protobuf__ServiceDescriptorProto service_t;
typedef Google__Protobuf__MethodDescriptorProto method_t;

/* One method, with every name the text needs. */
struct names {
	char id[256];               /* ros2_v1_admin_apply */
	char in[256], out[256];     /* Ros2__V1__ApplyRequest */
	char in_d[256], out_d[256]; /* ros2__v1__apply_request__descriptor */
	const char *kind;
};

/* CamelCase to lower_case as protobuf-c does it; '.' becomes @sep. Truncates, never overflows. */
static void to_lower(const char *s, const char *sep, char *out, size_t n)
{
	bool was_upper = true;
	size_t o = 0;

	for (; *s && o + 3 < n; s++) {
		if (*s == '.') {
			for (const char *p = sep; *p; p++)
				out[o++] = *p;
			was_upper = true;
			continue;
		}
		if (isupper((unsigned char)*s) && !was_upper)
			out[o++] = '_';
		was_upper = isupper((unsigned char)*s);
		out[o++] = (char)tolower((unsigned char)*s);
	}
	out[o] = '\0';
}

/* ros2.v1.ApplyRequest to Ros2__V1__ApplyRequest. */
static void to_type(const char *s, char *out, size_t n)
{
	bool up = true;
	size_t o = 0;

	for (; *s && o + 3 < n; s++) {
		if (*s == '.') {
			out[o++] = '_';
			out[o++] = '_';
			up = true;
		} else if (*s == '_') {
			up = true;
		} else {
			out[o++] = up ? (char)toupper((unsigned char)*s) : *s;
			up = false;
		}
	}
	out[o] = '\0';
}

static void type_names(const char *full, char *type, char *desc, size_t n)
{
	full += *full == '.';
	to_type(full, type, n);
	to_lower(full, "__", desc, n - 16);
	strcat(desc, "__descriptor");
}

static int method_names(const char *package, const service_t *s, const method_t *m,
                        struct names *ret, char *error, size_t error_len)
{
	char full[256];
	bool out = m->has_server_streaming && m->server_streaming;
	bool in = m->has_client_streaming && m->client_streaming;

	if (snprintf(full, sizeof(full), "%s.%s.%s", package, s->name, m->name) > 200 ||
	    strlen(m->input_type) > 200 || strlen(m->output_type) > 200) {
		snprintf(error, error_len, "%s.%s: names longer than 200 characters", s->name,
		         m->name);
		return -EINVAL;
	}
	if (in && !out) {
		snprintf(
			error, error_len,
			"%s: a client stream with one answer is not offered; make it bidirectional",
			full);
		return -EINVAL;
	}
	to_lower(full, "_", ret->id, sizeof(ret->id));
	type_names(m->input_type, ret->in, ret->in_d, sizeof(ret->in));
	type_names(m->output_type, ret->out, ret->out_d, sizeof(ret->out));
	ret->kind = in ? "RPC_BIDI" : out ? "RPC_SERVER_STREAM" : "RPC_UNARY";
	return 0;
}

static void emit_cast(FILE *f, const char *id, const char *what, const char *type, const char *desc)
{
	fprintf(f,
	        "static inline const %s *%s_%s(const ProtobufCMessage *m)\n"
	        "{\n\tassert(m && m->descriptor == &%s);\n\treturn (const %s *)m;\n}\n",
	        type, id, what, desc, type);
}

static void emit_send(FILE *f, const char *id, const char *what, const char *type)
{
	fprintf(f,
	        "static inline int %s_%s(struct rpc_stream *s, const %s *m)\n"
	        "{\n\treturn rpc_stream_send(s, &m->base);\n}\n",
	        id, what, type);
}

static void emit_unary(FILE *f, const struct names *n)
{
	fprintf(f,
	        "static inline int %s_reply(struct rpc_call *c, const %s *reply)\n"
	        "{\n\treturn rpc_call_reply(c, &reply->base);\n}\n",
	        n->id, n->out);
	fprintf(f,
	        "static inline int %s_sync(struct rpc_channel *c, const %s *req, uint32_t "
	        "timeout_ms,\n"
	        "\t\t%s **ret, struct ros2_err *err)\n"
	        "{\n\tProtobufCMessage *reply = NULL;\n"
	        "\tint rc = rpc_unary_sync(c, &%s, &req->base, timeout_ms, &reply, err);\n\n"
	        "\tif (!rc)\n\t\t*ret = (%s *)reply;\n\treturn rc;\n}\n",
	        n->id, n->in, n->out, n->id, n->out);
	fprintf(f,
	        "static inline int %s_async(struct rpc_channel *c, const %s *req, uint32_t "
	        "timeout_ms,\n"
	        "\t\trpc_reply_fn fn, void *arg, struct rpc_request **ret, struct ros2_err *err)\n"
	        "{\n\treturn rpc_unary(c, &%s, &req->base, timeout_ms, fn, arg, ret, err);\n}\n",
	        n->id, n->in, n->id);
}

static void emit_method_header(FILE *f, const method_t *m, const struct names *n)
{
	fprintf(f, "/* %s: %s(%s) -> %s */\nextern const struct rpc_method %s;\n", m->name, n->kind,
	        n->in, n->out, n->id);
	emit_cast(f, n->id, "in", n->in, n->in_d);
	emit_cast(f, n->id, "out", n->out, n->out_d);
	if (!strcmp(n->kind, "RPC_UNARY"))
		emit_unary(f, n);
	else
		emit_send(f, n->id, "send_reply", n->out);
	if (!strcmp(n->kind, "RPC_BIDI"))
		emit_send(f, n->id, "send_request", n->in);
	fputc('\n', f);
}

static void emit_method_source(FILE *f, const char *package, const service_t *s, const method_t *m,
                               const struct names *n)
{
	fprintf(f,
	        "const struct rpc_method %s = {\n\t.path = \"/%s.%s/%s\",\n\t.name = \"%s.%s\",\n"
	        "\t.kind = %s,\n\t.input = &%s,\n\t.output = &%s,\n};\n",
	        n->id, package, s->name, m->name, s->name, m->name, n->kind, n->in_d, n->out_d);
}

static int emit_service(FILE *f, const char *package, const service_t *s, bool header, char *error,
                        size_t error_len)
{
	char full[256], id[256];
	struct names n;
	int rc;

	snprintf(full, sizeof(full), "%s.%s", package, s->name);
	to_lower(full, "_", id, sizeof(id));
	for (size_t i = 0; i < s->n_method; i++) {
		rc = method_names(package, s, s->method[i], &n, error, error_len);
		if (rc)
			return rc;
		if (header)
			emit_method_header(f, s->method[i], &n);
		else
			emit_method_source(f, package, s, s->method[i], &n);
	}
	if (header) {
		fprintf(f, "extern const struct rpc_service %s_service;\n\n", id);
		return 0;
	}
	fprintf(f, "static const struct rpc_method *const %s_methods[] = {\n", id);
	for (size_t i = 0; i < s->n_method; i++) {
		rc = method_names(package, s, s->method[i], &n, error, error_len);
		if (rc)
			return rc;
		fprintf(f, "\t&%s,\n", n.id);
	}
	fprintf(f,
	        "\tNULL,\n};\nconst struct rpc_service %s_service = {\n\t.name = \"%s\",\n"
	        "\t.methods = %s_methods,\n\t.n_methods = %zu,\n};\n\n",
	        id, full, id, s->n_method);
	return 0;
}

static void emit_prologue(FILE *f, const char *proto, const char *stem, bool header)
{
	char guard[256];
	size_t i;

	fprintf(f, "/* Made by protoc-gen-ros2rpc from %s. Do not edit. */\n", proto);
	if (!header) {
		fprintf(f, "#include \"%s.rpc.h\"\n\n", stem);
		return;
	}
	for (i = 0; stem[i] && i < sizeof(guard) - 1; i++)
		guard[i] = isalnum((unsigned char)stem[i]) ? (char)toupper((unsigned char)stem[i])
		                                           : '_';
	guard[i] = '\0';
	fprintf(f,
	        "#ifndef %s_RPC_H\n#define %s_RPC_H\n\n#include \"%s.pb-c.h\"\n"
	        "#include \"proto/rpc/rpc.h\"\n#include <assert.h>\n\n"
	        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
	        guard, guard, stem);
}

int emit_file(const Google__Protobuf__FileDescriptorProto *fd, bool header, char **ret_name,
              char **ret_text, char *error, size_t error_len)
{
	size_t stem_len = strlen(fd->name), len = 0;
	char stem[200];
	FILE *f;
	int rc = 0;

	if (stem_len > 6 && !strcmp(fd->name + stem_len - 6, ".proto"))
		stem_len -= 6;
	if (stem_len >= sizeof(stem)) {
		snprintf(error, error_len, "%s: file name too long", fd->name);
		return -EINVAL;
	}
	memcpy(stem, fd->name, stem_len);
	stem[stem_len] = '\0';
	if (asprintf(ret_name, "%s.rpc.%c", stem, header ? 'h' : 'c') < 0)
		return *ret_name = NULL, -ENOMEM;
	f = open_memstream(ret_text, &len);
	if (!f)
		return -errno;
	emit_prologue(f, fd->name, stem, header);
	for (size_t i = 0; i < fd->n_service && !rc; i++)
		rc = emit_service(f, fd->package ? fd->package : "", fd->service[i], header, error,
		                  error_len);
	if (header)
		fputs("#ifdef __cplusplus\n}\n#endif\n#endif\n", f);
	return fclose(f) ? -ENOMEM : rc;
}
