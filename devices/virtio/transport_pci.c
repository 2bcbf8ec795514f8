/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * BAR 1 holds the MSI-X table; BAR 4 the register blocks, a page each: common configuration, ISR status,
 * device configuration, notifications. Queue n's notification address is n * 4 bytes into its page,
 * and wherever the guest maps the BAR, KVM turns a write there into a count on the queue's eventfd.
 *
 * Messages are staged while the driver sets vectors up, and committed once when it sets DRIVER_OK:
 * before that no vector can fire. Later changes (an interrupt moves to another CPU) commit at once.
 */
#include "devices/virtio/transport_pci.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"

#define MSIX_BAR  1u
#define VIRTIO_BAR 4u

#define BLOCK_SIZE    0x1000u
#define COMMON_BASE   0x0000u
#define ISR_BASE      0x1000u
#define DEVICE_BASE   0x2000u
#define NOTIFY_BASE   0x3000u
#define VIRTIO_BAR_SIZE 0x4000u
#define NOTIFY_STRIDE 4u

#define ISR_QUEUE  1u
#define ISR_CONFIG 2u

static struct virtqueue *selected(struct virtio_pci *t)
{
	return t->queue_select < t->device->queue_count ?
		       &t->device->queues[t->queue_select].vq :
		       NULL;
}

/* The common configuration (4.1.4.3): a reader and a writer for each field, by table. */
typedef uint32_t read_fn(struct virtio_pci *t);
typedef void write_fn(struct virtio_pci *t, uint32_t value);

static uint32_t read_device_feature_select(struct virtio_pci *t)
{
	return t->device_feature_select;
}

static void write_device_feature_select(struct virtio_pci *t, uint32_t value)
{
	t->device_feature_select = value;
}

static uint32_t read_device_feature(struct virtio_pci *t)
{
	return t->device_feature_select < VIRTIO_FEATURE_WORDS ?
		       t->device->offered.word[t->device_feature_select] :
		       0;
}

static uint32_t read_driver_feature_select(struct virtio_pci *t)
{
	return t->driver_feature_select;
}

static void write_driver_feature_select(struct virtio_pci *t, uint32_t value)
{
	t->driver_feature_select = value;
}

static uint32_t read_driver_feature(struct virtio_pci *t)
{
	return t->driver_feature_select < VIRTIO_FEATURE_WORDS ?
		       t->device->accepted.word[t->driver_feature_select] :
		       0;
}

static void write_driver_feature(struct virtio_pci *t, uint32_t value)
{
	virtio_write_features(t->device, t->driver_feature_select, value);
}

/* A vector that does not exist reads back as none (4.1.5.1.2.1). */
static uint16_t checked_vector(const struct virtio_pci *t, uint32_t value)
{
	return (uint16_t)(value < t->msix.count ? value : VIRTIO_NO_VECTOR);
}

static uint32_t read_config_vector(struct virtio_pci *t)
{
	return atomic_load(&t->config_vector);
}

static void write_config_vector(struct virtio_pci *t, uint32_t value)
{
	atomic_store(&t->config_vector, checked_vector(t, value));
}

static uint32_t read_num_queues(struct virtio_pci *t)
{
	return t->device->queue_count;
}

static uint32_t read_status(struct virtio_pci *t)
{
	return virtio_status(t->device);
}

static void set_intx(struct virtio_pci *t, uint8_t isr)
{
	t->isr = isr;
	pci_set_intx(&t->function, isr);
}

static void reset_registers(struct virtio_pci *t)
{
	t->device_feature_select = t->driver_feature_select = 0;
	t->queue_select = 0;
	atomic_store(&t->config_vector, VIRTIO_NO_VECTOR);
	for (unsigned i = 0; i < t->device->queue_count; i++)
		atomic_store(&t->queue_vectors[i], VIRTIO_NO_VECTOR);
	pthread_mutex_lock(&t->isr_lock);
	set_intx(t, 0);
	pthread_mutex_unlock(&t->isr_lock);
	atomic_store(&t->commit_at_once, false);
	msix_clear_pending(&t->msix);
}

