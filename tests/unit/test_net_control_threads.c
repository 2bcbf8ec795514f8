/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the control queue does to a NIC that runs: its filter, its counters, its answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "devices/net/loopback.h"
#include "tests/unit/libflow.h"
#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

static const uint8_t own[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };
static const uint8_t other[6] = { 0x02, 0x66, 0x77, 0x88, 0x99, 0xaa };
static const uint8_t third[6] = { 0x02, 0xbb, 0xcc, 0xdd, 0xee, 0xff };
static const uint8_t group[6] = { 0x01, 0x00, 0x5e, 0x00, 0x00, 0x05 };
static const uint8_t everyone[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

static uint8_t set_mode(struct nic *nic, uint8_t mode, uint8_t on)
{
	return nic_command(nic, VIRTIO_NET_CTRL_RX, mode, &on, sizeof(on));
}

/* ---- frames that are wanted, and others ---- */

enum { FRAME = NET_SIZE };

static void send_to(struct nic *nic, const uint8_t mac[6], int vlan)
{
	uint8_t packet[FRAME] = { 0 };

	memcpy(packet + NIC_HEADER, mac, 6);
	if (vlan >= 0) {
		packet[NIC_HEADER + 12] = 0x81;
		packet[NIC_HEADER + 14] = (uint8_t)(vlan >> 8);
		packet[NIC_HEADER + 15] = (uint8_t)vlan;
	}
	nic_peer_send(nic, packet, FRAME);
}

/* A frame arrives, or is counted as not wanted; there is a buffer for each. */
static void expect_arrival(struct nic *nic, const uint8_t mac[6], int vlan, bool arrives)
{
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;
	uint64_t filtered = net_counter(&rx->filtered), packets = net_counter(&rx->packets);
	uint32_t written;

	if (nic->rx.free == nic->rx.size) {
		net_add_rx(nic, board_alloc(&nic->board, FRAME, 1), FRAME);
		nic_publish_rx(nic);
	}
	send_to(nic, mac, vlan);
	if (arrives) {
		nic_wait_rx(nic, &written);
		assert_int_equal(written, FRAME);
		assert_int_equal(net_counter(&rx->filtered), filtered);
	} else {
		nic_wait_counter(&rx->filtered, filtered + 1);
		assert_int_equal(net_counter(&rx->packets), packets);
	}
}

static void test_rx_modes(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_RX_EXTRA);
	/* What a mode is switched to, and who gets through then: own, other, group, everyone. */
	static const struct {
		uint8_t mode, on;
		bool arrives[4];
	} steps[] = {
		{ VIRTIO_NET_CTRL_RX_PROMISC, 1, { true, true, true, true } },
		{ VIRTIO_NET_CTRL_RX_PROMISC, 0, { true, false, false, true } },
		{ VIRTIO_NET_CTRL_RX_ALLMULTI, 1, { true, false, true, true } },
		{ VIRTIO_NET_CTRL_RX_ALLUNI, 1, { true, true, true, true } },
		{ VIRTIO_NET_CTRL_RX_NOBCAST, 1, { true, true, true, false } },
		{ VIRTIO_NET_CTRL_RX_NOMULTI, 1, { true, true, false, false } },
		{ VIRTIO_NET_CTRL_RX_NOUNI, 1, { false, false, false, false } },
		{ VIRTIO_NET_CTRL_RX_NOUNI, 0, { true, true, false, false } },
		{ VIRTIO_NET_CTRL_RX_PROMISC, 1, { true, true, true, true } },
	};
	const uint8_t *const macs[] = { own, other, group, everyone };
	struct nic *nic = *state;

	nic_up(nic, &setup);
	for (unsigned m = 0; m < ARRAY_SIZE(macs); m++)
		expect_arrival(nic, macs[m], -1, true);
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		assert_int_equal(set_mode(nic, steps[i].mode, steps[i].on), VIRTIO_NET_OK);
		for (unsigned m = 0; m < ARRAY_SIZE(macs); m++)
			expect_arrival(nic, macs[m], -1, steps[i].arrives[m]);
	}
}

