/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SOCK_SEQPACKET keeps messages apart and in order, fills up (EAGAIN, then EPOLLOUT) as a tap with
 * a small send buffer does, and tells when the peer is gone. A read that has too little room is
 * cut, which is the contract as well.
 */
#include "devices/net/loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"

#define ALL_OFFLOADS (NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN)

struct loopback {
	struct net_backend backend;
	int fd;
	unsigned offloads;
};

static struct loopback *to_loopback(struct net_backend *backend)
{
	return container_of(backend, struct loopback, backend);
}

static void loopback_close(struct net_backend *backend)
{
	struct loopback *loopback = to_loopback(backend);

	close(loopback->fd);
	free(loopback);
}

static int loopback_set_offloads(struct net_backend *backend, unsigned offloads)
{
	to_loopback(backend)->offloads = offloads;
	return 0;
}

static int loopback_fd(struct net_backend *backend)
{
	return to_loopback(backend)->fd;
}

/* A socket whose peer is gone says so in several ways. */
static int to_error(int err)
{
	return err == EPIPE || err == ECONNRESET || err == ENOTCONN ? -EBADFD : -err;
}

static ssize_t loopback_recv(struct net_backend *backend, const struct iovec *iov, unsigned count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = count };
	ssize_t n = recvmsg(to_loopback(backend)->fd, &message, MSG_DONTWAIT);

	/* Frames have a header, hence 0 bytes are the end. */
	return n > 0 ? n : n ? to_error(errno) : -EBADFD;
}

static ssize_t loopback_send(struct net_backend *backend, const struct iovec *iov, unsigned count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = count };
	ssize_t n = sendmsg(to_loopback(backend)->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 ? to_error(errno) : n;
}

static const struct net_backend_ops loopback_ops = {
	.close = loopback_close,
	.set_offloads = loopback_set_offloads,
	.fd = loopback_fd,
	.recv = loopback_recv,
	.send = loopback_send,
};

struct net_backend *loopback_open(int *peer_fd)
{
	struct loopback *loopback = calloc(1, sizeof(*loopback));
	int fds[2];

	if (!loopback) {
		log_error("loopback: out of memory");
		return NULL;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds)) {
		log_error("loopback: no socketpair: %s", strerror(errno));
		free(loopback);
		return NULL;
	}
	loopback->backend = (struct net_backend){
		.ops = &loopback_ops,
		.name = "loopback",
		.offloads = ALL_OFFLOADS,
	};
	loopback->fd = fds[0];
	*peer_fd = fds[1];
	return &loopback->backend;
}

unsigned loopback_offloads(const struct net_backend *backend)
{
	return to_loopback((struct net_backend *)backend)->offloads;
}
