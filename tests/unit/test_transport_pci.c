/* SPDX-License-Identifier: GPL-2.0-or-later */
/* virtio over PCI, register by register, as a guest sees it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/virtio/transport_pci.h"
#include "tests/driver/virtio_driver.h"
#include "tests/unit/libfake.h"
#include "vmm/util.h"

#define COMMON_SIZE 0x38u
#define OK_STATUS                                                                                  \
	(VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |      \
	 VIRTIO_CONFIG_S_DRIVER_OK)

/* Everything up to DRIVER_OK, queue n on vector n + 1. */
static void start(struct fake_pci *f)
{
	const struct virtio_features none = { 0 };

	assert_true(driver_reset(&f->driver));
	assert_true(driver_negotiate(&f->driver, &none));
	driver_msix_on(&f->driver);
	assert_true(driver_set_config_vector(&f->driver, 0));
	for (unsigned i = 0; i < FAKE_QUEUES; i++) {
		ring_fini(&f->rings[i]);
		assert_true(driver_set_queue_vector(&f->driver, i, i + 1));
		assert_true(driver_setup_queue(&f->driver, i, &f->rings[i], 0));
	}
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(driver_status(&f->driver), OK_STATUS);
}

static uint32_t get(struct fake_pci *f, unsigned offset, unsigned len)
{
	return driver_read(&f->driver, offset, len);
}

static void put(struct fake_pci *f, unsigned offset, unsigned len, uint32_t value)
{
	driver_write(&f->driver, offset, len, value);
}

static void test_identity(void **state)
{
	struct fake_pci *f = *state;

	assert_int_equal(board_config_read(&f->board, FAKE_SLOT, PCI_VENDOR_ID, 2), 0x1af4);
	assert_int_equal(board_config_read(&f->board, FAKE_SLOT, PCI_DEVICE_ID, 2),
			 0x1040 + FAKE_TYPE);
	assert_true(board_config_read(&f->board, FAKE_SLOT, PCI_REVISION_ID, 1) >= 1);
	assert_true(board_config_read(&f->board, FAKE_SLOT, PCI_SUBSYSTEM_ID, 2) >= 0x40);
	assert_int_equal(board_config_read(&f->board, FAKE_SLOT, PCI_CLASS_REVISION + 1, 2),
			 0x8000);
	assert_int_equal(get(f, COMMON_NUM_QUEUES, 2), FAKE_QUEUES);
	assert_int_equal(f->driver.vectors, FAKE_QUEUES + 1);
	assert_true(f->driver.notify_length >= (FAKE_QUEUES - 1) * f->driver.notify_multiplier + 2);
}

/* What every field of the common configuration is after power-on, and hence after a reset. */
static void expect_power_on_values(struct fake_pci *f)
{
	assert_int_equal(get(f, COMMON_DEVICE_FEATURE_SELECT, 4), 0);
	assert_int_equal(get(f, COMMON_DRIVER_FEATURE_SELECT, 4), 0);
	assert_int_equal(get(f, COMMON_CONFIG_VECTOR, 2), VIRTIO_NO_VECTOR);
	assert_int_equal(get(f, COMMON_STATUS, 1), 0);
	assert_int_equal(get(f, COMMON_QUEUE_SELECT, 2), 0);
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
		put(f, COMMON_DRIVER_FEATURE_SELECT, 4, i);
		assert_int_equal(get(f, COMMON_DRIVER_FEATURE, 4), 0);
	}
	for (unsigned i = 0; i < FAKE_QUEUES; i++) {
		put(f, COMMON_QUEUE_SELECT, 2, i);
		assert_int_equal(get(f, COMMON_QUEUE_SIZE, 2), FAKE_SIZE);
		assert_int_equal(get(f, COMMON_QUEUE_VECTOR, 2), VIRTIO_NO_VECTOR);
		assert_int_equal(get(f, COMMON_QUEUE_ENABLE, 2), 0);
		for (unsigned offset = COMMON_QUEUE_DESC; offset < COMMON_SIZE; offset += 4)
			assert_int_equal(get(f, offset, 4), 0);
	}
	put(f, COMMON_DRIVER_FEATURE_SELECT, 4, 0);
	put(f, COMMON_QUEUE_SELECT, 2, 0);
}

