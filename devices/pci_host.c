/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two ways lead to the same configuration bytes: the address and data ports that every PC has,
 * which early boot uses, and ECAM. Both decode to (slot, offset) and end in access(), under one
 * lock.
 *
 * Slots share INTx lines, and the platform knows a line's level only, so the level of a line is
 * computed from all functions on it each time one changes.
 */
#include "devices/pci_host.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <string.h>

#include "vmm/util.h"

#define ADDRESS_ENABLE 0x80000000u

/* Red Hat's vendor id and its id for a generic host bridge, which needs no driver. */
static const struct pci_identity bridge_identity = {
	.vendor = 0x1b36,
	.device = 0x0008,
	.class_code = 0x060000,
};

void pci_host_init(struct pci_host *host, const struct pci_host_config *config)
{
	memset(host, 0, sizeof(*host));
	host->at = *config;
	host->at.memory.next = config->memory.base;
	host->at.io.next = config->io.base;
	pthread_mutex_init(&host->lock, NULL);
	pthread_mutex_init(&host->line_lock, NULL);
	pci_init(&host->bridge, &bridge_identity, NULL);
	pci_host_plug(host, 0, &host->bridge);
}

void pci_host_fini(struct pci_host *host)
{
	static const uint16_t disabled;

	for (unsigned i = 0; i < PCI_SLOTS; i++)
		if (host->slots[i])
			pci_config_write(host->slots[i], PCI_COMMAND, &disabled, sizeof(disabled));
	pthread_mutex_destroy(&host->line_lock);
	pthread_mutex_destroy(&host->lock);
}

static int assign_bar(struct pci_function *function, unsigned index, struct pci_window *window)
{
	uint64_t size = function->bars[index].size;
	uint64_t base = align_up(window->next, size);
	uint8_t *reg = &function->config[PCI_BASE_ADDRESS_0 + 4 * index];

	if (!range_inside(base, size, window->base, window->size))
		return -ENOSPC;
	window->next = base + size;
	store_le(reg, 4, load_le(reg, 4) | base);
	return 0;
}

int pci_host_plug(struct pci_host *host, unsigned slot, struct pci_function *function)
{
	if (slot >= PCI_SLOTS || host->slots[slot])
		return -EBUSY;
	for (unsigned i = 0; i < PCI_BARS; i++) {
		enum pci_space space = function->bars[i].space;
		int err;

		if (space == PCI_SPACE_NONE)
			continue;
		err = assign_bar(function, i,
				 space == PCI_SPACE_IO ? &host->at.io : &host->at.memory);
		if (err)
			return err;
	}
	function->host = host;
	function->slot = slot;
	if (function->config[PCI_INTERRUPT_PIN])
		function->config[PCI_INTERRUPT_LINE] = (uint8_t)pci_host_line(host, slot);
	host->slots[slot] = function;
	return 0;
}

unsigned pci_host_line(const struct pci_host *host, unsigned slot)
{
	return host->at.first_line + slot % host->at.lines;
}

static bool drives_line(struct pci_function *function)
{
	return function && function->config[PCI_INTERRUPT_PIN] &&
	       atomic_load(&function->intx_asserted) && !atomic_load(&function->intx_disabled);
}

void pci_host_update_line(struct pci_host *host, unsigned slot)
{
	const struct platform *platform = host->at.platform;
	bool level = false;

	if (!host->slots[slot] || !host->slots[slot]->config[PCI_INTERRUPT_PIN])
		return;
	pthread_mutex_lock(&host->line_lock);
	for (unsigned i = slot % host->at.lines; i < PCI_SLOTS; i += host->at.lines)
		level |= drives_line(host->slots[i]);
	platform->ops->irq_line(platform->ctx, pci_host_line(host, slot), level);
	pthread_mutex_unlock(&host->line_lock);
}

static void access(struct pci_host *host, unsigned slot, unsigned offset, void *data, unsigned len,
		   bool write)
{
	struct pci_function *function = slot < PCI_SLOTS ? host->slots[slot] : NULL;

	if (!function) {
		if (!write)
			memset(data, 0xff, len);
		return;
	}
	pthread_mutex_lock(&host->lock);
	if (write)
		pci_config_write(function, offset, data, len);
	else
		pci_config_read(function, offset, data, len);
	pthread_mutex_unlock(&host->lock);
}

/* 0xCF8: enable bit, bus (bits 16-23), device (11-15), function (8-10), register (2-7). */
static bool decode_address(uint32_t address, unsigned *slot, unsigned *offset)
{
	*slot = address >> 11 & 0x1f;
	*offset = address & 0xfc;
	return address & ADDRESS_ENABLE && !(address >> 16 & 0xff) && !(address >> 8 & 7);
}

static void port_access(struct pci_host *host, uint64_t port, void *data, unsigned len, bool write)
{
	unsigned slot, offset;

	if (port == 0 && len == 4) {
		if (write)
			host->address = (uint32_t)load_le(data, 4);
		else
			store_le(data, 4, host->address);
		return;
	}
	if (port >= 4 && len <= 4 && decode_address(host->address, &slot, &offset)) {
		access(host, slot, offset + (unsigned)port - 4, data, len, write);
		return;
	}
	if (!write)
		memset(data, 0xff, len);
}

static void port_read(void *ctx, uint64_t port, void *data, unsigned len)
{
	port_access(ctx, port, data, len, false);
}

static void port_write(void *ctx, uint64_t port, const void *data, unsigned len)
{
	uint8_t copy[8];

	memcpy(copy, data, len);
	port_access(ctx, port, copy, len, true);
}

const struct bus_ops pci_host_port_ops = {
	.name = "pci",
	.read = port_read,
	.write = port_write,
};

/* ECAM: 4 KiB a function, eight functions a slot; only function 0 is there. */
static void ecam_access(struct pci_host *host, uint64_t offset, void *data, unsigned len,
			bool write)
{
	unsigned slot = (unsigned)(offset >> 15);
	unsigned function = offset >> 12 & 7;

	if (len <= 4 && !function)
		access(host, slot, offset & 0xfff, data, len, write);
	else if (!write)
		memset(data, 0xff, len);
}

static void ecam_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	ecam_access(ctx, offset, data, len, false);
}

static void ecam_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	uint8_t copy[8];

	memcpy(copy, data, len);
	ecam_access(ctx, offset, copy, len, true);
}

const struct bus_ops pci_host_ecam_ops = {
	.name = "pci",
	.read = ecam_read,
	.write = ecam_write,
};
