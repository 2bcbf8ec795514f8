/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PCI functions behind their host bridge: configuration space, BARs, capabilities, interrupt lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/pci_regs.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/board.h"
#include "tests/driver/virtio_driver.h"
#include "vmm/util.h"

#define FUNCTIONS 5u
#define BAR_SIZE  0x2000u
#define IO_SIZE	  0x40u

#define BAR0 PCI_BASE_ADDRESS_0
#define BAR2 PCI_BASE_ADDRESS_2

/* Function n sits in slot n + 1: a memory BAR 0 that reads as its tag, an I/O BAR 2, a pin. */
struct thing {
	struct pci_function function;
	uint8_t tag;
	unsigned maps, unmaps;
	uint64_t mapped_at;
};

struct fixture {
	struct board board;
	struct thing things[FUNCTIONS];
};

static void tag_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	(void)offset;
	memset(data, ((struct thing *)ctx)->tag, len);
}

static const struct bus_ops tag_ops = { .read = tag_read };

static void bar_mapped(struct pci_function *function, unsigned bar, uint64_t base, bool on)
{
	struct thing *thing = container_of(function, struct thing, function);

	if (bar)
		return;
	thing->maps += on;
	thing->unmaps += !on;
	thing->mapped_at = base;
}

static const struct pci_function_ops thing_ops = { .bar_mapped = bar_mapped };

static const struct pci_identity identity = {
	.vendor = 0x1234,
	.device = 0x5678,
	.subsystem_vendor = 0x9abc,
	.subsystem = 0xdef0,
	.class_code = 0x020304,
	.revision = 7,
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	board_init(&f->board);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		struct thing *t = &f->things[i];

		t->tag = (uint8_t)(0x40 + i);
		pci_init(&t->function, &identity, &thing_ops);
		pci_add_bar(&t->function, 0, PCI_SPACE_MEMORY, BAR_SIZE, &tag_ops, t);
		pci_add_bar(&t->function, 2, PCI_SPACE_IO, IO_SIZE, &tag_ops, t);
		pci_add_intx(&t->function);
		assert_int_equal(pci_host_plug(&f->board.pci, i + 1, &t->function), 0);
	}
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	board_unplug(&f->board);
	board_fini(&f->board);
	free(f);
	return 0;
}

static uint32_t get(struct fixture *f, unsigned slot, unsigned offset, unsigned len)
{
	return board_config_read(&f->board, slot, offset, len);
}

static void put(struct fixture *f, unsigned slot, unsigned offset, unsigned len, uint32_t value)
{
	board_config_write(&f->board, slot, offset, len, value);
}

/* What answers at an MMIO address. */
static uint8_t at(struct fixture *f, uint64_t addr)
{
	return (uint8_t)board_mmio_read(&f->board, addr, 1);
}

static void enable(struct fixture *f, unsigned slot)
{
	put(f, slot, PCI_COMMAND, 2, PCI_COMMAND_MEMORY | PCI_COMMAND_IO);
}

static void test_identity_and_write_mask(void **state)
{
	struct fixture *f = *state;

	for (unsigned offset = 0; offset < PCI_CONFIG_SIZE; offset++)
		put(f, 1, offset, 1, 0xff);
	assert_int_equal(get(f, 1, PCI_VENDOR_ID, 4), 0x56781234);
	assert_int_equal(get(f, 1, PCI_SUBSYSTEM_VENDOR_ID, 4), 0xdef09abc);
	assert_int_equal(get(f, 1, PCI_CLASS_REVISION, 4), 0x02030407);
	assert_int_equal(get(f, 1, PCI_HEADER_TYPE, 1), 0);
	assert_int_equal(get(f, 1, PCI_INTERRUPT_PIN, 1), 1);
	assert_int_equal(get(f, 1, PCI_INTERRUPT_LINE, 1), 0xff);
	assert_int_equal(get(f, 1, PCI_ROM_ADDRESS, 4), 0);
	assert_int_equal(get(f, 1, PCI_STATUS, 2), 0);
	assert_int_equal(get(f, 1, PCI_CAPABILITY_LIST, 1), 0);
	/* The bridge has neither BARs nor a pin. */
	assert_int_equal(get(f, 0, PCI_CLASS_DEVICE, 2), 0x0600);
	assert_int_equal(get(f, 0, PCI_INTERRUPT_PIN, 1), 0);
	put(f, 0, BAR0, 4, 0xffffffff);
	assert_int_equal(get(f, 0, BAR0, 4), 0);
}

