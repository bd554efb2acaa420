// SPDX-License-Identifier: Apache-2.0
/* Connections: both ends in one process, over the stub. OURS asks, PEER accepts. */
#include "dataplane/fabric/fabric_conn.h"
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "common/clock.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>

struct meeting {
	struct world w;
	struct fabric_cm *cm;
	struct fabric_listener *l;
	struct sockaddr_in at;
	struct fabric_conn *asked, *accepted;
	struct fabric_qp *asker, *acceptor;
	struct fabric_qp_opts ours, theirs;
	uint32_t requests, resolved, up, ended, rejected;
	int code_ask, code_accept, end_code;
	uint8_t hello[FABRIC_PRIVATE_MAX], reply[FABRIC_PRIVATE_MAX];
	uint32_t hello_len;
	const char *said;
	bool deaf, refuse, free_in_callback, lost;
	int prepare;
};

static int setup(void **state)
{
	struct meeting *m = calloc(1, sizeof(*m));

	stub_reset();
	assert_int_equal(world_sets(&m->w), 0);
	m->ours = world_qp(&m->w, OURS);
	m->theirs = world_qp(&m->w, PEER);
	m->said = "hello";
	m->at = (struct sockaddr_in){.sin_family = AF_INET,
	                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){.conns_max = 3}, &m->cm, NULL), 0);
	assert_int_equal(fabric_listen(m->cm, (struct sockaddr *)&m->at, 8, &m->l, NULL), 0);
	assert_true(fabric_listener_port(m->l) > 0);
	m->at.sin_port = htons(fabric_listener_port(m->l));
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct meeting *m = *state;

	fabric_conn_free(m->asked);
	fabric_conn_free(m->accepted);
	fabric_qp_free(m->asker);
	fabric_qp_free(m->acceptor);
	fabric_listener_free(m->l);
	fabric_cm_free(m->cm);
	world_close(&m->w);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
	free(m);
	return 0;
}

