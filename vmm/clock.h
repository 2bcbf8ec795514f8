/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef WHELP_CLOCK_H
#define WHELP_CLOCK_H

#include <time.h>

/* CLOCK_MONOTONIC in seconds, for statistics. */
static inline double clock_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

#endif
