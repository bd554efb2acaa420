/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin thread of an engine and the table of its controllers: one for each tenant that has the
 * engine mounted. Control threads add entries and count references, the thread runs what is there
 * and takes away what is over. It waits for nothing but its epoll set.
 */
#define LOG_COMPONENT "nvmf"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/log.h"
#include "common/share.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include "dataplane/test_switches.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#define WAKE_WORD  UINT64_MAX
#define EVENTS_MAX 64
#define FREE_MS    500u
/* One that nobody got tries on for this long, and whoever asks meanwhile is answered at once: a
 * target that does not answer keeps no control thread. */
#define LINGER_MS 15000u

/* ---- the thread ---- */

static void ring(int fd)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, so it wakes anyway. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

void nvmf_admin_wake(struct nvmf_admin *a)
{
	ring(a->wake_fd);
}

void nvmf_admin_wake_ports(struct nvmf_admin *a)
{
	struct nvmf_port *p;

	pthread_mutex_lock(&a->lock);
	list_for_each (&a->ports, p, link)
		ring(p->wake_fd);
	pthread_mutex_unlock(&a->lock);
}

static struct nvmf_ctrl *ctrl_at(struct nvmf_admin *a, uint32_t i)
{
	struct nvmf_ctrl *c;

	pthread_mutex_lock(&a->lock);
	c = a->ctrls[i];
	pthread_mutex_unlock(&a->lock);
	return c;
}

static void ctrl_free(struct nvmf_ctrl *c)
{
	nvmf_ctrl_drop_queue(c);
	nvmf_boxes_trim(c, true);
	nvmf_secrets_wipe(&c->secrets);
	pthread_mutex_destroy(&c->fence_lock);
	free(c);
}

/* Lets all controllers do what is due; returns when to come again. */
static uint64_t run_all(struct nvmf_admin *a, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++) {
		struct nvmf_ctrl *c = ctrl_at(a, i);

		if (!c)
			continue;
		if (nvmf_ctrl_run(c, now_ns)) {
			next = MIN(next, c->wake_at_ns);
			continue;
		}
		pthread_mutex_lock(&a->lock);
		a->ctrls[i] = NULL;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
		ctrl_free(c);
	}
	return next;
}

static void *admin_main(void *arg)
{
	struct epoll_event events[EVENTS_MAX];
	struct nvmf_admin *a = arg;
	uint64_t next = 0, count;

	while (!atomic_load(&a->stop)) {
		uint64_t now = clock_boottime_ns();
		int ms = next == UINT64_MAX ? -1
		         : next <= now      ? 0
		                            : (int)MIN((next - now) / NS_PER_MS + 1, 1000ull);
		int n = epoll_wait(a->epoll_fd, events, EVENTS_MAX, ms);

		for (int i = 0; i < n; i++)
			if (events[i].data.u64 == WAKE_WORD &&
			    read(a->wake_fd, &count, sizeof(count)) < 0)
				break;
		next = run_all(a, clock_boottime_ns());
		if (nvmf_proofs_run(a))
			next = 0;
	}
	return NULL;
}

/* ---- making and ending it ---- */

static int parse_peer(struct nvmf_admin *a, struct ros2_err *err)
{
	const struct nvmf_config *k = &a->config;

	if (inet_pton(AF_INET, k->address, &a->peer.in.sin_addr) == 1) {
		a->peer.in.sin_family = AF_INET;
		a->peer.in.sin_port = htons(k->port);
	} else if (inet_pton(AF_INET6, k->address, &a->peer.in6.sin6_addr) == 1) {
		a->peer.in6.sin6_family = AF_INET6;
		a->peer.in6.sin6_port = htons(k->port);
	} else {
		return ros2_err_set(err, -EINVAL, "address: expected IPv4 or IPv6, found \"%s\"",
		                    k->address);
	}
	return 0;
}

static int check_config(const struct nvmf_config *k, struct ros2_err *err)
{
	const char *mark = strstr(k->host_nqn, NVMF_TENANT_MARK);

	if (!mark || strstr(mark + 1, NVMF_TENANT_MARK))
		return ros2_err_set(err, -EINVAL, "host NQN: expected %s in it once, found \"%s\"",
		                    NVMF_TENANT_MARK, k->host_nqn);
	if (!nvme_nqn_valid(k->subsystem))
		return ros2_err_set(err, -EINVAL, "subsystem: not an NQN: \"%s\"", k->subsystem);
	if (!k->port || k->queue_depth < 2 || k->queue_depth > 1024 || !k->command_timeout_ms ||
	    k->keep_alive_ms < 1 || k->keep_alive_ms > UINT32_MAX)
		return ros2_err_set(err, -EINVAL, "port, depth or times: outside their limits");
	if (k->n_volumes == 0 || k->n_volumes > NVMF_VOLUMES_MAX)
		return ros2_err_set(err, -EINVAL, "volumes: expected 1 to %d, found %u",
		                    NVMF_VOLUMES_MAX, k->n_volumes);
	return 0;
}

