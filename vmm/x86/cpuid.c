/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM reports the host's CPUID, topology included; the guest must see its own: `cpus` cores of one
 * thread in one socket, APIC ids from 0 up, as the MADT lists them. Intel tells the topology in
 * leaves 1, 4, 0xb and 0x1f, AMD in 1, 0x80000008, 0x8000001d and 0x8000001e and on newer ones also
 * in 0xb. Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
 */
#include "vmm/x86/cpuid.h"

#include <string.h>

#include "vmm/util.h"

#define LEAF1_ECX_X2APIC       (1u << 21)
#define LEAF1_ECX_TSC_DEADLINE (1u << 24)
#define LEAF1_ECX_HYPERVISOR   (1u << 31)
#define LEAF1_EDX_HTT	       (1u << 28)
#define AMD_ECX_CMP_LEGACY     (1u << 1)
#define LEVEL_SMT	       1u
#define LEVEL_CORE	       2u

/* The number of APIC id bits that tell the cores apart. */
static unsigned core_bits(unsigned cpus)
{
	unsigned bits = 0;

	while ((1u << bits) < cpus)
		bits++;
	return bits;
}

static void set_field(uint32_t *reg, unsigned shift, unsigned width, uint32_t value)
{
	uint32_t mask = ((1u << width) - 1) << shift;

	*reg = (*reg & ~mask) | (MIN(value, (1u << width) - 1) << shift);
}

static const struct kvm_cpuid_entry2 *find_leaf(const struct kvm_cpuid2 *cpuid, uint32_t function)
{
	unsigned i;

	for (i = 0; i < cpuid->nent; i++)
		if (cpuid->entries[i].function == function)
			return &cpuid->entries[i];
	return NULL;
}

static bool is_amd(const struct kvm_cpuid2 *cpuid)
{
	const struct kvm_cpuid_entry2 *leaf = find_leaf(cpuid, 0);

	/* The first letters of AuthenticAMD and HygonGenuine. */
	return leaf && (leaf->ebx == 0x68747541u || leaf->ebx == 0x6f677948u);
}

static void drop_leaf(struct kvm_cpuid2 *cpuid, uint32_t function)
{
	unsigned from, to = 0;

	for (from = 0; from < cpuid->nent; from++)
		if (cpuid->entries[from].function != function)
			cpuid->entries[to++] = cpuid->entries[from];
	cpuid->nent = to;
}

/* Leaf 0xb or 0x1f, afresh: threads, cores, end of the list. */
static void make_topology(struct kvm_cpuid2 *cpuid, uint32_t function, unsigned cpus, unsigned id)
{
	const struct kvm_cpuid_entry2 levels[] = {
		{ .index = 0, .eax = 0, .ebx = 1, .ecx = LEVEL_SMT << 8 },
		{ .index = 1, .eax = core_bits(cpus), .ebx = cpus, .ecx = LEVEL_CORE << 8 | 1 },
		{ .index = 2, .ecx = 2 },
	};
	unsigned i;

	drop_leaf(cpuid, function);
	for (i = 0; i < ARRAY_SIZE(levels); i++) {
		struct kvm_cpuid_entry2 *entry = &cpuid->entries[cpuid->nent++];

		*entry = levels[i];
		entry->function = function;
		entry->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
		entry->edx = id;
	}
}

/* One cache: who shares it (leaves 4 and 0x8000001d have the same layout here). */
static void fix_cache(struct kvm_cpuid_entry2 *entry, unsigned cpus)
{
	unsigned type = entry->eax & 0x1f;
	unsigned level = entry->eax >> 5 & 7;

	if (type)
		set_field(&entry->eax, 14, 12, level < 3 ? 0 : (1u << core_bits(cpus)) - 1);
}

static void fix_features(struct kvm_cpuid_entry2 *entry, unsigned cpus, unsigned id,
			 bool tsc_deadline)
{
	set_field(&entry->ebx, 24, 8, id);
	set_field(&entry->ebx, 16, 8, cpus);
	entry->ecx |= LEAF1_ECX_HYPERVISOR | LEAF1_ECX_X2APIC;
	if (tsc_deadline)
		entry->ecx |= LEAF1_ECX_TSC_DEADLINE;
	else
		entry->ecx &= ~LEAF1_ECX_TSC_DEADLINE;
	if (cpus > 1)
		entry->edx |= LEAF1_EDX_HTT;
	else
		entry->edx &= ~LEAF1_EDX_HTT;
}

static void fix_amd(struct kvm_cpuid_entry2 *entry, unsigned cpus, unsigned id)
{
	switch (entry->function) {
	case 0x80000001:
		if (cpus > 1)
			entry->ecx |= AMD_ECX_CMP_LEGACY;
		else
			entry->ecx &= ~AMD_ECX_CMP_LEGACY;
		break;
	case 0x80000008:
		set_field(&entry->ecx, 0, 8, cpus - 1);
		set_field(&entry->ecx, 12, 4, core_bits(cpus));
		break;
	case 0x8000001d:
		fix_cache(entry, cpus);
		break;
	case 0x8000001e:
		/* Core `id` with one thread, in the only node. */
		entry->eax = id;
		entry->ebx = id;
		entry->ecx = 0;
		entry->edx = 0;
		break;
	}
}

void cpuid_fix(struct kvm_cpuid2 *cpuid, unsigned cpus, unsigned id, bool tsc_deadline)
{
	const struct kvm_cpuid_entry2 *base = find_leaf(cpuid, 0);
	uint32_t last = base ? base->eax : 0;
	bool amd = is_amd(cpuid);
	unsigned i;

	for (i = 0; i < cpuid->nent; i++) {
		struct kvm_cpuid_entry2 *entry = &cpuid->entries[i];

		if (entry->function == 1)
			fix_features(entry, cpus, id, tsc_deadline);
		if (amd) {
			fix_amd(entry, cpus, id);
		} else if (entry->function == 4 && entry->eax & 0x1f) {
			fix_cache(entry, cpus);
			set_field(&entry->eax, 26, 6, (1u << core_bits(cpus)) - 1);
		}
	}
	if (last >= 0xb)
		make_topology(cpuid, 0xb, cpus, id);
	if (last >= 0x1f)
		make_topology(cpuid, 0x1f, cpus, id);
}
