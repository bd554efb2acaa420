/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two trust domains in a temporary directory, a loop on its own thread, and one echo server over
 * loopback mTLS. Say does what its text tells (see fixture.c).
 */
#ifndef ROS2_TESTS_RPC_FIXTURE_H
#define ROS2_TESTS_RPC_FIXTURE_H

#include "proto/rpc/rpc.h"
#include "tests/rpc/bare.h"
#include "tests/rpc/echo.rpc.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

#define SERVER_ID "spiffe://test.example/server"
#define CLIENT_ID "spiffe://test.example/client"

extern char fx_dir[64];
/* fx_dir/NAME, in one of 32 rotating buffers. */
const char *fx_path(const char *name);

/* Makes ca, foreign-ca, and certificates. For cmocka group setup and teardown. */
int fx_group_setup(void **state);
/* And "beta", who comes beside "client", over sockets that may be closed while they are written. */
int fx_group_setup_beta(void **state);
int fx_group_teardown(void **state);
/* NAME.crt and NAME.key with @uri, issued by CA ("ca" or "foreign-ca"); the key is kept if it
 * exists. */
void fx_issue(const char *ca, const char *name, const char *uri, uint64_t lifetime_s);

struct fx {
	struct loop *loop;
	struct rpc_server *server;
	char target[64];
	/* what the handlers saw; loop thread unless atomic */
	struct rpc_peer last_peer;
	atomic_int handled, cancelled, opened, closed, half_closed, writable;
	struct rpc_call *kept;     /* by "keep" */
	struct rpc_stream *stream; /* the last one opened, referenced */
	struct ros2_err closed_why;
	atomic_bool hold; /* the next message holds its stream */
	atomic_int stopped;
	atomic_int threads; /* that have yet to answer */
	/* what the server told of what it refused, by kind; the last ones are loop thread */
	atomic_int refused[RPC_REFUSED_KINDS];
	enum rpc_refused last_refused;
	struct fx_refusal {
		struct rpc_refusal r; /* its pointers are not to be followed */
		char who[ROS2_SPIFFE_MAX + 1], from[64], words[192];
	} refusals[RPC_REFUSED_KINDS]; /* loop thread: fx_refused, fx_refused_as */
};

/* A running server; @o NULL for defaults. */
void fx_start(struct fx *f, const struct rpc_server_opts *o);
void fx_start_limits(struct fx *f, struct rpc_limits limits);
struct rpc_server_stats fx_stats(struct fx *f);
/* Frees the server on its loop and stops the loop. */
void fx_stop(struct fx *f);
void fx_free_server(struct fx *f);
/* The last one that was told; and of this kind. */
struct fx_refusal fx_refused(struct fx *f);
struct fx_refusal fx_refused_as(struct fx *f, enum rpc_refused why);
/* Runs fn on the loop and waits. */
void fx_on_loop(struct fx *f, loop_fn fn, void *arg);

/* With the "client" certificate; @loop may be NULL. */
struct rpc_channel *fx_channel(struct fx *f, struct loop *loop);
struct rpc_channel *fx_channel_opts(struct fx *f, struct rpc_channel_opts o);
/* Frees it on the loop if it has one. */
void fx_channel_free(struct fx *f, struct rpc_channel *c);

/* Say, blocking; the reply's text is compared when @expect is not NULL. Returns the code. */
int fx_say(struct rpc_channel *c, const char *text, const char *expect, struct ros2_err *err);
/* Say "x"; it must come back. */
void fx_say_x(struct rpc_channel *c);
/* @n headers of Say, with nothing behind them, with the certificate @who; does not wait. */
struct bare_held *fx_hold(struct fx *f, const char *who, size_t n);
/* Waits up to AWAIT_S until *@v >= @n. */
void fx_wait(atomic_int *v, int n);
#endif
