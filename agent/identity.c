/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of an identity: reading, checking, writing. identity.json is the commit point. Where it
 * names another agent it is written before everything else, too: what made a new identity necessary
 * (a certificate that has ended, a damaged file) holds until the last file that it concerns is
 * there, while a certificate that is good with the uid of before would count, and be nobody's.
 */
#include "agent/identity.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define FILE_MAX 65536

static void path_of(const char *dir, const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.3900s/%s", dir, name);
}

static int read_in(const char *dir, const char *name, void **ret, size_t *len, struct ros2_err *err)
{
	char path[PATH_MAX];

	path_of(dir, name, path);
	return fsx_read_file(path, FILE_MAX, ret, len, err);
}

static int write_in(const char *dir, const char *name, const void *p, size_t n, mode_t mode,
                    struct ros2_err *err)
{
	char path[PATH_MAX];

	path_of(dir, name, path);
	return fsx_write_atomic(path, p, n, mode, err);
}

static int load_snapshot_key(const char *dir, struct identity *ret, struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	size_t n;
	int r = read_in(dir, "snapshot.pub", &p, &n, err);

	if (!r)
		r = identity_key_parse(p, n, ret->snapshot_pub, err);
	if (r < 0 && r != -ENOENT)
		ros2_err_prefix(err, "%s/snapshot.pub", dir);
	return r;
}

/* The certificate is this agent's, and the key is the certificate's. */
static int check_key_pair(const char *dir, const struct identity *id, struct ros2_err *err)
{
	AUTO_FREE void *cert = NULL, *key = NULL;
	char want[ROS2_SPIFFE_MAX * 2];
	struct pki_cert_info info;
	size_t cert_len, key_len;
	int r = read_in(dir, "tls.crt", &cert, &cert_len, err);

	r = r < 0 ? r : read_in(dir, "tls.key", &key, &key_len, err);
	if (r < 0)
		return r;
	r = pki_cert_info(cert, cert_len, &info, err);
	r = r < 0 ? r : pki_key_matches(cert, cert_len, key, key_len, err);
	if (r < 0) {
		ros2_err_prefix(err, "%s/tls.crt and tls.key", dir);
		return r;
	}
	snprintf(want, sizeof(want), "spiffe://%s/agent/%s", id->trust_domain, id->name);
	if (strcmp(info.uri, want) != 0)
		return ros2_err_named(err, ROS2_INVALID, "%s/tls.crt is for '%s', expected %s", dir,
		                      info.uri, want);
	return 0;
}

/* The machine's fault or the administrator's: a new identity would not mend it. */
static bool not_of_the_files(int r)
{
	return r == -EACCES || r == -EPERM || r == -EIO || r == -ENOMEM || r == -EMFILE ||
	       r == -ENFILE;
}

int identity_load(const char *dir, const char *name, struct identity *ret, struct ros2_err *err)
{
	AUTO_FREE void *json = NULL;
	struct identity id = {0};
	size_t json_len;
	int r = read_in(dir, "identity.json", &json, &json_len, err);

	if (r < 0)
		return r;
	r = identity_json_parse(json, json_len, &id, err);
	if (r < 0)
		return ros2_err_prefix(err, "%s/identity.json", dir), r;
	if (strcmp(id.name, name) != 0)
		return ros2_err_named(
			err, ROS2_INVALID,
			"--state-dir %s belongs to agent %s, --name says %s: use another "
			"directory",
			dir, id.name, name);
	r = load_snapshot_key(dir, &id, err);
	if (!r)
		r = check_key_pair(dir, &id, err);
	if (r < 0 && not_of_the_files(r))
		return r;
	if (r < 0)
		/* ENOENT here is a missing part, not a fresh directory. */
		return ros2_err_named(
			err, ROS2_CORRUPT,
			"%.200s: enrol again: `ros2ctl agent token create %s`, then start "
			"with --token-file",
			err ? err->msg : "", name);
	*ret = id;
	return 0;
}

int identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                               struct ros2_err *err)
{
	AUTO_FREE void *cert = NULL;
	struct pki_cert_info info;
	int64_t now = (int64_t)time(NULL), half, came;
	char path[PATH_MAX];
	struct stat st;
	size_t len;
	char when[32];
	int r = read_in(dir, "tls.crt", &cert, &len, err);

	if (!r)
		r = pki_cert_info(cert, len, &info, err);
	if (r < 0)
		return r;
	clock_format_unix_ns((uint64_t)info.not_after_unix_s * NS_PER_S, when);
	if (info.not_after_unix_s <= now)
		return ros2_err_named(
			err, ROS2_UNAUTHENTICATED,
			"%s/tls.crt ended at %s: a new one is asked for with the key there is, at "
			"--enrol; where that is refused: `ros2ctl agent token create %s`, then "
			"start with --token-file",
			dir, when, name);
	/* Half of what was left when it came: not_before is set back for clocks that are late. A
	 * time that has not come is of a clock that was ahead, and half of that may be no time. */
	path_of(dir, "tls.crt", path);
	came = info.not_before_unix_s;
	if (stat(path, &st) == 0 && st.st_mtime <= now)
		came = MAX((int64_t)st.st_mtime, came);
	half = came + (info.not_after_unix_s - came) / 2;
	*ret_renew_in_s = half > now ? (uint64_t)(half - now) : 0;
	return 0;
}

bool identity_certificate_is_early(const char *dir)
{
	AUTO_FREE void *cert = NULL;
	struct pki_cert_info info;
	size_t len;

	return !read_in(dir, "tls.crt", &cert, &len, NULL) &&
	       !pki_cert_info(cert, len, &info, NULL) &&
	       info.not_before_unix_s > (int64_t)time(NULL);
}

bool identity_must_enrol(const char *dir, const char *name, int load_r, const struct ros2_err *why,
                         bool token)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t s;

	if (load_r == -ENOENT)
		return true;
	if (!token)
		return false;
	if (load_r < 0)
		return why->status == ROS2_CORRUPT;
	return identity_check_certificate(dir, name, &s, &err) < 0 &&
	       err.status == ROS2_UNAUTHENTICATED;
}

/* ---- writing ---- */

int identity_store_certificate(const char *dir, const char *name, const char *trust_domain,
                               const void *cert_pem, size_t len, struct ros2_err *err)
{
	AUTO_FREE void *key = NULL;
	char want[ROS2_SPIFFE_MAX * 2];
	struct pki_cert_info info;
	size_t key_len;
	int r = read_in(dir, "tls.key", &key, &key_len, err);

	if (!r)
		r = pki_cert_info(cert_pem, len, &info, err);
	if (!r)
		r = pki_key_matches(cert_pem, len, key, key_len, err);
	if (r < 0)
		return ros2_err_prefix(err, "the certificate the controller issued"), r;
	snprintf(want, sizeof(want), "spiffe://%s/agent/%s", trust_domain, name);
	if (strcmp(info.uri, want) != 0)
		return ros2_err_named(err, ROS2_WRONG_DOMAIN,
		                      "the controller issued a certificate for %s, expected %s",
		                      info.uri, want);
	return write_in(dir, "tls.crt", cert_pem, len, 0644, err);
}

int identity_store_bundle(const char *dir, const char *file, const void *pem, size_t len,
                          struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct pki_trust *trust = NULL;
	AUTO_FREE void *old = NULL;
	size_t old_len;
	int r;

	if (!len)
		return 0;
	r = pki_trust_new(pem, len, &trust, &why);
	pki_trust_unref(trust);
	if (r == -EBADMSG)
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "the controller sent a %s that is none: %s", file, why.msg);
	if (r < 0)
		return ros2_err_set(err, r, "%s: %s", file, why.msg);
	/* It may be there from a try that failed to sync its name. */
	if (!read_in(dir, file, &old, &old_len, NULL) && old_len == len && !memcmp(old, pem, len))
		return fsx_sync_dir(dir, err);
	r = write_in(dir, file, pem, len, 0644, err);
	return r < 0 ? r : 1;
}

static int store_json(const char *dir, const struct identity_files *f, struct ros2_err *err)
{
	char text[IDENTITY_JSON_MAX];
	int n = identity_json_format(&f->agent_uid, f->name, f->trust_domain, text);

	if (n < 0)
		return ros2_err_named(err, ROS2_PROTOCOL, "the agent's name or trust domain");
	return write_in(dir, "identity.json", text, (size_t)n, 0644, err);
}

static bool is_another(const char *dir, const struct identity_files *f)
{
	AUTO_FREE void *json = NULL;
	struct identity id = {0};
	size_t len;

	return !read_in(dir, "identity.json", &json, &len, NULL) &&
	       !identity_json_parse(json, len, &id, NULL) &&
	       !ros2_uid_eq(&id.agent_uid, &f->agent_uid);
}

