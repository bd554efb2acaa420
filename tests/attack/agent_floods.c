/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beta floods a real agent over verbs: connections that are let in and end at once, requests that
 * prove nothing, connections without receives, and noise, one after another without pause. It goes
 * on until a file says that beta has been revoked, and then for some attempts more, of which none
 * may be let in. tests/attack/agent starts it and compares; nothing here is a time.
 *
 *   attack-floods DIR FILE MORE    the cluster's directory (tests/integration/lib.sh); ROS2_AGENT
 * is set
 */
#include "common/crypto.h"
#include "tests/attack/agent_site.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTEMPTS_MAX 20000u
#define RECVS        64u
#define PINGS        8u

struct flood {
	struct cluster cluster;
	struct site site;
	struct peer *p;
	struct peer_session s;
	char data[80]; /* where the last session was */
	uint32_t attempts, let_in, late, late_let_in;
};

static int enter(struct flood *f, uint32_t recvs)
{
	int r = f->site.session(&f->site, BETA, &f->s);

	if (r)
		return r;
	snprintf(f->data, sizeof(f->data), "%s", f->s.data);
	r = peer_open_with(&f->p, f->s.data, recvs);
	if (!r)
		r = peer_join(f->p, &f->s);
	if (!r && !f->let_in++)
		printf("flooding\n");
	return r;
}

static void leave(struct flood *f)
{
	peer_close(f->p);
	f->p = NULL;
	if (f->s.data[0])
		(void)f->site.close(&f->site, BETA, &f->s);
	f->s.data[0] = '\0';
}

static void comes_and_goes(struct flood *f)
{
	(void)enter(f, RECVS);
	leave(f);
}

static void proves_nothing(struct flood *f)
{
	struct wire_verbs_ask by = {.version = WIRE_VERBS_VERSION};
	enum ros2_status st;

	crypto_random(by.session_uid, sizeof(by.session_uid));
	if (f->data[0] && !peer_open(&f->p, f->data) && !peer_connect(f->p, &by, sizeof(by), &st))
		f->let_in++;
	leave(f);
}

static void takes_no_answers(struct flood *f)
{
	struct wire_header ping = {.opcode = WIRE_PING};
	int r = enter(f, 1);

	for (uint32_t i = 0; i < PINGS && !r; i++)
		r = peer_send(f->p, &ping, NULL);
	leave(f);
}

static void makes_noise(struct flood *f)
{
	if (!enter(f, RECVS))
		(void)peer_noise(f->p, WIRE_HEADER_LEN);
	leave(f);
}

static void report(const struct flood *f)
{
	json_t *answers = json_object(), *words = json_object();
	json_t *j = json_pack("{sI sI sI sI so so}", "attempts", (json_int_t)f->attempts, "let_in",
	                      (json_int_t)f->let_in, "late", (json_int_t)f->late, "late_let_in",
	                      (json_int_t)f->late_let_in, "answers", answers, "words", words);

	for (int i = 0; i < ROS2_STATUS_COUNT; i++) {
		const char *name = ros2_status_to_str((enum ros2_status)i);

		if (!f->cluster.answers[i])
			continue;
		json_object_set_new(answers, name, json_integer((json_int_t)f->cluster.answers[i]));
		json_object_set_new(words, name, json_string(f->cluster.words[i]));
	}
	json_dumpf(j, stdout, JSON_COMPACT);
	printf("\n");
	json_decref(j);
}

int main(int argc, char **argv)
{
	static void (*const kinds[])(struct flood * f) = {comes_and_goes, proves_nothing,
	                                                  takes_no_answers, makes_noise};
	struct flood f = {.cluster = {.quiet = true}};
	uint32_t more = argc == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;

	if (!more) {
		fprintf(stderr, "usage: attack-floods DIR FILE MORE\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cluster_connect(&f.cluster, argv[1], &f.site))
		return 1;
	while (f.late < more && f.attempts < ATTEMPTS_MAX) {
		bool late = access(argv[2], F_OK) == 0;
		uint32_t before = f.let_in;

		kinds[f.attempts++ % ARRAY_SIZE(kinds)](&f);
		f.late += late;
		f.late_let_in += late ? f.let_in - before : 0;
	}
	report(&f);
	cluster_close(&f.cluster);
	return 0;
}
