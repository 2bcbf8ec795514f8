/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worker sleeps in its loop on a few fds: a kick for each queue, the back end, and a timer. Woken, it
 * takes TX and RX in turn, a bounded batch each, until neither has work, with a look at the other fds once in
 * a while (a driver can keep a ring full for ever, and the timer and worker_call() shall not wait for that):
 *
 * - TX: a chain's bytes, header included, go to the back end straight from guest memory. Kicks are off
 *   from the first one until the ring is seen empty. A full back end (-EAGAIN) puts the chain back, and
 *   EPOLLOUT goes on with it: order is kept and nothing spins.
 * - RX: a frame is read straight into the next buffers (net_rx.c). Kicks are off; only when frames wait and
 *   the guest has no buffer are they asked for, and the back end is not looked at until one comes.
 *
 * Used buffers are published, and the interrupt decided on, once a batch; with coalescing (NOTF_COAL) the
 * decision waits for enough of them, or for the timer.
 */

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/virtio_net.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "devices/virtio/net_pair.h"
#include "vmm/le.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define BATCH_PACKETS 64u
#define BATCH_BYTES   KIB(512)
#define BATCH_ROUNDS  16u
#define MIN_FRAME     14u /* an Ethernet header */
#define NS_PER_S      1000000000ull

bool net_usable(const struct net_queue *q)
{
	return q->queue->vq.live && !q->queue->vq.fault;
}

void net_update_wire(struct net_pair *pair)
{
	struct loop *loop = &pair->worker.loop;
	uint32_t events = 0;

	if (pair->attached && !pair->wire_gone) {
		if (net_usable(&pair->rx) && !pair->rx.blocked)
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
		net_update_wire(pair);
		pair->gone(pair);
	} else if (!pair->wire_gone) {
		log_limited(&pair->losses, "%s: %s %s: %s: the frame is lost", pair->device->name,
			    what, pair->backend->name, strerror(err));
	}
}

static void queue_failed(struct net_pair *pair, struct net_queue *q)
{
	q->active = false;
	net_update_wire(pair);
	virtio_device_failed(pair->device, q->index, q->queue->vq.fault);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void net_update_timer(struct net_pair *pair)
{
	uint64_t rx = pair->rx.deadline, tx = pair->tx.deadline;
	uint64_t at = !rx || (tx && tx < rx) ? tx : rx;
	struct itimerspec spec = {
		.it_value = { .tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S) },
	};

	timerfd_settime(pair->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* The decision may be put off: until there are enough used buffers, or the first has waited enough. */
static bool may_wait(struct net_pair *pair, struct net_queue *q)
{
	if (!q->coalescing.max_usecs || q->uninterrupted >= q->coalescing.max_packets)
		return false;
	if (!q->deadline) {
		q->deadline = now_ns() + q->coalescing.max_usecs * 1000ull;
		net_update_timer(pair);
	}
	return true;
}

void net_decide_interrupt(struct net_pair *pair, struct net_queue *q)
{
	q->uninterrupted = 0;
	if (q->deadline) {
		q->deadline = 0;
		net_update_timer(pair);
	}
	if (!vq_needs_interrupt(&q->queue->vq))
		return;
	net_count(&q->counters.interrupts, 1);
	virtio_queue_interrupt(pair->device, q->index);
}

/* Ends a batch: shows the driver what was used, and interrupts it if it wants to know, and now. */
static void finish_batch(struct net_pair *pair, struct net_queue *q, unsigned used)
{
	net_count(&q->counters.batches, 1);
	vq_publish(&q->queue->vq);
	q->uninterrupted += used;
	if (!may_wait(pair, q))
		net_decide_interrupt(pair, q);
}

static void count_frame(struct net_pair *pair, struct net_queue *q, size_t bytes)
{
	net_count(&q->counters.packets, 1);
	net_count(&q->counters.bytes, bytes - pair->mode.header);
}

static void count_malformed(struct net_queue *q)
{
	net_count(&q->counters.dropped, 1);
	net_count(&q->counters.malformed, 1);
}

/* Sends one chain. False when the back end is full and the chain has to wait. */
static bool send_chain(struct net_pair *pair, const struct vq_chain *chain)
{
	struct net_queue *tx = &pair->tx;
	ssize_t sent = -EBADFD;

	if (chain->readable_bytes < pair->mode.header + MIN_FRAME) {
		count_malformed(tx);
		return true;
	}
	if (pair->attached && !pair->wire_gone)
		sent = pair->backend->ops->send(pair->backend, pair->index, chain->iov,
						chain->readable);
	if (sent == -EAGAIN)
		return false;
	if (sent >= 0) {
		count_frame(pair, tx, chain->readable_bytes);
		return true;
	}
	/* EINVAL: the header makes no sense for this frame. */
	if (sent == -EINVAL)
		count_malformed(tx);
	else
		net_count(&tx->counters.dropped, 1);
	if (pair->attached)
		wire_failed(pair, "sending to", (int)-sent);
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
			vq_unpop(vq, &chain);
			tx->blocked = true;
			net_count(&tx->counters.waits, 1);
			break;
		}
		/* The device writes nothing to a TX buffer (5.1.6.2). */
		vq_push(vq, &chain, 0);
		packets++;
		bytes += chain.readable_bytes;
	}
	if (packets)
		finish_batch(pair, tx, packets);
	if (popped < 0)
		queue_failed(pair, tx);
	if (tx->blocked)
		net_update_wire(pair);
	else if (!popped)
		tx->active = vq_kicks_enable(vq);
	return tx->active && !tx->blocked;
}

