/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Little-endian fields that the guest and the device share. The types are structs, so that a plain
 * read or write does not compile: every access names how it is ordered, and happens exactly once.
 *
 * `_relaxed` reads or writes once without ordering; `_acquire` orders later accesses after the
 * load; `_release` orders earlier accesses before the store. A comment at each acquire, release and
 * fence names its partner on the other side.
 */
#ifndef WHELP_LE_H
#define WHELP_LE_H

#include <stdint.h>

typedef struct {
	uint16_t raw;
} le16;

typedef struct {
	uint32_t raw;
} le32;

typedef struct {
	uint64_t raw;
} le64;

static inline uint16_t le16_load_relaxed(const le16 *p)
{
	return __atomic_load_n(&p->raw, __ATOMIC_RELAXED);
}

static inline uint16_t le16_load_acquire(const le16 *p)
{
	return __atomic_load_n(&p->raw, __ATOMIC_ACQUIRE);
}

static inline void le16_store_relaxed(le16 *p, uint16_t value)
{
	__atomic_store_n(&p->raw, value, __ATOMIC_RELAXED);
}

static inline void le16_store_release(le16 *p, uint16_t value)
{
	__atomic_store_n(&p->raw, value, __ATOMIC_RELEASE);
}

static inline uint32_t le32_load_relaxed(const le32 *p)
{
	return __atomic_load_n(&p->raw, __ATOMIC_RELAXED);
}

static inline void le32_store_relaxed(le32 *p, uint32_t value)
{
	__atomic_store_n(&p->raw, value, __ATOMIC_RELAXED);
}

static inline uint64_t le64_load_relaxed(const le64 *p)
{
	return __atomic_load_n(&p->raw, __ATOMIC_RELAXED);
}

static inline void le64_store_relaxed(le64 *p, uint64_t value)
{
	__atomic_store_n(&p->raw, value, __ATOMIC_RELAXED);
}

#endif
