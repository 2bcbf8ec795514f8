/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A NIC in every way that it can be told to move frames: the far end sends back what it gets, and
 * all of it comes back whole and in order, while the device, its queues and its pairs are reset.
 *
 * The driver sleeps until interrupts, so that one that is missing shows, as a kick does that the
 * device should have asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define MAX_PAIRS  4u
#define BURST	   24u /* packets a pair and round */
#define MAX_LEN	   1500u
#define MIN_LEN	   60u
#define RING	   256u
#define BIG_BUFFER 2048u
#define BUFFER	   300u /* mergeable; BURST packets fit into a ring of them */
#define ROUNDS	   12u

static unsigned seed;

static unsigned random_below(unsigned bound)
{
	return (unsigned)rand_r(&seed) % bound;
}

/* ---- the far end ---- */

struct far {
	struct nic *nic;
	unsigned pairs;
	bool flood; /* sends of its own accord, and throws away what comes */
	atomic_bool stop;
	pthread_t thread;
};

static void send_back(struct far *far, unsigned pair, const uint8_t *packet, size_t len)
{
	while (!atomic_load(&far->stop)) {
		if (send(far->nic->peers[pair], packet, len, MSG_NOSIGNAL) == (ssize_t)len)
			return;
		/* Anything but a full wire is a dead one. */
		if (errno != EAGAIN)
			return;
		board_wait_fd(far->nic->peers[pair], POLLOUT, 10);
	}
}

static void *far_main(void *arg)
{
	struct far *far = arg;
	struct pollfd fds[MAX_PAIRS];
	uint8_t packet[NIC_MAX_PACKET];

	for (unsigned i = 0; i < far->pairs; i++)
		fds[i] = (struct pollfd){ .fd = far->nic->peers[i],
					  .events = far->flood ? POLLIN | POLLOUT : POLLIN };
	while (!atomic_load(&far->stop)) {
		poll(fds, far->pairs, 10);
		for (unsigned i = 0; i < far->pairs; i++) {
			ssize_t n = recv(fds[i].fd, packet, sizeof(packet), 0);

			if (far->flood) {
				nic_fill(packet, NET_SIZE, i);
				n = send(fds[i].fd, packet, NET_SIZE, MSG_NOSIGNAL);
			} else if (n > 0) {
				send_back(far, i, packet, (size_t)n);
			}
		}
	}
	return NULL;
}

static void far_start(struct far *far, struct nic *nic, unsigned pairs, bool flood)
{
	memset(far, 0, sizeof(*far));
	far->nic = nic;
	far->pairs = pairs;
	far->flood = flood;
	assert_int_equal(pthread_create(&far->thread, NULL, far_main, far), 0);
}

static void far_stop(struct far *far)
{
	atomic_store(&far->stop, true);
	pthread_join(far->thread, NULL);
}

/* ---- the driver ---- */

/* What tells a packet, behind its Ethernet header. */
struct tag {
	uint32_t life; /* of the driver's: what an earlier one sent may still come, or be lost */
	uint32_t number;
	uint32_t pair;
};

#define TAG_AT (NIC_HEADER + 14u)

struct lane {
	uint32_t sent; /* in this life */
	uint32_t received;
	unsigned unused; /* of the transmit ring */
	uint64_t memory; /* for BURST packets */
	uint16_t lengths[BURST];
};

struct run {
	struct nic *nic;
	struct nic_setup setup;
	struct far far;
	unsigned pairs;
	uint32_t life;
	struct lane lanes[MAX_PAIRS];
};

static uint32_t buffer_len(const struct run *run)
{
	return run->setup.mergeable ? BUFFER : BIG_BUFFER;
}

static void make_packet(const struct run *run, uint8_t *packet, uint32_t len, unsigned pair,
			uint32_t number)
{
	const struct tag tag = { run->life, number, pair };

	nic_fill(packet, len, number * MAX_PAIRS + pair);
	memcpy(packet + TAG_AT, &tag, sizeof(tag));
}

