/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Taking over a tap that somebody else opened. That one has the privilege, and maybe another
 * network namespace, so nothing here goes by the interface's name, and nothing needs a right that
 * the files do not give: what is asked, and set, is asked of the files.
 *
 * All queues are detached and attached again. In between it shows whether somebody else has one in
 * use; and what waited in them is gone.
 *
 * Whoever passes files that are refused may use them otherwise: what was changed to find out goes
 * back. Only a filter cannot, which is not to be read; it is lost where queues are shared.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/major.h>
#include <linux/virtio_net.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "devices/net/tap.h"
#include "vmm/log.h"
#include "vmm/util.h"

#define TUN_MINOR 200

bool tap_same_files(int a, int b)
{
	static const int sizes[] = { 24, TAP_HEADER_SIZE };
	bool same = true;

	/* There is one for all queues: what is set by one file is read by the other. */
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		int size = sizes[i], seen = 0;

		if (ioctl(a, TUNSETVNETHDRSZ, &size) || ioctl(b, TUNGETVNETHDRSZ, &seen) ||
		    seen != size)
			same = false;
	}
	return same;
}

static bool is_tun(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(MISC_MAJOR, TUN_MINOR);
}

static bool is_detached(int fd)
{
	struct ifreq request = { 0 };

	return !ioctl(fd, TUNGETIFF, &request) && request.ifr_flags & IFF_DETACH_QUEUE;
}

static int set_queue(int fd, short how)
{
	struct ifreq request = { .ifr_flags = how };

	return ioctl(fd, TUNSETQUEUE, &request) ? -errno : 0;
}

/* That it is a tap's, open for both directions, and what the kernel says of it. */
static int check_file(int fd, struct ifreq *request)
{
	memset(request, 0, sizeof(*request));
	if (!is_tun(fd)) {
		log_error("--net fd=%d is not a tap: it has to be /dev/net/tun, opened and "
			  "attached by TUNSETIFF (a macvtap is none)", fd);
		return -ENOTTY;
	}
	if (ioctl(fd, TUNGETIFF, request)) {
		log_error("--net fd=%d has no interface: it was not attached to one by TUNSETIFF, "
			  "or that is gone", fd);
		return -EBADFD;
	}
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
		log_error("--net fd=%d is not open for both reading and writing: open it with "
			  "O_RDWR", fd);
		return -EBADF;
	}
	return 0;
}

/* These are chosen when the tap is opened; by its file alone they cannot be set right. */
static int check_flags(const struct tap *tap, int fd, const struct ifreq *request)
{
	if (!(request->ifr_flags & IFF_TAP)) {
		log_error("--net fd=%d: %s is a tun, which has no Ethernet frames: open it with "
			  "IFF_TAP", fd, tap->name);
		return -EINVAL;
	}
	if (!(request->ifr_flags & IFF_VNET_HDR)) {
		log_error("--net fd=%d: tap %s has no virtio header on its frames: open it with "
			  "IFF_VNET_HDR", fd, tap->name);
		return -EINVAL;
	}
	if (request->ifr_flags & IFF_NAPI_FRAGS) {
		log_error("--net fd=%d: tap %s takes no large frames: open it without "
			  "IFF_NAPI_FRAGS", fd, tap->name);
		return -EINVAL;
	}
	if (tap->backend.queues > 1 && !(request->ifr_flags & IFF_MULTI_QUEUE)) {
		log_error("--net fd=%d: tap %s has one queue only: open it with IFF_MULTI_QUEUE, "
			  "or give one fd", fd, tap->name);
		return -EINVAL;
	}
	return 0;
}

static int check_queue(struct tap *tap, unsigned index, bool *multi)
{
	int fd = tap->queues[index].fd, first = tap->queues[0].fd;
	struct ifreq request;
	int err = check_file(fd, &request);

	if (err)
		return err;
	tap->queues[index].attached = !(request.ifr_flags & IFF_DETACH_QUEUE);
	if (!index)
		snprintf(tap->name, sizeof(tap->name), "%s", request.ifr_name);
	if (index && (strcmp(tap->name, request.ifr_name) || !tap_same_files(first, fd))) {
		log_error("--net fd=%d is tap %s and fd %d another, %s: all of one NIC's have to "
			  "be of one tap", first, tap->name, fd, request.ifr_name);
		return -EINVAL;
	}
	*multi = request.ifr_flags & IFF_MULTI_QUEUE;
	return check_flags(tap, fd, &request);
}

/* One opened file has one set of flags, whatever numbers it has. */
static bool is_same_file(int a, int b)
{
	int of_a = fcntl(a, F_GETFL), of_b = fcntl(b, F_GETFL);
	bool same;

	fcntl(a, F_SETFL, of_a ^ O_NONBLOCK);
	same = fcntl(b, F_GETFL) != of_b;
	fcntl(a, F_SETFL, of_a);
	return same;
}

static int check_distinct(const struct tap *tap)
{
	for (unsigned i = 1; i < tap->backend.queues; i++) {
		for (unsigned j = 0; j < i; j++) {
			int fd = tap->queues[i].fd;

			if (!is_same_file(tap->queues[j].fd, fd))
				continue;
			log_error("--net fd=%d is the same file as one before it: open "
				  "/dev/net/tun for each queue pair", fd);
			return -EINVAL;
		}
	}
	return 0;
}

