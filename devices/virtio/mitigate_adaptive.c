/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Spin, timed sleep or kick, whichever the load makes cheapest.
 *
 * 1. A kick takes what is there at once, so the first packet after an idle time never waits.
 * 2. While there are packets, kicks stay off: that is the worker's part.
 * 3. Then comes the spin, which is as long as a kick costs at most: see mitigate.c.
 * 4. When packets come fast but more than the longest spin apart, a timed sleep with kicks off
 *    gathers several of them. In D ns there come D / gap packets, and each waits for D / 2 on
 *    the average. The sum equals what a kick costs when D = sqrt(2 * kick_cost * gap). The
 *    sleep is that long, but for the overshoot, by which it lasts longer in any case. It is
 *    never set shorter than the overshoot, nor longer than `latency`. So where timers are late
 *    by more than half of D it would be too long, and kicks are better.
 * 5. Else the next packet kicks.
 * 6. A timer that gathered nothing, or one packet, as with request and response, was a mistake.
 *    Kicks are on after it, and the next such sleep is half as long at most; one that gathered
 *    more lets it grow by an eighth.
 *
 * A drain of one packet does not lead to a timed sleep: its sender may be waiting for the answer.
 *
 * Two packets are to be expected within D, so gap is at most half of what a kick costs: with a
 * longest spin of kick_cost, the fourth step is never taken. It need not be, as spinning through
 * such gaps costs less than any sleep (tests/bench/policy_optimum.c shows it), to a worker with a
 * CPU for itself.
 *
 * Where others want the worker's CPU (a spin was in the way, or it is known), a kick takes it from
 * them for each packet, and the timed sleep is used even if it lasts too long. A kick may even stop
 * the sender before it has filled in its second packet: bulk looks like request and response then.
 * So after 64 drains of one packet in a row a timer of the shortest length is tried, and stays if
 * it gathers several; else it takes twice as many until the next try.
 */
#include "devices/virtio/mitigate_policy.h"

#define PATIENCE_MIN 64u
#define PATIENCE_MAX 4096u
#define SEVERAL	     4u /* packets of a try that show it right */

static uint64_t shortest(const struct mitigate_config *config)
{
	return config->overshoot ? config->overshoot : 1;
}

static void adaptive_init(const struct mitigate_config *config, struct mitigate_state *state)
{
	state->adaptive.period = shortest(config);
	state->adaptive.gap = config->latency;
	state->adaptive.patience = PATIENCE_MIN;
}

static void adaptive_expired(struct mitigate_state *state)
{
	state->adaptive.expired = true;
}

static void learn_gap(const struct mitigate_config *config, struct mitigate_state *state,
		      unsigned packets, uint64_t now)
{
	/* A longer one says no more than that the ring is idle, and is not to be remembered for
	 * long. */
	uint64_t elapsed = mitigate_min(now - state->adaptive.since, config->latency);

	if (packets) {
		state->adaptive.gap = (state->adaptive.gap + elapsed / packets) / 2;
		state->adaptive.since = now;
	} else if (elapsed > state->adaptive.gap) {
		state->adaptive.gap = (state->adaptive.gap + elapsed) / 2;
	}
}

static void learn_period(const struct mitigate_config *config, struct mitigate_state *state,
			 unsigned packets)
{
	uint64_t period = state->adaptive.period;

	if (packets > 1)
		period = mitigate_min(period + period / 8 + 1, config->latency);
	else
		period /= 2;
	if (period < shortest(config))
		period = shortest(config);
	state->adaptive.period = period;
}

static void learn_try(struct mitigate_state *state, unsigned packets)
{
	if (packets >= SEVERAL)
		state->adaptive.patience = PATIENCE_MIN;
	else if (state->adaptive.patience < PATIENCE_MAX)
		state->adaptive.patience *= 2;
}

static void adaptive_drained(const struct mitigate_config *config, struct mitigate_state *state,
			     unsigned packets, uint64_t now)
{
	learn_gap(config, state, packets, now);
	if (state->adaptive.expired)
		learn_period(config, state, packets);
	if (state->adaptive.trying)
		learn_try(state, packets);
	state->adaptive.expired = false;
	state->adaptive.trying = false;
	state->adaptive.packets = packets;
	if (packets > 1)
		state->adaptive.singles = 0;
	else if (packets && state->adaptive.singles < state->adaptive.patience)
		state->adaptive.singles++;
}

/* How long to sleep with kicks off; 0: not at all. */
static uint64_t timer_length(const struct mitigate_config *config,
			     const struct mitigate_state *state, uint64_t now)
{
	uint64_t gap = state->adaptive.gap, overshoot = config->overshoot;
	uint64_t wait = mitigate_sqrt(2 * config->kick_cost * gap);

	/* Fewer than two packets come meanwhile. */
	if (wait < 2 * gap)
		return 0;
	if (!mitigate_is_crowded(config, state, now) &&
	    (gap <= config->poll_max || wait < 2 * overshoot))
		return 0;
	wait = mitigate_min(wait - mitigate_min(wait, overshoot), state->adaptive.period);
	return wait > shortest(config) ? wait : shortest(config);
}

static bool should_try(const struct mitigate_config *config, const struct mitigate_state *state,
		       uint64_t now)
{
	return mitigate_is_crowded(config, state, now) &&
	       state->adaptive.singles >= state->adaptive.patience;
}

static struct mitigate_action adaptive_rest(const struct mitigate_config *config,
					    struct mitigate_state *state, uint64_t now)
{
	uint64_t length = 0;

	if (shortest(config) > config->latency)
		return mitigate_sleep();
	if (state->adaptive.packets > 1) {
		length = timer_length(config, state, now);
	} else if (should_try(config, state, now)) {
		state->adaptive.trying = true;
		state->adaptive.singles = 0;
		length = shortest(config);
	}
	return length ? mitigate_sleep_timed(config, now, length, mitigate_full(config))
		      : mitigate_sleep();
}

const struct mitigate_policy mitigate_adaptive = {
	.name = "adaptive",
	.init = adaptive_init,
	.expired = adaptive_expired,
	.drained = adaptive_drained,
	.rest = adaptive_rest,
};
