/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vhost=on: the kernel's vhost-net moves the frames instead of the pairs' own workers. The rest of
 * the NIC is as ever: its configuration, the control queue, the tap's queues and steering. The
 * pairs are never started; they keep what is known of each, such as whether its queue of the tap is
 * in use.
 */
#ifndef WHELP_VIRTIO_NET_VHOST_H
#define WHELP_VIRTIO_NET_VHOST_H

#include <stdbool.h>

#include "devices/virtio/net.h"

/*
 * Opens vhost-net for each pair, as net->vhost. Logs; 0 or -errno. net_vhost_close() is fine after
 * a failure, and without net_vhost_open().
 */
int net_vhost_open(struct virtio_net *net);
void net_vhost_close(struct virtio_net *net);

/* Takes out of `possible` what cannot be had with vhost-net, or not with this kernel's. */
void net_vhost_limit(const struct virtio_net *net, struct virtio_features *possible);

/*
 * What stands between the NIC and a feature that net_vhost_limit() took away: the end of a
 * sentence; else NULL.
 */
const char *net_vhost_lacks(const struct virtio_net *net, unsigned feature);

/*
 * At DRIVER_OK, and the opposite: starts the first `pairs` pairs' live queues; net_pair_start() and
 * _stop().
 */
int net_vhost_start(struct virtio_net *net, unsigned pairs);
void net_vhost_stop(struct virtio_net *net);

/* The driver resets a pair's queue (RING_RESET), and takes it up again. */
void net_vhost_stop_queue(struct virtio_net *net, unsigned queue);
int net_vhost_start_queue(struct virtio_net *net, unsigned queue);

/*
 * Sets the back end's offloads; with `fewer`, frames that came with others are thrown away. From
 * the control queue's thread. 0 or -errno.
 */
int net_vhost_set_offloads(struct virtio_net *net, unsigned offloads, bool fewer);

#endif
