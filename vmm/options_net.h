/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between options_net.c and options_tuning.c: what --net said so far, and the setters of its keys.
 * Each reads a value for the struct net_choice that `config` is, as struct option_key has it.
 */
#ifndef WHELP_OPTIONS_NET_H
#define WHELP_OPTIONS_NET_H

#include "vmm/options_value.h"

struct net_choice {
	struct net_config *net;
	enum { FEATURES_DEFAULT, FEATURES_ALL, FEATURES_EXACT } base;
	/* 0: not given; so are the two rings of `net`. */
	unsigned queues;
	unsigned ring;
	bool mac, mtu, speed;
	bool tuned; /* by any key of options_tuning.c */
	/* By name, with a sign or in the list. */
	uint32_t on[NET_FEATURE_WORDS];
	uint32_t off[NET_FEATURE_WORDS];
};

int tuning_set_mitigation(void *config, const char *value, struct complaint *why);
int tuning_set_latency(void *config, const char *value, struct complaint *why);
int tuning_set_poll(void *config, const char *value, struct complaint *why);
int tuning_set_budget(void *config, const char *value, struct complaint *why);
int tuning_set_workers(void *config, const char *value, struct complaint *why);
int tuning_set_affinity(void *config, const char *value, struct complaint *why);
int tuning_set_lock(void *config, const char *value, struct complaint *why);
int tuning_set_sched(void *config, const char *value, struct complaint *why);
int tuning_set_intr(void *config, const char *value, struct complaint *why);
int tuning_set_io(void *config, const char *value, struct complaint *why);
int tuning_set_rx(void *config, const char *value, struct complaint *why);

/* Before any key, and after all. */
void tuning_default(struct net_tuning *tuning);
int tuning_check(struct net_tuning *tuning, struct complaint *why);

#endif
