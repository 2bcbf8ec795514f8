/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "libctrl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_net.h>

#include "tests/unit/libboot.h"
#include "vmm/iov.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

const uint8_t rig_mac[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 };

const uint8_t every_feature[EVERY_FEATURES] = {
	VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_RX_EXTRA, VIRTIO_NET_F_CTRL_MAC_ADDR,
	VIRTIO_NET_F_CTRL_VLAN, VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_MQ, VIRTIO_NET_F_RSS,
	VIRTIO_NET_F_HASH_REPORT, VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_NOTF_COAL,
	VIRTIO_NET_F_VQ_NOTF_COAL, VIRTIO_NET_F_DEVICE_STATS, VIRTIO_NET_F_GUEST_CSUM,
	VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
	VIRTIO_NET_F_GUEST_UFO, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
	VIRTIO_NET_F_GUEST_HDRLEN, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO,
	VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM,
};

/* ---- the device ------------------------------------------------------------------------------ */

static bool done(struct rig *rig)
{
	rig->calls++;
	return !rig->refuse;
}

static unsigned queues(const struct rig *rig)
{
	return virtio_has(&rig->ctrl.features, VIRTIO_NET_F_MQ) ||
			       virtio_has(&rig->ctrl.features, VIRTIO_NET_F_RSS) ?
		       2 * PAIRS :
		       2;
}

static bool on_filter(void *ctx, const struct net_filter *filter)
{
	struct rig *rig = ctx;
	struct net_filter again = *filter;

	net_filter_update(&again);
	assert_int_equal(again.pass_all, filter->pass_all);
	assert_true(filter->unicast.count <= NET_FILTER_TABLE);
	assert_true(filter->multicast.count <= NET_FILTER_TABLE);
	if (!rig->refuse)
		rig->filter = *filter;
	return done(rig);
}

static bool on_pairs(void *ctx, unsigned pairs)
{
	struct rig *rig = ctx;

	assert_in_range(pairs, 1, PAIRS);
	rig->pairs = pairs;
	return done(rig);
}

static bool on_rss(void *ctx, const struct net_rss *rss, unsigned pairs)
{
	struct rig *rig = ctx;

	assert_int_equal(rss->types & ~NET_HASH_TYPES, 0);
	assert_true(rss->key_len <= NET_HASH_KEY_MAX);
	assert_true(rss->table_mask < NET_HASH_TABLE_MAX);
	assert_int_equal(rss->table_mask & (rss->table_mask + 1), 0);
	if (rss->steering)
		assert_in_range(pairs, 1, PAIRS);
	else
		assert_int_equal(pairs, 0);
	assert_true(!pairs || rss->unclassified < pairs);
	for (unsigned i = 0; rss->steering && i <= rss->table_mask; i++)
		assert_true(rss->table[i] < pairs);
	rig->rss = *rss;
	rig->pairs = pairs;
	return done(rig);
}

static bool on_offloads(void *ctx, uint64_t offloads)
{
	struct rig *rig = ctx;

	for (unsigned bit = 0; bit < 64; bit++) {
		bool mapped = bit == VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED ||
			      bit == VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED;

		if (offloads >> bit & 1)
			assert_true(virtio_has(&rig->ctrl.features, mapped ? bit + 19 : bit));
	}
	rig->offloads = offloads;
	return done(rig);
}

static bool on_announced(void *ctx)
{
	return done(ctx);
}

static bool on_coalescing(void *ctx, bool rx, const struct net_coalescing *coalescing)
{
	struct rig *rig = ctx;

	rig->rx = rx;
	rig->coalescing = *coalescing;
	return done(rig);
}

static bool on_queue_set(void *ctx, unsigned queue, const struct net_coalescing *coalescing)
{
	struct rig *rig = ctx;

	assert_true(queue < queues(rig));
	rig->queue = queue;
	rig->coalescing = *coalescing;
	return done(rig);
}

static bool on_queue_get(void *ctx, unsigned queue, struct net_coalescing *coalescing)
{
	struct rig *rig = ctx;

	assert_true(queue < queues(rig));
	rig->queue = queue;
	*coalescing = (struct net_coalescing){ .max_packets = 0x1234, .max_usecs = 0x567890ab };
	return done(rig);
}

static bool on_stats(void *ctx, unsigned queue, struct net_ctrl_queue_stats *stats)
{
	struct rig *rig = ctx;

	assert_true(queue < queues(rig));
	*stats = (struct net_ctrl_queue_stats){
		.notifications = queue * 10 + 1,
		.packets = queue * 10 + 2,
		.bytes = queue * 10 + 3,
		.interrupts = queue * 10 + 4,
		.drops = queue * 10 + 5,
		.drops_of_kind = UINT64_MAX - queue,
	};
	return done(rig) && queue != rig->no_stats;
}

