/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/net_hash.h"
#include "tests/unit/libflow.h"
#include "vmm/util.h"

#define ALL_PLAIN 0x3fu
#define HOME	  "2001:db8::1234"
#define AGENT	  "2001:db8::abcd"

enum { TCP = 6, UDP = 17, HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, AH = 51, DESTINATION = 60 };

/* The published RSS verification suite. */
static const struct suite {
	const char *source;
	uint16_t source_port;
	const char *destination;
	uint16_t destination_port;
	uint32_t addresses;
	uint32_t ports;
} suite4[] = {
	{ "66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e8fc2, 0x51ccc178 },
	{ "199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718262a, 0xc626b0ea },
	{ "24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0a5de, 0x5c2b394a },
	{ "38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xafc7327f },
	{ "153.39.163.191", 44251, "202.188.127.2", 1303, 0x5d1809c5, 0x10e828a2 },
}, suite6[] = {
	{ "3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc18cd5, 0x40207d3d },
	{ "3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c461c, 0xdde51bbf },
	{ "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024,
	  0x4b61e985, 0x02d1feef },
};

static void init(struct net_rss *rss, uint32_t types)
{
	memset(rss, 0, sizeof(*rss));
	rss->types = types;
	rss->key_len = sizeof(flow_key);
	memcpy(rss->key, flow_key, sizeof(flow_key));
}

/* Hashes a copy that ends where its memory does. */
static struct net_hash hash_of(uint32_t types, const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct net_hash hash;
	struct net_rss rss;

	assert_non_null(copy);
	memcpy(copy, data, len);
	init(&rss, types);
	hash = net_hash_frame(&rss, len ? copy : copy + 1, len);
	free(copy);
	return hash;
}

static void expect(uint32_t types, const struct flow_frame *frame, uint16_t report, uint32_t value)
{
	struct net_hash hash = hash_of(types, frame->data, frame->len);

	assert_int_equal(hash.report, report);
	assert_int_equal(hash.value, value);
}

static void build4(struct flow_frame *frame, const struct suite *s, uint8_t protocol,
		   unsigned option_words, uint16_t fragment)
{
	flow_ethernet(frame, 0x0800);
	flow_ipv4(frame, s->source, s->destination, protocol, option_words, fragment);
	flow_ports(frame, s->source_port, s->destination_port);
}

static void build6(struct flow_frame *frame, const struct suite *s, uint8_t protocol)
{
	flow_ethernet(frame, 0x86dd);
	flow_ipv6(frame, s->source, s->destination, protocol);
	flow_ports(frame, s->source_port, s->destination_port);
}

static void test_verification_suite(void **state)
{
	struct flow_frame frame;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(suite4); i++) {
		const struct suite *s = &suite4[i];

		build4(&frame, s, TCP, 0, 0);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv4, s->ports);
		expect(VIRTIO_NET_RSS_HASH_TYPE_IPv4, &frame, VIRTIO_NET_HASH_REPORT_IPv4,
		       s->addresses);
		build4(&frame, s, UDP, 0, 0);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv4, s->ports);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(suite6); i++) {
		const struct suite *s = &suite6[i];

		build6(&frame, s, TCP);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv6, s->ports);
		expect(VIRTIO_NET_RSS_HASH_TYPE_IPv6, &frame, VIRTIO_NET_HASH_REPORT_IPv6,
		       s->addresses);
		build6(&frame, s, UDP);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv6, s->ports);
	}
}

/* The report for each set of types, written down from the specification's "if, else if". */
static uint16_t expected_report(uint32_t types, bool v6, bool extended, uint8_t protocol)
{
	static const struct {
		bool v6;
		bool extended;
		uint8_t protocol; /* 0: any */
		unsigned type;
		uint16_t report;
	} order[] = {
		{ false, false, TCP, VIRTIO_NET_RSS_HASH_TYPE_TCPv4, VIRTIO_NET_HASH_REPORT_TCPv4 },
		{ false, false, UDP, VIRTIO_NET_RSS_HASH_TYPE_UDPv4, VIRTIO_NET_HASH_REPORT_UDPv4 },
		{ false, false, 0, VIRTIO_NET_RSS_HASH_TYPE_IPv4, VIRTIO_NET_HASH_REPORT_IPv4 },
		{ true, true, TCP, VIRTIO_NET_RSS_HASH_TYPE_TCP_EX,
		  VIRTIO_NET_HASH_REPORT_TCPv6_EX },
		{ true, true, UDP, VIRTIO_NET_RSS_HASH_TYPE_UDP_EX,
		  VIRTIO_NET_HASH_REPORT_UDPv6_EX },
		{ true, true, 0, VIRTIO_NET_RSS_HASH_TYPE_IP_EX, VIRTIO_NET_HASH_REPORT_IPv6_EX },
		{ true, false, TCP, VIRTIO_NET_RSS_HASH_TYPE_TCPv6, VIRTIO_NET_HASH_REPORT_TCPv6 },
		{ true, false, UDP, VIRTIO_NET_RSS_HASH_TYPE_UDPv6, VIRTIO_NET_HASH_REPORT_UDPv6 },
		{ true, false, 0, VIRTIO_NET_RSS_HASH_TYPE_IPv6, VIRTIO_NET_HASH_REPORT_IPv6 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
		if (order[i].v6 == v6 && (extended || !order[i].extended) &&
		    (!order[i].protocol || order[i].protocol == protocol) && types & order[i].type)
			return order[i].report;
	return VIRTIO_NET_HASH_REPORT_NONE;
}

static void test_every_set_of_types(void **state)
{
	static const uint8_t protocols[] = { TCP, UDP, 1 };
	struct flow_frame frame;

	(void)state;
	for (uint32_t types = 0; types <= NET_HASH_TYPES; types++)
		for (unsigned i = 0; i < 3 * ARRAY_SIZE(protocols); i++) {
			uint8_t protocol = protocols[i % ARRAY_SIZE(protocols)];
			bool v6 = i >= ARRAY_SIZE(protocols),
			     extended = i >= 2 * ARRAY_SIZE(protocols);
			const struct suite *s = v6 ? suite6 : suite4;
			uint16_t report = expected_report(types, v6, extended, protocol);

			if (!v6) {
				build4(&frame, s, protocol, 0, 0);
			} else if (!extended) {
				build6(&frame, s, protocol);
			} else {
				flow_ethernet(&frame, 0x86dd);
				flow_ipv6(&frame, s->source, s->destination, HOP_BY_HOP);
				flow_extension(&frame, protocol, 0);
				flow_ports(&frame, s->source_port, s->destination_port);
			}
			/* Nothing takes an address's place, so _EX types hash as the others. */
			expect(types, &frame, report,
			       !report		  ? 0
			       : (report - 1) % 3 ? s->ports
						  : s->addresses);
		}
}

static void test_tags(void **state)
{
	static const uint16_t tags[] = { 0x8100, 0x88a8 };
	struct flow_frame frame;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		build4(&frame, suite4, TCP, 0, 0);
		flow_tag(&frame, tags[i & 1]);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv4, suite4->ports);
		flow_tag(&frame, tags[i >> 1]);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv4, suite4->ports);
		flow_tag(&frame, 0x8100);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
	}
}

