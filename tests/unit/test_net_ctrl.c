/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_net.h>

#include "devices/virtio/net_ctrl.h"
#include "tests/unit/libboot.h"
#include "tests/unit/libctrl.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

/* One valid example of every command. */
struct example {
	const char *name;
	uint8_t feature;
	unsigned len;	 /* with class and code */
	unsigned needed; /* of these bytes */
	unsigned result;
	uint8_t bytes[400];
};

static struct example examples[] = {
	{ "promisc", VIRTIO_NET_F_CTRL_RX, 3, 3, 0, { 0, 0, 0 } },
	{ "allmulti", VIRTIO_NET_F_CTRL_RX, 3, 3, 0, { 0, 1, 1 } },
	{ "alluni", VIRTIO_NET_F_CTRL_RX_EXTRA, 3, 3, 0, { 0, 2, 1 } },
	{ "nomulti", VIRTIO_NET_F_CTRL_RX_EXTRA, 3, 3, 0, { 0, 3, 1 } },
	{ "nouni", VIRTIO_NET_F_CTRL_RX_EXTRA, 3, 3, 0, { 0, 4, 1 } },
	{ "nobcast", VIRTIO_NET_F_CTRL_RX_EXTRA, 3, 3, 0, { 0, 5, 1 } },
	{ "mac table", VIRTIO_NET_F_CTRL_RX, 34, 34, 0,
	  { 1, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2,
	    2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 2 } },
	{ "mac address", VIRTIO_NET_F_CTRL_MAC_ADDR, 8, 8, 0, { 1, 1, 2, 3, 4, 5, 6, 7 } },
	{ "vlan add", VIRTIO_NET_F_CTRL_VLAN, 4, 4, 0, { 2, 0, 0xff, 0xf } },
	{ "vlan del", VIRTIO_NET_F_CTRL_VLAN, 4, 4, 0, { 2, 1, 0xff, 0xf } },
	{ "announce ack", VIRTIO_NET_F_GUEST_ANNOUNCE, 2, 2, 0, { 3, 0 } },
	{ "pairs", VIRTIO_NET_F_MQ, 4, 4, 0, { 4, 0, PAIRS, 0 } },
	{ "rss", VIRTIO_NET_F_RSS, 0, 0, 0, { 4, 1 } },
	{ "hash", VIRTIO_NET_F_HASH_REPORT, 55, 55, 0,
	  { 4, 2, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 1, 2, 3 } },
	{ "offloads", VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, 10, 10, 0, { 5, 0, 0x82 } },
	{ "coalescing tx", VIRTIO_NET_F_NOTF_COAL, 10, 10, 0, { 6, 0, 1, 0, 0, 0, 2, 0, 0, 0 } },
	{ "coalescing rx", VIRTIO_NET_F_NOTF_COAL, 10, 10, 0, { 6, 1, 3, 0, 0, 0, 4, 0, 0, 0 } },
	{ "coalescing vq set", VIRTIO_NET_F_VQ_NOTF_COAL, 14, 14, 0,
	  { 6, 2, 3, 0, 0xff, 0xff, 5, 0, 0, 0, 6, 0, 0, 0 } },
	{ "coalescing vq get", VIRTIO_NET_F_VQ_NOTF_COAL, 6, 4, 8, { 6, 3, 7, 0, 0xff, 0xff } },
	{ "stats query", VIRTIO_NET_F_DEVICE_STATS, 2, 2, 8, { 8, 0 } },
	{ "stats get", VIRTIO_NET_F_DEVICE_STATS, 18, 18, 56, { 8, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1 } },
};

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		struct example *e = &examples[i];

		if (e->len)
			continue;
		e->len = 2 + put_rss(e->bytes + 2, 128, 1, 2, 40);
		e->needed = e->len;
	}
	return 0;
}

/* Runs an example as it is, or less of it; returns the ack. */
static int run_example(struct rig *rig, const struct example *e, unsigned len, enum split how)
{
	uint8_t answer[MAX_DATA];
	uint64_t seed = 1;
	uint32_t used = run_split(rig, e->bytes, len, answer, 1 + e->result, how, &seed);

	assert_int_equal(used, answer[0] == VIRTIO_NET_OK ? 1 + e->result : 1);
	return answer[0];
}

static void test_g5_every_command(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		const struct example *e = &examples[i];
		struct rig rig;

		rig_init(&rig);
		if (run_example(&rig, e, e->len, WHOLE) != VIRTIO_NET_OK)
			fail_msg("%s", e->name);
		if (strcmp(e->name, "stats query"))
			assert_int_equal(rig.calls, 1);
		assert_int_equal(rig.ctrl.commands, 1);
		assert_int_equal(rig.ctrl.commands_ok, 1);
	}
}

