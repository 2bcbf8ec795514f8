/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * --net: its keys, its features, and every contradiction between them, refused with its reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/liboptions.h"
#include "vmm/linux_new.h"
#include "vmm/net_features.h"
#include "vmm/util.h"

#define SYNOPSIS   "tap=NAME[,KEY=VALUE...]; \"--net help\""
#define NET(value) GOOD("run", "--kernel=k", "--net", value).run.nets[0]

static void test_mtu_bounds(void **state)
{
	(void)state;
	assert_int_equal(GOOD("run", "--kernel=k", "--net=tap=t,mtu=68").run.nets[0].mtu, 68);
	assert_int_equal(GOOD("run", "--kernel=k", "--net=tap=t,mtu=65535").run.nets[0].mtu, 65535);
}

static void test_many_nets(void **state)
{
	static char values[OPTIONS_MAX_NETS + 1][16];
	const char *args[OPTIONS_MAX_ARGS] = { "run", "--kernel=k" };
	struct options options;
	char said[1024];
	unsigned i;

	(void)state;
	for (i = 0; i <= OPTIONS_MAX_NETS; i++) {
		snprintf(values[i], sizeof(values[i]), "--net=tap=t%u", i);
		args[2 + i] = values[i];
	}
	assert_int_equal(liboptions_parse(&options, args, said, sizeof(said)), -EINVAL);
	assert_non_null(strstr(said, "--net \"tap=t16\""));
	assert_non_null(strstr(said, "at most 16"));
	args[2 + OPTIONS_MAX_NETS] = NULL;
	options = liboptions_good(args);
	assert_int_equal(options.run.net_count, OPTIONS_MAX_NETS);
	assert_string_equal(options.run.nets[15].tap, "t15");
}

/* A set of features, as their names with blanks between. */
static const char *names(const uint32_t words[NET_FEATURE_WORDS], char text[1024])
{
	unsigned bit;

	text[0] = '\0';
	for (bit = 0; bit < 32 * NET_FEATURE_WORDS; bit++) {
		if (!net_features_have(words, bit))
			continue;
		assert_non_null(net_feature_of(bit));
		strcat(strcat(text, *text ? " " : ""), net_feature_of(bit)->name);
	}
	return text;
}

static void test_net_defaults(void **state)
{
	static const unsigned off[] = {
		VIRTIO_F_RING_PACKED,	    VIRTIO_F_IN_ORDER,	     VIRTIO_F_ACCESS_PLATFORM,
		VIRTIO_F_NOTIFICATION_DATA, VIRTIO_F_ORDER_PLATFORM, VIRTIO_NET_F_HASH_REPORT,
	};
	/* Nothing without their keys. */
	static const unsigned idle[] = { VIRTIO_NET_F_MTU, VIRTIO_NET_F_SPEED_DUPLEX,
					 VIRTIO_NET_F_MQ, VIRTIO_NET_F_RSS };
	struct net_config net = NET("tap=t");
	uint32_t expected[NET_FEATURE_WORDS] = { 0 };
	char text[1024], also[1024];
	unsigned i;

	(void)state;
	assert_int_equal(net.queues, 1);
	assert_int_equal(net.rx_ring, 256);
	assert_int_equal(net.tx_ring, 256);
	assert_false(net.notify_pio);
	assert_false(net.vhost);
	assert_int_equal(net.speed, UINT32_MAX);
	assert_int_equal(net.duplex, 0xff);
	assert_string_equal(names(net.required, text), "");
	for (i = 0; i < net_feature_count; i++)
		net_features_add(expected, net_features[i].bit);
	for (i = 0; i < ARRAY_SIZE(off); i++)
		net_features_remove(expected, off[i]);
	for (i = 0; i < ARRAY_SIZE(idle); i++)
		net_features_remove(expected, idle[i]);
	assert_string_equal(names(net.wanted, text), names(expected, also));
}

