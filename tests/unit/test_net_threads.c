/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Traffic through a NIC whose driver keeps to the rules: bytes, layouts, notifications. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/driver/nic.h"
#include "vmm/util.h"

#define MAX_PIECES 128u

static const size_t frame_sizes[] = {
	14, 15, 60, 64, 65, 1514, 1515, 4084, 4096, 9014, 65534, 65535
};

static const struct nic_setup plain = { 0 };
static const struct nic_setup no_event_idx = { .no_event_idx = true };
static const struct nic_setup direct = { .no_indirect = true, .no_event_idx = true };

/* A stretch of guest memory as pieces of the given lengths; the last takes what is left. */
static unsigned cut(struct ring_piece *pieces, uint64_t gpa, size_t len, const uint32_t *lengths,
		    unsigned count)
{
	unsigned n = 0;

	for (unsigned i = 0; len; i++) {
		uint32_t piece = i < count ? lengths[i] : (uint32_t)len;

		piece = (uint32_t)MIN(piece, len);
		assert_true(n < MAX_PIECES);
		pieces[n++] = (struct ring_piece){ gpa, piece };
		gpa += piece;
		len -= piece;
	}
	return n;
}

static void add(struct ring *ring, const struct ring_piece *pieces, unsigned readable,
		unsigned writable, bool indirect, void *token)
{
	assert_int_equal(
		(indirect ? ring_add_indirect : ring_add)(ring, pieces, readable, writable, token),
		0);
}

/* Sends one packet laid out like this and checks what comes out. */
static void send_as(struct nic *nic, const uint32_t *lengths, unsigned count, size_t len,
		    bool indirect)
{
	static uint8_t packet[NIC_MAX_PACKET];
	uint64_t gpa = board_alloc(&nic->board, len, 1);
	struct ring_piece pieces[MAX_PIECES];
	unsigned n = cut(pieces, gpa, len, lengths, count);

	nic_fill(board_ptr(&nic->board, gpa, len), len, (uint32_t)len);
	add(&nic->tx, pieces, n, 0, indirect, nic);
	nic_publish_tx(nic);
	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), len);
	assert_true(nic_is(packet, len, (uint32_t)len));
	assert_ptr_equal(nic_wait_tx(nic), nic);
}

/* Receives one packet into a buffer laid out like this. */
static void receive_as(struct nic *nic, const uint32_t *lengths, unsigned count, size_t room,
		       size_t len, bool indirect)
{
	static uint8_t packet[NIC_MAX_PACKET];
	uint64_t gpa = board_alloc(&nic->board, room + 1, 1);
	struct ring_piece pieces[MAX_PIECES];
	unsigned n = cut(pieces, gpa, room, lengths, count);
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
			send_as(*state, NULL, 0, frame_sizes[i] + NIC_HEADER, false);
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

/* Splits of a packet of 72 bytes. */
static const struct {
	uint32_t lengths[80];
	unsigned count;
} layouts[] = {
	{ { 0 }, 0 },	    { { 12 }, 1 },	   { { 13 }, 1 },	    { { 11 }, 1 },
	{ { 4, 4, 4 }, 3 }, { { 5, 6, 2, 1 }, 4 }, { { 1, 10, 1, 14 }, 4 }, { { 71 }, 1 },
};

static void test_g15_tx_layouts(void **state)
{
	uint32_t ones[72];

	for (unsigned i = 0; i < ARRAY_SIZE(ones); i++)
		ones[i] = 1;
	nic_up(*state, &plain);
	for (unsigned i = 0; i < ARRAY_SIZE(layouts); i++) {
		send_as(*state, layouts[i].lengths, layouts[i].count, 72, false);
		send_as(*state, layouts[i].lengths, layouts[i].count, 72, true);
	}
	send_as(*state, ones, ARRAY_SIZE(ones), 72, false);
	send_as(*state, ones, 60, 60, true);
	nic_up(*state, &direct);
	send_as(*state, ones, ARRAY_SIZE(ones), 72, false);
}

static void test_g15_rx_layouts(void **state)
{
	uint32_t ones[80];

	for (unsigned i = 0; i < ARRAY_SIZE(ones); i++)
		ones[i] = 1;
	nic_up(*state, &plain);
	for (unsigned i = 0; i < ARRAY_SIZE(layouts); i++) {
		receive_as(*state, layouts[i].lengths, layouts[i].count, 2000, 72, false);
		receive_as(*state, layouts[i].lengths, layouts[i].count, 72, 72, true);
	}
	receive_as(*state, ones, ARRAY_SIZE(ones), 80, 72, false);
	receive_as(*state, ones, 64, 64, 60, true);
}

static void test_g9_header_without_mergeable_buffers(void **state)
{
	/* No offloads: flags and kind are zero. */
	static const uint8_t header[NIC_HEADER] = { 0, 0, 2, 0, 3, 0, 4, 0, 5, 0, 0xad, 0xde };
	struct nic *nic = *state;
	struct ring_piece piece;
	uint8_t packet[100];
	const uint8_t *got;
	uint32_t written;

	nic_up(nic, &plain);
	piece = (struct ring_piece){ board_alloc(&nic->board, 200, 1), 200 };
	add(&nic->rx, &piece, 0, 1, false, nic);
	nic_publish_rx(nic);
	nic_fill(packet, sizeof(packet), 9);
	memcpy(packet, header, sizeof(header));
	nic_peer_send(nic, packet, sizeof(packet));
	nic_wait_rx(nic, &written);
	got = board_ptr(&nic->board, piece.gpa, piece.len);
	/* All but num_buffers is the wire's; num_buffers is 1. */
	assert_memory_equal(got, header, 10);
	assert_int_equal(got[10], 1);
	assert_int_equal(got[11], 0);
	/* On the way out nothing is changed. */
	memcpy(board_ptr(&nic->board, piece.gpa, sizeof(packet)), packet, sizeof(packet));
	piece.len = sizeof(packet);
	add(&nic->tx, &piece, 1, 0, false, nic);
	nic_publish_tx(nic);
	memset(packet, 0, sizeof(packet));
	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), sizeof(packet));
	assert_memory_equal(packet, header, sizeof(header));
	nic_wait_tx(nic);
}

