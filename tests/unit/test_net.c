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
#include <unistd.h>

#include "devices/net/loopback.h"
#include "devices/virtio/net_stats.h"
#include "tests/driver/nic.h"
#include "tests/unit/libfront.h"
#include "vmm/linux_new.h"
#include "vmm/net_features.h"
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
	/* And the control queue. */
	assert_int_equal(driver_read(&nic->driver, COMMON_NUM_QUEUES, 2), 3);
	/* It is not the driver's to write. */
	for (unsigned i = 0; i < 16; i++)
		board_mmio_write(&nic->board, nic->driver.config + i, 1, 0xff);
	assert_int_equal(driver_config(&nic->driver, 0, 1), nic->net.config.mac[0]);
}

static void test_m17_configuration_at_every_offset_and_width(void **state)
{
	struct nic *nic = *state;
	struct virtio_net_config expected = nic->net.config;
	const uint8_t *config = (const uint8_t *)&expected;

	expected.status = VIRTIO_NET_S_LINK_UP;
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

static int no_fd(struct net_backend *backend, unsigned queue)
{
	(void)backend;
	(void)queue;
	return -1;
}

static void test_h10_offers_what_the_back_end_can(void **state)
{
	/*
	 * Each is offered if the back end can do it, and one of the others if there is any it
	 * needs.
	 */
	static const struct {
		unsigned offload, feature, needs;
	} guest[] = {
		{ NET_OFFLOAD_CSUM, VIRTIO_NET_F_GUEST_CSUM, 0 },
		{ NET_OFFLOAD_TSO4, VIRTIO_NET_F_GUEST_TSO4, NET_OFFLOAD_CSUM },
		{ NET_OFFLOAD_TSO6, VIRTIO_NET_F_GUEST_TSO6, NET_OFFLOAD_CSUM },
		{ NET_OFFLOAD_ECN, VIRTIO_NET_F_GUEST_ECN, NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 },
		{ NET_OFFLOAD_UFO, VIRTIO_NET_F_GUEST_UFO, NET_OFFLOAD_CSUM },
		{ NET_OFFLOAD_USO, VIRTIO_NET_F_GUEST_USO4, NET_OFFLOAD_CSUM },
		{ NET_OFFLOAD_USO, VIRTIO_NET_F_GUEST_USO6, NET_OFFLOAD_CSUM },
	};
	static const struct {
		unsigned offloads, feature;
	} host[] = {
		{ NET_OFFLOAD_UFO, VIRTIO_NET_F_HOST_UFO },
		{ NET_OFFLOAD_USO, VIRTIO_NET_F_HOST_USO },
		{ NET_OFFLOAD_TUNNEL | NET_OFFLOAD_USO, VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO },
	};
	struct net_backend_ops ops = no_ops;

	(void)state;
	ops.fd = no_fd;
	for (unsigned offloads = 0; offloads < 0x100; offloads++) {
		struct net_backend backend = {
			.ops = &ops, .name = "none", .queues = 1, .offloads = offloads
		};
		struct virtio_net_options options = { .name = "net0",
						      .mtu = offloads % 2 ? 9000 : 0,
						      .rx_ring = 256,
						      .tx_ring = 256 };
		unsigned possible = 0;
		struct virtio_net net;
		struct mem mem;

		mem_init(&mem);
		memset(&options.wanted, 0xff, sizeof(options.wanted));
		assert_int_equal(virtio_net_init(&net, &options, &backend, &mem), 0);
		for (unsigned i = 0; i < ARRAY_SIZE(guest); i++) {
			bool offered = (offloads & guest[i].offload) &&
				       (!guest[i].needs || (possible & guest[i].needs));

			assert_int_equal(virtio_has(&net.device.offered, guest[i].feature),
					 offered);
			possible |= offered ? guest[i].offload : 0;
		}
		for (unsigned i = 0; i < ARRAY_SIZE(host); i++)
			assert_int_equal(virtio_has(&net.device.offered, host[i].feature),
					 (offloads & host[i].offloads) == host[i].offloads);
		assert_int_equal(virtio_has(&net.device.offered, VIRTIO_NET_F_MTU), offloads % 2);
		assert_true(virtio_has(&net.device.offered, VIRTIO_NET_F_MAC));
		assert_true(virtio_has(&net.device.offered, VIRTIO_F_VERSION_1));
		/* There is one pair. */
		assert_false(virtio_has(&net.device.offered, VIRTIO_NET_F_MQ));
		assert_false(virtio_has(&net.device.offered, VIRTIO_NET_F_RSS));
		virtio_net_fini(&net);
	}
}

static void test_what_is_not_wanted_is_not_offered(void **state)
{
	struct net_backend_ops ops = no_ops;
	struct net_backend backend = { .ops = &ops, .name = "none", .queues = 1 };

	(void)state;
	ops.fd = no_fd;
	for (unsigned i = 0; i < net_feature_count; i++) {
		unsigned bit = net_features[i].bit;
		struct virtio_net_options options = {
			.name = "net0", .rx_ring = 16, .tx_ring = 16
		};
		struct virtio_net net;
		struct mem mem;

		mem_init(&mem);
		virtio_add(&options.wanted, bit);
		assert_int_equal(virtio_net_init(&net, &options, &backend, &mem), 0);
		for (unsigned other = 0; other < 32 * VIRTIO_FEATURE_WORDS; other++)
			if (virtio_has(&net.device.offered, other))
				assert_int_equal(other, bit);
		virtio_net_fini(&net);
	}
}

static void test_required_and_impossible_is_refused(void **state)
{
	struct net_backend_ops ops = no_ops;
	struct net_backend backend = { .ops = &ops, .name = "none", .queues = 1 };
	struct virtio_net_options options = { .name = "net0", .rx_ring = 16, .tx_ring = 16 };
	struct virtio_net net;
	struct mem mem;
	char text[1024];

	(void)state;
	ops.fd = no_fd;
	mem_init(&mem);
	memset(&options.wanted, 0xff, sizeof(options.wanted));
	virtio_add(&options.required, VIRTIO_NET_F_HOST_USO);
	capture_begin();
	assert_int_equal(virtio_net_init(&net, &options, &backend, &mem), -EOPNOTSUPP);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "host_uso"));
	virtio_net_fini(&net);
}

