/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tap carries the virtio-net header itself (IFF_VNET_HDR, little-endian), so frames pass
 * between guest memory and the kernel's network stack untouched. It is opened non-blocking and
 * keeps its default send buffer: both are what the kernel's fast path for small frames asks for.
 *
 * Which offloads this kernel's tap knows is found by asking for each; what it refuses is not
 * offered.
 *
 * Each queue is a file of its own. The kernel gives a flow's frames to the queue on which the guest
 * sent that flow last; a steering program replaces that. It numbers queues in the order in which
 * they were attached, hence the order that enable() asks for.
 */
#include "devices/net/tap.h"

#include <errno.h>
#include <limits.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "devices/net/steer.h"
#include "devices/net/tap_uring.h"
#include "vmm/iov.h"
#include "vmm/linux_new.h"
#include "vmm/log.h"
#include "vmm/util.h"

static struct tap *to_tap(struct net_backend *backend)
{
	return container_of(backend, struct tap, backend);
}

static int first_fd(const struct tap *tap)
{
	return tap->queues[0].fd;
}

/* What an offload is in the tap's terms, and the offloads it is taken with only. */
static const struct {
	unsigned offload;
	unsigned flags;
	unsigned needs;
} offload_flags[] = {
	{ NET_OFFLOAD_CSUM, TUN_F_CSUM, 0 },
	{ NET_OFFLOAD_TSO4, TUN_F_TSO4, NET_OFFLOAD_CSUM },
	{ NET_OFFLOAD_TSO6, TUN_F_TSO6, NET_OFFLOAD_CSUM },
	{ NET_OFFLOAD_ECN, TUN_F_TSO_ECN, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 },
	{ NET_OFFLOAD_UFO, TUN_F_UFO, NET_OFFLOAD_CSUM },
	{ NET_OFFLOAD_USO, TUN_F_USO4 | TUN_F_USO6, NET_OFFLOAD_CSUM },
	{ NET_OFFLOAD_TUNNEL, TUN_F_UDP_TUNNEL_GSO,
	  NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 },
	{ NET_OFFLOAD_TUNNEL_CSUM, TUN_F_UDP_TUNNEL_GSO_CSUM,
	  NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_TUNNEL },
};

static int tap_set_offloads(struct net_backend *backend, unsigned offloads)
{
	unsigned flags = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(offload_flags); i++)
		if (offloads & offload_flags[i].offload)
			flags |= offload_flags[i].flags;
	return ioctl(first_fd(to_tap(backend)), TUNSETOFFLOAD, (unsigned long)flags) ? -errno : 0;
}

/* Without a program (-1) the tap goes by the flows it has seen. */
static int set_program(const struct tap *tap, int fd)
{
	return ioctl(first_fd(tap), TUNSETSTEERINGEBPF, &fd) ? -errno : 0;
}

/*
 * A tap may outlive us. What the next one on it may not think of is as in a new tap again: a
 * program that chooses queues, frames of a kind that it cannot read.
 */
static void leave(struct tap *tap)
{
	int size = sizeof(struct virtio_net_hdr), off = 0;

	if (!tap->ours)
		return;
	set_program(tap, -1);
	tap_set_offloads(&tap->backend, 0);
	ioctl(first_fd(tap), TUNSETVNETHDRSZ, &size);
	ioctl(first_fd(tap), TUNSETVNETLE, &off);
}

static void tap_close(struct net_backend *backend)
{
	struct tap *tap = to_tap(backend);

	leave(tap);
	steer_close(tap->steer);
	for (unsigned i = 0; tap->queues && i < backend->queues; i++)
		tap_uring_close(tap->queues[i].uring);
	for (unsigned i = 0; tap->queues && i < backend->queues; i++)
		if (tap->queues[i].fd >= 0)
			close(tap->queues[i].fd);
	free(tap->queues);
	free(tap);
}

static int tap_set_header(struct net_backend *backend, unsigned size)
{
	int value = (int)size;

	return ioctl(first_fd(to_tap(backend)), TUNSETVNETHDRSZ, &value) ? -errno : 0;
}

static int tap_enable(struct net_backend *backend, unsigned queue, bool on)
{
	struct tap_queue *q = &to_tap(backend)->queues[queue];
	struct ifreq request = { .ifr_flags = on ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE };

	if (q->attached == on)
		return 0;
	if (ioctl(q->fd, TUNSETQUEUE, &request))
		return -errno;
	q->attached = on;
	return 0;
}

