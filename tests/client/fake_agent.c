/* SPDX-License-Identifier: Apache-2.0 */
/* The control half of the fake agent, its life and its files; the wire half is in fake_wire.c. */
#include "tests/client/fake_agent.h"
#include "common/crypto.h"
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/fake_wire.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- files ---- */

static int find_file(struct fake_agent *a, const char *path)
{
	for (int i = 0; i < FAKE_FILES; i++)
		if (a->files[i].data && !strcmp(a->files[i].path, path))
			return i;
	return -1;
}

static int make_file(struct fake_agent *a, const char *path)
{
	for (int i = 0; i < FAKE_FILES; i++) {
		if (a->files[i].data)
			continue;
		snprintf(a->files[i].path, sizeof(a->files[i].path), "%s", path);
		a->files[i].data = calloc(1, FAKE_FILE_MAX);
		return i;
	}
	return -1;
}

uint8_t *fake_agent_file(struct fake_agent *a, const char *path, uint64_t size)
{
	int i = find_file(a, path);

	if (i < 0)
		i = make_file(a, path);
	a->files[i].size = size;
	return a->files[i].data;
}

/* ---- control ---- */

struct fake_control {
	struct control base;
	struct fake_agent *agent;
};

static int find_session(struct fake_agent *a, ProtobufCBinaryData uid)
{
	for (int i = 0; i < MIN(a->n_sessions, FAKE_SESSIONS); i++)
		if (uid.len == 16 && a->sessions[i].live &&
		    !memcmp(a->sessions[i].uid, uid.data, 16))
			return i;
	return -1;
}

static void *take(size_t size, const ProtobufCMessageDescriptor *d)
{
	void *m = calloc(1, size);

	protobuf_c_message_init(d, m);
	return m;
}
#define NEW(type, lower) ((type *)take(sizeof(type), &ros2__v1__##lower##__descriptor))

static ProtobufCBinaryData copy_bytes(const void *p, size_t n)
{
	ProtobufCBinaryData b = {n, malloc(n)};

	memcpy(b.data, p, n);
	return b;
}

/* With what it held. */
static void end_session(struct fake_agent *a, int session)
{
	a->sessions[session].live = false;
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (a->leases[i].session == session)
			a->leases[i].live = false;
}

/* A place of one that was closed; without one, that of the oldest. */
static struct fake_session *free_session(struct fake_agent *a)
{
	int n = a->n_sessions++;

	for (int i = 0; i < MIN(n, FAKE_SESSIONS); i++)
		if (!a->sessions[i].live)
			return &a->sessions[i];
	return &a->sessions[n % FAKE_SESSIONS];
}

static ProtobufCMessage *open_session(struct fake_agent *a, const Ros2__V1__OpenSessionRequest *q)
{
	bool shm = q->transport == ROS2__V1__TRANSPORT__TRANSPORT_SHM;
	Ros2__V1__OpenSessionReply *r = NEW(Ros2__V1__OpenSessionReply, open_session_reply);
	struct fake_session *s = free_session(a);
	char address[128];

	a->n_sessions_opened++;
	a->n_live_at_open = 0;
	for (int i = 0; i < FAKE_SESSIONS; i++)
		a->n_live_at_open += a->sessions[i].live;
	end_session(a, (int)(s - a->sessions));
	crypto_random(s->uid, sizeof(s->uid));
	crypto_random(s->secret, sizeof(s->secret));
	s->live = true;
	s->proved = false;
	s->fd = -1;
	s->n_mounts = 0;
	memset(s->n_open, 0, sizeof(s->n_open));
	s->handle_base = 0x1000u * (uint64_t)a->n_sessions;
	if (shm)
		snprintf(address, sizeof(address), "unix:%s", a->shm_path);
	else
		snprintf(address, sizeof(address), "127.0.0.1:%u", a->port);
	if (shm) {
		r->transport = q->transport;
		a->last_shm_bytes = q->shared_memory_bytes;
		s->shm_bytes = q->shared_memory_bytes ? q->shared_memory_bytes : a->shm_bytes;
		r->shared_memory_bytes = s->shm_bytes;
	}
	r->session_uid = copy_bytes(s->uid, 16);
	r->secret = copy_bytes(s->secret, 32);
	r->data_address = strdup(address);
	r->tenant = strdup("alpha");
	r->credits = a->credits;
	r->max_io = a->max_io;
	r->max_inline = a->max_inline;
	r->lease_ttl_ms = a->ttl_ms;
	r->region_size_min = a->region_size_min;
	r->region_size_max = a->region_size_max;
	r->region_alignment = a->region_alignment;
	return &r->base;
}

