/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A back end for tests: one end of a socketpair in the place of each of a tap's queues. */
#ifndef WHELP_NET_LOOPBACK_H
#define WHELP_NET_LOOPBACK_H

#include "devices/net/backend.h"

/*
 * Makes a back end of `queues` queues and gives their other ends in `peer_fds`, non-blocking and
 * the caller's to close: each message there is one frame, preceded by its header of the length
 * that was set, as on a tap. Once its peer is closed a queue says -EBADFD. It claims every
 * offload, and steering if it has several queues. Logs; NULL on failure. The caller calls
 * ops->close.
 *
 * A queue out of use is like a tap's that is detached: it receives nothing (-EAGAIN), what is sent
 * on it is refused (-EBADFD), and what its peer sends meanwhile is lost. enable() out of order is
 * -EINVAL.
 */
struct net_backend *loopback_open(unsigned queues, int *peer_fds);

/* What was set last. The steering is NULL when the back end is to do as it sees fit. */
unsigned loopback_offloads(const struct net_backend *backend);
unsigned loopback_header(const struct net_backend *backend);
const struct net_rss *loopback_steering(const struct net_backend *backend);

/* How many queues are in use: the first so many. */
unsigned loopback_in_use(const struct net_backend *backend);

#endif
