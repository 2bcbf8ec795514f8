/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RSS_CONFIG and HASH_CONFIG (virtio 1.3, 5.1.6.5.7 and 5.1.6.5.6.4): both bring the hash types and
 * the key, and RSS_CONFIG between them a table of which the length depends on its mask.
 *
 * A receive queue is named by its index without the lowest bit: the number of its pair. The top bit
 * of that field is reserved and zero, or the number is out of range.
 */
#include "devices/virtio/net_ctrl_command.h"
#include "vmm/util.h"

static bool read_types(const struct net_ctrl_command *command, struct net_rss *rss)
{
	return net_ctrl_data(command, 0, &rss->types, sizeof(rss->types)) &&
	       !(rss->types & ~command->ctrl->hash_types);
}

/* A key shorter than ours is as if zeroes followed. */
static bool read_key(const struct net_ctrl_command *command, size_t offset, struct net_rss *rss)
{
	uint8_t len;

	if (!net_ctrl_data(command, offset, &len, sizeof(len)) || len > NET_HASH_KEY_MAX)
		return false;
	rss->key_len = len;
	return net_ctrl_data(command, offset + sizeof(len), rss->key, len);
}

/* Raises *pairs to what the queue takes. */
static bool check_queue(const struct net_ctrl *ctrl, uint16_t queue, unsigned *pairs)
{
	*pairs = MAX(*pairs, queue + 1u);
	return queue < ctrl->max_pairs;
}

static bool read_table(const struct net_ctrl_command *command, size_t offset, struct net_rss *rss,
		       unsigned *pairs)
{
	unsigned length = rss->table_mask + 1u;

	if (!is_power_of_two(length) || length > NET_HASH_TABLE_MAX ||
	    !net_ctrl_data(command, offset, rss->table, length * sizeof(rss->table[0])) ||
	    !check_queue(command->ctrl, rss->unclassified, pairs))
		return false;
	for (unsigned i = 0; i < length; i++)
		if (!check_queue(command->ctrl, rss->table[i], pairs))
			return false;
	return true;
}

bool net_ctrl_rss_config(struct net_ctrl_command *command)
{
	struct net_ctrl *ctrl = command->ctrl;
	struct net_rss rss = { .steering = true };
	uint16_t max_tx;
	unsigned pairs = 0;
	size_t offset = 8;

	if (!read_types(command, &rss) ||
	    !net_ctrl_data(command, 4, &rss.table_mask, sizeof(rss.table_mask)) ||
	    !net_ctrl_data(command, 6, &rss.unclassified, sizeof(rss.unclassified)) ||
	    !read_table(command, offset, &rss, &pairs))
		return false;
	offset += (rss.table_mask + 1u) * sizeof(rss.table[0]);
	if (!net_ctrl_data(command, offset, &max_tx, sizeof(max_tx)) || !max_tx ||
	    max_tx > ctrl->max_pairs || !read_key(command, offset + sizeof(max_tx), &rss))
		return false;
	return ctrl->ops->set_rss(ctrl->ctx, &rss, MAX(pairs, max_tx));
}

/* The reserved fields are not looked at: older Linux leaves a number of queues there. */
bool net_ctrl_hash_config(struct net_ctrl_command *command)
{
	struct net_ctrl *ctrl = command->ctrl;
	struct net_rss rss = { .steering = false };

	if (!read_types(command, &rss) || !read_key(command, 12, &rss))
		return false;
	return ctrl->ops->set_rss(ctrl->ctx, &rss, 0);
}
