/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPUID leaves made for one CPU of many, from what KVM reports on an Intel and on an AMD host of
 * quite another topology.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/util.h"
#include "vmm/x86/cpuid.h"

#define ROOM 32u

struct leaves {
	struct kvm_cpuid2 *cpuid;
};

static void add(struct leaves *l, uint32_t function, uint32_t index, uint32_t eax, uint32_t ebx,
		uint32_t ecx, uint32_t edx)
{
	assert_true(l->cpuid->nent < ROOM);
	l->cpuid->entries[l->cpuid->nent++] = (struct kvm_cpuid_entry2){
		.function = function, .index = index, .eax = eax, .ebx = ebx, .ecx = ecx, .edx = edx
	};
}

static void make_leaves(struct leaves *l)
{
	l->cpuid = calloc(1, sizeof(*l->cpuid) +
				     (ROOM + CPUID_ADDED) * sizeof(struct kvm_cpuid_entry2));
	assert_non_null(l->cpuid);
}

/* A host with 24 threads on 12 cores that share caches in pairs. */
static void make_intel(struct leaves *l)
{
	make_leaves(l);
	add(l, 0, 0, 0x1f, 0x756e6547, 0x6c65746e, 0x49656e69);
	add(l, 1, 0, 0x000906a3, 0x17200800, 0, 1u << 28 | 0xff);
	add(l, 4, 0, 0x7c004121, 0x02c0003f, 63, 0);
	add(l, 4, 1, 0x7c004122, 0x01c0003f, 63, 0);
	add(l, 4, 2, 0x7c01c143, 0x0240003f, 1023, 0);
	add(l, 4, 3, 0x7c0fc163, 0x02c0003f, 20479, 4);
	add(l, 4, 4, 0, 0, 0, 0);
	add(l, 0xb, 0, 1, 2, 0x100, 23);
	add(l, 0xb, 1, 7, 24, 0x201, 23);
	add(l, 0xb, 2, 0, 0, 2, 23);
	add(l, 0x1f, 0, 1, 2, 0x100, 23);
	add(l, 0x40000000, 0, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d);
	add(l, 0x80000008, 0, 0x3027, 0x200, 0, 0);
}

static void make_amd(struct leaves *l)
{
	make_leaves(l);
	add(l, 0, 0, 0xd, 0x68747541, 0x444d4163, 0x69746e65);
	add(l, 1, 0, 0x00800f12, 0x17200800, 1u << 24, 0xff);
	add(l, 0x80000001, 0, 0x00800f12, 0, 0x1f3, 0x2fd3fbff);
	add(l, 0x80000008, 0, 0x3030, 0x200, 0xffffffff, 0);
	add(l, 0x8000001d, 0, 0x00004121, 0x01c0003f, 63, 0);
	add(l, 0x8000001d, 2, 0x00004143, 0x01c0003f, 1023, 0);
	add(l, 0x8000001d, 3, 0x0001c163, 0x03c0003f, 8191, 1);
	add(l, 0x8000001e, 0, 23, 0x10b, 0x301, 0);
}

static const struct kvm_cpuid_entry2 *find(const struct leaves *l, uint32_t function,
					   uint32_t index)
{
	const struct kvm_cpuid_entry2 *found = NULL;
	unsigned i;

	for (i = 0; i < l->cpuid->nent; i++) {
		const struct kvm_cpuid_entry2 *entry = &l->cpuid->entries[i];

		if (entry->function != function || entry->index != index)
			continue;
		assert_null(found);
		found = entry;
	}
	assert_non_null(found);
	return found;
}

static unsigned bits(uint32_t value, unsigned shift, unsigned width)
{
	return value >> shift & ((1u << width) - 1);
}

/* What both vendors' guests see; `shift` is the number of id bits that `cpus` take. */
static void check_common(const struct leaves *l, unsigned cpus, unsigned id, unsigned shift)
{
	const struct kvm_cpuid_entry2 *leaf = find(l, 1, 0);

	assert_int_equal(bits(leaf->ebx, 24, 8), id);
	assert_int_equal(bits(leaf->ebx, 16, 8), cpus);
	assert_int_equal(bits(leaf->ebx, 0, 16), 0x0800);
	assert_true(leaf->ecx & 1u << 31);
	assert_int_equal(bits(leaf->edx, 28, 1), cpus > 1);
	leaf = find(l, 0xb, 0);
	assert_int_equal(leaf->eax, 0);
	assert_int_equal(leaf->ebx, 1);
	assert_int_equal(leaf->ecx, 0x100);
	assert_int_equal(leaf->edx, id);
	leaf = find(l, 0xb, 1);
	assert_int_equal(leaf->eax, shift);
	assert_int_equal(leaf->ebx, cpus);
	assert_int_equal(leaf->ecx, 0x201);
	assert_int_equal(leaf->edx, id);
	leaf = find(l, 0xb, 2);
	assert_int_equal(leaf->ebx, 0);
	assert_int_equal(leaf->ecx, 2);
	assert_true(leaf->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX);
}

