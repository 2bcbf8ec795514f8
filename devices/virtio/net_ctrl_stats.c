/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DEVICE_STATS (5.1.6.5, "Device Statistics", in the drafts after virtio 1.3). Each kind of queue
 * has one type of statistics here, so a request is for that one or for nothing. All requests are
 * copied and checked before the first reply is made.
 *
 * A result buffer that has room for the replies' headers but not for all counters is filled to its
 * last byte, as the specification wants; one that has not even that breaks a rule, and the command
 * fails.
 */
#include <linux/virtio_net.h>

#include "devices/virtio/net_ctrl_command.h"
#include "vmm/linux_new.h"
#include "vmm/util.h"

#define HEADER_SIZE  offsetof(struct net_ctrl_stats_reply, counters)
#define CVQ_COUNTERS 2u

_Static_assert(sizeof(struct net_ctrl_stats_request) == 16, "as on the wire");
_Static_assert(HEADER_SIZE == 8 && sizeof(struct net_ctrl_stats_reply) == 56, "as on the wire");

static unsigned control_queue(const struct net_ctrl *ctrl)
{
	return 2 * net_ctrl_pairs(ctrl);
}

/* 0 when there is no such queue. */
static uint64_t types_of(const struct net_ctrl *ctrl, unsigned queue)
{
	if (queue > control_queue(ctrl))
		return 0;
	if (queue == control_queue(ctrl))
		return VIRTIO_NET_STATS_TYPE_CVQ;
	return queue % 2 ? VIRTIO_NET_STATS_TYPE_TX_BASIC : VIRTIO_NET_STATS_TYPE_RX_BASIC;
}

bool net_ctrl_stats_query(struct net_ctrl_command *command)
{
	uint64_t types = VIRTIO_NET_STATS_TYPE_CVQ | VIRTIO_NET_STATS_TYPE_RX_BASIC |
			 VIRTIO_NET_STATS_TYPE_TX_BASIC;

	if (command->room < sizeof(types))
		return false;
	net_ctrl_reply(command, &types, sizeof(types));
	return true;
}

/* Fills the counters and returns how many; 0 when there are none. */
static unsigned read_counters(const struct net_ctrl *ctrl, unsigned queue, uint64_t counters[6])
{
	struct net_ctrl_queue_stats stats;

	if (queue == control_queue(ctrl)) {
		counters[0] = ctrl->commands;
		/* The current command counts, and is done when the driver sees this. */
		counters[1] = ctrl->commands_ok + 1;
		return CVQ_COUNTERS;
	}
	if (!ctrl->ops->get_stats(ctrl->ctx, queue, &stats))
		return 0;
	counters[0] = stats.notifications;
	counters[1] = stats.packets;
	counters[2] = stats.bytes;
	counters[3] = stats.interrupts;
	counters[4] = stats.drops;
	counters[5] = stats.drops_of_kind;
	return 6;
}

static bool reply(struct net_ctrl_command *command, const struct net_ctrl_stats_request *request)
{
	struct net_ctrl_stats_reply data = {
		.type = __builtin_ctzll(request->types),
		.vq_index = request->vq_index,
	};
	unsigned count = read_counters(command->ctrl, request->vq_index, data.counters);

	if (!count)
		return false;
	data.size = HEADER_SIZE + count * sizeof(data.counters[0]);
	net_ctrl_reply(command, &data, data.size);
	return true;
}

bool net_ctrl_stats_get(struct net_ctrl_command *command)
{
	struct net_ctrl_stats_request requests[NET_CTRL_STATS_MAX];
	size_t count = command->len / sizeof(requests[0]);
	size_t headers = 0;

	if (!count || count > NET_CTRL_STATS_MAX || command->len % sizeof(requests[0]) ||
	    !net_ctrl_data(command, 0, requests, command->len))
		return false;
	for (size_t i = 0; i < count; i++) {
		uint64_t types = types_of(command->ctrl, requests[i].vq_index);

		if (!types || (requests[i].types & ~types))
			return false;
		if (requests[i].types)
			headers += HEADER_SIZE;
	}
	if (command->room < headers)
		return false;
	for (size_t i = 0; i < count; i++)
		if (requests[i].types && !reply(command, &requests[i]))
			return false;
	return true;
}
