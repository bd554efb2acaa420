/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of a controller's start. Each allocation, SQLite's, too, descriptor, thread,
 * mapping, place in epoll, read, write and sync of a file, bind and listen that our code makes
 * fails, once and for good: it starts all the same, or says why not in words, leaves no descriptor
 * behind and its data as they were. What starts, then or the next time, has what was there: a
 * tenant, and the end of another's rights; and takes a new document. (What gRPC calls is not failed
 * here, nor what SQLite does to files; the power cuts and full disks of the store are
 * tests/controller/test_store_power.c and tests/integration/full_disk.)
 */
#include "common/log.h"
#include "controller/revoke_priv.h"
#include "tests/await.h"
#include "tests/controller/service_fixture.h"
#include "tests/sweep/sweep.h"
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

static unsigned fds, lifetime;

static void populate(struct sf *f)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_engine);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	sf_apply(f, sf_tenant("beta", "1h", "10m", "dpu-0"));
	assert_int_equal(sf_revoke(f, KIND(TENANT), "beta", 1, &r, &err), 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
}

static bool is_revoked(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *r = sf_get(f, KIND(TENANT), tenant);
	bool is = r->object->tenant->revoked;

	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

/* Rights may wait for a disk that failed as it started. */
static bool takes_a_document(struct sf *f)
{
	char text[16];
	Ros2__V1__ApplyReply *r;
	bool applied;

	snprintf(text, sizeof(text), "%um", 60 + ++lifetime % 60);
	r = sf_apply_text(f, sf_tenant("alpha", text, "10m", "dpu-0"), false);
	applied = r->applied;
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	return applied;
}

/* The last start in the log is this one. */
static void is_recorded(struct sf *f)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	Ros2__V1__AuditRecord *rec;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m = NULL;
	const Ros2__V1__StoredRecord *s;

	q.action = (char *)"controller.start";
	q.newest = true;
	q.limit = 1;
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q.base, 5000, &r, NULL),
	                 0);
	assert_int_equal(rpc_reader_next(r, 5000, &m, NULL), 0);
	s = ((Ros2__V1__AuditQueryItem *)m)->record;
	rec = ros2__v1__audit_record__unpack(NULL, s->record.len, s->record.data);
	assert_non_null(rec);
	if (rec->epoch->counter != f->ports.epoch)
		fail_msg("epoch %u serves, and the log does not say so", (unsigned)f->ports.epoch);
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
	rpc_reader_close(r);
}

static void has_what_was_there(struct sf *f)
{
	f->admin = sf_channel(f, "root", f->ports.admin, NULL);
	is_recorded(f);
	assert_false(is_revoked(f, "alpha"));
	assert_true(is_revoked(f, "beta"));
	assert_true(AWAIT(takes_a_document(f)));
}

static void start_round(struct sf *f, const struct sweep *s)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = sf_try(f, &err);

	sweep_off();
	if (r < 0 && !err.msg[0])
		fail_msg("call %u%s: %d without a word", s->at, s->persistent ? " and on" : "", r);
	if (r < 0 && !sweep_fired())
		fail_msg("%s", err.msg);
	if (r == 0) {
		has_what_was_there(f);
		sf_stop(f);
	}
	if (!sweep_fds_back(fds))
		fail_msg("call %u%s (%s): %u descriptors stay", s->at,
		         s->persistent ? " and on" : "", err.msg, sweep_fds() - fds);
}

static void sweep_start(struct sf *f, enum sweep_kind kind, int error, unsigned at_least)
{
	struct sweep s = {.kind = kind, .error = error};

	f->opts.metrics_listen = "127.0.0.1:0";
	populate(f);
	sf_stop(f);
	fds = sweep_fds();
	while (sweep_next(&s))
		start_round(f, &s);
	assert_int_equal(sf_try(f, NULL), 0);
	has_what_was_there(f);
	if (s.points < at_least)
		fail_msg("only %u calls failed", s.points);
}

#define START(name, kind, error, n)                                                                \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_start(*state, kind, error, n);                                               \
	}
