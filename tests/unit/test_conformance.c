/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every kind of ring, device and driver face to face: all the ways in which chains come and go.
 * What breaks the rules is in test_virtqueue_*hostile.c.
 */
#include "tests/unit/libtraffic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

static const uint16_t powers_of_two[] = { 2, 4, 8, 16, 64, 256, 1024, 4096 };
static const uint16_t odd_sizes[] = { 1, 3, 5, 7, 100, 255, 257, 1000, 4095 };

static void run_size(struct vq_pair *p, uint16_t size)
{
	struct traffic t = traffic_start(p, size);
	unsigned laps = size > 256 ? 2 : 6;

	while (t.added_places < laps * size)
		traffic_round(&t, 1 + kind_random(size));
	/* As full as it gets. */
	traffic_round(&t, size);
	assert_int_equal(p->ring.free, size);
	traffic_end(&t);
}

static void test_every_size(void **state)
{
	struct vq_pair *p = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(powers_of_two); i++)
		run_size(p, powers_of_two[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(odd_sizes) && p->kind->packed; i++)
		run_size(p, odd_sizes[i]);
}

static void test_sizes_that_are_refused(void **state)
{
	struct vq_pair *p = *state;

	for (unsigned i = 1; i < ARRAY_SIZE(odd_sizes); i++) {
		pair_start_kind(p, 4096);
		vq_deactivate(&p->vq);
		pair_configure(p);
		p->vq.enabled = false;
		vq_set_size(&p->vq, odd_sizes[i]);
		vq_enable(&p->vq);
		assert_int_equal(p->vq.size, odd_sizes[i]);
		assert_int_equal(pair_activate(p), p->kind->packed ? 0 : -EINVAL);
		assert_int_equal(!p->vq.fault, p->kind->packed);
	}
}

/* More than 65,536 chains, with little work for each. */
static void run_wrap(struct vq_pair *p, uint16_t size, unsigned count)
{
	struct ring_piece piece;
	unsigned sent = 0, done = 0;

	pair_start_kind(p, size);
	piece = (struct ring_piece){ board_alloc(&p->board, 64, 64), 64 };
	while (done < count) {
		uint32_t written;
		void *token;

		for (unsigned n = 1 + kind_random(size); n && p->ring.free; n--) {
			piece.len = 1 + sent % 64;
			assert_int_equal(kind_add(p->kind, &p->ring, &piece, 0, 1,
						  (void *)(uintptr_t)sent),
					 0);
			sent++;
		}
		ring_publish(&p->ring);
		while (pair_pop(p) > 0)
			vq_push(&p->vq, &p->chain, (uint32_t)p->chain.writable_bytes);
		assert_null(p->vq.fault);
		vq_publish(&p->vq);
		while (ring_take(&p->ring, &token, &written)) {
			assert_int_equal(token, done);
			assert_int_equal(written, 1 + done % 64);
			done++;
		}
		assert_null(p->ring.error);
		assert_int_equal(done, sent);
	}
}

static void test_wraps(void **state)
{
	struct vq_pair *p = *state;

	run_wrap(p, 2, 66000);
	run_wrap(p, p->kind->packed ? 7 : 256, 66000);
	if (getenv("WHELP_LONG"))
		run_wrap(p, 4096, 1000000);
}

/* G14: a chain as long as the ring. */
static void test_g14_a_chain_as_long_as_the_ring(void **state)
{
	struct vq_pair *p = *state;
	uint16_t size = p->kind->packed ? 7 : 8;
	struct traffic t = traffic_start(p, size);
	struct ring_piece pieces[8];

	for (unsigned lap = 0; lap < 10 * size; lap++) {
		uint64_t gpa = t.memory;
		uint32_t written;
		void *token;

		for (unsigned i = 0; i < size; i++)
			pieces[i] = (struct ring_piece){ gpa + i, 1 };
		memset(board_ptr(&p->board, gpa, size), (int)lap, size);
		assert_int_equal(kind_add(p->kind, &p->ring, pieces, lap % size, size - lap % size,
					  &t.jobs[lap % size]),
				 0);
		assert_int_equal(p->ring.free, p->kind->indirect ? size - 1 : 0);
		ring_publish(&p->ring);
		assert_int_equal(pair_pop(p), 1);
		assert_int_equal(p->chain.readable, lap % size);
		assert_int_equal(p->chain.writable, size - lap % size);
		for (unsigned i = 0; i < size; i++)
			assert_ptr_equal(p->iov[i].iov_base, board_ptr(&p->board, gpa + i, 1));
		vq_push(&p->vq, &p->chain, 1);
		assert_int_equal(pair_pop(p), 0);
		vq_publish(&p->vq);
		assert_true(ring_take(&p->ring, &token, &written));
		assert_ptr_equal(token, &t.jobs[lap % size]);
		assert_int_equal(written, 1);
		traffic_expect_none(&t);
		/* And a short one, so that the next begins elsewhere. */
		if (lap % 3 == 0) {
			assert_int_equal(kind_add(p->kind, &p->ring, pieces, 1, 0, NULL), 0);
			ring_publish(&p->ring);
			pair_use_one(p, 0);
			assert_true(ring_take(&p->ring, &token, &written));
		}
	}
	traffic_end(&t);
}

