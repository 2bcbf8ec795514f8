/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libfake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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
