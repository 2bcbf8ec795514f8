/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worker sleeps in its loop on three fds: a kick for each queue, and the back end. Woken, it takes
 * TX and RX in turn, a bounded batch each, until neither has work:
 *
 * - TX: a chain's bytes, header included, go to the back end straight from guest memory. Kicks are off
 *   from the first one until the ring is seen empty. A full back end (-EAGAIN) puts the chain back, and
 *   EPOLLOUT goes on with it: order is kept and nothing spins.
 * - RX: a frame is read straight into the next buffer. Kicks are off; only when frames wait and the guest
 *   has no buffer are they asked for, and the back end is not looked at until one comes. The guest learns
 *   nothing of a frame that does not fit: one byte behind the buffer shows that it was cut, and it is
 *   dropped.
 *
 * Used buffers are published, and the interrupt decided on, once a batch.
 */
#include "devices/virtio/net_queue.h"

#include <errno.h>
#include <linux/virtio_net.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "vmm/iov.h"
#include "vmm/le.h"
#include "vmm/util.h"

#define BATCH_PACKETS 64u
#define BATCH_BYTES   KIB(512)
#define HEADER_SIZE   sizeof(struct virtio_net_hdr_v1)
#define MIN_FRAME     14u /* an Ethernet header */

/* How many frames of an old life to throw away at most: the back end may refill as fast as we read. */
#define DRAIN_LIMIT 8192u

static bool usable(const struct net_queue *q)
{
	return q->queue->vq.live && !q->queue->vq.fault;
}

static void update_wire(struct net_pair *pair)
{
	struct loop *loop = &pair->worker.loop;
	uint32_t events = 0;

	if (!pair->wire_gone) {
		if (usable(&pair->rx) && !pair->rx.blocked)
			events |= EPOLLIN;
		if (pair->tx.blocked)
			events |= EPOLLOUT;
	}
	if (events == pair->wire_events)
		return;
	/* Watched for nothing, epoll would still report errors, again and again. */
	if (!events)
		loop_remove(loop, &pair->wire);
	else if (!pair->wire_events)
		loop_add(loop, &pair->wire, events);
	else
		loop_change(loop, &pair->wire, events);
	pair->wire_events = events;
}

static void wire_failed(struct net_pair *pair, const char *what, int err)
{
	if (err == EBADFD && !pair->wire_gone) {
		log_warn("%s: %s is gone: the guest's NIC is cut off", pair->device->name,
			 pair->backend->name);
		pair->wire_gone = true;
		pair->tx.blocked = false;
		update_wire(pair);
	} else if (!pair->wire_gone) {
		log_limited(&pair->losses, "%s: %s %s: %s: the frame is lost",
			    pair->device->name, what, pair->backend->name, strerror(err));
	}
}

static void queue_failed(struct net_pair *pair, struct net_queue *q)
{
	q->active = false;
	update_wire(pair);
	virtio_device_failed(pair->device, q->index, q->queue->vq.fault);
}

/* Ends a batch: shows the driver what was used, and interrupts it if it wants to know. */
static void finish_batch(struct net_pair *pair, struct net_queue *q)
{
	vq_publish(&q->queue->vq);
	if (!vq_needs_interrupt(&q->queue->vq))
		return;
	net_count(&q->counters.interrupts, 1);
	virtio_queue_interrupt(pair->device, q->index);
}

static void count_frame(struct net_queue *q, size_t bytes)
{
	net_count(&q->counters.packets, 1);
	net_count(&q->counters.bytes, bytes - HEADER_SIZE);
}

/* Sends one chain. False when the back end is full and the chain has to wait. */
static bool send_chain(struct net_pair *pair, const struct vq_chain *chain)
{
	struct net_queue *tx = &pair->tx;
	ssize_t sent = -EBADFD;

	if (chain->readable_bytes < HEADER_SIZE + MIN_FRAME) {
		net_count(&tx->counters.dropped, 1);
		return true;
	}
	if (!pair->wire_gone)
		sent = pair->backend->ops->send(pair->backend, chain->iov, chain->readable);
	if (sent == -EAGAIN)
		return false;
	if (sent < 0) {
		net_count(&tx->counters.dropped, 1);
		wire_failed(pair, "sending to", (int)-sent);
	} else {
		count_frame(tx, chain->readable_bytes);
	}
	return true;
}

