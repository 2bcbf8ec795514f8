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
#include "vmm/util.h"

#define NIC_CLASS 0x020000

static const uint8_t mac[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };

void nic_init(struct nic *nic, const struct nic_config *config, struct net_backend *backend,
	      const int *peers)
{
	uint16_t ring = config->ring ? config->ring : 256;
	struct virtio_net_options options = {
		.name = "net0",
		.mtu = 1500,
		.rx_ring = ring,
		.tx_ring = ring,
		.speed = 10000,
		.duplex = 1,
		.tuning = config->tuning,
		.lock = &nic->exits,
	};
	bool locked = config->tuning.lock != NET_LOCK_NONE;

	memset(nic, 0, sizeof(*nic));
	nic->backend = backend;
	nic->pairs = backend->queues;
	memcpy(nic->peers, peers, nic->pairs * sizeof(*peers));
	board_init(&nic->board);
	pthread_mutex_init(&nic->exits, NULL);
	nic->board.exits = locked ? &nic->exits : NULL;
	memcpy(options.mac, mac, sizeof(mac));
	/* All that there is: the driver chooses. */
	memset(&options.wanted, 0xff, sizeof(options.wanted));
	assert_int_equal(virtio_net_init(&nic->net, &options, backend, &nic->board.mem), 0);
	assert_int_equal(virtio_pci_init(&nic->pci, &nic->net.device, &nic->board.platform,
					 NIC_CLASS, config->pio ? PLATFORM_PIO : PLATFORM_MMIO),
			 0);
	nic->pci.kicks_exit = locked;
	assert_int_equal(pci_host_plug(&nic->board.pci, NIC_SLOT, &nic->pci.function), 0);
	assert_true(driver_probe(&nic->driver, &nic->board, NIC_SLOT));
}

static void free_rings(struct nic *nic)
{
	for (unsigned i = 0; i < ARRAY_SIZE(nic->rings); i++)
		ring_fini(&nic->rings[i]);
}

void nic_fini(struct nic *nic)
{
	assert_true(driver_reset(&nic->driver));
	board_unplug(&nic->board);
	virtio_pci_fini(&nic->pci);
	virtio_net_fini(&nic->net);
	free_rings(nic);
	nic->backend->ops->close(nic->backend);
	for (unsigned i = 0; i < nic->pairs; i++)
		if (nic->peers[i] >= 0)
			close(nic->peers[i]);
	board_fini(&nic->board);
	pthread_mutex_destroy(&nic->exits);
}

struct nic *nic_new(const struct nic_config *config)
{
	struct nic *nic = malloc(sizeof(*nic));
	struct net_backend *backend;
	int peers[NIC_MAX_PAIRS];

	assert_non_null(nic);
	backend = loopback_open(MAX(config->pairs, 1u), peers);
	assert_non_null(backend);
	nic_init(nic, config, backend, peers);
	return nic;
}

int nic_make(void **state)
{
	const struct nic_config plain = { 0 };

	*state = nic_new(&plain);
	return 0;
}

int nic_unmake(void **state)
{
	nic_fini(*state);
	free(*state);
	return 0;
}

void nic_setup_queue(struct nic *nic, unsigned queue, uint16_t size)
{
	assert_true(driver_setup_queue(&nic->driver, queue, &nic->rings[queue], size));
	ring_interrupts_disable(&nic->rings[queue]);
}

static void setup_queue(struct nic *nic, unsigned queue, const struct nic_setup *setup)
{
	if (!setup->intx)
		assert_true(driver_set_queue_vector(&nic->driver, queue, queue + 1));
	nic_setup_queue(nic, queue, nic->control ? 0 : setup->size);
}

static struct virtio_features wanted_features(const struct nic_setup *setup)
{
	const struct {
		bool take;
		unsigned bit;
	} choices[] = {
		{ true, VIRTIO_NET_F_MAC },
		{ !setup->no_event_idx, VIRTIO_RING_F_EVENT_IDX },
		{ !setup->no_indirect, VIRTIO_RING_F_INDIRECT_DESC },
		{ setup->packed, VIRTIO_F_RING_PACKED },
		{ setup->in_order, VIRTIO_F_IN_ORDER },
		{ setup->mergeable, VIRTIO_NET_F_MRG_RXBUF },
		{ setup->control || setup->pairs > 1, VIRTIO_NET_F_CTRL_VQ },
		{ setup->pairs > 1, VIRTIO_NET_F_MQ },
	};
	struct virtio_features wanted = setup->also;

