/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM keeps one table of interrupt routes per VM and replaces it whole, waiting for an RCU grace
 * period each time. So messages are staged in an array here, under a lock, and the table is built
 * from it at a commit: a driver that sets up many vectors costs one replacement. Every message
 * source is a GSI of its own with an irqfd, so that raising it is one write to an eventfd, from any
 * thread.
 */
#include "vmm/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/cpu.h"

int kvm_device_open(const char *path, enum kvm_device_status *status, int *version)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int answer;

	if (version)
		*version = 0;
	if (fd < 0) {
		if (errno == ENOENT)
			*status = KVM_DEVICE_MISSING;
		else if (errno == EACCES || errno == EPERM)
			*status = KVM_DEVICE_DENIED;
		else
			*status = KVM_DEVICE_UNUSABLE;
		return -1;
	}
	answer = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (answer == KVM_API_VERSION) {
		*status = KVM_DEVICE_OK;
		if (version)
			*version = answer;
		return fd;
	}
	*status = answer < 0 ? KVM_DEVICE_NOT_KVM : KVM_DEVICE_OLD;
	if (version && answer > 0)
		*version = answer;
	close(fd);
	return -1;
}

const char *kvm_device_remedy(enum kvm_device_status status)
{
	switch (status) {
	case KVM_DEVICE_OK:
		return "";
	case KVM_DEVICE_MISSING:
		return "does not exist: load kvm_intel or kvm_amd, and enable virtualization in "
		       "the firmware (or nested virtualization in the hypervisor)";
	case KVM_DEVICE_DENIED:
		return "permission denied: add yourself to its group (usually kvm), or run as root";
	case KVM_DEVICE_UNUSABLE:
		return "cannot be opened: see the kernel's log for what KVM says";
	case KVM_DEVICE_NOT_KVM:
		return "does not answer as KVM: something else stands in its place; remove it and "
		       "reload the kvm module";
	case KVM_DEVICE_OLD:
		return "speaks an API other than version 12: use Linux 2.6.22 or newer";
	}
	return "";
}

static const struct kvm_capability capabilities[] = {
	{ "IRQCHIP", KVM_CAP_IRQCHIP, true },
	{ "USER_MEMORY", KVM_CAP_USER_MEMORY, true },
	{ "SET_TSS_ADDR", KVM_CAP_SET_TSS_ADDR, true },
	{ "EXT_CPUID", KVM_CAP_EXT_CPUID, true },
	{ "MP_STATE", KVM_CAP_MP_STATE, true },
	{ "IRQ_ROUTING", KVM_CAP_IRQ_ROUTING, true },
	{ "IRQFD", KVM_CAP_IRQFD, true },
	{ "PIT2", KVM_CAP_PIT2, true },
	{ "IOEVENTFD", KVM_CAP_IOEVENTFD, true },
	{ "IOEVENTFD_ANY_LENGTH", KVM_CAP_IOEVENTFD_ANY_LENGTH, true },
	{ "IMMEDIATE_EXIT", KVM_CAP_IMMEDIATE_EXIT, true },
	{ "TSC_DEADLINE_TIMER", KVM_CAP_TSC_DEADLINE_TIMER, false },
	{ "ADJUST_CLOCK", KVM_CAP_ADJUST_CLOCK, false },
};

const struct kvm_capability *kvm_capabilities(unsigned *count)
{
	*count = ARRAY_SIZE(capabilities);
	return capabilities;
}

int kvm_check(int fd, int capability)
{
	int value = ioctl(fd, KVM_CHECK_EXTENSION, (unsigned long)capability);

	return value < 0 ? 0 : value;
}

