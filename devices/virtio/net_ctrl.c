/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A table names every command with the feature that brings it; what is not there, or not
 * negotiated, is an error. A command reads what it needs from the driver's bytes, wherever they are
 * split, checks all of it, and only then calls the device: one that fails leaves everything as it
 * was.
 *
 * Changes of the filter are made in a copy that replaces the old one when the device has taken it.
 */
#include "devices/virtio/net_ctrl.h"

#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <string.h>

#include "devices/virtio/net_ctrl_command.h"
#include "vmm/iov.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

bool net_ctrl_data(const struct net_ctrl_command *command, size_t offset, void *data, size_t len)
{
	return iov_read(command->out, command->out_count,
			sizeof(struct virtio_net_ctrl_hdr) + offset, data, len) == len;
}

void net_ctrl_reply(struct net_ctrl_command *command, const void *data, size_t len)
{
	command->replied += iov_write(command->in, command->in_count,
				      sizeof(virtio_net_ctrl_ack) + command->replied, data, len);
}

unsigned net_ctrl_pairs(const struct net_ctrl *ctrl)
{
	if (virtio_has(&ctrl->features, VIRTIO_NET_F_MQ) ||
	    virtio_has(&ctrl->features, VIRTIO_NET_F_RSS))
		return ctrl->max_pairs;
	return 1;
}

static bool set_filter(struct net_ctrl *ctrl, struct net_filter *filter)
{
	net_filter_update(filter);
	if (!ctrl->ops->set_filter(ctrl->ctx, filter))
		return false;
	ctrl->filter = *filter;
	return true;
}

/* ---- class RX: each command sets one flag ---------------------------------------------------- */

/* Any value but 0 is on, as Linux's header says. */
static bool set_mode(struct net_ctrl_command *command, size_t flag)
{
	struct net_filter filter = command->ctrl->filter;
	uint8_t value;

	if (!net_ctrl_data(command, 0, &value, sizeof(value)))
		return false;
	*(bool *)((char *)&filter + flag) = value != 0;
	return set_filter(command->ctrl, &filter);
}

static bool rx_promisc(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, promisc));
}

static bool rx_allmulti(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, allmulti));
}

static bool rx_alluni(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, alluni));
}

static bool rx_nomulti(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, nomulti));
}

static bool rx_nouni(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, nouni));
}

static bool rx_nobcast(struct net_ctrl_command *command)
{
	return set_mode(command, offsetof(struct net_filter, nobcast));
}

/* ---- class MAC ------------------------------------------------------------------------------- */

/*
 * Reads a table at *offset and moves that behind it. A count that the data has no room for fails.
 */
static bool read_macs(const struct net_ctrl_command *command, size_t *offset,
		      struct net_filter_table *table)
{
	uint32_t entries;

	if (!net_ctrl_data(command, *offset, &entries, sizeof(entries)))
		return false;
	*offset += sizeof(entries);
	if (entries > (command->len - *offset) / ETH_ALEN)
		return false;
	table->overflow = entries > NET_FILTER_TABLE;
	table->count = table->overflow ? 0 : entries;
	if (!net_ctrl_data(command, *offset, table->macs, table->count * ETH_ALEN))
		return false;
	*offset += (size_t)entries * ETH_ALEN;
	return true;
}

static bool mac_table_set(struct net_ctrl_command *command)
{
	struct net_filter filter = command->ctrl->filter;
	size_t offset = 0;

	if (!read_macs(command, &offset, &filter.unicast) ||
	    !read_macs(command, &offset, &filter.multicast))
		return false;
	return set_filter(command->ctrl, &filter);
}

static bool mac_addr_set(struct net_ctrl_command *command)
{
	struct net_filter filter = command->ctrl->filter;

	if (!net_ctrl_data(command, 0, filter.mac, sizeof(filter.mac)))
		return false;
	return set_filter(command->ctrl, &filter);
}

/* ---- class VLAN ------------------------------------------------------------------------------ */

static bool set_vlan(struct net_ctrl_command *command, bool pass)
{
	struct net_filter filter = command->ctrl->filter;
	uint16_t id;

	if (!net_ctrl_data(command, 0, &id, sizeof(id)) || id >= NET_FILTER_VLANS)
		return false;
	net_filter_set_vlan(&filter, id, pass);
	return set_filter(command->ctrl, &filter);
}

static bool vlan_add(struct net_ctrl_command *command)
{
	return set_vlan(command, true);
}

static bool vlan_del(struct net_ctrl_command *command)
{
	return set_vlan(command, false);
}

/* ---- classes ANNOUNCE and MQ ----------------------------------------------------------------- */