static int prepare(void *arg, struct fabric_qp *qp)
{
	struct meeting *m = arg;
	struct fabric_slot slot = world_slot(&m->w, PEER, 100);
	struct fabric_part part = {.region = slot.region, .length = 4096};

	if (m->prepare < 0)
		return m->prepare;
	assert_int_equal(fabric_qp_state(qp), FABRIC_QP_MADE);
	assert_int_equal(fabric_recv(qp, &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	assert_int_equal(fabric_send(qp, &(struct fabric_wr){.parts = &part, .n_parts = 1}),
	                 -ENOTCONN);
	return fabric_qp_flush(qp, 1);
}

static void on_request(struct meeting *m, const struct fabric_conn_event *e)
{
	struct fabric_conn_opts o = {
		.qp = m->theirs, .hello = {"welcome", 7}, .prepare = prepare, .arg = m};

	m->requests++;
	m->accepted = e->conn;
	m->hello_len = e->data_len;
	memcpy(m->hello, e->data, FABRIC_PRIVATE_MAX);
	if (m->deaf)
		return;
	if (m->refuse) {
		fabric_conn_reject(e->conn, &(struct fabric_conn_private){"no", 2});
		return;
	}
	m->code_accept = fabric_conn_accept(e->conn, m->w.set[PEER], &o, &m->acceptor, &m->w.err);
}

static void on_event(void *arg, const struct fabric_conn_event *e)
{
	struct meeting *m = arg;
	struct fabric_conn_opts o = {.qp = m->ours, .hello = {m->said, (uint32_t)strlen(m->said)}};

	assert_non_null(e->words);
	switch (e->kind) {
	case FABRIC_CONN_EVENT_REQUEST:
		assert_ptr_equal(e->listener, m->l);
		on_request(m, e);
		break;
	case FABRIC_CONN_EVENT_RESOLVED:
		m->resolved++;
		stub_cm_silent(m->lost);
		assert_string_equal(fabric_conn_device(e->conn), "stub0");
		m->code_ask = fabric_conn_ask(e->conn, m->w.set[OURS], &o, &m->asker, &m->w.err);
		break;
	case FABRIC_CONN_EVENT_ESTABLISHED:
		m->up++;
		if (e->conn == m->asked && e->data)
			memcpy(m->reply, e->data, sizeof(m->reply));
		break;
	default:
		m->ended++;
		m->rejected += e->kind == FABRIC_CONN_EVENT_REJECTED;
		m->end_code = e->code;
		if (e->kind == FABRIC_CONN_EVENT_REJECTED && e->data)
			memcpy(m->reply, e->data, sizeof(m->reply));
		if (m->free_in_callback && e->conn == m->asked) {
			fabric_conn_free(e->conn);
			m->asked = NULL;
		}
		break;
	}
}

static void run(struct meeting *m)
{
	while (fabric_cm_events(m->cm, on_event, m))
		;
}

static void ask(struct meeting *m)
{
	assert_int_equal(
		fabric_connect(m->cm, NULL, (struct sockaddr *)&m->at, 77, &m->asked, &m->w.err),
		0);
	run(m);
}

static void fabric_conn__carries_private_data_and_ends_ready_on_both_sides(void **state)
{
	struct meeting *m = *state;
	struct pollfd p = {.fd = fabric_cm_fd(m->cm), .events = POLLIN};

	assert_int_equal(poll(&p, 1, 0), 0);
	ask(m);
	assert_int_equal(m->up, 2);
	assert_memory_equal(m->hello, "hello\0", 6);
	assert_int_equal(m->hello_len, 56);
	assert_memory_equal(m->reply, "welcome\0", 8);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_READY);
	assert_int_equal(fabric_qp_state(m->acceptor), FABRIC_QP_READY);
	assert_int_equal(fabric_conn_state(m->asked), FABRIC_CONN_UP);
	assert_int_equal(fabric_conn_cookie(m->asked), 77);
	assert_ptr_equal(fabric_conn_qp(m->asked), m->asker);
	assert_int_equal(((const struct sockaddr_in *)fabric_conn_peer(m->asked))->sin_port,
	                 m->at.sin_port);
}

static void fabric_conn__flags_are_what_was_asked_for_and_never_those_of_the_manager(void **state)
{
	struct meeting *m = *state;

	ask(m);
	assert_int_equal(stub_qp_access(fabric_qp_number(m->acceptor)), 0);
	assert_int_equal(stub_qp_access(fabric_qp_number(m->asker)), 2 | 4);
}

static void fabric_conn__a_device_that_shows_other_flags_is_refused(void **state)
{
	struct meeting *m = *state;

	stub_show_access(2);
	ask(m);
	assert_int_equal(m->code_accept, -EPERM);
	assert_non_null(strstr(m->w.err.msg, "shows remote access 0x2"));
	assert_null(m->acceptor);
	assert_int_equal(fabric_conn_state(m->accepted), FABRIC_CONN_ENDED);
	assert_int_equal(m->rejected, 1);
	assert_int_equal(m->up, 0);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_FAILED);
}

static void fabric_conn__reads_are_no_more_than_the_peer_offers(void **state)
{
	struct meeting *m = *state;
	struct fabric_slot slot = world_slot(&m->w, PEER, 100), ours = world_slot(&m->w, OURS, 100);
	struct fabric_part part = {.region = slot.region, .length = 10};

	/* PEER wants 4 READs in flight, we take none */
	m->ours.remote_access = FABRIC_WRITE;
	m->ours.reads_in = 0;
	ask(m);
	assert_int_equal(
		fabric_read(m->acceptor, &(struct fabric_wr){.parts = &part, .n_parts = 1}),
		-EINVAL);
	/* and PEER takes none of ours */
	part.region = ours.region;
	assert_int_equal(fabric_read(m->asker, &(struct fabric_wr){.parts = &part, .n_parts = 1}),
	                 -EINVAL);
	assert_int_equal(fabric_write(m->asker, &(struct fabric_wr){.parts = &part, .n_parts = 1}),
	                 0);
}

/* 31 is 2.4 hours for each try, 0 without end: whoever takes nothing would hold what was posted for
 * him, and his queue pair, as long as he likes. */
static void fabric_conn__a_peer_does_not_say_how_long_its_silence_is_borne(void **state)
{
	static const struct {
		uint8_t said, is;
	} rows[] = {{14, 14}, {18, 18}, {20, 20}, {21, 20}, {31, 20}, {0, 20}};
	struct meeting *m = *state;

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
		stub_cm_ack_timeout(rows[i].said);
		ask(m);
		assert_int_equal(stub_qp_ack_timeout(fabric_qp_number(m->acceptor)), rows[i].is);
		assert_int_equal(stub_qp_ack_timeout(fabric_qp_number(m->asker)), rows[i].is);
		/* Each says 7, which a software device takes for without end. */
		assert_int_equal(stub_qp_retries(fabric_qp_number(m->acceptor)), 6);
		assert_int_equal(stub_qp_retries(fabric_qp_number(m->asker)), 6);
		fabric_conn_free(TAKE_PTR(m->asked));
		fabric_conn_free(TAKE_PTR(m->accepted));
		fabric_qp_free(TAKE_PTR(m->asker));
		fabric_qp_free(TAKE_PTR(m->acceptor));
	}
}