/* As the agent does: from 1 in each session. */
static ProtobufCMessage *mount(struct fake_agent *a, struct fake_session *s,
                               const Ros2__V1__MountRequest *q, enum ros2_status *st)
{
	Ros2__V1__MountReply *r;

	if (a->mount_status && !strcmp(q->namespace_name, a->refused_mount))
		*st = a->mount_status;
	else if (s->n_mounts == FAKE_MOUNTS)
		*st = ROS2_LIMIT;
	if (*st)
		return NULL;
	snprintf(s->mounts[s->n_mounts++], sizeof(s->mounts[0]), "%s", q->namespace_name);
	r = NEW(Ros2__V1__MountReply, mount_reply);
	r->mount = s->n_mounts;
	return &r->base;
}

static bool is_too_busy(struct fake_agent *a, const struct rpc_method *m)
{
	if (!a->busy_next || (m != &ros2_v1_tenant_mount && m != &ros2_v1_tenant_open))
		return false;
	a->busy_next--;
	return true;
}

static bool names_a_path(const struct rpc_method *m)
{
	return m == &ros2_v1_tenant_open || m == &ros2_v1_tenant_stat ||
	       m == &ros2_v1_tenant_readdir || m == &ros2_v1_tenant_mkdir ||
	       m == &ros2_v1_tenant_unlink || m == &ros2_v1_tenant_rmdir ||
	       m == &ros2_v1_tenant_rename;
}

static enum ros2_status check_handle(struct fake_agent *a, const struct fake_session *s,
                                     const struct rpc_method *m, const ProtobufCMessage *req)
{
	uint64_t handle, file;

	/* All three name it where HandleRef does. */
	if (m != &ros2_v1_tenant_close && m != &ros2_v1_tenant_stat_handle &&
	    m != &ros2_v1_tenant_truncate)
		return ROS2_OK;
	handle = ((const Ros2__V1__HandleRef *)req)->handle;
	file = handle & 0xfff;
	if ((handle & ~0xfffull) == s->handle_base && file < FAKE_FILES && s->n_open[file])
		return ROS2_OK;
	a->n_bad_handles++;
	return ROS2_BAD_HANDLE;
}

/* Calls on a path name their mount where PathRequest does. */
static enum ros2_status act_in(struct fake_agent *a, const struct fake_session *s,
                               const struct rpc_method *m, const ProtobufCMessage *req)
{
	uint32_t n;

	if (!names_a_path(m))
		return ROS2_OK;
	n = ((const Ros2__V1__PathRequest *)req)->mount;
	if (!n || n > s->n_mounts) {
		a->n_bad_mounts++;
		return ROS2_NOT_FOUND;
	}
	snprintf(a->acted_in, sizeof(a->acted_in), "%s", s->mounts[n - 1]);
	return ROS2_OK;
}

static ProtobufCMessage *open_file(struct fake_agent *a, int session,
                                   const Ros2__V1__OpenRequest *q, enum ros2_status *st)
{
	Ros2__V1__OpenReply *r;
	int file = find_file(a, q->path);

	a->n_opens++;
	a->last_open_flags = q->flags;
	if (file >= 0 && q->flags & ROS2_O_EXCL)
		*st = ROS2_EXISTS;
	else if (file < 0 && !(q->flags & ROS2_O_CREAT))
		*st = ROS2_NOT_FOUND;
	if (*st)
		return NULL;
	if (file < 0) {
		file = make_file(a, q->path);
		a->did.made++;
	}
	a->sessions[session].n_open[file]++;
	r = NEW(Ros2__V1__OpenReply, open_reply);
	r->handle = a->sessions[session].handle_base + (uint64_t)file;
	return &r->base;
}

