/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Constants of virtio 1.3 and the feature set type. <linux/virtio_*.h> of Debian 12 is Linux 6.1's,
 * so the newer names stand here, each with the Linux version whose headers brought it.
 */
#ifndef WHELP_VIRTIO_H
#define WHELP_VIRTIO_H

#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stdint.h>

/* Feature bits come in words of 32; Linux reads two, and from 6.17 on four. */
#define VIRTIO_FEATURE_WORDS 4u

struct virtio_features {
	uint32_t word[VIRTIO_FEATURE_WORDS];
};

static inline bool virtio_has(const struct virtio_features *features, unsigned bit)
{
	return features->word[bit / 32] >> bit % 32 & 1;
}

static inline void virtio_add(struct virtio_features *features, unsigned bit)
{
	features->word[bit / 32] |= 1u << bit % 32;
}

/* True when every bit of `some` is in `all`. */
static inline bool virtio_subset(const struct virtio_features *some,
				 const struct virtio_features *all)
{
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		if (some->word[i] & ~all->word[i])
			return false;
	return true;
}

#define VIRTIO_NO_VECTOR 0xffffu

#endif
