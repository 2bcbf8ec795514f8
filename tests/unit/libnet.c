/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct nic_setup net_setup_with(size_t count, const unsigned *features)
{
	struct nic_setup setup = { .control = true };

	for (size_t i = 0; i < count; i++)
		virtio_add(&setup.also, features[i]);
	return setup;
}

struct ring_piece net_tx_piece(struct nic *nic, uint32_t len, uint32_t seed)
{
	struct ring_piece piece = { board_alloc(&nic->board, len, 1), len };

	nic_fill(board_ptr(&nic->board, piece.gpa, len), len, seed);
	return piece;
}

void net_add_tx(struct nic *nic, struct ring_piece piece)
{
	assert_int_equal(ring_add(&nic->tx, &piece, 1, 0, nic), 0);
}

void net_add_rx(struct nic *nic, uint64_t gpa, uint32_t len)
{
	struct ring_piece piece = { gpa, len };

	assert_int_equal(ring_add(&nic->rx, &piece, 0, 1, nic), 0);
}

void net_expect_packet(struct nic *nic, uint32_t seed)
{
	uint8_t packet[2 * NET_SIZE];

	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), NET_SIZE);
	assert_true(nic_is(packet, NET_SIZE, seed));
}

void net_send_to(struct nic *nic, uint32_t len, uint32_t seed)
{
	uint8_t packet[NIC_MAX_PACKET];

	nic_fill(packet, len, seed);
	nic_peer_send(nic, packet, len);
}

void net_receive(struct nic *nic, uint32_t seed)
{
	uint64_t gpa = board_alloc(&nic->board, NET_SIZE, 1);
	uint8_t packet[NET_SIZE];
	uint32_t written;

	net_add_rx(nic, gpa, NET_SIZE);
	nic_publish_rx(nic);
	nic_fill(packet, NET_SIZE, seed);
	nic_peer_send(nic, packet, NET_SIZE);
	nic_wait_rx(nic, &written);
	assert_int_equal(written, NET_SIZE);
	assert_true(nic_is(board_ptr(&nic->board, gpa, NET_SIZE), NET_SIZE, seed));
}

bool net_has_time(time_t *until)
{
	if (!*until)
		*until = time(NULL) + BOARD_PATIENCE / 1000;
	return time(NULL) <= *until;
}
