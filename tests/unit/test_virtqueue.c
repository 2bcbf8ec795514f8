/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A virtqueue and a driver that keeps to the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "tests/unit/libvq.h"
#include "vmm/iov.h"
#include "vmm/util.h"

#define BUFFER_SIZE 64u

static void *token(uintptr_t n)
{
	return (void *)(n + 1);
}

/* Adds a chain of one piece with `n` in it, for the device to read. */
static void add_number(struct vq_pair *p, uint64_t buffers, uint32_t n)
{
	struct ring_piece piece = { buffers + n % p->ring.size * BUFFER_SIZE, sizeof(n) };

	memcpy(board_ptr(&p->board, piece.gpa, piece.len), &n, sizeof(n));
	assert_int_equal(ring_add(&p->ring, &piece, 1, 0, token(n)), 0);
}

static uint32_t popped_number(const struct vq_pair *p)
{
	uint32_t n = UINT32_MAX;

	assert_int_equal(p->chain.readable_bytes, sizeof(n));
	assert_int_equal(iov_read(p->iov, p->chain.readable, 0, &n, sizeof(n)), sizeof(n));
	return n;
}

static void take_number(struct vq_pair *p, uint32_t n)
{
	uint32_t written;
	void *got;

	assert_true(ring_take(&p->ring, &got, &written));
	assert_ptr_equal(got, token(n));
	assert_int_equal(written, 0);
}

static uint64_t alloc_buffers(struct vq_pair *p)
{
	return board_alloc(&p->board, (uint64_t)p->ring.size * BUFFER_SIZE, 64);
}

static void test_chain_has_readable_then_writable_pieces(void **state)
{
	struct vq_pair *p = *state;
	struct ring_piece pieces[4];
	uint32_t written;
	uint64_t gpa;
	void *got;

	pair_start(p, 8, false, false);
	gpa = board_alloc(&p->board, 4096, 16);
	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
		pieces[i] = (struct ring_piece){ gpa + i * 1000, 10 + i };
	assert_int_equal(ring_add(&p->ring, pieces, 2, 2, p), 0);
	assert_true(ring_publish(&p->ring));
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(p->chain.readable, 2);
	assert_int_equal(p->chain.writable, 2);
	assert_int_equal(p->chain.readable_bytes, 21);
	assert_int_equal(p->chain.writable_bytes, 25);
	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++) {
		assert_ptr_equal(p->iov[i].iov_base, board_ptr(&p->board, pieces[i].gpa, 1));
		assert_int_equal(p->iov[i].iov_len, pieces[i].len);
	}
	assert_int_equal(pair_pop(p), 0);
	assert_false(ring_take(&p->ring, &got, &written));
	vq_publish(&p->vq);
	assert_false(ring_take(&p->ring, &got, &written));
}

static void test_push_is_seen_at_publish(void **state)
{
	struct vq_pair *p = *state;
	struct ring_piece piece;
	uint32_t written;
	void *got;

	pair_start(p, 4, true, false);
	piece = (struct ring_piece){ board_alloc(&p->board, 100, 1), 100 };
	assert_int_equal(ring_add(&p->ring, &piece, 0, 1, p), 0);
	ring_publish(&p->ring);
	assert_int_equal(pair_pop(p), 1);
	vq_push(&p->vq, &p->chain, 77);
	assert_false(ring_take(&p->ring, &got, &written));
	vq_publish(&p->vq);
	assert_true(ring_take(&p->ring, &got, &written));
	assert_ptr_equal(got, p);
	assert_int_equal(written, 77);
	assert_null(p->ring.error);
}

static void test_added_is_seen_at_the_drivers_publish(void **state)
{
	struct vq_pair *p = *state;

	pair_start(p, 4, false, false);
	add_number(p, alloc_buffers(p), 3);
	assert_int_equal(pair_pop(p), 0);
	ring_publish(&p->ring);
	assert_int_equal(pair_pop(p), 1);
	assert_int_equal(popped_number(p), 3);
}

