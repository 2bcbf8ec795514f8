/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the parts of a pair: net_pair.c (its life, and what others want of it), net_worker.c
 * (when its frames move), net_transmit.c and net_receive.c (how), net_queue.c (what both directions
 * share). All of it is for the worker's thread, or for a time when none runs.
 */
#ifndef WHELP_NET_PAIR_H
#define WHELP_NET_PAIR_H

#include "devices/virtio/net_queue.h"
#include "devices/virtio/net_worker.h"

/* A frame with less is none: an Ethernet header, in bytes. */
#define NET_MIN_FRAME 14u

/* What a batch has moved. */
struct net_moved {
	unsigned frames; /* all, lost ones included */
	unsigned good;	 /* that came through */
	uint64_t bytes;	 /* of those, with their headers */
};

/* One more frame; `len` with its header. */
static inline void net_moved_add(struct net_moved *moved, bool good, uint64_t len)
{
	moved->frames++;
	if (!good)
		return;
	moved->good++;
	moved->bytes += len;
}

/* Frees a queue of all that its last life left. */
void net_queue_reset(struct net_queue *q);

/* The queue is live, and not dead. */
bool net_queue_usable(const struct net_queue *q);

/* Looks at the queue's ring from now on, without kicks, until it is found empty. */
void net_queue_activate(struct net_queue *q);

/* Counts the kicks that came. */
void net_queue_take_kicks(struct net_queue *q);

/* Has the loop watch the back end for what the queue's state asks for. */
void net_queue_update_wire(struct net_queue *q);

/* A batch: a budget's worth at most. True when there may be more to do at once. */
bool net_queue_transmit(struct net_queue *tx);
bool net_queue_receive(struct net_queue *rx);

/* Whether a popped TX chain is to be sent: 0, or a -errno for net_transmit_account(). */
ssize_t net_transmit_check(const struct net_queue *tx, const struct vq_chain *chain);

/*
 * Uses a chain that was sent, or dropped: `sent` is what send() said. False when it has to wait,
 * and all after it: it is the caller's to unpop, and the queue is blocked.
 */
bool net_transmit_account(struct net_queue *tx, const struct vq_chain *chain, ssize_t sent);

/* For pairs that send by batches. NULL without memory. */
struct net_batch *net_batch_new(void);
void net_batch_free(struct net_batch *batch);

/*
 * A budget's worth of TX; the chains that it used are added to `moved`. As vq_pop() for the last
 * one.
 */
int net_batch_transmit(struct net_queue *tx, struct net_moved *moved);

/* Tells the policy what happened, and does as it says, but for moving frames and spinning. */
void net_queue_ask(struct net_queue *q, enum mitigate_event event, bool preempted);

/* Counts a frame that is lost. */
void net_queue_drop(struct net_queue *q, enum net_drop why);

/* A batch has its first frame: takes the time. */
void net_queue_first(struct net_queue *q);

/*
 * Shows the driver what was used, and interrupts it if it wants to know, and now: after each used
 * buffer, and at the end of each batch, which is told for empty ones, too. Also counts the batch.
 */
void net_queue_used(struct net_queue *q);
void net_queue_finish_batch(struct net_queue *q, const struct net_moved *moved);

/* Decides now whether what was used since the last decision is worth an interrupt. */
void net_queue_decide_interrupt(struct net_queue *q);

/* The ring is dead. */
void net_queue_failed(struct net_queue *q);

/* The back end does not do what (such as "sending to") it should, by a positive errno. */
void net_queue_wire_failed(struct net_queue *q, const char *what, int err);

/* The loop's callbacks. */
void net_transmit_kicked(struct loop_source *source, uint32_t events);
void net_transmit_room(struct loop_source *source, uint32_t events);
void net_receive_kicked(struct loop_source *source, uint32_t events);
void net_receive_frames(struct loop_source *source, uint32_t events);

#endif
