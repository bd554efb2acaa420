/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate is renewed at half its life, for the same key, over the controller's mTLS; then
 * the connection is made anew, because a server ends what an expired certificate began. A renewal
 * that fails is tried again until the certificate ends; then, or when a certificate is refused
 * because its CA has left the bundle, the same key asks at the enrolment listener, where the
 * controller takes it for some days; then a person has to do something.
 *
 * Who gives a certificate judges it, by its own clock. Where this machine's is another, by a
 * quarter of the certificate's life or more, its times say nothing here: it might have ended before
 * it came, and each that is asked for in its place. Then it counts from when it came, by the time
 * that passes.
 *
 * Only the certificate is taken of an answer. Whom the agent believes a stream says, behind the
 * epoch that tells a controller from one that has been superseded and knows an older bundle; one
 * begins with each new certificate. */
#include "agent/uplink_priv.h"
#include "agent/bundles.h"
#include "common/clock.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOG_COMPONENT "renew"
#include "common/log.h"

#define RETRY_MS    30000
#define CHECK_MAX_S 60 /* a clock that is put right makes one due, or over */

/* A certificate on its way to disk: the loop does not wait for that. */
struct storing {
	struct writer_job job;
	struct agent *a;   /* outlives the writer */
	struct renewal *r; /* NULL: gone */
	int rc;
	struct ros2_err err;
	size_t len;
	char pem[];
};

struct renewal {
	struct agent *a;
	bool busy;               /* in flight, or with the writer */
	struct storing *storing; /* the writer's */
	struct enrol *enrol;     /* owned: asks with an ended certificate */
	bool joining;            /* it has no answer yet */
	uint64_t refused_ns; /* when it was asked for because the present one was refused; 0: never
	                      */
	/* The last that came, if the clocks differ (boottime): at half its life, and at its end. */
	uint64_t half_ns, end_ns;
	struct loop_timer timer;
};

static void check(void *arg);

static void again_in_ms(struct renewal *r, uint64_t ms)
{
	if (!r->a->stopping)
		loop_timer_in_ms(r->a->o.loop, &r->timer, ms, check, r);
}

static void store(struct writer_job *j)
{
	struct storing *s = container_of(j, struct storing, job);
	const struct identity *id = &s->a->o.identity;

	s->rc = identity_store_certificate(s->a->o.state_dir, id->name, id->trust_domain, s->pem,
	                                   s->len, &s->err);
}

static void not_renewed(struct renewal *r, const struct ros2_err *err)
{
	log_warn("the certificate could not be renewed: %s", err->msg);
	again_in_ms(r, err->status == ROS2_UNAVAILABLE ? 2000 : RETRY_MS);
}

static void note_times(struct renewal *r, const void *pem, size_t len)
{
	struct pki_cert_info info;
	int64_t life_s, left_s;
	uint64_t now = clock_boottime_ns();

	r->half_ns = r->end_ns = 0;
	if (pki_cert_info(pem, len, &info, NULL) < 0)
		return;
	life_s = info.not_after_unix_s - info.not_before_unix_s - PKI_BACKDATE_S;
	left_s = info.not_after_unix_s - (int64_t)time(NULL);
	if (life_s <= 0 || life_s > UINT32_MAX || llabs(left_s - life_s) <= life_s / 4)
		return;
	log_error("this machine's clock is about %lld s %s the controller's: one of them is wrong; "
	          "the certificate counts from now on, by the time that passes",
	          llabs(left_s - life_s), left_s < life_s ? "ahead of" : "behind");
	r->half_ns = now + (uint64_t)life_s * NS_PER_S / 2;
	r->end_ns = now + (uint64_t)life_s * NS_PER_S;
}

bool renewal_stands(const struct renewal *r)
{
	return clock_boottime_ns() < r->end_ns;
}

/* By the clocks as they are now it may be refused, of which a handshake that fails says nothing:
 * while nobody lets the agent in, another is asked for. */
static bool is_doubtful(const struct renewal *r)
{
	return renewal_stands(r) || identity_certificate_is_early(r->a->o.state_dir);
}

static void stored(struct writer_job *j)
{
	struct storing *s = container_of(j, struct storing, job);
	struct renewal *r = s->r;

	if (r) {
		r->busy = false;
		r->storing = NULL;
		r->joining = false;
		enrol_free(TAKE_PTR(r->enrol)); /* there is nothing left to ask for */
		if (s->rc < 0) {
			not_renewed(r, &s->err);
		} else {
			log_info("certificate renewed");
			note_times(r, s->pem, s->len);
			uplink_reopen(r->a->uplink);
			again_in_ms(r, is_doubtful(r) ? RETRY_MS : 1000);
		}
	}
	free(s);
}

static int begin_storing(struct renewal *r, const void *pem, size_t len, struct ros2_err *err)
{
	struct storing *s = r->storing ? NULL : calloc(1, sizeof(*s) + len + 1);

	if (r->storing)
		return ros2_err_named(err, ROS2_BUSY, "another is being written");
	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for a certificate");
	s->job.work = store;
	s->job.done = stored;
	s->a = r->a;
	s->r = r;
	s->len = len;
	if (len)
		memcpy(s->pem, pem, len);
	r->busy = true;
	r->storing = s;
	writer_submit(r->a->disk_writer, &s->job);
	return 0;
}