static ProtobufCMessage *register_region(struct fake_agent *a, int session,
                                         const Ros2__V1__RegisterRegionRequest *q)
{
	Ros2__V1__RegisterRegionReply *r =
		NEW(Ros2__V1__RegisterRegionReply, register_region_reply);
	struct fake_lease *l = &a->leases[a->next_key % FAKE_REGIONS];

	a->n_registers++;
	*l = (struct fake_lease){
		++a->next_key * 7919, a->next_key, q->address, q->length, q->access, session, true};
	r->key = l->key;
	r->generation = l->generation;
	r->ttl_ms = a->ttl_ms;
	return &r->base;
}

static struct fake_lease *find_lease(struct fake_agent *a, uint32_t key)
{
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (a->leases[i].live && a->leases[i].key == key)
			return &a->leases[i];
	return NULL;
}

static ProtobufCMessage *renew_region(struct fake_agent *a, const Ros2__V1__RegionRef *q,
                                      enum ros2_status *st)
{
	struct fake_lease *l = find_lease(a, q->key);
	Ros2__V1__RenewRegionReply *r;

	a->n_renewals++;
	if (!l) {
		*st = ROS2_BAD_KEY;
		return NULL;
	}
	if (a->rotate_keys) {
		l->key = ++a->next_key * 7919;
		l->generation = a->next_key;
	}
	r = NEW(Ros2__V1__RenewRegionReply, renew_region_reply);
	r->key = l->key;
	r->generation = l->generation;
	r->ttl_ms = a->ttl_ms;
	return &r->base;
}

static ProtobufCMessage *stat_file(struct fake_agent *a, int file, enum ros2_status *st)
{
	Ros2__V1__StatReply *r;

	if (file < 0 || file >= FAKE_FILES || !a->files[file].data) {
		*st = ROS2_NOT_FOUND;
		return NULL;
	}
	r = NEW(Ros2__V1__StatReply, stat_reply);
	r->type = ROS2__V1__FILE_TYPE__FILE_TYPE_REGULAR;
	r->size = a->stat_size ? a->stat_size : a->files[file].size;
	r->block_size = a->block_size;
	return &r->base;
}

static void add_entry(Ros2__V1__ReaddirReply *r, const char *name, Ros2__V1__FileType type)
{
	Ros2__V1__DirEntry *e = NEW(Ros2__V1__DirEntry, dir_entry);

	e->name = strdup(name);
	e->type = type;
	r->entries[r->n_entries++] = e;
}

static ProtobufCMessage *list_files(struct fake_agent *a, const Ros2__V1__ReaddirRequest *q)
{
	Ros2__V1__ReaddirReply *r = NEW(Ros2__V1__ReaddirReply, readdir_reply);

	r->entries = calloc(FAKE_FILES, sizeof(Ros2__V1__DirEntry *));
	if (++a->n_pages < FAKE_PAGES && a->dir_evil)
		r->next_cookie = a->dir_evil == DIR_SAME_PAGE ? 1 : q->cookie + 1;
	if (a->dir_evil == DIR_LINKS)
		add_entry(r, "link", ROS2__V1__FILE_TYPE__FILE_TYPE_OTHER);
	if (a->dir_evil > DIR_SAME_PAGE)
		return &r->base;
	for (int i = 0; i < FAKE_FILES; i++)
		if (a->files[i].data && a->files[i].path[0])
			add_entry(r, a->files[i].path, ROS2__V1__FILE_TYPE__FILE_TYPE_REGULAR);
	return &r->base;
}

/* ---- what changes names ---- */

static char *find_dir(struct fake_agent *a, const char *path)
{
	for (int i = 0; i < FAKE_DIRS; i++)
		if (!strcmp(a->dirs[i], path))
			return a->dirs[i];
	return NULL;
}

static enum ros2_status make_dir(struct fake_agent *a, const char *path)
{
	char *place = find_dir(a, "");

	if (find_dir(a, path))
		return ROS2_EXISTS;
	if (!place)
		return ROS2_NO_SPACE;
	snprintf(place, sizeof(a->dirs[0]), "%s", path);
	a->did.dirs_made++;
	return ROS2_OK;
}

