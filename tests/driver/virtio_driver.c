/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registers are accessed at the width the specification gives them, 64-bit ones as two halves. */
#include "tests/driver/virtio_driver.h"

#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "vmm/linux_new.h"
#include "vmm/util.h"

#define VIRTIO_VENDOR 0x1af4u

/* Where messages go: what a local APIC takes. */
#define MESSAGE_BASE 0xfee00000u

static uint32_t config_read(const struct driver *d, unsigned offset, unsigned len)
{
	return board_config_read(d->board, d->slot, offset, len);
}

static void config_write(const struct driver *d, unsigned offset, unsigned len, uint32_t value)
{
	board_config_write(d->board, d->slot, offset, len, value);
}

unsigned driver_find_capability(struct board *board, unsigned slot, uint8_t id, unsigned nth)
{
	unsigned at, budget = 48; /* all there is room for: the list may loop */

	if (!(board_config_read(board, slot, PCI_STATUS, 2) & PCI_STATUS_CAP_LIST))
		return 0;
	at = board_config_read(board, slot, PCI_CAPABILITY_LIST, 1) & ~3u;
	while (at && budget--) {
		if (board_config_read(board, slot, at, 1) == id && !nth--)
			return at;
		at = board_config_read(board, slot, at + 1, 1) & ~3u;
	}
	return 0;
}

static enum platform_space bar_space(const struct driver *d, unsigned bar)
{
	return config_read(d, PCI_BASE_ADDRESS_0 + 4 * bar, 4) & PCI_BASE_ADDRESS_SPACE_IO ?
		       PLATFORM_PIO :
		       PLATFORM_MMIO;
}

static uint64_t bar_address(const struct driver *d, unsigned bar)
{
	uint32_t mask = bar_space(d, bar) == PLATFORM_PIO ? (uint32_t)PCI_BASE_ADDRESS_IO_MASK :
							    (uint32_t)PCI_BASE_ADDRESS_MEM_MASK;

	return config_read(d, PCI_BASE_ADDRESS_0 + 4 * bar, 4) & mask;
}

static void take_block(struct driver *d, unsigned at)
{
	unsigned bar = config_read(d, at + offsetof(struct virtio_pci_cap, bar), 1) % 6;
	uint64_t base =
		bar_address(d, bar) +
		config_read(d, at + offsetof(struct virtio_pci_cap, offset), 4);
	uint32_t length = config_read(d, at + offsetof(struct virtio_pci_cap, length), 4);

	switch (config_read(d, at + offsetof(struct virtio_pci_cap, cfg_type), 1)) {
	case VIRTIO_PCI_CAP_COMMON_CFG:
		d->common = base;
		break;
	case VIRTIO_PCI_CAP_NOTIFY_CFG:
		d->notify = base;
		d->notify_space = bar_space(d, bar);
		d->notify_length = length;
		d->notify_multiplier = config_read(
			d, at + offsetof(struct virtio_pci_notify_cap, notify_off_multiplier), 4);
		break;
	case VIRTIO_PCI_CAP_ISR_CFG:
		d->isr = base;
		break;
	case VIRTIO_PCI_CAP_DEVICE_CFG:
		d->config = base;
		d->config_length = length;
		break;
	case VIRTIO_PCI_CAP_PCI_CFG:
		d->window = at;
		break;
	}
}

static void find_msix(struct driver *d)
{
	uint32_t table, pending;

	d->msix = driver_find_capability(d->board, d->slot, PCI_CAP_ID_MSIX, 0);
	if (!d->msix)
		return;
	table = config_read(d, d->msix + PCI_MSIX_TABLE, 4);
	pending = config_read(d, d->msix + PCI_MSIX_PBA, 4);
	d->vectors = (config_read(d, d->msix + PCI_MSIX_FLAGS, 2) & PCI_MSIX_FLAGS_QSIZE) + 1;
	d->table = bar_address(d, table & PCI_MSIX_TABLE_BIR) + (table & ~7u);
	d->pending = bar_address(d, pending & PCI_MSIX_PBA_BIR) + (pending & ~7u);
}

static void find_doorbells(struct driver *d)
{
	unsigned count = driver_read(d, COMMON_NUM_QUEUES, 2);

	for (unsigned i = 0; i < MIN(count, DRIVER_MAX_QUEUES); i++) {
		driver_write(d, COMMON_QUEUE_SELECT, 2, i);
		d->doorbells[i] = d->notify + (uint64_t)driver_read(d, COMMON_NOTIFY_OFF, 2) *
						      d->notify_multiplier;
	}
}

