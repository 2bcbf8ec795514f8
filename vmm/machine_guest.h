/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The part of a machine that a reset replaces: the VM, its memory, CPUs and devices, built on files
 * and back ends that stay.
 */
#ifndef WHELP_MACHINE_GUEST_H
#define WHELP_MACHINE_GUEST_H

#include <stdbool.h>

#include "devices/net/backend.h"
#include "devices/pci_host.h"
#include "devices/power.h"
#include "devices/serial.h"
#include "devices/virtio/net.h"
#include "devices/virtio/transport_pci.h"
#include "vmm/bus.h"
#include "vmm/chardev.h"
#include "vmm/kvm.h"
#include "vmm/mem.h"
#include "vmm/options.h"
#include "vmm/platform.h"
#include "vmm/vcpu.h"
#include "vmm/x86/boot.h"

/* What a guest reports, from its vCPUs' threads and possibly more than once. */
enum guest_event {
	GUEST_NOTHING,
	GUEST_OFF,
	GUEST_RESET,
	GUEST_PANIC,
	GUEST_TRIPLE_FAULT,
	GUEST_INTERNAL_ERROR,
};

/* What it is built on; all of it is the caller's and outlives the guest. */
struct guest_host {
	const struct run_config *config;
	const struct boot_files *files;
	struct chardev *com1;
	struct chardev *com2;
	struct net_backend *backends[OPTIONS_MAX_NETS];
	void (*event)(void *ctx, enum guest_event event);
	void *ctx;
};

struct nic {
	char name[16];
	struct virtio_net net;
	struct virtio_pci pci;
};

struct guest {
	bool built; /* guest_init() was called, guest_fini() was not */
	const struct guest_host *host;
	struct kvm kvm;
	struct platform platform;
	struct mem mem;
	struct bus pio;
	struct bus mmio;
	struct pci_host pci;
	struct serial com1;
	struct serial com2;
	struct power power;
	struct nic *nics[OPTIONS_MAX_NETS];
	struct vcpu *vcpus;
	pthread_mutex_t exits; /* what --net lock= shares; used with that only */
	unsigned vcpu_count;
};

/* Builds it, stopped. Logs; 0 or -errno. guest_fini() is to follow in either case. */
int guest_init(struct guest *guest, const struct guest_host *host);

/* Lets the vCPUs run. Logs; 0 or -errno. */
int guest_start(struct guest *guest);

/* Stops the vCPUs and takes everything down. Fine on a zeroed struct. */
void guest_fini(struct guest *guest);

/* Asks the guest to announce itself on each of its networks. */
void guest_announce(struct guest *guest);

#endif
