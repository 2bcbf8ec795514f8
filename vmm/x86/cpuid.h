/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vCPU's CPUID leaves, made of those that KVM supports.
 */
#ifndef WHELP_X86_CPUID_H
#define WHELP_X86_CPUID_H

#include <linux/kvm.h>
#include <stdbool.h>

/* Leaves that cpuid_fix() may add to what KVM reports. */
#define CPUID_ADDED 6u

/*
 * Turns the leaves in `cpuid`, which has room for CPUID_ADDED more, into those of the CPU with APIC
 * id `id` of `cpus` (1 to 254) cores in one socket, one thread each, which share the last-level
 * cache.
 */
void cpuid_fix(struct kvm_cpuid2 *cpuid, unsigned cpus, unsigned id, bool tsc_deadline);

#endif
