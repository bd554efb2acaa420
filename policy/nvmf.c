/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of an engine of type nvmf. NQNs by NVMe Base 2.0, 4.5: `nqn.yyyy-mm.` and a reversed
 * domain name, a colon, a string; or the form with a UUID. Anything that a target could read in two
 * ways is refused.
 */
#include "policy/nvmf.h"
#include "common/utf8.h"
#include "common/util.h"
#include "policy/text.h"
#include <arpa/inet.h>
#include <string.h>

#define SEC    1000ull
#define MINUTE (60 * SEC)

#define U32(f) offsetof(struct policy_nvmf, f), true
#define U64(f) offsetof(struct policy_nvmf, f), false

const struct nvmf_number nvmf_numbers[NVMF_NUMBERS] = {
	[NVMF_NUMBER_PORT] = {"port", UNIT_COUNT, U32(port), false, 1, 65535, 4420},
	[NVMF_NUMBER_QUEUE_DEPTH] = {"queueDepth", UNIT_COUNT, U32(queue_depth), false, 2, 1024,
                                     128},
	[NVMF_NUMBER_KEEP_ALIVE] = {"keepAlive", UNIT_DURATION, U64(keep_alive_ms), false, SEC,
                                    MINUTE, 5 * SEC},
	[NVMF_NUMBER_COMMAND_TIMEOUT] = {"commandTimeout", UNIT_DURATION, U64(command_timeout_ms),
                                         false, SEC, 10 * MINUTE, 30 * SEC},
	[NVMF_NUMBER_QUIESCE] = {"quiesce", UNIT_DURATION, U64(quiesce_ms), true, SEC, 60 * MINUTE,
                                 0},
};

uint64_t nvmf_number_get(const struct policy_nvmf *n, enum nvmf_number_id id)
{
	const char *p = (const char *)n + nvmf_numbers[id].offset;

	return nvmf_numbers[id].is_u32 ? *(const uint32_t *)p : *(const uint64_t *)p;
}

void nvmf_number_set(struct policy_nvmf *n, enum nvmf_number_id id, uint64_t v)
{
	char *p = (char *)n + nvmf_numbers[id].offset;

	if (nvmf_numbers[id].is_u32)
		*(uint32_t *)p = (uint32_t)v;
	else
		*(uint64_t *)p = v;
}

/* ---- NQNs ---- */

#define UUID_FORM "nqn.2014-08.org.nvmexpress:uuid:"
#define DISCOVERY "nqn.2014-08.org.nvmexpress.discovery"

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* yyyy-mm. at @s, reading no further than its end */
static bool date(const char *s)
{
	for (int i = 0; i < 7; i++)
		if (i == 4 ? s[i] != '-' : !digit(s[i]))
			return false;
	return s[7] == '.' &&
	       (s[5] == '0' ? s[6] != '0' : s[5] == '1' && s[6] >= '0' && s[6] <= '2');
}

static bool label_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || digit(c) || c == '-';
}

/* Labels with '.' between, up to the ':'. NULL when that is not what stands there. */
static const char *behind_domain(const char *s)
{
	for (;;) {
		const char *label = s;

		while (label_char(*s))
			s++;
		if (s == label || (*s != '.' && *s != ':'))
			return NULL;
		if (*s++ == ':')
			return s;
	}
}

static bool uuid(const char *s)
{
	for (int i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool hex =
			digit(s[i]) || (s[i] >= 'a' && s[i] <= 'f') || (s[i] >= 'A' && s[i] <= 'F');

		if (dash ? s[i] != '-' : !hex)
			return false;
	}
	return !s[36];
}

