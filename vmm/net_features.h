/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * virtio-net's feature bits (virtio 1.3, 5.1.3 and chapter 6): their names, as `--net` takes them
 * and messages print them, and what each needs: one table for the command line and the device.
 *
 * A set of features is four words, as the device has them: bit `b` is bit b % 32 of word b / 32.
 */
#ifndef WHELP_NET_FEATURES_H
#define WHELP_NET_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#define NET_FEATURE_WORDS     4u
#define NET_FEATURE_MAX_NEEDS 4u

enum net_feature_use {
	NET_FEATURE_ON,	    /* unless switched off */
	NET_FEATURE_OFF,    /* unless switched on */
	NET_FEATURE_ALWAYS, /* cannot be switched off */
};

struct net_feature {
	/*
	 * Lower case, as in the specification, without VIRTIO_NET_F_, VIRTIO_RING_F_ or VIRTIO_F_.
	 */
	const char *name;
	unsigned bit;
	const char *help; /* one line: what it does here */
	enum net_feature_use use;
	/*
	 * Bits without which it must not be offered (5.1.3.1): all of them, or any one; ascending.
	 */
	unsigned char need_count;
	bool any;
	unsigned char needs[NET_FEATURE_MAX_NEEDS];
};

/* The table, in the order of bits, and its length. */
extern const struct net_feature net_features[];
extern const unsigned net_feature_count;

/* By name, and by bit; NULL if there is none such. */
const struct net_feature *net_feature_find(const char *name);
const struct net_feature *net_feature_of(unsigned bit);

static inline bool net_features_have(const uint32_t words[NET_FEATURE_WORDS], unsigned bit)
{
	return words[bit / 32] >> bit % 32 & 1;
}

static inline void net_features_add(uint32_t words[NET_FEATURE_WORDS], unsigned bit)
{
	words[bit / 32] |= UINT32_C(1) << bit % 32;
}

static inline void net_features_remove(uint32_t words[NET_FEATURE_WORDS], unsigned bit)
{
	words[bit / 32] &= ~(UINT32_C(1) << bit % 32);
}

/*
 * The lowest feature in the set that needs one which is not in it, and in `*missing` that one (the
 * first of those of which any would do). NULL: every need is met.
 */
const struct net_feature *net_features_unmet(const uint32_t words[NET_FEATURE_WORDS],
					     unsigned *missing);

/* Removes, until every need is met, what has an unmet one. */
void net_features_close(uint32_t words[NET_FEATURE_WORDS]);

#endif
