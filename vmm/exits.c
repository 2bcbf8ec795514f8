/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A handful of devices makes for a short list, which costs nothing beside an exit. Devices of one
 * name, such as two NICs, are one to the reader.
 */
#include "vmm/exits.h"

#include "vmm/util.h"

static const char *const cause_names[] = {
	[EXIT_CAUSE_IO_IN] = "io_in",
	[EXIT_CAUSE_IO_OUT] = "io_out",
	[EXIT_CAUSE_MMIO_READ] = "mmio_read",
	[EXIT_CAUSE_MMIO_WRITE] = "mmio_write",
	[EXIT_CAUSE_SIGNAL] = "signal",
	[EXIT_CAUSE_IRQ_WINDOW] = "irq_window",
	[EXIT_CAUSE_HALT] = "halt",
	[EXIT_CAUSE_HYPERCALL] = "hypercall",
	[EXIT_CAUSE_SHUTDOWN] = "shutdown",
	[EXIT_CAUSE_ERROR] = "error",
	[EXIT_CAUSE_OTHER] = "other",
};

_Static_assert(ARRAY_SIZE(cause_names) == EXIT_CAUSES, "every cause has a name");

static const char nobody[] = "none";

void exits_count_device(struct exits *exits, const char *device)
{
	const char *name = device ? device : nobody;

	for (unsigned i = 0; i < EXIT_DEVICES; i++) {
		struct exit_device *d = &exits->devices[i];

		if (!d->name)
			/*
			 * Pairs with the acquire in exits_json(): who sees the name sees what it
			 * points to.
			 */
			__atomic_store_n(&d->name, name, __ATOMIC_RELEASE);
		if (d->name == name) {
			counter_add(&d->count, 1);
			return;
		}
	}
}

static void add(json_t *object, const char *name, uint64_t value)
{
	json_int_t before = json_integer_value(json_object_get(object, name));

	json_object_set_new(object, name, json_integer(before + (json_int_t)value));
}

json_t *exits_json(const struct exits *exits)
{
	json_t *causes = json_object(), *devices = json_object();

	for (unsigned i = 0; i < EXIT_CAUSES; i++)
		add(causes, cause_names[i], counter_read(&exits->causes[i]));
	for (unsigned i = 0; i < EXIT_DEVICES; i++) {
		/* Pairs with the release in exits_count_device(). */
		const char *name = __atomic_load_n(&exits->devices[i].name, __ATOMIC_ACQUIRE);

		if (name)
			add(devices, name, counter_read(&exits->devices[i].count));
	}
	return json_pack("{s:o, s:o}", "exits", causes, "devices", devices);
}
