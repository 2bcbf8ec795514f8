/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Iovecs as one stretch of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "vmm/iov.h"
#include "vmm/util.h"

/* "abc" "" "d" "" "efgh" "" */
static char storage[8];
static struct iovec pieces[6];

static int setup(void **state)
{
	static const size_t lengths[] = { 3, 0, 1, 0, 4, 0 };
	char *at = storage;

	(void)state;
	memcpy(storage, "abcdefgh", 8);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		pieces[i] = (struct iovec){ lengths[i] ? at : NULL, lengths[i] };
		at += lengths[i];
	}
	return 0;
}

static void test_total(void **state)
{
	(void)state;
	assert_int_equal(iov_total(pieces, ARRAY_SIZE(pieces)), 8);
	assert_int_equal(iov_total(pieces, 3), 4);
	assert_int_equal(iov_total(NULL, 0), 0);
}

static void test_read_at_every_offset_and_length(void **state)
{
	(void)state;
	for (size_t offset = 0; offset <= 10; offset++) {
		for (size_t len = 0; len <= 10; len++) {
			size_t there = offset < 8 ? MIN(len, 8 - offset) : 0;
			char data[12];

			memset(data, '.', sizeof(data));
			assert_int_equal(iov_read(pieces, ARRAY_SIZE(pieces), offset, data, len),
					 there);
			assert_memory_equal(data, &"abcdefgh"[MIN(offset, 8u)], there);
			for (size_t i = there; i < sizeof(data); i++)
				assert_int_equal(data[i], '.');
		}
	}
}

static void test_write_at_every_offset_and_length(void **state)
{
	for (size_t offset = 0; offset <= 10; offset++) {
		for (size_t len = 0; len <= 10; len++) {
			size_t there = offset < 8 ? MIN(len, 8 - offset) : 0;
			char want[9] = "abcdefgh";

			setup(state);
			memset(want + MIN(offset, 8u), 'X', there);
			assert_int_equal(
				iov_write(pieces, ARRAY_SIZE(pieces), offset, "XXXXXXXXXX", len),
				there);
			assert_memory_equal(storage, want, 8);
		}
	}
}

static void test_huge_numbers(void **state)
{
	char data[8];

	(void)state;
	assert_int_equal(iov_read(pieces, ARRAY_SIZE(pieces), SIZE_MAX, data, 1), 0);
	assert_int_equal(iov_read(pieces, ARRAY_SIZE(pieces), SIZE_MAX - 3, data, 8), 0);
	assert_int_equal(iov_write(pieces, ARRAY_SIZE(pieces), SIZE_MAX, data, 8), 0);
	assert_int_equal(iov_read(pieces, 0, 0, data, 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_total, setup),
		cmocka_unit_test_setup(test_read_at_every_offset_and_length, setup),
		cmocka_unit_test_setup(test_write_at_every_offset_and_length, setup),
		cmocka_unit_test_setup(test_huge_numbers, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
