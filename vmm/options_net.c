/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * --net. The keys may come in any order, so that what they mean together is found when all are
 * read: the default features or those of features=, less and more what is switched, less what makes
 * no sense with the other keys. A feature that is on by default gives way to whatever contradicts
 * it; one that was asked for does not, and that is an error.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <linux/ethtool.h>
#include <linux/virtio_net.h>

#include "vmm/linux_new.h"
#include "vmm/options_net.h"
#include "vmm/util.h"

#define MIN_FD 3 /* below are standard input, output and error */

static int set_tap(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return value_ifname(value, choice->net->tap, why);
}

static int add_fd(struct net_config *net, const char *text, struct complaint *why)
{
	struct complaint inner;
	char quoted[QUOTED_BYTES];
	uint64_t number;
	unsigned i;

	if (value_number(text, MIN_FD, INT_MAX, &number, &inner))
		return complain(
			why,
			"must be numbers of open files with colons between them, from %d on "
			"(0 to 2 are whelp's own): %s is none",
			MIN_FD, value_quote(quoted, text));
	if (net->fd_count == OPTIONS_MAX_QUEUES)
		return complain(why, "has too many: at most %d, one for each queue pair",
				OPTIONS_MAX_QUEUES);
	for (i = 0; i < net->fd_count; i++)
		if (net->fds[i] == (int)number)
			return complain(why, "has %d twice: each queue pair needs its own",
					net->fds[i]);
	net->fds[net->fd_count++] = (int)number;
	return 0;
}

static int set_fd(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;
	char text[16];

	for (;;) {
		size_t len = strcspn(value, ":");
		int rc;

		/* What is cut here is no number of a file either. */
		snprintf(text, sizeof(text), "%.*s", (int)MIN(len, sizeof(text) - 1), value);
		rc = add_fd(choice->net, text, why);
		if (rc || !value[len])
			return rc;
		value += len + 1;
	}
}

static int set_mac(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	choice->mac = true;
	return value_mac(value, choice->net->mac, why);
}

static int set_unsigned(unsigned *field, const char *value, unsigned min, unsigned max,
			struct complaint *why)
{
	uint64_t number;
	int rc;

	rc = value_number(value, min, max, &number, why);
	if (!rc)
		*field = (unsigned)number;
	return rc;
}

static int set_mtu(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;
	unsigned mtu = 0;
	int rc;

	rc = set_unsigned(&mtu, value, OPTIONS_MIN_MTU, OPTIONS_MAX_MTU, why);
	choice->mtu = true;
	choice->net->mtu = (uint16_t)mtu;
	return rc;
}

static int set_queues(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_unsigned(&choice->queues, value, 1, OPTIONS_MAX_QUEUES, why);
}

static int set_ring(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_unsigned(&choice->ring, value, OPTIONS_MIN_RING, OPTIONS_MAX_RING, why);
}

static int set_rx_ring(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_unsigned(&choice->net->rx_ring, value, OPTIONS_MIN_RING, OPTIONS_MAX_RING, why);
}

static int set_tx_ring(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_unsigned(&choice->net->tx_ring, value, OPTIONS_MIN_RING, OPTIONS_MAX_RING, why);
}

/* One of two words. */
static int set_either(bool *second, const char *value, const char *first_word,
		      const char *second_word, struct complaint *why)
{
	const char *const words[] = { first_word, second_word };
	unsigned row;
	int rc = value_choose(value, words, ARRAY_SIZE(words), &row, why);

	*second = row == 1;
	return rc;
}

static int set_notify(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_either(&choice->net->notify_pio, value, "mmio", "pio", why);
}

static int set_vhost(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	return set_either(&choice->net->vhost, value, "off", "on", why);
}

static int set_speed(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;

	choice->speed = true;
	if (choice->net->duplex == DUPLEX_UNKNOWN)
		choice->net->duplex = DUPLEX_FULL;
	return set_unsigned(&choice->net->speed, value, 1, INT32_MAX, why);
}

static int set_duplex(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;
	bool full;
	int rc;

	rc = set_either(&full, value, "half", "full", why);
	choice->speed = true;
	choice->net->duplex = full ? DUPLEX_FULL : DUPLEX_HALF;
	return rc;
}