/* Keeps the ring as full as `depth`, for `count` buffers in all. */
static void run_laps(struct vq_pair *p, uint32_t count, unsigned depth)
{
	uint64_t buffers = alloc_buffers(p);
	uint32_t sent = 0, done = 0;

	while (done < count) {
		unsigned batch = MIN(depth, count - done);

		for (unsigned i = 0; i < batch; i++)
			add_number(p, buffers, sent++);
		ring_publish(&p->ring);
		for (unsigned i = 0; i < batch; i++) {
			assert_int_equal(pair_pop(p), 1);
			assert_int_equal(popped_number(p), done + i);
			vq_push(&p->vq, &p->chain, 0);
		}
		assert_int_equal(pair_pop(p), 0);
		vq_publish(&p->vq);
		for (unsigned i = 0; i < batch; i++)
			take_number(p, done++);
	}
	assert_int_equal(p->ring.free, p->ring.size);
	assert_null(p->ring.error);
}

static void test_every_size_laps(void **state)
{
	for (uint16_t size = 2; size <= 256; size = (uint16_t)(size * 2)) {
		for (int event_idx = 0; event_idx < 2; event_idx++) {
			pair_start(*state, size, event_idx, false);
			run_laps(*state, 5u * size, size);
			run_laps(*state, 3u * size, size / 2 + 1u);
		}
	}
}

static void test_size_1_is_a_ring_too(void **state)
{
	pair_start(*state, 1, false, false);
	run_laps(*state, 5, 1);
}

static void test_indices_wrap_beyond_65536(void **state)
{
	pair_start(*state, 2, true, false);
	run_laps(*state, 66000, 2);
	pair_start(*state, 256, false, false);
	run_laps(*state, 66000, 255);
}

static void test_unpop_gives_the_same_chains_again(void **state)
{
	struct vq_pair *p = *state;
	struct vq_chain chains[4];
	uint64_t buffers;

	pair_start(p, 4, true, false);
	buffers = alloc_buffers(p);
	/* Across the end of the ring and of the indices. */
	for (uint32_t n = 0; n < 65534; n++) {
		add_number(p, buffers, n);
		ring_publish(&p->ring);
		pair_use_one(p, 0);
		take_number(p, n);
	}
	for (uint32_t n = 0; n < 4; n++)
		add_number(p, buffers, n);
	ring_publish(&p->ring);
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(pair_pop(p), 1);
		chains[n] = p->chain;
	}
	for (uint32_t n = 3; n > 0; n--)
		vq_unpop(&p->vq, &chains[n]);
	for (uint32_t n = 1; n < 4; n++) {
		assert_int_equal(pair_pop(p), 1);
		assert_int_equal(popped_number(p), n);
	}
	assert_int_equal(pair_pop(p), 0);
	for (uint32_t n = 4; n-- > 0;)
		vq_unpop(&p->vq, &chains[n]);
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(pair_pop(p), 1);
		assert_int_equal(popped_number(p), n);
		vq_push(&p->vq, &p->chain, 0);
	}
	vq_publish(&p->vq);
	for (uint32_t n = 0; n < 4; n++)
		take_number(p, n);
}

static void test_used_out_of_order(void **state)
{
	struct vq_pair *p = *state;
	struct vq_chain first;
	uint64_t buffers;

	pair_start(p, 4, false, false);
	buffers = alloc_buffers(p);
	add_number(p, buffers, 0);
	add_number(p, buffers, 1);
	ring_publish(&p->ring);
	assert_int_equal(pair_pop(p), 1);
	first = p->chain;
	assert_int_equal(pair_pop(p), 1);
	vq_push(&p->vq, &p->chain, 0);
	vq_push(&p->vq, &first, 0);
	vq_publish(&p->vq);
	take_number(p, 1);
	take_number(p, 0);
}

static void test_indirect_chain(void **state)
{
	struct vq_pair *p = *state;
	struct ring_piece pieces[8];
	uint64_t gpa;

	pair_start(p, 8, false, true);
	gpa = board_alloc(&p->board, 4096, 16);
	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
		pieces[i] = (struct ring_piece){ gpa + i * 100, 1 + i };
	for (unsigned lap = 0; lap < 20; lap++) {
		uint32_t written;
		void *got;

		assert_int_equal(ring_add_indirect(&p->ring, pieces, 3, 5, token(lap)), 0);
		ring_publish(&p->ring);
		assert_int_equal(pair_pop(p), 1);
		assert_int_equal(p->chain.readable, 3);
		assert_int_equal(p->chain.writable, 5);
		for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
			assert_ptr_equal(p->iov[i].iov_base,
					 board_ptr(&p->board, pieces[i].gpa, 1));
		vq_push(&p->vq, &p->chain, 4);
		vq_publish(&p->vq);
		assert_true(ring_take(&p->ring, &got, &written));
		assert_ptr_equal(got, token(lap));
	}
}

