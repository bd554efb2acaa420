/* SPDX-License-Identifier: Apache-2.0 */
/* The target's controls as lines of text: one row each, for the program and for scripts. */
#include "tests/nvmf/target.h"

#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 16

struct line {
	struct target *t;
	char *words[WORDS_MAX];
	unsigned n;
	char *out;
	size_t size;
};

static int number(const char *s, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(s, &end, 0);
	return errno || end == s || *end ? -EINVAL : 0;
}

/* NAME=N among the words from @from on: its value, or @otherwise. */
static uint64_t option(const struct line *l, unsigned from, const char *name, uint64_t otherwise)
{
	size_t len = strlen(name);
	uint64_t v;

	for (unsigned i = from; i < l->n; i++)
		if (!strncmp(l->words[i], name, len) && l->words[i][len] == '=' &&
		    !number(l->words[i] + len + 1, &v))
			return v;
	return otherwise;
}

static uint64_t word_number(const struct line *l, unsigned i)
{
	uint64_t v = 0;

	return i < l->n && !number(l->words[i], &v) ? v : 0;
}

static int do_subsystem(struct line *l)
{
	struct target_subsys_opts o = {
		.nqn = l->words[1],
		.mdts = (uint8_t)option(l, 2, "mdts", 0),
		.in_capsule = (uint32_t)option(l, 2, "in-capsule", 8192),
		.write_cache = option(l, 2, "write-cache", 0),
		.io_queues = (uint32_t)option(l, 2, "queues", 0),
		.keep_alive_unit = (uint32_t)option(l, 2, "keep-alive-unit", 0),
		.cqt_ms = (uint32_t)option(l, 2, "cqt", 0),
	};

	return target_add_subsystem(l->t, &o);
}

static int do_namespace(struct line *l)
{
	struct target_ns_opts o = {.nsid = (uint32_t)word_number(l, 2),
	                           .blocks = word_number(l, 3),
	                           .block_size = (uint32_t)word_number(l, 4),
	                           .read_only = option(l, 5, "read-only", 0)};

	return target_add_ns(l->t, l->words[1], &o);
}

static int do_remove(struct line *l)
{
	return target_remove_ns(l->t, l->words[1], (uint32_t)word_number(l, 2));
}

static int do_resize(struct line *l)
{
	return target_resize_ns(l->t, l->words[1], (uint32_t)word_number(l, 2), word_number(l, 3));
}

static int do_allow(struct line *l)
{
	return target_allow(l->t, l->words[1], l->words[2]);
}

static int do_disallow(struct line *l)
{
	return target_disallow(l->t, l->words[1], l->words[2]);
}

static int do_authenticate(struct line *l)
{
	uint64_t hash = word_number(l, 4), group = word_number(l, 5);

	if (!hash || hash > 3 || group > 5)
		return -EINVAL;
	return target_authenticate(l->t, l->words[1], l->words[2],
	                           strcmp(l->words[3], "-") ? l->words[3] : NULL, (uint8_t)hash,
	                           (uint8_t)group);
}

static int do_fault(struct line *l)
{
	struct target_rule r = {
		.fault = target_fault_parse(l->words[1]),
		.qid = (int)option(l, 2, "qid", UINT64_MAX) + 1,
		.opcode = (int)option(l, 2, "opcode", UINT64_MAX) + 1,
		.pdu = (int)option(l, 2, "pdu", UINT64_MAX) + 1,
		.skip = (uint32_t)option(l, 2, "skip", 0),
		.times = (uint32_t)option(l, 2, "times", 0),
		.arg = option(l, 2, "arg", 0),
	};

	return r.fault ? target_fault_on(l->t, &r) : -ENOENT;
}

static int do_faults_off(struct line *l)
{
	target_faults_off(l->t);
	return 0;
}

static int do_drop(struct line *l)
{
	int qid = l->n > 1 ? (int)word_number(l, 1) : -1;

	snprintf(l->out, l->size, "%u", target_drop(l->t, qid));
	return 0;
}