static void check_intel(unsigned cpus, unsigned id, unsigned shift)
{
	struct leaves l;
	unsigned i;

	make_intel(&l);
	cpuid_fix(l.cpuid, cpus, id, true);
	check_common(&l, cpus, id, shift);
	for (i = 0; i < 3; i++)
		assert_int_equal(bits(find(&l, 4, i)->eax, 14, 12), 0);
	assert_int_equal(bits(find(&l, 4, 3)->eax, 14, 12), (1u << shift) - 1);
	for (i = 0; i < 4; i++)
		assert_int_equal(bits(find(&l, 4, i)->eax, 26, 6), MIN((1u << shift) - 1, 63u));
	assert_int_equal(bits(find(&l, 4, 3)->eax, 0, 14), 0x163);
	assert_int_equal(find(&l, 4, 4)->eax, 0);
	assert_int_equal(find(&l, 0x1f, 1)->ebx, cpus);
	assert_int_equal(find(&l, 0x1f, 2)->ecx, 2);
	assert_int_equal(find(&l, 0x80000008, 0)->ecx, 0);
	assert_int_equal(find(&l, 0x40000000, 0)->ebx, 0x4b4d564b);
	assert_true(l.cpuid->nent <= ROOM + CPUID_ADDED);
	free(l.cpuid);
}

static void check_amd(unsigned cpus, unsigned id, unsigned shift)
{
	struct leaves l;
	const struct kvm_cpuid_entry2 *leaf;

	make_amd(&l);
	cpuid_fix(l.cpuid, cpus, id, true);
	check_common(&l, cpus, id, shift);
	leaf = find(&l, 0x80000008, 0);
	assert_int_equal(bits(leaf->ecx, 0, 8), cpus - 1);
	assert_int_equal(bits(leaf->ecx, 12, 4), shift);
	assert_int_equal(leaf->eax, 0x3030);
	assert_int_equal(bits(find(&l, 0x80000001, 0)->ecx, 1, 1), cpus > 1);
	assert_int_equal(bits(find(&l, 0x8000001d, 2)->eax, 14, 12), 0);
	assert_int_equal(bits(find(&l, 0x8000001d, 3)->eax, 14, 12), (1u << shift) - 1);
	leaf = find(&l, 0x8000001e, 0);
	assert_int_equal(leaf->eax, id);
	assert_int_equal(leaf->ebx, id);
	assert_int_equal(leaf->ecx, 0);
	free(l.cpuid);
}

static void test_topology(void **state)
{
	static const struct {
		unsigned cpus, shift;
	} machines[] = { { 1, 0 },  { 2, 1 },  { 3, 2 },   { 4, 2 },   { 5, 3 },  { 16, 4 },
			 { 64, 6 }, { 65, 7 }, { 128, 7 }, { 129, 8 }, { 254, 8 } };
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(machines); i++) {
		check_intel(machines[i].cpus, 0, machines[i].shift);
		check_intel(machines[i].cpus, machines[i].cpus - 1, machines[i].shift);
		check_amd(machines[i].cpus, 0, machines[i].shift);
		check_amd(machines[i].cpus, machines[i].cpus - 1, machines[i].shift);
	}
}

static void test_tsc_deadline_follows_kvm(void **state)
{
	struct leaves l;

	(void)state;
	make_amd(&l);
	cpuid_fix(l.cpuid, 2, 0, false);
	assert_int_equal(bits(find(&l, 1, 0)->ecx, 24, 1), 0);
	cpuid_fix(l.cpuid, 2, 0, true);
	assert_int_equal(bits(find(&l, 1, 0)->ecx, 24, 1), 1);
	free(l.cpuid);
}

/* A second run over the same leaves, as for the next vCPU, adds nothing. */
static void test_is_idempotent(void **state)
{
	struct leaves l;
	unsigned count;

	(void)state;
	make_intel(&l);
	cpuid_fix(l.cpuid, 4, 0, true);
	count = l.cpuid->nent;
	cpuid_fix(l.cpuid, 4, 3, true);
	assert_int_equal(l.cpuid->nent, count);
	check_common(&l, 4, 3, 2);
	free(l.cpuid);
}

static void test_old_host_gets_no_topology_leaf(void **state)
{
	struct leaves l;
	unsigned i;

	(void)state;
	make_leaves(&l);
	add(&l, 0, 0, 0xa, 0x756e6547, 0x6c65746e, 0x49656e69);
	add(&l, 1, 0, 0, 0, 0, 0);
	cpuid_fix(l.cpuid, 4, 1, true);
	for (i = 0; i < l.cpuid->nent; i++)
		assert_true(l.cpuid->entries[i].function <= 0xa);
	cpuid_fix(l.cpuid, 4, 1, true);
	l.cpuid->nent = 0;
	cpuid_fix(l.cpuid, 4, 1, true);
	assert_int_equal(l.cpuid->nent, 0);
	free(l.cpuid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_topology),
		cmocka_unit_test(test_tsc_deadline_follows_kvm),
		cmocka_unit_test(test_is_idempotent),
		cmocka_unit_test(test_old_host_gets_no_topology_leaf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
