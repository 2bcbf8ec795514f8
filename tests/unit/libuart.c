/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libuart.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/util.h"

static size_t end_write(struct chardev *chardev, const uint8_t *data, size_t len)
{
	struct uart_rig *rig = container_of(chardev, struct uart_rig, chardev);
	size_t taken = MIN(len, MIN(rig->room, sizeof(rig->out) - rig->sent));

	memcpy(rig->out + rig->sent, data, taken);
	rig->sent += taken;
	rig->room -= taken;
	return taken;
}

static size_t end_room(struct chardev *chardev)
{
	return container_of(chardev, struct uart_rig, chardev)->room;
}

static void end_input_ready(struct chardev *chardev)
{
	container_of(chardev, struct uart_rig, chardev)->input_readies++;
}

static const struct chardev_ops end_ops = {
	.write = end_write,
	.room = end_room,
	.input_ready = end_input_ready,
};

static void set_irq_line(void *ctx, unsigned line, bool level)
{
	struct uart_rig *rig = ctx;

	assert(line == 4);
	rig->edges += level && !rig->level;
	rig->level = level;
}

static const struct platform_ops platform_ops = { .irq_line = set_irq_line };

int uart_setup(void **state)
{
	struct uart_rig *rig = calloc(1, sizeof(*rig));

	rig->room = 1000000;
	rig->platform = (struct platform){ .ops = &platform_ops, .ctx = rig };
	chardev_init(&rig->chardev, &end_ops);
	serial_init(&rig->serial, &rig->chardev, &rig->platform, 4);
	rig->input_readies = 0;
	*state = rig;
	return 0;
}

int uart_teardown(void **state)
{
	struct uart_rig *rig = *state;

	serial_fini(&rig->serial);
	chardev_fini(&rig->chardev);
	free(rig);
	return 0;
}

unsigned uart_in(struct uart_rig *rig, unsigned reg)
{
	uint8_t value;

	serial_bus_ops.read(&rig->serial, reg, &value, 1);
	return value;
}

void uart_out(struct uart_rig *rig, unsigned reg, uint8_t value)
{
	serial_bus_ops.write(&rig->serial, reg, &value, 1);
}

size_t uart_feed(struct uart_rig *rig, size_t len)
{
	static const uint8_t data[64] = "0123456789abcdefghijklmnopqrstuvwxyz";

	return chardev_front_receive(&rig->chardev, data, len);
}

void uart_listen(struct uart_rig *rig, uint8_t fcr, uint8_t ier)
{
	uart_out(rig, FCR, fcr);
	uart_out(rig, MCR, LISTENING_MCR);
	uart_out(rig, IER, ier);
}
