/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames for tests of what looks into them: a small builder, and random, mostly valid ones. */
#ifndef WHELP_LIBFLOW_H
#define WHELP_LIBFLOW_H

#include <stddef.h>
#include <stdint.h>

#include "devices/virtio/net_hash.h"

#define FLOW_FRAME_MAX 512u

/* The key of the published RSS verification suite. */
extern const uint8_t flow_key[NET_HASH_KEY_MAX];

struct flow_frame {
	uint8_t data[FLOW_FRAME_MAX];
	size_t len;
};

/* Appends bytes, or a big-endian number. */
void flow_bytes(struct flow_frame *frame, const void *data, size_t len);
void flow_be16(struct flow_frame *frame, uint16_t value);

/* An Ethernet header with this type, or a tag after it and then the type. */
void flow_ethernet(struct flow_frame *frame, uint16_t type);
void flow_tag(struct flow_frame *frame, uint16_t tag_type);

/* Headers; addresses in text. `option_words` of IPv4 are 4 bytes each. */
void flow_ipv4(struct flow_frame *frame, const char *source, const char *destination,
	       uint8_t protocol, unsigned option_words, uint16_t fragment);
void flow_ipv6(struct flow_frame *frame, const char *source, const char *destination, uint8_t next);
/* An extension header of 8 * (len + 1) bytes, its first two filled in. Returns it. */
uint8_t *flow_extension(struct flow_frame *frame, uint8_t next, uint8_t len);
/* The ports and 16 bytes more. */
void flow_ports(struct flow_frame *frame, uint16_t source, uint16_t destination);

/* Pseudo-random, for printed seeds. */
uint32_t flow_random(uint64_t *seed);
/* Everything that hashing knows, at times damaged or cut. */
void flow_random_frame(struct flow_frame *frame, uint64_t *seed);
/* Any key and table; `types` is the mask to choose from. */
void flow_random_rss(struct net_rss *rss, uint32_t types, uint64_t *seed);

#endif
