/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operational log to stderr: one line per event, "time level component: words". Logging is not
 * auditing. Library code does not log above debug; the function that decides the outcome logs,
 * once. Keys, secrets and payload never appear here. Anything a tenant can trigger goes through
 * log_limit_pass.
 */
#ifndef ROS2_COMMON_LOG_H
#define ROS2_COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Any thread. "debug|info|warn|error"; -EINVAL for another word. */
int log_set_level_str(const char *word);
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
/* Any thread; one write(2) per line, what is not printable UTF-8 as \xNN, at most 1 KiB. */
void log_write(enum log_level level, const char *component, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* One per call site that a tenant can trigger, used by one thread: true for 10 lines a second, then
 * counts what was swallowed until the caller says so and sets it to 0. */
struct log_limit {
	uint64_t window_start_ns;
	uint32_t passed, swallowed;
};
bool log_limit_pass(struct log_limit *l);

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (log_enabled(level))                                                            \
			log_write(level, LOG_COMPONENT, __VA_ARGS__);                              \
	} while (0)
/* Define LOG_COMPONENT before use, e.g. #define LOG_COMPONENT "agent". */
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#endif
