/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pair's life: set up with the device, started at activation, stopped at reset. What others want
 * of a running one they have done on its workers' threads (worker_call), so that their state needs
 * no lock.
 */
#include "devices/virtio/net_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "vmm/util.h"

#define BUDGET_PACKETS 64u
#define BUDGET_BYTES   KIB(512)

static void init_queue(struct net_queue *q, struct net_pair *pair, struct net_worker *worker,
		       bool tx)
{
	q->pair = pair;
	q->worker = worker;
	q->tx = tx;
	q->index = 2 * pair->index + tx;
	q->queue = &pair->device->queues[q->index];
	q->attached = pair->index == 0;
	q->kick = (struct loop_source){
		.fd = q->queue->kick_fd,
		.ready = tx ? net_transmit_kicked : net_receive_kicked,
	};
	q->wire = (struct loop_source){
		.fd = -1,
		.ready = tx ? net_transmit_room : net_receive_frames,
	};
	q->budget_packets =
		pair->tuning->budget_packets ? pair->tuning->budget_packets : BUDGET_PACKETS;
	q->budget_bytes = pair->tuning->budget_bytes ? pair->tuning->budget_bytes : BUDGET_BYTES;
}

void net_pair_init(struct net_pair *pair, struct virtio_device *device, struct net_backend *backend,
		   const struct net_tuning *tuning, unsigned index, struct net_worker *rx,
		   struct net_worker *tx, void (*gone)(struct net_pair *pair))
{
	memset(pair, 0, sizeof(*pair));
	pair->gone = gone;
	pair->device = device;
	pair->backend = backend;
	pair->tuning = tuning;
	pair->index = index;
	pair->room_fd = -1;
	init_queue(&pair->rx, pair, rx, false);
	init_queue(&pair->tx, pair, tx, true);
	pair->rx.wire.fd = backend->ops->fd(backend, index);
}

int net_pair_use_batches(struct net_pair *pair)
{
	pair->batch = net_batch_new();
	return pair->batch ? 0 : -ENOMEM;
}

void net_pair_fini(struct net_pair *pair)
{
	net_batch_free(pair->batch);
	pair->batch = NULL;
}

static int start_queue(struct net_queue *q, const struct mitigate_config *policy)
{
	q->policy = *policy;
	if (!q->tx)
		q->policy.kind = MITIGATE_OFF;
	net_queue_reset(q);
	q->watched = false;
	q->taken = q->queue->vq.live;
	q->coalescing = q->usual_coalescing = (struct net_coalescing){ 0 };
	net_queue_update_wire(q);
	return net_worker_add(q->worker, q);
}

/*
 * A back end that was told so hands out no other frames, but for those that it had queued when
 * there were more offloads. And some kernels' taps say DATA_VALID to drivers that know nothing of
 * checksums.
 */
static void allow_offloads(struct net_pair *pair, unsigned offloads)
{
	pair->offloads = offloads;
	pair->check_header = !(offloads & NET_OFFLOAD_CSUM) || pair->mode.offloads & ~offloads;
}

/* A file of its own for TX: one loop takes the same one only once. */
static int open_room(struct net_pair *pair)
{
	pair->room_fd = fcntl(pair->rx.wire.fd, F_DUPFD_CLOEXEC, 0);
	if (pair->room_fd < 0)
		return -errno;
	pair->tx.wire.fd = pair->room_fd;
	return 0;
}

static void init_receiver(struct net_pair *pair)
{
	net_rx_init(&pair->receiver, &pair->rx.queue->vq, pair->backend, pair->index,
		    pair->mode.mergeable);
	pair->receiver.copy = pair->tuning->rx_copy;
	if (pair->tuning->lock == NET_LOCK_DROP)
		pair->receiver.worker = pair->rx.worker;
}

int net_pair_start(struct net_pair *pair, const struct net_mode *mode,
		   const struct mitigate_config *policy, const struct net_filter *filter,
		   const struct net_rss *rss)
{
	int err = open_room(pair);

	if (err)
		return err;
	pair->started = true;
	pair->mode = *mode;
	pair->filter = filter;
	pair->rss = rss;
	allow_offloads(pair, mode->offloads);
	init_receiver(pair);
	/* Frames from before the driver was there are stale, and may use offloads it did not take. */
	if (pair->rx.attached)
		net_backend_drain(pair->backend, pair->index);
	err = start_queue(&pair->tx, policy);
	return err ? err : start_queue(&pair->rx, policy);
}

