/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An address space of the guest's that devices answer in: one bus for port I/O, one for MMIO. It
 * maps disjoint ranges to a device's read and write callbacks, which get an offset into their
 * range: a device never knows its base.
 *
 * Ranges may be added and removed while vCPUs run (a guest moves a BAR). A callback runs without
 * the bus's lock, hence may do so itself; it may also still be running, in another thread, when
 * bus_remove() of its range returns: a range's context must outlive the vCPUs.
 */
#ifndef WHELP_BUS_H
#define WHELP_BUS_H

#include <pthread.h>
#include <stdint.h>

/*
 * `name` is the device's kind, for statistics; NULL if it has none.
 *
 * `len` is 1 to 8 bytes, and [offset, offset + len) lies inside the range. Devices are
 * little-endian. Either callback may be NULL: reads then give all ones, writes are dropped.
 */
struct bus_ops {
	const char *name;
	void (*read)(void *ctx, uint64_t offset, void *data, unsigned len);
	void (*write)(void *ctx, uint64_t offset, const void *data, unsigned len);
};

struct bus_range {
	uint64_t base;
	uint64_t size;
	const struct bus_ops *ops;
	void *ctx;
};

struct bus {
	pthread_rwlock_t lock;
	struct bus_range *ranges; /* sorted by base */
	unsigned count;
	unsigned room;
};

void bus_init(struct bus *bus);

/* No callback is called any more; contexts are the callers' to free. */
void bus_fini(struct bus *bus);

/*
 * Claims [base, base + size) for `ops`, called with `ctx`; both stay the caller's.
 * Returns 0, -EINVAL (empty or wrapping range), -EEXIST (overlaps a claimed one) or -ENOMEM.
 */
int bus_add(struct bus *bus, uint64_t base, uint64_t size, const struct bus_ops *ops, void *ctx);

/* Gives up the range that starts at `base`; -ENOENT when there is none. */
int bus_remove(struct bus *bus, uint64_t base);

/*
 * One access by a vCPU, `len` 1 to 8. An access that no range holds whole reads as all ones and
 * writes nowhere. Returns the name of the device that holds it, or NULL.
 */
const char *bus_read(struct bus *bus, uint64_t addr, void *data, unsigned len);
const char *bus_write(struct bus *bus, uint64_t addr, const void *data, unsigned len);

#endif