static void fabric_conn__a_rejection_carries_words(void **state)
{
	struct meeting *m = *state;

	m->refuse = true;
	ask(m);
	assert_int_equal(m->rejected, 1);
	assert_int_equal(m->end_code, -ECONNREFUSED);
	assert_memory_equal(m->reply, "no\0", 3);
	assert_int_equal(fabric_conn_state(m->accepted), FABRIC_CONN_ENDED);
}

static void fabric_conn__nobody_there_is_a_rejection(void **state)
{
	struct meeting *m = *state;

	m->at.sin_port = htons(9);
	m->free_in_callback = true;
	ask(m);
	assert_int_equal(m->rejected, 1);
	assert_null(m->asked);
}

static void fabric_conn__too_much_private_data_is_refused(void **state)
{
	struct meeting *m = *state;
	char longer[FABRIC_PRIVATE_MAX + 2];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	m->said = longer;
	ask(m);
	assert_int_equal(m->code_ask, -EINVAL);
	assert_null(m->asker);
	assert_int_equal(fabric_conn_state(m->asked), FABRIC_CONN_ENDED);
}

static void fabric_conn__another_device_than_the_domains_is_refused(void **state)
{
	struct meeting *m = *state;
	struct fabric_dev *dev;
	struct fabric_channel *chan;
	struct fabric_pd *pd;
	struct fabric_set *set, *kept = m->w.set[PEER];
	struct fabric_pd_opts caps = world_caps();
	struct fabric_set_opts so = world_set();

	stub_devices(2);
	assert_int_equal(fabric_dev_open("stub1", &dev, NULL), 0);
	assert_int_equal(fabric_channel_new(dev, &chan, NULL), 0);
	assert_int_equal(fabric_pd_new(dev, &caps, &pd, NULL), 0);
	assert_int_equal(fabric_set_new(pd, chan, &so, &set, NULL), 0);
	m->w.set[PEER] = set;
	ask(m);
	assert_int_equal(m->code_accept, -EXDEV);
	m->w.set[PEER] = kept;
	assert_int_equal(fabric_set_free(set), 0);
	assert_int_equal(fabric_pd_free(pd), 0);
	fabric_channel_free(chan);
	assert_int_equal(fabric_dev_close(dev), 0);
}

static void fabric_conn__what_prepare_refuses_is_rejected(void **state)
{
	struct meeting *m = *state;

	m->prepare = -EDQUOT;
	ask(m);
	assert_int_equal(m->code_accept, -EDQUOT);
	assert_int_equal(m->rejected, 1);
}

static void fabric_conn__its_end_fails_the_queue_pair(void **state)
{
	struct meeting *m = *state;

	ask(m);
	stub_cm_disconnect_all();
	run(m);
	assert_int_equal(m->ended, 2);
	assert_int_equal(m->end_code, -ECONNRESET);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_FAILED);
	assert_int_equal(fabric_qp_state(m->acceptor), FABRIC_QP_FAILED);
	stub_cm_disconnect_all();
	run(m);
	assert_int_equal(m->ended, 2);
}

static void fabric_conn__the_end_of_a_queue_pair_ends_it_for_the_peer(void **state)
{
	struct meeting *m = *state;

	ask(m);
	fabric_qp_free(m->acceptor);
	m->acceptor = NULL;
	assert_int_equal(fabric_conn_state(m->accepted), FABRIC_CONN_ENDED);
	assert_null(fabric_conn_qp(m->accepted));
	run(m);
	assert_int_equal(fabric_conn_state(m->asked), FABRIC_CONN_ENDED);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_FAILED);
}

static void fabric_conn__a_removed_device_ends_it(void **state)
{
	struct meeting *m = *state;

	ask(m);
	stub_cm_remove_device();
	run(m);
	assert_int_equal(m->end_code, -ENODEV);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_FAILED);
}

