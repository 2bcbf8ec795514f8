/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pair's life: set up with the device, started at activation, stopped at reset. What others want of a running
 * one they have done on its own thread (worker_call), so that the worker's state needs no lock.
 */
#include "devices/virtio/net_pair.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "vmm/util.h"

/* How many frames of an old life to throw away at most: the back end may refill as fast as we read. */
#define DRAIN_LIMIT 8192u

/* Frames from before the driver was there are stale, and may use offloads it did not take. */
static void drain(struct net_pair *pair)
{
	uint8_t scratch[64];
	struct iovec iov = { .iov_base = scratch, .iov_len = sizeof(scratch) };

	for (unsigned i = 0; i < DRAIN_LIMIT; i++)
		if (pair->backend->ops->recv(pair->backend, pair->index, &iov, 1) < 0)
			return;
}

static void init_queue(struct net_queue *q, struct virtio_device *device, unsigned index,
		       loop_ready_fn *kicked)
{
	q->queue = &device->queues[index];
	q->index = index;
	q->kick = (struct loop_source){ .fd = q->queue->kick_fd, .ready = kicked };
}

void net_pair_init(struct net_pair *pair, struct virtio_device *device,
		   struct net_backend *backend, unsigned index,
		   void (*gone)(struct net_pair *pair))
{
	memset(pair, 0, sizeof(*pair));
	pair->gone = gone;
	pair->device = device;
	pair->backend = backend;
	pair->index = index;
	pair->attached = index == 0;
	pair->timer = (struct loop_source){ .fd = -1, .ready = net_timer_ready };
	pair->more = (struct loop_source){ .fd = -1, .ready = net_more_ready };
	pair->wire = (struct loop_source){ .fd = backend->ops->fd(backend, index),
					   .ready = net_wire_ready };
	init_queue(&pair->rx, device, 2 * index, net_rx_kicked);
	init_queue(&pair->tx, device, 2 * index + 1, net_tx_kicked);
}

static void reset_queue(struct net_queue *q)
{
	q->active = q->blocked = false;
	q->uninterrupted = q->deadline = 0;
}

static int start_queue(struct net_pair *pair, struct net_queue *q)
{
	reset_queue(q);
	q->coalescing = q->usual_coalescing = (struct net_coalescing){ 0 };
	return q->queue->vq.live ? loop_add(&pair->worker.loop, &q->kick, EPOLLIN) : 0;
}

static int open_timer(struct net_pair *pair)
{
	pair->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (pair->timer.fd < 0)
		return -errno;
	return loop_add(&pair->worker.loop, &pair->timer, EPOLLIN);
}

static void close_worker(struct net_pair *pair)
{
	worker_fini(&pair->worker);
	if (pair->timer.fd >= 0)
		close(pair->timer.fd);
	pair->timer.fd = -1;
}

/* First thing in the worker's thread: buffers may have been made available before DRIVER_OK. */
static void begin(struct worker *worker)
{
	struct net_pair *pair = container_of(worker, struct net_pair, worker);

	net_activate_queue(&pair->tx);
	net_activate_queue(&pair->rx);
	net_run(pair);
}

/*
 * A back end that was told so hands out no other frames, but for those that it had queued when there were more
 * offloads. And some kernels' taps say DATA_VALID to drivers that know nothing of checksums.
 */
static void allow_offloads(struct net_pair *pair, unsigned offloads)
{
	pair->offloads = offloads;
	pair->check_header = !(offloads & NET_OFFLOAD_CSUM) || pair->mode.offloads & ~offloads;
}

int net_pair_start(struct net_pair *pair, const char *name, const struct net_mode *mode,
		   const struct net_filter *filter, const struct net_rss *rss)
{
	int err;

	pair->mode = *mode;
	pair->filter = filter;
	pair->rss = rss;
	pair->wire_events = 0;
	allow_offloads(pair, mode->offloads);
	net_rx_init(&pair->receiver, &pair->rx.queue->vq, pair->backend, pair->index,
		    mode->mergeable);
	if (pair->attached)
		drain(pair);
	err = worker_init(&pair->worker, name, begin);
	if (!err)
		err = open_timer(pair);
	if (!err)
		err = start_queue(pair, &pair->tx);
	if (!err)
		err = start_queue(pair, &pair->rx);
	if (!err) {
		net_update_wire(pair);
		err = worker_start(&pair->worker);
	}
	pair->started = !err;
	if (err)
		close_worker(pair);
	return err;
}