static enum ros2_status remove_dir(struct fake_agent *a, const char *path)
{
	char *dir = find_dir(a, path);

	if (!dir)
		return ROS2_NOT_FOUND;
	dir[0] = 0;
	a->did.dirs_removed++;
	return ROS2_OK;
}

/* What has it open goes on. */
static enum ros2_status unlink_file(struct fake_agent *a, const char *path)
{
	int file = find_file(a, path);

	if (file < 0)
		return ROS2_NOT_FOUND;
	a->files[file].path[0] = 0;
	a->did.unlinked++;
	return ROS2_OK;
}

static enum ros2_status rename_file(struct fake_agent *a, const Ros2__V1__RenameRequest *q)
{
	int file = find_file(a, q->from), replaced = find_file(a, q->to);

	if (file < 0)
		return ROS2_NOT_FOUND;
	if (replaced >= 0)
		a->files[replaced].path[0] = 0;
	snprintf(a->files[file].path, sizeof(a->files[file].path), "%s", q->to);
	a->did.renamed++;
	return ROS2_OK;
}

static enum ros2_status change(struct fake_agent *a, const struct rpc_method *m,
                               const ProtobufCMessage *req)
{
	if (m == &ros2_v1_tenant_mkdir)
		return make_dir(a, ros2_v1_tenant_mkdir_in(req)->path);
	if (m == &ros2_v1_tenant_rmdir)
		return remove_dir(a, ros2_v1_tenant_rmdir_in(req)->path);
	if (m == &ros2_v1_tenant_unlink)
		return unlink_file(a, ros2_v1_tenant_unlink_in(req)->path);
	if (m == &ros2_v1_tenant_rename)
		return rename_file(a, ros2_v1_tenant_rename_in(req));
	return ROS2_OK;
}

/* ---- calls ---- */

/* What gives up a handle, a lease or the session, and what cuts a file. */
static void give_up(struct fake_agent *a, int session, const struct rpc_method *m,
                    const ProtobufCMessage *req)
{
	if (m == &ros2_v1_tenant_close)
		a->sessions[session].n_open[ros2_v1_tenant_close_in(req)->handle & 0xfff]--;
	if (m == &ros2_v1_tenant_deregister_region) {
		struct fake_lease *l = find_lease(a, ros2_v1_tenant_deregister_region_in(req)->key);

		if (l)
			l->live = false;
	}
	if (m == &ros2_v1_tenant_truncate) {
		const Ros2__V1__TruncateRequest *q = ros2_v1_tenant_truncate_in(req);

		a->files[q->handle & 0xfff].size = q->size;
		a->did.cut++;
	}
	if (m == &ros2_v1_tenant_close_session)
		end_session(a, session);
}

/* A bucket of ten calls; those that keep or give up are not counted. */
static bool over_the_rate(struct fake_agent *a, const struct rpc_method *m)
{
	uint64_t now = clock_monotonic_ns(), each = a->verbs_per_s ? NS_PER_S / a->verbs_per_s : 0;

	if (!each || m == &ros2_v1_tenant_close || m == &ros2_v1_tenant_close_session ||
	    m == &ros2_v1_tenant_renew_region || m == &ros2_v1_tenant_deregister_region)
		return false;
	if (MAX(a->verbs_ns, now - 10 * each) + each > now) {
		a->n_over_rate++;
		return true;
	}
	a->verbs_ns = MAX(a->verbs_ns, now - 10 * each) + each;
	return false;
}

