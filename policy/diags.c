/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: the bounded list, its order, its words. What comes from a document is quoted so that
 * it can neither break the line nor drive a terminal.
 */
#include "policy/diags.h"
#include "common/utf8.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

#define SUGGEST_MAX 40 /* longest word compared */

void policy_diags_fini(struct policy_diags *d)
{
	free(d->v);
	*d = (struct policy_diags)POLICY_DIAGS_INIT;
}

/* Where an error may take the place of a warning: n when there is none. */
static size_t last_warning(const struct policy_diags *d)
{
	for (size_t i = d->n; i-- > 0;)
		if (d->v[i].severity == POLICY_WARNING)
			return i;
	return d->n;
}

bool diags_keeps(const struct policy_diags *d, enum policy_severity severity)
{
	return d->n < POLICY_DIAGS_MAX ||
	       (severity == POLICY_ERROR && last_warning(d) < POLICY_DIAGS_MAX);
}

static void drop(struct policy_diags *d, size_t i)
{
	memmove(&d->v[i], &d->v[i + 1], (d->n - i - 1) * sizeof(*d->v));
	d->n--;
	if (i < d->fresh)
		d->fresh--;
}

void diags_vadd(struct policy_diags *d, enum policy_severity severity, struct diag_at at,
                const char *fmt, va_list ap)
{
	char words[2 * sizeof(((struct policy_diag *)0)->msg)];
	bool keep = diags_keeps(d, severity);
	struct policy_diag *g;

	if (severity == POLICY_ERROR)
		d->errors++;
	else
		d->warnings++;
	if (!d->v)
		d->v = calloc(POLICY_DIAGS_MAX, sizeof(*d->v));
	if (!d->v || !keep)
		return;
	if (d->n == POLICY_DIAGS_MAX)
		drop(d, last_warning(d));
	g = &d->v[d->n++];
	vsnprintf(words, sizeof(words), fmt, ap);
	/* Whole lines once more: not only what was quoted comes from others, names and file names
	 * do too. */
	utf8_escape(words, g->msg, sizeof(g->msg));
	utf8_escape(at.file ? at.file : "-", g->file, sizeof(g->file));
	g->line = at.line;
	g->col = at.col;
	g->severity = severity;
}

void diags_add(struct policy_diags *d, enum policy_severity severity, struct diag_at at,
               const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diags_vadd(d, severity, at, fmt, ap);
	va_end(ap);
}

static int compare(const struct policy_diag *a, const struct policy_diag *b, bool by_file)
{
	int r = by_file ? strcmp(a->file, b->file) : 0;

	if (r)
		return r;
	if (a->line != b->line)
		return a->line < b->line ? -1 : 1;
	return (a->col > b->col) - (a->col < b->col);
}

void diags_begin(struct policy_diags *d)
{
	d->fresh = d->n;
}

void diags_sort(struct policy_diags *d, bool by_file)
{
	for (size_t i = d->fresh + 1; i < d->n; i++) {
		struct policy_diag g = d->v[i];
		size_t j = i;

		for (; j > d->fresh && compare(&d->v[j - 1], &g, by_file) > 0; j--)
			d->v[j] = d->v[j - 1];
		d->v[j] = g;
	}
}

size_t policy_diag_format(const struct policy_diag *d, char *out, size_t max)
{
	const char *severity = policy_severity_to_str(d->severity);
	int n;

	if (!max)
		return 0;
	if (d->line)
		n = snprintf(out, max, "%s:%d:%d: %s: %s", d->file, d->line, d->col, severity,
		             d->msg);
	else
		n = snprintf(out, max, "%s: %s: %s", d->file, severity, d->msg);
	return n < 0 ? 0 : MIN((size_t)n, max - 1);
}

const struct policy_diag *policy_diags_first_error(const struct policy_diags *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].severity == POLICY_ERROR)
			return &d->v[i];
	return NULL;
}

char *policy_diags_to_str(const struct policy_diags *d)
{
	size_t max = (d->n + 1) * (sizeof(struct policy_diag) + 64), len = 0;
	size_t all = d->errors + d->warnings;
	char *out = malloc(max);

	if (!out)
		return NULL;
	out[0] = '\0';
	for (size_t i = 0; i < d->n; i++) {
		len += policy_diag_format(&d->v[i], out + len, max - len - 1);
		out[len++] = '\n';
	}
	out[len] = '\0';
	if (all > d->n)
		snprintf(out + len, max - len, "and %zu more\n", all - d->n);
	return out;
}

const char *diag_quote(const char *s, char out[DIAG_QUOTE_MAX])
{
	const size_t most = DIAG_QUOTE_MAX - 10;
	/* with room for more than may be shown, so that it is seen whether there is more */
	size_t n = utf8_escape(s, out + 1, DIAG_QUOTE_MAX - 1);
	bool cut = n >= most;

	if (cut)
		n = utf8_escape(s, out + 1, most);
	out[0] = '`';
	strcpy(out + 1 + n, cut ? "...`" : "`");
	return out;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Damerau-Levenshtein with adjacent swaps (optimal string alignment), without regard to case. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t row[3][SUGGEST_MAX + 1];

	for (size_t j = 0; j <= nb; j++)
		row[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *cur = row[i % 3], *up = row[(i - 1) % 3], *up2 = row[(i + 1) % 3];

		cur[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			bool same = lower(a[i - 1]) == lower(b[j - 1]);
			size_t best = MIN(up[j] + 1, cur[j - 1] + 1);

			best = MIN(best, up[j - 1] + !same);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]))
				best = MIN(best, up2[j - 2] + 1);
			cur[j] = best;
		}
	}
	return row[na % 3][nb];
}

const char *diag_suggest(const char *word, const char *const *candidates, size_t n)
{
	size_t len = strlen(word), best = SIZE_MAX;
	const char *found = NULL;

	if (!len || len > SUGGEST_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t clen = candidates[i] ? strlen(candidates[i]) : 0, d;

		if (!clen || clen > SUGGEST_MAX)
			continue;
		d = distance(word, len, candidates[i], clen);
		if (d < best && d <= MAX(len, clen) / 3 + (len > 3 ? 1 : 0)) {
			best = d;
			found = candidates[i];
		}
	}
	return found;
}
