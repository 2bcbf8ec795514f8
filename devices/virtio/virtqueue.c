/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the ring formats share: the driver's configuration and the life of a queue. The calls on a live
 * queue go through the format's table.
 */
#include "devices/virtio/virtqueue.h"

#include <errno.h>
#include <string.h>

#include "vmm/util.h"

void vq_init(struct virtqueue *vq, uint16_t size_max)
{
	memset(vq, 0, sizeof(*vq));
	vq->size_max = size_max;
	vq->size = size_max;
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

int vq_fail(struct virtqueue *vq, const char *why)
{
	if (!vq->fault)
		vq->fault = why;
	return -EPROTO;
}

int vq_activate(struct virtqueue *vq, const struct mem *mem, const struct virtio_features *features)
{
	int err;

	vq->mem = mem;
	vq->event_idx = virtio_has(features, VIRTIO_RING_F_EVENT_IDX);
	vq->indirect = virtio_has(features, VIRTIO_RING_F_INDIRECT_DESC);
	vq->fault = NULL;
	vq->ring = &vq_split_ops;
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

void vq_unpop(struct virtqueue *vq, unsigned count)
{
	vq->ring->unpop(vq, count);
}

void vq_push(struct virtqueue *vq, const struct vq_chain *chain, uint32_t written)
{
	vq->ring->push(vq, chain, written);
}

void vq_publish(struct virtqueue *vq)
{
	vq->ring->publish(vq);
}

bool vq_kicks_enable(struct virtqueue *vq)
{
	return vq->ring->kicks_enable(vq);
}

void vq_kicks_disable(struct virtqueue *vq)
{
	vq->ring->kicks_disable(vq);
}

bool vq_needs_interrupt(struct virtqueue *vq)
{
	return vq->ring->needs_interrupt(vq);
}
