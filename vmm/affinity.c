/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which CPUs the process may use is taken from its first thread, which is never pinned. A thread
 * starts others where it runs itself, if nobody says otherwise, and vCPUs' threads, which start the
 * devices' workers, may be pinned.
 */
#include "vmm/affinity.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "vmm/log.h"

int cpu_list_choose(const struct cpu_list *list, unsigned index)
{
	return list->count ? list->cpus[index % list->count] : -1;
}

static bool get_allowed(cpu_set_t *allowed)
{
	return !sched_getaffinity(getpid(), sizeof(*allowed), allowed);
}

static bool may_use(unsigned cpu)
{
	cpu_set_t allowed;

	return cpu < CPU_SETSIZE && get_allowed(&allowed) && CPU_ISSET(cpu, &allowed);
}

int affinity_check(const struct cpu_list *list, const char *option)
{
	for (unsigned i = 0; i < list->count; i++) {
		if (may_use(list->cpus[i]))
			continue;
		log_error("%s: whelp may not use host CPU %u, or there is none: `taskset -pc $$` "
			  "lists those "
			  "it may",
			  option, list->cpus[i]);
		return -EINVAL;
	}
	return 0;
}

int affinity_set(pthread_attr_t *attributes, int cpu)
{
	cpu_set_t chosen, own;

	if (cpu >= 0) {
		if (!may_use((unsigned)cpu))
			return -EINVAL;
		CPU_ZERO(&chosen);
		CPU_SET(cpu, &chosen);
	} else if (!get_allowed(&chosen) || sched_getaffinity(0, sizeof(own), &own) ||
		   CPU_EQUAL(&chosen, &own)) {
		return 0;
	}
	return -pthread_attr_setaffinity_np(attributes, sizeof(chosen), &chosen);
}

unsigned affinity_cpus(void)
{
	cpu_set_t allowed;

	return get_allowed(&allowed) ? (unsigned)CPU_COUNT(&allowed) : 1;
}
