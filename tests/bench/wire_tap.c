/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames to be received come by a packet socket, past the queueing discipline, and wait in the
 * tap's queue, which is made long enough. The tap spreads flows over its queues by a hash with a
 * random key: for each queue a flow is found by trying.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/net/tap.h"
#include "tests/bench/wire.h"
#include "vmm/util.h"

#define NAME   "bench0"
#define QUEUE  8192	   /* frames that the tap holds, for each of its queues */
#define MEMORY (32u << 20) /* bytes of frames that may wait there */
#define FLOWS  1000u

static int open_queue(bool many)
{
	struct ifreq request = { .ifr_name = NAME,
				 .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (many)
		request.ifr_flags |= IFF_MULTI_QUEUE;
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
		bench_die("no tap: %s%s", strerror(errno),
			  errno == EPERM || errno == EACCES ? ": it needs root" : "");
	return fd;
}

/* The host shall be silent: what it says by itself would be received, too. */
static void be_silent(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/" NAME "/disable_ipv6", O_WRONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return; /* no IPv6 at all */
	if (fd < 0 || write(fd, "1", 1) != 1)
		bench_die("cannot switch IPv6 off on %s: %s", NAME, strerror(errno));
	close(fd);
}

static int set_up(void)
{
	struct ifreq request = { .ifr_name = NAME, .ifr_qlen = QUEUE };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), index = -1;

	if (!ioctl(fd, SIOCSIFTXQLEN, &request) && !ioctl(fd, SIOCGIFINDEX, &request)) {
		index = request.ifr_ifindex;
		request.ifr_flags = IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &request))
			index = -1;
	}
	if (index < 0)
		bench_die("cannot set %s up: %s", NAME, strerror(errno));
	close(fd);
	return index;
}

static int open_feeder(int index)
{
	const struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_ifindex = index };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)))
		bench_die("no packet socket on %s: %s", NAME, strerror(errno));
	return fd;
}

/* Packet sockets have the header's old form, without the number of buffers. */
static void feed(int fd, const struct packet *packet)
{
	const size_t header = sizeof(struct virtio_net_hdr);
	struct iovec iov[2] = {
		{ .iov_base = (uint8_t *)packet->bytes, .iov_len = header },
		{ .iov_base = (uint8_t *)packet->bytes + BENCH_HEADER,
		  .iov_len = packet->len - BENCH_HEADER },
	};

	if (writev(fd, iov, 2) != (ssize_t)(packet->len - BENCH_HEADER + header))
		bench_die("%s does not take a frame: %s", NAME, strerror(errno));
}

/* The queue on which a short packet comes out; with one queue there is no question. */
static unsigned find_queue(const struct wire *wire, const struct packet *packet)
{
	uint8_t scratch[BENCH_HEADER + 1514];

	feed(wire->peers[0], packet);
	for (unsigned i = 0; i < wire->bench->pairs; i++)
		if (read(wire->fds[i], scratch, sizeof(scratch)) > 0)
			return i;
	bench_die("a frame got lost in %s", NAME);
}

static void find_flows(struct wire *wire)
{
	static struct packet trial;
	bool found[BENCH_MAX_PAIRS] = { false };
	unsigned missing = wire->bench->pairs;

	for (uint16_t port = 1; missing && port < FLOWS; port++) {
		unsigned queue;

		packet_make(&trial, BENCH_MIN_FRAME, port);
		queue = find_queue(wire, &trial);
		if (found[queue])
			continue;
		packet_make(&wire->packets[queue], wire->bench->size, port);
		found[queue] = true;
		missing--;
	}
	if (missing)
		bench_die("%s keeps to some of its queues", NAME);
}

void wire_open_tap(struct wire *wire)
{
	const struct bench *bench = wire->bench;
	int index;

	for (unsigned i = 0; i < bench->pairs; i++)
		wire->fds[i] = open_queue(bench->pairs > 1);
	snprintf(wire->tap, sizeof(wire->tap), "%s", NAME);
	be_silent();
	index = set_up();
	for (unsigned i = 0; i < bench->pairs; i++)
		wire->peers[i] = open_feeder(index);
	find_flows(wire);
	wire->inner = tap_open_fds(wire->fds, bench->pairs, 0);
	if (!wire->inner)
		bench_die("the back end does not take the tap");
	wire->capacity = MIN((unsigned)QUEUE, MEMORY / wire->packets[0].len);
}

void wire_feed_tap(struct wire *wire, unsigned pair, unsigned count)
{
	while (count--)
		feed(wire->peers[pair], &wire->packets[pair]);
}

/* Each namespace has its own /proc/net. */
uint64_t wire_tap_received(const struct wire *wire)
{
	FILE *file = fopen("/proc/self/net/dev", "re");
	uint64_t packets = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *name = strstr(line, wire->tap);

		if (name && sscanf(name + strlen(wire->tap), ": %*u %" SCNu64, &packets) == 1)
			break;
	}
	if (file)
		fclose(file);
	return packets;
}
