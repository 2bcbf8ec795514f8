/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A virtio device's status and features, without a transport. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/board.h"
#include "tests/unit/libfake.h"
#include "tests/unit/libfront.h"
#include "vmm/util.h"

#define ACK	    VIRTIO_CONFIG_S_ACKNOWLEDGE
#define DRIVER	    VIRTIO_CONFIG_S_DRIVER
#define FEATURES_OK VIRTIO_CONFIG_S_FEATURES_OK
#define DRIVER_OK   VIRTIO_CONFIG_S_DRIVER_OK
#define NEEDS_RESET VIRTIO_CONFIG_S_NEEDS_RESET
#define FAILED	    VIRTIO_CONFIG_S_FAILED

struct fixture {
	struct fake fake;
	struct mem mem;
	unsigned config_interrupts;
	unsigned queue_interrupts[FAKE_QUEUES];
};

static void queue_interrupt(void *ctx, unsigned queue)
{
	((struct fixture *)ctx)->queue_interrupts[queue]++;
}

static void config_interrupt(void *ctx)
{
	((struct fixture *)ctx)->config_interrupts++;
}

static const struct virtio_transport_ops transport_ops = {
	.queue_interrupt = queue_interrupt,
	.config_interrupt = config_interrupt,
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	mem_init(&f->mem);
	assert_int_equal(mem_add(&f->mem, 0, 0x10000), 0);
	fake_init(&f->fake, &f->mem);
	f->fake.device.transport = &transport_ops;
	f->fake.device.transport_ctx = f;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_fini(&f->fake);
	mem_fini(&f->mem);
	free(f);
	return 0;
}

static void write_features(struct virtio_device *device, const struct virtio_features *features)
{
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		virtio_write_features(device, i, features->word[i]);
}

static void negotiate(struct virtio_device *device)
{
	struct virtio_features features = { 0 };

	virtio_add(&features, VIRTIO_F_VERSION_1);
	virtio_write_status(device, ACK);
	virtio_write_status(device, ACK | DRIVER);
	write_features(device, &features);
	virtio_write_status(device, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER | FEATURES_OK);
}

static void enable_queue(struct virtio_device *device, unsigned queue)
{
	struct virtqueue *vq = &device->queues[queue].vq;

	vq_set_size(vq, 16);
	vq_set_desc(vq, 0x1000 * (queue + 1));
	vq_set_driver(vq, 0x1000 * (queue + 1) + 0x400);
	vq_set_device(vq, 0x1000 * (queue + 1) + 0x800);
	vq_enable(vq);
}

