/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command line as plain structs. Parsing has no side effect but messages: nothing is opened,
 * made or looked up.
 */
#ifndef WHELP_OPTIONS_H
#define WHELP_OPTIONS_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/affinity.h"
#include "vmm/net_features.h"
#include "vmm/net_tuning.h"
#include "vmm/util.h"

#define OPTIONS_MAX_NETS   16
#define OPTIONS_MAX_CPUS   254 /* 8-bit APIC ids, less the broadcast */
#define OPTIONS_MAX_MEMORY GIB(512)
#define OPTIONS_MIN_MTU	   68 /* virtio 1.2, 5.1.4.1: the device must not offer less */
#define OPTIONS_MAX_MTU	   65535
#define OPTIONS_MAX_QUEUES 32 /* pairs of one NIC */
#define OPTIONS_MIN_RING   2
#define OPTIONS_MAX_RING   4096
#define OPTIONS_RING	   256
#define OPTIONS_MAX_WATCH  3600

/* Exit statuses of `whelp run`; options_help() prints them. */
enum exit_status {
	EXIT_POWERED_OFF = 0,
	EXIT_SETUP = 1,		 /* the machine could not be set up: KVM, a file, a tap, memory */
	EXIT_USAGE = 2,		 /* the command line is wrong */
	EXIT_REBOOT = 3,	 /* the guest rebooted, and --no-reboot was given */
	EXIT_PANIC = 4,		 /* the guest's kernel panicked, and told so */
	EXIT_TRIPLE_FAULT = 5,	 /* a vCPU shut down by a triple fault */
	EXIT_INTERNAL_ERROR = 6, /* KVM could not go on */
	EXIT_QUIT = 7,		 /* the user typed Ctrl-A x */
	EXIT_SIGNAL = 128,	 /* plus the number of the signal that ended whelp */
};

/* One `--net`: virtio-net on a tap, which is given by its name or by open files. */
struct net_config {
	char tap[IFNAMSIZ]; /* empty: by `fds` */
	int fds[OPTIONS_MAX_QUEUES];
	unsigned fd_count; /* 0, or `queues` */
	uint8_t mac[6];	   /* all zero: one is made from the host's and the tap's names */
	uint16_t mtu;	   /* 0: not offered */
	unsigned queues;   /* pairs, 1 to OPTIONS_MAX_QUEUES */
	/* OPTIONS_MIN_RING to OPTIONS_MAX_RING; powers of two, unless ring_packed is wanted. */
	unsigned rx_ring;
	unsigned tx_ring;
	struct net_tuning tuning;
	bool vhost;	 /* the kernel's vhost-net moves the frames, not whelp */
	bool notify_pio; /* kicks go to an I/O BAR and not to a memory BAR */
	/* As in the configuration (5.1.4); UINT32_MAX and UINT8_MAX: unknown. */
	uint32_t speed;
	uint8_t duplex;
	/*
	 * Sets of features (net_features.h). The device offers those of `wanted` that it and the
	 * tap can do, and refuses to start without one of `required`, a subset: it was asked for by
	 * name, or by a key that is nothing without it. In `wanted`, each feature's needs are met.
	 */
	uint32_t wanted[NET_FEATURE_WORDS];
	uint32_t required[NET_FEATURE_WORDS];
};

/* `whelp run`. Strings point into argv. */
struct run_config {
	const char *kernel;
	const char *initrd; /* NULL: none */
	const char *cmdline;
	const char *name;   /* NULL: one is made from the process's id */
	const char *serial; /* path of COM2's unix socket; NULL: no COM2 */
	const char *stats;  /* path of the counters' file; NULL: none */
	unsigned cpus;
	struct cpu_list affinity; /* the vCPUs', in turn */
	uint64_t memory; /* bytes, page-aligned */
	bool no_reboot;
	struct net_config nets[OPTIONS_MAX_NETS];
	unsigned net_count;
};

/* `whelp stat`. */
struct stat_config {
	const char *name; /* NULL: all machines */
	bool json;
	unsigned watch; /* seconds between reports; 0: one report */
};

enum command { COMMAND_RUN, COMMAND_STAT, COMMAND_DOCTOR, COMMAND_HELP, COMMAND_VERSION };

struct options {
	enum command command;
	/* COMMAND_HELP: "run", "stat", "doctor", "net", or NULL for the overview */
	const char *help_topic;
	bool json;		/* COMMAND_DOCTOR */
	struct run_config run;	/* COMMAND_RUN */
	struct stat_config stat; /* COMMAND_STAT */
};

/*
 * Reads argv. Returns 0, or -EINVAL after one line on stderr that names the option, its value, and
 * what is allowed.
 */
int options_parse(struct options *options, int argc, char **argv);

/* Prints the help of a topic as in struct options. */
void options_help(FILE *out, const char *topic);

#endif
