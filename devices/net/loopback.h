/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A back end for tests: one end of a socketpair in a tap's place. */
#ifndef WHELP_NET_LOOPBACK_H
#define WHELP_NET_LOOPBACK_H

#include "devices/net/backend.h"

/*
 * Makes a back end and gives its other end in `*peer_fd`, non-blocking and the caller's to close:
 * each message there is one frame, preceded by its 12-byte header, as on a tap. Once the peer is
 * closed the back end says -EBADFD. It claims every offload. Logs; NULL on failure. The caller
 * calls ops->close.
 */
struct net_backend *loopback_open(int *peer_fd);

/* The offloads that were set last. */
unsigned loopback_offloads(const struct net_backend *backend);

#endif
