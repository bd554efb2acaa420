/* SPDX-License-Identifier: Apache-2.0 */
/* The busy tenant; see pump.h. */
#include "tests/bench/revoke/pump.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
/* glibc's netinet/tcp.h has an older struct tcp_info, without the counters. */
#include <linux/tcp.h>

#define BASE     (1ull << 20) /* where the tenant says its memory is: nobody looks */
#define FILE_MIB 16u

static ProtobufCBinaryData uid_of(struct pump *p)
{
	return (ProtobufCBinaryData){sizeof(p->session.uid), p->session.uid};
}

static int open_file(struct pump *p, struct raw *r, const char *ns, struct ros2_err *err)
{
	Ros2__V1__MountRequest mr = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest or = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__TruncateRequest tr = ROS2__V1__TRUNCATE_REQUEST__INIT;
	Ros2__V1__MountReply *m = NULL;
	Ros2__V1__OpenReply *o = NULL;
	Ros2__V1__Empty *e = NULL;
	int rc;

	mr.session_uid = or.session_uid = tr.session_uid = uid_of(p);
	mr.namespace_name = (char *)ns;
	rc = ros2_v1_tenant_mount_sync(r->channel, &mr, r->timeout_ms, &m, err);
	if (rc)
		return rc;
	or.mount = m->mount;
	or.path = (char *)"busy";
	or.flags = 7;
	or.mode = 0600;
	protobuf_c_message_free_unpacked(&m->base, NULL);
	rc = ros2_v1_tenant_open_sync(r->channel, & or, r->timeout_ms, &o, err);
	if (rc)
		return rc;
	p->handle = tr.handle = o->handle;
	tr.size = (uint64_t)FILE_MIB << 20;
	if (o->size != tr.size)
		rc = ros2_v1_tenant_truncate_sync(r->channel, &tr, r->timeout_ms, &e, err);
	protobuf_c_message_free_unpacked(&o->base, NULL);
	if (e)
		protobuf_c_message_free_unpacked(&e->base, NULL);
	return rc;
}

static int register_region(struct pump *p, struct raw *r, struct ros2_err *err)
{
	Ros2__V1__RegisterRegionRequest rr = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__RegisterRegionReply *reply = NULL;
	int rc;

	rr.session_uid = uid_of(p);
	rr.address = BASE;
	rr.length = (uint64_t)p->bytes * p->depth;
	rr.access = 2;
	rc = ros2_v1_tenant_register_region_sync(r->channel, &rr, r->timeout_ms, &reply, err);
	if (rc)
		return rc;
	p->key = reply->key;
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return 0;
}

static int ask(struct pump *p, uint64_t id)
{
	struct wire_header h = {.opcode = WIRE_READ,
	                        .request_id = id,
	                        .handle = p->handle,
	                        .offset = id * p->bytes % ((uint64_t)FILE_MIB << 20),
	                        .address = BASE + id % p->depth * p->bytes,
	                        .length = p->bytes,
	                        .key = p->key};

	raw_seal(&h);
	return raw_send(p->fd, &h, NULL);
}

static void *run(void *arg)
{
	struct pump *p = arg;
	AUTO_FREE uint8_t *payload = malloc(WIRE_IO_MAX);
	struct wire_header h;
	uint64_t next = 1;
	int rc = payload ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < p->depth && !rc; i++)
		rc = ask(p, next++);
	while (!rc) {
		rc = raw_receive(p->fd, &h, payload, 10000);
		if (rc || h.opcode != WIRE_COMPLETE) {
			if (!rc && h.opcode != WIRE_DATA && h.opcode != WIRE_PING)
				rc = -EPROTO;
			continue;
		}
		if (h.status != ROS2_OK || h.length != p->bytes)
			rc = -EREMOTEIO;
		atomic_fetch_add(&p->replies, 1);
		if (!rc)
			rc = ask(p, next++);
	}
	atomic_store(&p->end, rc);
	return NULL;
}

int pump_start(struct pump *p, struct raw *r, const char *ns, uint32_t bytes, uint32_t depth,
               struct ros2_err *err)
{
	enum ros2_status st = ROS2_OK;
	char words[257] = "";
	int rc;

	memset(p, 0, sizeof(*p));
	p->bytes = bytes;
	p->depth = depth;
	p->fd = -1;
	rc = raw_session_open(r, &p->session, err);
	if (!rc)
		rc = open_file(p, r, ns, err);
	if (!rc)
		rc = register_region(p, r, err);
	if (rc)
		return rc;
	p->fd = raw_dial(p->session.data_address, err);
	if (p->fd < 0)
		return p->fd;
	rc = raw_hello(p->fd, &p->session, &st, words);
	if (rc || st)
		rc = ros2_err_set(err, -EPROTO, "HELLO: %s %s", ros2_status_to_str(st), words);
	else if (pthread_create(&p->thread, NULL, run, p))
		rc = ros2_err_set(err, -EAGAIN, "no thread");
	if (rc)
		util_close_cleanup(&p->fd);
	return rc;
}

uint64_t pump_arrived(const struct pump *p)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return UINT64_MAX;
	return info.tcpi_bytes_received;
}

int pump_join(struct pump *p, int timeout_ms)
{
	struct timespec until;
	int late;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	late = pthread_timedjoin_np(p->thread, NULL, &until);
	if (late) {
		shutdown(p->fd, SHUT_RDWR);
		pthread_join(p->thread, NULL);
	}
	return late ? -ETIMEDOUT : atomic_load(&p->end);
}
