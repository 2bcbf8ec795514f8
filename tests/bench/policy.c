/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of tools/bench-policy that computes; see usage. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/measure.h"
#include "tests/bench/policy_sim.h"
#include "vmm/util.h"

#define US     UINT64_C(1000)
#define ROUNDS 2000u

static const char usage[] =
	"usage: policy measure\n"
	"       policy run NAME=NUMBER... [FILE...]\n"
	"\n"
	"measure prints what things cost on this machine, as JSON.\n"
	"run simulates every policy on every kind of made-up trace and on the recorded traces in "
	"the\n"
	"files, and prints a line of JSON for each trace and seed. The numbers, in ns: kick,\n"
	"kick_latency, timer_set, timer, overshoot_min, overshoot_max, look, send, as measure "
	"prints\n"
	"them; latency, the policies' bound (or their own time if longer); packets in a made-up "
	"trace; seeds, and the first "
	"seed.\n";

/* What is compared. `poll`: spins as long as a kick costs, else none. `crowded`: as in the config.
 */
static const struct variant {
	const char *name;
	enum mitigate_kind kind;
	uint64_t period;
	bool poll;
	bool crowded;
} variants[] = {
	{ "off", MITIGATE_OFF, 0, false, false },
	{ "off,poll", MITIGATE_OFF, 0, true, false },
	{ "fixed:150", MITIGATE_FIXED, 150 * US, false, false },
	{ "lguest", MITIGATE_LGUEST, 0, false, false },
	{ "window:250", MITIGATE_WINDOW, 250 * US, false, false },
	{ "adaptive,crowded", MITIGATE_ADAPTIVE, 0, false, true },
	{ "adaptive,nopoll", MITIGATE_ADAPTIVE, 0, false, false },
	{ "adaptive", MITIGATE_ADAPTIVE, 0, true, false },
};

struct numbers {
	struct policy_costs costs;
	uint64_t latency, packets, seeds, seed;
};

static const struct {
	const char *name;
	size_t offset;
} names[] = {
	{ "kick", offsetof(struct numbers, costs.kick) },
	{ "kick_latency", offsetof(struct numbers, costs.kick_latency) },
	{ "timer_set", offsetof(struct numbers, costs.timer_set) },
	{ "timer", offsetof(struct numbers, costs.timer) },
	{ "overshoot_min", offsetof(struct numbers, costs.overshoot_min) },
	{ "overshoot_max", offsetof(struct numbers, costs.overshoot_max) },
	{ "look", offsetof(struct numbers, costs.look) },
	{ "send", offsetof(struct numbers, costs.send) },
	{ "latency", offsetof(struct numbers, latency) },
	{ "packets", offsetof(struct numbers, packets) },
	{ "seeds", offsetof(struct numbers, seeds) },
	{ "seed", offsetof(struct numbers, seed) },
};

static int fail(const char *what, int err)
{
	fprintf(stderr, "policy: %s: %s\n", what, strerror(-err));
	return 1;
}

static int measure(void)
{
	struct measured measured;
	const struct policy_costs *costs = &measured.costs;
	int err = measure_costs(&measured, ROUNDS);

	if (err)
		return fail("cannot measure", err);
	printf("{\"kick\": %" PRIu64 ", \"kick_writer\": %" PRIu64 ", \"kick_latency\": %" PRIu64
	       ", \"kick_latency_p10\": %" PRIu64 ", \"kick_latency_p90\": %" PRIu64,
	       costs->kick, measured.kick_writer, costs->kick_latency, measured.kick_latency_p10,
	       measured.kick_latency_p90);
	printf(", \"timer_set\": %" PRIu64 ", \"timer\": %" PRIu64 ", \"overshoot_min\": %" PRIu64
	       ", \"overshoot_max\": %" PRIu64,
	       costs->timer_set, costs->timer, costs->overshoot_min, costs->overshoot_max);
	printf(", \"look\": %" PRIu64 ", \"send\": %" PRIu64 ", \"send_to\": \"%s\"}\n",
	       costs->look, costs->send, measured.send_to);
	return 0;
}

static void print_result(const char *name, const struct policy_result *r)
{
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = {
		{ "packets", r->packets },	     { "kicks", r->kicks },
		{ "wakeups", r->wakeups },	     { "timers_useful", r->timers_useful },
		{ "timers_empty", r->timers_empty }, { "spins_hit", r->spins_hit },
		{ "spins_missed", r->spins_missed }, { "spin_time", r->spin_time },
		{ "batch_max", r->batch_max },	     { "cpu", r->cpu },
		{ "overhead", r->overhead },	     { "waited", r->waited },
		{ "waited_max", r->waited_max },     { "duration", r->duration },
		{ "latency_mean", r->latency_mean }, { "latency_p50", r->latency_p50 },
		{ "latency_p99", r->latency_p99 },   { "latency_max", r->latency_max },
		{ "cost", policy_cost(r) },
	};

	printf("\"%s\": {", name);
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", figures[i].name, figures[i].value);
	printf("}");
}

