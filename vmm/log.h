/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages to the user: one line each on stderr, prefixed "whelp: ". A function that fails for a
 * reason the user can act on logs that one line itself and returns -errno; its callers only pass
 * the error on, so that one fault never prints two messages.
 */
#ifndef WHELP_LOG_H
#define WHELP_LOG_H

#include <stdint.h>

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Something failed and the command cannot go on. */
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Something is wrong, and whelp goes on. */
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Something the user wants to know, and nothing is wrong. */
void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);

/*
 * A rate limit for messages that a guest or a host's network can cause at will: at most LOG_BURST
 * lines in LOG_INTERVAL_NS, then silence; the next line that gets through says how many did not.
 * Zero-initialised is ready to use. One per object and kind of message; by any thread.
 */
#define LOG_BURST	5u
#define LOG_INTERVAL_NS 5000000000ull

struct log_limit {
	uint64_t window_start; /* CLOCK_MONOTONIC, ns */
	unsigned in_window;
	unsigned suppressed;
};

void log_limited(struct log_limit *limit, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
