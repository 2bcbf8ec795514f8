/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC's features, configuration and counters, and the back end that stands for the wire in tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/net/loopback.h"
#include "devices/virtio/net_stats.h"
#include "tests/driver/nic.h"
#include "tests/unit/libfront.h"
#include "vmm/util.h"

static const struct nic_setup plain = { 0 };

static void test_configuration(void **state)
{
	struct nic *nic = *state;

	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(driver_config(&nic->driver, i, 1), nic->net.config.mac[i]);
	assert_int_equal(driver_config(&nic->driver, offsetof(struct virtio_net_config, status), 2),
			 VIRTIO_NET_S_LINK_UP);
	assert_int_equal(driver_config(&nic->driver,
				       offsetof(struct virtio_net_config, max_virtqueue_pairs), 2),
			 1);
	assert_int_equal(driver_config(&nic->driver, offsetof(struct virtio_net_config, mtu), 2),
			 1500);
	assert_int_equal(driver_read(&nic->driver, COMMON_NUM_QUEUES, 2), 2);
	/* It is not the driver's to write. */
	for (unsigned i = 0; i < 16; i++)
		board_mmio_write(&nic->board, nic->driver.config + i, 1, 0xff);
	assert_int_equal(driver_config(&nic->driver, 0, 1), nic->net.config.mac[0]);
}

static void test_m17_configuration_at_every_offset_and_width(void **state)
{
	struct nic *nic = *state;
	const uint8_t *config = (const uint8_t *)&nic->net.config;

	for (unsigned width = 1; width <= 8; width *= 2) {
		for (unsigned offset = 0; offset + width <= 0x1000; offset++) {
			uint64_t got = driver_config(&nic->driver, offset, width);

			for (unsigned i = 0; i < width; i++)
				assert_int_equal(got >> 8 * i & 0xff,
						 offset + i < sizeof(nic->net.config)
							 ? config[offset + i]
							 : 0);
		}
	}
}

static const struct net_backend_ops no_ops;

static int no_fd(struct net_backend *backend)
{
	(void)backend;
	return -1;
}

static void test_h10_offers_what_the_back_end_can(void **state)
{
	static const struct {
		unsigned offload, feature;
	} pairs[] = {
		{ NET_OFFLOAD_CSUM, VIRTIO_NET_F_GUEST_CSUM },
		{ NET_OFFLOAD_TSO4, VIRTIO_NET_F_GUEST_TSO4 },
		{ NET_OFFLOAD_TSO6, VIRTIO_NET_F_GUEST_TSO6 },
		{ NET_OFFLOAD_ECN, VIRTIO_NET_F_GUEST_ECN },
	};
	struct net_backend_ops ops = no_ops;

	(void)state;
	ops.fd = no_fd;
	for (unsigned offloads = 0; offloads < 16; offloads++) {
		struct net_backend backend = { .ops = &ops, .name = "none", .offloads = offloads };
		struct virtio_net_options options = { .name = "net0",
						      .mtu = offloads % 2 ? 9000 : 0 };
		struct virtio_net net;
		struct mem mem;

		mem_init(&mem);
		assert_int_equal(virtio_net_init(&net, &options, &backend, &mem), 0);
		for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++)
			assert_int_equal(virtio_has(&net.device.offered, pairs[i].feature),
					 !!(offloads & pairs[i].offload));
		assert_int_equal(virtio_has(&net.device.offered, VIRTIO_NET_F_MTU), offloads % 2);
		assert_true(virtio_has(&net.device.offered, VIRTIO_NET_F_MAC));
		assert_true(virtio_has(&net.device.offered, VIRTIO_F_VERSION_1));
		virtio_net_fini(&net);
	}
}