static void test_ipv4_options_and_fragments(void **state)
{
	struct flow_frame frame;

	(void)state;
	for (unsigned words = 0; words <= 10; words++) {
		build4(&frame, suite4, UDP, words, 0x4000 /* don't fragment */);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv4, suite4->ports);
	}
	build4(&frame, suite4, UDP, 0, 0x2000 /* the first of several */);
	expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_IPv4, suite4->addresses);
	build4(&frame, suite4, UDP, 0, 0x0001 /* the last */);
	expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_IPv4, suite4->addresses);
	expect(VIRTIO_NET_RSS_HASH_TYPE_UDPv4, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
}

static void test_not_ip(void **state)
{
	struct flow_frame frame;

	(void)state;
	build4(&frame, suite4, TCP, 0, 0);
	frame.data[14] = 0x65;
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
	frame.data[14] = 0x44;
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
	build4(&frame, suite4, TCP, 0, 0);
	frame.data[13] = 0x06;
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
	build6(&frame, suite6, TCP);
	frame.data[14] = 0x45;
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_NONE, 0);
}

/* Over addresses other than the header's. */
static uint32_t hash6(const char *source, const char *destination, const struct suite *s)
{
	uint8_t input[36];

	assert_int_equal(inet_pton(AF_INET6, source, input), 1);
	assert_int_equal(inet_pton(AF_INET6, destination, input + 16), 1);
	input[32] = s->source_port >> 8;
	input[33] = s->source_port & 0xff;
	input[34] = s->destination_port >> 8;
	input[35] = s->destination_port & 0xff;
	return net_hash_toeplitz(flow_key, input, sizeof(input));
}

