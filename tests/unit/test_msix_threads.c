/* SPDX-License-Identifier: GPL-2.0-or-later */
/* MSI-X: masks, pending bits, routes; and threads that fire while a vCPU masks and unmasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/pci_regs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices/msix.h"
#include "tests/driver/board.h"
#include "tests/driver/virtio_driver.h"
#include "vmm/util.h"

#define SLOT	2u
#define VECTORS 70u /* more than one word of pending bits */

struct fixture {
	struct board board;
	struct pci_function function;
	struct msix msix;
	uint64_t bar;
	atomic_uint fired[VECTORS];
	unsigned routed[VECTORS];
	uint64_t address[VECTORS];
	uint32_t data[VECTORS];
};

static void route(void *ctx, unsigned vector, uint64_t address, uint32_t data)
{
	struct fixture *f = ctx;

	f->routed[vector]++;
	f->address[vector] = address;
	f->data[vector] = data;
}

static void fire(void *ctx, unsigned vector)
{
	atomic_fetch_add(&((struct fixture *)ctx)->fired[vector], 1);
}

static const struct msix_ops ops = { .route = route, .fire = fire };

static void config_written(struct pci_function *function, unsigned offset, unsigned len)
{
	msix_config_written(&container_of(function, struct fixture, function)->msix, offset, len);
}

static const struct pci_function_ops function_ops = { .config_written = config_written };

static int setup(void **state)
{
	const struct pci_identity identity = { .vendor = 1, .device = 2 };
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	board_init(&f->board);
	pci_init(&f->function, &identity, &function_ops);
	assert_int_equal(msix_init(&f->msix, &f->function, 3, VECTORS, &ops, f), 0);
	assert_int_equal(pci_host_plug(&f->board.pci, SLOT, &f->function), 0);
	board_config_write(&f->board, SLOT, PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
	f->bar = board_config_read(&f->board, SLOT, PCI_BASE_ADDRESS_3, 4);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	board_unplug(&f->board);
	msix_fini(&f->msix);
	msix_fini(&f->msix);
	board_fini(&f->board);
	free(f);
	return 0;
}

static unsigned capability(struct fixture *f)
{
	return driver_find_capability(&f->board, SLOT, PCI_CAP_ID_MSIX, 0);
}

static void set_control(struct fixture *f, uint16_t control)
{
	board_config_write(&f->board, SLOT, capability(f) + PCI_MSIX_FLAGS, 2, control);
}

static uint64_t entry(const struct fixture *f, unsigned vector)
{
	return f->bar + (uint64_t)vector * PCI_MSIX_ENTRY_SIZE;
}

static void set_entry(struct fixture *f, unsigned vector, uint64_t address, uint32_t data)
{
	board_mmio_write(&f->board, entry(f, vector), 4, (uint32_t)address);
	board_mmio_write(&f->board, entry(f, vector) + 4, 4, address >> 32);
	board_mmio_write(&f->board, entry(f, vector) + 8, 4, data);
}

static void mask(struct fixture *f, unsigned vector, bool masked)
{
	board_mmio_write(&f->board, entry(f, vector) + PCI_MSIX_ENTRY_VECTOR_CTRL, 4, masked);
}

static uint64_t pending_base(struct fixture *f)
{
	return f->bar + (board_config_read(&f->board, SLOT, capability(f) + PCI_MSIX_PBA, 4) & ~7u);
}

static bool pending(struct fixture *f, unsigned vector)
{
	return board_mmio_read(&f->board, pending_base(f) + vector / 8, 1) >> vector % 8 & 1;
}

static unsigned fired(struct fixture *f, unsigned vector)
{
	return atomic_load(&f->fired[vector]);
}

static void test_capability(void **state)
{
	struct fixture *f = *state;
	unsigned at = capability(f);

	assert_int_not_equal(at, 0);
	assert_int_equal(board_config_read(&f->board, SLOT, at + PCI_MSIX_FLAGS, 2), VECTORS - 1);
	assert_int_equal(board_config_read(&f->board, SLOT, at + PCI_MSIX_TABLE, 4), 3);
	assert_int_equal(board_config_read(&f->board, SLOT, at + PCI_MSIX_PBA, 4) & 7, 3);
	set_control(f, 0xffff);
	assert_int_equal(board_config_read(&f->board, SLOT, at + PCI_MSIX_FLAGS, 2),
			 0xc000 | (VECTORS - 1));
	assert_true(msix_enabled(&f->msix));
	set_control(f, 0);
	assert_false(msix_enabled(&f->msix));
}

static void test_table_after_power_on(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < VECTORS; i++) {
		assert_int_equal(board_mmio_read(&f->board, entry(f, i), 8), 0);
		assert_int_equal(board_mmio_read(&f->board, entry(f, i) + 8, 4), 0);
		assert_int_equal(board_mmio_read(&f->board, entry(f, i) + 12, 4), 1);
		assert_false(pending(f, i));
	}
}

