/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the sweep of failing allocations what the agent says of itself: what it has probed, which the
 * controller is told in the end, and the renewal of its certificate, of which a good one for its
 * key is on disk at every moment, and with which the link comes back.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/agent/alloc_works.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include <string.h>

/* ---- what it has probed ---- */

static int nothing_enforced(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                            struct ros2_err *err)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "tcp");
	snprintf(out->transport, sizeof(out->transport), "tcp");
	*ret_n = 1;
	return 0;
}

int works_all_enforced(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                       struct ros2_err *err)
{
	nothing_enforced(shm, out, ret_n, err);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		out->findings[i].result = PROBE_ENFORCED;
	return 0;
}

static void try_otherwise(void *arg)
{
	struct agent *a = arg;

	a->o.probe = a->o.probe == works_all_enforced ? nothing_enforced : works_all_enforced;
	prober_start(a->prober);
}

static bool told(struct t *t, const void *enforced)
{
	return t->w.probes > t->was.probes && (t->w.probe_enforced != 0) == *(const bool *)enforced;
}

/* At the latest the stream tells it that comes after one which did not take it. */
int works_probe(struct t *t, struct ros2_err *err)
{
	bool enforced, done;

	works_remember(t);
	loop_call(t->w.loop, try_otherwise, t->w.agent);
	enforced = t->w.agent->o.probe == works_all_enforced;
	done = works_until(t, told, &enforced, 200);
	sweep_off();
	if (!done && !works_until(t, told, &enforced, AWAIT_MS))
		fail_msg("what was probed last is not told");
	return 0;
}

/* ---- its certificate ---- */

/* As if half of the life of the certificate with this serial were over. */
static char due[65];
static pthread_mutex_t due_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool has_looked;
/* The next look, the same in all of an agent's life; @l says whose. */
static struct {
	struct loop *_Atomic l;
	struct loop_timer *t;
	loop_fn fn;
	void *arg;
} next;

int __real_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);
int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);

/* Of the certificate in @dir, which is one for the key there. */
static void serial_of(const char *dir, char ret[65])
{
	AUTO_FREE void *pem = NULL, *key = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_cert_info info;
	char path[4400];
	size_t n, key_n;

	testing_path(path, dir, "tls.crt");
	if (fsx_read_file(path, PKI_PEM_MAX, &pem, &n, &err) < 0 ||
	    pki_cert_info(pem, n, &info, &err) < 0)
		fail_msg("the certificate on disk: %s", err.msg);
	testing_path(path, dir, "tls.key");
	if (fsx_read_file(path, PKI_PEM_MAX, &key, &key_n, &err) < 0 ||
	    pki_key_matches(pem, n, key, key_n, &err) < 0)
		fail_msg("the certificate on disk: %s", err.msg);
	strcpy(ret, info.serial);
}

int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err)
{
	int rc = __real_identity_check_certificate(dir, name, ret_renew_in_s, err);
	char serial[65];

	if (rc < 0)
		return rc;
	sweep_hold();
	serial_of(dir, serial);
	sweep_release();
	pthread_mutex_lock(&due_lock);
	if (!strcmp(serial, due))
		*ret_renew_in_s = 0;
	pthread_mutex_unlock(&due_lock);
	/* What is not due is looked at again later: the next wait of this thread. */
	has_looked = *ret_renew_in_s != 0;
	return rc;
}

/* The uplink looks at the certificate, too, and waits for its stream then: for seconds. */
void works_timer(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn, void *arg)
{
	bool is_next = has_looked && ms >= 60000;

	has_looked = false;
	if (!is_next)
		return;
	next.t = t;
	next.fn = fn;
	next.arg = arg;
	next.l = l;
}

static void look_now(void *arg)
{
	loop_timer_in_ms(next.l, next.t, 0, next.fn, next.arg);
}

static void set_due(const char *serial)
{
	pthread_mutex_lock(&due_lock);
	strcpy(due, serial);
	pthread_mutex_unlock(&due_lock);
}

static bool is_new(struct t *t, const char *before)
{
	char dir[4200], now[65];

	testing_path(dir, t->w.dir, "state");
	serial_of(dir, now);
	return strcmp(now, before) != 0;
}

static bool renewed(struct t *t, const void *before)
{
	return works_greeted(t, NULL) && is_new(t, before);
}

int works_renew(struct t *t, struct ros2_err *err)
{
	char dir[4200], before[65];
	bool done;

	testing_path(dir, t->w.dir, "state");
	/* A link that is being made anew cannot be waited for here. */
	t->was.hellos = t->w.hellos;
	serial_of(dir, before);
	/* It looks first soon after its start. */
	assert_true(AWAIT(next.l == t->w.loop));
	set_due(before);
	loop_call(t->w.loop, look_now, NULL);
	done = works_until(t, renewed, before, 300);
	sweep_off();
	if (!done && sweep_fired() && !is_new(t, before))
		return ros2_err_named(err, ROS2_BUSY, "not renewed");
	if (!done && !works_until(t, renewed, before, AWAIT_MS))
		fail_msg("a certificate that is due is not renewed, or the link does not come "
		         "back with it");
	return 0;
}
