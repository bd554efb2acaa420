/* SPDX-License-Identifier: Apache-2.0 */
/* Desired and applied: order, tombstones, what fails and is tried again, who a principal is. */
#include "agent/state_priv.h"
#include "agent/paths.h"
#include "common/utf8.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/state_rig.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <sanitizer/asan_interface.h>

static int receive(struct env *e, Ros2__V1__AgentObject *o)
{
	return state_receive(e->s, fix_open(&e->f, o), NULL);
}

static void store(struct env *e, uint64_t now)
{
	state_stored(e->s, state_store_begin(e->s), now);
}

static void state__has_only_the_legal_moves(void **state)
{
	static const char *const legal[] = {
		"absent>received", "received>received", "received>stored", "received>ended",
		"stored>applied",  "stored>failed",     "stored>ended",    "applied>received",
		"applied>ended",   "failed>received",   "failed>stored",   "failed>ended",
	};

	for (int a = OBJ_ABSENT; a <= OBJ_ENDED; a++)
		for (int b = OBJ_ABSENT; b <= OBJ_ENDED; b++) {
			char move[64];
			bool want = false;

			snprintf(move, sizeof(move), "%s>%s", obj_state_to_str((enum obj_state)a),
			         obj_state_to_str((enum obj_state)b));
			for (size_t i = 0; i < sizeof(legal) / sizeof(*legal); i++)
				want |= !strcmp(legal[i], move);
			assert_int_equal(obj_state_legal((enum obj_state)a, (enum obj_state)b),
			                 want);
		}
	assert_false(obj_state_legal((enum obj_state)99, OBJ_STORED));
}

static void state__applies_nothing_before_it_is_stored(void **state)
{
	struct env *e = *state;
	struct state_tenant t;
	uint64_t number;

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	number = state_store_begin(e->s);
	/* Arrived while the write was under way: not part of it. */
	assert_int_equal(receive(e, fix_tenant(&e->f, "beta", FIX_BETA, 3, 1)), 1);
	assert_int_equal(fake_dp_log.tenant_puts, 0);
	state_stored(e->s, number, 10);
	assert_int_equal(fake_dp_log.tenant_puts, 1);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_string_equal(t.name, "alpha");
	assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), -ENOENT);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), 0);
}

static void state__applies_engines_then_tenants_then_grants(void **state)
{
	struct env *e = *state;
	struct state_counts c;

	assert_int_equal(receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 1, 5, 60000, 1)), 1);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	assert_int_equal(receive(e, fix_engine(&e->f, "files", 1, 1)), 1);
	store(e, 10);
	state_counts(e->s, &c);
	assert_int_equal(c.failed, 0);
	assert_int_equal(fake_dp_log.grant_puts, 1);
}

static void state__hands_all_of_an_nvmf_engine_to_the_data_plane(void **state)
{
	const struct nvmf_config *c = &fake_dp_log.nvmf;
	struct env *e = *state;
	struct state_counts n;

	assert_int_equal(receive(e, fix_nvmf(&e->f, "flash", 1, 1)), 1);
	store(e, 10);
	state_counts(e->s, &n);
	assert_int_equal(n.failed, 0);
	assert_int_equal(fake_dp_log.engine_puts, 1);
	assert_int_equal(c->transport, NVMF_TCP);
	assert_string_equal(c->address, "2001:db8::1");
	assert_int_equal(c->port, 4421);
	assert_string_equal(c->subsystem, "nqn.2014-08.org.example:storage:1");
	assert_string_equal(c->host_nqn, "nqn.2014-08.org.example:" NVMF_TENANT_MARK);
	assert_string_equal(c->secret, "nvme-" NVMF_TENANT_MARK);
	assert_string_equal(c->target_secret, "nvme-target");
	assert_false(c->header_digest);
	assert_true(c->data_digest);
	assert_false(c->keys_per_command);
	assert_int_equal(c->queue_depth, 64);
	assert_int_equal(c->keep_alive_ms, 7000);
	assert_int_equal(c->command_timeout_ms, 8000);
	assert_int_equal(c->quiesce_ms, 9000);
	assert_int_equal(c->n_volumes, 2);
	assert_string_equal(c->volumes[0].name, "alpha/vol0");
	assert_int_equal(c->volumes[0].nsid, 1);
	assert_int_equal(c->volumes[0].size, 0);
	assert_string_equal(c->volumes[1].name, "beta/vol0");
	assert_int_equal(c->volumes[1].nsid, 2);
	assert_int_equal(c->volumes[1].offset, 1 << 20);
	assert_int_equal(c->volumes[1].size, 1 << 30);
}

