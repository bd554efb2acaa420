/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP with another bundle: whose authority is gone is refused on the connection it has, an agent
 * comes back with its key, revocations hold meanwhile, and the log tells what came and went.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "controller/store.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include <unistd.h>

#define KIND(k)   ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)    ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define RESULT(r) ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_##r

/* Negative control: nobody is judged again. */
static _Atomic bool judge = true;
struct grpc_call;
int __real_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err)
{
	return judge ? __real_rpc_trust_admit(s, call, peer, err) : 0;
}

/* The store in between: what it is given it does not take, says late that it had no space for, or
 * keeps to itself until it is let go. */
static _Atomic enum { NONE, REFUSED, NO_SPACE, HELD } fault;
static _Atomic int faults; /* so often */
static struct held {
	struct store *s;
	struct store_txn *t;
	store_done_fn done;
	void *arg;
} held;
static struct loop *fault_loop;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

static void no_space(void *arg)
{
	struct held *h = arg;
	struct store_result r = {.rc = -ENOSPC};

	ros2_err_set(&r.err, -ENOSPC, "the disk is full");
	h->done(h->arg, &r);
	free(h);
}

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	struct held *h;

	/* Reloads: nothing else in these tests waits for its record while they fail. */
	if (fault == NONE || !done || !t)
		return __real_store_submit(s, t, done, arg, err);
	faults++;
	if (fault == HELD) {
		held = (struct held){s, t, done, arg};
		fault = NONE;
		return 0;
	}
	store_txn_free(t);
	if (fault == REFUSED)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	h = malloc(sizeof(*h));
	*h = (struct held){.done = done, .arg = arg};
	loop_post(fault_loop, no_space, h);
	return 0;
}

static void let_go(void *arg)
{
	assert_int_equal(__real_store_submit(held.s, held.t, held.done, held.arg, NULL), 0);
}

/* ---- the configuration directory ---- */

static const char *const kept[] = {
	"infra-bundle.pem", "admin-bundle.pem", "tenant-bundle.pem", "issuer.crt",
	"issuer.key",       "tls.crt",          "tls.key",           "roles"};

static void copy(const char *from, const char *to)
{
	AUTO_FREE void *p = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(from, 65536, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, n, 0600, NULL), 0);
}

/* controller/@file becomes @a and, unless it is NULL, @b. */
static void put(const char *file, const char *a, const char *b)
{
	AUTO_FREE char *pa = NULL, *pb = NULL, *both = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(a, 65536, (void **)&pa, &n, NULL), 0);
	if (b)
		assert_int_equal(fsx_read_file(b, 65536, (void **)&pb, &n, NULL), 0);
	assert_true(asprintf(&both, "%s%s", pa, pb ? pb : "") > 0);
	assert_int_equal(
		fsx_write_atomic(sf_path("controller/%s", file), both, strlen(both), 0600, NULL),
		0);
}

static void make_ca(const char *name, const char *issuer)
{
	struct pki_ca_opts o = {.common_name = name,
	                        .trust_domain = TD,
	                        .key_path = sf_path("%s.key", name),
	                        .cert_path = sf_path("%s.crt", name),
	                        .issuer_cert_path = issuer ? sf_path("%s.crt", issuer) : NULL,
	                        .issuer_key_path = issuer ? sf_path("%s.key", issuer) : NULL,
	                        .lifetime_s = 86400};

	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
}

