/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which event takes a packet, or brings an interrupt: a kick, a timer, a spin. Times are either so
 * long that nothing in a test waits for their end, or short and of no matter; counters tell what
 * happened.
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

#define EVER  3600000000u /* us: an hour */
#define SHORT 1000u
#define RING  64u
#define FULL  (RING - RING / 4u) /* when a policy takes a ring for full */
#define MANY  1000u

static struct nic *make(const struct net_tuning *tuning, unsigned pairs)
{
	const struct nic_config config = { .pairs = pairs, .ring = RING, .tuning = *tuning };

	return nic_new(&config);
}

static void end(struct nic *nic)
{
	nic_fini(nic);
	free(nic);
}

static struct net_counters *tx_counters(struct nic *nic)
{
	return &nic_pair(nic, 0)->tx.counters;
}

static uint64_t timers(struct nic *nic)
{
	const struct net_counters *c = tx_counters(nic);

	return net_counter(&c->timers_useful) + net_counter(&c->timers_empty);
}

struct timer {
	const struct loop *loop;
	uint64_t deadline;
};

static void look_at_timer(void *ctx)
{
	struct timer *timer = ctx;

	timer->deadline = timer->loop->deadline;
}

/* When the worker of the first pair's transmit queue will be woken by its timer; 0: never. */
static uint64_t timer_of(struct nic *nic)
{
	struct worker *worker = &nic_pair(nic, 0)->tx.worker->worker;
	struct timer timer = { .loop = &worker->loop };

	worker_call(worker, look_at_timer, &timer);
	return timer.deadline;
}

/* Publishes one packet; true if the device wanted a kick for it, and got it. */
static bool send_one(struct nic *nic, uint32_t number)
{
	unsigned kicks = nic->kicks[NIC_TX];

	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, number));
	nic_publish_tx(nic);
	return nic->kicks[NIC_TX] != kicks;
}

/*
 * The workers have done what was to be done: they have answered since. (A worker's first look at
 * its rings, for one, may come after DRIVER_OK, and needs no kick.)
 */
static void settle(struct nic *nic)
{
	const uint32_t rule[2] = { 0 };

	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
				     VIRTIO_NET_CTRL_NOTF_COAL_TX_SET, rule, sizeof(rule)),
			 VIRTIO_NET_OK);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
				     VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, rule, sizeof(rule)),
			 VIRTIO_NET_OK);
}

/* Rings of all kinds that matter for kicks: `kind` is below 4. */
static void up(struct nic *nic, unsigned kind, unsigned pairs)
{
	struct nic_setup setup = {
		.pairs = pairs, .control = true, .packed = kind & 1, .no_event_idx = kind & 2
	};

	virtio_add(&setup.also, VIRTIO_NET_F_NOTF_COAL);
	virtio_add(&setup.also, VIRTIO_F_RING_RESET);
	nic_up(nic, &setup);
	settle(nic);
}

static void expect_packets(struct nic *nic, uint32_t first, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		net_expect_packet(nic, first + i);
	for (unsigned i = 0; i < count; i++)
		nic_wait_tx(nic);
}

/* 2008's: the first kick starts the timer, here one without end; only a second one takes both. */
static void test_fixed_waits_for_the_second_kick(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		const struct net_tuning tuning = { .mitigation = MITIGATE_FIXED,
						   .period_usecs = EVER,
						   .latency_usecs = EVER };
		struct nic *nic = make(&tuning, 1);

		up(nic, kind, 1);
		for (unsigned lap = 0; lap < 3; lap++) {
			uint64_t kicks = net_counter(&tx_counters(nic)->kicks);

			assert_true(send_one(nic, 1));
			nic_wait_counter(&tx_counters(nic)->kicks, kicks + 1);
			settle(nic);
			assert_false(send_one(nic, 2));
			settle(nic);
			assert_false(board_wait_fd(nic->peer, POLLIN, 0));
			driver_kick(&nic->driver, NIC_TX);
			expect_packets(nic, 1, 2);
			assert_int_equal(net_counter(&tx_counters(nic)->kicks), kicks + 2);
			settle(nic);
		}
		assert_int_equal(timers(nic), 0);
		end(nic);
	}
}

/* The second kick is asked for when the ring is about full; without event indices none is. */
static void test_fixed_is_kicked_by_a_full_ring(void **state)
{
	const struct net_tuning tuning = { .mitigation = MITIGATE_FIXED,
					   .period_usecs = EVER,
					   .latency_usecs = EVER };

	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		struct nic *nic = make(&tuning, 1);

		up(nic, kind, 1);
		assert_true(send_one(nic, 0));
		nic_wait_counter(&tx_counters(nic)->kicks, 1);
		settle(nic);
		for (unsigned i = 1; i < FULL; i++)
			assert_int_equal(send_one(nic, i), !(kind & 2) && i == FULL - 1);
		if (kind & 2)
			driver_kick(&nic->driver, NIC_TX);
		expect_packets(nic, 0, FULL);
		assert_int_equal(net_counter(&tx_counters(nic)->kicks), 2);
		assert_int_equal(timers(nic), 0);
		end(nic);
	}
}

