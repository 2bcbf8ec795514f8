/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The needs are those that the specification lists (5.1.3.1), and a few that follow from it: an
 * announcement is asked for in the field that `status` brings, and what is set up or read by
 * commands needs their queue.
 */
#include "vmm/net_features.h"

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <stddef.h>
#include <string.h>

#include "vmm/linux_new.h"
#include "vmm/util.h"

#define ON     NET_FEATURE_ON
#define OFF    NET_FEATURE_OFF
#define ALWAYS NET_FEATURE_ALWAYS
#define F(x)   VIRTIO_NET_F_##x

#define COUNT(...)     sizeof((const unsigned char[]){ __VA_ARGS__ })
#define NEEDS(...)     COUNT(__VA_ARGS__), false, { __VA_ARGS__ }
#define NEEDS_ANY(...) COUNT(__VA_ARGS__), true, { __VA_ARGS__ }
#define NO_NEED	       0, false, { 0 }

const struct net_feature net_features[] = {
	{ "csum", F(CSUM), "the guest may send frames with checksums still to be filled in", ON,
	  NO_NEED },
	{ "guest_csum", F(GUEST_CSUM),
	  "the guest takes frames with checksums still to be filled in", ON, NO_NEED },
	{ "ctrl_guest_offloads", F(CTRL_GUEST_OFFLOADS),
	  "the guest switches its receive offloads while it runs", ON, NEEDS(F(CTRL_VQ)) },
	{ "mtu", F(MTU), "the guest is told its MTU; only with mtu=N", ON, NO_NEED },
	{ "mac", F(MAC), "the guest is told its address, or else it makes one up", ON, NO_NEED },
	{ "guest_tso4", F(GUEST_TSO4), "the guest takes TCP over IPv4 in frames of up to 64 KiB",
	  ON, NEEDS(F(GUEST_CSUM)) },
	{ "guest_tso6", F(GUEST_TSO6), "the guest takes TCP over IPv6 in frames of up to 64 KiB",
	  ON, NEEDS(F(GUEST_CSUM)) },
	{ "guest_ecn", F(GUEST_ECN), "the guest takes such TCP frames with ECN's bits set, too", ON,
	  NEEDS_ANY(F(GUEST_TSO4), F(GUEST_TSO6)) },
	{ "guest_ufo", F(GUEST_UFO), "the guest takes large UDP datagrams not yet fragmented", ON,
	  NEEDS(F(GUEST_CSUM)) },
	{ "host_tso4", F(HOST_TSO4), "the guest may send TCP over IPv4 in frames of up to 64 KiB",
	  ON, NEEDS(F(CSUM)) },
	{ "host_tso6", F(HOST_TSO6), "the guest may send TCP over IPv6 in frames of up to 64 KiB",
	  ON, NEEDS(F(CSUM)) },
	{ "host_ecn", F(HOST_ECN), "the guest may send such TCP frames with ECN's bits set, too",
	  ON, NEEDS_ANY(F(HOST_TSO4), F(HOST_TSO6)) },
	{ "host_ufo", F(HOST_UFO), "the guest may send large UDP datagrams not yet fragmented", ON,
	  NEEDS(F(CSUM)) },
	{ "mrg_rxbuf", F(MRG_RXBUF), "a received frame may fill several of the guest's buffers", ON,
	  NO_NEED },
	{ "status", F(STATUS), "the guest is told whether the link is up", ON, NO_NEED },
	{ "ctrl_vq", F(CTRL_VQ), "the queue for the guest's commands, which others here need", ON,
	  NO_NEED },
	{ "ctrl_rx", F(CTRL_RX), "promiscuous and all-multicast mode, and a table of addresses", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "ctrl_vlan", F(CTRL_VLAN), "the guest says which VLANs it receives", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "ctrl_rx_extra", F(CTRL_RX_EXTRA),
	  "modes for all unicast, no multicast, no unicast, no broadcast", ON, NEEDS(F(CTRL_VQ)) },
	{ "guest_announce", F(GUEST_ANNOUNCE),
	  "the guest announces its address when it is asked to", ON, NEEDS(F(STATUS), F(CTRL_VQ)) },
	{ "mq", F(MQ), "several queue pairs; only with queues=N above 1, or +mq", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "ctrl_mac_addr", F(CTRL_MAC_ADDR), "the guest sets its address by a command", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "indirect_desc", VIRTIO_RING_F_INDIRECT_DESC,
	  "a buffer's descriptors may stand in a table outside of the ring", ON, NO_NEED },
	{ "event_idx", VIRTIO_RING_F_EVENT_IDX,
	  "kicks and interrupts are asked for by position in the ring", ON, NO_NEED },
	{ "version_1", VIRTIO_F_VERSION_1, "the device is one of virtio 1: always on", ALWAYS,
	  NO_NEED },
	{ "access_platform", VIRTIO_F_ACCESS_PLATFORM,
	  "the guest's driver gets its addresses from its DMA layer", OFF, NO_NEED },
	{ "ring_packed", VIRTIO_F_RING_PACKED, "packed rings instead of split ones", OFF, NO_NEED },
	{ "in_order", VIRTIO_F_IN_ORDER, "buffers come back in the order they were given", OFF,
	  NO_NEED },
	{ "order_platform", VIRTIO_F_ORDER_PLATFORM,
	  "the guest's driver uses the barriers that real devices need", OFF, NO_NEED },
	{ "notification_data", VIRTIO_F_NOTIFICATION_DATA,
	  "a kick carries the guest's position in the ring", OFF, NO_NEED },
	{ "ring_reset", VIRTIO_F_RING_RESET, "the guest resets and resizes single queues", ON,
	  NO_NEED },
	{ "device_stats", F(DEVICE_STATS), "the guest reads the device's counters", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "vq_notf_coal", F(VQ_NOTF_COAL),
	  "the guest sets for each queue how interrupts are merged", ON, NEEDS(F(CTRL_VQ)) },
	{ "notf_coal", F(NOTF_COAL), "the guest sets how interrupts are merged", ON,
	  NEEDS(F(CTRL_VQ)) },
	{ "guest_uso4", F(GUEST_USO4), "the guest takes UDP over IPv4 not yet segmented", ON,
	  NEEDS(F(GUEST_CSUM)) },
	{ "guest_uso6", F(GUEST_USO6), "the guest takes UDP over IPv6 not yet segmented", ON,
	  NEEDS(F(GUEST_CSUM)) },
	{ "host_uso", F(HOST_USO), "the guest may send UDP not yet segmented", ON, NEEDS(F(CSUM)) },
	{ "hash_report", F(HASH_REPORT), "received frames come with a hash of their flow", OFF,
	  NEEDS(F(CTRL_VQ)) },
	{ "guest_hdrlen", F(GUEST_HDRLEN), "the guest says exactly how long a frame's headers are",
	  ON, NO_NEED },
	{ "rss", F(RSS), "the guest chooses pairs by hash", OFF,
	  NEEDS(F(CTRL_VQ)) },
	{ "speed_duplex", F(SPEED_DUPLEX),
	  "the guest is told the link's speed; only with speed=N or duplex=", ON, NO_NEED },
	{ "guest_udp_tunnel_gso", F(GUEST_UDP_TUNNEL_GSO),
	  "the guest takes large TCP and UDP inside of UDP tunnels", ON,
	  NEEDS(F(GUEST_TSO4), F(GUEST_TSO6), F(GUEST_USO4), F(GUEST_USO6)) },
	{ "guest_udp_tunnel_gso_csum", F(GUEST_UDP_TUNNEL_GSO_CSUM),
	  "the same, with the tunnel's checksum to be filled in", ON,
	  NEEDS(F(GUEST_UDP_TUNNEL_GSO)) },
	{ "host_udp_tunnel_gso", F(HOST_UDP_TUNNEL_GSO),
	  "the guest may send large TCP and UDP inside of UDP tunnels", ON,
	  NEEDS(F(HOST_TSO4), F(HOST_TSO6), F(HOST_USO)) },
	{ "host_udp_tunnel_gso_csum", F(HOST_UDP_TUNNEL_GSO_CSUM),
	  "the same, with the tunnel's checksum to be filled in", ON,
	  NEEDS(F(HOST_UDP_TUNNEL_GSO)) },
};

