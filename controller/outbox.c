/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit yields for agents: every object that waits is one leaf of one RFC 6962 tree, the
 * tree's root is signed once, and each object leaves with its own path (BatchSeal). Grants carry
 * the controller's MAC too. The only place where objects are serialised for agents.
 */
#include "controller/ctl.h"
#include "controller/link_priv.h"
#include "common/merkle.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include <errno.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define TREE_MAX      4096
#define DELTA_OBJECTS 64
#define DELTA_BYTES   (1u << 20)
#define LEVELS        13 /* of a tree of TREE_MAX leaves */

struct item {
	struct list link;
	struct ctl_agent *agent;
	bool reply;
	uint64_t request_id;
	enum store_kind kind;
	struct ros2_uid uid;
	uint64_t version;
	size_t len;
	uint8_t body[];
};

struct outbox {
	struct ctl *c;
	struct list items;
	size_t n;
	uint8_t (*hashes)[SHA256_LEN]; /* owned: all levels of one tree */
};

int outbox_new(struct ctl *c, struct outbox **ret)
{
	struct outbox *o = calloc(1, sizeof(*o));

	if (o)
		o->hashes = calloc(2 * TREE_MAX + LEVELS, sizeof(*o->hashes));
	if (!o || !o->hashes) {
		free(o);
		return -ENOMEM;
	}
	o->c = c;
	list_init(&o->items);
	*ret = o;
	return 0;
}

void outbox_free(struct outbox *o)
{
	struct item *i, *tmp;

	if (!o)
		return;
	list_for_each_safe (&o->items, i, tmp, link)
		free(i);
	free(o->hashes);
	free(o);
}

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)p, .len = n};
}

static struct item *add(struct ctl_agent *a, const Ros2__V1__AgentObject *m)
{
	size_t len = ros2__v1__agent_object__get_packed_size(m);
	struct item *i = malloc(sizeof(*i) + len);

	if (!i) {
		log_error("out of memory: agent %s is told later", a->obj->name);
		link_end(a->link, ROS2_BUSY, "out of memory");
		return NULL;
	}
	*i = (struct item){.agent = a, .kind = (enum store_kind)m->kind, .version = m->version};
	memcpy(i->uid.b, m->uid.data, ROS2_UID_LEN);
	i->len = ros2__v1__agent_object__pack(m, i->body);
	list_add_tail(&a->ctl->outbox->items, &i->link);
	a->ctl->outbox->n++;
	return i;
}

void outbox_object(struct ctl_agent *a, const struct ctl_object *o)
{
	Ros2__V1__AgentObject m = ROS2__V1__AGENT_OBJECT__INIT;

	if (!a->link)
		return;
	m.kind = (Ros2__V1__ObjectKind)o->kind;
	m.uid = bytes(o->uid.b, ROS2_UID_LEN);
	m.name = (char *)o->name;
	m.version = o->version;
	m.agent_uid = bytes(a->obj->uid.b, ROS2_UID_LEN);
	m.image = bytes(o->image, o->image_len);
	m.revoked = o->revoked;
	add(a, &m);
}

static void grant_mac(const struct ctl *c, const struct ctl_agent *a, const struct ctl_grant *g,
                      const Ros2__V1__GrantBody *body, uint8_t out[SHA256_LEN])
{
	uint8_t packed[1024], version[8];
	size_t n = ros2__v1__grant_body__pack(body, packed);
	struct crypto_span parts[] = {{"ros2-grant-v1", 14},
	                              {a->obj->uid.b, ROS2_UID_LEN},
	                              {g->uid.b, ROS2_UID_LEN},
	                              {version, sizeof(version)},
	                              {packed, n}};

	for (int i = 0; i < 8; i++)
		version[i] = (uint8_t)(g->t.version >> (8 * (7 - i)));
	crypto_hmac_sha256v(c->cfg->mac_key, sizeof(c->cfg->mac_key), parts, ARRAY_SIZE(parts),
	                    out);
}

