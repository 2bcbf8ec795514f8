/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A NIC on a real tap: what headers mean there, frame by frame. No kernel's driver sends some of
 * these, ours does; the other end is a packet socket on the tap, whose frames have a header, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/net/tap.h"
#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define WIRE	  "wire"
#define DATA	  6000u
#define SEGMENT	  1448u /* TCP's, a multiple of 8 for fragments, too */
#define FRAME_MAX 8192u
#define MAX_PARTS 8u

/* With TCP's or UDP's header, and how long all headers are. */
struct frame {
	uint8_t bytes[FRAME_MAX];
	size_t len;
	size_t head;
};

struct rig {
	struct nic nic;
	int packet;
	uint8_t tap_mac[6];
};

static const uint8_t guest_mac[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };
static const uint8_t nobody[6] = { 0x02, 0, 0, 0, 0, 0x99 };
static const char guest_ip[] = "192.0.2.2", tap_ip[] = "192.0.2.1";

/* ---- the tap ---- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	/* A kernel without IPv6 has nothing to switch off. */
	if (fd < 0)
		return;
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void set_address(struct rig *rig)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = WIRE };
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;

	assert_true(fd >= 0);
	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	assert_int_equal(inet_pton(AF_INET, tap_ip, &address->sin_addr), 1);
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &request), 0);
	assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &request), 0);
	memcpy(rig->tap_mac, request.ifr_hwaddr.sa_data, sizeof(rig->tap_mac));
	close(fd);
}

static int open_packet(void)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)), 0);
	address.sll_ifindex = (int)if_nametoindex(WIRE);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* In a network namespace of the test's own; NULL where that may not be had, or no tap. */
static struct net_backend *open_tap(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		print_message("no network namespace: %s\n", strerror(errno));
		return NULL;
	}
	/* The kernel's own frames are none of ours. */
	write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
	return tap_open(WIRE, 1, 1500);
}

static int setup(void **state)
{
	const struct nic_config config = { 0 };
	struct net_backend *backend = open_tap();
	const int no_peer = -1;
	struct rig *rig;

	*state = NULL;
	if (!backend)
		return 0;
	rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	nic_init(&rig->nic, &config, backend, &no_peer);
	set_address(rig);
	rig->packet = open_packet();
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	if (!rig)
		return 0;
	close(rig->packet);
	nic_fini(&rig->nic);
	free(rig);
	return 0;
}

static struct rig *rig_of(void **state)
{
	if (!*state)
		skip();
	return *state;
}

/* The device anew, its driver with these features. */
static void up(struct rig *rig, size_t count, const unsigned *features)
{
	struct nic_setup setup = { .mergeable = true };

	for (size_t i = 0; i < count; i++) {
		if (!virtio_has(&rig->nic.net.device.offered, features[i])) {
			print_message("this kernel's tap does not have feature %u\n", features[i]);
			skip();
		}
		virtio_add(&setup.also, features[i]);
	}
	nic_up(&rig->nic, &setup);
}

#define UP(rig, ...) up(rig, sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned),               \
			(const unsigned[]){ __VA_ARGS__ })

/* ---- frames ---- */

static uint32_t add_up(const void *data, size_t len, uint32_t sum)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static uint32_t pseudo_sum(const struct iphdr *ip, size_t len)
{
	return add_up(&ip->saddr, 8, ip->protocol + (uint32_t)len);
}

