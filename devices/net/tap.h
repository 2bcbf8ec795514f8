/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A Linux tap interface as a NIC's back end. */
#ifndef WHELP_NET_TAP_H
#define WHELP_NET_TAP_H

#include <net/if.h>
#include <stdint.h>

#include "devices/net/backend.h"

struct steer;

struct tap_queue {
	int fd;
	bool attached;
};

struct tap {
	struct net_backend backend;
	char name[IFNAMSIZ];
	struct tap_queue *queues;
	struct steer *steer; /* NULL: this process may not use steering programs */
};

/*
 * Attaches `queues` queues to the tap `name`, or makes it (which needs CAP_NET_ADMIN) and sets it up; one
 * that was made goes away with close. `mtu` other than 0 is set on a tap that was made here, and compared
 * with that of an existing one. Logs; NULL on failure. The caller calls ops->close.
 */
struct net_backend *tap_open(const char *name, unsigned queues, uint16_t mtu);

/* Between tap.c and tap_open.c: attaches all queues and sets the link up. Logs; 0 or -errno. */
int tap_attach(struct tap *tap, uint16_t mtu);

#endif
