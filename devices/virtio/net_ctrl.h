/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commands of the control virtqueue (virtio 1.3, 5.1.6.5): decoding and validation. What a command
 * does to the device is behind an ops table, so that this part needs no device to be tested.
 */
#ifndef WHELP_VIRTIO_NET_CTRL_H
#define WHELP_VIRTIO_NET_CTRL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/virtio/net_filter.h"
#include "devices/virtio/net_hash.h"
#include "devices/virtio/virtio.h"

/* When to interrupt for used buffers: after this many, or this long after the first (5.1.6.5.9). */
struct net_coalescing {
	uint32_t max_packets;
	uint32_t max_usecs;
};

/* What DEVICE_STATS tells of a queue. */
struct net_ctrl_queue_stats {
	uint64_t notifications;
	uint64_t packets;
	uint64_t bytes;
	uint64_t interrupts;
	uint64_t drops;
	uint64_t drops_of_kind; /* RX: overruns. TX: malformed */
};

/* As many queues as one STATS_GET may ask for: far more than there are, and a bound on the work. */
#define NET_CTRL_STATS_MAX 256u

/* One of STATS_GET's requests, and one of its replies, as they are in guest memory. */
struct net_ctrl_stats_request {
	uint16_t vq_index;
	uint16_t reserved[3];
	uint64_t types;
};

struct net_ctrl_stats_reply {
	uint8_t type; /* the number of the request's bit */
	uint8_t reserved;
	uint16_t vq_index;
	uint16_t reserved1;
	uint16_t size; /* of the whole: fewer counters for the control queue */
	uint64_t counters[6];
};

/* Each returns true for VIRTIO_NET_OK, else VIRTIO_NET_ERR; called with checked values only. */
struct net_ctrl_ops {
	/* The filter, changed. To be copied. */
	bool (*set_filter)(void *ctx, const struct net_filter *filter);
	/* So many pairs, with automatic steering: RSS ends, hash reports stay as they are. */
	bool (*set_pairs)(void *ctx, unsigned pairs);
	/*
	 * RSS_CONFIG (`rss->steering`): `pairs` are as many as the transmit queues, the table and
	 * the unclassified queue take. HASH_CONFIG (not): types and key only, steering becomes
	 * automatic, and `pairs` is 0, for as many as before. To be copied.
	 */
	bool (*set_rss)(void *ctx, const struct net_rss *rss, unsigned pairs);
	/*
	 * What may be passed to the driver, as bits VIRTIO_NET_F_GUEST_* (_MAPPED for those above
	 * 63): of what it asked for, the offloads that have what they require (5.1.3.1).
	 * GUEST_HDRLEN may be among them and means nothing here.
	 */
	bool (*set_offloads)(void *ctx, uint64_t offloads);
	bool (*announced)(void *ctx);
	/* For all RX (`rx`) or TX queues, and those enabled later. */
	bool (*set_coalescing)(void *ctx, bool rx, const struct net_coalescing *coalescing);
	/* Of one RX or TX queue, by its index; false when it is not enabled. */
	bool (*set_queue_coalescing)(void *ctx, unsigned queue, const struct net_coalescing *c);
	bool (*get_queue_coalescing)(void *ctx, unsigned queue, struct net_coalescing *c);
	/* Of one RX or TX queue; false when it has no statistics. */
	bool (*get_stats)(void *ctx, unsigned queue, struct net_ctrl_queue_stats *stats);
};

struct net_ctrl {
	const struct net_ctrl_ops *ops;
	void *ctx;
	/* Negotiated: a command whose feature is not among them is refused. */
	struct virtio_features features;
	unsigned max_pairs;	  /* of the device; 1 counts unless MQ or RSS was negotiated */
	uint32_t hash_types;	  /* that the device offers: all that net_hash.h knows, or fewer */
	struct net_filter filter; /* as the driver has set it */
	uint64_t commands;	  /* these two wrap */
	uint64_t commands_ok;
};

/*
 * At DRIVER_OK. `mac` is the device's own address. A device that offers fewer hash types says so in
 * `hash_types` afterwards.
 */
void net_ctrl_init(struct net_ctrl *ctrl, const struct net_ctrl_ops *ops, void *ctx,
		   const struct virtio_features *features, unsigned max_pairs,
		   const uint8_t mac[6]);

/*
 * Runs one command: the driver's bytes in `out`; in `in` room for the ack, which is the first byte,
 * and for the result of a command that has one, behind it (5.1.6.5). Both may change under our
 * hands: every field is copied once. Returns the number of bytes written to `in` from its start: 1
 * for the ack alone, 0 when there is no room for it, and then nothing was done.
 *
 * The ack is VIRTIO_NET_ERR for whatever is unknown, not negotiated, too short, or out of range; it
 * has no effect then. Bytes beyond what a command takes are ignored.
 */
uint32_t net_ctrl_execute(struct net_ctrl *ctrl, const struct iovec *out, unsigned out_count,
			  const struct iovec *in, unsigned in_count);

#endif