static int group_setup(void **state)
{
	if (sf_group_setup(state))
		return -1;
	make_ca("infra2", NULL);
	make_ca("issuer2", "infra2");
	make_ca("admin2", NULL);
	sf_cert("infra2", "controller2", "controller/ctl-0");
	sf_cert("admin2", "root2", "admin/root");

	assert_int_equal(fsx_mkdirs(sf_path("first"), 0700, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		copy(sf_path("controller/%s", kept[i]), sf_path("first/%s", kept[i]));
	return 0;
}

static int setup(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		copy(sf_path("first/%s", kept[i]), sf_path("controller/%s", kept[i]));
	return sf_setup(state);
}

static void reload_now(void *arg)
{
	controller_reload(arg);
}

static void reload(struct sf *f)
{
	loop_call(f->loop, reload_now, f->c);
}

/* ---- records ---- */

/* The newest record of @action; the caller frees it. */
static ProtobufCMessage *newest(struct sf *f, const char *action, Ros2__V1__AuditResult result,
                                Ros2__V1__AuditRecord **ret)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	const Ros2__V1__StoredRecord *row = NULL;
	ProtobufCMessage *m, *last = NULL;
	struct rpc_reader *r = NULL;

	q.action = (char *)action;
	q.result = result;
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q.base, 5000, &r, NULL),
	                 0);
	while (!rpc_reader_next(r, 5000, &m, NULL)) {
		if (last)
			protobuf_c_message_free_unpacked(last, NULL);
		last = m;
	}
	rpc_reader_close(r);
	assert_non_null(last);
	row = ros2_v1_audit_query_out(last)->record;
	*ret = ros2__v1__audit_record__unpack(NULL, row->record.len, row->record.data);
	assert_non_null(*ret);
	return last;
}

static const char *detail(const Ros2__V1__AuditRecord *r, const char *key)
{
	for (size_t i = 0; i < r->n_details; i++)
		if (!strcmp(r->details[i]->key, key))
			return r->details[i]->value;
	return "";
}

struct expected {
	const char *infra, *infra_added, *infra_removed, *admin_removed; /* certificates or NULL */
};

static void same_id(const char *text, const char *cert)
{
	AUTO_FREE char *pem = NULL;
	struct pki_cert_info info;
	char hex[65] = "";
	size_t n;

	if (cert) {
		assert_int_equal(fsx_read_file(sf_path("%s", cert), 65536, (void **)&pem, &n, NULL),
		                 0);
		assert_int_equal(pki_cert_info(pem, n, &info, NULL), 0);
		crypto_hex(info.cert_sha256, 32, hex);
	}
	assert_string_equal(text, hex);
}

static void recorded(struct sf *f, unsigned n, const struct expected *e)
{
	Ros2__V1__AuditRecord *r;
	ProtobufCMessage *m;

	sf_audit_wait(f, "trust.reload", n);
	m = newest(f, "trust.reload", RESULT(OK), &r);
	assert_string_equal(r->actor, "system");
	assert_string_equal(r->object_kind, "controller");
	assert_string_equal(detail(r, "infra-bundle"), e->infra);
	same_id(detail(r, "infra-bundle.added"), e->infra_added);
	same_id(detail(r, "infra-bundle.removed"), e->infra_removed);
	same_id(detail(r, "admin-bundle.removed"), e->admin_removed);
	assert_string_equal(detail(r, "tenant-bundle"), "1 authorities");
	assert_string_equal(detail(r, "roles"), "3");
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* What reloads change is seen from there. */
static void start__names_whom_the_controller_believes(void **state)
{
	static const char *const bundles[][2] = {{"infra-bundle", "infra.crt"},
	                                         {"admin-bundle", "admin.crt"},
	                                         {"tenant-bundle", "tenant.crt"}};
	Ros2__V1__AuditRecord *r;
	ProtobufCMessage *m;
	char name[64];

	sf_audit_wait(*state, "controller.start", 1);
	m = newest(*state, "controller.start", RESULT(OK), &r);
	assert_string_not_equal(detail(r, "version"), "");
	for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
		assert_string_equal(detail(r, bundles[i][0]), "1 authorities");
		snprintf(name, sizeof(name), "%s.has", bundles[i][0]);
		same_id(detail(r, name), bundles[i][1]);
	}
	assert_string_equal(detail(r, "roles"), "3");
	assert_non_null(strstr(detail(r, "roles.has"), "spiffe://" TD "/"));
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* ---- administrators ---- */

static enum ros2_status ask_status(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;

	memset(err, 0, sizeof(*err));
	if (ros2_v1_admin_status_sync(c, &q, 5000, &r, err) == 0)
		ros2__v1__status_reply__free_unpacked(r, NULL);
	return err->status;
}

static void trust__an_administrator_whose_authority_is_gone_is_refused_where_it_is(void **state)
{
	struct sf *f = *state;
	struct rpc_channel *second;
	struct ros2_err err;

	put("admin-bundle.pem", sf_path("admin.crt"), sf_path("admin2.crt"));
	second = sf_channel(f, "root2", f->ports.admin, NULL);
	assert_int_not_equal(ask_status(second, &err), ROS2_OK); /* a file alone is nothing */
	rpc_channel_free(second);
	reload(f);
	sf_audit_wait(f, "trust.reload", 1);
	second = sf_channel(f, "root2", f->ports.admin, NULL);
	assert_true(AWAIT(ask_status(second, &err) == ROS2_OK));
	put("admin-bundle.pem", sf_path("admin.crt"), NULL);
	reload(f);
	recorded(f, 2, &(struct expected){"1 authorities", NULL, NULL, "admin2.crt"});
	judge = false;
	assert_int_equal(ask_status(second, &err), ROS2_OK);
	judge = true;
	assert_int_equal(ask_status(second, &err), ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "not trusted any more"));
	assert_int_equal(ask_status(f->admin, &err), ROS2_OK);
	sf_audit_wait(f, "admin.denied", 1);
	sf_audit_names(f, "admin.denied", RESULT(DENIED), "spiffe://" TD "/admin/root", "admin",
	               "admin");
	rpc_channel_free(second);
}

