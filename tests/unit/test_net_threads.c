/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Traffic through a NIC whose driver keeps to the rules: sizes, batches, interrupts. What does not
 * depend on the kind of ring; the rest is in test_conformance_net_threads.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "tests/unit/librig.h"
#include "vmm/util.h"

static const uint32_t frame_sizes[] = {
	14, 15, 60, 64, 65, 1514, 1515, 4084, 4096, 9014, 65534, 65535
};

static const struct nic_setup plain = { 0 };
static const struct nic_setup no_event_idx = { .no_event_idx = true };

static void add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		unsigned writable, bool indirect, void *token)
{
	assert_int_equal(
		(indirect ? ring_add_indirect : ring_add)(ring, pieces, readable, writable, token),
		0);
}

/* Sends one packet and checks what comes out. */
static void send_packet(struct nic *nic, uint32_t len)
{
	static uint8_t packet[NIC_MAX_PACKET];
	struct ring_piece piece = { board_alloc(&nic->board, len, 1), len };

	nic_fill(board_ptr(&nic->board, piece.gpa, len), len, len);
	add(&nic->tx, &piece, 1, 0, false, nic);
	nic_publish_tx(nic);
	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), len);
	assert_true(nic_is(packet, len, len));
	assert_ptr_equal(nic_wait_tx(nic), nic);
}

/* Receives one packet into a buffer laid out like this. */
static void receive_as(struct nic *nic, const uint32_t *lengths, unsigned count, size_t room,
		       size_t len, bool indirect)
{
	static uint8_t packet[NIC_MAX_PACKET];
	uint64_t gpa = board_alloc(&nic->board, room + 1, 1);
	struct ring_piece pieces[RIG_MAX_PIECES];
	unsigned n = rig_cut(pieces, gpa, room, lengths, count);
	uint8_t *buffer = board_ptr(&nic->board, gpa, room + 1);
	uint32_t written;

	memset(buffer, 0x5a, room + 1);
	add(&nic->rx, pieces, 0, n, indirect, nic);
	nic_publish_rx(nic);
	nic_fill(packet, len, (uint32_t)len);
	nic_peer_send(nic, packet, len);
	assert_ptr_equal(nic_wait_rx(nic, &written), nic);
	assert_int_equal(written, len);
	assert_true(nic_is(buffer, len, (uint32_t)len));
	/* Behind the packet nothing was touched. */
	for (size_t i = len; i <= room; i++)
		assert_int_equal(buffer[i], 0x5a);
}

static void test_tx_every_size(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };

	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		nic_up(*state, setups[s]);
		for (unsigned i = 0; i < ARRAY_SIZE(frame_sizes); i++)
			send_packet(*state, frame_sizes[i] + NIC_HEADER);
	}
}

static void test_rx_every_size(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	/* As Linux posts it: the header, then pages. */
	uint32_t pages[18] = { 12 };

	for (unsigned i = 1; i < ARRAY_SIZE(pages); i++)
		pages[i] = 4096;
	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		nic_up(*state, setups[s]);
		for (unsigned i = 0; i < ARRAY_SIZE(frame_sizes); i++)
			receive_as(*state, pages, ARRAY_SIZE(pages), 12 + 17 * 4096,
				   frame_sizes[i] + NIC_HEADER, i % 2);
	}
}

static void test_tx_in_order_and_batched(void **state)
{
	enum { FRAMES = 5000, SIZE = 100, BATCH = 16 };
	struct nic *nic = *state;
	unsigned sent = 0, received = 0;
	uint64_t gpa;

	nic_up(nic, &plain);
	gpa = board_alloc(&nic->board, (uint64_t)nic->tx.size * SIZE, 1);
	while (received < FRAMES) {
		for (unsigned i = 0; i < BATCH && sent < FRAMES; i++) {
			struct ring_piece piece = { gpa + (uint64_t)(sent % nic->tx.size) * SIZE,
						    SIZE };

			nic_fill(board_ptr(&nic->board, piece.gpa, SIZE), SIZE, sent++);
			add(&nic->tx, &piece, 1, 0, false, nic);
		}
		nic_publish_tx(nic);
		while (received < sent) {
			uint8_t packet[SIZE];

			assert_int_equal(nic_peer_recv(nic, packet, SIZE), SIZE);
			assert_true(nic_is(packet, SIZE, received++));
		}
		while (nic->tx.free < nic->tx.size)
			nic_wait_tx(nic);
	}
	/* At most one kick a batch. */
	assert_true(nic->kicks[NIC_TX] <= (FRAMES + BATCH - 1) / BATCH);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->tx.counters.packets) >= FRAMES, 1);
}