/* An agent whose data plane has no such engine, or no secrets for it: FAILED, and says why. */
static void state__tells_why_an_engine_is_not_to_be_had_here(void **state)
{
	struct env *e = *state;
	struct state_report r;

	fake_dp_fail_put = ROS2_UNSUPPORTED;
	assert_int_equal(receive(e, fix_nvmf(&e->f, "flash", 1, 1)), 1);
	store(e, 10);
	assert_true(state_next_untold(e->s, &r));
	assert_false(r.applied);
	assert_string_equal(r.reason, "UNSUPPORTED: the test says so");
}

static void state__tells_of_what_could_not_be_stored_and_of_it_being_applied_later(void **state)
{
	struct env *e = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct state_report r;
	struct state_tenant t;

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	store(e, 10);
	while (state_next_untold(e->s, &r))
		state_told(e->s, &r);
	/* The same again is neither narrower nor wider. */
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 2)), 1);
	ros2_err_set(&err, -ENOSPC, "no space");
	state_not_stored(e->s, &err);
	assert_true(state_next_untold(e->s, &r));
	assert_false(r.applied);
	assert_non_null(strstr(r.reason, "no space"));
	assert_int_equal(r.what.version, 2);
	state_told(e->s, &r);
	state_not_stored(e->s, &err); /* again: nothing new */
	assert_false(state_next_untold(e->s, &r));
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_int_equal(t.version, 1);
	assert_non_null(t.also);
	store(e, 10);
	assert_true(state_next_untold(e->s, &r));
	assert_true(r.applied);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_null(t.also);
}

static void state__knows_what_a_write_under_way_leaves_on_disk(void **state)
{
	struct env *e = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t number;

	ros2_err_set(&err, -ENOSPC, "no space");
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	state_store_begin(e->s);
	state_not_stored(e->s, &err);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 2)), 1);
	assert_false(state_takes_away(e->s)); /* the disk has none of it */
	number = state_store_begin(e->s);
	/* Arrived while the older one was written, and finds no room itself. */
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_BETA, 2, 3)), 1);
	state_stored(e->s, number, 10);
	state_store_begin(e->s);
	state_not_stored(e->s, &err);
	assert_true(state_takes_away(e->s));
	store(e, 10);
	assert_false(state_takes_away(e->s));
}

/* A controller refuses a message with half a character, and so the whole link, again and again. */
static void state__says_why_in_whole_characters(void **state)
{
	struct env *e = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct state_report r;
	char words[301] = "";

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	store(e, 10);
	while (state_next_untold(e->s, &r))
		state_told(e->s, &r);
	for (unsigned pad = 0; pad < 3; pad++) {
		memset(words, 'x', pad);
		for (unsigned i = pad; i + 3 < sizeof(words); i += 3)
			memcpy(words + i, "\xe2\x82\xac", 4);
		fake_dp_fail_put = ROS2_UNSUPPORTED;
		fake_dp_fail_words = words;
		assert_int_equal(receive(e, fix_nvmf(&e->f, "flash", 1, 1 + pad)), 1);
		store(e, 10 + pad);
		assert_true(state_next_untold(e->s, &r));
		assert_true(utf8_text_printable(r.reason));
		assert_non_null(strstr(r.reason, "UNSUPPORTED: "));
		state_told(e->s, &r);
		assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 2 + pad)), 1);
		ros2_err_set(&err, -ENOSPC, "%s", words);
		state_not_stored(e->s, &err);
		assert_true(state_next_untold(e->s, &r));
		assert_true(utf8_text_printable(r.reason));
		state_told(e->s, &r);
		store(e, 10 + pad);
		while (state_next_untold(e->s, &r))
			state_told(e->s, &r);
	}
}

