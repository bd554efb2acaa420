/* SPDX-License-Identifier: Apache-2.0 */
/* A progress line on stderr when that is a terminal; it is silent in logs and pipes. */
#include "common/clock.h"
#include "common/util.h"
#include "tools/bench/bench.h"
#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 30
#define EVERY_MS  100

void format_bytes(double v, char out[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t u = 0;

	while (v >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	snprintf(out, 32, u && v < 100 ? "%.1f %s" : "%.0f %s", v, units[u]);
}

void progress_begin(struct progress *p, const char *what, uint64_t total, bool quiet)
{
	*p = (struct progress){.what = what,
	                       .total = total,
	                       .began_ns = clock_monotonic_ns(),
	                       .on = !quiet && isatty(STDERR_FILENO)};
}

void progress_show(struct progress *p, uint64_t done, const char *extra)
{
	uint64_t now = clock_monotonic_ns();
	double share = p->total ? (double)MIN(done, p->total) / (double)p->total : 1;
	double seconds = (double)(now - p->began_ns) / 1e9;
	char bar[BAR_WIDTH + 1];

	if (!p->on || (now - p->shown_ns < EVERY_MS * NS_PER_MS && done < p->total))
		return;
	p->shown_ns = now;
	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
	bar[BAR_WIDTH] = 0;
	fprintf(stderr, "\r%s [%s] %3.0f %%  %s", p->what, bar, share * 100, extra);
	if (share > 0.02 && share < 1)
		fprintf(stderr, "  %.0f s left", seconds / share - seconds);
	fputs("\033[K", stderr);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->on && p->shown_ns)
		fputc('\n', stderr);
	p->on = false;
}
