/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two questions, both to be answered yes: is the frame's VLAN wanted, and is its destination? A
 * filter through which everything passes, the usual one under a bridge, is known beforehand and
 * asks neither.
 *
 * The VLAN question is for 802.1Q tags only. Drivers add the ids of those; an 802.1ad service tag
 * (0x88a8) has an id space of its own, which nobody could add. Id 0 is a priority without a VLAN
 * and passes.
 */
#include "devices/virtio/net_filter.h"

#include <linux/if_ether.h>
#include <string.h>

void net_filter_init(struct net_filter *filter, const uint8_t mac[6], bool rx_control, bool vlan)
{
	memset(filter, 0, sizeof(*filter));
	memcpy(filter->mac, mac, sizeof(filter->mac));
	filter->promisc = rx_control;
	filter->alluni = !rx_control;
	filter->allmulti = !rx_control;
	filter->vlan_filtering = vlan;
	net_filter_update(filter);
}

static bool passes_all(const struct net_filter_table *table, bool all, bool none)
{
	return (all || table->overflow) && !none;
}

void net_filter_update(struct net_filter *filter)
{
	filter->pass_all = filter->promisc ||
			   (!filter->vlan_filtering && !filter->nobcast &&
			    passes_all(&filter->unicast, filter->alluni, filter->nouni) &&
			    passes_all(&filter->multicast, filter->allmulti, filter->nomulti));
}

void net_filter_set_vlan(struct net_filter *filter, unsigned id, bool pass)
{
	uint64_t bit = 1ull << id % 64;

	if (pass)
		filter->vlans[id / 64] |= bit;
	else
		filter->vlans[id / 64] &= ~bit;
}

static uint16_t load_be16(const uint8_t *p)
{
	return p[0] << 8 | p[1];
}

static bool accepts_vlan(const struct net_filter *filter, const uint8_t *frame, size_t len)
{
	unsigned id;

	if (!filter->vlan_filtering || load_be16(frame + 12) != ETH_P_8021Q)
		return true;
	if (len < ETH_HLEN + 2)
		return false;
	id = load_be16(frame + ETH_HLEN) & 0xfff;
	return !id || (filter->vlans[id / 64] >> id % 64 & 1);
}

static bool in_table(const struct net_filter_table *table, const uint8_t *mac)
{
	for (unsigned i = 0; i < table->count; i++)
		if (!memcmp(table->macs[i], mac, ETH_ALEN))
			return true;
	return false;
}

static bool accepts_address(const struct net_filter *filter, const uint8_t *mac)
{
	static const uint8_t broadcast[ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

	if (!(mac[0] & 1)) {
		if (filter->nouni)
			return false;
		return filter->alluni || filter->unicast.overflow ||
		       !memcmp(mac, filter->mac, ETH_ALEN) || in_table(&filter->unicast, mac);
	}
	if (!memcmp(mac, broadcast, ETH_ALEN))
		return !filter->nobcast;
	if (filter->nomulti)
		return false;
	return filter->allmulti || filter->multicast.overflow || in_table(&filter->multicast, mac);
}

bool net_filter_accepts(const struct net_filter *filter, const uint8_t *frame, size_t len)
{
	if (filter->pass_all)
		return true;
	if (len < ETH_HLEN)
		return false;
	return accepts_vlan(filter, frame, len) && accepts_address(filter, frame);
}
