/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A line is composed in a buffer and written with one write(), so that lines of several threads do
 * not mix. stderr is unbuffered and never closed, hence the only state is the caller's rate limit.
 */
#include "vmm/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vmm/util.h"

#define LINE_MAX_BYTES 1024

PRINTF_LIKE(2, 0)
static void put_line(const char *severity, const char *fmt, va_list args, unsigned suppressed)
{
	char line[LINE_MAX_BYTES];
	size_t room = sizeof(line) - 1; /* the newline always fits */
	size_t used = 0;
	ssize_t written;
	int n;

	n = snprintf(line, room, "whelp: %s", severity);
	used = MIN((size_t)n, room - 1);
	n = vsnprintf(line + used, room - used, fmt, args);
	if (n > 0)
		used = MIN(used + (size_t)n, room - 1);
	if (suppressed) {
		n = snprintf(line + used, room - used, " (%u like this not shown)", suppressed);
		if (n > 0)
			used = MIN(used + (size_t)n, room - 1);
	}
	line[used++] = '\n';
	/* Nowhere to report a failing stderr to. */
	written = write(STDERR_FILENO, line, used);
	(void)written;
}

void log_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_line("", fmt, args, 0);
	va_end(args);
}

void log_warn(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_line("warning: ", fmt, args, 0);
	va_end(args);
}

void log_info(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	put_line("", fmt, args, 0);
	va_end(args);
}

/* Whether the limit lets a line through, and how many it held back before. */
static bool passes(struct log_limit *limit, unsigned *suppressed)
{
	struct timespec ts;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	if (!limit->window_start || now - limit->window_start >= LOG_INTERVAL_NS) {
		limit->window_start = now;
		limit->in_window = 0;
	}
	if (limit->in_window >= LOG_BURST) {
		limit->suppressed++;
		return false;
	}
	limit->in_window++;
	*suppressed = limit->suppressed;
	limit->suppressed = 0;
	return true;
}

void log_limited(struct log_limit *limit, const char *fmt, ...)
{
	/* One for all limits: what comes here is rare, or about to be silenced. */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	unsigned suppressed;
	va_list args;
	bool pass;

	pthread_mutex_lock(&lock);
	pass = passes(limit, &suppressed);
	pthread_mutex_unlock(&lock);
	if (!pass)
		return;
	va_start(args, fmt);
	put_line("warning: ", fmt, args, suppressed);
	va_end(args);
}
