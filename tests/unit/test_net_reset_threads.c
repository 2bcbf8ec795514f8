/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC that is reset, in the middle of traffic too, and what it keeps and forgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "devices/net/loopback.h"
#include "tests/driver/nic.h"
#include "vmm/util.h"

#define SIZE	 128u
#define LAPS	 50u
#define RINGS	 64u
#define FREED	 0xd7
#define OFFLOADS 5u

static const struct nic_setup plain = { .size = RINGS };

/* The host's side of a flood: sends all the time, and throws away what comes. */
struct flood {
	struct nic *nic;
	atomic_bool stop;
	atomic_uint rounds;
};

static void *flood_main(void *arg)
{
	struct flood *flood = arg;
	uint8_t packet[SIZE], got[2 * SIZE];

	nic_fill(packet, SIZE, 1);
	while (!atomic_load(&flood->stop)) {
		bool sent = send(flood->nic->peer, packet, SIZE, MSG_NOSIGNAL) > 0;
		bool received = recv(flood->nic->peer, got, sizeof(got), 0) > 0;

		atomic_fetch_add(&flood->rounds, 1);
		/* Both ways stand still: let the others run. */
		if (!sent && !received)
			board_wait_fd(flood->nic->peer, POLLIN | POLLOUT, 1);
	}
	return NULL;
}

static void add_buffer(struct nic *nic, struct ring *ring, uint64_t gpa)
{
	struct ring_piece piece = { gpa, SIZE };
	bool rx = ring == &nic->rx;

	assert_int_equal(ring_add(ring, &piece, !rx, rx, (void *)(uintptr_t)gpa), 0);
}

/* Makes all buffers available, and again each time they are used, for `rounds` looks at the rings.
 */
static void run_driver(struct nic *nic, unsigned rounds)
{
	struct ring *rings[] = { &nic->rx, &nic->tx };

	for (unsigned i = 0; i < 2 * RINGS; i++) {
		uint64_t gpa = board_alloc(&nic->board, SIZE, 1);

		nic_fill(board_ptr(&nic->board, gpa, SIZE), SIZE, i);
		add_buffer(nic, rings[i % 2], gpa);
	}
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned r = 0; r < ARRAY_SIZE(rings); r++) {
			uint32_t written;
			void *gpa;

			while (ring_take(rings[r], &gpa, &written))
				add_buffer(nic, rings[r], (uint64_t)(uintptr_t)gpa);
			assert_null(rings[r]->error);
		}
		nic_publish_rx(nic);
		nic_publish_tx(nic);
	}
}

static void wait_rounds(struct flood *flood, unsigned count)
{
	unsigned until = atomic_load(&flood->rounds) + count;
	time_t give_up = time(NULL) + BOARD_PATIENCE / 1000;

	while ((int)(atomic_load(&flood->rounds) - until) < 0) {
		assert_true(time(NULL) <= give_up);
		poll(NULL, 0, 1);
	}
}

static void expect_freed(const uint8_t *memory, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (memory[i] != FREED)
			fail_msg("byte %zu was written after the reset", i);
}

static void drain_peer(struct nic *nic)
{
	uint8_t packet[2 * SIZE];

	while (recv(nic->peer, packet, sizeof(packet), 0) > 0)
		;
}

static void test_g2_nothing_is_touched_after_a_reset(void **state)
{
	struct nic *nic = *state;
	unsigned seed = 12345;

	for (unsigned lap = 0; lap < LAPS; lap++) {
		struct flood flood = { .nic = nic };
		pthread_t thread;
		uint8_t *memory;
		size_t len;

		nic_up(nic, &plain);
		assert_int_equal(pthread_create(&thread, NULL, flood_main, &flood), 0);
		run_driver(nic, (unsigned)rand_r(&seed) % 300);
		assert_true(driver_reset(&nic->driver));
		/* Rings, tables and buffers become something else. */
		len = nic->board.next - PAGE_SIZE;
		memory = board_ptr(&nic->board, PAGE_SIZE, len);
		memset(memory, FREED, len);
		driver_kick(&nic->driver, NIC_RX);
		driver_kick(&nic->driver, NIC_TX);
		wait_rounds(&flood, 20);
		expect_freed(memory, len);
		atomic_store(&flood.stop, true);
		pthread_join(thread, NULL);
		drain_peer(nic);
	}
}

static void test_g1_unbind_and_bind(void **state)
{
	struct nic *nic = *state;
	const struct nic_setup setups[] = {
		{ 0 },
		{ .size = 4, .no_event_idx = true },
		{ .no_indirect = true },
	};

	for (unsigned lap = 0; lap < LAPS; lap++) {
		nic_up(nic, &setups[lap % ARRAY_SIZE(setups)]);
		nic_ping(nic);
		nic_ping(nic);
	}
}

