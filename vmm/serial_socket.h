/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The host end that is a listening unix stream socket. One client at a time is served; further ones
 * can connect, and wait until it has left. Without a client the guest's output is dropped; a client
 * that is slow to read holds the guest up, and loses nothing.
 *
 * A client may shut down its sending side and still read. What it sent before it left is given to
 * the guest, before the next client's input, whose output does not wait for that.
 */
#ifndef WHELP_SERIAL_SOCKET_H
#define WHELP_SERIAL_SOCKET_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "vmm/byte_ring.h"
#include "vmm/chardev.h"
#include "vmm/log.h"
#include "vmm/loop.h"

struct serial_socket {
	struct chardev chardev;
	struct loop *loop;

	/* The loop's thread only, but for `wake`. */
	struct loop_source listener;
	struct loop_source client; /* fd -1: none */
	struct loop_source wake;   /* eventfd */
	bool client_ended;	   /* all of its input is read */
	int leaver_fd; /* a client that left, with input still in its socket; -1: none */
	struct log_limit dropped_limit;
	struct log_limit accept_limit;
	size_t in_used;
	uint8_t in[CHARDEV_BURST];

	/* Under `lock`. */
	pthread_mutex_t lock;
	struct byte_ring out;
	bool connected;
	bool starved; /* the front is owed `writable` */

	struct sockaddr_un address;
	bool bound;
	dev_t dev; /* of the socket file, to know it again */
	ino_t ino;
};

/* A host end without a socket, which drops output and has no input. Cannot fail. */
void serial_socket_init(struct serial_socket *serial);

/*
 * Listens at `path` and serves clients in `loop`. The path must be free, or a socket that nobody
 * listens on any more: that is replaced. Returns 0, or -errno after a message (-ENAMETOOLONG,
 * -EADDRINUSE, -EEXIST for another kind of file, what socket calls return);
 * serial_socket_close() is fine then.
 */
int serial_socket_open(struct serial_socket *serial, struct loop *loop, const char *path);

/*
 * Disconnects clients, after sending what they take at once, and removes the socket's file if it is
 * still ours. The loop must not be running in another thread. May be called again, and without an
 * open.
 */
void serial_socket_close(struct serial_socket *serial);

/* After serial_socket_close() and the front's detaching. */
void serial_socket_fini(struct serial_socket *serial);

#endif
