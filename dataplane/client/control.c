/* SPDX-License-Identifier: Apache-2.0 */
/* The control calls of a tenant as messages. What the agent answers is checked before it is used.
 */
#include "dataplane/client/control.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/utf8.h"
#include "common/util.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/wire.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS     10000u
#define PAUSE_FIRST_MS 4u
#define PAUSE_MAX_MS   200u

#define UID(u)                                                                                     \
	{                                                                                          \
		16, (uint8_t *)(u)                                                                 \
	}

/* Over the tenant's rate of calls, or with too many of them under way, the agent does nothing: a
 * call that has the usual time waits, and is made again while some of it is left. Others (closing,
 * renewing, asking why) are short. */
static int call_paced(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                      ProtobufCMessage **ret, struct ros2_err *err)
{
	uint32_t usual_ms = c->timeout_ms ? c->timeout_ms : TIMEOUT_MS, pause_ms = PAUSE_FIRST_MS;
	uint64_t now = clock_monotonic_ns(), until = clock_add_ns(now, usual_ms * NS_PER_MS);

	for (;;) {
		uint64_t left_ms = (until - now) / NS_PER_MS, wait_ms;
		int rc;

		*err = (struct ros2_err)ROS2_ERR_INIT;
		rc = c->call(c, m, req, (uint32_t)MAX(left_ms, (uint64_t)1), ret, err);
		if (!rc || (err->status != ROS2_RATE && err->status != ROS2_BUSY) ||
		    CLIENT_SWITCH(no_pacing))
			return rc;
		wait_ms = pause_ms / 2 + crypto_random_u32() % (pause_ms / 2 + 1);
		if (clock_monotonic_ns() + wait_ms * NS_PER_MS >= until)
			return rc;
		/* time: the agent's bucket fills by it, and what it is at ends */
		usleep((useconds_t)(wait_ms * 1000));
		pause_ms = MIN(pause_ms * 2, PAUSE_MAX_MS);
		now = clock_monotonic_ns();
		if (now >= until)
			return rc;
	}
}

static int call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                uint32_t timeout_ms, ProtobufCMessage **ret, struct ros2_err *err)
{
	struct ros2_err own = ROS2_ERR_INIT;
	ProtobufCMessage *reply = NULL;
	int rc = timeout_ms ? c->call(c, m, req, timeout_ms, &reply, &own)
	                    : call_paced(c, m, req, &reply, &own);

	if (rc) {
		utf8_clean(own.msg);
		if (err)
			*err = own;
		return rc;
	}
	if (!reply || reply->descriptor != m->output) {
		protobuf_c_message_free_unpacked(reply, NULL);
		return ros2_err_named(err, ROS2_PROTOCOL, "%s was answered by another message",
		                      m->name);
	}
	*ret = reply;
	return 0;
}

/* For calls whose reply says nothing. */
static int call_empty(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                      uint32_t timeout_ms, struct ros2_err *err)
{
	ProtobufCMessage *reply = NULL;
	int rc = call(c, m, req, timeout_ms, &reply, err);

	if (!rc)
		protobuf_c_message_free_unpacked(reply, NULL);
	return rc;
}

static enum ros2_transport transport_of(Ros2__V1__Transport t)
{
	switch (t) {
	case ROS2__V1__TRANSPORT__TRANSPORT_VERBS:
		return ROS2_TRANSPORT_VERBS;
	case ROS2__V1__TRANSPORT__TRANSPORT_SHM:
		return ROS2_TRANSPORT_SHM;
	default:
		/* Agents before verbs say nothing. */
		return ROS2_TRANSPORT_TCP;
	}
}

static int session_of(const Ros2__V1__OpenSessionReply *p, struct control_session *ret,
                      struct ros2_err *err)
{
	if (p->session_uid.len != 16 || p->secret.len != WIRE_SECRET_LEN || !p->data_address ||
	    strlen(p->data_address) >= sizeof(ret->data_address))
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent's OpenSession reply lacks a uid of 16 bytes, a "
		                      "secret of 32 or an address");
	*ret = (struct control_session){
		.credits = p->credits,
		.max_io = p->max_io,
		.max_inline = p->max_inline,
		.lease_ttl_ms = p->lease_ttl_ms,
		.regions_max = p->regions_max,
		.region_bytes_max = p->region_bytes_max,
		.region_size_min = p->region_size_min,
		.region_size_max = p->region_size_max,
		.region_alignment = p->region_alignment,
		.transport = transport_of(p->transport),
	};
	memcpy(ret->uid, p->session_uid.data, 16);
	memcpy(ret->secret, p->secret.data, WIRE_SECRET_LEN);
	snprintf(ret->data_address, sizeof(ret->data_address), "%s", p->data_address);
	snprintf(ret->tenant, sizeof(ret->tenant), "%s", p->tenant ? p->tenant : "");
	utf8_clean(ret->data_address);
	utf8_clean(ret->tenant);
	return 0;
}

