/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each collector looks at one thing, sets its fields of the report and appends its row or rows.
 * Nothing is inferred from versions: devices are opened, features asked for, and KVM's speed is
 * measured, since a KVM that only emulates guest code looks like any other until it runs some.
 */
#include "vmm/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "vmm/kvm.h"
#include "vmm/options.h"
#include "vmm/util.h"
#include "vmm/x86/probe.h"

/* What a machine with a few NICs wants; beyond that, a row warns. */
#define WANT_MEMORY	MIB(384)
#define WANT_OPEN_FILES 256u
#define WANT_PROCESSES	64u

void doctor_row(struct doctor_report *report, const char *name, enum doctor_state state,
		const char *found, const char *remedy)
{
	struct doctor_row *row;

	if (report->count == DOCTOR_MAX_ROWS)
		return;
	row = &report->rows[report->count++];
	row->name = name;
	row->state = state;
	snprintf(row->found, sizeof(row->found), "%s", found);
	snprintf(row->remedy, sizeof(row->remedy), "%s", state == DOCTOR_OK ? "" : remedy);
}

/* The remedies of kvm.h read "what is wrong: what to do". */
static void row_kvm_device(struct doctor_report *report, enum kvm_device_status status,
			   const char *path)
{
	const char *text = kvm_device_remedy(status);
	int found_len = (int)strcspn(text, ":");
	char found[128];

	if (status == KVM_DEVICE_OK) {
		snprintf(found, sizeof(found), "%s, API version %d", path, report->kvm_version);
		doctor_row(report, "kvm", DOCTOR_OK, found, "");
		return;
	}
	snprintf(found, sizeof(found), "%s %.*s", path, found_len, text);
	text += found_len;
	doctor_row(report, "kvm", DOCTOR_FAIL, found, text + strspn(text, ": "));
}

/* Appends `name` to a list in `text`. */
static void list_add(char *text, size_t size, const char *name)
{
	size_t used = strlen(text);

	snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

static void row_kvm_capabilities(struct doctor_report *report, int fd)
{
	const struct kvm_capability *capabilities;
	char needed[128] = "", wanted[128] = "", found[128];
	unsigned count, i;

	capabilities = kvm_capabilities(&count);
	for (i = 0; i < count; i++) {
		const struct kvm_capability *capability = &capabilities[i];

		if (kvm_check(fd, capability->number))
			continue;
		if (capability->required)
			list_add(needed, sizeof(needed), capability->name);
		else
			list_add(wanted, sizeof(wanted), capability->name);
	}
	if (*needed) {
		snprintf(found, sizeof(found), "lacks %.100s", needed);
		doctor_row(report, "kvm capabilities", DOCTOR_FAIL, found,
			   "use a newer kernel; whelp needs all of these");
	} else if (*wanted) {
		snprintf(found, sizeof(found), "all needed; lacks %.100s", wanted);
		doctor_row(report, "kvm capabilities", DOCTOR_WARN, found,
			   "use a newer kernel for better timekeeping in guests");
	} else {
		snprintf(found, sizeof(found), "all %u", count);
		doctor_row(report, "kvm capabilities", DOCTOR_OK, found, "");
	}
}

static void row_kvm_speed(struct doctor_report *report, int fd)
{
	char found[128];
	double mips;
	int err;

	err = x86_probe_speed(fd, &mips);
	if (err) {
		snprintf(found, sizeof(found), "a tiny guest did not run: %s", strerror(-err));
		doctor_row(
			report, "kvm speed", DOCTOR_FAIL, found,
			"see the kernel's log for what KVM says; another hypervisor may hold the "
			"CPU's virtualization");
		return;
	}
	report->mips = mips;
	report->native = mips >= X86_PROBE_NATIVE_MIPS ? DOCTOR_YES : DOCTOR_NO;
	if (report->native == DOCTOR_YES) {
		snprintf(found, sizeof(found), "native, %.0f million instructions/s", mips);
		doctor_row(report, "kvm speed", DOCTOR_OK, found, "");
		return;
	}
	snprintf(found, sizeof(found), "only emulates guest code, %.1f million instructions/s",
		 mips);
	doctor_row(report, "kvm speed", DOCTOR_FAIL, found,
		   "tiny guests run, a stock kernel takes many minutes: enable nested "
		   "virtualization in the hypervisor below, or use another machine");
}

static void collect_kvm(struct doctor_report *report, const char *path)
{
	enum kvm_device_status status;
	int fd;

	fd = kvm_device_open(path, &status, &report->kvm_version);
	report->kvm.present = status != KVM_DEVICE_MISSING;
	report->kvm.permitted = status != KVM_DEVICE_MISSING && status != KVM_DEVICE_DENIED &&
				status != KVM_DEVICE_UNUSABLE;
	row_kvm_device(report, status, path);
	if (fd < 0)
		return;
	row_kvm_capabilities(report, fd);
	row_kvm_speed(report, fd);
	close(fd);
}

static void collect_vhost_net(struct doctor_report *report, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), err = errno;
	char found[128];

	report->vhost_net.present = fd >= 0 || err != ENOENT;
	report->vhost_net.permitted = fd >= 0;
	if (fd >= 0) {
		close(fd);
		doctor_row(report, "vhost-net", DOCTOR_OK, path, "");
		return;
	}
	snprintf(found, sizeof(found), "%.80s: %.40s", path, strerror(err));
	doctor_row(report, "vhost-net", DOCTOR_WARN, found,
		   err == ENOENT ? "optional: modprobe vhost_net"
				 : "optional: add yourself to its group (usually kvm)");
}

