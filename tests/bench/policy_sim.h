/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker, its driver and a clock, all simulated: what a mitigation policy does with a trace, and
 * what it costs.
 */
#ifndef WHELP_POLICY_SIM_H
#define WHELP_POLICY_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/mitigate.h"
#include "tests/bench/policy_trace.h"

/* Of the simulated machine; ns. */
struct policy_costs {
	uint64_t kick;		/* CPU: the driver's kick and the worker's wake-up */
	uint64_t kick_latency;	/* from the kick until the worker looks */
	uint64_t timer_set;	/* CPU, of the worker, before it sleeps */
	uint64_t timer;		/* CPU: the timer's end and the worker's wake-up */
	uint64_t overshoot_min; /* how late the worker looks after a timer's end: */
	uint64_t overshoot_max; /* anything between */
	uint64_t look;		/* one look at the ring */
	uint64_t send;		/* one packet */
};

/* Of one run. Latency is from a packet's arrival until it is sent. */
struct policy_result {
	uint64_t packets;
	uint64_t kicks;
	uint64_t wakeups;
	uint64_t timers_useful;
	uint64_t timers_empty;
	uint64_t spins_hit;
	uint64_t spins_missed;
	uint64_t spin_time;
	uint64_t batch_max;
	uint64_t cpu;	   /* all: kicks, wake-ups, timers, looks, spins, sending */
	uint64_t overhead; /* of that, what is not sending */
	uint64_t waited;   /* the sum over all packets of the time until a drain began */
	uint64_t waited_max;
	uint64_t duration;
	uint64_t latency_mean, latency_p50, latency_p99, latency_max;
};

/* What a policy is compared by: CPU time, with each packet's wait counted like CPU time. */
static inline uint64_t policy_cost(const struct policy_result *result)
{
	return result->overhead + result->waited;
}

struct policy_options {
	uint64_t seed; /* for the overshoot */
	bool crowded;  /* others want the worker's CPU: each spin is reported as preempted */
	/* Told of everything, when not NULL. A drain's `now` is its end. */
	void (*seen)(void *context, const struct mitigate_sample *sample, uint64_t now,
		     const struct mitigate_action *answer);
	void *context;
};

/*
 * Runs a trace through a policy until the last packet is sent. 0; -ENOMEM; -EDEADLK: packets wait
 * for ever; -EPROTO: the policy answered something that the contract does not allow. After the last
 * two *result holds what was so far.
 */
int policy_run(const struct policy_trace *trace, const struct mitigate_config *config,
	       const struct policy_costs *costs, const struct policy_options *options,
	       struct policy_result *result);

/*
 * The least cost with which the trace can be served by a device that knows it all beforehand and,
 * at the end of each drain, spins or sleeps until a kick. `prescient`: or sets a timer for the
 * moment when the next packet comes, which makes it a bound below everything. See policy_optimum.c.
 * 0 or -ENOMEM.
 */
int policy_optimum(const struct policy_trace *trace, const struct policy_costs *costs,
		   bool prescient, uint64_t *cost);

#endif
