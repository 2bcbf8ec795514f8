/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A packed virtqueue whose driver breaks the rules, by hand: whatever it does, the queue dies with
 * a reason, or the chain is what one reading of it says. Nothing outside of guest memory is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/driver/packed_layout.h"
#include "tests/unit/libvq.h"
#include "vmm/util.h"

#define NEXT	 VRING_DESC_F_NEXT
#define WRITE	 VRING_DESC_F_WRITE
#define INDIRECT VRING_DESC_F_INDIRECT

#define HIGH_END (BOARD_HIGH_BASE + BOARD_HIGH_SIZE)
#define SIZE	 7u

static const struct ring_kind kind = { .packed = true, .indirect = true, .event_idx = true };
static const struct ring_kind kind_direct = { .packed = true, .event_idx = true };

static void set(struct packed_desc *desc, uint64_t addr, uint32_t len, unsigned flags)
{
	le64_store_relaxed(&desc->addr, addr);
	le32_store_relaxed(&desc->len, len);
	le16_store_relaxed(&desc->id, 1);
	le16_store_relaxed(&desc->flags, (uint16_t)flags);
}

/* A descriptor of the first lap, made available. */
static void offer(struct vq_pair *p, unsigned i, uint64_t addr, uint32_t len, unsigned flags)
{
	set(&p->ring.packed.desc[i], addr, len, flags | PACKED_AVAIL);
}

static uint64_t start(struct vq_pair *p)
{
	p->kind = &kind;
	pair_start_kind(p, SIZE);
	return board_alloc(&p->board, 4096, 4096);
}

static struct packed_desc *table_at(struct vq_pair *p, uint64_t gpa)
{
	return board_ptr(&p->board, gpa, 4096);
}

/* The queue is dead, for good, with these words, and has used nothing. */
static void expect_dead(struct vq_pair *p, const char *words)
{
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pair_pop(p), -EPROTO);
		assert_non_null(p->vq.fault);
		if (!strstr(p->vq.fault, words))
			fail_msg("\"%s\" does not say \"%s\"", p->vq.fault, words);
	}
	for (unsigned i = 0; i < SIZE; i++)
		assert_int_equal(le16_load_relaxed(&p->ring.packed.desc[i].flags) & PACKED_USED, 0);
}

static void test_m8_a_chain_without_an_end(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p);

	for (unsigned i = 0; i < SIZE; i++)
		offer(p, i, gpa, 1, NEXT);
	expect_dead(p, "longer than the queue");
}

static void test_m8_empty_buffers(void **state)
{
	struct vq_pair *p = *state;

	start(p);
	offer(p, 0, 0x1000, 0, WRITE);
	expect_dead(p, "empty");
}

/*
 * Only the first descriptor's bits say that a chain is there; the rest was complete before it
 * (2.8.6).
 */
static void test_what_is_not_available_is_not_looked_at(void **state)
{
	static const unsigned flags[] = { 0, PACKED_USED, PACKED_AVAIL | PACKED_USED };
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(flags); i++) {
		start(p);
		set(&p->ring.packed.desc[0], UINT64_MAX, UINT32_MAX, flags[i]);
		assert_int_equal(pair_pop(p), 0);
		assert_null(p->vq.fault);
	}
}

static void test_m10_readable_after_writable(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p);

	offer(p, 0, gpa, 1, NEXT | WRITE);
	offer(p, 1, gpa, 1, 0);
	expect_dead(p, "follows a writable");
	gpa = start(p);
	set(&table_at(p, gpa)[0], gpa, 1, WRITE);
	set(&table_at(p, gpa)[1], gpa, 1, 0);
	offer(p, 0, gpa, 32, INDIRECT);
	expect_dead(p, "follows a writable");
}