/* One batch of TX. True when there may be more to do at once. */
static bool run_tx(struct net_pair *pair)
{
	struct net_queue *tx = &pair->tx;
	struct virtqueue *vq = &tx->queue->vq;
	struct vq_chain chain = { .iov = pair->iov, .room = NET_MAX_PIECES };
	unsigned packets = 0;
	uint64_t bytes = 0;
	int popped = 1;

	if (!tx->active || tx->blocked)
		return false;
	while (packets < BATCH_PACKETS && bytes < BATCH_BYTES) {
		popped = vq_pop(vq, &chain);
		if (popped <= 0)
			break;
		if (!send_chain(pair, &chain)) {
			vq_unpop(vq, 1);
			tx->blocked = true;
			net_count(&tx->counters.waits, 1);
			break;
		}
		/* The device writes nothing to a TX buffer (5.1.6.2). */
		vq_push(vq, &chain, 0);
		packets++;
		bytes += chain.readable_bytes;
	}
	if (packets) {
		net_count(&tx->counters.batches, 1);
		finish_batch(pair, tx);
	}
	if (popped < 0)
		queue_failed(pair, tx);
	if (tx->blocked)
		update_wire(pair);
	else if (!popped)
		tx->active = vq_kicks_enable(vq);
	return tx->active && !tx->blocked;
}

/* The header's last field says how many buffers the frame is in; without MRG_RXBUF that is one (5.1.6.4.1). */
static void set_num_buffers(const struct vq_chain *chain)
{
	const le16 one = { 1 };

	iov_write(chain->iov, chain->writable, offsetof(struct virtio_net_hdr_v1, num_buffers), &one,
		  sizeof(one));
}

enum receive_result { RECEIVED, DROPPED, NOTHING };

/* Receives one frame into the chain. */
static enum receive_result receive_chain(struct net_pair *pair, struct vq_chain *chain)
{
	struct net_queue *rx = &pair->rx;
	uint8_t beyond;
	ssize_t got;

	chain->iov[chain->writable] = (struct iovec){ .iov_base = &beyond, .iov_len = 1 };
	got = pair->backend->ops->recv(pair->backend, chain->iov, chain->writable + 1);
	if (got < 0) {
		if (got != -EAGAIN)
			wire_failed(pair, "receiving from", (int)-got);
		return NOTHING;
	}
	if ((size_t)got > chain->writable_bytes || (size_t)got < HEADER_SIZE) {
		net_count(&rx->counters.dropped, 1);
		return DROPPED;
	}
	set_num_buffers(chain);
	vq_push(&rx->queue->vq, chain, (uint32_t)got);
	count_frame(rx, (size_t)got);
	return RECEIVED;
}

/* Frames wait, and there is no buffer: asks for a kick. True when one came just now. */
static bool wait_for_buffers(struct net_pair *pair)
{
	struct net_queue *rx = &pair->rx;

	if (vq_kicks_enable(&rx->queue->vq)) {
		vq_kicks_disable(&rx->queue->vq);
		return true;
	}
	rx->blocked = true;
	rx->active = false;
	net_count(&rx->counters.waits, 1);
	update_wire(pair);
	return false;
}

/* One batch of RX. True when there may be more to do at once. */
static bool run_rx(struct net_pair *pair)
{
	struct net_queue *rx = &pair->rx;
	struct virtqueue *vq = &rx->queue->vq;
	/* One piece stays free for the byte behind the buffer. */
	struct vq_chain chain = { .iov = pair->iov, .room = NET_MAX_PIECES - 1 };
	enum receive_result result = RECEIVED;
	unsigned taken = 0, used = 0;
	int popped = 1;

	if (!rx->active || rx->blocked)
		return false;
	while (taken < BATCH_PACKETS && result != NOTHING) {
		popped = vq_pop(vq, &chain);
		if (popped <= 0)
			break;
		taken++;
		if (chain.readable || chain.writable_bytes < HEADER_SIZE) {
			/* No place for a header: handed back unused, so that it cannot stay in the way. */
			vq_push(vq, &chain, 0);
			used++;
			continue;
		}
		result = receive_chain(pair, &chain);
		if (result == RECEIVED)
			used++;
		else
			vq_unpop(vq, 1);
	}
	if (used) {
		net_count(&rx->counters.batches, 1);
		finish_batch(pair, rx);
	}
	if (popped < 0)
		queue_failed(pair, rx);
	else if (!popped)
		return wait_for_buffers(pair);
	if (result == NOTHING)
		rx->active = false;
	return rx->active;
}

