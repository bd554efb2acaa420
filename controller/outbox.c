/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents are to be told: per agent the objects that wait, each once and named by its rollout
 * entry, so the outbox is never larger than what there is. What leaves together is one RFC 6962
 * tree, its root signed once, and each object carries its own path (BatchSeal). Grants carry the
 * controller's MAC too. The only place where objects are serialised for agents. Invariants: (1) an
 * object is serialised as it is when it leaves, and only if it is still the version that was to be
 * sent: another one is on its way, or not durable, and never for an agent that is cut off; (2)
 * answers to requests leave at once, the rest at the pace at which the agent's stream takes it, an
 * agent that reads nothing holds up nobody; (3) what was withdrawn while it waited is not sent; (4)
 * nothing of it leaves before the revocations that an agent owes when it comes: they are paced,
 * too.
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
#define TURN_BULK     1024       /* objects of one agent in one turn, besides answers */
#define TURN_BYTES    (2u << 20) /* with PACE_LOW messages before them: below the stream's bound */
#define DELTA_OBJECTS 64
#define DELTA_BYTES   (1u << 20)
#define LEVELS        13 /* of a tree of TREE_MAX leaves */

struct item { /* an object that leaves now */
	struct ctl_agent *agent;
	struct ctl_rollout *r;
	bool reply;
	size_t len;
	uint8_t body[];
};

struct outbox {
	struct ctl *c;
	struct list agents; /* by in_outbox */
	struct loop_timer again;
	uint8_t (*hashes)[SHA256_LEN]; /* owned: all levels of one tree */
	size_t n, turn_bytes;
	struct item *items[TREE_MAX]; /* owned: of the tree that is being made */
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
	list_init(&o->agents);
	*ret = o;
	return 0;
}

void outbox_free(struct outbox *o)
{
	if (!o)
		return;
	loop_timer_stop(&o->again);
	free(o->hashes);
	free(o);
}

/* ---- what waits ---- */

static void enter(struct ctl_agent *a)
{
	if (list_empty(&a->in_outbox))
		list_add_tail(&a->ctl->outbox->agents, &a->in_outbox);
}

void outbox_push(struct ctl_agent *a, struct ctl_rollout *r)
{
	if (!a->link)
		return;
	list_del(&r->unacked); /* of a version before */
	if (list_empty(&r->waiting))
		list_add_tail(&a->bulk, &r->waiting);
	if (!a->paced)
		enter(a);
}

void outbox_grant(struct ctl_agent *a, const struct ctl_grant *g, bool reply)
{
	struct ctl_rollout *r;

	if (!a->link)
		return;
	r = ctl_rollout_get(a, STORE_GRANT, &g->uid, true);
	if (!r) {
		log_error("out of memory: agent %s is told later", a->obj->name);
		link_end(a->link, ROS2_BUSY, "out of memory");
		return;
	}
	r->sent = g->t.version;
	if (!reply) {
		outbox_push(a, r);
		return;
	}
	r->reply = true;
	r->request_id = g->request_id;
	list_del(&r->waiting);
	list_add_tail(&a->replies, &r->waiting);
	enter(a);
}

void outbox_initial(struct ctl_agent *a)
{
	a->initial_due = true;
	enter(a);
}

void outbox_writable(struct ctl_agent *a)
{
	a->paced = false;
	enter(a);
	outbox_flush(a->ctl);
}

static void forget_list(struct list *l)
{
	struct ctl_rollout *r, *tmp;

	list_for_each_safe (l, r, tmp, waiting) {
		list_del(&r->waiting);
		r->reply = false;
	}
}

void outbox_forget(struct ctl_agent *a)
{
	forget_list(&a->replies);
	forget_list(&a->bulk);
	list_del(&a->in_outbox);
	a->paced = a->initial_due = a->owes = false;
}

/* ---- serialising ---- */

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)p, .len = n};
}

static int add(struct ctl_agent *a, struct ctl_rollout *r, const Ros2__V1__AgentObject *m)
{
	struct outbox *o = a->ctl->outbox;
	size_t len = ros2__v1__agent_object__get_packed_size(m);
	struct item *i = malloc(sizeof(*i) + len);

	if (!i)
		return -ENOMEM;
	*i = (struct item){.agent = a, .r = r, .reply = r->reply};
	i->len = ros2__v1__agent_object__pack(m, i->body);
	o->items[o->n++] = i;
	o->turn_bytes += len;
	return 0;
}

