/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tun driver can do. Its features answer on the bare device; its offloads only on an
 * interface, which a child process makes inside a network namespace of its own: nobody sees it, it
 * takes no privilege where user namespaces are allowed, and it is gone when the child is.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/doctor.h"
#include "vmm/util.h"

/* What virtio-net passes through, in the order of the report. */
static const struct {
	unsigned flag;
	unsigned with; /* the kernel refuses the flag alone */
	const char *name;
} offloads[] = {
	{ TUN_F_CSUM, 0, "csum" },
	{ TUN_F_TSO4, TUN_F_CSUM, "tso4" },
	{ TUN_F_TSO6, TUN_F_CSUM, "tso6" },
	{ TUN_F_TSO_ECN, TUN_F_CSUM | TUN_F_TSO4, "tso_ecn" },
};

#define CHILD_UNKNOWN 255 /* an exit status that is no set of TUN_F_* */

/* In the child: the offloads that a tap takes, as the exit status. */
static int ask_offloads(const char *path)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd, found = 0;
	size_t i;

	/* Before the open: an interface is made in the namespace that its file was opened in. */
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return CHILD_UNKNOWN;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
		return CHILD_UNKNOWN;
	for (i = 0; i < ARRAY_SIZE(offloads); i++) {
		unsigned long flags = offloads[i].flag | offloads[i].with;

		if (!ioctl(fd, TUNSETOFFLOAD, flags))
			found |= (int)offloads[i].flag;
	}
	return found;
}

/* TUN_F_*, or -1 if unknown. */
static int probe_offloads(const char *path)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid)
		_exit(ask_offloads(path));
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) == CHILD_UNKNOWN)
		return -1;
	return WEXITSTATUS(status);
}

static void row_features(struct doctor_report *report)
{
	const unsigned need = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	char found[128];

	snprintf(found, sizeof(found), "%s vnet_hdr, %s multi_queue",
		 report->tun_features & IFF_VNET_HDR ? "has" : "no",
		 report->tun_features & IFF_MULTI_QUEUE ? "has" : "no");
	if ((report->tun_features & need) != need)
		doctor_row(report, "tun features", DOCTOR_FAIL, found,
			   "use a newer kernel; virtio-net needs vnet_hdr");
	else if (!(report->tun_features & IFF_MULTI_QUEUE))
		doctor_row(report, "tun features", DOCTOR_WARN, found,
			   "use Linux 3.8 or newer for several queues per NIC");
	else
		doctor_row(report, "tun features", DOCTOR_OK, found, "");
}

static void row_offloads(struct doctor_report *report)
{
	char found[128] = "";
	unsigned missing = 0;
	size_t i;

	if (report->tun_offloads < 0) {
		doctor_row(report, "tun offloads", DOCTOR_OK,
			   "not known: no privilege to make an interface", "");
		return;
	}
	for (i = 0; i < ARRAY_SIZE(offloads); i++) {
		size_t used = strlen(found);

		if (!((unsigned)report->tun_offloads & offloads[i].flag)) {
			missing++;
			continue;
		}
		snprintf(found + used, sizeof(found) - used, "%s%s", used ? ", " : "",
			 offloads[i].name);
	}
	doctor_row(report, "tun offloads", missing ? DOCTOR_WARN : DOCTOR_OK,
		   *found ? found : "none",
		   "use a newer kernel: without offloads bulk traffic is slow");
}

void doctor_collect_tun(struct doctor_report *report, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), err = errno;
	unsigned features = 0;
	char found[128];

	report->tun_offloads = -1;
	report->tun.present = fd >= 0 || err != ENOENT;
	report->tun.permitted = fd >= 0;
	if (fd < 0) {
		snprintf(found, sizeof(found), "%.80s: %.40s", path, strerror(err));
		doctor_row(
			report, "tun", DOCTOR_FAIL, found,
			err == ENOENT ? "modprobe tun; --net needs it"
			: err == EACCES || err == EPERM
				? "make it readable and writable for all (mode 666), as it is by "
				  "default: rights come with each tap"
				: "see the kernel's log; modprobe tun may help");
		return;
	}
	if (ioctl(fd, TUNGETFEATURES, &features)) {
		snprintf(found, sizeof(found), "%.80s does not answer as tun", path);
		doctor_row(report, "tun", DOCTOR_FAIL, found,
			   "something else stands in its place: remove it, and modprobe tun");
		close(fd);
		return;
	}
	close(fd);
	doctor_row(report, "tun", DOCTOR_OK, path, "");
	report->tun_features = features;
	report->tun_offloads = probe_offloads(path);
	row_features(report);
	row_offloads(report);
}
