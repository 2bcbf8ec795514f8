/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC whose driver breaks the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>

#include "tests/unit/libnet.h"
#include "vmm/util.h"

static const struct nic_setup plain = { 0 };

/* The device says that it needs a reset, by its interrupt. */
static void expect_failure(struct nic *nic, unsigned queue)
{
	assert_int_not_equal(driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE),
			     0);
	assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS | VIRTIO_CONFIG_S_NEEDS_RESET);
	/* Kicks of the dead queue do nothing. */
	for (unsigned i = 0; i < 3; i++)
		driver_kick(&nic->driver, queue);
}

/* The other queue runs, and a reset makes all well. */
static void expect_recovery(struct nic *nic, unsigned queue)
{
	if (queue == NIC_TX) {
		net_receive(nic, 77);
	} else {
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 78));
		nic_publish_tx(nic);
		net_expect_packet(nic, 78);
	}
	nic_up(nic, &plain);
	nic_ping(nic);
}

static void expect_needs_reset(struct nic *nic, unsigned queue)
{
	expect_failure(nic, queue);
	expect_recovery(nic, queue);
}

static void test_m13_short_frames_are_dropped(void **state)
{
	struct nic *nic = *state;
	uint64_t dropped = net_counter(&nic_pair(nic, 0)->tx.counters.dropped);

	nic_up(nic, &plain);
	for (uint32_t len = 1; len < NIC_HEADER + 14; len++)
		net_add_tx(nic, net_tx_piece(nic, len, len));
	nic_publish_tx(nic);
	for (uint32_t len = 1; len < NIC_HEADER + 14; len++)
		nic_wait_tx(nic);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 3));
	nic_publish_tx(nic);
	net_expect_packet(nic, 3);
	nic_wait_tx(nic);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->tx.counters.dropped),
			 dropped + NIC_HEADER + 13);
}

static void test_m10_writable_pieces_on_tx_are_not_written(void **state)
{
	struct nic *nic = *state;
	struct ring_piece pieces[2];
	uint8_t *writable;

	nic_up(nic, &plain);
	pieces[0] = net_tx_piece(nic, NET_SIZE, 4);
	pieces[1] = (struct ring_piece){ board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE };
	writable = board_ptr(&nic->board, pieces[1].gpa, NET_SIZE);
	memset(writable, 0xa5, NET_SIZE);
	assert_int_equal(ring_add(&nic->tx, pieces, 1, 1, nic), 0);
	nic_publish_tx(nic);
	net_expect_packet(nic, 4);
	nic_wait_tx(nic);
	/* Nothing but writable pieces: there is nothing to send. */
	assert_int_equal(ring_add(&nic->tx, &pieces[1], 0, 1, nic), 0);
	nic_publish_tx(nic);
	nic_wait_tx(nic);
	for (unsigned i = 0; i < NET_SIZE; i++)
		assert_int_equal(writable[i], 0xa5);
}

static void test_m10_readable_pieces_on_rx_are_not_written(void **state)
{
	struct nic *nic = *state;

	for (unsigned writable = 0; writable < 2; writable++) {
		struct ring_piece pieces[2];
		uint8_t *memory;

		nic_up(nic, &plain);
		pieces[0] = (struct ring_piece){ board_alloc(&nic->board, 2 * NET_SIZE, 1),
						 NET_SIZE };
		pieces[1] = (struct ring_piece){ pieces[0].gpa + NET_SIZE, NET_SIZE };
		memory = board_ptr(&nic->board, pieces[0].gpa, 2 * NET_SIZE);
		memset(memory, 0xa5, 2 * NET_SIZE);
		assert_int_equal(ring_add(&nic->rx, pieces, 1, writable, nic), 0);
		nic_publish_rx(nic);
		net_send_to(nic, NET_SIZE, 1);
		expect_failure(nic, NIC_RX);
		for (unsigned i = 0; i < 2 * NET_SIZE; i++)
			assert_int_equal(memory[i], 0xa5);
		expect_recovery(nic, NIC_RX);
	}
}

