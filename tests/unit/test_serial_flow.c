/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How the UART paces both ways: a host end that is full, a guest that does not listen, a reset.
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

static void test_transmit_waits_for_room(void **state)
{
	struct uart_rig *rig = *state;
	unsigned sent = 0;

	rig->room = 40;
	uart_out(rig, MCR, LISTENING_MCR);
	uart_out(rig, IER, 0x02);
	while (uart_in(rig, LSR) & 0x20) {
		assert_true(rig->level);
		assert_int_equal(uart_in(rig, IIR), 0x02);
		for (unsigned i = 0; i < 16; i++)
			uart_out(rig, DATA, sent++);
	}
	/* Empty means room for 16: the last that saw it so had 24, and all went out. */
	assert_int_equal(sent, 32);
	assert_int_equal(rig->sent, 32);
	assert_int_equal(uart_in(rig, LSR), 0);
	assert_false(rig->level);
	assert_int_equal(uart_in(rig, IIR), 0x01);
	uart_out(rig, IER, 0x00);
	uart_out(rig, IER, 0x02); /* enabling does not raise what is not there */
	assert_false(rig->level);

	chardev_front_writable(&rig->chardev); /* taken back: no room after all */
	assert_int_equal(uart_in(rig, LSR), 0);
	rig->room = 16;
	chardev_front_writable(&rig->chardev);
	assert_int_equal(uart_in(rig, LSR), ALL_EMPTY);
	assert_true(rig->level);
	assert_int_equal(uart_in(rig, IIR), 0x02);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(rig->out[i], i);
}

static void test_writes_without_thre(void **state)
{
	struct uart_rig *rig = *state;

	rig->room = 20;
	for (unsigned i = 0; i < 100; i++)
		uart_out(rig, DATA, i);
	assert_int_equal(rig->sent, 20);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(rig->out[i], i);
}

/* An edge must follow, or a handler that left its loop is never called again. */
static void test_transmitter_pulses(void **state)
{
	struct uart_rig *rig = *state;
	unsigned edges;

	uart_listen(rig, 0x01, 0x03);
	uart_feed(rig, 4);
	assert_int_equal(uart_in(rig, IIR), 0xc4);
	while (uart_in(rig, LSR) & 1)
		uart_in(rig, DATA);
	edges = rig->edges;
	uart_out(rig, DATA, 'x');
	assert_int_equal(rig->edges, edges + 1);
	assert_true(rig->level);
	uart_out(rig, DATA, 'y'); /* once is enough */
	assert_int_equal(rig->edges, edges + 1);
}

static void test_listening(void **state)
{
	static const struct {
		uint8_t ier;
		uint8_t mcr;
		size_t room;
	} table[] = {
		{ 0x00, 0x00, 0 },  { 0x0f, 0x00, 0 },	{ 0x0f, 0x03, 0 },  { 0x00, 0x0b, 0 },
		{ 0x0e, 0x0b, 0 },  { 0x01, 0x0b, 16 }, { 0x01, 0x08, 16 }, { 0x01, 0x0a, 16 },
		{ 0x01, 0x09, 0 }, /* DTR without RTS: wants no more */
		{ 0x01, 0x1b, 0 }, /* loopback */
		{ 0x05, 0x0b, 16 },
	};
	struct uart_rig *rig = *state;

	uart_out(rig, FCR, 0x01);
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		unsigned readies;

		uart_out(rig, IER, 0);
		uart_out(rig, MCR, 0);
		assert_int_equal(chardev_front_room(&rig->chardev), 0);
		readies = rig->input_readies;
		uart_out(rig, MCR, table[i].mcr);
		uart_out(rig, IER, table[i].ier);
		assert_int_equal(chardev_front_room(&rig->chardev), table[i].room);
		/* Whoever was told "none" is told when that changes, once. */
		assert_int_equal(rig->input_readies - readies, table[i].room ? 1 : 0);
		assert_int_equal(uart_feed(rig, 20), table[i].room);
		uart_out(rig, FCR, 0x03);
	}
}