/* G28: without the features everything arrives. */
static void test_g28_no_filter_without_the_features(void **state)
{
	const struct nic_setup setup = { .control = true };
	struct nic *nic = *state;

	nic_up(nic, &setup);
	expect_arrival(nic, other, -1, true);
	expect_arrival(nic, group, -1, true);
	expect_arrival(nic, other, 77, true);
	assert_int_equal(set_mode(nic, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_ERR);
	expect_arrival(nic, other, 77, true);
}

static uint8_t set_tables(struct nic *nic, const uint8_t *unicast, uint32_t unicasts,
			  const uint8_t *multicast, uint32_t multicasts)
{
	uint8_t data[8 + 200 * 6];
	uint32_t at = 0;

	memcpy(data, &unicasts, 4);
	at += 4;
	for (uint32_t i = 0; i < unicasts; i++, at += 6)
		memcpy(data + at, unicast, 6);
	memcpy(data + at, &multicasts, 4);
	at += 4;
	for (uint32_t i = 0; i < multicasts; i++, at += 6)
		memcpy(data + at, multicast, 6);
	return nic_command(nic, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, data, at);
}

static void test_g28_address_tables(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_CTRL_RX);
	struct nic *nic = *state;

	nic_up(nic, &setup);
	assert_int_equal(set_mode(nic, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_OK);
	expect_arrival(nic, other, -1, false);
	assert_int_equal(set_tables(nic, other, 1, group, 1), VIRTIO_NET_OK);
	expect_arrival(nic, other, -1, true);
	expect_arrival(nic, group, -1, true);
	expect_arrival(nic, third, -1, false);
	/* Too many of one kind: all of that kind. */
	assert_int_equal(set_tables(nic, other, 100, group, 1), VIRTIO_NET_OK);
	expect_arrival(nic, third, -1, true);
	assert_int_equal(set_tables(nic, NULL, 0, NULL, 0), VIRTIO_NET_OK);
	expect_arrival(nic, other, -1, false);
	expect_arrival(nic, own, -1, true);
}

static void test_g27_the_address_changes_until_the_reset(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_MAC_ADDR);
	struct nic *nic = *state;

	for (unsigned lap = 0; lap < 2; lap++) {
		nic_up(nic, &setup);
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(driver_config(&nic->driver, i, 1), own[i]);
		assert_int_equal(set_mode(nic, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_OK);
		expect_arrival(nic, other, -1, false);
		assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_MAC,
					     VIRTIO_NET_CTRL_MAC_ADDR_SET, other, 6),
				 VIRTIO_NET_OK);
		expect_arrival(nic, other, -1, true);
		expect_arrival(nic, own, -1, false);
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(driver_config(&nic->driver, i, 1), other[i]);
	}
}

static uint8_t set_vlan(struct nic *nic, uint8_t code, uint16_t id)
{
	return nic_command(nic, VIRTIO_NET_CTRL_VLAN, code, &id, sizeof(id));
}

static void test_g28_vlans(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_VLAN);
	struct nic *nic = *state;

	nic_up(nic, &setup);
	assert_int_equal(set_mode(nic, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_OK);
	expect_arrival(nic, own, 5, false);
	expect_arrival(nic, own, -1, true);
	assert_int_equal(set_vlan(nic, VIRTIO_NET_CTRL_VLAN_ADD, 5), VIRTIO_NET_OK);
	expect_arrival(nic, own, 5, true);
	expect_arrival(nic, own, 6, false);
	assert_int_equal(set_vlan(nic, VIRTIO_NET_CTRL_VLAN_DEL, 5), VIRTIO_NET_OK);
	expect_arrival(nic, own, 5, false);
	assert_int_equal(set_vlan(nic, VIRTIO_NET_CTRL_VLAN_ADD, 4096), VIRTIO_NET_ERR);
	for (uint16_t id = 1; id < 4096; id++)
		assert_int_equal(set_vlan(nic, VIRTIO_NET_CTRL_VLAN_ADD, id), VIRTIO_NET_OK);
	expect_arrival(nic, own, 4095, true);
}

/* ---- G5 and G6 ---- */

static void test_g5_every_class_has_its_answer(void **state)
{
	/* A class and a code, with data that would do, and the feature that brings it. */
	static const struct {
		uint8_t class, code;
		unsigned feature;
		uint8_t len;
	} commands[] = {
		{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_F_CTRL_RX, 1 },
		{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLUNI, VIRTIO_NET_F_CTRL_RX_EXTRA, 1 },
		{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_F_CTRL_RX, 8 },
		{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_F_CTRL_MAC_ADDR,
		  6 },
		{ VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, VIRTIO_NET_F_CTRL_VLAN, 2 },
		{ VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK,
		  VIRTIO_NET_F_GUEST_ANNOUNCE, 0 },
		{ VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
		  VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, 8 },
		{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_TX_SET,
		  VIRTIO_NET_F_NOTF_COAL, 8 },
		{ VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET,
		  VIRTIO_NET_F_VQ_NOTF_COAL, 12 },
		{ VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_HASH_CONFIG, VIRTIO_NET_F_HASH_REPORT,
		  13 },
	};
	static const uint8_t zeroes[16];
	struct nic *nic = *state;

	for (unsigned with = 0; with < ARRAY_SIZE(commands); with++) {
		struct nic_setup setup = NET_WITH(commands[with].feature, VIRTIO_NET_F_STATUS);

		nic_up(nic, &setup);
		for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
			bool ok = commands[i].feature == commands[with].feature;

			assert_int_equal(nic_command(nic, commands[i].class, commands[i].code,
						     zeroes, commands[i].len),
					 ok ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
			/* A byte less is too little. */
			if (commands[i].len)
				assert_int_equal(nic_command(nic, commands[i].class,
							     commands[i].code, zeroes,
							     commands[i].len - 1u),
						 VIRTIO_NET_ERR);
		}
		assert_int_equal(nic_command(nic, 77, 0, zeroes, 8), VIRTIO_NET_ERR);
		assert_int_equal(nic_command(nic, 0, 77, zeroes, 8), VIRTIO_NET_ERR);
	}
}

