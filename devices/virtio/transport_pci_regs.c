/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The common configuration of virtio over PCI (virtio 1.3, section 4.1.4.3) as a table: each field
 * has its offset, its width, a reader and a writer. All of it runs under the transport's lock.
 */
#include <stdint.h>

#include "devices/virtio/transport_pci_regs.h"
#include "vmm/util.h"

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

void virtio_pci_reset_registers(struct virtio_pci *t)
{
	t->device_feature_select = t->driver_feature_select = 0;
	t->queue_select = 0;
	atomic_store(&t->config_vector, VIRTIO_NO_VECTOR);
	for (unsigned i = 0; i < t->device->queue_count; i++)
		atomic_store(&t->queue_vectors[i], VIRTIO_NO_VECTOR);
	virtio_pci_set_isr(t, 0);
	atomic_store(&t->commit_at_once, false);
	msix_clear_pending(&t->msix);
}

static void write_status(struct virtio_pci *t, uint32_t value)
{
	if (value & VIRTIO_CONFIG_S_DRIVER_OK) {
		/*
		 * Partner: route() stages, then looks here. One of the two commits what it staged.
		 */
		atomic_store(&t->commit_at_once, true);
		t->platform->ops->msi_commit(t->platform->ctx);
	}
	virtio_write_status(t->device, (uint8_t)value);
	if (!value)
		virtio_pci_reset_registers(t);
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
	if (!selected(t))
		return;
	atomic_store(&t->queue_vectors[t->queue_select], checked_vector(t, value));
	virtio_pci_update_call(t, t->queue_select);
}

static uint32_t read_queue_enable(struct virtio_pci *t)
{
	return selected(t) && selected(t)->enabled;
}

static void write_queue_enable(struct virtio_pci *t, uint32_t value)
{
	/* A driver never disables a queue by this field (4.1.4.3.2). */
	if (value == 1 && selected(t))
		virtio_enable_queue(t->device, t->queue_select);
}

static uint32_t read_notify_data(struct virtio_pci *t)
{
	return selected(t) ? t->queue_select : 0;
}

/* The reset is over when the write is, so it reads 0 (4.1.4.3.1). */
static uint32_t read_queue_reset(struct virtio_pci *t)
{
	(void)t;
	return 0;
}

static void write_queue_reset(struct virtio_pci *t, uint32_t value)
{
	if (value != 1 || !selected(t))
		return;
	virtio_reset_queue(t->device, t->queue_select);
	atomic_store(&t->queue_vectors[t->queue_select], VIRTIO_NO_VECTOR);
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
	{ 0x38, 2, "queue_notif_config_data", read_notify_data, NULL },
	{ 0x3a, 2, "queue_reset", read_queue_reset, write_queue_reset },
};

/* A driver accesses each field at its own width (4.1.3.1); anything else finds nothing. */
static const struct common_register *find_register(uint64_t offset, unsigned len)
{
	for (unsigned i = 0; i < ARRAY_SIZE(common_registers); i++)
		if (common_registers[i].offset == offset && common_registers[i].size == len)
			return &common_registers[i];
	return NULL;
}

void virtio_pci_common_read(struct virtio_pci *t, uint64_t offset, void *data, unsigned len)
{
	const struct common_register *r = find_register(offset, len);

	store_le(data, len, r ? r->read(t) : 0);
}

void virtio_pci_common_write(struct virtio_pci *t, uint64_t offset, const void *data, unsigned len)
{
	const struct common_register *r = find_register(offset, len);

	if (r && r->write)
		r->write(t, (uint32_t)load_le(data, len));
}
