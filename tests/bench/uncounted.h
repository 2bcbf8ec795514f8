/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Put before every file of a program whose device does not count, so that bench-ring can tell what
 * counting costs. The counters stay, at 0.
 */
#ifndef WHELP_BENCH_UNCOUNTED_H
#define WHELP_BENCH_UNCOUNTED_H

#include "devices/virtio/net_queue.h"

/* Nothing is worked out, either. */
#define net_count(counter, n)	((void)(counter), (void)sizeof(n))
#define histogram_add(h, value) ((void)(h), (void)sizeof(value))
#define net_clock()		UINT64_C(0)

#endif
