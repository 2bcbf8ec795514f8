/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A NIC with every kind of ring is reset in every state that it can be in, as a whole and queue by
 * queue, and is told that its rings are broken.
 */
#include "tests/unit/librig.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/driver/packed_layout.h"
#include "tests/unit/libfront.h"
#include "vmm/util.h"

enum { SIZE = 100, NUMBER = NIC_HEADER + 14 };

/* A packet that carries its number. */
static void make_packet(uint8_t *packet, uint32_t number)
{
	memset(packet, 0, SIZE);
	memcpy(packet + NUMBER, &number, sizeof(number));
}

static uint32_t packet_number(const uint8_t *packet)
{
	uint32_t number;

	memcpy(&number, packet + NUMBER, sizeof(number));
	return number;
}

/* ---- the wire's other end: floods, and looks at what it gets ---- */

struct far_end {
	struct nic *nic;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint received;
	uint32_t sent;
	uint32_t last;
	bool disorder;
};

static void *far_end_main(void *arg)
{
	struct far_end *end = arg;
	uint8_t packet[SIZE];

	while (!atomic_load(&end->stop)) {
		make_packet(packet, end->sent + 1);
		if (send(end->nic->peer, packet, SIZE, MSG_DONTWAIT | MSG_NOSIGNAL) == SIZE)
			end->sent++;
		else
			board_wait_fd(end->nic->peer, POLLIN | POLLOUT, 10);
		while (recv(end->nic->peer, packet, SIZE, MSG_DONTWAIT) == SIZE) {
			end->disorder |= packet_number(packet) <= end->last;
			end->last = packet_number(packet);
			atomic_fetch_add(&end->received, 1);
		}
	}
	return NULL;
}

static void far_end_start(struct far_end *end, struct nic *nic)
{
	memset(end, 0, sizeof(*end));
	end->nic = nic;
	assert_int_equal(pthread_create(&end->thread, NULL, far_end_main, end), 0);
}

static void far_end_stop(struct far_end *end)
{
	uint8_t packet[SIZE];

	atomic_store(&end->stop, true);
	pthread_join(end->thread, NULL);
	assert_false(end->disorder);
	while (recv(end->nic->peer, packet, SIZE, MSG_DONTWAIT) > 0)
		;
}

/* ---- the driver's share of the flood ---- */

struct flood {
	struct rig *rig;
	uint64_t memory; /* a buffer for each place of both rings */
	uint32_t sent;
	uint32_t last;
	unsigned received;
};

static void flood_start(struct flood *flood, struct rig *rig)
{
	*flood = (struct flood){ .rig = rig };
	flood->memory = board_alloc(&rig->nic->board, 2 * RIG_RING * SIZE, 1);
}

/* Fills the receive ring with buffers, and takes what was received. */
static void flood_receive(struct flood *flood)
{
	struct nic *nic = flood->rig->nic;
	uint32_t written;
	void *token;

	while (nic->rx.free) {
		struct ring_piece piece = { board_alloc(&nic->board, SIZE, 1), SIZE };

		rig_add(flood->rig, NIC_RX, &piece, 0, 1, (void *)(uintptr_t)piece.gpa);
	}
	nic_publish_rx(nic);
	while (ring_take(&nic->rx, &token, &written)) {
		uint32_t number = packet_number(board_ptr(&nic->board, (uintptr_t)token, SIZE));

		assert_int_equal(written, SIZE);
		assert_true(number > flood->last);
		flood->last = number;
		flood->received++;
	}
	assert_null(nic->rx.error);
}

static void flood_send(struct flood *flood)
{
	struct nic *nic = flood->rig->nic;
	uint32_t written;
	void *token;

	for (unsigned i = kind_random(8); i && nic->tx.free; i--) {
		struct ring_piece piece = {
			flood->memory + (uint64_t)(flood->sent % RIG_RING) * SIZE, SIZE
		};

		make_packet(board_ptr(&nic->board, piece.gpa, SIZE), ++flood->sent);
		rig_add(flood->rig, NIC_TX, &piece, 1, 0, NULL);
	}
	nic_publish_tx(nic);
	while (ring_take(&nic->tx, &token, &written))
		assert_int_equal(written, 0);
	assert_null(nic->tx.error);
}

static void flood_for(struct flood *flood, unsigned steps)
{
	while (steps--) {
		flood_receive(flood);
		flood_send(flood);
	}
}

