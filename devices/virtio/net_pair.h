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

/* Frees a queue of all that its last life left. */
void net_queue_reset(struct net_queue *q);

/* The queue is live, and not dead. */
bool net_queue_usable(const struct net_queue *q);

/* Looks at the queue's ring from now on, without kicks, until it is found empty. */
void net_queue_activate(struct net_queue *q);

/* Has the loop watch the back end for what the queue's state asks for. */
void net_queue_update_wire(struct net_queue *q);

/* A batch: a budget's worth at most. True when there may be more to do at once. */
bool net_queue_transmit(struct net_queue *tx);
bool net_queue_receive(struct net_queue *rx);

/* Tells the policy what happened, and does as it says, but for moving frames and spinning. */
void net_queue_ask(struct net_queue *q, enum mitigate_event event, bool preempted);

/* Counts a frame of `bytes` with its header. */
void net_queue_count(struct net_queue *q, size_t bytes);

/* Counts a frame that is lost. */
void net_queue_drop(struct net_queue *q, enum net_drop why);

/* A batch has its first frame: takes the time. */
void net_queue_first(struct net_queue *q);

/*
 * Shows the driver what was used, and interrupts it if it wants to know, and now: after each used
 * buffer, and at the end of each batch of `frames`, which is called for empty ones, too.
 */
void net_queue_used(struct net_queue *q);
void net_queue_finish_batch(struct net_queue *q, unsigned frames);

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