static void state__withdraws_a_tenant_at_once_when_its_document_says_revoked(void **state)
{
	struct env *e = *state;
	Ros2__V1__AgentObject *o = fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 2);
	struct state_tenant t;
	unsigned revokes;

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	store(e, 10);
	revokes = fake_dp_log.revokes;
	o->revoked = true;
	assert_int_equal(receive(e, o), 1);
	assert_int_equal(fake_dp_log.revokes, revokes + 1);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_true(t.revoked);
	/* What gives it back waits. */
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 3)), 1);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_true(t.revoked);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_false(t.revoked);
}

static void state__ignores_old_versions_and_keeps_the_newer(void **state)
{
	struct env *e = *state;
	struct state_tenant t;

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 5)), 1);
	store(e, 10);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_BETA, 2, 4)), 0);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_BETA, 2, 5)), 0);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), -ENOENT);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_BETA, 2, 6)), 1);
	/* Until the new one is stored, what both allow is in force: here nobody. */
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), -ENOENT);
	assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), -ENOENT);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), -ENOENT);
	assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), 0);
}

/* One that runs on a backup has given its numbers out before. */
static void state__follows_in_grants_a_controller_of_a_later_epoch(void **state)
{
	const struct ros2_uid uid = fix_uid(4);
	struct env *e = *state;
	struct state_grant g;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 9, 5, 60000, 1));
	store(e, 10);
	e->f.epoch.counter++;
	assert_int_equal(receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 3, 5, 50000, 1)), 1);
	assert_int_equal(receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 2, 5, 40000, 1)), 0);
	store(e, 10);
	assert_int_equal(state_grant_get(e->s, &uid, &g), 0);
	assert_int_equal(g.deadline_ns, 5 + 50000 * NS_PER_MS);
	e->f.epoch.counter--;
	assert_int_equal(receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 10, 5, 70000, 1)), 0);
	/* It is that controller's to take away, too. */
	state_remove(e->s, OBJ_GRANT, &uid, 3);
	assert_int_equal(state_grant_get(e->s, &uid, &g), -ENOENT);
}

/* The next start: what was stored, and then what the disk heard of since. */
static void start_again(struct env *e, const struct state_changes *c)
{
	const struct state_opts so = e->s->o;

	state_free(e->s);
	assert_int_equal(state_new(&so, &e->s), 0);
	receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 9, 5, 60000, 1));
	for (size_t i = 0; i < c->n_gone; i++)
		state_remove(e->s, c->gone[i].kind, &c->gone[i].uid, c->gone[i].version);
}

/* The disk has the higher version yet: of a lower one that went it would take no notice. */
static void state__stores_that_a_grant_went_in_no_version_below_the_stored_one(void **state)
{
	const struct ros2_uid uid = fix_uid(4);
	struct env *e = *state;

	for (int swept = 0; swept < 2; swept++) {
		struct state_changes c;

		receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 9, 5, 60000, 1));
		store(e, 10);
		e->f.epoch.counter++;
		receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 3, 5, 50000, 1));
		if (swept) /* the stored one would last longer */
			state_sweep(e->s, 55000 * NS_PER_MS);
		else
			state_remove(e->s, OBJ_GRANT, &uid, 3);
		e->f.epoch.counter--;
		assert_int_equal(state_changes(e->s, &c), 0);
		assert_int_equal(c.n, 0);
		start_again(e, &c);
		assert_null(state_find(e->s, OBJ_GRANT, &uid));
		state_changes_fini(&c);
	}
}

static void state__denies_a_principal_of_two_tenants(void **state)
{
	struct env *e = *state;
	struct state_tenant t;
	struct ros2_uid uid;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	receive(e, fix_tenant(&e->f, "beta", FIX_ALPHA, 3, 1));
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), -EEXIST);
	assert_int_equal(state_principal_owner(e->s, FIX_ALPHA, &uid), -ENOENT);
	state_remove(e->s, OBJ_TENANT, &(struct ros2_uid){{0}}, 9);
	state_remove(e->s, OBJ_TENANT, (struct ros2_uid[]){fix_uid(3)}, 1);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_int_equal(state_principal_owner(e->s, FIX_ALPHA, &uid), 0);
	assert_true(ros2_uid_eq(&uid, &t.uid));
	state_remove(e->s, OBJ_TENANT, &t.uid, 1);
	assert_int_equal(state_principal_owner(e->s, FIX_ALPHA, &uid), -ENOENT);
}

