/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine: volumes, each an extent of an NVMe namespace, as the files of a tenant. They are
 * made, resized and removed at the target; here they are found, read and written. Sizes and offsets
 * are multiples of the namespace's block size. No byte outside a volume's extent is ever named in a
 * command.
 */
#include "common/clock.h"
#include "dataplane/engines/names.h"
#include "dataplane/nvmf/engine_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#define VOLUME_MODE 0600

int nvmf_engine_create(const struct engine_config *c, const struct nvmf_queue_ops *queue,
                       struct engine **ret, struct ros2_err *err)
{
	struct nvmf_admin_opts o = {.config = c->nvmf,
	                            .queue = queue,
	                            .engine = c->name,
	                            .secrets_dir = c->secrets_dir,
	                            .unquiet_since_ns = c->unquiet_since_ns,
	                            .unquiet_keep_alive_ms = c->unquiet_keep_alive_ms,
	                            .unquiet_quiesce_ms = c->unquiet_quiesce_ms};
	struct engine *e;
	int rc;

	if (!c->nvmf)
		return ros2_err_set(err, -EINVAL, "nvmf engine: no configuration");
	e = calloc(1, sizeof(*e));
	if (!e)
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory");
	e->queue = queue;
	rc = nvmf_admin_new(&o, &e->admin, err);
	if (rc < 0) {
		free(e);
		return rc;
	}
	*ret = e;
	return 0;
}

static int nvmf_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	if (!c->nvmf || (c->nvmf->transport != NVMF_TCP && c->nvmf->transport != NVMF_RDMA))
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "nvmf engine: transport: expected tcp or rdma");
	return nvmf_engine_create(
		c, c->nvmf->transport == NVMF_RDMA ? &nvmf_rdma_queue_ops : &nvmf_tcp_queue_ops,
		ret, err);
}

static void nvmf_destroy(struct engine *e)
{
	if (!e)
		return;
	nvmf_admin_free(e->admin);
	free(e);
}

static void nvmf_ns_close(struct engine_ns *ns)
{
	if (!ns)
		return;
	nvmf_ctrl_put(ns->ctrl);
	free(ns);
}

/* ---- sizes ---- */

static int extent_in(const struct engine_file *f, uint64_t live, uint64_t *ret,
                     struct ros2_err *err)
{
	uint64_t end;

	if (f->size == 0 && f->base == 0) {
		*ret = live;
		return 0;
	}
	if (__builtin_add_overflow(f->base, f->size, &end) || end > live)
		return ros2_err_set(err, -ERANGE,
		                    "namespace %u: expected at least %" PRIu64
		                    " bytes for the volume, found %" PRIu64,
		                    f->nsid, f->base + f->size, live);
	*ret = f->size;
	return 0;
}

int nvmf_file_size(const struct engine_file *f, uint64_t *ret, struct ros2_err *err)
{
	struct nvmf_geometry g = nvmf_ctrl_geometry(f->ctrl, f->volume);

	if (g.unusable)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "namespace %u: metadata, protection or a block size that is "
		                    "not supported",
		                    f->nsid);
	if (g.blocks == 0)
		return ros2_err_set(err, -ENOENT, "the target has no namespace %u", f->nsid);
	if (g.life != f->life)
		return ros2_err_set(err, -ESTALE,
		                    "namespace %u: it is another one than was opened: open again",
		                    f->nsid);
	if (g.block_shift != f->block_shift)
		return ros2_err_set(err, -ESTALE,
		                    "namespace %u: its block size changed: open again", f->nsid);
	return extent_in(f, g.blocks << g.block_shift, ret, err);
}

static int fill_attr(const struct engine_file *f, struct engine_attr *ret, struct ros2_err *err)
{
	uint64_t size;
	int rc = nvmf_file_size(f, &size, err);

	if (rc < 0)
		return rc;
	*ret = (struct engine_attr){.type = ENGINE_REGULAR,
	                            .size = size,
	                            .blocks_512 = size / 512,
	                            .mode = VOLUME_MODE,
	                            .block_size = (uint32_t)1 << f->block_shift};
	return 0;
}

/* What of a file is the volume's; the block size is the namespace's now. */
static int describe(const struct engine_ns *ns, uint32_t volume, struct engine_file *ret,
                    struct ros2_err *err)
{
	const struct nvmf_volume *v = &nvmf_admin_config(ns->engine->admin)->volumes[volume];
	struct nvmf_geometry g = nvmf_ctrl_geometry(ns->ctrl, volume);
	uint64_t mask = g.blocks ? ((uint64_t)1 << g.block_shift) - 1 : 0;

