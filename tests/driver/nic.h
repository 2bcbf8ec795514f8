/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A virtio-net device on a board, with a socketpair for its wire and a driver of ours in front:
 * what tests of traffic share. The driver runs in the test's thread, or several; the device has its
 * worker.
 */
#ifndef WHELP_TESTS_NIC_H
#define WHELP_TESTS_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/net/backend.h"
#include "devices/virtio/net.h"
#include "devices/virtio/transport_pci.h"
#include "tests/driver/board.h"
#include "tests/driver/ring.h"
#include "tests/driver/virtio_driver.h"

#define NIC_SLOT      3u
#define NIC_HEADER    12u
#define NIC_MAX_PAIRS 32u
/* The largest frame, and that with its header in pages. */
#define NIC_MAX_FRAME  65535u
#define NIC_MAX_PACKET (NIC_MAX_FRAME + NIC_HEADER)

/* The first pair's queues. Pair p has queues 2p and 2p + 1; queue q has vector q + 1. */
enum { NIC_RX, NIC_TX };
enum { NIC_CONFIG_VECTOR, NIC_RX_VECTOR, NIC_TX_VECTOR };

/* What the device is. */
struct nic_config {
	unsigned pairs; /* 0: 1 */
	bool pio;	/* kicks by port I/O */
	uint16_t ring;	/* the largest that it offers; 0: 256 */
	struct net_tuning tuning; /* with a lock, the driver's accesses take it, as exits do */
};

struct nic {
	struct board board;
	struct net_backend *backend;
	unsigned pairs;
	union {
		int peer; /* the wire's other end; -1 once closed */
		int peers[NIC_MAX_PAIRS];
	};
	struct virtio_net net;
	struct virtio_pci pci;
	pthread_mutex_t exits; /* of `tuning.lock` */
	struct driver driver;
	union {
		struct {
			struct ring rx;
			struct ring tx;
		};
		struct ring rings[2 * NIC_MAX_PAIRS + 1];
	};
	unsigned control; /* the control queue's index, once it is set up; else 0 */
	unsigned kicks[2 * NIC_MAX_PAIRS + 1]; /* that the device wanted, and got */
};

/* What its driver takes and does. */
struct nic_setup {
	bool no_event_idx;
	bool no_indirect;
	bool intx;
	bool no_rx; /* leave the queues disabled */
	bool no_tx;
	bool packed;
	bool in_order;
	bool mergeable;
	bool control;	/* with CTRL_VQ and its queue */
	unsigned pairs; /* to set up; 0: 1; above 1: with MQ and the control queue */
	uint16_t size;	/* of the rings; 0: what is offered */
	struct virtio_features also; /* to be taken */
};

/* cmocka's fixture: a plugged device of one pair over a loopback, probed and not started. */
int nic_make(void **state);
int nic_unmake(void **state);

/* The same with another configuration. */
struct nic *nic_new(const struct nic_config *config);

/* The same over a back end of the caller's, which nic_fini() closes. */
void nic_init(struct nic *nic, const struct nic_config *config, struct net_backend *backend,
	      const int *peers);
void nic_fini(struct nic *nic);

/* A pair's state in the device. */
static inline struct net_pair *nic_pair(struct nic *nic, unsigned pair)
{
	return nic->net.pairs[pair];
}

/* Resets the device and starts it anew, all guest memory given back first; every step is asserted.
 */
void nic_up(struct nic *nic, const struct nic_setup *setup);

/* The first steps of nic_up(), up to DRIVER_OK. */
void nic_prepare(struct nic *nic, const struct nic_setup *setup);

/* Makes a ring for a queue, of `size` entries (0: what is offered), and enables it. */
void nic_setup_queue(struct nic *nic, unsigned queue, uint16_t size);

/* Publishes what was added to the ring and kicks if the device wants it. */
void nic_publish(struct nic *nic, unsigned queue);
void nic_publish_rx(struct nic *nic);
void nic_publish_tx(struct nic *nic);

/*
 * Waits for the next used chain, asleep until its interrupt; asserts that it comes. Returns its
 * token.
 */
void *nic_wait(struct nic *nic, unsigned queue, uint32_t *written);
void *nic_wait_rx(struct nic *nic, uint32_t *written);
void *nic_wait_tx(struct nic *nic);

/*
 * One command on the control queue: the ack. `reply` of `room` bytes gets what follows the ack;
 * exactly `room` bytes are asserted to come if it is VIRTIO_NET_OK, none if not.
 */
uint8_t nic_command(struct nic *nic, uint8_t class, uint8_t code, const void *data, uint32_t len);
uint8_t nic_query(struct nic *nic, uint8_t class, uint8_t code, const void *data, uint32_t len,
		  void *reply, uint32_t room);

/* The wire's other end: one packet, header included, asserted to come; and to go. */
size_t nic_peer_recv_on(struct nic *nic, unsigned pair, void *packet, size_t size);
void nic_peer_send_on(struct nic *nic, unsigned pair, const void *packet, size_t len);
size_t nic_peer_recv(struct nic *nic, void *packet, size_t size);
void nic_peer_send(struct nic *nic, const void *packet, size_t len);

/* False when the wire is full. */
bool nic_peer_try_send(struct nic *nic, const void *packet, size_t len);

/* A packet of `len` bytes in all, told by `seed`: a header of zeroes, then a pattern. */
void nic_fill(uint8_t *packet, size_t len, uint32_t seed);
bool nic_is(const uint8_t *packet, size_t len, uint32_t seed);

/* Sends one packet and sees it arrive, then receives one: the device is well. */
void nic_ping(struct nic *nic);
void nic_ping_on(struct nic *nic, unsigned pair);

/*
 * Asserts that the first pair's worker sleeps, mostly: over a short while it uses less than a
 * tenth of a CPU.
 */
void nic_expect_idle(struct nic *nic);

/* Waits until one of the worker's counters has reached `least`; asserts that it does. */
void nic_wait_counter(const uint64_t *counter, uint64_t least);

#endif
