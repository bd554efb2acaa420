/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: the bounded list, its order, its words. What comes from a document is quoted so that
 * it can neither break the line nor drive a terminal.
 */
#include "policy/diags.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

#define SUGGEST_MAX 40 /* longest word compared */

void policy_diags_fini(struct policy_diags *d)
{
	free(d->v);
	*d = (struct policy_diags)POLICY_DIAGS_INIT;
}

/* A source may be named by a peer: its control bytes do not reach a terminal either. */
static void copy_clean(char *out, size_t max, const char *s)
{
	size_t i;

	for (i = 0; s[i] && i + 1 < max; i++)
		out[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
	out[i] = '\0';
}

/* Drops a character that the end of the buffer cut in two. */
static void trim_utf8(char *s)
{
	size_t n = strlen(s), i = n;

	while (i > 0 && n - i < 3 && ((unsigned char)s[i - 1] & 0xc0) == 0x80)
		i--;
	if (i > 0 && ((unsigned char)s[i - 1] & 0xc0) == 0xc0) {
		unsigned char lead = (unsigned char)s[i - 1];
		size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;

		if (n - (i - 1) < want)
			s[i - 1] = '\0';
	}
}

void diags_vadd(struct policy_diags *d, enum policy_severity severity, struct diag_at at,
                const char *fmt, va_list ap)
{
	struct policy_diag *g;

	if (severity == POLICY_ERROR)
		d->errors++;
	else
		d->warnings++;
	if (!d->v)
		d->v = calloc(POLICY_DIAGS_MAX, sizeof(*d->v));
	if (!d->v || d->n >= POLICY_DIAGS_MAX)
		return;
	g = &d->v[d->n++];
	copy_clean(g->file, sizeof(g->file), at.file ? at.file : "-");
	trim_utf8(g->file);
	g->line = at.line;
	g->col = at.col;
	g->severity = severity;
	vsnprintf(g->msg, sizeof(g->msg), fmt, ap);
	trim_utf8(g->msg);
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

void diags_sort(struct policy_diags *d, size_t first, bool by_file)
{
	for (size_t i = first + 1; i < d->n; i++) {
		struct policy_diag g = d->v[i];
		size_t j = i;

		for (; j > first && compare(&d->v[j - 1], &g, by_file) > 0; j--)
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

const char *diag_quote(const char *s, size_t len, char out[DIAG_QUOTE_MAX])
{
	size_t n = 0, i;

	out[n++] = '`';
	for (i = 0; i < len && n < DIAG_QUOTE_MAX - 10; i++) {
		unsigned char c = (unsigned char)s[i];

		/* U+0080..U+009F too: some terminals take them as commands */
		bool c1 = c == 0xc2 && i + 1 < len && (unsigned char)s[i + 1] < 0xa0;

		if (c1)
			c = (unsigned char)s[++i];
		if (c < 0x20 || c == 0x7f || c1)
			n += (size_t)snprintf(out + n, 5, "\\x%02x", c);
		else
			out[n++] = (char)c;
	}
	/* never cut a UTF-8 character in two */
	if (i < len)
		while (i > 0 && n > 1 && ((unsigned char)s[i] & 0xc0) == 0x80)
			i--, n--;
	memcpy(out + n, i < len ? "...`" : "`", i < len ? 5 : 2);
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