int control_open_session(struct control *c, enum ros2_transport transport, uint64_t shm_bytes,
                         struct control_session *ret, struct ros2_err *err)
{
	static const Ros2__V1__Transport names[] = {
		[ROS2_TRANSPORT_AUTO] = ROS2__V1__TRANSPORT__TRANSPORT_ANY,
		[ROS2_TRANSPORT_TCP] = ROS2__V1__TRANSPORT__TRANSPORT_TCP,
		[ROS2_TRANSPORT_VERBS] = ROS2__V1__TRANSPORT__TRANSPORT_VERBS,
		[ROS2_TRANSPORT_SHM] = ROS2__V1__TRANSPORT__TRANSPORT_SHM,
	};
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.protocol = WIRE_VERSION;
	req.transport = names[transport];
	req.shared_memory_bytes = transport == ROS2_TRANSPORT_SHM ? shm_bytes : 0;
	req.software = (char *)"libros2 " ROS2_VERSION_STRING;
	rc = call(c, &ros2_v1_tenant_open_session, &req.base, 0, &reply, err);
	if (rc)
		return rc;
	rc = session_of(ros2_v1_tenant_open_session_out(reply), ret, err);
	if (!rc && (transport == ROS2_TRANSPORT_AUTO ? ret->transport == ROS2_TRANSPORT_SHM
	                                             : ret->transport != transport))
		rc = ros2_err_named(err, ROS2_PROTOCOL,
		                    "the agent opened a session over another transport than asked");
	protobuf_c_message_free_unpacked(reply, NULL);
	return rc;
}

int control_close_session(struct control *c, const uint8_t uid[16], uint32_t timeout_ms,
                          struct ros2_err *err)
{
	Ros2__V1__SessionRef req = ROS2__V1__SESSION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	return call_empty(c, &ros2_v1_tenant_close_session, &req.base, timeout_ms, err);
}

int control_mount(struct control *c, const uint8_t uid[16], const char *name, uint32_t *ret_mount,
                  struct ros2_err *err)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.namespace_name = (char *)name;
	rc = call(c, &ros2_v1_tenant_mount, &req.base, 0, &reply, err);
	if (rc)
		return rc;
	*ret_mount = ros2_v1_tenant_mount_out(reply)->mount;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int control_open(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                 uint32_t flags, uint32_t mode, uint64_t *ret_handle, struct ros2_err *err)
{
	Ros2__V1__OpenRequest req = ROS2__V1__OPEN_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.mount = mount;
	req.path = (char *)path;
	req.flags = flags;
	req.mode = mode;
	rc = call(c, &ros2_v1_tenant_open, &req.base, 0, &reply, err);
	if (rc)
		return rc;
	*ret_handle = ros2_v1_tenant_open_out(reply)->handle;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int control_close(struct control *c, const uint8_t uid[16], uint64_t handle, struct ros2_err *err)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.handle = handle;
	return call_empty(c, &ros2_v1_tenant_close, &req.base, 0, err);
}

static void stat_of(const Ros2__V1__StatReply *p, struct ros2_stat *ret)
{
	*ret = (struct ros2_stat){
		.size = p->size,
		.mtime_unix_ns = p->mtime_unix_ns,
		.blocks_512 = p->blocks_512,
		.mode = p->mode,
		.block_size = p->block_size,
		.type = (uint8_t)p->type,
	};
}

int control_stat_handle(struct control *c, const uint8_t uid[16], uint64_t handle,
                        uint32_t timeout_ms, struct ros2_stat *ret, struct ros2_err *err)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.handle = handle;
	rc = call(c, &ros2_v1_tenant_stat_handle, &req.base, timeout_ms, &reply, err);
	if (rc)
		return rc;
	stat_of(ros2_v1_tenant_stat_handle_out(reply), ret);
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int control_truncate(struct control *c, const uint8_t uid[16], uint64_t handle, uint64_t size,
                     struct ros2_err *err)
{
	Ros2__V1__TruncateRequest req = ROS2__V1__TRUNCATE_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.handle = handle;
	req.size = size;
	return call_empty(c, &ros2_v1_tenant_truncate, &req.base, 0, err);
}