static void test_g1_power_on_values_after_reset(void **state)
{
	struct fake_pci *f = *state;

	assert_true(driver_reset(&f->driver));
	expect_power_on_values(f);
	for (unsigned lap = 0; lap < 3; lap++) {
		start(f);
		put(f, COMMON_DEVICE_FEATURE_SELECT, 4, 1);
		put(f, COMMON_DRIVER_FEATURE_SELECT, 4, 2);
		put(f, COMMON_QUEUE_SELECT, 2, 3);
		assert_true(driver_reset(&f->driver));
		expect_power_on_values(f);
	}
	assert_int_equal(f->fake.activations, 3);
	assert_int_equal(f->fake.deactivations, 3);
}

static void test_g19_vectors(void **state)
{
	static const uint16_t bad[] = { FAKE_QUEUES + 1, 0x7ff, 0xfffe, 0xffff };
	struct fake_pci *f = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_true(driver_set_config_vector(&f->driver, 1));
		put(f, COMMON_CONFIG_VECTOR, 2, bad[i]);
		assert_int_equal(get(f, COMMON_CONFIG_VECTOR, 2), VIRTIO_NO_VECTOR);
		assert_true(driver_set_queue_vector(&f->driver, 2, FAKE_QUEUES));
		put(f, COMMON_QUEUE_VECTOR, 2, bad[i]);
		assert_int_equal(get(f, COMMON_QUEUE_VECTOR, 2), VIRTIO_NO_VECTOR);
	}
	/* A queue without a vector never interrupts, and ISR bits are not for MSI-X. */
	start(f);
	driver_set_queue_vector(&f->driver, 2, VIRTIO_NO_VECTOR);
	virtio_queue_interrupt(&f->fake.device, 2);
	for (unsigned i = 0; i <= FAKE_QUEUES; i++)
		assert_int_equal(driver_wait_vector(&f->driver, i, 0), 0);
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr, 1), 0);
	/* Its neighbour does, once. */
	virtio_queue_interrupt(&f->fake.device, 3);
	assert_int_equal(driver_wait_vector(&f->driver, 4, 0), 1);
}

static void test_g23_feature_words_in_any_order(void **state)
{
	struct fake_pci *f = *state;
	struct virtio_features offered = driver_offered(&f->driver);

	assert_memory_equal(&offered, &f->fake.device.offered, sizeof(offered));
	assert_true(virtio_has(&offered, FAKE_HIGH_FEATURE));
	put(f, COMMON_DEVICE_FEATURE_SELECT, 4, VIRTIO_FEATURE_WORDS);
	assert_int_equal(get(f, COMMON_DEVICE_FEATURE, 4), 0);
	put(f, COMMON_DEVICE_FEATURE_SELECT, 4, 0xffffffff);
	assert_int_equal(get(f, COMMON_DEVICE_FEATURE, 4), 0);
	assert_int_equal(get(f, COMMON_DEVICE_FEATURE_SELECT, 4), 0xffffffff);
	for (unsigned down = 0; down < 2; down++) {
		assert_true(driver_reset(&f->driver));
		for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
			unsigned word = down ? VIRTIO_FEATURE_WORDS - 1 - i : i;

			put(f, COMMON_DRIVER_FEATURE_SELECT, 4, word);
			put(f, COMMON_DRIVER_FEATURE, 4, offered.word[word]);
		}
		for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++) {
			put(f, COMMON_DRIVER_FEATURE_SELECT, 4, i);
			assert_int_equal(get(f, COMMON_DRIVER_FEATURE, 4), offered.word[i]);
		}
		driver_add_status(&f->driver, VIRTIO_CONFIG_S_FEATURES_OK);
		assert_true(driver_status(&f->driver) & VIRTIO_CONFIG_S_FEATURES_OK);
		put(f, COMMON_DRIVER_FEATURE, 4, 0);
		assert_int_equal(get(f, COMMON_DRIVER_FEATURE, 4),
				 offered.word[VIRTIO_FEATURE_WORDS - 1]);
	}
}

