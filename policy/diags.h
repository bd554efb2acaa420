/* SPDX-License-Identifier: Apache-2.0 */
/* How the parser and the checker report: bounded, one line each, nothing hostile printed raw. */
#ifndef ROS2_POLICY_DIAGS_H
#define ROS2_POLICY_DIAGS_H

#include "policy/policy.h"
#include <stdarg.h>

struct diag_at {
	const char *file;
	int line, col;
};

void diags_add(struct policy_diags *d, enum policy_severity severity, struct diag_at at,
               const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void diags_vadd(struct policy_diags *d, enum policy_severity severity, struct diag_at at,
                const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
/* Would one more of @severity be kept, or only counted? Errors take the places of warnings. */
bool diags_keeps(const struct policy_diags *d, enum policy_severity severity);
/* What is added from here on is put in order by diags_sort: by line and column, and by file too
 * when @by_file. Stable. */
void diags_begin(struct policy_diags *d);
void diags_sort(struct policy_diags *d, bool by_file);

#define DIAG_QUOTE_MAX 72
/* The text in backquotes, what is not printable as \xNN, cut with "..." when long. Returns @out. */
const char *diag_quote(const char *s, char out[DIAG_QUOTE_MAX]);

/* The candidate nearest to @word if it is near enough to be meant, else NULL. NULL candidates are
 * skipped. */
const char *diag_suggest(const char *word, const char *const *candidates, size_t n);
#endif
