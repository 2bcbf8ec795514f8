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

int pair_setup_kind(void **state)
{
	const struct ring_kind *kind = *state;

	if (pair_setup(state))
		return -1;
	((struct vq_pair *)*state)->kind = kind;
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

static void start(struct vq_pair *pair, uint16_t size, const struct ring_kind *kind)
{
	memset(&pair->features, 0, sizeof(pair->features));
	virtio_add(&pair->features, VIRTIO_F_VERSION_1);
	kind_features(kind, &pair->features);
	ring_fini(&pair->ring);
	board_free_all(&pair->board);
	ring_init(&pair->ring, &pair->board, &pair->features, size);
	pair_configure(pair);
	assert_int_equal(pair_activate(pair), 0);
	assert_null(pair->vq.fault);
}

void pair_start(struct vq_pair *pair, uint16_t size, bool event_idx, bool indirect)
{
	const struct ring_kind kind = { .event_idx = event_idx, .indirect = indirect };

	start(pair, size, &kind);
}

void pair_start_kind(struct vq_pair *pair, uint16_t size)
{
	start(pair, size, pair->kind);
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
