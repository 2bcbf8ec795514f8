/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/bench/policy_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* ---- chance ---- */

uint64_t policy_random(uint64_t *seed)
{
	uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t policy_below(uint64_t *seed, uint64_t bound)
{
	return policy_random(seed) % bound;
}

/* Von Neumann's way, which needs no logarithm: how long do random numbers go down? */
uint64_t policy_exponential(uint64_t *seed, uint64_t mean)
{
	for (uint64_t whole = 0;; whole++) {
		uint32_t first = (uint32_t)policy_random(seed), last = first, next;
		unsigned n = 1;

		while ((next = (uint32_t)policy_random(seed)) < last) {
			last = next;
			n++;
		}
		if (n % 2)
			return whole * mean + ((mean * first) >> 32);
	}
}

/* ---- made up ---- */

/* What comes before packet i of an open trace, or group i of a closed one. */
struct manner {
	const char *name;
	uint64_t (*gap)(const struct manner *manner, size_t i, uint64_t *seed);
	uint64_t mean;	/* of gaps: usual ones, or those within a burst */
	uint64_t pause; /* between bursts */
	unsigned burst; /* packets in each; closed: in a group */
	bool closed;
};

static uint64_t constant(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)i;
	(void)seed;
	return manner->mean;
}

static uint64_t poisson(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)i;
	return policy_exponential(seed, manner->mean);
}

/* Regular bursts: the same number at the same pace, and the same pause. */
static uint64_t bursts(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)seed;
	return i % manner->burst ? manner->mean : manner->pause;
}

/* Bursts of any length with any pause between: exponential both. */
static uint64_t on_off(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)i;
	if (policy_below(seed, manner->burst))
		return policy_exponential(seed, manner->mean);
	return policy_exponential(seed, manner->pause);
}

/* A request, the next a while after its answer; a little chance, as nothing is ever quite regular.
 */
static uint64_t request(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)i;
	return manner->mean * 9 / 10 + policy_below(seed, manner->mean / 5 + 1);
}

/*
 * ACKs for a stream that comes in: one for each two full frames of a burst that was received at
 * once, the bursts as a NIC's interrupt coalescing makes them.
 */
static uint64_t acks(const struct manner *manner, size_t i, uint64_t *seed)
{
	(void)i;
	if (policy_below(seed, manner->burst))
		return manner->mean / 2 + policy_below(seed, manner->mean);
	return manner->pause / 2 + policy_below(seed, manner->pause);
}

static const struct manner manners[] = {
	{ .name = "constant-1k", .gap = constant, .mean = 1000 * US },
	{ .name = "constant-10k", .gap = constant, .mean = 100 * US },
	{ .name = "constant-30k", .gap = constant, .mean = 33 * US },
	{ .name = "constant-100k", .gap = constant, .mean = 10 * US },
	{ .name = "constant-300k", .gap = constant, .mean = 3300 },
	{ .name = "constant-1m", .gap = constant, .mean = 1 * US },
	{ .name = "poisson-1k", .gap = poisson, .mean = 1000 * US },
	{ .name = "poisson-10k", .gap = poisson, .mean = 100 * US },
	{ .name = "poisson-30k", .gap = poisson, .mean = 33 * US },
	{ .name = "poisson-100k", .gap = poisson, .mean = 10 * US },
	{ .name = "poisson-300k", .gap = poisson, .mean = 3300 },
	{ .name = "bursts-8", .gap = bursts, .mean = 2 * US, .pause = 500 * US, .burst = 8 },
	{ .name = "bursts-64", .gap = bursts, .mean = 2 * US, .pause = 2 * MS, .burst = 64 },
	{ .name = "bursts-slow", .gap = bursts, .mean = 20 * US, .pause = 1 * MS, .burst = 16 },
	{ .name = "on-off-50", .gap = on_off, .mean = 5 * US, .pause = 1 * MS, .burst = 50 },
	{ .name = "on-off-1000", .gap = on_off, .mean = 4 * US, .pause = 20 * MS, .burst = 1000 },
	{ .name = "request-10us", .gap = request, .mean = 10 * US, .burst = 1, .closed = true },
	{ .name = "request-30us", .gap = request, .mean = 30 * US, .burst = 1, .closed = true },
	{ .name = "request-100us", .gap = request, .mean = 100 * US, .burst = 1, .closed = true },
	{ .name = "request-1ms", .gap = request, .mean = 1 * MS, .burst = 1, .closed = true },
	{ .name = "request-of-4", .gap = request, .mean = 60 * US, .burst = 4, .closed = true },
	{ .name = "acks-dense", .gap = acks, .mean = 2 * US, .pause = 30 * US, .burst = 8 },
	{ .name = "acks-sparse", .gap = acks, .mean = 6 * US, .pause = 120 * US, .burst = 3 },
};