static int open_fds(struct nvmf_admin *a)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = WAKE_WORD};

	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (a->epoll_fd < 0 || a->wake_fd < 0 ||
	    epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->wake_fd, &ev) < 0)
		return -errno;
	return 0;
}

static void admin_free(struct nvmf_admin *a)
{
	util_close_cleanup(&a->epoll_fd);
	util_close_cleanup(&a->wake_fd);
	pthread_mutex_destroy(&a->boxes_lock);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	free(a->secrets_dir);
	free(a);
}

static void init(struct nvmf_admin *a, const struct nvmf_admin_opts *o)
{
	pthread_condattr_t attr;

	a->config = *o->config;
	a->queue = o->queue;
	snprintf(a->engine, sizeof(a->engine), "%s", o->engine);
	a->backoff_min_ns = (o->backoff_min_ms ? o->backoff_min_ms : 100) * NS_PER_MS;
	a->backoff_max_ns = (o->backoff_max_ms ? o->backoff_max_ms : 10000) * NS_PER_MS;
	a->unquiet_since_ns = o->unquiet_since_ns;
	a->unquiet_keep_alive_ms = o->unquiet_keep_alive_ms;
	a->unquiet_quiesce_ms = o->unquiet_quiesce_ms;
	a->epoll_fd = a->wake_fd = -1;
	list_init(&a->ports);
	list_init(&a->proofs);
	list_init(&a->boxed);
	pthread_mutex_init(&a->boxes_lock, NULL);
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
}

int nvmf_admin_new(const struct nvmf_admin_opts *o, struct nvmf_admin **ret, struct ros2_err *err)
{
	struct nvmf_admin *a;
	int rc = check_config(o->config, err);

	if (rc < 0)
		return rc;
	a = calloc(1, sizeof(*a));
	if (!a)
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory");
	init(a, o);
	a->secrets_dir = o->secrets_dir ? strdup(o->secrets_dir) : NULL;
	rc = o->secrets_dir && !a->secrets_dir
	             ? ros2_err_set(err, -ENOMEM, "nvmf engine: no memory")
	             : parse_peer(a, err);
	if (rc == 0) {
		rc = open_fds(a);
		if (rc == 0)
			rc = -pthread_create(&a->thread, NULL, admin_main, a);
		if (rc < 0)
			ros2_err_set(err, rc, "nvmf engine: cannot start: %s", strerror(-rc));
	}
	if (rc < 0) {
		admin_free(a);
		return rc;
	}
	pthread_setname_np(a->thread, "nvmf-admin");
	*ret = a;
	return 0;
}

static bool any_ctrl(const struct nvmf_admin *a)
{
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		if (a->ctrls[i] && atomic_load(&a->ctrls[i]->lives))
			return true;
	return false;
}

static struct timespec monotonic_in_ms(uint64_t ms)
{
	uint64_t ns = clock_monotonic_ns() + ms * NS_PER_MS;

