/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every kind of ring with a driver and a device in threads of their own: both sleep, and neither
 * may miss the other; and a driver that changes descriptors while the device reads them.
 */
#include "tests/unit/libvq.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/driver/packed_layout.h"
#include "tests/driver/split_layout.h"
#include "vmm/iov.h"
#include "vmm/util.h"

/* ---- both sleep ---- */

#define BUFFER 16u

struct meeting {
	struct vq_pair *pair;
	unsigned count;
	unsigned window; /* chains under way at most */
	unsigned batch;	 /* how many the device publishes at once */
	int kick;
	int interrupt;
	uint64_t buffers;
	const char *device_error;
};

static void raise_fd(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* False after a long time without an event: the other side has forgotten us. */
static bool sleep_on(int fd)
{
	uint64_t count;

	return board_wait_fd(fd, POLLIN, BOARD_PATIENCE) &&
	       read(fd, &count, sizeof(count)) == sizeof(count);
}

static void end_batch(struct meeting *m)
{
	vq_publish(&m->pair->vq);
	if (vq_needs_interrupt(&m->pair->vq))
		raise_fd(m->interrupt);
}

static bool use(struct meeting *m, unsigned number)
{
	struct vq_pair *p = m->pair;
	uint32_t got = 0;

	if (iov_read(p->iov, p->chain.readable, 0, &got, sizeof(got)) != sizeof(got) ||
	    got != number)
		return false;
	got = ~got;
	iov_write(p->iov + p->chain.readable, p->chain.writable, 0, &got, sizeof(got));
	vq_push(&p->vq, &p->chain, sizeof(got));
	return true;
}

/* Uses what there is, a batch at most; how many. */
static unsigned use_batch(struct meeting *m, unsigned done)
{
	unsigned used = 0;

	while (used < m->batch && done + used < m->count) {
		int popped = pair_pop(m->pair);

		if (!popped)
			break;
		if (popped < 0)
			m->device_error = m->pair->vq.fault;
		else if (!use(m, done + used))
			m->device_error = "the wrong buffer";
		if (m->device_error)
			break;
		used++;
	}
	if (used)
		end_batch(m);
	return used;
}

static void *device_main(void *arg)
{
	struct meeting *m = arg;
	unsigned done = 0;

	while (done < m->count && !m->device_error) {
		unsigned used = use_batch(m, done);

		done += used;
		if (used || m->device_error)
			continue;
		if (!vq_kicks_enable(&m->pair->vq) && !sleep_on(m->kick))
			m->device_error = "no kick came";
		vq_kicks_disable(&m->pair->vq);
	}
	return NULL;
}

/* Two readable pieces and one writable one. */
static void add_one(struct meeting *m, unsigned number)
{
	struct vq_pair *p = m->pair;
	uint64_t gpa = m->buffers + number % m->window * BUFFER;
	struct ring_piece pieces[] = { { gpa, 1 }, { gpa + 1, 3 }, { gpa + 8, 4 } };
	uint32_t value = number;

	memcpy(board_ptr(&p->board, gpa, 4), &value, 4);
	assert_int_equal(kind_add(p->kind, &p->ring, pieces, 2, 1, (void *)(uintptr_t)number), 0);
	if (ring_publish(&p->ring))
		raise_fd(m->kick);
}

static void take_one(struct meeting *m, unsigned number)
{
	struct vq_pair *p = m->pair;
	uint32_t written, value;
	void *token;

	while (!ring_take(&p->ring, &token, &written)) {
		if (p->ring.error)
			fail_msg("%s", p->ring.error);
		if (!ring_interrupts_enable(&p->ring) && !sleep_on(m->interrupt))
			fail_msg("no interrupt came for chain %u", number);
	}
	ring_interrupts_disable(&p->ring);
	assert_int_equal(token, number);
	assert_int_equal(written, 4);
	memcpy(&value, board_ptr(&p->board, m->buffers + number % m->window * BUFFER + 8, 4), 4);
	assert_int_equal(value, ~(uint32_t)number);
}

static void meet(struct vq_pair *p, uint16_t size, unsigned count, unsigned window, unsigned batch)
{
	struct meeting m = { .pair = p, .count = count, .window = window, .batch = batch };
	unsigned sent = 0, done = 0;
	pthread_t device;

	pair_start_kind(p, size);
	m.buffers = board_alloc(&p->board, BUFFER * window, BUFFER);
	m.kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	m.interrupt = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(pthread_create(&device, NULL, device_main, &m), 0);
	while (done < count) {
		while (sent < count && sent - done < window)
			add_one(&m, sent++);
		take_one(&m, done++);
	}
	pthread_join(device, NULL);
	if (m.device_error)
		fail_msg("%s", m.device_error);
	close(m.kick);
	close(m.interrupt);
}

static void test_g11_no_stall_at_window_1(void **state)
{
	meet(*state, 8, kind_count(500), 1, 1);
}

static void test_g11_no_stall_at_small_windows(void **state)
{
	meet(*state, 16, kind_count(500), 2, 1);
	meet(*state, 16, kind_count(500), 5, 3);
}

static void test_g11_no_stall_at_a_full_ring(void **state)
{
	struct vq_pair *p = *state;
	uint16_t size = p->kind->packed ? 7 : 8;

	/* A chain is three pieces: in the ring itself two fit. */
	meet(p, size, kind_count(1000), p->kind->indirect ? size : 2, 4);
	meet(p, 64, kind_count(5000), p->kind->indirect ? 64 : 21, 16);
}

/* ---- M7: another CPU changes descriptors all the time ---- */

struct flipper {
	struct vq_pair *pair;
	atomic_bool stop;
};

static const uint64_t addresses[] = { 0x1000,	  0x2000,	       BOARD_LOW_SIZE - 8,
				      UINT64_MAX, BOARD_HIGH_BASE - 4, BOARD_HIGH_BASE };
static const uint32_t lengths[] = { 1, 8, 9, 16, 64, 0, 0x10000, UINT32_MAX };

static void flip_split(struct ring *ring, unsigned *seed)
{
	struct split_desc *desc = &ring->split.desc[rand_r(seed) % ring->size];

	le64_store_relaxed(&desc->addr, addresses[(unsigned)rand_r(seed) % ARRAY_SIZE(addresses)]);
	le32_store_relaxed(&desc->len, lengths[(unsigned)rand_r(seed) % ARRAY_SIZE(lengths)]);
	le16_store_relaxed(&desc->flags, (uint16_t)(rand_r(seed) & 7));
	le16_store_relaxed(&desc->next, (uint16_t)(rand_r(seed) % (ring->size + 1)));
}

/* Everything is available all the time, in either lap. */
static void flip_packed(struct ring *ring, unsigned *seed)
{
	struct packed_desc *desc = &ring->packed.desc[rand_r(seed) % ring->size];
	unsigned flags = (unsigned)rand_r(seed) & 7;

	flags |= rand_r(seed) & 1 ? PACKED_AVAIL : PACKED_USED;
	le64_store_relaxed(&desc->addr, addresses[(unsigned)rand_r(seed) % ARRAY_SIZE(addresses)]);
	le32_store_relaxed(&desc->len, lengths[(unsigned)rand_r(seed) % ARRAY_SIZE(lengths)]);
	le16_store_relaxed(&desc->id, (uint16_t)rand_r(seed));
	le16_store_release(&desc->flags, (uint16_t)flags);
}

static void *flip_main(void *arg)
{
	struct flipper *flipper = arg;
	struct vq_pair *p = flipper->pair;
	unsigned seed = 7;

	while (!atomic_load_explicit(&flipper->stop, memory_order_relaxed))
		(p->kind->packed ? flip_packed : flip_split)(&p->ring, &seed);
	return NULL;
}

static bool in_memory(const struct board *board, const struct iovec *iov)
{
	for (unsigned i = 0; i < board->mem.count; i++)
		if (range_inside((uintptr_t)iov->iov_base, iov->iov_len,
				 (uintptr_t)board->mem.regions[i].host, board->mem.regions[i].size))
			return true;
	return false;
}

static void check_chain(const struct vq_pair *p)
{
	unsigned pieces = p->chain.readable + p->chain.writable;
	size_t total = 0;

	assert_true(pieces <= PAIR_PIECES);
	for (unsigned i = 0; i < pieces; i++) {
		assert_true(in_memory(&p->board, &p->iov[i]));
		total += p->iov[i].iov_len;
	}
	assert_int_equal(total, p->chain.readable_bytes + p->chain.writable_bytes);
	assert_in_range(p->chain.slots, 1, p->ring.size);
}

static void offer_any(struct vq_pair *p)
{
	struct split_avail *avail = p->ring.split.avail;
	uint16_t at = p->vq.split.next_avail;

	le16_store_relaxed(&avail->ring[at % p->ring.size], (uint16_t)kind_random(p->ring.size));
	le16_store_release(&avail->idx, (uint16_t)(at + 1));
}

static void test_m7_descriptors_that_change(void **state)
{
	struct vq_pair *p = *state;
	struct flipper flipper = { .pair = p };
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;
	unsigned good = 0;
	pthread_t thread;

	pair_start_kind(p, 16);
	assert_int_equal(pthread_create(&thread, NULL, flip_main, &flipper), 0);
	for (unsigned i = 0; i < kind_count(4000) || good < 200; i++) {
		uint16_t at = p->vq.split.next_avail;

		if (!p->kind->packed)
			offer_any(p);
		if (pair_pop(p) == 1) {
			good++;
			check_chain(p);
		}
		/* A dead queue would end the test: the next round is a new life. */
		if (p->vq.fault) {
			assert_int_equal(pair_activate(p), 0);
			if (!p->kind->packed)
				p->vq.split.next_avail = at;
		}
		if (i % 1024 == 0) {
			assert_true(time(NULL) <= until);
			sched_yield();
		}
	}
	atomic_store(&flipper.stop, true);
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct kind_test tests[] = {
		KIND_TEST(test_g11_no_stall_at_window_1),
		KIND_TEST(test_g11_no_stall_at_small_windows),
		KIND_TEST(test_g11_no_stall_at_a_full_ring),
		KIND_TEST(test_m7_descriptors_that_change),
	};

	return kinds_run(tests, ARRAY_SIZE(tests), pair_setup_kind, pair_teardown);
}
