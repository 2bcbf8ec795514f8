/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What each queue counts, as docs/counters.md has it: every counter by what it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "devices/virtio/net_stats.h"
#include "tests/driver/nic.h"
#include "tests/unit/libnet.h"
#include "vmm/util.h"

#define MS UINT64_C(1000000)

static const struct nic_setup plain = { 0 };

static const struct net_counters *tx_of(struct nic *nic)
{
	return &nic_pair(nic, 0)->tx.counters;
}

static const struct net_counters *rx_of(struct nic *nic)
{
	return &nic_pair(nic, 0)->rx.counters;
}

/* Ends the worker: all that it counts is counted then. */
static void end(struct nic *nic)
{
	assert_true(driver_reset(&nic->driver));
}

static void send_frames(struct nic *nic, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
	nic_publish_tx(nic);
	for (unsigned i = 0; i < count; i++) {
		net_expect_packet(nic, i);
		nic_wait_tx(nic);
	}
}

/* A worker that sleeps gets ten frames by one kick: one batch, timed from the kick on. */
static void test_a_batch(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);

	nic->net.tuning.mitigation = MITIGATE_OFF;
	nic_up(nic, &plain);
	nic_expect_idle(nic);
	send_frames(nic, 10);
	end(nic);
	assert_int_equal(tx->packets, 10);
	assert_int_equal(tx->kicks, 1);
	assert_int_equal(tx->batches, 1);
	assert_int_equal(histogram_count(&tx->batch_sizes), 1);
	assert_int_equal(tx->batch_sizes.sum, 10);
	assert_int_equal(tx->batch_sizes.buckets[histogram_bucket(10)], 1);
	assert_int_equal(histogram_count(&tx->kick_to_tap), 1);
	assert_true(tx->kick_to_tap.sum > 0);
	assert_int_equal(histogram_count(&tx->tap_to_used), 1);
	assert_true(tx->tap_to_used.sum > 0);
	assert_int_equal(tx->ring_full, 0);
	assert_int_equal(tx->dropped, 0);
}

static void test_received_batches(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *rx = rx_of(nic);

	nic_up(nic, &plain);
	for (unsigned i = 0; i < 7; i++)
		net_receive(nic, i);
	end(nic);
	assert_int_equal(rx->packets, 7);
	assert_int_equal(rx->batch_sizes.sum, 7);
	assert_int_equal(histogram_count(&rx->batch_sizes), rx->batches);
	assert_int_equal(histogram_count(&rx->tap_to_used), rx->batches);
	assert_int_equal(histogram_count(&rx->kick_to_tap), 0);
}

/* A batch after which the driver wants no interrupt, and one after which it does. */
static void test_unwanted_interrupts(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);

	nic_up(nic, &plain);
	ring_interrupts_disable(&nic->tx);
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 1));
	nic_publish_tx(nic);
	net_expect_packet(nic, 1);
	nic_wait_counter(&tx->unwanted, 1);
	assert_int_equal(counter_read(&tx->interrupts), 0);
	nic_wait_tx(nic);
	assert_false(ring_interrupts_enable(&nic->tx));
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 2));
	nic_publish_tx(nic);
	net_expect_packet(nic, 2);
	nic_wait_counter(&tx->interrupts, 1);
	assert_int_equal(counter_read(&tx->unwanted), 1);
}

static void nothing(void *ctx)
{
	(void)ctx;
}

/* The worker has done what it was at: kicks are on again. */
static void settle(struct nic *nic)
{
	worker_call(&nic_pair(nic, 0)->tx.worker->worker, nothing, NULL);
}

/* Of four batches by one kick, the first is timed; one that is short is, again. */
static void test_long_batches_in_a_row(void **state)
{
	const struct nic_setup setup = { .size = 256 };
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);

	nic->net.tuning.mitigation = MITIGATE_OFF;
	nic_up(nic, &setup);
	nic_expect_idle(nic);
	send_frames(nic, 256);
	settle(nic);
	send_frames(nic, 1);
	end(nic);
	assert_int_equal(tx->batches, 5);
	assert_int_equal(histogram_count(&tx->batch_sizes), 5);
	assert_int_equal(histogram_count(&tx->tap_to_used), 2);
	assert_int_equal(histogram_count(&tx->kick_to_tap), 2);
}