static void build_mobile(struct flow_frame *frame, uint8_t routing_len, uint8_t option_len)
{
	uint8_t *header;

	flow_ethernet(frame, 0x86dd);
	flow_ipv6(frame, suite6->source, suite6->destination, HOP_BY_HOP);
	flow_extension(frame, DESTINATION, 0);
	header = flow_extension(frame, ROUTING, 2);
	header[2] = 0; /* Pad1 */
	header[3] = 1; /* PadN, of two bytes */
	header[4] = 0;
	header[5] = 201;
	header[6] = option_len;
	inet_pton(AF_INET6, HOME, header + 7);
	header = flow_extension(frame, TCP, routing_len);
	header[2] = 2;
	inet_pton(AF_INET6, AGENT, header + 8);
	flow_ports(frame, suite6->source_port, suite6->destination_port);
}

static void test_mobile_addresses(void **state)
{
	struct flow_frame frame;
	struct net_hash whole;

	(void)state;
	build_mobile(&frame, 2, 16);
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_TCPv6_EX, hash6(HOME, AGENT, suite6));
	expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv6, suite6->ports);
	/* One that is not as the RFC has it does not count. */
	build_mobile(&frame, 3, 16);
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_TCPv6_EX,
	       hash6(HOME, suite6->destination, suite6));
	/* Not even when it is cut to the right size. */
	whole = hash_of(VIRTIO_NET_RSS_HASH_TYPE_IP_EX, frame.data, frame.len);
	frame.len = 14 + 40 + 8 + 24 + 24;
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_IPv6_EX, whole.value);
	build_mobile(&frame, 2, 15);
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_TCPv6_EX,
	       hash6(suite6->source, AGENT, suite6));
	build_mobile(&frame, 2, 255);
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_TCPv6_EX,
	       hash6(suite6->source, AGENT, suite6));
}

static void build_extended(struct flow_frame *frame, uint8_t kind, unsigned count)
{
	flow_ethernet(frame, 0x86dd);
	flow_ipv6(frame, suite6->source, suite6->destination, kind);
	for (unsigned i = 0; i < count; i++)
		flow_extension(frame, i == count - 1 ? UDP : kind, 0);
	flow_ports(frame, suite6->source_port, suite6->destination_port);
}

static void test_extension_headers(void **state)
{
	static const uint8_t kinds[] = { HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION,
					 135,	     139,     140,	AH };
	struct flow_frame frame;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		build_extended(&frame, kinds[i], NET_HASH_EXTENSIONS);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv6, suite6->ports);
		build_extended(&frame, kinds[i], NET_HASH_EXTENSIONS + 1);
		expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_IPv6, suite6->addresses);
		expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_IPv6_EX, suite6->addresses);
	}
	/* AH counts words of four bytes, two of them for free. */
	flow_ethernet(&frame, 0x86dd);
	flow_ipv6(&frame, suite6->source, suite6->destination, AH);
	flow_extension(&frame, UDP, 2)[1] = 4;
	flow_ports(&frame, suite6->source_port, suite6->destination_port);
	expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv6, suite6->ports);
	/* ESP hides what follows. */
	build6(&frame, suite6, 50);
	expect(NET_HASH_TYPES, &frame, VIRTIO_NET_HASH_REPORT_IPv6, suite6->addresses);
}

static void test_ipv6_fragments(void **state)
{
	static const struct {
		uint16_t field;
		bool fragment;
	} table[] = { { 0, false }, { 6, false }, { 1, true }, { 8, true }, { 0x8001, true } };
	struct flow_frame frame;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		build_extended(&frame, FRAGMENT, 1);
		frame.data[14 + 40 + 1] = 0xff; /* reserved */
		frame.data[14 + 40 + 2] = table[i].field >> 8;
		frame.data[14 + 40 + 3] = table[i].field & 0xff;
		if (table[i].fragment)
			expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_IPv6, suite6->addresses);
		else
			expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_UDPv6, suite6->ports);
	}
}

