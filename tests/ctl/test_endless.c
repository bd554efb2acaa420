/* SPDX-License-Identifier: Apache-2.0 */
/* What ros2ctl does with a controller whose answers have no end, or go back: it says so and ends.
 * The fake has had enough at MOST, so that what would go on for ever fails. */
#include "tests/testing.h"
#include "common/clock.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "tools/ctl/ctl.h"
#include <time.h>

#define MOST 30000u
static unsigned most_calls = MOST;

static char said[4096];                               /* to stderr, by ctl_fail */
static unsigned n_calls, n_opens, n_items, n_of_this; /* of this stream */

/* Of one page of a list. */
static void (*list_page)(Ros2__V1__ListReply *reply, unsigned n);
/* Item @n of a stream, NULL behind the last. */
static ProtobufCMessage *(*stream_item)(unsigned n);
/* How many records Status says there are; 0: it is refused. */
static const uint64_t *log_sizes;
static Ros2__V1__AuditQueryRequest asked; /* last; its strings are gone */

/* ---- the way to the controller ---- */

static ProtobufCMessage *copy(const ProtobufCMessage *m)
{
	uint8_t *bytes = malloc(protobuf_c_message_get_packed_size(m) + 1);
	ProtobufCMessage *ret;

	assert_non_null(bytes);
	ret = protobuf_c_message_unpack(m->descriptor, NULL, protobuf_c_message_pack(m, bytes),
	                                bytes);
	free(bytes);
	assert_non_null(ret);
	return ret;
}

int ctl_connect(struct ctl *c)
{
	return CTL_OK;
}

int ctl_call(struct ctl *c, const struct rpc_method *m, const ProtobufCMessage *req,
             ProtobufCMessage **ret)
{
	Ros2__V1__ListReply reply = ROS2__V1__LIST_REPLY__INIT;

	assert_ptr_equal(m->output, reply.base.descriptor);
	if (n_calls++ < most_calls)
		list_page(&reply, n_calls);
	*ret = copy(&reply.base);
	return CTL_OK;
}

int ctl_read_next(const struct ctl *c, struct rpc_reader *r, ProtobufCMessage **ret,
                  struct ros2_err *err)
{
	*ret = n_items < MOST ? stream_item(n_of_this++) : NULL;
	n_items += *ret != NULL;
	return *ret ? 0 : -ENODATA;
}

int __wrap_rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms,
                           struct rpc_reader **ret, struct ros2_err *err);
void __wrap_rpc_reader_close(struct rpc_reader *r);
int __wrap_rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m,
                          const ProtobufCMessage *req, uint32_t timeout_ms, ProtobufCMessage **ret,
                          struct ros2_err *err);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);

int __wrap_rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms,
                           struct rpc_reader **ret, struct ros2_err *err)
{
	if (++n_opens == 100)
		return ros2_err_named(err, ROS2_DENIED, "enough");
	if (m == &ros2_v1_audit_query)
		asked = *(const Ros2__V1__AuditQueryRequest *)req;
	n_of_this = 0;
	*ret = NULL;
	return 0;
}

void __wrap_rpc_reader_close(struct rpc_reader *r)
{
}

int __wrap_rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m,
                          const ProtobufCMessage *req, uint32_t timeout_ms, ProtobufCMessage **ret,
                          struct ros2_err *err)
{
	Ros2__V1__StatusReply reply = ROS2__V1__STATUS_REPLY__INIT;

	assert_ptr_equal(m->output, reply.base.descriptor);
	if (!*log_sizes)
		return ros2_err_named(err, ROS2_DENIED, "enough");
	reply.audit_records = *log_sizes++;
	*ret = copy(&reply.base);
	return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	return 0;
}

int ctl_fail(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	return code;
}

int ctl_fail_err(const struct ros2_err *err)
{
	return ctl_fail(CTL_FAILED, "%s", err->msg);
}

int ctl_warn_controller(struct ctl *c)
{
	return CTL_OK;
}

char *ctl_path(const char *dir, const char *name)
{
	abort();
}

/* What it shows is not looked at; stderr is what is left of it in @err. */
static int run(const struct ctl_cmd *cmd, const char *pos, const char *option)
{
	struct ctl_args a = {.pos = &pos, .n_pos = pos ? 1 : 0};
	int to[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)}, nowhere, r;
	struct ctl c = {.output = CTL_NAME, .timeout_ms = 1000};
	size_t n;
	FILE *f = tmpfile();

	for (int i = 0; option && cmd->opts[i].name; i++)
		if (!strcmp(cmd->opts[i].name, option))
			a.value[i] = "";
	n_calls = n_opens = n_items = 0;
	said[0] = '\0';
	assert_non_null(f);
	fflush(stdout);
	dup2(fileno(f), STDERR_FILENO);
	nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_int_equal(dup2(nowhere, STDOUT_FILENO), STDOUT_FILENO);
	close(nowhere);
	r = cmd->run(&c, &a);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(to[i], i + 1);
		close(to[i]);
	}
	rewind(f);
	n = strlen(said);
	n += fread(said + n, 1, sizeof(said) - 1 - n, f);
	said[n] = '\0';
	fclose(f);
	return r;
}

