/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What all host ends share: the front they serve, which comes and goes with the guest's resets. A
 * lock held around every call of the front's makes detaching wait for a call under way.
 */
#include "vmm/chardev.h"

#include <assert.h>

void chardev_init(struct chardev *chardev, const struct chardev_ops *ops)
{
	chardev->ops = ops;
	chardev->front_ops = NULL;
	chardev->front_ctx = NULL;
	pthread_mutex_init(&chardev->front_lock, NULL);
}

void chardev_fini(struct chardev *chardev)
{
	assert(!chardev->front_ctx);
	pthread_mutex_destroy(&chardev->front_lock);
}

void chardev_attach(struct chardev *chardev, const struct chardev_front_ops *ops, void *ctx)
{
	pthread_mutex_lock(&chardev->front_lock);
	assert(!chardev->front_ctx);
	chardev->front_ops = ops;
	chardev->front_ctx = ctx;
	pthread_mutex_unlock(&chardev->front_lock);
	/* Input may have been waiting for a front. */
	chardev_input_ready(chardev);
}

void chardev_detach(struct chardev *chardev)
{
	pthread_mutex_lock(&chardev->front_lock);
	chardev->front_ops = NULL;
	chardev->front_ctx = NULL;
	pthread_mutex_unlock(&chardev->front_lock);
}

size_t chardev_front_room(struct chardev *chardev)
{
	size_t room = 0;

	pthread_mutex_lock(&chardev->front_lock);
	if (chardev->front_ctx)
		room = chardev->front_ops->room(chardev->front_ctx);
	pthread_mutex_unlock(&chardev->front_lock);
	return room;
}

size_t chardev_front_receive(struct chardev *chardev, const uint8_t *data, size_t len)
{
	size_t taken = 0;

	pthread_mutex_lock(&chardev->front_lock);
	if (chardev->front_ctx)
		taken = chardev->front_ops->receive(chardev->front_ctx, data, len);
	pthread_mutex_unlock(&chardev->front_lock);
	return taken;
}

void chardev_front_writable(struct chardev *chardev)
{
	pthread_mutex_lock(&chardev->front_lock);
	if (chardev->front_ctx)
		chardev->front_ops->writable(chardev->front_ctx);
	pthread_mutex_unlock(&chardev->front_lock);
}

static size_t none_write(struct chardev *chardev, const uint8_t *data, size_t len)
{
	(void)chardev;
	(void)data;
	return len;
}

static size_t none_room(struct chardev *chardev)
{
	(void)chardev;
	return SIZE_MAX;
}

static void none_input_ready(struct chardev *chardev)
{
	(void)chardev;
}

static const struct chardev_ops none_ops = {
	.write = none_write,
	.room = none_room,
	.input_ready = none_input_ready,
};

void chardev_none_init(struct chardev *chardev)
{
	chardev_init(chardev, &none_ops);
}