static void on_reply(void *arg, const ProtobufCMessage *reply, const struct ros2_err *why)
{
	const Ros2__V1__EnrolReply *m = reply ? ros2_v1_agent_link_renew_out(reply) : NULL;
	struct renewal *r = arg;
	struct ros2_err err = *why;

	r->busy = r->storing;
	if (why->code || begin_storing(r, m->cert_pem.data, m->cert_pem.len, &err) < 0)
		not_renewed(r, &err);
}

static int ask(struct renewal *r, struct ros2_err *err)
{
	struct identity *id = &r->a->o.identity;
	Ros2__V1__RenewRequest req = ROS2__V1__RENEW_REQUEST__INIT;
	char key[PATH_MAX], uri[ROS2_SPIFFE_MAX * 2];
	char *csr = NULL;
	int rc;

	agent_path(r->a, "tls.key", key);
	snprintf(uri, sizeof(uri), "spiffe://%s/agent/%s", id->trust_domain, id->name);
	rc = pki_csr_create(key, uri, &csr, err);
	if (rc < 0)
		return rc;
	req.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	rc = rpc_unary(uplink_channel(r->a->uplink), &ros2_v1_agent_link_renew, &req.base, 10000,
	               on_reply, r, NULL, err);
	free(csr);
	r->busy = rc == 0;
	return rc;
}

/* ---- after the end ---- */

static int on_rejoin_reply(void *arg, const void *cert_pem, size_t len, struct ros2_err *err)
{
	return begin_storing(arg, cert_pem, len, err);
}

static void on_rejoined(void *arg, const struct ros2_err *why)
{
	struct renewal *r = arg;

	r->joining = false;
	if (why) {
		log_error("no new certificate with the key of the ended one: %s", why->msg);
		again_in_ms(r, RETRY_MS);
		return;
	}
	log_info("a new certificate with the key of the ended one");
}

static void rejoin(struct renewal *r)
{
	struct enrol_opts o = {.loop = r->a->o.loop,
	                       .dir = r->a->o.state_dir,
	                       .address = r->a->o.enrol,
	                       .again = &r->a->o.identity,
	                       .trust = bundles_unwritten(r->a->bundles, BUNDLE_INFRA),
	                       .take = on_rejoin_reply,
	                       .done = on_rejoined,
	                       .arg = r};
	struct ros2_err err = ROS2_ERR_INIT;

	enrol_free(TAKE_PTR(r->enrol)); /* one that was refused */
	r->joining = o.address && enrol_start(&o, &r->enrol, &err) == 0;
	if (o.address && !r->joining)
		log_error("%s", err.msg);
	/* Also while it asks: where nobody answers, another certificate may come in its place, or
	 * the present one be believed again, which has to be renewed then. */
	again_in_ms(r, RETRY_MS);
}

static void rejoin_now(void *arg)
{
	struct renewal *r = arg;

	if (!r->busy)
		rejoin(r);
}

static int when_due(const struct renewal *r, uint64_t *ret_in_s, struct ros2_err *err)
{
	uint64_t now = clock_boottime_ns();

	if (!renewal_stands(r))
		return identity_check_certificate(r->a->o.state_dir, r->a->o.identity.name,
		                                  ret_in_s, err);
	*ret_in_s = (MAX(r->half_ns, now) - now) / NS_PER_S;
	return 0;
}

static void check(void *arg)
{
	struct renewal *r = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t in_s;

	if (r->busy)
		return;
	/* The clock that it was made by may have been wrong, and be put right by now. */
	if (!r->joining && !uplink_is_live(r->a->uplink) && is_doubtful(r)) {
		rejoin(r);
		return;
	}
	if (when_due(r, &in_s, &err) < 0) {
		log_error("%s", err.msg);
		/* Only one that has ended is past renewing; what cannot be read now may be later.
		 */
		if (err.status == ROS2_UNAUTHENTICATED && !r->joining)
			rejoin(r);
		else
			again_in_ms(r, RETRY_MS);
		return;
	}
	if (in_s) {
		in_s = MIN(in_s, (uint64_t)CHECK_MAX_S);
		again_in_ms(r, is_doubtful(r) ? RETRY_MS : in_s * 1000);
		return;
	}
	if (ask(r, &err) < 0) {
		log_warn("the certificate could not be renewed: %s", err.msg);
		again_in_ms(r, RETRY_MS);
	}
}

void renewal_refused(struct renewal *r)
{
	uint64_t now = clock_boottime_ns();

	if (r->busy || !r->a->o.enrol || r->a->stopping ||
	    (r->refused_ns && now - r->refused_ns < RETRY_MS * NS_PER_MS))
		return;
	r->refused_ns = now;
	log_warn("the certificate is refused: a new one is asked for with the key there is");
	loop_timer_in_ms(r->a->o.loop, &r->timer, 0, rejoin_now, r); /* not from inside it */
}

int renewal_new(struct agent *a, struct renewal **ret)
{
	struct renewal *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->a = a;
	loop_timer_in_ms(a->o.loop, &r->timer, 1000, check, r);
	*ret = r;
	return 0;
}

void renewal_free(struct renewal *r)
{
	if (!r)
		return;
	if (r->storing)
		r->storing->r = NULL;
	enrol_free(r->enrol);
	loop_timer_stop(&r->timer);
	free(r);
}
