/* SPDX-License-Identifier: GPL-2.0-or-later */
/* No mitigation: every sleep ends with the next packet's kick, which is a reason to take it. */
#include "devices/virtio/mitigate_policy.h"

static struct mitigate_action off_rest(const struct mitigate_config *config,
				       struct mitigate_state *state, uint64_t now)
{
	(void)config;
	(void)state;
	(void)now;
	return mitigate_sleep();
}

const struct mitigate_policy mitigate_off = {
	.name = "off",
	.rest = off_rest,
};
