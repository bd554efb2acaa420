/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protoc-gen-ros2rpc: reads a CodeGeneratorRequest from stdin and writes, for each .proto,
 * NAME.rpc.h and NAME.rpc.c: the method tables of proto/rpc/rpc.h and typed wrappers. It exists
 * because protobuf-c's own service descriptors do not say which methods stream. It must never
 * guess: what it cannot express is an error of the build.
 */
#include "proto/plugin/emit.h"
#include <errno.h>
#include <google/protobuf/compiler/plugin.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_MAX ((size_t)64 << 20)

static int read_all(FILE *f, uint8_t **ret, size_t *ret_len)
{
	size_t cap = 1 << 16, len = 0, n;
	uint8_t *p = malloc(cap), *bigger;

	while (p && (n = fread(p + len, 1, cap - len, f)) > 0) {
		len += n;
		if (len < cap)
			continue;
		bigger = cap < REQUEST_MAX ? realloc(p, cap *= 2) : NULL;
		if (!bigger)
			free(p);
		p = bigger;
	}
	if (!p)
		return -ENOMEM;
	if (ferror(f)) {
		free(p);
		return -EIO;
	}
	*ret = p;
	*ret_len = len;
	return 0;
}

static const Google__Protobuf__FileDescriptorProto *
find_file(const Google__Protobuf__Compiler__CodeGeneratorRequest *req, const char *name)
{
	for (size_t i = 0; i < req->n_proto_file; i++)
		if (!strcmp(req->proto_file[i]->name, name))
			return req->proto_file[i];
	return NULL;
}

static int write_reply(Google__Protobuf__Compiler__CodeGeneratorResponse *reply)
{
	size_t n = google__protobuf__compiler__code_generator_response__get_packed_size(reply);
	uint8_t *p = malloc(n + 1);
	int rc = -ENOMEM;

	if (p) {
		google__protobuf__compiler__code_generator_response__pack(reply, p);
		rc = fwrite(p, 1, n, stdout) == n && !fflush(stdout) ? 0 : -EIO;
	}
	free(p);
	return rc;
}

static int generate(const Google__Protobuf__Compiler__CodeGeneratorRequest *req,
                    Google__Protobuf__Compiler__CodeGeneratorResponse *reply, char *error,
                    size_t error_len)
{
	Google__Protobuf__Compiler__CodeGeneratorResponse__File *f;
	const Google__Protobuf__FileDescriptorProto *fd;
	int rc = 0;

	for (size_t i = 0; i < req->n_file_to_generate && !rc; i++) {
		fd = find_file(req, req->file_to_generate[i]);
		if (!fd) {
			snprintf(error, error_len, "no descriptor of %s", req->file_to_generate[i]);
			return -ENOENT;
		}
		for (int header = 1; header >= 0 && !rc; header--) {
			f = calloc(1, sizeof(*f));
			if (!f)
				return -ENOMEM;
			google__protobuf__compiler__code_generator_response__file__init(f);
			reply->file[reply->n_file++] = f;
			rc = emit_file(fd, header, &f->name, &f->content, error, error_len);
		}
	}
	return rc;
}

int main(void)
{
	Google__Protobuf__Compiler__CodeGeneratorResponse reply =
		GOOGLE__PROTOBUF__COMPILER__CODE_GENERATOR_RESPONSE__INIT;
	Google__Protobuf__Compiler__CodeGeneratorRequest *req = NULL;
	char error[256] = "";
	uint8_t *bytes = NULL;
	size_t len = 0;
	int rc;

	rc = read_all(stdin, &bytes, &len);
	if (!rc)
		req = google__protobuf__compiler__code_generator_request__unpack(NULL, len, bytes);
	free(bytes);
	if (!req) {
		fprintf(stderr, "protoc-gen-ros2rpc: expected a CodeGeneratorRequest on stdin\n");
		return 1;
	}
	reply.file = calloc(2 * req->n_file_to_generate + 1, sizeof(*reply.file));
	rc = reply.file ? generate(req, &reply, error, sizeof(error)) : -ENOMEM;
	if (rc) {
		reply.error = error[0] ? error : strerror(-rc);
		size_t n = reply.n_file;
		reply.n_file = 0;
		rc = write_reply(&reply);
		reply.n_file = n;
	} else {
		rc = write_reply(&reply);
	}
	for (size_t i = 0; i < reply.n_file; i++) {
		free(reply.file[i]->name);
		free(reply.file[i]->content);
		free(reply.file[i]);
	}
	free(reply.file);
	google__protobuf__compiler__code_generator_request__free_unpacked(req, NULL);
	return rc ? 1 : 0;
}
