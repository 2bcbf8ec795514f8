/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages: their form, their limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/unit/libfront.h"
#include "vmm/log.h"

static char text[65536];

static void test_lines(void **state)
{
	(void)state;
	capture_begin();
	log_error("%s: no such %s", "tap0", "interface");
	log_warn("about %d", 7);
	log_info("fine");
	assert_int_equal(capture_end(text, sizeof(text)), 3);
	assert_string_equal(text, "whelp: tap0: no such interface\n"
				  "whelp: warning: about 7\n"
				  "whelp: fine\n");
}

static void test_long_lines_are_cut_and_still_lines(void **state)
{
	char long_text[3000];

	(void)state;
	for (size_t len = 990; len < sizeof(long_text); len += len < 1040 ? 1 : 500) {
		memset(long_text, 'x', len);
		long_text[len] = '\0';
		capture_begin();
		log_error("%s", long_text);
		assert_int_equal(capture_end(text, sizeof(text)), 1);
		assert_int_equal(text[strlen(text) - 1], '\n');
		assert_true(strlen(text) <= 1024);
		assert_memory_equal(text, "whelp: xxx", 10);
	}
}

static void test_limit(void **state)
{
	struct log_limit limit = { 0 };

	(void)state;
	capture_begin();
	for (unsigned i = 0; i < 1000; i++)
		log_limited(&limit, "number %u", i);
	assert_int_equal(capture_end(text, sizeof(text)), LOG_BURST);
	assert_non_null(strstr(text, "whelp: warning: number 0\n"));
	assert_non_null(strstr(text, "number 4\n"));
	/* The window is over: the next line tells how many were not shown, once. */
	limit.window_start -= LOG_INTERVAL_NS;
	capture_begin();
	log_limited(&limit, "again");
	log_limited(&limit, "and again");
	assert_int_equal(capture_end(text, sizeof(text)), 2);
	assert_string_equal(text, "whelp: warning: again (995 like this not shown)\n"
				  "whelp: warning: and again\n");
}

static void test_limits_do_not_share(void **state)
{
	struct log_limit first = { 0 }, second = { 0 };

	(void)state;
	capture_begin();
	for (unsigned i = 0; i < 100; i++)
		log_limited(&first, "first");
	log_limited(&second, "second");
	assert_int_equal(capture_end(text, sizeof(text)), LOG_BURST + 1);
	assert_non_null(strstr(text, "second\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_long_lines_are_cut_and_still_lines),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limits_do_not_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
