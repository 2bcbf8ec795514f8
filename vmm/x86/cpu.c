/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The boot CPU starts where the 64-bit boot protocol wants it: long mode, paging on, flat segments.
 * The others keep the reset state KVM gives them and wait for INIT and SIPI.
 *
 * What firmware does on a real machine is done here: memory is cacheable by default (MTRR), and the
 * local APIC's pins are set up. LINT0 stays masked: there is no 8259 for the guest, as the MADT
 * says, and KVM's unmasked default would let its never initialised PIC raise exception vectors. A
 * kernel that ignores ACPI sets up virtual wire mode itself.
 */
#include "vmm/x86/cpu.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/cpuid.h"
#include "vmm/x86/layout.h"

#define CPUID_ENTRIES_FIRST 128u
#define CPUID_ENTRIES_MAX   4096u

#define CR0_PE		(1ull << 0)
#define CR0_MP		(1ull << 1)
#define CR0_ET		(1ull << 4)
#define CR0_NE		(1ull << 5)
#define CR0_WP		(1ull << 16)
#define CR0_PG		(1ull << 31)
#define CR4_PAE		(1ull << 5)
#define EFER_LME	(1ull << 8)
#define EFER_LMA	(1ull << 10)
#define RFLAGS_RESERVED 0x2u

#define BOOT_CS	    0x10u
#define BOOT_DS	    0x18u
#define GDT_ENTRIES 4u

#define MSR_MISC_ENABLE		0x1a0u
#define MISC_ENABLE_FAST_STRING 1u
#define MSR_MTRR_DEF_TYPE	0x2ffu
#define MTRR_ENABLE		(1u << 11)
#define MTRR_WRITE_BACK		6u

#define LAPIC_LINT0 0x350u
#define LAPIC_LINT1 0x360u
#define LVT_EXTINT  (7u << 8)
#define LVT_NMI	    (4u << 8)
#define LVT_MASKED  (1u << 16)

/* Names the ioctl that failed. */
static int kvm_error(const char *what)
{
	int ret = -errno;

	log_error("KVM: %s: %s: run `whelp doctor`", what, strerror(-ret));
	return ret;
}

int x86_vm_setup(int vm_fd)
{
	struct kvm_pit_config pit = { .flags = KVM_PIT_SPEAKER_DUMMY };
	__u64 identity_map = LAYOUT_KVM_IDENTITY_MAP;

	if (ioctl(vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) < 0)
		return kvm_error("cannot place the identity map (KVM_SET_IDENTITY_MAP_ADDR)");
	if (ioctl(vm_fd, KVM_SET_TSS_ADDR, (unsigned long)LAYOUT_KVM_TSS) < 0)
		return kvm_error("cannot place the TSS (KVM_SET_TSS_ADDR)");
	if (ioctl(vm_fd, KVM_CREATE_IRQCHIP, 0) < 0)
		return kvm_error("cannot make the interrupt controllers (KVM_CREATE_IRQCHIP)");
	if (ioctl(vm_fd, KVM_CREATE_PIT2, &pit) < 0)
		return kvm_error("cannot make the timer (KVM_CREATE_PIT2)");
	return 0;
}

/* What KVM supports, with room for what cpuid_fix() adds; the caller frees it. NULL sets errno. */
static struct kvm_cpuid2 *supported_cpuid(int system_fd)
{
	unsigned room = CPUID_ENTRIES_FIRST;

	for (;;) {
		struct kvm_cpuid2 *cpuid;
		int saved;

		cpuid = calloc(1, sizeof(*cpuid) +
					  (room + CPUID_ADDED) * sizeof(struct kvm_cpuid_entry2));
		if (!cpuid)
			return NULL;
		cpuid->nent = room;
		if (!ioctl(system_fd, KVM_GET_SUPPORTED_CPUID, cpuid))
			return cpuid;
		saved = errno;
		free(cpuid);
		errno = saved;
		if (saved != E2BIG || room >= CPUID_ENTRIES_MAX)
			return NULL;
		room *= 2;
	}
}

static int set_cpuid(const struct kvm *kvm, const struct vcpu *vcpu, unsigned cpus)
{
	struct kvm_cpuid2 *cpuid = supported_cpuid(kvm->system_fd);
	int ret = 0;

	if (!cpuid)
		return kvm_error("cannot get the supported CPUID (KVM_GET_SUPPORTED_CPUID)");
	cpuid_fix(cpuid, cpus, vcpu->id, kvm_check(kvm->vm_fd, KVM_CAP_TSC_DEADLINE_TIMER));
	if (ioctl(vcpu->fd, KVM_SET_CPUID2, cpuid) < 0)
		ret = kvm_error("cannot set CPUID (KVM_SET_CPUID2)");
	free(cpuid);
	return ret;
}