static void test_m3_queue_is_fixed_once_enabled(void **state)
{
	static const uint16_t sizes[] = { 0, 3, 32, 0x8000 };
	struct fake_pci *f = *state;

	start(f);
	put(f, COMMON_QUEUE_SELECT, 2, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		put(f, COMMON_QUEUE_SIZE, 2, sizes[i]);
		assert_int_equal(get(f, COMMON_QUEUE_SIZE, 2), FAKE_SIZE);
		for (unsigned offset = COMMON_QUEUE_DESC; offset < COMMON_SIZE; offset += 4)
			put(f, offset, 4, 0x1000);
		put(f, COMMON_QUEUE_ENABLE, 2, 0);
	}
	assert_int_equal(get(f, COMMON_QUEUE_ENABLE, 2), 1);
	assert_int_equal(get(f, COMMON_QUEUE_DESC, 4), (uint32_t)f->rings[1].desc_gpa);
	assert_int_equal(get(f, COMMON_QUEUE_DRIVER, 4), (uint32_t)f->rings[1].driver_gpa);
	assert_int_equal(get(f, COMMON_QUEUE_DEVICE + 4, 4), f->rings[1].device_gpa >> 32);
}

static void test_queues_cannot_be_enabled_after_driver_ok(void **state)
{
	struct fake_pci *f = *state;
	const struct virtio_features none = { 0 };

	assert_true(driver_negotiate(&f->driver, &none));
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	put(f, COMMON_QUEUE_SELECT, 2, 0);
	put(f, COMMON_QUEUE_ENABLE, 2, 1);
	assert_int_equal(get(f, COMMON_QUEUE_ENABLE, 2), 0);
}

static void test_m4_queues_that_do_not_exist(void **state)
{
	static const uint16_t queues[] = { FAKE_QUEUES, 0x100, 0x7fff, 0xffff };
	struct fake_pci *f = *state;

	start(f);
	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++) {
		put(f, COMMON_QUEUE_SELECT, 2, queues[i]);
		assert_int_equal(get(f, COMMON_QUEUE_SELECT, 2), queues[i]);
		for (unsigned offset = COMMON_QUEUE_SIZE; offset < COMMON_QUEUE_DESC; offset += 2)
			put(f, offset, 2, 1);
		for (unsigned offset = COMMON_QUEUE_DESC; offset < COMMON_SIZE; offset += 4)
			put(f, offset, 4, 0xffffffff);
		assert_int_equal(get(f, COMMON_QUEUE_SIZE, 2), 0);
		assert_int_equal(get(f, COMMON_QUEUE_VECTOR, 2), VIRTIO_NO_VECTOR);
		assert_int_equal(get(f, COMMON_QUEUE_ENABLE, 2), 0);
		for (unsigned offset = COMMON_QUEUE_DESC; offset < COMMON_SIZE; offset += 4)
			assert_int_equal(get(f, offset, 4), 0);
	}
	assert_int_equal(driver_status(&f->driver), OK_STATUS);
}