const unsigned net_feature_count = ARRAY_SIZE(net_features);

const struct net_feature *net_feature_find(const char *name)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(net_features); i++) {
		if (!strcmp(net_features[i].name, name))
			return &net_features[i];
	}
	return NULL;
}

const struct net_feature *net_feature_of(unsigned bit)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(net_features); i++) {
		if (net_features[i].bit == bit)
			return &net_features[i];
	}
	return NULL;
}

static bool met(const struct net_feature *feature, const uint32_t words[NET_FEATURE_WORDS],
		unsigned *missing)
{
	unsigned i, lacking = 0;

	for (i = 0; i < feature->need_count; i++) {
		if (!net_features_have(words, feature->needs[i]) && !lacking++)
			*missing = feature->needs[i];
	}
	return feature->any ? lacking < feature->need_count : !lacking;
}

const struct net_feature *net_features_unmet(const uint32_t words[NET_FEATURE_WORDS],
					     unsigned *missing)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(net_features); i++) {
		if (net_features_have(words, net_features[i].bit) &&
		    !met(&net_features[i], words, missing))
			return &net_features[i];
	}
	return NULL;
}

void net_features_close(uint32_t words[NET_FEATURE_WORDS])
{
	const struct net_feature *feature;
	unsigned missing;

	while ((feature = net_features_unmet(words, &missing)))
		net_features_remove(words, feature->bit);
}
