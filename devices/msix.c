/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads that fire race with vCPUs that mask and unmask, without a lock between them. The firer of
 * a masked vector sets its pending bit and then looks at the mask again; the unmasker clears the
 * mask and then takes the pending bit. With a full order on both sides at least one of them sees
 * the other's write, and the exchange on the pending bit lets only one fire.
 *
 * A message is routed when its vector is, or becomes, unmasked with other contents than before,
 * which leaves the many writes that a driver makes to masked entries without cost.
 */
#include "devices/msix.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

#define ENTRY_SIZE   16u
#define PENDING_BASE (MSIX_BAR_SIZE / 2)

_Static_assert(MSIX_MAX_VECTORS * ENTRY_SIZE <= PENDING_BASE, "the table fits its half of the BAR");
_Static_assert(MSIX_MAX_VECTORS / 8 <= MSIX_BAR_SIZE - PENDING_BASE, "and so do the pending bits");

static void route(struct msix *msix, unsigned index)
{
	struct msix_vector *v = &msix->vectors[index];
	uint64_t address = (uint64_t)v->table[1] << 32 | v->table[0];

	if (v->routed && v->routed_address == address && v->routed_data == v->table[2])
		return;
	v->routed = true;
	v->routed_address = address;
	v->routed_data = v->table[2];
	msix->ops->route(msix->ctx, index, address, v->table[2]);
}

static void mask_changed(struct msix *msix, unsigned index)
{
	if (msix->ops->mask_changed)
		msix->ops->mask_changed(msix->ctx, index);
}

/* Recomputes whether a vector is masked, after its entry or the function's control changed. */
static void update_vector(struct msix *msix, unsigned index)
{
	struct msix_vector *v = &msix->vectors[index];
	bool masked = !(msix->control & PCI_MSIX_FLAGS_ENABLE) ||
		      msix->control & PCI_MSIX_FLAGS_MASKALL ||
		      v->table[3] & PCI_MSIX_ENTRY_CTRL_MASKBIT;
	bool was_masked;

	if (masked) {
		if (!atomic_exchange(&v->masked, true))
			mask_changed(msix, index);
		return;
	}
	route(msix, index);
	/* Partner: msix_fire() sets pending, then reads masked. Both sequentially consistent. */
	was_masked = atomic_exchange(&v->masked, false);
	if (atomic_exchange(&v->pending, false))
		msix->ops->fire(msix->ctx, index);
	if (was_masked)
		mask_changed(msix, index);
}

static void update_all(struct msix *msix)
{
	msix->control =
		(uint16_t)load_le(&msix->function->config[msix->capability + PCI_MSIX_FLAGS], 2);
	atomic_store_explicit(&msix->enabled, msix->control & PCI_MSIX_FLAGS_ENABLE,
			      memory_order_release);
	for (unsigned i = 0; i < msix->count; i++)
		update_vector(msix, i);
}

void msix_config_written(struct msix *msix, unsigned offset, unsigned len)
{
	if (!ranges_overlap(offset, len, msix->capability + PCI_MSIX_FLAGS, 2))
		return;
	pthread_mutex_lock(&msix->lock);
	update_all(msix);
	pthread_mutex_unlock(&msix->lock);
}

bool msix_unmasked(const struct msix *msix, unsigned vector)
{
	return vector < msix->count && !atomic_load(&msix->vectors[vector].masked);
}

void msix_fire(struct msix *msix, unsigned vector)
{
	struct msix_vector *v;

	if (vector >= msix->count)
		return;
	v = &msix->vectors[vector];
	if (atomic_load(&v->masked)) {
		atomic_store(&v->pending, true);
		/* Partner: update_vector() clears masked, then takes pending. */
		if (atomic_load(&v->masked) || !atomic_exchange(&v->pending, false))
			return;
	}
	msix->ops->fire(msix->ctx, vector);
}

