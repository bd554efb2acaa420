/* SPDX-License-Identifier: Apache-2.0 */
/* Every transaction has one audit draft, and the log's length tells how far the history came. */
#include "tests/controller/power_history.h"
#include <sqlite3.h>

#define LATER 4102444800000000000ull /* nothing of it is pruned */
#define ALPHA ((struct ros2_uid){{0xa1}})
#define DPU   ((struct ros2_uid){{0xd0}})
#define OTHER ((struct ros2_uid){{0xd1}}) /* comes late and is deleted */

static uint32_t kinds;

static struct store_mut *add(struct store_txn *t, enum store_mut_kind kind)
{
	kinds |= 1u << kind;
	return store_txn_add(t, kind);
}

static struct ros2_uid uid_of(unsigned i)
{
	return (struct ros2_uid){{0x10, (uint8_t)i}};
}

static void object(struct store_txn *t, enum store_kind kind, const char *name, struct ros2_uid uid,
                   unsigned i, bool revoked)
{
	struct store_mut *m = add(t, STORE_OBJECT_PUT);
	static const char image[6000] = "an image longer than a page";

	m->object = (struct store_object){
		.kind = kind,
		.name = store_txn_str(t, name),
		.uid = uid,
		.version = i + 1,
		.created_unix_ns = 1,
		.updated_unix_ns = 2,
		.file = "t.yaml",
		.doc = "kind: something",
		.image = kind == STORE_AGENT ? NULL : image,
		.image_len = kind == STORE_AGENT ? 0 : sizeof(image),
		.revoked = revoked,
		.revoked_version = revoked ? i : 0,
		.state_reason = "",
	};
	store_txn_set_revision(t, i + 1);
}

static void agent(struct store_txn *t, struct ros2_uid uid, bool enrolled, const char *serial)
{
	add(t, STORE_AGENT_PUT)->agent = (struct store_agent){
		.uid = uid,
		.name = uid.b[0] == DPU.b[0] ? "dpu-0" : "dpu-1",
		.enrolled = enrolled,
		.cert_serial = store_txn_str(t, serial),
		.isolated_reason = "",
	};
}

static void token(struct store_txn *t, struct ros2_uid agent_uid, uint8_t id, bool used)
{
	add(t, STORE_TOKEN_PUT)->token = (struct store_token){
		.secret_sha256 = {id},
		.agent_uid = agent_uid,
		.expires_unix_s = LATER / 1000000000u,
		.used = used,
	};
}

static void grant(struct store_txn *t, struct ros2_uid agent_uid, unsigned i)
{
	add(t, STORE_GRANT_PUT)->grant = (struct store_grant){
		.uid = uid_of(i),
		.tenant_uid = ALPHA,
		.agent_uid = agent_uid,
		.principal = "spiffe://ros2.test/tenant/alpha/x",
		.version = i + 1,
		.max_keys = 4,
		.lifetime_ms = 3600000,
		.expires_unix_ns = LATER,
		.state = STORE_GRANT_LIVE,
	};
}

static void end_grant(struct store_txn *t, unsigned i)
{
	add(t, STORE_GRANT_END)->grant = (struct store_grant){
		.uid = uid_of(i), .state = STORE_GRANT_RELEASED, .ended_unix_ns = LATER};
}

/* A tenant's revocation as the controller writes it: the object, its grants, the tombstone, and
 * what each agent owes. */
static void revoke_alpha(struct store_txn *t, unsigned i)
{
	object(t, STORE_TENANT, "alpha", ALPHA, i, true);
	add(t, STORE_GRANTS_END_TENANT)->grant = (struct store_grant){
		.tenant_uid = ALPHA, .state = STORE_GRANT_REVOKED, .ended_unix_ns = LATER};
	add(t, STORE_REVOCATION_PUT)->revocation =
		(struct store_revocation){.uid = uid_of(i),
	                                  .kind = STORE_TENANT,
	                                  .target_uid = ALPHA,
	                                  .target_name = "alpha",
	                                  .version = i,
	                                  .reason = "key leaked"};
	add(t, STORE_RECEIPT_PUT)->receipt =
		(struct store_receipt){.revocation_uid = uid_of(i), .agent_uid = DPU};
	store_txn_set_shrinks(t);
}

