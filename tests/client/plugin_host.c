/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that knows nothing of libros2: it loads PLUGIN, has it read something, and unloads it,
 * twice; and lives on, with gRPC, which the plugin brought with it. Ends with 0 when all of that
 * went well, else with the line where it did not.
 *
 *   plugin_host PLUGIN AGENT CERT KEY CA
 */
#include "tests/client/plugin.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return __LINE__;                                                           \
	} while (0)

static int once(char **argv)
{
	const struct ros2_client_opts o = {
		.agent = argv[2], .cert_path = argv[3], .key_path = argv[4], .ca_path = argv[5]};
	void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	plugin_run_fn run;
	plugin_log_fn log;
	void *symbol;
	Dl_info of;

	MUST(plugin);
	symbol = dlsym(plugin, "plugin_run");
	memcpy(&run, &symbol, sizeof(run));
	MUST(run && run(&o) > 0);
	symbol = dlsym(plugin, "gpr_log");
	memcpy(&log, &symbol, sizeof(log));
	/* gRPC may be in the plugin itself, where nobody else has it. */
	MUST(log && dladdr(symbol, &of));
	if (!strcmp(of.dli_fname, argv[1]))
		log = NULL;
	MUST(dlclose(plugin) == 0);
	if (log)
		log(__FILE__, __LINE__, PLUGIN_LOG_ERROR, "of who else has gRPC in this process");
	return 0;
}

int main(int argc, char **argv)
{
	int rc = argc == 6 ? once(argv) : __LINE__;

	return rc ? rc : once(argv);
}
