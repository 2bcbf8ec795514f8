/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The UART's registers and interrupts as a driver sees them, a hostile one included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/libuart.h"
#include "vmm/util.h"

static void test_power_on(void **state)
{
	static const struct {
		unsigned reg;
		unsigned value;
	} table[] = {
		{ DATA, 0 }, { IER, 0 },	 { IIR, 1 },	{ LCR, 0 },
		{ MCR, 0 },  { LSR, ALL_EMPTY }, { MSR, 0xb0 }, { SCRATCH, 0 },
	};
	struct uart_rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++)
		assert_int_equal(uart_in(rig, table[i].reg), table[i].value);
	assert_false(rig->level);
}

/* What is written, and what is read back. */
static void test_read_back(void **state)
{
	static const struct {
		uint8_t lcr;
		unsigned reg;
		uint8_t written;
		unsigned value;
	} table[] = {
		{ 0x00, IER, 0xff, 0x0f },
		{ 0x00, IER, 0x00, 0x00 },
		{ 0x00, IER, 0xf5, 0x05 },
		{ 0x80, IER, 0xa5, 0xa5 },
		{ 0x80, DATA, 0x5a, 0x5a },
		{ 0x00, IER, 0x01, 0x01 },
		{ 0x80, IER, 0xff, 0xff },
		{ 0x03, LCR, 0xbf, 0xbf },
		{ 0x03, LCR, 0x1b, 0x1b },
		{ 0x03, MCR, 0xff, 0x1f },
		{ 0x03, MCR, 0x00, 0x00 },
		{ 0x80, SCRATCH, 0xee, 0xee },
		{ 0x00, SCRATCH, 0x11, 0x11 },
		{ 0x00, LSR, 0x00, ALL_EMPTY }, /* for reading only */
	};
	struct uart_rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uart_out(rig, LCR, table[i].lcr);
		uart_out(rig, table[i].reg, table[i].written);
		assert_int_equal(uart_in(rig, table[i].reg), table[i].value);
	}
	assert_int_equal(rig->sent, 0);
	/* The divisor and what it hides are apart. */
	uart_out(rig, LCR, 0x80);
	assert_int_equal(uart_in(rig, DATA), 0x5a);
	assert_int_equal(uart_in(rig, IER), 0xff);
	uart_out(rig, LCR, 0);
	assert_int_equal(uart_in(rig, IER), 0x01);
}

/* Linux's probe: it must find a plain 16550A, and none of that one's richer relatives. */
static void test_linux_probe(void **state)
{
	struct uart_rig *rig = *state;

	uart_out(rig, IER, 0);
	assert_int_equal(uart_in(rig, IER) & 0x0f, 0);
	uart_out(rig, IER, 0x0f);
	assert_int_equal(uart_in(rig, IER) & 0x0f, 0x0f);
	uart_out(rig, IER, 0);

	uart_out(rig, MCR, 0x1a);
	assert_int_equal(uart_in(rig, MSR) & 0xf0, 0x90);
	uart_out(rig, MCR, 0);

	uart_out(rig, LCR, 0xbf);
	uart_out(rig, FCR, 0); /* a 16850's EFR */
	uart_out(rig, LCR, 0);
	uart_out(rig, FCR, 0x01);
	assert_int_equal(uart_in(rig, IIR) >> 6, 3);

	uart_out(rig, LCR, 0x80);
	assert_int_not_equal(uart_in(rig, IIR), 0); /* a 16650's EFR reads as zero */
	uart_out(rig, LCR, 0xbf);
	assert_int_not_equal(uart_in(rig, IIR), 0);
	uart_out(rig, LCR, 0);
	uart_out(rig, FCR, 0x21);
	assert_int_equal(uart_in(rig, IIR) >> 5, 6); /* a 16750's 64-byte FIFO */
	uart_out(rig, LCR, 0x80);
	uart_out(rig, FCR, 0x21);
	assert_int_equal(uart_in(rig, IIR) >> 5, 6);
	uart_out(rig, LCR, 0);
	uart_out(rig, FCR, 0x01);
	uart_out(rig, IER, 0x40); /* an XScale's unit enable */
	assert_int_equal(uart_in(rig, IER) & 0x40, 0);
	assert_int_equal(rig->sent, 0);
}

