/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * With mergeable buffers the driver posts many small ones, and a frame takes as many as it needs.
 * How many is known only once it is read, so a stock of buffers with room for the largest frame is
 * kept popped: what a frame leaves over serves the next one, and nothing is popped twice.
 *
 * When the ring has less room than that, frames are read all the same, since most are small. One
 * that turns out too large has its tail caught in `spill`, and waits there for more buffers; it is
 * dropped only if the whole ring would not hold it. Without mergeable buffers a frame that does not
 * fit its one buffer is dropped.
 *
 * A read is not given all of the stock, but what frames of late took: the kernel has to look at
 * each piece, which for small frames and buffers costs more than a tenth of the read. A frame that
 * is larger for once has its tail caught as well, and copied. That costs as much as ten to thirty
 * reads save; hence a size stays usual for at least so many frames.
 */
#include "devices/virtio/net_rx.h"

#include <errno.h>
#include <linux/virtio_net.h>
#include <string.h>

#include "devices/virtio/net_worker.h"
#include "vmm/iov.h"
#include "vmm/le.h"
#include "vmm/util.h"

/* One piece stays free, for the spill. */
#define STOCK_PIECES (NET_MAX_PIECES - 1)
#define USUAL_FRAMES 32u

void net_rx_init(struct net_rx *rx, struct virtqueue *vq, struct net_backend *backend,
		 unsigned index, bool mergeable)
{
	struct net_stock *s = &rx->stock;

	rx->vq = vq;
	rx->backend = backend;
	rx->index = index;
	rx->mergeable = mergeable;
	rx->held = 0;
	rx->usual = NET_MAX_FRAME;
	rx->largest = 0;
	rx->seen = 0;
	s->first = s->count = s->descriptors = 0;
	s->iov_first = s->iov_end = 0;
	s->bytes = 0;
}

/* Moves what is left to the front of both arrays. */
static void compact(struct net_stock *s)
{
	unsigned pieces = s->iov_end - s->iov_first;

	memmove(s->iov, &s->iov[s->iov_first], pieces * sizeof(s->iov[0]));
	memmove(s->chains, &s->chains[s->first], s->count * sizeof(s->chains[0]));
	s->iov_first = s->first = 0;
	s->iov_end = pieces;
}

static bool has_place(const struct net_stock *s)
{
	return s->first + s->count < ARRAY_SIZE(s->chains) &&
	       s->iov_end + NET_RX_MAX_CHAIN <= STOCK_PIECES;
}

/* Adds one chain: 1, 0 when the ring has none (or the arrays are full of small pieces), -EPROTO. */
static int add_chain(struct net_rx *rx)
{
	struct net_stock *s = &rx->stock;
	struct vq_chain *chain;
	int popped;

	if (!has_place(s))
		compact(s);
	if (!has_place(s))
		return 0;
	chain = &s->chains[s->first + s->count];
	chain->iov = &s->iov[s->iov_end];
	chain->room = NET_RX_MAX_CHAIN;
	popped = vq_pop(rx->vq, chain);
	if (popped <= 0)
		return popped;
	if (chain->readable || !chain->writable)
		return vq_kill(rx->vq, "a receive buffer is not for the device to write");
	s->count++;
	s->descriptors += chain->descriptors;
	s->bytes += chain->writable_bytes;
	s->iov_end += chain->writable;
	return 1;
}

static int fill(struct net_rx *rx, size_t want)
{
	int added = 1;

	while (added > 0 && rx->stock.bytes < want)
		added = add_chain(rx);
	return added;
}

/*
 * No more buffers like these can come while the driver waits for all of them to be used: too few
 * descriptors are left for one.
 */
static bool has_whole_ring(const struct net_rx *rx)
{
	const struct net_stock *s = &rx->stock;

	return s->count && s->descriptors + s->chains[s->first].descriptors > rx->vq->size;
}

/* Gives the frame that waits the buffers it lacks. */
static enum net_rx_result complete(struct net_rx *rx, ssize_t *len)
{
	struct net_stock *s = &rx->stock;

	if (fill(rx, rx->held) < 0)
		return NET_RX_FAULT;
	if (s->bytes < rx->held) {
		if (!has_whole_ring(rx) && has_place(s))
			return NET_RX_STARVED;
		rx->held = 0;
		return NET_RX_LOST;
	}
	net_rx_poke(rx, rx->held_room, rx->tail, rx->held - rx->held_room);
	*len = (ssize_t)rx->held;
	rx->held = 0;
	return NET_RX_FRAME;
}

/* Learns from a frame's length what is usual. */
static void note_length(struct net_rx *rx, size_t len)
{
	rx->largest = MAX(rx->largest, len);
	if (++rx->seen < USUAL_FRAMES && len <= rx->usual)
		return;
	rx->usual = rx->largest;
	if (rx->seen >= USUAL_FRAMES)
		rx->largest = rx->seen = 0;
}

