/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Taking over a tap that somebody else opened. That one has the privilege, and maybe another
 * network namespace, so nothing here goes by the interface's name, and nothing needs a right that
 * the files do not give: what is asked, and set, is asked of the files.
 *
 * All queues are detached and attached again. In between it shows whether somebody else has one in
 * use, and after it whether two files are one; and what waited in them is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/major.h>
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
		int fd = tap->queues[i].fd, err;

		if (!is_detached(fd)) {
			log_error("--net fd=%d is the same file as one before it: open "
				  "/dev/net/tun for each queue pair", fd);
			return -EINVAL;
		}
		err = set_queue(fd, IFF_ATTACH_QUEUE);
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
 * with one (that takes every frame) it is the former's alone.
 */
static int check_pi(const struct tap *tap)
{
	struct sock_filter everything = { .code = BPF_RET | BPF_K, .k = UINT32_MAX };
	const struct sock_fprog filter = { .len = 1, .filter = &everything };
	struct ifreq request = { 0 };
	int fd = tap->queues[0].fd;

	if (ioctl(fd, TUNATTACHFILTER, &filter) || ioctl(fd, TUNGETIFF, &request)) {
		int err = -errno;

		log_error("--net fd=%d: cannot tell how tap %s was opened: %s", fd, tap->name,
			  strerror(-err));
		return err;
	}
	ioctl(fd, TUNDETACHFILTER, NULL);
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

int tap_take(struct tap *tap, uint16_t mtu)
{
	bool multi = false;
	int err = 0;

	for (unsigned i = 0; !err && i < tap->backend.queues; i++)
		err = check_queue(tap, i, &multi);
	if (!err && multi)
		err = reattach(tap);
	if (!err)
		err = check_pi(tap);
	if (err)
		return err;
	for (unsigned i = 0; i < tap->backend.queues; i++) {
		/* All else that can be set there, such as O_ASYNC, is not wanted. */
		fcntl(tap->queues[i].fd, F_SETFL, O_NONBLOCK);
		tap->queues[i].attached = true;
	}
	if (is_visible(tap))
		tap_check_link(tap, mtu);
	return 0;
}