void outbox_grant(struct ctl_agent *a, const struct ctl_grant *g, bool reply)
{
	Ros2__V1__AgentObject m = ROS2__V1__AGENT_OBJECT__INIT;
	Ros2__V1__GrantBody b = ROS2__V1__GRANT_BODY__INIT;
	Ros2__V1__Stamp from = ROS2__V1__STAMP__INIT;
	uint8_t mac[SHA256_LEN];
	struct item *i;

	if (!a->link)
		return;
	from.boot_id = bytes(g->t.from.boot_id, 16);
	from.boottime_ns = g->t.from.boottime_ns;
	b.tenant_uid = bytes(g->tenant->uid.b, ROS2_UID_LEN);
	b.principal = g->principal;
	b.max_keys = g->t.max_keys;
	b.max_bytes = g->t.max_bytes;
	b.access = g->t.access;
	b.lifetime_ms = g->t.lifetime_ms;
	b.from = &from;
	b.policy_version = g->t.policy_version;
	grant_mac(a->ctl, a, g, &b, mac);
	b.mac = bytes(mac, sizeof(mac));
	m.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT;
	m.uid = bytes(g->uid.b, ROS2_UID_LEN);
	m.version = g->t.version;
	m.agent_uid = bytes(a->obj->uid.b, ROS2_UID_LEN);
	m.grant = &b;
	i = add(a, &m);
	if (i && reply) {
		i->reply = true;
		i->request_id = g->request_id;
	}
}

void outbox_forget(struct ctl_agent *a)
{
	struct outbox *o = a->ctl->outbox;
	struct item *i, *tmp;

	list_for_each_safe (&o->items, i, tmp, link) {
		if (i->agent != a)
			continue;
		list_del(&i->link);
		free(i);
		o->n--;
	}
}

/* ---- sealing ---- */

/* Levels one after another, leaves first; an odd last node is carried up unchanged, which is the
 * shape of RFC 6962. */
struct tree {
	const uint8_t (*hashes)[SHA256_LEN];
	size_t start[LEVELS + 1], size[LEVELS + 1], levels;
};

static void node(const uint8_t *l, const uint8_t *r, uint8_t out[SHA256_LEN])
{
	static const uint8_t one = 1;
	struct crypto_span parts[] = {{&one, 1}, {l, SHA256_LEN}, {r, SHA256_LEN}};

	crypto_sha256v(parts, ARRAY_SIZE(parts), out);
}

static void build(struct outbox *o, size_t n, struct tree *t)
{
	size_t at = 0;

	t->hashes = (const uint8_t(*)[SHA256_LEN])o->hashes;
	t->levels = 1;
	t->start[0] = 0;
	t->size[0] = n;
	while (n > 1) {
		size_t up = (n + 1) / 2, next = at + n;

		for (size_t i = 0; i < n / 2; i++)
			node(o->hashes[at + 2 * i], o->hashes[at + 2 * i + 1], o->hashes[next + i]);
		if (n & 1)
			memcpy(o->hashes[next + up - 1], o->hashes[at + n - 1], SHA256_LEN);
		t->start[t->levels] = next;
		t->size[t->levels++] = up;
		at = next;
		n = up;
	}
}

static void put_be64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * (7 - i)));
}

struct sealed {
	struct tree tree;
	Ros2__V1__Epoch epoch;
	uint64_t batch;
	const uint8_t *root;
	uint8_t signature[ED25519_SIG_LEN];
};

static int seal(struct ctl *c, size_t n, struct sealed *s)
{
	static const char tag[] = "ros2-batch-v1"; /* with its NUL */
	uint8_t msg[sizeof(tag) + 16 + 8 + 8 + 8 + SHA256_LEN], *p = msg;

	build(c->outbox, n, &s->tree);
	s->root = s->tree.hashes[s->tree.start[s->tree.levels - 1]];
	s->batch = ++c->batch;
	ros2__v1__epoch__init(&s->epoch);
	s->epoch.lineage = bytes(c->epoch.lineage.b, ROS2_UID_LEN);
	s->epoch.counter = c->epoch.counter;
	memcpy(p, tag, sizeof(tag));
	p += sizeof(tag);
	memcpy(p, c->epoch.lineage.b, 16);
	put_be64(p + 16, c->epoch.counter);
	put_be64(p + 24, s->batch);
	put_be64(p + 32, n);
	memcpy(p + 40, s->root, SHA256_LEN);
	return crypto_sign(c->cfg->snapshot_key, msg, sizeof(msg), s->signature);
}

/* One object with its seal, as a message that borrows. */
struct parcel {
	Ros2__V1__SealedObject obj;
	Ros2__V1__BatchSeal seal;
	ProtobufCBinaryData path[LEVELS];
};

