/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `whelp doctor`: what this machine has of what guests need. Collecting has no lasting effect.
 */
#ifndef WHELP_DOCTOR_H
#define WHELP_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARN, /* guests run, but not as well, or not all of them */
	DOCTOR_FAIL, /* something needed is missing */
};

struct doctor_row {
	const char *name;
	enum doctor_state state;
	char found[128];
	char remedy[256]; /* empty for DOCTOR_OK */
};

#define DOCTOR_MAX_ROWS 24

enum doctor_answer { DOCTOR_UNKNOWN, DOCTOR_NO, DOCTOR_YES };

struct doctor_device {
	bool present;
	bool permitted; /* it could be opened for reading and writing */
};

struct doctor_report {
	struct doctor_row rows[DOCTOR_MAX_ROWS];
	unsigned count;

	struct doctor_device kvm;
	int kvm_version; /* 0: it did not answer */
	enum doctor_answer native;
	double mips; /* guest instructions, millions per second; 0: not measured */

	struct doctor_device tun;
	uint32_t tun_features;		 /* IFF_*, 0 if unknown */
	int tun_offloads;		 /* TUN_F_*, negative if unknown */
	enum doctor_answer tun_steering; /* a tap takes an eBPF program from us */
	struct doctor_device vhost_net;

	char kernel[65]; /* release */
	unsigned cpus;	 /* that this process may use */
	uint64_t memory; /* bytes available without swapping */
	/* Soft limits; UINT64_MAX: none. */
	uint64_t open_files;
	uint64_t processes;
	uint64_t address_space;
	uint64_t locked_memory;
};

struct doctor_paths {
	const char *kvm;
	const char *tun;
	const char *vhost_net;
};

/*
 * Fills the report. Uses SIGALRM for a moment (see vmm/x86/probe.h) and a child process: for a
 * process with one thread.
 */
void doctor_collect(struct doctor_report *report, const struct doctor_paths *paths);

/* Appends a row; `remedy` is dropped for DOCTOR_OK. */
void doctor_row(struct doctor_report *report, const char *name, enum doctor_state state,
		const char *found, const char *remedy);

/* The offloads of a tap that virtio-net passes through, in the order of the report. */
struct doctor_offload {
	const char *name;
	unsigned flags; /* TUN_F_*: all of them, or it lacks the offload */
	unsigned with;	/* the kernel refuses the flags without these */
	const char *since; /* the Linux version that brought it; NULL: no need to tell */
};

extern const struct doctor_offload doctor_offloads[];
extern const unsigned doctor_offload_count;

bool doctor_has_offload(const struct doctor_report *report, const struct doctor_offload *offload);

/* The rows about tun, and the fields. */
void doctor_collect_tun(struct doctor_report *report, const char *path);

/* True when no row is DOCTOR_FAIL. */
bool doctor_healthy(const struct doctor_report *report);

/* The table; and the JSON object, whose fields docs/options.md lists. 0 or -errno. */
void doctor_print(FILE *out, const struct doctor_report *report);
int doctor_print_json(FILE *out, const struct doctor_report *report);

/* Collects, prints to standard output, and returns the exit status: 0 healthy, 1 not. */
int doctor_main(bool json);

#endif
