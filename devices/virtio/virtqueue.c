/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the ring formats share: the driver's configuration, the life of a queue, and the rules for a
 * chain. The calls on a live queue go through the format's table.
 */

#include <errno.h>
#include <string.h>

#include "devices/virtio/vq_internal.h"
#include "vmm/util.h"

void vq_init(struct virtqueue *vq, uint16_t size_max)
{
	memset(vq, 0, sizeof(*vq));
	vq->size_max = size_max;
	vq->size = size_max;
}

void vq_limit_to_power_of_two(struct virtqueue *vq)
{
	while (!is_power_of_two(vq->size))
		vq->size &= (uint16_t)(vq->size - 1); /* without its lowest bit */
}

void vq_set_size(struct virtqueue *vq, uint16_t size)
{
	if (!vq->enabled && size && size <= vq->size_max)
		vq->size = size;
}

void vq_set_desc(struct virtqueue *vq, uint64_t gpa)
{
	if (!vq->enabled)
		vq->desc_gpa = gpa;
}

void vq_set_driver(struct virtqueue *vq, uint64_t gpa)
{
	if (!vq->enabled)
		vq->driver_gpa = gpa;
}

void vq_set_device(struct virtqueue *vq, uint64_t gpa)
{
	if (!vq->enabled)
		vq->device_gpa = gpa;
}

void vq_enable(struct virtqueue *vq)
{
	vq->enabled = true;
}

int vq_kill(struct virtqueue *vq, const char *why)
{
	if (!vq->fault)
		vq->fault = why;
	return -EPROTO;
}

int vq_add_pieces(struct virtqueue *vq, struct vq_chain *chain, uint64_t addr, uint32_t len)
{
	unsigned used = chain->readable + chain->writable;
	int pieces = mem_iov(vq->mem, addr, len, &chain->iov[used], chain->room - used);

	if (pieces == -E2BIG)
		return vq_kill(vq, "a chain has more pieces than the device takes");
	if (pieces < 0)
		return vq_kill(vq, "a buffer is empty or outside of guest memory");
	return pieces;
}

const void *vq_indirect_table(struct virtqueue *vq, struct vq_descriptor d)
{
	const size_t element = 16; /* in both formats */
	const void *table;

	if (!vq->indirect) {
		vq_kill(vq, "an indirect descriptor, which was not negotiated");
		return NULL;
	}
	if (!d.len || d.len % element || d.len / element > vq->size) {
		vq_kill(vq, "an indirect table's length is 0, odd, or more than the queue's");
		return NULL;
	}
	/* No alignment is demanded of it, but every allocator gives that of the widest field. */
	if (d.addr % sizeof(uint64_t)) {
		vq_kill(vq, "an indirect table is misaligned");
		return NULL;
	}
	table = mem_ptr(vq->mem, d.addr, d.len);
	if (!table)
		vq_kill(vq, "an indirect table is outside of guest memory");
	return table;
}

int vq_activate(struct virtqueue *vq, const struct mem *mem, const struct virtio_features *features)
{
	int err;

	vq->mem = mem;
	vq->near = &mem->regions[0];
	vq->event_idx = virtio_has(features, VIRTIO_RING_F_EVENT_IDX);
	vq->indirect = virtio_has(features, VIRTIO_RING_F_INDIRECT_DESC);
	vq->fault = NULL;
	vq->ring = virtio_has(features, VIRTIO_F_RING_PACKED) ? &vq_packed_ops : &vq_split_ops;
	err = vq->ring->activate(vq);
	vq->live = !err;
	return err;
}

void vq_deactivate(struct virtqueue *vq)
{
	vq->live = false;
	vq->ring = NULL;
}

int vq_pop(struct virtqueue *vq, struct vq_chain *chain)
{
	if (vq->fault)
		return -EPROTO;
	return vq->ring->pop(vq, chain);
}

void vq_unpop(struct virtqueue *vq, const struct vq_chain *chain)
{
	vq->ring->unpop(vq, chain);
}

void vq_push(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written)
{
	vq->ring->push(vq, chain, written);
}

void vq_publish(struct virtqueue *vq)
{
	vq->ring->publish(vq);
}

bool vq_holds(const struct virtqueue *vq, unsigned places)
{
	return !vq->fault && vq->ring->holds(vq, places);
}

bool vq_is_ready(const struct virtqueue *vq)
{
	return vq->fault || vq->ring->holds(vq, 1);
}

bool vq_kicks_enable(struct virtqueue *vq)
{
	return vq->ring->kicks_enable(vq, 1);
}

bool vq_kicks_enable_at(struct virtqueue *vq, unsigned places)
{
	if (places == 1 || vq->event_idx)
		return vq->ring->kicks_enable(vq, MIN(places, vq->size));
	vq_kicks_disable(vq);
	return false;
}

void vq_kicks_disable(struct virtqueue *vq)
{
	vq->ring->kicks_disable(vq);
}

void vq_kicks_withdraw(struct virtqueue *vq)
{
	vq->ring->kicks_withdraw(vq);
}

bool vq_needs_interrupt(struct virtqueue *vq)
{
	return vq->ring->needs_interrupt(vq);
}
