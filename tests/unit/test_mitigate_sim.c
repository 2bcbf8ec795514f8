/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What must hold for each mitigation policy whatever happens, and what they cost: by chance
 * (WHELP_SEED), and in the simulator of tests/bench.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/policy_sim.h"
#include "tests/unit/libmitigate.h"
#include "vmm/util.h"

#define TRACES "tests/traces"

static uint64_t first_seed;

/* ---- whatever happens ---- */

static void check_answer(const struct table *table, enum mitigate_event event,
			 const struct mitigate_action *action)
{
	const struct mitigate_config *config = &table->config;
	bool drain = action->what == MITIGATE_DRAIN;

	if (event == MITIGATE_FOUND || event == MITIGATE_EXPIRED)
		assert_true(drain);
	if (event == MITIGATE_DRAINED || event == MITIGATE_MISSED)
		assert_false(drain);
	if (drain)
		return;
	if (action->until) {
		assert_true(action->until > table->now);
		assert_true(action->until - table->now <=
			    (action->what == MITIGATE_SPIN ? config->poll_max : config->latency));
	}
	if (action->what == MITIGATE_SPIN) {
		assert_int_equal(event, MITIGATE_DRAINED);
		assert_true(action->until);
		return;
	}
	assert_int_equal(action->what, MITIGATE_SLEEP);
	assert_in_range(action->kick_at, 1, config->ring);
	assert_true(action->kick_at == 1 || action->until);
	/* A kick may only be a reason to wait with a timer. */
	assert_true(event != MITIGATE_KICKED || action->until);
}

static void random_config(struct mitigate_config *config, uint64_t *seed)
{
	static const unsigned rings[] = { 1, 2, 3, 7, 64, 256, 1024, 32768 };

	*config = (struct mitigate_config){
		.kind = (enum mitigate_kind)policy_below(seed, MITIGATE_KINDS),
		.period = policy_below(seed, US << policy_below(seed, 12)),
		.latency = policy_below(seed, US << policy_below(seed, 12)),
		.poll_max =
			policy_below(seed, 3) ? policy_below(seed, US << policy_below(seed, 8)) : 0,
		.kick_cost = policy_below(seed, US << policy_below(seed, 10)),
		.overshoot = policy_below(seed, US << policy_below(seed, 8)),
		.ring = rings[policy_below(seed, ARRAY_SIZE(rings))],
		.crowded = policy_below(seed, 4) == 0,
	};
}

/* Events in no order that makes sense, at any time: the answers keep to the contract. */
static void test_any_events(void **state)
{
	uint64_t seed = first_seed;

	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		struct mitigate_config config;
		struct table table;

		random_config(&config, &seed);
		table_start(&table, &config, config.kind);
		for (unsigned i = 0; i < 300; i++) {
			const struct mitigate_sample sample = {
				.event = (enum mitigate_event)policy_below(&seed, 5),
				.packets = (unsigned)policy_below(&seed, config.ring + 1),
				.preempted = policy_below(&seed, 10) == 0,
			};
			struct mitigate_action action = table_step(
				&table, &sample,
				policy_below(&seed, UINT64_C(1) << policy_below(&seed, 40)));

			check_answer(&table, sample.event, &action);
		}
	}
}

static void random_costs(struct policy_costs *costs, uint64_t *seed)
{
	*costs = (struct policy_costs){
		.kick = policy_below(seed, 50 * US),
		.kick_latency = policy_below(seed, 50 * US),
		.timer_set = policy_below(seed, 2 * US),
		.timer = policy_below(seed, 20 * US),
		.overshoot_min = policy_below(seed, 50 * US),
		.look = 1 + policy_below(seed, 200),
		.send = 1 + policy_below(seed, 5 * US),
	};
	costs->overshoot_max = costs->overshoot_min + policy_below(seed, 50 * US);
}

static uint64_t bound(const struct mitigate_config *config, const struct policy_costs *costs)
{
	return config->latency + costs->overshoot_max + costs->timer_set + costs->kick_latency +
	       2 * costs->look;
}

/* The worker is never asleep for good while packets wait, and none waits beyond the bound. */
static void check_run(const struct policy_trace *trace, const struct mitigate_config *config,
		      const struct policy_costs *costs, const struct policy_options *options)
{
	struct policy_result result;
	uint64_t least;
	int err = policy_run(trace, config, costs, options, &result);

	if (err || result.waited_max > bound(config, costs))
		print_error("%s on %s: %d, %llu of %zu packets, longest wait %llu\n",
			    mitigate_name(config->kind), trace->name, err,
			    (unsigned long long)result.packets, trace->packets,
			    (unsigned long long)result.waited_max);
	assert_int_equal(err, 0);
	assert_int_equal(result.packets, trace->packets);
	assert_true(result.waited_max <= bound(config, costs));
	assert_int_equal(policy_optimum(trace, costs, true, &least), 0);
	assert_true(policy_cost(&result) >= least);
}

