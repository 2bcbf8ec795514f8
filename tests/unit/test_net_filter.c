/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/virtio/net_filter.h"
#include "tests/unit/libboot.h"
#include "vmm/util.h"

static const uint8_t own[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 };
static const uint8_t other[6] = { 0x52, 0x54, 0, 0x12, 0x34, 0x57 };
static const uint8_t stranger[6] = { 2 };
static const uint8_t group[6] = { 0x33, 0x33, 0, 0, 0, 1 };
static const uint8_t group2[6] = { 1, 0, 0x5e, 0, 0, 0xfb };
static const uint8_t all[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

#define UNTAGGED 0x10000u

/* A frame to `mac`, tagged when `tci` is one, in memory of exactly `len` bytes: is it accepted? */
static bool accepts_frame(const struct net_filter *filter, const uint8_t *mac, unsigned type,
			  unsigned tci, size_t len)
{
	uint8_t frame[NET_FILTER_BYTES] = { 0 };
	uint8_t *exact = malloc(len ? len : 1);
	bool accepted;

	assert_non_null(exact);
	memcpy(frame, mac, 6);
	frame[12] = type >> 8;
	frame[13] = type;
	if (tci != UNTAGGED) {
		frame[14] = tci >> 8;
		frame[15] = tci;
		frame[16] = 8;
	}
	memcpy(exact, frame, len);
	accepted = net_filter_accepts(filter, exact, len);
	free(exact);
	return accepted;
}

static bool accepts(const struct net_filter *filter, const uint8_t *mac)
{
	return accepts_frame(filter, mac, 0x0800, UNTAGGED, NET_FILTER_BYTES);
}

static bool accepts_tag(const struct net_filter *filter, unsigned tci)
{
	return accepts_frame(filter, own, 0x8100, tci, NET_FILTER_BYTES);
}

/* As after the driver's first "not promiscuous". */
static void init_strict(struct net_filter *filter, bool vlan)
{
	net_filter_init(filter, own, true, vlan);
	filter->promisc = false;
	net_filter_update(filter);
}

static void add(struct net_filter_table *table, const uint8_t *mac)
{
	memcpy(table->macs[table->count++], mac, 6);
}

static void test_after_reset(void **state)
{
	struct net_filter filter;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		net_filter_init(&filter, own, i & 1, i & 2);
		assert_true(accepts(&filter, own));
		assert_true(accepts(&filter, other));
		assert_true(accepts(&filter, group));
		assert_true(accepts(&filter, all));
		/* Without CTRL_RX, nothing but the VLAN table can keep frames out. */
		assert_int_equal(accepts_tag(&filter, 5), i != 2);
		assert_int_equal(filter.pass_all, i != 2);
	}
}

/* Every combination of the six modes, against what the specification says of each. */
static void test_modes(void **state)
{
	(void)state;
	for (unsigned modes = 0; modes < 64; modes++) {
		bool promisc = modes & 1, allmulti = modes & 2, alluni = modes & 4;
		bool nomulti = modes & 8, nouni = modes & 16, nobcast = modes & 32;
		struct net_filter filter;

		init_strict(&filter, false);
		add(&filter.unicast, other);
		add(&filter.multicast, group);
		filter.promisc = promisc;
		filter.allmulti = allmulti;
		filter.alluni = alluni;
		filter.nomulti = nomulti;
		filter.nouni = nouni;
		filter.nobcast = nobcast;
		net_filter_update(&filter);
		assert_int_equal(accepts(&filter, own), promisc || !nouni);
		assert_int_equal(accepts(&filter, other), promisc || !nouni);
		assert_int_equal(accepts(&filter, stranger), promisc || (alluni && !nouni));
		assert_int_equal(accepts(&filter, group), promisc || !nomulti);
		assert_int_equal(accepts(&filter, group2), promisc || (allmulti && !nomulti));
		assert_int_equal(accepts(&filter, all), promisc || !nobcast);
		assert_int_equal(filter.pass_all, promisc || (allmulti && alluni && !nomulti &&
							      !nouni && !nobcast));
	}
}

static void test_g28_unicast_and_multicast_tables(void **state)
{
	struct net_filter filter;
	uint8_t mac[6];

	(void)state;
	init_strict(&filter, false);
	assert_false(accepts(&filter, other));
	assert_false(accepts(&filter, group));
	for (unsigned i = 0; i < NET_FILTER_TABLE; i++) {
		memcpy(mac, other, 6);
		mac[4] = i;
		add(&filter.unicast, mac);
		memcpy(mac, group, 6);
		mac[4] = i;
		add(&filter.multicast, mac);
	}
	net_filter_update(&filter);
	for (unsigned i = 0; i < 256; i++) {
		memcpy(mac, other, 6);
		mac[4] = i;
		assert_int_equal(accepts(&filter, mac), i < NET_FILTER_TABLE);
		memcpy(mac, group, 6);
		mac[4] = i;
		assert_int_equal(accepts(&filter, mac), i < NET_FILTER_TABLE);
	}
	assert_true(accepts(&filter, own));
	assert_true(accepts(&filter, all));
}

