/* SPDX-License-Identifier: Apache-2.0 */
/* Small things every file needs: cleanup attributes, container_of, an intrusive list. */
#ifndef ROS2_COMMON_UTIL_H
#define ROS2_COMMON_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a)                (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, field) ((type *)((char *)(p)-offsetof(type, field)))
#define MIN(a, b)                    ((a) < (b) ? (a) : (b))
#define MAX(a, b)                    ((a) > (b) ? (a) : (b))

static inline void util_free_cleanup(void *p)
{
	free(*(void **)p);
}
static inline void util_close_cleanup(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define AUTO_FREE   CLEANUP(util_free_cleanup)
#define AUTO_CLOSE  CLEANUP(util_close_cleanup)
/* Hands ownership on: the value, and the variable forgets it. */
#define TAKE_PTR(p)                                                                                \
	({                                                                                         \
		__typeof__(p) take_ptr_ = (p);                                                     \
		(p) = NULL;                                                                        \
		take_ptr_;                                                                         \
	})
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int take_fd_ = (fd);                                                               \
		(fd) = -1;                                                                         \
		take_fd_;                                                                          \
	})

struct list {
	struct list *prev, *next;
};
static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}
static inline int list_empty(const struct list *l)
{
	return l->next == l;
}
static inline void list_add_tail(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}
static inline void list_add_head(struct list *head, struct list *n)
{
	list_add_tail(head->next, n);
}
/* Leaves @n empty, so deleting twice is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}
#define list_entry(p, type, field)    container_of(p, type, field)
#define list_first(head, type, field) list_entry((head)->next, type, field)
#define list_for_each(head, it, field)                                                             \
	for (it = list_entry((head)->next, __typeof__(*it), field); &it->field != (head);          \
	     it = list_entry(it->field.next, __typeof__(*it), field))
#define list_for_each_safe(head, it, tmp, field)                                                   \
	for (it = list_entry((head)->next, __typeof__(*it), field),                                \
	    tmp = list_entry(it->field.next, __typeof__(*it), field);                              \
	     &it->field != (head);                                                                 \
	     it = tmp, tmp = list_entry(tmp->field.next, __typeof__(*it), field))
#endif