/* ---- resets of the device ---- */

static void net_fill_wire(struct nic *nic)
{
	uint8_t packet[SIZE];

	make_packet(packet, 1);
	while (send(nic->peer, packet, SIZE, MSG_DONTWAIT | MSG_NOSIGNAL) == SIZE)
		;
}

static void be_prepared(struct rig *rig, struct nic_setup *setup)
{
	struct ring_piece piece = { 0x1000, SIZE };

	nic_prepare(rig->nic, setup);
	rig_add(rig, NIC_TX, &piece, 1, 0, NULL);
	nic_publish_tx(rig->nic);
	rig_add_buffer(rig, SIZE);
	nic_publish_rx(rig->nic);
}

static void be_idle(struct rig *rig, struct nic_setup *setup)
{
	nic_up(rig->nic, setup);
	nic_ping(rig->nic);
}

static void be_starved(struct rig *rig, struct nic_setup *setup)
{
	const uint64_t *waits = &nic_pair(rig->nic, 0)->rx.counters.waits;
	uint64_t before = net_counter(waits);

	nic_up(rig->nic, setup);
	net_fill_wire(rig->nic);
	nic_wait_counter(waits, before + 1);
}

/* Half of a frame is in the buffers, the other half is kept. */
static void be_holding(struct rig *rig, struct nic_setup *setup)
{
	const uint64_t *waits = &nic_pair(rig->nic, 0)->rx.counters.waits;
	uint64_t before = net_counter(waits);
	uint8_t packet[SIZE];

	setup->mergeable = true;
	nic_up(rig->nic, setup);
	nic_wait_counter(waits, before + 1);
	rig_add_buffer(rig, SIZE / 2);
	nic_publish_rx(rig->nic);
	make_packet(packet, 1);
	nic_peer_send(rig->nic, packet, SIZE);
	nic_wait_counter(waits, before + 2);
}

static void be_blocked(struct rig *rig, struct nic_setup *setup)
{
	struct nic *nic = rig->nic;
	const uint64_t *waits = &nic_pair(nic, 0)->tx.counters.waits;
	uint64_t before = net_counter(waits);
	int fd = nic->backend->ops->fd(nic->backend, 0), small = 1;
	struct ring_piece piece;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	setup->size = 256;
	nic_up(nic, setup);
	piece = (struct ring_piece){ board_alloc(&nic->board, SIZE, 1), SIZE };
	while (nic->tx.free)
		rig_add(rig, NIC_TX, &piece, 1, 0, NULL);
	nic_publish_tx(nic);
	nic_wait_counter(waits, before + 1);
}

static void be_flooded(struct rig *rig, struct nic_setup *setup)
{
	struct far_end end;
	struct flood flood;

	nic_up(rig->nic, setup);
	flood_start(&flood, rig);
	far_end_start(&end, rig->nic);
	flood_for(&flood, kind_random(60));
	assert_true(driver_reset(&rig->nic->driver));
	far_end_stop(&end);
}

static void be_dead(struct rig *rig, struct nic_setup *setup)
{
	struct ring_piece gap = { BOARD_LOW_SIZE, SIZE };

	nic_up(rig->nic, setup);
	rig_add(rig, NIC_TX, &gap, 1, 0, NULL);
	nic_publish_tx(rig->nic);
	assert_int_not_equal(driver_wait_vector(&rig->nic->driver, NIC_CONFIG_VECTOR,
						BOARD_PATIENCE),
			     0);
}

/* Used buffers were published, and their interrupt is put off for long. */
static void be_coalescing(struct rig *rig, struct nic_setup *setup)
{
	const uint32_t rule[2] = { 1000, 1000000000 }; /* packets, usecs */
	uint8_t packet[SIZE];

	setup->control = true;
	virtio_add(&setup->also, VIRTIO_NET_F_NOTF_COAL);
	nic_up(rig->nic, setup);
	assert_int_equal(nic_command(rig->nic, VIRTIO_NET_CTRL_NOTF_COAL,
				     VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, rule, sizeof(rule)),
			 VIRTIO_NET_OK);
	rig_add_buffer(rig, SIZE);
	nic_publish_rx(rig->nic);
	make_packet(packet, 1);
	nic_peer_send(rig->nic, packet, SIZE);
}

