/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When a driver adds packets to its transmit ring: recorded, or made up.
 *
 * An open trace is a list of times. In a closed one, packets come in groups of `group` at once, and
 * each group only so long after the last packet of the one before was sent: requests that wait for
 * an answer.
 *
 * A recorded trace is a text file. Its first line is "whelp-trace 1"; lines that begin with # say
 * what it is; every other line is one packet, as the ns since the packet before (the first: 0).
 */
#ifndef WHELP_POLICY_TRACE_H
#define WHELP_POLICY_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy_trace {
	char name[48];
	uint64_t *at; /* open: times, ns, in order, from 1 on; closed: waits, one for each group */
	size_t packets;
	unsigned group; /* 0: open */
};

/* Pseudo-random: any 64 bits; below a bound that is not 0; exponential with this mean, which is
 * below 2^32. */
uint64_t policy_random(uint64_t *seed);
uint64_t policy_below(uint64_t *seed, uint64_t bound);
uint64_t policy_exponential(uint64_t *seed, uint64_t mean);

/* The name of made-up traces of kind 0, 1, ...; NULL beyond the last. */
const char *policy_kind(size_t i);

/* Makes up a trace of that kind and length. 0; -ENOENT for a kind there is not, -ENOMEM. */
int policy_trace_make(struct policy_trace *trace, const char *kind, size_t packets, uint64_t seed);

/* One of chance's making, that changes its manners as it goes. 0 or -ENOMEM. */
int policy_trace_random(struct policy_trace *trace, size_t packets, uint64_t seed);

/* Reads a recorded trace; its name is the file's without folder and ".trace". 0 or -errno; -EINVAL:
 * no trace. */
int policy_trace_read(struct policy_trace *trace, const char *path);

/* Fine on one that is all zeros. */
void policy_trace_free(struct policy_trace *trace);

#endif
