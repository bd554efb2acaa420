/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ros2ctl init`: makes a trust domain. Three certificate authorities whose keys stay with the
 * administrator, what the controller needs, and the first administrator's context. Refuses to touch
 * a directory that already holds a trust domain. What an init that was killed, or whose machine
 * lost its power, left behind is never taken for one: DIR/unfinished is there before anything else,
 * and goes when all of it is on the disk.
 */
#include "common/args.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_S         86400ull
#define CA_LIFE_S     (3650 * DAY_S)
#define ISSUER_LIFE_S (365 * DAY_S)
#define LEAF_LIFE_S   (90 * DAY_S)

enum { OPT_DIR, OPT_DOMAIN, OPT_DNS, OPT_LIFETIME };
static const struct ctl_opt opts[] = {
	{"dir", 'd', "DIR", "where to make it", .required = true},
	{"trust-domain", 0, "NAME", "e.g. storage.example.org", .required = true},
	{"controller-names", 0, "LIST",
         "DNS names and addresses of the controller (default localhost,127.0.0.1)"},
	{"cert-ttl", 0, "DURATION",
         "life of the controller's and the administrator's certificate (default 90d)"},
	{0},
};

struct init {
	const char *dir, *domain, *dns;
	uint64_t leaf_life_s;
	struct ros2_err err;
};

static char *under(const struct init *in, const char *name)
{
	return ctl_path(in->dir, name);
}

static int make_ca(struct init *in, const char *who)
{
	char name[64];
	int r;

	snprintf(name, sizeof(name), "ca/%s-ca.key", who);
	AUTO_FREE char *key = under(in, name);
	snprintf(name, sizeof(name), "ca/%s-ca.crt", who);
	AUTO_FREE char *cert = under(in, name);
	snprintf(name, sizeof(name), "%s %s CA", in->domain, who);
	const struct pki_ca_opts o = {.common_name = name,
	                              .trust_domain = in->domain,
	                              .key_path = key,
	                              .cert_path = cert,
	                              .lifetime_s = CA_LIFE_S};

	r = pki_key_create(key, &in->err);
	return r < 0 ? r : pki_ca_create(&o, &in->err);
}

/* The intermediate with which the controller enrols agents: the root's key stays offline. */
static int make_issuer(struct init *in)
{
	AUTO_FREE char *root = under(in, "ca/infra-ca.crt"),
		       *root_key = under(in, "ca/infra-ca.key");
	AUTO_FREE char *cert = under(in, "controller/issuer.crt");
	AUTO_FREE char *key = under(in, "controller/issuer.key");
	char name[160];
	int r;

	snprintf(name, sizeof(name), "%.100s agent issuer", in->domain);
	const struct pki_ca_opts o = {.common_name = name,
	                              .trust_domain = in->domain,
	                              .key_path = key,
	                              .cert_path = cert,
	                              .issuer_cert_path = root,
	                              .issuer_key_path = root_key,
	                              .lifetime_s = ISSUER_LIFE_S};
	r = pki_key_create(key, &in->err);
	return r < 0 ? r : pki_ca_create(&o, &in->err);
}

static int make_leaf(struct init *in, const char *ca, const char *where, const char *id,
                     const char *dns)
{
	char name[64], uri[ROS2_SPIFFE_MAX + 1];
	AUTO_FREE char *csr = NULL, *pem = NULL;
	int r;

	snprintf(name, sizeof(name), "ca/%s-ca.crt", ca);
	AUTO_FREE char *ca_cert = under(in, name);
	snprintf(name, sizeof(name), "ca/%s-ca.key", ca);
	AUTO_FREE char *ca_key = under(in, name);
	snprintf(name, sizeof(name), "%s/tls.key", where);
	AUTO_FREE char *key = under(in, name);
	snprintf(name, sizeof(name), "%s/tls.crt", where);
	AUTO_FREE char *cert = under(in, name);
	snprintf(uri, sizeof(uri), "spiffe://%.128s/%s", in->domain, id);
	r = pki_key_create(key, &in->err);
	r = r < 0 ? r : pki_csr_create(key, uri, &csr, &in->err);
	if (r < 0)
		return r;
	const struct pki_issue_opts o = {.csr_pem = csr,
	                                 .csr_len = strlen(csr),
	                                 .uri = uri,
	                                 .dns = dns,
	                                 .issuer_cert_path = ca_cert,
	                                 .issuer_key_path = ca_key,
	                                 .lifetime_s = in->leaf_life_s};
	r = pki_issue(&o, &pem, &in->err);
	return r < 0 ? r : fsx_write_atomic(cert, pem, strlen(pem), 0644, &in->err);
}

static int copy(struct init *in, const char *from, const char *to)
{
	AUTO_FREE char *src = under(in, from), *dst = under(in, to);
	AUTO_FREE void *text = NULL;
	size_t len;
	int r = fsx_read_file(src, PKI_PEM_MAX, &text, &len, &in->err);

	return r < 0 ? r : fsx_write_atomic(dst, text, len, 0644, &in->err);
}

static int put(struct init *in, const char *name, const char *text, mode_t mode)
{
	AUTO_FREE char *path = under(in, name);

	return fsx_write_atomic(path, text, strlen(text), mode, &in->err);
}

static int make_signing_keys(struct init *in)
{
	static const char *const names[] = {"controller/audit.key", "controller/snapshot.key"};
	uint8_t pub[ED25519_PUB_LEN], mac[32];
	char vkey[AUDIT_VKEY_MAX], origin[128], hex[2 * sizeof(mac) + 1];
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
		AUTO_FREE char *path = under(in, names[i]);
		struct crypto_sign_key *key = NULL;

		r = crypto_sign_key_new(&key, &in->err);
		r = r < 0 ? r : crypto_sign_key_save(key, path, &in->err);
		if (r == 0 && i == 0)
			crypto_sign_key_public(key, pub);
		crypto_sign_key_free(key);
	}
	if (r < 0)
		return r;
	snprintf(origin, sizeof(origin), "%.100s/audit", in->domain);
	r = audit_vkey_format(origin, pub, vkey);
	r = r < 0 ? r : put(in, "admin/audit.vkey", vkey, 0644);
	crypto_random(mac, sizeof(mac));
	crypto_hex(mac, sizeof(mac), hex);
	r = r < 0 ? r : put(in, "controller/mac.key", hex, 0600);
	crypto_wipe(mac, sizeof(mac));
	crypto_wipe(hex, sizeof(hex));
	return r;
}

static int make_texts(struct init *in)
{
	char text[512];
	int r;

	snprintf(text, sizeof(text), "%s\n", in->domain);
	r = put(in, "controller/trust-domain", text, 0644);
	r = r < 0 ? r : put(in, "admin/trust-domain", text, 0644);
	snprintf(text, sizeof(text),
	         "# SPIFFE-ID ROLE (admin, operator or auditor); read again on SIGHUP\n"
	         "spiffe://%.200s/admin/root admin\n",
	         in->domain);
	return r < 0 ? r : put(in, "controller/roles", text, 0644);
}

/* Whoever else may write to DIR could put a key there that is signed as the controller's. */
static int is_own(struct init *in)
{
	struct stat st;

	if (stat(in->dir, &st) < 0)
		return ros2_err_set(&in->err, -errno, "%s: %s", in->dir, strerror(errno));
	if (st.st_uid == geteuid() && !(st.st_mode & S_IWOTH))
		return 0;
	return ros2_err_set(&in->err, -EPERM,
	                    "%s: of uid %u, mode %04o: expected a directory of uid %u, which asks "
	                    "for this, that nobody else may write to",
	                    in->dir, st.st_uid, st.st_mode & 07777, geteuid());
}

static int end(struct init *in)
{
	AUTO_FREE char *mark = under(in, "unfinished");

	if (fsx_io->unlink(mark) < 0)
		return ros2_err_set(&in->err, -errno, "%s: %s", mark, strerror(errno));
	return fsx_sync_parent(mark, &in->err);
}

/* Somebody else's is never touched, also if both begin at once: the mark is made by one of them,
 * and what is there is looked at again then: the other may have ended in between. */
static int begin(struct init *in)
{
	static const char mark_text[] = "ros2ctl init has not ended here: no trust domain yet\n";
	AUTO_FREE char *mark = under(in, "unfinished"), *probe = under(in, "ca");
	int r = fsx_mkdirs(in->dir, 0700, &in->err);
	bool whole = access(mark, F_OK) != 0 && access(probe, F_OK) == 0;

	r = r < 0 ? r : is_own(in);
	if (r == 0 && !whole) {
		r = fsx_create_atomic(mark, mark_text, strlen(mark_text), 0600, &in->err);
		whole = r == 0 && access(probe, F_OK) == 0;
		r = whole ? end(in) : r;
	}
	if (r == 0 && whole)
		return ros2_err_set(&in->err, -EEXIST,
		                    "%s: holds a trust domain already: choose another --dir",
		                    in->dir);
	if (r == -EEXIST)
		return ros2_err_set(
			&in->err, r,
			"%s: an init is under way here, or ended before it was done. If none "
			"is, nothing uses what it left: remove ca, controller, admin and "
			"unfinished there, and ask again",
			in->dir);
	return r;
}

static int make_dirs(struct init *in)
{
	static const char *const names[] = {"ca", "controller", "admin"};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
		AUTO_FREE char *path = under(in, names[i]);

		r = fsx_mkdirs(path, 0700, &in->err);
	}
	return r;
}

static int make_all(struct init *in)
{
	static const char *const cas[] = {"infra", "admin", "tenant"};
	int r = begin(in);

	r = r < 0 ? r : make_dirs(in);
	for (size_t i = 0; i < ARRAY_SIZE(cas) && r == 0; i++)
		r = make_ca(in, cas[i]);
	r = r < 0 ? r : make_issuer(in);
	r = r < 0 ? r : make_leaf(in, "infra", "controller", "controller/ctl-0", in->dns);
	r = r < 0 ? r : make_leaf(in, "admin", "admin", "admin/root", NULL);
	r = r < 0 ? r : copy(in, "ca/infra-ca.crt", "controller/infra-bundle.pem");
	r = r < 0 ? r : copy(in, "ca/admin-ca.crt", "controller/admin-bundle.pem");
	r = r < 0 ? r : copy(in, "ca/tenant-ca.crt", "controller/tenant-bundle.pem");
	r = r < 0 ? r : copy(in, "ca/infra-ca.crt", "admin/infra-bundle.pem");
	r = r < 0 ? r : make_signing_keys(in);
	r = r < 0 ? r : make_texts(in);
	return r < 0 ? r : end(in);
}

static int run(struct ctl *c, const struct ctl_args *a)
{
	struct init in = {.dir = a->value[OPT_DIR],
	                  .domain = a->value[OPT_DOMAIN],
	                  .dns = a->value[OPT_DNS] ? a->value[OPT_DNS] : "localhost,127.0.0.1",
	                  .leaf_life_s = LEAF_LIFE_S};
	char id[ROS2_SPIFFE_MAX + 1];
	uint64_t ms;

	snprintf(id, sizeof(id), "spiffe://%.200s/x", in.domain);
	if (strlen(in.domain) > 100 || strchr(in.domain, '/') || !ros2_spiffe_valid(id, NULL, NULL))
		return ctl_fail(CTL_USAGE,
		                "--trust-domain: expected up to 100 of [a-z0-9.-], found '%s'",
		                in.domain);
	if (a->value[OPT_LIFETIME]) {
		if (args_duration_ms(a->value[OPT_LIFETIME], &ms) < 0 || ms < 60000)
			return ctl_fail(
				CTL_USAGE,
				"--cert-ttl: expected a duration of a minute or more, found '%s'",
				a->value[OPT_LIFETIME]);
		in.leaf_life_s = ms / 1000;
	}
	if (make_all(&in) < 0)
		return ctl_fail(CTL_FAILED, "%s", in.err.msg);
	fprintf(stderr,
	        "Made trust domain %s in %s:\n"
	        "  ca/          three CAs; keep the keys here, offline: the controller never needs "
	        "them\n"
	        "  controller/  copy to the controller: ros2-controller --config-dir "
	        "DIR/controller ...\n"
	        "  admin/       your context: ros2ctl --context %s/admin ...\n"
	        "  admin/audit.vkey  give it to auditors: it verifies the audit log offline\n",
	        in.domain, in.dir, in.dir);
	return CTL_OK;
}

const struct ctl_cmd ctl_cmd_init = {
	.path = "init",
	.args = "",
	.summary = "make a trust domain: CAs, the controller's files, the first administrator",
	.help = "Makes three certificate authorities (infrastructure, administrators, tenants), "
		"the controller's\n"
		"directory and an administrator's context. Private keys are made where they are "
		"used; the keys\n"
		"of the authorities stay in DIR/ca.\n\n"
		"  ros2ctl init --dir ./td --trust-domain storage.example.org",
	.opts = opts,
	.run = run,
};
