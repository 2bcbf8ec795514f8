/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The thread that moves frames: of one queue, of both of a pair, or of all (--net workers=). It
 * owns its queues while it runs; see net_worker.c for when it does what.
 */
#ifndef WHELP_NET_WORKER_H
#define WHELP_NET_WORKER_H

#include <pthread.h>
#include <stdbool.h>

#include "devices/virtio/net_queue.h"
#include "devices/virtio/net_sched.h"
#include "vmm/loop.h"

#define NET_MAX_PAIRS 32u

struct net_worker {
	struct worker worker;
	struct net_queue *queues[2 * NET_MAX_PAIRS];
	unsigned count;
	const struct net_tuning *tuning;
	pthread_mutex_t *lock; /* shared with all exits; NULL: there is none */
	bool locked;
	bool open;
	unsigned frames; /* moved since it was woken */
	struct net_sched sched;
	bool running; /* moves frames: further calls to do so are left to the one under way */
	struct loop_source timer; /* of its queues */
	struct loop_source more;  /* work is left that should not be done at once */
};

/*
 * Makes one without queues. 0 or -errno; net_worker_close() is fine on what that left, and on a
 * zeroed one.
 */
int net_worker_open(struct net_worker *worker, const char *name, const struct net_tuning *tuning,
		    pthread_mutex_t *lock);

/*
 * Adds a queue, whose ring need not be live yet, and starts the thread on those there are. 0 or
 * -errno.
 */
int net_worker_add(struct net_worker *worker, struct net_queue *queue);
int net_worker_start(struct net_worker *worker);

/* Ends the thread; when this returns none touches its queues, and it has none. */
void net_worker_close(struct net_worker *worker);

/* The following are for the worker's own thread, or for a time when it does not run. */

/*
 * Does the work there is, or a good deal of it and has the loop go on with the rest. Sets the timer
 * in any case.
 */
void net_worker_run(struct net_worker *worker);

/* Has it done once nothing else is ready. */
void net_worker_wake(struct net_worker *worker);

/* Sets the timer to the first of what its queues wait for. */
void net_worker_update_timer(struct net_worker *worker);

/*
 * Lets go of the lock, if there is one and it is held, and takes it again. The
 * worker goes on without it when somebody waits for the worker: who waits may hold it.
 */
void net_worker_leave_lock(struct net_worker *worker);
void net_worker_enter_lock(struct net_worker *worker);

#endif
