/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Buckets that double: what counts where, and what percentiles make of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vmm/histogram.h"
#include "vmm/util.h"

static void test_buckets(void **state)
{
	static const struct {
		uint64_t value;
		unsigned bucket;
	} rows[] = {
		{ 0, 0 },
		{ 1, 1 },
		{ 2, 2 },
		{ 3, 2 },
		{ 4, 3 },
		{ 63, 6 },
		{ 64, 7 },
		{ (UINT64_C(1) << 38) - 1, 38 },
		{ UINT64_C(1) << 38, 39 },
		{ UINT64_C(1) << 39, 39 },
		{ UINT64_MAX, 39 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(histogram_bucket(rows[i].value), rows[i].bucket);
}

static void test_every_bucket_begins_behind_the_one_before(void **state)
{
	(void)state;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t low = histogram_low(i);

		assert_int_equal(histogram_bucket(low), i);
		if (i)
			assert_int_equal(histogram_bucket(low - 1), i - 1);
	}
}

static void test_adding(void **state)
{
	struct histogram h = { 0 }, sum = { 0 };

	(void)state;
	for (uint64_t value = 0; value < 100; value++)
		histogram_add(&h, value);
	assert_int_equal(histogram_count(&h), 100);
	assert_int_equal(h.sum, 4950);
	assert_int_equal(h.buckets[6], 32);
	assert_int_equal(h.buckets[7], 36);
	histogram_collect(&sum, &h);
	histogram_collect(&sum, &h);
	assert_int_equal(histogram_count(&sum), 200);
	assert_int_equal(sum.sum, 9900);
	assert_int_equal(sum.buckets[7], 72);
}

static void near(double value, double low, double high)
{
	if (value < low || value > high)
		fail_msg("%f is not from %f to %f", value, low, high);
}

static void test_percentiles(void **state)
{
	struct histogram h = { 0 };

	(void)state;
	near(histogram_percentile(&h, 50), 0, 0);
	histogram_add(&h, 1);
	near(histogram_percentile(&h, 0), 1, 1);
	near(histogram_percentile(&h, 50), 1, 1);
	near(histogram_percentile(&h, 100), 1, 1);
	/* Of even values, evenly spread, it is exact but for rounding. */
	h = (struct histogram){ 0 };
	for (uint64_t value = 1; value < 1024; value++)
		histogram_add(&h, value);
	near(histogram_percentile(&h, 50), 510, 514);
	near(histogram_percentile(&h, 90), 918, 924);
	near(histogram_percentile(&h, 100), 1023, 1023);
	/* One far out is not in the way of the others. */
	h = (struct histogram){ 0 };
	for (unsigned i = 0; i < 99; i++)
		histogram_add(&h, 1000);
	histogram_add(&h, UINT64_MAX / 2);
	near(histogram_percentile(&h, 50), 512, 1023);
	near(histogram_percentile(&h, 99), 512, 1023);
	near(histogram_percentile(&h, 99.9), 274877906944.0, 549755813888.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_every_bucket_begins_behind_the_one_before),
		cmocka_unit_test(test_adding),
		cmocka_unit_test(test_percentiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