/* Every request but OpenSession begins with the session's uid. */
static ProtobufCMessage *dispatch(struct fake_agent *a, const struct rpc_method *m,
                                  const ProtobufCMessage *req, enum ros2_status *st)
{
	int session;

	*st = over_the_rate(a, m) ? ROS2_RATE : ROS2_OK;
	if (*st)
		return NULL;
	if (m == &ros2_v1_tenant_open_session) {
		*st = a->open_status;
		return *st ? NULL : open_session(a, ros2_v1_tenant_open_session_in(req));
	}
	session = find_session(a, ((const Ros2__V1__SessionRef *)req)->session_uid);
	*st = a->session_status ? a->session_status : session < 0 ? ROS2_BAD_SESSION : ROS2_OK;
	if (!*st && is_too_busy(a, m))
		*st = ROS2_BUSY;
	if (!*st)
		*st = act_in(a, &a->sessions[session], m, req);
	if (!*st)
		*st = check_handle(a, &a->sessions[session], m, req);
	if (*st)
		return NULL;
	if (m == &ros2_v1_tenant_mount)
		return mount(a, &a->sessions[session], ros2_v1_tenant_mount_in(req), st);
	if (m == &ros2_v1_tenant_open)
		return open_file(a, session, ros2_v1_tenant_open_in(req), st);
	if (m == &ros2_v1_tenant_close_session)
		*st = a->close_status;
	if (m == &ros2_v1_tenant_register_region && a->register_status) {
		a->n_registers_refused++;
		*st = a->register_status;
	}
	if (m == &ros2_v1_tenant_renew_region && a->renew_status) {
		a->n_renewals++;
		*st = a->renew_status;
	}
	if (*st)
		return NULL;
	if (m == &ros2_v1_tenant_register_region)
		return register_region(a, session, ros2_v1_tenant_register_region_in(req));
	if (m == &ros2_v1_tenant_renew_region)
		return renew_region(a, ros2_v1_tenant_renew_region_in(req), st);
	if (m == &ros2_v1_tenant_stat)
		return stat_file(a, find_file(a, ros2_v1_tenant_stat_in(req)->path), st);
	if (m == &ros2_v1_tenant_stat_handle)
		return stat_file(a, (int)(ros2_v1_tenant_stat_handle_in(req)->handle & 0xfff), st);
	if (m == &ros2_v1_tenant_readdir)
		return list_files(a, ros2_v1_tenant_readdir_in(req));
	*st = change(a, m, req);
	if (*st)
		return NULL;
	give_up(a, session, m, req);
	return &NEW(Ros2__V1__Empty, empty)->base;
}

static int fake_call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                     uint32_t timeout_ms, ProtobufCMessage **ret, struct ros2_err *err)
{
	struct fake_agent *a = container_of(c, struct fake_control, base)->agent;
	enum ros2_status st = ROS2_OK;
	ProtobufCMessage *reply;

	pthread_mutex_lock(&a->lock);
	reply = dispatch(a, m, req, &st);
	if (a->lose_answer && reply && names_a_path(m)) {
		a->lose_answer = false;
		protobuf_c_message_free_unpacked(reply, NULL);
		st = ROS2_UNAVAILABLE;
	}
	pthread_mutex_unlock(&a->lock);
	if (st)
		return ros2_err_named(err, st, "%s: %s", m->name, ros2_status_text(st));
	*ret = reply;
	return 0;
}

static int fake_wait_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	return 0;
}

/* The same agent behind a real gRPC server: @user is the agent. */
void fake_agent_serve(struct rpc_call *c, const ProtobufCMessage *req, void *user)
{
	struct fake_agent *a = user;
	enum ros2_status st = ROS2_OK;
	ProtobufCMessage *reply;

	pthread_mutex_lock(&a->lock);
	reply = dispatch(a, rpc_call_method(c), req, &st);
	pthread_mutex_unlock(&a->lock);
	if (st)
		rpc_call_fail(c, st, "%s", ros2_status_text(st));
	else
		rpc_call_reply(c, reply);
	protobuf_c_message_free_unpacked(reply, NULL);
}

static void fake_control_free(struct control *c)
{
	free(container_of(c, struct fake_control, base));
}

struct control *fake_control_new(struct fake_agent *a)
{
	struct fake_control *c = calloc(1, sizeof(*c));

	c->base = (struct control){fake_call, fake_wait_ready, fake_control_free, 0};
	c->agent = a;
	return &c->base;
}

/* ---- life ---- */

/* Under the lock. A place for one more connection, or NULL. */
static struct fake_thread *free_thread(struct fake_agent *a)
{
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_thread *t = &a->conns[i];

		/* Its last act was to say so: this waits for no more than its return. */
		if (t->used && t->over && !pthread_join(t->thread, NULL))
			*t = (struct fake_thread){0};
		if (!t->used)
			return t;
	}
	return NULL;
}

