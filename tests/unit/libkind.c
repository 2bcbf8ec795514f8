/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libkind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_SIZE 128u
#define LONGER	  20u

static unsigned first_seed;
static unsigned seed;
static CMFixtureFunction setup_one;

static struct ring_kind kinds[RING_KINDS];

static void start_seeds(void)
{
	const char *given = getenv("WHELP_SEED");

	first_seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
	printf("# WHELP_SEED=%u\n", first_seed);
	fflush(stdout);
}

static int setup_with_seed(void **state)
{
	seed = first_seed;
	return setup_one(state);
}

static void name_test(char *name, const char *test, const struct ring_kind *kind)
{
	snprintf(name, NAME_SIZE, "%s: %s, %s%s%s", test, kind->packed ? "packed" : "split",
		 kind->indirect ? "indirect" : "direct", kind->event_idx ? ", event_idx" : "",
		 kind->in_order ? ", in_order" : "");
}

int kinds_run(const struct kind_test *tests, unsigned count, CMFixtureFunction setup,
	      CMFixtureFunction teardown)
{
	struct CMUnitTest *all = calloc(count * RING_KINDS, sizeof(*all));
	char(*names)[NAME_SIZE] = calloc(count * RING_KINDS, NAME_SIZE);
	int failed = 1;

	start_seeds();
	setup_one = setup;
	for (unsigned k = 0; k < RING_KINDS; k++)
		kinds[k] = (struct ring_kind){ k & 1, k & 2, k & 4, k & 8 };
	for (unsigned i = 0; all && names && i < count * RING_KINDS; i++) {
		struct ring_kind *kind = &kinds[i % RING_KINDS];

		name_test(names[i], tests[i / RING_KINDS].name, kind);
		all[i] = (struct CMUnitTest){
			.name = names[i],
			.test_func = tests[i / RING_KINDS].test,
			.setup_func = setup_with_seed,
			.teardown_func = teardown,
			.initial_state = kind,
		};
	}
	if (all && names)
		failed = _cmocka_run_group_tests("kinds", all, count * RING_KINDS, NULL, NULL);
	free(names);
	free(all);
	return failed;
}

void kind_features(const struct ring_kind *kind, struct virtio_features *features)
{
	if (kind->packed)
		virtio_add(features, VIRTIO_F_RING_PACKED);
	if (kind->indirect)
		virtio_add(features, VIRTIO_RING_F_INDIRECT_DESC);
	if (kind->event_idx)
		virtio_add(features, VIRTIO_RING_F_EVENT_IDX);
	if (kind->in_order)
		virtio_add(features, VIRTIO_F_IN_ORDER);
}

int kind_add(const struct ring_kind *kind, struct ring *ring, const struct ring_piece *pieces,
	     unsigned readable, unsigned writable, void *token)
{
	return (kind->indirect ? ring_add_indirect : ring_add)(ring, pieces, readable, writable,
							       token);
}

unsigned kind_places(const struct ring_kind *kind, unsigned pieces)
{
	return kind->packed && !kind->indirect ? pieces : 1;
}

unsigned kind_random(unsigned bound)
{
	return (unsigned)rand_r(&seed) % bound;
}

unsigned kind_count(unsigned count)
{
	return getenv("WHELP_LONG") ? LONGER * count : count;
}
