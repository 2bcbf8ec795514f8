/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the ring formats share: building a chain out of descriptors, with all its validation. */
#ifndef WHELP_VQ_INTERNAL_H
#define WHELP_VQ_INTERNAL_H

#include "devices/virtio/virtqueue.h"

/* A descriptor as it was at the one moment it was read. `next` is the split ring's only. */
struct vq_descriptor {
	uint64_t addr;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

/* Makes a chain empty. */
void vq_start_chain(struct vq_chain *chain);

/* Adds a descriptor's buffer to the chain; 0, or vq_kill()'s. */
int vq_add_buffer(struct virtqueue *vq, struct vq_chain *chain, const struct vq_descriptor *d);

/*
 * The table an indirect descriptor points to: d->len / 16 elements, at least one and at most as
 * many as the queue has. NULL after vq_kill().
 */
const void *vq_indirect_table(struct virtqueue *vq, const struct vq_descriptor *d);

extern const struct vq_ring_ops vq_split_ops;
extern const struct vq_ring_ops vq_packed_ops;

#endif
