/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters of one writer, the thread that owns them, and of any readers. Each is a plain uint64_t
 * that only these functions touch. A reader sees some value that it had, of each counter by itself.
 */
#ifndef WHELP_COUNTER_H
#define WHELP_COUNTER_H

#include <stdint.h>

static inline uint64_t counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void counter_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void counter_add(uint64_t *counter, uint64_t n)
{
	/* One writer: a relaxed load and store suffice, and cost no locked instruction. */
	counter_set(counter, counter_read(counter) + n);
}

#endif
