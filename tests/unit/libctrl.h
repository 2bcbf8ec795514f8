/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of the control queue: a rig, which is a device that keeps what it was told and asserts
 * that nothing unchecked reaches it, and a driver whose every buffer is memory of exactly its size.
 */
#ifndef WHELP_TESTS_LIBCTRL_H
#define WHELP_TESTS_LIBCTRL_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/net_ctrl.h"

/* The device has so many. */
#define PAIRS 4u

/* The most bytes of a command, and of an answer. */
#define MAX_DATA 8192u

/* What is in the driver's buffers where nobody wrote. */
#define UNTOUCHED 0xa5

#define EVERY_FEATURES 22u

extern const uint8_t rig_mac[6];
extern const uint8_t every_feature[EVERY_FEATURES];

struct rig {
	struct net_ctrl ctrl;
	bool refuse;
	unsigned calls;
	struct net_filter filter;
	struct net_rss rss;
	unsigned pairs;
	uint64_t offloads;
	unsigned queue;
	bool rx;
	struct net_coalescing coalescing;
	unsigned no_stats; /* this queue has none */
};

/* Every feature that a command or an offload depends on. */
struct virtio_features all_features(void);
void drop_feature(struct virtio_features *features, unsigned bit);

/* A rig just after DRIVER_OK, with all features or these. */
void rig_init(struct rig *rig);
void rig_init_with(struct rig *rig, const struct virtio_features *features);

/* Buffers in one piece, byte by byte, or at random with empty ones between. */
enum split { WHOLE, BYTES, RANDOM };

/*
 * Runs a command of `len` bytes with `room` bytes for the answer, which goes to `answer` if that is
 * not NULL, and returns how many are used. Nothing beyond those may have changed. `seed` is for
 * RANDOM.
 */
uint32_t run_split(struct rig *rig, const uint8_t *bytes, unsigned len, uint8_t *answer,
		   unsigned room, enum split how, uint64_t *seed);

/* Runs a command without a result; returns the ack. */
int command(struct rig *rig, unsigned class, unsigned code, const void *data, unsigned len);

/* Stores a number of `size` bytes and returns `size`. */
unsigned put(uint8_t *at, unsigned size, uint64_t value);

/* An RSS_CONFIG without class and code, its table of so many entries; returns its length. */
unsigned put_rss(uint8_t *at, unsigned table, unsigned unclassified, unsigned max_tx,
		 unsigned key_len);

#endif
