/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Traffic through a NIC with every kind of ring: layouts, buffers that are merged, room, and no
 * stall.
 */
#include "tests/unit/librig.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "vmm/util.h"

/* ---- G11: packets out and back, with a watchdog ---- */

enum { ECHO_SIZE = 200 };

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

static void send_one(struct rig *rig, uint64_t out, uint64_t in, unsigned number, unsigned window)
{
	struct nic *nic = rig->nic;
	uint64_t at = (uint64_t)(number % window) * ECHO_SIZE;
	struct ring_piece tx[] = { { out + at, NIC_HEADER }, { out + at + NIC_HEADER, 188 } };
	struct ring_piece rx = { in + at, ECHO_SIZE };

	while (kind_add(rig->kind, &nic->rx, &rx, 0, 1, (void *)(uintptr_t)number))
		fail_msg("the receive ring has no place");
	nic_publish_rx(nic);
	nic_fill(board_ptr(&nic->board, out + at, ECHO_SIZE), ECHO_SIZE, number);
	while (kind_add(rig->kind, &nic->tx, tx, 2, 0, NULL))
		nic_wait_tx(nic);
	nic_publish_tx(nic);
}

static void run_echo(struct rig *rig, uint16_t size, unsigned count, unsigned window)
{
	struct nic *nic = rig->nic;
	struct echo echo = { .nic = nic, .count = count };
	unsigned sent = 0, received = 0;
	uint64_t out, in;
	pthread_t thread;

	rig_up(rig, size);
	out = board_alloc(&nic->board, (uint64_t)window * ECHO_SIZE, 1);
	in = board_alloc(&nic->board, (uint64_t)window * ECHO_SIZE, 1);
	assert_int_equal(pthread_create(&thread, NULL, echo_main, &echo), 0);
	while (received < count) {
		uint64_t at = in + (uint64_t)(received % window) * ECHO_SIZE;
		uint32_t written;

		while (sent < count && sent - received < window)
			send_one(rig, out, in, sent++, window);
		assert_int_equal(nic_wait_rx(nic, &written), received);
		assert_int_equal(written, ECHO_SIZE);
		assert_true(nic_is(board_ptr(&nic->board, at, ECHO_SIZE), ECHO_SIZE, received));
		received++;
	}
	pthread_join(thread, NULL);
	assert_true(echo.ok);
	assert_null(nic->rx.error);
	assert_null(nic->tx.error);
}

static void test_g11_no_stall_at_window_1(void **state)
{
	run_echo(*state, 256, kind_count(200), 1);
}

static void test_g11_no_stall_at_small_rings(void **state)
{
	struct rig *rig = *state;

	run_echo(rig, 2, kind_count(200), 2);
	run_echo(rig, rig_size(rig, 8), kind_count(400), 7);
}

static void test_g11_no_stall_at_large_rings(void **state)
{
	struct rig *rig = *state;

	run_echo(rig, 256, kind_count(800), 120);
	run_echo(rig, rig_size(rig, 4096), kind_count(800), 250);
}

/* ---- G15: layouts ---- */

/* Splits of a packet of 72 bytes. */
static const struct {
	uint32_t lengths[60];
	unsigned count;
} layouts[] = {
	{ { 0 }, 0 },	    { { 12 }, 1 },	   { { 13 }, 1 },	    { { 11 }, 1 },
	{ { 4, 4, 4 }, 3 }, { { 5, 6, 2, 1 }, 4 }, { { 1, 10, 1, 14 }, 4 }, { { 71 }, 1 },
	{ { [0 ... 58] = 1 }, 59 },
};

