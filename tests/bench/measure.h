/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a kick, a timer, a look at a ring and sending a packet cost on this machine. */
#ifndef WHELP_BENCH_MEASURE_H
#define WHELP_BENCH_MEASURE_H

#include "tests/bench/policy_sim.h"

struct measured {
	struct policy_costs costs; /* medians; overshoots: the 10th and the 90th of 100 */
	uint64_t kick_latency_p10, kick_latency_p90;
	uint64_t kick_writer; /* the driver's part of costs.kick */
	const char *send_to;  /* what packets were sent to */
};

/* Takes about `rounds` * 0.4 ms. 0 or -errno. */
int measure_costs(struct measured *measured, unsigned rounds);

#endif