static int set_msrs(const struct vcpu *vcpu)
{
	static const struct kvm_msr_entry values[] = {
		{ .index = MSR_MISC_ENABLE, .data = MISC_ENABLE_FAST_STRING },
		{ .index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLE | MTRR_WRITE_BACK },
	};
	/* The structure ends in a flexible array. */
	union {
		struct kvm_msrs head;
		uint8_t room[sizeof(struct kvm_msrs) + sizeof(values)];
	} msrs = { 0 };
	int set;

	msrs.head.nmsrs = ARRAY_SIZE(values);
	memcpy(msrs.head.entries, values, sizeof(values));
	set = ioctl(vcpu->fd, KVM_SET_MSRS, &msrs);
	if (set < 0)
		return kvm_error("cannot set MSRs (KVM_SET_MSRS)");
	if ((size_t)set < ARRAY_SIZE(values)) {
		log_error("KVM: refuses MSR 0x%x: run `whelp doctor`", values[set].index);
		return -EIO;
	}
	return 0;
}

static int set_lapic(const struct vcpu *vcpu)
{
	struct kvm_lapic_state lapic;

	if (ioctl(vcpu->fd, KVM_GET_LAPIC, &lapic) < 0)
		return kvm_error("cannot get the local APIC (KVM_GET_LAPIC)");
	store_le(lapic.regs + LAPIC_LINT0, 4, LVT_MASKED | LVT_EXTINT);
	store_le(lapic.regs + LAPIC_LINT1, 4, LVT_NMI);
	if (ioctl(vcpu->fd, KVM_SET_LAPIC, &lapic) < 0)
		return kvm_error("cannot set the local APIC (KVM_SET_LAPIC)");
	return 0;
}

static int set_sregs(const struct vcpu *vcpu)
{
	const struct kvm_segment code = { .limit = UINT32_MAX,
					  .selector = BOOT_CS,
					  .type = 0xb,
					  .present = 1,
					  .s = 1,
					  .l = 1,
					  .g = 1 };
	const struct kvm_segment data = { .limit = UINT32_MAX,
					  .selector = BOOT_DS,
					  .type = 0x3,
					  .present = 1,
					  .s = 1,
					  .db = 1,
					  .g = 1 };
	struct kvm_sregs sregs;

	if (ioctl(vcpu->fd, KVM_GET_SREGS, &sregs) < 0)
		return kvm_error("cannot get special registers (KVM_GET_SREGS)");
	sregs.cs = code;
	sregs.ds = data;
	sregs.es = data;
	sregs.fs = data;
	sregs.gs = data;
	sregs.ss = data;
	sregs.gdt.base = LAYOUT_GDT;
	sregs.gdt.limit = GDT_ENTRIES * 8 - 1;
	sregs.idt.base = 0;
	sregs.idt.limit = 0;
	sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
	sregs.cr3 = LAYOUT_PML4;
	sregs.cr4 = CR4_PAE;
	sregs.efer |= EFER_LME | EFER_LMA;
	if (ioctl(vcpu->fd, KVM_SET_SREGS, &sregs) < 0)
		return kvm_error("cannot set special registers (KVM_SET_SREGS)");
	return 0;
}

static int set_regs(const struct vcpu *vcpu, const struct boot_entry *entry)
{
	struct kvm_regs regs = { .rip = entry->rip,
				 .rsi = entry->rsi,
				 .rsp = LAYOUT_BOOT_STACK,
				 .rflags = RFLAGS_RESERVED };

	if (ioctl(vcpu->fd, KVM_SET_REGS, &regs) < 0)
		return kvm_error("cannot set registers (KVM_SET_REGS)");
	return 0;
}

int x86_vcpu_setup(const struct kvm *kvm, const struct vcpu *vcpu, unsigned cpus,
		   const struct boot_entry *entry)
{
	int ret;

	ret = set_cpuid(kvm, vcpu, cpus);
	if (!ret)
		ret = set_msrs(vcpu);
	if (!ret)
		ret = set_lapic(vcpu);
	if (ret || vcpu->id)
		return ret;
	ret = set_sregs(vcpu);
	return ret ? ret : set_regs(vcpu, entry);
}
