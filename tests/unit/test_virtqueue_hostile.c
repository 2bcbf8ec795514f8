/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A split virtqueue whose driver breaks the rules, by hand: whatever it does, the queue dies with a
 * reason, or the chain is what one reading of it says. Nothing outside of guest memory is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "tests/driver/split_layout.h"
#include "tests/unit/libvq.h"
#include "vmm/util.h"

#define NEXT	 VRING_DESC_F_NEXT
#define WRITE	 VRING_DESC_F_WRITE
#define INDIRECT VRING_DESC_F_INDIRECT

#define HIGH_END (BOARD_HIGH_BASE + BOARD_HIGH_SIZE)

static void set(struct split_desc *desc, uint64_t addr, uint32_t len, unsigned flags, unsigned next)
{
	le64_store_relaxed(&desc->addr, addr);
	le32_store_relaxed(&desc->len, len);
	le16_store_relaxed(&desc->flags, (uint16_t)flags);
	le16_store_relaxed(&desc->next, (uint16_t)next);
}

static void set_desc(struct vq_pair *p, unsigned i, uint64_t addr, uint32_t len, unsigned flags,
		     unsigned next)
{
	set(&p->ring.split.desc[i], addr, len, flags, next);
}

/* Makes the chain at `head` available, whatever it is. */
static void offer(struct vq_pair *p, unsigned head)
{
	struct split_avail *avail = p->ring.split.avail;
	uint16_t idx = le16_load_relaxed(&avail->idx);

	le16_store_relaxed(&avail->ring[idx % p->ring.size], (uint16_t)head);
	le16_store_release(&avail->idx, (uint16_t)(idx + 1));
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
	assert_int_equal(le16_load_relaxed(&p->ring.split.used->idx), 0);
}

static uint64_t start(struct vq_pair *p, uint16_t size)
{
	pair_start(p, size, true, true);
	return board_alloc(&p->board, 4096, 4096);
}

static void test_m1_available_index_jumps(void **state)
{
	static const uint16_t jumps[] = { 9, 0x8000, 0xffff, 0x7fff };
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(jumps); i++) {
		start(p, 8);
		le16_store_release(&p->ring.split.avail->idx, jumps[i]);
		expect_dead(p, "jumped");
	}
	/* A full ring is no jump. */
	for (unsigned i = 0, gpa = (unsigned)start(p, 8); i < 8; i++) {
		set_desc(p, i, gpa, 1, 0, 0);
		offer(p, i);
	}
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(pair_pop(p), 1);
	assert_int_equal(pair_pop(p), 0);
}

static void test_m1_available_index_goes_back(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	set_desc(p, 0, gpa, 1, 0, 0);
	offer(p, 0);
	assert_int_equal(pair_pop(p), 1);
	le16_store_release(&p->ring.split.avail->idx, 0);
	expect_dead(p, "jumped");
}

static void test_m8_loops(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	set_desc(p, 3, gpa, 1, NEXT, 3);
	offer(p, 3);
	expect_dead(p, "loop");
	gpa = start(p, 8);
	set_desc(p, 0, gpa, 1, NEXT | WRITE, 1);
	set_desc(p, 1, gpa, 1, NEXT | WRITE, 0);
	offer(p, 0);
	expect_dead(p, "loop");
	/* The longest chain there may be is none. */
	gpa = start(p, 8);
	for (unsigned i = 0; i < 8; i++)
		set_desc(p, i, gpa + i, 1, i < 7 ? NEXT : 0, i + 1);
	offer(p, 0);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, 8);
}

static void test_m8_indices_beyond_the_table(void **state)
{
	static const uint16_t beyond[] = { 8, 9, 0x8000, 0xffff };
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(beyond); i++) {
		uint64_t gpa = start(p, 8);

		offer(p, beyond[i]);
		expect_dead(p, "outside of its table");
		gpa = start(p, 8);
		set_desc(p, 7, gpa, 1, NEXT, beyond[i]);
		offer(p, 7);
		expect_dead(p, "outside of its table");
	}
}

static void test_m8_length_0(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	set_desc(p, 0, gpa, 0, 0, 0);
	offer(p, 0);
	expect_dead(p, "empty");
}

