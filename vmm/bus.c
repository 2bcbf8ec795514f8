/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A sorted array under a reader-writer lock. The lock is held only to look a range up and copy it,
 * not over the callback: a write to PCI configuration space may move a BAR on the very bus it came
 * by. The data path does not come here (kicks are ioeventfds, interrupts irqfds), so the lock costs
 * nothing that counts.
 */
#include "vmm/bus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

void bus_init(struct bus *bus)
{
	memset(bus, 0, sizeof(*bus));
	pthread_rwlock_init(&bus->lock, NULL);
}

void bus_fini(struct bus *bus)
{
	pthread_rwlock_destroy(&bus->lock);
	free(bus->ranges);
	bus->ranges = NULL;
	bus->count = bus->room = 0;
}

/*
 * The number of ranges whose base is at most `addr`, which is where a range at `addr` + 1 would go.
 */
static unsigned upper_bound(const struct bus *bus, uint64_t addr)
{
	unsigned lo = 0, hi = bus->count;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (bus->ranges[mid].base <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int make_room(struct bus *bus)
{
	unsigned room = bus->room ? 2 * bus->room : 16;
	struct bus_range *ranges;

	if (bus->count < bus->room)
		return 0;
	ranges = reallocarray(bus->ranges, room, sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	bus->ranges = ranges;
	bus->room = room;
	return 0;
}

static int add_locked(struct bus *bus, const struct bus_range *range)
{
	unsigned at = upper_bound(bus, range->base);
	int err;

	if (at && ranges_overlap(bus->ranges[at - 1].base, bus->ranges[at - 1].size, range->base,
				 range->size))
		return -EEXIST;
	if (at < bus->count && ranges_overlap(bus->ranges[at].base, bus->ranges[at].size,
					      range->base, range->size))
		return -EEXIST;
	err = make_room(bus);
	if (err)
		return err;
	memmove(&bus->ranges[at + 1], &bus->ranges[at], (bus->count - at) * sizeof(*range));
	bus->ranges[at] = *range;
	bus->count++;
	return 0;
}

int bus_add(struct bus *bus, uint64_t base, uint64_t size, const struct bus_ops *ops, void *ctx)
{
	struct bus_range range = { .base = base, .size = size, .ops = ops, .ctx = ctx };
	int err;

	if (!size || size - 1 > UINT64_MAX - base)
		return -EINVAL;
	pthread_rwlock_wrlock(&bus->lock);
	err = add_locked(bus, &range);
	pthread_rwlock_unlock(&bus->lock);
	return err;
}

int bus_remove(struct bus *bus, uint64_t base)
{
	unsigned at;
	int err = -ENOENT;

	pthread_rwlock_wrlock(&bus->lock);
	at = upper_bound(bus, base);
	if (at && bus->ranges[at - 1].base == base) {
		memmove(&bus->ranges[at - 1], &bus->ranges[at],
			(bus->count - at) * sizeof(*bus->ranges));
		bus->count--;
		err = 0;
	}
	pthread_rwlock_unlock(&bus->lock);
	return err;
}

static bool lookup(struct bus *bus, uint64_t addr, unsigned len, struct bus_range *range)
{
	bool found = false;
	unsigned at;

	pthread_rwlock_rdlock(&bus->lock);
	at = upper_bound(bus, addr);
	if (at && range_inside(addr, len, bus->ranges[at - 1].base, bus->ranges[at - 1].size)) {
		*range = bus->ranges[at - 1];
		found = true;
	}
	pthread_rwlock_unlock(&bus->lock);
	return found;
}

const char *bus_read(struct bus *bus, uint64_t addr, void *data, unsigned len)
{
	struct bus_range range;
	bool found = lookup(bus, addr, len, &range);

	if (found && range.ops->read)
		range.ops->read(range.ctx, addr - range.base, data, len);
	else
		memset(data, 0xff, len);
	return found ? range.ops->name : NULL;
}

const char *bus_write(struct bus *bus, uint64_t addr, const void *data, unsigned len)
{
	struct bus_range range;

	if (!lookup(bus, addr, len, &range))
		return NULL;
	if (range.ops->write)
		range.ops->write(range.ctx, addr - range.base, data, len);
	return range.ops->name;
}