/* Linux from 6.5 on polls for the answer, with no vector for the queue. */
static void test_g6_a_command_right_after_driver_ok(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_CTRL_RX);
	struct nic *nic = *state;

	for (unsigned before = 0; before < 2; before++) {
		time_t until = time(NULL) + BOARD_PATIENCE / 1000;
		struct ring_piece pieces[2];
		uint32_t written;
		uint8_t *memory;
		uint64_t gpa;
		void *token;

		nic_prepare(nic, &setup);
		driver_set_queue_vector(&nic->driver, nic->control, VIRTIO_NO_VECTOR);
		gpa = board_alloc(&nic->board, 4, 1);
		memory = board_ptr(&nic->board, gpa, 4);
		memory[2] = 1;
		memory[3] = 0xee;
		pieces[0] = (struct ring_piece){ gpa, 3 };
		pieces[1] = (struct ring_piece){ gpa + 3, 1 };
		assert_int_equal(ring_add(&nic->rings[nic->control], pieces, 1, 1, nic), 0);
		if (before)
			nic_publish(nic, nic->control);
		driver_add_status(&nic->driver, VIRTIO_CONFIG_S_DRIVER_OK);
		if (!before)
			nic_publish(nic, nic->control);
		while (!ring_take(&nic->rings[nic->control], &token, &written))
			assert_true(time(NULL) <= until);
		assert_int_equal(written, 1);
		assert_int_equal(memory[3], VIRTIO_NET_OK);
	}
}

/* ---- the hash in the header ---- */

enum { HASH_HEADER = 20 };

static void test_hash_report(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_HASH_REPORT);
	struct net_rss rss = { .types = NET_HASH_TYPES, .key_len = NET_HASH_KEY_MAX };
	struct nic *nic = *state;
	uint8_t config[13 + NET_HASH_KEY_MAX] = { 0 };
	uint64_t seed = 20260601, gpa;

	memcpy(rss.key, flow_key, NET_HASH_KEY_MAX);
	memcpy(config, &rss.types, 4);
	config[12] = NET_HASH_KEY_MAX;
	memcpy(config + 13, flow_key, NET_HASH_KEY_MAX);
	nic_up(nic, &setup);
	gpa = board_alloc(&nic->board, 1024, 1);
	for (unsigned i = 0; i < 400; i++) {
		uint8_t packet[HASH_HEADER + FLOW_FRAME_MAX] = { 0 };
		const uint8_t *got = board_ptr(&nic->board, gpa, 1024);
		struct net_hash expected = { 0 };
		struct flow_frame frame;
		uint32_t written, value;
		uint16_t report;

		/* Nothing is hashed until the driver says how. */
		if (i == 20)
			assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_MQ,
						     VIRTIO_NET_CTRL_MQ_HASH_CONFIG, config,
						     sizeof(config)),
					 VIRTIO_NET_OK);
		flow_random_frame(&frame, &seed);
		if (frame.len < 14)
			continue;
		memcpy(packet + HASH_HEADER, frame.data, frame.len);
		net_add_rx(nic, gpa, 1024);
		nic_publish_rx(nic);
		nic_peer_send(nic, packet, HASH_HEADER + frame.len);
		nic_wait_rx(nic, &written);
		assert_int_equal(written, HASH_HEADER + frame.len);
		assert_memory_equal(got + HASH_HEADER, frame.data, frame.len);
		if (i >= 20)
			expected = net_hash_frame(&rss, frame.data, frame.len);
		memcpy(&value, got + 12, 4);
		memcpy(&report, got + 16, 2);
		assert_int_equal(report, expected.report);
		if (report)
			assert_int_equal(value, expected.value);
	}
}

