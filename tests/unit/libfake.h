/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A virtio device of no kind, for tests of what all devices share: it only notes what happens to
 * it.
 */
#ifndef WHELP_TESTS_LIBFAKE_H
#define WHELP_TESTS_LIBFAKE_H

#include <stdint.h>

#include "devices/virtio/device.h"
#include "devices/virtio/transport_pci.h"
#include "tests/driver/virtio_driver.h"

#define FAKE_QUEUES 5u
#define FAKE_SIZE   64u
#define FAKE_TYPE   VIRTIO_ID_CONSOLE
/* A bit of each feature word that it offers, beside those that every device does. */
#define FAKE_LOW_FEATURE  3u
#define FAKE_HIGH_FEATURE 100u

struct fake {
	struct virtio_device device;
	unsigned activations;
	unsigned deactivations;
	int activate_result;
	unsigned live; /* queues that were live at the last activation, a bit each */
};

void fake_init(struct fake *fake, const struct mem *mem);
void fake_fini(struct fake *fake);

/* It on a board's PCI bus, with a driver that has found it. */
#define FAKE_SLOT 5u

struct fake_pci {
	struct board board;
	struct fake fake;
	struct virtio_pci pci;
	struct driver driver;
	struct ring rings[FAKE_QUEUES];
};

/* cmocka's fixture. */
int fake_pci_setup(void **state);
int fake_pci_teardown(void **state);

/* What byte `offset` of its configuration reads as. */
uint8_t fake_config_byte(uint64_t offset);

#endif