/* What a frame is, by its header (5.1.6.4). */
static unsigned offloads_of(uint8_t flags, uint8_t gso_type)
{
	const uint8_t tunnel =
		VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6;
	unsigned offloads = 0;

	if (flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		offloads |= NET_OFFLOAD_CSUM;
	if (flags & VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM)
		offloads |= NET_OFFLOAD_TUNNEL_CSUM;
	if (gso_type & VIRTIO_NET_HDR_GSO_ECN)
		offloads |= NET_OFFLOAD_ECN;
	if (gso_type & tunnel)
		offloads |= NET_OFFLOAD_TUNNEL;
	switch (gso_type & ~(VIRTIO_NET_HDR_GSO_ECN | tunnel)) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return offloads;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		return offloads | NET_OFFLOAD_TSO4;
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return offloads | NET_OFFLOAD_TSO6;
	case VIRTIO_NET_HDR_GSO_UDP:
		return offloads | NET_OFFLOAD_UFO;
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return offloads | NET_OFFLOAD_USO;
	}
	return UINT_MAX;
}

/* Whether the driver takes the frame in the first buffers. Without GUEST_CSUM, flags are zero (5.1.6.4.1). */
static bool check_header(struct net_pair *pair)
{
	uint8_t kind[2] = { 0 }; /* flags and gso_type, as they come */
	const uint8_t no_flags = 0;

	static_assert(offsetof(struct virtio_net_hdr_v1, flags) == 0 &&
		      offsetof(struct virtio_net_hdr_v1, gso_type) == 1, "they come first");
	net_rx_peek(&pair->receiver, 0, kind, sizeof(kind));
	if (offloads_of(kind[0], kind[1]) & ~pair->offloads)
		return false;
	if (kind[0] && !(pair->offloads & NET_OFFLOAD_CSUM))
		net_rx_poke(&pair->receiver, 0, &no_flags, sizeof(no_flags));
	return true;
}

/* What HASH_REPORT adds to the header (5.1.6.4.3). */
struct hash_fields {
	le32 value;
	le16 report;
	le16 padding;
};

static void report_hash(struct net_pair *pair, const uint8_t *frame, size_t len)
{
	struct net_hash hash = net_hash_frame(pair->rss, frame, len);
	const struct hash_fields fields = { .value = { hash.value }, .report = { hash.report } };

	net_rx_poke(&pair->receiver, sizeof(struct virtio_net_hdr_v1), &fields, sizeof(fields));
}

