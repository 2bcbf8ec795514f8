/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worker's time goes on from one action of the policy to the next:
 *
 * - SLEEP: if kick_at packets are there already, that is a kick that costs a look only. Else the
 * kick comes with the packet that makes them kick_at, and the worker looks kick_latency later. A
 * timer's end is late by the overshoot; a kick in that time still costs, and whichever has the
 * worker look first is the event.
 * - SPIN: a packet is found by the look after its arrival. The time is CPU time.
 * - DRAIN: packets are sent one after the other, those too that arrive meanwhile; a last look finds
 * none.
 *
 * A packet waits from its arrival until the drain that takes it begins; one that arrives during it
 * does not wait, as no policy could change anything for it.
 */
#include "tests/bench/policy_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

#define NEVER UINT64_MAX

struct sim {
	const struct policy_trace *trace;
	const struct mitigate_config *config;
	const struct policy_costs *costs;
	const struct policy_options *options;
	struct policy_result *result;
	struct mitigate_state state;
	uint64_t now;
	uint64_t seed;
	uint64_t *latencies;
	size_t sent;
	size_t group_start; /* closed: the first packet of the group that comes or has come */
	uint64_t group_at;  /* and when it does */
};

static void spend(struct sim *sim, uint64_t cpu)
{
	sim->result->cpu += cpu;
	sim->result->overhead += cpu;
}

/* When packet `i` arrives; NEVER: there is no such packet, or not before others are sent. */
static uint64_t arrival(const struct sim *sim, size_t i)
{
	const struct policy_trace *trace = sim->trace;

	if (i >= trace->packets)
		return NEVER;
	if (!trace->group)
		return trace->at[i];
	return i < sim->group_start + trace->group ? sim->group_at : NEVER;
}

static void send_one(struct sim *sim, uint64_t drain_start)
{
	const struct policy_trace *trace = sim->trace;
	uint64_t at = arrival(sim, sim->sent);
	uint64_t waited = drain_start > at ? drain_start - at : 0;

	sim->now += sim->costs->send;
	sim->result->cpu += sim->costs->send;
	sim->result->waited += waited;
	sim->result->waited_max = MAX(sim->result->waited_max, waited);
	sim->latencies[sim->sent++] = sim->now - at;
	if (trace->group && sim->sent == sim->group_start + trace->group &&
	    sim->sent < trace->packets) {
		sim->group_start = sim->sent;
		sim->group_at = sim->now + trace->at[sim->sent / trace->group];
	}
}

static struct mitigate_sample drain(struct sim *sim)
{
	uint64_t start = sim->now;
	size_t before = sim->sent;

	while (arrival(sim, sim->sent) <= sim->now)
		send_one(sim, start);
	sim->result->batch_max = MAX(sim->result->batch_max, sim->sent - before);
	return (struct mitigate_sample){ .event = MITIGATE_DRAINED,
					 .packets = (unsigned)(sim->sent - before) };
}

static struct mitigate_sample spin(struct sim *sim, uint64_t until)
{
	uint64_t at = arrival(sim, sim->sent), start = sim->now;
	bool hit = at <= until;

	sim->now = (hit ? MAX(at, start) : until) + sim->costs->look;
	spend(sim, sim->now - start);
	sim->result->spin_time += sim->now - start;
	if (hit)
		sim->result->spins_hit++;
	else
		sim->result->spins_missed++;
	return (struct mitigate_sample){ .event = hit ? MITIGATE_FOUND : MITIGATE_MISSED,
					 .preempted = sim->options->crowded };
}

/* The sample of a sleep; or -EDEADLK: nothing will ever end it. */
static int sleep_until(struct sim *sim, const struct mitigate_action *action,
		       struct mitigate_sample *sample)
{
	const struct policy_costs *costs = sim->costs;
	uint64_t spread = costs->overshoot_max - costs->overshoot_min;
	uint64_t timer = NEVER, kick = NEVER;

