/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of the administrators' listener, each with a request that means something: for walks
 * over the services' tables. A method that is new has none, and fails the walk.
 */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_METHODS_H
#define ROS2_TESTS_CONTROLLER_SERVICE_METHODS_H

#include "tests/controller/service_fixture.h"

/* Of the tables, one after the other; NULL: there is no @i-th. */
const struct rpc_method *method_at(size_t i);
/* What its requests are about: an engine, agents dpu-0 and dpu-1, tenants alpha and beta. */
void methods_begin(struct sf *f);
/* What @m answers at @port to who has this certificate (sf_cert; NULL: none). The requests of all
 * methods, in the order of the tables, succeed one after the other. */
enum ros2_status attack_method(struct sf *f, const char *cert, uint16_t port,
                               const struct rpc_method *m);
/* The same of an agent's identity, where the method has such a form; else nothing is tried, and
 * @ret is false. */
enum ros2_status attack_identity(struct sf *f, const char *cert, uint16_t port,
                                 const struct rpc_method *m, bool *ret);
#endif
