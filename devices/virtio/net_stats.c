/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each counter is read by itself while workers go on, so those of one direction may be a packet
 * apart. They are copied first; what is made of the copy agrees with itself.
 */
#include "devices/virtio/net_stats.h"

#include <stddef.h>

#include "vmm/util.h"

struct member {
	const char *name;
	size_t offset;
};

#define MEMBER(field) { #field, offsetof(struct net_counters, field) }

static const struct member numbers[] = {
	MEMBER(packets),
	MEMBER(bytes),
	MEMBER(batches),
	MEMBER(kicks),
	MEMBER(interrupts),
	MEMBER(unwanted),
	MEMBER(dropped),
	MEMBER(filtered),
	MEMBER(waits),
	MEMBER(ring_full),
	MEMBER(timers_useful),
	MEMBER(timers_empty),
	MEMBER(timers_interrupt),
	MEMBER(polls_hit),
	MEMBER(polls_missed),
	MEMBER(poll_ns),
};

static const struct member histograms[] = {
	MEMBER(batch_sizes),
	MEMBER(kick_to_tap),
	MEMBER(tap_to_used),
};

static const char *const drop_names[] = {
	[NET_DROP_SHORT] = "too_short",
	[NET_DROP_MALFORMED] = "malformed",
	[NET_DROP_REFUSED] = "refused",
	[NET_DROP_GONE] = "gone",
	[NET_DROP_OFFLOAD] = "offload",
	[NET_DROP_ROOM] = "no_room",
};

_Static_assert(ARRAY_SIZE(drop_names) == NET_DROPS, "every cause has a name");
_Static_assert(sizeof(struct net_counters) ==
		       (ARRAY_SIZE(numbers) + NET_DROPS) * sizeof(uint64_t) +
			       ARRAY_SIZE(histograms) * sizeof(struct histogram),
	       "every counter has a name");

static const void *at(const struct net_counters *counters, const struct member *member)
{
	return (const char *)counters + member->offset;
}

static void *in(struct net_counters *counters, const struct member *member)
{
	return (char *)counters + member->offset;
}

/* Adds what `from` has at the moment. */
static void collect(struct net_counters *to, const struct net_counters *from)
{
	for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++)
		*(uint64_t *)in(to, &numbers[i]) += counter_read(at(from, &numbers[i]));
	for (unsigned i = 0; i < NET_DROPS; i++)
		to->drops[i] += counter_read(&from->drops[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(histograms); i++)
		histogram_collect(in(to, &histograms[i]), at(from, &histograms[i]));
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *histogram_json(const struct histogram *h)
{
	json_t *buckets = json_array();

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (h->buckets[i])
			json_array_append_new(buckets,
					      json_pack("[I, I]", (json_int_t)histogram_low(i),
							(json_int_t)h->buckets[i]));
	return json_pack("{s:I, s:I, s:f, s:f, s:f, s:o}", "count", (json_int_t)histogram_count(h),
			 "sum", (json_int_t)h->sum, "p50", histogram_percentile(h, 50), "p90",
			 histogram_percentile(h, 90), "p99", histogram_percentile(h, 99), "buckets",
			 buckets);
}

/* Frames that came through without one of their own. */
static uint64_t avoided(const struct net_counters *c, uint64_t events)
{
	uint64_t frames = c->packets + c->dropped + c->filtered;

	return frames > events ? frames - events : 0;
}

/* Of a copy that nobody writes to. */
static json_t *counters_json(const struct net_counters *c)
{
	json_t *object = json_object(), *drops = json_object();

	for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++)
		set(object, numbers[i].name, *(const uint64_t *)at(c, &numbers[i]));
	set(object, "kicks_avoided", avoided(c, c->kicks));
	set(object, "interrupts_avoided", avoided(c, c->interrupts));
	for (unsigned i = 0; i < NET_DROPS; i++)
		set(drops, drop_names[i], c->drops[i]);
	json_object_set_new(object, "drops", drops);
	for (unsigned i = 0; i < ARRAY_SIZE(histograms); i++)
		json_object_set_new(object, histograms[i].name,
				    histogram_json(at(c, &histograms[i])));
	return object;
}

/* Also adds it to the NIC's `sum`. */
static json_t *queue_json(const struct net_queue *q, struct net_counters *sum)
{
	struct net_counters copy = { 0 };

	collect(&copy, &q->counters);
	collect(sum, &copy);
	return counters_json(&copy);
}

json_t *net_stats_json(const struct virtio_net *net)
{
	struct net_counters rx = { 0 }, tx = { 0 };
	json_t *pairs;

	/* The kernel's vhost-net counts nothing that we could read. */
	if (net->vhost)
		return json_pack("{s:s, s:s, s:b, s:n, s:n, s:n}", "name", net->device.name,
				 "backend", net->backend->name, "vhost", true, "rx", "tx", "pairs");
	pairs = json_array();
	for (unsigned i = 0; i < net->pair_count; i++)
		json_array_append_new(pairs, json_pack("{s:o, s:o}", "rx",
						       queue_json(&net->pairs[i]->rx, &rx), "tx",
						       queue_json(&net->pairs[i]->tx, &tx)));
	return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "name", net->device.name, "backend",
			 net->backend->name, "vhost", false, "rx", counters_json(&rx), "tx",
			 counters_json(&tx), "pairs", pairs);
}
