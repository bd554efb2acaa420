/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a path that a tenant sends, and as the path of a namespace in a policy. What the
 * agent lets through, the engines' own check lets through, too; it is names that are put together
 * to the same path again, none of which is empty, a dot or longer than a name may be.
 */
#include "agent/paths.h"
#include "common/utf8.h"
#include "dataplane/engines/names.h"
#include "tests/fuzz/fuzz.h"

static void take_apart(const char *path)
{
	char *again = malloc(strlen(path) + 2);
	const char *at = path, *last;
	struct names_part part;
	size_t n = 0, parent_len;

	must(again != NULL);
	while (names_next(&at, &part)) {
		must(part.len && part.len <= NAMES_NAME_MAX && !memchr(part.p, '/', part.len));
		must(!(part.len == 1 && part.p[0] == '.') &&
		     !(part.len == 2 && part.p[0] == '.' && part.p[1] == '.'));
		memcpy(again + n, part.p, part.len);
		n += part.len;
		again[n++] = '/';
	}
	again[n ? n - 1 : 0] = '\0';
	must(!strcmp(again, path));
	if (*path) {
		last = names_last(path, &parent_len);
		must(*last && !strchr(last, '/'));
		must(last == path + parent_len + (parent_len ? 1 : 0));
	}
	free(again);
}

static void as_path(const char *path, bool root_ok)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int agent = agent_path_check(path, root_ok, &err), engine;

	if (agent)
		must_refuse(agent, &err);
	else
		must((root_ok || *path) && strlen(path) <= AGENT_PATH_MAX);
	engine = names_check(path, root_ok, &err);
	must(agent || !engine);
	if (engine)
		must_refuse(engine, &err);
	else
		take_apart(path);
}

static void as_namespace(const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	const char *below = names_ns_path(path, &err);

	must(below || err.msg[0]);
	if (below) {
		must(below == path || (below == path + 1 && *path == '/'));
		take_apart(below);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *path = fuzz_text(data, size);

	as_path(path, false);
	as_path(path, true);
	as_namespace(path);
	free(path);
	return 0;
}
