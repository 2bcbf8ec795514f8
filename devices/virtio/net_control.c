/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control queue has a worker of its own: a command that has to wait for a pair's worker holds
 * up no frame, and a flood of frames no command. Commands that change what workers use are done on
 * the workers' threads (worker_call): the filter and the hash settings are never changed in place,
 * a new one is made beside the one in use and every worker is given that before the old one is
 * touched again.
 */
#include <errno.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "devices/virtio/net.h"
#include "devices/virtio/net_vhost.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

/* No chain has more pieces than the ring has entries. */
#define MAX_PIECES NET_CONTROL_RING

static bool set_filter(void *ctx, const struct net_filter *filter)
{
	struct virtio_net *net = ctx;
	struct net_filter *next = &net->filters[!net->filter_in_use];

	*next = *filter;
	for (unsigned i = 0; i < net->pair_count; i++)
		net_pair_set_filter(net->pairs[i], next);
	net->filter_in_use = !net->filter_in_use;
	net_set_mac(net, filter->mac);
	return true;
}

static int steer(struct virtio_net *net, const struct net_rss *rss)
{
	return net->backend->steering ? net->backend->ops->set_steering(net->backend, rss) : 0;
}

/*
 * Pairs in use and steering change together or not at all. The pairs come first: they can be taken
 * back, and no frame is steered to one that is not there yet.
 */
static bool set_pairs_and_steering(struct virtio_net *net, unsigned pairs,
				   const struct net_rss *rss)
{
	unsigned before = net->active_pairs;

	if (!net_set_pairs(net, pairs) && !steer(net, rss))
		return true;
	net_set_pairs(net, before);
	return false;
}

static bool set_pairs(void *ctx, unsigned pairs)
{
	struct virtio_net *net = ctx;

	/* It ends a steering by RSS (5.1.6.5.6). */
	if (!set_pairs_and_steering(net, pairs, NULL))
		return false;
	net->driver_pairs = pairs;
	return true;
}

/*
 * RSS takes no pair out of use: Linux's driver (6.1, and others once the user has set a table) goes
 * on saying how many TX queues it had when it started, and sends on all that it asked for later.
 * What arrives goes by the table in any case. Without steering it would go to every pair, hence to
 * those only of which the driver knows.
 */
static bool set_rss(void *ctx, const struct net_rss *rss, unsigned pairs)
{
	struct virtio_net *net = ctx;
	struct net_rss *next = &net->rss[!net->rss_in_use];
	unsigned attached = MAX(pairs, net->active_pairs);

	*next = *rss;
	if (!rss->steering)
		pairs = attached = net->driver_pairs;
	if (!set_pairs_and_steering(net, attached, rss->steering ? next : NULL))
		return false;
	net->driver_pairs = pairs;
	for (unsigned i = 0; i < net->pair_count; i++)
		net_pair_set_rss(net->pairs[i], next);
	net->rss_in_use = !net->rss_in_use;
	return true;
}

static void allow_offloads(struct virtio_net *net, unsigned offloads)
{
	for (unsigned i = 0; i < net->pair_count; i++)
		net_pair_set_offloads(net->pairs[i], offloads);
}

static bool set_offloads(void *ctx, uint64_t offloads)
{
	struct virtio_net *net = ctx;
	/* Only this thread changes them, by calls that have returned. */
	unsigned before = net->pairs[0]->offloads, after;
	bool done;
	struct virtio_features guest = { .word = { (uint32_t)offloads,
						   (uint32_t)(offloads >> 32) } };

	/* Bits above 63 are in the command at places of their own (5.1.6.5.8). */
	if (virtio_has(&guest, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED))
		virtio_add(&guest, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO);
	if (virtio_has(&guest, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED))
		virtio_add(&guest, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM);
	after = net_offloads(&guest);
	/*
	 * Before the first frame with a new one, and until the last with an old one that is wanted.
	 */
	allow_offloads(net, before | after);
	if (net->vhost)
		done = !net_vhost_set_offloads(net, after, before & ~after);
	else
		done = !net->backend->ops->set_offloads(net->backend, after);
	allow_offloads(net, done ? after : before);
	return done;
}

static bool announced(void *ctx)
{
	struct virtio_net *net = ctx;

	atomic_fetch_and(&net->status, (unsigned short)~VIRTIO_NET_S_ANNOUNCE);
	return true;
}

static bool set_coalescing(void *ctx, bool rx, const struct net_coalescing *coalescing)
{
	struct virtio_net *net = ctx;

	for (unsigned i = 0; i < net->pair_count; i++)
		net_pair_set_coalescing(net->pairs[i], rx, coalescing, true);
	return true;
}

