/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page tokens of Admin.List: where a list goes on. A token names a position (a key, never an
 * offset), so what comes and goes elsewhere in the list moves nothing: no row that stays is left
 * out or shown twice. It is no right and no secret; one that was made for another kind or other
 * filters, or by hand, is refused.
 */
#ifndef ROS2_CONTROLLER_PAGE_H
#define ROS2_CONTROLLER_PAGE_H

#include "controller/store.h"

#define PAGE_TOKEN_MAX 160

struct page_list { /* which list: what a token must have been made for */
	enum store_kind kind;
	struct ros2_uid tenant_uid, agent_uid; /* filters; zero = none */
	bool all;
};

struct page_pos {                     /* the next page begins beyond it */
	bool ended;                   /* grants: among the ended ones, which follow the live ones */
	char name[ROS2_NAME_MAX + 1]; /* of an object; sessions and leases: of the agent */
	struct ros2_uid key;          /* of a grant or session; page_lease_key */
};

/* A lease id as a key: same order. */
struct ros2_uid page_lease_key(uint64_t lease_id);
void page_token(const struct page_list *l, const struct page_pos *at, char out[PAGE_TOKEN_MAX]);
/* "" is the beginning. -EINVAL. Any thread. */
int page_parse(const struct page_list *l, const char *token, struct page_pos *ret);
#endif