/* Nobody kicks again: the timer takes the packet. */
static void test_fixed_leaves_by_the_timer(void **state)
{
	const struct net_tuning tuning = { .mitigation = MITIGATE_FIXED,
					   .period_usecs = SHORT,
					   .latency_usecs = EVER };

	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		struct nic *nic = make(&tuning, 1);

		up(nic, kind, 1);
		for (unsigned i = 0; i < 5; i++) {
			assert_true(send_one(nic, i));
			expect_packets(nic, i, 1);
			nic_wait_counter(&tx_counters(nic)->timers_useful, i + 1);
			settle(nic);
			assert_int_equal(net_counter(&tx_counters(nic)->kicks), i + 1);
		}
		assert_int_equal(net_counter(&tx_counters(nic)->timers_empty), 0);
		end(nic);
	}
}

/*
 * P1, P3: a lone packet after an idle time leaves by its own kick, however long mitigation might
 * have it wait. fixed is what that was wrong with.
 */
static void test_p1_a_lone_packet_leaves_at_once(void **state)
{
	static const enum mitigate_kind kinds[] = { MITIGATE_OFF, MITIGATE_LGUEST, MITIGATE_WINDOW,
						    MITIGATE_ADAPTIVE };

	(void)state;
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(kinds); i++) {
		const struct net_tuning tuning = { .mitigation = kinds[i / 4],
						   .period_usecs = EVER,
						   .latency_usecs = EVER };
		struct nic *nic = make(&tuning, 1);

		up(nic, i % 4, 1);
		assert_true(send_one(nic, i));
		expect_packets(nic, i, 1);
		assert_int_equal(net_counter(&tx_counters(nic)->kicks), 1);
		assert_int_equal(net_counter(&tx_counters(nic)->timers_useful), 0);
		end(nic);
	}
}

/*
 * P1: nothing but sending, through small rings, until the driver stops for good: the last packets,
 * which no more follow, leave too. Whoever finds the ring full sleeps for an interrupt only.
 */
static void flood_tx(struct nic *nic, uint16_t size, unsigned kind)
{
	struct nic_setup setup = { .packed = kind & 1, .no_event_idx = kind & 2, .size = size,
				   .no_rx = true };
	uint32_t sent = 0, received = 0;
	uint64_t gpa;

	nic_up(nic, &setup);
	gpa = board_alloc(&nic->board, NET_SIZE * size, 4);
	while (received < 20u * size) {
		uint8_t packet[2 * NET_SIZE];

		while (nic->tx.free && sent < 20u * size) {
			struct ring_piece piece = { gpa + sent % size * NET_SIZE, NET_SIZE };

			nic_fill(board_ptr(&nic->board, piece.gpa, NET_SIZE), NET_SIZE, sent++);
			assert_int_equal(ring_add(&nic->tx, &piece, 1, 0, nic), 0);
			nic_publish_tx(nic);
		}
		assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), NET_SIZE);
		assert_true(nic_is(packet, NET_SIZE, received++));
		nic_wait_tx(nic);
	}
	assert_int_equal(nic->tx.free, size);
	assert_false(board_wait_fd(nic->peer, POLLIN, 0));
}

static void test_p1_nothing_but_sending(void **state)
{
	static const uint16_t sizes[] = { 2, 16, 64 };

	(void)state;
	for (unsigned i = 0; i < 2 * MITIGATE_KINDS; i++) {
		const struct net_tuning tuning = {
			.mitigation = i / 2,
			.period_usecs = 150,
			.latency_usecs = 200,
			.poll = i % 2 ? NET_POLL_FIXED : NET_POLL_OFF,
			.poll_usecs = 50,
		};
		struct nic *nic = make(&tuning, 1);

		for (unsigned s = 0; s < ARRAY_SIZE(sizes); s++)
			for (unsigned kind = 0; kind < 4; kind++)
				flood_tx(nic, sizes[s], kind);
		end(nic);
	}
}

/* P12: with nothing to do, no policy and no way of polling keeps a worker awake. */
static void test_p12_idle(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3 * MITIGATE_KINDS; i++) {
		static const enum net_poll polls[] = { NET_POLL_OFF, NET_POLL_AUTO,
						       NET_POLL_FIXED };
		const struct net_tuning tuning = {
			.mitigation = i / 3,
			.period_usecs = 150,
			.latency_usecs = 200,
			.poll = polls[i % 3],
			.poll_usecs = 50,
			.workers = i % 2 ? NET_WORKERS_PAIR : NET_WORKERS_ONE,
		};
		struct nic *nic = make(&tuning, 1);
		time_t until = 0;

		up(nic, i % 4, 1);
		for (unsigned k = 0; k < 5; k++)
			nic_ping(nic);
		/* A last one may still have to find that nothing came. */
		while (timer_of(nic)) {
			assert_true(net_has_time(&until));
			poll(NULL, 0, 1);
		}
		nic_expect_idle(nic);
		end(nic);
	}
}

