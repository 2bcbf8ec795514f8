/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's program against net_hash_frame() and the table: run by itself on given frames, and
 * in a tap of this process's own network namespace. What the process may not do is skipped, with
 * the reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/net/steer.h"
#include "tests/unit/libflow.h"

#define QUEUES	 4
#define PLAIN	 0x3fu
#define WAIT_MS	 60000
#define ETHERNET 14

/* ---- the program by itself ---- */

/* Skips the test if the program cannot be loaded here. */
static struct steer *open_or_skip(void)
{
	struct steer *steer;
	int err = steer_open(&steer);

	if (err == -EPERM || err == -EACCES || err == -ENOSYS) {
		print_message("bpf(): %s: run as root to have the kernel's program tested\n",
			      strerror(-err));
		skip();
	}
	assert_int_equal(err, 0);
	assert_non_null(steer);
	return steer;
}

/*
 * A socket filter's test run takes away an Ethernet header and shows the program the rest; a tap
 * shows it all. So the frame is what follows a header for nothing.
 */
static int run(const struct steer *steer, const struct flow_frame *frame)
{
	uint8_t data[ETHERNET + FLOW_FRAME_MAX] = { [12] = 0x88, [13] = 0xb5 };
	union bpf_attr attr;

	memcpy(data + ETHERNET, frame->data, frame->len);
	memset(&attr, 0, sizeof(attr));
	attr.test.prog_fd = (uint32_t)steer_fd(steer);
	attr.test.data_in = (uintptr_t)data;
	attr.test.data_size_in = (uint32_t)(ETHERNET + frame->len);
	if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof(attr)))
		return -errno;
	return (int)attr.test.retval;
}

static int expected(const struct net_rss *rss, const uint8_t *frame, size_t len)
{
	struct net_hash hash = net_hash_frame(rss, frame, len);

	return hash.report ? rss->table[hash.value & rss->table_mask] : rss->unclassified;
}

static void check(const struct steer *steer, const struct net_rss *rss,
		  const struct flow_frame *frame)
{
	int queue = run(steer, frame), pair = expected(rss, frame->data, frame->len);

	if (queue == pair)
		return;
	print_error("queue %d, not %d, for types %#x and the %zu bytes\n", queue, pair, rss->types,
		    frame->len);
	for (size_t i = 0; i < frame->len; i++)
		print_error("%02x", frame->data[i]);
	print_error("\n");
	fail();
}

static void test_before_settings(void **state)
{
	struct steer *steer = open_or_skip();
	struct flow_frame frame;
	uint64_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		do
			flow_random_frame(&frame, &seed);
		while (frame.len < ETHERNET);
		assert_int_equal(run(steer, &frame), 0);
	}
	steer_close(steer);
}

static void test_random_frames(void **state)
{
	struct steer *steer = open_or_skip();
	uint64_t seed = 0x57ee2;

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		struct net_rss rss;

		flow_random_rss(&rss, PLAIN, &seed);
		assert_int_equal(steer_set(steer, &rss), 0);
		for (unsigned j = 0; j < 100; j++) {
			struct flow_frame frame;

			flow_random_frame(&frame, &seed);
			if (frame.len >= ETHERNET)
				check(steer, &rss, &frame);
		}
	}
	steer_close(steer);
}

/* A frame of each kind, to every length; a table in which each queue stands once. */
static void test_every_truncation(void **state)
{
	struct steer *steer = open_or_skip();
	uint64_t seed = 0x7256;

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		struct flow_frame frame;
		struct net_rss rss;

		flow_random_rss(&rss, PLAIN, &seed);
		rss.types = PLAIN;
		rss.table_mask = NET_HASH_TABLE_MAX - 1;
		for (unsigned j = 0; j < NET_HASH_TABLE_MAX; j++)
			rss.table[j] = (uint16_t)j;
		rss.unclassified = 0xffff;
		assert_int_equal(steer_set(steer, &rss), 0);
		flow_random_frame(&frame, &seed);
		for (; frame.len >= ETHERNET; frame.len--)
			check(steer, &rss, &frame);
	}
	steer_close(steer);
}

/* Ports at every place around the last byte that is looked at. */
static void test_reach(void **state)
{
	struct steer *steer = open_or_skip();
	struct net_rss rss;
	uint64_t seed = 3;

	(void)state;
	flow_random_rss(&rss, PLAIN, &seed);
	rss.types = PLAIN;
	rss.table_mask = NET_HASH_TABLE_MAX - 1;
	for (unsigned i = 0; i < NET_HASH_TABLE_MAX; i++)
		rss.table[i] = (uint16_t)i;
	assert_int_equal(steer_set(steer, &rss), 0);
	/* Behind an AH header, whose length is in words of four bytes. */
	for (size_t ports = 14 + 40 + 8; ports <= NET_HASH_BYTES + 16; ports += 4) {
		struct flow_frame frame;
		size_t words;

		flow_ethernet(&frame, 0x86dd);
		flow_ipv6(&frame, "fc00::1", "fc00::2", 51);
		words = (ports - frame.len) / 4;
		flow_extension(&frame, 6, 40)[1] = (uint8_t)(words - 2);
		frame.len = ports;
		flow_ports(&frame, 4000, (uint16_t)ports);
		check(steer, &rss, &frame);
	}
	steer_close(steer);
}