static void state__refuses_an_image_of_another_object(void **state)
{
	struct env *e = *state;
	Ros2__V1__AgentObject *a = fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1);
	Ros2__V1__AgentObject *b = fix_tenant(&e->f, "beta", FIX_BETA, 3, 1);
	struct state_report rep;
	struct state_counts c;
	ProtobufCBinaryData swap = a->image;

	a->image = b->image;
	b->image = swap;
	receive(e, a);
	ros2__v1__agent_object__free_unpacked(b, NULL);
	store(e, 10);
	state_counts(e->s, &c);
	assert_int_equal(c.failed, 1);
	assert_int_equal(fake_dp_log.tenant_puts, 0);
	assert_true(state_next_untold(e->s, &rep));
	assert_false(rep.applied);
	assert_non_null(strstr(rep.reason, "CORRUPT"));
}

static void state__tries_again_what_the_data_plane_refused(void **state)
{
	struct env *e = *state;
	struct state_report rep;

	fake_dp_fail_put = ROS2_BUSY;
	receive(e, fix_engine(&e->f, "files", 1, 1));
	store(e, 10);
	assert_true(state_next_untold(e->s, &rep));
	assert_false(rep.applied);
	state_told(e->s, &rep);
	assert_false(state_next_untold(e->s, &rep));
	state_sweep(e->s, 20);
	assert_true(state_next_untold(e->s, &rep));
	assert_true(rep.applied);
	state_told(e->s, &rep);
	state_untell_all(e->s);
	assert_true(state_next_untold(e->s, &rep));
}

/* In use when its document goes: the data plane keeps it, under a name that may be another's soon.
 */
static void state__takes_an_engine_away_when_nobody_uses_it_any_more(void **state)
{
	struct env *e = *state;
	struct ros2_uid files = fix_uid(1);

	receive(e, fix_engine(&e->f, "files", 1, 1));
	store(e, 10);
	assert_int_equal(state_engine_in_force(e->s, "files", "alpha", NULL), 0);
	fake_dp_engine_busy = true;
	state_remove(e->s, OBJ_ENGINE, &files, 1);
	assert_int_equal(fake_dp_log.engine_removes, 1);
	assert_true(state_engine_in_force(e->s, "files", "alpha", NULL) < 0);
	state_sweep(e->s, 20);
	assert_int_equal(fake_dp_log.engine_removes, 2);
	fake_dp_engine_busy = false;
	state_sweep(e->s, 30);
	assert_int_equal(fake_dp_log.engine_removes, 3);
	state_sweep(e->s, 40);
	assert_int_equal(fake_dp_log.engine_removes, 3); /* the control: gone */
}

/* Created again under its name while the old one is in use: not the old one in its place, and what
 * replaced the old one is not taken away for it. */
static void state__does_not_take_an_old_engine_for_the_one_of_its_name(void **state)
{
	struct env *e = *state;
	struct ros2_uid files = fix_uid(1);
	struct ros2_err err = ROS2_ERR_INIT;

	receive(e, fix_engine(&e->f, "files", 1, 1));
	store(e, 10);
	fake_dp_engine_busy = true;
	state_remove(e->s, OBJ_ENGINE, &files, 1);
	fake_dp_fail_put = ROS2_BUSY;
	receive(e, fix_engine(&e->f, "files", 9, 2));
	store(e, 20);
	assert_true(state_engine_in_force(e->s, "files", "alpha", &err) < 0);
	assert_int_equal(err.status, ROS2_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "BUSY"));
	fake_dp_engine_busy = false;
	state_sweep(e->s, 30);
	assert_int_equal(state_engine_in_force(e->s, "files", "alpha", NULL), 0);
	assert_int_equal(fake_dp_log.engine_removes, 2);
	state_sweep(e->s, 40);
	assert_int_equal(fake_dp_log.engine_removes, 2);
}

