/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A batch is one submission of writes that must not wait (RWF_NOWAIT): the kernel does them one
 * after the other while it takes them, so that all are done when the call returns, in order and
 * without a thread of the kernel's. A tap can do that since Linux 6.4; before, each write would
 * fail or go to a thread, which is slower than a system call each.
 *
 * A full tap refuses a write and may take the next, if somebody made room meanwhile. What was
 * refused before one that was taken counts as lost, then: sent later it would come out of order.
 */
#include "devices/net/tap_uring.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>

struct tap_uring {
	struct io_uring ring;
};

/* Hands over what is prepared, `count` requests, and waits until they are done. */
static void submit(struct io_uring *ring, unsigned count)
{
	unsigned submitted = 0;

	while (submitted < count) {
		int n = io_uring_submit_and_wait(ring, count);

		/*
		 * The kernel is short of memory or was interrupted: nothing is lost, and it has to
		 * go on.
		 */
		assert(n >= 0 || n == -EINTR || n == -EAGAIN || n == -EBUSY);
		if (n > 0)
			submitted += (unsigned)n;
	}
}

static int next_result(struct io_uring *ring, unsigned *index)
{
	struct io_uring_cqe *cqe;
	int result;

	while (io_uring_wait_cqe(ring, &cqe))
		;
	*index = (unsigned)io_uring_cqe_get_data64(cqe);
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

static void prepare(struct io_uring *ring, const struct net_frame *frame, unsigned index)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_writev2(sqe, 0, frame->iov, frame->count, 0, RWF_NOWAIT);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data64(sqe, index);
}

void tap_uring_send(struct tap_uring *uring, struct net_frame *frames, unsigned count)
{
	unsigned index, last = 0;

	for (unsigned i = 0; i < count; i++)
		prepare(&uring->ring, &frames[i], i);
	submit(&uring->ring, count);
	for (unsigned i = 0; i < count; i++) {
		int result = next_result(&uring->ring, &index);

		frames[index].sent = result;
	}
	for (unsigned i = 0; i < count; i++)
		if (frames[i].sent != -EAGAIN)
			last = i;
	for (unsigned i = 0; i < last; i++)
		if (frames[i].sent == -EAGAIN)
			frames[i].sent = -ENOBUFS;
}

/* An empty write that must not wait: what a tap of an older kernel cannot do even for nothing. */
static int try(struct tap_uring *uring)
{
	const struct net_frame nothing = { 0 };
	unsigned index;
	int result;

	prepare(&uring->ring, &nothing, 0);
	submit(&uring->ring, 1);
	result = next_result(&uring->ring, &index);
	return result == -EOPNOTSUPP || result == -EAGAIN ? -EOPNOTSUPP : 0;
}

struct tap_uring *tap_uring_open(int fd)
{
	struct tap_uring *uring = calloc(1, sizeof(*uring));
	int err;

	if (!uring)
		return NULL;
	err = io_uring_queue_init(NET_MAX_BATCH, &uring->ring, 0);
	if (err) {
		free(uring);
		errno = -err;
		return NULL;
	}
	err = io_uring_register_files(&uring->ring, &fd, 1);
	if (!err)
		err = try(uring);
	if (!err)
		return uring;
	tap_uring_close(uring);
	errno = -err;
	return NULL;
}

void tap_uring_close(struct tap_uring *uring)
{
	if (!uring)
		return;
	/* The kernel takes the ring apart later, and until then the tap would stay. */
	io_uring_unregister_files(&uring->ring);
	io_uring_queue_exit(&uring->ring);
	free(uring);
}
