/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ports by which a guest powers off, resets, and tells that it panicked:
 *
 *  - the power block: ACPI's sleep control (0) and sleep status (1) registers of a hardware-reduced
 *    machine (ACPI 6, 4.8.3.7), and the FADT's reset register (2), a byte each;
 *  - the keyboard controller's command port, of which only the reset pulse exists;
 *  - pvpanic's port.
 */
#ifndef WHELP_DEVICES_POWER_H
#define WHELP_DEVICES_POWER_H

#include <stdint.h>

#include "vmm/bus.h"

#define POWER_SIZE	    3u /* ports of power_bus_ops */
#define POWER_KEYBOARD_SIZE 1u
#define POWER_PANIC_SIZE    1u

enum power_event { POWER_OFF, POWER_RESET, POWER_PANIC };

/* Immutable once made: callbacks of any number of vCPUs may run at once. */
struct power {
	uint8_t sleep_type_s5;
	uint8_t reset_value;
	void (*event)(void *ctx, enum power_event event);
	void *event_ctx;
};

/*
 * `sleep_type_s5` is SLP_TYP (0 to 7) of the DSDT's \_S5, `reset_value` the FADT's RESET_VALUE.
 * `event` is called on the vCPU's thread within its write, and each time: a guest may write again
 * before it is stopped.
 */
void power_init(struct power *power, uint8_t sleep_type_s5, uint8_t reset_value,
		void (*event)(void *ctx, enum power_event event), void *ctx);

/* All with the struct power as context. */
extern const struct bus_ops power_bus_ops;
extern const struct bus_ops power_keyboard_bus_ops;
extern const struct bus_ops power_panic_bus_ops;

#endif
