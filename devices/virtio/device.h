/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A virtio device without its transport (virtio 1.3, chapter 2 and section 3.1): feature
 * negotiation, the status state machine, the set of queues. A device type fills in the ops; a
 * transport drives it with the virtio_ functions, one call at a time.
 */
#ifndef WHELP_VIRTIO_DEVICE_H
#define WHELP_VIRTIO_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/virtio.h"
#include "devices/virtio/virtqueue.h"
#include "vmm/log.h"

struct virtio_device;

struct virtio_device_ops {
	/*
	 * [offset, offset + len) of the device's own configuration, any part of it, `len` 1 to 8.
	 */
	void (*config_read)(struct virtio_device *device, uint64_t offset, void *data,
			    unsigned len);
	/*
	 * The driver set DRIVER_OK: every enabled queue is live, the features are final. Start
	 * workers, return 0; or -errno, and the device will need a reset.
	 */
	int (*activate)(struct virtio_device *device);
	/*
	 * Called after a successful activate. When it returns, no thread touches a queue or
	 * guest memory any more.
	 */
	void (*deactivate)(struct virtio_device *device);
	/*
	 * The driver resets one queue of a running device (RING_RESET): when stop_queue returns,
	 * the queue is not live, and no thread touches it. start_queue: it is live again. NULL for
	 * both in a device that does not offer that.
	 */
	void (*stop_queue)(struct virtio_device *device, unsigned queue);
	int (*start_queue)(struct virtio_device *device, unsigned queue);
};

/* The transport's side: raise an interrupt for a queue, or for a change of the configuration. */
struct virtio_transport_ops {
	void (*queue_interrupt)(void *ctx, unsigned queue);
	void (*config_interrupt)(void *ctx);
	/*
	 * Whoever serves the queue says that there is something used by a count on the eventfd
	 * `fd`, and is not one of our threads. The transport raises the queue's interrupt by it
	 * where it can without us. Where it cannot, the count stays in `fd`, and is the caller's to
	 * take and to pass on by queue_interrupt. -1 ends that, before `fd` is closed. With no
	 * other call of the device's under way.
	 */
	void (*queue_call_fd)(void *ctx, unsigned queue, int fd);
};

struct virtio_queue {
	struct virtqueue vq;
	int kick_fd; /* eventfd: one is added for each kick */
};

struct virtio_device {
	const struct virtio_device_ops *ops;
	const char *name; /* for messages; borrowed */
	uint16_t type;	  /* VIRTIO_ID_* */
	const struct mem *mem;
	struct virtio_features offered;
	struct virtio_features accepted; /* as the driver writes them; final from FEATURES_OK on */
	atomic_uchar status;		 /* a worker may add NEEDS_RESET to it */
	atomic_uchar generation;	 /* of the configuration */
	bool active;
	struct virtio_queue *queues;
	unsigned queue_count;
	const struct virtio_transport_ops *transport;
	void *transport_ctx;
	struct log_limit faults;
};

/*
 * Makes a device in its state after power-on, with `queue_count` queues of at most `queue_size`
 * entries. The caller then fills in `offered`. 0 or -errno. `name` and `mem` must outlive it.
 * virtio_device_fini() deactivates it and is fine on a zeroed struct.
 */
int virtio_device_init(struct virtio_device *device, const struct virtio_device_ops *ops,
		       uint16_t type, const char *name, const struct mem *mem, unsigned queue_count,
		       uint16_t queue_size);
void virtio_device_fini(struct virtio_device *device);

/* After init: the most entries that queue `queue` may have, 2 to VQ_MAX_SIZE. */
void virtio_set_queue_size(struct virtio_device *device, unsigned queue, uint16_t size);

uint8_t virtio_status(const struct virtio_device *device);

/*
 * The driver writes the status field: 0 resets, else bits are added, if they may be (3.1.1, 2.1.2).
 */
void virtio_write_status(struct virtio_device *device, uint8_t value);

/*
 * The device may no longer reach the guest's memory: it is stopped, silently, until the driver
 * resets it.
 */
void virtio_device_cut_off(struct virtio_device *device);

/* The driver writes a word of its features; ignored after FEATURES_OK. */
void virtio_write_features(struct virtio_device *device, unsigned word, uint32_t value);

/* The driver enables a queue: before DRIVER_OK, or after a reset of that queue. */
void virtio_enable_queue(struct virtio_device *device, unsigned queue);

/* The driver resets a queue (2.6.1); when this returns it is as after power-on. */
void virtio_reset_queue(struct virtio_device *device, unsigned queue);

/* True from DRIVER_OK until the reset or a failure. */
bool virtio_running(const struct virtio_device *device);

/* The driver kicks a queue, by other means than the eventfd itself. */
void virtio_kick(struct virtio_device *device, unsigned queue);

/* The device has used buffers, and vq_needs_interrupt() said yes. From any thread. */
void virtio_queue_interrupt(struct virtio_device *device, unsigned queue);

/* The device changed its configuration: a new generation, and an interrupt. From any thread. */
void virtio_config_changed(struct virtio_device *device);

/*
 * The driver broke the rules in a way that the device cannot go on with: sets DEVICE_NEEDS_RESET,
 * tells the driver, logs at a limited rate. From any thread.
 */
void virtio_device_failed(struct virtio_device *device, unsigned queue, const char *why);

#endif
