/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stopping a vCPU must never be lost: a signal that arrives just before KVM_RUN would be, so the
 * stop first sets immediate_exit in the shared page, which makes the next KVM_RUN return at once,
 * and then sends the signal, which ends one that is under way.
 */
#include "vmm/vcpu.h"

#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "vmm/affinity.h"
#include "vmm/kvm_stats.h"
#include "vmm/log.h"

#define KICK_SIGNAL SIGUSR1

int vcpu_init(struct vcpu *vcpu, const struct kvm *kvm, unsigned id)
{
	void *run;

	memset(vcpu, 0, sizeof(*vcpu));
	vcpu->id = id;
	vcpu->cpu = -1;
	vcpu->stats_fd = -1;
	vcpu->fd = ioctl(kvm->vm_fd, KVM_CREATE_VCPU, (unsigned long)id);
	if (vcpu->fd < 0) {
		int err = errno;

		log_error("KVM cannot make CPU %u: %s", id, strerror(err));
		return -err;
	}
	run = mmap(NULL, kvm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED) {
		int err = errno;

		log_error("cannot map the shared page of CPU %u: %s", id, strerror(err));
		return -err;
	}
	vcpu->run = run;
	vcpu->run_size = kvm->run_size;
	vcpu->stats_fd = kvm_stats_open(vcpu->fd);
	return 0;
}

void vcpu_fini(struct vcpu *vcpu)
{
	if (vcpu->running) {
		vcpu_request_stop(vcpu);
		vcpu_join(vcpu);
	}
	if (vcpu->run)
		munmap(vcpu->run, vcpu->run_size);
	if (vcpu->stats_fd >= 0)
		close(vcpu->stats_fd);
	if (vcpu->fd >= 0)
		close(vcpu->fd);
	vcpu->run = NULL;
	vcpu->fd = vcpu->stats_fd = -1;
}

/* A string instruction comes as `count` accesses to the same port. */
static void port_io(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;
	bool in = run->io.direction == KVM_EXIT_IO_IN;
	const char *device = NULL;

	exits_count(&vcpu->exits, in ? EXIT_CAUSE_IO_IN : EXIT_CAUSE_IO_OUT);
	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
		if (in)
			device = bus_read(vcpu->pio, run->io.port, data, run->io.size);
		else
			device = bus_write(vcpu->pio, run->io.port, data, run->io.size);
	}
	exits_count_device(&vcpu->exits, device);
}