	return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

void nvmf_admin_free(struct nvmf_admin *a)
{
	struct timespec until;

	if (!a)
		return;
	until = monotonic_in_ms(FREE_MS);
	atomic_store(&a->ending, true);
	nvmf_admin_wake(a);
	pthread_mutex_lock(&a->lock);
	while (any_ctrl(a) && pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
		;
	pthread_mutex_unlock(&a->lock);
	atomic_store(&a->stop, true);
	nvmf_admin_wake(a);
	pthread_join(a->thread, NULL);
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		if (a->ctrls[i])
			ctrl_free(a->ctrls[i]);
	admin_free(a);
}

const struct nvmf_config *nvmf_admin_config(const struct nvmf_admin *a)
{
	return &a->config;
}

/* ---- the table ---- */

static int host_nqn(const struct nvmf_config *k, const char *name, char out[NVMF_NQN_MAX + 1],
                    struct ros2_err *err)
{
	const char *mark = strstr(k->host_nqn, NVMF_TENANT_MARK);
	int n = snprintf(out, NVMF_NQN_MAX + 1, "%.*s%s%s", (int)(mark - k->host_nqn), k->host_nqn,
	                 name, mark + strlen(NVMF_TENANT_MARK));

	if (n < 0 || n > NVMF_NQN_MAX || !nvme_nqn_valid(out))
		return ros2_err_set(err, -EINVAL, "host NQN of tenant %s: not an NQN of at most %d",
		                    name, NVMF_NQN_MAX);
	return 0;
}

static void name_namespaces(struct nvmf_ctrl *c, const struct nvmf_config *k)
{
	for (uint32_t v = 0; v < k->n_volumes; v++) {
		uint32_t i = 0;

		while (i < c->n_ns && c->ns[i].nsid != k->volumes[v].nsid)
			i++;
		if (i == c->n_ns)
			c->ns[c->n_ns++].nsid = k->volumes[v].nsid;
		c->ns_of[v] = i;
	}
}

static int ctrl_new(struct nvmf_admin *a, const struct engine_who *who, struct nvmf_ctrl **ret,
                    struct ros2_err *err)
{
	uint8_t digest[SHA256_LEN];
	struct nvmf_ctrl *c = NULL;

	if (posix_memalign((void **)&c, 4096, sizeof(*c)))
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory for a controller");
	memset(c, 0, sizeof(*c));
	pthread_mutex_init(&c->fence_lock, NULL);
	list_init(&c->link_boxes);
	c->admin = a;
	c->tenant = who->uid;
	c->pd = who->pd;
	snprintf(c->name, sizeof(c->name), "%s", who->name);
	if (host_nqn(&a->config, who->name, c->host_nqn, err) < 0) {
		ctrl_free(c);
		return -EINVAL;
	}
	/* The host is the tenant, wherever its agents are. */
	crypto_sha256(c->host_nqn, strlen(c->host_nqn), digest);
	memcpy(c->host_id, digest, sizeof(c->host_id));
	name_namespaces(c, &a->config);
	atomic_store(&c->settled, a->unquiet_since_ns == 0);
	c->state = NVMF_CTRL_CONNECTING;
	c->state_until_ns = UINT64_MAX;
	c->begun_ns = clock_boottime_ns();
	atomic_store(&c->since_ns, c->begun_ns);
	*ret = c;
	return 0;
}

/* Under the lock. */
static struct nvmf_ctrl *find(struct nvmf_admin *a, const struct ros2_uid *tenant)
{
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		if (a->ctrls[i] && ros2_uid_eq(&a->ctrls[i]->tenant, tenant) &&
		    nvmf_ctrl_view(a->ctrls[i]).state != NVMF_CTRL_SHUTDOWN)
			return a->ctrls[i];
	return NULL;
}

/* Under the lock. Where a controller of this tenant can be put; -EDQUOT, -EBUSY. Those that shut
 * down keep their places until they have, so that who comes and goes without pause has many. */
static int place_for(const struct nvmf_admin *a, const struct ros2_uid *tenant, uint32_t *ret,
                     struct ros2_err *err)
{
	static const struct share share = {.total = NVMF_CTRLS_MAX,
	                                   .most = NVMF_CTRLS_EACH,
	                                   .sure = 1,
	                                   .kept = NVMF_CTRLS_MAX / 4};
	uint32_t held = 0, used = 0;

	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++) {
		if (!a->ctrls[i]) {
			*ret = i;
			continue;
		}
		used++;
		held += ros2_uid_eq(&a->ctrls[i]->tenant, tenant);
	}
	if (share_allows(&share, held, used) || (DP_SWITCH(no_ctrl_share) && used < share.total))
		return 0;
	if (held == 0)
		return ros2_err_set(err, -EDQUOT,
		                    "controllers of an nvmf engine: the limit is %u (fixed)",
		                    NVMF_CTRLS_MAX);
	return ros2_err_named(
		err, ROS2_BUSY,
		"controllers of the tenant at an nvmf engine: the limit is %u (fixed), and %u "
		"of all stay free for others; %u are not shut down yet: try again",
		share.most, share.kept, held);
}

/* Under the lock. */
static int find_or_add(struct nvmf_admin *a, const struct engine_who *who, struct nvmf_ctrl **ret,
                       struct ros2_err *err)
{
	struct nvmf_ctrl *c = find(a, &who->uid);
	uint32_t i = 0;
	int rc;

	if (!c) {
		rc = place_for(a, &who->uid, &i, err);
		if (rc == 0)
			rc = ctrl_new(a, who, &c, err);
		if (rc < 0)
			return rc;
		c->index = i;
		a->ctrls[i] = c;
	}
	c->refs++;
	*ret = c;
	return 0;
}

/* Under the lock: until it was LIVE once, an attempt failed, or @wait_ms since it was made are
 * over: not since this call, or many calls would wait one after the other. */
static void await_first(struct nvmf_ctrl *c, uint64_t wait_ms)
{
	uint64_t age_ms = (clock_boottime_ns() - c->begun_ns) / NS_PER_MS;
	struct timespec until = monotonic_in_ms(age_ms < wait_ms ? wait_ms - age_ms : 0);

	while (!atomic_load(&c->lives) && !c->attempts &&
	       pthread_cond_timedwait(&c->admin->changed, &c->admin->lock, &until) == 0)
		;
}

int nvmf_ctrl_get(struct nvmf_admin *a, const struct engine_who *who, uint64_t wait_ms,
                  struct nvmf_ctrl **ret, struct ros2_err *err)
{
	struct nvmf_ctrl *c = NULL;
	int rc;