static void test_empty_slots_read_as_ones(void **state)
{
	struct fixture *f = *state;

	for (unsigned slot = FUNCTIONS + 1; slot < PCI_SLOTS; slot++) {
		assert_int_equal(get(f, slot, PCI_VENDOR_ID, 4), 0xffffffff);
		put(f, slot, PCI_COMMAND, 2, 7);
	}
	/* Function 1 of a slot that is there, and what lies behind the 256 bytes. */
	assert_int_equal(board_mmio_read(&f->board, BOARD_ECAM + (1 << 15) + 0x1000, 4),
			 0xffffffff);
	assert_int_equal(get(f, 1, 0x100, 4), 0xffffffff);
	assert_int_equal(get(f, 1, 0xfe, 4), 0xffffffff);
}

static void test_plug_checks_the_slot_and_the_windows(void **state)
{
	struct fixture *f = *state;
	struct pci_function other;

	pci_init(&other, &identity, NULL);
	assert_int_equal(pci_host_plug(&f->board.pci, 1, &other), -EBUSY);
	assert_int_equal(pci_host_plug(&f->board.pci, PCI_SLOTS, &other), -EBUSY);
	pci_add_bar(&other, 0, PCI_SPACE_MEMORY, 0x20000000, &tag_ops, NULL);
	assert_int_equal(pci_host_plug(&f->board.pci, 10, &other), -ENOSPC);
	assert_int_equal(get(f, 10, PCI_VENDOR_ID, 4), 0xffffffff);
}

static void test_first_assignment_is_aligned_and_apart(void **state)
{
	struct fixture *f = *state;

	for (unsigned slot = 1; slot <= FUNCTIONS; slot++) {
		uint32_t memory = get(f, slot, BAR0, 4), io = get(f, slot, BAR2, 4);

		assert_int_equal(memory % BAR_SIZE, 0);
		assert_true(range_inside(memory, BAR_SIZE, BOARD_PCI_BASE, BOARD_PCI_SIZE));
		assert_int_equal(io % IO_SIZE, PCI_BASE_ADDRESS_SPACE_IO);
		assert_true(range_inside(io & ~3u, IO_SIZE, BOARD_IO_BASE, BOARD_IO_SIZE));
		for (unsigned other = 1; other < slot; other++)
			assert_int_not_equal(get(f, other, BAR0, 4), memory);
		/* Off until the guest turns it on. */
		assert_int_equal(at(f, memory), 0xff);
		enable(f, slot);
		assert_int_equal(at(f, memory), f->things[slot - 1].tag);
		assert_int_equal(at(f, memory + BAR_SIZE - 1), f->things[slot - 1].tag);
		assert_int_equal(board_pio_read(&f->board, io & ~3u, 1), f->things[slot - 1].tag);
	}
}

static void size_bars(struct fixture *f)
{
	uint32_t memory = get(f, 1, BAR0, 4), io = get(f, 1, BAR2, 4);

	put(f, 1, BAR0, 4, 0xffffffff);
	assert_int_equal(get(f, 1, BAR0, 4), ~(BAR_SIZE - 1));
	put(f, 1, BAR0, 4, memory);
	put(f, 1, BAR2, 4, 0xffffffff);
	assert_int_equal(get(f, 1, BAR2, 4), ~(IO_SIZE - 1) | PCI_BASE_ADDRESS_SPACE_IO);
	put(f, 1, BAR2, 4, io);
	/* No BAR there. */
	put(f, 1, PCI_BASE_ADDRESS_1, 4, 0xffffffff);
	assert_int_equal(get(f, 1, PCI_BASE_ADDRESS_1, 4), 0);
	assert_int_equal(get(f, 1, BAR0, 4), memory);
	assert_int_equal(get(f, 1, BAR2, 4), io);
}

