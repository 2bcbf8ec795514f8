/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * BAR 1 holds the MSI-X table; BAR 4 the register blocks, a page each: common configuration, ISR
 * status, device configuration, notifications. Queue n's notification address is n * 4 bytes into
 * the latter, or into I/O BAR 0 (some CPUs make KVM decode the instruction behind an MMIO exit, but
 * not behind a port's). Wherever the guest maps it, KVM turns a write there into a count on the
 * queue's eventfd.
 *
 * Messages are staged while the driver sets vectors up, and committed once when it sets DRIVER_OK:
 * before that no vector can fire. Later changes (an interrupt moves to another CPU) commit at once.
 */

#include <errno.h>
#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/virtio/transport_pci_regs.h"
#include "vmm/log.h"
#include "vmm/util.h"

#define KICK_BAR   0u /* only with kicks by port I/O */
#define MSIX_BAR   1u
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

static void set_isr_locked(struct virtio_pci *t, uint8_t isr)
{
	t->isr = isr;
	pci_set_intx(&t->function, isr);
}

void virtio_pci_set_isr(struct virtio_pci *t, uint8_t isr)
{
	pthread_mutex_lock(&t->isr_lock);
	set_isr_locked(t, isr);
	pthread_mutex_unlock(&t->isr_lock);
}

/* Reading the ISR status clears it and lowers the pin (4.1.4.5). */
static void isr_read(struct virtio_pci *t, uint64_t offset, void *data, unsigned len)
{
	memset(data, 0, len);
	if (offset)
		return;
	pthread_mutex_lock(&t->isr_lock);
	store_le(data, 1, t->isr);
	set_isr_locked(t, 0);
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
		virtio_pci_common_read(t, at, data, len);
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
		virtio_pci_common_write(t, at, data, len);
		pthread_mutex_unlock(&t->lock);
		break;
	case NOTIFY_BASE:
		/* Only where no eventfd catches the write first. */
		if (at % NOTIFY_STRIDE == 0)
			virtio_kick(t->device, (unsigned)(at / NOTIFY_STRIDE));
		break;
	}
}

static const struct bus_ops bar_ops = { .name = "virtio", .read = bar_read, .write = bar_write };

static void kick_bar_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	struct virtio_pci *t = ctx;

	(void)data;
	(void)len;
	if (offset % NOTIFY_STRIDE == 0)
		virtio_kick(t->device, (unsigned)(offset / NOTIFY_STRIDE));
}

static const struct bus_ops kick_bar_ops = { .name = "kick", .write = kick_bar_write };

static void bar_mapped(struct pci_function *function, unsigned bar, uint64_t base, bool on)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);
	bool pio = t->kicks == PLATFORM_PIO;

	if (bar != (pio ? KICK_BAR : VIRTIO_BAR))
		return;
	if (!pio)
		base += NOTIFY_BASE;
	if (t->kicks_exit)
		return;
	/* When KVM refuses, kicks still come, as exits. */
	for (unsigned i = 0; i < t->device->queue_count; i++)
		t->platform->ops->kick_fd(t->platform->ctx, t->kicks,
					  base + (uint64_t)i * NOTIFY_STRIDE,
					  t->device->queues[i].kick_fd, on);
}

/*
 * The configuration access window (4.1.4.9): the guest writes BAR, offset and length into the
 * capability, and then reads or writes its data field. NULL unless that field is touched and names
 * a place in a BAR.
 */
static const struct pci_bar *window_target(const struct virtio_pci *t, unsigned offset,
					   unsigned len, uint32_t *at, unsigned *size)
{
	const uint8_t *cap = &t->function.config[t->window];
	unsigned data = t->window + (unsigned)offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);
	unsigned index = cap[offsetof(struct virtio_pci_cap, bar)];
	const struct pci_bar *bar = index < PCI_BARS ? &t->function.bars[index] : NULL;

	*at = (uint32_t)load_le(cap + offsetof(struct virtio_pci_cap, offset), 4);
	*size = (unsigned)load_le(cap + offsetof(struct virtio_pci_cap, length), 4);
	if (!ranges_overlap(offset, len, data, 4) || !bar || bar->space == PCI_SPACE_NONE)
		return NULL;
	if ((*size != 1 && *size != 2 && *size != 4) || *at % *size ||
	    !range_inside(*at, *size, 0, bar->size))
		return NULL;
	return bar;
}