static int detach_all(const struct tap *tap)
{
	for (unsigned i = 0; i < tap->backend.queues; i++) {
		int fd = tap->queues[i].fd;
		int err = is_detached(fd) ? 0 : set_queue(fd, IFF_DETACH_QUEUE);

		if (err) {
			log_error("--net fd=%d: tap %s does not let the queue be detached: %s", fd,
				  tap->name, strerror(-err));
			return err;
		}
	}
	/*
	 * A queue that is attached gets the tap's filter, from an address that was another
	 * program's.
	 */
	ioctl(tap->queues[0].fd, TUNDETACHFILTER, NULL);
	return 0;
}

static int attach_all(const struct tap *tap)
{
	for (unsigned i = 0; i < tap->backend.queues; i++) {
		int fd = tap->queues[i].fd;
		int err = set_queue(fd, IFF_ATTACH_QUEUE);

		if (err) {
			log_error("--net fd=%d: cannot attach to tap %s: %s", fd, tap->name,
				  strerror(-err));
			return err;
		}
	}
	return 0;
}

static int reattach(const struct tap *tap)
{
	int on = 1, err = detach_all(tap);
	bool shared;

	if (err)
		return err;
	/* Only a tap with a queue gets a carrier: it is another's, if not ours. */
	shared = !ioctl(tap->queues[0].fd, TUNSETCARRIER, &on);
	err = attach_all(tap);
	if (!err && shared) {
		log_error("--net fd=%d: tap %s has queues in use besides those passed, and would "
			  "lose frames to them: pass all, or close the others", tap->queues[0].fd,
			  tap->name);
		err = -EBUSY;
	}
	return err;
}

/*
 * IFF_NO_PI has the same bit as IFF_NOFILTER, which TUNGETIFF sets for a queue without a filter:
 * with one (that takes every frame) it is the former's alone. To a tap that is refused nothing
 * happens: either it has a filter, and the bit tells, or it had none and gets rid of this one.
 */
static int check_pi(const struct tap *tap)
{
	struct sock_filter everything = { .code = BPF_RET | BPF_K, .k = UINT32_MAX };
	const struct sock_fprog filter = { .len = 1, .filter = &everything };
	int fd = tap->queues[0].fd, err = 0;
	struct ifreq request = { 0 };

	if (ioctl(fd, TUNGETIFF, &request))
		err = -errno;
	if (!err && request.ifr_flags & IFF_NO_PI) {
		if (ioctl(fd, TUNATTACHFILTER, &filter) || ioctl(fd, TUNGETIFF, &request))
			err = -errno;
		ioctl(fd, TUNDETACHFILTER, NULL);
	}
	if (err) {
		log_error("--net fd=%d: cannot tell how tap %s was opened: %s", fd, tap->name,
			  strerror(-err));
		return err;
	}
	if (request.ifr_flags & IFF_NO_PI)
		return 0;
	log_error("--net fd=%d: tap %s puts packet information before its frames: open it with "
		  "IFF_NO_PI", fd, tap->name);
	return -EINVAL;
}

/* Whether the interface of that name in our own network namespace is this one. */
static bool is_visible(const struct tap *tap)
{
	struct ifreq request = { 0 };
	char path[128], text[32] = "", address[32];
	const unsigned char *mac = (const unsigned char *)request.ifr_hwaddr.sa_data;
	FILE *file;

	if (ioctl(tap->queues[0].fd, SIOCGIFHWADDR, &request))
		return false;
	snprintf(address, sizeof(address), "%02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1],
		 mac[2], mac[3], mac[4], mac[5]);
	snprintf(path, sizeof(path), "/sys/class/net/%s/address", tap->name);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	return !strcmp(text, address);
}

/* What can be seen of a tap, and is changed in the course of taking it over. */
struct found {
	int header;
	unsigned long type;
};

static struct found look(int fd)
{
	struct found found = { .header = sizeof(struct virtio_net_hdr), .type = ARPHRD_ETHER };
	struct ifreq request = { 0 };

	ioctl(fd, TUNGETVNETHDRSZ, &found.header);
	if (!ioctl(fd, SIOCGIFHWADDR, &request))
		found.type = request.ifr_hwaddr.sa_family;
	return found;
}

/* The first `count` files were found to be of the tap. */
static void put_back(const struct tap *tap, struct found found, unsigned count)
{
	int fd = tap->queues[0].fd;

	ioctl(fd, TUNSETVNETHDRSZ, &found.header);
	if (look(fd).type != found.type)
		ioctl(fd, TUNSETLINK, found.type);
	for (unsigned i = 0; i < count; i++) {
		const struct tap_queue *q = &tap->queues[i];

		if (is_detached(q->fd) == q->attached)
			set_queue(q->fd, q->attached ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE);
	}
}

int tap_take(struct tap *tap, uint16_t mtu)
{
	unsigned count = 1;
	bool multi = false;
	int err = check_queue(tap, 0, &multi);
	struct found found;

	if (err)
		return err;
	found = look(tap->queues[0].fd);
	while (!err && count < tap->backend.queues) {
		err = check_queue(tap, count, &multi);
		count += !err;
	}
	if (!err)
		err = check_distinct(tap);
	if (!err)
		err = tap_set_type(tap);
	if (!err)
		err = check_pi(tap);
	if (!err && multi)
		err = reattach(tap);
	if (err) {
		put_back(tap, found, count);
		return err;
	}
	for (unsigned i = 0; i < tap->backend.queues; i++) {
		/* All else that can be set there, such as O_ASYNC, is not wanted. */
		fcntl(tap->queues[i].fd, F_SETFL, O_NONBLOCK);
		tap->queues[i].attached = true;
	}
	if (is_visible(tap))
		tap_check_link(tap, mtu);
	return 0;
}
