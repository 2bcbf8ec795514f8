/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tap carries the virtio-net header itself (IFF_VNET_HDR, 12 bytes, little-endian), so frames pass
 * between guest memory and the kernel's network stack untouched. It is opened non-blocking and keeps
 * its default send buffer: both are what the kernel's fast path for small frames asks for.
 *
 * Which offloads this kernel's tap knows is found by asking for each; what it refuses is not offered.
 */
#include "devices/net/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"

#define TUN_PATH    "/dev/net/tun"
#define HEADER_SIZE 12

struct tap {
	struct net_backend backend;
	int fd;
	char name[IFNAMSIZ];
};

static struct tap *to_tap(struct net_backend *backend)
{
	return container_of(backend, struct tap, backend);
}

static void tap_close(struct net_backend *backend)
{
	struct tap *tap = to_tap(backend);

	if (tap->fd >= 0)
		close(tap->fd);
	free(tap);
}

static const struct {
	unsigned offload;
	unsigned tun_flag;
} offload_flags[] = {
	{ NET_OFFLOAD_CSUM, TUN_F_CSUM },
	{ NET_OFFLOAD_TSO4, TUN_F_TSO4 },
	{ NET_OFFLOAD_TSO6, TUN_F_TSO6 },
	{ NET_OFFLOAD_ECN, TUN_F_TSO_ECN },
};

static int tap_set_offloads(struct net_backend *backend, unsigned offloads)
{
	unsigned flags = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(offload_flags); i++)
		if (offloads & offload_flags[i].offload)
			flags |= offload_flags[i].tun_flag;
	return ioctl(to_tap(backend)->fd, TUNSETOFFLOAD, (unsigned long)flags) ? -errno : 0;
}

static int tap_fd(struct net_backend *backend)
{
	return to_tap(backend)->fd;
}

static ssize_t tap_recv(struct net_backend *backend, const struct iovec *iov, unsigned count)
{
	ssize_t n = readv(to_tap(backend)->fd, iov, (int)count);

	return n < 0 ? -errno : n;
}

static ssize_t tap_send(struct net_backend *backend, const struct iovec *iov, unsigned count)
{
	ssize_t n = writev(to_tap(backend)->fd, iov, (int)count);

	return n < 0 ? -errno : n;
}

static const struct net_backend_ops tap_ops = {
	.close = tap_close,
	.set_offloads = tap_set_offloads,
	.fd = tap_fd,
	.recv = tap_recv,
	.send = tap_send,
};

/* A number from the interface's directory in /sys, or -1 when it has none: then it does not exist. */
static long read_attribute(const char *name, const char *attribute)
{
	char path[128], text[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, attribute);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	return strtol(text, NULL, 0);
}

/* Linux lets a tap's owner and group attach, and anybody if it has neither. */
static void explain_permission(const struct tap *tap)
{
	long owner = read_attribute(tap->name, "owner");
	long group = read_attribute(tap->name, "group");

	if (owner >= 0)
		log_error("tap %s belongs to user %ld, and you are %u: run as that user or as root",
			  tap->name, owner, geteuid());
	else if (group >= 0)
		log_error("tap %s belongs to group %ld, and you are not in it: join it, or run as root",
			  tap->name, group);
	else
		log_error("tap %s: no permission to attach, though it has no owner: run as root",
			  tap->name);
}

static void explain_attach(const struct tap *tap, int err, bool exists)
{
	if (err == EBUSY)
		log_error("tap %s is in use by another process: give each VM a tap of its own",
			  tap->name);
	else if (err == EPERM && exists)
		explain_permission(tap);
	else if (err == EPERM)
		log_error("tap %s does not exist, and making it needs root: `ip tuntap add %s mode "
			  "tap user %u` makes it for you", tap->name, tap->name, geteuid());
	else if (err == EINVAL && exists)
		log_error("%s is not a tap, or one of another kind (multi_queue, pi): `ip -d link "
			  "show %s` tells", tap->name, tap->name);
	else
		log_error("cannot attach to tap %s: %s", tap->name, strerror(err));
}

/* How many queues the interface has in use, by anybody; 0 if that cannot be told. */
static unsigned count_queues(const char *name)
{
	char path[128];
	struct dirent *entry;
	unsigned count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/net/%s/queues", name);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		count += !strncmp(entry->d_name, "rx-", 3);
	closedir(dir);
	return count;
}

