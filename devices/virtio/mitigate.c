/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table of policies, and the spin that all of them share.
 *
 * A policy decides how to sleep once the ring is empty, and what a kick means. Between the two
 * comes the spin: a packet that comes soon is found without a kick and without a wake-up. How long
 * to look is KVM's halt polling. A sleep that the longest spin would have saved lets the spin grow;
 * two in a row that were longer than that end spinning, as it would have been for nothing (one is
 * the pause between two bursts). With the longest spin at the cost of a kick and a wake-up,
 * spinning wastes no more CPU than it can save. A spin that kept another thread from this CPU is
 * worth nothing at all, however short: there is no more of it for a while.
 *
 * No packet waits because of a spin: it ends with the first.
 */
#include "devices/virtio/mitigate.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "devices/virtio/mitigate_policy.h"
#include "vmm/util.h"

#define SPIN_HOLD UINT64_C(10000000) /* ns without spins after one that was in the way */

static const struct mitigate_policy *const policies[] = {
	[MITIGATE_OFF] = &mitigate_off,		  [MITIGATE_FIXED] = &mitigate_fixed,
	[MITIGATE_LGUEST] = &mitigate_lguest,	  [MITIGATE_WINDOW] = &mitigate_window,
	[MITIGATE_ADAPTIVE] = &mitigate_adaptive,
};

static_assert(ARRAY_SIZE(policies) == MITIGATE_KINDS, "a row for each kind");

const char *mitigate_name(enum mitigate_kind kind)
{
	return (unsigned)kind < MITIGATE_KINDS ? policies[kind]->name : NULL;
}

bool mitigate_is_crowded(const struct mitigate_config *config, const struct mitigate_state *state,
			 uint64_t now)
{
	return config->crowded || now < state->hold_until;
}

void mitigate_init(const struct mitigate_config *config, struct mitigate_state *state)
{
	memset(state, 0, sizeof(*state));
	if (policies[config->kind]->init)
		policies[config->kind]->init(config, state);
	state->kick_at = 1;
}

/* A worker slept past packets that came `gap` after the last ones. */
static void grow(const struct mitigate_config *config, struct mitigate_state *state, uint64_t gap,
		 uint64_t now)
{
	uint64_t spin = 2 * state->spin;

	state->long_idle = false;
	if (now < state->hold_until)
		return;
	if (spin < gap)
		spin = gap;
	if (spin < config->poll_max / 8)
		spin = config->poll_max / 8;
	state->spin = mitigate_min(spin, config->poll_max);
}

static void note_kick(const struct mitigate_config *config, struct mitigate_state *state,
		      uint64_t now)
{
	uint64_t idle = now - state->idle_since;

	/* A kick that was asked for later says nothing about when the first packet came. */
	if (state->kick_at != 1)
		return;
	/*
	 * The packet was there before the worker woke; which part of the cost that wait was is not
	 * known. If the longest spin was of no use, it came later than that.
	 */
	idle -= mitigate_min(idle, config->kick_cost / 2);
	if (idle <= config->poll_max && state->spin != config->poll_max)
		grow(config, state, idle, now);
	else if (state->long_idle)
		state->spin = 0;
	else
		state->long_idle = true;
}

/* Kicks were off: when the first packet came is not known, but how many did. */
static void note_timer(const struct mitigate_config *config, struct mitigate_state *state,
		       unsigned packets, uint64_t now)
{
	uint64_t gap;

	if (state->timed_out && packets) {
		gap = (now - state->idle_since) / packets;
		if (gap <= config->poll_max)
			grow(config, state, gap, now);
	}
	state->timed_out = false;
}

static void note_spin(struct mitigate_state *state, const struct mitigate_sample *sample,
		      uint64_t now)
{
	if (!sample->preempted)
		return;
	state->spin = 0;
	state->hold_until = now + SPIN_HOLD;
}

static struct mitigate_action after_drain(const struct mitigate_config *config,
					  struct mitigate_state *state,
					  const struct mitigate_policy *policy, unsigned packets,
					  uint64_t now)
{
	note_timer(config, state, packets, now);
	if (policy->drained)
		policy->drained(config, state, packets, now);
	if (packets)
		state->idle_since = now;
	/* After a drain of nothing the ring has been looked at for long enough. */
	if (packets && state->spin)
		return (struct mitigate_action){ .what = MITIGATE_SPIN,
						 .until = now + state->spin };
	return policy->rest(config, state, now);
}

static struct mitigate_action answer(const struct mitigate_config *config,
				     struct mitigate_state *state,
				     const struct mitigate_sample *sample, uint64_t now)
{
	const struct mitigate_policy *policy = policies[config->kind];

	switch (sample->event) {
	case MITIGATE_KICKED:
		note_kick(config, state, now);
		return policy->kicked ? policy->kicked(config, state, now) : mitigate_drain();
	case MITIGATE_EXPIRED:
		state->timed_out = true;
		if (policy->expired)
			policy->expired(state);
		return mitigate_drain();
	case MITIGATE_FOUND:
		state->long_idle = false;
		note_spin(state, sample, now);
		return mitigate_drain();
	case MITIGATE_MISSED:
		note_spin(state, sample, now);
		return policy->rest(config, state, now);
	case MITIGATE_DRAINED:
		break;
	}
	return after_drain(config, state, policy, sample->packets, now);
}

struct mitigate_action mitigate_step(const struct mitigate_config *config,
				     struct mitigate_state *state,
				     const struct mitigate_sample *sample, uint64_t now)
{
	struct mitigate_action action = answer(config, state, sample, now);

	state->kick_at = action.what == MITIGATE_SLEEP ? action.kick_at : 0;
	return action;
}