static int add_object(struct ctl_agent *a, struct ctl_rollout *r)
{
	const struct ctl_object *o = ctl_find_uid(a->ctl, &r->key.uid);
	Ros2__V1__AgentObject m = ROS2__V1__AGENT_OBJECT__INIT;

	if (!o || o->version != r->sent)
		return 0;
	if (ctl_agent_cut_off(a)) {
		r->sent = 0;
		return 0;
	}
	m.kind = (Ros2__V1__ObjectKind)o->kind;
	m.uid = bytes(o->uid.b, ROS2_UID_LEN);
	m.name = (char *)o->name;
	m.version = o->version;
	m.agent_uid = bytes(a->obj->uid.b, ROS2_UID_LEN);
	m.image = bytes(o->image, o->image_len);
	m.revoked = o->revoked;
	return add(a, r, &m);
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

static int add_grant(struct ctl_agent *a, struct ctl_rollout *r)
{
	const struct ctl_grant *g = ctl_grant_find(a->ctl, &r->key.uid);
	Ros2__V1__AgentObject m = ROS2__V1__AGENT_OBJECT__INIT;
	Ros2__V1__GrantBody b = ROS2__V1__GRANT_BODY__INIT;
	Ros2__V1__Stamp from = ROS2__V1__STAMP__INIT;
	uint8_t mac[SHA256_LEN];

	if (!g || g->agent != a || g->phase != CTL_GRANT_LIVE)
		return 0;
	r->sent = g->t.version;
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
	return add(a, r, &m);
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
	r.request_id = i->r->request_id;
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
		struct ctl_rollout *r = v[first + i]->r;

		wrap(s, v[first + i], first + i, &parcels[i]);
		ptrs[i] = &parcels[i].obj;
		r->nonce = d.nonce;
		list_del(&r->unacked);
		list_add_tail(&a->unacked, &r->unacked);
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

static void send_all(struct sealed *s, struct item *const *v, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (v[i]->reply) {
			send_reply(s, v[i], i);
			v[i]->r->reply = false;
			i++;
		} else {
			size_t k = run_of(v, i, n);

			send_delta(s, v, i, k);
			i += k;
		}
	}
}

/* ---- turns ---- */

/* Takes from @l what there is room for. */
static int take(struct ctl_agent *a, struct list *l, size_t most)
{
	struct outbox *o = a->ctl->outbox;
	int rc = 0;

	o->turn_bytes = 0;
	while (!rc && !list_empty(l) && o->n < TREE_MAX && most-- && o->turn_bytes < TURN_BYTES) {
		struct ctl_rollout *r = list_first(l, struct ctl_rollout, waiting);

		list_del(&r->waiting);
		rc = r->key.kind == STORE_GRANT ? add_grant(a, r) : add_object(a, r);
	}
	return rc;
}

/* What left `waiting` is taken for sent: only a new hello tells what these agents have. */
static void not_signed(struct outbox *o)
{
	log_error("cannot sign a batch of %zu objects: their agents are told later", o->n);
	for (size_t i = 0; i < o->n; i++)
		link_end(o->items[i]->agent->link, ROS2_BUSY, "out of memory");
}

static void seal_and_send(struct outbox *o)
{
	struct sealed s;

	for (size_t i = 0; i < o->n; i++)
		merkle_leaf(o->items[i]->body, o->items[i]->len, o->hashes[i]);
	if (seal(o->c, o->n, &s) < 0)
		not_signed(o);
	else
		send_all(&s, o->items, o->n);
	for (size_t i = 0; i < o->n; i++)
		free(o->items[i]);
	o->n = 0;
}

static void take_of(struct ctl_agent *a)
{
	if (a->owes && !a->paced)
		a->owes = ctl_revocations_resend(a);
	if (a->owes)
		return;
	if (take(a, &a->replies, TREE_MAX) < 0 || (!a->paced && take(a, &a->bulk, TURN_BULK) < 0)) {
		log_error("out of memory: agent %s is told later", a->obj->name);
		link_end(a->link, ROS2_BUSY, "out of memory");
	}
}

/* After its share of a tree has left: stays in the outbox only if there is more that may leave. */
static void settle(struct ctl_agent *a)
{
	bool more = a->owes || !list_empty(&a->bulk);

	if (!more && a->initial_due) {
		a->initial_due = false;
		link_initial_done(a->link);
	}
	if (more && !a->paced)
		a->paced = link_has_enough(a->link);
	if ((a->owes || list_empty(&a->replies)) && (!more || a->paced))
		list_del(&a->in_outbox);
}

static void flush_again(void *arg)
{
	outbox_flush(arg);
}

/* Each agent gets a turn; what is left of a bulk waits for the next one, so that the loop hears
 * others in between. */
void outbox_flush(struct ctl *c)
{
	struct outbox *o = c->outbox;
	struct ctl_agent *a, *tmp;

	if (list_empty(&o->agents))
		return;
	list_for_each (&o->agents, a, in_outbox)
		link_cork(a->link, true);
	list_for_each (&o->agents, a, in_outbox) {
		take_of(a);
		if (o->n == TREE_MAX)
			seal_and_send(o);
	}
	if (o->n)
		seal_and_send(o);
	list_for_each_safe (&o->agents, a, tmp, in_outbox) {
		settle(a);
		link_cork(a->link, false);
	}
	if (!list_empty(&o->agents))
		loop_timer_in_ms(c->loop, &o->again, 0, flush_again, c);
}
