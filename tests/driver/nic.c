/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/driver/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "devices/net/loopback.h"

#define NIC_CLASS 0x020000

static const uint8_t mac[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };

void nic_init(struct nic *nic, struct net_backend *backend, int peer)
{
	struct virtio_net_options options = { .name = "net0", .mtu = 1500 };

	memset(nic, 0, sizeof(*nic));
	nic->backend = backend;
	nic->peer = peer;
	board_init(&nic->board);
	memcpy(options.mac, mac, sizeof(mac));
	assert_int_equal(virtio_net_init(&nic->net, &options, backend, &nic->board.mem), 0);
	assert_int_equal(
		virtio_pci_init(&nic->pci, &nic->net.device, &nic->board.platform, NIC_CLASS), 0);
	assert_int_equal(pci_host_plug(&nic->board.pci, NIC_SLOT, &nic->pci.function), 0);
	assert_true(driver_probe(&nic->driver, &nic->board, NIC_SLOT));
}

void nic_fini(struct nic *nic)
{
	assert_true(driver_reset(&nic->driver));
	board_unplug(&nic->board);
	virtio_pci_fini(&nic->pci);
	virtio_net_fini(&nic->net);
	ring_fini(&nic->rx);
	ring_fini(&nic->tx);
	nic->backend->ops->close(nic->backend);
	if (nic->peer >= 0)
		close(nic->peer);
	board_fini(&nic->board);
}

int nic_make(void **state)
{
	struct nic *nic = malloc(sizeof(*nic));
	struct net_backend *backend;
	int peer;

	if (!nic)
		return -1;
	backend = loopback_open(&peer);
	if (!backend)
		return -1;
	nic_init(nic, backend, peer);
	*state = nic;
	return 0;
}

int nic_unmake(void **state)
{
	nic_fini(*state);
	free(*state);
	return 0;
}

static void setup_queue(struct nic *nic, unsigned queue, struct ring *ring, unsigned vector,
			const struct nic_setup *setup)
{
	if (!setup->intx)
		assert_true(driver_set_queue_vector(&nic->driver, queue, vector));
	assert_true(driver_setup_queue(&nic->driver, queue, ring, setup->size));
	ring_interrupts_disable(ring);
}

void nic_prepare(struct nic *nic, const struct nic_setup *setup)
{
	struct virtio_features wanted = { 0 };

	assert_true(driver_reset(&nic->driver));
	/* What came in the old life and nobody waited for. */
	for (unsigned i = 0; i < nic->driver.vectors; i++)
		driver_wait_vector(&nic->driver, i, 0);
	ring_fini(&nic->rx);
	ring_fini(&nic->tx);
	board_free_all(&nic->board);
	nic->rx_kicks = nic->tx_kicks = 0;
	virtio_add(&wanted, VIRTIO_NET_F_MAC);
	if (!setup->no_event_idx)
		virtio_add(&wanted, VIRTIO_RING_F_EVENT_IDX);
	if (!setup->no_indirect)
		virtio_add(&wanted, VIRTIO_RING_F_INDIRECT_DESC);
	assert_true(driver_negotiate(&nic->driver, &wanted));
	if (setup->intx)
		driver_msix_off(&nic->driver);
	else
		driver_msix_on(&nic->driver);
	if (!setup->intx)
		assert_true(driver_set_config_vector(&nic->driver, NIC_CONFIG_VECTOR));
	if (!setup->no_rx)
		setup_queue(nic, NIC_RX, &nic->rx, NIC_RX_VECTOR, setup);
	if (!setup->no_tx)
		setup_queue(nic, NIC_TX, &nic->tx, NIC_TX_VECTOR, setup);
}

void nic_up(struct nic *nic, const struct nic_setup *setup)
{
	nic_prepare(nic, setup);
	driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(driver_status(&nic->driver),
			 VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
				 VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK);
}

void nic_publish_rx(struct nic *nic)
{
	if (!ring_publish(&nic->rx))
		return;
	nic->rx_kicks++;
	driver_kick(&nic->driver, NIC_RX);
}

void nic_publish_tx(struct nic *nic)
{
	if (!ring_publish(&nic->tx))
		return;
	nic->tx_kicks++;
	driver_kick(&nic->driver, NIC_TX);
}

