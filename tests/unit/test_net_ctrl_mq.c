/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_net.h>

#include "devices/virtio/net_ctrl.h"
#include "tests/unit/libctrl.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

static void test_pairs(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned pairs = 0; pairs < 65536; pairs = pairs < 10 ? pairs + 1 : pairs * 2) {
		uint8_t data[2];
		bool ok = pairs && pairs <= PAIRS;

		put(data, 2, pairs);
		assert_int_equal(command(&rig, 4, 0, data, 2), ok ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
		if (ok)
			assert_int_equal(rig.pairs, pairs);
	}
	assert_int_equal(rig.calls, PAIRS);
}

static int send_rss(struct rig *rig, unsigned table, unsigned unclassified, unsigned max_tx,
		    unsigned key_len)
{
	uint8_t data[1024];

	return command(rig, 4, 1, data, put_rss(data, table, unclassified, max_tx, key_len));
}

static void test_rss(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned table = 1; table <= 256; table++) {
		bool ok = table <= NET_HASH_TABLE_MAX && is_power_of_two(table);

		assert_int_equal(send_rss(&rig, table, 0, 1, 40),
				 ok ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
		if (!ok)
			continue;
		assert_true(rig.rss.steering);
		assert_int_equal(rig.rss.types, 0x3f);
		assert_int_equal(rig.rss.table_mask, table - 1);
		for (unsigned i = 0; i < table; i++)
			assert_int_equal(rig.rss.table[i], i % PAIRS);
		/* The table's queues have to be there, however few transmit. */
		assert_int_equal(rig.pairs, MIN(table, PAIRS));
	}
	for (unsigned key_len = 0; key_len < 256; key_len++) {
		bool ok = key_len <= NET_HASH_KEY_MAX;

		assert_int_equal(send_rss(&rig, 4, 0, 1, key_len),
				 ok ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
		if (!ok)
			continue;
		assert_int_equal(rig.rss.key_len, key_len);
		for (unsigned i = 0; i < NET_HASH_KEY_MAX; i++)
			assert_int_equal(rig.rss.key[i], i < key_len ? i + 1 : 0);
	}
}

static void test_rss_queues(void **state)
{
	uint8_t data[1024];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned queue = 0; queue < 65536; queue = queue < 10 ? queue + 1 : queue * 2) {
		unsigned len;

		assert_int_equal(send_rss(&rig, 1, queue, 1, 40), queue >= PAIRS);
		if (queue < PAIRS) {
			assert_int_equal(rig.rss.unclassified, queue);
			assert_int_equal(rig.pairs, queue + 1);
		}
		assert_int_equal(send_rss(&rig, 1, 0, queue, 40), !queue || queue > PAIRS);
		if (queue && queue <= PAIRS)
			assert_int_equal(rig.pairs, queue);
		/* The last one of the table, and the whole range of its mask. */
		len = put_rss(data, 128, 0, 1, 40);
		put(data + 8 + 2 * 127, 2, queue);
		assert_int_equal(command(&rig, 4, 1, data, len), queue >= PAIRS);
		len = put_rss(data, 128, 0, 1, 40);
		put(data + 4, 2, 65535 - queue);
		assert_int_equal(command(&rig, 4, 1, data, len), VIRTIO_NET_ERR);
	}
	/* RSS without MQ: the same pairs. */
	drop_feature(&rig.ctrl.features, VIRTIO_NET_F_MQ);
	assert_int_equal(send_rss(&rig, 4, 3, 4, 40), VIRTIO_NET_OK);
}

static void test_hash_types(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned bit = 0; bit < 32; bit++) {
		uint8_t rss[1024], hash[53] = { 0 };
		unsigned len = put_rss(rss, 4, 0, 1, 40);
		int ack = bit < 9 ? VIRTIO_NET_OK : VIRTIO_NET_ERR;

		put(rss, 4, 1u << bit);
		assert_int_equal(command(&rig, 4, 1, rss, len), ack);
		put(hash, 4, 1u << bit);
		hash[12] = 40;
		assert_int_equal(command(&rig, 4, 2, hash, sizeof(hash)), ack);
		if (ack == VIRTIO_NET_OK)
			assert_int_equal(rig.rss.types, 1u << bit);
		/* A device may offer fewer. */
		rig.ctrl.hash_types = NET_HASH_TYPES & ~(1u << bit);
		assert_int_equal(command(&rig, 4, 1, rss, len), VIRTIO_NET_ERR);
		assert_int_equal(command(&rig, 4, 2, hash, sizeof(hash)), VIRTIO_NET_ERR);
		rig.ctrl.hash_types = NET_HASH_TYPES;
	}
}

static void test_hash_config(void **state)
{
	/* The reserved part as Linux 6.1 first filled it. */
	uint8_t data[53] = { 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, PAIRS, 0, 3, 7, 8, 9 };
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 4, 2, data, 16), VIRTIO_NET_OK);
	assert_false(rig.rss.steering);
	assert_int_equal(rig.rss.types, 0x3f);
	assert_int_equal(rig.rss.key_len, 3);
	assert_memory_equal(rig.rss.key, "\7\10\11\0", 4);
	data[12] = NET_HASH_KEY_MAX + 1;
	assert_int_equal(command(&rig, 4, 2, data, 53), VIRTIO_NET_ERR);
}