static void test_table_reads_what_was_written(void **state)
{
	struct fixture *f = *state;

	set_entry(f, 3, 0x1122334455667788, 0x99aabbcc);
	board_mmio_write(&f->board, entry(f, 3) + 12, 4, 0xffffffff);
	assert_int_equal(board_mmio_read(&f->board, entry(f, 3), 8), 0x1122334455667788);
	assert_int_equal(board_mmio_read(&f->board, entry(f, 3) + 4, 4), 0x11223344);
	assert_int_equal(board_mmio_read(&f->board, entry(f, 3) + 8, 8), 0x199aabbcc);
	board_mmio_write(&f->board, entry(f, 3) + 8, 8, 0x12345678);
	assert_int_equal(board_mmio_read(&f->board, entry(f, 3) + 8, 8), 0x12345678);
	/* Behind the last entry there is nothing. */
	board_mmio_write(&f->board, entry(f, VECTORS), 4, 0xffffffff);
	assert_int_equal(board_mmio_read(&f->board, entry(f, VECTORS), 4), 0);
}

static void test_fires_when_unmasked(void **state)
{
	struct fixture *f = *state;

	set_entry(f, 5, 0xfee00000, 0x45);
	assert_int_equal(f->routed[5], 0);
	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	assert_int_equal(f->routed[5], 0);
	mask(f, 5, false);
	assert_int_equal(f->routed[5], 1);
	assert_int_equal(f->address[5], 0xfee00000);
	assert_int_equal(f->data[5], 0x45);
	msix_fire(&f->msix, 5);
	msix_fire(&f->msix, 5);
	assert_int_equal(fired(f, 5), 2);
	assert_false(pending(f, 5));
	msix_fire(&f->msix, VECTORS);
	msix_fire(&f->msix, 0xffff);
}