void msix_clear_pending(struct msix *msix)
{
	for (unsigned i = 0; i < msix->count; i++)
		atomic_store(&msix->vectors[i].pending, false);
}

static uint64_t pending_bits(struct msix *msix, unsigned first)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < 64 && first + i < msix->count; i++)
		if (atomic_load(&msix->vectors[first + i].pending))
			bits |= 1ull << i;
	return bits;
}

/* The table takes aligned accesses of 4 and 8 bytes; a driver makes no others. */
static bool table_access(const struct msix *msix, uint64_t offset, unsigned len)
{
	return (len == 4 || len == 8) && offset % len == 0 &&
	       range_inside(offset, len, 0, (uint64_t)msix->count * ENTRY_SIZE);
}

static void bar_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	struct msix *msix = ctx;

	memset(data, 0, len);
	if (offset >= PENDING_BASE) {
		uint64_t first = (offset - PENDING_BASE) & ~7ull;

		if (first * 8 < msix->count && offset % 8 + len <= 8)
			store_le(data, len,
				 pending_bits(msix, (unsigned)first * 8) >> offset % 8 * 8);
	} else if (table_access(msix, offset, len)) {
		pthread_mutex_lock(&msix->lock);
		memcpy(data, (char *)msix->vectors[offset / ENTRY_SIZE].table + offset % ENTRY_SIZE,
		       len);
		pthread_mutex_unlock(&msix->lock);
	}
}

static void bar_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	struct msix *msix = ctx;
	unsigned index = (unsigned)(offset / ENTRY_SIZE);

	if (!table_access(msix, offset, len))
		return;
	pthread_mutex_lock(&msix->lock);
	memcpy((char *)msix->vectors[index].table + offset % ENTRY_SIZE, data, len);
	msix->vectors[index].table[3] &= PCI_MSIX_ENTRY_CTRL_MASKBIT;
	update_vector(msix, index);
	pthread_mutex_unlock(&msix->lock);
}

static const struct bus_ops bar_ops = { .name = "msix", .read = bar_read, .write = bar_write };

static void add_capability(struct msix *msix, unsigned bar)
{
	uint8_t body[PCI_CAP_MSIX_SIZEOF - 2] = { 0 };
	uint8_t writable[PCI_CAP_MSIX_SIZEOF - 2] = { 0 };

	store_le(&body[PCI_MSIX_FLAGS - 2], 2, msix->count - 1);
	store_le(&body[PCI_MSIX_TABLE - 2], 4, bar);
	store_le(&body[PCI_MSIX_PBA - 2], 4, PENDING_BASE | bar);
	store_le(&writable[PCI_MSIX_FLAGS - 2], 2, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
	msix->capability = pci_add_capability(msix->function, PCI_CAP_ID_MSIX, body, writable,
					      sizeof(body));
}

int msix_init(struct msix *msix, struct pci_function *function, unsigned bar, unsigned count,
	      const struct msix_ops *ops, void *ctx)
{
	memset(msix, 0, sizeof(*msix));
	msix->vectors = calloc(count, sizeof(*msix->vectors));
	if (!msix->vectors)
		return -ENOMEM;
	msix->function = function;
	msix->ops = ops;
	msix->ctx = ctx;
	msix->count = count;
	pthread_mutex_init(&msix->lock, NULL);
	for (unsigned i = 0; i < count; i++) {
		msix->vectors[i].table[3] = PCI_MSIX_ENTRY_CTRL_MASKBIT;
		atomic_init(&msix->vectors[i].masked, true);
	}
	pci_add_bar(function, bar, PCI_SPACE_MEMORY, MSIX_BAR_SIZE, &bar_ops, msix);
	add_capability(msix, bar);
	return 0;
}

void msix_fini(struct msix *msix)
{
	if (!msix->vectors)
		return;
	pthread_mutex_destroy(&msix->lock);
	free(msix->vectors);
	msix->vectors = NULL;
}
