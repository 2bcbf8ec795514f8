/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A Linux tap interface as a NIC's back end. */
#ifndef WHELP_NET_TAP_H
#define WHELP_NET_TAP_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/net/backend.h"

struct steer;

struct tap_queue {
	int fd;
	bool attached;
	struct tap_uring *uring; /* NULL: frames are sent one by one */
};

struct tap {
	struct net_backend backend;
	char name[IFNAMSIZ];
	struct tap_queue *queues;
	struct steer *steer; /* NULL: this process may not use steering programs */
	bool ours;	     /* what another program left on it is gone, and may be ours now */
};

/*
 * Attaches `queues` queues to the tap `name`, or makes it (which needs CAP_NET_ADMIN) and sets it
 * up; one that was made goes away with close. `mtu` other than 0 is set on a tap that was made
 * here, and compared with that of an existing one. Logs; NULL on failure. The caller calls
 * ops->close.
 */
struct net_backend *tap_open(const char *name, unsigned queues, uint16_t mtu);

/*
 * The same on a tap that somebody else opened: `fds` are its files, one for each queue, and become
 * the back end's, on failure too. Needs no privilege at all.
 */
struct net_backend *tap_open_fds(const int *fds, unsigned queues, uint16_t mtu);

/* Whether both are one and the same tap, of which names tell nothing. Neither is in use. */
bool tap_is_same(const struct net_backend *a, const struct net_backend *b);

/* Between tap.c, tap_open.c and tap_fds.c. */

#define TAP_HEADER_SIZE 12 /* at first */

/* Attaches all queues and sets the link up. Logs; 0 or -errno. */
int tap_attach(struct tap *tap, uint16_t mtu);

/*
 * Takes the files over that are in tap->queues, attached or not, and finds the name. Logs; 0 or
 * -errno, and then the tap is as it was found, but for frames and a filter that it may have lost.
 */
int tap_take(struct tap *tap, uint16_t mtu);

/*
 * Sets the link's type to Ethernet, which it can be declared not to be; only while it is down.
 * Logs; 0 or -EBUSY.
 */
int tap_set_type(const struct tap *tap);

/* Whether the files of two queues are of the same tap. Leaves TAP_HEADER_SIZE. */
bool tap_same_files(int a, int b);

/* Warns of what will not work with the interface as it is configured. */
void tap_check_link(const struct tap *tap, uint16_t mtu);

#endif
