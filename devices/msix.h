/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MSI-X of one PCI function (PCI Local Bus 3.0, section 6.8.2): the capability, the vector table,
 * the pending bits, and masking by vector and by function.
 *
 * What it does outwards: it routes a vector (its message changed), fires one, and tells of masks.
 */
#ifndef WHELP_MSIX_H
#define WHELP_MSIX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/pci.h"

/* Table and pending bits share one 4 KiB BAR, half each. */
#define MSIX_MAX_VECTORS 128u
#define MSIX_BAR_SIZE	 4096u

struct msix_ops {
	/* Vector `vector` will be fired with this message from now on. Called by a vCPU thread. */
	void (*route)(void *ctx, unsigned vector, uint64_t address, uint32_t data);
	/* Raise it once. Called by any thread. */
	void (*fire)(void *ctx, unsigned vector);
	/*
	 * It became masked, or no longer is (msix_unmasked()): for who fires by other means than
	 * msix_fire(). Called by a vCPU thread, with `lock` held; NULL: nobody does.
	 */
	void (*mask_changed)(void *ctx, unsigned vector);
};

struct msix_vector {
	uint32_t table[4]; /* address low and high, data, control; under `lock` */
	uint64_t routed_address;
	uint32_t routed_data;
	bool routed;
	atomic_bool masked; /* by its own bit, the function's, or MSI-X being off */
	atomic_bool pending;
};

struct msix {
	struct pci_function *function;
	const struct msix_ops *ops;
	void *ctx;
	unsigned capability; /* its offset */
	unsigned count;
	atomic_bool enabled;
	uint16_t control;     /* the capability's control word, a copy under `lock` */
	pthread_mutex_t lock; /* the table and `control`; never taken to fire */
	struct msix_vector *vectors;
};

/*
 * Adds MSI-X with `count` vectors (1 to MSIX_MAX_VECTORS) to a function that is not plugged yet,
 * its table and pending bits in BAR `bar`. 0 or -ENOMEM. msix_fini() is fine on a zeroed struct.
 */
int msix_init(struct msix *msix, struct pci_function *function, unsigned bar, unsigned count,
	      const struct msix_ops *ops, void *ctx);
void msix_fini(struct msix *msix);

/* To be called from the function's config_written. */
void msix_config_written(struct msix *msix, unsigned offset, unsigned len);

/* True while the guest has MSI-X on: INTx is then not to be used. */
static inline bool msix_enabled(struct msix *msix)
{
	return atomic_load_explicit(&msix->enabled, memory_order_acquire);
}

/* True while firing the vector raises its message at once; false for one that does not exist. */
bool msix_unmasked(const struct msix *msix, unsigned vector);

/*
 * Fires a vector, or makes it pending while it is masked; from any thread, without a lock. A vector
 * that does not exist is ignored.
 */
void msix_fire(struct msix *msix, unsigned vector);

/* The function was reset: nothing is pending any more. No vector may be fired meanwhile. */
void msix_clear_pending(struct msix *msix);

#endif