static bool announce_ack(struct net_ctrl_command *command)
{
	return command->ctrl->ops->announced(command->ctrl->ctx);
}

static bool pairs_set(struct net_ctrl_command *command)
{
	uint16_t pairs;

	if (!net_ctrl_data(command, 0, &pairs, sizeof(pairs)) || !pairs ||
	    pairs > command->ctrl->max_pairs)
		return false;
	return command->ctrl->ops->set_pairs(command->ctrl->ctx, pairs);
}

/* ---- class GUEST_OFFLOADS -------------------------------------------------------------------- */

#define BIT(name) (1ull << VIRTIO_NET_F_GUEST_##name)

#define TSO (BIT(TSO4) | BIT(TSO6))
#define USO (BIT(USO4) | BIT(USO6))

/*
 * An offload's bit, its feature's, and what it requires: one of these. Linux counts GUEST_HDRLEN
 * among the offloads. A tunnel has nothing to segment without a segmentation inside.
 */
static const struct {
	unsigned bit;
	unsigned feature;
	uint64_t requires;
} offloads_known[] = {
	/* Ordered so that what is required comes first. */
	{ VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_CSUM, 0 },
	{ VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO4, BIT(CSUM) },
	{ VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_TSO6, BIT(CSUM) },
	{ VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_ECN, TSO },
	{ VIRTIO_NET_F_GUEST_UFO, VIRTIO_NET_F_GUEST_UFO, BIT(CSUM) },
	{ VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO4, BIT(CSUM) },
	{ VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_GUEST_USO6, BIT(CSUM) },
	{ VIRTIO_NET_F_GUEST_HDRLEN, VIRTIO_NET_F_GUEST_HDRLEN, 0 },
	{ VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, TSO | USO },
	{ VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM,
	  BIT(UDP_TUNNEL_GSO_MAPPED) },
};

/*
 * Only an offload that was not negotiated is an error (5.1.6.5.8). One without what it requires is
 * nothing that the device could use: a driver that switches GUEST_CSUM off takes no TSO either.
 */
static bool offloads_set(struct net_ctrl_command *command)
{
	struct net_ctrl *ctrl = command->ctrl;
	uint64_t asked, allowed = 0, usable = 0;

	if (!net_ctrl_data(command, 0, &asked, sizeof(asked)))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(offloads_known); i++) {
		uint64_t bit = 1ull << offloads_known[i].bit;
		uint64_t requires = offloads_known[i].requires;

		if (virtio_has(&ctrl->features, offloads_known[i].feature))
			allowed |= bit;
		if ((asked & bit) && (!requires || (usable & requires)))
			usable |= bit;
	}
	if (asked & ~allowed)
		return false;
	return ctrl->ops->set_offloads(ctrl->ctx, usable);
}

/* ---- class NOTF_COAL ------------------------------------------------------------------------- */

static bool read_coalescing(const struct net_ctrl_command *command, size_t offset,
			    struct net_coalescing *coalescing)
{
	uint32_t raw[2];

	if (!net_ctrl_data(command, offset, raw, sizeof(raw)))
		return false;
	coalescing->max_packets = raw[0];
	coalescing->max_usecs = raw[1];
	return true;
}

static bool set_coalescing(struct net_ctrl_command *command, bool rx)
{
	struct net_coalescing coalescing;

	if (!read_coalescing(command, 0, &coalescing))
		return false;
	return command->ctrl->ops->set_coalescing(command->ctrl->ctx, rx, &coalescing);
}

static bool coalescing_tx_set(struct net_ctrl_command *command)
{
	return set_coalescing(command, false);
}

static bool coalescing_rx_set(struct net_ctrl_command *command)
{
	return set_coalescing(command, true);
}

/* The control queue has no coalescing. */
static bool read_queue(const struct net_ctrl_command *command, uint16_t *queue)
{
	return net_ctrl_data(command, 0, queue, sizeof(*queue)) &&
	       *queue < 2 * net_ctrl_pairs(command->ctrl);
}

static bool coalescing_vq_set(struct net_ctrl_command *command)
{
	struct net_coalescing coalescing;
	uint16_t queue;

	if (!read_queue(command, &queue) || !read_coalescing(command, 4, &coalescing))
		return false;
	return command->ctrl->ops->set_queue_coalescing(command->ctrl->ctx, queue, &coalescing);
}