static void (*const states[])(struct rig *rig, struct nic_setup *setup) = {
	be_prepared, be_idle,	 be_starved, be_holding,
	be_blocked,  be_flooded, be_dead,    be_coalescing,
};

/* Nothing of the old life touches the memory, which is something else now. */
static void expect_quiet(struct nic *nic)
{
	size_t len = nic->board.next < BOARD_LOW_SIZE ? nic->board.next - PAGE_SIZE :
							BOARD_LOW_SIZE - PAGE_SIZE;
	uint8_t *memory = board_ptr(&nic->board, PAGE_SIZE, len);

	memset(memory, 0xee, len);
	for (unsigned i = 0; i < 3; i++)
		driver_kick(&nic->driver, i);
	assert_false(nic_pair(nic, 0)->started);
	driver_status(&nic->driver);
	for (size_t i = 0; i < len; i++)
		if (memory[i] != 0xee)
			fail_msg("byte %zu was written after the reset", i);
}

static void drain_wire(struct nic *nic)
{
	uint8_t packet[SIZE];

	while (recv(nic->peer, packet, SIZE, MSG_DONTWAIT) > 0)
		;
}

static void test_g2_reset_in_every_state(void **state)
{
	struct rig *rig = *state;
	char text[8192];

	capture_begin();
	for (unsigned i = 0; i < kind_count(2 * ARRAY_SIZE(states)); i++) {
		struct nic_setup setup = rig_driver(rig, rig_size(rig, 64));

		states[i < ARRAY_SIZE(states) ? i : kind_random(ARRAY_SIZE(states))](rig, &setup);
		assert_true(driver_reset(&rig->nic->driver));
		expect_quiet(rig->nic);
		drain_wire(rig->nic);
		rig_up(rig, rig_size(rig, (uint16_t)(8 << kind_random(5))));
		nic_ping(rig->nic);
	}
	capture_end(text, sizeof(text));
}

/* ---- resets of a queue ---- */

static void renew_queue(struct nic *nic, unsigned queue, uint16_t size)
{
	assert_true(driver_reset_queue(&nic->driver, queue));
	ring_fini(&nic->rings[queue]);
	assert_true(driver_set_queue_vector(&nic->driver, queue, queue + 1));
	nic_setup_queue(nic, queue, size);
}

static void test_ring_reset_under_traffic(void **state)
{
	struct rig *rig = *state;
	struct nic_setup setup = rig_driver(rig, 64);
	struct nic *nic = rig->nic;
	struct far_end end;
	struct flood flood;
	unsigned before;
	time_t until;

	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	flood_start(&flood, rig);
	far_end_start(&end, nic);
	for (unsigned i = 0; i < kind_count(12); i++) {
		flood_for(&flood, kind_random(20));
		renew_queue(nic, i % 2, rig_size(rig, (uint16_t)(2 << kind_random(8))));
	}
	/* Both directions go on. */
	before = flood.received;
	until = time(NULL) + BOARD_PATIENCE / 1000;
	while (flood.received < before + 20 ||
	       atomic_load(&end.received) < 20) {
		assert_true(time(NULL) <= until);
		flood_for(&flood, 1);
		poll(NULL, 0, 1);
	}
	far_end_stop(&end);
	assert_int_equal(driver_status(&nic->driver) & VIRTIO_CONFIG_S_NEEDS_RESET, 0);
}

/* The reset lets go of everything: no byte of the old ring and its buffers is written any more. */
static void test_ring_reset_leaves_the_memory_alone(void **state)
{
	struct rig *rig = *state;
	struct nic_setup setup = rig_driver(rig, 64);
	struct nic *nic = rig->nic;
	uint8_t packet[SIZE], *memory;
	uint64_t len;

	setup.mergeable = true;
	setup.control = true;
	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	nic_ping(nic);
	for (unsigned i = 0; i < 20; i++)
		rig_add_buffer(rig, SIZE);
	nic_publish_rx(nic);
	make_packet(packet, 1);
	nic_peer_send(nic, packet, SIZE);
	nic_wait_rx(nic, &(uint32_t){ 0 });
	for (unsigned q = 0; q < 3; q++)
		assert_true(driver_reset_queue(&nic->driver, q));
	len = nic->board.next - PAGE_SIZE;
	memory = board_ptr(&nic->board, PAGE_SIZE, len);
	memset(memory, 0xee, len);
	nic_peer_send(nic, packet, SIZE);
	for (unsigned q = 0; q < 3; q++)
		driver_kick(&nic->driver, q);
	for (unsigned q = 0; q < 3; q++) {
		ring_fini(&nic->rings[q]);
		assert_true(driver_set_queue_vector(&nic->driver, q, q + 1));
		nic_setup_queue(nic, q, 0);
	}
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(memory[i], 0xee);
	/* The frame that came meanwhile is received first. */
	rig_add_buffer(rig, SIZE);
	nic_publish_rx(nic);
	nic_wait_rx(nic, &(uint32_t){ 0 });
	nic_ping(nic);
	assert_int_equal(nic_command(nic, 99, 1, NULL, 0), VIRTIO_NET_ERR);
}

