/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libfake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

uint8_t fake_config_byte(uint64_t offset)
{
	return (uint8_t)(offset * 3 + 1);
}

static void config_read(struct virtio_device *device, uint64_t offset, void *data, unsigned len)
{
	(void)device;
	for (unsigned i = 0; i < len; i++)
		((uint8_t *)data)[i] = fake_config_byte(offset + i);
}

static int activate(struct virtio_device *device)
{
	struct fake *fake = container_of(device, struct fake, device);

	fake->activations++;
	fake->live = 0;
	for (unsigned i = 0; i < device->queue_count; i++)
		if (device->queues[i].vq.live)
			fake->live |= 1u << i;
	return fake->activate_result;
}

static void deactivate(struct virtio_device *device)
{
	container_of(device, struct fake, device)->deactivations++;
}

static const struct virtio_device_ops ops = {
	.config_read = config_read,
	.activate = activate,
	.deactivate = deactivate,
};

void fake_init(struct fake *fake, const struct mem *mem)
{
	memset(fake, 0, sizeof(*fake));
	assert_int_equal(virtio_device_init(&fake->device, &ops, FAKE_TYPE, "fake0", mem,
					    FAKE_QUEUES, FAKE_SIZE),
			 0);
	virtio_add(&fake->device.offered, FAKE_LOW_FEATURE);
	virtio_add(&fake->device.offered, FAKE_HIGH_FEATURE);
}

void fake_fini(struct fake *fake)
{
	virtio_device_fini(&fake->device);
}

int fake_pci_setup(void **state)
{
	struct fake_pci *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	board_init(&f->board);
	fake_init(&f->fake, &f->board.mem);
	assert_int_equal(virtio_pci_init(&f->pci, &f->fake.device, &f->board.platform, 0x078000,
					 PLATFORM_MMIO),
			 0);
	assert_int_equal(pci_host_plug(&f->board.pci, FAKE_SLOT, &f->pci.function), 0);
	assert_true(driver_probe(&f->driver, &f->board, FAKE_SLOT));
	*state = f;
	return 0;
}

int fake_pci_teardown(void **state)
{
	struct fake_pci *f = *state;

	assert_true(driver_reset(&f->driver));
	board_unplug(&f->board);
	virtio_pci_fini(&f->pci);
	fake_fini(&f->fake);
	for (unsigned i = 0; i < FAKE_QUEUES; i++)
		ring_fini(&f->rings[i]);
	board_fini(&f->board);
	free(f);
	return 0;
}