static int refuse_feature(const char *name, struct complaint *why)
{
	struct nearest nearest = { .given = name, .least = 3 };
	char quoted[QUOTED_BYTES];
	unsigned i;

	for (i = 0; *name && i < net_feature_count; i++)
		nearest_offer(&nearest, net_features[i].name);
	if (nearest.best)
		return complain(why, "%s is no feature; did you mean %s?",
				value_quote(quoted, name), nearest.best);
	return complain(why, "%s is no feature; \"--net help\" lists them",
			value_quote(quoted, name));
}

static int turn_feature(void *config, const char *name, bool on, struct complaint *why)
{
	const struct net_feature *feature = net_feature_find(name);
	struct net_choice *choice = config;

	if (!feature)
		return refuse_feature(name, why);
	if (feature->use == NET_FEATURE_ALWAYS && !on)
		return complain(why, "%s is always on: the device knows no older virtio",
				feature->name);
	if (net_features_have(on ? choice->off : choice->on, feature->bit))
		return complain(why, "%s is switched both on and off", feature->name);
	if (net_features_have(on ? choice->on : choice->off, feature->bit))
		return complain(why, "%s is given twice", feature->name);
	net_features_add(on ? choice->on : choice->off, feature->bit);
	return 0;
}

static int set_features(void *config, const char *value, struct complaint *why)
{
	struct net_choice *choice = config;
	struct complaint inner;
	char name[64];

	if (!strcmp(value, "all")) {
		choice->base = FEATURES_ALL;
		return 0;
	}
	choice->base = FEATURES_EXACT;
	if (!strcmp(value, "none"))
		return 0;
	for (;;) {
		size_t len = strcspn(value, ":");

		/* What is cut here is no feature's name either. */
		len = len < sizeof(name) ? len : sizeof(name) - 1;
		memcpy(name, value, len);
		name[len] = '\0';
		if (turn_feature(choice, name, true, &inner))
			return complain(why, "has an error: %s", inner.text);
		if (!value[len])
			return 0;
		value += len + 1;
	}
}

