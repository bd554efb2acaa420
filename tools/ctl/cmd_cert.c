/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl tenant cert` and `ros2ctl admin cert`: certificates for tenants' programs and for
 * administrators, made offline with the authority that only the trust domain's owner has. */
#include "common/args.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TENANT_LIFE_S 86400u
#define ADMIN_LIFE_S  (90 * 86400u)

enum { CERT_DIR, CERT_ID, CERT_OUT, CERT_TTL, CERT_CSR };
static const struct ctl_opt cert_opts[] = {
	{"dir", 'd', "DIR", "the trust domain, with ca/", .required = true},
	{"id", 0, "SPIFFE-ID",
         "who it is for, as it stands in the Tenant document or the file of roles",
         .required = true},
	{"out", 0, "DIR", "where tls.crt, tls.key and infra-bundle.pem go", .required = true},
	{"ttl", 0, "DURATION",
         "life of the certificate (default: tenant 24h, and sessions end with it; admin 90d)"},
	{"csr", 0, "FILE",
         "sign this request instead of making a key: the key never leaves its owner"},
	{0},
};

struct cert {
	const char *dir, *id, *out, *csr_path;
	const char *authority; /* "tenant" or "admin" */
	uint64_t life_s;
	struct ros2_err err;
};

/* Whoever made the key has the certificate, whomever it was meant for. That may be who asks for it,
 * or whose OUT is: he reads what is put there anyway. 1: there is a key; 0: there is none. */
static int has_key(struct cert *ce, const char *key)
{
	struct stat out, st;

	if (stat(ce->out, &out) < 0)
		return ros2_err_set(&ce->err, -errno, "%s: %s", ce->out, strerror(errno));
	if (out.st_mode & S_IWOTH)
		return ros2_err_set(&ce->err, -EPERM,
		                    "%s: mode %04o: expected a directory in which not everybody "
		                    "can put a key",
		                    ce->out, out.st_mode & 07777);
	if (lstat(key, &st) < 0)
		return errno == ENOENT
		               ? 0
		               : ros2_err_set(&ce->err, -errno, "%s: %s", key, strerror(errno));
	if ((st.st_uid == geteuid() || st.st_uid == out.st_uid) && !(st.st_mode & S_IWOTH))
		return 1;
	return ros2_err_set(&ce->err, -EPERM,
	                    "%s: of uid %u, mode %04o: expected a key of uid %u, which asks for "
	                    "this, or of uid %u, whose directory this is, that nobody else may "
	                    "write to (--csr signs another's request)",
	                    key, st.st_uid, st.st_mode & 07777, geteuid(), out.st_uid);
}

/* The request: the tenant's own, or one for a key in @out, which is made when there is none. */
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
	r = has_key(ce, key);
	if (r == 0)
		r = pki_key_create(key, &ce->err);
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

static char *of_authority(const struct cert *ce, const char *ending)
{
	char name[64];

	snprintf(name, sizeof(name), "ca/%s-ca.%s", ce->authority, ending);
	return ctl_path(ce->dir, name);
}

/* What a context needs to know its controller by. */
static int copy_domain(struct cert *ce)
{
	AUTO_FREE char *from = ctl_path(ce->dir, "controller/trust-domain"),
		       *to = ctl_path(ce->out, "trust-domain");
	AUTO_FREE void *text = NULL;
	size_t len;
	int r = fsx_read_file(from, 256, &text, &len, &ce->err);

	return r < 0 ? r : fsx_write_atomic(to, text, len, 0644, &ce->err);
}

static int make_cert(struct cert *ce)
{
	AUTO_FREE char *ca = of_authority(ce, "crt"), *ca_key = of_authority(ce, "key");
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
	r = r < 0 ? r : fsx_write_atomic(bundle, infra_pem, len, 0644, &ce->err);
	return r < 0 || strcmp(ce->authority, "admin") ? r : copy_domain(ce);
}

static int issue(const struct ctl_args *a, const char *authority, uint64_t life_s)
{
	struct cert ce = {.dir = a->value[CERT_DIR],
	                  .id = a->value[CERT_ID],
	                  .out = a->value[CERT_OUT],
	                  .csr_path = a->value[CERT_CSR],
	                  .authority = authority,
	                  .life_s = life_s};
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

static int run_tenant(struct ctl *c, const struct ctl_args *a)
{
	(void)c;
	return issue(a, "tenant", TENANT_LIFE_S);
}

static int run_admin(struct ctl *c, const struct ctl_args *a)
{
	(void)c;
	return issue(a, "admin", ADMIN_LIFE_S);
}

const struct ctl_cmd ctl_cmd_tenant_cert = {
	.path = "tenant cert",
	.args = "",
	.summary = "issue a certificate for a tenant's program",
	.help = "Signs with the tenant CA in DIR/ca; no controller is needed. A certificate gives "
		"no right by itself:\n"
		"the SPIFFE ID must stand in a Tenant document. A tls.key that is in OUT already, "
		"yours or of OUT's owner, is\n"
		"used again.\n\n"
		"  ros2ctl tenant cert --dir ./td --id spiffe://ros2.test/tenant/alpha/trainer "
		"--out ./alpha",
	.opts = cert_opts,
	.run = run_tenant,
};

const struct ctl_cmd ctl_cmd_admin_cert = {
	.path = "admin cert",
	.args = "",
	.summary = "issue a certificate for an administrator, or a new one for an ended one",
	.help = "Signs with the admin CA in DIR/ca; no controller is needed. A certificate gives "
		"no right by itself:\n"
		"the SPIFFE ID must stand in the controller's file of roles. A tls.key that is "
		"in OUT already, yours or of OUT's owner, is\n"
		"used again, so OUT may be the context whose certificate has ended.\n\n"
		"  ros2ctl admin cert --dir ./td --id spiffe://ros2.test/admin/root --out "
		"./td/admin",
	.opts = cert_opts,
	.run = run_admin,
};