static void test_m5_address_edges(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t len;
		bool good;
	} cases[] = {
		{ 0, 1, true },
		{ BOARD_LOW_SIZE - 1, 1, true },
		{ BOARD_LOW_SIZE - 1, 2, false },
		{ BOARD_LOW_SIZE, 1, false },
		{ 0, BOARD_LOW_SIZE, true },
		{ 0, BOARD_LOW_SIZE + 1, false },
		{ BOARD_HIGH_BASE - 1, 1, false },
		{ BOARD_HIGH_BASE - 1, 2, false },
		{ BOARD_HIGH_BASE, BOARD_HIGH_SIZE, true },
		{ HIGH_END - 1, 1, true },
		{ HIGH_END - 1, 2, false },
		{ HIGH_END, 1, false },
		{ UINT64_MAX, 1, false },
		{ UINT64_MAX, 2, false },
		{ UINT64_MAX - 0xffffffffull, UINT32_MAX, false },
		{ 0, UINT32_MAX, false },
		{ BOARD_HIGH_BASE, UINT32_MAX, false },
	};
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		for (unsigned write = 0; write < 2; write++) {
			start(p, 8);
			set_desc(p, 0, cases[i].addr, cases[i].len, write ? WRITE : 0, 0);
			offer(p, 0);
			if (!cases[i].good) {
				expect_dead(p, "outside of guest memory");
				continue;
			}
			assert_int_equal(pair_pop(p), 1);
			assert_int_equal(p->chain.readable + p->chain.writable, 1);
			assert_int_equal(p->iov[0].iov_len, cases[i].len);
			assert_ptr_equal(p->iov[0].iov_base,
					 board_ptr(&p->board, cases[i].addr, cases[i].len));
		}
	}
}

static void test_m10_readable_after_writable(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	set_desc(p, 0, gpa, 1, NEXT | WRITE, 1);
	set_desc(p, 1, gpa, 1, 0, 0);
	offer(p, 0);
	expect_dead(p, "follows a writable");
}

static void test_more_pieces_than_there_is_room(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 128);

	for (unsigned i = 0; i < PAIR_PIECES + 1; i++)
		set_desc(p, i, gpa, 1, i < PAIR_PIECES ? NEXT : 0, i + 1);
	offer(p, 1);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, PAIR_PIECES);
	offer(p, 0);
	assert_int_equal(pair_pop(p), -EPROTO);
	assert_non_null(strstr(p->vq.fault, "more pieces"));
}

/*
 * Points descriptor 0 at an indirect table of `len` bytes at `gpa`, after `direct` plain
 * descriptors.
 */
static void offer_table(struct vq_pair *p, uint64_t gpa, uint32_t len, unsigned direct,
			unsigned flags)
{
	for (unsigned i = 0; i < direct; i++)
		set_desc(p, i, PAGE_SIZE, 1, NEXT, i + 1);
	set_desc(p, direct, gpa, len, INDIRECT | flags, 0);
	offer(p, 0);
}

static struct split_desc *table_at(struct vq_pair *p, uint64_t gpa)
{
	return board_ptr(&p->board, gpa, 4096);
}

static void test_m9_table_lengths(void **state)
{
	static const uint32_t bad[] = { 0, 1, 15, 17, 9 * 16, 65536 * 16, 0xfffffff0 };
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t gpa = start(p, 8);

		set(table_at(p, gpa), gpa, 1, 0, 0);
		offer_table(p, gpa, bad[i], 0, 0);
		expect_dead(p, "table's length");
	}
}

static void test_m9_full_table(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	for (unsigned i = 0; i < 8; i++)
		set(table_at(p, gpa) + i, gpa + i, 1, i < 7 ? NEXT : 0, i + 1);
	offer_table(p, gpa, 8 * 16, 0, WRITE);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, 8);
	assert_int_equal(p->chain.writable, 0);
}