static void test_kick_flag_without_event_idx(void **state)
{
	struct vq_pair *p = *state;
	uint64_t buffers;

	pair_start(p, 8, false, false);
	buffers = alloc_buffers(p);
	add_number(p, buffers, 0);
	assert_true(ring_publish(&p->ring));
	vq_kicks_disable(&p->vq);
	add_number(p, buffers, 1);
	assert_false(ring_publish(&p->ring));
	/* Two wait: enabling says so. */
	assert_true(vq_kicks_enable(&p->vq));
	pair_use_one(p, 0);
	assert_true(vq_kicks_enable(&p->vq));
	pair_use_one(p, 0);
	assert_false(vq_kicks_enable(&p->vq));
	add_number(p, buffers, 2);
	assert_true(ring_publish(&p->ring));
}

static void test_kick_index_with_event_idx(void **state)
{
	struct vq_pair *p = *state;
	uint64_t buffers;

	pair_start(p, 8, true, false);
	buffers = alloc_buffers(p);
	assert_false(vq_kicks_enable(&p->vq));
	add_number(p, buffers, 0);
	assert_true(ring_publish(&p->ring));
	/* The device did not ask again: one kick is all. */
	for (uint32_t n = 1; n < 5; n++) {
		add_number(p, buffers, n);
		assert_false(ring_publish(&p->ring));
	}
	for (uint32_t n = 0; n < 4; n++)
		pair_use_one(p, 0);
	assert_true(vq_kicks_enable(&p->vq));
	/* Asked for the fifth, which is there: only passing it kicks. */
	add_number(p, buffers, 5);
	assert_false(ring_publish(&p->ring));
	pair_use_one(p, 0);
	pair_use_one(p, 0);
	assert_false(vq_kicks_enable(&p->vq));
	vq_kicks_disable(&p->vq);
	for (uint32_t n = 0; n < 6; n++)
		take_number(p, n);
	/* Kicks were off, but avail_event stands where the next one is: one kick. */
	add_number(p, buffers, 6);
	add_number(p, buffers, 7);
	assert_true(ring_publish(&p->ring));
	add_number(p, buffers, 8);
	assert_false(ring_publish(&p->ring));
}

static void use_batch(struct vq_pair *p, uint64_t buffers, uint32_t *n, unsigned count)
{
	uint32_t first = *n;

	for (unsigned i = 0; i < count; i++)
		add_number(p, buffers, (*n)++);
	ring_publish(&p->ring);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pair_pop(p), 1);
		vq_push(&p->vq, &p->chain, 0);
	}
	vq_publish(&p->vq);
	for (unsigned i = 0; i < count; i++)
		take_number(p, first + i);
}

static void test_g13_interrupt_flag_without_event_idx(void **state)
{
	struct vq_pair *p = *state;
	uint64_t buffers;
	uint32_t n = 0;

	pair_start(p, 8, false, false);
	buffers = alloc_buffers(p);
	assert_false(vq_needs_interrupt(&p->vq));
	use_batch(p, buffers, &n, 3);
	assert_true(vq_needs_interrupt(&p->vq));
	assert_false(vq_needs_interrupt(&p->vq));
	ring_interrupts_disable(&p->ring);
	use_batch(p, buffers, &n, 3);
	assert_false(vq_needs_interrupt(&p->vq));
	assert_false(ring_interrupts_enable(&p->ring));
	assert_false(vq_needs_interrupt(&p->vq));
	use_batch(p, buffers, &n, 1);
	assert_true(vq_needs_interrupt(&p->vq));
}

/* Every position of used_event around a batch, at every place around the wrap. */
static void test_g13_interrupt_index_is_exact(void **state)
{
	struct vq_pair *p = *state;
	uint64_t buffers;
	uint32_t n = 0;

	pair_start(p, 8, true, false);
	buffers = alloc_buffers(p);
	while (n < 65500)
		use_batch(p, buffers, &n, 5);
	vq_needs_interrupt(&p->vq);
	while (n < 65600) {
		for (int ahead = -3; ahead < 12; ahead++) {
			/* A driver that waits for the chain `ahead` of the next one. */
			uint16_t taken = p->ring.split.taken;
			bool got;

			p->ring.split.taken = (uint16_t)(taken + ahead);
			ring_interrupts_enable(&p->ring);
			p->ring.split.taken = taken;
			use_batch(p, buffers, &n, 5);
			got = vq_needs_interrupt(&p->vq);
			assert_int_equal(got, ahead >= 0 && ahead < 5);
			assert_false(vq_needs_interrupt(&p->vq));
		}
	}
}