/*
 * Frames that wait while there is no buffer, then buffers for all of them: one batch, one
 * interrupt.
 */
static void test_rx_interrupts_once_a_batch(void **state)
{
	enum { FRAMES = 60, SIZE = 100 };
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	struct nic *nic = *state;
	const struct net_counters *counters = &nic_pair(nic, 0)->rx.counters;

	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		uint64_t waits = net_counter(&counters->waits);
		uint64_t interrupts, batches;
		uint8_t packet[SIZE];
		uint32_t written;

		nic_up(nic, setups[s]);
		nic_wait_counter(&counters->waits, waits + 1);
		interrupts = net_counter(&counters->interrupts);
		batches = net_counter(&counters->batches);
		for (unsigned i = 0; i < FRAMES; i++) {
			struct ring_piece piece = { board_alloc(&nic->board, SIZE, 1), SIZE };

			nic_fill(packet, SIZE, i);
			nic_peer_send(nic, packet, SIZE);
			add(&nic->rx, &piece, 0, 1, false, nic);
		}
		assert_false(ring_interrupts_enable(&nic->rx));
		nic_publish_rx(nic);
		assert_int_equal(nic->kicks[NIC_RX], 1);
		for (unsigned i = 0; i < FRAMES; i++)
			nic_wait_rx(nic, &written);
		/* When the worker waits for buffers again its batch is all over. */
		nic_wait_counter(&counters->waits, waits + 2);
		assert_int_equal(net_counter(&counters->batches), batches + 1);
		assert_int_equal(net_counter(&counters->interrupts), interrupts + 1);
	}
}

static void test_g13_suppressed_interrupts_do_not_come(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	struct nic *nic = *state;

	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		struct ring_piece piece;
		uint8_t packet[128];

		nic_up(nic, setups[s]);
		piece = (struct ring_piece){ board_alloc(&nic->board, 100, 1), 100 };
		nic_fill(board_ptr(&nic->board, piece.gpa, 100), 100, 5);
		for (unsigned i = 0; i < 50; i++) {
			add(&nic->tx, &piece, 1, 0, false, nic);
			nic_publish_tx(nic);
			nic_peer_recv(nic, packet, sizeof(packet));
		}
		/* The reset waits for the worker: what it would have raised, it has. */
		assert_true(driver_reset(&nic->driver));
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_TX_VECTOR, 0), 0);
	}
}

static void test_g21_intx(void **state)
{
	const struct nic_setup setup = { .intx = true };
	struct nic *nic = *state;
	unsigned line = pci_host_line(&nic->board.pci, NIC_SLOT);
	struct ring_piece piece;
	uint8_t packet[100];
	uint32_t written;
	void *token;

	nic_up(nic, &setup);
	for (unsigned i = 0; i < 20; i++) {
		unsigned rises = board_rises(&nic->board, line);
		time_t until = time(NULL) + BOARD_PATIENCE / 1000;

		assert_false(board_line(&nic->board, line));
		piece = (struct ring_piece){ board_alloc(&nic->board, 100, 1), 100 };
		assert_false(ring_interrupts_enable(&nic->rx));
		add(&nic->rx, &piece, 0, 1, false, nic);
		nic_publish_rx(nic);
		nic_fill(packet, sizeof(packet), i);
		nic_peer_send(nic, packet, sizeof(packet));
		while (!board_line(&nic->board, line))
			assert_true(time(NULL) <= until);
		assert_int_equal(board_rises(&nic->board, line), rises + 1);
		/* Reading takes the bit and lowers the line. */
		assert_int_equal(board_mmio_read(&nic->board, nic->driver.isr, 1), 1);
		assert_false(board_line(&nic->board, line));
		assert_int_equal(board_mmio_read(&nic->board, nic->driver.isr, 1), 0);
		assert_true(ring_take(&nic->rx, &token, &written));
		assert_int_equal(written, sizeof(packet));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tx_every_size),
		cmocka_unit_test(test_rx_every_size),
		cmocka_unit_test(test_tx_in_order_and_batched),
		cmocka_unit_test(test_rx_interrupts_once_a_batch),
		cmocka_unit_test(test_g13_suppressed_interrupts_do_not_come),
		cmocka_unit_test(test_g21_intx),
	};

	return cmocka_run_group_tests(tests, nic_make, nic_unmake);
}