	pthread_mutex_lock(&a->lock);
	rc = find_or_add(a, who, &c, err);
	if (rc == 0) {
		nvmf_admin_wake(a);
		await_first(c, wait_ms);
		if (!atomic_load(&c->lives)) {
			rc = ros2_err_set(err, -ENOTCONN, "%s",
			                  c->attempts ? c->words : "the target does not answer");
			c->refs--;
			c->linger_ns = clock_boottime_ns() + LINGER_MS * NS_PER_MS;
		}
	}
	pthread_mutex_unlock(&a->lock);
	if (rc == 0)
		*ret = c;
	return rc;
}

void nvmf_ctrl_ref(struct nvmf_ctrl *c)
{
	pthread_mutex_lock(&c->admin->lock);
	c->refs++;
	pthread_mutex_unlock(&c->admin->lock);
}

void nvmf_ctrl_put(struct nvmf_ctrl *c)
{
	struct nvmf_admin *a;

	if (!c)
		return;
	a = c->admin;
	pthread_mutex_lock(&a->lock);
	c->refs--;
	c->linger_ns = 0;
	/* Within the lock: at zero the thread may take it away as soon as it is let go. */
	nvmf_admin_wake(a);
	pthread_mutex_unlock(&a->lock);
}

bool nvmf_admin_uses(struct nvmf_admin *a, const struct ros2_uid *tenant)
{
	bool found = false;

	pthread_mutex_lock(&a->lock);
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		found |= a->ctrls[i] && ros2_uid_eq(&a->ctrls[i]->tenant, tenant);
	pthread_mutex_unlock(&a->lock);
	return found;
}

static bool any_live(const struct nvmf_admin *a)
{
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		if (a->ctrls[i] && nvmf_ctrl_view(a->ctrls[i]).state == NVMF_CTRL_LIVE)
			return true;
	return false;
}

bool nvmf_admin_lost(struct nvmf_admin *a, const struct ros2_uid *tenant)
{
	const struct nvmf_ctrl *c;
	bool lost;

	pthread_mutex_lock(&a->lock);
	c = find(a, tenant);
	if (!c)
		lost = !any_live(a);
	else if (!atomic_load(&c->lives) && c->attempts)
		lost = false; /* whoever asks is answered at once */
	else
		lost = nvmf_ctrl_view(c).state != NVMF_CTRL_LIVE;
	pthread_mutex_unlock(&a->lock);
	return lost;
}

/* Under the lock. */
static int importance(const struct nvmf_ctrl *c)
{
	if (nvmf_ctrl_view(c).state == NVMF_CTRL_SHUTDOWN)
		return 0;
	return c->refs ? 2 : 1;
}

/* Under the lock. Whoever is told of controllers knows them by the names of tenants: of one name
 * there may be several, when their tenant has come again, or a new one has that name. */
static bool is_told(const struct nvmf_admin *a, uint32_t at)
{
	const struct nvmf_ctrl *c = a->ctrls[at];
	int mine = importance(c);

	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++) {
		const struct nvmf_ctrl *o = a->ctrls[i];

		if (!o || o == c || strcmp(o->name, c->name) != 0)
			continue;
		if (importance(o) > mine || (importance(o) == mine && i < at))
			return false;
	}
	return true;
}

void nvmf_admin_health(struct nvmf_admin *a,
                       void (*fn)(void *arg, const struct nvmf_ctrl_health *h), void *arg)
{
	pthread_mutex_lock(&a->lock);
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++) {
		const struct nvmf_ctrl *c = a->ctrls[i];
		struct nvmf_ctrl_health h;

		if (!c || !is_told(a, i))
			continue;
		h = (struct nvmf_ctrl_health){
			.tenant = c->tenant,
			.state = nvmf_ctrl_view(c).state,
			.since_ns = atomic_load(&c->since_ns),
			.lives = atomic_load(&c->lives),
			.unknown_writes = atomic_load(&c->counts[NVMF_COUNT_UNKNOWN]),
			.retries = atomic_load(&c->counts[NVMF_COUNT_RETRY]),
			.expired = atomic_load(&c->counts[NVMF_COUNT_EXPIRED])};
		memcpy(h.name, c->name, sizeof(h.name));
		memcpy(h.words, c->words, sizeof(h.words));
		fn(arg, &h);
	}
	pthread_mutex_unlock(&a->lock);
}