static void receipt(struct store_txn *t, unsigned of)
{
	add(t, STORE_RECEIPT_PUT)->receipt = (struct store_receipt){
		.revocation_uid = uid_of(of), .agent_uid = DPU, .durable = true, .leases = 3};
}

/* What is owed for revocation @of is another's: it was superseded. */
static void supersede(struct store_txn *t, unsigned of)
{
	add(t, STORE_RECEIPT_DELETE)->receipt =
		(struct store_receipt){.revocation_uid = uid_of(of), .agent_uid = DPU};
}

static void origin(struct store_txn *t, struct ros2_uid agent_uid, uint8_t incarnation,
                   uint64_t seq)
{
	add(t, STORE_ORIGIN_PUT)->origin = (struct store_origin){.agent_uid = agent_uid,
	                                                         .incarnation = {{incarnation}},
	                                                         .seq = seq,
	                                                         .updated_unix_ns = 1};
}

static void drop_object(struct store_txn *t, unsigned i)
{
	struct store_mut *m = add(t, STORE_OBJECT_DELETE);

	m->object = (struct store_object){.kind = STORE_ENGINE, .name = "files", .uid = uid_of(1)};
	store_txn_set_revision(t, i + 1);
}

static void drop_token(struct store_txn *t, uint8_t id)
{
	add(t, STORE_TOKEN_DELETE)->token = (struct store_token){.secret_sha256 = {id}};
}

static void drop_origin(struct store_txn *t, struct ros2_uid agent_uid, uint8_t incarnation)
{
	add(t, STORE_ORIGIN_DELETE)->origin =
		(struct store_origin){.agent_uid = agent_uid, .incarnation = {{incarnation}}};
}

/* @seen: each of its properties in turn has another result. */
static void probe(struct store_txn *t, unsigned seen)
{
	static struct probe_subject subjects[2];
	struct probe_subject *s = &subjects[seen % 2];

	*s = (struct probe_subject){
		.name = "rxe0", .transport = "verbs", .kernel = "6", .tried_unix_ns = seen};
	for (int i = 0; i < PROBE_PROPERTIES; i++)
		s->findings[i].result = (enum probe_result)((seen + (unsigned)i) % 3);
	add(t, STORE_PROBE_PUT)->probe = (struct store_probe){.agent_uid = OTHER, .subject = s};
}

/* As an administrator deletes an agent: all that is about it goes in one commit. */
static void drop_agent(struct store_txn *t, unsigned i)
{
	add(t, STORE_GRANTS_END_AGENT)->grant = (struct store_grant){
		.agent_uid = OTHER, .state = STORE_GRANT_REVOKED, .ended_unix_ns = LATER};
	add(t, STORE_OBJECT_DELETE)->object =
		(struct store_object){.kind = STORE_AGENT, .name = "dpu-1", .uid = OTHER};
	add(t, STORE_AGENT_DELETE)->agent = (struct store_agent){.uid = OTHER};
	add(t, STORE_PROBES_DELETE)->probe = (struct store_probe){.agent_uid = OTHER};
	drop_token(t, 2);
	drop_origin(t, OTHER, 7);
	store_txn_set_revision(t, i + 1);
}

static void late_rows(struct store_txn *t, unsigned i)
{
	switch (i) {
	case 27:
		object(t, STORE_AGENT, "dpu-1", OTHER, i, false);
		agent(t, OTHER, false, "");
		token(t, OTHER, 2, false);
		break;
	case 28:
		agent(t, OTHER, true, "11");
		origin(t, OTHER, 6, 3);
		probe(t, 0);
		break;
	case 29:
	case 30:
		grant(t, OTHER, i);
		break;
	case 31:
		drop_origin(t, OTHER, 6);
		origin(t, OTHER, 7, 1);
		probe(t, 1);
		break;
	case 32:
		drop_agent(t, i);
		break;
	case 33:
		token(t, DPU, 3, false);
		break;
	case 34:
		drop_token(t, 3);
		break;
	default:
		grant(t, DPU, i);
	}
}

