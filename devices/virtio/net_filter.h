/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which received frames the driver wants, as the control queue's RX modes, MAC table, MAC address
 * and VLAN filter say (virtio 1.3, 5.1.6.5.1 to 5.1.6.5.3). Pure: no clock, no lock, no memory but
 * its own.
 *
 * A filter is immutable once a worker has it; the control queue changes a copy and swaps.
 */
#ifndef WHELP_VIRTIO_NET_FILTER_H
#define WHELP_VIRTIO_NET_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of each kind; a longer table lets all of its kind through, as the specification allows. */
#define NET_FILTER_TABLE 64u
#define NET_FILTER_VLANS 4096u

/* As many bytes of a frame, from the Ethernet header on, as a decision takes. */
#define NET_FILTER_BYTES 18u

struct net_filter_table {
	uint8_t macs[NET_FILTER_TABLE][6];
	unsigned count;
	bool overflow;
};

struct net_filter {
	uint8_t mac[6];
	bool promisc; /* everything passes, whatever the rest says, VLANs too */
	bool allmulti;
	bool alluni;
	bool nomulti; /* the three no... win over the two all... */
	bool nouni;
	bool nobcast;
	struct net_filter_table unicast;
	struct net_filter_table multicast;
	bool vlan_filtering; /* CTRL_VLAN was negotiated: only VLANs that were added pass */
	uint64_t vlans[NET_FILTER_VLANS / 64];
	bool pass_all; /* nothing to look at: kept by net_filter_update() */
};

/*
 * The state after reset. `rx_control` and `vlan` say whether CTRL_RX and CTRL_VLAN were negotiated.
 * With CTRL_RX it is promiscuous until the driver says otherwise; without, any address passes for
 * good. With CTRL_VLAN no VLAN is in the table, which counts as soon as the filter is not
 * promiscuous.
 */
void net_filter_init(struct net_filter *filter, const uint8_t mac[6], bool rx_control, bool vlan);

/* To be called after any change of the fields. */
void net_filter_update(struct net_filter *filter);

/* `id` is below NET_FILTER_VLANS. */
void net_filter_set_vlan(struct net_filter *filter, unsigned id, bool pass);

/*
 * Whether a frame that begins with these bytes passes; fewer than NET_FILTER_BYTES only if it is
 * shorter. What is too short for an Ethernet header passes only where everything does.
 */
bool net_filter_accepts(const struct net_filter *filter, const uint8_t *frame, size_t len);

#endif
