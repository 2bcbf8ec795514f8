/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a NIC's frames go to and come from, behind one ops table. A frame is always preceded by the
 * 12-byte virtio-net header of virtio 1.x (5.1.6); a back end whose other side has none adds and
 * strips it.
 */
#ifndef WHELP_NET_BACKEND_H
#define WHELP_NET_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* What a frame handed to the NIC may be, beyond a plain Ethernet frame with its checksums done. */
#define NET_OFFLOAD_CSUM 0x1u /* checksum still to be filled in; the others need it */
#define NET_OFFLOAD_TSO4 0x2u /* TCP over IPv4, up to 64 KiB */
#define NET_OFFLOAD_TSO6 0x4u /* TCP over IPv6, up to 64 KiB */
#define NET_OFFLOAD_ECN	 0x8u /* either, with ECN's bits set */

struct net_backend;

struct net_backend_ops {
	/* Frees it. No other call is under way or follows. */
	void (*close)(struct net_backend *backend);
	/*
	 * From now on received frames use these offloads (a subset of `offloads`) and no others;
	 * frames that were queued before may still use the old ones: drain them. 0 or -errno.
	 */
	int (*set_offloads)(struct net_backend *backend, unsigned offloads);
	/* The fd to poll: EPOLLIN for recv, EPOLLOUT for send after -EAGAIN. Stays the back end's. */
	int (*fd)(struct net_backend *backend);
	/*
	 * One frame into `iov`. Bytes received; a frame that does not fit is cut, and more than
	 * iov's last byte was needed: leave one to tell. -EAGAIN: none is waiting. Never blocks.
	 */
	ssize_t (*recv)(struct net_backend *backend, const struct iovec *iov, unsigned count);
	/*
	 * One frame out of `iov`. Bytes sent; -EAGAIN: not taken, wait for EPOLLOUT; any other error:
	 * this frame is lost, the next may go. -EBADFD from either: the other side is gone for good.
	 */
	ssize_t (*send)(struct net_backend *backend, const struct iovec *iov, unsigned count);
};

struct net_backend {
	const struct net_backend_ops *ops;
	const char *name; /* for messages; the back end's */
	unsigned offloads; /* those it can do: NET_OFFLOAD_* */
};

#endif
