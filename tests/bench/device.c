/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The device as a machine has it, on a PCI bus behind its transport, and the driver of
 * tests/driver. A burst is filled into the rings while the workers sleep, and the driver sleeps
 * while they work: how fast it is does not matter. One kick starts a burst, and one interrupt ends
 * it, for its last frame.
 */
#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/net.h"
#include "devices/virtio/transport_pci.h"
#include "tests/bench/subject.h"
#include "tests/driver/ring.h"
#include "tests/driver/virtio_driver.h"
#include "vmm/options_value.h"
#include "vmm/util.h"

#define SLOT	   3u
#define CLASS	   0x020000
#define MAX_QUEUES (2 * BENCH_MAX_PAIRS + 1)

struct device {
	struct subject subject;
	struct net_config config;
	pthread_mutex_t exits; /* of vCPUs, of which there are none */
	struct virtio_net net;
	struct virtio_pci pci;
	struct driver driver;
	struct ring rings[MAX_QUEUES]; /* queue q has vector q + 1 */
};

static struct device *to_device(struct subject *subject)
{
	return container_of(subject, struct device, subject);
}

/* ---- the device ---- */

/* What `whelp run --net` would have made of the bench's options. */
static void parse_options(struct device *d)
{
	const struct bench *bench = d->subject.bench;
	struct complaint why;
	char text[512];

	snprintf(text, sizeof(text), "tap=bench,queues=%u,ring=%u%s%s", bench->pairs, bench->ring,
		 bench->packed ? ",+ring_packed" : "", bench->net);
	if (net_config_parse(&d->config, text, &why))
		bench_die("--net %s: %s", text, why.text);
}

static void make_device(struct device *d)
{
	const struct net_config *config = &d->config;
	struct board *board = &d->subject.board;
	struct virtio_net_options options = {
		.name = "net0",
		.mac = { 0x02, 0x77, 0, 0, 0, 3 },
		.mtu = config->mtu,
		.rx_ring = (uint16_t)config->rx_ring,
		.tx_ring = (uint16_t)config->tx_ring,
		.speed = config->speed,
		.duplex = config->duplex,
		.tuning = config->tuning,
		.guest_cpus = d->subject.bench->pairs, /* the driver's threads */
		.lock = &d->exits,
	};

	memcpy(options.wanted.word, config->wanted, sizeof(options.wanted.word));
	if (virtio_net_init(&d->net, &options, &d->subject.wire->backend, &board->mem) ||
	    virtio_pci_init(&d->pci, &d->net.device, &board->platform, CLASS,
			    config->notify_pio ? PLATFORM_PIO : PLATFORM_MMIO) ||
	    pci_host_plug(&board->pci, SLOT, &d->pci.function))
		bench_die("the device cannot be made");
}

/* ---- its driver ---- */

/* What Linux takes as well, of that which matters to the frames' way. */
static void negotiate(struct device *d)
{
	static const unsigned bits[] = {
		VIRTIO_NET_F_CSUM,	     VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_MAC,
		VIRTIO_NET_F_GUEST_TSO4,     VIRTIO_NET_F_HOST_TSO4,  VIRTIO_NET_F_MRG_RXBUF,
		VIRTIO_NET_F_CTRL_VQ,	     VIRTIO_NET_F_CTRL_RX,    VIRTIO_NET_F_MQ,
		VIRTIO_RING_F_INDIRECT_DESC, VIRTIO_RING_F_EVENT_IDX, VIRTIO_F_RING_PACKED,
		VIRTIO_F_IN_ORDER,
	};
	struct virtio_features wanted = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(bits); i++)
		virtio_add(&wanted, bits[i]);
	if (!driver_probe(&d->driver, &d->subject.board, SLOT) || !driver_reset(&d->driver) ||
	    !driver_negotiate(&d->driver, &wanted))
		bench_die("the driver and the device cannot agree");
}

static void set_up_queue(struct device *d, unsigned queue)
{
	if (!driver_set_queue_vector(&d->driver, queue, queue + 1) ||
	    !driver_setup_queue(&d->driver, queue, &d->rings[queue], 0))
		bench_die("queue %u cannot be set up", queue);
	ring_interrupts_disable(&d->rings[queue]);
}

static void publish(struct device *d, unsigned queue)
{
	if (ring_publish(&d->rings[queue]))
		driver_kick(&d->driver, queue);
}

static void sleep_until_interrupt(struct device *d, unsigned queue)
{
	if (!driver_wait_vector(&d->driver, queue + 1, BENCH_PATIENCE))
		bench_die("queue %u: no interrupt", queue);
}

/*
 * Takes `count` used chains; returns the bytes written to them. Asleep until the interrupt that was
 * asked for, and in the rare case that this is not all until there is more.
 */
static uint64_t take(struct device *d, unsigned queue, unsigned count)
{
	struct ring *ring = &d->rings[queue];
	uint64_t bytes = 0;
	uint32_t written;
	void *token;

	sleep_until_interrupt(d, queue);
	while (count) {
		if (ring_take(ring, &token, &written)) {
			bytes += written;
			count--;
		} else if (ring->error) {
			bench_die("queue %u: %s", queue, ring->error);
		} else if (!ring_interrupts_enable(ring)) {
			sleep_until_interrupt(d, queue);
		}
	}
	return bytes;
}

