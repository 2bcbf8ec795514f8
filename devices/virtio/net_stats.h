/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A NIC's counters as JSON. */
#ifndef WHELP_VIRTIO_NET_STATS_H
#define WHELP_VIRTIO_NET_STATS_H

#include <jansson.h>

#include "devices/virtio/net.h"

/*
 * A new object: {"name", "backend", "rx": {...}, "tx": {...}, "pairs": [{"rx", "tx"}]}, each
 * direction with what docs/counters.md lists; in the NIC's own it is the sum over its pairs. The
 * workers may be running.
 */
json_t *net_stats_json(const struct virtio_net *net);

#endif