	for (unsigned i = 0; i < ARRAY_SIZE(choices); i++)
		if (choices[i].take)
			virtio_add(&wanted, choices[i].bit);
	return wanted;
}

static void setup_queues(struct nic *nic, const struct nic_setup *setup)
{
	const struct virtio_features *f = &nic->driver.features;
	bool many = virtio_has(f, VIRTIO_NET_F_MQ) || virtio_has(f, VIRTIO_NET_F_RSS);

	nic->control = 0;
	for (unsigned i = 0; i < MAX(setup->pairs, 1u); i++) {
		if (!setup->no_rx)
			setup_queue(nic, 2 * i, setup);
		if (!setup->no_tx)
			setup_queue(nic, 2 * i + 1, setup);
	}
	if (!virtio_has(f, VIRTIO_NET_F_CTRL_VQ))
		return;
	nic->control = many ? 2 * nic->pairs : 2;
	setup_queue(nic, nic->control, setup);
}

void nic_prepare(struct nic *nic, const struct nic_setup *setup)
{
	struct virtio_features wanted = wanted_features(setup);

	assert_true(driver_reset(&nic->driver));
	/* What came in the old life and nobody waited for. */
	for (unsigned i = 0; i < nic->driver.vectors; i++)
		driver_wait_vector(&nic->driver, i, 0);
	free_rings(nic);
	board_free_all(&nic->board);
	memset(nic->kicks, 0, sizeof(nic->kicks));
	assert_true(driver_negotiate(&nic->driver, &wanted));
	virtio_add(&wanted, VIRTIO_F_VERSION_1);
	assert_memory_equal(&wanted, &nic->driver.features, sizeof(wanted));
	if (setup->intx)
		driver_msix_off(&nic->driver);
	else
		driver_msix_on(&nic->driver);
	if (!setup->intx)
		assert_true(driver_set_config_vector(&nic->driver, NIC_CONFIG_VECTOR));
	setup_queues(nic, setup);
}

void nic_up(struct nic *nic, const struct nic_setup *setup)
{
	nic_prepare(nic, setup);
	driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(driver_status(&nic->driver),
			 VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
				 VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK);
}

void nic_publish(struct nic *nic, unsigned queue)
{
	if (!ring_publish(&nic->rings[queue]))
		return;
	nic->kicks[queue]++;
	driver_kick(&nic->driver, queue);
}

void nic_publish_rx(struct nic *nic)
{
	nic_publish(nic, NIC_RX);
}

void nic_publish_tx(struct nic *nic)
{
	nic_publish(nic, NIC_TX);
}

void *nic_wait(struct nic *nic, unsigned queue, uint32_t *written)
{
	struct ring *ring = &nic->rings[queue];
	void *token;

	while (!ring_take(ring, &token, written)) {
		if (ring->error)
			fail_msg("%s", ring->error);
		if (ring_interrupts_enable(ring))
			continue;
		if (!driver_wait_vector(&nic->driver, queue + 1, BOARD_PATIENCE))
			fail_msg("no interrupt of queue %u", queue);
	}
	return token;
}

void *nic_wait_rx(struct nic *nic, uint32_t *written)
{
	return nic_wait(nic, NIC_RX, written);
}

void *nic_wait_tx(struct nic *nic)
{
	uint32_t written;
	void *token = nic_wait(nic, NIC_TX, &written);

	assert_int_equal(written, 0);
	return token;
}

