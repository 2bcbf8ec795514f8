/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One queue pair of a NIC: both rings, and the back end's queue. Each direction belongs to a
 * worker, which may be one for both, or for all of the NIC's; see net_worker.h.
 */
#ifndef WHELP_NET_QUEUE_H
#define WHELP_NET_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/net/backend.h"
#include "devices/virtio/device.h"
#include "devices/virtio/mitigate.h"
#include "devices/virtio/net_ctrl.h"
#include "devices/virtio/net_filter.h"
#include "devices/virtio/net_hash.h"
#include "devices/virtio/net_rx.h"
#include "vmm/counter.h"
#include "vmm/histogram.h"
#include "vmm/log.h"
#include "vmm/loop.h"

/* Why a frame was lost. */
enum net_drop {
	NET_DROP_SHORT,	    /* it has no Ethernet header */
	NET_DROP_MALFORMED, /* TX: the virtio header makes no sense for it */
	NET_DROP_REFUSED,   /* TX: the back end, for another reason */
	NET_DROP_GONE,	    /* TX: the back end is gone, or the pair not in use */
	NET_DROP_OFFLOAD,   /* RX: it uses an offload that the driver has not, or no longer */
	NET_DROP_ROOM,	    /* RX: no buffers that the driver can provide hold it */
	NET_DROPS,
};

/*
 * Counted by the worker, read by anyone, each by itself (counter.h). They live as long as the
 * device. docs/counters.md says to the word what each is.
 */
struct net_counters {
	uint64_t packets;
	uint64_t bytes; /* without the header */
	uint64_t batches;
	uint64_t kicks;
	uint64_t interrupts;
	uint64_t unwanted; /* batches after which the driver wanted no interrupt */
	uint64_t dropped;  /* the sum of `drops` */
	uint64_t filtered; /* RX: frames the driver does not want */
	uint64_t waits;	   /* RX: for buffers, with frames there. TX: for room in the back end */
	uint64_t ring_full; /* TX: batches that found the ring all but full */
	uint64_t timers_useful; /* of the policy: there were frames, */
	uint64_t timers_empty;	/* or none */
	uint64_t timers_interrupt; /* ends of a driver's wish to have interrupts later */
	uint64_t polls_hit;
	uint64_t polls_missed;
	uint64_t poll_ns;
	uint64_t drops[NET_DROPS];
	struct histogram batch_sizes; /* frames */
	struct histogram kick_to_tap; /* ns */
	struct histogram tap_to_used; /* ns */
};

static inline void net_count(uint64_t *counter, uint64_t n)
{
	counter_add(counter, n);
}

static inline uint64_t net_counter(const uint64_t *counter)
{
	return counter_read(counter);
}

/* The time, for the counters alone; CLOCK_MONOTONIC, ns. */
static inline uint64_t net_clock(void)
{
	return loop_now();
}

/* What the driver negotiated, for the workers; constant while they run. */
struct net_mode {
	unsigned header; /* bytes: 12, 20 with HASH_REPORT, 24 with UDP tunnels */
	bool mergeable;
	bool hash_report;
	unsigned offloads; /* NET_OFFLOAD_*: what received frames may be, at first */
};

struct net_pair;
struct net_worker;
struct net_batch;

/*
 * One direction of a pair: a ring, and the back end's queue in that direction. One worker's alone.
 */
struct net_queue {
	struct net_pair *pair;
	struct net_worker *worker;
	struct loop_source kick;
	struct loop_source wire; /* the back end: frames to receive, or room to send */
	bool watched;		 /* `wire` is in the loop */
	struct virtio_queue *queue;
	unsigned index; /* the queue's, in the device */
	bool tx;
	bool taken;    /* its ring was live when it was given to the worker, which alone looks */
	bool active;   /* work may be left: kicks are off */
	bool blocked;  /* RX waits for buffers, TX for the back end */
	bool spinning; /* its policy has asked for a spin */
	bool attached; /* the back end's queue is in use */
	struct net_coalescing coalescing;
	struct net_coalescing usual_coalescing; /* what a reset of the queue goes back to */
	uint64_t uninterrupted;			/* used buffers since the last interrupt decision */
	uint64_t deadline;			/* of that decision, CLOCK_MONOTONIC, ns; 0: none */
	struct mitigate_config policy;
	struct mitigate_state state;
	uint32_t budget_packets; /* of a batch */
	uint32_t budget_bytes;
	unsigned used;	/* buffers since the driver was shown any */
	unsigned moved; /* frames since the policy was asked last */
	uint64_t spin_until;
	uint64_t wake;	/* when the policy wants to be asked again, as `deadline` */
	bool expired;	/* that time has come, and no batch since */
	/* For the counters: CLOCK_MONOTONIC, ns; 0: none. */
	uint64_t asked;	     /* the policy, last */
	uint64_t kicked_at;  /* the first kick whose frames have not yet gone out */
	uint64_t first_at;   /* the batch's first frame went out or came in */
	unsigned untimed;    /* that many batches to come are not timed */
	struct net_counters counters;
};

struct net_pair {
	struct virtio_device *device;
	struct net_backend *backend;
	const struct net_tuning *tuning;
	unsigned index; /* the pair's, and its back end queue's */
	struct net_mode mode;
	bool started;
	atomic_bool is_gone;		     /* the back end's other side, for good */
	void (*gone)(struct net_pair *pair); /* told once, by the worker that finds it */
	struct log_limit losses;
	struct net_queue rx;
	struct net_queue tx;
	/* RX's worker's. */
	const struct net_filter *filter;
	const struct net_rss *rss; /* for the hash report */
	unsigned offloads;	   /* what received frames may be now */
	bool check_header;	   /* frames may come that claim to be more */
	struct net_rx receiver;
	/* TX's worker's. */
	int room_fd;			  /* the back end's fd again, to wait for room to send */
	struct iovec iov[NET_MAX_PIECES]; /* of the chain at hand */
	struct net_batch *batch;	  /* NULL: frames are sent one by one */
};

/*
 * Sets up a pair that is not started, on queues 2 * index (RX) and 2 * index + 1 (TX) of the
 * device, with their workers. `gone` is told when the back end says that its other side is gone.
 * `tuning` is the caller's.
 */
void net_pair_init(struct net_pair *pair, struct virtio_device *device, struct net_backend *backend,
		   const struct net_tuning *tuning, unsigned index, struct net_worker *rx,
		   struct net_worker *tx, void (*gone)(struct net_pair *pair));

/*
 * Gives those of the two queues that are live to their workers, which are open and not started.
 * `filter` and `rss` are the caller's and outlive the workers' run. What the back end holds from
 * before is thrown away, if it is attached. 0 or -errno.
 */
int net_pair_start(struct net_pair *pair, const struct net_mode *mode,
		   const struct mitigate_config *policy, const struct net_filter *filter,
		   const struct net_rss *rss);

/* Before it starts: sends by batches from now on, which the back end is ready for. 0 or -ENOMEM. */
int net_pair_use_batches(struct net_pair *pair);

/* Gives back what that took. */
void net_pair_fini(struct net_pair *pair);

/* After both workers are closed. Fine on one that did not start. */
void net_pair_stop(struct net_pair *pair);

/* The following run on the workers' threads, in between batches, and return when it is done. */

/* Puts the back end's queue into use or out of it. 0 or -errno. */
int net_pair_attach(struct net_pair *pair, bool on);

/* Gives the workers another filter, and hash settings. The old ones are the caller's again. */
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
