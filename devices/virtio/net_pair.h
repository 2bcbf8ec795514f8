/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between net_pair.c (a pair's life, and what others want of it) and net_queue.c (its frames). All of it is
 * for the worker's thread, or for a time when none runs.
 */
#ifndef WHELP_NET_PAIR_H
#define WHELP_NET_PAIR_H

#include "devices/virtio/net_queue.h"

/* The loop's callbacks. */
void net_tx_kicked(struct loop_source *source, uint32_t events);
void net_rx_kicked(struct loop_source *source, uint32_t events);
void net_wire_ready(struct loop_source *source, uint32_t events);
void net_timer_ready(struct loop_source *source, uint32_t events);
void net_more_ready(struct loop_source *source, uint32_t events);

/* The queue is live, and not dead. */
bool net_usable(const struct net_queue *q);

/* Has the loop watch the back end for what the pair's state asks for. */
void net_update_wire(struct net_pair *pair);

/* Has the timer fire at the earlier of both deadlines, or not at all. */
void net_update_timer(struct net_pair *pair);

/* Decides now whether what was used since the last decision is worth an interrupt. */
void net_decide_interrupt(struct net_pair *pair, struct net_queue *q);

/* Looks at the queue's ring from now on, without kicks, until it is found empty. */
void net_activate_queue(struct net_queue *q);

/* Does the work there is, or a good deal of it and has the loop go on with the rest. */
void net_run(struct net_pair *pair);

#endif
