/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How often values of each size came, in buckets that double: cheap enough for every batch. One
 * writer, any readers; see counter.h. A zeroed one is empty.
 *
 * Bucket 0 is for the value 0, bucket i for those from 2^(i-1) to 2^i - 1; the last also for all
 * beyond.
 */
#ifndef WHELP_HISTOGRAM_H
#define WHELP_HISTOGRAM_H

#include <stdint.h>

#include "vmm/counter.h"

#define HISTOGRAM_BUCKETS 40u /* the last begins at 2^38: as nanoseconds, 275 s */

struct histogram {
	uint64_t buckets[HISTOGRAM_BUCKETS];
	uint64_t sum; /* of all values, for the mean */
};

static inline unsigned histogram_bucket(uint64_t value)
{
	unsigned bucket = value ? 64u - (unsigned)__builtin_clzll(value) : 0;

	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The least value that counts there. */
static inline uint64_t histogram_low(unsigned bucket)
{
	return bucket ? UINT64_C(1) << (bucket - 1) : 0;
}

/* By the writer. */
static inline void histogram_add(struct histogram *h, uint64_t value)
{
	counter_add(&h->buckets[histogram_bucket(value)], 1);
	counter_add(&h->sum, value);
}

/* Adds what `from` has at the moment to `to`, which is the caller's alone. */
static inline void histogram_collect(struct histogram *to, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->buckets[i] += counter_read(&from->buckets[i]);
	to->sum += counter_read(&from->sum);
}

/* The following are for one that nobody writes to. */

static inline uint64_t histogram_count(const struct histogram *h)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		count += h->buckets[i];
	return count;
}

/*
 * The value that `percent` of the values do not exceed, as far as the buckets tell: those of one
 * bucket count as spread evenly over it, so it is off by less than a factor of two. 0 when there
 * are none.
 */
double histogram_percentile(const struct histogram *h, double percent);

#endif
