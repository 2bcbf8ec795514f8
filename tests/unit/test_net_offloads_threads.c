/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a driver takes of large and unfinished frames, and switches while it runs; its header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "devices/net/loopback.h"
#include "tests/unit/libnet.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

static uint8_t set_offloads(struct nic *nic, uint64_t offloads)
{
	return nic_command(nic, VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
			   &offloads, sizeof(offloads));
}

#define BIT(name) (1ull << VIRTIO_NET_F_GUEST_##name)

static void test_g7_offloads_at_run_time(void **state)
{
	const struct nic_setup setup =
		NET_WITH(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_GUEST_CSUM,
			 VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4,
			 VIRTIO_NET_F_GUEST_USO6);
	const unsigned tso = NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6;
	const struct nic_setup none = { .control = true };
	struct nic *nic = *state;

	for (unsigned lap = 0; lap < 2; lap++) {
		nic_up(nic, &setup);
		assert_int_equal(loopback_offloads(nic->backend), tso | NET_OFFLOAD_USO);
		assert_int_equal(set_offloads(nic, 0), VIRTIO_NET_OK);
		assert_int_equal(loopback_offloads(nic->backend), 0);
		assert_int_equal(set_offloads(nic, BIT(CSUM)), VIRTIO_NET_OK);
		assert_int_equal(loopback_offloads(nic->backend), NET_OFFLOAD_CSUM);
		/* Without what they need they are nothing. */
		assert_int_equal(set_offloads(nic, BIT(TSO4) | BIT(TSO6)), VIRTIO_NET_OK);
		assert_int_equal(loopback_offloads(nic->backend), 0);
		assert_int_equal(set_offloads(nic, BIT(CSUM) | BIT(TSO4) | BIT(TSO6)),
				 VIRTIO_NET_OK);
		assert_int_equal(loopback_offloads(nic->backend), tso);
		/* Not negotiated. */
		assert_int_equal(set_offloads(nic, BIT(CSUM) | BIT(ECN)), VIRTIO_NET_ERR);
		assert_int_equal(set_offloads(nic, ~0ull), VIRTIO_NET_ERR);
		assert_int_equal(loopback_offloads(nic->backend), tso);
	}
	nic_up(nic, &none);
	assert_int_equal(loopback_offloads(nic->backend), 0);
	assert_int_equal(set_offloads(nic, 0), VIRTIO_NET_ERR);
}

/* A frame with these flags and of this kind comes, or is dropped: then a plain one comes. */
static void expect_kind(struct nic *nic, uint8_t flags, uint8_t gso_type, bool comes)
{
	const uint64_t dropped = net_counter(&nic_pair(nic, 0)->rx.counters.dropped);
	uint64_t gpa = board_alloc(&nic->board, NET_SIZE, 1);
	const uint8_t *got = board_ptr(&nic->board, gpa, NET_SIZE);
	uint8_t packet[NET_SIZE];
	uint32_t written;

	nic_fill(packet, NET_SIZE, 1);
	packet[0] = flags;
	packet[1] = gso_type;
	nic_peer_send(nic, packet, NET_SIZE);
	if (!comes) {
		nic_fill(packet, NET_SIZE, 2);
		nic_peer_send(nic, packet, NET_SIZE);
	}
	net_add_rx(nic, gpa, NET_SIZE);
	nic_publish_rx(nic);
	nic_wait_rx(nic, &written);
	assert_int_equal(written, NET_SIZE);
	assert_int_equal(net_counter(&nic_pair(nic, 0)->rx.counters.dropped), dropped + !comes);
	assert_memory_equal(got + NIC_HEADER, packet + NIC_HEADER, NET_SIZE - NIC_HEADER);
	if (comes)
		assert_int_equal(got[1], gso_type);
}

/* What the back end had queued when there were more offloads is not the driver's any more. */
static void test_g7_old_frames(void **state)
{
	enum {
		CSUM = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		VALID = VIRTIO_NET_HDR_F_DATA_VALID,
		TCP4 = VIRTIO_NET_HDR_GSO_TCPV4,
		TCP6 = VIRTIO_NET_HDR_GSO_TCPV6,
		UDP = VIRTIO_NET_HDR_GSO_UDP_L4,
		TUNNEL = VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4,
		ECN = VIRTIO_NET_HDR_GSO_ECN,
	};
	const struct nic_setup setup =
		NET_WITH(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_GUEST_CSUM,
			 VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
			 VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6);
	struct nic *nic = *state;

	nic_up(nic, &setup);
	expect_kind(nic, CSUM, TCP4, true);
	expect_kind(nic, CSUM, UDP, true);
	assert_int_equal(set_offloads(nic, BIT(CSUM) | BIT(TSO4)), VIRTIO_NET_OK);
	expect_kind(nic, CSUM, TCP4, true);
	expect_kind(nic, CSUM, TCP4 | ECN, false);
	expect_kind(nic, CSUM, TCP4 | TUNNEL, false);
	expect_kind(nic, CSUM, TCP6, false);
	expect_kind(nic, CSUM, UDP, false);
	expect_kind(nic, CSUM, 2, false);
	expect_kind(nic, VALID, 0, true);
	assert_int_equal(set_offloads(nic, 0), VIRTIO_NET_OK);
	expect_kind(nic, CSUM, TCP4, false);
	expect_kind(nic, CSUM, 0, false);
	expect_kind(nic, 0, 0, true);
	/* Back again; and a reset takes everything back. */
	assert_int_equal(set_offloads(nic, BIT(CSUM) | BIT(USO4) | BIT(USO6)), VIRTIO_NET_OK);
	expect_kind(nic, CSUM, UDP, true);
	expect_kind(nic, CSUM, TCP6, false);
	nic_up(nic, &setup);
	expect_kind(nic, CSUM, TCP6 | ECN, true);
}

