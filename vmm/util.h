/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Small helpers without state: sizes, alignment, checked arithmetic on guest-given numbers.
 */
#ifndef WHELP_UTIL_H
#define WHELP_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/*
 * Each argument is evaluated once: it may be a call whose next answer differs. `n` gives nested
 * ones names of their own.
 */
#define MIN(a, b) PICK_ONCE(a, <, b, __COUNTER__)
#define MAX(a, b) PICK_ONCE(a, >, b, __COUNTER__)
#define PICK_ONCE(a, op, b, n) PICK_NAMED(a, op, b, n)
#define PICK_NAMED(a, op, b, n)                                                                    \
	({                                                                                         \
		__auto_type a_##n = (a);                                                           \
		__auto_type b_##n = (b);                                                           \
		a_##n op b_##n ? a_##n : b_##n;                                                    \
	})

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

#define PAGE_SIZE 4096u

/* `align` must be a power of two; wraps at 2^64 like any addition. */
static inline uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

static inline uint64_t align_down(uint64_t value, uint64_t align)
{
	return value & ~(align - 1);
}

static inline bool is_power_of_two(uint64_t value)
{
	return value && !(value & (value - 1));
}

/*
 * True when [start, start + len) lies inside [base, base + size). Written with subtractions only,
 * so that no guest-given number can wrap it.
 */
static inline bool range_inside(uint64_t start, uint64_t len, uint64_t base, uint64_t size)
{
	return start >= base && start - base <= size && len <= size - (start - base);
}

/* True when [a, a + alen) and [b, b + blen) share a byte. Neither range may wrap. */
static inline bool ranges_overlap(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return alen && blen && (a < b ? b - a < alen : a - b < blen);
}

/*
 * Reads or writes `len` (1, 2, 4 or 8) bytes of a register held as a host integer; x86 and the
 * devices are little-endian, and so is every host this builds for.
 */
static inline uint64_t load_le(const void *data, unsigned len)
{
	uint64_t value = 0;

	__builtin_memcpy(&value, data, len > 8 ? 8 : len);
	return value;
}

static inline void store_le(void *data, unsigned len, uint64_t value)
{
	__builtin_memcpy(data, &value, len > 8 ? 8 : len);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hosts are little-endian");

#endif