static void write_status(struct virtio_pci *t, uint32_t value)
{
	if (value & VIRTIO_CONFIG_S_DRIVER_OK) {
		/* Partner: route() stages, then looks here. One of the two commits what it staged. */
		atomic_store(&t->commit_at_once, true);
		t->platform->ops->msi_commit(t->platform->ctx);
	}
	virtio_write_status(t->device, (uint8_t)value);
	if (!value)
		reset_registers(t);
}

static uint32_t read_generation(struct virtio_pci *t)
{
	return atomic_load(&t->device->generation);
}

static uint32_t read_queue_select(struct virtio_pci *t)
{
	return t->queue_select;
}

static void write_queue_select(struct virtio_pci *t, uint32_t value)
{
	t->queue_select = (uint16_t)value;
}

static uint32_t read_queue_size(struct virtio_pci *t)
{
	return selected(t) ? selected(t)->size : 0;
}

static void write_queue_size(struct virtio_pci *t, uint32_t value)
{
	if (selected(t))
		vq_set_size(selected(t), (uint16_t)value);
}

static uint32_t read_queue_vector(struct virtio_pci *t)
{
	return selected(t) ? atomic_load(&t->queue_vectors[t->queue_select]) : VIRTIO_NO_VECTOR;
}

static void write_queue_vector(struct virtio_pci *t, uint32_t value)
{
	if (selected(t))
		atomic_store(&t->queue_vectors[t->queue_select], checked_vector(t, value));
}

static uint32_t read_queue_enable(struct virtio_pci *t)
{
	return selected(t) && selected(t)->enabled;
}

static void write_queue_enable(struct virtio_pci *t, uint32_t value)
{
	/* A driver enables its queues before DRIVER_OK, and never disables one (4.1.4.3.2). */
	if (value == 1 && selected(t) && !(virtio_status(t->device) & VIRTIO_CONFIG_S_DRIVER_OK))
		vq_enable(selected(t));
}

static uint32_t read_notify_off(struct virtio_pci *t)
{
	return selected(t) ? t->queue_select : 0;
}

static uint64_t with_low(uint64_t old, uint32_t value)
{
	return (old & ~0xffffffffull) | value;
}

static uint64_t with_high(uint64_t old, uint32_t value)
{
	return (old & 0xffffffffull) | (uint64_t)value << 32;
}