/* ---- spins ---- */

static struct net_tuning spinning(enum net_workers workers)
{
	/* The first spin is an eighth of the longest: for the length of a test, it has no end. */
	return (struct net_tuning){ .poll = NET_POLL_FIXED,
				    .poll_usecs = EVER,
				    .workers = workers };
}

/*
 * A packet that comes while the worker spins needs no kick, and is taken though none comes. (A host
 * that wants the worker's CPU ends its spins for a while: hence not each packet finds one.)
 */
static void test_a_spin_finds_a_packet_to_send(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 8; kind++) {
		const struct net_tuning tuning =
			spinning(kind & 4 ? NET_WORKERS_SPLIT : NET_WORKERS_PAIR);
		struct nic *nic = make(&tuning, 1);
		const struct net_counters *c = tx_counters(nic);
		unsigned silent = 0;
		time_t until = 0;

		up(nic, kind % 4, 1);
		for (uint32_t i = 0; silent < 10; i++) {
			uint64_t gpa = nic->board.next;

			assert_true(net_has_time(&until));
			silent += !send_one(nic, i);
			expect_packets(nic, i, 1);
			nic->board.next = gpa;
		}
		assert_true(net_counter(&c->polls_hit) > 0);
		assert_int_equal(net_counter(&c->polls_missed), 0);
		assert_int_equal(net_counter(&c->kicks), nic->kicks[NIC_TX]);
		end(nic);
	}
}

/* The same for the wire: what comes in during a spin is not left there until it ends. */
static void test_a_spin_finds_a_packet_to_receive(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const struct net_tuning tuning = spinning(i);
		struct nic *nic = make(&tuning, 1);
		const struct net_counters *c = &nic_pair(nic, 0)->rx.counters;
		time_t until = 0;

		up(nic, 0, 1);
		while (net_counter(&c->polls_hit) < 10) {
			uint64_t gpa = nic->board.next;

			assert_true(net_has_time(&until));
			net_receive(nic, 1);
			nic->board.next = gpa;
		}
		assert_int_equal(net_counter(&c->polls_missed), 0);
		end(nic);
	}
}

/* Both queues have just had packets: whoever may spin does. */
static void start_spin(struct nic *nic)
{
	for (unsigned i = 0; i < 4; i++)
		nic_ping(nic);
}

/* Commands, resets of queues and of the device do not wait for the end of a spin. */
static void test_a_spin_ends_for_who_waits(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 12; i++) {
		const struct net_tuning tuning = spinning(i % 3);
		struct nic *nic = make(&tuning, 1);

		up(nic, i % 4, 1);
		start_spin(nic);
		settle(nic);
		for (unsigned q = 0; q < 2; q++) {
			start_spin(nic);
			assert_true(driver_reset_queue(&nic->driver, q));
			ring_fini(&nic->rings[q]);
			assert_true(driver_set_queue_vector(&nic->driver, q, q + 1));
			nic_setup_queue(nic, q, 0);
		}
		start_spin(nic);
		up(nic, i % 4, 1);
		nic_ping(nic);
		assert_int_equal(net_counter(&tx_counters(nic)->polls_missed), 0);
		assert_int_equal(net_counter(&nic_pair(nic, 0)->rx.counters.polls_missed), 0);
		end(nic);
	}
}

/* A spin of one queue holds up neither another's timer, nor an interrupt that was put off. */
static void test_timers_end_during_a_spin(void **state)
{
	const uint32_t later[2] = { MANY, SHORT };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct net_tuning tuning = spinning(i ? NET_WORKERS_ONE : NET_WORKERS_PAIR);
		struct nic *nic = make(&tuning, 1);
		const struct net_counters *c = &nic_pair(nic, 0)->rx.counters;
		time_t until = 0;

		up(nic, 0, 1);
		assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
					     VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, later,
					     sizeof(later)),
				 VIRTIO_NET_OK);
		/* Each comes with the interrupt of a timer, or the test ends here. */
		while (net_counter(&c->polls_hit) < 5) {
			uint64_t gpa = nic->board.next;

			assert_true(net_has_time(&until));
			net_receive(nic, 2);
			nic->board.next = gpa;
		}
		assert_true(net_counter(&c->timers_interrupt) > 0);
		end(nic);
	}
}

/* ---- interrupts ---- */

