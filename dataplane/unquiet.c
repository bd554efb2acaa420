/* SPDX-License-Identifier: Apache-2.0 */
/* The note of targets as a table and as text. It was written by an agent, but lies on a disk: what
 * is not exactly so is refused. */
#include "dataplane/unquiet.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char head[] = "ros2 unquiet targets 1\n";

static uint32_t place_of(const struct unquiet_table *t, const char *subsystem)
{
	uint32_t i = 0;

	while (i < t->n && strcmp(t->v[i].subsystem, subsystem) != 0)
		i++;
	return i;
}

static bool raise_to(uint64_t *at, uint64_t to)
{
	bool longer = to > *at;

	if (longer)
		*at = to;
	return longer;
}

bool unquiet_add(struct unquiet_table *t, const char *subsystem, const struct unquiet_times *times)
{
	uint32_t i = place_of(t, subsystem);
	bool longer;

	/* The last place is kept for all others. */
	if (i == t->n && t->n >= UNQUIET_MAX - 1) {
		subsystem = UNQUIET_OTHERS;
		i = place_of(t, subsystem);
	}
	longer = i == t->n;
	if (longer) {
		memset(&t->v[i], 0, sizeof(t->v[i]));
		snprintf(t->v[i].subsystem, sizeof(t->v[i].subsystem), "%s", subsystem);
		t->n++;
	}
	longer |= raise_to(&t->v[i].times.keep_alive_ms, times->keep_alive_ms);
	longer |= raise_to(&t->v[i].times.quiesce_ms, times->quiesce_ms);
	return longer;
}

struct unquiet_times unquiet_find(const struct unquiet_table *t, const char *subsystem)
{
	struct unquiet_times found = {0};

	for (uint32_t i = 0; i < t->n; i++) {
		if (strcmp(t->v[i].subsystem, subsystem) != 0 &&
		    strcmp(t->v[i].subsystem, UNQUIET_OTHERS) != 0)
			continue;
		raise_to(&found.keep_alive_ms, t->v[i].times.keep_alive_ms);
		raise_to(&found.quiesce_ms, t->v[i].times.quiesce_ms);
	}
	return found;
}

uint64_t unquiet_longest_ms(const struct unquiet_times *times)
{
	uint64_t unasked = times->keep_alive_ms ? 2 * times->keep_alive_ms + NVMF_CQT_MAX_MS : 0;

	return MAX(times->quiesce_ms, unasked);
}

/* ---- text ---- */

/* Digits as they are written, then a space. NULL: it is none. */
static const char *parse_time(const char *at, const char *end, uint64_t *ret)
{
	const char *from = at;
	uint64_t v = 0;

	for (; at < end && *at >= '0' && *at <= '9' && v <= UNQUIET_TIME_MS; at++)
		v = v * 10 + (uint64_t)(*at - '0');
	if (at == from || at == end || *at != ' ' || v > UNQUIET_TIME_MS ||
	    (*from == '0' && at > from + 1))
		return NULL;
	*ret = v;
	return at + 1;
}

static bool parse_line(const char *at, const char *end, struct unquiet_table *t)
{
	struct unquiet_times times = {0};
	char name[NVMF_NQN_MAX + 1];

	at = parse_time(at, end, &times.keep_alive_ms);
	at = at ? parse_time(at, end, &times.quiesce_ms) : NULL;
	if (!at || at == end || (size_t)(end - at) > NVMF_NQN_MAX || memchr(at, 0, end - at))
		return false;
	memcpy(name, at, (size_t)(end - at));
	name[end - at] = '\0';
	if (!utf8_text_printable(name))
		return false;
	unquiet_add(t, name, &times);
	return true;
}

int unquiet_parse(const char *text, size_t len, struct unquiet_table *ret, struct ros2_err *err)
{
	const char *at = text + sizeof(head) - 1, *end = text + len;

	ret->n = 0;
	if (len == 0)
		return 0;
	if (len < sizeof(head) - 1 || memcmp(text, head, sizeof(head) - 1) != 0)
		return ros2_err_set(err, -EINVAL, "expected \"%.*s\" as its first line",
		                    (int)sizeof(head) - 2, head);
	for (uint32_t line = 2; at < end; line++) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));

		if (!nl || !parse_line(at, nl, ret))
			return ros2_err_set(err, -EINVAL,
			                    "line %" PRIu32 ": expected two times in ms and a "
			                    "subsystem",
			                    line);
		at = nl + 1;
	}
	return 0;
}

size_t unquiet_format(const struct unquiet_table *t, char *buf)
{
	size_t n = (size_t)snprintf(buf, UNQUIET_TEXT, "%s", head);

	for (uint32_t i = 0; i < t->n; i++)
		n += (size_t)snprintf(buf + n, UNQUIET_TEXT - n, "%" PRIu64 " %" PRIu64 " %s\n",
		                      t->v[i].times.keep_alive_ms, t->v[i].times.quiesce_ms,
		                      t->v[i].subsystem);
	return n;
}