/* Its newer document waits: the older one serves only what both mean. */
static void state__has_no_engine_in_force_that_leads_elsewhere(void **state)
{
	struct env *e = *state;

	receive(e, fix_engine(&e->f, "files", 1, 1));
	store(e, 10);
	fake_dp_fail_put = ROS2_BUSY;
	receive(e, fix_engine(&e->f, "files", 1, 2));
	store(e, 20);
	assert_int_equal(state_engine_in_force(e->s, "files", "alpha", NULL), 0);
	fake_dp_fail_put = ROS2_BUSY;
	receive(e, fix_nvmf(&e->f, "files", 1, 3));
	assert_true(state_engine_in_force(e->s, "files", "alpha", NULL) < 0);
	store(e, 30);
	assert_true(state_engine_in_force(e->s, "files", "alpha", NULL) < 0);
	state_sweep(e->s, 40);
	assert_int_equal(state_engine_in_force(e->s, "files", "alpha", NULL), 0);
}

/* The volume of alpha becomes another one; beta's stays. */
static void state__has_no_nvmf_volume_in_force_that_is_another_by_now(void **state)
{
	struct env *e = *state;

	receive(e, fix_nvmf(&e->f, "flash", 1, 1));
	store(e, 10);
	fix_nvmf_nsid = 7;
	receive(e, fix_nvmf(&e->f, "flash", 1, 2));
	fix_nvmf_nsid = 1;
	fake_dp_fail_put = ROS2_BUSY;
	store(e, 20);
	assert_true(state_engine_in_force(e->s, "flash", "alpha", NULL) < 0);
	assert_true(state_engine_in_force(e->s, "flash", "alpha/vol0", NULL) < 0);
	assert_int_equal(state_engine_in_force(e->s, "flash", "beta", NULL), 0);
	assert_int_equal(state_engine_in_force(e->s, "flash", "alph", NULL), 0);
	state_sweep(e->s, 30);
	assert_int_equal(state_engine_in_force(e->s, "flash", "alpha", NULL), 0);
}

static void tombstone(struct env *e, enum obj_kind kind, uint8_t seed, uint64_t version)
{
	struct tombstone t = {.revocation = fix_uid((uint8_t)(seed + 50)),
	                      .uid = fix_uid(seed),
	                      .kind = kind,
	                      .version = version};

	assert_int_equal(revlog_add(e->log, &t, NULL), 0);
	state_obey_tombstones(e->s);
}

static void state__never_revives_what_a_tombstone_covers(void **state)
{
	struct env *e = *state;
	struct ros2_uid alpha = fix_uid(2), g = fix_uid(4);
	struct state_tenant t;
	struct state_grant sg;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 3));
	receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 1, 5, 60000, 3));
	store(e, 10);
	assert_int_equal(state_grant_get(e->s, &g, &sg), 0);
	e->tenant_calls = 0;
	tombstone(e, OBJ_TENANT, 2, 3);
	assert_int_equal(e->tenant_calls, 1);
	assert_int_equal(state_tenant_get(e->s, &alpha, &t), 0);
	assert_true(t.revoked);
	assert_int_equal(state_grant_get(e->s, &g, &sg), -ENOENT);
	/* Neither a renewal nor an unrevoked copy of the covered version helps. */
	assert_true(receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 2, 5, 60000, 3)) < 0);
	assert_true(receive(e, fix_grant(&e->f, 5, 2, FIX_ALPHA, 1, 5, 60000, 3)) < 0);
	/* Reinstated: a higher version, and grants under it. */
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 4)), 1);
	store(e, 10);
	assert_int_equal(state_tenant_get(e->s, &alpha, &t), 0);
	assert_false(t.revoked);
	assert_int_equal(receive(e, fix_grant(&e->f, 6, 2, FIX_ALPHA, 1, 5, 60000, 4)), 1);
	store(e, 10);
	assert_int_equal(state_grant_get(e->s, (struct ros2_uid[]){fix_uid(6)}, &sg), 0);
}

static unsigned asked_for_grants;

bool __real_revlog_covers_grant(const struct revlog *l, const struct agent_object *g);
bool __wrap_revlog_covers_grant(const struct revlog *l, const struct agent_object *g);
bool __wrap_revlog_covers_grant(const struct revlog *l, const struct agent_object *g)
{
	asked_for_grants++;
	return __real_revlog_covers_grant(l, g);
}

