/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receive-side scaling in the kernel: an eBPF program that picks a tap's queue for each frame as
 * the hash of net_hash_frame() says, the queue's number being the pair's. It is given to the tap
 * with TUNSETSTEERINGEBPF, and taken from it with the fd -1.
 *
 * Only steer_open() needs privileges. Everything after works in a process that has dropped them.
 */
#ifndef WHELP_NET_STEER_H
#define WHELP_NET_STEER_H

#include "devices/virtio/net_hash.h"

struct steer;

/*
 * Loads the program; until steer_set() it sends everything to queue 0. Needs Linux 5.5 and CAP_BPF,
 * on kernels as old as 6.1 CAP_PERFMON too. 0, or -errno and *steer NULL: -EPERM or -EACCES without
 * the capabilities, -ENOSYS or -EINVAL on a kernel that cannot. After any error the device has to
 * steer by itself. Does not log.
 */
int steer_open(struct steer **steer);

/* Takes NULL. A tap that has the program keeps it, with the settings as they are. */
void steer_close(struct steer *steer);

/*
 * The program's fd, for TUNSETSTEERINGEBPF. The tap takes the answer modulo the number of its
 * attached queues, which therefore have to be attached in the pairs' order.
 */
int steer_fd(const struct steer *steer);

/*
 * From now on frames go where `rss`, with `steering` true, says; a frame that the kernel is about
 * to queue at this moment may still go where the former settings said. No system call. One thread
 * at a time. -EOPNOTSUPP: `rss` enables an _EX type, which the program does not know; nothing has
 * changed, and the device has to steer.
 */
int steer_set(struct steer *steer, const struct net_rss *rss);

#endif
