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

static void test_stats_query(void **state)
{
	static const uint8_t query[] = { 8, 0 };
	uint8_t answer[64];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(run_split(&rig, query, 2, answer, sizeof(answer), WHOLE, NULL), 9);
	assert_true(load_le(answer + 1, 8) == (1ull << 32 | 1 << 16 | 1));
}

/* A STATS_GET; returns the number of bytes of result, or -1 for ERR. */
struct request {
	unsigned queue;
	uint64_t types;
};

static int get_stats(struct rig *rig, const struct request *requests, unsigned count,
		     uint8_t *result, unsigned room)
{
	static uint8_t bytes[2 + 16 * 300], answer[MAX_DATA];
	uint32_t used;

	memset(bytes, UNTOUCHED, sizeof(bytes));
	bytes[0] = 8;
	bytes[1] = 1;
	for (unsigned i = 0; i < count; i++) {
		put(bytes + 2 + 16 * i, 2, requests[i].queue);
		put(bytes + 10 + 16 * i, 8, requests[i].types);
	}
	used = run_split(rig, bytes, 2 + 16 * count, answer, 1 + room, WHOLE, NULL);
	memcpy(result, answer + 1, used - 1);
	return answer[0] == VIRTIO_NET_OK ? (int)used - 1 : -1;
}

static const uint64_t rx_basic = 1, tx_basic = 1 << 16, cvq = 1ull << 32;

static void assert_reply(const uint8_t *at, unsigned type, unsigned queue, unsigned size)
{
	assert_int_equal(at[0], type);
	assert_int_equal(at[1], 0);
	assert_int_equal(load_le(at + 2, 2), queue);
	assert_int_equal(load_le(at + 4, 2), 0);
	assert_int_equal(load_le(at + 6, 2), size);
	if (type == 32)
		return;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(load_le(at + 8 + 8 * i, 8), queue * 10 + 1 + i);
	assert_true(load_le(at + 48, 8) == UINT64_MAX - queue);
}

static void test_stats_get(void **state)
{
	const struct request requests[] = { { 7, tx_basic }, { 8, cvq }, { 0, rx_basic },
					    { 3, 0 },	     { 0, rx_basic } };
	uint8_t result[256];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 3, 0, NULL, 0), VIRTIO_NET_OK);
	assert_int_equal(command(&rig, 3, 1, NULL, 0), VIRTIO_NET_ERR);
	assert_int_equal(get_stats(&rig, requests, ARRAY_SIZE(requests), result, 256), 192);
	assert_reply(result, 16, 7, 56);
	assert_reply(result + 56, 32, 8, 24);
	/* This command counts. */
	assert_int_equal(load_le(result + 64, 8), 3);
	assert_int_equal(load_le(result + 72, 8), 2);
	assert_int_equal(rig.ctrl.commands_ok, 2);
	assert_reply(result + 80, 0, 0, 56);
	assert_reply(result + 136, 0, 0, 56);
}

/* Every queue against every type: only its rig_mac is an answer. */
static void test_g4_stats_know_the_control_queue(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 4; which++) {
		struct virtio_features features = all_features();
		unsigned last = which ? 2 * PAIRS : 2;
		struct rig rig;

		/* Neither, MQ, RSS, both. */
		if (!(which & 1))
			drop_feature(&features, VIRTIO_NET_F_MQ);
		if (!(which & 2))
			drop_feature(&features, VIRTIO_NET_F_RSS);
		rig_init_with(&rig, &features);
		for (unsigned queue = 0; queue < 65536;
		     queue = queue < 20 ? queue + 1 : queue * 2 + 1)
			for (unsigned bit = 0; bit < 64; bit++) {
				struct request request = { queue, 1ull << bit };
				unsigned own_bit = queue == last ? 32 : queue % 2 ? 16 : 0;
				bool ok = queue <= last && bit == own_bit;
				uint8_t result[64];

				assert_int_equal(get_stats(&rig, &request, 1, result, 64),
						 !ok ? -1 : queue == last ? 24 : 56);
			}
	}
}

/* One bad request fails all of them. */
static void test_stats_get_errors(void **state)
{
	static struct request requests[NET_CTRL_STATS_MAX + 1];
	uint8_t result[MAX_DATA];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (unsigned i = 0; i < 5; i++)
		requests[i] = (struct request){ 2, rx_basic };
	requests[3].types |= 2;
	assert_int_equal(get_stats(&rig, requests, 5, result, 512), -1);
	requests[3] = (struct request){ 2 * PAIRS + 1, 0 };
	assert_int_equal(get_stats(&rig, requests, 5, result, 512), -1);
	assert_int_equal(rig.calls, 0);
	requests[3] = (struct request){ 4, rx_basic };
	assert_int_equal(get_stats(&rig, requests, 5, result, 512), 280);
	rig.no_stats = 4;
	assert_int_equal(get_stats(&rig, requests, 5, result, 512), -1);
	assert_int_equal(get_stats(&rig, requests, 0, result, 512), -1);
	for (unsigned i = 0; i <= NET_CTRL_STATS_MAX; i++)
		requests[i] = (struct request){ 2, 0 };
	requests[9].types = rx_basic;
	assert_int_equal(get_stats(&rig, requests, NET_CTRL_STATS_MAX, result, 512), 56);
	assert_int_equal(get_stats(&rig, requests, NET_CTRL_STATS_MAX + 1, result, 512), -1);
}

static void test_m14_stats_get_cut_entry(void **state)
{
	/* The whole array, and one more entry but for a byte. */
	static uint8_t data[16 * (NET_CTRL_STATS_MAX + 1)];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(command(&rig, 8, 1, data, 16 * NET_CTRL_STATS_MAX), VIRTIO_NET_OK);
	for (unsigned cut = 1; cut < 16; cut++) {
		assert_int_equal(command(&rig, 8, 1, data, sizeof(data) - cut), VIRTIO_NET_ERR);
		assert_int_equal(command(&rig, 8, 1, data, 32 - cut), VIRTIO_NET_ERR);
	}
}

/* Filled to the last byte when there is less room than replies; none when not even for headers. */
static void test_stats_get_short_of_room(void **state)
{
	const struct request requests[] = { { 0, rx_basic }, { 1, tx_basic }, { 8, cvq } };
	uint8_t all[136], result[136];
	struct rig rig;

	(void)state;
	for (unsigned room = 136; room < 137; room--) {
		rig_init(&rig);
		if (room == 136) {
			assert_int_equal(get_stats(&rig, requests, 3, all, room), 136);
			continue;
		}
		assert_int_equal(get_stats(&rig, requests, 3, result, room),
				 room < 24 ? -1 : (int)room);
		if (room >= 24)
			assert_memory_equal(result, all, room);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stats_query),
		cmocka_unit_test(test_stats_get),
		cmocka_unit_test(test_g4_stats_know_the_control_queue),
		cmocka_unit_test(test_stats_get_errors),
		cmocka_unit_test(test_m14_stats_get_cut_entry),
		cmocka_unit_test(test_stats_get_short_of_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