	*ret = (struct engine_file){.ctrl = ns->ctrl,
	                            .engine = ns->engine,
	                            .volume = volume,
	                            .nsid = v->nsid,
	                            .base = v->offset,
	                            .size = v->size,
	                            .block_shift = g.block_shift,
	                            .life = g.life};
	if ((v->offset | v->size) & mask)
		return ros2_err_set(err, -EINVAL,
		                    "volume %.64s: expected offset and size in blocks of %" PRIu64
		                    " bytes, found %" PRIu64 " and %" PRIu64,
		                    v->name, mask + 1, v->offset, v->size);
	return 0;
}

/* ---- open objects ---- */

static int check_flags(uint32_t flags, int found, const char *path, struct ros2_err *err)
{
	if (!(flags & (ENGINE_READ | ENGINE_WRITE)))
		return ros2_err_set(err, -EINVAL, "open: neither read nor write was asked for");
	if (found == -ENOENT && (flags & ENGINE_CREATE))
		return ros2_err_set(err, -ENOENT,
		                    "no volume \"%.128s\": volumes are made at the target and "
		                    "named in the Engine document",
		                    path);
	if (found < 0)
		return found;
	if ((flags & ENGINE_CREATE) && (flags & ENGINE_EXCLUSIVE))
		return ros2_err_set(err, -EEXIST, "\"%.128s\" exists", path);
	if (flags & ENGINE_TRUNCATE)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "a volume has the size the target gives it: it cannot be "
		                    "truncated");
	return 0;
}

static int nvmf_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                     struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	AUTO_FREE struct engine_file *f = NULL;
	struct engine_attr found;
	uint32_t volume = 0;
	int rc = names_check(path, false, err);

	if (rc == 0)
		rc = check_flags(flags, nvmf_volume_find(ns, path, &volume, err), path, err);
	if (rc < 0)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory for an open volume");
	rc = describe(ns, volume, f, err);
	if (rc == 0)
		rc = fill_attr(f, &found, err);
	if (rc < 0)
		return rc;
	f->flags = flags;
	pthread_mutex_init(&f->flushes_lock, NULL);
	list_init(&f->flushes);
	nvmf_ctrl_ref(f->ctrl);
	if (attr)
		*attr = found;
	*ret = TAKE_PTR(f);
	return 0;
}

static void nvmf_close(struct engine_file *f)
{
	if (!f)
		return;
	nvmf_ctrl_put(f->ctrl);
	pthread_mutex_destroy(&f->flushes_lock);
	free(f);
}

static int nvmf_stat(struct engine_ns *ns, const char *path, struct engine_attr *ret,
                     struct ros2_err *err)
{
	struct engine_file f;
	uint32_t volume = 0;
	int rc = names_check(path, true, err);

	if (rc == 0)
		rc = nvmf_volume_find(ns, path, &volume, err);
	if (rc == -EISDIR) {
		*ret = (struct engine_attr){.type = ENGINE_DIRECTORY, .mode = 0700};
		return 0;
	}
	if (rc == 0)
		rc = describe(ns, volume, &f, err);
	return rc == 0 ? fill_attr(&f, ret, err) : rc;
}

static int nvmf_fstat(struct engine_file *f, struct engine_attr *ret, struct ros2_err *err)
{
	return fill_attr(f, ret, err);
}

/* ---- what volumes do not have ---- */

static int no_names(struct ros2_err *err)
{
	return ros2_err_set(err, -EOPNOTSUPP,
	                    "volumes are made, named and removed at the target and in the Engine "
	                    "document");
}

static int nvmf_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err)
{
	return no_names(err);
}

static int nvmf_remove(struct engine_ns *ns, const char *path, struct ros2_err *err)
{
	return no_names(err);
}

static int nvmf_rename(struct engine_ns *ns, const char *from, const char *to, struct ros2_err *err)
{
	return no_names(err);
}

static int nvmf_truncate(struct engine_file *f, uint64_t size, struct ros2_err *err)
{
	return ros2_err_set(err, -EOPNOTSUPP,
	                    "a volume has the size the target gives it: it cannot be truncated");
}

struct health_call {
	void (*fn)(void *arg, const struct engine_health *h);
	void *arg;
};

/* One that was never reached is lost from when people are told so: an open waits that long. */
static bool is_lost(const struct nvmf_ctrl_health *h)
{
	if (h->state == NVMF_CTRL_LIVE || h->state == NVMF_CTRL_SHUTDOWN)
		return false;
	return h->lives || h->words[0] ||
	       clock_boottime_ns() >= h->since_ns + NVMF_OPEN_WAIT_MS * NS_PER_MS;
}