static void test_extension_types_are_refused(void **state)
{
	struct steer *steer = open_or_skip();
	struct flow_frame frame;
	struct net_rss rss;
	uint64_t seed = 5;

	(void)state;
	flow_random_rss(&rss, 0, &seed);
	rss.unclassified = 21;
	assert_int_equal(steer_set(steer, &rss), 0);
	flow_ethernet(&frame, 0x0806);
	flow_ports(&frame, 1, 2);
	rss.unclassified = 22;
	for (unsigned bit = 6; bit < 9; bit++) {
		rss.types = PLAIN | 1u << bit;
		assert_int_equal(steer_set(steer, &rss), -EOPNOTSUPP);
		assert_int_equal(run(steer, &frame), 21);
	}
	steer_close(steer);
}

/* ---- in a tap ---- */

struct rig {
	struct steer *steer;
	int queues[QUEUES];
	int packet; /* sends on the tap, or on a VLAN of it */
};

static void open_queues(struct rig *rig)
{
	struct ifreq request = { .ifr_name = "steered" };

	request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE;
	for (unsigned i = 0; i < QUEUES; i++) {
		rig->queues[i] = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (rig->queues[i] < 0 || ioctl(rig->queues[i], TUNSETIFF, &request)) {
			print_message("no tap: %s\n", strerror(errno));
			skip();
		}
	}
}

static void set_up(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { 0 };

	assert_true(fd >= 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	request.ifr_flags = IFF_UP;
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

static int open_packet(const char *name)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	address.sll_ifindex = (int)if_nametoindex(name);
	assert_true(address.sll_ifindex > 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* What can be refused comes before what has to be freed. */
static void open_rig(struct rig *rig)
{
	int fd;

	if (unshare(CLONE_NEWNET)) {
		print_message("no network namespace: %s\n", strerror(errno));
		skip();
	}
	open_queues(rig);
	rig->steer = open_or_skip();
	fd = steer_fd(rig->steer);
	assert_int_equal(ioctl(rig->queues[0], TUNSETSTEERINGEBPF, &fd), 0);
	set_up("steered");
}

static void close_rig(struct rig *rig)
{
	close(rig->packet);
	for (unsigned i = 0; i < QUEUES; i++)
		close(rig->queues[i]);
	steer_close(rig->steer);
}

/*
 * Waits for the frame that has `serial` in its source address; passes over what the kernel sends by
 * itself. Returns the queue.
 */
static unsigned receive(const struct rig *rig, uint32_t serial, struct flow_frame *frame)
{
	struct pollfd fds[QUEUES];

	for (unsigned i = 0; i < QUEUES; i++)
		fds[i] = (struct pollfd){ .fd = rig->queues[i], .events = POLLIN };
	for (;;) {
		if (poll(fds, QUEUES, WAIT_MS) <= 0)
			fail_msg("the frame did not come");
		for (unsigned i = 0; i < QUEUES; i++) {
			ssize_t n = read(rig->queues[i], frame->data, sizeof(frame->data));

			if (n < ETHERNET)
				continue;
			frame->len = (size_t)n;
			if (!memcmp(frame->data + 8, &serial, sizeof(serial)))
				return i;
		}
	}
}

static void check_in_tap(struct rig *rig, uint64_t seed)
{
	unsigned used[QUEUES] = { 0 };

	for (uint32_t serial = 1; serial <= 2000; serial++) {
		struct flow_frame sent, received;
		struct net_rss rss;
		unsigned queue;

		if (serial % 50 == 1) {
			flow_random_rss(&rss, PLAIN, &seed);
			for (unsigned i = 0; i < NET_HASH_TABLE_MAX; i++)
				rss.table[i] %= QUEUES;
			rss.unclassified %= QUEUES;
			assert_int_equal(steer_set(rig->steer, &rss), 0);
		}
		do
			flow_random_frame(&sent, &seed);
		while (sent.len < ETHERNET);
		memcpy(sent.data + 8, &serial, sizeof(serial));
		assert_int_equal(send(rig->packet, sent.data, sent.len, 0), sent.len);
		queue = receive(rig, serial, &received);
		used[queue]++;
		assert_int_equal(queue, expected(&rss, received.data, received.len));
	}
	for (unsigned i = 0; i < QUEUES; i++)
		assert_true(used[i] > 100);
}

static void test_in_tap(void **state)
{
	struct rig rig;

	(void)state;
	open_rig(&rig);
	rig.packet = open_packet("steered");
	check_in_tap(&rig, 7);
	close_rig(&rig);
}

/* The tag that the VLAN's interface adds is not among the bytes that the program sees. */
static void test_in_tap_behind_vlan(void **state)
{
	struct vlan_ioctl_args args = { .cmd = ADD_VLAN_CMD, .device1 = "steered", .u.VID = 5 };
	struct rig rig;
	int fd, err;

	(void)state;
	open_rig(&rig);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	err = ioctl(fd, SIOCSIFVLAN, &args) ? errno : 0;
	close(fd);
	if (err) {
		rig.packet = -1;
		close_rig(&rig);
		print_message("no VLAN: %s\n", strerror(err));
		skip();
	}
	set_up("steered.5");
	rig.packet = open_packet("steered.5");
	check_in_tap(&rig, 8);
	close_rig(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_settings),
		cmocka_unit_test(test_random_frames),
		cmocka_unit_test(test_every_truncation),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_extension_types_are_refused),
		cmocka_unit_test(test_in_tap),
		cmocka_unit_test(test_in_tap_behind_vlan),
	};

	return cmocka_run_group_tests_name("steer", tests, NULL, NULL);
}
