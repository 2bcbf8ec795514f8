/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A bus: which range answers what, and ranges that come and go under accesses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "vmm/bus.h"
#include "vmm/util.h"

/* A device that notes its last access; reads give its tag and the offset. */
struct device {
	uint8_t tag;
	unsigned reads;
	unsigned writes;
	uint64_t offset;
	unsigned len;
	uint8_t data[8];
};

static void device_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	struct device *device = ctx;

	device->reads++;
	device->offset = offset;
	device->len = len;
	memset(data, device->tag, len);
}

static void device_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	struct device *device = ctx;

	device->writes++;
	device->offset = offset;
	device->len = len;
	memcpy(device->data, data, len);
}

static const struct bus_ops device_ops = { .read = device_read, .write = device_write };
static const struct bus_ops deaf_ops = { 0 };

static int setup(void **state)
{
	static struct bus bus;

	bus_init(&bus);
	*state = &bus;
	return 0;
}

static int teardown(void **state)
{
	bus_fini(*state);
	return 0;
}

static void test_add_checks_its_arguments(void **state)
{
	struct bus *bus = *state;
	struct device d = { 0 };

	assert_int_equal(bus_add(bus, 0x100, 0, &device_ops, &d), -EINVAL);
	assert_int_equal(bus_add(bus, UINT64_MAX, 2, &device_ops, &d), -EINVAL);
	assert_int_equal(bus_add(bus, 1, UINT64_MAX, &device_ops, &d), 0);
	assert_int_equal(bus_remove(bus, 1), 0);
	assert_int_equal(bus_add(bus, 2, UINT64_MAX, &device_ops, &d), -EINVAL);
	assert_int_equal(bus_add(bus, UINT64_MAX, 1, &device_ops, &d), 0);
	assert_int_equal(bus_remove(bus, 0x100), -ENOENT);
	assert_int_equal(bus_remove(bus, UINT64_MAX), 0);
	assert_int_equal(bus_remove(bus, UINT64_MAX), -ENOENT);
}

static void test_overlaps_are_refused(void **state)
{
	static const struct {
		uint64_t base, size;
		int result;
	} cases[] = {
		{ 0x100, 0x10, -EEXIST },
		{ 0x10f, 1, -EEXIST },
		{ 0x100, 1, -EEXIST },
		{ 0xff, 2, -EEXIST },
		{ 0x10f, 2, -EEXIST },
		{ 0xf0, 0x30, -EEXIST },
		{ 0, UINT64_MAX, -EEXIST },
		{ 0x108, 0x1000, -EEXIST },
		{ 0xff, 1, 0 },
		{ 0x110, 1, 0 },
		{ 0xf0, 0x10, 0 },
		{ 0x110, 0xf0, 0 },
		{ 0x111, 0x100, -EEXIST },
	};
	struct bus *bus = *state;
	struct device d = { 0 };

	assert_int_equal(bus_add(bus, 0x100, 0x10, &device_ops, &d), 0);
	assert_int_equal(bus_add(bus, 0x200, 0x10, &device_ops, &d), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(bus_add(bus, cases[i].base, cases[i].size, &device_ops, &d),
				 cases[i].result);
		if (!cases[i].result)
			assert_int_equal(bus_remove(bus, cases[i].base), 0);
	}
	assert_int_equal(bus->count, 2);
}

static void test_widths_at_the_edges(void **state)
{
	struct bus *bus = *state;
	struct device low = { .tag = 0x11 }, high = { .tag = 0x22 };

	/* Two that meet, and nothing beside them. */
	assert_int_equal(bus_add(bus, 0x1010, 0x10, &device_ops, &high), 0);
	assert_int_equal(bus_add(bus, 0x1000, 0x10, &device_ops, &low), 0);
	for (uint64_t addr = 0xff0; addr < 0x1030; addr++) {
		for (unsigned len = 1; len <= 8; len++) {
			struct device *hit = range_inside(addr, len, 0x1000, 0x10)   ? &low
					     : range_inside(addr, len, 0x1010, 0x10) ? &high
										     : NULL;
			unsigned reads = low.reads + high.reads, writes = low.writes + high.writes;
			uint8_t data[9];

			memset(data, 0x77, sizeof(data));
			bus_read(bus, addr, data, len);
			for (unsigned i = 0; i < len; i++)
				assert_int_equal(data[i], hit ? hit->tag : 0xff);
			assert_int_equal(data[len], 0x77);
			bus_write(bus, addr, "abcdefgh", len);
			assert_int_equal(low.reads + high.reads, reads + !!hit);
			assert_int_equal(low.writes + high.writes, writes + !!hit);
			if (!hit)
				continue;
			assert_int_equal(hit->offset, addr - (hit == &low ? 0x1000 : 0x1010));
			assert_int_equal(hit->len, len);
			assert_memory_equal(hit->data, "abcdefgh", len);
		}
	}
}

