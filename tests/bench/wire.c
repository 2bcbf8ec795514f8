/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The back end "null" makes a frame by writing its headers into the first buffers and saying how
 * long it is, and drops one by doing nothing: what is left is the device's own work. Frames are
 * never short there, hence the device stops when it is out of buffers.
 */
#include "tests/bench/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/net/loopback.h"
#include "vmm/iov.h"
#include "vmm/util.h"

#define NULL_CAPACITY UINT16_MAX
#define NULL_WRITES   (BENCH_HEADER + BENCH_MIN_FRAME)
#define SOCKET_BUFFER MIB(16)
#define NULL_OFFLOADS (NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4)

static struct wire *to_wire(struct net_backend *backend)
{
	return container_of(backend, struct wire, backend);
}

/* ---- frames made and dropped here ---- */

static void null_close(struct net_backend *backend)
{
	struct wire *wire = to_wire(backend);

	for (unsigned i = 0; i < backend->queues; i++)
		close(wire->fds[i]);
}

static int null_set(struct net_backend *backend, unsigned value)
{
	(void)backend;
	(void)value;
	return 0;
}

static int null_enable(struct net_backend *backend, unsigned queue, bool on)
{
	(void)backend;
	(void)queue;
	(void)on;
	return 0;
}

static int null_set_steering(struct net_backend *backend, const struct net_rss *rss)
{
	(void)backend;
	return rss ? -EOPNOTSUPP : 0;
}

static int wire_fd(struct net_backend *backend, unsigned queue)
{
	return to_wire(backend)->fds[queue];
}

/* The least of `want` and of what there is room for. */
static size_t room(const struct iovec *iov, unsigned count, size_t want)
{
	size_t have = 0;

	for (unsigned i = 0; i < count && have < want; i++)
		have += iov[i].iov_len;
	return MIN(have, want);
}

static ssize_t null_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	struct wire *wire = to_wire(backend);
	const struct packet *packet = &wire->packets[queue];

	if (!wire->bench->rx)
		return -EAGAIN;
	if (iov->iov_len >= NULL_WRITES)
		memcpy(iov->iov_base, packet->bytes, NULL_WRITES);
	else
		iov_write(iov, count, 0, packet->bytes, NULL_WRITES);
	gauge_frames(&wire->gauges[queue], 1);
	return (ssize_t)room(iov, count, packet->len);
}

static ssize_t null_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	gauge_frames(&to_wire(backend)->gauges[queue], 1);
	return (ssize_t)room(iov, count, SIZE_MAX);
}

static const struct net_backend_ops null_ops = {
	.close = null_close,
	.set_offloads = null_set,
	.set_header = null_set,
	.enable = null_enable,
	.set_steering = null_set_steering,
	.fd = wire_fd,
	.recv = null_recv,
	.send = null_send,
};

static void open_null(struct wire *wire)
{
	for (unsigned i = 0; i < wire->bench->pairs; i++) {
		/* Always readable, if there are frames. */
		wire->fds[i] = eventfd(wire->bench->rx, EFD_CLOEXEC | EFD_NONBLOCK);
		if (wire->fds[i] < 0)
			bench_die("no eventfd: %s", strerror(errno));
	}
	wire->capacity = NULL_CAPACITY;
	wire->backend = (struct net_backend){
		.ops = &null_ops,
		.name = "null",
		.queues = wire->bench->pairs,
		.offloads = NULL_OFFLOADS,
	};
}

/* ---- a back end of the product behind it ---- */

static void pass_close(struct net_backend *backend)
{
	struct net_backend *inner = to_wire(backend)->inner;

	inner->ops->close(inner);
}

static int pass_set_offloads(struct net_backend *backend, unsigned offloads)
{
	struct net_backend *inner = to_wire(backend)->inner;

	return inner->ops->set_offloads(inner, offloads);
}

static int pass_set_header(struct net_backend *backend, unsigned size)
{
	struct net_backend *inner = to_wire(backend)->inner;

	return inner->ops->set_header(inner, size);
}

static int pass_enable(struct net_backend *backend, unsigned queue, bool on)
{
	struct net_backend *inner = to_wire(backend)->inner;

	return inner->ops->enable(inner, queue, on);
}

static int pass_set_steering(struct net_backend *backend, const struct net_rss *rss)
{
	struct net_backend *inner = to_wire(backend)->inner;

	return inner->ops->set_steering(inner, rss);
}

static ssize_t pass_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	struct wire *wire = to_wire(backend);
	ssize_t n = wire->inner->ops->recv(wire->inner, queue, iov, count);

	if (n >= 0)
		gauge_frames(&wire->gauges[queue], 1);
	return n;
}

static ssize_t pass_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	struct wire *wire = to_wire(backend);
	ssize_t n = wire->inner->ops->send(wire->inner, queue, iov, count);

	if (n >= 0)
		gauge_frames(&wire->gauges[queue], 1);
	return n;
}

