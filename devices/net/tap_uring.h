/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sends several frames to a tap by one system call, through io_uring.
 */
#ifndef WHELP_TAP_URING_H
#define WHELP_TAP_URING_H

#include "devices/net/backend.h"

struct tap_uring;

/*
 * Makes one for a queue's file `fd`, which stays the caller's and must outlive it. NULL with errno
 * set: EOPNOTSUPP where this kernel would need a thread for each write to a tap (before Linux 6.4).
 */
struct tap_uring *tap_uring_open(int fd);

/* Fine on NULL. */
void tap_uring_close(struct tap_uring *uring);

/* As send_batch() of struct net_backend_ops. One thread at a time. */
void tap_uring_send(struct tap_uring *uring, struct net_frame *frames, unsigned count);

#endif
