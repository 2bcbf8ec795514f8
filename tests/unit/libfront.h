/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of host ends: a front that keeps what it receives, the end's loop in a thread, and
 * waits that give up after ten seconds, which is a failed test and not a hung one.
 */
#ifndef WHELP_TESTS_LIBFRONT_H
#define WHELP_TESTS_LIBFRONT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "vmm/chardev.h"

#define FRONT_SIZE 262144u

struct front {
	struct chardev *chardev;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t room;
	size_t growth; /* of the room, after each time it is asked for */
	size_t received;
	unsigned writables;
	uint8_t data[FRONT_SIZE];
};

/* Attaches one that takes `room` bytes. */
void front_attach(struct front *front, struct chardev *chardev, size_t room);
void front_detach(struct front *front);
void front_add_room(struct front *front, size_t room);

/* Room for one byte, and for `growth` more after each question: the guest reads meanwhile. */
void front_grow_room(struct front *front, size_t growth);

/* Wait until so many bytes were received, or `writable` was called so often, in all. */
bool front_wait_received(struct front *front, size_t count);
bool front_wait_writables(struct front *front, unsigned count);
unsigned front_writables(struct front *front);
size_t front_received(struct front *front);

/* Writes until the host end takes no more; returns how much it took. `seed` makes the bytes. */
size_t front_fill(struct front *front, unsigned seed);

/* Reads exactly so many bytes, or, at the end of the file or after ten seconds, fewer. */
size_t read_exactly(int fd, uint8_t *data, size_t len);

/* poll() of one fd, up to ten seconds: its events, or 0. */
short wait_fd(int fd, short events);

/* Makes a terminal: its slave and its master. 0 or -1. */
int open_pty(int fds[2]);

/* Whether a terminal is raw, with reads that do not wait; whether its settings are these. */
bool is_raw(int fd);
bool has_settings(int fd, const struct termios *settings);

/* Between these, stderr goes to a buffer; the second ends it with a NUL and returns its lines. */
void capture_begin(void);
unsigned capture_end(char *text, size_t size);

#endif