static int run_variant(const struct policy_trace *trace, const struct numbers *numbers,
		       const struct variant *variant, uint64_t seed)
{
	const struct policy_costs *costs = &numbers->costs;
	const struct mitigate_config config = {
		.kind = variant->kind,
		.period = variant->period,
		/* As the option has it by default. */
		.latency = MAX(numbers->latency, variant->period),
		.poll_max = variant->poll ? costs->kick + costs->kick_latency : 0,
		.kick_cost = costs->kick + costs->kick_latency,
		.overshoot = (costs->overshoot_min + costs->overshoot_max) / 2,
		.ring = 256,
		.crowded = variant->crowded,
	};
	const struct policy_options options = { .seed = seed };
	struct policy_result result;
	int err = policy_run(trace, &config, costs, &options, &result);

	if (err)
		return fail(variant->name, err);
	print_result(variant->name, &result);
	return 0;
}

static int run_trace(const struct policy_trace *trace, const struct numbers *numbers, uint64_t seed,
		     bool recorded)
{
	uint64_t optimum, prescient;
	int err = policy_optimum(trace, &numbers->costs, false, &optimum);

	if (!err)
		err = policy_optimum(trace, &numbers->costs, true, &prescient);
	if (err)
		return fail("no optimum", err);
	printf("{\"trace\": \"%s\", \"recorded\": %s, \"closed\": %s, \"seed\": %" PRIu64
	       ", \"packets\": %zu, \"optimum\": %" PRIu64 ", \"prescient\": %" PRIu64
	       ", \"policies\": {",
	       trace->name, recorded ? "true" : "false", trace->group ? "true" : "false", seed,
	       trace->packets, optimum, prescient);
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
		printf(i ? ", " : "");
		if (run_variant(trace, numbers, &variants[i], seed))
			return 1;
	}
	puts("}}");
	return fflush(stdout) ? fail("cannot write", -errno) : 0;
}

static int run_made_up(const struct numbers *numbers, uint64_t seed)
{
	int status = 0;

	for (size_t i = 0; !status && policy_kind(i); i++) {
		struct policy_trace trace;
		int err = policy_trace_make(&trace, policy_kind(i), numbers->packets, seed);

		if (err)
			return fail(policy_kind(i), err);
		status = run_trace(&trace, numbers, seed, false);
		policy_trace_free(&trace);
	}
	return status;
}

static int run_recorded(const struct numbers *numbers, const char *path, uint64_t seed)
{
	struct policy_trace trace;
	int status, err = policy_trace_read(&trace, path);

	if (err)
		return fail(path, err);
	status = run_trace(&trace, numbers, seed, true);
	policy_trace_free(&trace);
	return status;
}

/* Takes NAME=NUMBER. */
static bool take_number(struct numbers *numbers, const char *word)
{
	size_t length = strcspn(word, "=");
	char *end;

	if (word[length] != '=')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		uint64_t *number = (uint64_t *)((char *)numbers + names[i].offset);

		if (strlen(names[i].name) != length || strncmp(names[i].name, word, length) != 0)
			continue;
		errno = 0;
		*number = strtoull(word + length + 1, &end, 10);
		return !errno && end != word + length + 1 && !*end;
	}
	return false;
}

static int run(int argc, char **argv)
{
	struct numbers numbers = { .latency = 200 * US, .packets = 1000, .seeds = 1, .seed = 1 };
	int words = 0, status = 0;

	while (words < argc && strchr(argv[words], '=')) {
		if (!take_number(&numbers, argv[words])) {
			fprintf(stderr, "policy: %s: not a number of those that it takes\n",
				argv[words]);
			return 2;
		}
		words++;
	}
	if (numbers.costs.overshoot_max < numbers.costs.overshoot_min) {
		fputs("policy: overshoot_max is below overshoot_min\n", stderr);
		return 2;
	}
	for (uint64_t i = 0; !status && i < numbers.seeds; i++) {
		status = run_made_up(&numbers, numbers.seed + i);
		for (int file = words; !status && file < argc; file++)
			status = run_recorded(&numbers, argv[file], numbers.seed + i);
	}
	return status;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "measure") == 0)
		return measure();
	if (argc >= 2 && strcmp(argv[1], "run") == 0)
		return run(argc - 2, argv + 2);
	fputs(usage, stderr);
	return 2;
}
