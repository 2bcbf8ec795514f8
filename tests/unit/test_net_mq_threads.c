/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A NIC of several queue pairs: which are in use, where the control queue is, and what is
 * independent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "devices/net/loopback.h"
#include "tests/unit/libflow.h"
#include "tests/unit/libfront.h"
#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define PAIRS 4u

static const struct nic_setup every = { .pairs = PAIRS };

static int make(void **state)
{
	const struct nic_config config = { .pairs = PAIRS };

	*state = nic_new(&config);
	return 0;
}

static int make_pio(void **state)
{
	const struct nic_config config = { .pairs = PAIRS, .pio = true };

	*state = nic_new(&config);
	return 0;
}

static int make_many(void **state)
{
	const struct nic_config config = { .pairs = NIC_MAX_PAIRS, .ring = 64 };

	*state = nic_new(&config);
	return 0;
}

static uint8_t set_pairs(struct nic *nic, unsigned pairs)
{
	const uint16_t value = (uint16_t)pairs;

	return nic_command(nic, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, &value,
			   sizeof(value));
}

/* These many pairs work, and what comes for the others gets nowhere. */
static void expect_pairs(struct nic *nic, unsigned pairs)
{
	uint8_t packet[NET_SIZE];

	assert_int_equal(loopback_in_use(nic->backend), pairs);
	for (unsigned i = 0; i < pairs; i++)
		nic_ping_on(nic, i);
	for (unsigned i = pairs; i < PAIRS; i++) {
		nic_fill(packet, NET_SIZE, i);
		nic_peer_send_on(nic, i, packet, NET_SIZE);
	}
}

static void test_g3_pairs_in_use(void **state)
{
	static const unsigned steps[] = { 1, 2, 4, 3, 4, 1, 4, 2, 1, 3 };
	struct nic *nic = *state;

	for (unsigned lap = 0; lap < 3; lap++) {
		nic_up(nic, &every);
		expect_pairs(nic, 1);
		for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
			assert_int_equal(set_pairs(nic, steps[i]), VIRTIO_NET_OK);
			expect_pairs(nic, steps[i]);
			assert_int_equal(set_pairs(nic, 0), VIRTIO_NET_ERR);
			assert_int_equal(set_pairs(nic, PAIRS + 1), VIRTIO_NET_ERR);
			assert_int_equal(set_pairs(nic, 0x8000), VIRTIO_NET_ERR);
			assert_int_equal(loopback_in_use(nic->backend), steps[i]);
		}
		/* One after reset, whatever was before. */
		assert_true(driver_reset(&nic->driver));
		assert_int_equal(loopback_in_use(nic->backend), 1);
	}
}

static void test_as_many_pairs_as_there_can_be(void **state)
{
	const struct nic_setup setup = { .pairs = NIC_MAX_PAIRS };
	struct nic *nic = *state;

	nic_up(nic, &setup);
	assert_int_equal(nic->control, 2 * NIC_MAX_PAIRS);
	assert_int_equal(set_pairs(nic, NIC_MAX_PAIRS), VIRTIO_NET_OK);
	assert_int_equal(set_pairs(nic, NIC_MAX_PAIRS + 1), VIRTIO_NET_ERR);
	for (unsigned i = 0; i < NIC_MAX_PAIRS; i++)
		nic_ping_on(nic, i);
}

/* The answer to a flow comes back on its pair while others come and go. */
struct flow {
	struct nic *nic;
	atomic_bool stop;
	atomic_uint answered;
};

static void *answer_main(void *arg)
{
	struct flow *flow = arg;
	uint8_t packet[NET_SIZE];

	while (!atomic_load(&flow->stop)) {
		if (!board_wait_fd(flow->nic->peer, POLLIN, 20))
			continue;
		if (recv(flow->nic->peer, packet, NET_SIZE, 0) == NET_SIZE &&
		    send(flow->nic->peer, packet, NET_SIZE, MSG_NOSIGNAL) == NET_SIZE)
			atomic_fetch_add(&flow->answered, 1);
	}
	return NULL;
}

