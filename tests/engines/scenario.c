/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every scenario over the engines that make files, and every fallback; a test's name says
 * which. tests/nvmf runs them over volumes. */
#include "tests/engines/fixture.h"

#include "common/util.h"

static const struct variant variants[] = {
	{.name = "mem", .type = "mem"},
	{.name = "file", .type = "file", .base = "/var/tmp"},
	{.name = "file, no deferral",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER},
	{.name = "file, plain",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP},
	{.name = "file, plain, no fixed buffers",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP | ENGINE_IO_NO_FIXED},
	{.name = "file, no fixed buffers",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_FIXED},
	{.name = "file, no direct",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DIRECT},
	{.name = "file, threads",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_URING},
	{.name = "file, threads, no direct",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_URING | ENGINE_IO_NO_DIRECT},
	{.name = "file on tmpfs", .type = "file", .base = "/dev/shm"},
};

int main(void)
{
	return fixture_run(variants, ARRAY_SIZE(variants));
}
