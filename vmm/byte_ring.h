/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A bounded queue of bytes. No locks: its owner's. Zero-initialised is empty.
 */
#ifndef WHELP_BYTE_RING_H
#define WHELP_BYTE_RING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/util.h"

#define BYTE_RING_SIZE 65536u

struct byte_ring {
	size_t start;
	size_t used;
	uint8_t data[BYTE_RING_SIZE];
};

static inline size_t byte_ring_room(const struct byte_ring *ring)
{
	return BYTE_RING_SIZE - ring->used;
}

/* Appends up to `len` bytes, returns how many. */
static inline size_t byte_ring_put(struct byte_ring *ring, const uint8_t *data, size_t len)
{
	size_t end = (ring->start + ring->used) % BYTE_RING_SIZE;
	size_t taken = MIN(len, byte_ring_room(ring));
	size_t first = MIN(taken, BYTE_RING_SIZE - end);

	memcpy(ring->data + end, data, first);
	memcpy(ring->data, data + first, taken - first);
	ring->used += taken;
	return taken;
}

/* Copies up to `len` of the oldest bytes and leaves them where they are; returns how many. */
static inline size_t byte_ring_peek(const struct byte_ring *ring, uint8_t *data, size_t len)
{
	size_t copied = MIN(len, ring->used);
	size_t first = MIN(copied, BYTE_RING_SIZE - ring->start);

	memcpy(data, ring->data + ring->start, first);
	memcpy(data + first, ring->data, copied - first);
	return copied;
}

/* Removes the `len` oldest bytes; there must be as many. */
static inline void byte_ring_drop(struct byte_ring *ring, size_t len)
{
	ring->start = (ring->start + len) % BYTE_RING_SIZE;
	ring->used -= len;
}

#endif
