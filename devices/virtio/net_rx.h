/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The receiving half of a queue pair: buffers at hand, and frames read into them. Used by
 * net_queue.c, on the worker's thread only.
 */
#ifndef WHELP_NET_RX_H
#define WHELP_NET_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/net/backend.h"
#include "devices/virtio/virtqueue.h"

struct net_worker;

/* What readv and writev take (UIO_MAXIOV). */
#define NET_MAX_PIECES 1024u

/* A receive buffer of more pieces kills the queue. */
#define NET_RX_MAX_CHAIN 511u

/*
 * Chains that were popped and not yet used, in order, and their pieces in one array, so that a
 * frame of any size is one read into as many buffers as it takes.
 */
struct net_stock {
	struct vq_chain chains[NET_MAX_PIECES]; /* each has at least one piece */
	unsigned first;				/* chain */
	unsigned count;				/* chains */
	unsigned descriptors;			/* of the queue's that they take */
	size_t bytes;				/* room in them */
	struct iovec iov[NET_MAX_PIECES];
	unsigned iov_first; /* the first chain's first piece */
	unsigned iov_end;   /* behind the last chain's last piece */
};

struct net_rx {
	struct virtqueue *vq;
	struct net_backend *backend;
	unsigned index;		   /* the back end's queue */
	bool mergeable;		   /* a frame may span chains (MRG_RXBUF) */
	bool copy;		   /* frames come by way of `spill` */
	struct net_worker *worker; /* whose lock is left while reading; NULL: there is none */
	struct net_stock stock;
	size_t usual;	/* no frame of late was larger; bytes, header included */
	size_t largest; /* of the last `seen` frames: what is to be usual next */
	unsigned seen;
	/*
	 * A frame that the buffers it was read into did not hold waits for more: `held` bytes in
	 * all, of which those beyond the first `held_room` are at `tail`.
	 */
	size_t held;
	size_t held_room;
	const uint8_t *tail; /* in `spill` */
	uint8_t spill[NET_MAX_FRAME];
};

enum net_rx_result {
	NET_RX_FRAME,	/* one lies in the first buffers: net_rx_use() it, or nothing drops it */
	NET_RX_EMPTY,	/* the back end has none */
	NET_RX_STARVED, /* the ring has no buffer, or not enough for the frame that waits */
	NET_RX_LOST,	/* one was dropped: no buffers that the driver can provide would hold it */
	NET_RX_ERROR,	/* the back end failed, `*len` is -errno */
	NET_RX_FAULT,	/* the queue is dead */
};

/* At activation: no buffers, no frame. */
void net_rx_init(struct net_rx *rx, struct virtqueue *vq, struct net_backend *backend,
		 unsigned index, bool mergeable);

/* Tries to get the next frame; its length, header included, goes to `*len`. */
enum net_rx_result net_rx_receive(struct net_rx *rx, ssize_t *len);

/* Copies out of or into the frame in the first buffers; returns how many bytes there were. */
size_t net_rx_peek(const struct net_rx *rx, size_t offset, void *data, size_t len);
size_t net_rx_poke(const struct net_rx *rx, size_t offset, const void *data, size_t len);

/* Stages the frame's buffers as used, with num_buffers in its header. The caller publishes. */
void net_rx_use(struct net_rx *rx, size_t len);

#endif