static void test_m4_notify_at_every_offset(void **state)
{
	struct fake_pci *f = *state;

	start(f);
	/* Past the eventfds, as when KVM did not take them. */
	for (uint64_t offset = 0; offset < 0x1000; offset++) {
		uint64_t value = offset;

		bus_write(&f->board.mmio, f->driver.notify + offset, &value, offset % 4 ? 1 : 2);
	}
	for (unsigned i = 0; i < FAKE_QUEUES; i++) {
		uint64_t kicks = 0;
		int fd = f->fake.device.queues[i].kick_fd;

		assert_true(board_wait_fd(fd, POLLIN, 0));
		assert_int_equal(read(fd, &kicks, sizeof(kicks)), sizeof(kicks));
		assert_int_equal(kicks, 1);
	}
	/* And each queue by its own. */
	for (unsigned i = 0; i < FAKE_QUEUES; i++) {
		driver_kick(&f->driver, i);
		for (unsigned n = 0; n < FAKE_QUEUES; n++)
			assert_int_equal(
				!!board_wait_fd(f->fake.device.queues[n].kick_fd, POLLIN, 0),
				n <= i);
	}
}

static void test_m17_every_offset_and_width(void **state)
{
	static const unsigned widths[] = { 1, 2, 4, 8 };
	struct fake_pci *f = *state;
	uint64_t size = 0x4000;

	start(f);
	for (unsigned w = 0; w < ARRAY_SIZE(widths); w++) {
		for (uint64_t offset = 0; offset < size; offset++) {
			uint64_t value = offset * 0x9e3779b97f4a7c15ull;

			bus_read(&f->board.mmio, f->driver.common + offset, &value, widths[w]);
			bus_write(&f->board.mmio, f->driver.common + offset, &value, widths[w]);
			value = ~value;
			bus_write(&f->board.mmio, f->driver.common + offset, &value, widths[w]);
		}
		for (uint64_t offset = 0; offset < 0x1000; offset++) {
			uint64_t value =
				board_mmio_read(&f->board, f->driver.table + offset, widths[w]);

			board_mmio_write(&f->board, f->driver.table + offset, widths[w], ~value);
		}
	}
	start(f);
}

/* A width that is not the field's finds nothing and changes nothing (4.1.3.1). */
static void test_m17_wrong_widths_change_nothing(void **state)
{
	static const struct {
		unsigned offset, width;
	} writes[] = {
		{ COMMON_STATUS, 2 },	     { COMMON_STATUS, 4 },
		{ COMMON_QUEUE_SELECT, 1 },  { COMMON_QUEUE_SELECT, 4 },
		{ COMMON_CONFIG_VECTOR, 4 }, { COMMON_CONFIG_VECTOR, 1 },
		{ COMMON_QUEUE_DESC, 8 },    { COMMON_QUEUE_DESC, 2 },
	};
	struct fake_pci *f = *state;

	start(f);
	put(f, COMMON_QUEUE_SELECT, 2, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(writes); i++) {
		uint64_t zero = 0;

		bus_write(&f->board.mmio, f->driver.common + writes[i].offset, &zero,
			  writes[i].width);
		assert_int_equal(board_mmio_read(&f->board, f->driver.common + writes[i].offset,
						 writes[i].width),
				 0);
	}
	assert_int_equal(driver_status(&f->driver), OK_STATUS);
	assert_int_equal(get(f, COMMON_QUEUE_SELECT, 2), 1);
	assert_int_equal(get(f, COMMON_CONFIG_VECTOR, 2), 0);
	assert_int_equal(get(f, COMMON_QUEUE_DESC, 4), (uint32_t)f->rings[1].desc_gpa);
}

static void test_device_configuration_at_any_width(void **state)
{
	static const unsigned widths[] = { 1, 2, 4, 8 };
	struct fake_pci *f = *state;

	for (unsigned w = 0; w < ARRAY_SIZE(widths); w++) {
		for (unsigned offset = 0; offset < 32; offset++) {
			uint64_t value = driver_config(&f->driver, offset, widths[w]);

			for (unsigned i = 0; i < widths[w]; i++)
				assert_int_equal(value >> 8 * i & 0xff,
						 fake_config_byte(offset + i));
		}
	}
}

