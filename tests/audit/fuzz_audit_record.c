/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bytes as an audit record, as a checkpoint, and as the frames of an export file. */
#include "proto/audit/audit.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_file(const uint8_t *data, size_t size)
{
	char path[64];
	struct audit_verdict verdict;
	uint64_t seq, offset;
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/ros2-fuzz-audit.%d", (int)getpid());
	f = fopen(path, "w");
	if (!f)
		return;
	fwrite("ROS2AUD1\n", 1, 9, f);
	fwrite(data, 1, size, f);
	fclose(f);
	audit_file_verify(path, NULL, &verdict, &seq, &offset, NULL);
	unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Ros2__V1__AuditRecord *rec = NULL;
	struct audit_checkpoint cp;

	if (audit_record_parse(data, size, &rec, NULL) == 0)
		ros2__v1__audit_record__free_unpacked(rec, NULL);
	audit_checkpoint_open(data, size, NULL, &cp, NULL);
	as_file(data, size);
	return 0;
}
