/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A byte stream between a guest's serial port (the front) and its host end: the console, a socket,
 * or nothing. Host ends outlive fronts: when the guest resets, its port is detached and a new one
 * attached, and no output is lost.
 *
 * Nothing here blocks. Output: the front calls chardev_write(), and waits for its `writable`
 * callback when there is no room. Input: the host end asks how much the front has room for, takes
 * no more than that from its source, and goes on when the front calls chardev_input_ready().
 *
 * Locks are taken in the order: `front_lock`, the front's own lock, the host end's own lock. Hence
 * a front may hold its lock when it calls the host end, and a host end must hold none when it calls
 * the front.
 */
#ifndef WHELP_CHARDEV_H
#define WHELP_CHARDEV_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Room for this many bytes is "writable": what a guest sends at once to a port that says ready. */
#define CHARDEV_BURST 16u

struct chardev;

/* What a host end does; called by any thread. */
struct chardev_ops {
	/* Takes up to `len` bytes, returns how many. */
	size_t (*write)(struct chardev *chardev, const uint8_t *data, size_t len);

	/*
	 * How many bytes write() would take. Saying less than CHARDEV_BURST promises a `writable`
	 * callback once there is room for that many.
	 */
	size_t (*room)(struct chardev *chardev);

	/* The front, which had no room for input, has some. */
	void (*input_ready)(struct chardev *chardev);
};

/* What a front does; called by a host end's threads. */
struct chardev_front_ops {
	/* How many bytes it would take now. After 0, it calls input_ready when that changes. */
	size_t (*room)(void *ctx);

	/* Takes up to `len` bytes, returns how many: the guest may have changed the room. */
	size_t (*receive)(void *ctx, const uint8_t *data, size_t len);

	/* The host end has room for CHARDEV_BURST bytes again. */
	void (*writable)(void *ctx);
};

/* Embedded in a host end's object. */
struct chardev {
	const struct chardev_ops *ops;
	pthread_mutex_t front_lock; /* held around each call of the front's */
	const struct chardev_front_ops *front_ops;
	void *front_ctx; /* NULL: no front */
};

/* For host ends: begin and end of life. No front may be attached at the end. */
void chardev_init(struct chardev *chardev, const struct chardev_ops *ops);
void chardev_fini(struct chardev *chardev);

/*
 * For fronts. There must be no other front. When chardev_detach() returns none of the front's
 * callbacks is under way, and none will be called.
 */
void chardev_attach(struct chardev *chardev, const struct chardev_front_ops *ops, void *ctx);
void chardev_detach(struct chardev *chardev);

static inline size_t chardev_write(struct chardev *chardev, const uint8_t *data, size_t len)
{
	return chardev->ops->write(chardev, data, len);
}

static inline size_t chardev_room(struct chardev *chardev)
{
	return chardev->ops->room(chardev);
}

static inline void chardev_input_ready(struct chardev *chardev)
{
	chardev->ops->input_ready(chardev);
}

/* For host ends, with none of their locks held: the front's callbacks. No front: no room. */
size_t chardev_front_room(struct chardev *chardev);
size_t chardev_front_receive(struct chardev *chardev, const uint8_t *data, size_t len);
void chardev_front_writable(struct chardev *chardev);

/* The host end that is nothing: takes all output, has no input. It ends with chardev_fini(). */
void chardev_none_init(struct chardev *chardev);

#endif