static void test_m5_addresses(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t len;
		bool good;
	} cases[] = {
		{ HIGH_END - 1, 1, true },
		{ HIGH_END - 1, 2, false },
		{ HIGH_END, 1, false },
		{ BOARD_LOW_SIZE - 1, 1, true },
		{ BOARD_LOW_SIZE - 1, 2, false },
		{ BOARD_LOW_SIZE, 1, false },
		{ BOARD_HIGH_BASE - 1, 2, false },
		{ UINT64_MAX, 1, false },
		{ UINT64_MAX - 10, 11, false },
		{ UINT64_MAX - 10, 12, false },
		{ 0x1000, UINT32_MAX, false },
		{ 0xfee00000, 4, false },
	};
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		uint64_t gpa = start(p);

		if (i % 2) {
			set(table_at(p, gpa), cases[i / 2].addr, cases[i / 2].len, WRITE);
			offer(p, 0, gpa, 16, INDIRECT);
		} else {
			offer(p, 0, cases[i / 2].addr, cases[i / 2].len, WRITE);
		}
		if (!cases[i / 2].good)
			expect_dead(p, "outside of guest memory");
		else
			assert_int_equal(pair_pop(p), 1);
	}
}

static void test_m9_tables(void **state)
{
	static const uint32_t lengths[] = { 0, 1, 15, 17, 24, (SIZE + 1) * 16, 65536 * 16,
					    UINT32_MAX - 15 };
	struct vq_pair *p = *state;
	uint64_t gpa;

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		gpa = start(p);
		for (unsigned n = 0; n < 2 * SIZE; n++)
			set(&table_at(p, gpa)[n], gpa, 1, 0);
		offer(p, 0, gpa, lengths[i], INDIRECT);
		expect_dead(p, "table's length");
	}
	gpa = start(p);
	offer(p, 0, gpa + 4, 16, INDIRECT);
	expect_dead(p, "misaligned");
	start(p);
	offer(p, 0, BOARD_LOW_SIZE - 16, 32, INDIRECT);
	expect_dead(p, "outside of guest memory");
	start(p);
	offer(p, 0, UINT64_MAX - 15, 16, INDIRECT);
	expect_dead(p, "outside of guest memory");
	/* It is a chain of its own. */
	gpa = start(p);
	set(table_at(p, gpa), gpa, 1, 0);
	offer(p, 0, gpa, 16, INDIRECT | NEXT);
	offer(p, 1, gpa, 1, 0);
	expect_dead(p, "part of a chain");
	gpa = start(p);
	set(table_at(p, gpa), gpa, 1, 0);
	offer(p, 0, gpa, 1, NEXT);
	offer(p, 1, gpa, 16, INDIRECT);
	expect_dead(p, "part of a chain");
}

/* In a table no flag but WRITE means anything (2.8.8): all of it is buffers. */
static void test_m9_flags_in_a_table(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p);

	set(&table_at(p, gpa)[0], gpa, 16, INDIRECT | PACKED_USED);
	set(&table_at(p, gpa)[1], gpa, 3, 0);
	set(&table_at(p, gpa)[2], gpa, 5, NEXT | WRITE);
	offer(p, 0, gpa, 48, INDIRECT);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, 2);
	assert_int_equal(p->chain.readable_bytes, 19);
	assert_int_equal(p->chain.writable, 1);
	assert_int_equal(p->chain.writable_bytes, 5);
}

static void test_m9_tables_that_were_not_negotiated(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa;

	p->kind = &kind_direct;
	pair_start_kind(p, SIZE);
	gpa = board_alloc(&p->board, 4096, 4096);
	set(table_at(p, gpa), gpa, 1, 0);
	offer(p, 0, gpa, 16, INDIRECT);
	expect_dead(p, "not negotiated");
}

static void test_a_dead_queue_stays_dead(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p);

	offer(p, 0, gpa, 0, 0);
	expect_dead(p, "empty");
	offer(p, 0, gpa, 1, 0);
	expect_dead(p, "empty");
	vq_deactivate(&p->vq);
	assert_int_equal(pair_activate(p), 0);
	assert_int_equal(pair_pop(p), 1);
}

/* Any position and flags in the driver's event structure: no harm, and an answer. */
static void test_any_event_structure(void **state)
{
	struct vq_pair *p = *state;

	for (unsigned position = 0; position < 0x10000; position += 13) {
		uint64_t gpa;

		if (position % (13 * 64) == 0)
			start(p);
		gpa = p->ring.desc_gpa;
		le16_store_relaxed(&p->ring.packed.driver_event->position, (uint16_t)position);
		le16_store_relaxed(&p->ring.packed.driver_event->flags, (uint16_t)(position % 5));
		assert_int_equal(ring_add(&p->ring, &(struct ring_piece){ gpa, 1 }, 1, 0, p), 0);
		ring_publish(&p->ring);
		pair_use_one(p, 0);
		vq_needs_interrupt(&p->vq);
		assert_true(ring_take(&p->ring, &(void *){ NULL }, &(uint32_t){ 0 }));
	}
}