int control_stat(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                 uint32_t timeout_ms, struct ros2_stat *ret, struct ros2_err *err)
{
	Ros2__V1__PathRequest req = ROS2__V1__PATH_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.mount = mount;
	req.path = (char *)path;
	rc = call(c, &ros2_v1_tenant_stat, &req.base, timeout_ms, &reply, err);
	if (rc)
		return rc;
	stat_of(ros2_v1_tenant_stat_out(reply), ret);
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int control_path(struct control *c, const uint8_t uid[16], uint32_t mount, enum control_path_op op,
                 const char *path, uint32_t mode, struct ros2_err *err)
{
	static const struct rpc_method *const methods[] = {
		[CONTROL_MKDIR] = &ros2_v1_tenant_mkdir,
		[CONTROL_UNLINK] = &ros2_v1_tenant_unlink,
		[CONTROL_RMDIR] = &ros2_v1_tenant_rmdir,
	};
	Ros2__V1__PathRequest req = ROS2__V1__PATH_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.mount = mount;
	req.path = (char *)path;
	req.mode = mode;
	return call_empty(c, methods[op], &req.base, 0, err);
}

int control_rename(struct control *c, const uint8_t uid[16], uint32_t mount, const char *from,
                   const char *to, struct ros2_err *err)
{
	Ros2__V1__RenameRequest req = ROS2__V1__RENAME_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.mount = mount;
	req.from = (char *)from;
	req.to = (char *)to;
	return call_empty(c, &ros2_v1_tenant_rename, &req.base, 0, err);
}

static int entries_of(const Ros2__V1__ReaddirReply *p, struct ros2_dirent *out, uint32_t max,
                      uint64_t *cookie, struct ros2_err *err)
{
	if (p->n_entries > max)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent %zu directory entries, at most %u were asked",
		                      p->n_entries, max);
	for (size_t i = 0; i < p->n_entries; i++) {
		const Ros2__V1__DirEntry *e = p->entries[i];

		if (!e->name || !e->name[0] || strlen(e->name) >= sizeof(out[i].name) ||
		    strchr(e->name, '/') || !strcmp(e->name, ".") || !strcmp(e->name, ".."))
			return ros2_err_named(err, ROS2_PROTOCOL,
			                      "the agent sent a directory entry that is no name");
		snprintf(out[i].name, sizeof(out[i].name), "%s", e->name);
		out[i].type = (uint8_t)e->type;
	}
	/* Whoever asks until there is no cookie would ask for ever. */
	if (*cookie && p->next_cookie == *cookie)
		return ros2_err_named(
			err, ROS2_PROTOCOL,
			"the agent's directory does not go on: behind a page it names "
			"the same page again");
	*cookie = p->next_cookie;
	return (int)p->n_entries;
}

int control_readdir(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                    uint64_t *cookie, struct ros2_dirent *out, uint32_t max, struct ros2_err *err)
{
	Ros2__V1__ReaddirRequest req = ROS2__V1__READDIR_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.mount = mount;
	req.path = (char *)path;
	req.cookie = *cookie;
	req.limit = MIN(max, 1024u);
	rc = call(c, &ros2_v1_tenant_readdir, &req.base, 0, &reply, err);
	if (rc)
		return rc;
	rc = entries_of(ros2_v1_tenant_readdir_out(reply), out, req.limit, cookie, err);
	protobuf_c_message_free_unpacked(reply, NULL);
	return rc;
}

/* A lease without a key or a ttl would be renewed in a tight loop, or never. */
static int check_lease(const struct control_lease *l, struct ros2_err *err)
{
	if (!l->key || !l->ttl_ms)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent gave a lease with key %u and a ttl of %u ms",
		                      l->key ? 1 : 0, l->ttl_ms);
	return 0;
}

int control_register(struct control *c, const uint8_t uid[16], uint64_t addr, uint64_t len,
                     uint32_t access, struct control_lease *ret, struct ros2_err *err)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	const Ros2__V1__RegisterRegionReply *p;
	ProtobufCMessage *reply = NULL;
	struct control_lease l;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.address = addr;
	req.length = len;
	req.access = access;
	rc = call(c, &ros2_v1_tenant_register_region, &req.base, 0, &reply, err);
	if (rc)
		return rc;
	p = ros2_v1_tenant_register_region_out(reply);
	l = (struct control_lease){p->key, p->generation, p->ttl_ms};
	protobuf_c_message_free_unpacked(reply, NULL);
	rc = check_lease(&l, err);
	if (!rc)
		*ret = l;
	return rc;
}

int control_renew(struct control *c, const uint8_t uid[16], uint32_t key, uint32_t timeout_ms,
                  struct control_lease *ret, struct ros2_err *err)
{
	Ros2__V1__RegionRef req = ROS2__V1__REGION_REF__INIT;
	const Ros2__V1__RenewRegionReply *p;
	ProtobufCMessage *reply = NULL;
	struct control_lease l;
	int rc;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.key = key;
	rc = call(c, &ros2_v1_tenant_renew_region, &req.base, timeout_ms, &reply, err);
	if (rc)
		return rc;
	p = ros2_v1_tenant_renew_region_out(reply);
	l = (struct control_lease){p->key, p->generation, p->ttl_ms};
	protobuf_c_message_free_unpacked(reply, NULL);
	rc = check_lease(&l, err);
	if (!rc)
		*ret = l;
	return rc;
}

int control_deregister(struct control *c, const uint8_t uid[16], uint32_t key, uint32_t timeout_ms,
                       struct ros2_err *err)
{
	Ros2__V1__RegionRef req = ROS2__V1__REGION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData)UID(uid);
	req.key = key;
	return call_empty(c, &ros2_v1_tenant_deregister_region, &req.base, timeout_ms, err);
}
