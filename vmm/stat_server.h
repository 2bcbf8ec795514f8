/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The side of `whelp stat` that is in a running machine: a socket of the machine's name in the
 * runtime directory. To whoever connects it gives what there is to tell at that moment, as JSON in
 * a memory file, and hangs up. It waits for no client and keeps nothing of one.
 */
#ifndef WHELP_STAT_SERVER_H
#define WHELP_STAT_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "vmm/log.h"
#include "vmm/loop.h"
#include "vmm/runtime_dir.h"

struct stat_server {
	struct loop_source listener; /* fd -1: not open */
	struct loop *loop;
	struct runtime_dir dir;
	char name[64];
	bool bound;
	dev_t device; /* the socket's, to know it again */
	ino_t inode;
	json_t *(*snapshot)(void *ctx);
	void *ctx;
	struct log_limit losses;
};

void stat_server_init(struct stat_server *server);

/*
 * Takes the name, and answers from `loop` on: `snapshot` gives the object to send, which it no
 * longer owns. Where that cannot be (no directory, no permission) the machine goes on without,
 * after a warning: 0. A machine of that name that runs is an error: -EADDRINUSE after a message.
 */
int stat_server_open(struct stat_server *server, struct loop *loop, const char *name,
		     json_t *(*snapshot)(void *ctx), void *ctx);

/*
 * Gives the name back. The loop must not be running in another thread. Fine on one that is not
 * open.
 */
void stat_server_close(struct stat_server *server);

#endif