/* At the n-th page of a log that somebody reads, its reader loses the role. */
static _Atomic unsigned pages, last_page;
static struct controller *reading;

int __real_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg);
int __wrap_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg);
int __wrap_store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                            void *arg)
{
	static const char roles[] = "spiffe://" TD "/admin/root admin\n";

	if (++pages == last_page) {
		assert_int_equal(fsx_write_atomic(sf_path("controller/roles"), roles, strlen(roles),
		                                  0600, NULL),
		                 0);
		controller_reload(reading);
	}
	return __real_store_read_audit(s, q, fn, arg);
}

/* How many records come; *ret_status: how it ended. */
static unsigned read_all(struct rpc_channel *c, enum ros2_status *ret_status)
{
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	unsigned n = 0;

	assert_int_equal(rpc_reader_open(c, &ros2_v1_audit_raw, &q.base, 60000, &r, NULL), 0);
	while (!rpc_reader_next(r, AWAIT_MS, &m, &err)) {
		n += ros2_v1_audit_raw_out(m)->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(r);
	*ret_status = err.status;
	return n;
}

static void role__that_is_gone_reads_no_further_page_of_the_log(void **state)
{
	struct sf *f = *state;
	struct rpc_channel *eye = sf_channel(f, "eye", f->ports.admin, NULL);
	AUTO_FREE char *text = calloc(1, 65536);
	enum ros2_status status;
	size_t n = 0;

	for (int i = 0; i < 400; i++)
		n += (size_t)snprintf(text + n, 65536 - n,
		                      "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                      "a-%d}\nspec: {}\n",
		                      i);
	sf_apply(f, text);
	reading = f->c;
	pages = last_page = 0;
	assert_true(read_all(eye, &status) > 400); /* the control: it may */
	assert_true(pages > 4);
	pages = 0;
	last_page = 2; /* which was asked for before */
	assert_in_range(read_all(eye, &status), 1, 180);
	assert_int_equal(status, ROS2_DENIED);
	last_page = 0;
	sf_audit_wait(f, "admin.denied", 1);
	sf_audit_names(f, "admin.denied", RESULT(DENIED), "spiffe://" TD "/admin/eye", "none",
	               "Audit.Raw");
	rpc_channel_free(eye);
}

