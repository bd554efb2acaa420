/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operational log. One line is built in a buffer on the stack and leaves in one write(2), so
 * lines of several threads never mix. Must never block on a lock, allocate, or let a peer's bytes
 * move the cursor of the terminal that shows them.
 */
#include "common/log.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LOG_LINE_MAX      1024
#define LOG_LIMIT_PER_SEC 10

static const char *const level_words[] = {"debug", "info", "warn", "error"};
static atomic_int threshold = LOG_LEVEL_INFO;

int log_set_level_str(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_words); i++) {
		if (!strcmp(word, level_words[i])) {
			log_set_level((enum log_level)i);
			return 0;
		}
	}
	return -EINVAL;
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
	return (int)level >= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void log_write(enum log_level level, const char *component, const char *fmt, ...)
{
	char words[LOG_LINE_MAX], line[LOG_LINE_MAX], when[32];
	int saved = errno;
	size_t n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	clock_format_unix_ns(clock_unix_ns(), when);
	n = (size_t)snprintf(line, sizeof(line), "%s %s %.64s: ", when,
	                     (unsigned)level < ARRAY_SIZE(level_words) ? level_words[level] : "?",
	                     component);
	n += utf8_escape(words, line + n, sizeof(line) - n);
	line[n++] = '\n';
	/* A log that cannot be written has nobody to tell. */
	if (write(STDERR_FILENO, line, n) < 0)
		errno = saved;
	errno = saved;
}

bool log_limit_pass(struct log_limit *l)
{
	uint64_t now = clock_monotonic_ns();

	if (!l->window_start_ns || now - l->window_start_ns >= NS_PER_S) {
		l->window_start_ns = now;
		l->passed = 0;
	}
	if (l->passed < LOG_LIMIT_PER_SEC) {
		l->passed++;
		return true;
	}
	if (l->swallowed < UINT32_MAX)
		l->swallowed++;
	return false;
}