void net_pair_stop(struct net_pair *pair)
{
	if (!pair->started)
		return;
	close_worker(pair);
	pair->started = false;
}

/* ---- on the worker's thread, for others ---- */

struct request {
	struct net_pair *pair;
	bool on;
	bool rx;
	unsigned queue;
	const struct net_filter *filter;
	const struct net_rss *rss;
	const struct net_coalescing *coalescing;
	unsigned offloads;
	int err;
};

static void call(struct net_pair *pair, void (*run_it)(void *ctx), struct request *request)
{
	request->pair = pair;
	worker_call(&pair->worker, run_it, request);
}

static void do_attach(void *ctx)
{
	struct request *r = ctx;
	struct net_pair *pair = r->pair;

	if (pair->attached == r->on)
		return;
	r->err = pair->backend->ops->enable(pair->backend, pair->index, r->on);
	if (r->err)
		return;
	pair->attached = r->on;
	pair->tx.blocked = false;
	if (pair->started)
		net_update_wire(pair);
}

int net_pair_attach(struct net_pair *pair, bool on)
{
	struct request r = { .on = on };

	call(pair, do_attach, &r);
	return r.err;
}

static void do_set_filter(void *ctx)
{
	struct request *r = ctx;

	r->pair->filter = r->filter;
}

void net_pair_set_filter(struct net_pair *pair, const struct net_filter *filter)
{
	struct request r = { .filter = filter };

	call(pair, do_set_filter, &r);
}

static void do_set_rss(void *ctx)
{
	struct request *r = ctx;

	r->pair->rss = r->rss;
}

void net_pair_set_rss(struct net_pair *pair, const struct net_rss *rss)
{
	struct request r = { .rss = rss };

	call(pair, do_set_rss, &r);
}

static void do_set_offloads(void *ctx)
{
	struct request *r = ctx;

	allow_offloads(r->pair, r->offloads);
}

void net_pair_set_offloads(struct net_pair *pair, unsigned offloads)
{
	struct request r = { .offloads = offloads };

	call(pair, do_set_offloads, &r);
}

static void do_set_coalescing(void *ctx)
{
	struct request *r = ctx;
	struct net_queue *q = r->rx ? &r->pair->rx : &r->pair->tx;

	q->coalescing = *r->coalescing;
	if (r->on)
		q->usual_coalescing = *r->coalescing;
	/* What waits by the old terms is decided now. */
	if (net_usable(q) && q->deadline)
		net_decide_interrupt(r->pair, q);
}

void net_pair_set_coalescing(struct net_pair *pair, bool rx, const struct net_coalescing *c,
			     bool usual)
{
	struct request r = { .rx = rx, .on = usual, .coalescing = c };

	call(pair, do_set_coalescing, &r);
}

static void do_stop_queue(void *ctx)
{
	struct request *r = ctx;
	struct net_pair *pair = r->pair;
	struct net_queue *q = r->queue == pair->rx.index ? &pair->rx : &pair->tx;

	loop_remove(&pair->worker.loop, &q->kick);
	vq_deactivate(&q->queue->vq);
	q->coalescing = q->usual_coalescing;
	reset_queue(q);
	net_update_timer(pair);
	net_update_wire(pair);
}

void net_pair_stop_queue(struct net_pair *pair, unsigned queue)
{
	struct request r = { .queue = queue };

	call(pair, do_stop_queue, &r);
}

static void do_start_queue(void *ctx)
{
	struct request *r = ctx;
	struct net_pair *pair = r->pair;
	struct net_queue *q = r->queue == pair->rx.index ? &pair->rx : &pair->tx;

	if (q == &pair->rx)
		net_rx_init(&pair->receiver, &q->queue->vq, pair->backend, pair->index,
			    pair->mode.mergeable);
	loop_add(&pair->worker.loop, &q->kick, EPOLLIN);
	net_activate_queue(q);
	net_update_wire(pair);
	net_run(pair);
}

void net_pair_start_queue(struct net_pair *pair, unsigned queue)
{
	struct request r = { .queue = queue };

	call(pair, do_start_queue, &r);
}