static void test_any_traces(void **state)
{
	uint64_t seed = first_seed;

	(void)state;
	for (unsigned round = 0; round < 100; round++) {
		struct policy_options options = { .seed = policy_random(&seed),
						  .crowded = policy_below(&seed, 4) == 0 };
		struct mitigate_config config;
		struct policy_costs costs;
		struct policy_trace trace;

		assert_int_equal(policy_trace_random(&trace, 2000, policy_random(&seed)), 0);
		random_costs(&costs, &seed);
		random_config(&config, &seed);
		for (unsigned kind = 0; kind < MITIGATE_KINDS; kind++) {
			config.kind = (enum mitigate_kind)kind;
			check_run(&trace, &config, &costs, &options);
		}
		policy_trace_free(&trace);
	}
}

/* ---- what the issue promises ---- */

/* This kind of machine. */
static const struct policy_costs costs_here = {
	.kick = 14 * US,
	.kick_latency = 28 * US,
	.timer_set = 640,
	.timer = 5 * US,
	.overshoot_min = 20 * US,
	.overshoot_max = 50 * US,
	.look = 50,
	.send = 1300,
};

/* A quick one, with quick timers. */
static const struct policy_costs costs_quick = {
	.kick = 5 * US,
	.kick_latency = 4 * US,
	.timer_set = 300,
	.timer = 2 * US,
	.overshoot_min = 1 * US,
	.overshoot_max = 6 * US,
	.look = 30,
	.send = 700,
};

/* One whose guests leave for a kick at great expense. */
static const struct policy_costs costs_emulated = {
	.kick = 200 * US,
	.kick_latency = 50 * US,
	.timer_set = 2 * US,
	.timer = 10 * US,
	.overshoot_min = 25 * US,
	.overshoot_max = 75 * US,
	.look = 200,
	.send = 5 * US,
};

/* One with dear kicks and quick timers. */
static const struct policy_costs costs_dear = {
	.kick = 20 * US,
	.kick_latency = 5 * US,
	.timer_set = 640,
	.timer = 5 * US,
	.overshoot_min = 2 * US,
	.overshoot_max = 8 * US,
	.look = 50,
	.send = 1300,
};

static const struct policy_costs *const machines[] = { &costs_dear, &costs_here, &costs_quick,
						       &costs_emulated };

static struct mitigate_config config_for(enum mitigate_kind kind, const struct policy_costs *costs,
					 bool spin)
{
	uint64_t kick_cost = costs->kick + costs->kick_latency;

	return (struct mitigate_config){
		.kind = kind,
		.period = 150 * US,
		.latency = 500 * US,
		.poll_max = spin ? kick_cost : 0,
		.kick_cost = kick_cost,
		.overshoot = (costs->overshoot_min + costs->overshoot_max) / 2,
		.ring = 256,
	};
}

static void run(const struct policy_trace *trace, enum mitigate_kind kind,
		const struct policy_costs *costs, bool spin, struct policy_result *result)
{
	struct mitigate_config config = config_for(kind, costs, spin);
	struct policy_options options = { .seed = first_seed };

	assert_int_equal(policy_run(trace, &config, costs, &options, result), 0);
}

static void make(struct policy_trace *trace, const char *kind, size_t packets)
{
	assert_int_equal(policy_trace_make(trace, kind, packets, first_seed), 0);
}

/* What is lost by not knowing the future: at most as much again. */
static void check_cost(const struct policy_trace *trace)
{
	for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
		struct policy_result result;
		uint64_t least, cost;
		/*
		 * Packets that come together all wait for a kick, which makes it dearer than the
		 * longest spin allows for.
		 */
		unsigned percent = trace->group > 1 ? 250 : 200;

		run(trace, MITIGATE_ADAPTIVE, machines[i], true, &result);
		cost = policy_cost(&result);
		assert_int_equal(policy_optimum(trace, machines[i], false, &least), 0);
		if (cost > least * percent / 100)
			print_error("%s, machine %zu: %llu, the least is %llu\n", trace->name, i,
				    (unsigned long long)cost, (unsigned long long)least);
		assert_true(cost <= least * percent / 100);
	}
}

