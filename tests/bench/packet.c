/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * IPv4 and TCP, addressed to another host's MAC address: a Linux tap's host drops that as the first
 * thing that IP does, whatever addresses, routes or filters there are. Frames beyond 1,514 bytes
 * are TCP to be segmented, their checksum to be filled in; the stack drops them in one piece.
 */
#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>

#include "tests/bench/wire.h"

#define HEADERS (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define MSS	1448

static void sum_up(struct iphdr *ip)
{
	const uint8_t *bytes = (const uint8_t *)ip;
	uint32_t sum = 0;

	for (unsigned i = 0; i < sizeof(*ip); i += 2)
		sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = htons((uint16_t) ~(sum + (sum >> 16)));
}

void packet_make(struct packet *packet, unsigned size, uint16_t port)
{
	static const uint8_t others[2 * ETH_ALEN] = {
		0x02, 0x77, 0, 0, 0, 1, 0x02, 0x77, 0, 0, 0, 2
	};
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.ttl = 64,
		.tot_len = htons((uint16_t)(size - ETH_HLEN)),
		.protocol = IPPROTO_TCP,
		.saddr = htonl(0xc0000201), /* 192.0.2.1 and 2: for documents */
		.daddr = htonl(0xc0000202),
	};
	const struct tcphdr tcp = { .source = htons(port), .dest = htons(9), .doff = 5, .ack = 1 };
	const struct virtio_net_hdr_v1 segmented = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
		.hdr_len = HEADERS,
		.gso_size = MSS,
		.csum_start = ETH_HLEN + sizeof(ip),
		.csum_offset = offsetof(struct tcphdr, check),
	};
	const uint16_t type = htons(ETH_P_IP);
	uint8_t *p = packet->bytes;

	memset(packet, 0, sizeof(*packet));
	packet->len = BENCH_HEADER + size;
	if (size > ETH_FRAME_LEN)
		memcpy(p, &segmented, sizeof(segmented));
	p += BENCH_HEADER;
	memcpy(p, others, sizeof(others));
	memcpy(p + sizeof(others), &type, sizeof(type));
	sum_up(&ip);
	memcpy(p + ETH_HLEN, &ip, sizeof(ip));
	memcpy(p + ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp));
}
