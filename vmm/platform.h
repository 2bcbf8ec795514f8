/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a device may ask of the machine it is plugged into, as an ops table: KVM's side of it is in
 * machine.c, and a test's is a few lines. This is what keeps devices/ free of <linux/kvm.h>.
 */
#ifndef WHELP_PLATFORM_H
#define WHELP_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

enum platform_space { PLATFORM_MMIO, PLATFORM_PIO };

struct platform_ops {
	/*
	 * Makes an MSI source: `*fd` is an eventfd, owned by the platform until msi_free(), whose
	 * write raises the source's message once; `*source` names it below. 0 or -errno.
	 */
	int (*msi_alloc)(void *ctx, unsigned *source, int *fd);
	void (*msi_free)(void *ctx, unsigned source);

	/*
	 * Sets a source's message. It takes effect at msi_commit(), which is costly (KVM replaces
	 * its whole table, and waits): set all that changes, then commit once. 0 or -errno.
	 */
	void (*msi_set)(void *ctx, unsigned source, uint64_t address, uint32_t data);
	int (*msi_commit)(void *ctx);

	/*
	 * Makes a count on the eventfd `fd`, of which there is but one user at a time, raise the
	 * source's message too, without us; with `on` false ends that, and when it returns no count
	 * that comes raises it any more. Counts that are not taken so stay in `fd`. 0 or -errno.
	 */
	int (*msi_fd)(void *ctx, unsigned source, int fd, bool on);

	/*
	 * Makes a guest's write of any size to `addr` add 1 to the eventfd `fd` without an exit to
	 * us; with `on` false ends that. 0 or -errno.
	 */
	int (*kick_fd)(void *ctx, enum platform_space space, uint64_t addr, int fd, bool on);

	/*
	 * Drives interrupt line `line` (the IOAPIC's input number), level-triggered lines by level.
	 */
	void (*irq_line)(void *ctx, unsigned line, bool level);
};

struct platform {
	const struct platform_ops *ops;
	void *ctx;
};

/* One interrupt line of the platform's, as a device without MSI holds it. */
struct irq_line {
	const struct platform *platform;
	unsigned line;
};

static inline void irq_line_set(const struct irq_line *irq, bool level)
{
	irq->platform->ops->irq_line(irq->platform->ctx, irq->line, level);
}

#endif