static void test_direct_descriptors_before_an_indirect_one(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	set(table_at(p, gpa), gpa + 64, 5, NEXT, 1);
	set(table_at(p, gpa) + 1, gpa + 128, 6, WRITE, 0);
	offer_table(p, gpa, 2 * 16, 2, 0);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, 3);
	assert_int_equal(p->chain.writable, 1);
	assert_int_equal(p->chain.readable_bytes, 1 + 1 + 5);
	assert_int_equal(p->chain.writable_bytes, 6);
}

static void test_m9_bad_tables(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	/* Nested. */
	set(table_at(p, gpa), gpa, 16, INDIRECT, 0);
	offer_table(p, gpa, 16, 0, 0);
	expect_dead(p, "nested");
	/* Not the last. */
	gpa = start(p, 8);
	set(table_at(p, gpa), gpa, 1, 0, 0);
	offer_table(p, gpa, 16, 0, NEXT);
	expect_dead(p, "not the last");
	/* A loop, and a way out, inside. */
	gpa = start(p, 8);
	set(table_at(p, gpa), gpa, 1, NEXT, 0);
	offer_table(p, gpa, 16, 0, 0);
	expect_dead(p, "loop");
	gpa = start(p, 8);
	set(table_at(p, gpa), gpa, 1, NEXT, 1);
	offer_table(p, gpa, 16, 0, 0);
	expect_dead(p, "outside of its table");
	/* Somewhere else. */
	start(p, 8);
	offer_table(p, BOARD_LOW_SIZE - 16, 32, 0, 0);
	expect_dead(p, "outside of guest memory");
	start(p, 8);
	offer_table(p, UINT64_MAX - 15, 16, 0, 0);
	expect_dead(p, "outside of guest memory");
	gpa = start(p, 8);
	offer_table(p, gpa + 4, 16, 0, 0);
	expect_dead(p, "misaligned");
}

static void test_m9_tables_that_were_not_negotiated(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa;

	pair_start(p, 8, true, false);
	gpa = board_alloc(&p->board, 4096, 4096);
	set(table_at(p, gpa), gpa, 1, 0, 0);
	offer_table(p, gpa, 16, 0, 0);
	expect_dead(p, "not negotiated");
}

/* The queue stays dead when the driver repairs the ring, until it is activated anew. */
static void test_a_dead_queue_stays_dead(void **state)
{
	struct vq_pair *p = *state;
	uint64_t gpa = start(p, 8);

	offer(p, 100);
	expect_dead(p, "outside of its table");
	set_desc(p, 0, gpa, 1, 0, 0);
	le16_store_relaxed(&p->ring.split.avail->ring[0], 0);
	expect_dead(p, "outside of its table");
	vq_deactivate(&p->vq);
	assert_int_equal(pair_activate(p), 0);
	assert_null(p->vq.fault);
	assert_int_equal(pair_pop(p), 1);
}

/* ---- activation ---- */

static void expect_refused(struct vq_pair *p, int error, const char *words)
{
	assert_int_equal(pair_activate(p), error);
	assert_false(p->vq.live);
	assert_non_null(strstr(p->vq.fault, words));
}

static void test_activation_checks_the_size(void **state)
{
	static const uint16_t bad[] = { 3, 5, 100, 255, 257 };
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		start(p, 8);
		p->ring.size = bad[i];
		pair_configure(p);
		assert_int_equal(p->vq.size, bad[i]);
		expect_refused(p, -EINVAL, "power of two");
	}
	p->ring.size = 8;
}