static void test_g27_nothing_changes_by_itself(void **state)
{
	struct fake_pci *f = *state;
	uint32_t generation;

	start(f);
	generation = get(f, COMMON_GENERATION, 1);
	assert_int_equal(driver_wait_vector(&f->driver, 0, 0), 0);
	for (unsigned i = 0; i < 8; i++)
		driver_config(&f->driver, i, 1);
	assert_int_equal(get(f, COMMON_GENERATION, 1), generation);
}

static void test_m21_needs_reset_tells_the_driver(void **state)
{
	struct fake_pci *f = *state;
	const struct virtio_features none = { 0 };

	assert_true(driver_negotiate(&f->driver, &none));
	driver_msix_on(&f->driver);
	assert_true(driver_set_config_vector(&f->driver, 0));
	put(f, COMMON_QUEUE_SELECT, 2, 1);
	put(f, COMMON_QUEUE_DESC + 4, 4, 0xffffffff);
	put(f, COMMON_QUEUE_ENABLE, 2, 1);
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(driver_status(&f->driver), OK_STATUS | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(driver_wait_vector(&f->driver, 0, 0), 1);
	assert_int_equal(f->fake.activations, 0);
	/* By INTx it is ISR bit 1. */
	driver_msix_off(&f->driver);
	assert_true(driver_reset(&f->driver));
	assert_true(driver_negotiate(&f->driver, &none));
	put(f, COMMON_QUEUE_SIZE, 2, 3);
	put(f, COMMON_QUEUE_ENABLE, 2, 1);
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_true(board_line(&f->board, pci_host_line(&f->board.pci, FAKE_SLOT)));
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr, 1), 2);
	assert_false(board_line(&f->board, pci_host_line(&f->board.pci, FAKE_SLOT)));
}

static void test_isr_gathers_until_it_is_read(void **state)
{
	struct fake_pci *f = *state;
	unsigned line = pci_host_line(&f->board.pci, FAKE_SLOT);

	start(f);
	driver_msix_off(&f->driver);
	virtio_queue_interrupt(&f->fake.device, 1);
	virtio_queue_interrupt(&f->fake.device, 2);
	f->fake.device.transport->config_interrupt(f->fake.device.transport_ctx);
	assert_int_equal(board_rises(&f->board, line), 1);
	/* Elsewhere in its page nothing is read, and nothing taken. */
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr + 1, 1), 0);
	assert_true(board_line(&f->board, line));
	assert_true(board_config_read(&f->board, FAKE_SLOT, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT);
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr, 1), 3);
	assert_false(board_line(&f->board, line));
	assert_false(board_config_read(&f->board, FAKE_SLOT, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT);
	/* A reset lowers the line too. */
	virtio_queue_interrupt(&f->fake.device, 1);
	assert_true(board_line(&f->board, line));
	assert_true(driver_reset(&f->driver));
	assert_false(board_line(&f->board, line));
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr, 1), 0);
}

static void test_messages_are_committed_once_at_driver_ok(void **state)
{
	struct fake_pci *f = *state;
	unsigned before = board_commits(&f->board);
	uint64_t entry;

	start(f);
	assert_int_equal(board_commits(&f->board), before + 1);
	/* G18: a vector that moves while the device runs goes on at its new place. */
	entry = f->driver.table + 3 * PCI_MSIX_ENTRY_SIZE;
	driver_mask_vector(&f->driver, 3, true);
	board_mmio_write(&f->board, entry + PCI_MSIX_ENTRY_DATA, 4, 0x1234);
	virtio_queue_interrupt(&f->fake.device, 2);
	driver_mask_vector(&f->driver, 3, false);
	assert_int_equal(board_commits(&f->board), before + 2);
	assert_int_equal(driver_wait_vector(&f->driver, 3, 0), 0);
	assert_int_equal(
		board_wait_message(&f->board, driver_message_address(&f->driver, 3), 0x1234, 0), 1);
	/* Masked and unmasked with the same message: nothing to route. */
	driver_mask_vector(&f->driver, 3, true);
	driver_mask_vector(&f->driver, 3, false);
	assert_int_equal(board_commits(&f->board), before + 2);
}

