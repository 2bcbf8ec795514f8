/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The status field only ever gains bits, until a write of 0. FEATURES_OK is refused unless the
 * driver took VIRTIO_F_VERSION_1 and nothing that was not offered; DRIVER_OK makes the enabled
 * queues live and starts the device. A reset first stops the device, so when the driver reads 0
 * back, nothing of its old life is left: no worker, no read into guest memory, no kick.
 */
#include "devices/virtio/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/util.h"

void virtio_set_queue_size(struct virtio_device *device, unsigned queue, uint16_t size)
{
	device->queues[queue].vq.size_max = size;
	vq_init(&device->queues[queue].vq, size);
}

static void init_queues(struct virtio_device *device)
{
	for (unsigned i = 0; i < device->queue_count; i++) {
		struct virtqueue *vq = &device->queues[i].vq;

		vq_init(vq, vq->size_max);
	}
}

int virtio_device_init(struct virtio_device *device, const struct virtio_device_ops *ops,
		       uint16_t type, const char *name, const struct mem *mem, unsigned queue_count,
		       uint16_t queue_size)
{
	memset(device, 0, sizeof(*device));
	device->ops = ops;
	device->type = type;
	device->name = name;
	device->mem = mem;
	device->queues = calloc(queue_count, sizeof(*device->queues));
	if (!device->queues)
		return -ENOMEM;
	device->queue_count = queue_count;
	for (unsigned i = 0; i < queue_count; i++)
		device->queues[i].kick_fd = -1;
	for (unsigned i = 0; i < queue_count; i++) {
		virtio_set_queue_size(device, i, queue_size);
		device->queues[i].kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (device->queues[i].kick_fd < 0)
			return -errno;
	}
	virtio_add(&device->offered, VIRTIO_F_VERSION_1);
	return 0;
}

/* A kick that nobody took is not for the next life. */
static void drop_kicks(struct virtio_queue *queue)
{
	uint64_t kicks;
	ssize_t got = read(queue->kick_fd, &kicks, sizeof(kicks));

	(void)got;
}

static void stop(struct virtio_device *device)
{
	if (device->active)
		device->ops->deactivate(device);
	device->active = false;
	for (unsigned i = 0; i < device->queue_count; i++) {
		vq_deactivate(&device->queues[i].vq);
		drop_kicks(&device->queues[i]);
	}
}

void virtio_device_fini(struct virtio_device *device)
{
	if (!device->queues)
		return;
	stop(device);
	for (unsigned i = 0; i < device->queue_count; i++)
		if (device->queues[i].kick_fd >= 0)
			close(device->queues[i].kick_fd);
	free(device->queues);
	device->queues = NULL;
	device->queue_count = 0;
}

uint8_t virtio_status(const struct virtio_device *device)
{
	return atomic_load(&device->status);
}

bool virtio_running(const struct virtio_device *device)
{
	uint8_t status = virtio_status(device);

	return status & VIRTIO_CONFIG_S_DRIVER_OK && !(status & VIRTIO_CONFIG_S_NEEDS_RESET);
}

static void reset(struct virtio_device *device)
{
	stop(device);
	init_queues(device);
	memset(&device->accepted, 0, sizeof(device->accepted));
	atomic_store(&device->status, 0);
}

/* The sizes on offer, now that the format is known: a split ring's is a power of two (2.7). */
static void fit_queues(struct virtio_device *device)
{
	if (virtio_has(&device->accepted, VIRTIO_F_RING_PACKED))
		return;
	for (unsigned i = 0; i < device->queue_count; i++)
		vq_limit_to_power_of_two(&device->queues[i].vq);
}

static bool features_ok(const struct virtio_device *device)
{
	return virtio_has(&device->accepted, VIRTIO_F_VERSION_1) &&
	       virtio_subset(&device->accepted, &device->offered);
}

static void start(struct virtio_device *device)
{
	for (unsigned i = 0; i < device->queue_count; i++) {
		struct virtqueue *vq = &device->queues[i].vq;

		if (vq->enabled && vq_activate(vq, device->mem, &device->accepted)) {
			virtio_device_failed(device, i, vq->fault);
			return;
		}
	}
	if (device->ops->activate(device))
		virtio_device_failed(device, 0, "the device could not start");
	else
		device->active = true;
}

