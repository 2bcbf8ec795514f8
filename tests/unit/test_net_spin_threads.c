/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a policy decides while the worker spins for another queue. The spins are so long that
 * nothing in a test waits for their end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "tests/unit/libnet.h"

#define EVER   3600000000u /* us: an hour */
#define PERIOD 1000u

struct spin {
	const struct net_queue *queue;
	bool under_way;
};

static void look_at_spin(void *ctx)
{
	struct spin *spin = ctx;

	spin->under_way = spin->queue->spinning;
}

/* Whether the worker spins for the receive queue, and will go on: asking alone does not end it. */
static bool receiver_spins(struct nic *nic)
{
	struct spin spin = { .queue = &nic_pair(nic, 0)->rx };

	worker_call(&spin.queue->worker->worker, look_at_spin, &spin);
	return spin.under_way;
}

static void post_buffer(struct nic *nic, uint64_t gpa)
{
	net_add_rx(nic, gpa, NET_SIZE);
	nic_publish_rx(nic);
}

/* Receives until there is a spin: not each frame leads to one where others want the CPU. */
static void start_spin(struct nic *nic)
{
	uint64_t gpa = board_alloc(&nic->board, NET_SIZE, 1);
	uint32_t written;
	time_t until = 0;

	/* One more than there are frames: who waits for buffers does not spin. */
	post_buffer(nic, gpa);
	while (!receiver_spins(nic)) {
		assert_true(net_has_time(&until));
		post_buffer(nic, gpa);
		net_send_to(nic, NET_SIZE, 1);
		nic_wait_rx(nic, &written);
	}
}

/*
 * A kick comes for a ring that is empty by now, and its policy starts a timer and turns kicks off.
 * The next packet waits for that timer, not for the end of the receive queue's spin.
 */
static void run_kick_during_a_spin(enum net_workers workers, unsigned kind)
{
	const struct net_tuning tuning = { .mitigation = MITIGATE_FIXED,
					   .period_usecs = PERIOD,
					   .latency_usecs = PERIOD,
					   .poll = NET_POLL_FIXED,
					   .poll_usecs = EVER,
					   .workers = workers };
	const struct nic_config config = { .tuning = tuning };
	const struct nic_setup setup = { .packed = kind & 1, .no_event_idx = kind & 2 };
	struct nic *nic = nic_new(&config);
	const struct net_counters *tx = &nic_pair(nic, 0)->tx.counters;

	nic_up(nic, &setup);
	start_spin(nic);
	driver_kick(&nic->driver, NIC_TX);
	nic_wait_counter(&tx->kicks, 1);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, kind));
	nic_publish_tx(nic);
	net_expect_packet(nic, kind);
	nic_wait_tx(nic);
	assert_true(net_counter(&tx->timers_useful) + net_counter(&tx->timers_empty) > 0);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->rx.counters.polls_missed), 0);
	nic_fini(nic);
	free(nic);
}

static void test_a_kick_during_a_spin_starts_a_timer(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		run_kick_during_a_spin(NET_WORKERS_PAIR, kind);
		run_kick_during_a_spin(NET_WORKERS_ONE, kind);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_kick_during_a_spin_starts_a_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
