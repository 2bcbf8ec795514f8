/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the formats share. */
#include "tests/driver/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ring_init(struct ring *ring, struct board *board, const struct virtio_features *features,
	       uint16_t size)
{
	memset(ring, 0, sizeof(*ring));
	ring->ops = virtio_has(features, VIRTIO_F_RING_PACKED) ? &ring_packed_ops : &ring_split_ops;
	ring->board = board;
	ring->size = size;
	ring->free = size;
	ring->event_idx = virtio_has(features, VIRTIO_RING_F_EVENT_IDX);
	ring->in_order = virtio_has(features, VIRTIO_F_IN_ORDER);
	ring->slots = calloc(size, sizeof(*ring->slots));
	if (!ring->slots) {
		fprintf(stderr, "ring: out of memory\n");
		abort();
	}
	if (virtio_has(features, VIRTIO_RING_F_INDIRECT_DESC))
		ring->tables_gpa = board_alloc(board, (uint64_t)size * RING_TABLE_SIZE * 16, 16);
	ring->ops->init(ring);
}

void ring_fini(struct ring *ring)
{
	free(ring->slots);
	free(ring->packed.free_ids);
	memset(ring, 0, sizeof(*ring));
}

int ring_add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
	     unsigned writable, void *token)
{
	return ring->ops->add(ring, pieces, readable, writable, false, token);
}

int ring_add_indirect(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		      unsigned writable, void *token)
{
	return ring->ops->add(ring, pieces, readable, writable, true, token);
}

bool ring_publish(struct ring *ring)
{
	return ring->ops->publish(ring);
}

bool ring_take(struct ring *ring, void **token, uint32_t *written)
{
	return !ring->error && ring->ops->take(ring, token, written);
}

bool ring_interrupts_enable(struct ring *ring)
{
	return ring->ops->interrupts_enable(ring);
}

void ring_interrupts_ahead(struct ring *ring, unsigned ahead)
{
	ring->ops->interrupts_ahead(ring, ahead);
}

void ring_interrupts_disable(struct ring *ring)
{
	ring->ops->interrupts_disable(ring);
}

bool ring_fail(struct ring *ring, const char *error)
{
	ring->error = error;
	return false;
}

bool ring_check_used(struct ring *ring, uint32_t id, uint32_t written)
{
	if (id >= ring->size || !ring->slots[id].entries)
		return ring_fail(ring, "the id of a used chain is not one that is on its way");
	/* A device may also name the last of a batch only (2.7.9); ours names each. */
	if (ring->in_order && id != ring->oldest)
		return ring_fail(ring, "a chain was used out of order");
	if (written > ring->slots[id].room)
		return ring_fail(ring, "more was written than there is room");
	return true;
}