static void test_unpublished_asks_for_no_interrupt(void **state)
{
	struct vq_pair *p = *state;

	pair_start(p, 8, true, false);
	add_number(p, alloc_buffers(p), 0);
	ring_publish(&p->ring);
	assert_int_equal(pair_pop(p), 1);
	vq_push(&p->vq, &p->chain, 0);
	assert_false(vq_needs_interrupt(&p->vq));
	vq_publish(&p->vq);
	assert_true(vq_needs_interrupt(&p->vq));
}

static void test_g13_off_leaves_the_event_fields_alone(void **state)
{
	struct vq_pair *p = *state;
	uint8_t *after;
	uint64_t buffers;
	uint32_t n = 0;

	pair_start(p, 8, false, false);
	/* avail_event and what follows it. */
	after = board_ptr(&p->board, p->ring.device_gpa + 4 + 8 * 8, 32);
	buffers = board_alloc(&p->board, 4096, 4096);
	memset(after, 0xa5, 32);
	for (unsigned i = 0; i < 10; i++) {
		vq_kicks_disable(&p->vq);
		use_batch(p, buffers, &n, 3);
		vq_needs_interrupt(&p->vq);
		vq_kicks_enable(&p->vq);
	}
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(after[i], 0xa5);
}

static void test_m3_changes_after_enable_are_ignored(void **state)
{
	static const uint16_t sizes[] = { 0, 3, 4, 0x8000 };
	struct vq_pair *p = *state;

	pair_start(p, 8, true, false);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		vq_set_size(&p->vq, sizes[i]);
		vq_set_desc(&p->vq, 0x1000 * i);
		vq_set_driver(&p->vq, 0x1000 * i);
		vq_set_device(&p->vq, 0x1000 * i);
	}
	assert_int_equal(p->vq.size, 8);
	assert_int_equal(p->vq.desc_gpa, p->ring.desc_gpa);
	assert_int_equal(p->vq.driver_gpa, p->ring.driver_gpa);
	assert_int_equal(p->vq.device_gpa, p->ring.device_gpa);
	run_laps(p, 100, 8);
}

static void test_sizes_out_of_range_are_ignored(void **state)
{
	struct virtqueue vq;

	(void)state;
	vq_init(&vq, 256);
	assert_int_equal(vq.size, 256);
	vq_set_size(&vq, 0);
	vq_set_size(&vq, 257);
	vq_set_size(&vq, 0x8000);
	assert_int_equal(vq.size, 256);
	vq_set_size(&vq, 128);
	assert_int_equal(vq.size, 128);
}

static void test_a_second_life_starts_at_zero(void **state)
{
	struct vq_pair *p = *state;

	pair_start(p, 8, true, false);
	run_laps(p, 13, 3);
	vq_deactivate(&p->vq);
	pair_start(p, 16, false, false);
	run_laps(p, 50, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain_has_readable_then_writable_pieces),
		cmocka_unit_test(test_push_is_seen_at_publish),
		cmocka_unit_test(test_added_is_seen_at_the_drivers_publish),
		cmocka_unit_test(test_every_size_laps),
		cmocka_unit_test(test_size_1_is_a_ring_too),
		cmocka_unit_test(test_indices_wrap_beyond_65536),
		cmocka_unit_test(test_unpop_gives_the_same_chains_again),
		cmocka_unit_test(test_used_out_of_order),
		cmocka_unit_test(test_indirect_chain),
		cmocka_unit_test(test_kick_flag_without_event_idx),
		cmocka_unit_test(test_kick_index_with_event_idx),
		cmocka_unit_test(test_g13_interrupt_flag_without_event_idx),
		cmocka_unit_test(test_g13_interrupt_index_is_exact),
		cmocka_unit_test(test_unpublished_asks_for_no_interrupt),
		cmocka_unit_test(test_g13_off_leaves_the_event_fields_alone),
		cmocka_unit_test(test_m3_changes_after_enable_are_ignored),
		cmocka_unit_test(test_sizes_out_of_range_are_ignored),
		cmocka_unit_test(test_a_second_life_starts_at_zero),
	};

	return cmocka_run_group_tests(tests, pair_setup, pair_teardown);
}
