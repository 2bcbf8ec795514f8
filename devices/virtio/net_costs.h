/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this host takes for the things that a mitigation policy weighs, measured when they are
 * needed.
 */
#ifndef WHELP_NET_COSTS_H
#define WHELP_NET_COSTS_H

#include <stdint.h>

struct net_costs {
	uint64_t kick; /* ns: from a write to an eventfd until the thread that slept on it runs */
	uint64_t overshoot; /* ns: how late a timed sleep of a worker ends */
};

/*
 * Takes about a millisecond, and a thread for as long. What cannot be measured is given a usual
 * value.
 */
void net_costs_measure(struct net_costs *costs);

#endif