/* The ring addresses are 64 bits wide, and written as two halves of 32. */
#define RING_ADDRESS(part)                                                                      \
	static uint32_t read_##part##_low(struct virtio_pci *t)                                 \
	{                                                                                       \
		return selected(t) ? (uint32_t)selected(t)->part##_gpa : 0;                     \
	}                                                                                       \
	static void write_##part##_low(struct virtio_pci *t, uint32_t value)                    \
	{                                                                                       \
		struct virtqueue *vq = selected(t);                                             \
                                                                                                \
		if (vq)                                                                         \
			vq_set_##part(vq, with_low(vq->part##_gpa, value));                     \
	}                                                                                       \
	static uint32_t read_##part##_high(struct virtio_pci *t)                                \
	{                                                                                       \
		return selected(t) ? (uint32_t)(selected(t)->part##_gpa >> 32) : 0;             \
	}                                                                                       \
	static void write_##part##_high(struct virtio_pci *t, uint32_t value)                   \
	{                                                                                       \
		struct virtqueue *vq = selected(t);                                             \
                                                                                                \
		if (vq)                                                                         \
			vq_set_##part(vq, with_high(vq->part##_gpa, value));                    \
	}

RING_ADDRESS(desc)
RING_ADDRESS(driver)
RING_ADDRESS(device)

static const struct common_register {
	uint8_t offset;
	uint8_t size;
	const char *name;
	read_fn *read;
	write_fn *write; /* NULL: read-only */
} common_registers[] = {
	{ 0x00, 4, "device_feature_select", read_device_feature_select,
	  write_device_feature_select },
	{ 0x04, 4, "device_feature", read_device_feature, NULL },
	{ 0x08, 4, "driver_feature_select", read_driver_feature_select,
	  write_driver_feature_select },
	{ 0x0c, 4, "driver_feature", read_driver_feature, write_driver_feature },
	{ 0x10, 2, "config_msix_vector", read_config_vector, write_config_vector },
	{ 0x12, 2, "num_queues", read_num_queues, NULL },
	{ 0x14, 1, "device_status", read_status, write_status },
	{ 0x15, 1, "config_generation", read_generation, NULL },
	{ 0x16, 2, "queue_select", read_queue_select, write_queue_select },
	{ 0x18, 2, "queue_size", read_queue_size, write_queue_size },
	{ 0x1a, 2, "queue_msix_vector", read_queue_vector, write_queue_vector },
	{ 0x1c, 2, "queue_enable", read_queue_enable, write_queue_enable },
	{ 0x1e, 2, "queue_notify_off", read_notify_off, NULL },
	{ 0x20, 4, "queue_desc, low", read_desc_low, write_desc_low },
	{ 0x24, 4, "queue_desc, high", read_desc_high, write_desc_high },
	{ 0x28, 4, "queue_driver, low", read_driver_low, write_driver_low },
	{ 0x2c, 4, "queue_driver, high", read_driver_high, write_driver_high },
	{ 0x30, 4, "queue_device, low", read_device_low, write_device_low },
	{ 0x34, 4, "queue_device, high", read_device_high, write_device_high },
};

#define COMMON_SIZE 0x38u

_Static_assert(sizeof(struct virtio_pci_common_cfg) == COMMON_SIZE, "4.1.4.3");

/* A driver accesses each field at its own width (4.1.3.1); anything else finds nothing. */
static const struct common_register *find_register(uint64_t offset, unsigned len)
{
	for (unsigned i = 0; i < ARRAY_SIZE(common_registers); i++)
		if (common_registers[i].offset == offset && common_registers[i].size == len)
			return &common_registers[i];
	return NULL;
}

static void common_read(struct virtio_pci *t, uint64_t offset, void *data, unsigned len)
{
	const struct common_register *r = find_register(offset, len);

	store_le(data, len, r ? r->read(t) : 0);
}

static void common_write(struct virtio_pci *t, uint64_t offset, const void *data, unsigned len)
{
	const struct common_register *r = find_register(offset, len);

	if (r && r->write)
		r->write(t, (uint32_t)load_le(data, len));
}

/* Reading the ISR status clears it and lowers the pin (4.1.4.5). */
static void isr_read(struct virtio_pci *t, uint64_t offset, void *data, unsigned len)
{
	memset(data, 0, len);
	if (offset)
		return;
	pthread_mutex_lock(&t->isr_lock);
	store_le(data, 1, t->isr);
	set_intx(t, 0);
	pthread_mutex_unlock(&t->isr_lock);
}

static void bar_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	struct virtio_pci *t = ctx;
	uint64_t at = offset % BLOCK_SIZE;

	memset(data, 0, len);
	switch (offset - at) {
	case COMMON_BASE:
		pthread_mutex_lock(&t->lock);
		common_read(t, at, data, len);
		pthread_mutex_unlock(&t->lock);
		break;
	case ISR_BASE:
		isr_read(t, at, data, len);
		break;
	case DEVICE_BASE:
		pthread_mutex_lock(&t->lock);
		t->device->ops->config_read(t->device, at, data, len);
		pthread_mutex_unlock(&t->lock);
		break;
	}
}

static void bar_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	struct virtio_pci *t = ctx;
	uint64_t at = offset % BLOCK_SIZE;

	switch (offset - at) {
	case COMMON_BASE:
		pthread_mutex_lock(&t->lock);
		common_write(t, at, data, len);
		pthread_mutex_unlock(&t->lock);
		break;
	case NOTIFY_BASE:
		/* Only where no eventfd catches the write first. */
		if (at % NOTIFY_STRIDE == 0)
			virtio_kick(t->device, (unsigned)(at / NOTIFY_STRIDE));
		break;
	}
}

static const struct bus_ops bar_ops = { .read = bar_read, .write = bar_write };

static void bar_mapped(struct pci_function *function, unsigned bar, uint64_t base, bool on)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);

	if (bar != VIRTIO_BAR)
		return;
	/* When KVM refuses, kicks still come, as exits, by bar_write(). */
	for (unsigned i = 0; i < t->device->queue_count; i++)
		t->platform->ops->kick_fd(t->platform->ctx, PLATFORM_MMIO,
					  base + NOTIFY_BASE + (uint64_t)i * NOTIFY_STRIDE,
					  t->device->queues[i].kick_fd, on);
}