/* TCP or UDP with DATA bytes; its checksum is still to be filled in. */
static struct frame *make_frame(const uint8_t to[6], const char *from_ip, const char *to_ip,
				uint8_t protocol)
{
	static struct frame frame;
	struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = protocol };
	size_t own = protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);
	uint8_t *at = frame.bytes;
	struct ethhdr ethernet = { .h_proto = htons(ETH_P_IP) };

	frame = (struct frame){ .head = sizeof(ethernet) + sizeof(ip) + own };
	frame.len = frame.head + DATA;
	memcpy(ethernet.h_dest, to, 6);
	memcpy(ethernet.h_source, nobody, 6);
	ip.tot_len = htons((uint16_t)(frame.len - sizeof(ethernet)));
	assert_int_equal(inet_pton(AF_INET, from_ip, &ip.saddr), 1);
	assert_int_equal(inet_pton(AF_INET, to_ip, &ip.daddr), 1);
	ip.check = htons((uint16_t)~add_up(&ip, sizeof(ip), 0));
	at = mempcpy(mempcpy(at, &ethernet, sizeof(ethernet)), &ip, sizeof(ip));
	if (protocol == IPPROTO_TCP) {
		struct tcphdr tcp = { .source = htons(7), .dest = htons(7), .doff = 5, .ack = 1 };

		tcp.res2 = 2; /* CWR: the sender has slowed down, as ECN asked it to */
		tcp.check = htons((uint16_t)pseudo_sum(&ip, own + DATA));
		at = mempcpy(at, &tcp, own);
	} else {
		struct udphdr udp = { .source = htons(7), .dest = htons(7) };

		udp.len = htons((uint16_t)(own + DATA));
		udp.check = htons((uint16_t)pseudo_sum(&ip, own + DATA));
		at = mempcpy(at, &udp, own);
	}
	for (unsigned i = 0; i < DATA; i++)
		at[i] = (uint8_t)(i * 7 + (i >> 8));
	return &frame;
}

static struct virtio_net_hdr header_of(const struct frame *frame, uint8_t gso_type)
{
	bool udp = gso_type == VIRTIO_NET_HDR_GSO_UDP;

	return (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = gso_type,
		.hdr_len = (uint16_t)frame->head,
		.gso_size = SEGMENT,
		.csum_start = sizeof(struct ethhdr) + sizeof(struct iphdr),
		.csum_offset = udp ? offsetof(struct udphdr, check)
				   : offsetof(struct tcphdr, check),
	};
}

/* ---- the two ends ---- */

/* The guest sends, in pieces of which the header takes two. */
static void guest_sends(struct rig *rig, struct virtio_net_hdr header, const struct frame *frame)
{
	size_t total = NIC_HEADER + frame->len;
	uint64_t gpa = board_alloc(&rig->nic.board, total, 1);
	uint8_t *memory = board_ptr(&rig->nic.board, gpa, total);
	const struct ring_piece pieces[] = { { gpa, 7 }, { gpa + 7, 40 },
					     { gpa + 47, (uint32_t)total - 47 } };

	memset(memory, 0, NIC_HEADER);
	memcpy(memory, &header, sizeof(header));
	memcpy(memory + NIC_HEADER, frame->bytes, frame->len);
	assert_int_equal(ring_add(&rig->nic.tx, pieces, ARRAY_SIZE(pieces), 0, rig), 0);
	nic_publish_tx(&rig->nic);
	nic_wait_tx(&rig->nic);
}

static void tap_sends(struct rig *rig, struct virtio_net_hdr header, struct frame *frame)
{
	struct iovec iov[] = { { &header, sizeof(header) }, { frame->bytes, frame->len } };

	assert_int_equal(writev(rig->packet, iov, ARRAY_SIZE(iov)), sizeof(header) + frame->len);
}

/* What the tap sees of that very frame. */
static struct virtio_net_hdr seen_by_tap(struct rig *rig, const struct frame *frame)
{
	struct virtio_net_hdr header;
	uint8_t bytes[FRAME_MAX];
	struct iovec iov[] = { { &header, sizeof(header) }, { bytes, sizeof(bytes) } };
	size_t expected = sizeof(header) + frame->len;
	ssize_t n;

	do {
		assert_true(board_wait_fd(rig->packet, POLLIN, BOARD_PATIENCE) & POLLIN);
		n = readv(rig->packet, iov, ARRAY_SIZE(iov));
		/* A large datagram of UDP has no header there. */
		assert_true(n > 0 || errno == EINVAL);
	} while ((size_t)n != expected || memcmp(bytes, frame->bytes, frame->len) != 0);
	return header;
}

/* A buffer for the guest; returns where. */
static uint8_t *post(struct rig *rig)
{
	uint64_t gpa = board_alloc(&rig->nic.board, FRAME_MAX, 1);

	net_add_rx(&rig->nic, gpa, FRAME_MAX);
	nic_publish_rx(&rig->nic);
	return board_ptr(&rig->nic.board, gpa, FRAME_MAX);
}

/* The next IPv4 frame that the guest gets; its header comes first. */
static const uint8_t *guest_gets(struct rig *rig, uint32_t *written)
{
	const uint8_t *packet;

	do {
		packet = post(rig);
		nic_wait_rx(&rig->nic, written);
	} while (packet[NIC_HEADER + 12] != 8 || packet[NIC_HEADER + 13] != 0);
	return packet;
}