static const struct net_ctrl_ops ops = {
	.set_filter = on_filter,
	.set_pairs = on_pairs,
	.set_rss = on_rss,
	.set_offloads = on_offloads,
	.announced = on_announced,
	.set_coalescing = on_coalescing,
	.set_queue_coalescing = on_queue_set,
	.get_queue_coalescing = on_queue_get,
	.get_stats = on_stats,
};

struct virtio_features all_features(void)
{
	struct virtio_features features = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(every_feature); i++)
		virtio_add(&features, every_feature[i]);
	return features;
}

void drop_feature(struct virtio_features *features, unsigned bit)
{
	features->word[bit / 32] &= ~(1u << bit % 32);
}

void rig_init_with(struct rig *rig, const struct virtio_features *features)
{
	memset(rig, 0, sizeof(*rig));
	rig->no_stats = -1;
	net_ctrl_init(&rig->ctrl, &ops, rig, features, PAIRS, rig_mac);
	rig->filter = rig->ctrl.filter;
}

void rig_init(struct rig *rig)
{
	struct virtio_features features = all_features();

	rig_init_with(rig, &features);
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* Buffers of the given sizes; filled with `data`, or with UNTOUCHED. */
static struct iovec *buffers(const unsigned *sizes, unsigned count, const uint8_t *data)
{
	struct iovec *iov = calloc(count ? count : 1, sizeof(*iov));

	assert_non_null(iov);
	for (unsigned i = 0; i < count; i++) {
		iov[i].iov_len = sizes[i];
		iov[i].iov_base = malloc(sizes[i] ? sizes[i] : 1);
		assert_non_null(iov[i].iov_base);
		memset(iov[i].iov_base, UNTOUCHED, sizes[i]);
		if (data) {
			memcpy(iov[i].iov_base, data, sizes[i]);
			data += sizes[i];
		}
	}
	return iov;
}

static void free_buffers(struct iovec *iov, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		free(iov[i].iov_base);
	free(iov);
}

static unsigned split(unsigned len, enum split how, uint64_t *seed, unsigned *sizes)
{
	unsigned count = 0;

	while (len) {
		unsigned piece = how == WHOLE ? len : how == BYTES ? 1 : libboot_random(seed) % 40;

		sizes[count] = MIN(piece, len);
		len -= sizes[count++];
	}
	return count;
}

uint32_t run_split(struct rig *rig, const uint8_t *bytes, unsigned len, uint8_t *answer,
		   unsigned room, enum split how, uint64_t *seed)
{
	static unsigned out_sizes[16 * MAX_DATA], in_sizes[16 * MAX_DATA];
	static uint8_t written[MAX_DATA];
	unsigned out_count = split(len, how, seed, out_sizes);
	unsigned in_count = split(room, how, seed, in_sizes);
	struct iovec *out = buffers(out_sizes, out_count, bytes);
	struct iovec *in = buffers(in_sizes, in_count, NULL);
	uint32_t used = net_ctrl_execute(&rig->ctrl, out, out_count, in, in_count);

	assert_true(used <= room);
	assert_int_equal(iov_read(in, in_count, 0, written, room), room);
	if (room) {
		assert_true(used >= 1);
		assert_true(written[0] == VIRTIO_NET_OK || written[0] == VIRTIO_NET_ERR);
		if (written[0] == VIRTIO_NET_ERR)
			assert_int_equal(used, 1);
	}
	if (used > 1 || !room || written[0] == VIRTIO_NET_OK)
		for (unsigned i = used; i < room; i++)
			assert_int_equal(written[i], UNTOUCHED);
	if (answer)
		memcpy(answer, written, room);
	free_buffers(out, out_count);
	free_buffers(in, in_count);
	return used;
}

int command(struct rig *rig, unsigned class, unsigned code, const void *data, unsigned len)
{
	uint8_t bytes[MAX_DATA] = { class, code };
	uint8_t ack;

	assert_true(len <= MAX_DATA - 2);
	if (len)
		memcpy(bytes + 2, data, len);
	assert_int_equal(run_split(rig, bytes, len + 2, &ack, 1, WHOLE, NULL), 1);
	return ack;
}

unsigned put(uint8_t *at, unsigned size, uint64_t value)
{
	store_le(at, size, value);
	return size;
}

unsigned put_rss(uint8_t *at, unsigned table, unsigned unclassified, unsigned max_tx,
		 unsigned key_len)
{
	unsigned len = 0;

	len += put(at + len, 4, 0x3f);
	len += put(at + len, 2, table - 1);
	len += put(at + len, 2, unclassified);
	for (unsigned i = 0; i < table; i++)
		len += put(at + len, 2, i % PAIRS);
	len += put(at + len, 2, max_tx);
	len += put(at + len, 1, key_len);
	for (unsigned i = 0; i < key_len; i++)
		len += put(at + len, 1, i + 1);
	return len;
}
