/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC as a whole: up with its first user, down with its last, and what it may have of a process
 * that is not ours.
 *
 * Forks: some of its threads stay when it is down, and a child has none of them. What it asked of
 * gRPC would wait for ever, or, of what was up (the epoll set is then one for both), take events
 * that are its parent's. So there it does not come up.
 *
 * Signals: its threads begin with the mask of whoever happens to call it. One that took a signal
 * which the program waits for by sigwait(3) or signalfd(2), and blocks in its own threads, would
 * end the program: so whoever may make it begin threads blocks all of them meanwhile.
 *
 * Descriptors: where there are none it ends the process.
 *
 * Shared objects: gRPC stays in the process, and what is left of a channel it frees when it likes,
 * by functions of ours. So what has this in it is not unloaded either, whatever dlclose(3) is told.
 */
#define LOG_COMPONENT "grpc"
#include "common/fork_mark.h"
#include "common/log.h"
#include "proto/rpc/rpc_priv.h"
#include <grpc/support/log.h>
#include <link.h>
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#define DESCRIPTORS 8 /* 1.51 begins with four, too */

/* gRPC logs refused handshakes and the like as errors; for us they are what peers do. Not its last
 * words. */
static void log_to_ours(gpr_log_func_args *a)
{
	if (strstr(a->message, "assertion failed"))
		log_error("%s:%d: %s", a->file, a->line, a->message);
	log_debug("%s:%d: %s", a->file, a->line, a->message);
}

static struct fork_mark mark; /* of the process in which it came up first */
static atomic_bool was_up;

/* Not of a program's own code, which has no name and stays anyway. */
static void stay_loaded(void)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (dladdr1(&mark, &info, (void **)&map, RTLD_DL_LINKMAP) && map && *map->l_name)
		(void)dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void set_up(void)
{
	fork_mark_init(&mark);
	stay_loaded();
	gpr_set_log_function(log_to_ours);
}

/* Before it does, since it cannot fail: a child that is forked meanwhile has half of it. */
static void comes_up(void)
{
	if (was_up)
		return;
	/* Maybe not the process that tried first. */
	fork_mark_adopt(&mark);
	was_up = true;
}

int rpc_check_process(struct ros2_err *err)
{
	if (!was_up || !fork_mark_is_child(&mark))
		return 0;
	return ros2_err_named(err, ROS2_UNSUPPORTED,
	                      "this process was forked from one that had connected: gRPC does not "
	                      "work in it (connect in children only, or exec)");
}

/* For what wakes its threads. There must be some here and now; what others open meanwhile nobody
 * knows. */
static int check_descriptors(struct ros2_err *err)
{
	int fds[DESCRIPTORS], n = 0, code = 0;

	while (n < DESCRIPTORS && !code) {
		fds[n] = eventfd(0, EFD_CLOEXEC);
		if (fds[n] < 0)
			code = -errno;
		else
			n++;
	}
	while (n)
		close(fds[--n]);
	return code ? ros2_err_set(err, code, "gRPC needs %u descriptors to begin: %s", DESCRIPTORS,
	                           strerror(-code))
	            : 0;
}

int rpc_grpc_init(struct ros2_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	RPC_BLOCKS_SIGNALS;
	int rc;

	pthread_once(&once, set_up);
	rc = rpc_check_process(err);
	if (!rc)
		rc = check_descriptors(err);
	if (rc)
		return rc;
	comes_up();
	grpc_init();
	return 0;
}

void rpc_grpc_shutdown(void)
{
	grpc_shutdown_blocking();
}

sigset_t rpc_signals_block(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	return before;
}

void rpc_signals_restore(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}