/* ---- the configuration access window (4.1.4.9) ---- */

static void point_window(struct fake_pci *f, uint8_t bar, uint32_t offset, uint32_t length)
{
	unsigned at = f->driver.window;

	board_config_write(&f->board, FAKE_SLOT, at + VIRTIO_PCI_CAP_BAR, 1, bar);
	board_config_write(&f->board, FAKE_SLOT, at + VIRTIO_PCI_CAP_OFFSET, 4, offset);
	board_config_write(&f->board, FAKE_SLOT, at + VIRTIO_PCI_CAP_LENGTH, 4, length);
}

static unsigned window_data(const struct fake_pci *f)
{
	return f->driver.window + (unsigned)offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);
}

static uint8_t common_bar(struct fake_pci *f, uint32_t *offset)
{
	unsigned at = driver_find_capability(&f->board, FAKE_SLOT, PCI_CAP_ID_VNDR, 0);

	*offset = board_config_read(&f->board, FAKE_SLOT, at + VIRTIO_PCI_CAP_OFFSET, 4);
	return (uint8_t)board_config_read(&f->board, FAKE_SLOT, at + VIRTIO_PCI_CAP_BAR, 1);
}

static void test_window_reads_and_writes_registers(void **state)
{
	struct fake_pci *f = *state;
	uint32_t common;
	uint8_t bar = common_bar(f, &common);

	point_window(f, bar, common + COMMON_NUM_QUEUES, 2);
	assert_int_equal(board_config_read(&f->board, FAKE_SLOT, window_data(f), 2), FAKE_QUEUES);
	point_window(f, bar, common + COMMON_QUEUE_SELECT, 2);
	board_config_write(&f->board, FAKE_SLOT, window_data(f), 2, 3);
	assert_int_equal(get(f, COMMON_QUEUE_SELECT, 2), 3);
	point_window(f, bar, common + COMMON_DEVICE_FEATURE_SELECT, 4);
	board_config_write(&f->board, FAKE_SLOT, window_data(f), 4, 3);
	assert_int_equal(get(f, COMMON_DEVICE_FEATURE_SELECT, 4), 3);
	point_window(f, bar, common + COMMON_STATUS, 1);
	board_config_write(&f->board, FAKE_SLOT, window_data(f), 1, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	assert_int_equal(driver_status(&f->driver), VIRTIO_CONFIG_S_ACKNOWLEDGE);
	assert_int_equal(board_config_read(&f->board, FAKE_SLOT, window_data(f), 1),
			 VIRTIO_CONFIG_S_ACKNOWLEDGE);
	board_config_write(&f->board, FAKE_SLOT, window_data(f), 1, 0);
	assert_int_equal(driver_status(&f->driver), 0);
}

static void test_window_that_points_nowhere(void **state)
{
	static const struct {
		uint8_t bar;
		uint32_t offset, length;
	} bad[] = {
		{ 0, COMMON_STATUS, 1 },
		{ 5, COMMON_STATUS, 1 },
		{ 255, COMMON_STATUS, 1 },
		{ 4, COMMON_STATUS, 0 },
		{ 4, COMMON_STATUS, 3 },
		{ 4, COMMON_STATUS, 8 },
		{ 4, COMMON_STATUS, 0xffffffff },
		{ 4, 0x4000, 1 },
		{ 4, 0x3ffe, 4 },
		{ 4, 0xffffffff, 1 },
		{ 4, 0xfffffffc, 4 },
		{ 4, 0x11, 2 },
	};
	struct fake_pci *f = *state;

	start(f);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		point_window(f, bad[i].bar, bad[i].offset, bad[i].length);
		board_config_read(&f->board, FAKE_SLOT, window_data(f), 4);
		board_config_write(&f->board, FAKE_SLOT, window_data(f), 4, 0);
		assert_int_equal(driver_status(&f->driver), OK_STATUS);
	}
}