static const char *nqn_fault(const char *s)
{
	const char *name;

	if (strlen(s) > POLICY_NQN_MAX)
		return "is longer than 223 bytes";
	if (!utf8_text_printable(s))
		return "has a control or hidden character";
	if (strncmp(s, "nqn.", 4) != 0)
		return "does not begin with `nqn.`";
	if (!date(s + 4))
		return "has no year and month behind `nqn.` (like `nqn.2014-08.`)";
	if (!strcmp(s, DISCOVERY))
		return "is the discovery subsystem: it has no namespaces";
	name = behind_domain(s + 12);
	if (!name)
		return "has no reversed domain name and `:` behind its date (like `org.example:`)";
	if (!*name)
		return "has nothing behind its `:`";
	if (strchr(name, ' '))
		return "has a blank";
	return NULL;
}

const char *nvmf_subsystem_fault(const char *s)
{
	const char *fault = nqn_fault(s);

	if (fault)
		return fault;
	if (strstr(s, POLICY_TENANT_MARK))
		return "has `{tenant}`: an engine has one subsystem, its tenants are told apart by "
		       "hostNqn";
	if (!strncmp(s, UUID_FORM, strlen(UUID_FORM)) && !uuid(s + strlen(UUID_FORM)))
		return "has no UUID behind `uuid:`";
	return NULL;
}

/* How often the mark stands in @s; -1 when there is a brace that is not of one. */
static int marks(const char *s)
{
	const size_t len = strlen(POLICY_TENANT_MARK);
	int n = 0;

	while ((s = strpbrk(s, "{}"))) {
		if (strncmp(s, POLICY_TENANT_MARK, len) != 0)
			return -1;
		s += len;
		n++;
	}
	return n;
}

/* The length with the longest name of a tenant in the place of each mark. */
static size_t longest(const char *s, int n_marks)
{
	return strlen(s) + (size_t)n_marks * (ROS2_NAME_MAX - strlen(POLICY_TENANT_MARK));
}

const char *nvmf_host_fault(const char *s)
{
	const char *fault = nqn_fault(s);
	int n = fault ? 0 : marks(s);

	if (fault)
		return fault;
	if (n < 0)
		return "has a brace that is not of `{tenant}`";
	if (n != 1)
		return n ? "has `{tenant}` more than once"
		         : "does not have `{tenant}`: each tenant must be a host of its own";
	if (longest(s, n) > POLICY_NQN_MAX)
		return "is longer than 223 bytes with a tenant's name of 63 in it";
	if (!strncmp(s, UUID_FORM, strlen(UUID_FORM)))
		return "is of the form with a UUID, which the name of a tenant is not";
	return NULL;
}

const char *nvmf_secret_fault(const char *s)
{
	int n = marks(s);

	if (!*s)
		return "is empty";
	if (*s == '.')
		return "begins with a dot";
	if (n < 0)
		return "has a brace that is not of `{tenant}`";
	if (n > 1)
		return "has `{tenant}` more than once";
	for (const char *p = s; *p; p++)
		if (!label_char(*p) && *p != '.' && *p != '_' && *p != '{' && *p != '}')
			return "has something other than letters, digits, `._-` and `{tenant}`: it "
			       "is the name of a file in the agent's secrets directory";
	if (longest(s, n) > POLICY_SECRET_NAME_MAX)
		return n ? "is longer than 127 bytes with a tenant's name of 63 in it"
		         : "is longer than 127 bytes";
	return NULL;
}

/* ---- address ---- */

static const char *address4_fault(const uint8_t a[4])
{
	if (!a[0] || a[0] >= 224)
		return "is not the address of one machine";
	return NULL;
}

static const char *address6_fault(const struct in6_addr *a)
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		return "is an IPv4 address written as IPv6: write it as IPv4";
	if (IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_MULTICAST(a))
		return "is not the address of one machine";
	if (IN6_IS_ADDR_LINKLOCAL(a))
		return "is link-local: it means another machine on each interface";
	return NULL;
}