/* Linux measures the FIFO by looping 256 bytes back. */
static void test_loopback_fifo(void **state)
{
	struct uart_rig *rig = *state;
	unsigned count;

	uart_out(rig, FCR, 0x07);
	uart_out(rig, MCR, 0x10);
	for (unsigned i = 0; i < 256; i++)
		uart_out(rig, DATA, i);
	assert_int_equal(uart_in(rig, LSR), ALL_EMPTY | 0x03); /* and an overrun, told once */
	assert_int_equal(uart_in(rig, LSR), ALL_EMPTY | 0x01);
	for (count = 0; uart_in(rig, LSR) & 1; count++)
		assert_int_equal(uart_in(rig, DATA), count);
	assert_int_equal(count, SERIAL_FIFO);
	assert_int_equal(rig->sent, 0);

	/* Without FIFOs one byte is held. */
	uart_out(rig, FCR, 0);
	uart_out(rig, DATA, 'a');
	uart_out(rig, DATA, 'b');
	assert_int_equal(uart_in(rig, DATA), 'a');
	assert_int_equal(uart_in(rig, LSR) & 1, 0);

	uart_out(rig, MCR, 0);
	uart_out(rig, DATA, 'c');
	assert_int_equal(rig->sent, 1);
	assert_int_equal(rig->out[0], 'c');
}

/* MCR's outputs at MSR's inputs, and the changes that the low bits tell of once. */
static void test_loopback_modem(void **state)
{
	static const struct {
		uint8_t mcr;
		unsigned msr;
	} table[] = {
		{ 0x10, 0x0b }, /* from the constant lines to none: CTS, DSR, DCD changed */
		{ 0x11, 0x22 }, { 0x12, 0x13 },
		{ 0x14, 0x41 }, { 0x18, 0x8c }, /* RI's trailing edge */
		{ 0x1f, 0xf3 }, { 0x1f, 0xf0 },
		{ 0x00, 0xb4 }, { 0x0f, 0xb0 },
	};
	struct uart_rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uart_out(rig, MCR, table[i].mcr);
		assert_int_equal(uart_in(rig, MSR), table[i].msr);
		assert_int_equal(uart_in(rig, MSR), table[i].msr & 0xf0);
	}
}

/* Linux enables the transmitter's interrupt twice, and uses a timer if it comes only once. */
static void test_linux_thre_tests(void **state)
{
	struct uart_rig *rig = *state;

	for (unsigned i = 0; i < 2; i++) {
		uart_out(rig, IER, 0x02);
		assert_int_equal(uart_in(rig, IIR), 0x02);
		assert_int_equal(uart_in(rig, IIR), 0x01); /* told, hence cleared */
		uart_out(rig, IER, 0);
	}
	uart_out(rig, IER, 0x02);
	assert_int_equal(uart_in(rig, LSR) & 0x40, 0x40);
	assert_int_equal(uart_in(rig, IIR) & 0x01, 0);
	/* Writing the same again enables nothing. */
	uart_out(rig, IER, 0x02);
	assert_int_equal(uart_in(rig, IIR), 0x01);
}

static void test_trigger_levels(void **state)
{
	static const struct {
		uint8_t fcr;
		unsigned count;
		unsigned iir;
	} table[] = {
		{ 0x00, 1, 0x04 },  { 0x01, 1, 0xc4 }, { 0x41, 3, 0xcc },  { 0x41, 4, 0xc4 },
		{ 0x81, 7, 0xcc },  { 0x81, 8, 0xc4 }, { 0xc1, 13, 0xcc }, { 0xc1, 14, 0xc4 },
		{ 0xc1, 16, 0xc4 }, { 0xc0, 1, 0x04 }, /* a trigger level without FIFOs */
	};
	struct uart_rig *rig = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uart_listen(rig, table[i].fcr | 0x02, 0x01);
		assert_false(rig->level);
		assert_int_equal(uart_feed(rig, table[i].count), table[i].count);
		assert_true(rig->level);
		assert_int_equal(uart_in(rig, IIR), table[i].iir);
		assert_true(rig->level);
		for (unsigned n = 0; n < table[i].count; n++) {
			assert_true(rig->level);
			uart_in(rig, DATA);
		}
		assert_false(rig->level);
		assert_int_equal(uart_in(rig, IIR) & 0x0f, 0x01);
	}
}