static void test_status_gains_bits_until_reset(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;

	assert_int_equal(virtio_status(device), 0);
	negotiate(device);
	enable_queue(device, 1);
	enable_queue(device, 4);
	assert_false(virtio_running(device));
	virtio_write_status(device, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_true(virtio_running(device));
	assert_int_equal(f->fake.activations, 1);
	/* The sparse set (G26). */
	assert_int_equal(f->fake.live, 1u << 1 | 1u << 4);
	/* Fewer bits take none away, and the same ones do nothing. */
	virtio_write_status(device, ACK);
	virtio_write_status(device, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(f->fake.activations, 1);
	assert_int_equal(f->fake.deactivations, 0);
	virtio_write_status(device, 0);
	assert_int_equal(virtio_status(device), 0);
	assert_int_equal(f->fake.deactivations, 1);
	assert_false(virtio_running(device));
	assert_false(device->queues[1].vq.live);
	assert_false(device->queues[1].vq.enabled);
	assert_int_equal(f->config_interrupts, 0);
}

static void test_reset_without_activation_deactivates_nothing(void **state)
{
	struct fixture *f = *state;

	virtio_write_status(&f->fake.device, 0);
	negotiate(&f->fake.device);
	virtio_write_status(&f->fake.device, 0);
	virtio_write_status(&f->fake.device, 0);
	assert_int_equal(f->fake.deactivations, 0);
}

static void test_driver_ok_needs_features_ok(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;

	virtio_write_status(device, ACK | DRIVER | DRIVER_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER);
	virtio_write_status(device, 0xff);
	assert_false(virtio_status(device) & (FEATURES_OK | DRIVER_OK));
	assert_int_equal(f->fake.activations, 0);
}

static void test_needs_reset_is_not_the_drivers_to_set(void **state)
{
	struct fixture *f = *state;

	virtio_write_status(&f->fake.device, NEEDS_RESET);
	assert_int_equal(virtio_status(&f->fake.device), 0);
	virtio_write_status(&f->fake.device, NEEDS_RESET | FAILED);
	assert_int_equal(virtio_status(&f->fake.device), FAILED);
}

static void test_features_ok_needs_version_1(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;
	struct virtio_features features = { 0 };

	virtio_write_status(device, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER);
	virtio_add(&features, FAKE_LOW_FEATURE);
	write_features(device, &features);
	virtio_write_status(device, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(virtio_status(device), ACK | DRIVER);
	/* It may think again. */
	negotiate(device);
}

static void test_g24_m15_features_not_offered_are_refused(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;

	for (unsigned bit = 0; bit < 32 * VIRTIO_FEATURE_WORDS; bit++) {
		struct virtio_features features = { 0 };
		bool offered = virtio_has(&device->offered, bit);

		virtio_write_status(device, 0);
		virtio_add(&features, VIRTIO_F_VERSION_1);
		virtio_add(&features, bit);
		virtio_write_status(device, ACK | DRIVER);
		write_features(device, &features);
		virtio_write_status(device, ACK | DRIVER | FEATURES_OK);
		assert_int_equal(virtio_status(device), ACK | DRIVER | (offered ? FEATURES_OK : 0));
		virtio_write_status(device, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
		assert_int_equal(virtio_running(device), offered);
	}
}

static void test_g24_features_after_features_ok_ignored(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;
	struct virtio_features before;

	negotiate(device);
	before = device->accepted;
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		virtio_write_features(device, i, 0xffffffff);
	assert_memory_equal(&before, &device->accepted, sizeof(before));
	virtio_write_status(device, 0);
	assert_false(virtio_has(&device->accepted, VIRTIO_F_VERSION_1));
}

static void test_g23_words_beyond_are_ignored(void **state)
{
	struct fixture *f = *state;

	virtio_write_features(&f->fake.device, VIRTIO_FEATURE_WORDS, 0xffffffff);
	virtio_write_features(&f->fake.device, 0xffffffff, 0xffffffff);
	for (unsigned i = 0; i < VIRTIO_FEATURE_WORDS; i++)
		assert_int_equal(f->fake.device.accepted.word[i], 0);
}

static void expect_failed(struct fixture *f, const char *words)
{
	char text[1024];

	capture_begin();
	virtio_write_status(&f->fake.device, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "fake0"));
	assert_non_null(strstr(text, words));
	assert_true(virtio_status(&f->fake.device) & NEEDS_RESET);
	assert_false(virtio_running(&f->fake.device));
	assert_int_equal(f->config_interrupts, 1);
	virtio_write_status(&f->fake.device, 0);
	assert_int_equal(virtio_status(&f->fake.device), 0);
	assert_int_equal(f->fake.deactivations, 0);
}

static void test_m21_bad_queue_needs_reset(void **state)
{
	struct fixture *f = *state;

	negotiate(&f->fake.device);
	enable_queue(&f->fake.device, 0);
	vq_set_desc(&f->fake.device.queues[2].vq, 0x100000);
	vq_enable(&f->fake.device.queues[2].vq);
	expect_failed(f, "queue 2");
	assert_int_equal(f->fake.activations, 0);
	assert_false(f->fake.device.queues[0].vq.live);
}

static void test_device_that_cannot_start_needs_reset(void **state)
{
	struct fixture *f = *state;

	f->fake.activate_result = -ENOMEM;
	negotiate(&f->fake.device);
	expect_failed(f, "could not start");
}

static void test_m21_no_queues(void **state)
{
	struct fixture *f = *state;

	negotiate(&f->fake.device);
	virtio_write_status(&f->fake.device, DRIVER_OK);
	assert_true(virtio_running(&f->fake.device));
	assert_int_equal(f->fake.live, 0);
}

static void test_failures_are_logged_at_a_limit(void **state)
{
	struct fixture *f = *state;
	char text[8192];

	capture_begin();
	for (unsigned i = 0; i < 1000; i++)
		virtio_device_failed(&f->fake.device, 0, "it did");
	assert_true(capture_end(text, sizeof(text)) <= LOG_BURST + 1);
	assert_int_equal(f->config_interrupts, 1000);
}

static void test_kicks_reach_the_eventfd_and_end_with_a_reset(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = &f->fake.device;

	virtio_kick(device, FAKE_QUEUES);
	virtio_kick(device, 0xffffffff);
	for (unsigned i = 0; i < FAKE_QUEUES; i++)
		assert_false(board_wait_fd(device->queues[i].kick_fd, POLLIN, 0));
	virtio_kick(device, 3);
	assert_true(board_wait_fd(device->queues[3].kick_fd, POLLIN, 0));
	virtio_write_status(device, 0);
	assert_false(board_wait_fd(device->queues[3].kick_fd, POLLIN, 0));
}

static void test_interrupts_go_to_the_transport(void **state)
{
	struct fixture *f = *state;

	virtio_queue_interrupt(&f->fake.device, 2);
	assert_int_equal(f->queue_interrupts[2], 1);
	assert_int_equal(f->config_interrupts, 0);
}

static void test_g1_queues_after_reset(void **state)
{
	struct fixture *f = *state;

	negotiate(&f->fake.device);
	for (unsigned i = 0; i < FAKE_QUEUES; i++)
		enable_queue(&f->fake.device, i);
	virtio_write_status(&f->fake.device, 0xff & ~(FAILED | NEEDS_RESET));
	virtio_write_status(&f->fake.device, 0);
	for (unsigned i = 0; i < FAKE_QUEUES; i++) {
		const struct virtqueue *vq = &f->fake.device.queues[i].vq;

		assert_int_equal(vq->size, FAKE_SIZE);
		assert_int_equal(vq->desc_gpa, 0);
		assert_int_equal(vq->driver_gpa, 0);
		assert_int_equal(vq->device_gpa, 0);
		assert_false(vq->enabled);
		assert_false(vq->live);
	}
}

static void test_fini_of_a_zeroed_device(void **state)
{
	struct virtio_device device = { 0 };

	(void)state;
	virtio_device_fini(&device);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		FRESH(test_status_gains_bits_until_reset),
		FRESH(test_reset_without_activation_deactivates_nothing),
		FRESH(test_driver_ok_needs_features_ok),
		FRESH(test_needs_reset_is_not_the_drivers_to_set),
		FRESH(test_features_ok_needs_version_1),
		FRESH(test_g24_m15_features_not_offered_are_refused),
		FRESH(test_g24_features_after_features_ok_ignored),
		FRESH(test_g23_words_beyond_are_ignored),
		FRESH(test_m21_bad_queue_needs_reset),
		FRESH(test_device_that_cannot_start_needs_reset),
		FRESH(test_m21_no_queues),
		FRESH(test_failures_are_logged_at_a_limit),
		FRESH(test_kicks_reach_the_eventfd_and_end_with_a_reset),
		FRESH(test_interrupts_go_to_the_transport),
		FRESH(test_g1_queues_after_reset),
		cmocka_unit_test(test_fini_of_a_zeroed_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
