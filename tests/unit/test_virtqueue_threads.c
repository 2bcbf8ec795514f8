/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A driver and a device in threads of their own: both sleep, and neither may miss the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/driver/split_layout.h"
#include "tests/unit/libvq.h"
#include "vmm/iov.h"
#include "vmm/util.h"

struct meeting {
	struct vq_pair *pair;
	unsigned count;
	unsigned window; /* buffers under way at most */
	unsigned batch;	 /* how many the device publishes at once */
	int kick;
	int interrupt;
	uint64_t buffers;
	const char *device_error;
};

static void raise_fd(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
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

static void *device_main(void *arg)
{
	struct meeting *m = arg;
	struct vq_pair *p = m->pair;
	unsigned done = 0, batch = 0;

	while (done < m->count) {
		int popped = pair_pop(p);

		if (popped < 0)
			m->device_error = p->vq.fault;
		else if (popped && !use(m, done))
			m->device_error = "the wrong buffer";
		if (m->device_error)
			return NULL;
		if (popped) {
			done++;
			if (++batch < m->batch)
				continue;
		}
		if (batch) {
			end_batch(m);
			batch = 0;
			continue;
		}
		if (!popped && !vq_kicks_enable(&p->vq)) {
			if (!sleep_on(m->kick))
				m->device_error = "no kick came";
			if (m->device_error)
				return NULL;
		}
		vq_kicks_disable(&p->vq);
	}
	end_batch(m);
	return NULL;
}

static void add_one(struct meeting *m, unsigned number)
{
	uint64_t gpa = m->buffers + number % m->window * 8;
	struct ring_piece pieces[] = { { gpa, 4 }, { gpa + 4, 4 } };
	uint32_t value = number;

	memcpy(board_ptr(&m->pair->board, gpa, 4), &value, 4);
	assert_int_equal(ring_add_indirect(&m->pair->ring, pieces, 1, 1, (void *)(uintptr_t)number),
			 0);
}

static void take_one(struct meeting *m, unsigned number)
{
	struct vq_pair *p = m->pair;
	uint32_t written, value;
	void *token;

	while (!ring_take(&p->ring, &token, &written)) {
		assert_null(p->ring.error);
		if (!ring_interrupts_enable(&p->ring) && !sleep_on(m->interrupt))
			fail_msg("no interrupt came for buffer %u", number);
	}
	ring_interrupts_disable(&p->ring);
	assert_int_equal(token, number);
	assert_int_equal(written, 4);
	memcpy(&value, board_ptr(&p->board, m->buffers + number % m->window * 8 + 4, 4), 4);
	assert_int_equal(value, ~(uint32_t)number);
}

static void meet(struct vq_pair *p, unsigned count, unsigned window, unsigned batch, bool event_idx)
{
	struct meeting m = { .pair = p, .count = count, .window = window, .batch = batch };
	unsigned sent = 0, done = 0;
	pthread_t device;

	pair_start(p, 64, event_idx, true);
	m.buffers = board_alloc(&p->board, 8 * window, 8);
	m.kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	m.interrupt = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(pthread_create(&device, NULL, device_main, &m), 0);
	while (done < count) {
		while (sent < count && sent - done < window) {
			add_one(&m, sent++);
			if (ring_publish(&p->ring))
				raise_fd(m.kick);
		}
		take_one(&m, done++);
	}
	pthread_join(device, NULL);
	if (m.device_error)
		fail_msg("%s", m.device_error);
	close(m.kick);
	close(m.interrupt);
}

static void test_g11_window_1(void **state)
{
	meet(*state, 4000, 1, 1, true);
	meet(*state, 4000, 1, 1, false);
}

static void test_g11_full_ring(void **state)
{
	meet(*state, 70000, 64, 16, true);
	meet(*state, 20000, 64, 64, false);
}

static void test_g11_small_windows(void **state)
{
	meet(*state, 4000, 2, 1, true);
	meet(*state, 4000, 3, 2, true);
	meet(*state, 4000, 3, 3, false);
}

/* M7: another CPU changes descriptors all the time. */
struct flipper {
	struct vq_pair *pair;
	atomic_bool stop;
};

static void *flip_main(void *arg)
{
	static const uint64_t addresses[] = { 0x1000,	  BOARD_LOW_SIZE - 8,  BOARD_LOW_SIZE,
					      UINT64_MAX, BOARD_HIGH_BASE - 4, BOARD_HIGH_BASE };
	static const uint32_t lengths[] = { 1, 8, 9, 16, 64, 0, 0x10000, UINT32_MAX };
	struct flipper *flipper = arg;
	struct ring *ring = &flipper->pair->ring;
	unsigned seed = 7;

	while (!atomic_load_explicit(&flipper->stop, memory_order_relaxed)) {
		struct split_desc *desc = &ring->split.desc[rand_r(&seed) % ring->size];

		le64_store_relaxed(&desc->addr,
				   addresses[(unsigned)rand_r(&seed) % ARRAY_SIZE(addresses)]);
		le32_store_relaxed(&desc->len,
				   lengths[(unsigned)rand_r(&seed) % ARRAY_SIZE(lengths)]);
		le16_store_relaxed(&desc->flags, (uint16_t)(rand_r(&seed) & 7));
		le16_store_relaxed(&desc->next, (uint16_t)(rand_r(&seed) % (ring->size + 1)));
	}
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

static void offer_any(struct vq_pair *p, unsigned *seed)
{
	struct split_avail *avail = p->ring.split.avail;
	uint16_t at = p->vq.split.next_avail;

	le16_store_relaxed(&avail->ring[at % p->ring.size],
			   (uint16_t)(rand_r(seed) % p->ring.size));
	le16_store_release(&avail->idx, (uint16_t)(at + 1));
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
}

static void test_m7_descriptors_that_change(void **state)
{
	struct vq_pair *p = *state;
	struct flipper flipper = { .pair = p };
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;
	unsigned good = 0, seed = 3;
	pthread_t thread;

	pair_start(p, 16, false, true);
	assert_int_equal(pthread_create(&thread, NULL, flip_main, &flipper), 0);
	for (unsigned i = 0; i < 20000 || good < 2000; i++) {
		offer_any(p, &seed);
		if (pair_pop(p) == 1) {
			good++;
			check_chain(p);
		}
		/* A dead queue would end the test: the next round is a new life at the same place.
		 */
		if (p->vq.fault) {
			uint16_t at = p->vq.split.next_avail;

			assert_int_equal(pair_activate(p), 0);
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_g11_window_1),
		cmocka_unit_test(test_g11_full_ring),
		cmocka_unit_test(test_g11_small_windows),
		cmocka_unit_test(test_m7_descriptors_that_change),
	};

	return cmocka_run_group_tests(tests, pair_setup, pair_teardown);
}
