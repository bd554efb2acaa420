/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is calling, from the certificate the TLS layer has verified: exactly one URI SAN that is a
 * SPIFFE ID, not expired (a connection may outlive its certificate). Parsing a certificate takes
 * longer than most calls, so the last ones are remembered; a hit needs the whole PEM text to be
 * equal.
 */
#include "common/clock.h"
#include "common/pki.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CACHE_SLOTS 256

struct cached {
	char *pem; /* owned */
	size_t len;
	struct pki_cert_info info;
};

struct rpc_peer_cache {
	struct cached slots[CACHE_SLOTS];
};

struct rpc_peer_cache *rpc_peer_cache_new(void)
{
	return calloc(1, sizeof(struct rpc_peer_cache));
}

void rpc_peer_cache_free(struct rpc_peer_cache *c)
{
	for (size_t i = 0; c && i < CACHE_SLOTS; i++)
		free(c->slots[i].pem);
	free(c);
}

static struct cached *slot_of(struct rpc_peer_cache *c, const char *pem, size_t len)
{
	uint64_t h = 1469598103934665603ull; /* FNV-1a; a collision only costs a parse */

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)pem[i]) * 1099511628211ull;
	return &c->slots[h % CACHE_SLOTS];
}

static int info_of(struct rpc_peer_cache *c, const char *pem, size_t len,
                   const struct pki_cert_info **ret, struct ros2_err *err)
{
	struct cached *s = slot_of(c, pem, len);
	struct pki_cert_info info;
	int rc;

	if (s->pem && s->len == len && !memcmp(s->pem, pem, len)) {
		*ret = &s->info;
		return 0;
	}
	rc = pki_cert_info(pem, len, &info, err);
	if (rc)
		return rc;
	free(s->pem);
	s->pem = malloc(len);
	if (!s->pem)
		return ros2_err_set(err, -ENOMEM, "no memory");
	memcpy(s->pem, pem, len);
	s->len = len;
	s->info = info;
	*ret = &s->info;
	return 0;
}

/* "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711" or, with a scope, "ipv6:%5Bfe80::1%252%5D:4711" */
static void address_of(grpc_call *call, char *out, size_t n)
{
	char *peer = grpc_call_get_peer(call);
	const char *p = peer;
	size_t o = 0;

	if (!strncmp(p, "ipv4:", 5) || !strncmp(p, "ipv6:", 5))
		p += 5;
	for (; *p && o + 1 < n; o++) {
		if (!strncasecmp(p, "%5b", 3) || !strncasecmp(p, "%5d", 3)) {
			out[o] = (p[2] | 0x20) == 'b' ? '[' : ']';
			p += 3;
		} else if (!strncmp(p, "%25", 3)) {
			out[o] = '%';
			p += 3;
		} else {
			out[o] = *p++;
		}
	}
	out[o] = '\0';
	gpr_free(peer);
}

static int from_info(const struct pki_cert_info *info, struct rpc_peer *ret, struct ros2_err *err)
{
	if (!ros2_spiffe_valid(info->uri, NULL, NULL))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "the client certificate must name exactly one SPIFFE ID, "
		                      "found \"%s\"",
		                      info->uri);
	if ((int64_t)(clock_unix_ns() / NS_PER_S) >= info->not_after_unix_s)
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "the client certificate of %s has expired", info->uri);
	snprintf(ret->spiffe_id, sizeof(ret->spiffe_id), "%s", info->uri);
	ret->cert_not_after_unix_s = info->not_after_unix_s;
	memcpy(ret->cert_sha256, info->cert_sha256, sizeof(ret->cert_sha256));
	memcpy(ret->spki_sha256, info->spki_sha256, sizeof(ret->spki_sha256));
	ret->authenticated = true;
	return 0;
}

int rpc_peer_of(struct rpc_peer_cache *c, grpc_call *call, struct rpc_peer *ret,
                struct ros2_err *err)
{
	grpc_auth_context *auth = grpc_call_auth_context(call);
	const grpc_auth_property *p = NULL;
	const struct pki_cert_info *info;
	grpc_auth_property_iterator it;
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	address_of(call, ret->address, sizeof(ret->address));
	if (auth) {
		it = grpc_auth_context_find_properties_by_name(auth,
		                                               GRPC_X509_PEM_CERT_PROPERTY_NAME);
		p = grpc_auth_property_iterator_next(&it);
	}
	if (p && p->value_length) {
		rc = info_of(c, p->value, p->value_length, &info, err);
		/* What is refused as unauthenticated does not come again. */
		if (rc == -ENOMEM)
			rc = ros2_err_named(err, ROS2_BUSY, "out of memory: try again");
		else if (rc)
			rc = ros2_err_named(err, ROS2_UNAUTHENTICATED,
			                    "the client certificate cannot be used: it must parse "
			                    "and name exactly one SPIFFE ID");
		else
			rc = from_info(info, ret, err);
	}
	if (auth)
		grpc_auth_context_release(auth);
	return rc;
}
