/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether a worker that is woken should take the CPU from whoever has it, where CPUs are short
 * (--net sched=auto). Pure: times are CLOCK_MONOTONIC or any other that does not go back, in ns.
 */
#ifndef WHELP_NET_SCHED_H
#define WHELP_NET_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* Of wakes in a row, and what they moved. */
struct net_sched_window {
	unsigned wakes;
	uint64_t frames;
};

/* All zero: a wake-up takes the CPU. */
struct net_sched {
	bool batch; /* it does not */
	struct net_sched_window now;
	struct net_sched_window usual; /* of late, with wake-ups that do */
	struct net_sched_window tried; /* of late, with those that do not */
	struct net_sched_window vain;  /* what was usual when it was last tried in vain */
	uint64_t began;		       /* the first wake of `now` */
	uint64_t last;		       /* the last one */
	unsigned windows;	       /* that were whole since `batch` changed */
	unsigned patience;	       /* how many of them until it is tried again */
};

/*
 * The worker is about to sleep, after `frames` since it was woken; `crowded`: others want its CPU.
 * True when `batch` has changed.
 */
bool net_sched_step(struct net_sched *sched, bool crowded, unsigned frames, uint64_t now);

#endif