/* The data is the queue's index alone: its reserved part, which we ignore, may be left out. */
static bool coalescing_vq_get(struct net_ctrl_command *command)
{
	struct net_ctrl *ctrl = command->ctrl;
	struct net_coalescing coalescing;
	uint32_t raw[2];
	uint16_t queue;

	if (!read_queue(command, &queue) || command->room < sizeof(raw) ||
	    !ctrl->ops->get_queue_coalescing(ctrl->ctx, queue, &coalescing))
		return false;
	raw[0] = coalescing.max_packets;
	raw[1] = coalescing.max_usecs;
	net_ctrl_reply(command, raw, sizeof(raw));
	return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct {
	uint8_t class, code;
	uint8_t feature;
	bool (*run)(struct net_ctrl_command *command);
} commands[] = {
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_F_CTRL_RX, rx_promisc },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, VIRTIO_NET_F_CTRL_RX, rx_allmulti },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLUNI, VIRTIO_NET_F_CTRL_RX_EXTRA, rx_alluni },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOMULTI, VIRTIO_NET_F_CTRL_RX_EXTRA, rx_nomulti },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOUNI, VIRTIO_NET_F_CTRL_RX_EXTRA, rx_nouni },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOBCAST, VIRTIO_NET_F_CTRL_RX_EXTRA, rx_nobcast },
	{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_F_CTRL_RX, mac_table_set },
	{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_F_CTRL_MAC_ADDR,
	  mac_addr_set },
	{ VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, VIRTIO_NET_F_CTRL_VLAN, vlan_add },
	{ VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_DEL, VIRTIO_NET_F_CTRL_VLAN, vlan_del },
	{ VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK, VIRTIO_NET_F_GUEST_ANNOUNCE,
	  announce_ack },
	{ VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_F_MQ, pairs_set },
	{ VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, VIRTIO_NET_F_RSS,
	  net_ctrl_rss_config },
	{ VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_HASH_CONFIG, VIRTIO_NET_F_HASH_REPORT,
	  net_ctrl_hash_config },
	{ VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
	  VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, offloads_set },
	{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_TX_SET, VIRTIO_NET_F_NOTF_COAL,
	  coalescing_tx_set },
	{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, VIRTIO_NET_F_NOTF_COAL,
	  coalescing_rx_set },
	{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, VIRTIO_NET_F_VQ_NOTF_COAL,
	  coalescing_vq_set },
	{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, VIRTIO_NET_F_VQ_NOTF_COAL,
	  coalescing_vq_get },
	{ VIRTIO_NET_CTRL_STATS, VIRTIO_NET_CTRL_STATS_QUERY, VIRTIO_NET_F_DEVICE_STATS,
	  net_ctrl_stats_query },
	{ VIRTIO_NET_CTRL_STATS, VIRTIO_NET_CTRL_STATS_GET, VIRTIO_NET_F_DEVICE_STATS,
	  net_ctrl_stats_get },
};

static bool run(struct net_ctrl_command *command)
{
	struct virtio_net_ctrl_hdr hdr;
	size_t total = iov_total(command->out, command->out_count);

	if (iov_read(command->out, command->out_count, 0, &hdr, sizeof(hdr)) < sizeof(hdr))
		return false;
	command->len = total - sizeof(hdr);
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].class == hdr.class && commands[i].code == hdr.cmd)
			return virtio_has(&command->ctrl->features, commands[i].feature) &&
			       commands[i].run(command);
	return false;
}

void net_ctrl_init(struct net_ctrl *ctrl, const struct net_ctrl_ops *ops, void *ctx,
		   const struct virtio_features *features, unsigned max_pairs, const uint8_t mac[6])
{
	memset(ctrl, 0, sizeof(*ctrl));
	ctrl->ops = ops;
	ctrl->ctx = ctx;
	ctrl->features = *features;
	ctrl->max_pairs = max_pairs;
	ctrl->hash_types = NET_HASH_TYPES;
	net_filter_init(&ctrl->filter, mac, virtio_has(features, VIRTIO_NET_F_CTRL_RX),
			virtio_has(features, VIRTIO_NET_F_CTRL_VLAN));
}

uint32_t net_ctrl_execute(struct net_ctrl *ctrl, const struct iovec *out, unsigned out_count,
			  const struct iovec *in, unsigned in_count)
{
	struct net_ctrl_command command = {
		.ctrl = ctrl,
		.out = out,
		.out_count = out_count,
		.in = in,
		.in_count = in_count,
		.room = iov_total(in, in_count),
	};
	virtio_net_ctrl_ack ack = VIRTIO_NET_ERR;

	if (command.room < sizeof(ack))
		return 0;
	command.room -= sizeof(ack);
	ctrl->commands++;
	if (run(&command)) {
		ctrl->commands_ok++;
		ack = VIRTIO_NET_OK;
	} else {
		command.replied = 0;
	}
	iov_write(in, in_count, 0, &ack, sizeof(ack));
	return sizeof(ack) + command.replied;
}