static int send_offloads(struct rig *rig, uint64_t offloads)
{
	return command(rig, 5, 0, &offloads, sizeof(offloads));
}

static const struct {
	unsigned bit, feature;
} offload_bits[] = {
	{ 1, 1 }, { 7, 7 }, { 8, 8 }, { 9, 9 }, { 10, 10 }, { 54, 54 }, { 55, 55 }, { 59, 59 },
	{ 46, 65 }, { 47, 66 },
};

/* One bit at a time is asked for: OK exactly when its feature was negotiated. */
static void test_offloads_negotiated(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 64; bit++) {
		struct virtio_features features = all_features();
		unsigned feature = 0;
		struct rig rig;

		for (unsigned i = 0; i < ARRAY_SIZE(offload_bits); i++)
			if (offload_bits[i].bit == bit)
				feature = offload_bits[i].feature;
		rig_init_with(&rig, &features);
		assert_int_equal(send_offloads(&rig, 1ull << bit), !feature);
		if (!feature)
			continue;
		drop_feature(&features, feature);
		rig_init_with(&rig, &features);
		assert_int_equal(send_offloads(&rig, 1ull << bit), VIRTIO_NET_ERR);
	}
}

/* What lacks what it requires is acked, and not used. */
static void test_offloads_requirements(void **state)
{
	static const uint64_t csum = 1 << 1, tso4 = 1 << 7, tso6 = 1 << 8, ecn = 1 << 9,
			      ufo = 1 << 10, uso4 = 1ull << 54, uso6 = 1ull << 55,
			      hdrlen = 1ull << 59, tunnel = 1ull << 46, tunnel_csum = 1ull << 47;
	const struct {
		uint64_t asked, used;
	} table[] = {
		{ 0, 0 },
		{ csum, csum },
		{ tso4 | tso6 | ecn | ufo | uso4 | uso6 | hdrlen | tunnel | tunnel_csum, hdrlen },
		{ csum | tso4 | tso6 | ecn | ufo | uso4 | uso6 | hdrlen | tunnel | tunnel_csum,
		  csum | tso4 | tso6 | ecn | ufo | uso4 | uso6 | hdrlen | tunnel | tunnel_csum },
		{ csum | ecn, csum },
		{ csum | ecn | tso4, csum | ecn | tso4 },
		{ csum | ecn | tso6, csum | ecn | tso6 },
		{ csum | tunnel | tunnel_csum, csum },
		{ csum | tso4 | tunnel_csum, csum | tso4 },
		{ csum | uso6 | tunnel, csum | uso6 | tunnel },
		{ csum | ufo | uso4, csum | ufo | uso4 },
	};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		assert_int_equal(send_offloads(&rig, table[i].asked), VIRTIO_NET_OK);
		assert_true(rig.offloads == table[i].used);
	}
}

static void test_coalescing(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned rx = 0; rx < 2; rx++) {
		uint8_t data[8];

		put(data, 4, 0xffffffff - rx);
		put(data + 4, 4, 100 + rx);
		assert_int_equal(command(&rig, 6, rx, data, 8), VIRTIO_NET_OK);
		assert_int_equal(rig.rx, rx);
		assert_int_equal(rig.coalescing.max_packets, 0xffffffff - rx);
		assert_int_equal(rig.coalescing.max_usecs, 100 + rx);
	}
}

/* Every index, with one pair and with several; the control queue has none. */
static void test_queue_coalescing(void **state)
{
	(void)state;
	for (unsigned mq = 0; mq < 2; mq++)
		for (unsigned queue = 0; queue < 65536;
		     queue = queue < 20 ? queue + 1 : queue * 2 + 1) {
			struct virtio_features features = all_features();
			uint8_t set[12] = { 0 }, get[6] = { 6, 3 }, answer[16];
			bool ok = queue < (mq ? 2 * PAIRS : 2);
			struct rig rig;

			if (!mq) {
				drop_feature(&features, VIRTIO_NET_F_MQ);
				drop_feature(&features, VIRTIO_NET_F_RSS);
			}
			rig_init_with(&rig, &features);
			put(set, 2, queue);
			put(set + 4, 4, 77);
			put(set + 8, 4, 88);
			assert_int_equal(command(&rig, 6, 2, set, 12), !ok);
			put(get + 2, 2, queue);
			assert_int_equal(run_split(&rig, get, 6, answer, 16, WHOLE, NULL),
					 ok ? 9 : 1);
			assert_int_equal(answer[0], !ok);
			if (!ok)
				continue;
			assert_int_equal(rig.queue, queue);
			assert_int_equal(rig.coalescing.max_packets, 77);
			assert_int_equal(rig.coalescing.max_usecs, 88);
			assert_int_equal(load_le(answer + 1, 4), 0x1234);
			assert_int_equal(load_le(answer + 5, 4), 0x567890ab);
		}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_rss),
		cmocka_unit_test(test_rss_queues),
		cmocka_unit_test(test_hash_types),
		cmocka_unit_test(test_hash_config),
		cmocka_unit_test(test_offloads_negotiated),
		cmocka_unit_test(test_offloads_requirements),
		cmocka_unit_test(test_coalescing),
		cmocka_unit_test(test_queue_coalescing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
