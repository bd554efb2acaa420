/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/client/rig.h"
#include "common/clock.h"
#include "tests/await.h"
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RIG_BUF (1u << 20)

void rig_open(struct rig *r, const struct ros2_session_opts *o)
{
	void *buf = NULL;

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	rig_ok(r, ros2_session_open(r->client, o, &r->session, &r->err));
	rig_ok(r, ros2_mount(r->session, "data", &r->mount, &r->err));
	rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDWR | ROS2_O_CREAT | ROS2_O_TRUNC, 0644,
	                    &r->file, &r->err));
	rig_ok(r, ros2_buf_alloc(r->session, RIG_BUF, &buf, &r->err));
	r->buf = buf;
	r->buf_len = RIG_BUF;
}

int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->agent = fake_agent_new();
	fake_agent_file(r->agent, "f", 1u << 20);
	*state = r;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *r = *state;

	ros2_session_close(r->session);
	ros2_disconnect(r->client);
	fake_agent_free(r->agent);
	free(r);
	return 0;
}

void rig_meet(struct rig *r)
{
	WITH_AGENT(r->agent, (void)0);
}

static struct ros2_completion finish(struct rig *r)
{
	struct ros2_completion c = {0};

	rig_meet(r);
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 20000, &r->err), 1);
	rig_meet(r);
	return c;
}

struct ros2_completion rig_read(struct rig *r, void *buf, uint32_t len, uint64_t offset)
{
	rig_ok(r, ros2_prep_read(r->file, buf, len, offset, 7, &r->err));
	return finish(r);
}

struct ros2_completion rig_read_until_it_looks(struct rig *r)
{
	struct ros2_completion c = {0};

	for (int i = 0; i < 1000 && c.status == ROS2_OK; i++)
		c = rig_read(r, r->buf, 100, 0);
	return c;
}

struct ros2_completion rig_write(struct rig *r, const void *buf, uint32_t len, uint64_t offset)
{
	rig_ok(r, ros2_prep_write(r->file, buf, len, offset, 8, &r->err));
	return finish(r);
}

void rig_give_up_the_connection(struct rig *r)
{
	r->session->silent_ns = LOST_AFTER_MS * NS_PER_MS;
	ros2_peek(r->session, NULL, 0, &r->err);
	assert_int_equal(r->session->fd, -1);
}

bool rig_is_over(struct rig *r)
{
	bool over;

	WITH_AGENT(r->agent, over = r->agent->conns[0].over);
	return over;
}

void rig_write_before_and_after_a_loss(struct rig *r)
{
	struct ros2_completion c;
	uint64_t one = 1;

	rig_ok(r, ros2_flush(r->file, &r->err));
	WITH_AGENT(r->agent, r->agent->stall = eventfd(0, EFD_CLOEXEC);
	           r->agent->stalled_fd = r->agent->sessions[0].fd);
	memset(r->buf, 1, 4096);
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	rig_give_up_the_connection(r);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, AWAIT_MS, &r->err), 1);
	assert_int_equal(c.status, ROS2_OUTCOME_UNKNOWN);
	memset(r->buf, 2, 4096);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	rig_ok(r, ros2_flush(r->file, &r->err));
	assert_int_equal(write(r->agent->stall, &one, sizeof(one)), sizeof(one));
	assert_true(AWAIT(rig_is_over(r)));
	close(r->agent->stall);
}

void rig_pattern(uint8_t *p, size_t n, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		p[i] = (uint8_t)x;
	}
}
