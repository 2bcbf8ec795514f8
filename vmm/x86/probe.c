/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest is one loop of two instructions and a HLT, which without an in-kernel APIC is an exit
 * to us. It runs in the mode that a kernel runs in (64-bit, paging, ring 0), for real and protected
 * mode may be emulated where that is native. Its length grows until a run takes long enough for the
 * clock and for the cost of entry and exit not to matter; of several runs of one length the fastest
 * counts, as all that other load on the host can do is to slow one down.
 *
 * A repeating timer's signal gets us out of a KVM_RUN that does not end; that it repeats is what
 * makes a signal just before KVM_RUN harmless.
 */
#include "vmm/x86/probe.h"

#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "vmm/util.h"
#include "vmm/x86/layout.h"

#define GUEST_BYTES KIB(64)
#define GUEST_PML4  0x1000u
#define GUEST_PDPT  0x2000u
#define GUEST_PD    0x3000u
#define GUEST_CODE  0x8000u

#define PTE_PRESENT 0x1u
#define PTE_WRITE   0x2u
#define PTE_LARGE   0x80u

#define CR0_PE	 (1ull << 0)
#define CR0_ET	 (1ull << 4)
#define CR0_PG	 (1ull << 31)
#define CR4_PAE	 (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)
#define RFLAGS_1 0x2u

#define CPUID_ENTRIES 256u

#define RUNS_OF_A_LENGTH 3
#define FIRST_ITERATIONS 1000u
#define LONG_ENOUGH_NS	 5000000u
#define DEADLINE_NS	 500000000u
#define TICK_US		 50000

struct probe {
	int vm_fd;
	int vcpu_fd;
	uint8_t *memory;
	struct kvm_run *run;
	size_t run_size;
	uint64_t deadline;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void write_guest(uint8_t *memory)
{
	static const uint8_t code[] = {
		0x48, 0xff, 0xc9, /* loop: dec %rcx */
		0x75, 0xfb,	  /* jnz loop */
		0xf4,		  /* hlt */
	};

	store_le(memory + GUEST_PML4, 8, GUEST_PDPT | PTE_WRITE | PTE_PRESENT);
	store_le(memory + GUEST_PDPT, 8, GUEST_PD | PTE_WRITE | PTE_PRESENT);
	store_le(memory + GUEST_PD, 8, PTE_LARGE | PTE_WRITE | PTE_PRESENT);
	memcpy(memory + GUEST_CODE, code, sizeof(code));
}

static int add_memory(struct probe *probe)
{
	struct kvm_userspace_memory_region region = { .memory_size = GUEST_BYTES };
	void *memory =
		mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	probe->memory = memory;
	write_guest(probe->memory);
	region.userspace_addr = (uintptr_t)probe->memory;
	return ioctl(probe->vm_fd, KVM_SET_USER_MEMORY_REGION, &region) < 0 ? -errno : 0;
}

/* A vCPU whose CPUID lacks long mode may be refused it. */
static int set_cpuid(int kvm_fd, int vcpu_fd)
{
	struct kvm_cpuid2 *cpuid;
	int err = 0;

	cpuid = calloc(1, sizeof(*cpuid) + CPUID_ENTRIES * sizeof(cpuid->entries[0]));
	if (!cpuid)
		return -ENOMEM;
	cpuid->nent = CPUID_ENTRIES;
	if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, cpuid) < 0 ||
	    ioctl(vcpu_fd, KVM_SET_CPUID2, cpuid) < 0)
		err = -errno;
	free(cpuid);
	return err;
}

static int set_mode(int vcpu_fd)
{
	const struct kvm_segment code = { .limit = UINT32_MAX,
					  .selector = 0x10,
					  .type = 0xb,
					  .present = 1,
					  .s = 1,
					  .l = 1,
					  .g = 1 };
	const struct kvm_segment data = { .limit = UINT32_MAX,
					  .selector = 0x18,
					  .type = 0x3,
					  .present = 1,
					  .s = 1,
					  .db = 1,
					  .g = 1 };
	struct kvm_sregs sregs;

	if (ioctl(vcpu_fd, KVM_GET_SREGS, &sregs) < 0)
		return -errno;
	sregs.cs = code;
	sregs.ds = data;
	sregs.es = data;
	sregs.ss = data;
	sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
	sregs.cr3 = GUEST_PML4;
	sregs.cr4 = CR4_PAE;
	sregs.efer = EFER_LME | EFER_LMA;
	return ioctl(vcpu_fd, KVM_SET_SREGS, &sregs) < 0 ? -errno : 0;
}