/* Many tenants of an agent that are revoked at once are not each as much work as all of them. */
static void state__asks_of_no_other_tenants_grants_for_a_revocation(void **state)
{
	struct tombstone t = {
		.revocation = fix_uid(200), .uid = fix_uid(2), .kind = OBJ_TENANT, .version = 1};
	struct env *e = *state;
	struct state_counts c;
	struct state_tenant is;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	receive(e, fix_tenant(&e->f, "beta", FIX_BETA, 3, 1));
	for (uint8_t i = 0; i < 2; i++)
		receive(e, fix_grant(&e->f, (uint8_t)(10 + i), 2, FIX_ALPHA, 1, 5, 60000, 1));
	for (uint8_t i = 0; i < 100; i++)
		receive(e, fix_grant(&e->f, (uint8_t)(20 + i), 3, FIX_BETA, 1, 5, 60000, 1));
	store(e, 10);
	assert_int_equal(revlog_add(e->log, &t, NULL), 0);
	asked_for_grants = e->tenant_calls = 0;
	state_obey(e->s, &t);
	assert_int_equal(asked_for_grants, 2);
	assert_int_equal(e->tenant_calls, 1);
	state_counts(e->s, &c);
	assert_int_equal(c.grants, 100);
	assert_int_equal(state_tenant_get(e->s, &t.uid, &is), 0);
	assert_true(is.revoked);
	assert_int_equal(state_tenant_get(e->s, (struct ros2_uid[]){fix_uid(3)}, &is), 0);
	assert_false(is.revoked);
}

/* What a tenant that has all its grants asks for again and again. Those of others are hidden
 * meanwhile, from AddressSanitizer. */
static void state__looks_for_one_to_give_back_among_the_tenants_own(void **state)
{
	struct state_object *hidden[100];
	struct ros2_uid alpha = fix_uid(2), nobody = fix_uid(9), found[2];
	struct env *e = *state;
	uint64_t version;
	int r[3];

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	receive(e, fix_tenant(&e->f, "beta", FIX_BETA, 3, 1));
	receive(e, fix_grant(&e->f, 10, 2, FIX_ALPHA, 1, 5, 60000, 1));
	for (uint8_t i = 0; i < 100; i++)
		receive(e, fix_grant(&e->f, (uint8_t)(20 + i), 3, FIX_BETA, 1, 5, 60000, 1));
	store(e, 10);
	for (uint8_t i = 0; i < 100; i++) {
		struct ros2_uid uid = fix_uid((uint8_t)(20 + i));

		hidden[i] = state_find(e->s, OBJ_GRANT, &uid);
	}
	for (uint8_t i = 0; i < 100; i++)
		ASAN_POISON_MEMORY_REGION(hidden[i], sizeof(*hidden[i]));
	r[0] = state_grant_spare(e->s, &alpha, &found[0], &version);
	r[1] = state_grant_spare(e->s, &nobody, &found[1], &version);
	for (uint8_t i = 0; i < 100; i++)
		ASAN_UNPOISON_MEMORY_REGION(hidden[i], sizeof(*hidden[i]));
	assert_int_equal(r[0], 0);
	assert_true(ros2_uid_eq(&found[0], (struct ros2_uid[]){fix_uid(10)}));
	assert_int_equal(r[1], -ENOENT);
	/* With the last of them nothing is left to look through. */
	state_remove(e->s, OBJ_GRANT, &found[0], version);
	r[2] = state_grant_spare(e->s, &alpha, &found[0], &version);
	assert_int_equal(r[2], -ENOENT);
}

static void state__takes_a_stored_tenant_under_a_tombstone_as_revoked(void **state)
{
	struct env *e = *state;
	struct state_tenant t;

	tombstone(e, OBJ_TENANT, 2, 3);
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 3)), 1);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	assert_true(t.revoked);
	assert_int_equal(fake_dp_log.tenant_puts, 0);
}

static void state__finds_principals_whose_index_had_no_memory(void **state)
{
	const char *gamma = "spiffe://ros2.test/tenant/gamma/server";
	struct sweep sw = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct env *e = *state;
	struct ros2_uid uid = fix_uid(4);
	struct state_tenant t;
	uint64_t v = 1, number;

	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	assert_int_equal(receive(e, fix_tenant(&e->f, "beta", FIX_BETA, 3, 1)), 1);
	store(e, 10);
	while (sweep_next(&sw)) {
		sweep_hold();
		assert_int_equal(receive(e, fix_tenant(&e->f, "gamma", gamma, 4, ++v)), 1);
		number = state_store_begin(e->s);
		sweep_release();
		state_stored(e->s, number, 10);
		sweep_off();
		assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
		assert_int_equal(state_tenant_of(e->s, FIX_BETA, &t), 0);
		state_sweep(e->s, 10);
		assert_int_equal(state_tenant_of(e->s, gamma, &t), 0);
		state_remove(e->s, OBJ_TENANT, &uid, v);
		assert_int_equal(state_tenant_of(e->s, gamma, &t), -ENOENT);
	}
	assert_true(sw.points > 0);
}