static void test_net_keys(void **state)
{
	struct net_config net = NET("queues=32,rx_ring=2,ring=4096,tap=t,notify=pio,speed=40000");

	(void)state;
	assert_int_equal(net.queues, 32);
	assert_int_equal(net.rx_ring, 2);
	assert_int_equal(net.tx_ring, 4096);
	assert_true(net.notify_pio);
	assert_int_equal(net.speed, 40000);
	assert_int_equal(net.duplex, 1);
	net = NET("tap=t,queues=1,tx_ring=1024,notify=mmio,duplex=half,speed=2147483647");
	assert_int_equal(net.queues, 1);
	assert_int_equal(net.rx_ring, 256);
	assert_int_equal(net.tx_ring, 1024);
	assert_false(net.notify_pio);
	assert_int_equal(net.speed, INT32_MAX);
	assert_int_equal(net.duplex, 0);
	net = NET("tap=t,speed=1,duplex=half");
	assert_int_equal(net.duplex, 0);
	assert_true(NET("tap=t,vhost=on").vhost);
	assert_false(NET("tap=t,vhost=off").vhost);
	net = NET("tap=t,duplex=full");
	assert_int_equal(net.speed, UINT32_MAX);
	assert_int_equal(net.duplex, 1);
	net = NET("tap=t,ring=7,tx_ring=4095,+ring_packed");
	assert_int_equal(net.rx_ring, 7);
	assert_int_equal(net.tx_ring, 4095);
}

static void test_net_fds(void **state)
{
	struct net_config net = NET("fd=3"), many;
	char value[512] = "fd=", number[16];
	unsigned i;

	(void)state;
	assert_string_equal(net.tap, "");
	assert_int_equal(net.fd_count, 1);
	assert_int_equal(net.fds[0], 3);
	assert_int_equal(net.queues, 1);
	assert_false(net_features_have(net.wanted, VIRTIO_NET_F_MQ));
	net = NET("mtu=1400,queues=2,fd=2147483647:10");
	assert_int_equal(net.fd_count, 2);
	assert_int_equal(net.fds[0], INT32_MAX);
	assert_int_equal(net.fds[1], 10);
	assert_int_equal(net.queues, 2);
	/* The number of files is that of pairs. */
	for (i = 0; i < OPTIONS_MAX_QUEUES; i++) {
		snprintf(number, sizeof(number), "%s%u", i ? ":" : "", 100 - i);
		strcat(value, number);
	}
	many = NET(value);
	assert_int_equal(many.fd_count, OPTIONS_MAX_QUEUES);
	assert_int_equal(many.queues, OPTIONS_MAX_QUEUES);
	assert_int_equal(many.fds[31], 69);
	assert_true(net_features_have(many.required, VIRTIO_NET_F_MQ));
	assert_int_equal(NET("tap=t,queues=2").fd_count, 0);
	/* Neither has a name, and that is no name in common. */
	assert_int_equal(GOOD("run", "--kernel=k", "--net=fd=3", "--net=fd=4").run.net_count, 2);
}

struct features_case {
	const char *net;
	const char *wanted; /* all of them */
	const char *required;
};

static void test_features(void **state)
{
	const struct features_case *row = *state;
	struct net_config net = NET(row->net);
	char text[1024];

	assert_string_equal(names(net.wanted, text), row->wanted);
	assert_string_equal(names(net.required, text), row->required);
}

#define FEATURES(value, wanted, required)                                                          \
	{                                                                                          \
		value, test_features, NULL, NULL, (void *)&(struct features_case)                  \
		{                                                                                  \
			"tap=t," value, wanted, required                                           \
		}                                                                                  \
	}

struct switch_case {
	const char *net;
	const char *gone; /* less than the default */
	const char *more;
	const char *required;
};

static void test_switch(void **state)
{
	const struct switch_case *row = *state;
	struct net_config plain = NET("tap=t"), net = NET(row->net);
	uint32_t gone[NET_FEATURE_WORDS], more[NET_FEATURE_WORDS];
	char text[1024];
	unsigned i;

	for (i = 0; i < NET_FEATURE_WORDS; i++) {
		gone[i] = plain.wanted[i] & ~net.wanted[i];
		more[i] = net.wanted[i] & ~plain.wanted[i];
	}
	assert_string_equal(names(gone, text), row->gone);
	assert_string_equal(names(more, text), row->more);
	assert_string_equal(names(net.required, text), row->required);
}

#define SWITCH(value, gone, more, required)                                                        \
	{                                                                                          \
		value, test_switch, NULL, NULL, (void *)&(struct switch_case)                      \
		{                                                                                  \
			"tap=t," value, gone, more, required                                       \
		}                                                                                  \
	}

