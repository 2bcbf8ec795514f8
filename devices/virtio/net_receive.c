/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RX: a frame is read straight into the next buffers (net_rx.c), looked at where features want
 * that, and used. Kicks are off; only when frames wait and the guest has no buffer are they asked
 * for, and the back end is not looked at until one comes.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/virtio_net.h>
#include <stddef.h>

#include "devices/virtio/net_pair.h"
#include "vmm/le.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

/* What a frame is, by its header (5.1.6.4). */
static unsigned offloads_of(uint8_t flags, uint8_t gso_type)
{
	const uint8_t tunnel =
		VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6;
	unsigned offloads = 0;

	if (flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		offloads |= NET_OFFLOAD_CSUM;
	if (flags & VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM)
		offloads |= NET_OFFLOAD_TUNNEL_CSUM;
	if (gso_type & VIRTIO_NET_HDR_GSO_ECN)
		offloads |= NET_OFFLOAD_ECN;
	if (gso_type & tunnel)
		offloads |= NET_OFFLOAD_TUNNEL;
	switch (gso_type & ~(VIRTIO_NET_HDR_GSO_ECN | tunnel)) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return offloads;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		return offloads | NET_OFFLOAD_TSO4;
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return offloads | NET_OFFLOAD_TSO6;
	case VIRTIO_NET_HDR_GSO_UDP:
		return offloads | NET_OFFLOAD_UFO;
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return offloads | NET_OFFLOAD_USO;
	}
	return UINT_MAX;
}

/*
 * Whether the driver takes the frame in the first buffers. Without GUEST_CSUM, flags are zero
 * (5.1.6.4.1).
 */
static bool check_header(struct net_pair *pair)
{
	uint8_t kind[2] = { 0 }; /* flags and gso_type, as they come */
	const uint8_t no_flags = 0;

	static_assert(offsetof(struct virtio_net_hdr_v1, flags) == 0 &&
			      offsetof(struct virtio_net_hdr_v1, gso_type) == 1,
		      "they come first");
	net_rx_peek(&pair->receiver, 0, kind, sizeof(kind));
	if (offloads_of(kind[0], kind[1]) & ~pair->offloads)
		return false;
	if (kind[0] && !(pair->offloads & NET_OFFLOAD_CSUM))
		net_rx_poke(&pair->receiver, 0, &no_flags, sizeof(no_flags));
	return true;
}

/* What HASH_REPORT adds to the header (5.1.6.4.3). */
struct hash_fields {
	le32 value;
	le16 report;
	le16 padding;
};

static void report_hash(struct net_pair *pair, const uint8_t *frame, size_t len)
{
	struct net_hash hash = net_hash_frame(pair->rss, frame, len);
	const struct hash_fields fields = { .value = { hash.value }, .report = { hash.report } };

	net_rx_poke(&pair->receiver, sizeof(struct virtio_net_hdr_v1), &fields, sizeof(fields));
}

/* Looks at a received frame where features want that; false when the driver does not want it. */
static bool inspect(struct net_pair *pair, size_t len)
{
	uint8_t frame[NET_HASH_BYTES];
	size_t have;

	if (pair->filter->pass_all && !pair->mode.hash_report)
		return true;
	have = net_rx_peek(&pair->receiver, pair->mode.header, frame,
			   MIN(sizeof(frame), len - pair->mode.header));
	if (!net_filter_accepts(pair->filter, frame, have)) {
		net_count(&pair->rx.counters.filtered, 1);
		return false;
	}
	if (pair->mode.hash_report)
		report_hash(pair, frame, have);
	return true;
}

/* Takes a frame that lies in the first buffers; true when they are used. */
static bool take_frame(struct net_pair *pair, size_t len)
{
	if (len < pair->mode.header + NET_MIN_FRAME) {
		net_queue_drop(&pair->rx, NET_DROP_SHORT);
		return false;
	}
	if (pair->check_header && !check_header(pair)) {
		net_queue_drop(&pair->rx, NET_DROP_OFFLOAD);
		return false;
	}
	if (!inspect(pair, len))
		return false;
	net_rx_use(&pair->receiver, len);
	return true;
}

/* Frames wait, and there is no buffer: asks for a kick. True when one came just now. */
static bool wait_for_buffers(struct net_queue *rx)
{
	if (vq_kicks_enable(&rx->queue->vq)) {
		vq_kicks_disable(&rx->queue->vq);
		return true;
	}
	rx->blocked = true;
	net_count(&rx->counters.waits, 1);
	net_queue_update_wire(rx);
	return false;
}

bool net_queue_receive(struct net_queue *rx)
{
	struct net_pair *pair = rx->pair;
	enum net_rx_result result = NET_RX_LOST;
	struct net_moved moved = { 0 };
	uint64_t bytes = 0;

	while (moved.frames < rx->budget_packets && bytes < rx->budget_bytes) {
		ssize_t len = 0;
		bool good;

		result = net_rx_receive(&pair->receiver, &len);
		if (result != NET_RX_FRAME && result != NET_RX_LOST) {
			if (result == NET_RX_ERROR)
				net_queue_wire_failed(rx, "receiving from", (int)-len);
			break;
		}
		if (!moved.frames)
			net_queue_first(rx);
		bytes += (size_t)len;
		good = result == NET_RX_FRAME && take_frame(pair, (size_t)len);
		if (good)
			net_queue_used(rx);
		if (result == NET_RX_LOST)
			net_queue_drop(rx, NET_DROP_ROOM);
		net_moved_add(&moved, good, (size_t)len);
	}
	net_queue_finish_batch(rx, &moved);
	if (result == NET_RX_FAULT)
		net_queue_failed(rx);
	if (result == NET_RX_STARVED)
		return wait_for_buffers(rx);
	return result == NET_RX_FRAME || result == NET_RX_LOST;
}

void net_receive_kicked(struct loop_source *source, uint32_t events)
{
	struct net_queue *rx = container_of(source, struct net_queue, kick);

	(void)events;
	net_queue_take_kicks(rx);
	rx->blocked = false;
	net_queue_activate(rx);
	net_queue_update_wire(rx);
	net_worker_run(rx->worker);
}

/* An error is found by reading. */
void net_receive_frames(struct loop_source *source, uint32_t events)
{
	struct net_queue *rx = container_of(source, struct net_queue, wire);

	(void)events;
	/* What a spin looks for is work. */
	if (rx->spinning)
		rx->active = true;
	else if (net_queue_usable(rx) && !rx->active)
		net_queue_ask(rx, MITIGATE_KICKED, false);
	net_worker_run(rx->worker);
	net_queue_update_wire(rx);
}