const char *policy_kind(size_t i)
{
	return i < ARRAY_SIZE(manners) ? manners[i].name : NULL;
}

static int allocate(struct policy_trace *trace, size_t packets)
{
	memset(trace, 0, sizeof(*trace));
	trace->at = malloc((packets ? packets : 1) * sizeof(*trace->at));
	if (!trace->at)
		return -ENOMEM;
	trace->packets = packets;
	return 0;
}

static void fill(struct policy_trace *trace, const struct manner *manner, uint64_t *seed)
{
	uint64_t now = 1;

	trace->group = manner->closed ? manner->burst : 0;
	for (size_t i = 0; i < trace->packets; i++) {
		uint64_t gap = manner->gap(manner, i, seed);

		now += i ? gap : 0;
		trace->at[i] = manner->closed ? gap : now;
	}
}

int policy_trace_make(struct policy_trace *trace, const char *kind, size_t packets, uint64_t seed)
{
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(manners); i++) {
		if (strcmp(manners[i].name, kind) != 0)
			continue;
		err = allocate(trace, packets);
		if (err)
			return err;
		snprintf(trace->name, sizeof(trace->name), "%s", kind);
		fill(trace, &manners[i], &seed);
		return 0;
	}
	return -ENOENT;
}

int policy_trace_random(struct policy_trace *trace, size_t packets, uint64_t seed)
{
	const struct manner *manner = &manners[0];
	uint64_t now = 1;
	int err = allocate(trace, packets);

	if (err)
		return err;
	snprintf(trace->name, sizeof(trace->name), "random");
	if (policy_below(&seed, 4) == 0) {
		trace->group = 1 + (unsigned)policy_below(&seed, 4);
		for (size_t i = 0; i < packets; i++)
			trace->at[i] = policy_below(&seed, US << policy_below(&seed, 12));
		return 0;
	}
	for (size_t i = 0; i < packets; i++) {
		if (policy_below(&seed, 100) == 0)
			manner = &manners[policy_below(&seed, ARRAY_SIZE(manners))];
		/* Now and then one out of the blue, or at the same moment. */
		if (policy_below(&seed, 20) == 0)
			now += policy_below(&seed, 2) ? policy_below(&seed, 2 * MS) : 0;
		else
			now += manner->gap(manner, i, &seed);
		trace->at[i] = now;
	}
	return 0;
}

/* ---- recorded ---- */

static int add(struct policy_trace *trace, size_t *room, uint64_t gap)
{
	uint64_t before = trace->packets ? trace->at[trace->packets - 1] : 1;

	if (trace->packets == *room) {
		size_t more = *room ? *room * 2 : 1024;
		uint64_t *at = realloc(trace->at, more * sizeof(*at));

		if (!at)
			return -ENOMEM;
		trace->at = at;
		*room = more;
	}
	if (gap > UINT64_MAX / 2 - before)
		return -EINVAL;
	trace->at[trace->packets++] = before + gap;
	return 0;
}

static int read_lines(struct policy_trace *trace, FILE *file)
{
	char line[256], *end;
	size_t room = 0;
	int err = 0;

	if (!fgets(line, sizeof(line), file) || strcmp(line, "whelp-trace 1\n") != 0)
		return -EINVAL;
	while (!err && fgets(line, sizeof(line), file)) {
		if (line[0] == '#')
			continue;
		if (line[0] < '0' || line[0] > '9')
			return -EINVAL;
		errno = 0;
		err = add(trace, &room, strtoull(line, &end, 10));
		if (errno || *end != '\n')
			return -EINVAL;
	}
	if (err)
		return err;
	if (ferror(file))
		return -EIO;
	return trace->packets ? 0 : -EINVAL;
}

int policy_trace_read(struct policy_trace *trace, const char *path)
{
	const char *name = strrchr(path, '/');
	FILE *file;
	int err;

	memset(trace, 0, sizeof(*trace));
	file = fopen(path, "re");
	if (!file)
		return -errno;
	name = name ? name + 1 : path;
	snprintf(trace->name, sizeof(trace->name), "%.*s", (int)strcspn(name, "."), name);
	err = read_lines(trace, file);
	fclose(file);
	if (err)
		policy_trace_free(trace);
	return err;
}

void policy_trace_free(struct policy_trace *trace)
{
	free(trace->at);
	memset(trace, 0, sizeof(*trace));
}