/* ---- ECN: a large frame of which the first segment alone has CWR ---- */

static void test_ecn_to_the_tap(void **state)
{
	const uint8_t kind = VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN;
	struct rig *rig = rig_of(state);
	const struct frame *frame = make_frame(nobody, guest_ip, tap_ip, IPPROTO_TCP);
	struct virtio_net_hdr seen;

	UP(rig, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_ECN);
	guest_sends(rig, header_of(frame, kind), frame);
	seen = seen_by_tap(rig, frame);
	assert_int_equal(seen.gso_type, kind);
	assert_int_equal(seen.gso_size, SEGMENT);
}

static bool has_cwr(const uint8_t *packet)
{
	return packet[NIC_HEADER + sizeof(struct ethhdr) + sizeof(struct iphdr) + 13] & 0x80;
}

static void test_ecn_to_the_guest(void **state)
{
	const uint8_t kind = VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN;
	struct rig *rig = rig_of(state);
	struct frame *frame = make_frame(guest_mac, tap_ip, guest_ip, IPPROTO_TCP);
	const uint8_t *packet;
	uint32_t written;

	UP(rig, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_ECN);
	tap_sends(rig, header_of(frame, kind), frame);
	packet = guest_gets(rig, &written);
	assert_int_equal(written, NIC_HEADER + frame->len);
	assert_int_equal(packet[1], kind);
	assert_memory_equal(packet + NIC_HEADER, frame->bytes, frame->len);

	/* To a guest that takes none such, the kernel sends the segments. */
	UP(rig, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4);
	tap_sends(rig, header_of(frame, kind), frame);
	for (size_t got = 0, first = 1; got < DATA; first = 0) {
		packet = guest_gets(rig, &written);
		assert_int_equal(packet[1], VIRTIO_NET_HDR_GSO_NONE);
		assert_int_equal(has_cwr(packet), first);
		assert_true(written - NIC_HEADER <= frame->head + SEGMENT);
		got += written - NIC_HEADER - frame->head;
		assert_true(got <= DATA);
	}
}

/* ---- UFO: a datagram larger than the MTU ---- */

static void test_ufo_to_the_tap(void **state)
{
	struct rig *rig = rig_of(state);
	const struct frame *frame = make_frame(rig->tap_mac, guest_ip, tap_ip, IPPROTO_UDP);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7) };
	uint8_t data[DATA + 1];

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	UP(rig, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_UFO);
	guest_sends(rig, header_of(frame, VIRTIO_NET_HDR_GSO_UDP), frame);
	assert_true(board_wait_fd(fd, POLLIN, BOARD_PATIENCE) & POLLIN);
	assert_int_equal(recv(fd, data, sizeof(data), 0), DATA);
	assert_memory_equal(data, frame->bytes + frame->head, DATA);
	close(fd);
}

