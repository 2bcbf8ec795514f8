/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One virtual CPU: its KVM object, its thread, its run loop. It turns exits into bus accesses and
 * reports everything that ends or resets the machine through `ended`, from its own thread.
 */
#ifndef WHELP_VCPU_H
#define WHELP_VCPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/bus.h"
#include "vmm/exits.h"
#include "vmm/kvm.h"

struct kvm_run;

enum vcpu_end {
	VCPU_TRIPLE_FAULT,   /* KVM_EXIT_SHUTDOWN */
	VCPU_INTERNAL_ERROR, /* KVM cannot go on: an error of its own, failed entry, unknown exit */
};

struct vcpu {
	int fd;
	int stats_fd; /* see kvm_stats.h */
	unsigned id; /* also its APIC id */
	struct kvm_run *run;
	size_t run_size;
	struct bus *pio;
	struct bus *mmio;
	pthread_mutex_t *lock; /* held while an exit is handled; NULL: none */
	void (*ended)(void *ctx, enum vcpu_end why);
	void *ctx;
	atomic_bool stopping;
	bool running;
	int cpu; /* of the host, to run on alone; -1: any */
	pthread_t thread;
	struct exits exits;
};

/*
 * Makes vCPU `id` of the VM; registers and CPUID are the arch folder's to set. Logs; 0 or -errno.
 */
int vcpu_init(struct vcpu *vcpu, const struct kvm *kvm, unsigned id);

/* Stops it if need be. Fine after a failed vcpu_init(). */
void vcpu_fini(struct vcpu *vcpu);

/* Starts the thread. Logs; 0 or -errno. */
int vcpu_start(struct vcpu *vcpu);

/* Asks the thread to leave KVM_RUN for good; returns at once. */
void vcpu_request_stop(struct vcpu *vcpu);

/* Waits for the thread to end after vcpu_request_stop(). */
void vcpu_join(struct vcpu *vcpu);

/* Its exits by cause and by device, and KVM's own counters, as one object; see docs/counters.md. */
json_t *vcpu_stats_json(const struct vcpu *vcpu);

/*
 * Installs the handler of the signal that kicks vCPU threads out of KVM_RUN. Once per process,
 * before the first vcpu_start().
 */
int vcpu_install_kick(void);

#endif
