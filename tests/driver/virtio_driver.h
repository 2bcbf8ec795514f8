/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's side of the PCI transport (virtio 1.3, section 4.1), for tests: it finds its way as
 * a guest does, from configuration space on, and knows no number of the device's.
 */
#ifndef WHELP_TESTS_VIRTIO_DRIVER_H
#define WHELP_TESTS_VIRTIO_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/virtio/virtio.h"
#include "tests/driver/board.h"
#include "tests/driver/ring.h"

#define DRIVER_MAX_QUEUES 80u

struct driver {
	struct board *board;
	unsigned slot;
	uint64_t common; /* the blocks' addresses */
	uint64_t notify;
	enum platform_space notify_space;
	uint32_t notify_length;
	uint32_t notify_multiplier;
	uint64_t doorbells[DRIVER_MAX_QUEUES]; /* where each queue is kicked */
	uint64_t isr;
	uint64_t config;
	uint32_t config_length;
	unsigned window; /* offset of the configuration access capability */
	unsigned msix;	 /* and of MSI-X */
	uint64_t table;
	uint64_t pending;
	unsigned vectors;
	struct virtio_features features; /* as negotiated */
};

/* Offsets in the common configuration (4.1.4.3). */
enum {
	COMMON_DEVICE_FEATURE_SELECT = 0x00,
	COMMON_DEVICE_FEATURE = 0x04,
	COMMON_DRIVER_FEATURE_SELECT = 0x08,
	COMMON_DRIVER_FEATURE = 0x0c,
	COMMON_CONFIG_VECTOR = 0x10,
	COMMON_NUM_QUEUES = 0x12,
	COMMON_STATUS = 0x14,
	COMMON_GENERATION = 0x15,
	COMMON_QUEUE_SELECT = 0x16,
	COMMON_QUEUE_SIZE = 0x18,
	COMMON_QUEUE_VECTOR = 0x1a,
	COMMON_QUEUE_ENABLE = 0x1c,
	COMMON_NOTIFY_OFF = 0x1e,
	COMMON_QUEUE_DESC = 0x20,
	COMMON_QUEUE_DRIVER = 0x28,
	COMMON_QUEUE_DEVICE = 0x30,
	COMMON_QUEUE_RESET = 0x3a,
};

/*
 * Finds a modern virtio device in the slot and turns its BARs on. False: something is
 * missing.
 */
bool driver_probe(struct driver *driver, struct board *board, unsigned slot);

/* The `nth` capability with this id (from 0 on): its offset, or 0. */
unsigned driver_find_capability(struct board *board, unsigned slot, uint8_t id, unsigned nth);

/* The common configuration, and the device's own. */
uint32_t driver_read(const struct driver *driver, unsigned offset, unsigned len);
void driver_write(const struct driver *driver, unsigned offset, unsigned len, uint32_t value);
uint64_t driver_config(const struct driver *driver, unsigned offset, unsigned len);

uint8_t driver_status(const struct driver *driver);
void driver_add_status(const struct driver *driver, uint8_t bits);

/* Writes status 0 and waits until it reads so; false when it never does. */
bool driver_reset(struct driver *driver);

struct virtio_features driver_offered(const struct driver *driver);

/*
 * ACKNOWLEDGE, DRIVER, the features in `wanted` that are offered (with VERSION_1 always),
 * FEATURES_OK. False when the device does not keep FEATURES_OK.
 */
bool driver_negotiate(struct driver *driver, const struct virtio_features *wanted);

/* Turns MSI-X on with a message for each vector, none masked; or off, for INTx. */
void driver_msix_on(const struct driver *driver);
void driver_msix_off(const struct driver *driver);
void driver_mask_vector(const struct driver *driver, unsigned vector, bool masked);
void driver_mask_all(const struct driver *driver, bool masked);
bool driver_vector_pending(const struct driver *driver, unsigned vector);

/* The message that driver_msix_on() gives the vector. */
uint64_t driver_message_address(const struct driver *driver, unsigned vector);
uint32_t driver_message_data(const struct driver *driver, unsigned vector);

/* board_wait_message() for the vector's message. */
uint64_t driver_wait_vector(const struct driver *driver, unsigned vector, int timeout);

/* Assigns a vector; false when the device refuses it. */
bool driver_set_config_vector(const struct driver *driver, unsigned vector);
bool driver_set_queue_vector(const struct driver *driver, unsigned queue, unsigned vector);

/*
 * Makes a ring of `size` entries (0: what the device offers) for the queue, and enables it. Keeps
 * the vector if there is one. False when the queue does not exist or refuses the size.
 */
bool driver_setup_queue(const struct driver *driver, unsigned queue, struct ring *ring,
			uint16_t size);

/* Resets one queue (RING_RESET) and waits until it is done; false when it never is. */
bool driver_reset_queue(const struct driver *driver, unsigned queue);

/* From any thread. */
void driver_kick(const struct driver *driver, unsigned queue);

#endif
