/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `whelp stat`: the counters of running machines, from outside. */
#ifndef WHELP_STAT_H
#define WHELP_STAT_H

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

#include "vmm/options.h"
#include "vmm/runtime_dir.h"

/*
 * Asks the machine `name` for what machine_stats.h says, and waits at most `timeout` milliseconds.
 * 0, with a new object in `*object` and the machine's process in `*pid`; or what
 * runtime_dir_connect() returns, -ETIMEDOUT,
 * -ECONNRESET: it ended meanwhile, -EBADMSG: it said something else.
 */
int stat_fetch(const struct runtime_dir *dir, const char *name, int timeout, json_t **object,
	       pid_t *pid);

/*
 * Prints a machine as a table. With `before`, an earlier object of the same machine, what came in
 * the `seconds` in between: packets, bytes and exits per second, the others as they are. `before`
 * NULL and `seconds`: since the machine's start; `seconds` 0: totals. Members that are not there
 * count as zero.
 */
void stat_print(FILE *out, const json_t *now, const json_t *before, double seconds);

/*
 * A line on each of the machines: the heading, and a row; an `object` of NULL is one that does not
 * answer.
 */
void stat_print_heading(FILE *out);
void stat_print_row(FILE *out, const char *name, pid_t pid, const json_t *object);

/* The command. Prints to standard output; logs; the exit status: 0, or 1. */
int stat_main(const struct stat_config *config);

#endif
