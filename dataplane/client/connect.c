/* SPDX-License-Identifier: Apache-2.0 */
/* A client over gRPC with mTLS, and its options from the environment. */
#include "dataplane/client/internal_priv.h"
#include <errno.h>
#include <stdlib.h>

int ros2_client_opts_from_env(struct ros2_client_opts *ret, struct ros2_err *err)
{
	struct ros2_client_opts o = {0};
	const struct {
		const char *name, **value;
	} vars[] = {
		{"ROS2_AGENT", &o.agent},
		{"ROS2_CERT", &o.cert_path},
		{"ROS2_KEY", &o.key_path},
		{"ROS2_CA", &o.ca_path},
	};

	for (size_t i = 0; i < ARRAY_SIZE(vars); i++) {
		*vars[i].value = getenv(vars[i].name);
		if (!*vars[i].value || !**vars[i].value)
			return ros2_err_set(err, -EINVAL,
			                    "%s is not set: expected ROS2_AGENT (host:port), "
			                    "ROS2_CERT, ROS2_KEY and ROS2_CA (PEM files)",
			                    vars[i].name);
	}
	*ret = o;
	return 0;
}

int ros2_connect(const struct ros2_client_opts *o, struct ros2_client **ret, struct ros2_err *err)
{
	struct control *control;
	int rc;

	if (!o->agent || !o->cert_path || !o->key_path || !o->ca_path)
		return ros2_err_set(err, -EINVAL,
		                    "an agent's host:port, a certificate, its key and a CA are "
		                    "needed");
	/* First: in such a child a lock of OpenSSL's may be held for ever, too. */
	rc = rpc_check_process(err);
	if (rc)
		return rc;
	rc = control_rpc_new(o, &control, err);
	return rc ? rc : client_new(control, o->timeout_ms, ret, err);
}