/* One fragment's part of the datagram; its offset is the next. Returns whether it is the last. */
static bool add_fragment(uint8_t *datagram, size_t *len, const uint8_t *packet, uint32_t written)
{
	struct iphdr ip;
	size_t part;
	uint16_t place;

	memcpy(&ip, packet + NIC_HEADER + sizeof(struct ethhdr), sizeof(ip));
	assert_int_equal(ip.protocol, IPPROTO_UDP);
	assert_int_equal(packet[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM, 0);
	assert_int_equal(packet[1], VIRTIO_NET_HDR_GSO_NONE);
	part = ntohs(ip.tot_len) - sizeof(ip);
	assert_true(part <= 1480 && written == NIC_HEADER + sizeof(struct ethhdr) + 20 + part);
	place = ntohs(ip.frag_off);
	assert_int_equal((place & IP_OFFMASK) * 8, *len);
	assert_true(*len + part <= sizeof(struct udphdr) + DATA);
	memcpy(datagram + *len, packet + NIC_HEADER + sizeof(struct ethhdr) + sizeof(ip), part);
	*len += part;
	return !(place & IP_MF);
}

/*
 * Kernels before 4.14 give the guest the whole, if it takes that; later ones always cut it. Either
 * way it is there, and complete.
 */
static void test_ufo_to_the_guest(void **state)
{
	struct rig *rig = rig_of(state);
	struct frame *frame = make_frame(guest_mac, tap_ip, guest_ip, IPPROTO_UDP);
	uint8_t datagram[sizeof(struct udphdr) + DATA];
	const size_t head = sizeof(struct ethhdr) + sizeof(struct iphdr);
	struct iphdr ip;

	memcpy(&ip, frame->bytes + sizeof(struct ethhdr), sizeof(ip));
	for (unsigned taken = 0; taken < 2; taken++) {
		const uint8_t *packet;
		uint32_t written;
		size_t len = 0;

		if (taken)
			UP(rig, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_UFO);
		else
			UP(rig, VIRTIO_NET_F_GUEST_CSUM);
		tap_sends(rig, header_of(frame, VIRTIO_NET_HDR_GSO_UDP), frame);
		packet = guest_gets(rig, &written);
		if (packet[1] == VIRTIO_NET_HDR_GSO_UDP) {
			assert_true(taken);
			assert_int_equal(written, NIC_HEADER + frame->len);
			assert_memory_equal(packet + NIC_HEADER, frame->bytes, frame->len);
			continue;
		}
		while (!add_fragment(datagram, &len, packet, written))
			packet = guest_gets(rig, &written);
		assert_int_equal(len, sizeof(datagram));
		assert_memory_equal(datagram + 8, frame->bytes + head + 8, DATA);
		assert_int_equal(add_up(datagram, len, pseudo_sum(&ip, len)), 0xffff);
	}
}

/* ---- the length of the headers ---- */

/* As much as the guest says lies in one piece in the kernel, which needs it so to look at it. */
static void test_hdrlen_is_what_the_tap_goes_by(void **state)
{
	struct rig *rig = rig_of(state);
	const struct frame *frame = make_frame(nobody, guest_ip, tap_ip, IPPROTO_TCP);
	const uint16_t more[] = { 0, 14, 500 };

	UP(rig, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_GUEST_HDRLEN);
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
		struct virtio_net_hdr header = header_of(frame, VIRTIO_NET_HDR_GSO_TCPV4);
		struct virtio_net_hdr seen;

		header.hdr_len = (uint16_t)(header.hdr_len + more[i]);
		guest_sends(rig, header, frame);
		seen = seen_by_tap(rig, frame);
		assert_int_equal(seen.hdr_len, header.hdr_len);
		assert_int_equal(seen.gso_type, VIRTIO_NET_HDR_GSO_TCPV4);
	}
}

/* Too small, and larger than the frame: it is no more than a hint, and the frame arrives. */
static void test_a_wrong_hdrlen_loses_nothing(void **state)
{
	struct rig *rig = rig_of(state);
	const struct net_counters *tx = &nic_pair(&rig->nic, 0)->tx.counters;
	const struct frame *frame = make_frame(nobody, guest_ip, tap_ip, IPPROTO_TCP);
	const uint16_t wrong[] = { 0, 1, 20, 40, FRAME_MAX, UINT16_MAX };

	for (unsigned exact = 0; exact < 2; exact++) {
		if (exact)
			UP(rig, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4,
			   VIRTIO_NET_F_GUEST_HDRLEN);
		else
			UP(rig, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4);
		for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
			struct virtio_net_hdr header = header_of(frame, VIRTIO_NET_HDR_GSO_TCPV4);
			struct virtio_net_hdr seen;

			header.hdr_len = wrong[i];
			guest_sends(rig, header, frame);
			seen = seen_by_tap(rig, frame);
			assert_int_equal(seen.gso_type, VIRTIO_NET_HDR_GSO_TCPV4);
			assert_int_equal(seen.gso_size, SEGMENT);
			assert_true(seen.hdr_len >= frame->head && seen.hdr_len <= frame->len);
		}
	}
	assert_int_equal(net_counter(&tx->dropped), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ecn_to_the_tap),
		cmocka_unit_test(test_ecn_to_the_guest),
		cmocka_unit_test(test_ufo_to_the_tap),
		cmocka_unit_test(test_ufo_to_the_guest),
		cmocka_unit_test(test_hdrlen_is_what_the_tap_goes_by),
		cmocka_unit_test(test_a_wrong_hdrlen_loses_nothing),
	};

	return cmocka_run_group_tests_name("net_tap_threads", tests, setup, teardown);
}
