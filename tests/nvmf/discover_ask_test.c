/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a discovery controller, beside a target of our own: over RDMA on a device that is memory,
 * with digests, with authentications. What is not proved, not given or not there is said by name,
 * and nothing is left.
 */
#include "common/util.h"
#include "dataplane/dp_discover.h"
#include "tests/nvmf/target_fabric.h"
#include "tests/testing.h"
#include "tests/verbs/fabric_mem.h"
#include <errno.h>
#include <sys/stat.h>

#define HOST "nqn.2026-11.test:host"
/* The secret that the specification shows, and 64 bytes 00 01 02 ... */
#define SECRET_A "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
#define SECRET_B                                                                                   \
	"DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OT" \
	"o7PD0+P4zODhA=:"

struct place {
	struct target *t;
	char a[4096], b[4096];
	struct dp_discover_opts o;
	struct fabric_mem_counts before;
};

static void put(char (*path)[4096], const char *dir, const char *name, const char *text)
{
	int fd;

	snprintf(*path, sizeof(*path), "%s/%s", dir, name);
	fd = open(*path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void begin(struct place *p, void **state, bool rdma)
{
	struct target_opts o = {.carrier = rdma ? &target_fabric : NULL};
	struct target_subsys_opts s = {.nqn = "nqn.2026-11.test:one"};

	*p = (struct place){0};
	put(&p->a, *state, "a", SECRET_A "\n");
	put(&p->b, *state, "b", SECRET_B "\n");
	assert_int_equal(target_new(&o, &p->t), 0);
	assert_int_equal(target_add_subsystem(p->t, &s), 0);
	fabric_mem_counts(&p->before);
	p->o = (struct dp_discover_opts){.address = "127.0.0.1",
	                                 .port = target_port(p->t),
	                                 .host_nqn = HOST,
	                                 .timeout_ms = 20000,
	                                 .rdma = rdma};
}

static void end(struct place *p)
{
	target_free(p->t);
}

/* The one entry, over the transport it came by; and that the target found nothing wrong. */
static void found(struct place *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	const struct nvme_discovered *e;
	struct nvme_discovery *d = NULL;
	uint64_t generation;
	char words[256];
	size_t n;

	if (dp_discover(&p->o, &d, &err) < 0)
		fail_msg("%s", err.msg);
	e = nvme_discovery_entries(d, &n, &generation);
	assert_int_equal(n, 1);
	assert_string_equal(e->subnqn, "nqn.2026-11.test:one");
	assert_string_equal(nvme_trtype_to_str(e->transport), p->o.rdma ? "rdma" : "tcp");
	nvme_discovery_free(d);
	target_violations(p->t, words, sizeof(words));
	assert_string_equal(words, "");
}

static void fails(struct place *p, int rc, const char *words)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_discovery *d = NULL;

	assert_int_equal(dp_discover(&p->o, &d, &err), rc);
	assert_null(d);
	if (!strstr(err.msg, words))
		fail_msg("expected \"%s\", found \"%s\"", words, err.msg);
}

static void dp_discover__over_rdma(void **state)
{
	struct fabric_mem_counts after;
	struct target_stats s;
	struct place p;

	begin(&p, state, true);
	found(&p);
	target_stats(p.t, &s);
	assert_true(s.keyed >= 5); /* Connect, Identify, the log in three parts */
	p.o.device = FABRIC_MEM_DEVICE;
	found(&p);
	p.o.device = "mlx5_7";
	fails(&p, -ENODEV, "mlx5_7");
	p.o.device = NULL;
	fabric_mem_absent(true);
	fails(&p, -ENODEV, "no RDMA device");
	fabric_mem_absent(false);
	/* Nothing of it is left at the device: what there is is the target's. */
	fabric_mem_counts(&after);
	assert_int_equal(after.devices, p.before.devices);
	assert_int_equal(after.pds, p.before.pds);
	assert_int_equal(after.windows, p.before.windows);
	end(&p);
}

static void dp_discover__a_target_over_rdma_that_lies(void **state)
{
	static const struct {
		struct target_rule rule;
		int rc;
		const char *words;
	} rows[] = {
		{{FAULT_CM_REJECT, .arg = 6}, -ENOTCONN, "no resources"},
		{{FAULT_IC_PFV, .arg = 3}, -ENOTCONN, "private data of format 3"},
		{{FAULT_DATA_LONG, .arg = 4096}, -ENOTCONN, ""},
		{{FAULT_CQE_WRONG_ID}, -ENOTCONN, "expected a command in flight"},
		{{FAULT_DISC_NUMREC, .arg = 1u << 20}, -EPROTO, "expected at most 1024"},
	};
	struct place p;

	begin(&p, state, true);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(target_fault_on(p.t, &rows[i].rule), 0);
		fails(&p, rows[i].rc, rows[i].words);
		assert_true(target_fault_hits(p.t, rows[i].rule.fault) > 0);
		target_faults_off(p.t);
	}
	found(&p);
	end(&p);
}

static void authenticated(void **state, bool rdma)
{
	struct place p;

	begin(&p, state, rdma);
	assert_int_equal(target_authenticate(p.t, TARGET_DISCOVERY_NQN, SECRET_A, SECRET_B, 2, 1),
	                 0);
	fails(&p, -EKEYREJECTED, "expected a secret of this host, found none");
	p.o.secret = p.a;
	found(&p);
	p.o.target_secret = p.b;
	found(&p);
	p.o.target_secret = p.a;
	fails(&p, -EKEYREJECTED, "");
	p.o.target_secret = NULL;
	p.o.secret = p.b;
	fails(&p, -EKEYREJECTED, "");
	end(&p);
	/* One that asks for nothing proves nothing. */
	begin(&p, state, rdma);
	p.o.secret = p.a;
	found(&p);
	p.o.target_secret = p.b;
	fails(&p, -EKEYREJECTED, "does not prove its secret");
	end(&p);
}

static void dp_discover__with_an_authentication(void **state)
{
	authenticated(state, false);
	authenticated(state, true);
}

static void dp_discover__secrets_that_are_not_had(void **state)
{
	struct place p;

	begin(&p, state, false);
	p.o.target_secret = p.b;
	fails(&p, -EINVAL, "expected a secret of the host, too");
	p.o.target_secret = NULL;
	p.o.secret = "/nonexistent/secret";
	fails(&p, -ENOENT, "/nonexistent/");
	p.o.secret = p.a;
	assert_int_equal(chmod(p.a, 0644), 0);
	fails(&p, -EPERM, "0600");
	end(&p);
}

static void dp_discover__with_digests(void **state)
{
	struct place p;

	begin(&p, state, false);
	p.o.header_digest = p.o.data_digest = true;
	found(&p);
	for (int i = 0; i < 2; i++) {
		struct target_rule r = {.fault = i ? FAULT_PDU_DDGST : FAULT_PDU_HDGST, .times = 1};

		p.o.header_digest = p.o.data_digest = true;
		assert_int_equal(target_fault_on(p.t, &r), 0);
		fails(&p, -ENOTCONN, "digest");
		target_faults_off(p.t);
		/* Control: without digests there is none to be wrong. */
		p.o.header_digest = p.o.data_digest = false;
		assert_int_equal(target_fault_on(p.t, &r), 0);
		found(&p);
		target_faults_off(p.t);
	}
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(dp_discover__##name, testing_dir_setup,                    \
	                                testing_dir_teardown)
		T(over_rdma),
		T(a_target_over_rdma_that_lies),
		T(with_an_authentication),
		T(secrets_that_are_not_had),
		T(with_digests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
