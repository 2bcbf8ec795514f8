/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts that are put off (NOTF_COAL, VQ_NOTF_COAL): used buffers show at once, interrupts as
 * was asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define PAIRS	 2u
#define FOREVER	 1000000000u /* usecs: far beyond any test's patience */
#define MANY	 1000u

/* As a command has it. */
struct rule {
	uint32_t packets;
	uint32_t usecs;
};

struct queue_rule {
	uint16_t queue;
	uint16_t reserved;
	struct rule rule;
};

static int make(void **state)
{
	const struct nic_config config = { .pairs = PAIRS };

	*state = nic_new(&config);
	return 0;
}

static void up(struct nic *nic, bool packed, bool no_event_idx)
{
	struct nic_setup setup = { .pairs = PAIRS, .packed = packed, .no_event_idx = no_event_idx };
	const uint16_t pairs = PAIRS;

	virtio_add(&setup.also, VIRTIO_NET_F_NOTF_COAL);
	virtio_add(&setup.also, VIRTIO_NET_F_VQ_NOTF_COAL);
	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
				     &pairs, sizeof(pairs)),
			 VIRTIO_NET_OK);
}

static uint8_t set_rule(struct nic *nic, unsigned direction, struct rule rule)
{
	return nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
			   direction == NIC_RX ? VIRTIO_NET_CTRL_NOTF_COAL_RX_SET :
						 VIRTIO_NET_CTRL_NOTF_COAL_TX_SET,
			   &rule, sizeof(rule));
}

static uint8_t set_queue_rule(struct nic *nic, unsigned queue, struct rule rule)
{
	const struct queue_rule data = { .queue = (uint16_t)queue, .rule = rule };

	return nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, &data,
			   sizeof(data));
}

static uint8_t get_queue_rule(struct nic *nic, unsigned queue, struct rule *rule)
{
	const struct queue_rule data = { .queue = (uint16_t)queue };

	return nic_query(nic, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, &data,
			 4, rule, sizeof(*rule));
}

static void expect_rule(struct nic *nic, unsigned queue, struct rule expected)
{
	struct rule rule;

	assert_int_equal(get_queue_rule(nic, queue, &rule), VIRTIO_NET_OK);
	assert_int_equal(rule.packets, expected.packets);
	assert_int_equal(rule.usecs, expected.usecs);
}

/* One packet through a queue, in its direction. */
static void run_one(struct nic *nic, unsigned queue)
{
	struct ring_piece piece = net_tx_piece(nic, NET_SIZE, 1);
	uint8_t packet[NET_SIZE];

	assert_int_equal(ring_add(&nic->rings[queue], &piece, queue % 2, !(queue % 2), nic), 0);
	nic_publish(nic, queue);
	nic_fill(packet, NET_SIZE, 1);
	if (queue % 2)
		nic_peer_recv_on(nic, queue / 2, packet, NET_SIZE);
	else
		nic_peer_send_on(nic, queue / 2, packet, NET_SIZE);
}

/* It shows as used without an interrupt; looks for it. */
static void take_one(struct nic *nic, unsigned queue)
{
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;
	uint32_t written;
	void *token;

	while (!ring_take(&nic->rings[queue], &token, &written)) {
		assert_true(time(NULL) <= until);
		poll(NULL, 0, 1);
	}
	assert_null(nic->rings[queue].error);
}

/* The worker has ended the batch it was at: it was given something else to do since. */
static void settle(struct nic *nic, unsigned queue)
{
	struct rule rule;

	assert_int_equal(get_queue_rule(nic, queue ^ 1, &rule), VIRTIO_NET_OK);
	assert_int_equal(set_queue_rule(nic, queue ^ 1, rule), VIRTIO_NET_OK);
}

static unsigned raised(struct nic *nic, unsigned queue)
{
	return (unsigned)driver_wait_vector(&nic->driver, queue + 1, 0);
}

static void expect_every(struct nic *nic, unsigned queue, unsigned packets)
{
	assert_int_equal(set_rule(nic, queue % 2, (struct rule){ packets, FOREVER }),
			 VIRTIO_NET_OK);
	for (unsigned lap = 0; lap < 3; lap++) {
		raised(nic, queue);
		assert_false(ring_interrupts_enable(&nic->rings[queue]));
		for (unsigned i = 1; i < packets; i++) {
			run_one(nic, queue);
			take_one(nic, queue);
			settle(nic, queue);
			assert_int_equal(raised(nic, queue), 0);
		}
		run_one(nic, queue);
		assert_int_equal(driver_wait_vector(&nic->driver, queue + 1, BOARD_PATIENCE), 1);
		take_one(nic, queue);
	}
}

static void test_one_interrupt_for_so_many_packets(void **state)
{
	struct nic *nic = *state;

	for (unsigned kind = 0; kind < 4; kind++) {
		up(nic, kind & 1, kind & 2);
		for (unsigned queue = 0; queue < 2 * PAIRS; queue++) {
			expect_every(nic, queue, 5);
			expect_every(nic, queue, 1);
		}
	}
}

