/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of virtqueues: a queue and the driver's ring it works on, face to face without a
 * transport.
 */
#ifndef WHELP_TESTS_LIBVQ_H
#define WHELP_TESTS_LIBVQ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/virtio/virtqueue.h"
#include "tests/driver/board.h"
#include "tests/driver/ring.h"
#include "tests/unit/libkind.h"

#define PAIR_PIECES 64u

struct vq_pair {
	const struct ring_kind *kind; /* of pair_start_kind() */
	struct board board;
	struct virtio_features features;
	struct ring ring;
	struct virtqueue vq;
	struct iovec iov[PAIR_PIECES];
	struct vq_chain chain; /* what pair_pop() got */
};

/* Sets up and tears down; the group's state is a struct vq_pair. */
int pair_setup(void **state);
int pair_teardown(void **state);

/* Starts both sides anew with `size` entries and the given feature bits; every assertion is made.
 */
void pair_start(struct vq_pair *pair, uint16_t size, bool event_idx, bool indirect);

/* The same with a ring of the pair's kind. */
void pair_start_kind(struct vq_pair *pair, uint16_t size);

/* For kinds_run(). */
int pair_setup_kind(void **state);

/* Points the queue at the ring, without activating it. */
void pair_configure(struct vq_pair *pair);
int pair_activate(struct vq_pair *pair);

/* vq_pop() into `chain`. */
int pair_pop(struct vq_pair *pair);

/* Pops, pushes with `written` and publishes one chain, which must be there. */
void pair_use_one(struct vq_pair *pair, uint32_t written);

#endif
