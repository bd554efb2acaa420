/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent notes of the targets that may be carrying out writes of it: for each subsystem how
 * long these may go on, as its documents said. Text, one line each; docs/decisions/0025. Plain
 * values, no I/O. The longest time counts where several are told of one subsystem.
 */
#ifndef ROS2_DATAPLANE_UNQUIET_H
#define ROS2_DATAPLANE_UNQUIET_H

#include "common/err.h"
#include "dataplane/nvmf/config.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNQUIET_MAX     64u                 /* subsystems; with more, the last is all others */
#define UNQUIET_OTHERS  "*"                 /* as a subsystem: each */
#define UNQUIET_TIME_MS (24u * 3600 * 1000) /* the longest there can be */
#define UNQUIET_TEXT    (64u + 300 * UNQUIET_MAX) /* bytes of a file */

struct unquiet_times {
	uint64_t keep_alive_ms; /* of documents without a time to quiesce; 0 = there is none */
	uint64_t quiesce_ms;    /* of those with one; 0 = there is none */
};

struct unquiet_table {
	uint32_t n;
	struct {
		struct unquiet_times times;
		char subsystem[NVMF_NQN_MAX + 1];
	} v[UNQUIET_MAX];
};

/* True: something is longer than it was. */
bool unquiet_add(struct unquiet_table *t, const char *subsystem, const struct unquiet_times *times);
struct unquiet_times unquiet_find(const struct unquiet_table *t, const char *subsystem);
/* How long that is at most, whatever the target tells of itself. */
uint64_t unquiet_longest_ms(const struct unquiet_times *times);

/* @len bytes; none is a table of none (as 0023 had it). -EINVAL: not what _format writes. */
int unquiet_parse(const char *text, size_t len, struct unquiet_table *ret, struct ros2_err *err);
/* NUL-terminated, into UNQUIET_TEXT bytes; the length. */
size_t unquiet_format(const struct unquiet_table *t, char *buf);
#endif
