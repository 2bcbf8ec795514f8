/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which host CPUs threads run on.
 */
#ifndef WHELP_AFFINITY_H
#define WHELP_AFFINITY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Some numbers of host CPUs. */
#define AFFINITY_MAX_CPUS 64u
struct cpu_list {
	uint16_t cpus[AFFINITY_MAX_CPUS];
	unsigned count; /* 0: any CPU will do */
};

/* The CPU of thread `index` when they take those of the list in turn; -1 for any. */
int cpu_list_choose(const struct cpu_list *list, unsigned index);

/*
 * Whether this process may use all CPUs of a list. If not, logs one line that names `option` and
 * the CPU, and returns -EINVAL.
 */
int affinity_check(const struct cpu_list *list, const char *option);

/*
 * Has a thread that is started with these attributes run on `cpu` alone; -1: wherever the process
 * may, even if the thread that starts it may not. 0 or -errno.
 */
int affinity_set(pthread_attr_t *attributes, int cpu);

/* How many CPUs this process may use. */
unsigned affinity_cpus(void);

#endif