static void test_m19_kicks_follow_the_bar(void **state)
{
	struct fake_pci *f = *state;
	uint64_t old = f->driver.common, base = BOARD_PCI_BASE + 0x8000000;
	uint32_t unused;
	unsigned reg = PCI_BASE_ADDRESS_0 + 4u * common_bar(f, &unused);

	start(f);
	assert_int_equal(board_kicks_inside(&f->board, old, 0x4000), FAKE_QUEUES);
	board_config_write(&f->board, FAKE_SLOT, reg, 4, (uint32_t)base);
	assert_int_equal(board_kicks_inside(&f->board, old, 0x4000), 0);
	assert_int_equal(board_kicks_inside(&f->board, base, 0x4000), FAKE_QUEUES);
	assert_int_equal(board_mmio_read(&f->board, old + COMMON_STATUS, 1), 0xff);
	assert_true(driver_probe(&f->driver, &f->board, FAKE_SLOT));
	assert_int_equal(driver_status(&f->driver), OK_STATUS);
	/* Onto its own MSI-X table: it stays where it was. */
	board_config_write(&f->board, FAKE_SLOT, reg, 4, (uint32_t)f->driver.table);
	assert_int_equal(board_kicks_inside(&f->board, base, 0x4000), FAKE_QUEUES);
	board_config_write(&f->board, FAKE_SLOT, reg, 4, (uint32_t)base);
	/* Decoding off and on. */
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2, 0);
	assert_int_equal(board_kicks_inside(&f->board, 0, UINT64_MAX), 0);
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
	assert_int_equal(board_kicks_inside(&f->board, base, 0x4000), FAKE_QUEUES);
}

/* A kernel that makes way for another clears the bit, and may never reset the device. */
static void test_g2_without_bus_master_the_device_is_cut_off(void **state)
{
	struct fake_pci *f = *state;
	unsigned before;

	start(f);
	before = f->fake.deactivations;
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2,
			   PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	assert_int_equal(f->fake.deactivations, before);
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
	assert_int_equal(f->fake.deactivations, before + 1);
	assert_int_equal(driver_status(&f->driver), OK_STATUS | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(driver_wait_vector(&f->driver, 0, 0), 0);
	/* Nor does it speak up, or begin again by itself. */
	virtio_config_changed(&f->fake.device);
	assert_int_equal(driver_wait_vector(&f->driver, 0, 0), 0);
	before = f->fake.activations;
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2,
			   PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(f->fake.activations, before);
	start(f);
	assert_int_equal(f->fake.activations, before + 1);
}

static void test_fini_of_a_zeroed_transport(void **state)
{
	struct virtio_pci pci = { 0 };

	(void)state;
	virtio_pci_fini(&pci);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, fake_pci_setup, fake_pci_teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_identity),
		FRESH(test_g1_power_on_values_after_reset),
		FRESH(test_g19_vectors),
		FRESH(test_g23_feature_words_in_any_order),
		FRESH(test_m3_queue_is_fixed_once_enabled),
		FRESH(test_queues_cannot_be_enabled_after_driver_ok),
		FRESH(test_m4_queues_that_do_not_exist),
		FRESH(test_m4_notify_at_every_offset),
		FRESH(test_m17_every_offset_and_width),
		FRESH(test_m17_wrong_widths_change_nothing),
		FRESH(test_device_configuration_at_any_width),
		FRESH(test_g27_nothing_changes_by_itself),
		FRESH(test_m21_needs_reset_tells_the_driver),
		FRESH(test_isr_gathers_until_it_is_read),
		FRESH(test_messages_are_committed_once_at_driver_ok),
		FRESH(test_window_reads_and_writes_registers),
		FRESH(test_window_that_points_nowhere),
		FRESH(test_m19_kicks_follow_the_bar),
		FRESH(test_g2_without_bus_master_the_device_is_cut_off),
		cmocka_unit_test(test_fini_of_a_zeroed_transport),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