static void fabric_conn__requests_that_nobody_answers_are_rejected_in_time(void **state)
{
	struct meeting *m = *state;

	m->deaf = true;
	ask(m);
	assert_int_equal(m->requests, 1);
	fabric_cm_tick(m->cm, clock_boottime_ns() + NS_PER_S, on_event, m);
	assert_int_equal(m->ended, 0);
	fabric_cm_tick(m->cm, clock_boottime_ns() + 3 * NS_PER_S, on_event, m);
	assert_int_equal(fabric_conn_state(m->accepted), FABRIC_CONN_ENDED);
	assert_int_equal(m->end_code, -ETIMEDOUT);
	run(m);
	assert_int_equal(m->rejected, 1);
}

static void fabric_conn__a_peer_that_never_answers_is_given_up(void **state)
{
	struct meeting *m = *state;

	m->lost = true;
	ask(m);
	assert_int_equal(m->resolved, 1);
	assert_int_equal(fabric_conn_state(m->asked), FABRIC_CONN_ASKED);
	fabric_cm_tick(m->cm, clock_boottime_ns() + 6 * NS_PER_S, on_event, m);
	assert_int_equal(fabric_conn_state(m->asked), FABRIC_CONN_ENDED);
	assert_int_equal(fabric_qp_state(m->asker), FABRIC_QP_FAILED);
}

static void fabric_conn__unanswered_requests_are_bounded(void **state)
{
	struct meeting *m = *state;
	struct fabric_conn *conns[5], *all[5];
	uint32_t n = 0;

	m->deaf = true;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(
			fabric_connect(m->cm, NULL, (struct sockaddr *)&m->at, 1, &conns[i], NULL),
			0);
		m->accepted = NULL;
		run(m);
		if (m->accepted)
			all[n++] = m->accepted;
	}
	assert_int_equal(n, 3);
	assert_int_equal(m->rejected, 2);
	for (uint32_t i = 0; i < n; i++)
		fabric_conn_free(all[i]);
	m->accepted = NULL;
	/* places come back */
	m->deaf = false;
	ask(m);
	assert_int_equal(m->up, 2);
	for (int i = 0; i < 5; i++) {
		struct fabric_qp *qp = fabric_conn_qp(conns[i]);

		fabric_conn_free(conns[i]);
		fabric_qp_free(qp);
	}
}

static void fabric_conn__a_machine_without_the_manager_is_said(void **state)
{
	struct fabric_cm *cm;
	struct ros2_err err = ROS2_ERR_INIT;

	stub_fail(STUB_create_event_channel, 1, ENODEV, false);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &cm, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.msg, "rdma_ucm"));
}

static void fabric_conn__errors_of_listening_have_their_names(void **state)
{
	struct meeting *m = *state;
	struct fabric_listener *l;

	stub_fail(STUB_bind_addr, 1, EADDRINUSE, false);
	assert_int_equal(fabric_listen(m->cm, (struct sockaddr *)&m->at, 8, &l, NULL), -EADDRINUSE);
	stub_fail(STUB_listen, 1, ENODEV, false);
	assert_int_equal(fabric_listen(m->cm, (struct sockaddr *)&m->at, 8, &l, NULL), -ENODEV);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(fabric_conn__carries_private_data_and_ends_ready_on_both_sides),
		T(fabric_conn__flags_are_what_was_asked_for_and_never_those_of_the_manager),
		T(fabric_conn__a_device_that_shows_other_flags_is_refused),
		T(fabric_conn__reads_are_no_more_than_the_peer_offers),
		T(fabric_conn__a_peer_does_not_say_how_long_its_silence_is_borne),
		T(fabric_conn__a_rejection_carries_words),
		T(fabric_conn__nobody_there_is_a_rejection),
		T(fabric_conn__too_much_private_data_is_refused),
		T(fabric_conn__another_device_than_the_domains_is_refused),
		T(fabric_conn__what_prepare_refuses_is_rejected),
		T(fabric_conn__its_end_fails_the_queue_pair),
		T(fabric_conn__the_end_of_a_queue_pair_ends_it_for_the_peer),
		T(fabric_conn__a_removed_device_ends_it),
		T(fabric_conn__requests_that_nobody_answers_are_rejected_in_time),
		T(fabric_conn__a_peer_that_never_answers_is_given_up),
		T(fabric_conn__unanswered_requests_are_bounded),
		T(fabric_conn__a_machine_without_the_manager_is_said),
		T(fabric_conn__errors_of_listening_have_their_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
