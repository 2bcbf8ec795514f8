/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each counter is read by itself while workers go on, so those of one direction may be a packet
 * apart.
 */
#include "devices/virtio/net_stats.h"

#include <stddef.h>

#include "vmm/util.h"

static const struct {
	const char *name;
	size_t offset;
} members[] = {
	{ "packets", offsetof(struct net_counters, packets) },
	{ "bytes", offsetof(struct net_counters, bytes) },
	{ "batches", offsetof(struct net_counters, batches) },
	{ "kicks", offsetof(struct net_counters, kicks) },
	{ "interrupts", offsetof(struct net_counters, interrupts) },
	{ "dropped", offsetof(struct net_counters, dropped) },
	{ "malformed", offsetof(struct net_counters, malformed) },
	{ "filtered", offsetof(struct net_counters, filtered) },
	{ "waits", offsetof(struct net_counters, waits) },
};

_Static_assert(ARRAY_SIZE(members) * sizeof(uint64_t) == sizeof(struct net_counters),
	       "every counter has a name");

/* Adds a direction's counters to those in `sum`, and gives them as an object. */
static json_t *queue_json(const struct net_queue *q, struct net_counters *sum)
{
	json_t *object = json_object();

	for (unsigned i = 0; i < ARRAY_SIZE(members); i++) {
		const char *counters = (const char *)&q->counters;
		uint64_t value = net_counter((const uint64_t *)(counters + members[i].offset));

		*(uint64_t *)((char *)sum + members[i].offset) += value;
		json_object_set_new(object, members[i].name, json_integer((json_int_t)value));
	}
	return object;
}

static json_t *sum_json(const struct net_counters *sum)
{
	struct net_queue total = { .counters = *sum };
	struct net_counters ignored = { 0 };

	return queue_json(&total, &ignored);
}

json_t *net_stats_json(const struct virtio_net *net)
{
	struct net_counters rx = { 0 }, tx = { 0 };
	json_t *pairs = json_array();

	for (unsigned i = 0; i < net->pair_count; i++)
		json_array_append_new(pairs, json_pack("{s:o, s:o}", "rx",
						       queue_json(&net->pairs[i]->rx, &rx), "tx",
						       queue_json(&net->pairs[i]->tx, &tx)));
	return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", net->device.name, "backend",
			 net->backend->name, "rx", sum_json(&rx), "tx", sum_json(&tx), "pairs",
			 pairs);
}
