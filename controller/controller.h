/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole controller on one event loop: store, domain, three listeners. The program (main.c) runs
 * one; tests run one inside themselves.
 */
#ifndef ROS2_CONTROLLER_CONTROLLER_H
#define ROS2_CONTROLLER_CONTROLLER_H

#include "controller/config.h"
#include "common/loop.h"
#include <stdbool.h>

/* A name of grpc.health.v1 on every listener: NOT_SERVING while the store is full, records of
 * revocations wait for space, the journal fails, or a reload waits for its record. */
#define CONTROLLER_HEALTH_STORE "ros2.controller.store"

struct controller_opts {
	const char *config_dir, *data_dir;
	const char *admin_listen, *agent_listen, *enrol_listen; /* "127.0.0.1:0" */
	const char *metrics_listen;                             /* NULL: none; common/metrics.h */
	bool metrics_allow_remote;
	uint64_t agent_cert_ttl_s; /* 0 = 24 h */
	/* Caps at accept, of each listener; 0 = default. */
	struct controller_caps {
		uint32_t connections, per_address;
	} admin_caps, agent_caps, enrol_caps;
	struct loop *loop;        /* borrowed: until controller_free */
	uint64_t store_max_pages; /* 0 = no bound; for tests */
};

struct controller;
/* Loads, checks, opens, listens. Before the loop runs, or on it. On failure nothing is left. Errors
 * name the file, flag or address. */
int controller_new(const struct controller_opts *o, struct controller **ret, struct ros2_err *err);
struct controller_ports {
	uint16_t admin, agent, enrol, metrics;
	uint64_t epoch;
	const char *trust_domain; /* borrowed */
};
void controller_ports(const struct controller *c, struct controller_ports *ret);
/* Loop. Ends streams, answers what is in flight, then @on_stopped. */
void controller_stop(struct controller *c, loop_fn on_stopped, void *arg);
/* Loop, or after it has ended. NULL is accepted. */
void controller_free(struct controller *c);
/* Loop: SIGHUP. */
void controller_reload(struct controller *c);
#endif