/* Buffers without room for a frame are of no use, and do no harm. */
static void test_m2_tiny_buffers_are_not_overrun(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;
	uint64_t dropped = net_counter(&rx->dropped);
	uint32_t written;
	uint8_t *memory;
	uint64_t gpa;
	void *token;

	nic_up(nic, &plain);
	gpa = board_alloc(&nic->board, 256 * NET_SIZE, 1);
	memory = board_ptr(&nic->board, gpa, 256 * NET_SIZE);
	memset(memory, 0xa5, 256 * NET_SIZE);
	for (unsigned i = 0; nic->rx.free; i++)
		net_add_rx(nic, gpa + i * NET_SIZE, 1 + i % (NIC_HEADER - 1));
	nic_publish_rx(nic);
	for (unsigned i = 0; i < 500; i++)
		net_send_to(nic, NET_SIZE, i);
	nic_wait_counter(&rx->dropped, dropped + 500);
	nic_expect_idle(nic);
	assert_false(ring_take(&nic->rx, &token, &written));
	assert_null(nic->rx.error);
	for (unsigned i = 0; i < 256; i++)
		for (unsigned n = 1 + i % (NIC_HEADER - 1); n < NET_SIZE; n++)
			assert_int_equal(memory[i * NET_SIZE + n], 0xa5);
	nic_up(nic, &plain);
	nic_ping(nic);
}

static void test_m2_bad_chains_come_back_unused(void **state)
{
	struct nic *nic = *state;
	struct ring_piece piece;

	nic_up(nic, &plain);
	piece = net_tx_piece(nic, NET_SIZE, 0);
	for (unsigned i = 0; i < 10000; i += 100) {
		for (unsigned n = 0; n < 100; n++) {
			piece.len = 1 + n % (NIC_HEADER + 13);
			net_add_tx(nic, piece);
		}
		nic_publish_tx(nic);
		for (unsigned n = 0; n < 100; n++)
			nic_wait_tx(nic);
	}
	net_receive(nic, 6);
}

static void test_m5_m16_bad_addresses_kill_the_queue(void **state)
{
	struct nic *nic = *state;
	const struct ring_piece bad[] = {
		{ BOARD_LOW_SIZE, NET_SIZE }, /* the gap */
		{ BOARD_LOW_SIZE - 1, 2 },    /* into it */
		{ BOARD_HIGH_BASE - 1, 2 },   /* out of it */
		{ BOARD_HIGH_BASE + BOARD_HIGH_SIZE - NET_SIZE + 1, NET_SIZE },
		{ UINT64_MAX - 10, NET_SIZE },
		{ UINT64_MAX, 1 },
		{ 0x1000, UINT32_MAX },
		{ 0x1000, 0 },
		{ nic->driver.common, NET_SIZE },
		{ 0xfee00000, NET_SIZE },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		nic_up(nic, &plain);
		net_add_rx(nic, bad[i].gpa, bad[i].len);
		nic_publish_rx(nic);
		expect_needs_reset(nic, NIC_RX);
		nic_up(nic, &plain);
		net_add_tx(nic, bad[i]);
		nic_publish_tx(nic);
		expect_needs_reset(nic, NIC_TX);
	}
}

static void test_m1_a_dead_queue_is_idle(void **state)
{
	struct nic *nic = *state;

	for (unsigned queue = NIC_RX; queue <= NIC_TX; queue++) {
		struct ring *ring = queue == NIC_RX ? &nic->rx : &nic->tx;
		uint8_t packet[NET_SIZE] = { 0 };

		nic_up(nic, &plain);
		/* The available index jumps by more than the ring. */
		ring->split.added = (uint16_t)(ring->size + 1 + queue * 0x8000);
		ring_publish(ring);
		driver_kick(&nic->driver, queue);
		assert_int_not_equal(
			driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE), 0);
		nic_peer_send(nic, packet, NET_SIZE);
		nic_expect_idle(nic);
		nic_up(nic, &plain);
		nic_ping(nic);
	}
}