/* Only the first of its batches finds the ring full. */
static void full_ring(struct nic *nic, bool packed)
{
	const struct nic_setup setup = { .packed = packed };
	const struct net_counters *tx = tx_of(nic);
	uint64_t full = tx->ring_full, batches = tx->batches;
	unsigned size;

	nic_up(nic, &setup);
	nic_expect_idle(nic);
	size = nic->tx.size;
	send_frames(nic, size - size / 8 - 1);
	nic_expect_idle(nic);
	assert_int_equal(counter_read(&tx->ring_full), full);
	send_frames(nic, size - size / 8);
	end(nic);
	assert_int_equal(tx->ring_full, full + 1);
	assert_int_equal(tx->batches, batches + 8);
}

static void test_a_full_ring(void **state)
{
	struct nic *nic = *state;

	nic->net.tuning.mitigation = MITIGATE_OFF;
	full_ring(nic, false);
	full_ring(nic, true);
}

/* ---- drops ---- */

static void expect_drops(const struct net_counters *counters, enum net_drop why, uint64_t count)
{
	assert_int_equal(counters->dropped, count);
	for (unsigned i = 0; i < NET_DROPS; i++)
		assert_int_equal(counters->drops[i], i == why ? count : 0);
}

static void test_too_short_to_be_sent(void **state)
{
	struct nic *nic = *state;

	nic_up(nic, &plain);
	for (unsigned i = 0; i < 3; i++) {
		net_add_tx(nic, net_tx_piece(nic, NIC_HEADER + 13, 1));
		nic_publish_tx(nic);
		nic_wait_tx(nic);
	}
	end(nic);
	expect_drops(tx_of(nic), NET_DROP_SHORT, 3);
	assert_int_equal(tx_of(nic)->packets, 0);
}

static void test_too_short_to_be_received(void **state)
{
	struct nic *nic = *state;

	nic_up(nic, &plain);
	net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
	nic_publish_rx(nic);
	net_send_to(nic, NIC_HEADER + 13, 1);
	nic_wait_counter(&rx_of(nic)->dropped, 1);
	end(nic);
	expect_drops(rx_of(nic), NET_DROP_SHORT, 1);
}

static void test_too_long_for_the_buffers(void **state)
{
	struct nic *nic = *state;

	nic_up(nic, &plain);
	net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
	nic_publish_rx(nic);
	net_send_to(nic, NET_SIZE + 1, 1);
	nic_wait_counter(&rx_of(nic)->dropped, 1);
	end(nic);
	expect_drops(rx_of(nic), NET_DROP_ROOM, 1);
}

static void test_a_wire_that_is_gone(void **state)
{
	struct nic *nic = *state;

	nic_up(nic, &plain);
	close(nic->peer);
	nic->peer = -1;
	net_add_tx(nic, net_tx_piece(nic, NET_SIZE, 1));
	nic_publish_tx(nic);
	nic_wait_tx(nic);
	end(nic);
	expect_drops(tx_of(nic), NET_DROP_GONE, 1);
}

/* ---- waiting ---- */

/* 2008's: the frame waits for the timer, which is then good for something. */
static void test_a_useful_timer(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);

	nic->net.tuning.mitigation = MITIGATE_FIXED;
	nic->net.tuning.period_usecs = 3000;
	nic->net.tuning.latency_usecs = 1000000;
	nic_up(nic, &plain);
	nic_expect_idle(nic);
	send_frames(nic, 1);
	end(nic);
	assert_int_equal(tx->timers_useful, 1);
	assert_int_equal(tx->timers_empty, 0);
	/* The time from the kick has all of the wait. */
	assert_int_equal(histogram_count(&tx->kick_to_tap), 1);
	assert_true(tx->kick_to_tap.sum >= 3 * MS);
}