static bool start_conn(struct fake_agent *a, int fd, bool shm)
{
	struct fake_thread *t = a->stopping ? NULL : free_thread(a);
	struct fake_conn *c = t ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return false;
	*c = (struct fake_conn){.agent = a,
	                        .thread = t,
	                        .fd = fd,
	                        .session = -1,
	                        .left = a->greet_bytes,
	                        .shm = {.wanted = shm}};
	a->greet_bytes = -1;
	t->used = !pthread_create(&t->thread, NULL, fake_wire_thread, c);
	if (!t->used)
		free(c);
	return t->used;
}

static void accept_all(struct fake_agent *a, int listener, bool shm)
{
	int one = 1;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			return;
		/* A message is two sends: the second waits for no acknowledgement. */
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		WITH_AGENT(a, if (!start_conn(a, fd, shm)) close(fd));
	}
}

static void *accept_thread(void *arg)
{
	struct fake_agent *a = arg;

	accept_all(a, a->listener, false);
	return NULL;
}

static void *shm_accept_thread(void *arg)
{
	struct fake_agent *a = arg;

	accept_all(a, a->shm_listener, true);
	return NULL;
}

unsigned fake_agent_count(struct fake_agent *a, const unsigned *n)
{
	unsigned count;

	WITH_AGENT(a, count = *n);
	return count;
}

void fake_agent_offer_shm(struct fake_agent *a)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	snprintf(a->shm_dir, sizeof(a->shm_dir), "/tmp/ros2-fake-XXXXXX");
	if (!mkdtemp(a->shm_dir))
		abort();
	snprintf(a->shm_path, sizeof(a->shm_path), "%s/shm", a->shm_dir);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", a->shm_path);
	a->shm_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(a->shm_listener, (struct sockaddr *)&sun, sizeof(sun)) ||
	    listen(a->shm_listener, 64))
		abort();
	pthread_create(&a->shm_thread, NULL, shm_accept_thread, a);
}

static void stop_shm(struct fake_agent *a)
{
	char path[sizeof(a->shm_path)];

	if (a->shm_listener < 0)
		return;
	shutdown(a->shm_listener, SHUT_RDWR);
	pthread_join(a->shm_thread, NULL);
	close(a->shm_listener);
	/* Not shm_path: a test may have told the program another. */
	snprintf(path, sizeof(path), "%s/shm", a->shm_dir);
	if (unlink(path) || rmdir(a->shm_dir))
		abort();
}

struct fake_agent *fake_agent_new(void)
{
	struct fake_agent *a = calloc(1, sizeof(*a));
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);

	pthread_mutex_init(&a->lock, NULL);
	a->credits = 32;
	a->max_io = 256 * 1024;
	a->max_inline = WIRE_INLINE_MAX;
	a->ttl_ms = 30000;
	a->greet_bytes = -1;
	a->chunk = 64 * 1024;
	a->shm_bytes = 4u << 20;
	a->shm_listener = -1;
	a->features = WIRE_FEATURE_CLEAR;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(a->listener, (struct sockaddr *)&sin, sizeof(sin)) || listen(a->listener, 64))
		abort();
	getsockname(a->listener, (struct sockaddr *)&sin, &len);
	a->port = ntohs(sin.sin_port);
	pthread_create(&a->thread, NULL, accept_thread, a);
	return a;
}

void fake_agent_reset_all(struct fake_agent *a)
{
	struct linger l = {1, 0};

	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < MIN(a->n_sessions, FAKE_SESSIONS); i++) {
		if (a->sessions[i].fd < 0)
			continue;
		setsockopt(a->sessions[i].fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
		shutdown(a->sessions[i].fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&a->lock);
}

void fake_agent_free(struct fake_agent *a)
{
	WITH_AGENT(a, a->stopping = true);
	shutdown(a->listener, SHUT_RDWR);
	pthread_join(a->thread, NULL);
	close(a->listener);
	stop_shm(a);
	fake_agent_reset_all(a);
	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (a->conns[i].used)
			pthread_join(a->conns[i].thread, NULL);
	for (int i = 0; i < FAKE_FILES; i++)
		free(a->files[i].data);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
