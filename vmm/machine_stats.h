/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All that a machine counts, as JSON: what `whelp stat` and --stats give. docs/counters.md has the
 * members.
 */
#ifndef WHELP_MACHINE_STATS_H
#define WHELP_MACHINE_STATS_H

#include <jansson.h>

#include "vmm/machine_guest.h"

struct machine_stats {
	const char *name;
	double started; /* CLOCK_MONOTONIC, seconds */
	unsigned boots; /* how often the guest was started */
	const struct guest *guest;
};

/* A new object, or NULL without memory. The guest may be running, and may be half built. */
json_t *machine_stats_json(const struct machine_stats *stats);

/* Writes it to a file, which appears whole or not at all, or warns. */
void machine_stats_write(const struct machine_stats *stats, const char *path);

#endif