/* Looks at a received frame where features want that; false when the driver does not want it. */
static bool inspect(struct net_pair *pair, size_t len)
{
	uint8_t frame[NET_HASH_BYTES];
	size_t have;

	if (pair->filter->pass_all && !pair->mode.hash_report)
		return true;
	have = net_rx_peek(&pair->receiver, pair->mode.header, frame,
			   MIN(sizeof(frame), len - pair->mode.header));
	if (!net_filter_accepts(pair->filter, frame, have)) {
		net_count(&pair->rx.counters.filtered, 1);
		return false;
	}
	if (pair->mode.hash_report)
		report_hash(pair, frame, have);
	return true;
}

/* Takes a frame that lies in the first buffers; true when they are used. */
static bool take_frame(struct net_pair *pair, size_t len)
{
	if (len < pair->mode.header + MIN_FRAME || (pair->check_header && !check_header(pair))) {
		net_count(&pair->rx.counters.dropped, 1);
		return false;
	}
	if (!inspect(pair, len))
		return false;
	net_rx_use(&pair->receiver, len);
	count_frame(pair, &pair->rx, len);
	return true;
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
	net_update_wire(pair);
	return false;
}

/* One batch of RX. True when there may be more to do at once. */
static bool run_rx(struct net_pair *pair)
{
	struct net_queue *rx = &pair->rx;
	enum net_rx_result result = NET_RX_LOST;
	unsigned used = 0;

	if (!rx->active || rx->blocked)
		return false;
	for (unsigned i = 0; i < BATCH_PACKETS; i++) {
		ssize_t len = 0;

		result = net_rx_receive(&pair->receiver, &len);
		if (result == NET_RX_FRAME) {
			used += take_frame(pair, (size_t)len);
		} else if (result == NET_RX_LOST) {
			net_count(&rx->counters.dropped, 1);
		} else {
			if (result == NET_RX_ERROR)
				wire_failed(pair, "receiving from", (int)-len);
			break;
		}
	}
	if (used)
		finish_batch(pair, rx, used);
	if (result == NET_RX_FAULT)
		queue_failed(pair, rx);
	else if (result == NET_RX_STARVED)
		return wait_for_buffers(pair);
	else if (result == NET_RX_EMPTY || result == NET_RX_ERROR)
		rx->active = false;
	return rx->active;
}

void net_run(struct net_pair *pair)
{
	struct loop *loop = &pair->worker.loop;
	bool more = true;

	for (unsigned i = 0; more && !loop_stopping(loop); i++) {
		if (i == BATCH_ROUNDS) {
			loop_again(loop, &pair->more);
			return;
		}
		more = run_tx(pair);
		more |= run_rx(pair);
		/* RX may have found the back end gone, for which TX was waiting. */
		more |= pair->tx.active && !pair->tx.blocked;
	}
}

void net_activate_queue(struct net_queue *q)
{
	if (!net_usable(q))
		return;
	vq_kicks_disable(&q->queue->vq);
	q->active = true;
}

static void take_kicks(struct net_queue *q)
{
	uint64_t kicks;

	if (read(q->kick.fd, &kicks, sizeof(kicks)) == sizeof(kicks))
		net_count(&q->counters.kicks, kicks);
	net_activate_queue(q);
}

void net_tx_kicked(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, tx.kick);

	(void)events;
	take_kicks(&pair->tx);
	net_run(pair);
}

void net_rx_kicked(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, rx.kick);

	(void)events;
	take_kicks(&pair->rx);
	pair->rx.blocked = false;
	net_update_wire(pair);
	net_run(pair);
}

void net_wire_ready(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, wire);

	if (events & EPOLLOUT)
		pair->tx.blocked = false;
	/* An error is found by reading, or by writing where only that is waited for. */
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
		pair->rx.active = net_usable(&pair->rx);
		pair->tx.blocked = false;
	}
	net_run(pair);
	net_update_wire(pair);
}

void net_more_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	net_run(container_of(source, struct net_pair, more));
}

void net_timer_ready(struct loop_source *source, uint32_t events)
{
	struct net_pair *pair = container_of(source, struct net_pair, timer);
	struct net_queue *const queues[] = { &pair->rx, &pair->tx };
	uint64_t fired, now = now_ns();
	ssize_t got = read(source->fd, &fired, sizeof(fired));

	(void)events;
	(void)got;
	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++)
		if (queues[i]->deadline && queues[i]->deadline <= now && net_usable(queues[i]))
			net_decide_interrupt(pair, queues[i]);
}