static void test_sizing_with_decoding_off_and_on(void **state)
{
	struct fixture *f = *state;
	uint32_t memory = get(f, 1, BAR0, 4);

	size_bars(f);
	assert_int_equal(f->things[0].maps, 0);
	enable(f, 1);
	size_bars(f);
	assert_int_equal(at(f, memory), 0x40);
	/* In the middle of it too. */
	put(f, 1, BAR0, 4, 0xffffffff);
	assert_int_equal(at(f, memory), 0x40);
	put(f, 1, BAR0, 4, memory);
	assert_int_equal(f->things[0].maps - f->things[0].unmaps, 1);
}

static void test_decoding_off_and_on(void **state)
{
	struct fixture *f = *state;
	uint32_t memory = get(f, 1, BAR0, 4);

	enable(f, 1);
	put(f, 1, PCI_COMMAND, 2, PCI_COMMAND_IO);
	assert_int_equal(at(f, memory), 0xff);
	assert_int_equal(f->things[0].unmaps, 1);
	/* Moved while it is off. */
	put(f, 1, BAR0, 4, BOARD_PCI_BASE + 0x100000);
	enable(f, 1);
	assert_int_equal(at(f, memory), 0xff);
	assert_int_equal(at(f, BOARD_PCI_BASE + 0x100000), 0x40);
}

static void expect_at(struct fixture *f, unsigned thing, uint64_t base)
{
	assert_int_equal(at(f, base), f->things[thing].tag);
	assert_int_equal(f->things[thing].mapped_at, base);
	assert_int_equal(f->things[thing].maps - f->things[thing].unmaps, 1);
}

static void test_m19_moving_a_bar(void **state)
{
	struct fixture *f = *state;
	uint32_t base = get(f, 1, BAR0, 4), other = get(f, 2, BAR0, 4);
	static const uint32_t outside[] = { 0,
					    0x1000,
					    BOARD_LOW_SIZE,
					    BOARD_ECAM,
					    0xfee00000,
					    BOARD_PCI_BASE - BAR_SIZE,
					    (uint32_t)(BOARD_PCI_BASE + BOARD_PCI_SIZE) };

	enable(f, 1);
	enable(f, 2);
	/* To free space. */
	put(f, 1, BAR0, 4, BOARD_PCI_BASE + 0x200000);
	expect_at(f, 0, BOARD_PCI_BASE + 0x200000);
	assert_int_equal(at(f, base), 0xff);
	/* By one step of its size, byte by byte. */
	put(f, 1, BAR0 + 1, 1, 0x20);
	expect_at(f, 0, BOARD_PCI_BASE + 0x202000);
	/* Out of the window: it goes on where it was. */
	for (unsigned i = 0; i < ARRAY_SIZE(outside); i++) {
		put(f, 1, BAR0, 4, outside[i]);
		expect_at(f, 0, BOARD_PCI_BASE + 0x202000);
	}
	assert_int_equal(get(f, 0, PCI_VENDOR_ID, 2), 0x1b36);
	/* Onto another: both go on. */
	put(f, 1, BAR0, 4, other);
	expect_at(f, 0, BOARD_PCI_BASE + 0x202000);
	expect_at(f, 1, other);
	/* To the window's very end. */
	put(f, 1, BAR0, 4, (uint32_t)(BOARD_PCI_BASE + BOARD_PCI_SIZE - BAR_SIZE));
	expect_at(f, 0, BOARD_PCI_BASE + BOARD_PCI_SIZE - BAR_SIZE);
	put(f, 1, BAR0, 4, base);
	expect_at(f, 0, base);
}

static void test_m19_two_bars_at_one_place(void **state)
{
	struct fixture *f = *state;
	uint32_t other = get(f, 2, BAR0, 4), base = get(f, 1, BAR0, 4);

	enable(f, 2);
	/* Enabled onto another one: it does not answer, the other does. */
	put(f, 1, BAR0, 4, other);
	enable(f, 1);
	expect_at(f, 1, other);
	assert_int_equal(f->things[0].maps, 0);
	put(f, 1, BAR0, 4, base);
	expect_at(f, 0, base);
}