int identity_store(const char *dir, const struct identity_files *f, struct ros2_err *err)
{
	char hex[2 * ED25519_PUB_LEN + 2];
	int r;

	if (!identity_trust_domain_valid(f->trust_domain))
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the controller's trust domain is no name");
	if (f->snapshot_key_len != ED25519_PUB_LEN)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the controller sent a snapshot key of %zu "
		                      "bytes, expected 32",
		                      f->snapshot_key_len);
	r = pki_verify(f->cert_pem, f->cert_len, f->infra_pem, f->infra_len, err);
	if (r < 0)
		return ros2_err_prefix(err, "the certificate the controller issued"), r;
	crypto_hex(f->snapshot_key, ED25519_PUB_LEN, hex);
	strcat(hex, "\n");
	r = is_another(dir, f) ? store_json(dir, f, err) : 0;
	if (!r)
		r = identity_store_bundle(dir, "infra-bundle.pem", f->infra_pem, f->infra_len, err);
	if (r >= 0)
		r = identity_store_bundle(dir, "tenant-bundle.pem", f->tenant_pem, f->tenant_len,
		                          err);
	if (r >= 0)
		r = write_in(dir, "snapshot.pub", hex, strlen(hex), 0644, err);
	if (!r)
		r = identity_store_certificate(dir, f->name, f->trust_domain, f->cert_pem,
		                               f->cert_len, err);
	return r < 0 ? r : store_json(dir, f, err);
}

/* ---- the join token ---- */

int join_token_parse(const char *text, size_t len, const char *agent, struct join_token *ret,
                     struct ros2_err *err)
{
	static const char expected[] =
		"expected \"ros2-join-v1 AGENT SECRET CA-HASH\" and the CA's "
		"PEM below it, as `ros2ctl agent token create` writes it";
	const char *eol = memchr(text, '\n', len);
	char line[512], name[128], secret[129], hash[129];
	struct join_token t = {0};
	struct pki_cert_info info;
	uint8_t found[SHA256_LEN];

	if (!eol || (size_t)(eol - text) >= sizeof(line))
		return ros2_err_named(err, ROS2_INVALID, "%s", expected);
	memcpy(line, text, (size_t)(eol - text));
	line[eol - text] = '\0';
	if (sscanf(line, "ros2-join-v1 %127s %128s %128s", name, secret, hash) != 3 ||
	    crypto_hex_decode(hash, t.bundle_hash, SHA256_LEN) < 0)
		return ros2_err_named(err, ROS2_INVALID, "%s", expected);
	if (strcmp(name, agent) != 0)
		return ros2_err_named(err, ROS2_INVALID,
		                      "the token is for agent %.63s, --name says %s", name, agent);
	len -= (size_t)(eol + 1 - text);
	text = eol + 1;
	if (pki_bundle_hash(text, len, found, err) < 0)
		return ros2_err_prefix(err, "the CA in the token file"), err ? err->code : -EBADMSG;
	if (memcmp(found, t.bundle_hash, SHA256_LEN) != 0)
		return ros2_err_named(
			err, ROS2_CORRUPT,
			"the CA in the token file does not match the hash in its first "
			"line: one of them was changed");
	if (pki_cert_info(text, len, &info, err) < 0 || strncmp(info.uri, "spiffe://", 9) != 0 ||
	    strcspn(info.uri + 9, "/") >= sizeof(t.trust_domain))
		return ros2_err_named(err, ROS2_INVALID,
		                      "the CA in the token file names no trust "
		                      "domain");
	strcpy(t.agent, agent);
	strcpy(t.secret, secret);
	memcpy(t.trust_domain, info.uri + 9,
	       strcspn(info.uri + 9, "/")); /* ends: t began as zeros */
	t.bundle_pem = strndup(text, len);
	t.bundle_len = len;
	if (!t.bundle_pem)
		return ros2_err_set(err, -ENOMEM, "no memory for the token");
	*ret = t;
	return 0;
}

int join_token_load(const char *path, const char *agent, struct join_token *ret,
                    struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	size_t len;
	int r = fsx_read_file(path, FILE_MAX, &p, &len, err);

	if (!r)
		r = join_token_parse(p, len, agent, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "--token-file %s", path);
	return r;
}

void join_token_fini(struct join_token *t)
{
	crypto_wipe(t->secret, sizeof(t->secret));
	free(t->bundle_pem);
	t->bundle_pem = NULL;
}
