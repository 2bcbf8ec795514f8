/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a mitigation policy consists of; only mitigate.c and the policies include this.
 * docs/policies.md says how to add one.
 */
#ifndef WHELP_MITIGATE_POLICY_H
#define WHELP_MITIGATE_POLICY_H

#include "devices/virtio/mitigate.h"

struct mitigate_policy {
	const char *name;

	/* Sets up the policy's part of the state, which is all zeros. NULL: zeros will do. */
	void (*init)(const struct mitigate_config *config, struct mitigate_state *state);

	/* A kick came: to drain, or to sleep on. NULL: a kick is a reason to drain. */
	struct mitigate_action (*kicked)(const struct mitigate_config *config,
					 struct mitigate_state *state, uint64_t now);

	/* The timer of the last sleep ended; a drain follows. NULL: nothing is learned from that.
	 */
	void (*expired)(struct mitigate_state *state);

	/* So many packets were taken, and the ring is empty. A spin or rest() follows. NULL: as
	 * above. */
	void (*drained)(const struct mitigate_config *config, struct mitigate_state *state,
			unsigned packets, uint64_t now);

	/* How to sleep on an empty ring. */
	struct mitigate_action (*rest)(const struct mitigate_config *config,
				       struct mitigate_state *state, uint64_t now);
};

extern const struct mitigate_policy mitigate_off, mitigate_fixed, mitigate_lguest, mitigate_window,
	mitigate_adaptive;

static inline uint64_t mitigate_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline struct mitigate_action mitigate_drain(void)
{
	return (struct mitigate_action){ .what = MITIGATE_DRAIN };
}

/* Until the next packet. */
static inline struct mitigate_action mitigate_sleep(void)
{
	return (struct mitigate_action){ .what = MITIGATE_SLEEP, .kick_at = 1 };
}

/* For `length`, but latency at most, or until `kick_at` packets wait. Neither number is 0, nor is
 * latency. */
static inline struct mitigate_action mitigate_sleep_timed(const struct mitigate_config *config,
							  uint64_t now, uint64_t length,
							  unsigned kick_at)
{
	return (struct mitigate_action){
		.what = MITIGATE_SLEEP,
		.until = now + mitigate_min(length, config->latency),
		.kick_at = kick_at,
	};
}

/*
 * When a ring counts as full: at three quarters, so that the driver need not stop before the worker
 * is there. 1 or more.
 */
static inline unsigned mitigate_full(const struct mitigate_config *config)
{
	return config->ring > 1 ? config->ring - config->ring / 4 : 1;
}

/* The whole part of the square root. */
static inline uint64_t mitigate_sqrt(uint64_t n)
{
	uint64_t root = 0;

	for (uint64_t bit = UINT64_C(1) << 62; bit; bit >>= 2) {
		if (n >= root + bit) {
			n -= root + bit;
			root = (root >> 1) + bit;
		} else {
			root >>= 1;
		}
	}
	return root;
}

#endif
