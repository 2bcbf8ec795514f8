/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC whose wire misbehaves: full, flooding, failing, gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/net/loopback.h"
#include "tests/unit/libfront.h"
#include "tests/unit/libnet.h"
#include "vmm/util.h"

static const struct nic_setup plain = { 0 };
static const struct nic_setup no_event_idx = { .no_event_idx = true };

/* ---- a wire with faults to order ---- */

struct flaky {
	struct net_backend backend;
	struct net_backend *inner;
	atomic_int error;      /* what sending fails with */
	atomic_uint failures;  /* how often; 0: not at all */
	atomic_int recv_error; /* the same for receiving */
	atomic_uint recv_fails;
	atomic_uint sends;
	atomic_int set_error; /* what setting it up fails with; 0: not at all */
};

static struct flaky *to_flaky(struct net_backend *backend)
{
	return container_of(backend, struct flaky, backend);
}

static void flaky_close(struct net_backend *backend)
{
	to_flaky(backend)->inner->ops->close(to_flaky(backend)->inner);
	free(to_flaky(backend));
}

static int flaky_set_offloads(struct net_backend *backend, unsigned offloads)
{
	if (atomic_load(&to_flaky(backend)->set_error))
		return -atomic_load(&to_flaky(backend)->set_error);
	return to_flaky(backend)->inner->ops->set_offloads(to_flaky(backend)->inner, offloads);
}

static int flaky_set_header(struct net_backend *backend, unsigned size)
{
	return to_flaky(backend)->inner->ops->set_header(to_flaky(backend)->inner, size);
}

static int flaky_enable(struct net_backend *backend, unsigned queue, bool on)
{
	return to_flaky(backend)->inner->ops->enable(to_flaky(backend)->inner, queue, on);
}

static int flaky_fd(struct net_backend *backend, unsigned queue)
{
	return to_flaky(backend)->inner->ops->fd(to_flaky(backend)->inner, queue);
}

static ssize_t flaky_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			  unsigned count)
{
	struct flaky *flaky = to_flaky(backend);

	if (atomic_load(&flaky->recv_fails)) {
		atomic_fetch_sub(&flaky->recv_fails, 1);
		return -atomic_load(&flaky->recv_error);
	}
	return flaky->inner->ops->recv(flaky->inner, queue, iov, count);
}

static ssize_t flaky_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			  unsigned count)
{
	struct flaky *flaky = to_flaky(backend);

	atomic_fetch_add(&flaky->sends, 1);
	if (atomic_load(&flaky->failures)) {
		atomic_fetch_sub(&flaky->failures, 1);
		return -atomic_load(&flaky->error);
	}
	return flaky->inner->ops->send(flaky->inner, queue, iov, count);
}

static const struct net_backend_ops flaky_ops = {
	.close = flaky_close,
	.set_offloads = flaky_set_offloads,
	.set_header = flaky_set_header,
	.enable = flaky_enable,
	.fd = flaky_fd,
	.recv = flaky_recv,
	.send = flaky_send,
};

static int make_flaky(void **state)
{
	const struct nic_config config = { 0 };
	struct flaky *flaky = calloc(1, sizeof(*flaky));
	struct nic *nic = malloc(sizeof(*nic));
	int peer;

	assert_non_null(flaky);
	assert_non_null(nic);
	flaky->inner = loopback_open(1, &peer);
	assert_non_null(flaky->inner);
	flaky->backend = (struct net_backend){
		.ops = &flaky_ops,
		.name = "flaky",
		.queues = 1,
	};
	nic_init(nic, &config, &flaky->backend, &peer);
	*state = nic;
	return 0;
}

/* ---- tests ---- */

static void shrink_wire(struct nic *nic)
{
	int fd = nic->backend->ops->fd(nic->backend, 0), size = 1;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
}

static void fill_the_wire(struct nic *nic)
{
	uint64_t waits = net_counter(&nic_pair(nic, 0)->tx.counters.waits);

	shrink_wire(nic);
	nic_up(nic, &plain);
	for (unsigned i = 0; i < nic->tx.size; i++)
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
	nic_publish_tx(nic);
	nic_wait_counter(&nic_pair(nic, 0)->tx.counters.waits, waits + 1);
}

