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
static inline void vq_start_chain(struct vq_chain *chain)
{
	chain->readable = chain->writable = 0;
	chain->readable_bytes = chain->writable_bytes = 0;
	chain->slots = chain->descriptors = 0;
}

/*
 * A buffer that is not in one piece: how many it has, which are in the chain's array then; or
 * vq_kill()'s.
 */
int vq_add_pieces(struct virtqueue *vq, struct vq_chain *chain, uint64_t addr, uint32_t len);

/*
 * Adds a descriptor's buffer to the chain; 0, or vq_kill()'s. For each descriptor there is: hence
 * inline.
 */
static inline int vq_add_buffer(struct virtqueue *vq, struct vq_chain *chain,
				struct vq_descriptor d)
{
	unsigned used = chain->readable + chain->writable;
	bool writable = d.flags & VRING_DESC_F_WRITE;
	void *host = mem_ptr_near(vq->mem, &vq->near, d.addr, d.len);
	int pieces = 1;

	if (!writable && chain->writable)
		return vq_kill(vq, "a readable descriptor follows a writable one");
	if (host && used < chain->room)
		chain->iov[used] = (struct iovec){ .iov_base = host, .iov_len = d.len };
	else
		pieces = vq_add_pieces(vq, chain, d.addr, d.len);
	if (pieces < 0)
		return pieces;
	if (writable) {
		chain->writable += (unsigned)pieces;
		chain->writable_bytes += d.len;
	} else {
		chain->readable += (unsigned)pieces;
		chain->readable_bytes += d.len;
	}
	return 0;
}

/*
 * The table an indirect descriptor points to: d.len / 16 elements, at least one and at most as many
 * as the queue has. NULL after vq_kill().
 */
const void *vq_indirect_table(struct virtqueue *vq, struct vq_descriptor d);

extern const struct vq_ring_ops vq_split_ops;
extern const struct vq_ring_ops vq_packed_ops;

#endif
