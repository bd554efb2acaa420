/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw tenant over shared memory (rs_*): socket, memfd and wire.h only, never our library,
 * because it has to do what a library would not. Whatever waits, waits in poll on the socket, as a
 * tenant does. Before fx_setup: fx_shm = true.
 */
#ifndef ROS2_TESTS_DATAPLANE_SHM_RAW_H
#define ROS2_TESTS_DATAPLANE_SHM_RAW_H

#include "tests/dataplane/fixture.h"

#define SHM_BASE  ((uint64_t)WIRE_SHM_DATA_OFF)
#define SHM_BYTES (8ull << 20) /* what sessions ask for, unless rs_bytes says otherwise */

struct shm_raw {
	struct raw c; /* session, secret, socket, handle, key: raw_register, raw_file, raw_header */
	char path[108];
	uint64_t offered; /* for payload, says the reply */
	int memfd;
	uint8_t *map;
	uint64_t bytes; /* of the map, as MEMORY says it */
	uint32_t written, taken;
	bool no_wake;      /* rs_put sends no byte */
	bool no_room_byte; /* nor does what is taken from a ring that was full */
};

extern uint64_t rs_bytes;
/* With the fixture's tenant and grant; not connected. */
void rs_open_session(struct fx *fx, struct shm_raw *t);
void rs_open_as(struct fx *fx, struct shm_raw *t, const struct ros2_uid *tenant,
                const struct ros2_uid *grant, uint64_t cert_deadline_ns);
/* The same, as the data plane answers. */
struct dp_result rs_try_open(struct fx *fx, struct fx_args *a);
/* What all sessions have now. */
struct dp_shm rs_shm(struct fx *fx);
int rs_connect_path(const char *path);
/* CHALLENGE, HELLO, WELCOME; MEMORY, all of it mapped; MAPPED. All checked. */
void rs_hello(struct shm_raw *t);
void rs_memory(struct shm_raw *t);
void rs_mapped(struct shm_raw *t);
void rs_connect(struct shm_raw *t);
/* open + connect + mount "ns" + open "file" read-write + all of the data registered. */
void rs_ready(struct fx *fx, struct shm_raw *t);
/* The same, of a tenant of its own. */
void rs_neighbour(struct fx *fx, struct shm_raw *t);
/* At the reactor of @path. */
void rs_open_at(struct fx *fx, struct shm_raw *t, const char *path);
void rs_close(struct shm_raw *t);

struct wire_shm_control *rs_control(const struct shm_raw *t);
uint8_t *rs_entry(const struct shm_raw *t, uint64_t ring_off, uint32_t n);
/* An entry as it is, not told of; @h is sealed. Waits for room. */
void rs_put_quietly(struct shm_raw *t, const void *entry);
/* Tells of what was put, and wakes the agent if it wants to be. */
void rs_tell(struct shm_raw *t);
void rs_put_bytes(struct shm_raw *t, const void *entry);
void rs_put(struct shm_raw *t, struct wire_header *h);
/* The next message, words of a NAK into @words (WIRE_WORDS_MAX + 1). False: the connection ended.
 */
bool rs_take(struct shm_raw *t, struct wire_header *h, char *words);
/* @t->taken is told, which was @before; and the agent that had no room for it. */
void rs_took(struct shm_raw *t, uint32_t before);
/* Nothing is there now. */
bool rs_nothing(const struct shm_raw *t);
/* One request to its end; a NAK's status, too. Payload is at @address. */
enum ros2_status rs_do(struct shm_raw *t, enum wire_opcode op, uint64_t offset, uint64_t address,
                       uint32_t len, uint32_t *ret_done);
enum ros2_status rs_read(struct shm_raw *t, uint64_t offset, uint64_t address, uint32_t len);
enum ros2_status rs_write(struct shm_raw *t, uint64_t offset, uint64_t address, uint32_t len);
void rs_ping(struct shm_raw *t);
/* 4 KiB go out and come back. */
void rs_works(struct shm_raw *t);
void rs_expect_nak(struct shm_raw *t, struct wire_header *h, enum ros2_status want);
/* Its end comes, and is told so. */
void rs_expect_end(struct shm_raw *t, enum ros2_status want, const char *words);
/* The end of it is asked for, and it is gone. */
void rs_end(struct shm_raw *t);
#endif