static void test_cost_of_made_up_traces(void **state)
{
	(void)state;
	for (size_t i = 0; policy_kind(i); i++) {
		struct policy_trace trace;

		make(&trace, policy_kind(i), 5000);
		check_cost(&trace);
		policy_trace_free(&trace);
	}
}

static void test_cost_of_random_traces(void **state)
{
	uint64_t seed = first_seed;

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		struct policy_trace trace;

		assert_int_equal(policy_trace_random(&trace, 5000, policy_random(&seed)), 0);
		check_cost(&trace);
		policy_trace_free(&trace);
	}
}

static void test_cost_of_recorded_traces(void **state)
{
	unsigned count = 0;
	struct dirent *entry;
	DIR *folder = opendir(TRACES);

	(void)state;
	assert_non_null(folder);
	while ((entry = readdir(folder))) {
		struct policy_trace trace;
		char path[300];

		if (!strstr(entry->d_name, ".trace"))
			continue;
		snprintf(path, sizeof(path), TRACES "/%s", entry->d_name);
		assert_int_equal(policy_trace_read(&trace, path), 0);
		check_cost(&trace);
		policy_trace_free(&trace);
		count++;
	}
	closedir(folder);
	assert_true(count > 0);
}

/* Less often than any timer's length: who does not wait at first waits no longer than with no
 * mitigation at all. */
static void test_latency_after_idle(void **state)
{
	static const enum mitigate_kind kinds[] = { MITIGATE_LGUEST, MITIGATE_WINDOW,
						    MITIGATE_ADAPTIVE };
	struct policy_result off, other;
	struct policy_trace trace;

	(void)state;
	make(&trace, "constant-1k", 1000);
	run(&trace, MITIGATE_OFF, &costs_here, false, &off);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		run(&trace, kinds[i], &costs_here, false, &other);
		assert_int_equal(other.latency_max, off.latency_max);
		assert_int_equal(other.latency_mean, off.latency_mean);
	}
	/* and 2008's does wait */
	run(&trace, MITIGATE_FIXED, &costs_here, false, &other);
	assert_true(other.latency_p50 >= off.latency_p50 + 150 * US);
	policy_trace_free(&trace);
}

/* However it came to be busy: once idle, a kick is a reason to look, and nothing else happens. */
static void test_p12_idle(void **state)
{
	uint64_t seed = first_seed;

	(void)state;
	for (unsigned round = 0; round < 500; round++) {
		struct mitigate_action action = { .what = MITIGATE_DRAIN };
		struct mitigate_config config;
		struct table table;
		unsigned left;

		random_config(&config, &seed);
		table_start(&table, &config, config.kind);
		for (unsigned i = 0; i < 200; i++)
			action = table_step(
				&table,
				&(struct mitigate_sample){
					.event = (enum mitigate_event)policy_below(&seed, 5),
					.packets = (unsigned)policy_below(&seed, 100),
				},
				policy_below(&seed, 100 * US));
		for (left = 20; left && (action.what != MITIGATE_SLEEP || action.until); left--) {
			struct mitigate_sample sample = { .event = MITIGATE_DRAINED };
			uint64_t later = action.until ? action.until - table.now : 0;

			if (action.what == MITIGATE_SPIN)
				sample.event = MITIGATE_MISSED;
			if (action.what == MITIGATE_SLEEP)
				sample.event = MITIGATE_EXPIRED;
			action = table_step(&table, &sample, later);
		}
		assert_int_not_equal(left, 0);
		assert_int_equal(action.kick_at, 1);
		action = table_step(&table, &(struct mitigate_sample){ .event = MITIGATE_KICKED },
				    1);
		if (config.kind != MITIGATE_FIXED)
			assert_int_equal(action.what, MITIGATE_DRAIN);
	}
}

/* Nothing but packets to send, in rings of either size: never idle while some wait, the last one
 * included. */
static void test_p1_only_tx(void **state)
{
	static const char *const kinds[] = { "constant-100k", "constant-1m", "poisson-100k",
					     "bursts-64" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct policy_trace trace;

		make(&trace, kinds[i], 3001);
		for (unsigned kind = 0; kind < MITIGATE_KINDS * 4; kind++) {
			struct mitigate_config config = config_for(kind / 4, &costs_here, kind & 1);

			config.ring = kind & 2 ? 64 : 256;
			check_run(&trace, &config, &costs_here, NULL);
		}
		policy_trace_free(&trace);
	}
}

