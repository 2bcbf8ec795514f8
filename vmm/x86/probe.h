/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How fast KVM runs a guest's kernel code: some KVMs interpret it instruction by instruction, which
 * no capability tells.
 */
#ifndef WHELP_X86_PROBE_H
#define WHELP_X86_PROBE_H

/*
 * From this speed on, in millions of instructions per second, guests count as running natively. An
 * interpreting KVM makes about 2; any processor makes thousands, and even one that is emulated
 * together with its virtualization makes hundreds.
 */
#define X86_PROBE_NATIVE_MIPS 50.0

/*
 * Runs a loop of a tiny guest, in 64-bit mode and ring 0, for some 50 ms and at most half a second.
 * `kvm_fd` is the open KVM device. `*mips` is the best of several runs. Returns 0 or -errno: an
 * ioctl's, -EIO when the guest did not end as it should, -ETIME when it did not end at all. Does
 * not log. Uses SIGALRM and ITIMER_REAL while it runs: for a process with one thread.
 */
int x86_probe_speed(int kvm_fd, double *mips);

#endif