/* Everything by name: the longest list there is. */
static void test_features_all_by_name(void **state)
{
	char value[1024] = "tap=t,mtu=1500,speed=1,features=", text[1024], also[1024];
	struct net_config net, all;
	unsigned i;

	(void)state;
	for (i = 0; i < net_feature_count; i++)
		strcat(strcat(value, i ? ":" : ""), net_features[i].name);
	net = NET(value);
	all = NET("tap=t,mtu=1500,speed=1,queues=2,features=all");
	assert_string_equal(names(net.wanted, text), names(all.wanted, also));
	assert_string_equal(names(net.required, text), names(net.wanted, also));
	assert_string_equal(names(all.required, text), "mtu mq speed_duplex");
}

/* Each feature but one can be switched off alone and on alone, with the keys that some go with. */
static void test_features_each(void **state)
{
	char value[256];
	unsigned i;

	(void)state;
	for (i = 0; i < net_feature_count; i++) {
		unsigned bit = net_features[i].bit;
		bool mtu = bit == VIRTIO_NET_F_MTU, speed = bit == VIRTIO_NET_F_SPEED_DUPLEX;
		struct net_config net;

		snprintf(value, sizeof(value), "tap=t%s%s,+%s", mtu ? ",mtu=1500" : "",
			 speed ? ",speed=1" : "", net_features[i].name);
		net = NET(value);
		assert_true(net_features_have(net.wanted, bit));
		assert_true(net_features_have(net.required, bit));
		if (net_features[i].use == NET_FEATURE_ALWAYS)
			continue;
		snprintf(value, sizeof(value), "tap=t,features=all,-%s", net_features[i].name);
		net = NET(value);
		assert_false(net_features_have(net.wanted, bit));
	}
}

/* The table: ascending, so that "lowest first" holds; names and needs that exist; one line of help.
 */
static void test_features_table(void **state)
{
	unsigned i, k;

	(void)state;
	for (i = 0; i < net_feature_count; i++) {
		const struct net_feature *feature = &net_features[i];

		assert_true(!i || net_features[i - 1].bit < feature->bit);
		assert_true(feature->bit < 32 * NET_FEATURE_WORDS);
		assert_ptr_equal(net_feature_find(feature->name), feature);
		assert_ptr_equal(net_feature_of(feature->bit), feature);
		assert_int_equal(strcspn(feature->name, ",:=+- "), strlen(feature->name));
		assert_null(strchr(feature->help, '\n'));
		assert_true(!feature->any || feature->need_count == 2);
		for (k = 0; k < feature->need_count; k++) {
			assert_non_null(net_feature_of(feature->needs[k]));
			assert_true(!k || feature->needs[k - 1] < feature->needs[k]);
		}
	}
	assert_null(net_feature_find("all"));
	assert_null(net_feature_find("none"));
	assert_null(net_feature_find(""));
	assert_null(net_feature_of(6));
}

/* What the device does with a tap that can do less. */
static void test_features_close(void **state)
{
	struct net_config net = NET("tap=t");
	uint32_t words[NET_FEATURE_WORDS];
	unsigned missing = 0;
	char text[1024];

	(void)state;
	memcpy(words, net.wanted, sizeof(words));
	assert_null(net_features_unmet(words, &missing));
	net_features_remove(words, VIRTIO_NET_F_GUEST_USO6);
	assert_string_equal(net_features_unmet(words, &missing)->name, "guest_udp_tunnel_gso");
	assert_int_equal(missing, VIRTIO_NET_F_GUEST_USO6);
	net_features_close(words);
	assert_null(net_features_unmet(words, &missing));
	assert_false(net_features_have(words, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO));
	assert_false(net_features_have(words, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM));
	assert_true(net_features_have(words, VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM));
	assert_true(net_features_have(words, VIRTIO_NET_F_GUEST_USO4));

	memset(words, 0, sizeof(words));
	net_features_add(words, VIRTIO_NET_F_GUEST_CSUM);
	net_features_add(words, VIRTIO_NET_F_GUEST_ECN);
	net_features_add(words, VIRTIO_NET_F_GUEST_TSO6);
	net_features_close(words);
	assert_string_equal(names(words, text), "guest_csum guest_tso6 guest_ecn");
	net_features_remove(words, VIRTIO_NET_F_GUEST_CSUM);
	net_features_close(words);
	assert_string_equal(names(words, text), "");
}

