/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The back end of the device that is measured, and what is behind it: frames that wait to be
 * received are put there before a burst, sent ones are thrown away after it. In between it notes
 * when the first and the last frame of the burst passed.
 */
#ifndef WHELP_BENCH_WIRE_H
#define WHELP_BENCH_WIRE_H

#include <sys/uio.h>

#include "devices/net/backend.h"
#include "tests/bench/bench.h"
#include "tests/bench/meter.h"

/*
 * One pair's burst: written by the thread that moves the frames, read when it has come to rest.
 */
struct gauge {
	_Alignas(128) uint64_t target; /* frames */
	uint64_t count;
	uint64_t first; /* cycles, when the first frame, or batch of frames, had passed */
	uint64_t last;	/* and the last */
	uint64_t timed; /* frames in between, the last included */
};

static inline void gauge_frames(struct gauge *g, unsigned count)
{
	if (!g->count) {
		g->first = meter_cycles();
		g->timed = g->target - count;
	}
	g->count += count;
	if (g->count == g->target)
		g->last = meter_cycles();
}

/* A packet as it is in memory, its header in front. */
struct packet {
	uint8_t bytes[BENCH_HEADER + BENCH_MAX_FRAME];
	unsigned len;
};

struct wire {
	struct net_backend backend; /* for the device: passes everything on to `inner` */
	struct net_backend *inner;  /* NULL: there is none, frames are made and dropped here */
	const struct bench *bench;
	unsigned capacity; /* frames that a burst may have, per pair */
	struct gauge gauges[BENCH_MAX_PAIRS];
	struct packet packets[BENCH_MAX_PAIRS]; /* a pair's */
	int fds[BENCH_MAX_PAIRS];		/* this side's */
	int peers[BENCH_MAX_PAIRS]; /* the other side's: of socketpairs, or the taps' feeder */
	char tap[16];
};

/*
 * Opens all of it, or ends the program; the tap with the reason why there is none, if that is so.
 */
void wire_open(struct wire *wire, const struct bench *bench);

/* For the bare loop: everything that the device would have done to the back end. */
void wire_prepare_bare(struct wire *wire);
void wire_close(struct wire *wire);

/* Makes `count` frames wait for a pair that takes none now. */
void wire_feed(struct wire *wire, unsigned pair, unsigned count);

/* Throws `count` frames away that a pair has sent, all of which must be there. */
void wire_drain(struct wire *wire, unsigned pair, unsigned count);

/* Whether `count` frames arrived in all, where that can be told. */
void wire_check_sent(const struct wire *wire, uint64_t count);

/* The packet that a pair sends and receives; its flow is told by `port`. */
void packet_make(struct packet *packet, unsigned size, uint16_t port);

/* For wire.c. */
void wire_open_tap(struct wire *wire);
void wire_feed_tap(struct wire *wire, unsigned pair, unsigned count);
uint64_t wire_tap_received(const struct wire *wire);

#endif
