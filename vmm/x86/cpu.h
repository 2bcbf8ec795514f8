/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What x86 needs of a VM and of each vCPU before they run.
 */
#ifndef WHELP_X86_CPU_H
#define WHELP_X86_CPU_H

#include "vmm/kvm.h"
#include "vmm/vcpu.h"
#include "vmm/x86/boot.h"

/*
 * In-kernel PIC, IOAPIC, LAPICs and PIT, and the pages that Intel's real mode wants. Before the
 * first vCPU is made. Logs; 0 or -errno.
 */
int x86_vm_setup(int vm_fd);

/*
 * CPUID (topology of `cpus` cores in one socket, KVM's paravirtual leaves, TSC deadline timer),
 * MSRs, LAPIC LINT pins and registers. vCPU 0 starts at `entry` in 64-bit mode with interrupts off;
 * the others wait for INIT and SIPI, as KVM leaves them. Logs; 0 or -errno.
 */
int x86_vcpu_setup(const struct kvm *kvm, const struct vcpu *vcpu, unsigned cpus,
		   const struct boot_entry *entry);

#endif
