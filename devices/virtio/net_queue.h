/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One queue pair of a NIC and the worker that owns it: both rings, the back end's fd and the two kick
 * eventfds. See net_queue.c for how it moves frames.
 */
#ifndef WHELP_NET_QUEUE_H
#define WHELP_NET_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/net/backend.h"
#include "devices/virtio/device.h"
#include "vmm/log.h"
#include "vmm/loop.h"

/* What readv and writev take (UIO_MAXIOV). */
#define NET_MAX_PIECES 1024u

/* Counted by the worker, read by anyone, each by itself. They live as long as the device. */
struct net_counters {
	uint64_t packets;
	uint64_t bytes; /* without the header */
	uint64_t batches;
	uint64_t kicks;
	uint64_t interrupts;
	uint64_t dropped;    /* frames lost: too short, too long for the buffer, refused */
	uint64_t waits;	     /* RX: for buffers, while frames waited. TX: for the back end, which was full */
};

static inline void net_count(uint64_t *counter, uint64_t n)
{
	/* One writer: a relaxed load and store suffice, and cost no locked instruction. */
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline uint64_t net_counter(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* One direction of a pair. */
struct net_queue {
	struct loop_source kick;
	struct virtio_queue *queue;
	unsigned index;	     /* the queue's, in the device */
	bool active;	     /* work may be left: kicks are off */
	bool blocked;	     /* RX waits for buffers, TX for the back end */
	struct net_counters counters;
};

struct net_pair {
	struct virtio_device *device;
	struct net_backend *backend;
	struct worker worker;
	struct loop_source wire; /* the back end's fd */
	uint32_t wire_events;	 /* what it is watched for; 0: not watched */
	bool wire_gone;
	bool started;
	struct net_queue rx;
	struct net_queue tx;
	struct log_limit losses;
	struct iovec iov[NET_MAX_PIECES]; /* of the chain at hand */
};

/* Sets up a pair that is not started, on queues `rx` and `rx + 1` of the device. */
void net_pair_init(struct net_pair *pair, struct virtio_device *device,
		   struct net_backend *backend, unsigned rx);

/*
 * Throws away what the back end holds from before, then starts the worker on those of the two queues
 * that are live. `name` is the thread's. 0 or -errno, then nothing is left running.
 */
int net_pair_start(struct net_pair *pair, const char *name);

/* Stops the worker; when it returns no thread touches the queues. Fine on one that did not start. */
void net_pair_stop(struct net_pair *pair);

#endif
