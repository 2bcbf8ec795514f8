/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of the command line: reads an argv, and rows for tables of command lines that must be
 * refused, with what the message must say.
 */
#ifndef WHELP_TESTS_LIBOPTIONS_H
#define WHELP_TESTS_LIBOPTIONS_H

#include <stddef.h>

#include "vmm/options.h"

#define OPTIONS_MAX_ARGS 40

/* Parses `args`, which end in NULL; `said` gets what was written to stderr. */
int liboptions_parse(struct options *options, const char *const *args, char *said, size_t size);

/* Parses what must be right. */
struct options liboptions_good(const char *const *args);

#define GOOD(...) liboptions_good((const char *const[]){ __VA_ARGS__, NULL })

struct liboptions_bad {
	const char *args[8];
	const char *says[4];
};

/* The state is a struct liboptions_bad. */
void liboptions_test_bad(void **state);

#define LIST(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define BAD(name, args, says)                                                                      \
	{                                                                                          \
		name, liboptions_test_bad, NULL, NULL, (void *)&(struct liboptions_bad)            \
		{                                                                                  \
			args, says                                                                 \
		}                                                                                  \
	}
#define BAD_RUN(name, option, value, ...)                                                          \
	BAD(name, LIST("run", "--kernel", "k", option, value), LIST(option, __VA_ARGS__))

#endif
