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
#define FIXTURE_MEMORY  ((size_t)8 << 20)

struct fixture;

/* Where an engine's volumes come from that has no tree of names to make them in: t/a/f and t/b/f of
 * FIXTURE_VOLUME bytes each, which touch each other. Both fail the test. */
#define FIXTURE_VOLUME ((uint64_t)7 << 20)
struct fixture_volumes {
	/* Fills c->nvmf, fx->who, fx->unit, and fx->region over fx->memory where it is needed. */
	void (*begin)(struct fixture *fx, struct engine_config *c);
	void (*end)(struct fixture *fx);
	/* What lies at @at of t/a/f on the medium itself; NULL: nobody can look. */
	void (*look)(struct fixture *fx, uint64_t at, void *buf, size_t len);
};

struct variant {
	const char *name;
	const char *type;
	uint32_t io_features;
	const char *base;                      /* file: where its directory is made */
	const struct fixture_volumes *volumes; /* NULL: a tree of names, files that grow */
	const void *arg;                       /* of volumes */
};

struct fixture {
	const struct variant *v;
	const struct engine_ops *ops;
	const struct engine_who *who;
	struct engine *e;
	struct engine_ns *ns;
	struct engine_reactor *r;
	struct iovec buffers[FIXTURE_BUFFERS];
	char root[256];  /* file: the directory */
	bool looks_away; /* what is written now is not in t/a/f */
	uint64_t unit;   /* offsets and lengths are multiples of it */
	/* From which the payloads of tests are taken: fx_memory. */
	uint8_t *memory;
	size_t memory_used;
	struct fabric_region *region; /* of memory; NULL = none is needed */
	void *target;                 /* of volumes */
};

/* Whose namespaces they are. */
extern const struct engine_who fixture_who;

/* cmocka setup and teardown; *state is the variant before and the fixture after. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Begins main of a program about the file engine: ends it as skipped where there is no openat2. */
void fixture_need_openat2(void);

/* Ends the test as skipped, with these words. */
void fx_skip(const char *why);
/* Up and down to whole units. */
uint64_t fx_up(const struct fixture *fx, uint64_t n);
uint64_t fx_down(const struct fixture *fx, uint64_t n);
/* Memory for payload: until the end of the test. */
uint8_t *fx_memory(struct fixture *fx, size_t len);

/* Of a volume ENGINE_CREATE and ENGINE_TRUNCATE are left out. */
struct engine_file *fx_open(struct fixture *fx, const char *path, uint32_t flags);
/* All but done. */
struct engine_io fx_prepare(const struct fixture *fx, struct engine_file *f, enum engine_op op,
                            uint64_t offset, void *buf, uint32_t len);
/* One of several: with fx_count_end as its done, its end is added to *@ended; it moved all of its
 * bytes. */
struct fx_counted {
	struct engine_io io;
	int *ended;
};
void fx_count_end(struct engine_io *io, int64_t res);
/* Waits for the result. What t/a/f was given is looked for on the medium, where there is one. */
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

/* What every engine does. */
#define SCENARIOS_ALL(X)                                                                           \
	X(engine__refuses_hostile_names)                                                           \
	X(engine__opens_and_refuses_by_flags)                                                      \
	X(engine__lists_its_names_in_pages)                                                        \
	X(engine__describes_objects)                                                               \
	X(engine__keeps_handles_apart)                                                             \
	X(engine__keeps_the_namespaces_of_tenants_apart)                                           \
	X(engine__reads_back_odd_offsets_and_lengths)                                              \
	X(engine__reads_short_only_at_the_end)                                                     \
	X(engine__overlapping_writes_leave_the_last)                                               \
	X(engine__overlapping_requests_in_flight_leave_whole_bytes)                                \
	X(engine__keeps_many_in_flight_apart)                                                      \
	X(engine__refuses_more_than_depth)                                                         \
	X(engine__flushes)                                                                         \
	X(engine__refuses_offsets_beyond_what_files_hold)                                          \
	X(engine__refuses_io_the_open_did_not_ask_for)                                             \
	X(engine__uses_registered_buffers)                                                         \
	X(engine__wakes_its_event_fd)                                                              \
	X(engine__falls_silent_when_nothing_is_left)                                               \
	X(engine__several_reactors_write_one_file)                                                 \
	X(engine__does_nothing_that_is_late)                                                       \
	X(engine__gives_back_what_is_withdrawn)                                                    \
	X(engine__closes_one_handle_while_another_has_requests)                                    \
	X(engine__clears_exactly_what_it_is_told)                                                  \
	X(engine__clears_nothing_beyond_the_end)                                                   \
	X(engine__refuses_to_clear_what_it_may_not)                                                \
	X(engine__clears_in_flight_beside_writes)

/* What needs a tree of names. */
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

/* What needs files that grow and shrink. */
#define SCENARIOS_SIZES(X)                                                                         \
	X(engine__reads_holes_as_zeros)                                                            \
	X(engine__truncates_and_grows_with_zeros)                                                  \
	X(engine__truncates_under_load)

/* What only volumes have. */
#define SCENARIOS_VOLUMES(X)                                                                       \
	X(volumes__refuse_what_they_do_not_have)                                                   \
	X(volumes__refuse_parts_of_blocks)                                                         \
	X(volumes__end_where_their_neighbour_begins)

#define X(name) void name(void **state);
SCENARIOS_ALL(X)
SCENARIOS_NAMES(X)
SCENARIOS_SIZES(X)
SCENARIOS_VOLUMES(X)
#undef X

/* All of them over @n variants, as one program: its exit status. Those that a variant cannot have
 * are told as skipped, with the reason. */
int fixture_run(const struct variant *variants, size_t n);
#endif
