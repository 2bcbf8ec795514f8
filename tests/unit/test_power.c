/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/power.h"
#include "vmm/util.h"

#define NONE (-1)

struct rig {
	struct power power;
	unsigned count;
	int last;
};

static void on_event(void *ctx, enum power_event event)
{
	struct rig *rig = ctx;

	rig->count++;
	rig->last = event;
}

static void init(struct rig *rig, uint8_t sleep_type)
{
	rig->count = 0;
	rig->last = NONE;
	power_init(&rig->power, sleep_type, 0x5a, on_event, rig);
}

/* Every value of a byte, and the event it is. */
static int expected(const struct bus_ops *ops, unsigned offset, unsigned value, unsigned sleep_type)
{
	if (ops == &power_keyboard_bus_ops)
		return value == 0xfe ? POWER_RESET : NONE;
	if (ops == &power_panic_bus_ops)
		return value & 1 ? POWER_PANIC : NONE;
	if (offset == 0 && (value & 0x20) && ((value >> 2) & 7) == sleep_type)
		return POWER_OFF;
	if (offset == 2 && value == 0x5a)
		return POWER_RESET;
	return NONE;
}

static void test_every_value(void **state)
{
	static const struct {
		const struct bus_ops *ops;
		unsigned size;
	} table[] = {
		{ &power_bus_ops, POWER_SIZE },
		{ &power_keyboard_bus_ops, POWER_KEYBOARD_SIZE },
		{ &power_panic_bus_ops, POWER_PANIC_SIZE },
	};
	static const uint8_t sleep_types[] = { 0, 5, 7 };
	unsigned events = 0;

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(table) * ARRAY_SIZE(sleep_types); t++) {
		const struct bus_ops *ops = table[t % ARRAY_SIZE(table)].ops;
		uint8_t sleep_type = sleep_types[t / ARRAY_SIZE(table)];

		for (unsigned i = 0; i < table[t % ARRAY_SIZE(table)].size * 256; i++) {
			uint8_t value = i;
			struct rig rig;
			int event = expected(ops, i / 256, value, sleep_type);

			init(&rig, sleep_type);
			ops->write(&rig.power, i / 256, &value, 1);
			assert_int_equal(rig.last, event);
			assert_int_equal(rig.count, event == NONE ? 0 : 1);
			events += rig.count;
		}
	}
	/* Four bits do not matter for power-off; one reset, one pulse, 128 panics. */
	assert_int_equal(events, ARRAY_SIZE(sleep_types) * (16 + 1 + 1 + 128));
}

static void test_reads(void **state)
{
	struct rig rig;
	uint8_t data[3];

	(void)state;
	init(&rig, 5);
	data[0] = data[1] = data[2] = 0xff;
	power_bus_ops.read(&rig.power, 0, data, 3);
	assert_int_equal(data[0] | data[1] | data[2], 0);
	data[0] = 0xff;
	power_keyboard_bus_ops.read(&rig.power, 0, data, 1);
	assert_int_equal(data[0], 0);
	data[0] = 0xff;
	power_panic_bus_ops.read(&rig.power, 0, data, 1);
	assert_int_equal(data[0], 1); /* panicked, and nothing else, can be told */
	assert_int_equal(rig.count, 0);
}

/* What Linux writes to power off: first the wake status, then type and enable. */
static void test_acpi_power_off(void **state)
{
	struct rig rig;
	uint8_t wake_status = 0x80;
	uint8_t control = 5 << 2 | 0x20;

	(void)state;
	init(&rig, 5);
	power_bus_ops.write(&rig.power, 1, &wake_status, 1);
	assert_int_equal(rig.count, 0);
	power_bus_ops.write(&rig.power, 0, &control, 1);
	assert_int_equal(rig.count, 1);
	assert_int_equal(rig.last, POWER_OFF);
}

static void test_wide_writes(void **state)
{
	static const uint8_t wide[] = { 0x00, 0x80, 0x5a };
	struct rig rig;

	(void)state;
	init(&rig, 5);
	power_bus_ops.write(&rig.power, 0, wide, 2);
	assert_int_equal(rig.count, 0);
	power_bus_ops.write(&rig.power, 0, wide, 3);
	assert_int_equal(rig.count, 1);
	assert_int_equal(rig.last, POWER_RESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_value),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_acpi_power_off),
		cmocka_unit_test(test_wide_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