static void test_m5_the_last_byte_of_memory_works(void **state)
{
	struct nic *nic = *state;
	struct ring_piece pieces[2] = {
		{ BOARD_HIGH_BASE + BOARD_HIGH_SIZE - NET_SIZE / 2, NET_SIZE / 2 },
		{ BOARD_LOW_SIZE - NET_SIZE / 2, NET_SIZE / 2 },
	};
	uint8_t packet[NET_SIZE];

	nic_up(nic, &plain);
	nic_fill(packet, NET_SIZE, 8);
	for (unsigned i = 0; i < 2; i++)
		memcpy(board_ptr(&nic->board, pieces[i].gpa, NET_SIZE / 2),
		       packet + i * NET_SIZE / 2, NET_SIZE / 2);
	assert_int_equal(ring_add(&nic->tx, pieces, 2, 0, nic), 0);
	nic_publish_tx(nic);
	net_expect_packet(nic, 8);
	nic_wait_tx(nic);
}

static void test_m21_sets_of_queues(void **state)
{
	const struct nic_setup none = { .no_rx = true, .no_tx = true };
	const struct nic_setup rx_only = { .no_tx = true };
	const struct nic_setup tx_only = { .no_rx = true };
	struct nic *nic = *state;
	uint8_t packet[NET_SIZE] = { 0 };

	nic_up(nic, &none);
	nic_peer_send(nic, packet, NET_SIZE);
	driver_kick(&nic->driver, NIC_RX);
	driver_kick(&nic->driver, NIC_TX);
	nic_up(nic, &rx_only);
	nic_peer_send(nic, packet, NET_SIZE);
	driver_kick(&nic->driver, NIC_TX);
	nic_up(nic, &rx_only);
	net_receive(nic, 10);
	nic_up(nic, &tx_only);
	nic_peer_send(nic, packet, NET_SIZE);
	driver_kick(&nic->driver, NIC_RX);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 11));
	nic_publish_tx(nic);
	net_expect_packet(nic, 11);
	nic_up(nic, &plain);
	nic_ping(nic);
}

static void test_g24_nothing_happens_before_driver_ok(void **state)
{
	struct nic *nic = *state;
	uint8_t packet[NET_SIZE];
	uint32_t written;
	uint64_t gpa;
	void *token;

	nic_prepare(nic, &plain);
	gpa = board_alloc(&nic->board, NET_SIZE, 1);
	net_add_rx(nic, gpa, NET_SIZE);
	nic_publish_rx(nic);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 12));
	nic_publish_tx(nic);
	nic_fill(packet, NET_SIZE, 13);
	nic_peer_send(nic, packet, NET_SIZE);
	/* No worker is there: an MMIO access later nothing can have happened. */
	driver_status(&nic->driver);
	assert_false(ring_take(&nic->tx, &token, &written));
	assert_false(ring_take(&nic->rx, &token, &written));
	assert_int_equal(recv(nic->peer, packet, NET_SIZE, MSG_DONTWAIT), -1);
	/* Then the buffers that wait are used, the frame from before is not. */
	driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	net_expect_packet(nic, 12);
	nic_wait_tx(nic);
	nic_fill(packet, NET_SIZE, 14);
	nic_peer_send(nic, packet, NET_SIZE);
	nic_wait_rx(nic, &written);
	assert_true(nic_is(board_ptr(&nic->board, gpa, NET_SIZE), NET_SIZE, 14));
}

int main(void)
{
#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, nic_unmake)
	const struct CMUnitTest tests[] = {
		ON(nic_make, test_m13_short_frames_are_dropped),
		ON(nic_make, test_m10_writable_pieces_on_tx_are_not_written),
		ON(nic_make, test_m10_readable_pieces_on_rx_are_not_written),
		ON(nic_make, test_m2_tiny_buffers_are_not_overrun),
		ON(nic_make, test_m2_bad_chains_come_back_unused),
		ON(nic_make, test_m1_a_dead_queue_is_idle),
		ON(nic_make, test_m5_m16_bad_addresses_kill_the_queue),
		ON(nic_make, test_m5_the_last_byte_of_memory_works),
		ON(nic_make, test_m21_sets_of_queues),
		ON(nic_make, test_g24_nothing_happens_before_driver_ok),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
