/* SPDX-License-Identifier: Apache-2.0 */
/* See service_picture.h. */
#include "tests/controller/service_picture.h"
#include "common/util.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

static void add(struct picture *p, const ProtobufCMessage *m)
{
	p->p = realloc(p->p, p->n + protobuf_c_message_get_packed_size(m) + 1);
	assert_non_null(p->p);
	p->n += protobuf_c_message_pack(m, p->p + p->n);
}

/* Times of an agent's last beat: it goes on while one looks. */
static void still(Ros2__V1__ObjectInfo *o)
{
	if (!o->agent)
		return;
	o->agent->last_beat_unix_ns = o->agent->contact_until_unix_ns = 0;
	for (size_t i = 0; i < o->n_conditions; i++)
		if (!strcmp(o->conditions[i]->name, "Ready"))
			o->conditions[i]->since_unix_ns = 0;
}

static void add_object(struct picture *p, struct sf *f, Ros2__V1__ObjectKind kind, const char *name,
                       const char *but)
{
	Ros2__V1__GetReply *g = sf_get(f, kind, name);
	size_t n = g->object->n_rollout;

	for (size_t i = 0; i < n; i++)
		if (strcmp(g->object->rollout[i]->agent, but) != 0)
			add(p, &g->object->rollout[i]->base);
	for (size_t i = 0; i < g->n_grants; i++)
		if (strcmp(g->grants[i]->agent, but) != 0)
			add(p, &g->grants[i]->base);
	still(g->object);
	g->object->n_rollout = 0;
	add(p, &g->object->base);
	g->object->n_rollout = n;
	ros2__v1__get_reply__free_unpacked(g, NULL);
}

void picture_take(struct sf *f, const char *agent, const char *tenant, struct picture *ret)
{
	static const Ros2__V1__ObjectKind kinds[] = {KIND(TENANT), KIND(ENGINE), KIND(AGENT)};
	const char *const but[] = {tenant, "", agent};

	*ret = (struct picture){0};
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
		struct ros2_err err = ROS2_ERR_INIT;
		Ros2__V1__ListReply *r = NULL;

		q.kind = kinds[k];
		if (ros2_v1_admin_list_sync(f->admin, &q, 9000, &r, &err))
			fail_msg("%s", err.msg);
		for (size_t i = 0; i < r->n_objects; i++)
			if (strcmp(r->objects[i]->name, but[k]) != 0)
				add_object(ret, f, kinds[k], r->objects[i]->name, agent);
		ros2__v1__list_reply__free_unpacked(r, NULL);
	}
}

void picture_fini(struct picture *p)
{
	free(p->p);
	*p = (struct picture){0};
}

bool picture_same(const struct picture *a, const struct picture *b)
{
	return a->n == b->n && !memcmp(a->p, b->p, a->n);
}