const char *nvmf_address_fault(const char *s, char out[POLICY_ADDRESS_MAX + 1])
{
	struct in6_addr six;
	struct in_addr four;
	const char *fault;

	if (inet_pton(AF_INET, s, &four) == 1) {
		fault = address4_fault((const uint8_t *)&four);
		if (!fault)
			inet_ntop(AF_INET, &four, out, POLICY_ADDRESS_MAX + 1);
		return fault;
	}
	if (inet_pton(AF_INET6, s, &six) != 1)
		return "is no IPv4 or IPv6 address: names are not looked up, so that nobody who "
		       "answers for a name becomes the target";
	fault = address6_fault(&six);
	if (!fault)
		inet_ntop(AF_INET6, &six, out, POLICY_ADDRESS_MAX + 1);
	return fault;
}

/* ---- volumes ---- */

const char *nvmf_volume_name_fault(const char *s)
{
	return strlen(s) > POLICY_VOLUME_NAME_MAX ? "is longer than 127 bytes"
	                                          : text_namespace_path_fault(s);
}

const char *nvmf_extent_fault(const struct policy_volume *v)
{
	if (!v->nsid || v->nsid > NVMF_NSID_MAX)
		return "nsid";
	if (v->offset % NVMF_VOLUME_ALIGN || v->offset >= NVMF_VOLUME_END ||
	    (v->offset && !v->size))
		return "offset";
	if (v->size % NVMF_VOLUME_ALIGN || v->size > NVMF_VOLUME_END - v->offset)
		return "size";
	return NULL;
}

uint64_t nvmf_volume_end(const struct policy_volume *v)
{
	return v->size ? v->offset + v->size : UINT64_MAX;
}

bool nvmf_volumes_overlap(const struct policy_volume *a, const struct policy_volume *b)
{
	return a->nsid == b->nsid && a->offset < nvmf_volume_end(b) &&
	       b->offset < nvmf_volume_end(a);
}

bool nvmf_has_volume_below(const struct policy_nvmf *n, const char *path)
{
	size_t len = strlen(path);

	for (uint32_t i = 0; i < n->n_volumes; i++)
		if (text_path_within(path, n->volumes[i].name) && n->volumes[i].name[len])
			return true;
	return false;
}

static const char *volumes_fault(const struct policy_nvmf *n)
{
	if (!n->n_volumes || n->n_volumes > POLICY_VOLUMES_MAX)
		return "volumes";
	for (uint32_t i = 0; i < n->n_volumes; i++) {
		const struct policy_volume *v = &n->volumes[i];

		if (nvmf_volume_name_fault(v->name) || nvmf_extent_fault(v))
			return "volumes";
		for (uint32_t j = 0; j < i; j++)
			if (nvmf_volumes_overlap(v, &n->volumes[j]) ||
			    text_path_within(v->name, n->volumes[j].name) ||
			    text_path_within(n->volumes[j].name, v->name))
				return "volumes";
	}
	return NULL;
}

const char *nvmf_fault(const struct policy_nvmf *n)
{
	char address[POLICY_ADDRESS_MAX + 1];

	if (n->transport != POLICY_TRANSPORT_TCP && n->transport != POLICY_TRANSPORT_RDMA)
		return "transport";
	if (nvmf_address_fault(n->address, address) || strcmp(address, n->address) != 0)
		return "address";
	if (nvmf_subsystem_fault(n->subsystem))
		return "subsystem";
	if (nvmf_host_fault(n->host_nqn))
		return "hostNqn";
	if (n->secret[0] && nvmf_secret_fault(n->secret))
		return "secretRef";
	if (n->target_secret[0] && (!n->secret[0] || !strcmp(n->secret, n->target_secret) ||
	                            nvmf_secret_fault(n->target_secret)))
		return "targetSecretRef";
	if (n->transport != POLICY_TRANSPORT_TCP && (n->header_digest || n->data_digest))
		return "digests";
	if (n->transport != POLICY_TRANSPORT_RDMA && n->keys_per_command)
		return "keys";
	for (int i = 0; i < NVMF_NUMBERS; i++) {
		const struct nvmf_number *f = &nvmf_numbers[i];
		uint64_t v = nvmf_number_get(n, (enum nvmf_number_id)i);

		if ((v < f->min && !(f->optional && !v)) || v > f->max)
			return f->key;
	}
	return volumes_fault(n);
}