/* Withdrawn without memory to note it. */
static void state__takes_a_new_uid_when_the_old_one_is_dead_in_the_data_plane(void **state)
{
	struct env *e = *state;
	struct ros2_uid uid = fix_uid(2), dp;
	struct state_tenant t;

	fake_dp_fail_put = ROS2_REVOKED;
	assert_int_equal(receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1)), 1);
	store(e, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), -ENOENT);
	state_sweep(e->s, 10);
	assert_int_equal(state_tenant_of(e->s, FIX_ALPHA, &t), 0);
	dp = state_dp_uid(e->s, &uid);
	assert_false(ros2_uid_eq(&dp, &uid));
}

static void state__gives_grants_time_only_from_this_boot(void **state)
{
	struct env *e = *state;
	struct ros2_uid alpha = fix_uid(2), g;
	Ros2__V1__AgentObject *other;
	struct state_grant sg;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	other = fix_grant(&e->f, 4, 2, FIX_ALPHA, 1, 5, 60000, 1);
	other->grant->from->boot_id.data[0] ^= 1;
	receive(e, other);
	receive(e, fix_grant(&e->f, 5, 2, FIX_ALPHA, 1, 5000, 60000, 1)); /* not yet come */
	receive(e, fix_grant(&e->f, 6, 2, FIX_ALPHA, 1, 0, 86400000, 1));
	receive(e, fix_grant(&e->f, 7, 2, FIX_ALPHA, 1, 0, 2592000000, 1)); /* the longest */
	store(e, 100);
	assert_int_equal(fake_dp_log.grant_puts, 2);
	assert_int_equal(state_grant_idle(e->s, &alpha, FIX_ALPHA, 100, &g), 0);
	assert_true(ros2_uid_eq(&g, (struct ros2_uid[]){fix_uid(7)}));
	state_grant_use(e->s, &g, 1);
	assert_int_equal(state_grant_idle(e->s, &alpha, FIX_ALPHA, 100, &g), 0);
	assert_true(ros2_uid_eq(&g, (struct ros2_uid[]){fix_uid(6)}));
	assert_int_equal(state_grant_idle(e->s, &alpha, FIX_BETA, 100, &g), -ENOENT);
	/* Past its end it is nobody's, and then it is forgotten. */
	assert_int_equal(state_grant_idle(e->s, &alpha, FIX_ALPHA, 0x100000000ull * NS_PER_MS, &g),
	                 -ENOENT);
	state_sweep(e->s, 0x100000000ull * NS_PER_MS);
	assert_int_equal(state_grant_get(e->s, (struct ros2_uid[]){fix_uid(6)}, &sg), -ENOENT);
	assert_int_equal(state_grant_get(e->s, (struct ros2_uid[]){fix_uid(4)}, &sg), -ENOENT);
	/* Nobody revoked it: the data plane need not remember it for good. */
	assert_int_equal(fake_dp_log.grant_removes, 2);
}

/* One that was given back and came again, because nobody heard of it: the data plane does not take
 * it, and it counts against its tenant. */
static void state__gives_back_first_what_could_not_be_applied(void **state)
{
	struct env *e = *state;
	struct ros2_uid alpha = fix_uid(2), g;
	uint64_t version;

	receive(e, fix_tenant(&e->f, "alpha", FIX_ALPHA, 2, 1));
	receive(e, fix_grant(&e->f, 4, 2, FIX_ALPHA, 1, 5, 60000, 1));
	store(e, 10);
	fake_dp_fail_put = ROS2_REVOKED;
	receive(e, fix_grant(&e->f, 5, 2, FIX_BETA, 1, 5, 60000, 1));
	assert_int_equal(state_grant_spare(e->s, &alpha, &g, &version), 0);
	assert_true(ros2_uid_eq(&g, (struct ros2_uid[]){fix_uid(4)})); /* it may come into force */
	store(e, 10);
	assert_int_equal(state_grant_spare(e->s, &alpha, &g, &version), 0);
	assert_true(ros2_uid_eq(&g, (struct ros2_uid[]){fix_uid(5)}));
	state_remove(e->s, OBJ_GRANT, &g, version);
	assert_int_equal(state_grant_spare(e->s, &alpha, &g, &version), 0);
	assert_true(ros2_uid_eq(&g, (struct ros2_uid[]){fix_uid(4)}));
	state_grant_use(e->s, &g, 1);
	assert_int_equal(state_grant_spare(e->s, &alpha, &g, &version), -ENOENT);
}