/* ---- agents ---- */

static int renew_on(struct fake *a, struct ros2_err *err)
{
	Ros2__V1__RenewRequest q = ROS2__V1__RENEW_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;
	AUTO_FREE char *csr = NULL;
	int rc;

	assert_int_equal(pki_csr_create(sf_path("%s/tls.key", a->dir), NULL, &csr, NULL), 0);
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	memset(err, 0, sizeof(*err));
	rc = ros2_v1_agent_link_renew_sync(a->ch, &q, 5000, &r, err);
	if (!rc)
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	return rc;
}

static void connect(struct fake *a)
{
	fake_connect(a, NULL, 0);
	if (!fake_next(a, MSG(WELCOME), 5000))
		fail_msg("no Welcome: %s", a->why.msg);
	fake_wait_synced(a);
}

static void welcomed_with_two(struct fake *a)
{
	Ros2__V1__ControllerMessage *m;
	struct pki_trust *t;
	struct pki_trust_changes c;

	fake_connect(a, NULL, 0);
	m = fake_next(a, MSG(WELCOME), 5000);
	assert_non_null(m);
	assert_int_equal(pki_trust_new((char *)m->welcome->infra_bundle_pem.data,
	                               m->welcome->infra_bundle_pem.len, &t, NULL),
	                 0);
	pki_trust_changes(NULL, t, &c);
	assert_int_equal(c.authorities, 2);
	pki_trust_unref(t);
	fake_wait_synced(a);
}

static void revoke_unconfirmed(struct sf *f)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t now = clock_unix_ns();

	if (sf_revoke(f, KIND(TENANT), "alpha", 100, &r, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(r->n_outcomes, 1);
	assert_int_equal(r->outcomes[0]->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED);
	assert_true(r->outcomes[0]->unconfirmed_until_unix_ns > now + 500 * NS_PER_S);
	assert_true(r->outcomes[0]->unconfirmed_until_unix_ns < now + 610 * NS_PER_S);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
}

static void trust__an_agent_whose_authority_is_gone_comes_back_with_its_key(void **state)
{
	struct sf *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct fake a;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	fake_enrol(f, &a, "dpu-0");
	connect(&a);
	/* The new authority is added, and issues from now on. */
	put("infra-bundle.pem", sf_path("infra.crt"), sf_path("infra2.crt"));
	put("issuer.crt", sf_path("issuer2.crt"), NULL);
	put("issuer.key", sf_path("issuer2.key"), NULL);
	put("tls.crt", sf_path("controller2/tls.crt"), NULL);
	put("tls.key", sf_path("controller2/tls.key"), NULL);
	reload(f);
	recorded(f, 1, &(struct expected){"2 authorities", "infra2.crt", NULL, NULL});
	assert_true(fake_wait_closed(&a, 5000) < 0);
	assert_int_equal(a.why.status, ROS2_UNAVAILABLE);
	fake_disconnect(&a);
	welcomed_with_two(&a);
	/* The old one goes. */
	put("infra-bundle.pem", sf_path("infra2.crt"), NULL);
	reload(f);
	recorded(f, 2, &(struct expected){"1 authorities", NULL, "infra.crt", NULL});
	assert_true(fake_wait_closed(&a, 5000) < 0);
	assert_true(renew_on(&a, &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "not trusted any more"));
	sf_audit_wait(f, "agent.renew", 1);
	sf_audit_names(f, "agent.renew", RESULT(DENIED), "spiffe://" TD "/agent/dpu-0", "agent",
	               "agents");
	/* What is revoked meanwhile ends by itself at the contact limit, and it is told so. */
	revoke_unconfirmed(f);
	/* The key is the same: no token. The certificate is of the new authority. */
	fake_disconnect(&a);
	if (fake_enrol_with(f, &a, "dpu-0", "", &err))
		fail_msg("%s", err.msg);
	fake_connect(&a, NULL, 0);
	assert_non_null(fake_next(&a, MSG(WELCOME), 5000));
	assert_non_null(fake_next(&a, MSG(REVOKE), 5000));
	assert_int_equal(renew_on(&a, &err), 0);
	fake_free(&a);
}

/* ---- what cannot be read ---- */

static void failed(struct sf *f, const char *reason, const char *infra)
{
	Ros2__V1__AuditRecord *r;
	ProtobufCMessage *m = newest(f, "trust.reload", RESULT(FAILED), &r);

	if (!strstr(r->reason, reason))
		fail_msg("%s", r->reason);
	assert_string_not_equal(r->status, "OK");
	assert_string_equal(detail(r, "infra-bundle"), infra);
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
}

static void trust__a_reload_that_fails_is_recorded_and_changes_nothing(void **state)
{
	struct sf *f = *state;
	struct ros2_err err;

	put("admin-bundle.pem", sf_path("root/tls.crt"), NULL); /* no authority */
	reload(f);
	sf_audit_wait(f, "trust.reload", 1);
	failed(f, "admin-bundle.pem: certificate 1 of the bundle is not an authority", "");
	put("admin-bundle.pem", sf_path("admin.crt"), NULL);
	put("tenant-bundle.pem", sf_path("controller/roles"), NULL);
	reload(f);
	sf_audit_wait(f, "trust.reload", 2);
	failed(f, "tenant-bundle.pem", "");
	put("tenant-bundle.pem", sf_path("tenant.crt"), NULL);
	/* Each for itself: the bundles are good. */
	put("roles", sf_path("admin.crt"), NULL);
	reload(f);
	sf_audit_wait(f, "trust.reload", 3);
	failed(f, "the roles stay as they were", "1 authorities");
	assert_int_equal(ask_status(f->admin, &err), ROS2_OK);
}

/* The words of a condition; "": it is not. The caller frees them. */
static char *condition(struct sf *f, const char *name)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	char *words = NULL;

	if (ros2_v1_admin_status_sync(f->admin, &q, 5000, &r, &err))
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < r->n_conditions; i++)
		if (!strcmp(r->conditions[i]->name, name))
			words = strdup(r->conditions[i]->status ? r->conditions[i]->reason : "");
	ros2__v1__status_reply__free_unpacked(r, NULL);
	assert_non_null(words);
	return words;
}

