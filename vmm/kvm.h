/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM's system and VM: the device node, one virtual machine with its memory slots, interrupt
 * routes, irqfds and ioeventfds. Functions return 0 or -errno; those that log say so.
 */
#ifndef WHELP_KVM_H
#define WHELP_KVM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/mem.h"
#include "vmm/platform.h"

#define KVM_DEVICE_PATH "/dev/kvm"

/* What became of opening the device node, so that each case gets its own remedy. */
enum kvm_device_status {
	KVM_DEVICE_OK,
	KVM_DEVICE_MISSING,  /* no such node */
	KVM_DEVICE_DENIED,   /* no permission */
	KVM_DEVICE_UNUSABLE, /* there, but opening failed otherwise */
	KVM_DEVICE_NOT_KVM,  /* opened, and does not answer as KVM */
	KVM_DEVICE_OLD,	     /* KVM, with an API version that is not 12 */
};

/*
 * Opens `path` and asks for the API version. Returns the fd, which the caller closes, or -1;
 * `*status` says why, and `*version` (may be NULL) is what it answered, 0 if nothing.
 */
int kvm_device_open(const char *path, enum kvm_device_status *status, int *version);

/* One line, with the remedy, for a status that is not OK. */
const char *kvm_device_remedy(enum kvm_device_status status);

/* One KVM capability that whelp needs, or uses if it is there. */
struct kvm_capability {
	const char *name; /* without the KVM_CAP_ */
	int number;
	bool required;
};

/* The capabilities that whelp looks for; `*count` of them, constant. */
const struct kvm_capability *kvm_capabilities(unsigned *count);

/* KVM_CHECK_EXTENSION on a system or VM fd: 0 when absent, else its value. */
int kvm_check(int fd, int capability);

/* A message source is one GSI with its route and irqfd. */
struct msi_source {
	int fd; /* -1: free */
	uint64_t address;
	uint32_t data;
	bool set;
};

struct kvm {
	int system_fd;
	int vm_fd;
	size_t run_size; /* bytes of a vCPU's shared page(s) */
	unsigned slots;	 /* memory slots in use */

	pthread_mutex_t route_lock; /* guards what follows */
	struct msi_source *msis;	    /* index: GSI - KVM_FIRST_MSI_GSI */
	unsigned msi_count;
	unsigned route_commits; /* KVM_SET_GSI_ROUTING calls made, for tests and counters */
	bool routes_dirty;
};

/* GSIs 0 to 23 are the IOAPIC's inputs. */
#define KVM_FIRST_MSI_GSI 24u

/*
 * Opens /dev/kvm, checks the required capabilities and makes a VM with the in-kernel interrupt
 * controllers and timer. Logs. kvm_fini() is fine on what a failed kvm_init() left.
 */
int kvm_init(struct kvm *kvm);
void kvm_fini(struct kvm *kvm);

/* Gives every region of `mem` to the VM. Logs. */
int kvm_add_memory(struct kvm *kvm, const struct mem *mem);

/* How many vCPUs this KVM allows in one VM. */
unsigned kvm_max_vcpus(const struct kvm *kvm);

/* KVM's side of a device's platform: `ctx` is the struct kvm. */
extern const struct platform_ops kvm_platform_ops;

#endif
