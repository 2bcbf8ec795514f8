/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small steps of tests with traffic: one piece, one packet of NET_SIZE bytes, told by its seed. */
#ifndef WHELP_TESTS_LIBNET_H
#define WHELP_TESTS_LIBNET_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "tests/driver/nic.h"

#define NET_SIZE 100u

/* The status of a device that runs. */
#define NET_OK_STATUS                                                                              \
	(VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |      \
	 VIRTIO_CONFIG_S_DRIVER_OK)

/* A driver's setup with a control queue, and these features besides. */
#define NET_WITH(...)                                                                              \
	net_setup_with(sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned),                     \
		       (const unsigned[]){ __VA_ARGS__ })
struct nic_setup net_setup_with(size_t count, const unsigned *features);

/* Guest memory with a packet of `len` bytes. */
struct ring_piece net_tx_piece(struct nic *nic, uint32_t len, uint32_t seed);

/* One descriptor; `nic` is its token. */
void net_add_tx(struct nic *nic, struct ring_piece piece);
void net_add_rx(struct nic *nic, uint64_t gpa, uint32_t len);

/* The wire's other end gets the packet. */
void net_expect_packet(struct nic *nic, uint32_t seed);

/* The wire's other end sends a packet of `len` bytes. */
void net_send_to(struct nic *nic, uint32_t len, uint32_t seed);

/* A buffer is posted, a packet sent and received. */
void net_receive(struct nic *nic, uint32_t seed);

/* For who looks again and again: false once BOARD_PATIENCE is over since the first call. */
bool net_has_time(time_t *until);

#endif