static void *wait_used(struct nic *nic, struct ring *ring, unsigned vector, uint32_t *written)
{
	void *token;

	while (!ring_take(ring, &token, written)) {
		if (ring->error)
			fail_msg("%s", ring->error);
		if (ring_interrupts_enable(ring))
			continue;
		if (!driver_wait_vector(&nic->driver, vector, BOARD_PATIENCE))
			fail_msg("no interrupt on vector %u", vector);
	}
	return token;
}

void *nic_wait_rx(struct nic *nic, uint32_t *written)
{
	return wait_used(nic, &nic->rx, NIC_RX_VECTOR, written);
}

void *nic_wait_tx(struct nic *nic)
{
	uint32_t written;
	void *token = wait_used(nic, &nic->tx, NIC_TX_VECTOR, &written);

	assert_int_equal(written, 0);
	return token;
}

size_t nic_peer_recv(struct nic *nic, void *packet, size_t size)
{
	ssize_t n;

	assert_true(board_wait_fd(nic->peer, POLLIN, BOARD_PATIENCE) & POLLIN);
	n = recv(nic->peer, packet, size, MSG_TRUNC);
	assert_true(n > 0 && (size_t)n <= size);
	return (size_t)n;
}

bool nic_peer_try_send(struct nic *nic, const void *packet, size_t len)
{
	ssize_t n = send(nic->peer, packet, len, MSG_NOSIGNAL);

	if (n < 0 && errno == EAGAIN)
		return false;
	assert_int_equal(n, len);
	return true;
}

void nic_peer_send(struct nic *nic, const void *packet, size_t len)
{
	while (!nic_peer_try_send(nic, packet, len))
		assert_true(board_wait_fd(nic->peer, POLLOUT, BOARD_PATIENCE));
}

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + seed * 31 + (seed >> 8) * 3);
}

void nic_fill(uint8_t *packet, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		packet[i] = i < NIC_HEADER ? 0 : pattern(i, seed);
}

bool nic_is(const uint8_t *packet, size_t len, uint32_t seed)
{
	for (size_t i = NIC_HEADER; i < len; i++)
		if (packet[i] != pattern(i, seed))
			return false;
	return true;
}

void nic_ping(struct nic *nic)
{
	struct ring_piece out = { board_alloc(&nic->board, 128, 16), 72 };
	struct ring_piece in = { board_alloc(&nic->board, 2048, 16), 2048 };
	uint8_t packet[128];
	uint32_t written;

	nic_fill(board_ptr(&nic->board, out.gpa, out.len), out.len, 1);
	assert_int_equal(ring_add(&nic->tx, &out, 1, 0, &out), 0);
	nic_publish_tx(nic);
	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), out.len);
	assert_true(nic_is(packet, out.len, 1));
	assert_ptr_equal(nic_wait_tx(nic), &out);
	assert_int_equal(ring_add(&nic->rx, &in, 0, 1, &in), 0);
	nic_publish_rx(nic);
	nic_fill(packet, 100, 2);
	nic_peer_send(nic, packet, 100);
	assert_ptr_equal(nic_wait_rx(nic, &written), &in);
	assert_int_equal(written, 100);
	assert_true(nic_is(board_ptr(&nic->board, in.gpa, 100), 100, 2));
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(clock, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void nic_expect_idle(struct nic *nic)
{
	uint64_t cpu, wall;
	clockid_t clock;

	assert_int_equal(pthread_getcpuclockid(nic->net.pair.worker.thread, &clock), 0);
	wall = clock_ns(CLOCK_MONOTONIC);
	cpu = clock_ns(clock);
	poll(NULL, 0, 60);
	cpu = clock_ns(clock) - cpu;
	wall = clock_ns(CLOCK_MONOTONIC) - wall;
	assert_true(cpu < wall / 10);
}

void nic_wait_counter(const uint64_t *counter, uint64_t least)
{
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;

	/* Nothing announces a counter: look, and let the worker run. */
	while (net_counter(counter) < least) {
		assert_true(time(NULL) <= until);
		poll(NULL, 0, 1);
	}
}