/* Without GUEST_CSUM the flags are zero, whatever a tap knows of the checksum (5.1.6.4.1). */
static void test_no_flags_without_guest_csum(void **state)
{
	const struct nic_setup none = { .control = true };
	const struct nic_setup csum = NET_WITH(VIRTIO_NET_F_GUEST_CSUM);
	const struct nic_setup *setups[] = { &none, &csum };
	struct nic *nic = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(setups); i++) {
		uint8_t packet[NET_SIZE];
		uint32_t written;
		uint64_t gpa;

		nic_up(nic, setups[i]);
		gpa = board_alloc(&nic->board, NET_SIZE, 1);
		nic_fill(packet, NET_SIZE, 1);
		packet[0] = VIRTIO_NET_HDR_F_DATA_VALID;
		nic_peer_send(nic, packet, NET_SIZE);
		net_add_rx(nic, gpa, NET_SIZE);
		nic_publish_rx(nic);
		nic_wait_rx(nic, &written);
		assert_int_equal(*(uint8_t *)board_ptr(&nic->board, gpa, NET_SIZE),
				 i ? VIRTIO_NET_HDR_F_DATA_VALID : 0);
	}
}

static void test_the_header_follows_the_features(void **state)
{
	const struct nic_setup plain = { 0 };
	const struct nic_setup hash = NET_WITH(VIRTIO_NET_F_HASH_REPORT);
	const struct nic_setup tunnel =
		NET_WITH(VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
			 VIRTIO_NET_F_HOST_USO, VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO);
	struct nic *nic = *state;

	nic_up(nic, &hash);
	assert_int_equal(loopback_header(nic->backend), 20);
	nic_up(nic, &tunnel);
	assert_int_equal(loopback_header(nic->backend), 24);
	nic_up(nic, &plain);
	assert_int_equal(loopback_header(nic->backend), 12);
	nic_ping(nic);
}

/* Each kind for itself: what the driver switched to comes, and no other. */
static void test_g7_each_kind(void **state)
{
	static const struct {
		uint64_t offloads;
		uint8_t gso_type;
	} kinds[] = {
		{ BIT(TSO4), VIRTIO_NET_HDR_GSO_TCPV4 },
		{ BIT(TSO6), VIRTIO_NET_HDR_GSO_TCPV6 },
		{ BIT(TSO4) | BIT(ECN), VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN },
		{ BIT(TSO6) | BIT(ECN), VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_ECN },
		{ BIT(UFO), VIRTIO_NET_HDR_GSO_UDP },
		{ BIT(USO4) | BIT(USO6), VIRTIO_NET_HDR_GSO_UDP_L4 },
	};
	const struct nic_setup setup =
		NET_WITH(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_GUEST_CSUM,
			 VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
			 VIRTIO_NET_F_GUEST_UFO, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6);
	struct nic *nic = *state;

	nic_up(nic, &setup);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		uint8_t taken = kinds[i].gso_type;

		assert_int_equal(set_offloads(nic, BIT(CSUM) | kinds[i].offloads), VIRTIO_NET_OK);
		for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
			uint8_t kind = kinds[k].gso_type;

			/* ECN is besides TSO. */
			expect_kind(nic, VIRTIO_NET_HDR_F_NEEDS_CSUM, kind,
				    kind == taken || (kind | VIRTIO_NET_HDR_GSO_ECN) == taken);
		}
	}
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, nic_make, nic_unmake)
	const struct CMUnitTest tests[] = {
		FRESH(test_g7_offloads_at_run_time),
		FRESH(test_g7_old_frames),
		FRESH(test_g7_each_kind),
		FRESH(test_no_flags_without_guest_csum),
		FRESH(test_the_header_follows_the_features),
	};

	return cmocka_run_group_tests_name("net_offloads_threads", tests, NULL, NULL);
}
