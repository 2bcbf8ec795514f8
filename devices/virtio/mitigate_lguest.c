/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lguest's device of 2008. A kick takes everything at once; then kicks are off until a timer ends,
 * which takes what has come and turns them on again. A kick in between means that the ring is about
 * full, and is like the first.
 *
 * The timer's length adapts: a timer that gathered fewer packets than the one before was too short,
 * and 10 us are added; else it loses 1 us. Traffic that comes in ones (ACKs) makes it grow without
 * bound: hence `latency`.
 */
#include "devices/virtio/mitigate_policy.h"

#define START	UINT64_C(500000)
#define LONGER	UINT64_C(10000)
#define SHORTER UINT64_C(1000)

static void lguest_init(const struct mitigate_config *config, struct mitigate_state *state)
{
	state->lguest.period = mitigate_min(START, config->latency);
}

static void lguest_expired(struct mitigate_state *state)
{
	state->lguest.expired = true;
}

static void lguest_drained(const struct mitigate_config *config, struct mitigate_state *state,
			   unsigned packets, uint64_t now)
{
	(void)now;
	state->lguest.armed = packets && !state->lguest.expired;
	if (!state->lguest.expired)
		return;
	state->lguest.expired = false;
	if (packets < state->lguest.last)
		state->lguest.period = mitigate_min(state->lguest.period + LONGER, config->latency);
	else if (state->lguest.period > SHORTER)
		state->lguest.period -= SHORTER;
	state->lguest.last = packets;
}

static struct mitigate_action lguest_rest(const struct mitigate_config *config,
					  struct mitigate_state *state, uint64_t now)
{
	if (!state->lguest.armed || !state->lguest.period)
		return mitigate_sleep();
	return mitigate_sleep_timed(config, now, state->lguest.period, mitigate_full(config));
}

const struct mitigate_policy mitigate_lguest = {
	.name = "lguest",
	.init = lguest_init,
	.expired = lguest_expired,
	.drained = lguest_drained,
	.rest = lguest_rest,
};