void net_pair_stop(struct net_pair *pair)
{
	if (pair->room_fd >= 0)
		close(pair->room_fd);
	pair->room_fd = -1;
	pair->started = false;
}

/* ---- on the workers' threads, for others ---- */

struct request {
	struct net_queue *queue;
	bool on;
	const struct net_filter *filter;
	const struct net_rss *rss;
	const struct net_coalescing *coalescing;
	unsigned offloads;
	int err;
};

static void call(struct net_queue *q, void (*run_it)(void *ctx), struct request *request)
{
	request->queue = q;
	worker_call(&q->worker->worker, run_it, request);
}

static void do_attach(void *ctx)
{
	struct request *r = ctx;
	struct net_queue *q = r->queue;
	struct net_pair *pair = q->pair;

	if (!q->tx) {
		r->err = pair->backend->ops->enable(pair->backend, pair->index, r->on);
		if (r->err)
			return;
	}
	q->attached = r->on;
	if (q->tx)
		q->blocked = false;
	if (!pair->started)
		return;
	net_queue_update_wire(q);
	net_worker_wake(q->worker);
}

/* RX's worker does it, and TX uses the back end in between only. */
int net_pair_attach(struct net_pair *pair, bool on)
{
	struct request r = { .on = on };

	if (pair->rx.attached == on)
		return 0;
	if (!on)
		call(&pair->tx, do_attach, &r);
	call(&pair->rx, do_attach, &r);
	if (r.err)
		r.on = !on;
	if (r.on)
		call(&pair->tx, do_attach, &r);
	return r.err;
}

static void do_set_filter(void *ctx)
{
	struct request *r = ctx;

	r->queue->pair->filter = r->filter;
}

void net_pair_set_filter(struct net_pair *pair, const struct net_filter *filter)
{
	struct request r = { .filter = filter };

	call(&pair->rx, do_set_filter, &r);
}

static void do_set_rss(void *ctx)
{
	struct request *r = ctx;

	r->queue->pair->rss = r->rss;
}

void net_pair_set_rss(struct net_pair *pair, const struct net_rss *rss)
{
	struct request r = { .rss = rss };

	call(&pair->rx, do_set_rss, &r);
}

static void do_set_offloads(void *ctx)
{
	struct request *r = ctx;

	allow_offloads(r->queue->pair, r->offloads);
}

void net_pair_set_offloads(struct net_pair *pair, unsigned offloads)
{
	struct request r = { .offloads = offloads };

	call(&pair->rx, do_set_offloads, &r);
}

static void do_set_coalescing(void *ctx)
{
	struct request *r = ctx;
	struct net_queue *q = r->queue;

	q->coalescing = *r->coalescing;
	if (r->on)
		q->usual_coalescing = *r->coalescing;
	/* What waits by the old terms is decided now. */
	if (net_queue_usable(q) && q->deadline)
		net_queue_decide_interrupt(q);
	net_worker_update_timer(q->worker);
}

void net_pair_set_coalescing(struct net_pair *pair, bool rx, const struct net_coalescing *c,
			     bool usual)
{
	struct request r = { .on = usual, .coalescing = c };

	call(rx ? &pair->rx : &pair->tx, do_set_coalescing, &r);
}

static struct net_queue *queue_of(struct net_pair *pair, unsigned queue)
{
	return queue == pair->rx.index ? &pair->rx : &pair->tx;
}

static void do_stop_queue(void *ctx)
{
	struct request *r = ctx;
	struct net_queue *q = r->queue;

	loop_remove(&q->worker->worker.loop, &q->kick);
	q->taken = false;
	vq_deactivate(&q->queue->vq);
	q->coalescing = q->usual_coalescing;
	net_queue_reset(q);
	net_worker_update_timer(q->worker);
	net_queue_update_wire(q);
}

void net_pair_stop_queue(struct net_pair *pair, unsigned queue)
{
	struct request r = { 0 };

	call(queue_of(pair, queue), do_stop_queue, &r);
}

static void do_start_queue(void *ctx)
{
	struct request *r = ctx;
	struct net_queue *q = r->queue;

	if (!q->tx)
		init_receiver(q->pair);
	q->taken = true;
	net_queue_reset(q);
	loop_add(&q->worker->worker.loop, &q->kick, EPOLLIN);
	net_queue_activate(q);
	net_queue_update_wire(q);
	net_worker_wake(q->worker);
}

void net_pair_start_queue(struct net_pair *pair, unsigned queue)
{
	struct request r = { 0 };

	call(queue_of(pair, queue), do_start_queue, &r);
}