static void test_g15_layouts(void **state)
{
	enum { SIZE = 72, ROOM = 100 };
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	uint8_t packet[ROOM];

	rig_up(rig, 64);
	for (unsigned i = 0; i < kind_count(ARRAY_SIZE(layouts)); i++) {
		const uint32_t *lengths = layouts[i % ARRAY_SIZE(layouts)].lengths;
		unsigned count = layouts[i % ARRAY_SIZE(layouts)].count;
		uint64_t gpa = board_alloc(&nic->board, SIZE + ROOM, 1);
		struct ring_piece pieces[RIG_MAX_PIECES];
		uint8_t *memory = board_ptr(&nic->board, gpa, SIZE + ROOM);
		uint32_t written;

		nic_fill(memory, SIZE, i);
		rig_add(rig, NIC_TX, pieces, rig_cut(pieces, gpa, SIZE, lengths, count), 0, NULL);
		nic_publish_tx(nic);
		assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), SIZE);
		assert_true(nic_is(packet, SIZE, i));
		nic_wait_tx(nic);
		memset(memory, 0x5a, SIZE + ROOM);
		rig_add(rig, NIC_RX, pieces, 0, rig_cut(pieces, gpa, ROOM, lengths, count), NULL);
		nic_publish_rx(nic);
		nic_peer_send(nic, packet, SIZE);
		nic_wait_rx(nic, &written);
		assert_int_equal(written, SIZE);
		assert_true(nic_is(memory, SIZE, i));
		for (unsigned n = SIZE; n < SIZE + ROOM; n++)
			assert_int_equal(memory[n], 0x5a);
	}
}

/* ---- G9: merged buffers ---- */

#define MAX_MERGED 1024u

struct merged {
	void *tokens[MAX_MERGED];
	uint32_t written[MAX_MERGED];
	unsigned count;
};

/*
 * Takes all that is there as soon as something is: the driver looks all the time before it goes to
 * sleep, and does nothing in between.
 */
static void take_eagerly(struct nic *nic, struct merged *m)
{
	unsigned tries = 20000;

	m->count = 0;
	while (tries-- && !ring_take(&nic->rx, &m->tokens[0], &m->written[0]))
		;
	if (tries == UINT_MAX)
		m->tokens[0] = nic_wait_rx(nic, &m->written[0]);
	do
		assert_true(++m->count < MAX_MERGED);
	while (ring_take(&nic->rx, &m->tokens[m->count], &m->written[m->count]));
}

/*
 * Takes the buffers of the one frame under way, of `len` bytes, and puts them together. Once the
 * first is there all are: a frame shows in one step.
 */
static void take_merged(struct nic *nic, size_t len, uint8_t *packet, const uint32_t *rooms,
			unsigned *at, unsigned room_count)
{
	static struct merged m;
	size_t got = 0;

	take_eagerly(nic, &m);
	for (unsigned i = 0; i < m.count; i++) {
		uint32_t room = rooms[(*at)++ % room_count], written = m.written[i];

		assert_int_equal(written, MIN(len - got, room));
		memcpy(packet + got, board_ptr(&nic->board, (uintptr_t)m.tokens[i], written),
		       written);
		got += written;
	}
	assert_int_equal(got, len);
	assert_int_equal(packet[10] | packet[11] << 8, m.count);
}

static void run_merges(struct rig *rig, uint16_t size, const uint32_t *rooms, unsigned room_count,
		       unsigned frames)
{
	static uint8_t packet[NIC_MAX_PACKET], got[NIC_MAX_PACKET];
	struct nic_setup setup = rig_driver(rig, size);
	struct nic *nic = rig->nic;
	unsigned posted = 0, at = 0;
	uint64_t memory;

	setup.mergeable = true;
	nic_up(nic, &setup);
	memory = board_alloc(&nic->board, (uint64_t)size * 4096, 4096);
	for (unsigned i = 0; i < frames; i++) {
		size_t len = NIC_HEADER + 14 + kind_random(kind_random(2) ? 3000 : 65522);

		while (nic->rx.free) {
			struct ring_piece piece = { memory + (uint64_t)(posted % size) * 4096,
						    rooms[posted % room_count] };

			rig_add(rig, NIC_RX, &piece, 0, 1, (void *)(uintptr_t)piece.gpa);
			posted++;
		}
		nic_publish_rx(nic);
		nic_fill(packet, len, i);
		nic_peer_send(nic, packet, len);
		take_merged(nic, len, got, rooms, &at, room_count);
		assert_true(nic_is(got, len, i));
		assert_memory_equal(packet, got, 10);
	}
}

static void test_g9_merges(void **state)
{
	static const uint32_t linux_rooms[] = { 1536 };
	static const uint32_t pages[] = { 4096 };
	static const uint32_t mixed[] = { 1514, 4096, 2048, 100, 1, 3000, 12, 1500 };

	run_merges(*state, 256, linux_rooms, 1, kind_count(30));
	run_merges(*state, rig_size(*state, 32), pages, 1, kind_count(30));
	run_merges(*state, 64, mixed, ARRAY_SIZE(mixed), kind_count(30));
}