/* A message that was pending, masked, when the old driver went is not for the new one. */
static void test_g1_no_stray_interrupt_after_a_reset(void **state)
{
	struct nic *nic = *state;
	uint64_t waits = net_counter(&nic_pair(nic, 0)->rx.counters.waits);
	struct ring_piece piece;
	uint8_t packet[SIZE];

	nic_up(nic, &plain);
	nic_wait_counter(&nic_pair(nic, 0)->rx.counters.waits, waits + 1);
	driver_mask_vector(&nic->driver, NIC_RX_VECTOR, true);
	piece = (struct ring_piece){ board_alloc(&nic->board, SIZE, 1), SIZE };
	assert_false(ring_interrupts_enable(&nic->rx));
	assert_int_equal(ring_add(&nic->rx, &piece, 0, 1, nic), 0);
	nic_fill(packet, SIZE, 1);
	nic_peer_send(nic, packet, SIZE);
	nic_publish_rx(nic);
	nic_wait_counter(&nic_pair(nic, 0)->rx.counters.waits, waits + 2);
	assert_true(driver_vector_pending(&nic->driver, NIC_RX_VECTOR));
	nic_up(nic, &plain);
	assert_false(driver_vector_pending(&nic->driver, NIC_RX_VECTOR));
	assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, 0), 0);
	nic_ping(nic);
}

/* G17 with a real completion. */
static void test_g17_masked_completion_is_delivered_once(void **state)
{
	struct nic *nic = *state;

	for (unsigned lap = 0; lap < 20; lap++) {
		uint64_t waits = net_counter(&nic_pair(nic, 0)->rx.counters.waits);
		struct ring_piece piece;
		uint8_t packet[SIZE];
		uint32_t written;
		bool all = lap % 2;

		nic_up(nic, &plain);
		nic_wait_counter(&nic_pair(nic, 0)->rx.counters.waits, waits + 1);
		if (all)
			driver_mask_all(&nic->driver, true);
		else
			driver_mask_vector(&nic->driver, NIC_RX_VECTOR, true);
		piece = (struct ring_piece){ board_alloc(&nic->board, SIZE, 1), SIZE };
		assert_false(ring_interrupts_enable(&nic->rx));
		assert_int_equal(ring_add(&nic->rx, &piece, 0, 1, nic), 0);
		nic_fill(packet, SIZE, lap);
		nic_peer_send(nic, packet, SIZE);
		nic_publish_rx(nic);
		nic_wait_counter(&nic_pair(nic, 0)->rx.counters.waits, waits + 2);
		assert_true(driver_vector_pending(&nic->driver, NIC_RX_VECTOR));
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, 0), 0);
		if (all)
			driver_mask_all(&nic->driver, false);
		else
			driver_mask_vector(&nic->driver, NIC_RX_VECTOR, false);
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, BOARD_PATIENCE),
				 1);
		assert_false(driver_vector_pending(&nic->driver, NIC_RX_VECTOR));
		assert_ptr_equal(nic_wait_rx(nic, &written), nic);
	}
}

static void test_g7_offloads_follow_the_driver(void **state)
{
	static const struct {
		unsigned features[OFFLOADS];
		unsigned count;
		unsigned offloads;
	} cases[] = {
		{ { 0 }, 0, 0 },
		{ { VIRTIO_NET_F_GUEST_CSUM }, 1, NET_OFFLOAD_CSUM },
		{ { VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4 },
		  2,
		  NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 },
		{ { VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4 }, 2, 0 },
		{ { VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN },
		  3,
		  NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN },
		/* Without what it requires, a feature is nothing. */
		{ { VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6 }, 2, 0 },
		{ { VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN }, 2, NET_OFFLOAD_CSUM },
		{ { 0 }, 0, 0 },
	};
	struct nic *nic = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct virtio_features wanted = { 0 };

		assert_true(driver_reset(&nic->driver));
		for (unsigned f = 0; f < cases[i].count; f++)
			virtio_add(&wanted, cases[i].features[f]);
		assert_true(driver_negotiate(&nic->driver, &wanted));
		for (unsigned f = 0; f < cases[i].count; f++)
			assert_true(virtio_has(&nic->driver.features, cases[i].features[f]));
		driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
		assert_false(driver_status(&nic->driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
		assert_int_equal(loopback_offloads(nic->backend), cases[i].offloads);
	}
}

/* Two CPUs write the status at once: whatever comes of it, the device still works. */
struct status_writer {
	struct nic *nic;
	unsigned seed;
};

static void *status_main(void *arg)
{
	static const uint8_t values[] = { 0, 1, 3, 11, 15, 15, 15, 0x80, 0x40 };
	struct status_writer *writer = arg;

	for (unsigned i = 0; i < 300; i++)
		driver_write(&writer->nic->driver, COMMON_STATUS, 1,
			     values[(unsigned)rand_r(&writer->seed) % sizeof(values)]);
	return NULL;
}

static void test_m21_status_from_two_cpus(void **state)
{
	struct nic *nic = *state;
	struct status_writer writers[2] = { { nic, 1 }, { nic, 2 } };
	pthread_t threads[2];

	nic_prepare(nic, &plain);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, status_main, &writers[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	nic_up(nic, &plain);
	nic_ping(nic);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, nic_make, nic_unmake)
	const struct CMUnitTest tests[] = {
		FRESH(test_g2_nothing_is_touched_after_a_reset),
		FRESH(test_g1_unbind_and_bind),
		FRESH(test_g1_no_stray_interrupt_after_a_reset),
		FRESH(test_g17_masked_completion_is_delivered_once),
		FRESH(test_g7_offloads_follow_the_driver),
		FRESH(test_m21_status_from_two_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