static void use_pairs(struct device *d, unsigned pairs)
{
	struct {
		struct virtio_net_ctrl_hdr header;
		struct virtio_net_ctrl_mq mq;
		uint8_t ack;
	} * command;
	const unsigned queue = 2 * pairs;
	uint64_t at = board_alloc(&d->subject.board, sizeof(*command), 8);
	const struct ring_piece pieces[2] = { { at, offsetof(typeof(*command), ack) },
					      { at + offsetof(typeof(*command), ack), 1 } };

	command = board_ptr(&d->subject.board, at, sizeof(*command));
	command->header = (struct virtio_net_ctrl_hdr){ .class = VIRTIO_NET_CTRL_MQ,
							.cmd = VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET };
	command->mq.virtqueue_pairs = (uint16_t)pairs;
	command->ack = 0xff;
	ring_interrupts_enable(&d->rings[queue]);
	if (ring_add(&d->rings[queue], pieces, 1, 1, command))
		bench_die("no room for a command");
	publish(d, queue);
	take(d, queue, 1);
	if (command->ack != VIRTIO_NET_OK)
		bench_die("the device does not use %u pairs", pairs);
}

static void device_start(struct subject *subject)
{
	struct device *d = to_device(subject);
	unsigned pairs = subject->bench->pairs;

	parse_options(d);
	subject->movers = d->config.tuning.workers == NET_WORKERS_SPLIT ? 2 : 1;
	make_device(d);
	negotiate(d);
	driver_msix_on(&d->driver);
	driver_set_config_vector(&d->driver, 0);
	for (unsigned i = 0; i < 2 * pairs; i++)
		set_up_queue(d, i);
	set_up_queue(d, 2 * pairs);
	driver_add_status(&d->driver, VIRTIO_CONFIG_S_DRIVER_OK);
	if (pairs > 1)
		use_pairs(d, pairs);
}

static void device_stop(struct subject *subject)
{
	struct device *d = to_device(subject);

	if (!driver_reset(&d->driver))
		bench_die("the device does not reset");
	board_unplug(&subject->board);
	virtio_pci_fini(&d->pci);
	virtio_net_fini(&d->net);
	for (unsigned i = 0; i < MAX_QUEUES; i++)
		ring_fini(&d->rings[i]);
	board_fini(&subject->board);
	pthread_mutex_destroy(&d->exits);
	free(d);
}

/* ---- bursts ---- */

static unsigned queue_of(const struct subject *subject, unsigned pair)
{
	return 2 * pair + !subject->bench->rx;
}

static void add_sent(struct device *d, struct ring *ring, unsigned pair, unsigned frame)
{
	struct ring_piece pieces[RING_TABLE_SIZE];
	const unsigned count = d->subject.buffers;
	int err;

	for (unsigned i = 0; i < count; i++)
		pieces[i].gpa = subject_buffer(&d->subject, pair, frame, i, &pieces[i].len);
	err = count > 1 ? ring_add_indirect(ring, pieces, count, 0, d)
			: ring_add(ring, pieces, count, 0, d);
	if (err)
		bench_die("a burst does not fit into the ring");
}

static void add_received(struct device *d, struct ring *ring, unsigned pair, unsigned frame)
{
	for (unsigned i = 0; i < d->subject.buffers; i++) {
		struct ring_piece piece;

		piece.gpa = subject_buffer(&d->subject, pair, frame, i, &piece.len);
		if (ring_add(ring, &piece, 0, 1, d))
			bench_die("a burst does not fit into the ring");
	}
}

/* Chains of a burst. */
static unsigned chains(const struct subject *subject)
{
	return subject->burst * (subject->bench->rx ? subject->buffers : 1);
}

static void device_prepare(struct subject *subject, unsigned pair)
{
	struct device *d = to_device(subject);
	struct ring *ring = &d->rings[queue_of(subject, pair)];

	for (unsigned i = 0; i < subject->burst; i++)
		if (subject->bench->rx)
			add_received(d, ring, pair, i);
		else
			add_sent(d, ring, pair, i);
	ring_interrupts_ahead(ring, chains(subject) - 1);
}

static void device_go(struct subject *subject, unsigned pair)
{
	publish(to_device(subject), queue_of(subject, pair));
}

static void device_wait(struct subject *subject, unsigned pair)
{
	const struct bench *bench = subject->bench;
	uint64_t bytes = take(to_device(subject), queue_of(subject, pair), chains(subject));

	if (bytes != (bench->rx ? (uint64_t)subject->burst * (BENCH_HEADER + bench->size) : 0))
		bench_die("frames were received that are not those that were sent");
}

static const struct subject_ops device_ops = {
	.start = device_start,
	.stop = device_stop,
	.prepare = device_prepare,
	.go = device_go,
	.wait = device_wait,
};

struct subject *device_new(void)
{
	struct device *d = calloc(1, sizeof(*d));

	if (!d)
		bench_die("out of memory");
	d->subject.ops = &device_ops;
	pthread_mutex_init(&d->exits, NULL);
	board_init(&d->subject.board);
	return &d->subject;
}