/* The directory's letters have two bytes each, and the words end in the middle of one. */
static void trust__words_of_a_reload_that_fails_can_be_read_wherever_they_end(void **state)
{
	struct sf *f = *state;
	AUTO_FREE char *words = NULL;
	char name[201] = "";

	for (size_t i = 0; i + 2 < sizeof(name); i += 2)
		memcpy(name + i, "\xd1\x8f", 2);
	sf_stop(f);
	assert_int_equal(symlink("controller", sf_path("%s", name)), 0);
	free((void *)f->opts.config_dir);
	f->opts.config_dir = strdup(sf_path("%s", name));
	sf_start(f);
	put("roles", sf_path("admin.crt"), NULL);
	reload(f);
	sf_audit_wait(f, "trust.reload", 1);
	words = condition(f, "ReloadFailed");
	assert_non_null(strstr(words, "the roles stay as they were"));
	assert_int_equal(words[strlen(words) - 1], '?');
}

/* ---- what cannot be recorded ---- */

static void says_pending(struct sf *f, const char *words)
{
	AUTO_FREE char *is = condition(f, "ReloadPending");

	if (words ? !strstr(is, words) : is[0])
		fail_msg("\"%s\"", is);
}

static bool is_pending(struct sf *f)
{
	AUTO_FREE char *is = condition(f, "ReloadPending");

	return is[0];
}

/* Over a connection of its own: gRPC's back-off is of a channel. */
static enum ros2_status as(struct sf *f, const char *name)
{
	struct rpc_channel *c = sf_channel(f, name, f->ports.admin, NULL);
	struct ros2_err err;
	enum ros2_status st = ask_status(c, &err);