/*
 * Without mergeable buffers it is always 1, whatever the wire says. On the way out nothing is
 * changed.
 */
static void test_g9_num_buffers_without_merging(void **state)
{
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	struct ring_piece piece;
	uint8_t packet[100], sent[100];
	const uint8_t *got;
	uint32_t written;

	rig_up(rig, 8);
	got = board_ptr(&nic->board, rig_add_buffer(rig, 200), 200);
	nic_publish_rx(nic);
	nic_fill(packet, sizeof(packet), 9);
	/* No offloads: flags and kind are zero. */
	memset(packet + 2, 0xab, NIC_HEADER - 2);
	nic_peer_send(nic, packet, sizeof(packet));
	nic_wait_rx(nic, &written);
	assert_int_equal(written, sizeof(packet));
	assert_memory_equal(got, packet, 10);
	assert_int_equal(got[10] | got[11] << 8, 1);
	piece = (struct ring_piece){ board_alloc(&nic->board, sizeof(packet), 1), sizeof(packet) };
	memset(packet, 0xab, NIC_HEADER);
	memcpy(board_ptr(&nic->board, piece.gpa, piece.len), packet, sizeof(packet));
	rig_add(rig, NIC_TX, &piece, 1, 0, NULL);
	nic_publish_tx(nic);
	assert_int_equal(nic_peer_recv(nic, sent, sizeof(sent)), sizeof(packet));
	assert_memory_equal(sent, packet, sizeof(packet));
	nic_wait_tx(nic);
}

/* ---- G10: room ---- */

static void receive_whole(struct nic *nic, size_t len, const uint32_t *rooms, unsigned count,
			  uint32_t seed)
{
	static uint8_t got[NIC_MAX_PACKET];
	unsigned at = 0;

	take_merged(nic, len, got, rooms, &at, count);
	assert_int_equal(at, count);
	assert_true(nic_is(got, len, seed));
}

/*
 * The buffers at hand are short by a byte, and the frame waits; or they are enough. All the while
 * a queue that waits does not spin.
 */
static void test_g10_room_of_merged_buffers(void **state)
{
	static const uint32_t rooms[] = { 1000, 500, 700 };
	enum { TOTAL = 2200 };
	static uint8_t packet[TOTAL + 1];
	struct rig *rig = *state;
	struct nic_setup setup = rig_driver(rig, 16);
	struct nic *nic = rig->nic;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;

	setup.mergeable = true;
	for (int more = -1; more <= 1; more++) {
		uint32_t seed = (uint32_t)(more + 7);
		uint64_t dropped = net_counter(&rx->dropped);
		uint64_t waits = net_counter(&rx->waits);

		nic_up(nic, &setup);
		nic_wait_counter(&rx->waits, waits + 1);
		for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++)
			rig_add_buffer(rig, rooms[i]);
		nic_publish_rx(nic);
		nic_fill(packet, TOTAL - more, seed);
		nic_peer_send(nic, packet, TOTAL - more);
		if (more >= 0) {
			receive_whole(nic, TOTAL - more, rooms, ARRAY_SIZE(rooms), seed);
			continue;
		}
		/* Once it has seen that they are too few. */
		nic_wait_counter(&rx->waits, waits + 2);
		nic_expect_idle(nic);
		rig_add_buffer(rig, 1);
		nic_publish_rx(nic);
		receive_whole(nic, TOTAL + 1, (const uint32_t[]){ 1000, 500, 700, 1 }, 4, seed);
		assert_int_equal(net_counter(&rx->dropped), dropped);
	}
}

static void test_g10_room_of_one_buffer(void **state)
{
	enum { TOTAL = 300 };
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;
	uint8_t packet[TOTAL + 1];

	for (int more = -1; more <= 1; more++) {
		uint64_t dropped = net_counter(&rx->dropped);
		uint32_t written;

		rig_up(rig, 8);
		rig_add_buffer(rig, TOTAL);
		nic_publish_rx(nic);
		nic_fill(packet, TOTAL - more, 3);
		nic_peer_send(nic, packet, TOTAL - more);
		if (more < 0) {
			nic_wait_counter(&rx->dropped, dropped + 1);
			nic_fill(packet, TOTAL, 3);
			nic_peer_send(nic, packet, TOTAL);
		}
		nic_wait_rx(nic, &written);
		assert_int_equal(written, TOTAL - MAX(more, 0));
	}
}

