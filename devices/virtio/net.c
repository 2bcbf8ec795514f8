/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every offload bit is offered only if the back end can do it, and the back end is told what the driver
 * took each time the device starts: a driver that took nothing never sees a large or unfinished frame.
 * What the guest may send (HOST_TSO*, CSUM) is a matter of the header that goes along with the frame,
 * which every back end takes.
 */
#include "devices/virtio/net.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "vmm/log.h"
#include "vmm/util.h"

enum { RX_QUEUE, TX_QUEUE, QUEUE_COUNT };

/* The driver's features that say what it takes, and the offload of the back end that each allows. */
static const struct {
	unsigned feature;
	unsigned offload;
} guest_offloads[] = {
	{ VIRTIO_NET_F_GUEST_CSUM, NET_OFFLOAD_CSUM },
	{ VIRTIO_NET_F_GUEST_TSO4, NET_OFFLOAD_TSO4 },
	{ VIRTIO_NET_F_GUEST_TSO6, NET_OFFLOAD_TSO6 },
	{ VIRTIO_NET_F_GUEST_ECN, NET_OFFLOAD_ECN },
};

static const unsigned plain_features[] = {
	VIRTIO_NET_F_MAC,	VIRTIO_NET_F_STATUS,	VIRTIO_NET_F_CSUM,
	VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_ECN,
};

static struct virtio_net *to_net(struct virtio_device *device)
{
	return container_of(device, struct virtio_net, device);
}

static void offer_features(struct virtio_net *net)
{
	struct virtio_features *offered = &net->device.offered;

	for (unsigned i = 0; i < ARRAY_SIZE(plain_features); i++)
		virtio_add(offered, plain_features[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		if (net->backend->offloads & guest_offloads[i].offload)
			virtio_add(offered, guest_offloads[i].feature);
	if (net->config.mtu)
		virtio_add(offered, VIRTIO_NET_F_MTU);
}

static unsigned accepted_offloads(const struct virtio_net *net)
{
	unsigned offloads = 0;

	/* The segmentation offloads require the checksum (5.1.3.1). */
	if (!virtio_has(&net->device.accepted, VIRTIO_NET_F_GUEST_CSUM))
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		if (virtio_has(&net->device.accepted, guest_offloads[i].feature))
			offloads |= guest_offloads[i].offload;
	/* And ECN one of the two. */
	if (!(offloads & (NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6)))
		offloads &= ~NET_OFFLOAD_ECN;
	return offloads;
}

static void net_config_read(struct virtio_device *device, uint64_t offset, void *data, unsigned len)
{
	struct virtio_net *net = to_net(device);

	memset(data, 0, len);
	if (offset < sizeof(net->config))
		memcpy(data, (const char *)&net->config + offset,
		       MIN(len, sizeof(net->config) - offset));
}

static int net_activate(struct virtio_device *device)
{
	struct virtio_net *net = to_net(device);
	int err = net->backend->ops->set_offloads(net->backend, accepted_offloads(net));

	if (err) {
		log_limited(&device->faults, "%s: %s refuses offloads it took before: %s",
			    device->name, net->backend->name, strerror(-err));
		return err;
	}
	return net_pair_start(&net->pair, device->name);
}

static void net_deactivate(struct virtio_device *device)
{
	net_pair_stop(&to_net(device)->pair);
}

static const struct virtio_device_ops net_ops = {
	.config_read = net_config_read,
	.activate = net_activate,
	.deactivate = net_deactivate,
};

int virtio_net_init(struct virtio_net *net, const struct virtio_net_options *options,
		    struct net_backend *backend, const struct mem *mem)
{
	int err;

	memset(net, 0, sizeof(*net));
	net->backend = backend;
	memcpy(net->config.mac, options->mac, sizeof(net->config.mac));
	net->config.status = VIRTIO_NET_S_LINK_UP;
	net->config.max_virtqueue_pairs = 1;
	net->config.mtu = options->mtu;
	err = virtio_device_init(&net->device, &net_ops, VIRTIO_ID_NET, options->name, mem,
				 QUEUE_COUNT, NET_QUEUE_SIZE);
	if (err) {
		log_error("%s: %s", options->name, strerror(-err));
		return err;
	}
	offer_features(net);
	net_pair_init(&net->pair, &net->device, backend, RX_QUEUE);
	return 0;
}

void virtio_net_fini(struct virtio_net *net)
{
	virtio_device_fini(&net->device);
}
