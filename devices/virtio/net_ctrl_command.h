/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One command of the control queue while it runs: what net_ctrl.c shares with the files of single
 * classes.
 */
#ifndef WHELP_VIRTIO_NET_CTRL_COMMAND_H
#define WHELP_VIRTIO_NET_CTRL_COMMAND_H

#include <stddef.h>

#include "devices/virtio/net_ctrl.h"

struct net_ctrl_command {
	struct net_ctrl *ctrl;
	const struct iovec *out;
	unsigned out_count;
	size_t len; /* of the data, after class and command */
	const struct iovec *in;
	unsigned in_count;
	size_t room;	/* for a result, after the ack */
	size_t replied; /* of it, so far */
};

/* Copies `len` bytes of the command's data; false when it is too short. */
bool net_ctrl_data(const struct net_ctrl_command *command, size_t offset, void *data, size_t len);

/* Appends to the result as much as there is room for. */
void net_ctrl_reply(struct net_ctrl_command *command, const void *data, size_t len);

/* How many pairs of queues come before the control queue (5.1.2). */
unsigned net_ctrl_pairs(const struct net_ctrl *ctrl);

/* Each runs a command, its feature being negotiated, and returns whether it was done. */
bool net_ctrl_rss_config(struct net_ctrl_command *command);
bool net_ctrl_hash_config(struct net_ctrl_command *command);
bool net_ctrl_stats_query(struct net_ctrl_command *command);
bool net_ctrl_stats_get(struct net_ctrl_command *command);

#endif