/* TX: how many decisions there were, which is one for each batch or packet. */
static uint64_t decisions(struct nic *nic)
{
	const struct net_counters *c = tx_counters(nic);

	return net_counter(&c->interrupts) + net_counter(&c->unwanted);
}

static void send_many(struct nic *nic, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
	nic_publish_tx(nic);
	expect_packets(nic, 0, count);
	settle(nic);
}

static void test_decisions_are_as_many_as_intr_says(void **state)
{
	static const enum net_interrupting intrs[] = { NET_INTR_BATCH, NET_INTR_PACKET,
						       NET_INTR_EMPTY };

	(void)state;
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(intrs); i++) {
		const struct net_tuning tuning = { .intr = intrs[i / 4], .budget_packets = 7 };
		struct nic *nic = make(&tuning, 1);
		const struct net_counters *c = tx_counters(nic);

		up(nic, i % 4, 1);
		send_many(nic, 30);
		send_many(nic, 1);
		assert_int_equal(net_counter(&c->packets), 31);
		/* 30 are 4 batches of 7 and one of 2. */
		assert_int_equal(net_counter(&c->batches), 6);
		assert_int_equal(decisions(nic), tuning.intr == NET_INTR_PACKET ? 31 : 6);
		end(nic);
	}
}

/* As long as the driver has buffers with the device it is left in peace, if it asked for that. */
static void test_empty_interrupts_when_nothing_is_left(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 8; kind++) {
		const struct net_tuning tuning = { .intr = NET_INTR_EMPTY };
		struct nic_setup setup = { .packed = kind & 1, .no_event_idx = kind & 2,
					   .mergeable = kind & 4, .control = true };
		const struct net_counters *c;
		struct nic *nic = make(&tuning, 1);

		virtio_add(&setup.also, VIRTIO_NET_F_NOTF_COAL);
		nic_up(nic, &setup);
		settle(nic);
		c = &nic_pair(nic, 0)->rx.counters;
		ring_interrupts_disable(&nic->rx);
		ring_interrupts_disable(&nic->tx);
		/* The transmit ring is empty after each batch that is not cut short. */
		assert_true(send_one(nic, 1));
		net_expect_packet(nic, 1);
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_TX_VECTOR, BOARD_PATIENCE),
				 1);
		/* Two buffers: the first to be used is not the last. */
		for (unsigned i = 0; i < 2; i++)
			net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
		nic_publish_rx(nic);
		net_send_to(nic, NET_SIZE, 1);
		nic_wait_counter(&c->unwanted, 1);
		settle(nic);
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, 0), 0);
		net_send_to(nic, NET_SIZE, 2);
		assert_int_equal(driver_wait_vector(&nic->driver, NIC_RX_VECTOR, BOARD_PATIENCE),
				 1);
		assert_int_equal(net_counter(&c->interrupts), 1);
		end(nic);
	}
}

/* A queue that dies while an interrupt of its is put off: nobody waits for that any more. */
static void test_a_dead_queue_has_no_timer(void **state)
{
	const uint32_t later[2] = { MANY, SHORT };
	const struct net_tuning tuning = { 0 };
	struct ring_piece bad = { 0x5000000000ull, NET_SIZE };
	struct nic *nic = make(&tuning, 1);

	(void)state;
	up(nic, 0, 1);
	assert_int_equal(nic_command(nic, VIRTIO_NET_CTRL_NOTF_COAL,
				     VIRTIO_NET_CTRL_NOTF_COAL_TX_SET, later, sizeof(later)),
			 VIRTIO_NET_OK);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 1));
	net_add_tx(nic, bad);
	nic_publish_tx(nic);
	net_expect_packet(nic, 1);
	assert_int_not_equal(driver_wait_vector(&nic->driver, NIC_CONFIG_VECTOR, BOARD_PATIENCE),
			     0);
	/* A time that is over would come again and again. */
	assert_int_equal(timer_of(nic), 0);
	poll(NULL, 0, 3);
	nic_expect_idle(nic);
	end(nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixed_waits_for_the_second_kick),
		cmocka_unit_test(test_fixed_is_kicked_by_a_full_ring),
		cmocka_unit_test(test_fixed_leaves_by_the_timer),
		cmocka_unit_test(test_p1_a_lone_packet_leaves_at_once),
		cmocka_unit_test(test_p1_nothing_but_sending),
		cmocka_unit_test(test_p12_idle),
		cmocka_unit_test(test_a_spin_finds_a_packet_to_send),
		cmocka_unit_test(test_a_spin_finds_a_packet_to_receive),
		cmocka_unit_test(test_a_spin_ends_for_who_waits),
		cmocka_unit_test(test_timers_end_during_a_spin),
		cmocka_unit_test(test_decisions_are_as_many_as_intr_says),
		cmocka_unit_test(test_empty_interrupts_when_nothing_is_left),
		cmocka_unit_test(test_a_dead_queue_has_no_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