static int tap_set_steering(struct net_backend *backend, const struct net_rss *rss)
{
	struct tap *tap = to_tap(backend);
	int err;

	if (!tap->steer)
		return rss ? -EOPNOTSUPP : 0;
	if (!rss)
		return set_program(tap, -1);
	err = steer_set(tap->steer, rss);
	return err ? err : set_program(tap, steer_fd(tap->steer));
}

static int tap_fd(struct net_backend *backend, unsigned queue)
{
	return to_tap(backend)->queues[queue].fd;
}

static ssize_t tap_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			unsigned count)
{
	ssize_t n = readv(to_tap(backend)->queues[queue].fd, iov, (int)count);

	return n < 0 ? -errno : n;
}

/*
 * How long a frame's own headers are (hdr_len) is a hint, not to be relied on (5.1.6.2.2), but a
 * tap refuses a frame that is shorter. It gets it once more with a header of ours without a hint.
 */
static ssize_t send_without_hint(const struct tap *tap, unsigned queue, const struct iovec *iov,
				 unsigned count)
{
	size_t skip = sizeof(struct virtio_net_hdr);
	struct iovec again[IOV_MAX];
	struct virtio_net_hdr header;
	unsigned pieces = 1;
	ssize_t n;

	if (iov_read(iov, count, 0, &header, skip) < skip || !header.hdr_len)
		return -EINVAL;
	header.hdr_len = 0;
	again[0] = (struct iovec){ .iov_base = &header, .iov_len = skip };
	for (unsigned i = 0; i < count; i++) {
		size_t part = MIN(iov[i].iov_len, skip);

		skip -= part;
		if (part == iov[i].iov_len)
			continue;
		if (pieces == ARRAY_SIZE(again))
			return -EINVAL;
		again[pieces++] = (struct iovec){ .iov_base = (char *)iov[i].iov_base + part,
						  .iov_len = iov[i].iov_len - part };
	}
	n = writev(tap->queues[queue].fd, again, (int)pieces);
	return n < 0 ? -errno : n;
}

static ssize_t tap_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			unsigned count)
{
	const struct tap *tap = to_tap(backend);
	ssize_t n = writev(tap->queues[queue].fd, iov, (int)count);

	if (n < 0 && errno == EINVAL)
		return send_without_hint(tap, queue, iov, count);
	return n < 0 ? -errno : n;
}

static int tap_open_batches(struct net_backend *backend)
{
	struct tap *tap = to_tap(backend);

	/* They stay from one life of the guest to the next. */
	for (unsigned i = 0; i < backend->queues; i++) {
		if (!tap->queues[i].uring)
			tap->queues[i].uring = tap_uring_open(tap->queues[i].fd);
		if (!tap->queues[i].uring)
			return -errno;
	}
	return 0;
}

static void tap_send_batch(struct net_backend *backend, unsigned queue, struct net_frame *frames,
			   unsigned count)
{
	tap_uring_send(to_tap(backend)->queues[queue].uring, frames, count);
	/* For the sake of a wrong hint. Late, but better than lost. */
	for (unsigned i = 0; i < count; i++)
		if (frames[i].sent == -EINVAL)
			frames[i].sent = tap_send(backend, queue, frames[i].iov, frames[i].count);
}

static const struct net_backend_ops tap_ops = {
	.close = tap_close,
	.set_offloads = tap_set_offloads,
	.set_header = tap_set_header,
	.enable = tap_enable,
	.set_steering = tap_set_steering,
	.fd = tap_fd,
	.recv = tap_recv,
	.send = tap_send,
	.open_batches = tap_open_batches,
	.send_batch = tap_send_batch,
};

/*
 * A persistent tap, or one that was passed on, keeps what its last user set: programs and filters
 * that drop or steer frames, a small send buffer, a carrier that is off. All of that goes back to
 * what a new tap has; kernels that do not know one of these have nothing of it to clear. None of it
 * takes a privilege: who has the file may do it. Whether the tap is persistent is its maker's
 * business.
 */
static void clean(const struct tap *tap)
{
	struct tun_filter no_filter = { 0 };
	int none = -1, on = 1, off = 0, sndbuf = INT_MAX;

	set_program(tap, -1);
	ioctl(first_fd(tap), TUNSETFILTEREBPF, &none);
	ioctl(first_fd(tap), TUNSETTXFILTER, &no_filter);
	ioctl(first_fd(tap), TUNSETSNDBUF, &sndbuf);
	ioctl(first_fd(tap), TUNSETVNETBE, &off);
	ioctl(first_fd(tap), TUNSETCARRIER, &on);
	for (unsigned i = 0; i < tap->backend.queues; i++)
		ioctl(tap->queues[i].fd, TUNDETACHFILTER, NULL);
}