#define LONG_10	 "abcdefghij"
#define LONG_100 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10
#define LONG_1000                                                                                  \
	LONG_100 LONG_100 LONG_100 LONG_100 LONG_100 LONG_100 LONG_100 LONG_100 LONG_100 LONG_100

static const struct CMUnitTest tests[] = {
	BAD_RUN("net without key", "--net", "tap0", "\"tap0\"", SYNOPSIS),
	BAD_RUN("net unknown key", "--net", "tap=t,colour=9", "\"colour\"", SYNOPSIS),
	BAD_RUN("net key of other case", "--net", "TAP=t", "\"TAP\"", SYNOPSIS),
	BAD_RUN("net trailing comma", "--net", "tap=t,", "\"\"", SYNOPSIS),
	BAD_RUN("net two commas", "--net", "tap=t,,mtu=99", "\"\"", SYNOPSIS),
	BAD_RUN("net without tap", "--net", "mtu=1500", "\"mtu=1500\"", "needs tap", SYNOPSIS),
	BAD_RUN("net key twice", "--net", "tap=t,tap=u", "tap is given twice"),
	BAD_RUN("net key without value", "--net", "tap=t,mtu=", "mtu has no value", "mtu=N"),
	BAD_RUN("tap empty", "--net", "tap=", "tap has no value"),
	BAD_RUN("tap too long", "--net", "tap=abcdefghijklmnop", "tap must be 1 to 15"),
	BAD_RUN("tap pattern", "--net", "tap=tap%d", "tap must not contain", "'%'"),
	BAD_RUN("tap slash", "--net", "tap=a/b", "tap must not contain", "'/'"),
	BAD_RUN("tap blank", "--net", "tap=a b", "tap must not contain", "blanks"),
	BAD_RUN("tap dot", "--net", "tap=.", "tap is no name"),
	BAD_RUN("tap two dots", "--net", "tap=..", "tap is no name"),
	BAD_RUN("mtu 67", "--net", "tap=t,mtu=67", "mtu must be", "68 to 65535"),
	BAD_RUN("mtu 65536", "--net", "tap=t,mtu=65536", "mtu must be", "68 to 65535"),
	BAD_RUN("mtu with unit", "--net", "tap=t,mtu=9K", "mtu must be", "68 to 65535"),
	BAD_RUN("mac multicast", "--net", "tap=t,mac=53:54:00:00:00:01", "mac must be a unicast"),
	BAD_RUN("mac broadcast", "--net", "tap=t,mac=ff:ff:ff:ff:ff:ff", "mac must be a unicast"),
	BAD_RUN("mac zero", "--net", "tap=t,mac=00:00:00:00:00:00", "mac must not be all zero"),
	BAD_RUN("mac short", "--net", "tap=t,mac=52:54:00:00:00", "mac must be six pairs"),
	BAD_RUN("mac long", "--net", "tap=t,mac=52:54:00:00:00:01:02", "mac must be six pairs"),
	BAD_RUN("mac half byte", "--net", "tap=t,mac=52:54:0:00:00:01", "mac must be six pairs"),
	BAD_RUN("mac dashes", "--net", "tap=t,mac=52-54-00-00-00-01", "mac must be six pairs"),
	BAD_RUN("mac no hexadecimal", "--net", "tap=t,mac=52:54:00:00:00:0g",
		"mac must be six pairs"),
	BAD("tap of two nets", LIST("run", "--kernel=k", "--net=tap=t", "--net=tap=t"),
	    LIST("--net", "\"tap=t\"", "this tap", "its own")),
	BAD("fd of two nets", LIST("run", "--kernel=k", "--net=fd=5:6", "--net=fd=7:6"),
	    LIST("--net", "\"fd=7:6\"", "fd 6", "its own")),
	BAD_RUN("fd and tap", "--net", "tap=t,fd=3", "tap and fd contradict", "one of them"),
	BAD_RUN("fd and tap, in that order", "--net", "fd=3,tap=t", "tap and fd contradict"),
	BAD_RUN("neither fd nor tap", "--net", "queues=2", "needs tap or fd", SYNOPSIS),
	BAD_RUN("fd empty", "--net", "fd=", "fd has no value", "fd=N[:N...]"),
	BAD_RUN("fd 0", "--net", "fd=0", "fd must be", "from 3 on", "\"0\" is none"),
	BAD_RUN("fd 2", "--net", "fd=5:2", "fd must be", "from 3 on", "\"2\" is none"),
	BAD_RUN("fd 2^31", "--net", "fd=2147483648", "fd must be", "\"2147483648\" is none"),
	BAD_RUN("fd negative", "--net", "fd=-3", "fd must be", "\"-3\" is none"),
	BAD_RUN("fd long", "--net", "fd=00000000000000000000003", "fd must be"),
	BAD_RUN("fd name", "--net", "fd=tap0", "fd must be", "\"tap0\" is none"),
	BAD_RUN("fd two colons", "--net", "fd=3::4", "fd must be", "\"\" is none"),
	BAD_RUN("fd trailing colon", "--net", "fd=3:", "fd must be", "\"\" is none"),
	BAD_RUN("fd comma", "--net", "fd=3,4", "\"4\" is not key=value"),
	BAD_RUN("fd twice in one", "--net", "fd=3:4:3", "fd has 3 twice", "its own"),
	BAD_RUN("fd twice", "--net", "fd=3,fd=4", "fd is given twice"),
	BAD_RUN("fds too many", "--net",
		"fd=3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21:22:23:24:25:26:27:28:29:30:"
		"31:32:33:34:35",
		"fd has too many", "at most 32"),
	BAD_RUN("fds fewer than queues", "--net", "queues=2,fd=3", "queues is 2", "fd has 1"),
	BAD_RUN("fds more than queues", "--net", "fd=3:4,queues=1", "queues is 1", "fd has 2"),
	BAD_RUN("fds without mq", "--net", "fd=3:4,-mq", "fd= with several", "needs", "mq"),
	BAD("mac of two nets",
	    LIST("run", "--kernel=k", "--net=tap=t,mac=52:54:00:00:00:0a",
		 "--net=tap=u,mac=52:54:00:00:00:0A"),
	    LIST("--net", "\"tap=u,", "this mac", "its own")),
	BAD_RUN("net misspelt key", "--net", "tap=t,qeues=2", "\"qeues\"", "did you mean queues?"),
	BAD_RUN("net new key without value", "--net", "tap=t,queues=", "queues has no value"),

	BAD_RUN("queues 0", "--net", "tap=t,queues=0", "queues must be", "1 to 32"),
	BAD_RUN("queues 33", "--net", "tap=t,queues=33", "queues must be", "1 to 32"),
	BAD_RUN("queues auto", "--net", "tap=t,queues=auto", "queues must be", "1 to 32"),
	BAD_RUN("ring 1", "--net", "tap=t,ring=1", "ring must be", "2 to 4096"),
	BAD_RUN("ring 8192", "--net", "tap=t,ring=8192", "ring must be", "2 to 4096"),
	BAD_RUN("rx_ring 0", "--net", "tap=t,rx_ring=0", "rx_ring must be", "2 to 4096"),
	BAD_RUN("tx_ring 4097", "--net", "tap=t,tx_ring=4097", "tx_ring must be", "2 to 4096"),
	BAD_RUN("ring odd", "--net", "tap=t,ring=7", " ring must be a power of two",
		"+ring_packed"),
	BAD_RUN("rx_ring odd", "--net", "tap=t,rx_ring=768", " rx_ring must be a power of two"),
	BAD_RUN("tx_ring odd", "--net", "tap=t,ring=64,tx_ring=3", " tx_ring must be a power"),
	BAD_RUN("ring odd, not packed", "--net", "tap=t,features=all,-ring_packed,ring=7",
		" ring must be a power of two"),
	BAD_RUN("notify", "--net", "tap=t,notify=io", "notify must be mmio or pio"),
	BAD_RUN("vhost", "--net", "tap=t,vhost=yes", "vhost must be off or on"),
	BAD_RUN("vhost tuned", "--net", "tap=t,poll=auto,vhost=on", "vhost=on leaves whelp no"),
	BAD_RUN("speed 0", "--net", "tap=t,speed=0", "speed must be", "1 to 2147483647"),
	BAD_RUN("speed 2^31", "--net", "tap=t,speed=2147483648", "speed must be"),
	BAD_RUN("speed unit", "--net", "tap=t,speed=10G", "speed must be"),
	BAD_RUN("duplex", "--net", "tap=t,duplex=Full", "duplex must be half or full"),

	BAD_RUN("feature unknown", "--net", "tap=t,+frobnicate", "\"frobnicate\"", "--net help"),
	BAD_RUN("feature misspelt", "--net", "tap=t,-mrg_rxbufs", "did you mean mrg_rxbuf?"),
	BAD_RUN("feature nameless", "--net", "tap=t,+", "\"\" is no feature", "--net help"),
	BAD_RUN("feature of other case", "--net", "tap=t,-CSUM", "\"CSUM\" is no feature"),
	BAD_RUN("feature with value", "--net", "tap=t,+csum=1", "\"csum=1\" is no feature"),
	BAD_RUN("features empty", "--net", "tap=t,features=", "features has no value"),
	BAD_RUN("features unknown", "--net", "tap=t,features=csum:x", "features", "\"x\" is no"),
	BAD_RUN("features two colons", "--net", "tap=t,features=csum::mac", "\"\" is no feature"),
	BAD_RUN("features trailing colon", "--net", "tap=t,features=csum:", "\"\" is no feature"),
	BAD_RUN("features all in a list", "--net", "tap=t,features=csum:all", "\"all\" is no"),
	BAD_RUN("features with sign", "--net", "tap=t,features=-csum", "\"-csum\" is no"),
	BAD_RUN("features twice", "--net", "tap=t,features=all,features=all", "given twice"),
	BAD_RUN("features too long", "--net", "tap=t,features=" LONG_100 LONG_100, "is no feature"),
	BAD_RUN("net too long", "--net", "tap=t,features=" LONG_1000 LONG_100, "is too long"),
	BAD_RUN("feature twice", "--net", "tap=t,+csum,+csum", "csum is given twice"),
	BAD_RUN("feature twice off", "--net", "tap=t,-csum,-csum", "csum is given twice"),
	BAD_RUN("feature twice in the list", "--net", "tap=t,features=mac:mac",
		"mac is given twice"),
	BAD_RUN("feature on and off", "--net", "tap=t,+csum,-csum", "csum is switched both"),
	BAD_RUN("feature off and on", "--net", "tap=t,-csum,+csum", "csum is switched both"),
	BAD_RUN("feature listed and off", "--net", "tap=t,-mac,features=mac",
		"mac is switched both"),
	BAD_RUN("version_1 off", "--net", "tap=t,-version_1", "version_1 is always on"),

	BAD_RUN("queues without mq", "--net", "tap=t,queues=2,-mq", "queues=", "needs", "mq"),
	BAD_RUN("queues with a list", "--net", "tap=t,queues=2,features=mac", "queues=", "mq"),
	BAD_RUN("queues without ctrl_vq", "--net", "tap=t,queues=2,-ctrl_vq", "mq needs ctrl_vq"),
	BAD_RUN("mq without ctrl_vq", "--net", "tap=t,+mq,-ctrl_vq",
		"mq needs ctrl_vq, which is off"),
	BAD_RUN("rss without ctrl_vq", "--net", "tap=t,-ctrl_vq,+rss", "rss needs ctrl_vq"),
	BAD_RUN("hash_report without ctrl_vq", "--net", "tap=t,features=hash_report",
		"hash_report needs ctrl_vq"),
	BAD_RUN("guest_announce without status", "--net", "tap=t,-status,+guest_announce",
		"guest_announce needs status"),
	BAD_RUN("guest_tso4 without guest_csum", "--net", "tap=t,+guest_tso4,-guest_csum",
		"guest_tso4 needs guest_csum, which is off"),
	BAD_RUN("host_uso without csum", "--net", "tap=t,features=host_uso", "host_uso needs csum"),
	BAD_RUN("ecn without tso", "--net", "tap=t,+guest_ecn,-guest_tso4,-guest_tso6",
		"guest_ecn needs guest_tso4 or guest_tso6, which are off"),
	BAD_RUN("tunnel without its needs' need", "--net", "tap=t,+host_udp_tunnel_gso,-csum",
		"host_udp_tunnel_gso needs host_tso4"),
	BAD_RUN("tunnel csum without tunnel", "--net",
		"tap=t,+guest_udp_tunnel_gso_csum,-guest_udp_tunnel_gso",
		"guest_udp_tunnel_gso_csum needs guest_udp_tunnel_gso, which"),
	BAD_RUN("mtu without value", "--net", "tap=t,+mtu", "mtu needs mtu="),
	BAD_RUN("mtu without feature", "--net", "tap=t,mtu=1500,-mtu",
		"mtu= needs the feature mtu"),
	BAD_RUN("mac without feature", "--net", "tap=t,mac=52:54:00:00:00:01,-mac",
		"mac= needs the feature mac"),
	BAD_RUN("speed_duplex without value", "--net", "tap=t,+speed_duplex",
		"speed_duplex needs speed= or duplex="),
	BAD_RUN("duplex without feature", "--net", "tap=t,duplex=full,-speed_duplex",
		"duplex= needs the feature speed_duplex"),

	FEATURES("features=none", "version_1", ""),
	FEATURES("features=version_1", "version_1", "version_1"),
	FEATURES("features=mac:csum", "csum mac version_1", "csum mac"),
	FEATURES("-mac,features=csum:mq:ctrl_vq,+rss", "csum ctrl_vq mq version_1 rss",
		 "csum ctrl_vq mq rss"),
	FEATURES("+guest_csum,features=guest_tso6:guest_ecn",
		 "guest_csum guest_tso6 guest_ecn version_1", "guest_csum guest_tso6 guest_ecn"),
	FEATURES("mtu=99,features=mtu", "mtu version_1", "mtu"),

	SWITCH("-mrg_rxbuf,+ring_packed", "mrg_rxbuf", "ring_packed", "ring_packed"),
	SWITCH("+csum", "", "", "csum"),
	SWITCH("-ring_packed", "", "", ""),
	SWITCH("features=all", "",
	       "access_platform ring_packed in_order order_platform notification_data hash_report",
	       ""),
	SWITCH("features=all,-in_order,+ring_packed", "",
	       "access_platform ring_packed order_platform notification_data hash_report",
	       "ring_packed"),
	SWITCH("-guest_csum",
	       "guest_csum guest_tso4 guest_tso6 guest_ecn guest_ufo guest_uso4 guest_uso6 "
	       "guest_udp_tunnel_gso guest_udp_tunnel_gso_csum",
	       "", ""),
	SWITCH("-guest_tso4", "guest_tso4 guest_udp_tunnel_gso guest_udp_tunnel_gso_csum", "", ""),
	SWITCH("-ctrl_vq",
	       "ctrl_guest_offloads ctrl_vq ctrl_rx ctrl_vlan ctrl_rx_extra guest_announce "
	       "ctrl_mac_addr device_stats vq_notf_coal notf_coal",
	       "", ""),
	SWITCH("-status", "status guest_announce", "", ""),
	SWITCH("queues=2", "", "mq", "mq"),
	SWITCH("queues=2,+rss", "", "mq rss", "mq rss"),
	SWITCH("queues=1", "", "", ""),
	SWITCH("+mq", "", "mq", "mq"),
	SWITCH("+rss", "", "rss", "rss"),
	SWITCH("mtu=1500", "", "mtu", "mtu"),
	SWITCH("mac=52:54:00:00:00:01", "", "", "mac"),
	SWITCH("duplex=half", "", "speed_duplex", "speed_duplex"),
	SWITCH("-mtu,-mq,-speed_duplex", "", "", ""),

	cmocka_unit_test(test_mtu_bounds),
	cmocka_unit_test(test_many_nets),
	cmocka_unit_test(test_net_defaults),
	cmocka_unit_test(test_net_keys),
	cmocka_unit_test(test_net_fds),
	cmocka_unit_test(test_features_all_by_name),
	cmocka_unit_test(test_features_each),
	cmocka_unit_test(test_features_table),
	cmocka_unit_test(test_features_close),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
