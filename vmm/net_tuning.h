/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a NIC moves its frames, as far as that can be chosen: what --net's keys say, and what the
 * device goes by. All zero is the plainest device there is.
 */
#ifndef WHELP_NET_TUNING_H
#define WHELP_NET_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/affinity.h"

/* When a transmit ring is looked at, and when its driver kicks (devices/virtio/mitigate.h). */
enum mitigate_kind {
	MITIGATE_OFF,	 /* take what comes when it comes */
	MITIGATE_FIXED,	 /* a kick starts a timer, whose end takes all; so does a kick meanwhile */
	MITIGATE_LGUEST, /* a kick takes all, then a timer of adaptive length starts */
	MITIGATE_WINDOW, /* a kick when a window of packets is full, a timer bounds the wait */
	MITIGATE_ADAPTIVE, /* spin, timed sleep or kick, whichever the load makes cheapest */
	MITIGATE_KINDS,
};

enum net_poll {
	NET_POLL_OFF,
	NET_POLL_AUTO,	/* up to what a kick and a wake-up cost, and not at all when CPUs are short
			 */
	NET_POLL_FIXED, /* up to `poll_usecs` */
};

enum net_workers {
	NET_WORKERS_PAIR,  /* a thread for both queues of a pair */
	NET_WORKERS_SPLIT, /* one for each queue */
	NET_WORKERS_ONE,   /* one for all queues */
};

enum net_locking {
	NET_LOCK_NONE,
	NET_LOCK_HOLD, /* one lock for all exits and workers, held while frames are moved */
	NET_LOCK_DROP, /* the same, but for reading from the back end */
};

enum net_interrupting {
	NET_INTR_BATCH,	 /* one decision a batch */
	NET_INTR_PACKET, /* one a used buffer */
	NET_INTR_EMPTY,	 /* one a batch, and always one when the driver's last available buffer is
			    used */
};

/* What a worker that is woken does to others that run on its CPU. */
enum net_scheduling {
	NET_SCHED_NORMAL, /* stops them, mostly */
	NET_SCHED_BATCH,  /* waits for its turn (SCHED_BATCH) */
	NET_SCHED_AUTO,	  /* with MITIGATE_ADAPTIVE, and CPUs short, whichever carries more */
};

enum net_io {
	NET_IO_SYSCALL, /* a system call a frame */
	NET_IO_URING,	/* each batch by io_uring, whatever its size */
	NET_IO_AUTO, /* whichever is cheaper for the frames that wait; system calls without io_uring
		      */
};

struct net_tuning {
	enum mitigate_kind mitigation;
	uint32_t period_usecs;	/* of MITIGATE_FIXED and MITIGATE_WINDOW */
	uint32_t latency_usecs; /* what mitigation may add to a frame's way at most */
	enum net_poll poll;
	uint32_t poll_usecs;
	uint32_t
		budget_packets; /* of one direction before it is the other's turn; 0: the default */
	uint32_t budget_bytes;	/* the same */
	enum net_workers workers;
	enum net_locking lock;
	enum net_interrupting intr;
	enum net_scheduling sched;
	enum net_io io;
	bool rx_copy;	      /* received frames come to the guest by way of a buffer of ours */
	struct cpu_list cpus; /* the workers', in turn */
};

#endif