static void test_h1_a_full_wire_keeps_order(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	enum { FRAMES = 700 };
	struct nic *nic = *state;
	const struct net_counters *tx = &nic_pair(nic, 0)->tx.counters;
	char text[4096];

	shrink_wire(nic);
	capture_begin();
	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		uint64_t waits = net_counter(&tx->waits);
		unsigned sent = 0, got = 0, kicks;

		nic_up(nic, setups[s]);
		while (nic->tx.free) {
			net_add_tx(nic, net_tx_piece(nic, NET_SIZE, sent++));
			nic_publish_tx(nic);
		}
		nic_wait_counter(&tx->waits, waits + 1);
		nic_expect_idle(nic);
		/* From here on until there is room a kick is of no use, and none is asked for. */
		while (nic->tx.free == 0)
			if (sent < FRAMES) {
				net_expect_packet(nic, got++);
				nic_wait_tx(nic);
			}
		kicks = nic->kicks[NIC_TX];
		while (got < FRAMES) {
			while (sent < FRAMES && nic->tx.free) {
				net_add_tx(nic, net_tx_piece(nic, NET_SIZE, sent++));
				nic_publish_tx(nic);
			}
			net_expect_packet(nic, got++);
			while (nic->tx.free < nic->tx.size && sent < FRAMES && !nic->tx.free)
				nic_wait_tx(nic);
		}
		while (nic->tx.free < nic->tx.size)
			nic_wait_tx(nic);
		/* While more than what the wire holds was always waiting. */
		assert_true(nic->kicks[NIC_TX] - kicks < FRAMES / 4);
		assert_null(nic->tx.error);
	}
	assert_int_equal(capture_end(text, sizeof(text)), 0);
}

static void test_h1_rx_runs_while_tx_waits(void **state)
{
	struct nic *nic = *state;
	struct flaky *flaky = to_flaky(nic->backend);
	unsigned sends;

	fill_the_wire(nic);
	sends = atomic_load(&flaky->sends);
	for (uint32_t i = 0; i < 200; i++)
		net_receive(nic, i);
	/* A wake by the wire may try again, but no more than that. */
	assert_true(atomic_load(&flaky->sends) - sends <= 2 * 200);
	for (unsigned i = 0; i < nic->tx.size; i++)
		net_expect_packet(nic, i);
}

static void test_h3_flood_without_buffers(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	struct nic *nic = *state;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;

	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		unsigned sent = 0, got = 0;
		uint8_t packet[NET_SIZE];
		uint64_t waits, gpa;

		/* The last round's worker counts no more. */
		assert_true(driver_reset(&nic->driver));
		waits = net_counter(&rx->waits);
		nic_up(nic, setups[s]);
		gpa = board_alloc(&nic->board, 16 * NET_SIZE, 1);
		nic_wait_counter(&rx->waits, waits + 1);
		nic_fill(packet, NET_SIZE, sent);
		while (nic_peer_try_send(nic, packet, NET_SIZE))
			nic_fill(packet, NET_SIZE, ++sent);
		/* It waits for a buffer, and does not look at the wire. */
		nic_expect_idle(nic);
		assert_int_equal(net_counter(&rx->waits), waits + 1);
		/* The tail comes out without a new frame. */
		while (got < sent) {
			unsigned batch = MIN(16u, sent - got);

			for (unsigned i = 0; i < batch; i++)
				net_add_rx(nic, gpa + i * NET_SIZE, NET_SIZE);
			nic_publish_rx(nic);
			for (unsigned i = 0; i < batch; i++) {
				uint32_t written;

				nic_wait_rx(nic, &written);
				assert_true(
					nic_is(board_ptr(&nic->board, gpa + i * NET_SIZE, NET_SIZE),
					       NET_SIZE, got++));
			}
		}
		assert_true(sent > 100);
	}
}

/* G29: the guest stands still with a full ring, and goes on when the wire has nothing new. */
static void test_g29_a_pause_with_a_full_ring(void **state)
{
	const struct nic_setup *setups[] = { &plain, &no_event_idx };
	struct nic *nic = *state;
	const struct net_counters *rx = &nic_pair(nic, 0)->rx.counters;

	for (unsigned s = 0; s < ARRAY_SIZE(setups); s++) {
		unsigned sent = 0, got = 0;
		uint8_t packet[NET_SIZE];
		uint64_t waits, gpa;

		assert_true(driver_reset(&nic->driver));
		waits = net_counter(&rx->waits);
		nic_up(nic, setups[s]);
		gpa = board_alloc(&nic->board, nic->rx.size * NET_SIZE, 1);
		for (unsigned i = 0; i < nic->rx.size; i++)
			net_add_rx(nic, gpa + i * NET_SIZE, NET_SIZE);
		nic_publish_rx(nic);
		nic_fill(packet, NET_SIZE, sent);
		while (sent <= nic->rx.size || nic_peer_try_send(nic, packet, NET_SIZE)) {
			if (sent <= nic->rx.size)
				nic_peer_send(nic, packet, NET_SIZE);
			nic_fill(packet, NET_SIZE, ++sent);
		}
		nic_wait_counter(&rx->waits, waits + 1);
		nic_expect_idle(nic);
		/* Each frame's buffer goes back at once, which makes room for one more. */
		while (got < sent) {
			uint64_t at = gpa + got % nic->rx.size * NET_SIZE;
			uint32_t written;

			nic_wait_rx(nic, &written);
			assert_int_equal(written, NET_SIZE);
			assert_true(nic_is(board_ptr(&nic->board, at, NET_SIZE), NET_SIZE, got++));
			net_add_rx(nic, at, NET_SIZE);
			nic_publish_rx(nic);
		}
		assert_true(sent > nic->rx.size);
	}
}

