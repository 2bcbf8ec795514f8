/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Guest memory: what a guest-given address and length may and may not name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "vmm/mem.h"
#include "vmm/util.h"

#define P PAGE_SIZE

/* [P, 3P) and [3P, 4P) meet; then a gap; then [8P, 9P). */
static int setup(void **state)
{
	static struct mem mem;

	mem_init(&mem);
	assert_int_equal(mem_add(&mem, P, 2 * P), 0);
	assert_int_equal(mem_add(&mem, 3 * P, P), 0);
	assert_int_equal(mem_add(&mem, 8 * P, P), 0);
	*state = &mem;
	return 0;
}

static int teardown(void **state)
{
	mem_fini(*state);
	return 0;
}

static void test_add_checks_its_arguments(void **state)
{
	struct mem mem;

	(void)state;
	mem_init(&mem);
	assert_int_equal(mem_add(&mem, 0, 0), -EINVAL);
	assert_int_equal(mem_add(&mem, 1, P), -EINVAL);
	assert_int_equal(mem_add(&mem, 0, P + 1), -EINVAL);
	assert_int_equal(mem_add(&mem, 0 - (uint64_t)P, P), -EINVAL);
	assert_int_equal(mem_add(&mem, 0 - (uint64_t)P, 2 * P), -EINVAL);
	assert_int_equal(mem_add(&mem, P, 0 - (uint64_t)P), -EINVAL);
	assert_int_equal(mem.count, 0);
	assert_int_equal(mem_add(&mem, 4 * P, 2 * P), 0);
	/* Below, inside, and over the end of what is there. */
	assert_int_equal(mem_add(&mem, 0, P), -EINVAL);
	assert_int_equal(mem_add(&mem, 4 * P, P), -EINVAL);
	assert_int_equal(mem_add(&mem, 5 * P, P), -EINVAL);
	for (unsigned i = 1; i < MEM_MAX_REGIONS; i++)
		assert_int_equal(mem_add(&mem, (4 + 2 * i) * P, P), 0);
	assert_int_equal(mem_add(&mem, 100 * P, P), -ENOSPC);
	assert_int_equal(mem.count, MEM_MAX_REGIONS);
	mem_fini(&mem);
	assert_null(mem_ptr(&mem, 4 * P, 1));
}

static void test_more_than_the_host_has_is_an_error(void **state)
{
	struct mem mem;

	(void)state;
	mem_init(&mem);
	assert_true(mem_add(&mem, 0, 1ull << 60) < 0);
	assert_int_equal(mem.count, 0);
	mem_fini(&mem);
}

static void test_memory_is_zeroed(void **state)
{
	const uint8_t *p = mem_ptr(*state, P, 2 * P);

	for (unsigned i = 0; i < 2 * P; i++)
		assert_int_equal(p[i], 0);
}

static const struct {
	uint64_t gpa;
	uint64_t len;
	int pieces; /* -EFAULT: not all of it is memory */
} ranges[] = {
	{ P, 1, 1 },
	{ P, 2 * P, 1 },
	{ 3 * P - 1, 1, 1 },
	{ 3 * P - 1, 2, 2 },
	{ P, 3 * P, 2 },
	{ 3 * P, P, 1 },
	{ 8 * P, P, 1 },
	{ 9 * P - 1, 1, 1 },
	{ P, 0, -EFAULT },
	{ 0, 1, -EFAULT },
	{ 0, 0, -EFAULT },
	{ P - 1, 1, -EFAULT },
	{ P - 1, 2, -EFAULT },
	{ P, 3 * P + 1, -EFAULT },
	{ 4 * P, 1, -EFAULT },
	{ 4 * P - 1, 2, -EFAULT },
	{ 4 * P - 1, 5 * P, -EFAULT }, /* starts and ends in memory, over the gap */
	{ 8 * P - 1, 2, -EFAULT },
	{ 9 * P - 1, 2, -EFAULT },
	{ 9 * P, 1, -EFAULT },
	{ P, UINT64_MAX, -EFAULT },
	{ P, UINT64_MAX - P + 1, -EFAULT },
	{ P, UINT64_MAX - P + 2, -EFAULT },
	{ 8 * P, 0 - 8ull * P, -EFAULT },
	{ UINT64_MAX, 1, -EFAULT },
	{ UINT64_MAX, 2, -EFAULT },
	{ UINT64_MAX, UINT64_MAX, -EFAULT },
	{ UINT64_MAX - P + 1, 3 * P, -EFAULT }, /* wraps into memory */
	{ 0, UINT64_MAX, -EFAULT },
};

