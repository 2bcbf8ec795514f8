/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A whole machine: built from the command line's plain struct, run, and taken down. */
#ifndef WHELP_MACHINE_H
#define WHELP_MACHINE_H

#include "vmm/options.h"

/*
 * Runs a machine until it ends, and returns the process's exit status (enum exit_status), after one
 * line on stderr that says why it ended. Nothing is left behind: terminal, taps, files, threads.
 */
int machine_run(const struct run_config *config);

#endif