static void test_g10_room_is_counted_with_the_header(void **state)
{
	struct nic *nic = *state;
	const uint64_t *dropped = &nic_pair(nic, 0)->rx.counters.dropped;
	uint64_t before;
	uint8_t packet[112];

	nic_up(nic, &plain);
	receive_as(nic, NULL, 0, sizeof(packet), sizeof(packet), false);
	receive_as(nic, NULL, 0, sizeof(packet) + 1, sizeof(packet), false);
	before = net_counter(dropped);
	/* One byte short: the frame is lost, and the buffer stays for the next one, which fits. */
	nic_fill(packet, sizeof(packet), 0);
	nic_peer_send(nic, packet, sizeof(packet));
	receive_as(nic, NULL, 0, sizeof(packet) - 1, sizeof(packet) - 1, false);
	assert_int_equal(net_counter(dropped), before + 1);
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

struct echo {
	struct nic *nic;
	unsigned count;
	bool ok;
};

/* The wire's other end: sends back what it gets. */
static void *echo_main(void *arg)
{
	struct echo *echo = arg;
	uint8_t packet[2048];

	for (unsigned i = 0; i < echo->count; i++) {
		ssize_t n;

		if (!board_wait_fd(echo->nic->peer, POLLIN, BOARD_PATIENCE))
			return NULL;
		n = recv(echo->nic->peer, packet, sizeof(packet), 0);
		while (n > 0 && send(echo->nic->peer, packet, (size_t)n, MSG_NOSIGNAL) < 0)
			if (!board_wait_fd(echo->nic->peer, POLLOUT, BOARD_PATIENCE))
				return NULL;
	}
	echo->ok = true;
	return NULL;
}

/*
 * Keeps `window` packets under way, out and back; 1 is the case where every notification counts
 * (G11).
 */
static void run_echo(struct nic *nic, const struct nic_setup *setup, unsigned count,
		     unsigned window)
{
	enum { SIZE = 200 };
	struct echo echo = { .nic = nic, .count = count };
	unsigned sent = 0, received = 0;
	uint64_t out, in;
	pthread_t thread;

	nic_up(nic, setup);
	out = board_alloc(&nic->board, (uint64_t)window * SIZE, 1);
	in = board_alloc(&nic->board, (uint64_t)window * SIZE, 1);
	assert_int_equal(pthread_create(&thread, NULL, echo_main, &echo), 0);
	while (received < count) {
		uint32_t written;

		while (sent < count && sent - received < window) {
			unsigned at = sent % window;
			struct ring_piece tx = { out + (uint64_t)at * SIZE, SIZE };
			struct ring_piece rx = { in + (uint64_t)at * SIZE, SIZE };

			while (nic->tx.free + window <= nic->tx.size)
				nic_wait_tx(nic);
			add(&nic->rx, &rx, 0, 1, false, (void *)(uintptr_t)at);
			nic_publish_rx(nic);
			nic_fill(board_ptr(&nic->board, tx.gpa, SIZE), SIZE, sent++);
			add(&nic->tx, &tx, 1, 0, sent % 2 && !setup->no_indirect, nic);
			nic_publish_tx(nic);
		}
		assert_int_equal(nic_wait_rx(nic, &written), received % window);
		assert_int_equal(written, SIZE);
		assert_true(nic_is(
			board_ptr(&nic->board, in + (uint64_t)(received % window) * SIZE, SIZE),
			SIZE, received));
		received++;
	}
	pthread_join(thread, NULL);
	assert_true(echo.ok);
	assert_null(nic->rx.error);
	assert_null(nic->tx.error);
}

static void test_g11_no_stall_at_window_1(void **state)
{
	run_echo(*state, &plain, 1500, 1);
	run_echo(*state, &direct, 1500, 1);
}

static void test_g11_no_stall_at_a_full_ring(void **state)
{
	const struct nic_setup small = { .size = 4 };
	const struct nic_setup small_direct = { .size = 2,
						.no_event_idx = true,
						.no_indirect = true };

	run_echo(*state, &plain, 6000, 128);
	run_echo(*state, &small, 2000, 4);
	run_echo(*state, &small_direct, 2000, 2);
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
		cmocka_unit_test(test_g15_tx_layouts),
		cmocka_unit_test(test_g15_rx_layouts),
		cmocka_unit_test(test_g9_header_without_mergeable_buffers),
		cmocka_unit_test(test_g10_room_is_counted_with_the_header),
		cmocka_unit_test(test_tx_in_order_and_batched),
		cmocka_unit_test(test_g11_no_stall_at_window_1),
		cmocka_unit_test(test_g11_no_stall_at_a_full_ring),
		cmocka_unit_test(test_rx_interrupts_once_a_batch),
		cmocka_unit_test(test_g13_suppressed_interrupts_do_not_come),
		cmocka_unit_test(test_g21_intx),
	};

	return cmocka_run_group_tests(tests, nic_make, nic_unmake);
}
