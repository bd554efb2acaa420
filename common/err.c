/* SPDX-License-Identifier: Apache-2.0 */
/* Fills struct ros2_err; never allocates, always terminates, cuts what is too long. Whatever was
 * printed, the words are one line of UTF-8: they go into messages, logs and audit records. */
#include "common/err.h"
#include "common/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct ros2_err *err, int code, enum ros2_status status, const char *fmt,
                 va_list ap)
{
	char words[sizeof(err->msg)];

	vsnprintf(words, sizeof(words), fmt, ap);
	utf8_clean(words);
	err->code = code;
	err->status = status;
	memcpy(err->msg, words, sizeof(words));
}

int ros2_err_set(struct ros2_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		fill(err, code, ros2_status_from_errno(code), fmt, ap);
		va_end(ap);
	}
	return code;
}

int ros2_err_named(struct ros2_err *err, enum ros2_status status, const char *fmt, ...)
{
	int code = ros2_status_to_errno(status);
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		fill(err, code, status, fmt, ap);
		va_end(ap);
	}
	return code;
}

int ros2_err_prefix(struct ros2_err *err, const char *fmt, ...)
{
	char prefix[sizeof(err->msg)], words[sizeof(err->msg)];
	va_list ap;

	if (!err)
		return 0;
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	memcpy(words, err->msg, sizeof(words));
	snprintf(err->msg, sizeof(err->msg), "%.150s: %.165s", prefix, words);
	utf8_clean(err->msg);
	return err->code;
}
