/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * TX by batches: all chains that the budget allows are popped first, then sent at once where that
 * pays, and then used in their order. Chains that a full back end did not take go back, the last
 * one first.
 */
#include <errno.h>
#include <stdlib.h>

#include "devices/virtio/net_pair.h"
#include "vmm/util.h"

/* From so many on, one io_uring submission is cheaper than a system call a frame. */
#define WORTH_IT 8u

struct net_batch {
	struct vq_chain chains[NET_MAX_BATCH];
	ssize_t results[NET_MAX_BATCH];
	struct net_frame frames[NET_MAX_BATCH];
	unsigned count;
	unsigned pieces;
	/* A chain may have as many as the first half, whatever came before it. */
	struct iovec iov[2 * NET_MAX_PIECES];
};

struct net_batch *net_batch_new(void)
{
	return calloc(1, sizeof(struct net_batch));
}

void net_batch_free(struct net_batch *batch)
{
	free(batch);
}

/* As vq_pop() for the last of them. */
static int gather(struct net_queue *tx, struct net_batch *b)
{
	unsigned most = MIN(tx->budget_packets, NET_MAX_BATCH);
	uint64_t bytes = 0;
	int popped = 1;

	b->count = b->pieces = 0;
	while (b->count < most && bytes < tx->budget_bytes && b->pieces <= NET_MAX_PIECES) {
		struct vq_chain *chain = &b->chains[b->count];

		*chain = (struct vq_chain){ .iov = &b->iov[b->pieces], .room = NET_MAX_PIECES };
		popped = vq_pop(&tx->queue->vq, chain);
		if (popped <= 0)
			break;
		b->pieces += chain->readable + chain->writable;
		bytes += chain->readable_bytes;
		b->count++;
	}
	return popped;
}

/* Sends all that are frames, at once if that pays. */
static void send_frames(const struct net_queue *tx, struct net_frame *frames, unsigned count)
{
	struct net_backend *backend = tx->pair->backend;
	unsigned index = tx->pair->index;

	if (count && (count >= WORTH_IT || tx->pair->tuning->io == NET_IO_URING))
		backend->ops->send_batch(backend, index, frames, count);
	else
		net_backend_send_each(backend, index, frames, count);
}

static void send_all(struct net_queue *tx, struct net_batch *b)
{
	unsigned origin[NET_MAX_BATCH], count = 0;

	for (unsigned i = 0; i < b->count; i++) {
		const struct vq_chain *chain = &b->chains[i];

		b->results[i] = net_transmit_check(tx, chain);
		if (b->results[i])
			continue;
		origin[count] = i;
		b->frames[count++] = (struct net_frame){ chain->iov, chain->readable, 0 };
	}
	send_frames(tx, b->frames, count);
	for (unsigned i = 0; i < count; i++)
		b->results[origin[i]] = b->frames[i].sent;
}

int net_batch_transmit(struct net_queue *tx, struct net_moved *moved)
{
	struct net_batch *b = tx->pair->batch;
	int popped = gather(tx, b);
	unsigned taken = 0;

	send_all(tx, b);
	while (taken < b->count && b->results[taken] != -EAGAIN)
		taken++;
	/* When the first one was taken is not known before all are. */
	if (taken)
		net_queue_first(tx);
	for (unsigned back = b->count; back > taken; back--)
		vq_unpop(&tx->queue->vq, &b->chains[back - 1]);
	for (unsigned i = 0; i < taken; i++) {
		net_transmit_account(tx, &b->chains[i], b->results[i]);
		net_moved_add(moved, b->results[i] >= 0, b->chains[i].readable_bytes);
	}
	if (taken < b->count)
		net_transmit_account(tx, &b->chains[taken], -EAGAIN);
	return popped;
}
