/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From argv to a command and its exit status. What a command prints on standard output counts only
 * when it got there: a full disk or a closed pipe is an error like any other.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/console.h"
#include "vmm/doctor.h"
#include "vmm/log.h"
#include "vmm/machine.h"
#include "vmm/options.h"
#include "vmm/stat.h"
#include "vmm/version.h"

static int finish_stdout(int status)
{
	int error = ferror(stdout) ? EIO : 0;

	if (fflush(stdout))
		error = errno;
	if (!error)
		return status;
	log_error("standard output: cannot write: %s", strerror(error));
	return EXIT_SETUP;
}

int main(int argc, char **argv)
{
	struct options options;

	/*
	 * A closed standard descriptor would be given to the next file opened, which then gets our
	 * output.
	 */
	if (console_reserve_stdio())
		return EXIT_SETUP;
	/* A reader that went away is reported where the write fails. */
	signal(SIGPIPE, SIG_IGN);
	if (options_parse(&options, argc, argv))
		return EXIT_USAGE;
	switch (options.command) {
	case COMMAND_RUN:
		return machine_run(&options.run);
	case COMMAND_STAT:
		return finish_stdout(stat_main(&options.stat));
	case COMMAND_DOCTOR:
		return finish_stdout(doctor_main(options.json));
	case COMMAND_HELP:
		options_help(stdout, options.help_topic);
		return finish_stdout(EXIT_SUCCESS);
	case COMMAND_VERSION:
		printf("whelp %s\n", WHELP_VERSION);
		return finish_stdout(EXIT_SUCCESS);
	}
	return EXIT_USAGE;
}