START(start__without_memory_says_so_or_works, SWEEP_ALLOC, ENOMEM, 50)
START(start__without_memory_of_sqlite_says_so_or_works, SWEEP_SQLITE, ENOMEM, 50)
START(start__without_descriptors_says_so_or_works, SWEEP_FD, EMFILE, 3)
START(start__without_threads_says_so, SWEEP_THREAD, EAGAIN, 3)
START(start__without_room_in_epoll_says_so, SWEEP_EPOLL_CTL, ENOSPC, 1)
START(start__that_cannot_read_its_files_says_so, SWEEP_READ, EIO, 5)
START(start__that_cannot_write_its_files_says_so_or_works, SWEEP_WRITE, ENOSPC, 1)
START(start__that_cannot_sync_its_files_says_so_or_works, SWEEP_SYNC, EIO, 2)
START(start__that_cannot_listen_says_so, SWEEP_BIND, EADDRINUSE, 2)

/* ---- a revocation that only the journal has ---- */

#define SLOT 4096 /* docs/decisions/0014 */
#define HEAD 16

static size_t pack_note(uint8_t out[STORE_NOTE_MAX])
{
	struct ctl_revocation r = {.uid = ros2_uid_new(),
	                           .target_uid = ros2_uid_new(),
	                           .kind = STORE_SESSION,
	                           .name = "gone",
	                           .version = 100};

	list_init(&r.owed);
	return revoke_note_pack(&r, &ctl_system, out);
}

/* What the process before carried out and answered is not left out for want of memory. */
static void note__is_carried_out_or_nothing_starts(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	uint8_t note[STORE_NOTE_MAX];
	size_t n = pack_note(note);

	while (sweep_next(&s)) {
		struct ctl c = {0};
		int r = ctl_note_load(&c, note, n, 0);

		sweep_off();
		assert_int_equal(r, sweep_fired() ? -ENOMEM : 0);
		assert_int_equal(HASH_CNT(hh, c.revocations), r ? 0 : 1);
		ctl_revocations_free(&c);
	}
	assert_in_range(s.points, 1, 100);
}

static void le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* In the first slot, as a process that ended before there was space leaves it; the checksum is
 * right. */
static void put_note(struct sf *f, size_t cut)
{
	uint8_t slot[SLOT] = "ROS2REV1";
	size_t n = pack_note(slot + HEAD) - cut;
	AUTO_FREE char *path = NULL;
	int fd;

	le32(slot + 8, (uint32_t)n);
	le32(slot + 12, crypto_crc32c(slot + HEAD, n));
	assert_true(asprintf(&path, "%s/revocations", f->opts.data_dir) > 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, slot, sizeof(slot), 0), sizeof(slot));
	close(fd);
}

/* Of a newer version, say: it has taken something away. */
static void start__that_cannot_read_a_revocation_says_so(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;

	sf_stop(f);
	f->admin = NULL;
	put_note(f, 1);
	assert_int_equal(sf_try(f, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "slot 0 of the journal of revocations"));
	/* The control. */
	put_note(f, 0);
	sf_start(f);
}

/* Pages of the database, when nobody has it open. */
static uint64_t pages(const struct sf *f)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/ros2.db", f->dir);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size / 4096;
}

/* Each start is a record, so one of them finds no space for it. */
static void start__that_finds_no_space_for_its_record_says_so(void **state)
{
	struct sf *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	sf_stop(f);
	f->opts.store_max_pages = pages(f);
	for (int i = 0; i < 200 && sf_try(f, &err) == 0; i++) {
		f->admin = sf_channel(f, "root", f->ports.admin, NULL);
		is_recorded(f);
		sf_stop(f);
	}
	assert_int_equal(err.code, -ENOSPC);
	assert_non_null(strstr(err.msg, "full"));
	f->opts.store_max_pages = 0;
	sf_start(f);
	is_recorded(f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, sf_setup, sf_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(start__that_cannot_read_a_revocation_says_so),
		cmocka_unit_test(note__is_carried_out_or_nothing_starts),
		T(start__that_finds_no_space_for_its_record_says_so),
		T(start__without_memory_says_so_or_works),
		T(start__without_memory_of_sqlite_says_so_or_works),
		T(start__without_descriptors_says_so_or_works),
		T(start__without_threads_says_so),
		T(start__without_room_in_epoll_says_so),
		T(start__that_cannot_read_its_files_says_so),
		T(start__that_cannot_write_its_files_says_so_or_works),
		T(start__that_cannot_sync_its_files_says_so_or_works),
		T(start__that_cannot_listen_says_so),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