static void run(struct net_pair *pair)
{
	bool more = true;

	while (more && !loop_stopping(&pair->worker.loop)) {
		more = run_tx(pair);
		more |= run_rx(pair);
		/* RX may have found the back end gone, for which TX was waiting. */
		more |= pair->tx.active && !pair->tx.blocked;
	}
}

/* Looks at the queue's ring from now on, without kicks, until it is found empty. */
static void activate_queue(struct net_queue *q)
{
	if (!usable(q))
		return;
	vq_kicks_disable(&q->queue->vq);
	q->active = true;
}

static void take_kicks(struct net_queue *q)
{
	uint64_t kicks;

	if (read(q->kick.fd, &kicks, sizeof(kicks)) == sizeof(kicks))
		net_count(&q->counters.kicks, kicks);
	activate_queue(q);
}

static void tx_kicked(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, tx.kick);

	(void)events;
	take_kicks(&pair->tx);
	run(pair);
}

static void rx_kicked(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, rx.kick);

	(void)events;
	take_kicks(&pair->rx);
	pair->rx.blocked = false;
	update_wire(pair);
	run(pair);
}

static void wire_ready(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, wire);

	if (events & EPOLLOUT)
		pair->tx.blocked = false;
	/* An error is found by reading, or by writing where only that is waited for. */
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
		pair->rx.active = usable(&pair->rx);
		pair->tx.blocked = false;
	}
	run(pair);
	update_wire(pair);
}

/* First thing in the worker's thread: buffers may have been made available before DRIVER_OK. */
static void begin(struct worker *worker)
{
	struct net_pair *pair = container_of(worker, struct net_pair, worker);

	activate_queue(&pair->tx);
	activate_queue(&pair->rx);
	run(pair);
}

static void init_queue(struct net_queue *q, struct virtio_device *device, unsigned index,
		       loop_ready_fn *kicked)
{
	q->queue = &device->queues[index];
	q->index = index;
	q->kick = (struct loop_source){ .fd = q->queue->kick_fd, .ready = kicked };
}

void net_pair_init(struct net_pair *pair, struct virtio_device *device,
		   struct net_backend *backend, unsigned rx)
{
	memset(pair, 0, sizeof(*pair));
	pair->device = device;
	pair->backend = backend;
	pair->wire = (struct loop_source){ .fd = backend->ops->fd(backend), .ready = wire_ready };
	init_queue(&pair->rx, device, rx, rx_kicked);
	init_queue(&pair->tx, device, rx + 1, tx_kicked);
}

/* Frames from before the driver was there are stale, and may use offloads it did not take. */
static void drain(struct net_pair *pair)
{
	uint8_t scratch[64];
	struct iovec iov = { .iov_base = scratch, .iov_len = sizeof(scratch) };

	for (unsigned i = 0; i < DRAIN_LIMIT; i++)
		if (pair->backend->ops->recv(pair->backend, &iov, 1) < 0)
			return;
}

static int start_queue(struct net_pair *pair, struct net_queue *q)
{
	q->active = q->blocked = false;
	return q->queue->vq.live ? loop_add(&pair->worker.loop, &q->kick, EPOLLIN) : 0;
}

int net_pair_start(struct net_pair *pair, const char *name)
{
	int err;

	pair->wire_events = 0;
	drain(pair);
	err = worker_init(&pair->worker, name, begin);
	if (!err)
		err = start_queue(pair, &pair->tx);
	if (!err)
		err = start_queue(pair, &pair->rx);
	if (!err) {
		update_wire(pair);
		err = worker_start(&pair->worker);
	}
	pair->started = !err;
	if (err)
		worker_fini(&pair->worker);
	return err;
}

void net_pair_stop(struct net_pair *pair)
{
	if (!pair->started)
		return;
	worker_fini(&pair->worker);
	pair->started = false;
}
