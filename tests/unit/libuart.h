/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of the UART alone: one with a host end and a platform made of plain variables.
 */
#ifndef WHELP_TESTS_LIBUART_H
#define WHELP_TESTS_LIBUART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/serial.h"

enum { DATA, IER, IIR, LCR, MCR, LSR, MSR, SCRATCH, FCR = IIR };

#define LISTENING_MCR 0x0b /* DTR, RTS, OUT2 */
#define ALL_EMPTY     0x60

struct uart_rig {
	struct chardev chardev;
	struct platform platform;
	struct serial serial;
	bool level;	/* of the interrupt line */
	unsigned edges; /* rising ones */
	unsigned input_readies;
	size_t room; /* the host end's */
	size_t sent;
	uint8_t out[4096];
};

/* cmocka's set-up and tear-down, with a struct uart_rig as the state. */
int uart_setup(void **state);
int uart_teardown(void **state);

unsigned uart_in(struct uart_rig *rig, unsigned reg);
void uart_out(struct uart_rig *rig, unsigned reg, uint8_t value);

/* Offers `len` (up to 64) bytes of input, "0123456789abc...", returns how many were taken. */
size_t uart_feed(struct uart_rig *rig, size_t len);

/* Sets the port up so that it takes input, with these values of FCR and IER. */
void uart_listen(struct uart_rig *rig, uint8_t fcr, uint8_t ier);

#endif