/* The stock's first pieces that hold a frame of a usual size, or all; the room in them. */
static size_t choose_pieces(const struct net_stock *s, size_t usual, unsigned *end)
{
	unsigned i = s->iov_first;
	size_t room = 0;

	for (; i < s->iov_end && room < usual; i++)
		room += s->iov[i].iov_len;
	*end = i;
	return room;
}

/*
 * Reads a frame into the stock's first pieces, up to `end`, and what they do not hold into the
 * spill.
 */
static ssize_t read_pieces(struct net_rx *rx, unsigned end)
{
	struct net_stock *s = &rx->stock;
	struct iovec next = s->iov[end];
	ssize_t len;

	s->iov[end] = (struct iovec){ .iov_base = rx->spill, .iov_len = sizeof(rx->spill) };
	len = rx->backend->ops->recv(rx->backend, rx->index, &s->iov[s->iov_first],
				     end - s->iov_first + 1);
	s->iov[end] = next;
	rx->tail = rx->spill;
	return len;
}

/* The same with all of it by way of the spill; the pieces have `room`. */
static ssize_t read_copy(struct net_rx *rx, size_t room)
{
	const struct iovec spill = { .iov_base = rx->spill, .iov_len = sizeof(rx->spill) };
	ssize_t len = rx->backend->ops->recv(rx->backend, rx->index, &spill, 1);

	if (len > 0)
		net_rx_poke(rx, 0, rx->spill, MIN((size_t)len, room));
	rx->tail = rx->spill + room;
	return len;
}

static ssize_t read_frame(struct net_rx *rx, unsigned end, size_t room)
{
	ssize_t len;

	if (rx->worker)
		net_worker_leave_lock(rx->worker);
	len = rx->copy ? read_copy(rx, room) : read_pieces(rx, end);
	if (rx->worker)
		net_worker_enter_lock(rx->worker);
	return len;
}

enum net_rx_result net_rx_receive(struct net_rx *rx, ssize_t *len)
{
	struct net_stock *s = &rx->stock;
	unsigned end;
	size_t room;

	if (rx->held)
		return complete(rx, len);
	if (fill(rx, rx->mergeable ? NET_MAX_FRAME : 1) < 0)
		return NET_RX_FAULT;
	if (!s->count)
		return NET_RX_STARVED;
	room = choose_pieces(s, rx->usual, &end);
	*len = read_frame(rx, end, room);
	if (*len < 0)
		return *len == -EAGAIN ? NET_RX_EMPTY : NET_RX_ERROR;
	note_length(rx, (size_t)*len);
	if ((size_t)*len <= room)
		return NET_RX_FRAME;
	if (!rx->mergeable && (size_t)*len > s->bytes)
		return NET_RX_LOST;
	rx->held = (size_t)*len;
	rx->held_room = room;
	return complete(rx, len);
}

size_t net_rx_peek(const struct net_rx *rx, size_t offset, void *data, size_t len)
{
	const struct net_stock *s = &rx->stock;

	return iov_read(&s->iov[s->iov_first], s->iov_end - s->iov_first, offset, data, len);
}

size_t net_rx_poke(const struct net_rx *rx, size_t offset, const void *data, size_t len)
{
	const struct net_stock *s = &rx->stock;

	return iov_write(&s->iov[s->iov_first], s->iov_end - s->iov_first, offset, data, len);
}

static unsigned count_chains(const struct net_stock *s, size_t len)
{
	unsigned count = 0;

	for (size_t room = 0; room < len; count++)
		room += s->chains[s->first + count].writable_bytes;
	return count;
}

/* Without mergeable buffers it is 1 (5.1.6.4.1). */
static void set_num_buffers(struct net_rx *rx, unsigned count)
{
	const struct iovec *first = &rx->stock.iov[rx->stock.iov_first];
	const size_t at = offsetof(struct virtio_net_hdr_v1, num_buffers);
	const le16 num_buffers = { (uint16_t)count };

	/* In all but odd cases the header is in one piece: for each frame, a short way. */
	if (first->iov_len >= sizeof(struct virtio_net_hdr_v1))
		memcpy((char *)first->iov_base + at, &num_buffers, sizeof(num_buffers));
	else
		net_rx_poke(rx, at, &num_buffers, sizeof(num_buffers));
}

void net_rx_use(struct net_rx *rx, size_t len)
{
	struct net_stock *s = &rx->stock;
	unsigned count = count_chains(s, len);

	set_num_buffers(rx, count);
	while (count--) {
		const struct vq_chain *chain = &s->chains[s->first];
		size_t part = MIN(len, chain->writable_bytes);

		vq_push(rx->vq, chain, (uint32_t)part);
		len -= part;
		s->bytes -= chain->writable_bytes;
		s->descriptors -= chain->descriptors;
		s->iov_first += chain->writable;
		s->first++;
		s->count--;
	}
	if (!s->count)
		s->first = s->iov_first = s->iov_end = 0;
}
