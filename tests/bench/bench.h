/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What one run of tests/bench/ring measures; see ring.c for how. */
#ifndef WHELP_BENCH_H
#define WHELP_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_PAIRS 8u
#define BENCH_HEADER	12u    /* the virtio-net header */
#define BENCH_MIN_FRAME 60u    /* bytes, an Ethernet frame's without its checksum */
#define BENCH_MAX_FRAME 65000u /* from 1515 on they are TCP to be segmented */
#define BENCH_PATIENCE	10000  /* ms that a burst may take */

enum bench_backend { BENCH_NULL, BENCH_SOCKETPAIR, BENCH_TAP };

struct bench {
	enum bench_backend backend;
	bool bare; /* no device: a loop of writev or readv on the same files */
	bool packed;
	bool rx;
	bool pin;      /* threads to CPUs */
	unsigned size; /* of a frame, bytes, without the virtio-net header */
	unsigned pairs;
	unsigned ring; /* entries */
	uint64_t ns;   /* to measure for */
	char net[256]; /* more keys, as `whelp run --net` takes them; each begins with a comma */
};

/* Ends the program with a line on stderr. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