static void test_g3_nothing_is_lost_while_pairs_change(void **state)
{
	struct nic *nic = *state;
	struct flow flow = { .nic = nic };
	pthread_t thread;
	uint64_t gpa;

	nic_up(nic, &every);
	gpa = board_alloc(&nic->board, NET_SIZE, 1);
	assert_int_equal(pthread_create(&thread, NULL, answer_main, &flow), 0);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t written;

		net_add_rx(nic, gpa, NET_SIZE);
		nic_publish_rx(nic);
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
		nic_publish_tx(nic);
		assert_int_equal(set_pairs(nic, 1 + i % PAIRS), VIRTIO_NET_OK);
		nic_wait_rx(nic, &written);
		assert_int_equal(written, NET_SIZE);
		assert_true(nic_is(board_ptr(&nic->board, gpa, NET_SIZE), NET_SIZE, i));
		nic_wait_tx(nic);
	}
	atomic_store(&flow.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&flow.answered), 200);
}

static void test_g4_where_the_control_queue_is(void **state)
{
	const struct nic_setup without = { .control = true };
	struct nic_setup rss = { .control = true };
	struct nic *nic = *state;

	virtio_add(&rss.also, VIRTIO_NET_F_RSS);
	nic_up(nic, &without);
	assert_int_equal(nic->control, 2);
	assert_int_equal(nic_command(nic, 99, 0, NULL, 0), VIRTIO_NET_ERR);
	nic_ping(nic);
	nic_up(nic, &every);
	assert_int_equal(nic->control, 2 * PAIRS);
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	assert_int_equal(set_pairs(nic, 1), VIRTIO_NET_OK);
	nic_up(nic, &rss);
	assert_int_equal(nic->control, 2 * PAIRS);
	assert_int_equal(nic_command(nic, 99, 0, NULL, 0), VIRTIO_NET_ERR);
	/* Without MQ there is one pair, and no way to ask for more. */
	nic_up(nic, &without);
	assert_int_equal(set_pairs(nic, 1), VIRTIO_NET_ERR);
	assert_int_equal(loopback_in_use(nic->backend), 1);
}

/* G26: the driver enables what it likes. */
static void test_g26_sparse_queues(void **state)
{
	static const unsigned sets[] = { 0x003, 0x001, 0x002, 0x0c3, 0x0f0, 0x08f, 0x000, 0x0ff };
	const struct nic_setup none = { .pairs = PAIRS, .no_rx = true, .no_tx = true };
	struct nic *nic = *state;

	for (unsigned s = 0; s < ARRAY_SIZE(sets); s++) {
		nic_prepare(nic, &none);
		for (unsigned q = 0; q < 2 * PAIRS; q++) {
			if (!(sets[s] >> q & 1))
				continue;
			assert_true(driver_set_queue_vector(&nic->driver, q, q + 1));
			nic_setup_queue(nic, q, 16);
		}
		driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
		assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS);
		assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
		for (unsigned i = 0; i < PAIRS; i++)
			if ((sets[s] >> 2 * i & 3) == 3)
				nic_ping_on(nic, i);
		/* Kicks and frames for the others do nothing. */
		for (unsigned q = 0; q < 2 * PAIRS; q++) {
			uint8_t packet[NET_SIZE] = { 0 };

			driver_kick(&nic->driver, q);
			if (!(sets[s] >> q & 1) && q % 2 == 0)
				nic_peer_send_on(nic, q / 2, packet, NET_SIZE);
		}
		nic_expect_idle(nic);
		assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS);
	}
}

/* A queue may also be enabled for the first time when all runs (RING_RESET). */
static void test_a_queue_enabled_late(void **state)
{
	struct nic_setup setup = { .pairs = PAIRS, .no_rx = true, .no_tx = true };
	struct nic *nic = *state;

	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	for (unsigned q = 0; q < 4; q++) {
		assert_true(driver_set_queue_vector(&nic->driver, q, q + 1));
		nic_setup_queue(nic, q, 16);
	}
	nic_ping_on(nic, 0);
	nic_ping_on(nic, 1);
}

/* One vector for all queues, and one for pairs: the driver has fewer than there are queues. */
static void test_shared_vectors(void **state)
{
	struct nic *nic = *state;
	uint8_t packet[NET_SIZE];
	uint32_t written;
	void *token;

	nic_prepare(nic, &every);
	for (unsigned q = 0; q < 2 * PAIRS; q++)
		assert_true(driver_set_queue_vector(&nic->driver, q, 1));
	driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
	for (unsigned i = 0; i < PAIRS; i++) {
		struct ring_piece piece = { board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE };
		struct ring *ring = &nic->rings[2 * i];

		assert_int_equal(ring_add(ring, &piece, 0, 1, nic), 0);
		assert_false(ring_interrupts_enable(ring));
		nic_publish(nic, 2 * i);
		nic_fill(packet, NET_SIZE, i);
		nic_peer_send_on(nic, i, packet, NET_SIZE);
		assert_int_equal(driver_wait_vector(&nic->driver, 1, BOARD_PATIENCE), 1);
		assert_true(ring_take(ring, &token, &written));
		assert_int_equal(written, NET_SIZE);
	}
}

