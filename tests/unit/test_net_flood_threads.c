/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A driver that keeps a ring full for ever: everything else goes on (M22). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "devices/net/loopback.h"
#include "tests/driver/split_layout.h"
#include "tests/unit/libnet.h"
#include "vmm/util.h"

struct sink {
	struct net_backend backend;
	struct net_backend *inner;
	struct ring *torrent; /* NULL: none */
};

/*
 * Takes everything at once, and then plays the driver that has more, always: the chain at the head
 * of the table again and again.
 */
static ssize_t sink_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	const struct ring *ring = container_of(backend, struct sink, backend)->torrent;

	(void)queue;
	if (ring)
		le16_store_release(&ring->split.avail->idx,
				   (uint16_t)(le16_load_relaxed(&ring->split.used->idx) + 128));
	return count ? (ssize_t)iov[0].iov_len : 0;
}

static void sink_close(struct net_backend *backend)
{
	struct sink *sink = container_of(backend, struct sink, backend);

	sink->inner->ops->close(sink->inner);
	free(sink);
}

static ssize_t sink_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			 unsigned count)
{
	struct sink *sink = container_of(backend, struct sink, backend);

	return sink->inner->ops->recv(sink->inner, queue, iov, count);
}

static int sink_fd(struct net_backend *backend, unsigned queue)
{
	struct sink *sink = container_of(backend, struct sink, backend);

	return sink->inner->ops->fd(sink->inner, queue);
}

static int sink_set(struct net_backend *backend, unsigned value)
{
	(void)backend;
	(void)value;
	return 0;
}

static int make_sink(void **state)
{
	static const struct net_backend_ops ops = {
		.close = sink_close,
		.send = sink_send,
		.recv = sink_recv,
		.fd = sink_fd,
		.set_offloads = sink_set,
		.set_header = sink_set,
	};
	const struct nic_config config = { 0 };
	struct sink *sink = calloc(1, sizeof(*sink));
	struct nic *nic = malloc(sizeof(*nic));
	int peer;

	assert_non_null(sink);
	assert_non_null(nic);
	sink->inner = loopback_open(1, &peer);
	assert_non_null(sink->inner);
	sink->backend = (struct net_backend){ .ops = &ops, .name = "sink", .queues = 1 };
	nic_init(nic, &config, &sink->backend, &peer);
	*state = nic;
	return 0;
}

static void test_m22_a_flood_holds_up_no_command(void **state)
{
	struct nic_setup setup = { .control = true };
	const uint32_t rule[2] = { 1000, 2000 };
	const uint8_t on = 1;
	struct nic *nic = *state;
	struct sink *sink = container_of(nic->backend, struct sink, backend);
	struct ring_piece piece;
	uint8_t packet[NET_SIZE];
	uint32_t written;

	virtio_add(&setup.also, VIRTIO_NET_F_CTRL_RX);
	virtio_add(&setup.also, VIRTIO_NET_F_NOTF_COAL);
	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	piece = net_tx_piece(nic, NET_SIZE, 1);
	le64_store_relaxed(&nic->tx.split.desc[0].addr, piece.gpa);
	le32_store_relaxed(&nic->tx.split.desc[0].len, piece.len);
	le16_store_relaxed(&nic->tx.split.desc[0].flags, 0);
	sink->torrent = &nic->tx;
	le16_store_release(&nic->tx.split.avail->idx, 1);
	driver_kick(&nic->driver, NIC_TX);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
				     VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, rule, sizeof(rule)),
			 VIRTIO_NET_OK);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC,
					     &on, sizeof(on)),
				 VIRTIO_NET_OK);
	/* Nor a frame, nor the timer that its interrupt waits for. */
	for (unsigned i = 0; i < 5; i++) {
		net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
		nic_publish_rx(nic);
		nic_fill(packet, NET_SIZE, i);
		nic_peer_send(nic, packet, NET_SIZE);
		nic_wait_rx(nic, &written);
		assert_int_equal(written, NET_SIZE);
	}
	/* Nor resets. */
	assert_true(driver_reset_queue(&nic->driver, NIC_RX));
	assert_true(driver_reset(&nic->driver));
	sink->torrent = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_m22_a_flood_holds_up_no_command, make_sink,
						nic_unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
