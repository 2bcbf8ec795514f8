/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A kick once a window of packets is full, and a timer that bounds the wait: `period` is the stated
 * worst case. The window is sized so that in steady state the timer never ends: so many packets as
 * come within the period, less two standard deviations of that number were they to come at random.
 * An idle ring has a window of one packet and no timer.
 *
 * A timer that does end says that the rate was a mistake: the window shrinks to what had come, and
 * to half at least. It is also the only way in which request and response show (the next packet
 * waits for an answer to this one, and would have come without the window), so each such end in a
 * row doubles how long the window then stays small.
 */
#include "devices/virtio/mitigate_policy.h"

#define PATIENCE_MIN 8u
#define PATIENCE_MAX 4096u

static uint64_t window_length(const struct mitigate_config *config)
{
	return mitigate_min(config->period, config->latency);
}

static void window_init(const struct mitigate_config *config, struct mitigate_state *state)
{
	state->window.size = 1;
	state->window.gap = window_length(config);
	state->window.patience = PATIENCE_MIN;
}

static void window_expired(struct mitigate_state *state)
{
	state->window.expired = true;
}

/* The largest window that such a gap between packets fills in time. */
static unsigned size_for(const struct mitigate_config *config, uint64_t gap)
{
	uint64_t mean = window_length(config) / (gap ? gap : 1);
	uint64_t margin = 2 * mitigate_sqrt(mean);

	if (mean <= margin + 1)
		return 1;
	return (unsigned)mitigate_min(mean - margin, mitigate_full(config));
}

static void learn_gap(const struct mitigate_config *config, struct mitigate_state *state,
		      unsigned packets, uint64_t now)
{
	uint64_t gap = (now - state->window.since) / packets;

	/* Longer ones all mean a window of one, and are not to be remembered for long. */
	state->window.gap = (state->window.gap + mitigate_min(gap, window_length(config))) / 2;
	state->window.since = now;
}

static void shrink(struct mitigate_state *state, unsigned packets)
{
	unsigned size = state->window.size / 2;

	if (size > packets)
		size = packets;
	state->window.size = size ? size : 1;
	state->window.hold = state->window.patience;
	if (state->window.patience < PATIENCE_MAX)
		state->window.patience *= 2;
}

static void grow(const struct mitigate_config *config, struct mitigate_state *state,
		 unsigned packets)
{
	unsigned size = state->window.size;

	if (size > 1 && packets >= size)
		state->window.patience = PATIENCE_MIN;
	state->window.size = (unsigned)mitigate_min(size_for(config, state->window.gap),
						    state->window.hold ? size : 2 * (uint64_t)size);
	if (state->window.hold)
		state->window.hold--;
}

static void window_drained(const struct mitigate_config *config, struct mitigate_state *state,
			   unsigned packets, uint64_t now)
{
	bool expired = state->window.expired;

	state->window.expired = false;
	if (packets)
		learn_gap(config, state, packets, now);
	if (expired)
		shrink(state, packets);
	else if (packets)
		grow(config, state, packets);
}

static struct mitigate_action window_rest(const struct mitigate_config *config,
					  struct mitigate_state *state, uint64_t now)
{
	if (state->window.size == 1)
		return mitigate_sleep();
	return mitigate_sleep_timed(config, now, config->period, state->window.size);
}

const struct mitigate_policy mitigate_window = {
	.name = "window",
	.init = window_init,
	.expired = window_expired,
	.drained = window_drained,
	.rest = window_rest,
};