static const struct option_key keys[] = {
	{ "tap", "NAME",
	  "the host's tap interface: one that exists and is yours, or else a new\n"
	  "one, which takes CAP_NET_ADMIN (this or fd is required)",
	  set_tap, true },
	{ "fd", "N[:N...]",
	  "a tap that whoever starts whelp opened and passes on: the numbers of\n"
	  "its open files, one for each queue pair",
	  set_fd, true },
	{ "mac", "MAC",
	  "the guest's address, unicast, such as 52:54:00:12:34:56 (default: made\n"
	  "from the names of the host and the tap: the same each time)",
	  set_mac, false },
	{ "mtu", "N",
	  "the MTU that the guest is told, 68 to 65535 (default: none is told; the\n"
	  "guest takes 1500)",
	  set_mtu, false },
	{ "queues", "N",
	  "queue pairs, 1 to 32; the guest decides how many of them it uses\n"
	  "(default: 1, or as many as fd has)",
	  set_queues, false },
	{ "ring", "N",
	  "places in each ring, 2 to 4096; a power of two, or any number with\n"
	  "+ring_packed and a guest that takes it (default: 256)",
	  set_ring, false },
	{ "rx_ring", "N", "the same for the receive rings alone (default: as ring)", set_rx_ring,
	  false },
	{ "tx_ring", "N", "the same for the transmit rings alone (default: as ring)", set_tx_ring,
	  false },
	{ "notify", "mmio|pio", "kicks are writes to memory, or to an I/O port (default: mmio)",
	  set_notify, false },
	{ "mitigation", "POLICY",
	  "when the transmit ring is looked at: off (as kicks come), fixed:USEC\n"
	  "(that long after a kick), lguest (at once, then after a time that\n"
	  "adapts), window:USEC (when a window is full, or after that time), or\n"
	  "adaptive (default: adaptive)",
	  tuning_set_mitigation, false },
	{ "latency", "USEC",
	  "the most that mitigation may add to a frame's way, 1 to 1000000 us\n"
	  "(default: 200, or mitigation's time if that is longer)",
	  tuning_set_latency, false },
	{ "poll", "off|auto|USEC",
	  "how long to look at rings and tap for more before sleeping; auto\n"
	  "adapts, up to what a kick and a wake-up take, and is off when the\n"
	  "guest's CPUs may need all of the host's (default: auto)",
	  tuning_set_poll, false },
	{ "budget", "PACKETS[:BYTES]",
	  "how much of one direction before it is the other's turn (default:\n"
	  "64:524288)",
	  tuning_set_budget, false },
	{ "workers", "pair|split|one",
	  "threads: one for both queues of a pair, one for each queue, or one for\n"
	  "all (default: pair)",
	  tuning_set_workers, false },
	{ "affinity", "LIST", "host CPUs for these threads, in turn, such as 0:2-3 (default: any)",
	  tuning_set_affinity, false },
	{ "sched", "normal|batch|auto",
	  "a thread that is woken takes the CPU from others, or (batch) waits for\n"
	  "its turn, with more to do by then; auto has it wait where CPUs are\n"
	  "short and it moves more at a time so, with mitigation=adaptive\n"
	  "(default: auto)",
	  tuning_set_sched, false },
	{ "intr", "batch|packet|empty",
	  "interrupts are decided on once a batch, once a packet, or once a batch\n"
	  "and whenever the ring has run out (default: batch)",
	  tuning_set_intr, false },
	{ "rx", "zerocopy|copy",
	  "received frames are read into the guest's buffers, or copied there\n"
	  "(default: zerocopy)",
	  tuning_set_rx, false },
	{ "io", "syscall|uring|auto",
	  "frames are sent to the tap by a system call each, by batches through\n"
	  "io_uring (Linux 6.4), or by whichever is cheaper for those that wait\n"
	  "(default: auto)",
	  tuning_set_io, false },
	{ "lock", "none|hold|drop",
	  "for comparing: one lock for all that the guest's CPUs exit for, kicks\n"
	  "too, and for moving frames; drop lets go of it while reading the tap\n"
	  "(default: none)",
	  tuning_set_lock, false },
	{ "vhost", "on|off",
	  "on: the kernel's vhost-net moves the frames, not whelp; it knows nothing\n"
	  "of the keys from mitigation to lock, and fewer features (default: off)",
	  set_vhost, false },
	{ "speed", "MBITS",
	  "the link's speed that the guest is told, in Mbit/s, 1 to 2147483647\n"
	  "(default: none is told)",
	  set_speed, false },
	{ "duplex", "full|half", "goes with it (default: full with speed, else none is told)",
	  set_duplex, false },
	{ "features", "LIST",
	  "exactly these features: names with colons between them, or \"all\", or\n"
	  "\"none\" (default: see below)",
	  set_features, false },
};

_Static_assert(ARRAY_SIZE(keys) <= OPTION_KEYS_MAX, "a bit for each key");

const struct option_keys net_config_keys = { "--net", keys, ARRAY_SIZE(keys), turn_feature };

static void choose_base(const struct net_choice *choice, uint32_t wanted[NET_FEATURE_WORDS])
{
	unsigned i;

	for (i = 0; i < net_feature_count; i++) {
		enum net_feature_use use = net_features[i].use;

		if (use == NET_FEATURE_ALWAYS || choice->base == FEATURES_ALL ||
		    (use == NET_FEATURE_ON && choice->base == FEATURES_DEFAULT))
			net_features_add(wanted, net_features[i].bit);
	}
	for (i = 0; i < NET_FEATURE_WORDS; i++)
		wanted[i] = (wanted[i] | choice->on[i]) & ~choice->off[i];
}

/*
 * Features that go with a key: the key asks for the feature, and the feature is nothing without the
 * key, if it says so.
 */
