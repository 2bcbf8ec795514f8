/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receive-side scaling (virtio 1.3, 5.1.6.4.3 and 5.1.6.5.6.4): the Toeplitz hash of a frame over
 * the fields that its protocol and the driver's choice of hash types select, the hash report, and
 * the indirection table. Pure.
 */
#ifndef WHELP_VIRTIO_NET_HASH_H
#define WHELP_VIRTIO_NET_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_HASH_KEY_MAX   40u
#define NET_HASH_TABLE_MAX 128u

/* VIRTIO_NET_RSS_HASH_TYPE_*: three each for IPv4, IPv6, and IPv6 with extension headers. */
#define NET_HASH_TYPES 0x1ffu

/* Of them, those without extension headers. */
#define NET_HASH_PLAIN_TYPES 0x3fu

/* As many bytes of a frame, from the Ethernet header on, as hashing looks at, at most. */
#define NET_HASH_BYTES 256u

/* VLAN tags and IPv6 extension headers that hashing looks behind. */
#define NET_HASH_TAGS	    2u
#define NET_HASH_EXTENSIONS 8u

/* The longest input: two IPv6 addresses and two ports. */
#define NET_HASH_INPUT_MAX 36u

struct net_rss {
	bool steering; /* RSS is configured: `table` decides the queue */
	uint32_t types;
	uint8_t key[NET_HASH_KEY_MAX]; /* zeros beyond key_len */
	unsigned key_len;
	uint16_t table[NET_HASH_TABLE_MAX]; /* receive queue pairs */
	uint16_t table_mask;		    /* its length - 1, a power of two - 1 */
	uint16_t unclassified;		    /* for frames without a hash */
};

struct net_hash {
	uint32_t value;
	uint16_t report; /* VIRTIO_NET_HASH_REPORT_*; NONE: there is no hash */
};

/*
 * Hashes a frame of which the first `len` bytes are given (all of it, or NET_HASH_BYTES). Of the
 * enabled types that fit the frame the one that the specification prefers is used: for IPv6 with
 * extension headers the _EX types come first, even if a plain one covers more. A fragment, and a
 * frame whose ports are not among the bytes or lie behind more extension headers than are looked
 * at, has no ports. What lengths the IP header gives does not matter.
 */
struct net_hash net_hash_frame(const struct net_rss *rss, const uint8_t *frame, size_t len);

/* The Toeplitz hash of `len` bytes; the key has at least len + 4. */
uint32_t net_hash_toeplitz(const uint8_t *key, const uint8_t *data, size_t len);

#endif