static int do_stop(struct line *l)
{
	target_stop(l->t);
	return 0;
}

static int do_start(struct line *l)
{
	return target_start(l->t);
}

static int do_refuse(struct line *l)
{
	return target_refuse(l->t, word_number(l, 1));
}

static int do_freeze(struct line *l)
{
	target_freeze(l->t, word_number(l, 1));
	return 0;
}

static int do_delay(struct line *l)
{
	target_delay(l->t, (uint32_t)word_number(l, 1), option(l, 2, "orphans", 0));
	return 0;
}

static int do_pace(struct line *l)
{
	target_pace(l->t, (uint32_t)word_number(l, 1));
	return 0;
}

static int do_release(struct line *l)
{
	target_release(l->t);
	return 0;
}

static int do_event(struct line *l)
{
	snprintf(l->out, l->size, "%u", target_event(l->t, (uint32_t)word_number(l, 1)));
	return 0;
}

/* The media of a namespace to or from a file. */
static int media(struct line *l, bool save)
{
	uint64_t offset = word_number(l, 3), len = word_number(l, 4);
	int fd AUTO_CLOSE =
		open(l->words[5],
	             save ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
	uint32_t nsid = (uint32_t)word_number(l, 2);
	char *buf AUTO_FREE = NULL;
	int rc;

	if (fd < 0)
		return -errno;
	buf = len <= (1u << 30) ? malloc(len + 1) : NULL;
	if (!buf)
		return -ENOMEM;
	if (!save && read(fd, buf, len) != (ssize_t)len)
		return -EIO;
	rc = save ? target_media_read(l->t, l->words[1], nsid, offset, buf, len)
	          : target_media_write(l->t, l->words[1], nsid, offset, buf, len);
	if (!rc && save && write(fd, buf, len) != (ssize_t)len)
		return -EIO;
	return rc;
}

static int do_save(struct line *l)
{
	return media(l, true);
}

static int do_load(struct line *l)
{
	return media(l, false);
}

static int do_stats(struct line *l)
{
	struct target_stats s;

	target_stats(l->t, &s);
	snprintf(l->out, l->size,
	         "connections=%lu admin=%lu io=%lu reads=%lu writes=%lu bytes_read=%lu "
	         "bytes_written=%lu orphans=%lu keep_alives=%lu expired=%lu violations=%lu "
	         "open=%u controllers=%u waiting=%u",
	         s.connections, s.admin, s.io, s.reads, s.writes, s.bytes_read, s.bytes_written,
	         s.orphans, s.keep_alives, s.expired, s.violations, s.open, s.controllers,
	         s.waiting);
	return 0;
}

static int do_violations(struct line *l)
{
	target_violations(l->t, l->out, l->size);
	return 0;
}

/* The last N commands, 20 if no number is said. */
static int do_log(struct line *l)
{
	struct target_log_entry *e AUTO_FREE = calloc(65536, sizeof(*e));
	size_t n = e ? target_log(l->t, 0, e, 65536) : 0, at = 0;
	size_t first = n - MIN(n, l->n > 1 ? word_number(l, 1) : 20);

	for (size_t i = first; i < n && at + 1 < l->size; i++)
		at += (size_t)snprintf(l->out + at, l->size - at,
		                       "%s%lu host=%s cntlid=%u qid=%u cid=%u opcode=0x%02x "
		                       "fctype=%u nsid=%u slba=%lu nlb=%u",
		                       i == first ? "" : "\n", e[i].order, e[i].host_nqn,
		                       e[i].cntlid, e[i].qid, e[i].cid, e[i].opcode, e[i].fctype,
		                       e[i].nsid, e[i].slba, e[i].nlb);
	return 0;
}

static int do_hits(struct line *l)
{
	enum target_fault f = target_fault_parse(l->words[1]);

	snprintf(l->out, l->size, "%lu", f ? target_fault_hits(l->t, f) : 0);
	return f ? 0 : -ENOENT;
}

static int do_port(struct line *l)
{
	snprintf(l->out, l->size, "%u", target_port(l->t));
	return 0;
}

static int do_help(struct line *l);
static const struct {
	const char *name;
	unsigned words; /* at least, with the name */
	int (*fn)(struct line *l);
	const char *what;
} rows[] = {
	{"subsystem", 2, do_subsystem,
         "NQN [mdts=] [in-capsule=] [write-cache=] [queues=] [keep-alive-unit=] [cqt=]"},
	{"namespace", 5, do_namespace, "NQN NSID BLOCKS BLOCK_SIZE [read-only=1]"},
	{"remove", 3, do_remove, "NQN NSID"},
	{"resize", 4, do_resize, "NQN NSID BLOCKS"},
	{"allow", 3, do_allow, "NQN HOST_NQN: from then on only those that were allowed"},
	{"disallow", 3, do_disallow, "NQN HOST_NQN"},
	{"authenticate", 6, do_authenticate,
         "NQN HOST_SECRET OWN_SECRET|- HASH GROUP: hosts must prove themselves from now on"},
	{"fault", 2, do_fault, "NAME [qid=] [opcode=] [pdu=] [skip=] [times=] [arg=]"},
	{"faults-off", 1, do_faults_off, ""},
	{"hits", 2, do_hits, "NAME: how often that fault was let loose"},
	{"drop", 1, do_drop, "[QID]: resets connections, says how many"},
	{"stop", 1, do_stop, ": as the end of the process"},
	{"start", 1, do_start, ": listens again"},
	{"refuse", 2, do_refuse, "1|0: no new connections"},
	{"freeze", 2, do_freeze, "1|0: as a machine that hangs"},
	{"delay", 2, do_delay, "MS [orphans=1]: of I/O commands"},
	{"pace", 2, do_pace, "US: of the medium for each I/O command, one after the other"},
	{"release", 1, do_release, ": what is delayed takes effect now"},
	{"event", 2, do_event, "DWORD0: to all that wait for one"},
	{"save", 6, do_save, "NQN NSID OFFSET LENGTH FILE: the media, in bytes"},
	{"load", 6, do_load, "NQN NSID OFFSET LENGTH FILE"},
	{"stats", 1, do_stats, ""},
	{"violations", 1, do_violations, ": what a host did wrong last"},
	{"log", 1, do_log, "[N]: the last commands"},
	{"port", 1, do_port, ""},
	{"help", 1, do_help, ""},
};

static int do_help(struct line *l)
{
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows) && at + 1 < l->size; i++)
		at += (size_t)snprintf(l->out + at, l->size - at, "%s %s\n", rows[i].name,
		                       rows[i].what);
	for (unsigned f = 1; f < FAULTS_N && at + 1 < l->size; f++)
		at += (size_t)snprintf(l->out + at, l->size - at, "%-20s %s%s",
		                       target_fault_to_str((enum target_fault)f),
		                       target_fault_what((enum target_fault)f),
		                       f + 1 < FAULTS_N ? "\n" : "");
	return 0;
}

int target_line(struct target *t, const char *line, char *out, size_t size)
{
	struct line l = {.t = t, .out = out, .size = size};
	char *copy AUTO_FREE = strdup(line), *save = NULL;

	out[0] = 0;
	if (!copy)
		return -ENOMEM;
	for (char *w = strtok_r(copy, " \t\r\n", &save); w && l.n < WORDS_MAX;
	     w = strtok_r(NULL, " \t\r\n", &save))
		l.words[l.n++] = w;
	if (!l.n || l.words[0][0] == '#')
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(l.words[0], rows[i].name))
			return l.n < rows[i].words ? -EINVAL : rows[i].fn(&l);
	return -ENOENT;
}