/*
 * The configuration access window (4.1.4.9): the guest writes BAR, offset and length into the capability,
 * and then reads or writes its data field. False unless that field is touched and names real registers.
 */
static bool window_target(const struct virtio_pci *t, unsigned offset, unsigned len, uint32_t *at,
			  unsigned *size)
{
	const uint8_t *cap = &t->function.config[t->window];
	unsigned data = t->window + (unsigned)offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);

	*at = (uint32_t)load_le(cap + offsetof(struct virtio_pci_cap, offset), 4);
	*size = (unsigned)load_le(cap + offsetof(struct virtio_pci_cap, length), 4);
	return ranges_overlap(offset, len, data, 4) &&
	       cap[offsetof(struct virtio_pci_cap, bar)] == VIRTIO_BAR &&
	       (*size == 1 || *size == 2 || *size == 4) && *at % *size == 0 &&
	       range_inside(*at, *size, 0, VIRTIO_BAR_SIZE);
}

static uint8_t *window_data(struct virtio_pci *t)
{
	return &t->function.config[t->window + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data)];
}

static void config_reading(struct pci_function *function, unsigned offset, unsigned len)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);
	unsigned size;
	uint32_t at;

	if (window_target(t, offset, len, &at, &size))
		bar_read(t, at, window_data(t), size);
}

static void config_written(struct pci_function *function, unsigned offset, unsigned len)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);
	unsigned size;
	uint32_t at;

	msix_config_written(&t->msix, offset, len);
	if (window_target(t, offset, len, &at, &size))
		bar_write(t, at, window_data(t), size);
}

static const struct pci_function_ops function_ops = {
	.config_reading = config_reading,
	.config_written = config_written,
	.bar_mapped = bar_mapped,
};

static void route(void *ctx, unsigned vector, uint64_t address, uint32_t data)
{
	struct virtio_pci *t = ctx;

	t->platform->ops->msi_set(t->platform->ctx, t->messages[vector].source, address, data);
	if (atomic_load(&t->commit_at_once))
		t->platform->ops->msi_commit(t->platform->ctx);
}

static void fire(void *ctx, unsigned vector)
{
	struct virtio_pci *t = ctx;
	uint64_t one = 1;
	ssize_t written = write(t->messages[vector].fd, &one, sizeof(one));

	/* KVM consumes it in the write; it cannot fill up. */
	(void)written;
}

static const struct msix_ops message_ops = { .route = route, .fire = fire };

static void interrupt(struct virtio_pci *t, unsigned vector, uint8_t isr)
{
	if (msix_enabled(&t->msix)) {
		msix_fire(&t->msix, vector);
		return;
	}
	pthread_mutex_lock(&t->isr_lock);
	set_intx(t, t->isr | isr);
	pthread_mutex_unlock(&t->isr_lock);
}

static void queue_interrupt(void *ctx, unsigned queue)
{
	struct virtio_pci *t = ctx;

	interrupt(t, atomic_load_explicit(&t->queue_vectors[queue], memory_order_relaxed),
		  ISR_QUEUE);
}

static void config_interrupt(void *ctx)
{
	struct virtio_pci *t = ctx;

	interrupt(t, atomic_load(&t->config_vector), ISR_CONFIG);
}

static const struct virtio_transport_ops transport_ops = {
	.queue_interrupt = queue_interrupt,
	.config_interrupt = config_interrupt,
};

static unsigned add_block(struct virtio_pci *t, uint8_t type, uint32_t base, uint32_t length,
			  unsigned cap_len)
{
	struct virtio_pci_notify_cap cap = {
		.cap = { .cap_len = (uint8_t)cap_len,
			 .cfg_type = type,
			 .bar = VIRTIO_BAR,
			 .offset = base,
			 .length = length },
		.notify_off_multiplier = NOTIFY_STRIDE,
	};

	return pci_add_capability(&t->function, PCI_CAP_ID_VNDR, (uint8_t *)&cap + 2, NULL,
				  cap_len - 2);
}

