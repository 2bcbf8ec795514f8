/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The offline optimum, exactly, for the cost of policy_sim.h: CPU time that is not sending, and the
 *packets' waits.
 *
 * A schedule is a sequence of drains, with a pause before each. Let e be the end of a drain and a
 *the arrival of the next packet that it did not take. Who knows a has two choices for the pause:
 *
 *	spin: the drain begins at a; costs a - e
 *	sleep until a kick: it begins at a + kick_latency; costs a kick, and the waits of what has
 *come by then
 *
 * Beginning later (a kick for a second packet, a timer that gathers several) never gains anything.
 *Say a drain begins d after the earliest that its kind of pause allows: that adds d at least to the
 *waits, as one packet at least waits. If it begins at the earliest instead, and the worker spins
 *whenever the ring is empty until the later drain would have ended, no packet waits longer, and
 *these spins last d together: both have the same work to do until then. So the dynamic programme
 *goes through the combinations of the two: the cheapest way to each (next packet, e). Ways to the
 *same packet differ in e; one that is dearer by at least what a spin between their ends costs is
 *dropped.
 *
 * Looks are free here, and a spin is just as long as it pays, so no policy that is woken by kicks
 *does better.
 *
 * A prescient device also sets a timer for the very moment at which a packet comes: the drain
 *begins at a, and costs the timer. With it the result is below what any policy can cost on any
 *trace. But it bounds nothing from above: no device could do it, as who does not know when the next
 *packet comes needs a kick for it, or looks in vain.
 *
 * In a closed trace a group comes only after the one before is sent, so each pause is by itself,
 *and the least of the choices is best for each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/policy_sim.h"
#include "vmm/util.h"

#define WAYS 64

/* Ways to the same next packet: when the drain before it ended, and what all cost until then. */
struct ways {
	unsigned count;
	struct way {
		uint64_t end, cost;
	} way[WAYS];
};

static bool is_beaten(const struct way *way, const struct way *by)
{
	uint64_t spin = way->end > by->end ? way->end - by->end : 0;

	return by->cost + spin <= way->cost;
}

/* -ENOMEM: too many ways that do not beat each other. */
static int add_way(struct ways *ways, uint64_t end, uint64_t cost)
{
	struct way way = { .end = end, .cost = cost };
	unsigned kept = 0;

	for (unsigned i = 0; i < ways->count; i++)
		if (is_beaten(&way, &ways->way[i]))
			return 0;
	for (unsigned i = 0; i < ways->count; i++)
		if (!is_beaten(&ways->way[i], &way))
			ways->way[kept++] = ways->way[i];
	if (kept == WAYS)
		return -ENOMEM;
	ways->way[kept++] = way;
	ways->count = kept;
	return 0;
}

/* From a drain of packet i and later ones that begins at `start`; `cost` is all but the waits. */
static int drain_from(const struct policy_trace *trace, const struct policy_costs *costs,
		      struct ways *ways, size_t i, uint64_t start, uint64_t cost)
{
	uint64_t now = start;

	for (; i < trace->packets && trace->at[i] <= now; i++) {
		if (trace->at[i] < start)
			cost += start - trace->at[i];
		now += costs->send;
	}
	return add_way(&ways[i], now, cost);
}

static int leave(const struct policy_trace *trace, const struct policy_costs *costs, bool prescient,
		 struct ways *ways, size_t i, const struct way *way)
{
	uint64_t at = trace->at[i];
	int err = drain_from(trace, costs, ways, i, at + costs->kick_latency,
			     way->cost + costs->kick);

	/* Before the first packet everyone sleeps. */
	if (!err && i)
		err = drain_from(trace, costs, ways, i, at, way->cost + at - way->end);
	if (!err && prescient)
		err = drain_from(trace, costs, ways, i, at,
				 way->cost + costs->timer_set + costs->timer);
	return err;
}

static int open_optimum(const struct policy_trace *trace, const struct policy_costs *costs,
			bool prescient, uint64_t *cost)
{
	struct ways *ways = calloc(trace->packets + 1, sizeof(*ways)), *last;
	int err;

	if (!ways)
		return -ENOMEM;
	last = &ways[trace->packets];
	err = add_way(&ways[0], 0, 0);
	for (size_t i = 0; !err && i < trace->packets; i++)
		for (unsigned j = 0; !err && j < ways[i].count; j++)
			err = leave(trace, costs, prescient, ways, i, &ways[i].way[j]);
	*cost = UINT64_MAX;
	for (unsigned j = 0; !err && j < last->count; j++)
		*cost = MIN(*cost, last->way[j].cost);
	free(ways);
	return err;
}

static uint64_t closed_optimum(const struct policy_trace *trace, const struct policy_costs *costs,
			       bool prescient)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < trace->packets; i += trace->group) {
		uint64_t group = MIN(trace->group, trace->packets - i);
		uint64_t least = costs->kick + group * costs->kick_latency;

		if (prescient)
			least = MIN(least, costs->timer_set + costs->timer);
		sum += i ? MIN(least, trace->at[i / trace->group]) : least;
	}
	return sum;
}

int policy_optimum(const struct policy_trace *trace, const struct policy_costs *costs,
		   bool prescient, uint64_t *cost)
{
	*cost = 0;
	if (!trace->packets)
		return 0;
	if (!trace->group)
		return open_optimum(trace, costs, prescient, cost);
	*cost = closed_optimum(trace, costs, prescient);
	return 0;
}