static void refill(struct run *run, unsigned pair, uint64_t gpa)
{
	struct ring_piece piece = { gpa, buffer_len(run) };

	assert_int_equal(ring_add(&run->nic->rings[2 * pair], &piece, 0, 1,
				  (void *)(uintptr_t)gpa),
			 0);
}

static void fill_ring(struct run *run, unsigned pair)
{
	while (run->nic->rings[2 * pair].free)
		refill(run, pair, board_alloc(&run->nic->board, buffer_len(run), 4));
	nic_publish(run->nic, 2 * pair);
}

static void new_life(struct run *run)
{
	run->life++;
	for (unsigned i = 0; i < run->pairs; i++)
		run->lanes[i].sent = run->lanes[i].received = 0;
}

static uint8_t set_pairs(struct run *run, unsigned pairs)
{
	const uint16_t value = (uint16_t)pairs;

	return nic_command(run->nic, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, &value,
			   sizeof(value));
}

static void start_driver(struct run *run)
{
	nic_up(run->nic, &run->setup);
	if (run->pairs > 1)
		assert_int_equal(set_pairs(run, run->pairs), VIRTIO_NET_OK);
	for (unsigned i = 0; i < run->pairs; i++) {
		struct lane *lane = &run->lanes[i];

		lane->unused = 0;
		lane->memory = board_alloc(&run->nic->board, (NIC_HEADER + MAX_LEN) * BURST, 4);
		fill_ring(run, i);
	}
	new_life(run);
}

static void add_packet(struct run *run, unsigned pair)
{
	struct lane *lane = &run->lanes[pair];
	uint32_t len = NIC_HEADER + MIN_LEN + random_below(MAX_LEN - MIN_LEN + 1);
	uint64_t gpa = lane->memory + lane->unused * (NIC_HEADER + MAX_LEN);
	const struct ring_piece pieces[] = { { gpa, NIC_HEADER },
					     { gpa + NIC_HEADER, len - NIC_HEADER } };
	struct ring *ring = &run->nic->rings[2 * pair + 1];

	make_packet(run, board_ptr(&run->nic->board, gpa, len), len, pair, lane->sent);
	lane->lengths[lane->sent % BURST] = (uint16_t)len;
	assert_int_equal(run->setup.no_indirect ? ring_add(ring, pieces, 2, 0, run) :
						  ring_add_indirect(ring, pieces, 2, 0, run),
			 0);
	lane->sent++;
	lane->unused++;
}

static void send_burst(struct run *run, unsigned pair, unsigned count)
{
	while (count--) {
		add_packet(run, pair);
		if (!count || !random_below(4))
			nic_publish(run->nic, 2 * pair + 1);
	}
}

/* The next packet's bytes, out of as many buffers as it has; returns its length. */
static uint32_t take_packet(struct run *run, unsigned pair, uint8_t *packet)
{
	struct nic *nic = run->nic;
	unsigned queue = 2 * pair;
	uint32_t written, len;
	uint64_t gpa = (uintptr_t)nic_wait(nic, queue, &written);
	uint16_t more;

	memcpy(packet, board_ptr(&nic->board, gpa, written), written);
	memcpy(&more, packet + offsetof(struct virtio_net_hdr_v1, num_buffers), sizeof(more));
	refill(run, pair, gpa);
	for (len = written; more > 1; more--, len += written) {
		void *token;

		/* A frame shows as a whole. */
		assert_true(ring_take(&nic->rings[queue], &token, &written));
		gpa = (uintptr_t)token;
		memcpy(packet + len, board_ptr(&nic->board, gpa, written), written);
		refill(run, pair, gpa);
	}
	return len;
}

/* Takes what was sent in this life, in order. */
static void receive_all(struct run *run, unsigned pair)
{
	uint8_t packet[NIC_MAX_PACKET], expected[NIC_MAX_PACKET];
	struct lane *lane = &run->lanes[pair];

	while (lane->received < lane->sent) {
		uint32_t len = take_packet(run, pair, packet);
		struct tag tag;

		/* What is left of earlier lives may have used up the ring. */
		nic_publish(run->nic, 2 * pair);
		memcpy(&tag, packet + TAG_AT, sizeof(tag));
		if (tag.life != run->life) {
			assert_true(tag.life < run->life);
			continue;
		}
		assert_int_equal(len, lane->lengths[lane->received % BURST]);
		make_packet(run, expected, len, pair, lane->received++);
		assert_memory_equal(packet + NIC_HEADER, expected + NIC_HEADER, len - NIC_HEADER);
	}
}