static void test_listening_by_polls(void **state)
{
	struct uart_rig *rig = *state;
	char got[9] = "";

	assert_int_equal(chardev_front_room(&rig->chardev), 0);
	for (unsigned i = 0; i < 10; i++) {
		uart_in(rig, LSR);
		uart_in(rig, LSR);
		uart_out(rig, DATA, '.'); /* prints, and does not listen */
	}
	assert_int_equal(rig->input_readies, 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(uart_in(rig, LSR) & 1, 0);
	assert_int_equal(rig->input_readies, 1);

	for (unsigned i = 0; i < 8; i++) {
		while (!(uart_in(rig, LSR) & 1)) {
			if (chardev_front_room(&rig->chardev))
				assert_int_equal(chardev_front_receive(
							 &rig->chardev,
							 (const uint8_t *)"abcdefgh" + i, 8 - i),
						 1);
		}
		got[i] = uart_in(rig, DATA);
	}
	assert_string_equal(got, "abcdefgh");

	/* Waiting for the transmitter is no polling for input. */
	rig->room = 0;
	uart_out(rig, DATA, '.');
	for (unsigned i = 0; i < 10; i++)
		uart_in(rig, LSR);
	assert_int_equal(chardev_front_room(&rig->chardev), 0);
}

static void test_refill_only_when_empty(void **state)
{
	struct uart_rig *rig = *state;

	uart_listen(rig, 0x81, 0x01);
	assert_int_equal(uart_feed(rig, 40), 16);
	assert_int_equal(chardev_front_room(&rig->chardev), 0);
	for (unsigned i = 0; i < 15; i++) {
		assert_int_equal(uart_in(rig, DATA), "0123456789abcdef"[i]);
		assert_int_equal(uart_feed(rig, 1), 0);
		assert_int_equal(rig->input_readies, 0);
	}
	uart_in(rig, DATA);
	assert_int_equal(rig->input_readies, 1);
	assert_int_equal(chardev_front_room(&rig->chardev), 16);
}

static void test_reset(void **state)
{
	struct uart_rig *rig = *state;

	uart_listen(rig, 0x01, 0x03);
	uart_feed(rig, 3);
	uart_out(rig, DATA, 'a');
	assert_true(rig->level);
	serial_fini(&rig->serial);
	assert_false(rig->level);
	assert_int_equal(chardev_front_room(&rig->chardev), 0);
	assert_int_equal(uart_feed(rig, 3), 0);
	chardev_front_writable(&rig->chardev);

	rig->room = 0;
	rig->input_readies = 0;
	serial_init(&rig->serial, &rig->chardev, &rig->platform, 4);
	assert_int_equal(rig->input_readies, 1); /* input may have been waiting */
	assert_int_equal(uart_in(rig, LSR), 0);	 /* full since before the reset */
	rig->room = 100;
	chardev_front_writable(&rig->chardev);
	assert_int_equal(uart_in(rig, LSR), ALL_EMPTY);
	assert_int_equal(uart_in(rig, IER), 0);
	uart_out(rig, DATA, 'b');
	assert_memory_equal(rig->out, "ab", 2);
}

static void test_none(void **state)
{
	struct uart_rig *rig = *state;
	struct chardev none;
	struct serial serial;
	uint8_t value = 'x';

	chardev_none_init(&none);
	serial_init(&serial, &none, &rig->platform, 4);
	for (unsigned i = 0; i < 100000; i++)
		serial_bus_ops.write(&serial, DATA, &value, 1);
	for (unsigned i = 0; i < 10; i++)
		serial_bus_ops.read(&serial, LSR, &value, 1);
	assert_int_equal(value, ALL_EMPTY);
	serial_fini(&serial);
	chardev_fini(&none);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, uart_setup, uart_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_transmit_waits_for_room),
		TEST(test_writes_without_thre),
		TEST(test_transmitter_pulses),
		TEST(test_listening),
		TEST(test_listening_by_polls),
		TEST(test_refill_only_when_empty),
		TEST(test_reset),
		TEST(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
