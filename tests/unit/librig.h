/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC whose rings are of one kind, for tests that are run on every kind. */
#ifndef WHELP_TESTS_LIBRIG_H
#define WHELP_TESTS_LIBRIG_H

#include "tests/driver/nic.h"
#include "tests/unit/libkind.h"

#define RIG_RING       4096u /* the largest that it offers */
#define RIG_MAX_PIECES 128u

struct rig {
	struct nic *nic;
	const struct ring_kind *kind;
};

/* For kinds_run(). */
int rig_setup(void **state);
int rig_teardown(void **state);

/*
 * What a driver with such rings takes, of `size` entries; to be completed, and given to nic_up().
 */
struct nic_setup rig_driver(const struct rig *rig, uint16_t size);

/* nic_up() with that. */
void rig_up(struct rig *rig, uint16_t size);

/* A size near this one that such rings may have, and not a power of two where that is possible. */
uint16_t rig_size(const struct rig *rig, uint16_t size);

/* Cuts guest memory into pieces of the given lengths; the last takes what is left. */
unsigned rig_cut(struct ring_piece *pieces, uint64_t gpa, size_t len, const uint32_t *lengths,
		 unsigned count);

/* Adds to one of the NIC's rings, as the kind is; asserts that there is place. */
void rig_add(struct rig *rig, unsigned queue, const struct ring_piece *pieces, unsigned readable,
	     unsigned writable, void *token);

/* Adds one receive buffer of one piece, with its own address as token. */
uint64_t rig_add_buffer(struct rig *rig, uint32_t len);

#endif
