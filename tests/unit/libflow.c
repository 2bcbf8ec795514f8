/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libflow.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "vmm/util.h"

const uint8_t flow_key[NET_HASH_KEY_MAX] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

void flow_bytes(struct flow_frame *frame, const void *data, size_t len)
{
	assert(len <= sizeof(frame->data) - frame->len);
	memcpy(frame->data + frame->len, data, len);
	frame->len += len;
}

void flow_be16(struct flow_frame *frame, uint16_t value)
{
	uint8_t bytes[] = { (uint8_t)(value >> 8), (uint8_t)value };

	flow_bytes(frame, bytes, sizeof(bytes));
}

void flow_ethernet(struct flow_frame *frame, uint16_t type)
{
	frame->len = 0;
	flow_bytes(frame, "\x02\0\0\0\0\x01\x02\0\0\0\0\x02", 12);
	flow_be16(frame, type);
}

/* Before the type that is there already. */
void flow_tag(struct flow_frame *frame, uint16_t tag_type)
{
	uint8_t tag[] = { (uint8_t)(tag_type >> 8), (uint8_t)tag_type, 0, 5 };
	size_t rest = frame->len - 12;

	assert(sizeof(tag) <= sizeof(frame->data) - frame->len);
	memmove(frame->data + 12 + sizeof(tag), frame->data + 12, rest);
	memcpy(frame->data + 12, tag, sizeof(tag));
	frame->len += sizeof(tag);
}

void flow_ipv4(struct flow_frame *frame, const char *source, const char *destination,
	       uint8_t protocol, unsigned option_words, uint16_t fragment)
{
	uint8_t header[20] = { 0 };

	header[0] = (uint8_t)(0x45 + option_words);
	header[6] = (uint8_t)(fragment >> 8);
	header[7] = (uint8_t)fragment;
	header[8] = 64;
	header[9] = protocol;
	if (inet_pton(AF_INET, source, header + 12) != 1 ||
	    inet_pton(AF_INET, destination, header + 16) != 1)
		assert(0);
	flow_bytes(frame, header, sizeof(header));
	for (unsigned i = 0; i < option_words; i++)
		flow_bytes(frame, "\1\1\1\1", 4);
}

void flow_ipv6(struct flow_frame *frame, const char *source, const char *destination, uint8_t next)
{
	uint8_t header[40] = { 0x60 };

	header[6] = next;
	header[7] = 64;
	if (inet_pton(AF_INET6, source, header + 8) != 1 ||
	    inet_pton(AF_INET6, destination, header + 24) != 1)
		assert(0);
	flow_bytes(frame, header, sizeof(header));
}

uint8_t *flow_extension(struct flow_frame *frame, uint8_t next, uint8_t len)
{
	uint8_t *header = frame->data + frame->len;
	size_t size = 8 * (len + 1u);

	assert(size <= sizeof(frame->data) - frame->len);
	memset(header, 0, size);
	header[0] = next;
	header[1] = len;
	frame->len += size;
	return header;
}

void flow_ports(struct flow_frame *frame, uint16_t source, uint16_t destination)
{
	flow_be16(frame, source);
	flow_be16(frame, destination);
	flow_bytes(frame, "0123456789abcdef", 16);
}

/* splitmix64 */
uint32_t flow_random(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (uint32_t)(z >> 32);
}

static void random_bytes(void *data, size_t len, uint64_t *seed)
{
	uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)flow_random(seed);
}

#define PICK(seed, array) ((array)[flow_random(seed) % ARRAY_SIZE(array)])

static const uint8_t transports[] = { 6, 6, 6, 17, 17, 17, 1, 58, 50, 59, 132 };
static const uint8_t extensions[] = { 0, 43, 44, 51, 60, 60, 135, 139, 140 };

static void random_ipv4(struct flow_frame *frame, uint64_t *seed)
{
	static const uint16_t fragments[] = { 0,      0,      0,      0,      0x4000,
					      0x4000, 0x2000, 0x0001, 0x2010, 0x8000 };
	static const uint8_t words[] = { 0, 0, 0, 1, 2, 10 };

	flow_ipv4(frame, "10.0.0.1", "10.0.0.2", PICK(seed, transports), PICK(seed, words),
		  PICK(seed, fragments));
	random_bytes(frame->data + frame->len - 8, 8, seed);
}

