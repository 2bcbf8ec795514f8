/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One PCI function: 256 bytes of configuration space with a write mask beside them, BARs that
 * answer on the buses where the guest puts them, capabilities, and the INTx pin (PCI Local Bus 3.0,
 * chapter 6).
 *
 * Configuration accesses come one at a time, under the lock of the host bridge it is plugged into.
 */
#ifndef WHELP_PCI_H
#define WHELP_PCI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/bus.h"

#define PCI_CONFIG_SIZE 256u
#define PCI_BARS	6u

struct pci_function;
struct pci_host;

/* Any of them may be NULL. */
struct pci_function_ops {
	/* Just before the guest reads these bytes: a last chance to set them. */
	void (*config_reading)(struct pci_function *function, unsigned offset, unsigned len);
	/* Just after the guest wrote them, masked. */
	void (*config_written)(struct pci_function *function, unsigned offset, unsigned len);
	/* A BAR began (or is about to end) to answer at `base`. */
	void (*bar_mapped)(struct pci_function *function, unsigned bar, uint64_t base, bool on);
};

enum pci_space { PCI_SPACE_NONE, PCI_SPACE_MEMORY, PCI_SPACE_IO };

struct pci_bar {
	enum pci_space space;
	uint32_t size; /* a power of two, at least 16 (I/O) or 4096 (memory) */
	const struct bus_ops *ops;
	void *ctx;
	bool mapped; /* it answers at `base`, which may lag behind its register: see pci.c */
	uint64_t base;
};

struct pci_function {
	const struct pci_function_ops *ops;
	struct pci_host *host; /* NULL until it is plugged */
	unsigned slot;
	uint8_t config[PCI_CONFIG_SIZE];
	uint8_t writable[PCI_CONFIG_SIZE]; /* a bit set here is the guest's to change */
	unsigned next_capability;	   /* offset where the next one goes */
	unsigned last_capability;	   /* offset of the pointer that will name it */
	struct pci_bar bars[PCI_BARS];
	atomic_bool intx_asserted;
	atomic_bool intx_disabled; /* the command register's bit, for other threads */
};

struct pci_identity {
	uint16_t vendor;
	uint16_t device;
	uint16_t subsystem_vendor;
	uint16_t subsystem;
	uint32_t class_code; /* class, subclass, interface: 24 bits */
	uint8_t revision;
};

/* Sets up an unplugged function without BARs or capabilities. `ops` stays the caller's. */
void pci_init(struct pci_function *function, const struct pci_identity *identity,
	      const struct pci_function_ops *ops);

/* Adds a 32-bit BAR before plugging; it answers with `ops` and `ctx` where the guest maps it. */
void pci_add_bar(struct pci_function *function, unsigned bar, enum pci_space space, uint32_t size,
		 const struct bus_ops *ops, void *ctx);

/*
 * Adds a capability before plugging: `len` bytes of `body` follow its id and next pointer, writable
 * where `writable` (as long as `body`; NULL: nowhere) says. Returns its offset in the configuration
 * space.
 */
unsigned pci_add_capability(struct pci_function *function, uint8_t id, const void *body,
			    const void *writable, unsigned len);

/* Gives it an interrupt pin (INTA#) and the line the guest is told. */
void pci_add_intx(struct pci_function *function);

/*
 * Raises or lowers the INTx pin, from any thread. The line follows unless the guest set the
 * interrupt disable bit.
 */
void pci_set_intx(struct pci_function *function, bool asserted);

/* An access of 1, 2 or 4 bytes at any offset; out of the 256 bytes: all ones, and dropped. */
void pci_config_read(struct pci_function *function, unsigned offset, void *data, unsigned len);
void pci_config_write(struct pci_function *function, unsigned offset, const void *data,
		      unsigned len);

#endif