static json_int_t member(json_t *root, const char *direction, const char *name)
{
	json_t *nic = json_array_get(json_object_get(root, "nics"), 0);
	json_t *value = json_object_get(json_object_get(nic, direction), name);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void test_counters_as_json(void **state)
{
	struct nic *nic = *state;
	struct virtio_net *nets[] = { &nic->net };
	const char *tmp = getenv("TMPDIR");
	char path[256], beside[300];
	struct stat info;
	json_t *root;

	nic_up(nic, &plain);
	nic_ping(nic);
	nic_ping(nic);
	assert_true(driver_reset(&nic->driver));
	snprintf(path, sizeof(path), "%s/whelp-stats-%ld", tmp ? tmp : "/tmp", (long)getpid());
	snprintf(beside, sizeof(beside), "%s.new", path);
	assert_int_equal(net_stats_write(path, "m0", nets, 1), 0);
	assert_int_equal(stat(beside, &info), -1);
	root = json_load_file(path, 0, NULL);
	unlink(path);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "machine")), "m0");
	assert_int_equal(member(root, "tx", "packets"), 2);
	assert_int_equal(member(root, "tx", "bytes"), 2 * 60);
	assert_int_equal(member(root, "tx", "dropped"), 0);
	assert_int_equal(member(root, "rx", "packets"), 2);
	assert_int_equal(member(root, "rx", "bytes"), 2 * 88);
	assert_true(member(root, "rx", "batches") >= 1);
	assert_true(member(root, "tx", "kicks") >= 1);
	member(root, "tx", "interrupts");
	member(root, "tx", "waits");
	json_decref(root);
}

static void test_counters_that_cannot_be_written(void **state)
{
	struct nic *nic = *state;
	struct virtio_net *nets[] = { &nic->net };
	char text[5000], long_path[4200];

	memset(long_path, 'x', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	capture_begin();
	assert_int_equal(net_stats_write("/nonexistent/stats", "m0", nets, 1), -ENOENT);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "/nonexistent/stats"));
	capture_begin();
	assert_int_equal(net_stats_write(long_path, "m0", nets, 1), -ENAMETOOLONG);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
}

/* ---- the loopback ---- */

static void test_loopback_keeps_its_contract(void **state)
{
	char out[] = "twelve bytes and a frame", in[64], beyond;
	struct iovec iov[2] = { { out, 10 }, { out + 10, sizeof(out) - 10 } };
	struct net_backend *b;
	int peer, fd, size = 1;

	(void)state;
	b = loopback_open(&peer);
	assert_non_null(b);
	fd = b->ops->fd(b);
	assert_int_equal(b->ops->recv(b, iov, 2), -EAGAIN);
	assert_int_equal(b->ops->send(b, iov, 2), sizeof(out));
	assert_int_equal(recv(peer, in, sizeof(in), 0), sizeof(out));
	assert_string_equal(in, out);
	/* A frame that does not fit is cut, and the last byte tells. */
	assert_int_equal(send(peer, out, sizeof(out), 0), sizeof(out));
	iov[0] = (struct iovec){ in, 5 };
	iov[1] = (struct iovec){ &beyond, 1 };
	assert_int_equal(b->ops->recv(b, iov, 2), 6);
	assert_int_equal(b->ops->recv(b, iov, 2), -EAGAIN);
	/* Full: wait for EPOLLOUT. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	iov[0] = (struct iovec){ out, sizeof(out) };
	while (b->ops->send(b, iov, 1) == sizeof(out))
		;
	assert_int_equal(b->ops->send(b, iov, 1), -EAGAIN);
	assert_false(board_wait_fd(fd, POLLOUT, 0) & POLLOUT);
	while (recv(peer, in, sizeof(in), 0) > 0)
		;
	assert_true(board_wait_fd(fd, POLLOUT, 0) & POLLOUT);
	assert_int_equal(b->ops->set_offloads(b, NET_OFFLOAD_CSUM), 0);
	assert_int_equal(loopback_offloads(b), NET_OFFLOAD_CSUM);
	/* Gone for good. */
	close(peer);
	assert_int_equal(b->ops->send(b, iov, 1), -EBADFD);
	assert_int_equal(b->ops->recv(b, iov, 1), -EBADFD);
	b->ops->close(b);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, nic_make, nic_unmake)
	const struct CMUnitTest tests[] = {
		FRESH(test_configuration),
		FRESH(test_m17_configuration_at_every_offset_and_width),
		cmocka_unit_test(test_h10_offers_what_the_back_end_can),
		FRESH(test_counters_as_json),
		FRESH(test_counters_that_cannot_be_written),
		cmocka_unit_test(test_loopback_keeps_its_contract),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