static void check_truncations(const struct flow_frame *frame, size_t addresses_end,
			      size_t ports_end, uint16_t ip_report, uint16_t full_report)
{
	struct net_hash full = hash_of(NET_HASH_TYPES, frame->data, frame->len);

	assert_int_equal(full.report, full_report);
	for (size_t len = 0; len <= frame->len; len++) {
		struct net_hash hash = hash_of(NET_HASH_TYPES, frame->data, len);

		if (len < addresses_end) {
			assert_int_equal(hash.report, VIRTIO_NET_HASH_REPORT_NONE);
			assert_int_equal(hash.value, 0);
		} else if (len < ports_end) {
			assert_int_equal(hash.report, ip_report);
		} else {
			assert_int_equal(hash.report, full_report);
			assert_int_equal(hash.value, full.value);
		}
	}
}

static void test_every_truncation(void **state)
{
	struct flow_frame frame;

	(void)state;
	build4(&frame, suite4, TCP, 3, 0);
	flow_tag(&frame, 0x8100);
	flow_tag(&frame, 0x88a8);
	check_truncations(&frame, 22 + 20, 22 + 32 + 4, VIRTIO_NET_HASH_REPORT_IPv4,
			  VIRTIO_NET_HASH_REPORT_TCPv4);
	build6(&frame, suite6, UDP);
	check_truncations(&frame, 14 + 40, 14 + 40 + 4, VIRTIO_NET_HASH_REPORT_IPv6,
			  VIRTIO_NET_HASH_REPORT_UDPv6);
	build_mobile(&frame, 2, 16);
	check_truncations(&frame, 14 + 40, 14 + 40 + 8 + 24 + 24 + 4,
			  VIRTIO_NET_HASH_REPORT_IPv6_EX, VIRTIO_NET_HASH_REPORT_TCPv6_EX);
}

/* What is beyond NET_HASH_BYTES does not matter, whether it is given or not. */
static void test_reach(void **state)
{
	struct flow_frame frame;

	(void)state;
	for (unsigned len = 0; len < 30; len++) {
		size_t ports;

		flow_ethernet(&frame, 0x86dd);
		flow_ipv6(&frame, suite6->source, suite6->destination, HOP_BY_HOP);
		flow_extension(&frame, TCP, (uint8_t)len);
		ports = frame.len;
		flow_ports(&frame, suite6->source_port, suite6->destination_port);
		if (ports + 4 <= NET_HASH_BYTES)
			expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_TCPv6, suite6->ports);
		else
			expect(ALL_PLAIN, &frame, VIRTIO_NET_HASH_REPORT_IPv6, suite6->addresses);
	}
}

static void test_random_frames(void **state)
{
	uint64_t seed = 0x5eed;
	unsigned reports[VIRTIO_NET_HASH_REPORT_UDPv6_EX + 1] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 100000; i++) {
		struct flow_frame frame;
		struct net_hash hash;
		uint32_t types;

		flow_random_frame(&frame, &seed);
		types = flow_random(&seed) % 2 ? NET_HASH_TYPES
					       : flow_random(&seed) & NET_HASH_TYPES;
		hash = hash_of(types, frame.data, frame.len);
		assert_in_range(hash.report, 0, VIRTIO_NET_HASH_REPORT_UDPv6_EX);
		if (hash.report)
			assert_true(types & 1u << (hash.report - 1));
		reports[hash.report]++;
	}
	/* The frames are random enough to mean something. */
	for (unsigned i = 0; i < ARRAY_SIZE(reports); i++)
		assert_in_range(reports[i], 100, 100000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verification_suite),
		cmocka_unit_test(test_every_set_of_types),
		cmocka_unit_test(test_tags),
		cmocka_unit_test(test_ipv4_options_and_fragments),
		cmocka_unit_test(test_not_ip),
		cmocka_unit_test(test_mobile_addresses),
		cmocka_unit_test(test_extension_headers),
		cmocka_unit_test(test_ipv6_fragments),
		cmocka_unit_test(test_every_truncation),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_random_frames),
	};

	return cmocka_run_group_tests_name("net_hash", tests, NULL, NULL);
}