static void collect_kernel(struct doctor_report *report)
{
	struct utsname name;
	char found[128];

	uname(&name);
	snprintf(report->kernel, sizeof(report->kernel), "%s", name.release);
	snprintf(found, sizeof(found), "Linux %.80s on %.30s", name.release, name.machine);
	doctor_row(report, "kernel", DOCTOR_OK, found, "");
}

static void collect_cpus(struct doctor_report *report)
{
	cpu_set_t set;
	char found[128];

	/* More CPUs than a set holds is an error, and no reason to worry. */
	if (sched_getaffinity(0, sizeof(set), &set))
		report->cpus = (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
	else
		report->cpus = (unsigned)CPU_COUNT(&set);
	snprintf(found, sizeof(found), "%u", report->cpus);
	doctor_row(report, "cpus", report->cpus > 1 ? DOCTOR_OK : DOCTOR_WARN, found,
		   "with one CPU the guest and its devices take turns: expect lower bandwidth");
}

/* MemAvailable, or 0 if unknown. */
static uint64_t available_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			break;
	}
	if (file)
		fclose(file);
	return KIB(kib);
}

static void collect_memory(struct doctor_report *report)
{
	char found[128];

	report->memory = available_memory();
	snprintf(found, sizeof(found), "%" PRIu64 " MiB available", report->memory / MIB(1));
	doctor_row(report, "memory", report->memory >= WANT_MEMORY ? DOCTOR_OK : DOCTOR_WARN, found,
		   "end what uses memory, or give guests less than the default by --memory");
}

static uint64_t soft_limit(int resource)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

static void row_limit(struct doctor_report *report, const char *name, uint64_t limit, uint64_t want,
		      const char *remedy)
{
	char found[128];

	if (limit == UINT64_MAX)
		snprintf(found, sizeof(found), "unlimited");
	else
		snprintf(found, sizeof(found), "%" PRIu64, limit);
	doctor_row(report, name, limit >= want ? DOCTOR_OK : DOCTOR_WARN, found, remedy);
}

static void collect_limits(struct doctor_report *report)
{
	report->open_files = soft_limit(RLIMIT_NOFILE);
	report->processes = soft_limit(RLIMIT_NPROC);
	report->address_space = soft_limit(RLIMIT_AS);
	report->locked_memory = soft_limit(RLIMIT_MEMLOCK);
	row_limit(report, "limit: open files", report->open_files, WANT_OPEN_FILES,
		  "raise it (ulimit -n): each NIC and vCPU takes some");
	row_limit(report, "limit: processes", report->processes, WANT_PROCESSES,
		  "raise it (ulimit -u): each vCPU and each NIC is a thread");
	row_limit(report, "limit: address space", report->address_space, UINT64_MAX,
		  "lift it (ulimit -v unlimited): all of a guest's memory counts");
}

void doctor_collect(struct doctor_report *report, const struct doctor_paths *paths)
{
	memset(report, 0, sizeof(*report));
	collect_kvm(report, paths->kvm);
	doctor_collect_tun(report, paths->tun);
	collect_vhost_net(report, paths->vhost_net);
	collect_kernel(report);
	collect_cpus(report);
	collect_memory(report);
	collect_limits(report);
}

bool doctor_healthy(const struct doctor_report *report)
{
	unsigned i;

	for (i = 0; i < report->count; i++) {
		if (report->rows[i].state == DOCTOR_FAIL)
			return false;
	}
	return true;
}

int doctor_main(bool json)
{
	static const struct doctor_paths paths = {
		.kvm = KVM_DEVICE_PATH,
		.tun = "/dev/net/tun",
		.vhost_net = "/dev/vhost-net",
	};
	struct doctor_report report;

	doctor_collect(&report, &paths);
	if (!json)
		doctor_print(stdout, &report);
	else if (doctor_print_json(stdout, &report))
		return EXIT_SETUP;
	return doctor_healthy(&report) ? EXIT_SUCCESS : EXIT_SETUP;
}
