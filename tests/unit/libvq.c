/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libvq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

int pair_setup(void **state)
{
	struct vq_pair *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return -1;
	board_init(&pair->board);
	*state = pair;
	return 0;
}

int pair_teardown(void **state)
{
	struct vq_pair *pair = *state;

	ring_fini(&pair->ring);
	board_unplug(&pair->board);
	board_fini(&pair->board);
	free(pair);
	return 0;
}

void pair_configure(struct vq_pair *pair)
{
	vq_init(&pair->vq, VQ_MAX_SIZE);
	vq_set_size(&pair->vq, pair->ring.size);
	vq_set_desc(&pair->vq, pair->ring.desc_gpa);
	vq_set_driver(&pair->vq, pair->ring.driver_gpa);
	vq_set_device(&pair->vq, pair->ring.device_gpa);
	vq_enable(&pair->vq);
}

int pair_activate(struct vq_pair *pair)
{
	return vq_activate(&pair->vq, &pair->board.mem, &pair->features);
}

void pair_start(struct vq_pair *pair, uint16_t size, bool event_idx, bool indirect)
{
	memset(&pair->features, 0, sizeof(pair->features));
	virtio_add(&pair->features, VIRTIO_F_VERSION_1);
	if (event_idx)
		virtio_add(&pair->features, VIRTIO_RING_F_EVENT_IDX);
	if (indirect)
		virtio_add(&pair->features, VIRTIO_RING_F_INDIRECT_DESC);
	ring_fini(&pair->ring);
	board_free_all(&pair->board);
	ring_init(&pair->ring, &pair->board, &pair->features, size);
	pair_configure(pair);
	assert_int_equal(pair_activate(pair), 0);
	assert_null(pair->vq.fault);
}

int pair_pop(struct vq_pair *pair)
{
	pair->chain = (struct vq_chain){ .iov = pair->iov, .room = PAIR_PIECES };
	return vq_pop(&pair->vq, &pair->chain);
}

void pair_use_one(struct vq_pair *pair, uint32_t written)
{
	assert_int_equal(pair_pop(pair), 1);
	vq_push(&pair->vq, &pair->chain, written);
	vq_publish(&pair->vq);
}
