/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Queues that somebody else serves: their calls raise a message without us while one may be raised,
 * and only then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "devices/virtio/transport_pci.h"
#include "tests/unit/libfake.h"
#include "vmm/util.h"

#define QUEUE  2u
#define VECTOR 3u
#define OTHER  4u

static void call_by(struct fake_pci *f, unsigned queue, int fd)
{
	f->fake.device.transport->queue_call_fd(f->fake.device.transport_ctx, queue, fd);
}

static bool raises(struct fake_pci *f, int fd, unsigned vector)
{
	return board_raises(&f->board, fd, driver_message_address(&f->driver, vector),
			    driver_message_data(&f->driver, vector));
}

/* MSI-X on, the queue's vector set, DRIVER_OK. */
static void start(struct fake_pci *f)
{
	const struct virtio_features none = { 0 };

	assert_true(driver_reset(&f->driver));
	assert_true(driver_negotiate(&f->driver, &none));
	driver_msix_on(&f->driver);
	assert_true(driver_set_queue_vector(&f->driver, QUEUE, VECTOR));
	driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
}

static void test_calls_follow_masks(void **state)
{
	struct fake_pci *f = *state;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	start(f);
	assert_false(raises(f, fd, VECTOR));
	call_by(f, QUEUE, fd);
	assert_true(raises(f, fd, VECTOR));
	driver_mask_vector(&f->driver, VECTOR, true);
	assert_int_equal(f->board.joined_count, 0);
	/* What comes by us meanwhile is pending, and not lost. */
	virtio_queue_interrupt(&f->fake.device, QUEUE);
	assert_true(driver_vector_pending(&f->driver, VECTOR));
	driver_mask_vector(&f->driver, VECTOR, false);
	assert_int_equal(driver_wait_vector(&f->driver, VECTOR, 0), 1);
	assert_true(raises(f, fd, VECTOR));
	/* Another queue's mask is no matter. */
	driver_mask_vector(&f->driver, OTHER, true);
	assert_true(raises(f, fd, VECTOR));
	driver_mask_all(&f->driver, true);
	assert_int_equal(f->board.joined_count, 0);
	driver_mask_all(&f->driver, false);
	assert_true(raises(f, fd, VECTOR));
	driver_msix_off(&f->driver);
	assert_int_equal(f->board.joined_count, 0);
	driver_msix_on(&f->driver);
	assert_true(raises(f, fd, VECTOR));
	call_by(f, QUEUE, -1);
	assert_int_equal(f->board.joined_count, 0);
	driver_mask_vector(&f->driver, VECTOR, true);
	driver_mask_vector(&f->driver, VECTOR, false);
	assert_int_equal(f->board.joined_count, 0);
	close(fd);
}

static void test_calls_follow_vectors(void **state)
{
	struct fake_pci *f = *state;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int second = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	start(f);
	call_by(f, QUEUE, fd);
	assert_true(driver_set_queue_vector(&f->driver, QUEUE, OTHER));
	assert_true(raises(f, fd, OTHER));
	/* Two queues may share a vector. */
	assert_true(driver_set_queue_vector(&f->driver, QUEUE + 1, OTHER));
	call_by(f, QUEUE + 1, second);
	assert_true(raises(f, fd, OTHER) && raises(f, second, OTHER));
	driver_mask_vector(&f->driver, OTHER, true);
	assert_int_equal(f->board.joined_count, 0);
	assert_true(driver_set_queue_vector(&f->driver, QUEUE, VECTOR));
	assert_true(raises(f, fd, VECTOR));
	driver_set_queue_vector(&f->driver, QUEUE, VIRTIO_NO_VECTOR);
	assert_int_equal(f->board.joined_count, 0);
	driver_mask_vector(&f->driver, OTHER, false);
	assert_true(raises(f, second, OTHER));
	call_by(f, QUEUE, -1);
	call_by(f, QUEUE + 1, -1);
	assert_int_equal(f->board.joined_count, 0);
	close(fd);
	close(second);
}

static void test_calls_that_cannot_be_joined_come_to_us(void **state)
{
	struct fake_pci *f = *state;
	int fds[BOARD_JOINED], fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	const struct platform *platform = &f->board.platform;

	for (unsigned i = 0; i < BOARD_JOINED; i++) {
		fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_int_equal(platform->ops->msi_fd(platform->ctx, 0, fds[i], true), 0);
	}
	start(f);
	call_by(f, QUEUE, fd);
	assert_false(raises(f, fd, VECTOR));
	for (unsigned i = 0; i < BOARD_JOINED; i++) {
		assert_int_equal(platform->ops->msi_fd(platform->ctx, 0, fds[i], false), 0);
		close(fds[i]);
	}
	call_by(f, QUEUE, -1);
	call_by(f, QUEUE, fd);
	assert_true(raises(f, fd, VECTOR));
	call_by(f, QUEUE, -1);
	close(fd);
}

/* ---- CPUs that mask and that move queues, and the device that starts and stops ---- */

#define LAPS 300u

struct race {
	struct fake_pci *fake;
	atomic_bool stop;
};

static void *mask_main(void *arg)
{
	struct race *r = arg;

	for (unsigned n = 0; !atomic_load(&r->stop); n++)
		driver_mask_vector(&r->fake->driver, n & 2 ? VECTOR : OTHER, n & 1);
	driver_mask_vector(&r->fake->driver, VECTOR, true);
	driver_mask_vector(&r->fake->driver, OTHER, false);
	return NULL;
}

static void *move_main(void *arg)
{
	struct race *r = arg;

	for (unsigned n = 0; !atomic_load(&r->stop); n++)
		driver_set_queue_vector(&r->fake->driver, QUEUE, n & 1 ? VECTOR : OTHER);
	driver_set_queue_vector(&r->fake->driver, QUEUE, OTHER);
	return NULL;
}

static void test_calls_under_fire(void **state)
{
	void *(*const mains[])(void *) = { mask_main, move_main };
	struct fake_pci *f = *state;
	struct race race = { .fake = f };
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_t threads[ARRAY_SIZE(mains)];

	start(f);
	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, mains[i], &race), 0);
	for (unsigned lap = 0; lap < LAPS; lap++) {
		call_by(f, QUEUE, fd);
		call_by(f, QUEUE, -1);
	}
	call_by(f, QUEUE, fd);
	atomic_store(&race.stop, true);
	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		pthread_join(threads[i], NULL);
	assert_true(raises(f, fd, OTHER));
	assert_int_equal(f->board.joined_count, 1);
	call_by(f, QUEUE, -1);
	assert_int_equal(f->board.joined_count, 0);
	close(fd);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, fake_pci_setup, fake_pci_teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_calls_follow_masks),
		FRESH(test_calls_follow_vectors),
		FRESH(test_calls_that_cannot_be_joined_come_to_us),
		FRESH(test_calls_under_fire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