bool driver_probe(struct driver *d, struct board *board, unsigned slot)
{
	uint32_t command;
	unsigned at;

	memset(d, 0, sizeof(*d));
	d->board = board;
	d->slot = slot;
	if (config_read(d, PCI_VENDOR_ID, 2) != VIRTIO_VENDOR ||
	    config_read(d, PCI_DEVICE_ID, 2) < 0x1040)
		return false;
	command = config_read(d, PCI_COMMAND, 2);
	config_write(d, PCI_COMMAND, 2,
		     command | PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	for (unsigned i = 0; (at = driver_find_capability(board, slot, PCI_CAP_ID_VNDR, i)); i++)
		take_block(d, at);
	find_msix(d);
	if (!d->common || !d->notify || !d->isr || !d->config || !d->window || !d->msix)
		return false;
	find_doorbells(d);
	return true;
}

uint32_t driver_read(const struct driver *d, unsigned offset, unsigned len)
{
	return (uint32_t)board_mmio_read(d->board, d->common + offset, len);
}

void driver_write(const struct driver *d, unsigned offset, unsigned len, uint32_t value)
{
	board_mmio_write(d->board, d->common + offset, len, value);
}

static void write_address(const struct driver *d, unsigned offset, uint64_t gpa)
{
	driver_write(d, offset, 4, (uint32_t)gpa);
	driver_write(d, offset + 4, 4, (uint32_t)(gpa >> 32));
}

uint64_t driver_config(const struct driver *d, unsigned offset, unsigned len)
{
	return board_mmio_read(d->board, d->config + offset, len);
}

uint8_t driver_status(const struct driver *d)
{
	return (uint8_t)driver_read(d, COMMON_STATUS, 1);
}

void driver_add_status(const struct driver *d, uint8_t bits)
{
	driver_write(d, COMMON_STATUS, 1, (uint32_t)(driver_status(d) | bits));
}

bool driver_reset(struct driver *d)
{
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;

	driver_write(d, COMMON_STATUS, 1, 0);
	memset(&d->features, 0, sizeof(d->features));
	while (driver_status(d))
		if (time(NULL) > until)
			return false;
	return true;
}

struct virtio_features driver_offered(const struct driver *d)
{
	struct virtio_features features;

	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
		driver_write(d, COMMON_DEVICE_FEATURE_SELECT, 4, i);
		features.word[i] = driver_read(d, COMMON_DEVICE_FEATURE, 4);
	}
	return features;
}

bool driver_negotiate(struct driver *d, const struct virtio_features *wanted)
{
	struct virtio_features offered = driver_offered(d);

	driver_add_status(d, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	driver_add_status(d, VIRTIO_CONFIG_S_DRIVER);
	d->features = *wanted;
	virtio_add(&d->features, VIRTIO_F_VERSION_1);
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
		d->features.word[i] &= offered.word[i];
		driver_write(d, COMMON_DRIVER_FEATURE_SELECT, 4, i);
		driver_write(d, COMMON_DRIVER_FEATURE, 4, d->features.word[i]);
	}
	driver_add_status(d, VIRTIO_CONFIG_S_FEATURES_OK);
	return driver_status(d) & VIRTIO_CONFIG_S_FEATURES_OK;
}

uint64_t driver_message_address(const struct driver *d, unsigned vector)
{
	return MESSAGE_BASE | (uint64_t)d->slot << 12 | (uint64_t)(vector & 7) << 4;
}

uint32_t driver_message_data(const struct driver *d, unsigned vector)
{
	return 0x4000u + d->slot * 256 + vector;
}

static uint64_t table_entry(const struct driver *d, unsigned vector)
{
	return d->table + (uint64_t)vector * PCI_MSIX_ENTRY_SIZE;
}

static void write_control(const struct driver *d, uint32_t set, uint32_t clear)
{
	uint32_t control = config_read(d, d->msix + PCI_MSIX_FLAGS, 2);

	config_write(d, d->msix + PCI_MSIX_FLAGS, 2, (control & ~clear) | set);
}