/* Requests that wait for answers never meet a timer. */
static void test_p2_request_response(void **state)
{
	static const char *const kinds[] = { "request-10us", "request-30us", "request-100us",
					     "request-1ms" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds) * ARRAY_SIZE(machines); i++) {
		const struct policy_costs *costs = machines[i % ARRAY_SIZE(machines)];
		struct policy_result off, adaptive;
		struct policy_trace trace;

		make(&trace, kinds[i / ARRAY_SIZE(machines)], 3000);
		for (unsigned spin = 0; spin < 2; spin++) {
			run(&trace, MITIGATE_OFF, costs, false, &off);
			run(&trace, MITIGATE_ADAPTIVE, costs, spin, &adaptive);
			assert_int_equal(adaptive.timers_useful + adaptive.timers_empty, 0);
			assert_true(adaptive.latency_p50 <= off.latency_p50);
			assert_true(adaptive.latency_p99 <= off.latency_p99);
		}
		policy_trace_free(&trace);
	}
}

/* One packet, and then no more. */
static void test_p3_one_packet(void **state)
{
	struct policy_trace trace;

	(void)state;
	make(&trace, "constant-1k", 1);
	for (unsigned kind = 0; kind < MITIGATE_KINDS; kind++) {
		struct mitigate_config config = config_for(kind, &costs_here, true);
		struct policy_result result;

		check_run(&trace, &config, &costs_here, NULL);
		run(&trace, kind, &costs_here, true, &result);
		if (kind != MITIGATE_FIXED)
			assert_int_equal(result.waited_max, costs_here.kick_latency);
	}
	policy_trace_free(&trace);
}

/* ACKs made lguest's timer grow without a bound. */
static void test_lguest_is_capped(void **state)
{
	struct policy_result result;
	struct policy_trace trace;
	struct mitigate_config config = config_for(MITIGATE_LGUEST, &costs_here, false);

	(void)state;
	make(&trace, "acks-sparse", 20000);
	check_run(&trace, &config, &costs_here, NULL);
	run(&trace, MITIGATE_LGUEST, &costs_here, false, &result);
	assert_true(result.timers_useful > 100);
	policy_trace_free(&trace);
}

/* In steady state the window's timer does not end: kicks come a bit before. */
static void test_window_in_steady_state(void **state)
{
	static const char *const kinds[] = { "constant-100k", "constant-300k" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct policy_result result;
		struct policy_trace trace;

		make(&trace, kinds[i], 10000);
		run(&trace, MITIGATE_WINDOW, &costs_here, false, &result);
		/* but for the last window, which is not filled */
		assert_true(result.timers_useful <= 1);
		assert_int_equal(result.timers_empty, 0);
		assert_true(result.kicks < 10000 / 2);
		policy_trace_free(&trace);
	}
}

/* Where a timer is quick, sleeping on it takes fewer kicks and costs less than a kick for each
 * packet. */
static void test_adaptive_timer_pays(void **state)
{
	struct policy_result off, adaptive;
	struct policy_trace trace;

	(void)state;
	make(&trace, "poisson-300k", 10000);
	run(&trace, MITIGATE_OFF, &costs_dear, false, &off);
	run(&trace, MITIGATE_ADAPTIVE, &costs_dear, false, &adaptive);
	assert_true(adaptive.kicks < off.kicks / 4);
	assert_true(policy_cost(&adaptive) < policy_cost(&off));
	policy_trace_free(&trace);
}

/* Packets a few us apart: found by spinning, with next to no kicks. */
static void test_spin_pays(void **state)
{
	struct policy_result result;
	struct policy_trace trace;

	(void)state;
	make(&trace, "constant-300k", 10000);
	run(&trace, MITIGATE_ADAPTIVE, &costs_here, true, &result);
	assert_true(result.kicks < 10);
	assert_true(result.spins_hit > 9000);
	run(&trace, MITIGATE_ADAPTIVE, &costs_here, false, &result);
	assert_int_equal(result.spins_hit + result.spins_missed, 0);
	policy_trace_free(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_events),
		cmocka_unit_test(test_any_traces),
		cmocka_unit_test(test_cost_of_made_up_traces),
		cmocka_unit_test(test_cost_of_random_traces),
		cmocka_unit_test(test_cost_of_recorded_traces),
		cmocka_unit_test(test_latency_after_idle),
		cmocka_unit_test(test_p12_idle),
		cmocka_unit_test(test_p1_only_tx),
		cmocka_unit_test(test_p2_request_response),
		cmocka_unit_test(test_p3_one_packet),
		cmocka_unit_test(test_lguest_is_capped),
		cmocka_unit_test(test_window_in_steady_state),
		cmocka_unit_test(test_adaptive_timer_pays),
		cmocka_unit_test(test_spin_pays),
	};
	const char *given = getenv("WHELP_SEED");

	first_seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("# WHELP_SEED=%llu\n", (unsigned long long)first_seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
