/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Why a vCPU came back from KVM_RUN, and which devices it was for. Written by the vCPU's thread,
 * read by any; see counter.h. A zeroed one is ready.
 */
#ifndef WHELP_EXITS_H
#define WHELP_EXITS_H

#include <jansson.h>
#include <stdint.h>

#include "vmm/counter.h"

enum exit_cause {
	EXIT_CAUSE_IO_IN,
	EXIT_CAUSE_IO_OUT,
	EXIT_CAUSE_MMIO_READ,
	EXIT_CAUSE_MMIO_WRITE,
	EXIT_CAUSE_SIGNAL,     /* a signal to the thread, such as the one that stops it */
	EXIT_CAUSE_IRQ_WINDOW, /* the guest can take an interrupt now */
	EXIT_CAUSE_HALT,       /* only where KVM has no interrupt controller of its own */
	EXIT_CAUSE_HYPERCALL,
	EXIT_CAUSE_SHUTDOWN, /* a triple fault */
	EXIT_CAUSE_ERROR,    /* KVM cannot go on */
	EXIT_CAUSE_OTHER,
	EXIT_CAUSES,
};

#define EXIT_DEVICES 16u

struct exits {
	uint64_t causes[EXIT_CAUSES];
	/* In the order of their first access; a name, once there, stays. */
	struct exit_device {
		const char *name;
		uint64_t count;
	} devices[EXIT_DEVICES];
};

static inline void exits_count(struct exits *exits, enum exit_cause cause)
{
	counter_add(&exits->causes[cause], 1);
}

/*
 * One access that `device` answered, or nobody (NULL). The name is a constant, known again by its
 * address. Beyond EXIT_DEVICES of them, nothing is counted.
 */
void exits_count_device(struct exits *exits, const char *device);

/*
 * {"exits": {CAUSE: N, ...}, "devices": {NAME: N, ...}}: every cause, and the devices that were
 * accessed.
 */
json_t *exits_json(const struct exits *exits);

#endif