static uint8_t *window_data(struct virtio_pci *t)
{
	return &t->function.config[t->window + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data)];
}

static void config_reading(struct pci_function *function, unsigned offset, unsigned len)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);
	const struct pci_bar *bar;
	unsigned size;
	uint32_t at;

	bar = window_target(t, offset, len, &at, &size);
	if (bar && bar->ops->read)
		bar->ops->read(bar->ctx, at, window_data(t), size);
}

/*
 * A function that may not master the bus touches no memory. It is how a kernel that makes way for
 * another (kexec) ends devices: some never reset them.
 */
static void follow_bus_master(struct virtio_pci *t)
{
	bool may = load_le(&t->function.config[PCI_COMMAND], 2) & PCI_COMMAND_MASTER;

	if (t->bus_master && !may) {
		pthread_mutex_lock(&t->lock);
		virtio_device_cut_off(t->device);
		pthread_mutex_unlock(&t->lock);
	}
	t->bus_master = may;
}

static void config_written(struct pci_function *function, unsigned offset, unsigned len)
{
	struct virtio_pci *t = container_of(function, struct virtio_pci, function);
	const struct pci_bar *bar;
	unsigned size;
	uint32_t at;

	if (ranges_overlap(offset, len, PCI_COMMAND, 2))
		follow_bus_master(t);
	msix_config_written(&t->msix, offset, len);
	/* A pin that was raised just before does not stay so: nobody would read the ISR status. */
	if (msix_enabled(&t->msix))
		pci_set_intx(&t->function, false);
	bar = window_target(t, offset, len, &at, &size);
	if (bar && bar->ops->write)
		bar->ops->write(bar->ctx, at, window_data(t), size);
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

/*
 * A count raises the vector's message by itself while that may be: with MSI-X on, and unmasked. In
 * all other cases (INTx, the pending bits) only we can do what there is to do.
 */
static void update_call_locked(struct virtio_pci *t, unsigned queue)
{
	const struct platform_ops *ops = t->platform->ops;
	struct virtio_pci_call *call = &t->calls[queue];
	unsigned vector = atomic_load(&t->queue_vectors[queue]);
	int source = -1;

	if (call->fd >= 0 && msix_unmasked(&t->msix, vector))
		source = (int)t->messages[vector].source;
	if (source == call->source)
		return;
	if (call->source >= 0)
		ops->msi_fd(t->platform->ctx, (unsigned)call->source, call->fd, false);
	call->source = -1;
	/* When it is refused, counts come to us. */
	if (source >= 0 && !ops->msi_fd(t->platform->ctx, (unsigned)source, call->fd, true))
		call->source = source;
}

void virtio_pci_update_call(struct virtio_pci *t, unsigned queue)
{
	pthread_mutex_lock(&t->calls_lock);
	update_call_locked(t, queue);
	pthread_mutex_unlock(&t->calls_lock);
}

static void queue_call_fd(void *ctx, unsigned queue, int fd)
{
	struct virtio_pci *t = ctx;
	struct virtio_pci_call *call = &t->calls[queue];

	pthread_mutex_lock(&t->calls_lock);
	if (call->source >= 0)
		t->platform->ops->msi_fd(t->platform->ctx, (unsigned)call->source, call->fd, false);
	*call = (struct virtio_pci_call){ .fd = fd, .source = -1 };
	update_call_locked(t, queue);
	pthread_mutex_unlock(&t->calls_lock);
}

/*
 * The mask was stored before, and whoever changes a queue's vector looks at it after: one of the
 * two acts on both.
 */
static void mask_changed(void *ctx, unsigned vector)
{
	struct virtio_pci *t = ctx;

	for (unsigned i = 0; i < t->device->queue_count; i++)
		if (atomic_load(&t->queue_vectors[i]) == vector)
			virtio_pci_update_call(t, i);
}

static const struct msix_ops message_ops = {
	.route = route,
	.fire = fire,
	.mask_changed = mask_changed,
};

static void interrupt(struct virtio_pci *t, unsigned vector, uint8_t isr)
{
	if (msix_enabled(&t->msix)) {
		msix_fire(&t->msix, vector);
		return;
	}
	pthread_mutex_lock(&t->isr_lock);
	set_isr_locked(t, t->isr | isr);
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
	.queue_call_fd = queue_call_fd,
};

static void add_block(struct virtio_pci *t, uint8_t type, uint8_t bar, uint32_t base,
		      uint32_t length, unsigned cap_len)
{
	struct virtio_pci_notify_cap cap = {
		.cap = { .cap_len = (uint8_t)cap_len,
			 .cfg_type = type,
			 .bar = bar,
			 .offset = base,
			 .length = length },
		.notify_off_multiplier = NOTIFY_STRIDE,
	};

	pci_add_capability(&t->function, PCI_CAP_ID_VNDR, (uint8_t *)&cap + 2, NULL, cap_len - 2);
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
	bool pio = t->kicks == PLATFORM_PIO;

	add_block(t, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_BAR, COMMON_BASE,
		  VIRTIO_PCI_COMMON_BYTES,
		  sizeof(struct virtio_pci_cap));
	add_block(t, VIRTIO_PCI_CAP_NOTIFY_CFG, pio ? KICK_BAR : VIRTIO_BAR,
		  pio ? 0 : NOTIFY_BASE, t->device->queue_count * NOTIFY_STRIDE,
		  sizeof(struct virtio_pci_notify_cap));
	add_block(t, VIRTIO_PCI_CAP_ISR_CFG, VIRTIO_BAR, ISR_BASE, 1,
		  sizeof(struct virtio_pci_cap));
	add_block(t, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_BAR, DEVICE_BASE, BLOCK_SIZE,
		  sizeof(struct virtio_pci_cap));
	add_window(t);
}

static uint32_t kick_bar_size(const struct virtio_device *device)
{
	uint32_t size = 16;

	while (size < device->queue_count * NOTIFY_STRIDE)
		size *= 2;
	return size;
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

/* What there is of each queue. */
static int alloc_queues(struct virtio_pci *t)
{
	unsigned count = t->device->queue_count;

	t->queue_vectors = calloc(count, sizeof(*t->queue_vectors));
	t->calls = calloc(count, sizeof(*t->calls));
	if (!t->queue_vectors || !t->calls)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++)
		t->calls[i] = (struct virtio_pci_call){ .fd = -1, .source = -1 };
	return 0;
}

int virtio_pci_init(struct virtio_pci *t, struct virtio_device *device,
		    const struct platform *platform, uint32_t class_code,
		    enum platform_space kicks)
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
	t->kicks = kicks;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->isr_lock, NULL);
	pthread_mutex_init(&t->calls_lock, NULL);
	pci_init(&t->function, &identity, &function_ops);
	pci_add_bar(&t->function, VIRTIO_BAR, PCI_SPACE_MEMORY, VIRTIO_BAR_SIZE, &bar_ops, t);
	if (kicks == PLATFORM_PIO)
		pci_add_bar(&t->function, KICK_BAR, PCI_SPACE_IO, kick_bar_size(device),
			    &kick_bar_ops, t);
	pci_add_intx(&t->function);
	add_capabilities(t);
	err = alloc_queues(t);
	if (!err)
		err = alloc_messages(t, vectors);
	if (!err)
		err = msix_init(&t->msix, &t->function, MSIX_BAR, vectors, &message_ops, t);
	if (err) {
		log_error("%s: no interrupts: %s", device->name, strerror(-err));
		return err;
	}
	device->transport = &transport_ops;
	device->transport_ctx = t;
	virtio_pci_reset_registers(t);
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
	free(t->calls);
	free(t->queue_vectors);
	pthread_mutex_destroy(&t->calls_lock);
	pthread_mutex_destroy(&t->isr_lock);
	pthread_mutex_destroy(&t->lock);
	memset(t, 0, sizeof(*t));
}
