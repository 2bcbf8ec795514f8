/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads are found in /proc and not asked for: the bench knows nothing of how the device arranges
 * its workers.
 */
#include "tests/bench/meter.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t meter_clock(clockid_t clock)
{
	struct timespec ts = { 0 };

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void meter_rate_start(struct meter_rate *rate)
{
	rate->ns = meter_clock(CLOCK_MONOTONIC);
	rate->cycles = meter_cycles();
}

double meter_cycles_per_ns(const struct meter_rate *rate)
{
	uint64_t ns = meter_clock(CLOCK_MONOTONIC), cycles = meter_cycles();

	return (double)(cycles - rate->cycles) / (double)(ns - rate->ns);
}

static int compare_ids(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static unsigned list(pid_t ids[METER_MAX_THREADS])
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned count = 0;

	while (dir && count < METER_MAX_THREADS && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			ids[count++] = atoi(entry->d_name);
	if (dir)
		closedir(dir);
	qsort(ids, count, sizeof(ids[0]), compare_ids);
	return count;
}

void meter_mark(struct meter_threads *threads)
{
	memset(threads, 0, sizeof(*threads));
	threads->before_count = list(threads->before);
}

void meter_find(struct meter_threads *threads)
{
	pid_t now[METER_MAX_THREADS];
	unsigned count = list(now);

	threads->count = 0;
	for (unsigned i = 0; i < count; i++)
		if (!bsearch(&now[i], threads->before, threads->before_count, sizeof(now[0]),
			     compare_ids))
			threads->ids[threads->count++] = now[i];
}

void meter_pin(pid_t id, const cpu_set_t *allowed, unsigned nth)
{
	cpu_set_t one;
	int cpu = -1;

	nth %= (unsigned)CPU_COUNT(allowed);
	for (unsigned seen = 0; seen <= nth; seen += CPU_ISSET(cpu, allowed) != 0)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(id, sizeof(one), &one);
}

/* The CPU clock of any thread of this process, as the kernel numbers them. */
static clockid_t thread_clock(pid_t id)
{
	const unsigned per_thread = 4, scheduler = 2;

	return (clockid_t)(~(unsigned)id << 3 | per_thread | scheduler);
}

uint64_t meter_cpu(const struct meter_threads *threads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < threads->count; i++)
		sum += meter_clock(thread_clock(threads->ids[i]));
	return sum;
}

static int open_counter(pid_t id, bool user_only)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_kernel = user_only,
		.exclude_hv = 1,
		.inherit = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, id, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void meter_count_start(struct meter_threads *threads)
{
	for (unsigned i = 0; i < threads->count; i++) {
		int fd = open_counter(threads->ids[i], threads->user_only);

		if (fd < 0 && errno == EACCES && !threads->user_only) {
			threads->user_only = true;
			fd = open_counter(threads->ids[i], true);
		}
		if (fd < 0)
			threads->missing = strerror(errno);
		threads->counters[i] = fd;
	}
	threads->counter_count = threads->count;
}

uint64_t meter_count(const struct meter_threads *threads)
{
	uint64_t sum = 0, count;

	for (unsigned i = 0; i < threads->counter_count && !threads->missing; i++)
		if (read(threads->counters[i], &count, sizeof(count)) == sizeof(count))
			sum += count;
	return sum;
}

void meter_count_end(struct meter_threads *threads)
{
	for (unsigned i = 0; i < threads->counter_count; i++)
		if (threads->counters[i] >= 0)
			close(threads->counters[i]);
}