static int create_vcpu(struct probe *probe, int kvm_fd)
{
	int size = ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *run;

	if (size < (int)sizeof(struct kvm_run))
		return size < 0 ? -errno : -EIO;
	probe->vcpu_fd = ioctl(probe->vm_fd, KVM_CREATE_VCPU, 0ul);
	if (probe->vcpu_fd < 0)
		return -errno;
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, probe->vcpu_fd, 0);
	if (run == MAP_FAILED)
		return -errno;
	probe->run = run;
	probe->run_size = (size_t)size;
	return 0;
}

static int probe_init(struct probe *probe, int kvm_fd)
{
	int err;

	memset(probe, 0, sizeof(*probe));
	probe->vcpu_fd = -1;
	probe->deadline = now_ns() + DEADLINE_NS;
	probe->vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0ul);
	if (probe->vm_fd < 0)
		return -errno;
	/* Intel's KVM keeps what real mode needs there, and complains in its log without it. */
	if (ioctl(probe->vm_fd, KVM_SET_TSS_ADDR, (unsigned long)LAYOUT_KVM_TSS) < 0)
		return -errno;
	err = add_memory(probe);
	if (!err)
		err = create_vcpu(probe, kvm_fd);
	if (!err)
		err = set_cpuid(kvm_fd, probe->vcpu_fd);
	return err ? err : set_mode(probe->vcpu_fd);
}

static void probe_fini(struct probe *probe)
{
	if (probe->run)
		munmap(probe->run, probe->run_size);
	if (probe->vcpu_fd >= 0)
		close(probe->vcpu_fd);
	if (probe->vm_fd >= 0)
		close(probe->vm_fd);
	if (probe->memory)
		munmap(probe->memory, GUEST_BYTES);
}

/* Runs the loop once; `*elapsed` is in ns. */
static int run_loop(struct probe *probe, uint64_t iterations, uint64_t *elapsed)
{
	struct kvm_regs regs = { .rip = GUEST_CODE, .rcx = iterations, .rflags = RFLAGS_1 };
	uint64_t start;

	if (ioctl(probe->vcpu_fd, KVM_SET_REGS, &regs) < 0)
		return -errno;
	start = now_ns();
	while (ioctl(probe->vcpu_fd, KVM_RUN, 0) < 0) {
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
		if (now_ns() >= probe->deadline)
			return -ETIME;
	}
	*elapsed = MAX(now_ns() - start, 1u);
	return probe->run->exit_reason == KVM_EXIT_HLT ? 0 : -EIO;
}

/* Runs loops of one length and takes the fastest. */
static int run_fastest(struct probe *probe, uint64_t iterations, uint64_t *fastest)
{
	uint64_t elapsed = 0;
	int i, err;

	*fastest = UINT64_MAX;
	for (i = 0; i < RUNS_OF_A_LENGTH; i++) {
		err = run_loop(probe, iterations, &elapsed);
		if (err)
			return err;
		*fastest = MIN(*fastest, elapsed);
	}
	return 0;
}

static int measure(struct probe *probe, double *mips)
{
	uint64_t iterations = FIRST_ITERATIONS, elapsed = 0;
	int err;

	*mips = 0;
	for (;;) {
		err = run_fastest(probe, iterations, &elapsed);
		/* Out of time with some speed known is good enough: what is that slow is not
		 * native. */
		if (err == -ETIME && *mips > 0)
			return 0;
		if (err)
			return err;
		/* Two instructions an iteration; per ns times 1000 is millions per second. */
		*mips = MAX(*mips, 2e3 * (double)iterations / (double)elapsed);
		if (elapsed >= LONG_ENOUGH_NS)
			return 0;
		iterations *= 4;
	}
}

static void on_tick(int signo)
{
	(void)signo; /* its arrival is all: KVM_RUN returns EINTR */
}

int x86_probe_speed(int kvm_fd, double *mips)
{
	const struct itimerval tick = { { 0, TICK_US }, { 0, TICK_US } }, none = { 0 };
	struct sigaction action = { .sa_handler = on_tick }, saved;
	struct probe probe;
	int err;

	sigaction(SIGALRM, &action, &saved);
	setitimer(ITIMER_REAL, &tick, NULL);
	err = probe_init(&probe, kvm_fd);
	if (!err)
		err = measure(&probe, mips);
	probe_fini(&probe);
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &saved, NULL);
	return err;
}
