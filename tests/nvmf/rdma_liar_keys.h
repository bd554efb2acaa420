/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of rdma_liar_test about keys that a target was given, or saw, and uses as it likes. */
#ifndef ROS2_TESTS_NVMF_RDMA_LIAR_KEYS_H
#define ROS2_TESTS_NVMF_RDMA_LIAR_KEYS_H

void nvmf_rdma_liar__a_key_of_a_command_in_flight(void **state);
void nvmf_rdma_liar__a_key_of_another_tenant(void **state);
void nvmf_rdma_liar__a_key_of_a_command_that_is_over(void **state);
void nvmf_rdma_liar__the_control_keys_that_do_not_end(void **state);
void nvmf_rdma_liar__a_write_after_a_time_out(void **state);

#define LIAR_KEY_TESTS                                                                             \
	LIAR_TEST(a_key_of_a_command_in_flight), LIAR_TEST(a_key_of_another_tenant),               \
		LIAR_TEST(a_key_of_a_command_that_is_over),                                        \
		LIAR_TEST(the_control_keys_that_do_not_end), LIAR_TEST(a_write_after_a_time_out)
#endif
