/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages are caught by putting a memfd in stderr's place for the length of one call. */
#include "tests/unit/liboptions.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/util.h"

int liboptions_parse(struct options *options, const char *const *args, char *said, size_t size)
{
	char *argv[OPTIONS_MAX_ARGS + 2] = { (char *)(uintptr_t) "whelp" };
	int argc = 1, saved = dup(STDERR_FILENO), fd = memfd_create("stderr", 0), rc;
	ssize_t n;

	for (; args[argc - 1]; argc++) {
		assert_true(argc <= OPTIONS_MAX_ARGS);
		argv[argc] = (char *)(uintptr_t)args[argc - 1];
	}
	dup2(fd, STDERR_FILENO);
	rc = options_parse(options, argc, argv);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fd, said, size - 1, 0);
	close(fd);
	assert_true(n >= 0);
	said[n] = '\0';
	return rc;
}

struct options liboptions_good(const char *const *args)
{
	struct options options;
	char said[1024];

	if (liboptions_parse(&options, args, said, sizeof(said)))
		fail_msg("refused: %s", said);
	assert_string_equal(said, "");
	return options;
}

void liboptions_test_bad(void **state)
{
	const struct liboptions_bad *bad = *state;
	struct options options;
	char said[1024];
	unsigned i;

	assert_int_equal(liboptions_parse(&options, bad->args, said, sizeof(said)), -EINVAL);
	assert_ptr_equal(strstr(said, "whelp: "), said);
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	for (i = 0; i < ARRAY_SIZE(bad->says) && bad->says[i]; i++) {
		if (!strstr(said, bad->says[i]))
			fail_msg("\"%s\" is not in: %s", bad->says[i], said);
	}
}
