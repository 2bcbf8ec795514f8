/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The keys of --net that say how frames are moved, and not what the guest is offered.
 */
#include <stdio.h>
#include <string.h>

#include "vmm/options_net.h"
#include "vmm/util.h"

#define MAX_USECS	1000000u
#define DEFAULT_LATENCY 200u
#define MAX_BUDGET	65536u /* packets */
#define MIN_BUDGET	1u

/* For a setter. */
static struct net_tuning *tuning_of(void *config)
{
	struct net_choice *choice = config;

	choice->tuned = true;
	return &choice->net->tuning;
}

static int set_usecs(uint32_t *field, const char *value, struct complaint *why)
{
	uint64_t number;
	int rc = value_number(value, 1, MAX_USECS, &number, why);

	if (!rc)
		*field = (uint32_t)number;
	return rc;
}

int tuning_set_mitigation(void *config, const char *value, struct complaint *why)
{
	static const struct {
		const char *name;
		enum mitigate_kind kind;
		bool period;
	} policies[] = {
		{ "off", MITIGATE_OFF, false },		  { "fixed", MITIGATE_FIXED, true },
		{ "lguest", MITIGATE_LGUEST, false },	  { "window", MITIGATE_WINDOW, true },
		{ "adaptive", MITIGATE_ADAPTIVE, false },
	};
	struct net_tuning *tuning = tuning_of(config);
	size_t len = strcspn(value, ":");
	struct complaint inner;

	_Static_assert(ARRAY_SIZE(policies) == MITIGATE_KINDS, "a name for each");
	for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
		if (strlen(policies[i].name) != len || strncmp(policies[i].name, value, len) ||
		    policies[i].period != (value[len] == ':'))
			continue;
		tuning->mitigation = policies[i].kind;
		if (!policies[i].period ||
		    !set_usecs(&tuning->period_usecs, &value[len + 1], &inner))
			return 0;
		return complain(why, "has a time in us behind %s that %s", policies[i].name,
				inner.text);
	}
	return complain(why, "must be off, fixed:USEC, lguest, window:USEC or adaptive");
}

int tuning_set_latency(void *config, const char *value, struct complaint *why)
{
	return set_usecs(&tuning_of(config)->latency_usecs, value, why);
}

int tuning_set_poll(void *config, const char *value, struct complaint *why)
{
	struct net_tuning *tuning = tuning_of(config);
	struct complaint inner;

	tuning->poll = !strcmp(value, "off") ? NET_POLL_OFF : NET_POLL_AUTO;
	if (!strcmp(value, "off") || !strcmp(value, "auto"))
		return 0;
	tuning->poll = NET_POLL_FIXED;
	if (!set_usecs(&tuning->poll_usecs, value, &inner))
		return 0;
	return complain(why, "must be off, auto, or a time in us from 1 to %u", MAX_USECS);
}

int tuning_set_budget(void *config, const char *value, struct complaint *why)
{
	struct net_tuning *tuning = tuning_of(config);
	char packets[16];
	size_t len = strcspn(value, ":");
	uint64_t number;
	int rc;

	snprintf(packets, sizeof(packets), "%.*s", (int)MIN(len, sizeof(packets) - 1), value);
	rc = value_number(packets, MIN_BUDGET, MAX_BUDGET, &number, why);
	if (rc)
		return rc;
	tuning->budget_packets = (uint32_t)number;
	if (!value[len])
		return 0;
	rc = value_number(&value[len + 1], 1, UINT32_MAX, &number, why);
	tuning->budget_bytes = (uint32_t)number;
	return rc;
}

int tuning_set_workers(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = {
		[NET_WORKERS_PAIR] = "pair",
		[NET_WORKERS_SPLIT] = "split",
		[NET_WORKERS_ONE] = "one",
	};
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->workers = row;
	return rc;
}

int tuning_set_affinity(void *config, const char *value, struct complaint *why)
{
	return value_cpus(value, &tuning_of(config)->cpus, why);
}

int tuning_set_lock(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = {
		[NET_LOCK_NONE] = "none",
		[NET_LOCK_HOLD] = "hold",
		[NET_LOCK_DROP] = "drop",
	};
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->lock = row;
	return rc;
}

int tuning_set_intr(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = {
		[NET_INTR_BATCH] = "batch",
		[NET_INTR_PACKET] = "packet",
		[NET_INTR_EMPTY] = "empty",
	};
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->intr = row;
	return rc;
}

int tuning_set_sched(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = {
		[NET_SCHED_NORMAL] = "normal",
		[NET_SCHED_BATCH] = "batch",
		[NET_SCHED_AUTO] = "auto",
	};
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->sched = row;
	return rc;
}

int tuning_set_io(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = {
		[NET_IO_SYSCALL] = "syscall",
		[NET_IO_URING] = "uring",
		[NET_IO_AUTO] = "auto",
	};
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->io = row;
	return rc;
}

int tuning_set_rx(void *config, const char *value, struct complaint *why)
{
	static const char *const words[] = { "zerocopy", "copy" };
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	tuning_of(config)->rx_copy = row;
	return rc;
}

void tuning_default(struct net_tuning *tuning)
{
	*tuning = (struct net_tuning){
		.mitigation = MITIGATE_ADAPTIVE,
		.poll = NET_POLL_AUTO,
		.sched = NET_SCHED_AUTO,
		.io = NET_IO_AUTO,
	};
}

int tuning_check(struct net_tuning *tuning, struct complaint *why)
{
	if (!tuning->latency_usecs)
		tuning->latency_usecs = MAX(DEFAULT_LATENCY, tuning->period_usecs);
	if (tuning->period_usecs > tuning->latency_usecs)
		return complain(why, "mitigation waits for %u us, which is longer than latency=%u",
				tuning->period_usecs, tuning->latency_usecs);
	return 0;
}