	sample->event = MITIGATE_KICKED;
	if (action->until) {
		sim->now += costs->timer_set;
		spend(sim, costs->timer_set);
		timer = MAX(action->until, sim->now) + costs->overshoot_min +
			policy_below(&sim->seed, spread + 1);
	}
	if (action->kick_at)
		kick = arrival(sim, sim->sent + action->kick_at - 1);
	if (kick <= sim->now) {
		sim->now += costs->look;
		spend(sim, costs->look);
		return 0;
	}
	if (kick == NEVER && timer == NEVER)
		return -EDEADLK;
	sim->result->wakeups++;
	if (kick < timer) {
		sim->result->kicks++;
		spend(sim, costs->kick);
	}
	if (kick < timer && kick + costs->kick_latency < timer) {
		sim->now = kick + costs->kick_latency;
		return 0;
	}
	sim->now = timer;
	spend(sim, costs->timer);
	if (arrival(sim, sim->sent) <= timer)
		sim->result->timers_useful++;
	else
		sim->result->timers_empty++;
	sample->event = MITIGATE_EXPIRED;
	return 0;
}

static bool is_allowed(const struct sim *sim, const struct mitigate_sample *sample,
		       const struct mitigate_action *action)
{
	const struct mitigate_config *config = sim->config;

	if (action->what == MITIGATE_SPIN)
		return sample->event == MITIGATE_DRAINED && action->until > sim->now &&
		       action->until - sim->now <= config->poll_max;
	if (action->what == MITIGATE_DRAIN)
		return sample->event != MITIGATE_DRAINED && sample->event != MITIGATE_MISSED;
	if (sample->event == MITIGATE_FOUND || sample->event == MITIGATE_EXPIRED)
		return false;
	if (action->kick_at > config->ring || (action->kick_at != 1 && !action->until))
		return false;
	return !action->until ||
	       (action->until > sim->now && action->until - sim->now <= config->latency);
}

static int do_action(struct sim *sim, const struct mitigate_action *action,
		     struct mitigate_sample *sample)
{
	memset(sample, 0, sizeof(*sample));
	if (action->what == MITIGATE_SLEEP)
		return sleep_until(sim, action, sample);
	*sample = action->what == MITIGATE_DRAIN ? drain(sim) : spin(sim, action->until);
	return 0;
}

static int run(struct sim *sim)
{
	struct mitigate_action action = { .what = MITIGATE_SLEEP, .kick_at = 1 };
	struct mitigate_sample sample;
	int err;

	mitigate_init(sim->config, &sim->state);
	for (;;) {
		err = do_action(sim, &action, &sample);
		if (err)
			return err;
		action = mitigate_step(sim->config, &sim->state, &sample, sim->now);
		if (sim->options->seen)
			sim->options->seen(sim->options->context, &sample, sim->now, &action);
		if (!is_allowed(sim, &sample, &action))
			return -EPROTO;
		if (sim->sent == sim->trace->packets)
			return 0;
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static void sum_up(struct sim *sim)
{
	struct policy_result *result = sim->result;
	uint64_t sum = 0;

	result->packets = sim->sent;
	result->duration = sim->now;
	if (!sim->sent)
		return;
	qsort(sim->latencies, sim->sent, sizeof(*sim->latencies), by_size);
	for (size_t i = 0; i < sim->sent; i++)
		sum += sim->latencies[i];
	result->latency_mean = sum / sim->sent;
	result->latency_p50 = sim->latencies[sim->sent / 2];
	result->latency_p99 = sim->latencies[sim->sent - 1 - sim->sent / 100];
	result->latency_max = sim->latencies[sim->sent - 1];
}

int policy_run(const struct policy_trace *trace, const struct mitigate_config *config,
	       const struct policy_costs *costs, const struct policy_options *options,
	       struct policy_result *result)
{
	static const struct policy_options none;
	struct sim sim = {
		.trace = trace,
		.config = config,
		.costs = costs,
		.options = options ? options : &none,
		.result = result,
		.group_at = 1,
	};
	int err;

	memset(result, 0, sizeof(*result));
	if (!trace->packets)
		return 0;
	sim.seed = sim.options->seed;
	sim.latencies = malloc(trace->packets * sizeof(*sim.latencies));
	if (!sim.latencies)
		return -ENOMEM;
	err = run(&sim);
	sum_up(&sim);
	free(sim.latencies);
	return err;
}
