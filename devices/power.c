/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Registers without state: a write of the right value is an event, any other write nothing, and
 * what there is to read never changes. A wider access is one of each byte in turn.
 */
#include "devices/power.h"

#include <string.h>

/* Offsets in the power block. */
#define SLEEP_CONTROL 0u
#define SLEEP_STATUS  1u
#define RESET	      2u

/* Sleep control register. Its enable bit reads as zero, and so does all of it here. */
#define SLEEP_TYPE_SHIFT 2u
#define SLEEP_TYPE_MASK	 7u
#define SLEEP_ENABLE	 0x20u

/* 8042 command: pulse output line 0, the CPUs' reset. */
#define KEYBOARD_PULSE_RESET 0xfeu

/*
 * pvpanic: a read tells which events may be sent, a write sends them. A kernel that will run its
 * crash kernel would send another one, which is no end of the machine and hence not offered.
 */
#define PANIC_PANICKED 0x01u

static void write_byte(const struct power *power, uint64_t offset, uint8_t value)
{
	if (offset == SLEEP_CONTROL && (value & SLEEP_ENABLE) &&
	    ((value >> SLEEP_TYPE_SHIFT) & SLEEP_TYPE_MASK) == power->sleep_type_s5)
		power->event(power->event_ctx, POWER_OFF);
	else if (offset == RESET && value == power->reset_value)
		power->event(power->event_ctx, POWER_RESET);
}

/* Never woken from sleep: WAK_STS is never set, and clearing it does nothing. */
static void power_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	(void)ctx;
	(void)offset;
	memset(data, 0, len);
}

static void power_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	const uint8_t *bytes = data;

	for (unsigned i = 0; i < len; i++)
		write_byte(ctx, offset + i, bytes[i]);
}

const struct bus_ops power_bus_ops = {
	.name = "power",
	.read = power_read,
	.write = power_write,
};

/* Its status is all zero: neither buffer is full. */
static void keyboard_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	(void)ctx;
	(void)offset;
	memset(data, 0, len);
}

static void keyboard_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	const struct power *power = ctx;

	(void)offset;
	(void)len;
	if (*(const uint8_t *)data == KEYBOARD_PULSE_RESET)
		power->event(power->event_ctx, POWER_RESET);
}

const struct bus_ops power_keyboard_bus_ops = {
	.name = "keyboard",
	.read = keyboard_read,
	.write = keyboard_write,
};

static void panic_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	(void)ctx;
	(void)offset;
	memset(data, 0, len);
	*(uint8_t *)data = PANIC_PANICKED;
}

static void panic_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	const struct power *power = ctx;

	(void)offset;
	(void)len;
	if (*(const uint8_t *)data & PANIC_PANICKED)
		power->event(power->event_ctx, POWER_PANIC);
}

const struct bus_ops power_panic_bus_ops = {
	.name = "panic",
	.read = panic_read,
	.write = panic_write,
};

void power_init(struct power *power, uint8_t sleep_type_s5, uint8_t reset_value,
		void (*event)(void *ctx, enum power_event event), void *ctx)
{
	power->sleep_type_s5 = sleep_type_s5;
	power->reset_value = reset_value;
	power->event = event;
	power->event_ctx = ctx;
}
