/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests that are run on every kind of ring: each format, with chains in the ring or in indirect
 * tables, with and without event indices, in any order or in order.
 */
#ifndef WHELP_TESTS_LIBKIND_H
#define WHELP_TESTS_LIBKIND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/virtio/virtio.h"
#include "tests/driver/ring.h"

struct ring_kind {
	bool packed;
	bool indirect;
	bool event_idx;
	bool in_order;
};

#define RING_KINDS 16u

struct kind_test {
	const char *name;
	CMUnitTestFunction test;
};

#define KIND_TEST(function) { #function, function }

/*
 * Runs each test on each kind, with a setup that finds a const struct ring_kind in its state and
 * puts the test's own state there. Returns what main() is to return.
 */
int kinds_run(const struct kind_test *tests, unsigned count, CMFixtureFunction setup,
	      CMFixtureFunction teardown);

/* Adds the kind's feature bits. */
void kind_features(const struct ring_kind *kind, struct virtio_features *features);

/* ring_add() or ring_add_indirect(), as the kind is. */
int kind_add(const struct ring_kind *kind, struct ring *ring, const struct ring_piece *pieces,
	     unsigned readable, unsigned writable, void *token);

/* How many places in the ring a chain of so many pieces takes, as the ring counts its positions. */
unsigned kind_places(const struct ring_kind *kind, unsigned pieces);

/*
 * The next of a sequence of random numbers, below `bound`. It starts from WHELP_SEED or else the
 * clock, anew for each test, and is printed at the start: with the same seed a test does the same.
 * One thread only.
 */
unsigned kind_random(unsigned bound);

/* The longer variant where WHELP_LONG is set: `count`, or many times that. */
unsigned kind_count(unsigned count);

#endif
