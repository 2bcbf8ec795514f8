/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is measured: the device with its workers, or the bare loop with a thread for each pair. Both
 * move bursts between the same memory and the same wire, on threads of their own; the calls come
 * from one more thread for each pair.
 */
#ifndef WHELP_BENCH_SUBJECT_H
#define WHELP_BENCH_SUBJECT_H

#include "tests/bench/wire.h"
#include "tests/driver/board.h"

struct subject;

struct subject_ops {
	/* Starts the threads; they wait. Ends the program if that fails. */
	void (*start)(struct subject *subject);
	void (*stop)(struct subject *subject);
	/* Gets a burst of a pair ready, which its thread does not see yet. */
	void (*prepare)(struct subject *subject, unsigned pair);
	/* Lets the thread at it. */
	void (*go)(struct subject *subject, unsigned pair);
	/*
	 * Sleeps until it is through; ends the program if it is not, in time, or if it is not all
	 * right.
	 */
	void (*wait)(struct subject *subject, unsigned pair);
};

struct subject {
	const struct subject_ops *ops;
	const struct bench *bench;
	struct wire *wire;
	struct board board; /* all frames are in its memory */
	unsigned burst;	    /* frames, per pair */
	unsigned movers;    /* threads that a pair has, once it was started */
	/* Each frame has its own buffers of the burst's, which are alike for all. */
	unsigned buffers;		  /* per frame */
	uint32_t buffer_bytes;		  /* of each; the last one of a sent frame is shorter */
	uint64_t memory[BENCH_MAX_PAIRS]; /* the first buffer's address */
	uint32_t stride;		  /* from one to the next */
};

/*
 * Chooses the burst and lays out its buffers, filled with packets to be sent. The board is there.
 */
void subject_init(struct subject *subject, const struct bench *bench, struct wire *wire);

/* Buffer `nth` of a pair's frame `frame`: its address, and bytes in `*len`. */
uint64_t subject_buffer(const struct subject *subject, unsigned pair, unsigned frame, unsigned nth,
			uint32_t *len);

/* Each frees by its stop(). */
struct subject *device_new(void);
struct subject *bare_new(void);

#endif