static bool in_memory(const struct vq_pair *p, const struct iovec *iov)
{
	for (unsigned i = 0; i < p->board.mem.count; i++)
		if (range_inside((uintptr_t)iov->iov_base, iov->iov_len,
				 (uintptr_t)p->board.mem.regions[i].host,
				 p->board.mem.regions[i].size))
			return true;
	return false;
}

/* Rings full of anything: what comes out is bounded, and in guest memory. */
static void test_m2_any_ring(void **state)
{
	static const uint64_t addresses[] = { 0x1000, 0x2000, BOARD_LOW_SIZE - 8, UINT64_MAX };
	static const uint32_t lengths[] = { 1, 16, 32, 48, 0, UINT32_MAX };
	unsigned seed = (unsigned)time(NULL), good = 0;
	struct vq_pair *p = *state;

	print_message("# seed %u\n", seed);
	for (unsigned lap = 0; lap < 3000; lap++) {
		unsigned pops = 0;

		start(p);
		for (unsigned i = 0; i < SIZE; i++)
			set(&p->ring.packed.desc[i],
			    addresses[(unsigned)rand_r(&seed) % ARRAY_SIZE(addresses)],
			    lengths[(unsigned)rand_r(&seed) % (rand_r(&seed) % 4 ? 2 : 6)],
			    (rand_r(&seed) & 7) | (rand_r(&seed) % 8 ? PACKED_AVAIL : 0));
		while (pair_pop(p) > 0) {
			good++;
			assert_true(++pops <= 2 * SIZE);
			for (unsigned i = 0; i < p->chain.readable + p->chain.writable; i++)
				assert_true(in_memory(p, &p->iov[i]));
			vq_push(&p->vq, &p->chain, 0);
		}
		vq_publish(&p->vq);
		vq_needs_interrupt(&p->vq);
		vq_kicks_enable(&p->vq);
	}
	assert_true(good > 100);
}

static void test_activation_checks_the_addresses(void **state)
{
	static const uint64_t bytes[] = { SIZE * 16, 4, 4 };
	static const uint64_t aligns[] = { 16, 4, 4 };
	struct vq_pair *p = *state;

	start(p);
	for (unsigned part = 0; part < 3; part++) {
		uint64_t last = HIGH_END - bytes[part];
		const struct {
			uint64_t gpa;
			int error;
		} cases[] = {
			{ last, 0 },
			{ last + aligns[part], -EFAULT },
			{ BOARD_LOW_SIZE - bytes[part], 0 },
			{ BOARD_LOW_SIZE, -EFAULT },
			{ BOARD_HIGH_BASE - aligns[part], -EFAULT },
			{ HIGH_END, -EFAULT },
			{ align_down(UINT64_MAX, 16), -EFAULT },
			{ 0x10000 + aligns[part] / 2, -EINVAL },
			{ 0x10001, -EINVAL },
		};

		for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
			uint64_t *gpas[] = { &p->vq.desc_gpa, &p->vq.driver_gpa,
					     &p->vq.device_gpa };

			pair_configure(p);
			*gpas[part] = cases[i].gpa;
			assert_int_equal(pair_activate(p), cases[i].error);
			assert_int_equal(!p->vq.fault, !cases[i].error);
			vq_deactivate(&p->vq);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_m8_a_chain_without_an_end),
		cmocka_unit_test(test_m8_empty_buffers),
		cmocka_unit_test(test_what_is_not_available_is_not_looked_at),
		cmocka_unit_test(test_m10_readable_after_writable),
		cmocka_unit_test(test_m5_addresses),
		cmocka_unit_test(test_m9_tables),
		cmocka_unit_test(test_m9_flags_in_a_table),
		cmocka_unit_test(test_m9_tables_that_were_not_negotiated),
		cmocka_unit_test(test_a_dead_queue_stays_dead),
		cmocka_unit_test(test_any_event_structure),
		cmocka_unit_test(test_m2_any_ring),
		cmocka_unit_test(test_activation_checks_the_addresses),
	};

	return cmocka_run_group_tests(tests, pair_setup, pair_teardown);
}