static void collect(struct run *run, unsigned pair)
{
	struct lane *lane = &run->lanes[pair];
	uint32_t written;

	for (; lane->unused; lane->unused--)
		nic_wait(run->nic, 2 * pair + 1, &written);
}

static void reset_one_queue(struct run *run)
{
	unsigned pair = random_below(run->pairs), queue = 2 * pair + random_below(2);
	struct nic *nic = run->nic;

	assert_true(driver_reset_queue(&nic->driver, queue));
	ring_fini(&nic->rings[queue]);
	assert_true(driver_set_queue_vector(&nic->driver, queue, queue + 1));
	nic_setup_queue(nic, queue, 0);
	if (queue % 2)
		run->lanes[pair].unused = 0;
	else
		fill_ring(run, pair);
	new_life(run);
}

static void detach_and_attach(struct run *run)
{
	assert_int_equal(set_pairs(run, 1 + random_below(run->pairs)), VIRTIO_NET_OK);
	assert_int_equal(set_pairs(run, run->pairs), VIRTIO_NET_OK);
	new_life(run);
}

/* In the middle of traffic. */
static void upset(struct run *run)
{
	switch (random_below(6)) {
	case 0:
		assert_true(driver_reset(&run->nic->driver));
		start_driver(run);
		break;
	case 1:
		reset_one_queue(run);
		break;
	case 2:
		if (run->pairs > 1)
			detach_and_attach(run);
		break;
	}
}

static void run_traffic(struct run *run, bool upsets)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < run->pairs; i++)
			send_burst(run, i, 1 + random_below(BURST));
		if (upsets)
			upset(run);
		for (unsigned i = 0; i < run->pairs; i++) {
			receive_all(run, i);
			collect(run, i);
		}
	}
	assert_int_equal(driver_status(&run->nic->driver), NET_OK_STATUS);
}

/* ---- what is set how ---- */

static const enum net_workers workers[] = { NET_WORKERS_PAIR, NET_WORKERS_SPLIT, NET_WORKERS_ONE };
static const enum net_locking locks[] = { NET_LOCK_NONE, NET_LOCK_HOLD, NET_LOCK_DROP };
static const enum net_scheduling scheds[] = { NET_SCHED_NORMAL, NET_SCHED_BATCH, NET_SCHED_AUTO };
static const enum net_interrupting intrs[] = { NET_INTR_BATCH, NET_INTR_PACKET, NET_INTR_EMPTY };

/* The `nth` of a kind, of all there are of its own and some of each of the others. */
static struct net_tuning tuning_of(enum mitigate_kind kind, enum net_poll poll, unsigned nth)
{
	static const uint32_t budgets[] = { 0, 1, 5 };

	return (struct net_tuning){
		.mitigation = kind,
		.period_usecs = kind == MITIGATE_FIXED ? 150 : 200,
		.latency_usecs = 300,
		.poll = poll,
		/* Long enough for a spin to be what is under way whenever something happens. */
		.poll_usecs = 100000,
		.workers = workers[nth % 3],
		.lock = locks[nth / 3 % 3],
		.intr = intrs[(nth + kind) % 3],
		.sched = scheds[(nth + kind) % 3],
		.budget_packets = budgets[(nth + poll) % 3],
		.io = (nth + kind + poll) / 2 % 2 ? NET_IO_URING : NET_IO_SYSCALL,
		.rx_copy = (nth + kind + poll) % 2,
	};
}