/* P3: the last lone packet's interrupt comes by the timer. */
static void test_p3_a_lone_packet_is_not_forgotten(void **state)
{
	struct nic *nic = *state;

	for (unsigned kind = 0; kind < 4; kind++) {
		up(nic, kind & 1, kind & 2);
		for (unsigned queue = 0; queue < 2 * PAIRS; queue++) {
			assert_int_equal(set_rule(nic, queue % 2, (struct rule){ MANY, 3000 }),
					 VIRTIO_NET_OK);
			for (unsigned i = 0; i < 3; i++) {
				assert_false(ring_interrupts_enable(&nic->rings[queue]));
				run_one(nic, queue);
				assert_int_equal(driver_wait_vector(&nic->driver, queue + 1,
								    BOARD_PATIENCE),
						 1);
				take_one(nic, queue);
			}
		}
	}
}

/* With no time to wait, or none to be waited for, nothing is put off. */
static void test_rules_that_put_nothing_off(void **state)
{
	static const struct rule rules[] = {
		{ 0, 0 }, { MANY, 0 }, { 0, FOREVER }, { 1, FOREVER }
	};
	struct nic *nic = *state;

	up(nic, false, false);
	for (unsigned i = 0; i < ARRAY_SIZE(rules); i++) {
		assert_int_equal(set_rule(nic, NIC_RX, rules[i]), VIRTIO_NET_OK);
		assert_false(ring_interrupts_enable(&nic->rx));
		run_one(nic, NIC_RX);
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, BOARD_PATIENCE),
				 1);
		take_one(nic, NIC_RX);
	}
}

static void test_a_new_rule_is_for_what_waits_too(void **state)
{
	struct nic *nic = *state;

	up(nic, false, false);
	assert_int_equal(set_rule(nic, NIC_RX, (struct rule){ MANY, FOREVER }), VIRTIO_NET_OK);
	assert_false(ring_interrupts_enable(&nic->rx));
	run_one(nic, NIC_RX);
	take_one(nic, NIC_RX);
	settle(nic, NIC_RX);
	assert_int_equal(raised(nic, NIC_RX), 0);
	assert_int_equal(set_rule(nic, NIC_RX, (struct rule){ 0, 0 }), VIRTIO_NET_OK);
	assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, BOARD_PATIENCE), 1);
}

/* An interrupt that nobody asked for does not come late either. */
static void test_suppression_holds_at_the_deadline(void **state)
{
	struct nic *nic = *state;
	const struct net_queue *rx = &nic_pair(nic, 0)->rx;

	up(nic, false, false);
	assert_int_equal(set_rule(nic, NIC_RX, (struct rule){ MANY, 1000 }), VIRTIO_NET_OK);
	ring_interrupts_disable(&nic->rx);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t interrupts = net_counter(&rx->counters.interrupts);

		run_one(nic, NIC_RX);
		take_one(nic, NIC_RX);
		poll(NULL, 0, 3);
		settle(nic, NIC_RX);
		assert_int_equal(raised(nic, NIC_RX), 0);
		assert_int_equal(net_counter(&rx->counters.interrupts), interrupts);
	}
}

static void test_rules_of_one_queue(void **state)
{
	const struct rule usual = { 7, 70 }, special = { 9, 90 }, later = { 3, 30 };
	struct nic *nic = *state;
	struct rule rule;

	up(nic, false, false);
	for (unsigned q = 0; q < 2 * PAIRS; q++)
		expect_rule(nic, q, (struct rule){ 0, 0 });
	assert_int_equal(set_rule(nic, NIC_RX, usual), VIRTIO_NET_OK);
	assert_int_equal(set_queue_rule(nic, 2, special), VIRTIO_NET_OK);
	expect_rule(nic, 0, usual);
	expect_rule(nic, 1, (struct rule){ 0, 0 });
	expect_rule(nic, 2, special);
	/* A reset of the queue goes back to what all have. */
	assert_true(driver_reset_queue(&nic->driver, 2));
	assert_int_equal(get_queue_rule(nic, 2, &rule), VIRTIO_NET_ERR);
	ring_fini(&nic->rings[2]);
	assert_true(driver_set_queue_vector(&nic->driver, 2, 3));
	nic_setup_queue(nic, 2, 0);
	expect_rule(nic, 2, usual);
	nic_ping_on(nic, 1);
	/* What is for all is for those with rules of their own, too. */
	assert_int_equal(set_queue_rule(nic, 2, special), VIRTIO_NET_OK);
	assert_int_equal(set_rule(nic, NIC_RX, later), VIRTIO_NET_OK);
	expect_rule(nic, 0, later);
	expect_rule(nic, 2, later);
	/* There is none for the control queue, or beyond. */
	assert_int_equal(get_queue_rule(nic, nic->control, &rule), VIRTIO_NET_ERR);
	assert_int_equal(set_queue_rule(nic, nic->control, special), VIRTIO_NET_ERR);
	assert_int_equal(set_queue_rule(nic, 0xffff, special), VIRTIO_NET_ERR);
	/* None is left after a reset. */
	up(nic, false, false);
	for (unsigned q = 0; q < 2 * PAIRS; q++)
		expect_rule(nic, q, (struct rule){ 0, 0 });
}

int main(void)
{
#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, nic_unmake)
	const struct CMUnitTest tests[] = {
		ON(make, test_one_interrupt_for_so_many_packets),
		ON(make, test_p3_a_lone_packet_is_not_forgotten),
		ON(make, test_rules_that_put_nothing_off),
		ON(make, test_a_new_rule_is_for_what_waits_too),
		ON(make, test_suppression_holds_at_the_deadline),
		ON(make, test_rules_of_one_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