/* ---- the announcement ---- */

static unsigned net_status(struct nic *nic)
{
	return (unsigned)driver_config(&nic->driver, offsetof(struct virtio_net_config, status), 2);
}

static void test_announcement(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_STATUS);
	const struct nic_setup without = NET_WITH(VIRTIO_NET_F_STATUS);
	struct nic *nic = *state;
	uint32_t generation;

	nic_up(nic, &without);
	virtio_net_announce(&nic->net);
	assert_int_equal(net_status(nic), VIRTIO_NET_S_LINK_UP);
	assert_int_equal(driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, 0), 0);
	nic_up(nic, &setup);
	generation = driver_read(&nic->driver, COMMON_GENERATION, 1);
	virtio_net_announce(&nic->net);
	assert_int_equal(driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE), 1);
	assert_int_not_equal(driver_read(&nic->driver, COMMON_GENERATION, 1), generation);
	assert_int_equal(net_status(nic), VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK,
				     NULL, 0),
			 VIRTIO_NET_OK);
	assert_int_equal(net_status(nic), VIRTIO_NET_S_LINK_UP);
	/* One that was not answered is not for the next driver. */
	virtio_net_announce(&nic->net);
	nic_up(nic, &setup);
	assert_int_equal(net_status(nic), VIRTIO_NET_S_LINK_UP);
}

/* ---- statistics ---- */

static void expect_stats(struct nic *nic, uint16_t queue, uint8_t type)
{
	const struct net_ctrl_stats_request request = { .vq_index = queue, .types = 1ull << type };
	const struct net_queue *q =
		queue % 2 ? &nic_pair(nic, 0)->tx : &nic_pair(nic, 0)->rx;
	const struct net_counters *c = &q->counters;
	struct net_ctrl_stats_reply reply;

	assert_int_equal(nic_query(nic, VIRTIO_NET_CTRL_STATS, VIRTIO_NET_CTRL_STATS_GET, &request,
				   sizeof(request), &reply, sizeof(reply)),
			 VIRTIO_NET_OK);
	assert_int_equal(reply.type, type);
	assert_int_equal(reply.vq_index, queue);
	assert_int_equal(reply.size, sizeof(reply));
	assert_int_equal(reply.counters[0], net_counter(&c->kicks));
	assert_int_equal(reply.counters[1], net_counter(&c->packets));
	assert_int_equal(reply.counters[2], net_counter(&c->bytes));
	assert_int_equal(reply.counters[3], net_counter(&c->interrupts));
	assert_int_equal(reply.counters[4], net_counter(&c->dropped));
}

static void test_statistics(void **state)
{
	const struct nic_setup setup = NET_WITH(VIRTIO_NET_F_DEVICE_STATS, VIRTIO_NET_F_CTRL_RX);
	struct nic *nic = *state;
	uint64_t packets = net_counter(&nic_pair(nic, 0)->tx.counters.packets), types;

	nic_up(nic, &setup);
	for (unsigned i = 0; i < 5; i++)
		nic_ping(nic);
	net_add_tx(nic, net_tx_piece(nic, 5, 1));
	nic_publish_tx(nic);
	nic_wait_tx(nic);
	/* A command that the pair's worker takes part in: whatever it did before is counted. */
	assert_int_equal(set_mode(nic, VIRTIO_NET_CTRL_RX_PROMISC, 1), VIRTIO_NET_OK);
	assert_int_equal(nic_query(nic, VIRTIO_NET_CTRL_STATS, VIRTIO_NET_CTRL_STATS_QUERY, NULL, 0,
				   &types, sizeof(types)),
			 VIRTIO_NET_OK);
	assert_int_equal(types, VIRTIO_NET_STATS_TYPE_CVQ | VIRTIO_NET_STATS_TYPE_RX_BASIC |
					VIRTIO_NET_STATS_TYPE_TX_BASIC);
	expect_stats(nic, NIC_RX, 0);
	expect_stats(nic, NIC_TX, 16);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->tx.counters.packets), packets + 5);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->tx.counters.drops[NET_DROP_SHORT]), 1);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, nic_make, nic_unmake)
	const struct CMUnitTest tests[] = {
		FRESH(test_rx_modes),
		FRESH(test_g28_no_filter_without_the_features),
		FRESH(test_g28_address_tables),
		FRESH(test_g27_the_address_changes_until_the_reset),
		FRESH(test_g28_vlans),
		FRESH(test_g5_every_class_has_its_answer),
		FRESH(test_g6_a_command_right_after_driver_ok),
		FRESH(test_hash_report),
		FRESH(test_announcement),
		FRESH(test_statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