/* ---- rings that are broken ---- */

/* M1 and its like: the available index jumps; or every slot of the ring is part of one chain. */
static void break_ring(struct rig *rig, unsigned queue)
{
	struct ring *ring = &rig->nic->rings[queue];

	if (rig->kind->packed) {
		struct packed_desc *desc = ring->packed.desc;

		for (unsigned i = ring->size; i-- > 0;) {
			le64_store_relaxed(&desc[i].addr, 0x1000);
			le32_store_relaxed(&desc[i].len, 1);
			le16_store_release(&desc[i].flags,
					   PACKED_AVAIL | VRING_DESC_F_NEXT | VRING_DESC_F_WRITE);
		}
	} else {
		ring->split.added = (uint16_t)(ring->size + 1 + kind_random(2) * 0x8000);
		ring_publish(ring);
	}
	driver_kick(&rig->nic->driver, queue);
}

static void test_m1_a_broken_ring_dies_alone(void **state)
{
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	char text[4096];

	capture_begin();
	for (unsigned queue = 0; queue < 3; queue++) {
		struct nic_setup setup = rig_driver(rig, rig_size(rig, 16));

		setup.control = true;
		virtio_add(&setup.also, VIRTIO_F_RING_RESET);
		nic_up(nic, &setup);
		break_ring(rig, queue);
		assert_int_not_equal(
			driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE), 0);
		assert_true(driver_status(&nic->driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
		for (unsigned i = 0; i < 3; i++)
			driver_kick(&nic->driver, queue);
		net_fill_wire(nic);
		nic_expect_idle(nic);
		/* A reset of that queue is safe, one of the device makes all well. */
		if (kind_random(2))
			renew_queue(nic, queue, 0);
		nic_up(nic, &setup);
		nic_ping(nic);
	}
	capture_end(text, sizeof(text));
}

static void test_m2_m5_bad_buffers_kill_the_queue(void **state)
{
	static const struct ring_piece bad[] = {
		{ BOARD_LOW_SIZE, SIZE },
		{ BOARD_LOW_SIZE - 1, 2 },
		{ BOARD_HIGH_BASE + BOARD_HIGH_SIZE - SIZE + 1, SIZE },
		{ UINT64_MAX - 10, SIZE },
		{ 0x1000, UINT32_MAX },
		{ 0x1000, 0 },
		{ 0xfee00000, SIZE },
	};
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	char text[8192];

	capture_begin();
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(bad); i++) {
		unsigned queue = i % 2;

		rig_up(rig, 16);
		rig_add(rig, queue, &bad[i / 2], !!queue, !queue, NULL);
		nic_publish(nic, queue);
		assert_int_not_equal(
			driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE), 0);
		assert_true(driver_status(&nic->driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
	}
	/* The last byte of memory is memory. */
	rig_up(rig, 16);
	rig_add(rig, NIC_TX,
		(const struct ring_piece[]){ { BOARD_HIGH_BASE + BOARD_HIGH_SIZE - SIZE, SIZE } },
		1, 0, NULL);
	nic_publish_tx(nic);
	nic_wait_tx(nic);
	drain_wire(nic);
	nic_ping(nic);
	capture_end(text, sizeof(text));
}

int main(void)
{
	const struct kind_test tests[] = {
		KIND_TEST(test_g2_reset_in_every_state),
		KIND_TEST(test_ring_reset_under_traffic),
		KIND_TEST(test_ring_reset_leaves_the_memory_alone),
		KIND_TEST(test_m1_a_broken_ring_dies_alone),
		KIND_TEST(test_m2_m5_bad_buffers_kill_the_queue),
	};

	return kinds_run(tests, ARRAY_SIZE(tests), rig_setup, rig_teardown);
}
