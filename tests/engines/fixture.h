/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine, one namespace and one reactor for a test, made from a variant: the same scenarios run
 * over every engine and every fallback. Helpers carry out one operation and wait for it.
 */
#ifndef ROS2_TESTS_ENGINES_FIXTURE_H
#define ROS2_TESTS_ENGINES_FIXTURE_H

#include "dataplane/engine.h"

#include "tests/testing.h"

#define FIXTURE_DEPTH   64
#define FIXTURE_BUF     ((size_t)1 << 20)
#define FIXTURE_BUFFERS 2

struct variant {
	const char *name;
	const char *type;
	uint32_t io_features;
	const char *base; /* file: where its directory is made */
};

struct fixture {
	const struct variant *v;
	const struct engine_ops *ops;
	struct engine *e;
	struct engine_ns *ns;
	struct engine_reactor *r;
	struct iovec buffers[FIXTURE_BUFFERS];
	char root[256]; /* file: the directory */
};

/* Whose namespaces they are. */
extern const struct engine_who fixture_who;

/* cmocka setup and teardown; *state is the variant before and the fixture after. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Begins main of a program about the file engine: ends it as skipped where there is no openat2. */
void fixture_need_openat2(void);

struct engine_file *fx_open(struct fixture *fx, const char *path, uint32_t flags);
/* Waits for the result. */
int64_t fx_io(struct fixture *fx, struct engine_file *f, enum engine_op op, uint64_t offset,
              void *buf, uint32_t len);
/* As fx_io with one of the registered buffers, at @at within it. */
int64_t fx_io_slot(struct fixture *fx, struct engine_file *f, enum engine_op op, uint64_t offset,
                   int slot, size_t at, uint32_t len);
/* Turns the reactor until nothing is in flight. */
void fx_drain(struct fixture *fx);
/* Bytes that say where they belong, so that a wrong place shows. */
void fx_pattern(uint8_t *buf, uint64_t offset, size_t len, uint32_t seed);
/* Fails when @buf differs from fx_pattern. */
void fx_expect_pattern(const uint8_t *buf, uint64_t offset, size_t len, uint32_t seed);
void fx_expect_zeros(const uint8_t *buf, size_t len);

#define SCENARIOS_NAMES(X)                                                                         \
	X(engine__refuses_paths_that_are_not_below_the_root)                                       \
	X(engine__creates_opens_and_refuses_by_flags)                                              \
	X(engine__makes_and_removes_directories)                                                   \
	X(engine__renames_files_and_directories)                                                   \
	X(engine__keeps_an_open_file_alive_after_unlink_and_rename)                                \
	X(engine__pages_through_five_thousand_names)                                               \
	X(engine__pages_stably_while_names_go)                                                     \
	X(engine__keeps_namespaces_apart)                                                          \
	X(engine__reports_types_and_sizes)

#define SCENARIOS_DATA(X)                                                                          \
	X(engine__reads_back_odd_offsets_and_lengths)                                              \
	X(engine__reads_holes_as_zeros)                                                            \
	X(engine__reads_short_only_at_the_end)                                                     \
	X(engine__overlapping_writes_leave_the_last)                                               \
	X(engine__truncates_and_grows_with_zeros)                                                  \
	X(engine__truncates_under_load)                                                            \
	X(engine__refuses_more_than_depth)                                                         \
	X(engine__flushes)                                                                         \
	X(engine__refuses_offsets_beyond_what_files_hold)                                          \
	X(engine__refuses_io_the_open_did_not_ask_for)                                             \
	X(engine__uses_registered_buffers)                                                         \
	X(engine__wakes_its_event_fd)                                                              \
	X(engine__falls_silent_when_nothing_is_left)                                               \
	X(engine__several_reactors_write_one_file)

#define X(name) void name(void **state);
SCENARIOS_NAMES(X)
SCENARIOS_DATA(X)
#undef X
#endif