static void test_g5_not_negotiated(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		struct virtio_features features = all_features();
		struct rig rig;

		drop_feature(&features, examples[i].feature);
		rig_init_with(&rig, &features);
		if (run_example(&rig, &examples[i], examples[i].len, WHOLE) != VIRTIO_NET_ERR)
			fail_msg("%s", examples[i].name);
		assert_int_equal(rig.calls, 0);
		assert_int_equal(rig.ctrl.commands, 1);
		assert_int_equal(rig.ctrl.commands_ok, 0);
	}
}

static void test_g5_unknown(void **state)
{
	static const unsigned codes[] = { 6, 2, 2, 1, 3, 1, 4, 0, 2 };
	uint8_t zeroes[300] = { 0 };
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned class = 0; class < 256; class++)
		for (unsigned code = 0; code < 256; code++) {
			if (class < ARRAY_SIZE(codes) && code < codes[class])
				continue;
			assert_int_equal(command(&rig, class, code, zeroes, sizeof(zeroes)),
					 VIRTIO_NET_ERR);
		}
	assert_int_equal(rig.calls, 0);
}

/* The device's "no" is the driver's ERR, and the filter is the old one. */
static void test_g5_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		struct net_filter before;
		struct rig rig;

		if (!strcmp(examples[i].name, "stats query"))
			continue;
		rig_init(&rig);
		rig.refuse = true;
		before = rig.ctrl.filter;
		assert_int_equal(run_example(&rig, &examples[i], examples[i].len, WHOLE),
				 VIRTIO_NET_ERR);
		assert_int_equal(rig.calls, 1);
		assert_memory_equal(&rig.ctrl.filter, &before, sizeof(before));
	}
}

/* A driver may give more room than an ack takes: still one byte is used. */
static void test_g5_used_length(void **state)
{
	uint8_t answer[64];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++)
		if (!examples[i].result)
			assert_int_equal(run_split(&rig, examples[i].bytes, examples[i].len, answer,
						   sizeof(answer), WHOLE, NULL),
					 1);
}

/* What a driver appends to a command does not matter. */
static void test_g5_too_long(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		struct rig rig;

		/* This one is a list. */
		if (!strcmp(examples[i].name, "stats get"))
			continue;
		rig_init(&rig);
		assert_int_equal(run_example(&rig, &examples[i], examples[i].len + 5, WHOLE),
				 VIRTIO_NET_OK);
	}
}

static void test_m14_every_truncation(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++)
		for (unsigned len = 0; len < examples[i].needed; len++) {
			struct rig rig;

			rig_init(&rig);
			if (run_example(&rig, &examples[i], len, WHOLE) != VIRTIO_NET_ERR ||
			    rig.calls)
				fail_msg("%s, %u bytes", examples[i].name, len);
		}
}

static void test_m14_split_per_byte(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		static struct rig whole, bytes;

		rig_init(&whole);
		rig_init(&bytes);
		assert_int_equal(run_example(&whole, &examples[i], examples[i].len, WHOLE), 0);
		assert_int_equal(run_example(&bytes, &examples[i], examples[i].len, BYTES), 0);
		/* The same came through. */
		bytes.ctrl.ctx = whole.ctrl.ctx;
		assert_memory_equal(&whole, &bytes, sizeof(whole));
	}
}

static void test_m14_no_ack_descriptor(void **state)
{
	struct iovec empty = { 0 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++) {
		struct iovec out = { examples[i].bytes, examples[i].len };
		struct rig rig;

		rig_init(&rig);
		assert_int_equal(net_ctrl_execute(&rig.ctrl, &out, 1, NULL, 0), 0);
		assert_int_equal(net_ctrl_execute(&rig.ctrl, &out, 1, &empty, 1), 0);
		assert_int_equal(net_ctrl_execute(&rig.ctrl, NULL, 0, NULL, 0), 0);
		assert_int_equal(rig.calls, 0);
		assert_int_equal(rig.ctrl.commands, 0);
	}
}

/* Results need their room. */
static void test_m14_no_room_for_a_result(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(examples); i++)
		for (unsigned room = 1; room < 1 + MIN(examples[i].result, 8u); room++) {
			uint8_t answer[64];
			struct rig rig;

			rig_init(&rig);
			assert_int_equal(run_split(&rig, examples[i].bytes, examples[i].len, answer,
						   room, WHOLE, NULL),
					 1);
			assert_int_equal(answer[0], VIRTIO_NET_ERR);
		}
}