static void wrap(struct sealed *s, const struct item *i, size_t index, struct parcel *p)
{
	size_t n = 0, at = index;

	ros2__v1__sealed_object__init(&p->obj);
	ros2__v1__batch_seal__init(&p->seal);
	p->obj.body = bytes(i->body, i->len);
	p->obj.seal = &p->seal;
	p->seal.epoch = &s->epoch;
	p->seal.batch = s->batch;
	p->seal.tree_size = s->tree.size[0];
	p->seal.leaf_index = index;
	p->seal.root = bytes(s->root, SHA256_LEN);
	p->seal.signature = bytes(s->signature, ED25519_SIG_LEN);
	for (size_t level = 0; level + 1 < s->tree.levels; level++, at /= 2) {
		size_t sibling = at ^ 1;

		if (sibling < s->tree.size[level])
			p->path[n++] =
				bytes(s->tree.hashes[s->tree.start[level] + sibling], SHA256_LEN);
	}
	p->seal.path = p->path;
	p->seal.n_path = n;
}

static void send_reply(struct sealed *s, const struct item *i, size_t index)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__GrantReply r = ROS2__V1__GRANT_REPLY__INIT;
	struct parcel p;

	wrap(s, i, index, &p);
	r.request_id = i->request_id;
	r.grant = &p.obj;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_GRANT_REPLY;
	m.grant_reply = &r;
	link_send(i->agent->link, &m);
}

/* The items [first, first + n) are for the same agent. */
static void send_delta(struct sealed *s, struct item *const *v, size_t first, size_t n)
{
	struct parcel parcels[DELTA_OBJECTS];
	Ros2__V1__SealedObject *ptrs[DELTA_OBJECTS];
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	struct ctl_agent *a = v[first]->agent;

	d.nonce = link_next_nonce(a->link);
	for (size_t i = 0; i < n; i++) {
		struct item *it = v[first + i];
		struct ctl_rollout *r = ctl_rollout_get(a, it->kind, &it->uid, false);

		wrap(s, it, first + i, &parcels[i]);
		ptrs[i] = &parcels[i].obj;
		if (r) {
			r->nonce = d.nonce;
			list_del(&r->unacked);
			list_add_tail(&a->unacked, &r->unacked);
		}
	}
	d.upserts = ptrs;
	d.n_upserts = n;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
	m.delta = &d;
	link_send(a->link, &m);
}

static size_t run_of(struct item *const *v, size_t first, size_t n)
{
	size_t k = 0, size = 0;

	while (first + k < n && k < DELTA_OBJECTS && !v[first + k]->reply &&
	       v[first + k]->agent == v[first]->agent && (k == 0 || size < DELTA_BYTES))
		size += v[first + k++]->len;
	return k;
}

/* What a commit yields for one agent leaves in one go. */
static void cork_links(struct item *const *v, size_t n, bool cork)
{
	for (size_t i = 0; i < n; i++)
		if (v[i]->agent->link)
			link_cork(v[i]->agent->link, cork);
}

static void send_all(struct sealed *s, struct item *const *v, size_t n)
{
	cork_links(v, n, true);
	for (size_t i = 0; i < n;) {
		if (!v[i]->agent->link) {
			i++;
		} else if (v[i]->reply) {
			send_reply(s, v[i], i);
			i++;
		} else {
			size_t k = run_of(v, i, n);

			send_delta(s, v, i, k);
			i += k;
		}
	}
	cork_links(v, n, false);
}

static void flush_tree(struct ctl *c)
{
	struct outbox *o = c->outbox;
	struct item *v[TREE_MAX];
	struct sealed s;
	size_t n = 0;

	while (!list_empty(&o->items) && n < TREE_MAX) {
		v[n] = list_first(&o->items, struct item, link);
		list_del(&v[n]->link);
		merkle_leaf(v[n]->body, v[n]->len, o->hashes[n]);
		n++;
	}
	o->n -= n;
	if (seal(c, n, &s) < 0)
		log_error("cannot sign a batch: %zu objects are not sent", n);
	else
		send_all(&s, v, n);
	for (size_t i = 0; i < n; i++)
		free(v[i]);
}

void outbox_flush(struct ctl *c)
{
	struct ctl_object *o, *tmp;

	while (c->outbox->n)
		flush_tree(c);
	if (!c->n_initial)
		return;
	c->n_initial = 0;
	HASH_ITER (by_key, c->by_key, o, tmp)
		if (o->agent && o->agent->link && o->agent->initial_due) {
			o->agent->initial_due = false;
			link_initial_done(o->agent->link);
		}
}
