/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A machine's network counters as a JSON file. */
#ifndef WHELP_VIRTIO_NET_STATS_H
#define WHELP_VIRTIO_NET_STATS_H

#include "devices/virtio/net.h"

/*
 * Writes the counters of `count` NICs to `path`, as one object: {"machine": NAME, "nics": [{"name",
 * "backend", "rx": {...}, "tx": {...}, "pairs": [{"rx", "tx"}]}]}, each direction with the members
 * of struct net_counters, which are sums over the pairs in the NIC's own. The file appears whole or
 * not at all. The workers may be running. Logs; 0 or -errno.
 */
int net_stats_write(const char *path, const char *machine, struct virtio_net *const *nets,
		    unsigned count);

#endif