	rpc_channel_free(c);
	return st;
}

static void fail_store(struct sf *f, int how)
{
	fault_loop = f->loop;
	faults = 0;
	fault = how;
}

static void trust__what_is_added_waits_for_its_record(void **state)
{
	struct sf *f = *state;

	for (int how = REFUSED; how <= NO_SPACE; how++) {
		fail_store(f, how);
		put("admin-bundle.pem", sf_path("admin.crt"), sf_path("admin2.crt"));
		reload(f);
		assert_true(AWAIT(faults >= 2)); /* and again, by itself */
		assert_int_not_equal(as(f, "root2"), ROS2_OK);
		says_pending(f, how == REFUSED ? "is not in force: out of memory"
		                               : "is not in force: the disk is full");
		assert_int_equal(as(f, "root"), ROS2_OK);
		fault = NONE;
		assert_true(AWAIT(as(f, "root2") == ROS2_OK));
		says_pending(f, NULL);
		sf_audit_wait(f, "trust.reload", how == REFUSED ? 1 : 3);
		put("admin-bundle.pem", sf_path("admin.crt"), NULL);
		reload(f);
		sf_audit_wait(f, "trust.reload", how == REFUSED ? 2 : 4);
	}
}

static void trust__what_is_taken_away_holds_without_a_record(void **state)
{
	struct sf *f = *state;
	struct rpc_channel *second;
	struct ros2_err err;
	unsigned n = 0;

	for (int how = REFUSED; how <= NO_SPACE; how++) {
		put("admin-bundle.pem", sf_path("admin.crt"), sf_path("admin2.crt"));
		reload(f);
		sf_audit_wait(f, "trust.reload", ++n);
		second = sf_channel(f, "root2", f->ports.admin, NULL);
		assert_int_equal(ask_status(second, &err), ROS2_OK);
		fail_store(f, how);
		put("admin-bundle.pem", sf_path("admin.crt"), NULL);
		reload(f);
		assert_int_equal(ask_status(second, &err), ROS2_UNAUTHENTICATED);
		assert_true(AWAIT(faults >= 2));
		says_pending(f, "is in force, its record is pending");
		/* One more SIGHUP does not make it forget. */
		reload(f);
		assert_true(AWAIT(faults >= 4));
		fault = NONE;
		assert_true(AWAIT(!is_pending(f)));
		recorded(f, ++n, &(struct expected){"1 authorities", NULL, NULL, "admin2.crt"});
		rpc_channel_free(second);
	}
}

static void trust__exchanged_cas_take_at_once_and_give_when_recorded(void **state)
{
	struct sf *f = *state;
	struct ros2_err err;
	Ros2__V1__AuditRecord *r;
	ProtobufCMessage *m;

	assert_int_equal(ask_status(f->admin, &err), ROS2_OK);
	fail_store(f, NO_SPACE);
	put("admin-bundle.pem", sf_path("admin2.crt"), NULL);
	reload(f);
	assert_true(AWAIT(faults >= 2));
	assert_int_equal(ask_status(f->admin, &err), ROS2_UNAUTHENTICATED);
	assert_int_not_equal(as(f, "root2"), ROS2_OK);
	fault = NONE;
	assert_true(AWAIT(as(f, "root2") == ROS2_OK));
	assert_int_not_equal(as(f, "root"), ROS2_OK);
	rpc_channel_free(f->admin);
	f->admin = sf_channel(f, "root2", f->ports.admin, NULL);
	sf_audit_wait(f, "trust.reload", 2);
	m = newest(f, "trust.reload", RESULT(OK), &r);
	same_id(detail(r, "admin-bundle.added"), "admin2.crt");
	same_id(detail(r, "admin-bundle.removed"), NULL);
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
}

static void roles(const char *text)
{
	assert_int_equal(
		fsx_write_atomic(sf_path("controller/roles"), text, strlen(text), 0600, NULL), 0);
}

