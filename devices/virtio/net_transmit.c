/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * TX: a chain's bytes, header included, go to the back end straight from guest memory. A full back
 * end (-EAGAIN) puts the chain back, and EPOLLOUT goes on with it: order is kept and nothing spins.
 * Whoever is told a kick asks the policy what to do about it (mitigate.h).
 */
#include <errno.h>

#include "devices/virtio/net_pair.h"
#include "vmm/util.h"

/*
 * Drivers keep some places free for a frame of many pieces: Linux stops sending when it has 18
 * left, of 256 mostly.
 */
#define FULL(size) ((size) - (size) / 8u)

#define TOO_SHORT (-ENODATA)

static void wait_for_room(struct net_queue *tx)
{
	tx->blocked = true;
	net_count(&tx->counters.waits, 1);
	net_queue_update_wire(tx);
}

ssize_t net_transmit_check(const struct net_queue *tx, const struct vq_chain *chain)
{
	const struct net_pair *pair = tx->pair;

	if (chain->readable_bytes < pair->mode.header + NET_MIN_FRAME)
		return TOO_SHORT;
	if (!tx->attached || atomic_load_explicit(&pair->is_gone, memory_order_relaxed))
		return -EBADFD;
	return 0;
}

static void drop(struct net_queue *tx, int err)
{
	if (err == TOO_SHORT) {
		net_queue_drop(tx, NET_DROP_SHORT);
		return;
	}
	/* EINVAL: the header makes no sense for this frame. */
	if (err == -EINVAL)
		net_queue_drop(tx, NET_DROP_MALFORMED);
	else
		net_queue_drop(tx, err == -EBADFD ? NET_DROP_GONE : NET_DROP_REFUSED);
	if (tx->attached)
		net_queue_wire_failed(tx, "sending to", -err);
}

bool net_transmit_account(struct net_queue *tx, const struct vq_chain *chain, ssize_t sent)
{
	if (sent == -EAGAIN) {
		wait_for_room(tx);
		return false;
	}
	if (sent < 0)
		drop(tx, (int)sent);
	/* The device writes nothing to a TX buffer (5.1.6.2). */
	vq_push(&tx->queue->vq, chain, 0);
	net_queue_used(tx);
	return true;
}

static ssize_t send_chain(const struct net_queue *tx, const struct vq_chain *chain)
{
	struct net_backend *backend = tx->pair->backend;
	ssize_t err = net_transmit_check(tx, chain);

	return err ? err
		   : backend->ops->send(backend, tx->pair->index, chain->iov, chain->readable);
}

/* A budget's worth, one by one. As vq_pop() for the last. */
static int transmit(struct net_queue *tx, struct net_moved *moved)
{
	struct vq_chain chain = { .iov = tx->pair->iov, .room = NET_MAX_PIECES };
	struct virtqueue *vq = &tx->queue->vq;
	uint64_t bytes = 0;
	int popped = 1;

	while (moved->frames < tx->budget_packets && bytes < tx->budget_bytes) {
		ssize_t sent;

		popped = vq_pop(vq, &chain);
		if (popped <= 0)
			break;
		sent = send_chain(tx, &chain);
		if (!moved->frames && sent != -EAGAIN)
			net_queue_first(tx);
		if (!net_transmit_account(tx, &chain, sent)) {
			vq_unpop(vq, &chain);
			break;
		}
		net_moved_add(moved, sent >= 0, chain.readable_bytes);
		bytes += chain.readable_bytes;
	}
	return popped;
}

bool net_queue_transmit(struct net_queue *tx)
{
	struct virtqueue *vq = &tx->queue->vq;
	struct net_moved moved = { 0 };
	int popped;

	net_count(&tx->counters.ring_full, vq_holds(vq, FULL(vq->size)));
	popped = tx->pair->batch ? net_batch_transmit(tx, &moved) : transmit(tx, &moved);
	net_queue_finish_batch(tx, &moved);
	/* A kick for nothing. */
	if (!moved.frames && !tx->blocked)
		tx->kicked_at = 0;
	if (popped < 0)
		net_queue_failed(tx);
	return popped > 0 && !tx->blocked;
}

void net_transmit_kicked(struct loop_source *source, uint32_t events)
{
	struct net_queue *tx = container_of(source, struct net_queue, kick);

	(void)events;
	net_queue_take_kicks(tx);
	if (tx->blocked && atomic_load(&tx->pair->is_gone)) {
		tx->blocked = false;
		net_queue_update_wire(tx);
	}
	/* One that is looked at already needs no telling. */
	if (net_queue_usable(tx) && !tx->active && !tx->spinning) {
		vq_kicks_disable(&tx->queue->vq);
		net_queue_ask(tx, MITIGATE_KICKED, false);
		if (!tx->kicked_at)
			tx->kicked_at = tx->asked;
	}
	net_worker_run(tx->worker);
}

/* An error is found by sending. */
void net_transmit_room(struct loop_source *source, uint32_t events)
{
	struct net_queue *tx = container_of(source, struct net_queue, wire);

	(void)events;
	tx->blocked = false;
	net_queue_update_wire(tx);
	net_worker_run(tx->worker);
}
