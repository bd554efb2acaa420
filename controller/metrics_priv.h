/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's page of metrics. Loop thread. */
#ifndef ROS2_CONTROLLER_METRICS_PRIV_H
#define ROS2_CONTROLLER_METRICS_PRIV_H

struct ctl;
struct metrics_page;
struct rpc_server;

struct controller_metrics {
	struct ctl *ctl;                           /* borrowed */
	struct rpc_server *admin, *agents, *enrol; /* borrowed */
};
/* @arg: a struct controller_metrics. */
void controller_metrics_render(void *arg, struct metrics_page *p);
#endif