static json_int_t member(json_t *nic, const char *direction, const char *name)
{
	json_t *value = json_object_get(json_object_get(nic, direction), name);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void test_counters_as_json(void **state)
{
	struct nic *nic = *state;
	json_t *root;

	nic_up(nic, &plain);
	nic_ping(nic);
	nic_ping(nic);
	assert_true(driver_reset(&nic->driver));
	root = net_stats_json(&nic->net);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "backend")),
			    nic->net.backend->name);
	assert_int_equal(json_array_size(json_object_get(root, "pairs")), 1);
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

/* ---- the loopback ---- */

static void test_loopback_keeps_its_contract(void **state)
{
	char out[] = "twelve bytes and a frame", in[64], beyond;
	struct iovec iov[2] = { { out, 10 }, { out + 10, sizeof(out) - 10 } };
	struct net_backend *b;
	int peer, fd, size = 1;

	(void)state;
	b = loopback_open(1, &peer);
	assert_non_null(b);
	fd = b->ops->fd(b, 0);
	assert_int_equal(b->ops->recv(b, 0, iov, 2), -EAGAIN);
	assert_int_equal(b->ops->send(b, 0, iov, 2), sizeof(out));
	assert_int_equal(recv(peer, in, sizeof(in), 0), sizeof(out));
	assert_string_equal(in, out);
	/* A frame that does not fit is cut, and the last byte tells. */
	assert_int_equal(send(peer, out, sizeof(out), 0), sizeof(out));
	iov[0] = (struct iovec){ in, 5 };
	iov[1] = (struct iovec){ &beyond, 1 };
	assert_int_equal(b->ops->recv(b, 0, iov, 2), 6);
	assert_int_equal(b->ops->recv(b, 0, iov, 2), -EAGAIN);
	/* Full: wait for EPOLLOUT. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	iov[0] = (struct iovec){ out, sizeof(out) };
	while (b->ops->send(b, 0, iov, 1) == sizeof(out))
		;
	assert_int_equal(b->ops->send(b, 0, iov, 1), -EAGAIN);
	assert_false(board_wait_fd(fd, POLLOUT, 0) & POLLOUT);
	while (recv(peer, in, sizeof(in), 0) > 0)
		;
	assert_true(board_wait_fd(fd, POLLOUT, 0) & POLLOUT);
	assert_int_equal(b->ops->set_offloads(b, NET_OFFLOAD_CSUM), 0);
	assert_int_equal(loopback_offloads(b), NET_OFFLOAD_CSUM);
	/* Gone for good. */
	close(peer);
	assert_int_equal(b->ops->send(b, 0, iov, 1), -EBADFD);
	assert_int_equal(b->ops->recv(b, 0, iov, 1), -EBADFD);
	b->ops->close(b);
}

