/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each pair has a vhost-net of its own, hence a thread of the kernel's. Kicks go to it by the
 * queue's ioeventfd, and its calls to the guest by a KVM irqfd, both without us. Only where an
 * interrupt is more than a message (INTx, or a vector that is masked, which then is pending) the
 * call's count stays in its eventfd, and one thread of the NIC's, the relay, passes it on. It also
 * learns of rings that vhost-net gave up on.
 *
 * Rings run from DRIVER_OK on, also those of pairs whose queue of the tap is not in use: no frame
 * comes from such a queue, and one that the driver sends there goes out, as it should, rather than
 * be stuck.
 *
 * Nobody tells that the tap's interface was deleted while vhost-net is the one who waits for its
 * frames: the kernel does it by waking whoever waits for frames, that is vhost-net. So the relay
 * looks once a second.
 */
#include "devices/virtio/net_vhost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "devices/net/vhost.h"
#include "vmm/linux_new.h"
#include "vmm/log.h"
#include "vmm/util.h"

/* How often to look whether the tap is still there, in seconds. */
#define LOOK_INTERVAL 1

struct net_vhost_queue {
	struct virtio_net *net;
	unsigned index;		  /* the queue's, in the device */
	struct loop_source call;  /* eventfds; see struct vhost_ring */
	struct loop_source error;
	bool running;
};

struct net_vhost {
	struct vhost *pairs; /* as many as the NIC has */
	struct net_vhost_queue *queues; /* two a pair */
	/* Of starting and stopping rings, by the transport's caller and the control queue's thread. */
	pthread_mutex_t lock;
	struct worker relay;
	bool relaying;
	struct loop_source timer;
	bool gone; /* the tap; known for good */
};

/* What nobody but our own workers does. */
static const unsigned workers_only[] = {
	VIRTIO_NET_F_CTRL_RX,	    VIRTIO_NET_F_CTRL_VLAN,   VIRTIO_NET_F_CTRL_RX_EXTRA,
	VIRTIO_NET_F_DEVICE_STATS,  VIRTIO_NET_F_VQ_NOTF_COAL, VIRTIO_NET_F_NOTF_COAL,
	VIRTIO_NET_F_HASH_REPORT,   VIRTIO_F_NOTIFICATION_DATA, VIRTIO_F_RING_PACKED,
};

/* What vhost-net has to know, and may not. */
static const unsigned kernels_own[] = {
	VIRTIO_NET_F_MRG_RXBUF,		   VIRTIO_RING_F_INDIRECT_DESC,
	VIRTIO_RING_F_EVENT_IDX,	   VIRTIO_F_IN_ORDER,
	VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO,
};

static bool among(const unsigned *features, unsigned count, unsigned feature)
{
	for (unsigned i = 0; i < count; i++)
		if (features[i] == feature)
			return true;
	return false;
}

const char *net_vhost_lacks(const struct virtio_net *net, unsigned feature)
{
	if (!net->vhost)
		return NULL;
	if (among(workers_only, ARRAY_SIZE(workers_only), feature))
		return "vhost=on cannot do it, only whelp's own workers can; leave one of the two "
		       "out";
	if (among(kernels_own, ARRAY_SIZE(kernels_own), feature) &&
	    !virtio_has(&net->vhost->pairs[0].features, feature))
		return "this kernel's vhost-net cannot do it; leave it or vhost=on out";
	return NULL;
}

void net_vhost_limit(const struct virtio_net *net, struct virtio_features *possible)
{
	for (unsigned bit = 0; bit < 32 * VIRTIO_FEATURE_WORDS; bit++)
		if (net_vhost_lacks(net, bit))
			possible->word[bit / 32] &= ~(1u << bit % 32);
}

/* ---- the relay ---- */

static bool take_count(const struct loop_source *source)
{
	uint64_t count;

	return read(source->fd, &count, sizeof(count)) == sizeof(count);
}

static void called(struct loop_source *source, uint32_t events)
{
	struct net_vhost_queue *q = container_of(source, struct net_vhost_queue, call);

	(void)events;
	/* KVM may have been faster, just when it began to take these. */
	if (take_count(source))
		virtio_queue_interrupt(&q->net->device, q->index);
}

static void look_for_tap(struct virtio_net *net)
{
	struct net_backend *backend = net->backend;

	if (net->vhost->gone || !vhost_tap_gone(backend->ops->fd(backend, 0)))
		return;
	net->vhost->gone = true;
	log_warn("%s: %s is gone: the guest's NIC is cut off", net->device.name, backend->name);
	net_wire_gone(net);
}

static void timer_ready(struct loop_source *source, uint32_t events)
{
	struct net_vhost *vhost = container_of(source, struct net_vhost, timer);

	(void)events;
	if (take_count(source))
		look_for_tap(vhost->queues[0].net);
}

/*
 * vhost-net goes on with neither the frame nor, most often, the ring. A tap that is gone is no
 * fault of the driver's.
 */