void driver_msix_on(const struct driver *d)
{
	/* Everything is masked while the table is filled, as Linux does it. */
	write_control(d, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL, 0);
	for (unsigned i = 0; i < d->vectors; i++) {
		uint64_t entry = table_entry(d, i);
		uint64_t address = driver_message_address(d, i);

		board_mmio_write(d->board, entry + PCI_MSIX_ENTRY_LOWER_ADDR, 4, (uint32_t)address);
		board_mmio_write(d->board, entry + PCI_MSIX_ENTRY_UPPER_ADDR, 4, address >> 32);
		board_mmio_write(d->board, entry + PCI_MSIX_ENTRY_DATA, 4,
				 driver_message_data(d, i));
		board_mmio_write(d->board, entry + PCI_MSIX_ENTRY_VECTOR_CTRL, 4, 0);
	}
	write_control(d, 0, PCI_MSIX_FLAGS_MASKALL);
}

void driver_msix_off(const struct driver *d)
{
	write_control(d, 0, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
}

void driver_mask_vector(const struct driver *d, unsigned vector, bool masked)
{
	board_mmio_write(d->board, table_entry(d, vector) + PCI_MSIX_ENTRY_VECTOR_CTRL, 4,
			 masked ? PCI_MSIX_ENTRY_CTRL_MASKBIT : 0);
}

void driver_mask_all(const struct driver *d, bool masked)
{
	write_control(d, masked ? PCI_MSIX_FLAGS_MASKALL : 0, masked ? 0 : PCI_MSIX_FLAGS_MASKALL);
}

bool driver_vector_pending(const struct driver *d, unsigned vector)
{
	return board_mmio_read(d->board, d->pending + vector / 64 * 8, 8) >> vector % 64 & 1;
}

uint64_t driver_wait_vector(const struct driver *d, unsigned vector, int timeout)
{
	return board_wait_message(d->board, driver_message_address(d, vector),
				  driver_message_data(d, vector), timeout);
}

bool driver_set_config_vector(const struct driver *d, unsigned vector)
{
	driver_write(d, COMMON_CONFIG_VECTOR, 2, vector);
	return driver_read(d, COMMON_CONFIG_VECTOR, 2) == vector;
}

bool driver_set_queue_vector(const struct driver *d, unsigned queue, unsigned vector)
{
	driver_write(d, COMMON_QUEUE_SELECT, 2, queue);
	driver_write(d, COMMON_QUEUE_VECTOR, 2, vector);
	return driver_read(d, COMMON_QUEUE_VECTOR, 2) == vector;
}

bool driver_setup_queue(const struct driver *d, unsigned queue, struct ring *ring, uint16_t size)
{
	uint16_t offered;

	driver_write(d, COMMON_QUEUE_SELECT, 2, queue);
	offered = (uint16_t)driver_read(d, COMMON_QUEUE_SIZE, 2);
	if (!offered || size > offered)
		return false;
	if (size)
		driver_write(d, COMMON_QUEUE_SIZE, 2, size);
	ring_init(ring, d->board, &d->features, size ? size : offered);
	write_address(d, COMMON_QUEUE_DESC, ring->desc_gpa);
	write_address(d, COMMON_QUEUE_DRIVER, ring->driver_gpa);
	write_address(d, COMMON_QUEUE_DEVICE, ring->device_gpa);
	driver_write(d, COMMON_QUEUE_ENABLE, 2, 1);
	return driver_read(d, COMMON_QUEUE_SIZE, 2) == ring->size;
}

bool driver_reset_queue(const struct driver *d, unsigned queue)
{
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;

	driver_write(d, COMMON_QUEUE_SELECT, 2, queue);
	driver_write(d, COMMON_QUEUE_RESET, 2, 1);
	while (driver_read(d, COMMON_QUEUE_RESET, 2))
		if (time(NULL) > until)
			return false;
	return !driver_read(d, COMMON_QUEUE_ENABLE, 2);
}

void driver_kick(const struct driver *d, unsigned queue)
{
	/*
	 * With NOTIFICATION_DATA the field is wider, and says where the ring is: a hint (4.1.5.2).
	 */
	unsigned len = virtio_has(&d->features, VIRTIO_F_NOTIFICATION_DATA) ? 4 : 2;

	if (d->notify_space == PLATFORM_PIO)
		board_pio_write(d->board, d->doorbells[queue], len, queue);
	else
		board_mmio_write(d->board, d->doorbells[queue], len, queue);
}