/* lguest's: the frame goes at once, and the timer after it finds nothing. */
static void test_an_empty_timer(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);

	nic->net.tuning.mitigation = MITIGATE_LGUEST;
	nic->net.tuning.latency_usecs = 1000000;
	nic_up(nic, &plain);
	nic_expect_idle(nic);
	send_frames(nic, 1);
	nic_wait_counter(&tx->timers_empty, 1);
	assert_int_equal(counter_read(&tx->timers_useful), 0);
	assert_int_equal(counter_read(&tx->batches), 1);
}

static void test_polls(void **state)
{
	struct nic *nic = *state;
	const struct net_counters *tx = tx_of(nic);
	unsigned frames = 0;
	uint64_t missed;

	nic->net.tuning.mitigation = MITIGATE_OFF;
	nic->net.tuning.poll = NET_POLL_FIXED;
	nic->net.tuning.poll_usecs = 20000;
	nic_up(nic, &plain);
	/* Frames one after the other make the worker spin, unless others want its CPU. */
	while (!counter_read(&tx->polls_hit) && frames++ < 5000)
		send_frames(nic, 1);
	assert_true(counter_read(&tx->polls_hit) > 0);
	/* The spin after the last of them is for nothing. */
	missed = counter_read(&tx->polls_missed);
	for (unsigned i = 0; counter_read(&tx->polls_missed) == missed && i < 500; i++) {
		for (unsigned k = 0; k < 5; k++)
			send_frames(nic, 1);
		poll(NULL, 0, 25);
	}
	end(nic);
	assert_true(tx->polls_missed > missed);
	assert_true(tx->poll_ns > 0);
}

/* ---- as JSON ---- */

static json_int_t number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void test_json(void **state)
{
	struct nic *nic = *state;
	json_t *root, *tx, *sizes, *bucket, *pair;

	nic->net.tuning.mitigation = MITIGATE_OFF;
	nic_up(nic, &plain);
	nic_expect_idle(nic);
	send_frames(nic, 10);
	net_add_tx(nic, net_tx_piece(nic, 1, 1));
	nic_publish_tx(nic);
	nic_wait_tx(nic);
	end(nic);
	root = net_stats_json(&nic->net);
	tx = json_object_get(root, "tx");
	assert_int_equal(number(tx, "packets"), 10);
	assert_int_equal(number(tx, "dropped"), 1);
	assert_int_equal(number(json_object_get(tx, "drops"), "too_short"), 1);
	assert_int_equal(number(json_object_get(tx, "drops"), "gone"), 0);
	assert_int_equal(number(tx, "kicks_avoided"), 11 - number(tx, "kicks"));
	assert_int_equal(number(tx, "interrupts_avoided"), 11 - number(tx, "interrupts"));
	sizes = json_object_get(tx, "batch_sizes");
	assert_int_equal(number(sizes, "count"), 2);
	assert_int_equal(number(sizes, "sum"), 11);
	assert_int_equal(json_array_size(json_object_get(sizes, "buckets")), 2);
	bucket = json_array_get(json_object_get(sizes, "buckets"), 1);
	assert_int_equal(json_integer_value(json_array_get(bucket, 0)), 8);
	assert_int_equal(json_integer_value(json_array_get(bucket, 1)), 1);
	assert_true(json_number_value(json_object_get(sizes, "p99")) >= 8);
	/* Its only pair has the same. */
	pair = json_array_get(json_object_get(root, "pairs"), 0);
	assert_true(json_equal(tx, json_object_get(pair, "tx")));
	json_decref(root);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, nic_make, nic_unmake)
	const struct CMUnitTest tests[] = {
		FRESH(test_a_batch),
		FRESH(test_received_batches),
		FRESH(test_unwanted_interrupts),
		FRESH(test_long_batches_in_a_row),
		FRESH(test_a_full_ring),
		FRESH(test_too_short_to_be_sent),
		FRESH(test_too_short_to_be_received),
		FRESH(test_too_long_for_the_buffers),
		FRESH(test_a_wire_that_is_gone),
		FRESH(test_a_useful_timer),
		FRESH(test_an_empty_timer),
		FRESH(test_polls),
		FRESH(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
