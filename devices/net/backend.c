/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is the same over every back end. */
#include "devices/net/backend.h"

#include <errno.h>

/* The back end may refill as fast as we read. */
#define DRAIN_LIMIT 8192u

void net_backend_drain(struct net_backend *backend, unsigned queue)
{
	uint8_t scratch[64];
	struct iovec iov = { .iov_base = scratch, .iov_len = sizeof(scratch) };

	for (unsigned i = 0; i < DRAIN_LIMIT; i++)
		if (backend->ops->recv(backend, queue, &iov, 1) < 0)
			return;
}

void net_backend_send_each(struct net_backend *backend, unsigned queue, struct net_frame *frames,
			   unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct net_frame *frame = &frames[i];

		/* After one that has to wait, all have to. */
		if (i && frames[i - 1].sent == -EAGAIN)
			frame->sent = -EAGAIN;
		else
			frame->sent = backend->ops->send(backend, queue, frame->iov, frame->count);
	}
}