static void trust__roles_take_at_once_and_give_when_recorded(void **state)
{
	struct sf *f = *state;
	Ros2__V1__AuditRecord *r;
	ProtobufCMessage *m;

	assert_int_equal(as(f, "eye"), ROS2_OK);
	assert_int_not_equal(as(f, "nobody"), ROS2_OK);
	fail_store(f, REFUSED);
	roles("spiffe://" TD "/admin/root admin\nspiffe://" TD "/admin/op operator\n"
	      "spiffe://" TD "/admin/nobody auditor\n");
	reload(f);
	assert_int_equal(as(f, "eye"), ROS2_DENIED);
	assert_int_equal(as(f, "nobody"), ROS2_DENIED);
	assert_int_equal(as(f, "op"), ROS2_OK);
	fault = NONE;
	assert_true(AWAIT(as(f, "nobody") == ROS2_OK));
	assert_int_equal(as(f, "eye"), ROS2_DENIED);
	sf_audit_wait(f, "trust.reload", 2);
	m = newest(f, "trust.reload", RESULT(OK), &r);
	assert_string_equal(detail(r, "roles"), "3");
	assert_string_equal(detail(r, "roles.added"), "spiffe://" TD "/admin/nobody auditor");
	assert_string_equal(detail(r, "roles.removed"), "");
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* Its record is on its way when another SIGHUP takes it back: it never comes into force. */
static void trust__what_a_reload_overtook_never_comes_into_force(void **state)
{
	struct sf *f = *state;

	fail_store(f, HELD);
	put("admin-bundle.pem", sf_path("admin.crt"), sf_path("admin2.crt"));
	reload(f);
	assert_true(AWAIT(faults == 1));
	assert_int_not_equal(as(f, "root2"), ROS2_OK);
	put("admin-bundle.pem", sf_path("admin.crt"), NULL);
	reload(f);
	loop_call(f->loop, let_go, NULL);
	/* The log has both: that it was to be, and that it is gone. */
	recorded(f, 2, &(struct expected){"1 authorities", NULL, NULL, "admin2.crt"});
	assert_int_not_equal(as(f, "root2"), ROS2_OK);
	says_pending(f, NULL);
}

static void reload_and_free(void *arg)
{
	struct sf *f = arg;

	controller_reload(f->c);
	controller_free(TAKE_PTR(f->c));
}

/* The store commits what it was given when the listeners are gone already. */
static void
trust__a_reload_whose_record_comes_at_the_end_is_in_force_at_the_next_start(void **state)
{
	struct sf *f = *state;

	put("admin-bundle.pem", sf_path("admin.crt"), sf_path("admin2.crt"));
	loop_call(f->loop, reload_and_free, f);
	sf_stop(f);
	sf_start(f);
	assert_int_equal(as(f, "root2"), ROS2_OK);
	sf_audit_wait(f, "trust.reload", 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(start__names_whom_the_controller_believes),
		T(trust__an_administrator_whose_authority_is_gone_is_refused_where_it_is),
		T(role__that_is_gone_reads_no_further_page_of_the_log),
		T(trust__an_agent_whose_authority_is_gone_comes_back_with_its_key),
		T(trust__a_reload_that_fails_is_recorded_and_changes_nothing),
		T(trust__words_of_a_reload_that_fails_can_be_read_wherever_they_end),
		T(trust__what_is_added_waits_for_its_record),
		T(trust__what_is_taken_away_holds_without_a_record),
		T(trust__exchanged_cas_take_at_once_and_give_when_recorded),
		T(trust__roles_take_at_once_and_give_when_recorded),
		T(trust__what_a_reload_overtook_never_comes_into_force),
		T(trust__a_reload_whose_record_comes_at_the_end_is_in_force_at_the_next_start),
	};

	return cmocka_run_group_tests(tests, group_setup, sf_group_teardown);
}