static void memory_io(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	const char *device;

	exits_count(&vcpu->exits,
		    run->mmio.is_write ? EXIT_CAUSE_MMIO_WRITE : EXIT_CAUSE_MMIO_READ);
	if (run->mmio.is_write)
		device = bus_write(vcpu->mmio, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
	else
		device = bus_read(vcpu->mmio, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
	exits_count_device(&vcpu->exits, device);
}

static unsigned long long instruction_pointer(const struct vcpu *vcpu)
{
	struct kvm_regs regs = { 0 };

	ioctl(vcpu->fd, KVM_GET_REGS, &regs);
	return regs.rip;
}

static void end(struct vcpu *vcpu, enum vcpu_end why)
{
	atomic_store(&vcpu->stopping, true);
	vcpu->ended(vcpu->ctx, why);
}

/* Of those that are not an access, which is counted where it is made. */
static enum exit_cause cause_of(uint32_t reason)
{
	switch (reason) {
	case KVM_EXIT_INTR:
		return EXIT_CAUSE_SIGNAL;
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		return EXIT_CAUSE_IRQ_WINDOW;
	case KVM_EXIT_HLT:
		return EXIT_CAUSE_HALT;
	case KVM_EXIT_HYPERCALL:
		return EXIT_CAUSE_HYPERCALL;
	case KVM_EXIT_SHUTDOWN:
		return EXIT_CAUSE_SHUTDOWN;
	case KVM_EXIT_INTERNAL_ERROR:
	case KVM_EXIT_FAIL_ENTRY:
		return EXIT_CAUSE_ERROR;
	default:
		return EXIT_CAUSE_OTHER;
	}
}

static void handle_exit(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	if (run->exit_reason == KVM_EXIT_IO) {
		port_io(vcpu);
		return;
	}
	if (run->exit_reason == KVM_EXIT_MMIO) {
		memory_io(vcpu);
		return;
	}
	exits_count(&vcpu->exits, cause_of(run->exit_reason));
	switch (run->exit_reason) {
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		return;
	case KVM_EXIT_SHUTDOWN:
		end(vcpu, VCPU_TRIPLE_FAULT);
		return;
	case KVM_EXIT_INTERNAL_ERROR:
		log_error("CPU %u at 0x%llx: KVM internal error %u", vcpu->id,
			  instruction_pointer(vcpu), run->internal.suberror);
		break;
	case KVM_EXIT_FAIL_ENTRY:
		log_error("CPU %u at 0x%llx: the hardware refuses to enter the guest, reason "
			  "0x%llx", vcpu->id, instruction_pointer(vcpu),
			  (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
		break;
	default:
		log_error("CPU %u at 0x%llx: KVM exit %u, which whelp does not know", vcpu->id,
			  instruction_pointer(vcpu), run->exit_reason);
		break;
	}
	end(vcpu, VCPU_INTERNAL_ERROR);
}

static void handle_locked(struct vcpu *vcpu)
{
	if (vcpu->lock)
		pthread_mutex_lock(vcpu->lock);
	handle_exit(vcpu);
	if (vcpu->lock)
		pthread_mutex_unlock(vcpu->lock);
}

static void run_loop(struct vcpu *vcpu)
{
	while (!atomic_load(&vcpu->stopping)) {
		if (!ioctl(vcpu->fd, KVM_RUN, 0)) {
			handle_locked(vcpu);
		} else if (errno == EINTR || errno == EAGAIN) {
			exits_count(&vcpu->exits, EXIT_CAUSE_SIGNAL);
		} else {
			log_error("CPU %u at 0x%llx: KVM_RUN failed: %s", vcpu->id,
				  instruction_pointer(vcpu), strerror(errno));
			end(vcpu, VCPU_INTERNAL_ERROR);
		}
	}
}

static void *vcpu_main(void *arg)
{
	struct vcpu *vcpu = arg;
	char name[16];
	sigset_t kick;

	snprintf(name, sizeof(name), "vcpu%u", vcpu->id);
	prctl(PR_SET_NAME, name);
	sigemptyset(&kick);
	sigaddset(&kick, KICK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
	run_loop(vcpu);
	return NULL;
}

int vcpu_start(struct vcpu *vcpu)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	int err = pthread_attr_init(&attributes);

	if (!err)
		err = -affinity_set(&attributes, vcpu->cpu);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!err)
		err = pthread_create(&vcpu->thread, &attributes, vcpu_main, vcpu);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	if (err) {
		log_error("cannot start the thread of CPU %u: %s", vcpu->id, strerror(err));
		return -err;
	}
	vcpu->running = true;
	return 0;
}

void vcpu_request_stop(struct vcpu *vcpu)
{
	if (!vcpu->running)
		return;
	atomic_store(&vcpu->stopping, true);
	__atomic_store_n(&vcpu->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	pthread_kill(vcpu->thread, KICK_SIGNAL);
}

void vcpu_join(struct vcpu *vcpu)
{
	if (!vcpu->running)
		return;
	pthread_join(vcpu->thread, NULL);
	vcpu->running = false;
}

json_t *vcpu_stats_json(const struct vcpu *vcpu)
{
	json_t *stats = exits_json(&vcpu->exits);

	json_object_set_new(stats, "kvm", kvm_stats_json(vcpu->stats_fd));
	return stats;
}

static void kicked(int signal_number)
{
	/* Its arrival is all that matters: it makes KVM_RUN return. */
	(void)signal_number;
}

int vcpu_install_kick(void)
{
	struct sigaction action = { .sa_handler = kicked };

	sigemptyset(&action.sa_mask);
	return sigaction(KICK_SIGNAL, &action, NULL) ? -errno : 0;
}
