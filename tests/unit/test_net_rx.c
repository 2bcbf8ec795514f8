/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames read into buffers, on one thread: how many pieces a read is given, and what becomes of a
 * frame that is larger than those of late. A back end of the test's own hands out frames of the
 * length it is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/net_rx.h"
#include "tests/unit/libvq.h"
#include "vmm/iov.h"
#include "vmm/le.h"
#include "vmm/util.h"

#define RING   256u
#define BUFFER 1000u
#define SMALL  200u
#define LARGE  60000u
#define HEADER sizeof(struct virtio_net_hdr_v1)
/* More frames than it takes to get used to something. */
#define MANY 100u

struct rig {
	struct vq_pair *pair;
	struct net_backend backend;
	struct net_rx rx;
	uint64_t memory; /* a buffer for each of the ring's descriptors */
	unsigned chain;	 /* buffers in one */
	size_t next;	 /* length of the next frame; 0: none waits */
	uint8_t seed;
	unsigned pieces; /* that the last read was given */
	uint8_t frame[NET_MAX_FRAME];
};

static ssize_t hand_out(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			unsigned count)
{
	struct rig *rig = container_of(backend, struct rig, backend);

	(void)queue;
	rig->pieces = count;
	if (!rig->next)
		return -EAGAIN;
	rig->seed++;
	memset(rig->frame, 0, HEADER);
	for (size_t i = HEADER; i < rig->next; i++)
		rig->frame[i] = (uint8_t)(i * 7 + (i >> 8) + rig->seed);
	return (ssize_t)iov_write(iov, count, 0, rig->frame, rig->next);
}

static const struct net_backend_ops ops = { .recv = hand_out };

/*
 * Posts the chain of the ring's `nth` buffer and those behind it, which lie one behind the other.
 */
static void post(struct rig *rig, uintptr_t nth)
{
	struct ring_piece list[RING_TABLE_SIZE];

	for (unsigned i = 0; i < rig->chain; i++)
		list[i] = (struct ring_piece){ rig->memory + (nth + i) * BUFFER, BUFFER };
	assert_int_equal(ring_add(&rig->pair->ring, list, 0, rig->chain, (void *)nth), 0);
	ring_publish(&rig->pair->ring);
}

static struct rig *start(void **state, bool mergeable, unsigned chain)
{
	struct vq_pair *pair = *state;
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	pair_start(pair, RING, false, false);
	rig->pair = pair;
	rig->backend.ops = &ops;
	rig->memory = board_alloc(&pair->board, RING * BUFFER, 8);
	net_rx_init(&rig->rx, &pair->vq, &rig->backend, 0, mergeable);
	rig->chain = chain;
	for (unsigned i = 0; i + chain <= RING; i += chain)
		post(rig, i);
	return rig;
}

/* The frame that was handed out last is what the driver finds in `count` chains. */
static void expect_used(struct rig *rig, unsigned count)
{
	uint8_t got[NET_MAX_FRAME];
	le16 buffers;
	size_t len = 0;

	for (unsigned i = 0; i < count; i++) {
		uint32_t written;
		void *nth;

		assert_true(ring_take(&rig->pair->ring, &nth, &written));
		assert_true(len + written <= sizeof(got));
		memcpy(got + len,
		       board_ptr(&rig->pair->board, rig->memory + (uintptr_t)nth * BUFFER, written),
		       written);
		len += written;
		post(rig, (uintptr_t)nth);
	}
	assert_null(rig->pair->ring.error);
	assert_int_equal(len, rig->next);
	memcpy(&buffers, got + offsetof(struct virtio_net_hdr_v1, num_buffers), sizeof(buffers));
	assert_int_equal(le16_load_relaxed(&buffers), count);
	assert_memory_equal(got + HEADER, rig->frame + HEADER, len - HEADER);
}

/* One frame from the back end to the driver. */
static void receive(struct rig *rig, size_t len, unsigned chains)
{
	ssize_t got = 0;

	rig->next = len;
	assert_int_equal(net_rx_receive(&rig->rx, &got), NET_RX_FRAME);
	assert_int_equal(got, len);
	net_rx_use(&rig->rx, len);
	vq_publish(&rig->pair->vq);
	expect_used(rig, chains);
}

static void test_small_frames_are_read_into_few_pieces(void **state)
{
	struct rig *rig = start(state, true, 1);

	receive(rig, SMALL, 1);
	/* At first any frame may come. */
	assert_true(rig->pieces >= NET_MAX_FRAME / BUFFER);
	for (unsigned i = 0; i < MANY; i++)
		receive(rig, SMALL, 1);
	/* The one that it takes, and the spill. */
	assert_int_equal(rig->pieces, 2);
	free(rig);
}