static void failed(struct loop_source *source, uint32_t events)
{
	struct net_vhost_queue *q = container_of(source, struct net_vhost_queue, error);

	(void)events;
	if (!take_count(source))
		return;
	look_for_tap(q->net);
	if (q->net->vhost->gone)
		return;
	/* Once: until the reset it would only come again. */
	loop_remove(&q->net->vhost->relay.loop, source);
	virtio_device_failed(&q->net->device, q->index,
			     "vhost-net found a descriptor or a buffer that it cannot use");
}

static int watch(struct net_vhost *vhost, unsigned count)
{
	struct loop *loop = &vhost->relay.loop;
	int err = loop_add(loop, &vhost->timer, EPOLLIN);

	for (unsigned i = 0; !err && i < count; i++) {
		err = loop_add(loop, &vhost->queues[i].call, EPOLLIN);
		if (!err)
			err = loop_add(loop, &vhost->queues[i].error, EPOLLIN);
	}
	return err;
}

static int start_relay(struct virtio_net *net)
{
	struct net_vhost *vhost = net->vhost;
	char name[16];
	int err;

	snprintf(name, sizeof(name), "%.8s relay", net->device.name);
	err = worker_init(&vhost->relay, name, NULL);
	if (!err)
		err = watch(vhost, 2 * net->pair_count);
	if (!err)
		err = worker_start(&vhost->relay);
	vhost->relaying = !err;
	if (err)
		worker_fini(&vhost->relay);
	return err;
}

static void stop_relay(struct net_vhost *vhost)
{
	if (vhost->relaying)
		worker_fini(&vhost->relay);
	vhost->relaying = false;
}

/* ---- rings ---- */

static enum vhost_ring_index ring_of(unsigned queue)
{
	return queue % 2 ? VHOST_TX : VHOST_RX;
}

static struct vhost *vhost_of(const struct virtio_net *net, unsigned queue)
{
	return &net->vhost->pairs[queue / 2];
}

static int tap_fd(const struct virtio_net *net, unsigned queue)
{
	return net->backend->ops->fd(net->backend, queue / 2);
}

static void set_call(struct virtio_net *net, unsigned queue, int fd)
{
	net->device.transport->queue_call_fd(net->device.transport_ctx, queue, fd);
}

static int start_ring(struct virtio_net *net, unsigned queue)
{
	struct net_vhost_queue *q = &net->vhost->queues[queue];
	const struct virtqueue *vq = &net->device.queues[queue].vq;
	const struct vhost_ring ring = {
		.size = vq->size,
		/* That the whole of each is there was found when the queue became live. */
		.desc = mem_ptr(net->device.mem, vq->desc_gpa, 1),
		.driver = mem_ptr(net->device.mem, vq->driver_gpa, 1),
		.device = mem_ptr(net->device.mem, vq->device_gpa, 1),
		.kick_fd = net->device.queues[queue].kick_fd,
		.call_fd = q->call.fd,
		.error_fd = q->error.fd,
	};
	int err;

	if (!vq->live)
		return 0;
	set_call(net, queue, q->call.fd);
	err = vhost_start(vhost_of(net, queue), ring_of(queue), &ring, tap_fd(net, queue));
	q->running = !err;
	if (!err)
		return 0;
	set_call(net, queue, -1);
	/* It is not started on a tap that is gone; the guest's link is down then. */
	return vhost_tap_gone(tap_fd(net, queue)) ? 0 : err;
}

/* When this returns nothing of the ring is in use, and no interrupt of its old life to come. */
static void stop_ring(struct virtio_net *net, unsigned queue)
{
	struct net_vhost_queue *q = &net->vhost->queues[queue];

	if (!q->running)
		return;
	vhost_stop(vhost_of(net, queue), ring_of(queue));
	set_call(net, queue, -1);
	take_count(&q->call);
	take_count(&q->error);
	q->running = false;
}

static int start_pair(struct virtio_net *net, unsigned pair)
{
	int err = vhost_set_features(&net->vhost->pairs[pair], &net->device.accepted);

	/* What a command that changes offloads starts from. */
	net_pair_set_offloads(net->pairs[pair], net->mode.offloads);
	/* Frames from before the driver was there are stale, and may use offloads it did not take. */
	if (net->pairs[pair]->rx.attached)
		net_backend_drain(net->backend, pair);
	if (!err)
		err = start_ring(net, 2 * pair);
	if (!err)
		err = start_ring(net, 2 * pair + 1);
	return err;
}

int net_vhost_start(struct virtio_net *net, unsigned pairs)
{
	int err = start_relay(net);

	for (unsigned i = 0; !err && i < pairs; i++)
		err = start_pair(net, i);
	if (err)
		log_limited(&net->device.faults, "%s: vhost-net does not start: %s",
			    net->device.name, strerror(-err));
	return err;
}