static void run_tuning(const struct net_tuning *tuning, unsigned pairs, unsigned nth)
{
	const struct nic_config config = { .pairs = pairs, .ring = RING, .tuning = *tuning };
	struct run run = {
		.pairs = pairs,
		.setup = {
			.pairs = pairs,
			.packed = nth & 1,
			.no_event_idx = nth & 2,
			.no_indirect = nth & 4,
			.mergeable = nth & 8,
		},
	};
	int size = 1;

	virtio_add(&run.setup.also, VIRTIO_F_RING_RESET);
	run.nic = nic_new(&config);
	/* A wire that is full most of the time. */
	if (nth % 5 == 0)
		for (unsigned i = 0; i < pairs; i++)
			setsockopt(run.nic->backend->ops->fd(run.nic->backend, i), SOL_SOCKET,
				   SO_SNDBUF, &size, sizeof(size));
	start_driver(&run);
	far_start(&run.far, run.nic, pairs, false);
	run_traffic(&run, true);
	far_stop(&run.far);
	nic_fini(run.nic);
	free(run.nic);
}

/* With all workers and locks; rings, pairs and the rest change from one to the next. */
static void run_kind(enum mitigate_kind kind)
{
	static const enum net_poll polls[] = { NET_POLL_OFF, NET_POLL_AUTO, NET_POLL_FIXED };
	unsigned nth = kind;

	for (unsigned p = 0; p < ARRAY_SIZE(polls); p++) {
		for (unsigned i = 0; i < 9; i++) {
			struct net_tuning tuning = tuning_of(kind, polls[p], i);

			run_tuning(&tuning, 1 + nth % MAX_PAIRS, nth);
			nth += 7;
		}
	}
}

static void test_off(void **state)
{
	(void)state;
	run_kind(MITIGATE_OFF);
}

static void test_fixed(void **state)
{
	(void)state;
	run_kind(MITIGATE_FIXED);
}

static void test_lguest(void **state)
{
	(void)state;
	run_kind(MITIGATE_LGUEST);
}

static void test_window(void **state)
{
	(void)state;
	run_kind(MITIGATE_WINDOW);
}

static void test_adaptive(void **state)
{
	(void)state;
	run_kind(MITIGATE_ADAPTIVE);
}

/*
 * P7: one flow, and one on each of several pairs. Each has its own order kept (receive_all() sees
 * that), whoever moves it, and nothing is lost on the way.
 */
static void test_p7_flows_keep_their_order(void **state)
{
	static const unsigned pairs[] = { 1, 2, 4 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pairs) * ARRAY_SIZE(workers); i++) {
		struct run run = { .pairs = pairs[i / 3], .setup = { .pairs = pairs[i / 3] } };
		struct nic_config config = { .pairs = run.pairs, .ring = RING };

		config.tuning = tuning_of(MITIGATE_ADAPTIVE, NET_POLL_AUTO, i);
		run.nic = nic_new(&config);
		start_driver(&run);
		far_start(&run.far, run.nic, run.pairs, false);
		run_traffic(&run, false);
		far_stop(&run.far);
		for (unsigned p = 0; p < run.pairs; p++) {
			struct net_pair *pair = nic_pair(run.nic, p);

			assert_int_equal(net_counter(&pair->rx.counters.packets),
					 net_counter(&pair->tx.counters.packets));
			assert_int_equal(net_counter(&pair->rx.counters.packets),
					 run.lanes[p].received);
			assert_int_equal(net_counter(&pair->tx.counters.dropped), 0);
		}
		nic_fini(run.nic);
		free(run.nic);
	}
}

/* Makes packets until the ring is full; returns how many. */
static unsigned fill_tx(struct nic *nic)
{
	unsigned count = 0;

	for (; nic->tx.free; count++) {
		net_add_tx(nic, net_tx_piece(nic, NET_SIZE, count));
		nic_publish_tx(nic);
	}
	return count;
}

/*
 * P6: who does not read holds the sender up, and loses nothing: the ring fills, the worker sleeps,
 * and when there is room all of it comes, in order.
 */