/* Chains that were popped go back, and come again the same. */
static void test_unpop(void **state)
{
	struct vq_pair *p = *state;

	for (unsigned s = 0; s < 2; s++) {
		struct traffic t = traffic_start(p, s ? 16 : p->kind->packed ? 5 : 4);

		for (unsigned lap = 0; lap < 200; lap++) {
			unsigned first = t.done, back;

			while (kind_random(4) && traffic_add(&t))
				;
			traffic_publish(&t);
			while (kind_random(8) && traffic_pop(&t))
				;
			back = kind_random(t.popped - t.pushed + 1);
			while (back--)
				vq_unpop(&p->vq, &traffic_job(&t, --t.popped)->chain);
			while (t.pushed < t.popped)
				traffic_push(&t, traffic_job(&t, t.pushed));
			vq_publish(&p->vq);
			while (t.done < t.pushed)
				traffic_take(&t, traffic_job(&t, first++));
		}
		traffic_end(&t);
	}
}

/* The device uses chains in any order, unless it promised not to. */
static void test_used_in_any_order(void **state)
{
	struct vq_pair *p = *state;
	struct traffic t = traffic_start(p, p->kind->packed ? 23 : 32);

	for (unsigned lap = 0; lap < 300; lap++) {
		unsigned held[32], count = 0;

		while (kind_random(12) && traffic_add(&t))
			;
		traffic_publish(&t);
		while (traffic_pop(&t))
			held[count++] = t.popped - 1;
		while (count) {
			unsigned at = p->kind->in_order ? 0 : kind_random(count);
			struct job *job = traffic_job(&t, held[at]);

			traffic_push(&t, job);
			memmove(&held[at], &held[at + 1], (--count - at) * sizeof(held[0]));
			if (kind_random(2)) {
				traffic_expect_none(&t);
				vq_publish(&p->vq);
				while (t.done < t.pushed)
					traffic_take(&t, NULL);
			} else {
				vq_publish(&p->vq);
			}
			while (t.done < t.pushed)
				traffic_take(&t, NULL);
		}
	}
	traffic_end(&t);
}

/* Nothing of one life is left for the next, which may be of another size. */
static void test_lives(void **state)
{
	struct vq_pair *p = *state;

	for (unsigned life = 0; life < 12; life++) {
		struct traffic t = traffic_start(p, powers_of_two[kind_random(6)]);

		for (unsigned i = kind_random(20); i; i--)
			traffic_round(&t, 1 + kind_random(t.size));
		/* In the middle of something. */
		while (kind_random(6) && traffic_add(&t))
			;
		traffic_publish(&t);
		while (kind_random(3) && traffic_pop(&t))
			traffic_push(&t, traffic_job(&t, t.popped - 1));
		if (kind_random(2))
			vq_publish(&p->vq);
		vq_deactivate(&p->vq);
		traffic_end(&t);
	}
}

static void test_m3_a_live_queue_keeps_its_configuration(void **state)
{
	static const uint16_t sizes[] = { 0, 3, 4, 0x8000 };
	struct vq_pair *p = *state;
	struct traffic t = traffic_start(p, 8);

	for (unsigned i = 0; i < 100; i++) {
		vq_set_size(&p->vq, sizes[i % ARRAY_SIZE(sizes)]);
		vq_set_desc(&p->vq, 0x1000 * i);
		vq_set_driver(&p->vq, 0x1000 * i);
		vq_set_device(&p->vq, 0x1000 * i);
		traffic_round(&t, 1 + kind_random(8));
	}
	assert_int_equal(p->vq.size, 8);
	traffic_end(&t);
}

int main(void)
{
	const struct kind_test tests[] = {
		KIND_TEST(test_every_size),
		KIND_TEST(test_sizes_that_are_refused),
		KIND_TEST(test_wraps),
		KIND_TEST(test_g14_a_chain_as_long_as_the_ring),
		KIND_TEST(test_unpop),
		KIND_TEST(test_used_in_any_order),
		KIND_TEST(test_lives),
		KIND_TEST(test_m3_a_live_queue_keeps_its_configuration),
	};

	return kinds_run(tests, ARRAY_SIZE(tests), pair_setup_kind, pair_teardown);
}