/* ---- lists ---- */

static void same_page(Ros2__V1__ListReply *reply, unsigned n)
{
	reply->next_page_token = (char *)"again";
}

static void another_page(Ros2__V1__ListReply *reply, unsigned n)
{
	reply->next_page_token = (char *)(n % 2 ? "odd" : "even");
}

static void large_page(Ros2__V1__ListReply *reply, unsigned n)
{
	static char name[4u << 20], *names = name;

	memset(name, 'x', sizeof(name) - 1);
	reply->unreachable_agents = &names;
	reply->n_unreachable_agents = 1;
	another_page(reply, n);
}

/* Of two bytes each, and five values when they are shown. */
static void empty_conditions(Ros2__V1__ListReply *reply, unsigned n)
{
	static Ros2__V1__Condition condition, *conditions[10000];
	static Ros2__V1__ObjectInfo object, *objects = &object;

	ros2__v1__condition__init(&condition);
	for (size_t i = 0; i < ARRAY_SIZE(conditions); i++)
		conditions[i] = &condition;
	ros2__v1__object_info__init(&object);
	object.conditions = conditions;
	object.n_conditions = ARRAY_SIZE(conditions);
	reply->objects = &objects;
	reply->n_objects = 1;
	another_page(reply, n);
}

static void two_pages(Ros2__V1__ListReply *reply, unsigned n)
{
	reply->next_page_token = (char *)(n == 1 ? "next" : "");
}

static void get__ends_when_a_controller_names_the_same_page_again(void **state)
{
	list_page = same_page;
	assert_int_equal(run(&ctl_cmd_get, "tenants", NULL), CTL_FAILED);
	assert_non_null(strstr(said, "PROTOCOL: "));
	assert_int_equal(n_calls, 2);
	list_page = two_pages;
	assert_int_equal(run(&ctl_cmd_get, "tenants", NULL), CTL_OK);
	assert_int_equal(n_calls, 2);
}

static void get__ends_when_a_controller_names_pages_without_end(void **state)
{
	list_page = another_page;
	assert_int_equal(run(&ctl_cmd_get, "sessions", NULL), CTL_FAILED);
	assert_non_null(strstr(said, "TOO_LARGE: "));
	assert_in_range(n_calls, 10000, MOST - 1);
	list_page = empty_conditions;
	most_calls = 100;
	assert_int_equal(run(&ctl_cmd_get, "tenants", NULL), CTL_FAILED);
	assert_non_null(strstr(said, "TOO_LARGE: "));
	assert_in_range(n_calls, 1, 20);
	most_calls = MOST;
	list_page = large_page;
	assert_int_equal(run(&ctl_cmd_get, "tenants", NULL), CTL_FAILED);
	assert_non_null(strstr(said, "TOO_LARGE: "));
	assert_in_range(n_calls, 1, 100);
}

/* ---- queries ---- */

static ProtobufCMessage *record_item(uint64_t seq)
{
	Ros2__V1__AuditQueryItem item = ROS2__V1__AUDIT_QUERY_ITEM__INIT;
	Ros2__V1__StoredRecord stored = ROS2__V1__STORED_RECORD__INIT;
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	uint8_t bytes[256];

	rec.format = AUDIT_FORMAT;
	rec.seq = seq;
	stored.record.data = bytes;
	stored.record.len = protobuf_c_message_pack(&rec.base, bytes);
	item.record = &stored;
	return copy(&item.base);
}

static ProtobufCMessage *record_each(unsigned n)
{
	return record_item(n + 1);
}

static ProtobufCMessage *record_of_before(unsigned n)
{
	return n_opens > 1 && n < 1000 ? record_item(1) : NULL;
}

static ProtobufCMessage *nothing(unsigned n)
{
	return NULL;
}

static void query__ends_when_a_controller_sends_more_than_was_asked_for(void **state)
{
	stream_item = record_each;
	assert_int_equal(run(&ctl_cmd_audit_query, NULL, NULL), CTL_FAILED);
	assert_non_null(strstr(said, "PROTOCOL: "));
	assert_int_equal(n_items, 1001);
}