static void test_p6_a_slow_consumer_holds_the_sender_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * MITIGATE_KINDS; i++) {
		struct nic_config config = { .ring = RING };
		struct nic_setup setup = { .packed = i & 1 };
		const struct net_counters *c;
		struct nic *nic;
		int size = 1;
		unsigned count;

		config.tuning = tuning_of(i / 2, i % 2 ? NET_POLL_OFF : NET_POLL_AUTO, i);
		nic = nic_new(&config);
		c = &nic_pair(nic, 0)->tx.counters;
		setsockopt(nic->backend->ops->fd(nic->backend, 0), SOL_SOCKET, SO_SNDBUF, &size,
			   sizeof(size));
		nic_up(nic, &setup);
		count = fill_tx(nic);
		nic_wait_counter(&c->waits, 1);
		nic_expect_idle(nic);
		for (unsigned n = 0; n < count; n++) {
			net_expect_packet(nic, n);
			nic_wait_tx(nic);
		}
		/* With intr=packet a frame is shown as used before its batch is counted. */
		nic_wait_counter(&c->packets, count);
		assert_int_equal(net_counter(&c->packets), count);
		assert_int_equal(net_counter(&c->dropped), 0);
		nic_fini(nic);
		free(nic);
	}
}

/* ---- a lock that everybody wants ---- */

/* A step of a driver that takes no care: buffers, packets, and what was used is used again. */
static void drive(struct nic *nic, unsigned pairs)
{
	for (unsigned q = 0; q < 2 * pairs; q++) {
		struct ring *ring = &nic->rings[q];
		struct ring_piece piece = { board_alloc(&nic->board, NET_SIZE, 4), NET_SIZE };
		uint32_t written;
		void *token;

		while (ring->free)
			assert_int_equal(ring_add(ring, &piece, q % 2, !(q % 2), nic), 0);
		nic_publish(nic, q);
		while (ring_take(ring, &token, &written))
			;
		assert_null(ring->error);
	}
}

/*
 * Resets of the device and of queues, and commands, by a vCPU that holds the lock that the workers
 * hold, or wait for, at any time; with a flood in both directions there is no other time.
 */
static void test_no_deadlock_for_the_lock(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(workers); i++) {
		struct nic_config config = { .pairs = 2, .ring = 16 };
		struct run run = { .pairs = 2, .setup = { .pairs = 2, .packed = i & 1 } };

		config.tuning = tuning_of(MITIGATE_OFF, i % 2 ? NET_POLL_FIXED : NET_POLL_OFF, 0);
		config.tuning.workers = workers[i % 3];
		config.tuning.lock = i < 3 ? NET_LOCK_HOLD : NET_LOCK_DROP;
		virtio_add(&run.setup.also, VIRTIO_F_RING_RESET);
		run.nic = nic_new(&config);
		far_start(&run.far, run.nic, 2, true);
		for (unsigned lap = 0; lap < 25; lap++) {
			nic_up(run.nic, &run.setup);
			for (unsigned step = random_below(20); step; step--) {
				drive(run.nic, 2);
				assert_int_equal(set_pairs(&run, 1 + step % 2), VIRTIO_NET_OK);
			}
			for (unsigned q = random_below(5); q < 4; q++)
				assert_true(driver_reset_queue(&run.nic->driver, q));
			assert_true(driver_reset(&run.nic->driver));
		}
		far_stop(&run.far);
		nic_fini(run.nic);
		free(run.nic);
	}
}

static int choose_seed(void **state)
{
	const char *text = getenv("WHELP_SEED");

	(void)state;
	seed = text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)time(NULL);
	printf("# WHELP_SEED=%u\n", seed);
	return 0;
}

int main(void)
{
#define SEEDED(test) cmocka_unit_test_setup(test, choose_seed)
	const struct CMUnitTest tests[] = {
		SEEDED(test_off),
		SEEDED(test_fixed),
		SEEDED(test_lguest),
		SEEDED(test_window),
		SEEDED(test_adaptive),
		SEEDED(test_p7_flows_keep_their_order),
		SEEDED(test_p6_a_slow_consumer_holds_the_sender_up),
		SEEDED(test_no_deadlock_for_the_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