static void rows(struct store_txn *t, unsigned i)
{
	static const char *const serials[] = {"01", "02", "03"};

	switch (i) {
	case 0:
		object(t, STORE_TENANT, "alpha", ALPHA, i, false);
		break;
	case 1:
		object(t, STORE_ENGINE, "files", uid_of(1), i, false);
		break;
	case 2:
		object(t, STORE_AGENT, "dpu-0", DPU, i, false);
		agent(t, DPU, false, "");
		break;
	case 3:
		token(t, DPU, 1, false);
		break;
	case 4:
		token(t, DPU, 1, true);
		agent(t, DPU, true, serials[0]);
		break;
	case 8:
	case 20:
		end_grant(t, i - 2);
		break;
	case 10:
	case 22:
		revoke_alpha(t, i);
		break;
	case 11:
		receipt(t, i - 1);
		break;
	case 23:
		revoke_alpha(t, i);
		supersede(t, i - 1);
		break;
	case 12:
	case 24:
		origin(t, DPU, 5, i);
		break;
	case 13:
		drop_object(t, i);
		break;
	case 14:
		object(t, STORE_TENANT, "alpha", ALPHA, i, false);
		break;
	case 25:
		agent(t, DPU, true, serials[2]);
		break;
	default:
		late_rows(t, i);
	}
}

struct store_txn *history_txn(unsigned i)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	struct ros2_uid u = uid_of(i);

	rows(t, i);
	d->action = store_txn_fmt(t, "step.%u", i);
	d->actor = "spiffe://ros2.test/admin/root";
	d->result = STORE_AUDIT_OK;
	d->object_uid = store_txn_uid(t, &u);
	if (i % 3) {
		d->tenant = "alpha";
		d->tenant_uid = ALPHA;
	}
	return t;
}

uint32_t history_kinds(void)
{
	return kinds;
}

static const char *const tables[] = {
	"SELECT key, value FROM meta WHERE key='revision'",
	"SELECT * FROM objects",
	"SELECT * FROM deleted_uids",
	"SELECT * FROM agents",
	"SELECT * FROM grants",
	"SELECT * FROM revocations",
	"SELECT * FROM receipts",
	"SELECT * FROM tokens",
	"SELECT * FROM origins",
	"SELECT * FROM probes",
	"SELECT * FROM probe_findings",
	"SELECT seq, tenant, action, actor, object_uid, result FROM audit",
	"SELECT uid, seq FROM tenant_heads",
};

static bool add_table(sqlite3 *db, const char *sql, struct crypto_sha256 *h)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		rc = SQLITE_OK;
		for (int i = 0; i < sqlite3_column_count(st); i++) {
			int n = sqlite3_column_bytes(st, i);

			crypto_sha256_update(h, &n, sizeof(n));
			if (n)
				crypto_sha256_update(h, sqlite3_column_blob(st, i), (size_t)n);
		}
	}
	sqlite3_finalize(st);
	crypto_sha256_update(h, "|", 1);
	return rc == SQLITE_DONE;
}

bool history_digest(const struct fixture *f, uint8_t out[SHA256_LEN], uint64_t *ret_seq)
{
	struct crypto_sha256 h;
	char path[128];
	sqlite3 *db = NULL;
	bool ok;

	crypto_sha256_init(&h);
	fixture_path(f, "ros2.db", path);
	ok = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK;
	for (size_t i = 0; i < ARRAY_SIZE(tables) && ok; i++)
		ok = add_table(db, tables[i], &h);
	sqlite3_close(db);
	crypto_sha256_end(&h, out);
	if (ok)
		*ret_seq = (uint64_t)fixture_sql(f, "SELECT count(*) FROM audit");
	return ok;
}