static void expect_recv(struct net_backend *b, unsigned queue, ssize_t result)
{
	char in[64];
	struct iovec iov = { in, sizeof(in) };

	assert_int_equal(b->ops->recv(b, queue, &iov, 1), result);
}

static void expect_send(struct net_backend *b, unsigned queue, ssize_t result)
{
	char out[30] = { 0 };
	struct iovec iov = { out, sizeof(out) };

	assert_int_equal(b->ops->send(b, queue, &iov, 1), result);
}

static void test_loopback_queues_come_and_go_in_order(void **state)
{
	const struct net_rss rss = { .steering = true, .types = 3 };
	struct net_backend *b;
	int peers[3];

	(void)state;
	b = loopback_open(3, peers);
	assert_non_null(b);
	assert_int_equal(loopback_in_use(b), 1);
	assert_int_equal(b->ops->enable(b, 2, true), -EINVAL);
	/* Out of use: what comes is lost, what is sent refused. */
	assert_int_equal(send(peers[1], "lost", 4, 0), 4);
	expect_recv(b, 1, -EAGAIN);
	expect_send(b, 1, -EBADFD);
	assert_int_equal(b->ops->enable(b, 1, true), 0);
	assert_int_equal(b->ops->enable(b, 1, true), 0);
	assert_int_equal(b->ops->enable(b, 2, true), 0);
	assert_int_equal(loopback_in_use(b), 3);
	expect_recv(b, 1, -EAGAIN);
	expect_send(b, 1, 30);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(send(peers[i], "some", i + 1, 0), i + 1);
		expect_recv(b, i, i + 1);
	}
	assert_int_equal(b->ops->enable(b, 1, false), -EINVAL);
	assert_int_equal(send(peers[2], "lost", 4, 0), 4);
	assert_int_equal(b->ops->enable(b, 2, false), 0);
	assert_int_equal(b->ops->enable(b, 2, true), 0);
	expect_recv(b, 2, -EAGAIN);
	assert_int_equal(b->ops->set_header(b, 13), -EINVAL);
	assert_int_equal(b->ops->set_header(b, 20), 0);
	assert_int_equal(loopback_header(b), 20);
	assert_null(loopback_steering(b));
	assert_int_equal(b->ops->set_steering(b, &rss), 0);
	assert_memory_equal(loopback_steering(b), &rss, sizeof(rss));
	assert_int_equal(b->ops->set_steering(b, NULL), 0);
	assert_null(loopback_steering(b));
	for (unsigned i = 0; i < 3; i++)
		close(peers[i]);
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
		cmocka_unit_test(test_what_is_not_wanted_is_not_offered),
		cmocka_unit_test(test_required_and_impossible_is_refused),
		cmocka_unit_test(test_loopback_keeps_its_contract),
		cmocka_unit_test(test_loopback_queues_come_and_go_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