static void test_m5_ptr(void **state)
{
	const struct mem *mem = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
		const uint8_t *p = mem_ptr(mem, ranges[i].gpa, ranges[i].len);

		if (ranges[i].pieces != 1) {
			assert_null(p);
			continue;
		}
		assert_non_null(p);
		assert_ptr_equal(p + ranges[i].len - 1,
				 mem_ptr(mem, ranges[i].gpa + ranges[i].len - 1, 1));
	}
}

static void test_m5_iov(void **state)
{
	const struct mem *mem = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
		struct iovec iov[4];
		int pieces = mem_iov(mem, ranges[i].gpa, ranges[i].len, iov, 4);
		uint64_t gpa = ranges[i].gpa;

		assert_int_equal(pieces, ranges[i].pieces);
		for (int n = 0; n < pieces; n++) {
			assert_ptr_equal(iov[n].iov_base, mem_ptr(mem, gpa, iov[n].iov_len));
			gpa += iov[n].iov_len;
		}
		if (pieces > 0)
			assert_int_equal(gpa - ranges[i].gpa, ranges[i].len);
	}
}

/* As mem_ptr() says, whichever region was hit before. */
static void test_near_is_no_different(void **state)
{
	static const uint64_t lengths[] = {
		0, 1, 2, P - 1, P, P + 1, 2 * P, 2 * P + 1, UINT64_MAX
	};
	const struct mem *mem = *state;
	const struct mem_region *near = &mem->regions[0];

	for (unsigned r = 0; r < mem->count; r++)
		for (uint64_t gpa = 0; gpa <= 10 * P; gpa += P / 2)
			for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
				near = &mem->regions[r];
				assert_ptr_equal(mem_ptr_near(mem, &near, gpa, lengths[i]),
						 mem_ptr(mem, gpa, lengths[i]));
				/* One of the map's in any case. */
				assert_in_range(near - mem->regions, 0, mem->count - 1);
			}
	assert_ptr_equal(mem_ptr_near(mem, &near, 8 * P, 1), mem_ptr(mem, 8 * P, 1));
	assert_ptr_equal(near, &mem->regions[2]);
	assert_null(mem_ptr_near(mem, &near, UINT64_MAX, 1));
	assert_null(mem_ptr_near(mem, &near, UINT64_MAX, UINT64_MAX));
}

static void test_iov_stops_at_its_room(void **state)
{
	struct iovec iov[2] = { { 0 } };

	assert_int_equal(mem_iov(*state, 3 * P - 1, 2, iov, 0), -E2BIG);
	assert_null(iov[0].iov_base);
	assert_int_equal(mem_iov(*state, 3 * P - 1, 2, iov, 1), -E2BIG);
	assert_null(iov[1].iov_base);
	assert_int_equal(mem_iov(*state, 3 * P - 1, 2, iov, 2), 2);
}

static void test_write(void **state)
{
	uint8_t out[64];

	for (unsigned i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i + 1);
	assert_int_equal(mem_write(*state, 9 * P - 64, out, 64), 0);
	assert_memory_equal(mem_ptr(*state, 9 * P - 64, 64), out, 64);
	/* Either all of it, or nothing. */
	memset(out, 0, sizeof(out));
	assert_int_equal(mem_write(*state, 9 * P - 63, out, 64), -EFAULT);
	assert_int_equal(*(uint8_t *)mem_ptr(*state, 9 * P - 1, 1), 64);
}

static void test_an_empty_map(void **state)
{
	struct mem mem;
	struct iovec iov;

	(void)state;
	mem_init(&mem);
	assert_null(mem_ptr(&mem, 0, 1));
	assert_int_equal(mem_iov(&mem, 0, 1, &iov, 1), -EFAULT);
	mem_fini(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add_checks_its_arguments),
		cmocka_unit_test(test_more_than_the_host_has_is_an_error),
		cmocka_unit_test(test_memory_is_zeroed),
		cmocka_unit_test(test_m5_ptr),
		cmocka_unit_test(test_m5_iov),
		cmocka_unit_test(test_near_is_no_different),
		cmocka_unit_test(test_iov_stops_at_its_room),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_an_empty_map),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
