/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SOCK_SEQPACKET keeps messages apart and in order, fills up (EAGAIN, then EPOLLOUT) as a tap with
 * a small send buffer does, and tells when the peer is gone. A read that has too little room is
 * cut, which is the contract as well.
 *
 * Which queue a frame comes in on is the peer's to say, by the socket it uses: steering is only
 * noted.
 */
#include "devices/net/loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"

#define ALL_OFFLOADS                                                                               \
	(NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN |                \
	 NET_OFFLOAD_UFO | NET_OFFLOAD_USO | NET_OFFLOAD_TUNNEL | NET_OFFLOAD_TUNNEL_CSUM)

struct loopback_queue {
	int fd;
	bool on; /* in use */
};

struct loopback {
	struct net_backend backend;
	struct loopback_queue *queues;
	unsigned in_use; /* the first so many */
	unsigned offloads;
	unsigned header;
	bool steered;
	struct net_rss rss;
};

static struct loopback *to_loopback(const struct net_backend *backend)
{
	return container_of((struct net_backend *)backend, struct loopback, backend);
}

static void loopback_close(struct net_backend *backend)
{
	struct loopback *loopback = to_loopback(backend);

	for (unsigned i = 0; loopback->queues && i < backend->queues; i++)
		if (loopback->queues[i].fd >= 0)
			close(loopback->queues[i].fd);
	free(loopback->queues);
	free(loopback);
}

static int loopback_set_offloads(struct net_backend *backend, unsigned offloads)
{
	if (offloads & ~backend->offloads)
		return -EINVAL;
	to_loopback(backend)->offloads = offloads;
	return 0;
}

static int loopback_set_header(struct net_backend *backend, unsigned size)
{
	if (size != 12 && size != 20 && size != 24)
		return -EINVAL;
	to_loopback(backend)->header = size;
	return 0;
}

static void drain(int fd)
{
	char byte;

	while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) > 0)
		;
}

static int loopback_enable(struct net_backend *backend, unsigned queue, bool on)
{
	struct loopback *loopback = to_loopback(backend);

	if (loopback->queues[queue].on == on)
		return 0;
	if (queue != (on ? loopback->in_use : loopback->in_use - 1))
		return -EINVAL;
	drain(loopback->queues[queue].fd);
	loopback->queues[queue].on = on;
	loopback->in_use = on ? queue + 1 : queue;
	return 0;
}

static int loopback_set_steering(struct net_backend *backend, const struct net_rss *rss)
{
	struct loopback *loopback = to_loopback(backend);

	if (!backend->steering)
		return rss ? -EOPNOTSUPP : 0;
	loopback->steered = rss;
	if (rss)
		loopback->rss = *rss;
	return 0;
}

static int loopback_fd(struct net_backend *backend, unsigned queue)
{
	return to_loopback(backend)->queues[queue].fd;
}

/* A socket whose peer is gone says so in several ways. */
static int to_error(int err)
{
	return err == EPIPE || err == ECONNRESET || err == ENOTCONN ? -EBADFD : -err;
}

static ssize_t loopback_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			     unsigned count)
{
	const struct loopback_queue *q = &to_loopback(backend)->queues[queue];
	struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = count };
	ssize_t n;

	if (!q->on)
		return -EAGAIN;
	n = recvmsg(q->fd, &message, MSG_DONTWAIT);
	/* Frames have a header, hence 0 bytes are the end. */
	return n > 0 ? n : n ? to_error(errno) : -EBADFD;
}

static ssize_t loopback_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			     unsigned count)
{
	const struct loopback_queue *q = &to_loopback(backend)->queues[queue];
	struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = count };
	ssize_t n;

	if (!q->on)
		return -EBADFD;
	n = sendmsg(q->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? to_error(errno) : n;
}

static int loopback_open_batches(struct net_backend *backend)
{
	(void)backend;
	return 0;
}

static const struct net_backend_ops loopback_ops = {
	.close = loopback_close,
	.set_offloads = loopback_set_offloads,
	.set_header = loopback_set_header,
	.enable = loopback_enable,
	.set_steering = loopback_set_steering,
	.fd = loopback_fd,
	.recv = loopback_recv,
	.send = loopback_send,
	.open_batches = loopback_open_batches,
	/* Nothing is saved by it; but it shows what a batch means. */
	.send_batch = net_backend_send_each,
};

static int open_queues(struct loopback *loopback, int *peer_fds)
{
	unsigned queues = loopback->backend.queues, opened = 0;

	loopback->queues = calloc(queues, sizeof(*loopback->queues));
	if (!loopback->queues)
		return -ENOMEM;
	for (unsigned i = 0; i < queues; i++)
		loopback->queues[i] = (struct loopback_queue){ .fd = -1, .on = i == 0 };
	for (; opened < queues; opened++) {
		int fds[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
			break;
		loopback->queues[opened].fd = fds[0];
		peer_fds[opened] = fds[1];
	}
	if (opened == queues)
		return 0;
	while (opened--)
		close(peer_fds[opened]);
	return -EMFILE;
}

struct net_backend *loopback_open(unsigned queues, int *peer_fds)
{
	struct loopback *loopback = calloc(1, sizeof(*loopback));
	int err = -ENOMEM;

	if (loopback) {
		loopback->backend = (struct net_backend){
			.ops = &loopback_ops,
			.name = "loopback",
			.queues = queues,
			.offloads = ALL_OFFLOADS,
			.steering = queues > 1,
		};
		loopback->in_use = 1;
		loopback->header = 12;
		err = open_queues(loopback, peer_fds);
	}
	if (!err)
		return &loopback->backend;
	log_error("loopback: no socketpairs: %s", strerror(-err));
	if (loopback)
		loopback_close(&loopback->backend);
	return NULL;
}

unsigned loopback_offloads(const struct net_backend *backend)
{
	return to_loopback(backend)->offloads;
}

unsigned loopback_header(const struct net_backend *backend)
{
	return to_loopback(backend)->header;
}

const struct net_rss *loopback_steering(const struct net_backend *backend)
{
	const struct loopback *loopback = to_loopback(backend);

	return loopback->steered ? &loopback->rss : NULL;
}

unsigned loopback_in_use(const struct net_backend *backend)
{
	return to_loopback(backend)->in_use;
}
