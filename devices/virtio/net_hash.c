/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A frame is first parsed into a flow: its addresses, those that Mobile IPv6 puts in their place,
 * and its ports if it has any within reach. Then the enabled types that fit the flow are gone
 * through in order of preference, and the one found says which of these make up the input of the
 * hash.
 *
 * The nine types are three groups (IPv4, IPv6, IPv6 with extension headers) of three (addresses
 * alone, with TCP's ports, with UDP's), in this order both as bits of the types and as values of
 * the report.
 *
 * Whoever changes what is parsed here changes devices/net/steer.c as well: it does the same in the
 * kernel.
 */
#include "devices/virtio/net_hash.h"

#include <assert.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <string.h>

#include "vmm/util.h"

#define ETHERNET_TYPE	 12u
#define ETHERNET_HEADER	 14u
#define TAG_SIZE	 4u
#define TYPE_IPV4	 0x0800
#define TYPE_IPV6	 0x86dd
#define TYPE_TAG	 0x8100
#define TYPE_SERVICE_TAG 0x88a8
#define IPV4_HEADER	 20u
#define IPV6_HEADER	 40u
#define EXTENSION_MIN	 8u
#define PORTS_SIZE	 4u
#define ROUTING_TYPE_2	 2
#define OPTION_PAD1	 0
#define OPTION_HOME	 201 /* RFC 6275, 6.3 */
#define EXTENSION_HIP	 139
#define EXTENSION_SHIM6	 140

enum { GROUP_IPV4 = 0, GROUP_IPV6 = 3, GROUP_IPV6_EX = 6 };
enum { FITS_IP = 1, FITS_TCP = 2, FITS_UDP = 4 };

static_assert(VIRTIO_NET_RSS_HASH_TYPE_IPv4 == FITS_IP << GROUP_IPV4 &&
		      VIRTIO_NET_RSS_HASH_TYPE_TCPv4 == FITS_TCP << GROUP_IPV4 &&
		      VIRTIO_NET_RSS_HASH_TYPE_UDPv4 == FITS_UDP << GROUP_IPV4 &&
		      VIRTIO_NET_RSS_HASH_TYPE_IPv6 == FITS_IP << GROUP_IPV6 &&
		      VIRTIO_NET_RSS_HASH_TYPE_TCPv6 == FITS_TCP << GROUP_IPV6 &&
		      VIRTIO_NET_RSS_HASH_TYPE_UDPv6 == FITS_UDP << GROUP_IPV6 &&
		      VIRTIO_NET_RSS_HASH_TYPE_IP_EX == FITS_IP << GROUP_IPV6_EX &&
		      VIRTIO_NET_RSS_HASH_TYPE_TCP_EX == FITS_TCP << GROUP_IPV6_EX &&
		      VIRTIO_NET_RSS_HASH_TYPE_UDP_EX == FITS_UDP << GROUP_IPV6_EX,
	      "three groups of three");

struct flow {
	size_t address_len; /* 0: not IP */
	const uint8_t *source;
	const uint8_t *destination;
	const uint8_t *home;	/* for _EX types, in place of the source */
	const uint8_t *routing; /* and of the destination */
	const uint8_t *ports;	/* may be NULL */
	uint8_t protocol;
	bool extended;
};

static uint16_t load_be16(const uint8_t *data)
{
	return (uint16_t)(data[0] << 8 | data[1]);
}

/* The protocol's header begins with the ports, in TCP and UDP alike. */
static void set_ports(struct flow *flow, uint8_t protocol, const uint8_t *header, size_t len)
{
	flow->protocol = protocol;
	if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && len >= PORTS_SIZE)
		flow->ports = header;
}

static void parse_ipv4(struct flow *flow, const uint8_t *packet, size_t len)
{
	size_t header_len;
	bool fragment;

	if (len < IPV4_HEADER || packet[0] >> 4 != 4 || (packet[0] & 0xf) < IPV4_HEADER / 4)
		return;
	flow->address_len = 4;
	flow->source = packet + 12;
	flow->destination = packet + 16;
	header_len = (packet[0] & 0xf) * 4u;
	/* Its offset, or that more follow. */
	fragment = load_be16(packet + 6) & 0x3fff;
	if (!fragment && len >= header_len)
		set_ports(flow, packet[9], packet + header_len, len - header_len);
}

static bool is_extension(uint8_t protocol)
{
	switch (protocol) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
	case EXTENSION_HIP:
	case EXTENSION_SHIM6:
		return true;
	default:
		return false;
	}
}

static size_t extension_len(uint8_t protocol, const uint8_t *header)
{
	switch (protocol) {
	case IPPROTO_FRAGMENT:
		return EXTENSION_MIN;
	case IPPROTO_AH:
		return (header[1] + 2u) * 4;
	default:
		return (header[1] + 1u) * 8;
	}
}

/* `len` is the header's, or as much of it as there is. */
static void find_home_address(struct flow *flow, const uint8_t *header, size_t len)
{
	size_t offset = 2;

	while (offset < len) {
		if (header[offset] == OPTION_PAD1) {
			offset++;
			continue;
		}
		if (len - offset < 2 || len - offset - 2 < header[offset + 1])
			return;
		if (header[offset] == OPTION_HOME && header[offset + 1] == flow->address_len) {
			flow->home = header + offset + 2;
			return;
		}
		offset += 2u + header[offset + 1];
	}
}