/* Each table alone lets all of its kind through, and nothing of the other. */
static void test_g28_overflow(void **state)
{
	struct net_filter filter;

	(void)state;
	init_strict(&filter, false);
	filter.unicast.overflow = true;
	net_filter_update(&filter);
	assert_true(accepts(&filter, other));
	assert_false(accepts(&filter, group));
	filter.unicast.overflow = false;
	filter.multicast.overflow = true;
	net_filter_update(&filter);
	assert_false(accepts(&filter, other));
	assert_true(accepts(&filter, group));
	filter.unicast.overflow = true;
	net_filter_update(&filter);
	assert_true(filter.pass_all);
	filter.nouni = true;
	net_filter_update(&filter);
	assert_false(accepts(&filter, other));
}

static void test_g28_vlans_without_ctrl_vlan(void **state)
{
	struct net_filter filter;

	(void)state;
	init_strict(&filter, false);
	for (unsigned id = 0; id < NET_FILTER_VLANS; id++)
		assert_true(accepts_tag(&filter, id));
	/* The address still counts. */
	assert_false(accepts_frame(&filter, other, 0x8100, 5, NET_FILTER_BYTES));
}

static void test_g28_every_vlan(void **state)
{
	struct net_filter filter;

	(void)state;
	init_strict(&filter, true);
	for (unsigned id = 1; id < NET_FILTER_VLANS; id++) {
		assert_false(accepts_tag(&filter, id));
		net_filter_set_vlan(&filter, id, true);
		net_filter_update(&filter);
		/* With any priority. */
		assert_true(accepts_tag(&filter, id));
		assert_true(accepts_tag(&filter, id | 0xf000));
	}
	for (unsigned id = 1; id < NET_FILTER_VLANS; id++) {
		net_filter_set_vlan(&filter, id, false);
		net_filter_update(&filter);
		assert_false(accepts_tag(&filter, id));
		assert_int_equal(accepts_tag(&filter, NET_FILTER_VLANS - 1),
				 id != NET_FILTER_VLANS - 1);
	}
}

static void test_vlan_details(void **state)
{
	struct net_filter filter;

	(void)state;
	init_strict(&filter, true);
	/* No VLAN, a priority only, a service tag: not for the table. */
	assert_true(accepts(&filter, own));
	assert_true(accepts_tag(&filter, 0xe000));
	assert_true(accepts_frame(&filter, own, 0x88a8, 5, NET_FILTER_BYTES));
	/* Broadcasts are filtered as well. */
	assert_false(accepts_frame(&filter, all, 0x8100, 5, NET_FILTER_BYTES));
	filter.promisc = true;
	net_filter_update(&filter);
	assert_true(accepts_frame(&filter, all, 0x8100, 5, NET_FILTER_BYTES));
}

static void test_short_frames(void **state)
{
	struct net_filter filter;

	(void)state;
	for (size_t len = 0; len <= NET_FILTER_BYTES; len++) {
		init_strict(&filter, true);
		net_filter_set_vlan(&filter, 5, true);
		net_filter_update(&filter);
		assert_int_equal(accepts_frame(&filter, own, 0x0800, UNTAGGED, len), len >= 14);
		assert_int_equal(accepts_frame(&filter, own, 0x8100, 5, len), len >= 16);
		filter.promisc = true;
		net_filter_update(&filter);
		assert_true(accepts_frame(&filter, own, 0x8100, 5, len));
	}
}

/* pass_all is a short cut: without it the answer is the same. */
static void test_short_cut(void **state)
{
	static const uint8_t *const macs[] = { own, other, group, group2, all };
	uint64_t seed = libboot_seed();

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t r = libboot_random(&seed);
		const uint8_t *mac = macs[r % 5];
		unsigned tci = r >> 8 & 1 ? UNTAGGED : r >> 16 & 0xffff;
		struct net_filter filter;

		net_filter_init(&filter, own, r >> 32 & 1, r >> 33 & 1);
		filter.promisc = false;
		filter.allmulti |= r >> 34 & 1;
		filter.alluni |= r >> 35 & 1;
		filter.nomulti = (r >> 36 & 3) == 3;
		filter.nouni = (r >> 38 & 3) == 3;
		filter.nobcast = (r >> 40 & 3) == 3;
		filter.unicast.overflow = r >> 42 & 1;
		filter.multicast.overflow = r >> 43 & 1;
		net_filter_update(&filter);
		if (!filter.pass_all)
			continue;
		filter.pass_all = false;
		assert_true(accepts_frame(&filter, mac, tci == UNTAGGED ? 0x0800 : 0x8100, tci,
					  NET_FILTER_BYTES));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_after_reset),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_g28_unicast_and_multicast_tables),
		cmocka_unit_test(test_g28_overflow),
		cmocka_unit_test(test_g28_vlans_without_ctrl_vlan),
		cmocka_unit_test(test_g28_every_vlan),
		cmocka_unit_test(test_vlan_details),
		cmocka_unit_test(test_short_frames),
		cmocka_unit_test(test_short_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
