/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What KVM itself counts of a vCPU (its binary statistics, from Linux 5.14 on): exits that never
 * come to whelp, such as halts, kicks and interrupts.
 */
#ifndef WHELP_KVM_STATS_H
#define WHELP_KVM_STATS_H

#include <jansson.h>

/*
 * A file of the vCPU's statistics, for the caller to close; -1 where KVM has none. To be opened
 * before the vCPU runs: later KVM makes the call wait until it leaves KVM_RUN.
 */
int kvm_stats_open(int vcpu_fd);

/*
 * Every single counter by KVM's own name, without its histograms; null for -1 or what cannot be
 * read.
 */
json_t *kvm_stats_json(int stats_fd);

#endif
