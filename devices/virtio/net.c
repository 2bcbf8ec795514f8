/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every offload bit is offered only if the back end can do it, and the back end is told what the
 * driver took each time the device starts: a driver that took nothing never sees a large or
 * unfinished frame. What the guest may send (HOST_TSO*, CSUM) is a matter of the header that goes
 * along with the frame, which every back end takes; the newer kinds only if it also knows them in
 * the other direction.
 *
 * With MQ or RSS the control queue is the last one, else it is queue 2 (5.1.2): which index plays
 * which part is known at activation only.
 */
#include "devices/virtio/net.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/net_costs.h"
#include "devices/virtio/net_vhost.h"
#include "vmm/affinity.h"
#include "vmm/linux_new.h"
#include "vmm/log.h"
#include "vmm/net_features.h"
#include "vmm/util.h"

#define NS_PER_US 1000ull

/*
 * The driver's features that say what it takes, and the offload of the back end that each allows.
 */
static const struct {
	unsigned feature;
	unsigned offload;
} guest_offloads[] = {
	{ VIRTIO_NET_F_GUEST_CSUM, NET_OFFLOAD_CSUM },
	{ VIRTIO_NET_F_GUEST_TSO4, NET_OFFLOAD_TSO4 },
	{ VIRTIO_NET_F_GUEST_TSO6, NET_OFFLOAD_TSO6 },
	{ VIRTIO_NET_F_GUEST_ECN, NET_OFFLOAD_ECN },
	{ VIRTIO_NET_F_GUEST_UFO, NET_OFFLOAD_UFO },
	{ VIRTIO_NET_F_GUEST_USO4, NET_OFFLOAD_USO },
	{ VIRTIO_NET_F_GUEST_USO6, NET_OFFLOAD_USO },
	{ VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, NET_OFFLOAD_TUNNEL },
	{ VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM, NET_OFFLOAD_TUNNEL_CSUM },
};

/* What the guest may send, where the back end has to know it. */
static const struct {
	unsigned feature;
	unsigned offload;
} host_offloads[] = {
	{ VIRTIO_NET_F_HOST_UFO, NET_OFFLOAD_UFO },
	{ VIRTIO_NET_F_HOST_USO, NET_OFFLOAD_USO },
	{ VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO, NET_OFFLOAD_TUNNEL },
	{ VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM, NET_OFFLOAD_TUNNEL_CSUM },
};

/* What needs nothing of the back end. */
static const unsigned plain_features[] = {
	VIRTIO_NET_F_CSUM,
	VIRTIO_NET_F_CTRL_GUEST_OFFLOADS,
	VIRTIO_NET_F_MAC,
	VIRTIO_NET_F_HOST_TSO4,
	VIRTIO_NET_F_HOST_TSO6,
	VIRTIO_NET_F_HOST_ECN,
	VIRTIO_NET_F_MRG_RXBUF,
	VIRTIO_NET_F_STATUS,
	VIRTIO_NET_F_CTRL_VQ,
	VIRTIO_NET_F_CTRL_RX,
	VIRTIO_NET_F_CTRL_VLAN,
	VIRTIO_NET_F_CTRL_RX_EXTRA,
	VIRTIO_NET_F_GUEST_ANNOUNCE,
	VIRTIO_NET_F_CTRL_MAC_ADDR,
	VIRTIO_NET_F_DEVICE_STATS,
	VIRTIO_NET_F_VQ_NOTF_COAL,
	VIRTIO_NET_F_NOTF_COAL,
	VIRTIO_NET_F_HASH_REPORT,
	VIRTIO_NET_F_GUEST_HDRLEN,
	VIRTIO_NET_F_SPEED_DUPLEX,
	VIRTIO_RING_F_INDIRECT_DESC,
	VIRTIO_RING_F_EVENT_IDX,
	VIRTIO_F_VERSION_1,
	VIRTIO_F_ACCESS_PLATFORM,
	VIRTIO_F_RING_PACKED,
	VIRTIO_F_IN_ORDER,
	VIRTIO_F_ORDER_PLATFORM,
	VIRTIO_F_NOTIFICATION_DATA,
	VIRTIO_F_RING_RESET,
};

