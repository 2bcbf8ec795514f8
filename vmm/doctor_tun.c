/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tun driver can do. Its features answer on the bare device; the rest only on an
 * interface, which a child process makes inside a network namespace of its own: nobody sees it, it
 * takes no privilege where user namespaces are allowed, and it is gone when the child is.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/doctor.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define PLAIN (TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)

const struct doctor_offload doctor_offloads[] = {
	{ "csum", TUN_F_CSUM, 0, NULL },
	{ "tso4", TUN_F_TSO4, TUN_F_CSUM, NULL },
	{ "tso6", TUN_F_TSO6, TUN_F_CSUM, NULL },
	{ "tso_ecn", TUN_F_TSO_ECN, TUN_F_CSUM | TUN_F_TSO4, NULL },
	{ "ufo", TUN_F_UFO, TUN_F_CSUM, NULL },
	{ "uso", TUN_F_USO4 | TUN_F_USO6, TUN_F_CSUM, "6.2" },
	{ "udp_tunnel_gso", TUN_F_UDP_TUNNEL_GSO, PLAIN, "6.17" },
	{ "udp_tunnel_gso_csum", TUN_F_UDP_TUNNEL_GSO_CSUM, PLAIN | TUN_F_UDP_TUNNEL_GSO, "6.17" },
};

const unsigned doctor_offload_count = ARRAY_SIZE(doctor_offloads);

bool doctor_has_offload(const struct doctor_report *report, const struct doctor_offload *offload)
{
	return report->tun_offloads >= 0 &&
	       ((unsigned)report->tun_offloads & offload->flags) == offload->flags;
}

/* What the child finds out. */
struct findings {
	int offloads; /* TUN_F_*, negative if unknown */
	enum doctor_answer steering;
};

/*
 * Loads a program for steering, in place of the real one: it has a loop, which the kernel takes
 * only from who has CAP_BPF (or CAP_SYS_ADMIN), as it does long programs. The program's fd or
 * -errno.
 */
static int load_program(void)
{
	static const char license[] = "GPL";
	static const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 2 },
		{ .code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = BPF_REG_0, .imm = 1 },
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = BPF_REG_0, .off = -2, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr;
	long fd;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (uintptr_t)code;
	attr.insn_cnt = ARRAY_SIZE(code);
	attr.license = (uintptr_t)license;
	fd = syscall(__NR_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	return fd < 0 ? -errno : (int)fd;
}

/* In the child. */
static struct findings ask(const char *path, unsigned features)
{
	const short wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
	struct ifreq request = { .ifr_flags = (short)(wanted & (short)features) };
	struct findings findings = { .offloads = -1, .steering = DOCTOR_UNKNOWN };
	/* With the rights that whelp has, not those it gets inside of a namespace. */
	int program = load_program(), fd;
	size_t i;

	if (program < 0)
		findings.steering = DOCTOR_NO;
	/* Before the open: an interface is made in the namespace that its file was opened in. */
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return findings;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
		return findings;
	findings.offloads = 0;
	for (i = 0; i < ARRAY_SIZE(doctor_offloads); i++) {
		unsigned long flags = doctor_offloads[i].flags | doctor_offloads[i].with;

		if (!ioctl(fd, TUNSETOFFLOAD, flags))
			findings.offloads |= (int)doctor_offloads[i].flags;
	}
	if (program >= 0)
		findings.steering =
			ioctl(fd, TUNSETSTEERINGEBPF, &program) ? DOCTOR_NO : DOCTOR_YES;
	return findings;
}

static void answer(int fd, const char *path, unsigned features)
{
	const struct findings findings = ask(path, features);

	_exit(write(fd, &findings, sizeof(findings)) != sizeof(findings));
}

static struct findings probe(const char *path, unsigned features)
{
	struct findings findings = { .offloads = -1, .steering = DOCTOR_UNKNOWN };
	ssize_t got = -1;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return findings;
	pid = fork();
	if (!pid)
		answer(fds[1], path, features);
	close(fds[1]);
	if (pid > 0) {
		got = read(fds[0], &findings, sizeof(findings));
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(fds[0]);
	if (got != sizeof(findings))
		findings = (struct findings){ .offloads = -1, .steering = DOCTOR_UNKNOWN };
	return findings;
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

/* The names of those that the tap has, or of those that it lacks. */
static unsigned list_offloads(const struct doctor_report *report, bool has, char *text, size_t size)
{
	unsigned count = 0, i;
	size_t used = 0;

	text[0] = '\0';
	for (i = 0; i < ARRAY_SIZE(doctor_offloads) && used < size; i++) {
		if (doctor_has_offload(report, &doctor_offloads[i]) != has)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s", count++ ? ", " : "",
					 doctor_offloads[i].name);
	}
	return count;
}

static void row_offloads(struct doctor_report *report)
{
	char has[112], lacks[112], found[128], remedy[256];
	const char *since = NULL;
	bool old_missing = false;
	unsigned i;

	if (report->tun_offloads < 0) {
		doctor_row(report, "tun offloads", DOCTOR_OK,
			   "not known: no privilege to make an interface", "");
		return;
	}
	list_offloads(report, true, has, sizeof(has));
	snprintf(found, sizeof(found), "%s", *has ? has : "none");
	if (!list_offloads(report, false, lacks, sizeof(lacks))) {
		doctor_row(report, "tun offloads", DOCTOR_OK, found, "");
		return;
	}
	for (i = 0; i < ARRAY_SIZE(doctor_offloads); i++) {
		if (doctor_has_offload(report, &doctor_offloads[i]))
			continue;
		since = doctor_offloads[i].since;
		old_missing |= !since;
	}
	if (old_missing)
		snprintf(remedy, sizeof(remedy),
			 "use a newer kernel: without %s bulk traffic is slow", lacks);
	else
		snprintf(remedy, sizeof(remedy), "optional: Linux %s has %s, too", since, lacks);
	doctor_row(report, "tun offloads", DOCTOR_WARN, found, remedy);
}

static void row_steering(struct doctor_report *report)
{
	static const char *const found[] = {
		[DOCTOR_UNKNOWN] = "not known: no privilege to make an interface",
		[DOCTOR_NO] = "no eBPF program can be given to a tap",
		[DOCTOR_YES] = "eBPF programs can be given to a tap",
	};

	doctor_row(report, "tun steering",
		   report->tun_steering == DOCTOR_NO ? DOCTOR_WARN : DOCTOR_OK,
		   found[report->tun_steering],
		   "optional: run as root, or with CAP_BPF; without it RSS costs whelp time");
}

void doctor_collect_tun(struct doctor_report *report, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), err = errno;
	struct findings findings;
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
	findings = probe(path, features);
	report->tun_offloads = findings.offloads;
	report->tun_steering = findings.steering;
	row_features(report);
	row_offloads(report);
	row_steering(report);
}