static void random_options(uint8_t *options, size_t len, uint64_t *seed)
{
	size_t offset = 0;

	while (len - offset > 2) {
		unsigned kind = flow_random(seed) % 4;
		uint8_t size = (uint8_t)(kind == 3 ? 16 : flow_random(seed) % 8);

		if (kind == 0 || size > len - offset - 2) {
			options[offset++] = 0;
			continue;
		}
		options[offset] = kind == 3 ? 201 : 1;
		options[offset + 1] = size;
		random_bytes(options + offset + 2, size, seed);
		offset += 2u + size;
	}
}

static void random_extension(struct flow_frame *frame, uint8_t kind, uint8_t next, uint64_t *seed)
{
	static const uint8_t lens[] = { 0, 0, 1, 2, 2, 3, 5 };
	uint8_t len = kind == 44 ? 0 : PICK(seed, lens);
	uint8_t *header = flow_extension(frame, next, len);

	random_bytes(header + 2, 8 * (len + 1u) - 2, seed);
	if (kind == 60)
		random_options(header + 2, 8 * (len + 1u) - 2, seed);
	if (kind == 43)
		header[2] = flow_random(seed) % 3 ? 2 : 0;
	if (kind == 51)
		header[1] = (uint8_t)(2 * len);
	/* Mostly no offset, at times more to follow; reserved byte and bits may be anything. */
	if (kind == 44 && flow_random(seed) % 8) {
		header[2] = 0;
		header[3] &= flow_random(seed) % 4 ? 6 : 7;
	}
}

static void random_ipv6(struct flow_frame *frame, uint64_t *seed)
{
	unsigned count = flow_random(seed) % 2 ? 0 : flow_random(seed) % 11;
	uint8_t kinds[12];

	for (unsigned i = 0; i < count; i++)
		kinds[i] = PICK(seed, extensions);
	kinds[count] = PICK(seed, transports);
	flow_ipv6(frame, "fc00::1", "fc00::2", kinds[0]);
	random_bytes(frame->data + frame->len - 32, 32, seed);
	for (unsigned i = 0; i < count; i++)
		if (frame->len < FLOW_FRAME_MAX - 100)
			random_extension(frame, kinds[i], kinds[i + 1], seed);
}

static void random_damage(struct flow_frame *frame, uint64_t *seed)
{
	unsigned kind = flow_random(seed) % 8;

	if (kind == 0)
		frame->len = flow_random(seed) % (frame->len + 1);
	if (kind == 1)
		random_bytes(frame->data + flow_random(seed) % frame->len, 1, seed);
	if (kind == 2 && frame->len > 14)
		frame->data[14] = (uint8_t)flow_random(seed);
}

void flow_random_frame(struct flow_frame *frame, uint64_t *seed)
{
	static const uint16_t types[] = { 0x0800, 0x0800, 0x0800, 0x86dd,
					  0x86dd, 0x86dd, 0x86dd, 0x0806 };
	static const uint16_t tags[] = { 0x8100, 0x8100, 0x88a8, 0x9100 };
	static const uint8_t tag_counts[] = { 0, 0, 0, 1, 2, 3 };
	uint16_t type = PICK(seed, types);

	flow_ethernet(frame, type);
	if (type == 0x0800)
		random_ipv4(frame, seed);
	else if (type == 0x86dd)
		random_ipv6(frame, seed);
	flow_ports(frame, (uint16_t)flow_random(seed), (uint16_t)flow_random(seed));
	for (unsigned i = PICK(seed, tag_counts); i > 0; i--)
		flow_tag(frame, PICK(seed, tags));
	random_damage(frame, seed);
}

void flow_random_rss(struct net_rss *rss, uint32_t types, uint64_t *seed)
{
	memset(rss, 0, sizeof(*rss));
	rss->steering = true;
	/* Mostly all that may be, so that the longest inputs come often. */
	rss->types = types & (flow_random(seed) % 2 ? NET_HASH_TYPES : flow_random(seed));
	rss->key_len =
		flow_random(seed) % 4 ? NET_HASH_KEY_MAX : flow_random(seed) % NET_HASH_KEY_MAX;
	random_bytes(rss->key, rss->key_len, seed);
	rss->table_mask = (uint16_t)((1u << flow_random(seed) % 8) - 1);
	for (unsigned i = 0; i <= rss->table_mask; i++)
		rss->table[i] = (uint16_t)(flow_random(seed) % 32);
	rss->unclassified = (uint16_t)(flow_random(seed) % 32);
}