static int pass_open_batches(struct net_backend *backend)
{
	struct net_backend *inner = to_wire(backend)->inner;

	return inner->ops->open_batches ? inner->ops->open_batches(inner) : -EOPNOTSUPP;
}

static void pass_send_batch(struct net_backend *backend, unsigned queue, struct net_frame *frames,
			    unsigned count)
{
	struct wire *wire = to_wire(backend);
	unsigned taken = 0;

	wire->inner->ops->send_batch(wire->inner, queue, frames, count);
	for (unsigned i = 0; i < count; i++)
		taken += frames[i].sent >= 0;
	if (taken)
		gauge_frames(&wire->gauges[queue], taken);
}

static const struct net_backend_ops pass_ops = {
	.close = pass_close,
	.set_offloads = pass_set_offloads,
	.set_header = pass_set_header,
	.enable = pass_enable,
	.set_steering = pass_set_steering,
	.fd = wire_fd,
	.recv = pass_recv,
	.send = pass_send,
	.open_batches = pass_open_batches,
	.send_batch = pass_send_batch,
};

/* Larger than what one may set, where that is allowed. */
static void enlarge(int fd)
{
	int size = SOCKET_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

/* How many packets a socketpair takes before anyone reads. */
static unsigned socket_capacity(const struct packet *packet)
{
	unsigned count = 0;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		bench_die("no socketpair: %s", strerror(errno));
	enlarge(fds[0]);
	while (count < UINT16_MAX && send(fds[0], packet->bytes, packet->len, 0) > 0)
		count++;
	close(fds[0]);
	close(fds[1]);
	return count;
}

static void open_sockets(struct wire *wire)
{
	wire->inner = loopback_open(wire->bench->pairs, wire->peers);
	if (!wire->inner)
		bench_die("no socketpairs");
	for (unsigned i = 0; i < wire->bench->pairs; i++) {
		wire->fds[i] = wire->inner->ops->fd(wire->inner, i);
		enlarge(wire->fds[i]);
		enlarge(wire->peers[i]);
	}
	wire->capacity = socket_capacity(&wire->packets[0]);
}

void wire_open(struct wire *wire, const struct bench *bench)
{
	memset(wire, 0, sizeof(*wire));
	wire->bench = bench;
	for (unsigned i = 0; i < bench->pairs; i++)
		packet_make(&wire->packets[i], bench->size, (uint16_t)(1 + i));
	switch (bench->backend) {
	case BENCH_NULL:
		open_null(wire);
		return;
	case BENCH_SOCKETPAIR:
		open_sockets(wire);
		break;
	case BENCH_TAP:
		wire_open_tap(wire);
		break;
	}
	wire->backend = *wire->inner;
	wire->backend.ops = &pass_ops;
}

void wire_prepare_bare(struct wire *wire)
{
	struct net_backend *inner = wire->inner;
	int err = inner->ops->set_header(inner, BENCH_HEADER);

	if (!err)
		err = inner->ops->set_offloads(inner, NULL_OFFLOADS);
	for (unsigned i = 1; !err && i < wire->bench->pairs; i++)
		err = inner->ops->enable(inner, i, true);
	if (err)
		bench_die("%s: %s", inner->name, strerror(-err));
}

void wire_close(struct wire *wire)
{
	wire->backend.ops->close(&wire->backend);
	for (unsigned i = 0; wire->inner && i < wire->bench->pairs; i++)
		close(wire->peers[i]);
}

void wire_feed(struct wire *wire, unsigned pair, unsigned count)
{
	const struct packet *packet = &wire->packets[pair];

	if (wire->bench->backend == BENCH_TAP)
		wire_feed_tap(wire, pair, count);
	else if (wire->bench->backend == BENCH_SOCKETPAIR)
		while (count--)
			if (send(wire->peers[pair], packet->bytes, packet->len, MSG_NOSIGNAL) < 0)
				bench_die("a socketpair does not take a burst: %s",
					  strerror(errno));
}

void wire_drain(struct wire *wire, unsigned pair, unsigned count)
{
	char byte;

	if (wire->bench->backend != BENCH_SOCKETPAIR)
		return;
	while (count--)
		if (recv(wire->peers[pair], &byte, sizeof(byte), MSG_TRUNC) !=
		    (ssize_t)wire->packets[pair].len)
			bench_die("a frame did not arrive, or not all of it");
}

void wire_check_sent(const struct wire *wire, uint64_t count)
{
	uint64_t arrived;

	if (wire->bench->backend != BENCH_TAP)
		return;
	arrived = wire_tap_received(wire);
	if (arrived != count)
		bench_die("of %llu frames %llu arrived at the tap", (unsigned long long)count,
			  (unsigned long long)arrived);
}
