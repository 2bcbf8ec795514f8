/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a worker makes of the frames that its wakes carry: the class it is scheduled in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/virtio/net_sched.h"
#include "vmm/util.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Wakes `gap` ns apart of `frames` each; how many until the class changes, at most `most`. */
static unsigned wakes_until_change(struct net_sched *s, uint64_t *now, uint64_t gap,
				   unsigned frames, unsigned most)
{
	for (unsigned i = 1; i <= most; i++) {
		*now += gap;
		if (net_sched_step(s, true, frames, *now))
			return i;
	}
	return 0;
}

/* A load that gains nothing, for so long that it is hardly tried any more; it is out of batch. */
static void try_in_vain(struct net_sched *s, uint64_t *now, uint64_t gap, unsigned frames)
{
	for (unsigned i = 0; i < 1000 * 64 || s->batch; i++)
		net_sched_step(s, true, frames, *now += gap);
}

static void test_it_is_tried_and_kept_where_it_pays(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 5, 1000), 64);
	assert_true(s.batch);
	/* A fifth more than five are six. */
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 6, 63 * 64), 0);
	/* Then it is compared anew, at once. */
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 6, 1000), 64);
	assert_false(s.batch);
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 5, 1000), 64);
	assert_true(s.batch);
}

static void test_it_ends_where_it_does_not_pay(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;
	unsigned tries = 0, batch = 0, all = 20000 * 64;

	(void)state;
	for (unsigned i = 0; i < all; i++) {
		now += 100 * US;
		tries += net_sched_step(&s, true, 1, now) && s.batch;
		batch += s.batch;
	}
	/* After 1, 2, 4, ... 64 windows, and then after every 64. */
	assert_in_range(tries, 7 + (20000 - 2 * 128) / 65, 8 + 20000 / 65);
	assert_true(batch * 50 < all);
}

/* A load of another kind does not pay for what was learned from the one before. */
static void test_another_load_is_tried_anew(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	try_in_vain(&s, &now, 100 * US, 2);
	assert_int_not_equal(wakes_until_change(&s, &now, 100 * US, 10, 2 * 64), 0);
	assert_true(s.batch);
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 30, 10 * 64), 0);
	/* And the other way round. */
	assert_in_range(wakes_until_change(&s, &now, 100 * US, 1, 1000), 1, 128);
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 1, 1000), 64);
}

static void test_it_ends_when_the_load_does(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	wakes_until_change(&s, &now, 100 * US, 2, 64);
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 10, 10 * 64), 0);
	assert_true(s.batch);
	/* A window of which most was the old load may pass; not another. */
	assert_in_range(wakes_until_change(&s, &now, 100 * US, 1, 1000), 1, 128);
	assert_false(s.batch);
	/* What had paid is tried again soon. */
	assert_int_equal(wakes_until_change(&s, &now, 100 * US, 1, 1000), 64);
}

/* A frame, or in one of four wakes a burst: on the average `mean`. The same in every run. */
static unsigned frame_or_burst(unsigned mean, uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 16) % 4 ? 1 : 4 * mean - 3;
}

/* Per cent of its wakes in batch, of a stream with `gap` ns between them. */
static unsigned share_of_batch(uint64_t gap, unsigned usual, unsigned batched)
{
	struct net_sched s = { 0 };
	uint32_t seed = 1;
	uint64_t now = 1;
	unsigned batch = 0, all = 100000;

	for (unsigned i = 0; i < all; i++) {
		unsigned frames = frame_or_burst(s.batch ? batched : usual, &seed);

		net_sched_step(&s, true, frames, now += gap);
		batch += s.batch;
	}
	return batch / (all / 100);
}

static void test_chance_does_not_decide(void **state)
{
	static const uint64_t gaps[] = { 100 * US, 700 * US, 2 * MS, 5 * MS };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(gaps); i++) {
		assert_in_range(share_of_batch(gaps[i], 3, 6), 95, 100);
		assert_in_range(share_of_batch(gaps[i], 3, 3), 0, 5);
		assert_in_range(share_of_batch(gaps[i], 4, 2), 0, 5);
	}
}

static void test_slow_loads_are_left_alone(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	assert_int_equal(wakes_until_change(&s, &now, 10 * MS, 1, 10000), 0);
	/* Wakes 1 ms apart are worth a try, which lasts no longer than 50 ms. */
	assert_int_not_equal(wakes_until_change(&s, &now, 1 * MS, 1, 1000), 0);
	assert_true(s.batch);
	assert_int_equal(wakes_until_change(&s, &now, 10 * MS, 1, 1000), 6);
	assert_false(s.batch);
}

/* Where it pays there are few wakes for that very reason. */
static void test_few_wakes_with_many_frames_are_no_slow_load(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	assert_int_not_equal(wakes_until_change(&s, &now, 100 * US, 1, 1000), 0);
	assert_int_equal(wakes_until_change(&s, &now, 10 * MS, 100, 300), 0);
	assert_true(s.batch);
}

/* Round trips for a long time, in vain, and then a stream whose wakes carry little more. */
static void test_a_stream_behind_round_trips_is_soon_tried(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;
	unsigned wakes = 0;

	(void)state;
	try_in_vain(&s, &now, 700 * US, 1);
	while (!s.batch)
		net_sched_step(&s, true, wakes++ % 2 ? 2 : 1, now += 700 * US);
	assert_in_range(wakes, 1, 6 * 64);
}

static void test_behind_a_pause_all_is_new(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	try_in_vain(&s, &now, 100 * US, 2);
	now += 500 * MS;
	assert_in_range(wakes_until_change(&s, &now, 100 * US, 2, 1000), 64, 65);
	assert_true(s.batch);
	assert_int_equal(wakes_until_change(&s, &now, 500 * MS, 10, 1000), 1);
	assert_false(s.batch);
}

static void test_nothing_of_it_where_cpus_are_plenty(void **state)
{
	struct net_sched s = { 0 };
	uint64_t now = 1;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_false(net_sched_step(&s, false, 1, now += US));
	assert_int_not_equal(wakes_until_change(&s, &now, 100 * US, 1, 1000), 0);
	assert_true(s.batch);
	assert_true(net_sched_step(&s, false, 100, now));
	assert_false(s.batch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_tried_and_kept_where_it_pays),
		cmocka_unit_test(test_it_ends_where_it_does_not_pay),
		cmocka_unit_test(test_another_load_is_tried_anew),
		cmocka_unit_test(test_it_ends_when_the_load_does),
		cmocka_unit_test(test_chance_does_not_decide),
		cmocka_unit_test(test_slow_loads_are_left_alone),
		cmocka_unit_test(test_few_wakes_with_many_frames_are_no_slow_load),
		cmocka_unit_test(test_a_stream_behind_round_trips_is_soon_tried),
		cmocka_unit_test(test_behind_a_pause_all_is_new),
		cmocka_unit_test(test_nothing_of_it_where_cpus_are_plenty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
