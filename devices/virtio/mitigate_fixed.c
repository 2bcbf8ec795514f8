/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM's device of 2008. The first kick after a drain starts a timer and the ring is not touched;
 * when the timer ends, everything is taken. A kick while it runs means that the ring is about full:
 * everything is taken now.
 *
 * So every packet after an idle time waits for the whole period: that is what lguest does better.
 */
#include "devices/virtio/mitigate_policy.h"

static struct mitigate_action fixed_kicked(const struct mitigate_config *config,
					   struct mitigate_state *state, uint64_t now)
{
	if (state->fixed.armed || !config->period || !config->latency)
		return mitigate_drain();
	state->fixed.armed = true;
	return mitigate_sleep_timed(config, now, config->period, mitigate_full(config));
}

static struct mitigate_action fixed_rest(const struct mitigate_config *config,
					 struct mitigate_state *state, uint64_t now)
{
	(void)config;
	(void)now;
	state->fixed.armed = false;
	return mitigate_sleep();
}

const struct mitigate_policy mitigate_fixed = {
	.name = "fixed",
	.kicked = fixed_kicked,
	.rest = fixed_rest,
};
