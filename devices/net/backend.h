/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a NIC's frames go to and come from, behind one ops table. It has as many queues as the NIC
 * has pairs; each is used by one thread at a time, and all other calls come while no thread uses
 * any, but for enable(), which comes from the thread that uses that queue.
 *
 * A frame is always preceded by a virtio-net header (5.1.6) of the length that was set; a back end
 * whose other side has none adds and strips it.
 */
#ifndef WHELP_NET_BACKEND_H
#define WHELP_NET_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "devices/virtio/net_hash.h"

/* What a frame handed to the NIC may be, beyond a plain Ethernet frame with its checksums done. */
#define NET_OFFLOAD_CSUM	0x01u /* checksum still to be filled in; the others need it */
#define NET_OFFLOAD_TSO4	0x02u /* TCP over IPv4, up to 64 KiB */
#define NET_OFFLOAD_TSO6	0x04u /* TCP over IPv6, up to 64 KiB */
#define NET_OFFLOAD_ECN		0x08u /* either, with ECN's bits set */
#define NET_OFFLOAD_UFO		0x10u /* UDP to be fragmented */
#define NET_OFFLOAD_USO		0x20u /* UDP to be segmented, over IPv4 and IPv6 */
#define NET_OFFLOAD_TUNNEL	0x40u /* TCP inside of a UDP tunnel */
#define NET_OFFLOAD_TUNNEL_CSUM 0x80u /* the same with the outer checksum to be filled in */

/*
 * The largest frame with offloads, header included: 64 KiB, Ethernet header and a VLAN tag, header.
 */
#define NET_MAX_FRAME (65535u + 18u + 24u)

#define NET_MAX_BATCH 64u /* frames */

struct net_backend;

/* One of several frames to send. */
struct net_frame {
	const struct iovec *iov;
	unsigned count;
	ssize_t sent; /* what send() would have returned */
};

/* From all that return -errno, -EBADFD means that the other side is gone for good. */
struct net_backend_ops {
	/* Frees it. No other call is under way or follows. */
	void (*close)(struct net_backend *backend);
	/*
	 * From now on received frames use these offloads (a subset of `offloads`) and no others;
	 * frames that were queued before may still use the old ones: drop them. 0 or -errno.
	 */
	int (*set_offloads)(struct net_backend *backend, unsigned offloads);
	/*
	 * The header's length in bytes from now on: 12 (the length at first), 20 or 24. 0 or
	 * -errno.
	 */
	int (*set_header)(struct net_backend *backend, unsigned size);
	/*
	 * Puts a queue into use or out of it: only those in use are given frames. Queue 0 is in use
	 * at first; queues are put into use in ascending order, and out of it in descending. 0 or
	 * -errno.
	 */
	int (*enable)(struct net_backend *backend, unsigned queue, bool on);
	/*
	 * Spreads received frames over the queues in use as `rss` says, or as the back end sees fit
	 * (NULL). 0, -EOPNOTSUPP or another -errno, then nothing changed.
	 */
	int (*set_steering)(struct net_backend *backend, const struct net_rss *rss);
	/*
	 * The fd to poll: EPOLLIN for recv, EPOLLOUT for send after -EAGAIN. Stays the back end's.
	 */
	int (*fd)(struct net_backend *backend, unsigned queue);
	/*
	 * One frame into `iov`. Bytes received; a frame that does not fit is cut, and more than
	 * iov's last byte was needed: leave one to tell. -EAGAIN: none is waiting. Never blocks.
	 */
	ssize_t (*recv)(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			unsigned count);
	/*
	 * One frame out of `iov`. Bytes sent; -EAGAIN: not taken, wait for EPOLLOUT; any other
	 * error: this frame is lost, the next may go. -EBADFD from either, on a queue in use: the
	 * other side is gone for good.
	 */
	ssize_t (*send)(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			unsigned count);
	/*
	 * Gets ready for send_batch(), before any queue is used, and may be called again. 0 or
	 * -errno: then frames have to be sent one by one. NULL: always so.
	 */
	int (*open_batches)(struct net_backend *backend);
	/*
	 * Sends up to NET_MAX_BATCH frames in their order, and has let go of them all on return. Those
	 * that were not taken (-EAGAIN) are the last.
	 */
	void (*send_batch)(struct net_backend *backend, unsigned queue, struct net_frame *frames,
			   unsigned count);
};

struct net_backend {
	const struct net_backend_ops *ops;
	const char *name;  /* for messages; the back end's */
	unsigned queues;   /* it has */
	unsigned offloads; /* those it can do: NET_OFFLOAD_* */
	bool steering;	   /* set_steering() works */
};

/* Throws away the frames that wait on a queue: 8192 of them at most. */
void net_backend_drain(struct net_backend *backend, unsigned queue);

/* What send_batch() does, by a send() each. */
void net_backend_send_each(struct net_backend *backend, unsigned queue, struct net_frame *frames,
			   unsigned count);

#endif