static void test_m14_entries_too_many(void **state)
{
	static const uint32_t counts[] = { 3, 0x10000, 0x2aaaaaab, 0x55555556, 0x7fffffff,
					   0x80000000, 0xaaaaaaab, 0xffffffff };
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
		uint8_t data[20] = { 0 };

		store_le(data, 4, counts[i]);
		assert_int_equal(command(&rig, 1, 0, data, sizeof(data)), VIRTIO_NET_ERR);
		/* The same of the second table. */
		memset(data, 0, sizeof(data));
		store_le(data + 4, 4, counts[i]);
		assert_int_equal(command(&rig, 1, 0, data, sizeof(data)), VIRTIO_NET_ERR);
	}
	assert_int_equal(rig.calls, 0);
}

static void test_rx_modes(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_true(rig.filter.promisc);
	for (unsigned code = 0; code < 6; code++)
		for (unsigned value = 0; value < 256; value += 51) {
			bool *const flags[] = { &rig.filter.promisc, &rig.filter.allmulti,
						&rig.filter.alluni,  &rig.filter.nomulti,
						&rig.filter.nouni,   &rig.filter.nobcast };
			uint8_t byte = value;

			assert_int_equal(command(&rig, 0, code, &byte, 1), VIRTIO_NET_OK);
			for (unsigned i = 0; i < 6; i++)
				assert_int_equal(*flags[i], i == code ? value != 0 : i < code);
			assert_memory_equal(&rig.filter, &rig.ctrl.filter, sizeof(rig.filter));
		}
}

static void test_mac_address(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_memory_equal(rig.filter.mac, rig_mac, 6);
	assert_int_equal(command(&rig, 1, 1, "\2\3\4\5\6\7", 6), VIRTIO_NET_OK);
	assert_memory_equal(rig.filter.mac, "\2\3\4\5\6\7", 6);
}

/* A table command with so many of each kind. */
static int set_tables(struct rig *rig, unsigned unicast, unsigned multicast)
{
	static uint8_t data[MAX_DATA];
	unsigned len = put(data, 4, unicast);

	for (unsigned i = 0; i < unicast; i++, len += 6)
		memcpy(data + len, (uint8_t[6]){ 2, 0, 0, 0, i >> 8, i }, 6);
	len += put(data + len, 4, multicast);
	for (unsigned i = 0; i < multicast; i++, len += 6)
		memcpy(data + len, (uint8_t[6]){ 3, 0, 0, 0, i >> 8, i }, 6);
	return command(rig, 1, 0, data, len);
}

static bool accepts(const struct rig *rig, unsigned first, unsigned last)
{
	uint8_t frame[NET_FILTER_BYTES] = { first, 0, 0, 0, last >> 8, last };

	return net_filter_accepts(&rig->filter, frame, sizeof(frame));
}

static void test_g28_mac_tables(void **state)
{
	struct rig rig;
	uint8_t off = 0;

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 0, 0, &off, 1), VIRTIO_NET_OK);
	for (unsigned count = 0; count <= NET_FILTER_TABLE; count += 16) {
		assert_int_equal(set_tables(&rig, count, NET_FILTER_TABLE - count), VIRTIO_NET_OK);
		for (unsigned i = 0; i < 2 * NET_FILTER_TABLE; i++) {
			assert_int_equal(accepts(&rig, 2, i), i < count);
			assert_int_equal(accepts(&rig, 3, i), i < NET_FILTER_TABLE - count);
		}
	}
	/* A new table replaces the old one. */
	assert_int_equal(set_tables(&rig, 0, 0), VIRTIO_NET_OK);
	assert_false(accepts(&rig, 2, 0));
	assert_false(accepts(&rig, 3, 0));
}

static void test_g28_overflow_accepts_all(void **state)
{
	struct rig rig;
	uint8_t off = 0;

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 0, 0, &off, 1), VIRTIO_NET_OK);
	assert_int_equal(set_tables(&rig, NET_FILTER_TABLE + 1, 1), VIRTIO_NET_OK);
	assert_true(accepts(&rig, 2, 1000));
	assert_true(accepts(&rig, 3, 0));
	assert_false(accepts(&rig, 3, 1));
	assert_int_equal(set_tables(&rig, 1, 500), VIRTIO_NET_OK);
	assert_true(accepts(&rig, 2, 0));
	assert_false(accepts(&rig, 2, 1));
	assert_true(accepts(&rig, 3, 1000));
	/* And fits again. */
	assert_int_equal(set_tables(&rig, 1, 1), VIRTIO_NET_OK);
	assert_false(accepts(&rig, 3, 1000));
}