void net_vhost_stop(struct virtio_net *net)
{
	for (unsigned i = 0; i < 2 * net->pair_count; i++)
		stop_ring(net, i);
	stop_relay(net->vhost);
}

void net_vhost_stop_queue(struct virtio_net *net, unsigned queue)
{
	pthread_mutex_lock(&net->vhost->lock);
	stop_ring(net, queue);
	pthread_mutex_unlock(&net->vhost->lock);
}

int net_vhost_start_queue(struct virtio_net *net, unsigned queue)
{
	int err;

	pthread_mutex_lock(&net->vhost->lock);
	err = start_ring(net, queue);
	pthread_mutex_unlock(&net->vhost->lock);
	return err;
}

/* Has the receive rings let go of the tap, and take it up again. */
static int hold_back(struct virtio_net *net, bool on)
{
	int err = 0;

	for (unsigned i = 0; i < 2 * net->pair_count; i += 2) {
		if (!net->vhost->queues[i].running)
			continue;
		if (on)
			vhost_pause(vhost_of(net, i), VHOST_RX);
		else if (vhost_resume(vhost_of(net, i), VHOST_RX, tap_fd(net, i)))
			err = -EIO;
	}
	return err;
}

int net_vhost_set_offloads(struct virtio_net *net, unsigned offloads, bool fewer)
{
	const struct net_backend_ops *ops = net->backend->ops;
	int err;

	if (!fewer)
		return ops->set_offloads(net->backend, offloads);
	pthread_mutex_lock(&net->vhost->lock);
	hold_back(net, true);
	err = ops->set_offloads(net->backend, offloads);
	for (unsigned i = 0; !err && i < net->active_pairs; i++)
		net_backend_drain(net->backend, i);
	if (hold_back(net, false) && !vhost_tap_gone(tap_fd(net, 0)))
		virtio_device_failed(&net->device, 0, "vhost-net does not go on");
	pthread_mutex_unlock(&net->vhost->lock);
	return err;
}

/* ---- from power-on to the end ---- */

static int open_source(struct loop_source *source, loop_ready_fn *ready)
{
	source->ready = ready;
	source->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return source->fd < 0 ? -errno : 0;
}

static int open_queue(struct virtio_net *net, unsigned index)
{
	struct net_vhost_queue *q = &net->vhost->queues[index];
	int err;

	q->net = net;
	q->index = index;
	err = open_source(&q->call, called);
	return err ? err : open_source(&q->error, failed);
}

static int open_timer(struct net_vhost *vhost)
{
	const struct itimerspec interval = {
		.it_value.tv_sec = LOOK_INTERVAL,
		.it_interval.tv_sec = LOOK_INTERVAL,
	};

	vhost->timer.ready = timer_ready;
	vhost->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (vhost->timer.fd < 0 || timerfd_settime(vhost->timer.fd, 0, &interval, NULL))
		return -errno;
	return 0;
}

/* Without any file. */
static struct net_vhost *allocate(unsigned pairs)
{
	struct net_vhost *vhost = calloc(1, sizeof(*vhost));

	if (!vhost)
		return NULL;
	pthread_mutex_init(&vhost->lock, NULL);
	vhost->timer.fd = -1;
	vhost->pairs = calloc(pairs, sizeof(*vhost->pairs));
	vhost->queues = calloc(2 * pairs, sizeof(*vhost->queues));
	for (unsigned i = 0; vhost->pairs && i < pairs; i++)
		vhost->pairs[i].fd = -1;
	for (unsigned i = 0; vhost->queues && i < 2 * pairs; i++)
		vhost->queues[i].call.fd = vhost->queues[i].error.fd = -1;
	return vhost;
}

int net_vhost_open(struct virtio_net *net)
{
	struct net_vhost *vhost = net->vhost = allocate(net->pair_count);
	int err = vhost && vhost->pairs && vhost->queues ? open_timer(vhost) : -ENOMEM;

	for (unsigned i = 0; !err && i < 2 * net->pair_count; i++)
		err = open_queue(net, i);
	if (err) {
		log_error("%s: %s", net->device.name, strerror(-err));
		return err;
	}
	for (unsigned i = 0; !err && i < net->pair_count; i++)
		err = vhost_open(&vhost->pairs[i], net->device.mem);
	return err;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void net_vhost_close(struct virtio_net *net)
{
	struct net_vhost *vhost = net->vhost;

	if (!vhost)
		return;
	for (unsigned i = 0; vhost->pairs && i < net->pair_count; i++)
		vhost_close(&vhost->pairs[i]);
	for (unsigned i = 0; vhost->queues && i < 2 * net->pair_count; i++) {
		close_fd(vhost->queues[i].call.fd);
		close_fd(vhost->queues[i].error.fd);
	}
	close_fd(vhost->timer.fd);
	free(vhost->pairs);
	free(vhost->queues);
	pthread_mutex_destroy(&vhost->lock);
	free(vhost);
	net->vhost = NULL;
}