static struct virtio_net *to_net(struct virtio_device *device)
{
	return container_of(device, struct virtio_net, device);
}

static void find_possible(const struct virtio_net *net, struct virtio_features *possible)
{
	unsigned offloads = net->backend->offloads;

	for (unsigned i = 0; i < ARRAY_SIZE(plain_features); i++)
		virtio_add(possible, plain_features[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		if (offloads & guest_offloads[i].offload)
			virtio_add(possible, guest_offloads[i].feature);
	for (unsigned i = 0; i < ARRAY_SIZE(host_offloads); i++)
		if (offloads & host_offloads[i].offload)
			virtio_add(possible, host_offloads[i].feature);
	if (net->config.mtu)
		virtio_add(possible, VIRTIO_NET_F_MTU);
	if (net->pair_count > 1)
		virtio_add(possible, VIRTIO_NET_F_MQ);
	if (net->pair_count > 1 && net->backend->steering)
		virtio_add(possible, VIRTIO_NET_F_RSS);
	net_vhost_limit(net, possible);
}

static int refuse_feature(const struct virtio_net *net, const struct net_feature *feature)
{
	const char *lacks = net_vhost_lacks(net, feature->bit);

	if (lacks)
		log_error("--net +%s: %s", feature->name, lacks);
	else
		log_error("--net +%s: %s cannot do it (`whelp doctor` shows what this host's taps "
			  "can); leave it out", feature->name, net->backend->name);
	return -EOPNOTSUPP;
}

static int offer_features(struct virtio_net *net, const struct virtio_net_options *options)
{
	struct virtio_features possible = { 0 };

	find_possible(net, &possible);
	for (unsigned i = 0; i < net_feature_count; i++) {
		unsigned bit = net_features[i].bit;

		if (virtio_has(&options->required, bit) && !virtio_has(&possible, bit))
			return refuse_feature(net, &net_features[i]);
	}
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		net->device.offered.word[i] = options->wanted.word[i] & possible.word[i];
	/* What the back end lacks may be needed by what it has. */
	net_features_close(net->device.offered.word);
	return 0;
}

unsigned net_offloads(const struct virtio_features *guest)
{
	unsigned offloads = 0;

	/* The segmentation offloads require the checksum (5.1.3.1). */
	if (!virtio_has(guest, VIRTIO_NET_F_GUEST_CSUM))
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		if (virtio_has(guest, guest_offloads[i].feature))
			offloads |= guest_offloads[i].offload;
	/* And ECN one of the two. */
	if (!(offloads & (NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6)))
		offloads &= ~NET_OFFLOAD_ECN;
	/* The back end has one switch for UDP over both versions of IP. */
	if (!virtio_has(guest, VIRTIO_NET_F_GUEST_USO4) ||
	    !virtio_has(guest, VIRTIO_NET_F_GUEST_USO6))
		offloads &= ~NET_OFFLOAD_USO;
	return offloads;
}

static void net_config_read(struct virtio_device *device, uint64_t offset, void *data, unsigned len)
{
	struct virtio_net *net = to_net(device);
	struct virtio_net_config config;

	pthread_mutex_lock(&net->config_lock);
	config = net->config;
	pthread_mutex_unlock(&net->config_lock);
	config.status = atomic_load(&net->status);
	memset(data, 0, len);
	if (offset < sizeof(config))
		memcpy(data, (const char *)&config + offset, MIN(len, sizeof(config) - offset));
}

void net_set_mac(struct virtio_net *net, const uint8_t mac[6])
{
	pthread_mutex_lock(&net->config_lock);
	memcpy(net->config.mac, mac, sizeof(net->config.mac));
	pthread_mutex_unlock(&net->config_lock);
}

int net_set_pairs(struct virtio_net *net, unsigned pairs)
{
	int err = 0;

	while (!err && net->active_pairs < pairs) {
		err = net_pair_attach(net->pairs[net->active_pairs], true);
		net->active_pairs += !err;
	}
	while (!err && net->active_pairs > pairs) {
		err = net_pair_attach(net->pairs[net->active_pairs - 1], false);
		net->active_pairs -= !err;
	}
	if (err)
		log_limited(&net->device.faults, "%s: %s does not let %u pairs be in use: %s",
			    net->device.name, net->backend->name, pairs, strerror(-err));
	return err;
}

static void choose_mode(struct virtio_net *net)
{
	const struct virtio_features *f = &net->device.accepted;
	bool tunnels = virtio_has(f, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO) ||
		       virtio_has(f, VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO);

	net->mode.mergeable = virtio_has(f, VIRTIO_NET_F_MRG_RXBUF);
	net->mode.hash_report = virtio_has(f, VIRTIO_NET_F_HASH_REPORT);
	net->mode.offloads = net_offloads(f);
	net->mode.header = tunnels ? 24 : net->mode.hash_report ? 20 : 12;
}

/*
 * One that is gone for good (-EBADFD) is no failure: a pair will find that, and the link is down.
 */
static int prepare_backend(struct virtio_net *net)
{
	const struct net_backend_ops *ops = net->backend->ops;
	int err = ops->set_header(net->backend, net->mode.header);

	if (!err)
		err = ops->set_offloads(net->backend, net->mode.offloads);
	if (!err && net->backend->steering)
		err = ops->set_steering(net->backend, NULL);
	if (err == -EBADFD)
		return 0;
	if (err)
		log_limited(&net->device.faults, "%s: %s refuses what it took before: %s",
			    net->device.name, net->backend->name, strerror(-err));
	return err;
}

static void stop_pairs(struct virtio_net *net)
{
	if (net->vhost) {
		net_vhost_stop(net);
		return;
	}
	for (unsigned i = 0; i < net->worker_count; i++)
		net_worker_close(&net->workers[i]);
	for (unsigned i = 0; i < net->pair_count; i++)
		net_pair_stop(net->pairs[i]);
}

static void net_deactivate(struct virtio_device *device)
{
	struct virtio_net *net = to_net(device);

	/* First, since it has the pairs' workers do things. */
	net_control_stop(net);
	stop_pairs(net);
	/* One pair, and the device's own address, after reset. */
	net_set_pairs(net, 1);
	net->driver_pairs = 1;
	net_set_mac(net, net->own_mac);
	/* What it was asked to announce was the old driver's. */
	atomic_fetch_and(&net->status, (unsigned short)~VIRTIO_NET_S_ANNOUNCE);
}

/* Once, when a driver first wants it: it takes about a millisecond. */
static void learn_costs(struct virtio_net *net)
{
	const struct net_tuning *t = &net->tuning;
	struct net_costs costs = { 0 };
	bool crowded;

	if (net->costs_known)
		return;
	net->costs_known = true;
	crowded = affinity_cpus() <= MAX(net->guest_cpus, 1u);
	if (t->poll == NET_POLL_AUTO || t->mitigation != MITIGATE_OFF)
		net_costs_measure(&costs);
	net->policy = (struct mitigate_config){
		.kind = t->mitigation,
		.period = t->period_usecs * NS_PER_US,
		.latency = t->latency_usecs * NS_PER_US,
		.kick_cost = costs.kick,
		.overshoot = costs.overshoot,
		.crowded = crowded,
	};
	if (t->poll == NET_POLL_FIXED)
		net->policy.poll_max = t->poll_usecs * NS_PER_US;
	else if (t->poll == NET_POLL_AUTO && !crowded)
		net->policy.poll_max = costs.kick;
}

static int start_workers(struct virtio_net *net, unsigned pairs)
{
	int err = 0;

	learn_costs(net);
	for (unsigned i = 0; !err && i < net->worker_count; i++)
		err = net_worker_open(&net->workers[i], net->device.name, &net->tuning, net->lock);
	for (unsigned i = 0; !err && i < net->worker_count; i++)
		worker_pin(&net->workers[i].worker, cpu_list_choose(&net->tuning.cpus, i));
	for (unsigned i = 0; !err && i < pairs; i++)
		err = net_pair_start(net->pairs[i], &net->mode, &net->policy, &net->filters[0],
				     &net->rss[0]);
	for (unsigned i = 0; !err && i < net->worker_count; i++)
		err = net_worker_start(&net->workers[i]);
	return err;
}

static int start_pairs(struct virtio_net *net)
{
	/* The queues of a pair are its own unless one of them is the control queue. */
	unsigned pairs = net->control_index == 2 * net->pair_count ? net->pair_count : 1;

	return net->vhost ? net_vhost_start(net, pairs) : start_workers(net, pairs);
}

static int net_activate(struct virtio_device *device)
{
	struct virtio_net *net = to_net(device);
	bool many = virtio_has(&device->accepted, VIRTIO_NET_F_MQ) ||
		    virtio_has(&device->accepted, VIRTIO_NET_F_RSS);
	int err;

	net->control_index = many ? 2 * net->pair_count : 2;
	choose_mode(net);
	err = prepare_backend(net);
	net->filter_in_use = net->rss_in_use = 0;
	memset(&net->rss[0], 0, sizeof(net->rss[0]));
	net_filter_init(&net->filters[0], net->own_mac,
			virtio_has(&device->accepted, VIRTIO_NET_F_CTRL_RX),
			virtio_has(&device->accepted, VIRTIO_NET_F_CTRL_VLAN));
	if (!err)
		err = start_pairs(net);
	if (!err)
		err = net_control_start(net);
	if (err)
		net_deactivate(device);
	return err;
}

struct net_pair *net_pair_of(const struct virtio_net *net, unsigned queue)
{
	if (queue == net->control_index || queue / 2 >= net->pair_count)
		return NULL;
	return net->pairs[queue / 2];
}

static void net_stop_queue(struct virtio_device *device, unsigned queue)
{
	struct virtio_net *net = to_net(device);
	struct net_pair *pair = net_pair_of(net, queue);

	if (pair && net->vhost)
		net_vhost_stop_queue(net, queue);
	else if (pair && pair->started)
		net_pair_stop_queue(pair, queue);
	else if (queue == net->control_index)
		net_control_stop(net);
}

static int net_start_queue(struct virtio_device *device, unsigned queue)
{
	struct virtio_net *net = to_net(device);
	struct net_pair *pair = net_pair_of(net, queue);

	if (pair && net->vhost)
		return net_vhost_start_queue(net, queue);
	if (pair && pair->started)
		net_pair_start_queue(pair, queue);
	else if (queue == net->control_index)
		return net_control_start(net);
	return 0;
}

static const struct virtio_device_ops net_ops = {
	.config_read = net_config_read,
	.activate = net_activate,
	.deactivate = net_deactivate,
	.stop_queue = net_stop_queue,
	.start_queue = net_start_queue,
};

static void fill_config(struct virtio_net *net, const struct virtio_net_options *options)
{
	struct virtio_net_config *c = &net->config;

	memcpy(c->mac, options->mac, sizeof(c->mac));
	atomic_init(&net->status, VIRTIO_NET_S_LINK_UP);
	c->max_virtqueue_pairs = (uint16_t)net->pair_count;
	c->mtu = options->mtu;
	c->speed = options->speed;
	c->duplex = options->duplex;
	c->rss_max_key_size = NET_HASH_KEY_MAX;
	c->rss_max_indirection_table_length = NET_HASH_TABLE_MAX;
	/* A back end that steers does not look behind IPv6's extension headers. */
	c->supported_hash_types = net->backend->steering ? NET_HASH_PLAIN_TYPES : NET_HASH_TYPES;
}

void net_wire_gone(struct virtio_net *net)
{
	atomic_fetch_and(&net->status, (unsigned short)~VIRTIO_NET_S_LINK_UP);
	virtio_config_changed(&net->device);
}

static struct net_worker *worker_of(const struct virtio_net *net, unsigned queue)
{
	switch (net->tuning.workers) {
	case NET_WORKERS_PAIR:
		return &net->workers[queue / 2];
	case NET_WORKERS_SPLIT:
		return &net->workers[queue];
	case NET_WORKERS_ONE:
		break;
	}
	return &net->workers[0];
}

static int make_workers(struct virtio_net *net)
{
	const unsigned counts[] = {
		[NET_WORKERS_PAIR] = net->pair_count,
		[NET_WORKERS_SPLIT] = 2 * net->pair_count,
		[NET_WORKERS_ONE] = 1,
	};

	net->worker_count = counts[net->tuning.workers];
	net->workers = calloc(net->worker_count, sizeof(*net->workers));
	return net->workers ? 0 : -ENOMEM;
}

static void pair_gone(struct net_pair *pair)
{
	net_wire_gone(to_net(pair->device));
}

static int make_pairs(struct virtio_net *net)
{
	net->pairs = calloc(net->pair_count, sizeof(struct net_pair *));
	if (!net->pairs)
		return -ENOMEM;
	for (unsigned i = 0; i < net->pair_count; i++) {
		net->pairs[i] = malloc(sizeof(*net->pairs[i]));
		if (!net->pairs[i])
			return -ENOMEM;
		net_pair_init(net->pairs[i], &net->device, net->backend, &net->tuning, i,
			      worker_of(net, 2 * i), worker_of(net, 2 * i + 1), pair_gone);
	}
	return 0;
}

/* NET_IO_AUTO does without where it has to. */
static int open_batches(struct virtio_net *net)
{
	const struct net_backend_ops *ops = net->backend->ops;
	int err;

	if (net->tuning.io == NET_IO_SYSCALL)
		return 0;
	err = ops->open_batches ? ops->open_batches(net->backend) : -EOPNOTSUPP;
	if (err && net->tuning.io == NET_IO_AUTO)
		return 0;
	for (unsigned i = 0; !err && i < net->pair_count; i++)
		err = net_pair_use_batches(net->pairs[i]);
	if (err)
		log_error("--net io=uring: %s cannot be written to through io_uring: %s; it takes "
			  "Linux 6.4, and io_uring not being disabled (sysctl "
			  "kernel.io_uring_disabled); io=auto does without where it has to",
			  net->backend->name, strerror(-err));
	return err;
}

int virtio_net_init(struct virtio_net *net, const struct virtio_net_options *options,
		    struct net_backend *backend, const struct mem *mem)
{
	int err;

	memset(net, 0, sizeof(*net));
	net->backend = backend;
	net->pair_count = backend->queues;
	net->active_pairs = net->driver_pairs = 1;
	net->tuning = options->tuning;
	net->guest_cpus = options->guest_cpus;
	net->lock = options->lock;
	pthread_mutex_init(&net->config_lock, NULL);
	memcpy(net->own_mac, options->mac, sizeof(net->own_mac));
	fill_config(net, options);
	err = virtio_device_init(&net->device, &net_ops, VIRTIO_ID_NET, options->name, mem,
				 2 * net->pair_count + 1, NET_CONTROL_RING);
	for (unsigned i = 0; !err && i < 2 * net->pair_count; i++)
		virtio_set_queue_size(&net->device, i,
				      i % 2 ? options->tx_ring : options->rx_ring);
	if (!err)
		err = make_workers(net);
	if (!err)
		err = make_pairs(net);
	if (err) {
		log_error("%s: %s", options->name, strerror(-err));
		return err;
	}
	err = options->vhost ? net_vhost_open(net) : open_batches(net);
	return err ? err : offer_features(net, options);
}

void virtio_net_fini(struct virtio_net *net)
{
	if (!net->backend)
		return;
	virtio_device_fini(&net->device);
	net_vhost_close(net);
	pthread_mutex_destroy(&net->config_lock);
	net->backend = NULL;
	for (unsigned i = 0; net->pairs && i < net->pair_count; i++) {
		if (net->pairs[i])
			net_pair_fini(net->pairs[i]);
		free(net->pairs[i]);
	}
	free(net->pairs);
	free(net->workers);
	net->pairs = NULL;
	net->workers = NULL;
	net->worker_count = 0;
}

void virtio_net_announce(struct virtio_net *net)
{
	if (!virtio_running(&net->device) ||
	    !virtio_has(&net->device.accepted, VIRTIO_NET_F_GUEST_ANNOUNCE))
		return;
	atomic_fetch_or(&net->status, VIRTIO_NET_S_ANNOUNCE);
	virtio_config_changed(&net->device);
}
