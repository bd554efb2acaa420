/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of contact: which stamps count, and until when. No I/O, no clock of its own. */
#include "agent/contact.h"
#include "agent/bytes.h"
#include "common/util.h"

#define CONTACT_MAGIC "ROS2CONT"

void contact_init(struct contact *c, const uint8_t boot_id[16])
{
	*c = (struct contact){0};
	memcpy(c->boot_id, boot_id, 16);
}

struct clock_stamp contact_stamp(struct contact *c, uint64_t now_ns)
{
	struct clock_stamp s;

	memcpy(s.boot_id, c->boot_id, 16);
	s.boottime_ns = MAX(now_ns, c->last_sent_ns + 1);
	c->last_sent_ns = s.boottime_ns;
	c->sent_ns[c->n_sent++ % CONTACT_SENT_MAX] = s.boottime_ns;
	return s;
}

struct clock_stamp contact_now(const struct contact *c, uint64_t now_ns)
{
	struct clock_stamp s = {.boottime_ns = now_ns};

	memcpy(s.boot_id, c->boot_id, 16);
	return s;
}

static bool was_sent(const struct contact *c, uint64_t ns)
{
	uint32_t n = MIN(c->n_sent, (uint32_t)CONTACT_SENT_MAX);

	for (uint32_t i = 0; i < n; i++)
		if (c->sent_ns[i] == ns)
			return true;
	return false;
}

int contact_echo(struct contact *c, const struct clock_stamp *s, struct ros2_err *err)
{
	if (memcmp(s->boot_id, c->boot_id, 16) != 0)
		return ros2_err_named(err, ROS2_INVALID,
		                      "the controller echoes a stamp of another boot");
	if (!was_sent(c, s->boottime_ns))
		return ros2_err_named(err, ROS2_INVALID,
		                      "the controller echoes a stamp this process did not send");
	if (c->known && s->boottime_ns <= c->last_ns)
		return 0;
	c->known = true;
	c->last_ns = s->boottime_ns;
	return 1;
}

bool contact_live(const struct contact *c, uint64_t limit_ms, uint64_t now_ns)
{
	uint64_t limit_ns = limit_ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : limit_ms * NS_PER_MS;

	return c->known && now_ns < clock_add_ns(c->last_ns, limit_ns);
}

void contact_encode(const struct contact_saved *s, uint8_t out[CONTACT_FILE_LEN])
{
	memset(out, 0, CONTACT_FILE_LEN);
	memcpy(out, CONTACT_MAGIC, 8);
	put_le32(out + 8, 1);
	memcpy(out + 12, s->stamp.boot_id, 16);
	put_le64(out + 28, s->stamp.boottime_ns);
	memcpy(out + 36, s->epoch.lineage, 16);
	put_le64(out + 52, s->epoch.counter);
	put_le64(out + 60, s->snapshot_sequence);
	put_le32(out + 72, crypto_crc32c(out, 72));
}

int contact_decode(const void *data, size_t len, struct contact_saved *ret, struct ros2_err *err)
{
	const uint8_t *p = data;

	if (len != CONTACT_FILE_LEN || memcmp(p, CONTACT_MAGIC, 8) != 0 ||
	    get_le32(p + 72) != crypto_crc32c(p, 72))
		return ros2_err_named(err, ROS2_CORRUPT, "not a contact file, or a damaged one");
	if (get_le32(p + 8) != 1)
		return ros2_err_named(err, ROS2_VERSION, "contact file of format %u, expected 1",
		                      get_le32(p + 8));
	*ret = (struct contact_saved){0};
	memcpy(ret->stamp.boot_id, p + 12, 16);
	ret->stamp.boottime_ns = get_le64(p + 28);
	memcpy(ret->epoch.lineage, p + 36, 16);
	ret->epoch.counter = get_le64(p + 52);
	ret->snapshot_sequence = get_le64(p + 60);
	return 0;
}

bool contact_restore(struct contact *c, const struct contact_saved *s, uint64_t now_ns)
{
	if (memcmp(s->stamp.boot_id, c->boot_id, 16) != 0 || s->stamp.boottime_ns > now_ns ||
	    !s->stamp.boottime_ns)
		return false;
	c->known = true;
	c->last_ns = s->stamp.boottime_ns;
	return true;
}
