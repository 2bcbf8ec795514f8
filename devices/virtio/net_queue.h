/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One queue pair of a NIC and the worker that owns it: both rings, the back end's queue and the two kick
 * eventfds. See net_queue.c for how it moves frames.
 */
#ifndef WHELP_NET_QUEUE_H
#define WHELP_NET_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/net/backend.h"
#include "devices/virtio/device.h"
#include "devices/virtio/net_ctrl.h"
#include "devices/virtio/net_filter.h"
#include "devices/virtio/net_hash.h"
#include "devices/virtio/net_rx.h"
#include "vmm/log.h"
#include "vmm/loop.h"

/* Counted by the worker, read by anyone, each by itself. They live as long as the device. */
struct net_counters {
	uint64_t packets;
	uint64_t bytes; /* without the header */
	uint64_t batches;
	uint64_t kicks;
	uint64_t interrupts;
	uint64_t dropped;   /* frames lost: too short, too long for the buffers, refused */
	uint64_t malformed; /* of these, those that were the driver's fault */
	uint64_t filtered;  /* RX: frames the driver does not want */
	uint64_t waits;	    /* RX: for buffers, while frames waited. TX: for the back end, which was full */
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

/* What the driver negotiated, for the worker; constant while it runs. */
struct net_mode {
	unsigned header; /* bytes: 12, 20 with HASH_REPORT, 24 with UDP tunnels */
	bool mergeable;
	bool hash_report;
	unsigned offloads; /* NET_OFFLOAD_*: what received frames may be, at first */
};

/* One direction of a pair. */
struct net_queue {
	struct loop_source kick;
	struct virtio_queue *queue;
	unsigned index; /* the queue's, in the device */
	bool active;	/* work may be left: kicks are off */
	bool blocked;	/* RX waits for buffers, TX for the back end */
	struct net_coalescing coalescing;
	struct net_coalescing usual_coalescing; /* what a reset of the queue goes back to */
	uint64_t uninterrupted; /* used buffers since the last interrupt decision */
	uint64_t deadline;	/* of that decision, CLOCK_MONOTONIC, ns; 0: none */
	struct net_counters counters;
};

struct net_pair {
	struct virtio_device *device;
	struct net_backend *backend;
	unsigned index; /* the pair's, and its back end queue's */
	struct net_mode mode;
	const struct net_filter *filter; /* changed on the worker's thread only */
	const struct net_rss *rss;	 /* the same; for the hash report */
	unsigned offloads;		 /* the same: what received frames may be now */
	bool check_header;		 /* frames may come that claim to be more */
	struct worker worker;
	struct loop_source wire;  /* the back end's fd */
	struct loop_source timer; /* timerfd, for delayed interrupts */
	struct loop_source more;  /* work is left that should not be done at once */
	uint32_t wire_events;	  /* what it is watched for; 0: not watched */
	bool attached;		  /* the back end's queue is in use */
	bool wire_gone;
	void (*gone)(struct net_pair *pair); /* called once it is, on the worker's thread */
	bool started;
	struct net_queue rx;
	struct net_queue tx;
	struct log_limit losses;
	struct net_rx receiver;
	struct iovec iov[NET_MAX_PIECES]; /* of the TX chain at hand */
};

/*
 * Sets up a pair that is not started, on queues 2 * index (RX) and 2 * index + 1 (TX) of the device. `gone`
 * is told when the back end says that its other side is gone.
 */
void net_pair_init(struct net_pair *pair, struct virtio_device *device,
		   struct net_backend *backend, unsigned index,
		   void (*gone)(struct net_pair *pair));

/*
 * Starts the worker on those of the two queues that are live. `filter` and `rss` are the caller's and outlive
 * the worker. Pair 0 is attached to its back end queue, after throwing away what that holds from before. 0 or
 * -errno, then nothing is left running.
 */
int net_pair_start(struct net_pair *pair, const char *name, const struct net_mode *mode,
		   const struct net_filter *filter, const struct net_rss *rss);

/* Stops the worker; when it returns no thread touches the queues. Fine on one that did not start. */
void net_pair_stop(struct net_pair *pair);

/* The following run on the worker's thread, in between batches, and return when it is done. */

/* Puts the back end's queue into use or out of it. 0 or -errno. */
int net_pair_attach(struct net_pair *pair, bool on);

/* Gives the worker another filter, and hash settings. The old ones are the caller's again. */
void net_pair_set_filter(struct net_pair *pair, const struct net_filter *filter);
void net_pair_set_rss(struct net_pair *pair, const struct net_rss *rss);

/* What received frames may be from now on: others that the back end still has are dropped. */
void net_pair_set_offloads(struct net_pair *pair, unsigned offloads);

/* When to interrupt for one direction; `usual`: also after a reset of that queue alone. */
void net_pair_set_coalescing(struct net_pair *pair, bool rx, const struct net_coalescing *c,
			     bool usual);

/* The driver resets one queue (RING_RESET): lets go of it, or takes it up again when it is live. */
void net_pair_stop_queue(struct net_pair *pair, unsigned queue);
void net_pair_start_queue(struct net_pair *pair, unsigned queue);

#endif