/* Where the rings may lie: one part at a time is moved. */
static void test_activation_checks_the_addresses(void **state)
{
	/* Bytes each part has for 8 entries. */
	static const uint64_t bytes[] = { 128, 4 + 16 + 2, 4 + 64 + 2 };
	static const uint64_t aligns[] = { 16, 2, 4 };
	struct vq_pair *p = *state;

	start(p, 8);
	for (unsigned part = 0; part < 3; part++) {
		uint64_t last = align_down(HIGH_END - bytes[part], aligns[part]);
		uint64_t low_last = align_down(BOARD_LOW_SIZE - bytes[part], aligns[part]);
		const struct {
			uint64_t gpa;
			int error;
		} cases[] = {
			{ last, 0 },
			{ last + aligns[part], -EFAULT },
			{ low_last, 0 },
			{ low_last + aligns[part], -EFAULT },
			{ BOARD_LOW_SIZE, -EFAULT },
			{ BOARD_HIGH_BASE - aligns[part], -EFAULT },
			{ BOARD_HIGH_BASE, 0 },
			{ HIGH_END, -EFAULT },
			{ align_down(UINT64_MAX, 16), -EFAULT },
			{ 0x10000 + aligns[part] / 2, -EINVAL },
			{ 0x10001, -EINVAL },
			{ 0, 0 },
		};

		for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
			uint64_t *gpas[] = { &p->vq.desc_gpa, &p->vq.driver_gpa,
					     &p->vq.device_gpa };

			pair_configure(p);
			*gpas[part] = cases[i].gpa;
			if (!cases[i].error)
				assert_int_equal(pair_activate(p), 0);
			else
				expect_refused(p, cases[i].error,
					       cases[i].error == -EINVAL ? "misaligned"
									 : "outside");
			vq_deactivate(&p->vq);
		}
	}
}

/* A buffer over two regions that meet is one descriptor and two pieces. */
static void test_a_buffer_over_adjacent_regions(void **state)
{
	struct vq_pair *p = *state;
	struct mem mem;
	struct split_desc *desc;
	struct split_avail *avail;

	pair_start(p, 8, false, false);
	mem_init(&mem);
	assert_int_equal(mem_add(&mem, 0, 0x10000), 0);
	assert_int_equal(mem_add(&mem, 0x10000, 0x10000), 0);
	vq_init(&p->vq, 8);
	vq_set_driver(&p->vq, 0x1000);
	vq_set_device(&p->vq, 0x2000);
	vq_enable(&p->vq);
	assert_int_equal(vq_activate(&p->vq, &mem, &p->features), 0);
	desc = mem_ptr(&mem, 0, 128);
	avail = mem_ptr(&mem, 0x1000, 22);
	set(desc, 0xffff, 2, WRITE, 0);
	le16_store_release(&avail->idx, 1);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.writable, 2);
	assert_int_equal(p->chain.writable_bytes, 2);
	assert_ptr_equal(p->iov[0].iov_base, mem_ptr(&mem, 0xffff, 1));
	assert_ptr_equal(p->iov[1].iov_base, mem_ptr(&mem, 0x10000, 1));
	/* One piece of room is not enough for it. */
	vq_unpop(&p->vq, &p->chain);
	p->chain = (struct vq_chain){ .iov = p->iov, .room = 1 };
	assert_int_equal(vq_pop(&p->vq, &p->chain), -EPROTO);
	/* A ring part has to lie in one region. */
	vq_init(&p->vq, 8);
	vq_set_desc(&p->vq, 0x10000 - 16);
	vq_set_driver(&p->vq, 0x1000);
	vq_set_device(&p->vq, 0x2000);
	vq_enable(&p->vq);
	assert_int_equal(vq_activate(&p->vq, &mem, &p->features), -EFAULT);
	mem_fini(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_m1_available_index_jumps),
		cmocka_unit_test(test_m1_available_index_goes_back),
		cmocka_unit_test(test_m8_loops),
		cmocka_unit_test(test_m8_indices_beyond_the_table),
		cmocka_unit_test(test_m8_length_0),
		cmocka_unit_test(test_m5_address_edges),
		cmocka_unit_test(test_m10_readable_after_writable),
		cmocka_unit_test(test_more_pieces_than_there_is_room),
		cmocka_unit_test(test_m9_table_lengths),
		cmocka_unit_test(test_m9_full_table),
		cmocka_unit_test(test_direct_descriptors_before_an_indirect_one),
		cmocka_unit_test(test_m9_bad_tables),
		cmocka_unit_test(test_m9_tables_that_were_not_negotiated),
		cmocka_unit_test(test_a_dead_queue_stays_dead),
		cmocka_unit_test(test_activation_checks_the_size),
		cmocka_unit_test(test_activation_checks_the_addresses),
		cmocka_unit_test(test_a_buffer_over_adjacent_regions),
	};

	return cmocka_run_group_tests(tests, pair_setup, pair_teardown);
}