static void test_a_large_frame_after_small_ones_is_whole(void **state)
{
	struct rig *rig = start(state, true, 1);

	for (unsigned i = 0; i < MANY; i++)
		receive(rig, SMALL, 1);
	receive(rig, LARGE, LARGE / BUFFER);
	assert_int_equal(rig->pieces, 2);
	/*
	 * The next of its kind is read where it belongs, and so is one that comes a little later.
	 */
	receive(rig, LARGE, LARGE / BUFFER);
	assert_int_equal(rig->pieces, LARGE / BUFFER + 1);
	for (unsigned i = 0; i < 10; i++)
		receive(rig, SMALL, 1);
	receive(rig, LARGE - 1, LARGE / BUFFER);
	assert_int_equal(rig->pieces, LARGE / BUFFER + 1);
	free(rig);
}

/* Of a size around what is usual, which is one buffer, or around the end of the stock. */
static void receive_after_small_ones(struct rig *rig, size_t size)
{
	unsigned buffers = (unsigned)(size + BUFFER - 1) / BUFFER;

	for (unsigned i = 0; i < MANY; i++)
		receive(rig, SMALL, 1);
	receive(rig, size, buffers);
	receive(rig, SMALL, 1);
	receive(rig, size, buffers);
}

static void test_sizes_at_the_edges(void **state)
{
	static const size_t sizes[] = {
		HEADER + 14, BUFFER - 1,     BUFFER, BUFFER + 1, 2 * BUFFER - 1,
		2 * BUFFER,  2 * BUFFER + 1, 65000,  65001,	 NET_MAX_FRAME,
	};

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		struct rig *rig = start(state, true, 1);

		/* Straight into the buffers, and by way of the spill. */
		rig->rx.copy = i % 2;
		receive_after_small_ones(rig, sizes[i / 2]);
		free(rig);
	}
}

static void test_without_mergeable_buffers(void **state)
{
	const unsigned chain = 62;
	struct rig *rig = start(state, false, chain);
	ssize_t len;

	for (unsigned i = 0; i < MANY; i++)
		receive(rig, SMALL, 1);
	assert_int_equal(rig->pieces, 2);
	receive(rig, LARGE, 1);
	receive(rig, chain * BUFFER, 1);
	/* One byte too many for its buffer: lost, and the buffer serves the next one. */
	for (unsigned i = 0; i < MANY; i++)
		receive(rig, SMALL, 1);
	rig->next = chain * BUFFER + 1;
	assert_int_equal(net_rx_receive(&rig->rx, &len), NET_RX_LOST);
	receive(rig, SMALL, 1);
	free(rig);
}

/*
 * It waits with its tail aside, also when the read had not been given all the buffers that there
 * were.
 */
static void test_a_large_frame_waits_for_buffers(void **state)
{
	struct rig *rig = start(state, true, 1);
	const unsigned few = LARGE / BUFFER / 2;
	uintptr_t taken[RING];
	ssize_t len = 0;

	rig->next = SMALL;
	for (unsigned i = 0; i < RING - few; i++) {
		uint32_t written;
		void *nth;

		assert_int_equal(net_rx_receive(&rig->rx, &len), NET_RX_FRAME);
		net_rx_use(&rig->rx, (size_t)len);
		vq_publish(&rig->pair->vq);
		assert_true(ring_take(&rig->pair->ring, &nth, &written));
		taken[i] = (uintptr_t)nth;
	}
	rig->next = LARGE;
	assert_int_equal(net_rx_receive(&rig->rx, &len), NET_RX_STARVED);
	assert_int_equal(rig->pieces, 2);
	assert_int_equal(net_rx_receive(&rig->rx, &len), NET_RX_STARVED);
	for (unsigned i = 0; i < few; i++)
		post(rig, taken[i]);
	assert_int_equal(net_rx_receive(&rig->rx, &len), NET_RX_FRAME);
	assert_int_equal(len, LARGE);
	net_rx_use(&rig->rx, LARGE);
	vq_publish(&rig->pair->vq);
	expect_used(rig, LARGE / BUFFER);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_frames_are_read_into_few_pieces),
		cmocka_unit_test(test_a_large_frame_after_small_ones_is_whole),
		cmocka_unit_test(test_sizes_at_the_edges),
		cmocka_unit_test(test_without_mergeable_buffers),
		cmocka_unit_test(test_a_large_frame_waits_for_buffers),
	};

	return cmocka_run_group_tests(tests, pair_setup, pair_teardown);
}