static void add_window(struct virtio_pci *t)
{
	struct virtio_pci_cfg_cap cap = {
		.cap = { .cap_len = sizeof(cap), .cfg_type = VIRTIO_PCI_CAP_PCI_CFG },
	};
	struct virtio_pci_cfg_cap writable = {
		.cap = { .bar = 0xff, .offset = 0xffffffff, .length = 0xffffffff },
		.pci_cfg_data = { 0xff, 0xff, 0xff, 0xff },
	};

	t->window = pci_add_capability(&t->function, PCI_CAP_ID_VNDR, (uint8_t *)&cap + 2,
				       (uint8_t *)&writable + 2, sizeof(cap) - 2);
}

static void add_capabilities(struct virtio_pci *t)
{
	add_block(t, VIRTIO_PCI_CAP_COMMON_CFG, COMMON_BASE, COMMON_SIZE,
		  sizeof(struct virtio_pci_cap));
	add_block(t, VIRTIO_PCI_CAP_NOTIFY_CFG, NOTIFY_BASE,
		  t->device->queue_count * NOTIFY_STRIDE, sizeof(struct virtio_pci_notify_cap));
	add_block(t, VIRTIO_PCI_CAP_ISR_CFG, ISR_BASE, 1, sizeof(struct virtio_pci_cap));
	add_block(t, VIRTIO_PCI_CAP_DEVICE_CFG, DEVICE_BASE, BLOCK_SIZE,
		  sizeof(struct virtio_pci_cap));
	add_window(t);
}

static int alloc_messages(struct virtio_pci *t, unsigned count)
{
	t->messages = calloc(count, sizeof(*t->messages));
	if (!t->messages)
		return -ENOMEM;
	for (; t->message_count < count; t->message_count++) {
		struct virtio_pci_message *m = &t->messages[t->message_count];
		int err = t->platform->ops->msi_alloc(t->platform->ctx, &m->source, &m->fd);

		if (err)
			return err;
	}
	return 0;
}

int virtio_pci_init(struct virtio_pci *t, struct virtio_device *device,
		    const struct platform *platform, uint32_t class_code)
{
	const struct pci_identity identity = {
		.vendor = 0x1af4, /* 4.1.2 */
		.device = (uint16_t)(0x1040 + device->type),
		.subsystem_vendor = 0x1af4,
		.subsystem = (uint16_t)(0x1040 + device->type),
		.class_code = class_code,
		.revision = 1,
	};
	unsigned vectors = MIN(device->queue_count + 1, MSIX_MAX_VECTORS);
	int err;

	memset(t, 0, sizeof(*t));
	t->device = device;
	t->platform = platform;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->isr_lock, NULL);
	pci_init(&t->function, &identity, &function_ops);
	pci_add_bar(&t->function, VIRTIO_BAR, PCI_SPACE_MEMORY, VIRTIO_BAR_SIZE, &bar_ops, t);
	pci_add_intx(&t->function);
	add_capabilities(t);
	t->queue_vectors = calloc(device->queue_count, sizeof(*t->queue_vectors));
	err = t->queue_vectors ? alloc_messages(t, vectors) : -ENOMEM;
	if (!err)
		err = msix_init(&t->msix, &t->function, MSIX_BAR, vectors, &message_ops, t);
	if (err) {
		log_error("%s: no interrupts: %s", device->name, strerror(-err));
		return err;
	}
	device->transport = &transport_ops;
	device->transport_ctx = t;
	atomic_store(&t->config_vector, VIRTIO_NO_VECTOR);
	for (unsigned i = 0; i < device->queue_count; i++)
		atomic_store(&t->queue_vectors[i], VIRTIO_NO_VECTOR);
	return 0;
}

void virtio_pci_reset(struct virtio_pci *t)
{
	if (!t->device || !t->device->transport)
		return;
	pthread_mutex_lock(&t->lock);
	virtio_write_status(t->device, 0);
	pthread_mutex_unlock(&t->lock);
}

void virtio_pci_fini(struct virtio_pci *t)
{
	if (!t->device)
		return;
	virtio_pci_reset(t);
	msix_fini(&t->msix);
	for (unsigned i = 0; i < t->message_count; i++)
		t->platform->ops->msi_free(t->platform->ctx, t->messages[i].source);
	free(t->messages);
	free(t->queue_vectors);
	pthread_mutex_destroy(&t->isr_lock);
	pthread_mutex_destroy(&t->lock);
	memset(t, 0, sizeof(*t));
}
