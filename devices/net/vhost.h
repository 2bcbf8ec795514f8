/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's vhost-net, as it is: one open /dev/vhost-net serves one pair of rings and one queue
 * of a tap by a thread of the kernel's. What of virtio-net is made of that is in
 * devices/virtio/net_vhost.c.
 */
#ifndef WHELP_VHOST_H
#define WHELP_VHOST_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/virtio.h"
#include "vmm/mem.h"

#define VHOST_NET_PATH "/dev/vhost-net"

enum vhost_ring_index { VHOST_RX, VHOST_TX, VHOST_RINGS };

struct vhost {
	int fd; /* -1: closed */
	struct virtio_features features; /* those that this kernel's vhost-net has */
};

/* A ring that was checked: all of it is in guest memory. The fds stay the caller's. */
struct vhost_ring {
	uint16_t size;	/* a power of two */
	void *desc;
	void *driver;
	void *device;
	int kick_fd;  /* eventfd: the driver's kicks */
	int call_fd;  /* eventfd: gets a count when the driver is to be interrupted */
	int error_fd; /* eventfd: gets a count when the ring, or what it holds, cannot be used */
};

/*
 * Opens vhost-net for the guest memory in `mem`, which must outlive it; its rings are stopped. Logs
 * one line with what to do; 0 or -errno. vhost_close() is fine after a failure; it stops the rings
 * first.
 */
int vhost_open(struct vhost *vhost, const struct mem *mem);
void vhost_close(struct vhost *vhost);

/*
 * While both rings are stopped: what the driver took. What vhost-net does not know is none of its
 * business. 0 or -errno.
 */
int vhost_set_features(struct vhost *vhost, const struct virtio_features *accepted);

/* Starts a stopped ring at its beginning, on the tap's queue. 0 or -errno, then it is stopped. */
int vhost_start(struct vhost *vhost, enum vhost_ring_index index, const struct vhost_ring *ring,
		int tap_fd);

/*
 * Stops a ring: when this returns the kernel touches nothing of it, nor any of its buffers, and
 * counts on no fd.
 */
void vhost_stop(struct vhost *vhost, enum vhost_ring_index index);

/*
 * Lets go of the tap's queue for a while, as vhost_stop(), and goes on where the ring was. 0 or
 * -errno.
 */
void vhost_pause(struct vhost *vhost, enum vhost_ring_index index);
int vhost_resume(struct vhost *vhost, enum vhost_ring_index index, int tap_fd);

/* Whether the tap's interface was deleted. */
bool vhost_tap_gone(int tap_fd);

#endif
