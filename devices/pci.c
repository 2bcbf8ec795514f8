/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A write to configuration space changes the bits that the write mask allows; then whatever depends
 * on the command register or a BAR is brought in line. A BAR answers where its register says once
 * its decoding is enabled. When that place cannot be had (outside the bridge's window, or taken:
 * the guest sizes a BAR with decoding on, or puts it onto another) it goes on answering where it
 * was, so a guest can lose neither a device nor hide another behind it.
 */
#include "devices/pci.h"

#include <linux/pci_regs.h>
#include <string.h>

#include "devices/pci_host.h"
#include "vmm/util.h"

#define COMMAND_WRITABLE                                                                         \
	(PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE)

static uint32_t get(const struct pci_function *function, unsigned offset, unsigned len)
{
	return (uint32_t)load_le(&function->config[offset], len);
}

static void put(struct pci_function *function, unsigned offset, unsigned len, uint32_t value)
{
	store_le(&function->config[offset], len, value);
}

void pci_init(struct pci_function *function, const struct pci_identity *identity,
	      const struct pci_function_ops *ops)
{
	memset(function, 0, sizeof(*function));
	function->ops = ops;
	function->last_capability = PCI_CAPABILITY_LIST;
	function->next_capability = PCI_STD_HEADER_SIZEOF;
	put(function, PCI_VENDOR_ID, 2, identity->vendor);
	put(function, PCI_DEVICE_ID, 2, identity->device);
	put(function, PCI_CLASS_REVISION, 4, identity->class_code << 8 | identity->revision);
	put(function, PCI_SUBSYSTEM_VENDOR_ID, 2, identity->subsystem_vendor);
	put(function, PCI_SUBSYSTEM_ID, 2, identity->subsystem);
	store_le(&function->writable[PCI_COMMAND], 2, COMMAND_WRITABLE);
	function->writable[PCI_CACHE_LINE_SIZE] = 0xff;
	function->writable[PCI_INTERRUPT_LINE] = 0xff;
}

static unsigned bar_register(unsigned bar)
{
	return PCI_BASE_ADDRESS_0 + 4 * bar;
}

static uint32_t bar_address_mask(const struct pci_bar *bar)
{
	return ~(bar->size - 1);
}

void pci_add_bar(struct pci_function *function, unsigned bar, enum pci_space space, uint32_t size,
		 const struct bus_ops *ops, void *ctx)
{
	function->bars[bar] =
		(struct pci_bar){ .space = space, .size = size, .ops = ops, .ctx = ctx };
	store_le(&function->writable[bar_register(bar)], 4, ~(size - 1));
	put(function, bar_register(bar), 4, space == PCI_SPACE_IO ? PCI_BASE_ADDRESS_SPACE_IO : 0);
}

unsigned pci_add_capability(struct pci_function *function, uint8_t id, const void *body,
			    const void *writable, unsigned len)
{
	unsigned at = function->next_capability;

	function->config[function->last_capability] = (uint8_t)at;
	function->config[at] = id;
	memcpy(&function->config[at + 2], body, len);
	if (writable)
		memcpy(&function->writable[at + 2], writable, len);
	function->last_capability = at + 1;
	function->next_capability = (unsigned)align_up(at + 2 + len, 4);
	put(function, PCI_STATUS, 2, get(function, PCI_STATUS, 2) | PCI_STATUS_CAP_LIST);
	return at;
}

void pci_add_intx(struct pci_function *function)
{
	function->config[PCI_INTERRUPT_PIN] = 1;
}

void pci_set_intx(struct pci_function *function, bool asserted)
{
	/* Partner: pci_host_update_line() reads it under the lock of the lines. */
	if (atomic_exchange(&function->intx_asserted, asserted) != asserted)
		pci_host_update_line(function->host, function->slot);
}

static void report_mapping(struct pci_function *function, unsigned index, bool on)
{
	if (function->ops && function->ops->bar_mapped)
		function->ops->bar_mapped(function, index, function->bars[index].base, on);
}

static void unmap_bar(struct pci_function *function, unsigned index)
{
	struct pci_bar *bar = &function->bars[index];
	const struct pci_host_config *at = &function->host->at;

	if (!bar->mapped)
		return;
	report_mapping(function, index, false);
	bus_remove(bar->space == PCI_SPACE_IO ? at->pio : at->mmio, bar->base);
	bar->mapped = false;
}

static void map_bar(struct pci_function *function, unsigned index)
{
	struct pci_bar *bar = &function->bars[index];
	const struct pci_host_config *at = &function->host->at;
	bool io = bar->space == PCI_SPACE_IO;
	const struct pci_window *window = io ? &at->io : &at->memory;
	struct bus *bus = io ? at->pio : at->mmio;
	uint64_t base = get(function, bar_register(index), 4) & bar_address_mask(bar);
	uint64_t old = bar->base;

	if (bar->mapped && bar->base == base)
		return;
	if (!range_inside(base, bar->size, window->base, window->size))
		return;
	/* The old place goes first: the new one may overlap it. */
	if (bar->mapped) {
		unmap_bar(function, index);
		if (bus_add(bus, base, bar->size, bar->ops, bar->ctx)) {
			base = old;
			bus_add(bus, base, bar->size, bar->ops, bar->ctx);
		}
	} else if (bus_add(bus, base, bar->size, bar->ops, bar->ctx)) {
		return;
	}
	bar->base = base;
	bar->mapped = true;
	report_mapping(function, index, true);
}

static void update_bars(struct pci_function *function)
{
	uint32_t command = get(function, PCI_COMMAND, 2);

	for (unsigned i = 0; i < PCI_BARS; i++) {
		enum pci_space space = function->bars[i].space;

		if (space == PCI_SPACE_NONE)
			continue;
		if (command & (space == PCI_SPACE_IO ? PCI_COMMAND_IO : PCI_COMMAND_MEMORY))
			map_bar(function, i);
		else
			unmap_bar(function, i);
	}
}

void pci_config_read(struct pci_function *function, unsigned offset, void *data, unsigned len)
{
	uint32_t status;

	if (!range_inside(offset, len, 0, PCI_CONFIG_SIZE)) {
		memset(data, 0xff, len);
		return;
	}
	status = get(function, PCI_STATUS, 2) & ~(uint32_t)PCI_STATUS_INTERRUPT;
	if (atomic_load(&function->intx_asserted))
		status |= PCI_STATUS_INTERRUPT;
	put(function, PCI_STATUS, 2, status);
	if (function->ops && function->ops->config_reading)
		function->ops->config_reading(function, offset, len);
	memcpy(data, &function->config[offset], len);
}

void pci_config_write(struct pci_function *function, unsigned offset, const void *data,
		      unsigned len)
{
	const uint8_t *bytes = data;

	if (!range_inside(offset, len, 0, PCI_CONFIG_SIZE))
		return;
	for (unsigned i = 0; i < len; i++) {
		uint8_t mask = function->writable[offset + i];
		uint8_t *byte = &function->config[offset + i];

		/* Other threads read bytes that never change without the lock. */
		if (mask)
			*byte = (uint8_t)((*byte & ~mask) | (bytes[i] & mask));
	}
	update_bars(function);
	if (ranges_overlap(offset, len, PCI_COMMAND, 2)) {
		atomic_store(&function->intx_disabled,
			     get(function, PCI_COMMAND, 2) & PCI_COMMAND_INTX_DISABLE);
		pci_host_update_line(function->host, function->slot);
	}
	if (function->ops && function->ops->config_written)
		function->ops->config_written(function, offset, len);
}