/* ---- RSS ---- */

/* RSS_CONFIG with a table of four, all types of plain frames, and flow_key; returns its length. */
static uint32_t put_config(uint8_t data[128], const uint16_t table[4], uint16_t unclassified,
			   uint16_t max_tx)
{
	const uint32_t types = NET_HASH_PLAIN_TYPES;
	const uint16_t mask = 3;

	memcpy(data, &types, 4);
	memcpy(data + 4, &mask, 2);
	memcpy(data + 6, &unclassified, 2);
	memcpy(data + 8, table, 8);
	memcpy(data + 16, &max_tx, 2);
	data[18] = NET_HASH_KEY_MAX;
	memcpy(data + 19, flow_key, NET_HASH_KEY_MAX);
	return 19 + NET_HASH_KEY_MAX;
}

static uint8_t configure(struct nic *nic, const uint16_t table[4], uint16_t unclassified,
			 uint16_t max_tx)
{
	uint8_t data[128];
	uint32_t len = put_config(data, table, unclassified, max_tx);

	return nic_command(nic, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, data, len);
}

static void test_rss_steers_until_pairs_are_set(void **state)
{
	static const uint16_t table[4] = { 1, 0, 2, 1 }, bad[4] = { 0, 1, PAIRS, 0 };
	struct nic_setup setup = { .pairs = PAIRS };
	const struct net_rss *rss;
	struct nic *nic = *state;

	virtio_add(&setup.also, VIRTIO_NET_F_RSS);
	nic_up(nic, &setup);
	assert_null(loopback_steering(nic->backend));
	assert_int_equal(configure(nic, bad, 0, 1), VIRTIO_NET_ERR);
	assert_int_equal(configure(nic, table, PAIRS, 1), VIRTIO_NET_ERR);
	assert_int_equal(configure(nic, table, 0, PAIRS + 1), VIRTIO_NET_ERR);
	assert_int_equal(configure(nic, table, 0, 0), VIRTIO_NET_ERR);
	assert_null(loopback_steering(nic->backend));
	expect_pairs(nic, 1);
	assert_int_equal(configure(nic, table, 0, 1), VIRTIO_NET_OK);
	expect_pairs(nic, 3);
	rss = loopback_steering(nic->backend);
	assert_non_null(rss);
	assert_int_equal(rss->table_mask, 3);
	assert_memory_equal(rss->table, table, sizeof(table));
	assert_memory_equal(rss->key, flow_key, NET_HASH_KEY_MAX);
	assert_int_equal(rss->types, NET_HASH_PLAIN_TYPES);
	assert_int_equal(configure(nic, table, 3, 2), VIRTIO_NET_OK);
	expect_pairs(nic, PAIRS);
	/* Pairs by number end it, and so does a reset. */
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	assert_null(loopback_steering(nic->backend));
	expect_pairs(nic, 2);
	assert_int_equal(configure(nic, table, 0, 1), VIRTIO_NET_OK);
	nic_up(nic, &every);
	assert_null(loopback_steering(nic->backend));
	expect_pairs(nic, 1);
}

/*
 * RSS_CONFIG that speaks of fewer pairs than are in use, in its table and as those that it sends
 * on: what is sent on the others still leaves, as Linux's driver sends there. Only with RSS off the
 * number counts again.
 */
