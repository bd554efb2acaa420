/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the controller: the context directory, one channel with mTLS, blocking calls. */
#include "common/clock.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROBE_MS 500

char *ctl_path(const char *dir, const char *name)
{
	char *p;

	if (asprintf(&p, "%s/%s", dir, name) < 0)
		exit(ctl_fail(CTL_FAILED, "out of memory"));
	return p;
}

/* The address from the context's file `controller`; malloc'd. */
static int controller_from_context(const char *dir, char **ret)
{
	AUTO_FREE char *path = ctl_path(dir, "controller");
	struct ros2_err err = ROS2_ERR_INIT;
	void *text = NULL;
	size_t len;

	if (fsx_read_file(path, 256, &text, &len, &err) < 0)
		return ctl_fail(CTL_USAGE,
		                "no controller address: give --controller HOST:PORT, or write it "
		                "into %s (%s)",
		                path, err.msg);
	((char *)text)[strcspn(text, " \r\n")] = 0;
	*ret = text;
	return CTL_OK;
}

/* Only IDs under /controller/ of our own trust domain are believed; the domain is the one of the
 * bundle's issuer, so any prefix that a certificate of that bundle can carry is of it. */
static int server_id(const char *dir, char out[ROS2_SPIFFE_MAX + 1])
{
	AUTO_FREE char *path = ctl_path(dir, "trust-domain");
	AUTO_FREE void *text = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	size_t len;
	int r = fsx_read_file(path, 256, &text, &len, &err);

	if (r < 0)
		return ctl_fail(r == -ENOENT ? CTL_USAGE : CTL_FAILED,
		                "the trust domain of the context: %s", err.msg);
	((char *)text)[strcspn(text, " \r\n")] = 0;
	snprintf(out, ROS2_SPIFFE_MAX + 1, "spiffe://%.200s/controller/", (char *)text);
	return CTL_OK;
}

/* What a bare connection meets: gRPC does not tell why it has none. For words only. */
static const char *why_not_reached(const char *target)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
	const char *colon = strrchr(target, ':');
	struct pollfd p = {.fd = -1, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int error = 0, rc;
	char host[256];

	if (!colon || (size_t)(colon - target) >= sizeof(host))
		return "expected HOST:PORT";
	snprintf(host, sizeof(host), "%.*s", (int)(colon - target), target);
	if (host[0] == '[') /* [::1]:4433 */
		snprintf(host, sizeof(host), "%.*s", (int)strcspn(target + 1, "]"), target + 1);
	rc = getaddrinfo(host, colon + 1, &hints, &ai);
	if (rc)
		return gai_strerror(rc);
	p.fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p.fd < 0 || (connect(p.fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS))
		error = errno;
	else if (poll(&p, 1, PROBE_MS) == 0)
		error = ETIMEDOUT;
	else if (getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (p.fd >= 0)
		close(p.fd);
	freeaddrinfo(ai);
	return error ? strerror(error)
	             : "something listens there, but not one that this context believes, or that "
	               "believes it (is it the controller's admin address?)";
}

int ctl_connect(struct ctl *c)
{
	AUTO_FREE char *target = NULL, *cert = NULL, *key = NULL, *ca = NULL;
	char id[ROS2_SPIFFE_MAX + 1];
	struct ros2_err err = ROS2_ERR_INIT;
	int r;

	if (c->channel)
		return CTL_OK;
	if (!c->context)
		return ctl_fail(CTL_USAGE, "no context: give --context DIR or set ROS2CTL_CONTEXT "
		                           "(the admin directory that `ros2ctl init` made)");
	r = server_id(c->context, id);
	if (r == CTL_OK && !c->controller)
		r = controller_from_context(c->context, &target);
	if (r != CTL_OK)
		return r;
	cert = ctl_path(c->context, "tls.crt");
	key = ctl_path(c->context, "tls.key");
	ca = ctl_path(c->context, "infra-bundle.pem");
	const struct rpc_channel_opts o = {.name = "ros2ctl",
	                                   .target = c->controller ? c->controller : target,
	                                   .ca_path = ca,
	                                   .cert_path = cert,
	                                   .key_path = key,
	                                   .server_id = id,
	                                   .server_id_is_prefix = true,
	                                   .max_message_bytes = 16u << 20};
	if (rpc_channel_new(&o, &c->channel, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	if (rpc_channel_wait_ready(c->channel, c->timeout_ms, &err) < 0)
		return ctl_fail(CTL_UNREACHABLE, "cannot reach the controller at %s: %s: %s",
		                o.target, err.msg, why_not_reached(o.target));
	return CTL_OK;
}

bool ctl_certificate_ended(const struct ctl *c)
{
	AUTO_FREE char *path = c->context ? ctl_path(c->context, "tls.crt") : NULL;
	struct pki_cert_info info;
	AUTO_FREE void *pem = NULL;
	char when[32];
	size_t len;

	if (!path || fsx_read_file(path, PKI_PEM_MAX, &pem, &len, NULL) < 0 ||
	    pki_cert_info(pem, len, &info, NULL) < 0 ||
	    info.not_after_unix_s > (int64_t)(clock_unix_ns() / NS_PER_S))
		return false;
	clock_format_unix_ns((uint64_t)MAX(info.not_after_unix_s, (int64_t)0) * NS_PER_S, when);
	ctl_fail(CTL_UNREACHABLE,
	         "this context's certificate ended at %s: whoever has the trust domain makes a new "
	         "one for its key with `ros2ctl admin cert --dir TRUST-DOMAIN --id %s --out %s`",
	         when, info.uri, c->context);
	return true;
}

int ctl_call_wait(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
                  uint32_t timeout_ms, ProtobufCMessage **ret)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = ctl_connect(c);

	if (r != CTL_OK)
		return r;
	if (rpc_unary_sync(c->channel, m, req, timeout_ms, ret, &err) < 0)
		return ctl_fail_err(&err);
	return CTL_OK;
}

int ctl_call(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
             ProtobufCMessage **ret)
{
	return ctl_call_wait(c, m, req, c->timeout_ms, ret);
}

int ctl_read_next(const struct ctl *c, struct rpc_reader *r, ProtobufCMessage **ret,
                  struct ros2_err *err)
{
	uint32_t ms = 3 * c->timeout_ms; /* which is an hour at most */
	int rc = rpc_reader_next(r, ms, ret, err);

	if (rc != -EAGAIN)
		return rc;
	return ros2_err_named(err, ROS2_TIMEOUT, "nothing has come from the controller for %u ms",
	                      ms);
}