void virtio_write_status(struct virtio_device *device, uint8_t value)
{
	uint8_t old = virtio_status(device);
	uint8_t added = value & (uint8_t)~old;

	if (!value) {
		reset(device);
		return;
	}
	/* That one is the device's to set. */
	added &= (uint8_t)~VIRTIO_CONFIG_S_NEEDS_RESET;
	if (added & VIRTIO_CONFIG_S_FEATURES_OK && !features_ok(device))
		added &= (uint8_t)~VIRTIO_CONFIG_S_FEATURES_OK;
	/* A driver that skips the negotiation gets no device (3.1.1). */
	if (added & VIRTIO_CONFIG_S_DRIVER_OK && !((old | added) & VIRTIO_CONFIG_S_FEATURES_OK))
		added &= (uint8_t)~VIRTIO_CONFIG_S_DRIVER_OK;
	if (added & VIRTIO_CONFIG_S_FEATURES_OK)
		fit_queues(device);
	atomic_fetch_or(&device->status, added);
	if (added & VIRTIO_CONFIG_S_DRIVER_OK)
		start(device);
}

void virtio_device_cut_off(struct virtio_device *device)
{
	if (!device->active)
		return;
	stop(device);
	atomic_fetch_or(&device->status, VIRTIO_CONFIG_S_NEEDS_RESET);
}

void virtio_write_features(struct virtio_device *device, unsigned word, uint32_t value)
{
	if (word < VIRTIO_FEATURE_WORDS && !(virtio_status(device) & VIRTIO_CONFIG_S_FEATURES_OK))
		device->accepted.word[word] = value;
}

void virtio_enable_queue(struct virtio_device *device, unsigned queue)
{
	struct virtqueue *vq = &device->queues[queue].vq;
	uint8_t status = virtio_status(device);

	if (vq->enabled || (status & VIRTIO_CONFIG_S_DRIVER_OK &&
			    !virtio_has(&device->accepted, VIRTIO_F_RING_RESET)))
		return;
	vq_enable(vq);
	if (!device->active)
		return;
	if (vq_activate(vq, device->mem, &device->accepted))
		virtio_device_failed(device, queue, vq->fault);
	else if (device->ops->start_queue(device, queue))
		virtio_device_failed(device, queue, "the device could not take it up again");
}

void virtio_reset_queue(struct virtio_device *device, unsigned queue)
{
	struct virtqueue *vq = &device->queues[queue].vq;

	if (!virtio_has(&device->accepted, VIRTIO_F_RING_RESET) || !vq->enabled)
		return;
	if (device->active && vq->live)
		device->ops->stop_queue(device, queue);
	vq_deactivate(vq);
	drop_kicks(&device->queues[queue]);
	vq_init(vq, vq->size_max);
	if (!virtio_has(&device->accepted, VIRTIO_F_RING_PACKED))
		vq_limit_to_power_of_two(vq);
}

void virtio_kick(struct virtio_device *device, unsigned queue)
{
	uint64_t one = 1;
	ssize_t written;

	if (queue >= device->queue_count)
		return;
	/* Fails only when the counter is full, and then a kick is waiting anyway. */
	written = write(device->queues[queue].kick_fd, &one, sizeof(one));
	(void)written;
}

void virtio_queue_interrupt(struct virtio_device *device, unsigned queue)
{
	device->transport->queue_interrupt(device->transport_ctx, queue);
}

void virtio_config_changed(struct virtio_device *device)
{
	atomic_fetch_add(&device->generation, 1);
	if (virtio_running(device))
		device->transport->config_interrupt(device->transport_ctx);
}

void virtio_device_failed(struct virtio_device *device, unsigned queue, const char *why)
{
	log_limited(&device->faults, "%s, queue %u: the guest's driver broke the rules: %s; "
		    "the device needs a reset", device->name, queue, why);
	atomic_fetch_or(&device->status, VIRTIO_CONFIG_S_NEEDS_RESET);
	device->transport->config_interrupt(device->transport_ctx);
}
