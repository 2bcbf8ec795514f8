/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attaching to a tap fails for many reasons that look alike in errno; what the interface's
 * attributes in /sys say tells them apart, so that each gets a remedy.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/net/tap.h"
#include "vmm/log.h"

#define TUN_PATH "/dev/net/tun"

/*
 * A number from the interface's directory in /sys, or -1 when it has none: then it does not exist.
 */
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
		log_error("tap %s belongs to group %ld, and you are not in it: join it, or run as "
			  "root", tap->name, group);
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
		log_error("%s is not a tap: `ip -d link show %s` tells", tap->name, tap->name);
	else if (err == E2BIG)
		log_error("tap %s has no room for %u more queues, which other processes hold: give "
			  "it to one VM, or lower queues=", tap->name, tap->backend.queues);
	else
		log_error("cannot attach to tap %s: %s", tap->name, strerror(err));
}

static int attach_queue(const struct tap *tap, int fd, short flags)
{
	struct ifreq request = { .ifr_flags = flags };

	memcpy(request.ifr_name, tap->name, sizeof(request.ifr_name));
	return ioctl(fd, TUNSETIFF, &request) ? -errno : 0;
}

/* The flags to attach with: an existing tap has to be asked for as what it is. */
static int choose_flags(const struct tap *tap, bool exists, short *flags)
{
	long existing = read_attribute(tap->name, "tun_flags");
	bool multi = existing >= 0 && existing & IFF_MULTI_QUEUE;

	*flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	if (exists && existing >= 0 && !multi && tap->backend.queues > 1) {
		log_error("tap %s was made without multi_queue, and queues=%u was asked for: `ip "
			  "tuntap add %s mode tap multi_queue` makes one with it", tap->name,
			  tap->backend.queues, tap->name);
		return -EINVAL;
	}
	if (multi || tap->backend.queues > 1)
		*flags |= IFF_MULTI_QUEUE;
	return 0;
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

static int open_queues(struct tap *tap, bool exists)
{
	short flags;
	int err = choose_flags(tap, exists, &flags);

	for (unsigned i = 0; !err && i < tap->backend.queues; i++) {
		struct tap_queue *q = &tap->queues[i];

		q->fd = open(TUN_PATH, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (q->fd < 0) {
			err = -errno;
			log_error("%s: %s: `modprobe tun`, and permission to use it, are needed "
				  "for a tap", TUN_PATH, strerror(-err));
			break;
		}
		err = attach_queue(tap, q->fd, flags);
		if (err)
			explain_attach(tap, -err, exists);
		q->attached = !err;
	}
	/* A multiqueue tap lets anybody in, and would then share its frames out. */
	if (!err && count_queues(tap->name) > tap->backend.queues) {
		explain_attach(tap, EBUSY, exists);
		err = -EBUSY;
	}
	return err;
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
void tap_check_link(const struct tap *tap, uint16_t mtu)
{
	long flags = read_attribute(tap->name, "flags");
	long tap_mtu = read_attribute(tap->name, "mtu");

	if (flags >= 0 && !(flags & IFF_UP))
		log_warn("tap %s is down, and loses what the guest sends: `ip link set %s up`",
			 tap->name, tap->name);
	if (mtu && tap_mtu >= 0 && tap_mtu != mtu)
		log_warn("tap %s has an MTU of %ld, and the guest is told %u: `ip link set %s mtu "
			 "%u`", tap->name, tap_mtu, mtu, tap->name, mtu);
}

int tap_attach(struct tap *tap, uint16_t mtu)
{
	bool exists = read_attribute(tap->name, "ifindex") >= 0;
	int err = open_queues(tap, exists);

	if (err)
		return err;
	if (exists) {
		tap_check_link(tap, mtu);
		return tap_set_type(tap);
	}
	err = set_link(tap, mtu);
	if (err)
		log_error("tap %s cannot be set up with an MTU of %u: %s", tap->name, mtu,
			  strerror(-err));
	return err;
}