static void test_the_last_byte_of_the_space(void **state)
{
	struct bus *bus = *state;
	struct device d = { .tag = 0x33 };
	uint16_t data = 0;

	assert_int_equal(bus_add(bus, UINT64_MAX - 1, 2, &device_ops, &d), 0);
	bus_read(bus, UINT64_MAX - 1, &data, 2);
	assert_int_equal(data, 0x3333);
	bus_read(bus, UINT64_MAX, &data, 2);
	assert_int_equal(data, 0xffff);
	bus_read(bus, UINT64_MAX, &data, 1);
	assert_int_equal(data, 0xff33);
}

static void test_missing_callbacks(void **state)
{
	struct bus *bus = *state;
	uint32_t data = 0;

	assert_int_equal(bus_add(bus, 0, 16, &deaf_ops, NULL), 0);
	bus_write(bus, 0, &data, 4);
	bus_read(bus, 0, &data, 4);
	assert_int_equal(data, 0xffffffff);
}

static void test_many_ranges(void **state)
{
	struct bus *bus = *state;
	struct device devices[100];

	memset(devices, 0, sizeof(devices));
	/* In an order that is neither up nor down. */
	for (unsigned n = 0; n < ARRAY_SIZE(devices); n++) {
		unsigned i = n * 37 % ARRAY_SIZE(devices);

		devices[i].tag = (uint8_t)i;
		assert_int_equal(bus_add(bus, i * 0x20, 0x10, &device_ops, &devices[i]), 0);
	}
	for (unsigned lap = 0; lap < 2; lap++) {
		for (unsigned i = 0; i < ARRAY_SIZE(devices); i++) {
			uint8_t data = 0xee;

			bus_read(bus, i * 0x20 + 0xf, &data, 1);
			assert_int_equal(data, lap && i % 2 ? 0xff : i);
			bus_read(bus, i * 0x20 + 0x10, &data, 1);
			assert_int_equal(data, 0xff);
		}
		for (unsigned i = 1; i < ARRAY_SIZE(devices); i += 2)
			assert_int_equal(bus_remove(bus, i * 0x20), lap ? -ENOENT : 0);
	}
}

/* A callback may change the bus it was called by. */
static void move_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	static const struct bus_ops move_ops = { .write = move_write };
	struct bus *bus = ctx;

	(void)offset;
	(void)data;
	(void)len;
	assert_int_equal(bus_remove(bus, 0x10), 0);
	assert_int_equal(bus_add(bus, 0x20, 8, &move_ops, bus), 0);
}

static void test_a_callback_moves_its_range(void **state)
{
	static const struct bus_ops ops = { .write = move_write };
	struct bus *bus = *state;

	assert_int_equal(bus_add(bus, 0x10, 8, &ops, bus), 0);
	bus_write(bus, 0x10, "x", 1);
	assert_int_equal(bus_remove(bus, 0x20), 0);
}

/* ---- threads ---- */

struct shared {
	struct bus bus;
	atomic_bool stop;
	atomic_uint hits;
	atomic_uint bad;
};

#define PLACES 8u

static void tag_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	(void)offset;
	memset(data, (int)(uintptr_t)ctx, len);
}

static const struct bus_ops tag_ops = { .read = tag_read };

static void *reader_main(void *arg)
{
	struct shared *s = arg;

	while (!atomic_load(&s->stop)) {
		for (unsigned i = 0; i < 2 * PLACES; i++) {
			uint8_t data[4];

			bus_read(&s->bus, i * 0x100, data, 4);
			/* Those with even numbers are always there; others come and go. */
			if (data[0] == i && data[3] == i)
				atomic_fetch_add(&s->hits, 1);
			else if (data[0] != 0xff || data[3] != 0xff || i % 2 == 0)
				atomic_fetch_add(&s->bad, 1);
		}
	}
	return NULL;
}

static void test_ranges_come_and_go_under_readers(void **state)
{
	struct shared s = { 0 };
	pthread_t readers[2];

	(void)state;
	bus_init(&s.bus);
	for (uintptr_t i = 0; i < PLACES; i++)
		assert_int_equal(bus_add(&s.bus, 2 * i * 0x100, 0x10, &tag_ops, (void *)(2 * i)),
				 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, reader_main, &s), 0);
	for (unsigned lap = 0; lap < 300 || atomic_load(&s.hits) < 1000; lap++) {
		for (uintptr_t i = 1; i < 2 * PLACES; i += 2)
			assert_int_equal(bus_add(&s.bus, i * 0x100, 0x10, &tag_ops, (void *)i), 0);
		for (uintptr_t i = 1; i < 2 * PLACES; i += 2)
			assert_int_equal(bus_remove(&s.bus, i * 0x100), 0);
	}
	atomic_store(&s.stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	assert_int_equal(atomic_load(&s.bad), 0);
	bus_fini(&s.bus);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_add_checks_its_arguments),
		FRESH(test_overlaps_are_refused),
		FRESH(test_widths_at_the_edges),
		FRESH(test_the_last_byte_of_the_space),
		FRESH(test_missing_callbacks),
		FRESH(test_many_ranges),
		FRESH(test_a_callback_moves_its_range),
		cmocka_unit_test(test_ranges_come_and_go_under_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