static void test_rss_takes_no_pair_away(void **state)
{
	static const uint16_t narrow[4] = { 1, 1, 1, 1 }, wide[4] = { 2, 1, 0, 2 };
	struct nic_setup setup = { .pairs = PAIRS };
	uint8_t hash[13] = { 0 }; /* HASH_CONFIG: no types, no key */
	struct nic *nic = *state;

	virtio_add(&setup.also, VIRTIO_NET_F_RSS);
	nic_up(nic, &setup);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
	assert_int_equal(configure(nic, narrow, 1, 2), VIRTIO_NET_OK);
	expect_pairs(nic, PAIRS);
	assert_int_equal(net_counter(&nic_pair(nic, PAIRS - 1)->tx.counters.dropped), 0);
	assert_int_equal(configure(nic, wide, 0, 1), VIRTIO_NET_OK);
	expect_pairs(nic, PAIRS);
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	expect_pairs(nic, 2);
	assert_int_equal(configure(nic, wide, 0, 1), VIRTIO_NET_OK);
	expect_pairs(nic, 3);

	virtio_add(&setup.also, VIRTIO_NET_F_HASH_REPORT);
	nic_up(nic, &setup);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
	assert_int_equal(configure(nic, narrow, 1, 1), VIRTIO_NET_OK);
	assert_int_equal(loopback_in_use(nic->backend), PAIRS);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_HASH_CONFIG, hash,
				     sizeof(hash)),
			 VIRTIO_NET_OK);
	assert_null(loopback_steering(nic->backend));
	assert_int_equal(loopback_in_use(nic->backend), 2);
}

/* A back end that refuses to steer, or to put this queue into use or out of it. */
static struct {
	struct net_backend_ops ops;
	const struct net_backend_ops *inner;
	atomic_int queue; /* -1: none */
	atomic_bool steering;
} refusing;

static int refuse_queue(struct net_backend *backend, unsigned queue, bool on)
{
	if (atomic_load(&refusing.queue) == (int)queue)
		return -EBUSY;
	return refusing.inner->enable(backend, queue, on);
}

static int refuse_steering(struct net_backend *backend, const struct net_rss *rss)
{
	return atomic_load(&refusing.steering) ? -EPERM :
						 refusing.inner->set_steering(backend, rss);
}

static void expect_rss(struct nic *nic, const uint16_t table[4])
{
	const struct net_rss *rss = loopback_steering(nic->backend);

	assert_non_null(rss);
	assert_memory_equal(rss->table, table, 4 * sizeof(*table));
}

/* A command that fails leaves pairs and steering as they were, whichever of them failed. */
static void test_refused_pairs_and_steering(void **state)
{
	static const uint16_t narrow[4] = { 1, 0, 1, 0 }, wide[4] = { 3, 2, 1, 0 };
	struct nic_setup setup = { .pairs = PAIRS };
	struct nic *nic = *state;
	char text[4096];

	virtio_add(&setup.also, VIRTIO_NET_F_RSS);
	refusing.inner = nic->backend->ops;
	refusing.ops = *refusing.inner;
	refusing.ops.enable = refuse_queue;
	refusing.ops.set_steering = refuse_steering;
	atomic_store(&refusing.queue, -1);
	nic->backend->ops = &refusing.ops;
	nic_up(nic, &setup);
	assert_int_equal(configure(nic, narrow, 0, 1), VIRTIO_NET_OK);
	capture_begin();

	/* More pairs than can be had. */
	atomic_store(&refusing.queue, 3);
	assert_int_equal(configure(nic, wide, 0, 1), VIRTIO_NET_ERR);
	expect_rss(nic, narrow);
	expect_pairs(nic, 2);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_ERR);
	expect_rss(nic, narrow);
	expect_pairs(nic, 2);
	atomic_store(&refusing.queue, -1);

	/* The steering that does not change. */
	atomic_store(&refusing.steering, true);
	assert_int_equal(configure(nic, wide, 0, 1), VIRTIO_NET_ERR);
	expect_pairs(nic, 2);
	assert_int_equal(set_pairs(nic, 1), VIRTIO_NET_ERR);
	expect_pairs(nic, 2);
	atomic_store(&refusing.steering, false);
	expect_rss(nic, narrow);

	assert_int_equal(configure(nic, wide, 0, 1), VIRTIO_NET_OK);
	expect_rss(nic, wide);
	/* Fewer than can be left. */
	atomic_store(&refusing.queue, 2);
	assert_int_equal(set_pairs(nic, 1), VIRTIO_NET_ERR);
	expect_rss(nic, wide);
	expect_pairs(nic, PAIRS);
	atomic_store(&refusing.queue, -1);
	assert_int_equal(set_pairs(nic, 1), VIRTIO_NET_OK);
	assert_null(loopback_steering(nic->backend));
	expect_pairs(nic, 1);
	capture_end(text, sizeof(text));
	assert_non_null(strstr(text, "does not let 4 pairs be in use: Device or resource busy"));
}

/* ---- kicks by port I/O ---- */