static void tell_health(void *arg, const struct nvmf_ctrl_health *h)
{
	const struct health_call *c = arg;
	bool lost = is_lost(h);
	const struct engine_health out = {
		.tenant = h->tenant,
		.name = h->name,
		.state = nvmf_ctrl_state_to_str(h->state),
		.live = h->state == NVMF_CTRL_LIVE,
		.lost = lost,
		.since_ns = h->since_ns,
		.connects = h->lives,
		.unknown_writes = h->unknown_writes,
		.retries = h->retries,
		.given_up = h->expired,
		.words = lost && !h->words[0] ? "the target does not answer" : h->words};

	c->fn(c->arg, &out);
}

static void nvmf_health(struct engine *e, void (*fn)(void *arg, const struct engine_health *h),
                        void *arg)
{
	struct health_call c = {fn, arg};

	nvmf_admin_health(e->admin, tell_health, &c);
}

static bool nvmf_lost(struct engine *e, const struct ros2_uid *tenant)
{
	return nvmf_admin_lost(e->admin, tenant);
}

static bool nvmf_uses(struct engine *e, const struct ros2_uid *tenant)
{
	return nvmf_admin_uses(e->admin, tenant);
}

/* ---- flush ---- */

struct flush {
	struct engine_io io;
	int64_t res; /* 1 = not yet */
};

static void on_flushed(struct engine_io *io, int64_t res)
{
	container_of(io, struct flush, io)->res = MIN(res, 0);
}

/* Only the queues of reactors reach the medium, and this is no reactor's thread: it takes a queue
 * of its own for the time. */
static int nvmf_fsync(struct engine_file *f, struct ros2_err *err)
{
	struct engine_reactor_opts o = {.depth = 1};
	struct flush flush = {.io = {.file = f,
	                             .op = ENGINE_OP_FLUSH,
	                             .buf_index = -1,
	                             .done = on_flushed,
	                             .asked_ns = clock_boottime_ns()},
	                      .res = 1};
	struct engine_reactor *r;
	int rc;

	if (!nvmf_flush_needed(f))
		return 0;
	rc = nvmf_reactor_new(f->engine, &o, &r, err);
	if (rc < 0)
		return rc;
	rc = nvmf_submit(r, &flush.io);
	while (rc == 0 && flush.res > 0) {
		struct pollfd p = {.fd = nvmf_event_fd(r), .events = POLLIN};

		nvmf_kick(r);
		if (nvmf_poll(r, 1) == 0)
			(void)poll(&p, 1, NVMF_TICK_MS);
	}
	nvmf_reactor_free(r);
	rc = rc < 0 ? rc : (int)flush.res;
	return rc < 0 ? ros2_err_set(err, rc, "flush: %s", strerror(-rc)) : 0;
}

/* Over RDMA it has to lie in a region, which a key is made for. And no digest is made of bytes, or
 * compared with bytes, that a tenant changes meanwhile: it would end the queue at its will, and the
 * target would seem to lie. */
static bool nvmf_takes_any_memory(const struct engine *e)
{
	const struct nvmf_config *k = nvmf_admin_config(e->admin);

	return k->transport == NVMF_TCP && !k->data_digest;
}

const struct engine_ops engine_nvmf_ops = {
	.type = "nvmf",
	.takes_any_memory = nvmf_takes_any_memory,
	.create = nvmf_create,
	.destroy = nvmf_destroy,
	.ns_open = nvmf_ns_open,
	.ns_close = nvmf_ns_close,
	.open = nvmf_open,
	.close = nvmf_close,
	.stat = nvmf_stat,
	.fstat = nvmf_fstat,
	.readdir = nvmf_readdir,
	.mkdir = nvmf_mkdir,
	.unlink = nvmf_remove,
	.rmdir = nvmf_remove,
	.rename = nvmf_rename,
	.truncate = nvmf_truncate,
	.fsync = nvmf_fsync,
	.health = nvmf_health,
	.lost = nvmf_lost,
	.uses = nvmf_uses,
	.reactor_new = nvmf_reactor_new,
	.reactor_free = nvmf_reactor_free,
	.event_fd = nvmf_event_fd,
	.submit = nvmf_submit,
	.kick = nvmf_kick,
	.poll = nvmf_poll,
	.in_flight = nvmf_in_flight,
	.away = nvmf_away,
	.parked = nvmf_parked,
	.withdraw = nvmf_withdraw,
	.forget_regions = nvmf_forget_regions,
	.end_keys = nvmf_end_keys,
	.keys_ending = nvmf_keys_ending,
	.keys = nvmf_keys,
	.copied_bytes = nvmf_copied_bytes,
};