static void paths__only_normal_ones_pass(void **state)
{
	static const char *const good[] = {"a", "a/b", "a..b", "...", "ä/日本", "a b", "x/.hidden"};
	static const char *const bad[] = {"/a",
	                                  "a/",
	                                  "a//b",
	                                  ".",
	                                  "..",
	                                  "a/../b",
	                                  "a/.",
	                                  "../a",
	                                  "a\nb",
	                                  "\x7f",
	                                  "\xff",
	                                  "a\xc0\xaf"
	                                  "b",
	                                  "\xed\xa0\x80",
	                                  "\xf5\x80\x80\x80",
	                                  "\xe2\x82",
	                                  "\xc2\x85"};
	char longest[4200];
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(agent_path_check(good[i], false, NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_true(agent_path_check(bad[i], true, &err) < 0);
		assert_int_equal(err.status, ROS2_BAD_PATH);
	}
	assert_int_equal(agent_path_check("", true, NULL), 0);
	assert_true(agent_path_check("", false, NULL) < 0);
	memset(longest, 'a', sizeof(longest));
	longest[255] = '\0';
	assert_int_equal(agent_path_check(longest, false, NULL), 0);
	longest[255] = 'a';
	longest[256] = '\0';
	assert_true(agent_path_check(longest, false, NULL) < 0);
	for (int i = 0; i < 4200; i++)
		longest[i] = i % 2 ? '/' : 'a';
	longest[4095] = '\0';
	assert_int_equal(agent_path_check(longest, false, NULL), 0);
	longest[4095] = '/';
	longest[4097] = '\0';
	assert_true(agent_path_check(longest, false, NULL) < 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, state_rig_setup, state_rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(state__has_only_the_legal_moves),
		T(state__applies_nothing_before_it_is_stored),
		T(state__applies_engines_then_tenants_then_grants),
		T(state__hands_all_of_an_nvmf_engine_to_the_data_plane),
		T(state__tells_why_an_engine_is_not_to_be_had_here),
		T(state__takes_an_engine_away_when_nobody_uses_it_any_more),
		T(state__does_not_take_an_old_engine_for_the_one_of_its_name),
		T(state__has_no_engine_in_force_that_leads_elsewhere),
		T(state__has_no_nvmf_volume_in_force_that_is_another_by_now),
		T(state__tells_of_what_could_not_be_stored_and_of_it_being_applied_later),
		T(state__knows_what_a_write_under_way_leaves_on_disk),
		T(state__says_why_in_whole_characters),
		T(state__withdraws_a_tenant_at_once_when_its_document_says_revoked),
		T(state__ignores_old_versions_and_keeps_the_newer),
		T(state__follows_in_grants_a_controller_of_a_later_epoch),
		T(state__stores_that_a_grant_went_in_no_version_below_the_stored_one),
		T(state__denies_a_principal_of_two_tenants),
		T(state__refuses_an_image_of_another_object),
		T(state__tries_again_what_the_data_plane_refused),
		T(state__never_revives_what_a_tombstone_covers),
		T(state__asks_of_no_other_tenants_grants_for_a_revocation),
		T(state__looks_for_one_to_give_back_among_the_tenants_own),
		T(state__takes_a_stored_tenant_under_a_tombstone_as_revoked),
		T(state__finds_principals_whose_index_had_no_memory),
		T(state__takes_a_new_uid_when_the_old_one_is_dead_in_the_data_plane),
		T(state__gives_grants_time_only_from_this_boot),
		T(state__gives_back_first_what_could_not_be_applied),
		cmocka_unit_test(paths__only_normal_ones_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
