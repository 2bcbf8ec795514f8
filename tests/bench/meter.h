/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the bench measures with: the time stamp counter, the CPU time of threads, and the
 * instructions that they retired, where the machine counts them.
 */
#ifndef WHELP_BENCH_METER_H
#define WHELP_BENCH_METER_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <x86intrin.h>

#define METER_MAX_THREADS 128u

/* Cycles of the time stamp counter: a clock of constant rate, not the core's own cycles. */
static inline uint64_t meter_cycles(void)
{
	return __rdtsc();
}

/* Nanoseconds of a clock. */
uint64_t meter_clock(clockid_t clock);

/* The counter's rate, from two readings of both clocks that lie far enough apart. */
struct meter_rate {
	uint64_t ns;
	uint64_t cycles;
};

void meter_rate_start(struct meter_rate *rate);
double meter_cycles_per_ns(const struct meter_rate *rate);

/* Threads of this process that appeared since meter_mark(), the kernel's for io_uring among them.
 */
struct meter_threads {
	pid_t before[METER_MAX_THREADS];
	unsigned before_count;
	pid_t ids[METER_MAX_THREADS]; /* in the order in which they were made */
	unsigned count;
	int counters[METER_MAX_THREADS]; /* of instructions, as many as were found then; or -1 */
	unsigned counter_count;
	bool user_only;	     /* they do not see the kernel's */
	const char *missing; /* why there are none, or NULL */
};

void meter_mark(struct meter_threads *threads);

/* Finds them; again to find those that came later, too. */
void meter_find(struct meter_threads *threads);

/* Puts thread `id` (0: the caller) on the `nth` of the allowed CPUs; after the last the first. */
void meter_pin(pid_t id, const cpu_set_t *allowed, unsigned nth);

/* Their CPU time so far, in ns. */
uint64_t meter_cpu(const struct meter_threads *threads);

/* Counts the instructions of those found, and of threads that they start. */
void meter_count_start(struct meter_threads *threads);

/* So far; 0 if that is unknown. */
uint64_t meter_count(const struct meter_threads *threads);
void meter_count_end(struct meter_threads *threads);

#endif
