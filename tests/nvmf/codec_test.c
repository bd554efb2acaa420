/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h against bytes written out by hand from the specifications. */
#include "dataplane/nvmf/codec.h"
#include "tests/testing.h"

static void nvme_status__has_words_for_every_code_of_spec_h(void **state)
{
	assert_string_equal(nvme_status_text(0), "success");
	assert_string_equal(nvme_status_text(NVME_SC_LBA_RANGE | NVME_STATUS_DNR),
	                    "LBA out of range");
	assert_string_equal(nvme_status_text(0x7ff), "unknown status");
#define X(num, name, text) assert_string_equal(nvme_status_text(num), text);
	NVME_STATUS_LIST(X)
#undef X
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvme_status__has_words_for_every_code_of_spec_h),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
