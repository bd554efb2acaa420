/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the values of an engine of type nvmf may be, told once for documents and images, and what
 * two of its volumes may be to each other. Pure.
 */
#ifndef ROS2_POLICY_NVMF_H
#define ROS2_POLICY_NVMF_H

#include "policy/policy.h"
#include "policy/units.h"

/* The order is the order in the image: append, never reorder. */
enum nvmf_number_id {
	NVMF_NUMBER_PORT,
	NVMF_NUMBER_QUEUE_DEPTH,
	NVMF_NUMBER_KEEP_ALIVE,
	NVMF_NUMBER_COMMAND_TIMEOUT,
	NVMF_NUMBER_QUIESCE,
	NVMF_NUMBERS,
};

struct nvmf_number {
	const char *key; /* below spec */
	enum unit_kind unit;
	size_t offset; /* in struct policy_nvmf */
	bool is_u32;
	bool optional; /* 0 stands for "not given" and is never written by people */
	uint64_t min, max, fallback;
};
extern const struct nvmf_number nvmf_numbers[NVMF_NUMBERS];
uint64_t nvmf_number_get(const struct policy_nvmf *n, enum nvmf_number_id id);
void nvmf_number_set(struct policy_nvmf *n, enum nvmf_number_id id, uint64_t v);

#define NVMF_NSID_MAX     0xfffffffeull /* 0xffffffff is "all": NVMe Base 2.0, 3.2.1.2 */
#define NVMF_VOLUME_ALIGN 512u
#define NVMF_VOLUME_END   (1ull << 63) /* offsets of files are signed */

/* NULL when good, else what is wrong ("has no date behind `nqn.`"). */
const char *nvmf_subsystem_fault(const char *nqn);
const char *nvmf_host_fault(const char *nqn); /* of the form with the mark */
const char *nvmf_secret_fault(const char *name);
const char *nvmf_volume_name_fault(const char *name);
/* An IPv4 or IPv6 address of one machine, written the one way that inet_ntop writes it. NULL and
 * @out, else what is wrong. */
const char *nvmf_address_fault(const char *s, char out[POLICY_ADDRESS_MAX + 1]);
/* Of one volume by itself, its name apart. */
const char *nvmf_extent_fault(const struct policy_volume *v);

/* The first byte behind it; UINT64_MAX for a whole namespace. */
uint64_t nvmf_volume_end(const struct policy_volume *v);
bool nvmf_volumes_overlap(const struct policy_volume *a, const struct policy_volume *b);
/* Is there a volume that a namespace of this path would show? */
bool nvmf_has_volume_below(const struct policy_nvmf *n, const char *path);

/* Everything about it, for an image. NULL when good, else which key is not. */
const char *nvmf_fault(const struct policy_nvmf *n);

/* Across documents: no byte of a subsystem belongs to volumes of two engines. 0 (faults are in @d)
 * or -ENOMEM. */
int nvmf_check_set(const struct policy_set *s, struct policy_diags *d);
#endif
