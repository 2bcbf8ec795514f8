/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/librig.h"

#include <stdlib.h>

#include "vmm/util.h"

int rig_setup(void **state)
{
	const struct nic_config config = { .ring = RIG_RING };
	struct rig *rig = malloc(sizeof(*rig));

	if (!rig)
		return -1;
	rig->kind = *state;
	rig->nic = nic_new(&config);
	*state = rig;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;
	void *nic = rig->nic;

	free(rig);
	return nic_unmake(&nic);
}

struct nic_setup rig_driver(const struct rig *rig, uint16_t size)
{
	return (struct nic_setup){
		.no_event_idx = !rig->kind->event_idx,
		.no_indirect = !rig->kind->indirect,
		.packed = rig->kind->packed,
		.in_order = rig->kind->in_order,
		.size = size,
	};
}

void rig_up(struct rig *rig, uint16_t size)
{
	const struct nic_setup setup = rig_driver(rig, size);

	nic_up(rig->nic, &setup);
}

uint16_t rig_size(const struct rig *rig, uint16_t size)
{
	return rig->kind->packed ? (uint16_t)(size - 1 + size % 2) : size;
}

unsigned rig_cut(struct ring_piece *pieces, uint64_t gpa, size_t len, const uint32_t *lengths,
		 unsigned count)
{
	unsigned n = 0;

	for (unsigned i = 0; len; i++) {
		uint32_t piece = (uint32_t)MIN(i < count ? lengths[i] : len, len);

		assert_true(n < RIG_MAX_PIECES);
		pieces[n++] = (struct ring_piece){ gpa, piece };
		gpa += piece;
		len -= piece;
	}
	return n;
}

void rig_add(struct rig *rig, unsigned queue, const struct ring_piece *pieces, unsigned readable,
	     unsigned writable, void *token)
{
	assert_int_equal(kind_add(rig->kind, &rig->nic->rings[queue], pieces, readable, writable,
				  token),
			 0);
}

uint64_t rig_add_buffer(struct rig *rig, uint32_t len)
{
	struct ring_piece piece = { board_alloc(&rig->nic->board, len, 1), len };

	rig_add(rig, NIC_RX, &piece, 0, 1, (void *)(uintptr_t)piece.gpa);
	return piece.gpa;
}