static void test_capability_list(void **state)
{
	struct fixture *f = *state;
	static const uint8_t body[3] = { 0xaa, 0xbb, 0xcc }, writable[3] = { 0, 0xf0, 0xff };
	struct pci_function function;
	unsigned first, second, third;

	pci_init(&function, &identity, NULL);
	first = pci_add_capability(&function, 0x09, body, writable, sizeof(body));
	second = pci_add_capability(&function, 0x11, body, NULL, sizeof(body));
	third = pci_add_capability(&function, 0x09, body, NULL, 1);
	assert_int_equal(pci_host_plug(&f->board.pci, 9, &function), 0);
	assert_int_equal(driver_find_capability(&f->board, 9, 0x09, 0), first);
	assert_int_equal(driver_find_capability(&f->board, 9, 0x11, 0), second);
	assert_int_equal(driver_find_capability(&f->board, 9, 0x09, 1), third);
	assert_int_equal(driver_find_capability(&f->board, 9, 0x09, 2), 0);
	assert_int_equal(get(f, 9, third + 1, 1), 0);
	assert_int_equal(first % 4 + second % 4 + third % 4, 0);
	put(f, 9, first, 4, 0x55555555);
	put(f, 9, first + 4, 1, 0x55);
	assert_int_equal(get(f, 9, first, 1), 0x09);
	assert_int_equal(get(f, 9, first + 1, 1), second);
	assert_int_equal(get(f, 9, first + 2, 1), 0xaa);
	assert_int_equal(get(f, 9, first + 3, 1), 0x5b);
	assert_int_equal(get(f, 9, first + 4, 1), 0x55);
	put(f, 9, second, 4, 0);
	assert_int_equal(get(f, 9, second + 2, 2), 0xbbaa);
	f->board.pci.slots[9] = NULL;
}

/* ---- INTx ---- */

static void test_g21_lines_are_shared(void **state)
{
	struct fixture *f = *state;
	struct pci_host *host = &f->board.pci;
	unsigned line = pci_host_line(host, 1);

	/* Slots 1 and 5 share a line, slot 2 has another. */
	assert_int_equal(pci_host_line(host, 5), line);
	assert_int_not_equal(pci_host_line(host, 2), line);
	assert_int_equal(get(f, 1, PCI_INTERRUPT_LINE, 1), line);
	pci_set_intx(&f->things[0].function, true);
	assert_true(board_line(&f->board, line));
	pci_set_intx(&f->things[4].function, true);
	pci_set_intx(&f->things[0].function, false);
	assert_true(board_line(&f->board, line));
	assert_false(board_line(&f->board, pci_host_line(host, 2)));
	pci_set_intx(&f->things[4].function, false);
	assert_false(board_line(&f->board, line));
	assert_int_equal(board_rises(&f->board, line), 1);
}