static void parse_extension(struct flow *flow, uint8_t protocol, const uint8_t *header, size_t len)
{
	if (protocol == IPPROTO_DSTOPTS)
		find_home_address(flow, header, len);
	/* RFC 6275, 6.4.1: exactly one address, after eight bytes. */
	if (protocol == IPPROTO_ROUTING && header[2] == ROUTING_TYPE_2 && header[1] == 2 &&
	    len == EXTENSION_MIN + flow->address_len)
		flow->routing = header + EXTENSION_MIN;
}

static void parse_ipv6(struct flow *flow, const uint8_t *packet, size_t len)
{
	size_t offset = IPV6_HEADER;
	uint8_t protocol;

	if (len < IPV6_HEADER || packet[0] >> 4 != 6)
		return;
	flow->address_len = 16;
	flow->source = flow->home = packet + 8;
	flow->destination = flow->routing = packet + 24;
	protocol = packet[6];
	flow->extended = is_extension(protocol);
	for (unsigned i = 0; i < NET_HASH_EXTENSIONS && is_extension(protocol); i++) {
		const uint8_t *header = packet + offset;
		size_t header_len;

		if (len - offset < EXTENSION_MIN)
			return;
		header_len = extension_len(protocol, header);
		/* An atomic fragment (RFC 6946) is none. */
		if (protocol == IPPROTO_FRAGMENT && load_be16(header + 2) & 0xfff9)
			return;
		parse_extension(flow, protocol, header, MIN(header_len, len - offset));
		if (header_len > len - offset)
			return;
		offset += header_len;
		protocol = header[0];
	}
	set_ports(flow, protocol, packet + offset, len - offset);
}

static void parse(struct flow *flow, const uint8_t *frame, size_t len)
{
	size_t offset = ETHERNET_HEADER;
	uint16_t type;

	memset(flow, 0, sizeof(*flow));
	if (len < offset)
		return;
	type = load_be16(frame + ETHERNET_TYPE);
	for (unsigned i = 0; i < NET_HASH_TAGS; i++) {
		if (type != TYPE_TAG && type != TYPE_SERVICE_TAG)
			break;
		if (len - offset < TAG_SIZE)
			return;
		type = load_be16(frame + offset + 2);
		offset += TAG_SIZE;
	}
	if (type == TYPE_IPV4)
		parse_ipv4(flow, frame + offset, len - offset);
	else if (type == TYPE_IPV6)
		parse_ipv6(flow, frame + offset, len - offset);
}

/* The report of the group's best type, or NONE. */
static uint16_t choose_in_group(uint32_t types, const struct flow *flow, unsigned group)
{
	unsigned fits = FITS_IP;

	if (flow->ports)
		fits |= flow->protocol == IPPROTO_TCP ? FITS_TCP : FITS_UDP;
	fits &= types >> group;
	if (fits & FITS_TCP)
		return (uint16_t)(group + 2);
	if (fits & FITS_UDP)
		return (uint16_t)(group + 3);
	return fits ? (uint16_t)(group + 1) : VIRTIO_NET_HASH_REPORT_NONE;
}

static uint16_t choose(uint32_t types, const struct flow *flow)
{
	uint16_t report = VIRTIO_NET_HASH_REPORT_NONE;

	if (!flow->address_len)
		return report;
	if (flow->extended)
		report = choose_in_group(types, flow, GROUP_IPV6_EX);
	if (report)
		return report;
	return choose_in_group(types, flow, flow->address_len == 4 ? GROUP_IPV4 : GROUP_IPV6);
}

struct net_hash net_hash_frame(const struct net_rss *rss, const uint8_t *frame, size_t len)
{
	struct net_hash hash = { 0 };
	uint8_t input[NET_HASH_INPUT_MAX];
	struct flow flow;
	size_t size;
	bool extended;

	parse(&flow, frame, MIN(len, NET_HASH_BYTES));
	hash.report = choose(rss->types, &flow);
	if (!hash.report)
		return hash;
	extended = hash.report > GROUP_IPV6_EX;
	size = flow.address_len;
	memcpy(input, extended ? flow.home : flow.source, size);
	memcpy(input + size, extended ? flow.routing : flow.destination, size);
	size *= 2;
	/* All but the first of each group. */
	if ((hash.report - 1) % 3) {
		memcpy(input + size, flow.ports, PORTS_SIZE);
		size += PORTS_SIZE;
	}
	hash.value = net_hash_toeplitz(rss->key, input, size);
	return hash;
}

/* `window` holds the 32 key bits that face the current data bit on top, and the next 8 below. */
uint32_t net_hash_toeplitz(const uint8_t *key, const uint8_t *data, size_t len)
{
	uint64_t window =
		(uint64_t)key[0] << 32 | (uint64_t)key[1] << 24 | key[2] << 16 | key[3] << 8;
	uint64_t hash = 0;

	for (size_t i = 0; i < len; i++) {
		window |= key[i + 4];
		for (unsigned bit = 0; bit < 8; bit++) {
			hash ^= window & -(uint64_t)(data[i] >> (7 - bit) & 1);
			window <<= 1;
		}
	}
	return (uint32_t)(hash >> 8);
}
