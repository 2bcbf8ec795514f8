/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The PCI host bridge: bus 0 with 32 slots of one function each, its configuration space by ECAM
 * and by the ports 0xCF8 and 0xCFC, the windows BARs live in, and the INTx lines the slots share.
 */
#ifndef WHELP_PCI_HOST_H
#define WHELP_PCI_HOST_H

#include <pthread.h>
#include <stdint.h>

#include "devices/pci.h"
#include "vmm/bus.h"
#include "vmm/platform.h"

#define PCI_SLOTS 32u

struct pci_window {
	uint64_t base;
	uint64_t size;
	uint64_t next; /* where the first assignment of BARs goes on */
};

struct pci_host_config {
	struct bus *mmio;
	struct bus *pio;
	const struct platform *platform;
	struct pci_window memory;
	struct pci_window io;
	unsigned first_line; /* slot n's INTA# is line first_line + n % lines */
	unsigned lines;
};

struct pci_host {
	struct pci_host_config at;
	pthread_mutex_t lock; /* configuration accesses */
	_Atomic uint32_t address; /* the register at 0xCF8 */
	struct pci_function *slots[PCI_SLOTS];
	struct pci_function bridge; /* slot 0 */
	pthread_mutex_t line_lock;  /* the lines' levels */
};

/* Configuration space on port I/O: 8 ports; ctx is the struct pci_host. */
extern const struct bus_ops pci_host_port_ops;

/* Configuration space of bus 0 on MMIO: 1 MiB. */
extern const struct bus_ops pci_host_ecam_ops;

void pci_host_init(struct pci_host *host, const struct pci_host_config *config);

/* Unmaps every function's BARs. The functions stay their owners'. */
void pci_host_fini(struct pci_host *host);

/*
 * Plugs a complete function into a free slot and gives its BARs addresses, as firmware would; the
 * guest enables them. 0, -EBUSY (slot taken or none such) or -ENOSPC (a window is full).
 */
int pci_host_plug(struct pci_host *host, unsigned slot, struct pci_function *function);

/* The line of a slot's INTA#. */
unsigned pci_host_line(const struct pci_host *host, unsigned slot);

/* Makes the line that the slot shares follow all its functions. */
void pci_host_update_line(struct pci_host *host, unsigned slot);

#endif