/* The pair of an RX or TX queue that the driver enabled, else NULL. */
static struct net_pair *enabled_pair(const struct virtio_net *net, unsigned queue)
{
	struct net_pair *pair = net_pair_of(net, queue);

	return pair && net->device.queues[queue].vq.enabled ? pair : NULL;
}

static bool set_queue_coalescing(void *ctx, unsigned queue, const struct net_coalescing *c)
{
	struct net_pair *pair = enabled_pair(ctx, queue);

	if (pair)
		net_pair_set_coalescing(pair, queue % 2 == 0, c, false);
	return pair;
}

static bool get_queue_coalescing(void *ctx, unsigned queue, struct net_coalescing *c)
{
	const struct net_pair *pair = enabled_pair(ctx, queue);

	/* Only this thread changes them, by a call that has returned. */
	if (pair)
		*c = queue % 2 ? pair->tx.coalescing : pair->rx.coalescing;
	return pair;
}

static bool get_stats(void *ctx, unsigned queue, struct net_ctrl_queue_stats *stats)
{
	const struct net_pair *pair = enabled_pair(ctx, queue);
	const struct net_counters *c;

	if (!pair)
		return false;
	c = queue % 2 ? &pair->tx.counters : &pair->rx.counters;
	*stats = (struct net_ctrl_queue_stats){
		.notifications = net_counter(&c->kicks),
		.packets = net_counter(&c->packets),
		.bytes = net_counter(&c->bytes),
		.interrupts = net_counter(&c->interrupts),
		.drops = net_counter(&c->dropped),
		.drops_of_kind = queue % 2 ? net_counter(&c->drops[NET_DROP_SHORT]) +
						     net_counter(&c->drops[NET_DROP_MALFORMED]) :
					     net_counter(&c->drops[NET_DROP_ROOM]),
	};
	return true;
}

static const struct net_ctrl_ops ctrl_ops = {
	.set_filter = set_filter,
	.set_pairs = set_pairs,
	.set_rss = set_rss,
	.set_offloads = set_offloads,
	.announced = announced,
	.set_coalescing = set_coalescing,
	.set_queue_coalescing = set_queue_coalescing,
	.get_queue_coalescing = get_queue_coalescing,
	.get_stats = get_stats,
};

/* Serves what is in the ring; false when it is dead. */
static bool serve(struct virtio_net *net)
{
	struct virtqueue *vq = &net->control_queue->vq;
	struct iovec iov[MAX_PIECES];
	struct vq_chain chain = { .iov = iov, .room = MAX_PIECES };
	int popped;

	while ((popped = vq_pop(vq, &chain)) > 0) {
		uint32_t written = net_ctrl_execute(&net->ctrl, iov, chain.readable,
						    &iov[chain.readable], chain.writable);

		vq_push(vq, &chain, written);
		vq_publish(vq);
		if (vq_needs_interrupt(vq))
			virtio_queue_interrupt(&net->device, net->control_index);
		if (loop_stopping(&net->control.loop))
			return true;
	}
	return popped == 0;
}

static void control_run(struct virtio_net *net)
{
	struct virtqueue *vq = &net->control_queue->vq;
	bool more = !vq->fault;

	while (more && !loop_stopping(&net->control.loop)) {
		if (!serve(net)) {
			virtio_device_failed(&net->device, net->control_index, vq->fault);
			return;
		}
		more = vq_kicks_enable(vq);
	}
}

static void kicked(struct loop_source *source, uint32_t events)
{
	struct virtio_net *net = container_of(source, struct virtio_net, control_kick);
	uint64_t kicks;
	ssize_t got = read(source->fd, &kicks, sizeof(kicks));

	(void)events;
	(void)got;
	control_run(net);
}

static void begin(struct worker *worker)
{
	control_run(container_of(worker, struct virtio_net, control));
}

int net_control_start(struct virtio_net *net)
{
	int err;

	net->control_queue = &net->device.queues[net->control_index];
	if (!virtio_has(&net->device.accepted, VIRTIO_NET_F_CTRL_VQ) ||
	    !net->control_queue->vq.live)
		return 0;
	net_ctrl_init(&net->ctrl, &ctrl_ops, net, &net->device.accepted, net->pair_count,
		      net->own_mac);
	net->ctrl.hash_types = net->config.supported_hash_types;
	net->control_kick =
		(struct loop_source){ .fd = net->control_queue->kick_fd, .ready = kicked };
	err = worker_init(&net->control, net->device.name, begin);
	if (!err)
		err = loop_add(&net->control.loop, &net->control_kick, EPOLLIN);
	if (!err)
		err = worker_start(&net->control);
	net->control_started = !err;
	if (err)
		worker_fini(&net->control);
	return err;
}

void net_control_stop(struct virtio_net *net)
{
	if (!net->control_started)
		return;
	worker_fini(&net->control);
	net->control_started = false;
}
