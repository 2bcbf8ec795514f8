/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A driver that writes nonsense into its frames' headers, which the tap refuses (M12). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

#include "devices/net/loopback.h"
#include "tests/unit/libnet.h"
#include "tests/unit/librig.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define BATCH 64u
/* On all kinds of rings and with WHELP_LONG, more than a million. */
#define FRAMES 4000u

_Static_assert(sizeof(struct virtio_net_hdr_mrg_rxbuf) == NIC_HEADER, "the header");

/* A loopback that looks at headers as a tap does. */
struct picky {
	struct net_backend backend;
	struct net_backend *inner;
};

static struct net_backend *inner(struct net_backend *backend)
{
	return container_of(backend, struct picky, backend)->inner;
}

static bool makes_sense(const struct virtio_net_hdr_mrg_rxbuf *header, size_t frame)
{
	const struct virtio_net_hdr *h = &header->hdr;

	if (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
	    h->csum_start + h->csum_offset + sizeof(uint16_t) > frame)
		return false;
	if (h->hdr_len > frame)
		return false;
	switch (h->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return true;
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
	case VIRTIO_NET_HDR_GSO_UDP:
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return h->gso_size != 0;
	}
	return false;
}

static ssize_t picky_send(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			  unsigned count)
{
	struct virtio_net_hdr_mrg_rxbuf header;
	size_t have = 0, total = 0;

	for (unsigned i = 0; i < count; i++) {
		size_t part = MIN(iov[i].iov_len, sizeof(header) - have);

		memcpy((uint8_t *)&header + have, iov[i].iov_base, part);
		have += part;
		total += iov[i].iov_len;
	}
	if (have < sizeof(header) || !makes_sense(&header, total - sizeof(header)))
		return -EINVAL;
	return inner(backend)->ops->send(inner(backend), queue, iov, count);
}

static ssize_t picky_recv(struct net_backend *backend, unsigned queue, const struct iovec *iov,
			  unsigned count)
{
	return inner(backend)->ops->recv(inner(backend), queue, iov, count);
}

static int picky_fd(struct net_backend *backend, unsigned queue)
{
	return inner(backend)->ops->fd(inner(backend), queue);
}

static int picky_set(struct net_backend *backend, unsigned value)
{
	(void)backend;
	(void)value;
	return 0;
}

static void picky_close(struct net_backend *backend)
{
	struct picky *picky = container_of(backend, struct picky, backend);

	picky->inner->ops->close(picky->inner);
	free(picky);
}

static int setup(void **state)
{
	static const struct net_backend_ops ops = {
		.close = picky_close,
		.send = picky_send,
		.recv = picky_recv,
		.fd = picky_fd,
		.set_offloads = picky_set,
		.set_header = picky_set,
	};
	const struct nic_config config = { 0 };
	struct picky *picky = calloc(1, sizeof(*picky));
	struct rig *rig = malloc(sizeof(*rig));
	struct nic *nic = malloc(sizeof(*nic));
	int peer;

	assert_true(picky && rig && nic);
	picky->inner = loopback_open(1, &peer);
	assert_non_null(picky->inner);
	picky->backend = (struct net_backend){ .ops = &ops, .name = "picky", .queues = 1 };
	nic_init(nic, &config, &picky->backend, &peer);
	*rig = (struct rig){ .nic = nic, .kind = *state };
	*state = rig;
	return 0;
}

static uint16_t around(unsigned bound)
{
	return (uint16_t)(kind_random(4) ? kind_random(bound) : kind_random(65536));
}

/* Noise, or something near to what makes sense: both sides of each limit. */
static void random_header(struct virtio_net_hdr_mrg_rxbuf *header)
{
	uint8_t noise[NIC_HEADER];

	for (unsigned i = 0; i < NIC_HEADER; i++)
		noise[i] = (uint8_t)kind_random(256);
	memcpy(header, noise, NIC_HEADER);
	if (!kind_random(8))
		return;
	header->hdr.flags = (uint8_t)kind_random(8);
	header->hdr.gso_type = (uint8_t)(kind_random(7) | (kind_random(2) ? 0x80 : 0));
	header->hdr.hdr_len = around(NET_SIZE);
	header->hdr.gso_size = around(3);
	header->hdr.csum_start = around(NET_SIZE);
	header->hdr.csum_offset = around(NET_SIZE / 4);
}

/* Adds a frame of a random header, or now and then a good one; true if it has to arrive. */
static bool add_frame(struct rig *rig, uint64_t gpa, uint32_t seed,
		      struct virtio_net_hdr_mrg_rxbuf *header)
{
	uint8_t *memory = board_ptr(&rig->nic->board, gpa, NET_SIZE);
	const uint32_t lengths[] = { 1 + kind_random(NET_SIZE), 1 + kind_random(NET_SIZE) };
	struct ring_piece pieces[RIG_MAX_PIECES];
	unsigned count = rig_cut(pieces, gpa, NET_SIZE, lengths, ARRAY_SIZE(lengths));

	nic_fill(memory, NET_SIZE, seed);
	memset(header, 0, sizeof(*header));
	if (kind_random(8))
		random_header(header);
	memcpy(memory, header, sizeof(*header));
	rig_add(rig, NIC_TX, pieces, count, 0, rig);
	return makes_sense(header, NET_SIZE - NIC_HEADER);
}

static void expect_frame(struct nic *nic, uint32_t seed,
			 const struct virtio_net_hdr_mrg_rxbuf *header)
{
	uint8_t packet[2 * NET_SIZE];

	assert_int_equal(nic_peer_recv(nic, packet, sizeof(packet)), NET_SIZE);
	assert_memory_equal(packet, header, NIC_HEADER);
	memset(packet, 0, NIC_HEADER);
	assert_true(nic_is(packet, NET_SIZE, seed));
}

static void test_m12_good_frames_among_bad_headers(void **state)
{
	struct virtio_net_hdr_mrg_rxbuf headers[BATCH];
	struct rig *rig = *state;
	struct nic *nic = rig->nic;
	const struct net_counters *tx = &nic_pair(nic, 0)->tx.counters;
	unsigned total = kind_count(FRAMES), arrived = 0;
	bool good[BATCH];
	uint64_t gpa;

	rig_up(rig, 0);
	gpa = board_alloc(&nic->board, BATCH * NET_SIZE, 1);
	for (unsigned done = 0; done < total; done += BATCH) {
		for (unsigned i = 0; i < BATCH; i++)
			good[i] = add_frame(rig, gpa + i * NET_SIZE, done + i, &headers[i]);
		nic_publish_tx(nic);
		for (unsigned i = 0; i < BATCH; i++) {
			if (!good[i])
				continue;
			expect_frame(nic, done + i, &headers[i]);
			arrived++;
		}
		for (unsigned i = 0; i < BATCH; i++)
			nic_wait_tx(nic);
	}
	total = (total + BATCH - 1) / BATCH * BATCH;
	assert_true(arrived > total / 10 && arrived < total - total / 10);
	nic_wait_counter(&tx->drops[NET_DROP_MALFORMED], total - arrived);
	assert_int_equal(net_counter(&tx->drops[NET_DROP_MALFORMED]), total - arrived);
	assert_int_equal(net_counter(&tx->packets), arrived);
	assert_int_equal(driver_status(&nic->driver), NET_OK_STATUS);
	nic_ping(nic);
}

int main(void)
{
	const struct kind_test tests[] = { KIND_TEST(test_m12_good_frames_among_bad_headers) };

	return kinds_run(tests, ARRAY_SIZE(tests), setup, rig_teardown);
}