/* The link may be declared to be of another type than Ethernet, and back only while it is down. */
int tap_set_type(const struct tap *tap)
{
	struct ifreq request = { 0 };

	if (ioctl(first_fd(tap), SIOCGIFHWADDR, &request) ||
	    request.ifr_hwaddr.sa_family == ARPHRD_ETHER ||
	    !ioctl(first_fd(tap), TUNSETLINK, (unsigned long)ARPHRD_ETHER))
		return 0;
	log_error("tap %s is set to link type %u, which is not Ethernet: `ip link set %s down`, "
		  "and whelp sets it right", tap->name, request.ifr_hwaddr.sa_family, tap->name);
	return -EBUSY;
}

static int set_format(struct tap *tap)
{
	int size = TAP_HEADER_SIZE, little_endian = 1;

	clean(tap);
	tap->ours = true;
	if (ioctl(first_fd(tap), TUNSETVNETHDRSZ, &size) ||
	    ioctl(first_fd(tap), TUNSETVNETLE, &little_endian)) {
		int err = errno;

		log_error("tap %s: this kernel's tap takes no virtio 1.x header: %s", tap->name,
			  strerror(err));
		return -err;
	}
	return 0;
}

static void probe_offloads(struct tap *tap)
{
	for (unsigned i = 0; i < ARRAY_SIZE(offload_flags); i++) {
		unsigned offload = offload_flags[i].offload;
		unsigned needs = offload_flags[i].needs & tap->backend.offloads;

		if (!tap_set_offloads(&tap->backend, offload | needs))
			tap->backend.offloads |= offload;
	}
	tap_set_offloads(&tap->backend, 0);
}

/*
 * Loads the program while there may still be the privilege for it, and tries whether the tap takes
 * it.
 */
static void open_steering(struct tap *tap)
{
	if (tap->backend.queues < 2 || steer_open(&tap->steer))
		return;
	tap->backend.steering = !set_program(tap, steer_fd(tap->steer));
	set_program(tap, -1);
}

/* With all queues attached. Logs; 0 or -errno. */
static int prepare(struct tap *tap)
{
	int err = set_format(tap);

	if (err)
		return err;
	probe_offloads(tap);
	open_steering(tap);
	/* Only queue 0 is in use until a driver asks for more. */
	for (unsigned i = tap->backend.queues - 1; i > 0 && !err; i--)
		err = tap_enable(&tap->backend, i, false);
	if (err)
		log_error("tap %s: cannot detach a queue: %s", tap->name, strerror(-err));
	return err;
}

/* Without any file. Logs; NULL on failure. */
static struct tap *allocate(unsigned queues)
{
	struct tap *tap = calloc(1, sizeof(*tap));

	if (tap)
		tap->queues = calloc(queues, sizeof(*tap->queues));
	if (!tap || !tap->queues) {
		log_error("out of memory for a tap with %u queues", queues);
		free(tap);
		return NULL;
	}
	tap->backend = (struct net_backend){ .ops = &tap_ops, .name = tap->name, .queues = queues };
	for (unsigned i = 0; i < queues; i++)
		tap->queues[i].fd = -1;
	return tap;
}

/* What comes after attaching, which `err` is the result of. */
static struct net_backend *finish(struct tap *tap, int err)
{
	if (!err)
		err = prepare(tap);
	if (!err)
		return &tap->backend;
	tap_close(&tap->backend);
	return NULL;
}

struct net_backend *tap_open(const char *name, unsigned queues, uint16_t mtu)
{
	struct tap *tap = allocate(queues);

	if (!tap)
		return NULL;
	snprintf(tap->name, sizeof(tap->name), "%s", name);
	return finish(tap, tap_attach(tap, mtu));
}

struct net_backend *tap_open_fds(const int *fds, unsigned queues, uint16_t mtu)
{
	struct tap *tap = allocate(queues);

	if (!tap) {
		for (unsigned i = 0; i < queues; i++)
			close(fds[i]);
		return NULL;
	}
	for (unsigned i = 0; i < queues; i++)
		tap->queues[i].fd = fds[i];
	return finish(tap, tap_take(tap, mtu));
}

bool tap_is_same(const struct net_backend *a, const struct net_backend *b)
{
	return tap_same_files(first_fd(container_of(a, const struct tap, backend)),
			      first_fd(container_of(b, const struct tap, backend)));
}