uint8_t nic_query(struct nic *nic, uint8_t class, uint8_t code, const void *data, uint32_t len,
		  void *reply, uint32_t room)
{
	const struct virtio_net_ctrl_hdr hdr = { .class = class, .cmd = code };
	uint64_t gpa = board_alloc(&nic->board, sizeof(hdr) + len + 1 + room, 8);
	uint8_t *memory = board_ptr(&nic->board, gpa, sizeof(hdr) + len + 1 + room);
	uint8_t *ack = memory + sizeof(hdr) + len;
	uint64_t ack_gpa = gpa + sizeof(hdr) + len;
	struct ring_piece pieces[4] = { { gpa, sizeof(hdr) } };
	unsigned readable = 1, writable = 1;
	uint32_t written;

	memcpy(memory, &hdr, sizeof(hdr));
	if (len) {
		memcpy(memory + sizeof(hdr), data, len);
		pieces[readable++] = (struct ring_piece){ gpa + sizeof(hdr), len };
	}
	*ack = 0xee;
	pieces[readable] = (struct ring_piece){ ack_gpa, 1 };
	if (room)
		pieces[readable + writable++] = (struct ring_piece){ ack_gpa + 1, room };
	assert_int_not_equal(nic->control, 0);
	assert_int_equal(ring_add(&nic->rings[nic->control], pieces, readable, writable, memory),
			 0);
	nic_publish(nic, nic->control);
	assert_ptr_equal(nic_wait(nic, nic->control, &written), memory);
	assert_int_equal(written, *ack == VIRTIO_NET_OK ? 1 + room : 1);
	if (room)
		memcpy(reply, ack + 1, room);
	return *ack;
}

uint8_t nic_command(struct nic *nic, uint8_t class, uint8_t code, const void *data, uint32_t len)
{
	return nic_query(nic, class, code, data, len, NULL, 0);
}

size_t nic_peer_recv_on(struct nic *nic, unsigned pair, void *packet, size_t size)
{
	ssize_t n;

	assert_true(board_wait_fd(nic->peers[pair], POLLIN, BOARD_PATIENCE) & POLLIN);
	n = recv(nic->peers[pair], packet, size, MSG_TRUNC);
	assert_true(n > 0 && (size_t)n <= size);
	return (size_t)n;
}

size_t nic_peer_recv(struct nic *nic, void *packet, size_t size)
{
	return nic_peer_recv_on(nic, 0, packet, size);
}

static bool try_send(struct nic *nic, unsigned pair, const void *packet, size_t len)
{
	ssize_t n = send(nic->peers[pair], packet, len, MSG_NOSIGNAL);

	if (n < 0 && errno == EAGAIN)
		return false;
	assert_int_equal(n, len);
	return true;
}

bool nic_peer_try_send(struct nic *nic, const void *packet, size_t len)
{
	return try_send(nic, 0, packet, len);
}

void nic_peer_send_on(struct nic *nic, unsigned pair, const void *packet, size_t len)
{
	while (!try_send(nic, pair, packet, len))
		assert_true(board_wait_fd(nic->peers[pair], POLLOUT, BOARD_PATIENCE));
}

void nic_peer_send(struct nic *nic, const void *packet, size_t len)
{
	nic_peer_send_on(nic, 0, packet, len);
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

void nic_ping_on(struct nic *nic, unsigned pair)
{
	struct ring_piece out = { board_alloc(&nic->board, 128, 16), 72 };
	struct ring_piece in = { board_alloc(&nic->board, 2048, 16), 2048 };
	unsigned rx = 2 * pair, tx = rx + 1;
	uint8_t packet[128];
	uint32_t written;

	nic_fill(board_ptr(&nic->board, out.gpa, out.len), out.len, 1 + pair);
	assert_int_equal(ring_add(&nic->rings[tx], &out, 1, 0, &out), 0);
	nic_publish(nic, tx);
	assert_int_equal(nic_peer_recv_on(nic, pair, packet, sizeof(packet)), out.len);
	assert_true(nic_is(packet, out.len, 1 + pair));
	assert_ptr_equal(nic_wait(nic, tx, &written), &out);
	assert_int_equal(written, 0);
	assert_int_equal(ring_add(&nic->rings[rx], &in, 0, 1, &in), 0);
	nic_publish(nic, rx);
	nic_fill(packet, 100, 2 + pair);
	nic_peer_send_on(nic, pair, packet, 100);
	assert_ptr_equal(nic_wait(nic, rx, &written), &in);
	assert_int_equal(written, 100);
	assert_true(nic_is(board_ptr(&nic->board, in.gpa, 100), 100, 2 + pair));
}

void nic_ping(struct nic *nic)
{
	nic_ping_on(nic, 0);
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

	assert_int_equal(pthread_getcpuclockid(nic_pair(nic, 0)->rx.worker->worker.thread, &clock), 0);
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