static int attach(struct tap *tap, bool exists)
{
	struct ifreq request = { 0 };
	long flags = read_attribute(tap->name, "tun_flags");

	memcpy(request.ifr_name, tap->name, sizeof(request.ifr_name));
	request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	/* One queue of a multiqueue tap does as well, but it has to be asked for as such. */
	if (flags >= 0 && flags & IFF_MULTI_QUEUE)
		request.ifr_flags |= IFF_MULTI_QUEUE;
	if (ioctl(tap->fd, TUNSETIFF, &request)) {
		int err = errno;

		explain_attach(tap, err, exists);
		return -err;
	}
	/* A multiqueue tap lets anybody in, and would then share its frames out. */
	if (count_queues(tap->name) > 1) {
		explain_attach(tap, EBUSY, exists);
		return -EBUSY;
	}
	return 0;
}

static int set_header(const struct tap *tap)
{
	int size = HEADER_SIZE, little_endian = 1;

	if (ioctl(tap->fd, TUNSETVNETHDRSZ, &size) ||
	    ioctl(tap->fd, TUNSETVNETLE, &little_endian)) {
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
		unsigned offload = offload_flags[i].offload, needs = NET_OFFLOAD_CSUM;

		/* A segmentation offload is taken only with the checksum, ECN only with one of them. */
		if (offload == NET_OFFLOAD_ECN)
			needs |= tap->backend.offloads;
		if (!tap_set_offloads(&tap->backend, offload | needs))
			tap->backend.offloads |= offload;
	}
	tap_set_offloads(&tap->backend, 0);
}

static int set_link(const struct tap *tap, uint16_t mtu)
{
	struct ifreq request = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	memcpy(request.ifr_name, tap->name, sizeof(request.ifr_name));
	request.ifr_mtu = mtu;
	if (mtu && ioctl(fd, SIOCSIFMTU, &request))
		err = -errno;
	if (!err && ioctl(fd, SIOCGIFFLAGS, &request))
		err = -errno;
	request.ifr_flags |= IFF_UP;
	if (!err && ioctl(fd, SIOCSIFFLAGS, &request))
		err = -errno;
	close(fd);
	return err;
}

/* An existing tap is its owner's to configure: we only say what will not work. */
static void check_link(const struct tap *tap, uint16_t mtu)
{
	long flags = read_attribute(tap->name, "flags");
	long tap_mtu = read_attribute(tap->name, "mtu");

	if (flags >= 0 && !(flags & IFF_UP))
		log_warn("tap %s is down, and loses what the guest sends: `ip link set %s up`",
			 tap->name, tap->name);
	if (mtu && tap_mtu >= 0 && tap_mtu != mtu)
		log_warn("tap %s has an MTU of %ld, and the guest is told %u: `ip link set %s mtu %u`",
			 tap->name, tap_mtu, mtu, tap->name, mtu);
}

static int setup(struct tap *tap, uint16_t mtu)
{
	bool exists = read_attribute(tap->name, "ifindex") >= 0;
	int err;

	tap->fd = open(TUN_PATH, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (tap->fd < 0) {
		err = errno;
		log_error("%s: %s: `modprobe tun`, and permission to use it, are needed for a tap",
			  TUN_PATH, strerror(err));
		return -err;
	}
	err = attach(tap, exists);
	if (err)
		return err;
	err = set_header(tap);
	if (err)
		return err;
	probe_offloads(tap);
	if (exists) {
		check_link(tap, mtu);
		return 0;
	}
	err = set_link(tap, mtu);
	if (err)
		log_error("tap %s cannot be set up with an MTU of %u: %s", tap->name, mtu,
			  strerror(-err));
	return err;
}

struct net_backend *tap_open(const char *name, uint16_t mtu)
{
	struct tap *tap = calloc(1, sizeof(*tap));

	if (!tap) {
		log_error("tap %s: out of memory", name);
		return NULL;
	}
	tap->backend.ops = &tap_ops;
	tap->backend.name = tap->name;
	tap->fd = -1;
	snprintf(tap->name, sizeof(tap->name), "%s", name);
	if (setup(tap, mtu)) {
		tap_close(&tap->backend);
		return NULL;
	}
	return &tap->backend;
}