static void query__that_follows_ends_when_a_controller_goes_back(void **state)
{
	static const uint64_t sizes[] = {5, 5000, 0};

	stream_item = record_of_before;
	log_sizes = sizes;
	assert_int_equal(run(&ctl_cmd_audit_query, NULL, "follow"), CTL_FAILED);
	assert_non_null(strstr(said, "PROTOCOL: "));
	assert_true(n_opens <= 2);
}

/* Restored from a copy: what comes under numbers that were others' is shown, and that they were. */
static void query__that_follows_sees_what_comes_into_a_log_that_became_shorter(void **state)
{
	static const uint64_t sizes[] = {10, 4, 6, 0};

	stream_item = nothing;
	log_sizes = sizes;
	assert_int_equal(run(&ctl_cmd_audit_query, NULL, "follow"), CTL_FAILED);
	assert_non_null(strstr(said, "the log has 4 records where it had 10"));
	assert_int_equal(n_opens, 2);
	assert_int_equal(asked.from_seq, 5);
	assert_int_equal(asked.to_seq, 6);
}

static void query__that_follows_ends_at_a_log_longer_than_numbers_go(void **state)
{
	static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX, 0};

	stream_item = nothing;
	log_sizes = sizes;
	assert_int_equal(run(&ctl_cmd_audit_query, NULL, "follow"), CTL_FAILED);
	assert_non_null(strstr(said, "PROTOCOL: "));
	assert_int_equal(n_opens, 0);
}

/* ---- the log as it is stored ---- */

static ProtobufCMessage *empty_raw(unsigned n)
{
	Ros2__V1__AuditRawItem item = ROS2__V1__AUDIT_RAW_ITEM__INIT;

	return copy(&item.base);
}

static ProtobufCMessage *note_raw(unsigned n)
{
	Ros2__V1__AuditRawItem item = ROS2__V1__AUDIT_RAW_ITEM__INIT;
	Ros2__V1__StoredCheckpoint c = ROS2__V1__STORED_CHECKPOINT__INIT;

	c.note = (ProtobufCBinaryData){4, (uint8_t *)"note"};
	item.item_case = ROS2__V1__AUDIT_RAW_ITEM__ITEM_CHECKPOINT;
	item.checkpoint = &c;
	return copy(&item.base);
}

static void export__ends_when_a_controller_sends_no_record(void **state)
{
	ProtobufCMessage *(*const items[])(unsigned n) = {empty_raw, note_raw};
	char path[4200];

	snprintf(path, sizeof(path), "%s/copy.audit", (char *)*state);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		stream_item = items[i];
		assert_int_equal(run(&ctl_cmd_audit_export, path, NULL), CTL_FAILED);
		assert_int_equal(n_items, i + 1);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* The second has no chain value. */
static ProtobufCMessage *unchained_raw(unsigned n)
{
	Ros2__V1__AuditRawItem item = ROS2__V1__AUDIT_RAW_ITEM__INIT;
	Ros2__V1__StoredRecord stored = ROS2__V1__STORED_RECORD__INIT;
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	static struct audit_head head;
	struct audit_appended out;
	ProtobufCMessage *ret;

	if (n == 0)
		head = (struct audit_head){0};
	assert_int_equal(audit_append(&head, NULL, &rec, &out, NULL), 0);
	stored.seq = out.seq;
	stored.record = (ProtobufCBinaryData){out.len, out.bytes};
	stored.chain = (ProtobufCBinaryData){n == 0 ? SHA256_LEN : 0, out.chain};
	item.item_case = ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD;
	item.record = &stored;
	ret = copy(&item.base);
	free(out.bytes);
	return ret;
}

static void verify__names_the_record_that_is_bad_and_not_the_one_before(void **state)
{
	stream_item = unchained_raw;
	assert_int_equal(run(&ctl_cmd_audit_verify, NULL, NULL), CTL_FAILED);
	assert_non_null(strstr(said, "first bad record 2: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(get__ends_when_a_controller_names_the_same_page_again),
		cmocka_unit_test(get__ends_when_a_controller_names_pages_without_end),
		cmocka_unit_test(query__ends_when_a_controller_sends_more_than_was_asked_for),
		cmocka_unit_test(query__that_follows_ends_when_a_controller_goes_back),
		cmocka_unit_test(
			query__that_follows_sees_what_comes_into_a_log_that_became_shorter),
		cmocka_unit_test(query__that_follows_ends_at_a_log_longer_than_numbers_go),
		cmocka_unit_test_setup_teardown(export__ends_when_a_controller_sends_no_record,
	                                        testing_dir_setup, testing_dir_teardown),
		cmocka_unit_test(verify__names_the_record_that_is_bad_and_not_the_one_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