static int check_required(const struct kvm *kvm)
{
	for (unsigned i = 0; i < ARRAY_SIZE(capabilities); i++) {
		if (!capabilities[i].required || kvm_check(kvm->system_fd, capabilities[i].number))
			continue;
		log_error("%s: this KVM lacks the capability %s: use a newer kernel",
			  KVM_DEVICE_PATH, capabilities[i].name);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int create_vm(struct kvm *kvm)
{
	/* Making a VM may be interrupted while KVM sets up; it wants to be asked again. */
	do {
		kvm->vm_fd = ioctl(kvm->system_fd, KVM_CREATE_VM, 0ul);
	} while (kvm->vm_fd < 0 && errno == EINTR);
	if (kvm->vm_fd < 0) {
		int err = errno;

		log_error("%s: cannot make a VM: %s%s", KVM_DEVICE_PATH, strerror(err),
			  err == EBUSY ? "; another hypervisor holds the CPU's VT-x or SVM" : "");
		return -err;
	}
	return 0;
}

int kvm_init(struct kvm *kvm)
{
	enum kvm_device_status status;
	int size, err;

	memset(kvm, 0, sizeof(*kvm));
	kvm->vm_fd = -1;
	pthread_mutex_init(&kvm->route_lock, NULL);
	kvm->system_fd = kvm_device_open(KVM_DEVICE_PATH, &status, NULL);
	if (kvm->system_fd < 0) {
		log_error("%s %s; `whelp doctor` checks this machine", KVM_DEVICE_PATH,
			  kvm_device_remedy(status));
		return -ENODEV;
	}
	err = check_required(kvm);
	if (err)
		return err;
	size = ioctl(kvm->system_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (size <= 0) {
		log_error("%s: no size for a vCPU's shared page: %s", KVM_DEVICE_PATH,
			  strerror(errno));
		return -EIO;
	}
	kvm->run_size = (size_t)size;
	err = create_vm(kvm);
	if (err)
		return err;
	return x86_vm_setup(kvm->vm_fd);
}

void kvm_fini(struct kvm *kvm)
{
	for (unsigned i = 0; i < kvm->msi_count; i++)
		if (kvm->msis[i].fd >= 0)
			close(kvm->msis[i].fd);
	free(kvm->msis);
	kvm->msis = NULL;
	kvm->msi_count = 0;
	if (kvm->vm_fd >= 0)
		close(kvm->vm_fd);
	if (kvm->system_fd >= 0)
		close(kvm->system_fd);
	kvm->vm_fd = kvm->system_fd = -1;
	pthread_mutex_destroy(&kvm->route_lock);
}

int kvm_add_memory(struct kvm *kvm, const struct mem *mem)
{
	for (unsigned i = 0; i < mem->count; i++) {
		const struct mem_region *r = &mem->regions[i];
		struct kvm_userspace_memory_region slot = {
			.slot = kvm->slots,
			.guest_phys_addr = r->gpa,
			.memory_size = r->size,
			.userspace_addr = (uintptr_t)r->host,
		};

		if (ioctl(kvm->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot)) {
			int err = errno;

			log_error("KVM refuses %llu MiB of guest memory at 0x%llx: %s",
				  (unsigned long long)(r->size >> 20), (unsigned long long)r->gpa,
				  strerror(err));
			return -err;
		}
		kvm->slots++;
	}
	return 0;
}

unsigned kvm_max_vcpus(const struct kvm *kvm)
{
	int max = kvm_check(kvm->vm_fd, KVM_CAP_MAX_VCPUS);

	return max > 0 ? (unsigned)max : (unsigned)MAX(kvm_check(kvm->vm_fd, KVM_CAP_NR_VCPUS), 1);
}

/*
 * The routes KVM starts with: inputs 0 to 15 reach both the PICs and the IOAPIC, the rest the
 * IOAPIC.
 */
static unsigned add_chip_routes(struct kvm_irq_routing_entry *entries)
{
	unsigned n = 0;

	for (unsigned gsi = 0; gsi < KVM_FIRST_MSI_GSI; gsi++) {
		if (gsi < 16)
			entries[n++] = (struct kvm_irq_routing_entry){
				.gsi = gsi,
				.type = KVM_IRQ_ROUTING_IRQCHIP,
				.u.irqchip = { .irqchip = gsi < 8 ? KVM_IRQCHIP_PIC_MASTER :
								    KVM_IRQCHIP_PIC_SLAVE,
					       .pin = gsi % 8 },
			};
		entries[n++] = (struct kvm_irq_routing_entry){
			.gsi = gsi,
			.type = KVM_IRQ_ROUTING_IRQCHIP,
			.u.irqchip = { .irqchip = KVM_IRQCHIP_IOAPIC, .pin = gsi },
		};
	}
	return n;
}

static int commit_locked(struct kvm *kvm)
{
	unsigned most = KVM_FIRST_MSI_GSI + 16 + kvm->msi_count, n;
	struct kvm_irq_routing *table;
	int err = 0;

	if (!kvm->routes_dirty)
		return 0;
	table = calloc(1, sizeof(*table) + most * sizeof(table->entries[0]));
	if (!table)
		return -ENOMEM;
	n = add_chip_routes(table->entries);
	for (unsigned i = 0; i < kvm->msi_count; i++) {
		const struct msi_source *msi = &kvm->msis[i];

		if (msi->fd < 0 || !msi->set)
			continue;
		table->entries[n++] = (struct kvm_irq_routing_entry){
			.gsi = KVM_FIRST_MSI_GSI + i,
			.type = KVM_IRQ_ROUTING_MSI,
			.u.msi = { .address_lo = (uint32_t)msi->address,
				   .address_hi = (uint32_t)(msi->address >> 32),
				   .data = msi->data },
		};
	}
	table->nr = n;
	if (ioctl(kvm->vm_fd, KVM_SET_GSI_ROUTING, table))
		err = -errno;
	else
		kvm->routes_dirty = false;
	kvm->route_commits++;
	free(table);
	return err;
}

static int msi_commit(void *ctx)
{
	struct kvm *kvm = ctx;
	int err;

	pthread_mutex_lock(&kvm->route_lock);
	err = commit_locked(kvm);
	pthread_mutex_unlock(&kvm->route_lock);
	if (err)
		log_warn("KVM refuses the interrupt routes: %s", strerror(-err));
	return err;
}

/* A free slot's index, or the array's end after growing it; -errno. */
static int find_slot(struct kvm *kvm)
{
	struct msi_source *msis;

	for (unsigned i = 0; i < kvm->msi_count; i++)
		if (kvm->msis[i].fd < 0)
			return (int)i;
	msis = reallocarray(kvm->msis, kvm->msi_count + 1, sizeof(*msis));
	if (!msis)
		return -ENOMEM;
	kvm->msis = msis;
	kvm->msis[kvm->msi_count].fd = -1;
	return (int)kvm->msi_count++;
}

static int set_irqfd(const struct kvm *kvm, int fd, unsigned gsi, bool on)
{
	struct kvm_irqfd irqfd = {
		.fd = (uint32_t)fd,
		.gsi = gsi,
		.flags = on ? 0 : KVM_IRQFD_FLAG_DEASSIGN,
	};

	return ioctl(kvm->vm_fd, KVM_IRQFD, &irqfd) ? -errno : 0;
}

static int alloc_locked(struct kvm *kvm, unsigned *source, int *fd)
{
	int slot = find_slot(kvm), err;

	if (slot < 0)
		return slot;
	*fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (*fd < 0)
		return -errno;
	err = set_irqfd(kvm, *fd, KVM_FIRST_MSI_GSI + (unsigned)slot, true);
	if (err) {
		close(*fd);
		return err;
	}
	kvm->msis[slot] = (struct msi_source){ .fd = *fd };
	*source = (unsigned)slot;
	return 0;
}

static int msi_alloc(void *ctx, unsigned *source, int *fd)
{
	struct kvm *kvm = ctx;
	int err;

	pthread_mutex_lock(&kvm->route_lock);
	err = alloc_locked(kvm, source, fd);
	pthread_mutex_unlock(&kvm->route_lock);
	return err;
}

static void msi_free(void *ctx, unsigned source)
{
	struct kvm *kvm = ctx;
	struct msi_source *msi;

	pthread_mutex_lock(&kvm->route_lock);
	msi = &kvm->msis[source];
	set_irqfd(kvm, msi->fd, KVM_FIRST_MSI_GSI + source, false);
	close(msi->fd);
	kvm->routes_dirty |= msi->set;
	*msi = (struct msi_source){ .fd = -1 };
	pthread_mutex_unlock(&kvm->route_lock);
}

static void msi_set(void *ctx, unsigned source, uint64_t address, uint32_t data)
{
	struct kvm *kvm = ctx;
	struct msi_source *msi;

	pthread_mutex_lock(&kvm->route_lock);
	msi = &kvm->msis[source];
	if (!msi->set || msi->address != address || msi->data != data) {
		*msi = (struct msi_source){
			.fd = msi->fd,
			.address = address,
			.data = data,
			.set = true,
		};
		kvm->routes_dirty = true;
	}
	pthread_mutex_unlock(&kvm->route_lock);
}

static int msi_fd(void *ctx, unsigned source, int fd, bool on)
{
	return set_irqfd(ctx, fd, KVM_FIRST_MSI_GSI + source, on);
}

static int kick_fd(void *ctx, enum platform_space space, uint64_t addr, int fd, bool on)
{
	struct kvm *kvm = ctx;
	struct kvm_ioeventfd kick = {
		.addr = addr,
		.len = 0, /* a write of any size */
		.fd = fd,
		.flags = (on ? 0 : KVM_IOEVENTFD_FLAG_DEASSIGN) |
			 (space == PLATFORM_PIO ? KVM_IOEVENTFD_FLAG_PIO : 0),
	};

	return ioctl(kvm->vm_fd, KVM_IOEVENTFD, &kick) ? -errno : 0;
}

static void irq_line(void *ctx, unsigned line, bool level)
{
	struct kvm *kvm = ctx;
	struct kvm_irq_level irq = { .irq = line, .level = level };

	/* Fails only for a line that does not exist, which is fixed when the machine is built. */
	ioctl(kvm->vm_fd, KVM_IRQ_LINE, &irq);
}

const struct platform_ops kvm_platform_ops = {
	.msi_alloc = msi_alloc,
	.msi_free = msi_free,
	.msi_set = msi_set,
	.msi_commit = msi_commit,
	.msi_fd = msi_fd,
	.kick_fd = kick_fd,
	.irq_line = irq_line,
};