static void test_kicks_by_port(void **state)
{
	struct nic *nic = *state;
	uint64_t kicks = net_counter(&nic_pair(nic, 0)->tx.counters.kicks);
	uint32_t bar;

	assert_int_equal(nic->driver.notify_space, PLATFORM_PIO);
	assert_int_equal(board_kicks_inside(&nic->board, BOARD_PCI_BASE, BOARD_PCI_SIZE), 0);
	nic_up(nic, &every);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
	for (unsigned i = 0; i < PAIRS; i++)
		nic_ping_on(nic, i);
	assert_true(net_counter(&nic_pair(nic, 0)->tx.counters.kicks) > kicks);
	/* The guest moves the BAR, and the kicks move with it (M19). */
	bar = board_config_read(&nic->board, NIC_SLOT, PCI_BASE_ADDRESS_0, 4);
	assert_true(bar & PCI_BASE_ADDRESS_SPACE_IO);
	board_config_write(&nic->board, NIC_SLOT, PCI_BASE_ADDRESS_0, 4, (bar & ~3u) + 0x400);
	assert_true(driver_probe(&nic->driver, &nic->board, NIC_SLOT));
	nic_up(nic, &every);
	nic_ping(nic);
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	nic_ping_on(nic, 1);
}

static void test_kicks_with_data(void **state)
{
	struct nic_setup setup = every;
	struct nic *nic = *state;

	virtio_add(&setup.also, VIRTIO_F_NOTIFICATION_DATA);
	nic_up(nic, &setup);
	assert_int_equal(set_pairs(nic, 2), VIRTIO_NET_OK);
	nic_ping_on(nic, 0);
	nic_ping_on(nic, 1);
}

/* ---- a queue is reset while commands are under way ---- */

struct resetter {
	struct nic *nic;
	atomic_bool stop;
	unsigned laps;
};

/* The same ring again each time: nobody else may ask for guest memory meanwhile. */
static void *reset_main(void *arg)
{
	struct resetter *r = arg;
	const struct driver *d = &r->nic->driver;
	const struct ring *ring = &r->nic->rings[2];

	while (!atomic_load(&r->stop)) {
		if (!driver_reset_queue(d, 2))
			break;
		driver_write(d, COMMON_QUEUE_SIZE, 2, ring->size);
		driver_write(d, COMMON_QUEUE_DESC, 4, (uint32_t)ring->desc_gpa);
		driver_write(d, COMMON_QUEUE_DRIVER, 4, (uint32_t)ring->driver_gpa);
		driver_write(d, COMMON_QUEUE_DEVICE, 4, (uint32_t)ring->device_gpa);
		driver_write(d, COMMON_QUEUE_ENABLE, 2, 1);
		r->laps++;
	}
	return NULL;
}

static void test_commands_during_queue_resets(void **state)
{
	struct nic_setup setup = { .pairs = PAIRS, .size = 16 };
	struct nic *nic = *state;
	struct resetter resetter = { .nic = nic };
	pthread_t thread;

	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	virtio_add(&setup.also, VIRTIO_NET_F_CTRL_RX);
	nic_up(nic, &setup);
	assert_true(nic->rings[2].desc_gpa < BOARD_LOW_SIZE);
	assert_int_equal(set_pairs(nic, PAIRS), VIRTIO_NET_OK);
	assert_int_equal(pthread_create(&thread, NULL, reset_main, &resetter), 0);
	for (unsigned i = 0; i < 300; i++) {
		const uint8_t on = i % 2;

		assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC,
					     &on, sizeof(on)),
				 VIRTIO_NET_OK);
	}
	atomic_store(&resetter.stop, true);
	pthread_join(thread, NULL);
	assert_true(resetter.laps > 0);
	assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS);
	nic_ping_on(nic, 0);
}

int main(void)
{
#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, nic_unmake)
	const struct CMUnitTest tests[] = {
		ON(make, test_g3_pairs_in_use),
		ON(make, test_g3_nothing_is_lost_while_pairs_change),
		ON(make_many, test_as_many_pairs_as_there_can_be),
		ON(make, test_g4_where_the_control_queue_is),
		ON(make, test_g26_sparse_queues),
		ON(make, test_a_queue_enabled_late),
		ON(make, test_shared_vectors),
		ON(make, test_rss_steers_until_pairs_are_set),
		ON(make, test_rss_takes_no_pair_away),
		ON(make, test_refused_pairs_and_steering),
		ON(make_pio, test_kicks_by_port),
		ON(make, test_kicks_with_data),
		ON(make, test_commands_during_queue_resets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
