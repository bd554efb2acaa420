/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of a socket whose other end a stranger has. A stranger can send open files along
 * with any byte, and whoever lets go of an open file last carries out its close, which may take its
 * owner's time: a TCP socket that lingers, a large file without a name. So a reactor neither takes
 * in such bytes nor closes a socket in which some lie.
 *
 * Since Linux 6.16 the kernel refuses them to the sender (SO_PASSRIGHTS). Before, each byte is
 * looked at before it is taken, and sockets are closed by a thread that ends.
 *
 * And every call that sends, takes or closes wakes whoever waits at the stranger's end (slow.h), so
 * they are timed; each buffer that is taken, or left in a socket that is closed, does so once. On
 * no kernel a reactor closes a socket in which something is left, or one that was slow.
 */
#ifndef ROS2_DATAPLANE_SHM_SOCKET_H
#define ROS2_DATAPLANE_SHM_SOCKET_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct msghdr;
struct shm_closer;
struct slow;

/* A thread that closes what may take time; it has a table of descriptors of its own. */
int shm_closer_new(struct shm_closer **ret, struct ros2_err *err);
/* Waits until what was given to it is on its way. NULL is fine. */
void shm_closer_free(struct shm_closer *c);

/* A listener, before it listens: what connects there is refused to send open files, where the
 * kernel can do so. */
void shm_socket_listens(int fd);
/* One that was accepted, before anything else. */
void shm_socket_accepted(int fd);
/* What has come, up to @len bytes, and stays; as recv with MSG_DONTWAIT. -1 with EPERM: open files
 * would come with it. Wakes nobody. */
ssize_t shm_socket_look(int fd, void *p, size_t len);
/* Takes what was looked at, @len bytes, a few at a time, because each buffer that gets free wakes
 * the stranger's watchers. Less: these calls are slow, and @slow is over; or -1 and errno. */
ssize_t shm_socket_take(int fd, void *p, size_t len, struct slow *slow);
/* As sendmsg with MSG_DONTWAIT and MSG_NOSIGNAL. */
ssize_t shm_socket_send(int fd, const struct msghdr *msg, struct slow *slow);
/* Out of @epoll_fd, and closed; waits for nothing of the stranger's but the watchers it has, once,
 * and only if @slow knows of no slow call yet. Any thread. */
void shm_socket_close(struct shm_closer *c, int epoll_fd, int fd, struct slow *slow);
/* A listener, with the connections that nobody has accepted. */
void shm_socket_close_listener(struct shm_closer *c, int fd);
#endif