/* A frame that the whole ring would not hold is dropped, and the next one is not. */
static void run_too_large(struct rig *rig, uint16_t size, unsigned pieces_each)
{
	enum { ROOM = 600 };
	static uint8_t packet[NIC_MAX_PACKET];
	struct nic_setup setup = rig_driver(rig, size);
	struct nic *nic = rig->nic;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;
	uint64_t dropped = net_counter(&rx->dropped);
	struct ring_piece pieces[4];
	unsigned posted = 0;
	uint32_t written;

	setup.mergeable = true;
	nic_up(nic, &setup);
	do {
		uint64_t gpa = board_alloc(&nic->board, ROOM, 1);

		for (unsigned i = 0; i < pieces_each; i++)
			pieces[i] = (struct ring_piece){ gpa + i * (ROOM / pieces_each),
							 ROOM / pieces_each };
		posted++;
	} while (!kind_add(rig->kind, &nic->rx, pieces, 0, pieces_each, nic));
	posted--;
	nic_publish_rx(nic);
	nic_fill(packet, posted * ROOM + 1, 1);
	nic_peer_send(nic, packet, posted * ROOM + 1);
	nic_wait_counter(&rx->dropped, dropped + 1);
	nic_fill(packet, posted * ROOM, 2);
	nic_peer_send(nic, packet, posted * ROOM);
	for (unsigned i = 0; i < posted; i++) {
		nic_wait_rx(nic, &written);
		assert_int_equal(written, ROOM);
	}
}

static void test_g10_a_frame_larger_than_the_ring(void **state)
{
	struct rig *rig = *state;

	run_too_large(rig, 2, 1);
	run_too_large(rig, rig_size(rig, 4), 1);
	run_too_large(rig, 8, 2);
	/* Places are left, but not for a buffer like the others. */
	run_too_large(rig, 8, 3);
}

/* Frames come one by one through whatever buffers there are, and none is lost or cut. */
static void test_frames_that_wait_for_buffers(void **state)
{
	static uint8_t packet[NIC_MAX_PACKET], got[NIC_MAX_PACKET];
	struct rig *rig = *state;
	struct nic_setup setup = rig_driver(rig, rig_size(rig, 64));
	struct nic *nic = rig->nic;
	uint64_t dropped = net_counter(&nic_pair(nic, 0)->rx.counters.dropped);

	setup.mergeable = true;
	nic_up(nic, &setup);
	for (unsigned i = 0; i < kind_count(12); i++) {
		static const uint32_t room = 2048;
		size_t len = NIC_HEADER + 3000 + kind_random(62000);
		size_t posted = 0;
		unsigned at = 0;

		nic_fill(packet, len, i);
		nic_peer_send(nic, packet, len);
		while (posted < len) {
			rig_add_buffer(rig, room);
			nic_publish_rx(nic);
			posted += room;
		}
		take_merged(nic, len, got, &room, &at, 1);
		assert_true(nic_is(got, len, i));
	}
	assert_int_equal(net_counter(&nic_pair(nic, 0)->rx.counters.dropped), dropped);
}

int main(void)
{
	const struct kind_test tests[] = {
		KIND_TEST(test_g11_no_stall_at_window_1),
		KIND_TEST(test_g11_no_stall_at_small_rings),
		KIND_TEST(test_g11_no_stall_at_large_rings),
		KIND_TEST(test_g15_layouts),
		KIND_TEST(test_g9_merges),
		KIND_TEST(test_g9_num_buffers_without_merging),
		KIND_TEST(test_g10_room_of_merged_buffers),
		KIND_TEST(test_g10_room_of_one_buffer),
		KIND_TEST(test_g10_a_frame_larger_than_the_ring),
		KIND_TEST(test_frames_that_wait_for_buffers),
	};

	return kinds_run(tests, ARRAY_SIZE(tests), rig_setup, rig_teardown);
}