static bool accepts_vlan(const struct rig *rig, unsigned id)
{
	uint8_t frame[NET_FILTER_BYTES] = { 0 };

	memcpy(frame, rig_mac, 6);
	frame[12] = 0x81;
	frame[14] = id >> 8;
	frame[15] = id;
	return net_filter_accepts(&rig->filter, frame, sizeof(frame));
}

static void test_g28_vlan_adds(void **state)
{
	struct rig rig;
	uint8_t off = 0, id[2];

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 0, 0, &off, 1), VIRTIO_NET_OK);
	for (unsigned i = 1; i < 4096; i++) {
		assert_false(accepts_vlan(&rig, i));
		put(id, 2, i);
		assert_int_equal(command(&rig, 2, 0, id, 2), VIRTIO_NET_OK);
		assert_true(accepts_vlan(&rig, i));
	}
	for (unsigned i = 1; i < 4096; i++) {
		put(id, 2, i);
		assert_int_equal(command(&rig, 2, 1, id, 2), VIRTIO_NET_OK);
		assert_false(accepts_vlan(&rig, i));
	}
	for (unsigned i = 4096; i < 65536; i += 0xff) {
		put(id, 2, i);
		assert_int_equal(command(&rig, 2, 0, id, 2), VIRTIO_NET_ERR);
		assert_int_equal(command(&rig, 2, 1, id, 2), VIRTIO_NET_ERR);
	}
}

static unsigned random_command(uint64_t *seed, uint8_t *bytes)
{
	uint64_t r = libboot_random(seed);
	unsigned len = r >> 32 & 0x1ff;

	if (r & 1) {
		for (unsigned i = 0; i < len; i++)
			bytes[i] = libboot_random(seed);
		if (len > 1 && (r & 2)) {
			bytes[0] %= 9;
			bytes[1] %= 6;
		}
	} else {
		const struct example *e = &examples[(r >> 8 & 0xff) % ARRAY_SIZE(examples)];

		len = r & 2 ? e->len : len;
		memset(bytes, 0, len);
		memcpy(bytes, e->bytes, MIN(len, e->len));
		for (unsigned i = r >> 4 & 3; i && len; i--)
			bytes[libboot_random(seed) % MIN(len, 40u)] = libboot_random(seed);
	}
	return len;
}

static void test_random_commands(void **state)
{
	uint64_t seed = libboot_seed();
	unsigned oks = 0;

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		struct virtio_features features = { 0 };
		struct rig rig;

		for (unsigned f = 0; f < ARRAY_SIZE(every_feature); f++)
			if (libboot_random(&seed) % 8)
				virtio_add(&features, every_feature[f]);
		rig_init_with(&rig, &features);
		for (unsigned j = 0; j < 40; j++) {
			uint8_t bytes[512], answer[512];
			unsigned len = random_command(&seed, bytes);
			bool roomy = libboot_random(&seed) % 8;
			unsigned room = roomy ? 1 + libboot_random(&seed) % 200 : 0;
			uint64_t before = rig.ctrl.commands_ok;
			struct net_filter filter = rig.filter;

			rig.refuse = libboot_random(&seed) % 16 == 0;
			run_split(&rig, bytes, len, answer, room, libboot_random(&seed) % 3, &seed);
			if (room && answer[0] == VIRTIO_NET_OK)
				oks++;
			else
				assert_memory_equal(&rig.filter, &filter, sizeof(filter));
			assert_int_equal(rig.ctrl.commands_ok - before,
					 room && answer[0] == VIRTIO_NET_OK);
			assert_memory_equal(&rig.ctrl.filter, &rig.filter, sizeof(rig.filter));
		}
	}
	/* It was not all noise. */
	assert_true(oks > 1000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_g5_every_command),
		cmocka_unit_test(test_g5_not_negotiated),
		cmocka_unit_test(test_g5_unknown),
		cmocka_unit_test(test_g5_refused),
		cmocka_unit_test(test_g5_used_length),
		cmocka_unit_test(test_g5_too_long),
		cmocka_unit_test(test_m14_every_truncation),
		cmocka_unit_test(test_m14_split_per_byte),
		cmocka_unit_test(test_m14_no_ack_descriptor),
		cmocka_unit_test(test_m14_no_room_for_a_result),
		cmocka_unit_test(test_m14_entries_too_many),
		cmocka_unit_test(test_rx_modes),
		cmocka_unit_test(test_mac_address),
		cmocka_unit_test(test_g28_mac_tables),
		cmocka_unit_test(test_g28_overflow_accepts_all),
		cmocka_unit_test(test_g28_vlan_adds),
		cmocka_unit_test(test_random_commands),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
