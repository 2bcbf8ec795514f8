/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random chains through a virtqueue, for tests of every kind of ring: both sides' steps, one at a
 * time, with every byte checked on the way.
 */
#ifndef WHELP_TESTS_LIBTRAFFIC_H
#define WHELP_TESTS_LIBTRAFFIC_H

#include "tests/unit/libvq.h"

#define TRAFFIC_BYTES 256u /* of memory for each chain: its readable half, its writable half */
#define TRAFFIC_HALF  (TRAFFIC_BYTES / 2)

/* No chain gets more. */
#define TRAFFIC_PIECES 12u

/* A chain under way, as the driver made it and the device has to see it. */
struct job {
	unsigned number;
	unsigned readable_bytes;
	unsigned writable_bytes;
	unsigned pieces;
	uint32_t written; /* what the device says it wrote */
	struct vq_chain chain;
	struct iovec iov[PAIR_PIECES];
};

/* Both sides' view of what is on its way; the counts go on for ever. */
struct traffic {
	struct vq_pair *pair;
	struct job *jobs; /* by number, modulo the ring's size */
	unsigned size;
	uint64_t memory;
	unsigned added;
	unsigned published;
	unsigned popped;
	unsigned pushed;
	unsigned done;
	unsigned added_places; /* the same in the ring's own count */
	unsigned used_places;
};

/*
 * Starts the pair anew with a ring of its kind. traffic_end() asserts that no side has found a
 * fault.
 */
struct traffic traffic_start(struct vq_pair *pair, uint16_t size);
void traffic_end(struct traffic *traffic);

struct job *traffic_job(const struct traffic *traffic, unsigned number);

/*
 * The driver: adds a chain of a random layout; false when the ring has no place for it. Publishes.
 */
bool traffic_add(struct traffic *traffic);
bool traffic_publish(struct traffic *traffic);

/* The device: pops the next chain and looks at every byte; false when there is none. */
bool traffic_pop(struct traffic *traffic);

/* The device: writes some of what may be written, and stages the chain as used. */
void traffic_push(struct traffic *traffic, struct job *job);

/* The driver: takes the next used chain, which has to be `job`, or any if that is NULL. */
void traffic_take(struct traffic *traffic, const struct job *job);
void traffic_expect_none(struct traffic *traffic);

/* Up to `batch` chains are added, popped, used and taken, in order; nothing else is under way. */
void traffic_round(struct traffic *traffic, unsigned batch);

#endif
