/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine tells of the keys that its storage target holds to slots, when somebody asks. */
#ifndef ROS2_DATAPLANE_KEY_INFO_H
#define ROS2_DATAPLANE_KEY_INFO_H

#include <stdbool.h>
#include <stdint.h>

/* One standing key, or all keys of one queue and direction at this instant. */
struct key_info {
	uint64_t id;       /* stays as long as what it names: of the engine at this reactor */
	uint64_t bytes;    /* together */
	uint64_t since_ns; /* boottime: of the oldest; 0 = there is none now */
	uint64_t issued;   /* keys of commands: so far */
	uint32_t count;
	uint8_t access; /* enum fabric_access: of the target */
	bool per_command;
	bool ending; /* a standing one: the device has not confirmed its end yet */
};
typedef void (*key_info_fn)(void *arg, const struct key_info *k);
#endif
