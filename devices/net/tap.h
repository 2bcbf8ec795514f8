/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A Linux tap interface as a NIC's back end. */
#ifndef WHELP_NET_TAP_H
#define WHELP_NET_TAP_H

#include <stdint.h>

#include "devices/net/backend.h"

/*
 * Attaches to the tap `name`, or makes it (which needs CAP_NET_ADMIN) and sets it up; one that was made
 * goes away with close. `mtu` other than 0 is set on a tap that was made here, and compared with
 * that of an existing one. Logs; NULL on failure. The caller calls ops->close.
 */
struct net_backend *tap_open(const char *name, uint16_t mtu);

#endif