static void test_h5_errors_lose_one_frame_each(void **state)
{
	static const int errors[] = { ENOBUFS, ENOSPC, EINVAL, EIO, EMSGSIZE };
	struct nic *nic = *state;
	struct flaky *flaky = to_flaky(nic->backend);
	char text[4096];

	capture_begin();
	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		nic_up(nic, &plain);
		atomic_store(&flaky->error, errors[i]);
		atomic_store(&flaky->failures, 10);
		for (uint32_t n = 0; n < 12; n++)
			net_add_tx(nic, net_tx_piece(nic, NET_SIZE, n));
		nic_publish_tx(nic);
		net_expect_packet(nic, 10);
		net_expect_packet(nic, 11);
		for (unsigned n = 0; n < 12; n++)
			nic_wait_tx(nic);
		assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS);
	}
	/* Fifty frames were lost, and the log was not flooded. */
	assert_true(capture_end(text, sizeof(text)) <= LOG_BURST + 1);
	assert_non_null(strstr(text, "flaky"));
}

static void test_receive_errors_are_survived(void **state)
{
	struct nic *nic = *state;

	nic_up(nic, &plain);
	net_receive(nic, 1);
	atomic_store(&to_flaky(nic->backend)->recv_error, EIO);
	atomic_store(&to_flaky(nic->backend)->recv_fails, 3);
	net_receive(nic, 2);
	assert_int_equal(atomic_load(&to_flaky(nic->backend)->recv_fails), 0);
}

static void test_h4_the_wire_goes_away(void **state)
{
	struct nic *nic = *state;
	char text[4096];

	capture_begin();
	nic_up(nic, &plain);
	nic_ping(nic);
	net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
	nic_publish_rx(nic);
	close(nic->peer);
	nic->peer = -1;
	nic_expect_idle(nic);
	/* TX completes; after a reset too. */
	for (unsigned lap = 0; lap < 3; lap++) {
		for (unsigned i = 0; i < 600; i++) {
			net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
			nic_publish_tx(nic);
			nic_wait_tx(nic);
		}
		driver_kick(&nic->driver, NIC_RX);
		nic_up(nic, &plain);
		net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
		nic_publish_rx(nic);
	}
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "is gone"));
}

static void test_h4_the_wire_goes_away_while_it_is_full(void **state)
{
	struct nic *nic = *state;

	fill_the_wire(nic);
	close(nic->peer);
	nic->peer = -1;
	for (unsigned i = 0; i < nic->tx.size; i++)
		nic_wait_tx(nic);
}

/* No event comes for TX, which waits for room: what RX finds out has to be enough. */
static void test_h4_receiving_finds_a_full_wire_gone(void **state)
{
	struct nic *nic = *state;
	struct flaky *flaky = to_flaky(nic->backend);

	fill_the_wire(nic);
	atomic_store(&flaky->recv_error, EBADFD);
	atomic_store(&flaky->recv_fails, 1);
	net_add_rx(nic, board_alloc(&nic->board, NET_SIZE, 1), NET_SIZE);
	nic_publish_rx(nic);
	for (unsigned i = 0; i < nic->tx.size; i++)
		nic_wait_tx(nic);
}

static void test_h4_the_wire_is_gone_before_driver_ok(void **state)
{
	struct nic *nic = *state;
	struct flaky *flaky = to_flaky(nic->backend);
	char text[4096];

	capture_begin();
	atomic_store(&flaky->set_error, EBADFD);
	atomic_store(&flaky->error, EBADFD);
	atomic_store(&flaky->failures, 1);
	nic_up(nic, &plain);
	for (unsigned i = 0; i < 600; i++) {
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, i));
		nic_publish_tx(nic);
		nic_wait_tx(nic);
	}
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "is gone"));
}

int main(void)
{
#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, nic_unmake)
	const struct CMUnitTest tests[] = {
		ON(nic_make, test_h1_a_full_wire_keeps_order),
		ON(make_flaky, test_h1_rx_runs_while_tx_waits),
		ON(nic_make, test_h3_flood_without_buffers),
		ON(nic_make, test_g29_a_pause_with_a_full_ring),
		ON(make_flaky, test_h5_errors_lose_one_frame_each),
		ON(make_flaky, test_receive_errors_are_survived),
		ON(nic_make, test_h4_the_wire_goes_away),
		ON(nic_make, test_h4_the_wire_goes_away_while_it_is_full),
		ON(make_flaky, test_h4_receiving_finds_a_full_wire_gone),
		ON(make_flaky, test_h4_the_wire_is_gone_before_driver_ok),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
