/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * virtio-net (virtio 1.3, section 5.1): its features and configuration, over a net back end.
 * Workers move the frames (net_worker.h), or the kernel's vhost-net does (net_vhost.h); one more
 * serves the control queue (net_control.c).
 */
#ifndef WHELP_VIRTIO_NET_H
#define WHELP_VIRTIO_NET_H

#include <linux/virtio_net.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "devices/net/backend.h"
#include "devices/virtio/device.h"
#include "devices/virtio/net_ctrl.h"
#include "devices/virtio/net_queue.h"
#include "devices/virtio/net_worker.h"

#define NET_CONTROL_RING 64u

struct virtio_net_options {
	const char *name; /* for messages and the workers' threads; borrowed */
	uint8_t mac[6];
	uint16_t mtu; /* 0: not offered */
	uint16_t rx_ring;
	uint16_t tx_ring;
	uint32_t speed; /* Mb/s; with `duplex`, 1 for full, if SPEED_DUPLEX is wanted */
	uint8_t duplex;
	struct net_tuning tuning;
	unsigned guest_cpus;	  /* so that nothing spins where those need all of the host's; 0: unknown */
	pthread_mutex_t *lock;	  /* of all exits, for `tuning.lock`; borrowed; else not used */
	struct virtio_features wanted;	 /* offered, as far as the back end can do them */
	struct virtio_features required; /* of these: without them there is no device */
	bool vhost; /* the kernel's vhost-net moves the frames; the back end is a tap */
};

struct net_vhost;

struct virtio_net {
	struct virtio_device device;
	struct net_backend *backend; /* it has as many queues as the NIC has pairs */
	pthread_mutex_t config_lock;	 /* config.mac, which the control queue changes */
	struct virtio_net_config config; /* but for `status` */
	uint8_t own_mac[6];		 /* config.mac's value after reset */
	atomic_ushort status;
	struct net_vhost *vhost; /* NULL: the pairs' own workers move the frames */
	struct net_pair **pairs;
	struct net_tuning tuning;
	unsigned guest_cpus;
	pthread_mutex_t *lock;
	struct net_worker *workers;
	unsigned worker_count;
	bool costs_known; /* `policy` has them */
	struct mitigate_config policy;
	unsigned pair_count;
	unsigned active_pairs; /* attached to the back end */
	unsigned driver_pairs; /* of these, what the driver's last command asked for */
	struct net_mode mode;

	/* The control queue; all of it the control worker's while that runs. */
	struct net_ctrl ctrl;
	struct worker control;
	struct loop_source control_kick;
	struct virtio_queue *control_queue;
	unsigned control_index;
	bool control_started;
	/* The workers use one of each, the other is free for the next change. */
	struct net_filter filters[2];
	struct net_rss rss[2];
	unsigned filter_in_use;
	unsigned rss_in_use;
};

/*
 * Makes the device over `backend`, which stays the caller's and must outlive it. Logs; 0 or -errno.
 * virtio_net_fini() is fine on a zeroed struct; the transport is gone by then.
 */
int virtio_net_init(struct virtio_net *net, const struct virtio_net_options *options,
		    struct net_backend *backend, const struct mem *mem);
void virtio_net_fini(struct virtio_net *net);

/*
 * Asks the guest to announce itself to its network (GUEST_ANNOUNCE), as after a time in which that
 * may have forgotten it. Does nothing if the driver did not take the feature, or does not run.
 */
void virtio_net_announce(struct virtio_net *net);

/*
 * For net.c: starts and stops the control queue's worker, if the driver has that queue. 0 or
 * -errno.
 */
int net_control_start(struct virtio_net *net);
void net_control_stop(struct virtio_net *net);

/* For net.c and net_control.c: attaches `pairs` pairs to the back end, and no more. 0 or -errno. */
int net_set_pairs(struct virtio_net *net, unsigned pairs);

/*
 * For net.c and net_control.c: the pair of an RX or TX queue; NULL for the control queue and
 * beyond.
 */
struct net_pair *net_pair_of(const struct virtio_net *net, unsigned queue);

/* For net.c and net_control.c: the address in the configuration. */
void net_set_mac(struct virtio_net *net, const uint8_t mac[6]);

/*
 * For net.c and net_vhost.c: the back end is gone for good, and the guest sees its link down. From
 * any thread.
 */
void net_wire_gone(struct virtio_net *net);

/*
 * For net.c and net_control.c: the back end's offloads that these VIRTIO_NET_F_GUEST_* bits ask
 * for.
 */
unsigned net_offloads(const struct virtio_features *guest);

#endif