static void test_g21_disable_bit(void **state)
{
	struct fixture *f = *state;
	unsigned line = pci_host_line(&f->board.pci, 1);

	pci_set_intx(&f->things[0].function, true);
	assert_true(get(f, 1, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT);
	put(f, 1, PCI_COMMAND, 2, PCI_COMMAND_INTX_DISABLE);
	assert_false(board_line(&f->board, line));
	/* The status tells of it all the same. */
	assert_true(get(f, 1, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT);
	put(f, 1, PCI_COMMAND + 1, 1, 0);
	assert_true(board_line(&f->board, line));
	pci_set_intx(&f->things[0].function, false);
	assert_false(board_line(&f->board, line));
	assert_false(get(f, 1, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT);
	put(f, 1, PCI_COMMAND, 2, PCI_COMMAND_INTX_DISABLE);
	pci_set_intx(&f->things[0].function, true);
	assert_false(board_line(&f->board, line));
}

/* ---- the two ways in ---- */

static uint32_t address(unsigned bus, unsigned slot, unsigned function, unsigned offset)
{
	return 0x80000000u | bus << 16 | slot << 11 | function << 8 | offset;
}

static void select_address(struct fixture *f, uint32_t value)
{
	board_pio_write(&f->board, BOARD_PCI_PORTS, 4, value);
}

static void test_ports_and_ecam_show_the_same(void **state)
{
	struct fixture *f = *state;

	for (unsigned slot = 0; slot <= FUNCTIONS + 1; slot++) {
		for (unsigned offset = 0; offset < PCI_CONFIG_SIZE; offset += 4) {
			select_address(f, address(0, slot, 0, offset));
			assert_int_equal(board_pio_read(&f->board, BOARD_PCI_PORTS, 4),
					 address(0, slot, 0, offset));
			for (unsigned width = 1; width <= 4; width *= 2)
				for (unsigned i = 0; i + width <= 4; i += width)
					assert_int_equal(board_pio_read(&f->board,
									BOARD_PCI_PORTS + 4 + i,
									width),
							 get(f, slot, offset + i, width));
		}
	}
	select_address(f, address(0, 2, 0, PCI_INTERRUPT_LINE));
	board_pio_write(&f->board, BOARD_PCI_PORTS + 4, 1, 0x5a);
	assert_int_equal(get(f, 2, PCI_INTERRUPT_LINE, 1), 0x5a);
	select_address(f, address(0, 2, 0, PCI_CACHE_LINE_SIZE & ~3u));
	board_pio_write(&f->board, BOARD_PCI_PORTS + 4 + PCI_CACHE_LINE_SIZE % 4, 1, 0x10);
	assert_int_equal(get(f, 2, PCI_CACHE_LINE_SIZE, 1), 0x10);
}

static void test_ports_address_nothing_else(void **state)
{
	struct fixture *f = *state;
	const uint32_t nothing[] = {
		address(0, 1, 0, 0) & 0x7fffffff,
		address(1, 1, 0, 0),
		address(255, 1, 0, 0),
		address(0, 1, 1, 0),
		address(0, 1, 7, 0),
		0,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(nothing); i++) {
		select_address(f, nothing[i]);
		assert_int_equal(board_pio_read(&f->board, BOARD_PCI_PORTS + 4, 4), 0xffffffff);
		board_pio_write(&f->board, BOARD_PCI_PORTS + 4, 4, 0);
	}
	/* Only a whole write is one to the address. */
	select_address(f, address(0, 1, 0, 0));
	board_pio_write(&f->board, BOARD_PCI_PORTS, 1, 0xff);
	board_pio_write(&f->board, BOARD_PCI_PORTS, 2, 0xffff);
	board_pio_write(&f->board, BOARD_PCI_PORTS + 1, 1, 0xff);
	assert_int_equal(board_pio_read(&f->board, BOARD_PCI_PORTS + 4, 4), 0x56781234);
}

static void test_m17_every_offset_and_width(void **state)
{
	struct fixture *f = *state;

	for (unsigned width = 1; width <= 8; width++) {
		for (unsigned slot = 0; slot <= FUNCTIONS + 1; slot++) {
			for (unsigned offset = 0; offset < 0x1008; offset++) {
				uint64_t value = offset * 0x9e3779b97f4a7c15ull;
				uint64_t addr = BOARD_ECAM + (slot << 15) + offset;

				if (offset > 0x108 && offset < 0xff0)
					continue;
				board_mmio_write(&f->board, addr, width, value);
				board_mmio_read(&f->board, addr, width);
				board_mmio_write(&f->board, addr, width, ~value);
			}
		}
		for (unsigned offset = 0; offset < 0x108; offset++) {
			select_address(f, address(0, offset % 7, 0, offset));
			for (unsigned port = 0; port < 8; port++) {
				board_pio_read(&f->board, BOARD_PCI_PORTS + port, width);
				board_pio_write(&f->board, BOARD_PCI_PORTS + port, width,
						offset * 0x9e3779b97f4a7c15ull);
			}
		}
	}
	/* The last bytes of the space. */
	board_mmio_read(&f->board, BOARD_ECAM + MIB(1) - 1, 1);
	board_mmio_read(&f->board, BOARD_ECAM + MIB(1) - 4, 8);
	assert_int_equal(get(f, 1, PCI_VENDOR_ID, 4), 0x56781234);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_identity_and_write_mask),
		FRESH(test_empty_slots_read_as_ones),
		FRESH(test_plug_checks_the_slot_and_the_windows),
		FRESH(test_first_assignment_is_aligned_and_apart),
		FRESH(test_sizing_with_decoding_off_and_on),
		FRESH(test_decoding_off_and_on),
		FRESH(test_m19_moving_a_bar),
		FRESH(test_m19_two_bars_at_one_place),
		FRESH(test_capability_list),
		FRESH(test_g21_lines_are_shared),
		FRESH(test_g21_disable_bit),
		FRESH(test_ports_and_ecam_show_the_same),
		FRESH(test_ports_address_nothing_else),
		FRESH(test_m17_every_offset_and_width),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