/* All causes at once: each is told in its turn, and cleared by its own access. */
static void test_priorities(void **state)
{
	struct uart_rig *rig = *state;

	uart_out(rig, FCR, 0x01);
	uart_out(rig, MCR,
		 0x10); /* loopback: the modem's lines change, and an overrun can be made */
	for (unsigned i = 0; i < 17; i++)
		uart_out(rig, DATA, i);
	uart_out(rig, IER, 0x0f);
	assert_false(rig->level);
	uart_out(rig, MCR, LISTENING_MCR);
	assert_true(rig->level);

	assert_int_equal(uart_in(rig, IIR), 0xc6);
	assert_int_equal(uart_in(rig, IIR), 0xc6);
	assert_int_equal(uart_in(rig, LSR) & 0x02, 0x02);
	assert_int_equal(uart_in(rig, IIR), 0xc4);
	for (unsigned i = 0; i < 16; i++)
		uart_in(rig, DATA);
	assert_int_equal(uart_in(rig, IIR), 0xc2);
	assert_int_equal(uart_in(rig, IIR), 0xc0);
	assert_true(rig->level);
	uart_in(rig, MSR);
	assert_false(rig->level);
	assert_int_equal(uart_in(rig, IIR), 0xc1);
}

static void test_disabled_causes_are_silent(void **state)
{
	struct uart_rig *rig = *state;

	uart_listen(rig, 0x01, 0x01);
	uart_feed(rig, 5);
	assert_true(rig->level);
	uart_out(rig, IER, 0x00);
	assert_false(rig->level);
	assert_int_equal(uart_in(rig, IIR), 0xc1);
	uart_out(rig, IER, 0x01);
	assert_true(rig->level);
	uart_out(rig, MCR, 0x03); /* OUT2 off: the line is cut, the cause is there */
	assert_false(rig->level);
	assert_int_equal(uart_in(rig, IIR), 0xc4);
	uart_out(rig, MCR, 0x0b);
	assert_true(rig->level);
	uart_out(rig, FCR, 0x03); /* clears it */
	assert_false(rig->level);
	assert_int_equal(uart_in(rig, LSR) & 1, 0);
}

static void test_fifo_toggle_clears(void **state)
{
	struct uart_rig *rig = *state;

	uart_listen(rig, 0x01, 0x01);
	uart_feed(rig, 5);
	uart_out(rig, FCR, 0x00);
	assert_int_equal(uart_in(rig, LSR) & 1, 0);
	uart_feed(rig, 1);
	assert_int_equal(uart_in(rig, LSR) & 1, 1);
	uart_out(rig, FCR, 0x01);
	assert_int_equal(uart_in(rig, LSR) & 1, 0);
}

static void test_wide_accesses(void **state)
{
	struct uart_rig *rig = *state;
	uint8_t data[8] = { 'a', 0x01, 0x01, 0x03, 0x0b, 0xff, 0xff, 0x42 };

	serial_bus_ops.write(&rig->serial, 0, data, 8);
	assert_int_equal(rig->sent, 1);
	assert_int_equal(rig->out[0], 'a');
	uart_feed(rig, 3);
	serial_bus_ops.read(&rig->serial, 0, data, 8);
	assert_memory_equal(data, "0\x01\xc4\x03\x0b\x61\xb0\x42", 8);
	assert_int_equal(uart_in(rig, DATA), '1');
}

/* Any access pattern; the line must always tell what the registers do. */
static void test_hostile(void **state)
{
	struct uart_rig *rig = *state;
	unsigned seed = 1;

	for (unsigned i = 0; i < 200000; i++) {
		unsigned random = rand_r(&seed);
		unsigned reg = random % 8;
		unsigned len = 1 + (random >> 3) % (8 - reg);
		uint8_t data[8];

		for (unsigned n = 0; n < 8; n++)
			data[n] = rand_r(&seed) >> 7;
		rig->sent = 0;
		if (random & 0x400)
			rig->room = (random >> 11) % 64;
		switch ((random >> 17) % 5) {
		case 0:
			assert_in_range(chardev_front_receive(&rig->chardev, data, len), 0, len);
			break;
		case 1:
			assert_in_range(chardev_front_room(&rig->chardev), 0, 16);
			chardev_front_writable(&rig->chardev);
			break;
		case 2:
			serial_bus_ops.read(&rig->serial, reg, data, len);
			break;
		default:
			serial_bus_ops.write(&rig->serial, reg, data, len);
			break;
		}
		if ((uart_in(rig, MCR) & 0x18) == 0x08) {
			bool level = rig->level;

			assert_int_equal(level, !(uart_in(rig, IIR) & 1));
		} else {
			assert_false(rig->level);
		}
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, uart_setup, uart_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_power_on),
		TEST(test_read_back),
		TEST(test_linux_probe),
		TEST(test_loopback_fifo),
		TEST(test_loopback_modem),
		TEST(test_linux_thre_tests),
		TEST(test_trigger_levels),
		TEST(test_priorities),
		TEST(test_disabled_causes_are_silent),
		TEST(test_fifo_toggle_clears),
		TEST(test_wide_accesses),
		TEST(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