static void test_routes_only_what_changed(void **state)
{
	struct fixture *f = *state;

	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	set_entry(f, 5, 0xfee00000, 0x45);
	for (unsigned i = 0; i < 10; i++) {
		mask(f, 5, false);
		mask(f, 5, true);
	}
	assert_int_equal(f->routed[5], 1);
	set_entry(f, 5, 0xfee01000, 0x46);
	set_control(f, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
	mask(f, 5, false);
	assert_int_equal(f->routed[5], 1);
	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	assert_int_equal(f->routed[5], 2);
	assert_int_equal(f->address[5], 0xfee01000);
	/* An unmasked entry may be changed as well. */
	board_mmio_write(&f->board, entry(f, 5) + 8, 4, 0x47);
	assert_int_equal(f->routed[5], 3);
	assert_int_equal(f->data[5], 0x47);
}

static void test_g17_vector_mask(void **state)
{
	static const unsigned vectors[] = { 0, 7, 8, 31, 63, 64, VECTORS - 1 };
	struct fixture *f = *state;

	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	for (unsigned i = 0; i < ARRAY_SIZE(vectors); i++) {
		unsigned v = vectors[i];

		set_entry(f, v, 0xfee00000, v);
		msix_fire(&f->msix, v);
		msix_fire(&f->msix, v);
		assert_int_equal(fired(f, v), 0);
		for (unsigned n = 0; n < VECTORS; n++)
			assert_int_equal(pending(f, n), n == v);
		mask(f, v, false);
		assert_int_equal(fired(f, v), 1);
		assert_false(pending(f, v));
		mask(f, v, true);
		mask(f, v, false);
		assert_int_equal(fired(f, v), 1);
		mask(f, v, true);
	}
}

static void test_g17_function_mask(void **state)
{
	struct fixture *f = *state;

	set_control(f, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
	set_entry(f, 1, 0xfee00000, 1);
	set_entry(f, 2, 0xfee00000, 2);
	mask(f, 1, false);
	msix_fire(&f->msix, 1);
	msix_fire(&f->msix, 2);
	assert_true(pending(f, 1) && pending(f, 2));
	assert_int_equal(fired(f, 1) + fired(f, 2), 0);
	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	/* The second one's own mask still holds. */
	assert_int_equal(fired(f, 1), 1);
	assert_int_equal(fired(f, 2), 0);
	assert_false(pending(f, 1));
	assert_true(pending(f, 2));
	mask(f, 2, false);
	assert_int_equal(fired(f, 2), 1);
}

static void test_pending_bits_at_every_width(void **state)
{
	struct fixture *f = *state;
	uint64_t base = pending_base(f);

	for (unsigned v = 1; v < VECTORS; v += 3)
		msix_fire(&f->msix, v);
	for (unsigned width = 1; width <= 8; width *= 2) {
		for (unsigned offset = 0; offset < 16; offset += width) {
			uint64_t got = board_mmio_read(&f->board, base + offset, width);

			for (unsigned bit = 0; bit < 8 * width; bit++) {
				unsigned v = 8 * offset + bit;

				assert_int_equal(got >> bit & 1, v < VECTORS && v % 3 == 1);
			}
		}
	}
	/* They are the device's to write. */
	for (unsigned offset = 0; offset < 16; offset++)
		board_mmio_write(&f->board, base + offset, 1, 0xff);
	assert_int_equal(board_mmio_read(&f->board, base + 8, 8), 0x9);
	msix_clear_pending(&f->msix);
	assert_int_equal(board_mmio_read(&f->board, base, 8), 0);
	assert_int_equal(board_mmio_read(&f->board, base + 8, 8), 0);
}

static void test_m17_every_offset_and_width(void **state)
{
	struct fixture *f = *state;

	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	for (unsigned width = 1; width <= 8; width++) {
		for (unsigned offset = 0; offset < MSIX_BAR_SIZE; offset++) {
			board_mmio_read(&f->board, f->bar + offset, width);
			board_mmio_write(&f->board, f->bar + offset, width, ~0ull);
			board_mmio_write(&f->board, f->bar + offset, width, 0);
		}
	}
	/* Only aligned words reach the table. */
	set_entry(f, 4, 0x10, 0x20);
	board_mmio_write(&f->board, entry(f, 4) + 2, 4, 0xffffffff);
	board_mmio_write(&f->board, entry(f, 4), 2, 0xffff);
	board_mmio_write(&f->board, entry(f, 4) + 4, 8, ~0ull);
	assert_int_equal(board_mmio_read(&f->board, entry(f, 4), 8), 0x10);
}

/* ---- threads ---- */

#define RACED 3u

/* The windows are a few instructions wide: many rounds meet in one. TSan needs none to. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 6000u
#else
#define ROUNDS 100000u
#endif

struct race {
	struct fixture *f;
	atomic_uint started; /* the round that may begin */
	atomic_uint ended;   /* the last one the vCPU is through with */
};

static void wait_until(atomic_uint *value, unsigned least)
{
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;
	unsigned spins = 0;

	while (atomic_load(value) < least) {
		if (++spins % 256)
			continue;
		assert_true(time(NULL) <= until);
		sched_yield();
	}
}

/* A little time, so that rounds meet at every moment. */
static void dawdle(unsigned count)
{
	for (volatile unsigned i = 0; i < count; i++)
		;
}

/* A vCPU that masks and unmasks once a round: by the function's bit, or the vector's. */
static void *mask_main(void *arg)
{
	struct race *race = arg;

	for (unsigned round = 1; round <= ROUNDS; round++) {
		wait_until(&race->started, round);
		if (round % 4 == 0) {
			set_control(race->f, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
			set_control(race->f, PCI_MSIX_FLAGS_ENABLE);
		} else {
			mask(race->f, RACED, true);
			mask(race->f, RACED, false);
		}
		atomic_store(&race->ended, round);
	}
	return NULL;
}

/* One event a round: when both are through it has arrived, once, for nothing comes after it. */
static void test_g17_nothing_is_lost_in_the_race(void **state)
{
	struct fixture *f = *state;
	struct race race = { .f = f };
	pthread_t thread;

	set_control(f, PCI_MSIX_FLAGS_ENABLE);
	mask(f, RACED, false);
	assert_int_equal(pthread_create(&thread, NULL, mask_main, &race), 0);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		atomic_store(&race.started, round);
		dawdle(round * 7 % 3000);
		msix_fire(&f->msix, RACED);
		wait_until(&race.ended, round);
		if (fired(f, RACED) != round)
			fail_msg("round %u: %u arrived", round, fired(f, RACED));
		assert_false(pending(f, RACED));
	}
	pthread_join(thread, NULL);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_capability),
		FRESH(test_table_after_power_on),
		FRESH(test_table_reads_what_was_written),
		FRESH(test_fires_when_unmasked),
		FRESH(test_routes_only_what_changed),
		FRESH(test_g17_vector_mask),
		FRESH(test_g17_function_mask),
		FRESH(test_pending_bits_at_every_width),
		FRESH(test_m17_every_offset_and_width),
		FRESH(test_g17_nothing_is_lost_in_the_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
