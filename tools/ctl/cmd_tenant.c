/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl tenant ...`: certificates for tenants' programs (offline, with the tenant CA), and the
 * end of a revocation. */
#include "common/args.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CERT_DIR, CERT_ID, CERT_OUT, CERT_TTL, CERT_CSR };
static const struct ctl_opt cert_opts[] = {
	{"dir", 'd', "DIR", "the trust domain, with ca/", .required = true},
	{"id", 0, "SPIFFE-ID", "the principal, as it stands in the Tenant document",
         .required = true},
	{"out", 0, "DIR", "where tls.crt, tls.key and infra-bundle.pem go", .required = true},
	{"ttl", 0, "DURATION", "life of the certificate (default 24h); sessions end with it"},
	{"csr", 0, "FILE",
         "sign this request instead of making a key: the key never leaves its owner"},
	{0},
};

struct cert {
	const char *dir, *id, *out, *csr_path;
	uint64_t life_s;
	struct ros2_err err;
};

/* The request: the tenant's own, or one for a key made in @out. */
static int get_csr(struct cert *ce, char **ret)
{
	AUTO_FREE char *key = ctl_path(ce->out, "tls.key");
	void *text = NULL;
	size_t len;
	int r;

	if (ce->csr_path) {
		r = fsx_read_file(ce->csr_path, PKI_PEM_MAX, &text, &len, &ce->err);
		if (r == 0)
			*ret = text;
		return r;
	}
	r = access(key, F_OK) == 0 ? 0 : pki_key_create(key, &ce->err);
	return r < 0 ? r : pki_csr_create(key, ce->id, ret, &ce->err);
}

static int same_domain(struct cert *ce)
{
	AUTO_FREE char *path = ctl_path(ce->dir, "controller/trust-domain");
	AUTO_FREE void *text = NULL;
	size_t len, domain_len;
	int r;

	if (!ros2_spiffe_valid(ce->id, &domain_len, NULL))
		return ros2_err_set(&ce->err, -EINVAL,
		                    "--id: expected spiffe://TRUST-DOMAIN/PATH, found '%s'",
		                    ce->id);
	r = fsx_read_file(path, 256, &text, &len, &ce->err);
	if (r < 0)
		return r;
	((char *)text)[strcspn(text, " \r\n")] = 0;
	if (strlen(text) != domain_len || strncmp(ce->id + strlen("spiffe://"), text, domain_len))
		return ros2_err_set(&ce->err, -EINVAL, "--id: '%s' is not of the trust domain '%s'",
		                    ce->id, (char *)text);
	return 0;
}

static int make_cert(struct cert *ce)
{
	AUTO_FREE char *ca = ctl_path(ce->dir, "ca/tenant-ca.crt"),
		       *ca_key = ctl_path(ce->dir, "ca/tenant-ca.key");
	AUTO_FREE char *infra = ctl_path(ce->dir, "ca/infra-ca.crt"),
		       *out = ctl_path(ce->out, "tls.crt");
	AUTO_FREE char *bundle = ctl_path(ce->out, "infra-bundle.pem"), *csr = NULL, *pem = NULL;
	AUTO_FREE void *infra_pem = NULL;
	size_t len;
	int r = same_domain(ce);

	r = r < 0 ? r : fsx_mkdirs(ce->out, 0700, &ce->err);
	r = r < 0 ? r : get_csr(ce, &csr);
	if (r < 0)
		return r;
	const struct pki_issue_opts o = {.csr_pem = csr,
	                                 .csr_len = strlen(csr),
	                                 .uri = ce->id,
	                                 .issuer_cert_path = ca,
	                                 .issuer_key_path = ca_key,
	                                 .lifetime_s = ce->life_s};
	r = pki_issue(&o, &pem, &ce->err);
	r = r < 0 ? r : fsx_write_atomic(out, pem, strlen(pem), 0644, &ce->err);
	r = r < 0 ? r : fsx_read_file(infra, PKI_PEM_MAX, &infra_pem, &len, &ce->err);
	return r < 0 ? r : fsx_write_atomic(bundle, infra_pem, len, 0644, &ce->err);
}

static int run_cert(struct ctl *c, const struct ctl_args *a)
{
	struct cert ce = {.dir = a->value[CERT_DIR],
	                  .id = a->value[CERT_ID],
	                  .out = a->value[CERT_OUT],
	                  .csr_path = a->value[CERT_CSR],
	                  .life_s = 86400};
	uint64_t ms;

	if (a->value[CERT_TTL]) {
		if (args_duration_ms(a->value[CERT_TTL], &ms) < 0 || ms < 1000)
			return ctl_fail(
				CTL_USAGE,
				"--ttl: expected a duration of a second or more, found '%s'",
				a->value[CERT_TTL]);
		ce.life_s = ms / 1000;
	}
	if (make_cert(&ce) < 0)
		return ctl_fail(CTL_FAILED, "%s", ce.err.msg);
	fprintf(stderr, "Wrote tls.crt%s and infra-bundle.pem for %s to %s\n",
	        ce.csr_path ? "" : ", tls.key", ce.id, ce.out);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_tenant_cert = {
	.path = "tenant cert",
	.args = "",
	.summary = "issue a certificate for a tenant's program",
	.help = "Signs with the tenant CA in DIR/ca; no controller is needed. A certificate gives "
		"no right by itself:\n"
		"the SPIFFE ID must stand in a Tenant document. A tls.key that is in OUT already "
		"is "
		"used again.\n\n"
		"  ros2ctl tenant cert --dir ./td --id spiffe://ros2.test/tenant/alpha/trainer "
		"--out ./alpha",
	.opts = cert_opts,
	.run = run_cert,
};

enum { REINSTATE_REASON };
static const struct ctl_opt reinstate_opts[] = {
	{"reason", 'r', "WORDS", "why; goes into the audit log", .required = true},
	{0},
};

static int run_reinstate(struct ctl *c, const struct ctl_args *a)
{
	Ros2__V1__ReinstateRequest req = ROS2__V1__REINSTATE_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	req.tenant = (char *)a->pos[0];
	req.reason = (char *)a->value[REINSTATE_REASON];
	r = ctl_call(c, &ros2_v1_admin_reinstate, &req.base, &reply);
	if (r != CTL_OK)
		return r;
	if (c->output == CTL_TABLE || c->output == CTL_NAME)
		printf("tenant/%s reinstated\n", a->pos[0]);
	else
		ctl_print_doc(c, ctl_json_kind("Reinstatement", ctl_json(reply, true)));
	protobuf_c_message_free_unpacked(reply, NULL);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_tenant_reinstate = {
	.path = "tenant reinstate",
	.args = "NAME",
	.summary = "let a revoked tenant have rights again",
	.help = "What was revoked stays dead: the tenant gets new grants under a higher "
		"version.\n\n"
		"  ros2ctl tenant reinstate alpha --reason 'new key handed out'",
	.min_pos = 1,
	.max_pos = 1,
	.opts = reinstate_opts,
	.run = run_reinstate,
};