static int match_keys(const struct net_choice *choice, struct complaint *why)
{
	struct net_config *net = choice->net;
	const struct {
		bool given;
		unsigned feature;
		const char *key;
		bool needs_key;
		bool idle; /* without the key: harmless, but of no use */
	} rows[] = {
		{ choice->mac, VIRTIO_NET_F_MAC, "mac=", false, false },
		{ choice->mtu, VIRTIO_NET_F_MTU, "mtu=", true, false },
		{ choice->speed, VIRTIO_NET_F_SPEED_DUPLEX, "speed= or duplex=", true, false },
		{ net->queues > 1, VIRTIO_NET_F_MQ, "queues= above 1 (or fd= with several)", false,
		  true },
	};
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *name = net_feature_of(rows[i].feature)->name;
		bool named = net_features_have(choice->on, rows[i].feature);

		if (rows[i].given) {
			if (!net_features_have(net->wanted, rows[i].feature))
				return complain(why, "%s needs the feature %s, which is off",
						rows[i].key, name);
			net_features_add(net->required, rows[i].feature);
		} else if (rows[i].needs_key && named) {
			return complain(why, "the feature %s needs %s", name, rows[i].key);
		} else if (rows[i].needs_key || (rows[i].idle && !named)) {
			net_features_remove(net->wanted, rows[i].feature);
		}
	}
	if (net->queues == 1 && !net_features_have(choice->on, VIRTIO_NET_F_RSS))
		net_features_remove(net->wanted, VIRTIO_NET_F_RSS);
	return 0;
}

static int refuse_unmet(const struct net_feature *feature, unsigned missing, struct complaint *why)
{
	if (feature->any)
		return complain(why, "%s needs %s or %s, which are off", feature->name,
				net_feature_of(feature->needs[0])->name,
				net_feature_of(feature->needs[1])->name);
	return complain(why, "%s needs %s, which is off", feature->name,
			net_feature_of(missing)->name);
}

static int choose_features(const struct net_choice *choice, struct complaint *why)
{
	struct net_config *net = choice->net;
	const struct net_feature *feature;
	unsigned missing, i;
	int rc;

	choose_base(choice, net->wanted);
	for (i = 0; i < NET_FEATURE_WORDS; i++)
		net->required[i] = choice->on[i];
	rc = match_keys(choice, why);
	if (rc)
		return rc;
	while ((feature = net_features_unmet(net->wanted, &missing))) {
		if (net_features_have(net->required, feature->bit))
			return refuse_unmet(feature, missing, why);
		net_features_remove(net->wanted, feature->bit);
	}
	return 0;
}

static int choose_ring(const struct net_choice *choice, unsigned *size, const char *key,
		       struct complaint *why)
{
	if (!*size) {
		key = "ring";
		*size = choice->ring ? choice->ring : OPTIONS_RING;
	}
	if (*size & (*size - 1) && !net_features_have(choice->net->wanted, VIRTIO_F_RING_PACKED))
		return complain(why,
				"%s must be a power of two, unless the rings are packed "
				"(+ring_packed)",
				key);
	return 0;
}

static int choose_queues(const struct net_choice *choice, struct complaint *why)
{
	struct net_config *net = choice->net;

	if (choice->queues && net->fd_count && choice->queues != net->fd_count)
		return complain(why, "queues is %u, and fd has %u: each queue pair needs one",
				choice->queues, net->fd_count);
	net->queues = choice->queues ? choice->queues : net->fd_count ? net->fd_count : 1;
	return 0;
}

static int check_vhost(const struct net_choice *choice, struct complaint *why)
{
	if (!choice->net->vhost || !choice->tuned)
		return 0;
	return complain(why, "vhost=on leaves whelp no frames to move: a key from mitigation to "
			     "lock contradicts it");
}

int net_config_parse(struct net_config *net, const char *text, struct complaint *why)
{
	struct net_choice choice = { .net = net };
	int rc;

	memset(net, 0, sizeof(*net));
	net->speed = (uint32_t)SPEED_UNKNOWN;
	net->duplex = DUPLEX_UNKNOWN;
	tuning_default(&net->tuning);
	rc = keys_parse(&net_config_keys, text, &choice, why);
	if (!rc)
		rc = choose_queues(&choice, why);
	if (!rc)
		rc = choose_features(&choice, why);
	if (!rc)
		rc = choose_ring(&choice, &net->rx_ring, "rx_ring", why);
	if (!rc)
		rc = choose_ring(&choice, &net->tx_ring, "tx_ring", why);
	if (!rc)
		rc = tuning_check(&net->tuning, why);
	if (!rc)
		rc = check_vhost(&choice, why);
	return rc;
}
