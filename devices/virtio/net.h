/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * virtio-net (virtio 1.3, section 5.1): its features and configuration, over a net back end. One worker
 * thread per queue pair moves the frames (net_queue.h).
 */
#ifndef WHELP_VIRTIO_NET_H
#define WHELP_VIRTIO_NET_H

#include <linux/virtio_net.h>
#include <stdint.h>

#include "devices/net/backend.h"
#include "devices/virtio/device.h"
#include "devices/virtio/net_queue.h"

#define NET_QUEUE_SIZE 256u

struct virtio_net_options {
	const char *name; /* for messages and the worker's thread; borrowed */
	uint8_t mac[6];
	uint16_t mtu; /* 0: not offered */
};

struct virtio_net {
	struct virtio_device device;
	struct net_backend *backend;
	struct virtio_net_config config;
	struct net_pair pair;
};

/*
 * Makes the device over `backend`, which stays the caller's and must outlive it. Logs; 0 or -errno.
 * virtio_net_fini() is fine on a zeroed struct; the transport is gone by then.
 */
int virtio_net_init(struct virtio_net *net, const struct virtio_net_options *options,
		    struct net_backend *backend, const struct mem *mem);
void virtio_net_fini(struct virtio_net *net);

#endif
