/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A 16550A UART (National Semiconductor PC16550D data sheet) with its host end: eight byte
 * registers. Speed, parity and breaks mean nothing here. On the modem lines a peer that is always
 * ready is connected: CTS, DSR and DCD are on.
 *
 * Input reaches the guest only while it listens: it enabled the receive interrupt, or it polls the
 * line status. Until then it waits in the host, so that a driver that clears the FIFOs as it starts
 * loses none of it. A guest that holds DTR without RTS asks for no more input, and gets none.
 */
#ifndef WHELP_DEVICES_SERIAL_H
#define WHELP_DEVICES_SERIAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/bus.h"
#include "vmm/chardev.h"
#include "vmm/platform.h"

#define SERIAL_SIZE 8u /* ports */
#define SERIAL_FIFO 16u

struct serial {
	pthread_mutex_t lock;
	struct chardev *chardev;
	struct irq_line irq;
	bool irq_level; /* as the line was last set */

	uint8_t ier;
	uint8_t fcr;
	uint8_t lcr;
	uint8_t mcr;
	uint8_t msr;
	uint8_t scratch;
	uint8_t divisor[2];

	bool overrun;	 /* LSR's OE */
	bool tx_ready;	 /* LSR's THRE and TEMT */
	bool tx_pending; /* the transmitter-empty interrupt */
	bool tx_stale;	 /* that was pending when IIR told of another one */
	bool rx_wanted;	 /* the host end waits for chardev_input_ready() */
	unsigned polls;	 /* reads of LSR in a row */

	unsigned rx_start;
	unsigned rx_used;
	uint8_t rx[SERIAL_FIFO];
};

/*
 * A port as after power-on, attached to `chardev`, which must have no front and must outlive it.
 * Interrupts go to input `line` of `platform`, which must outlive it too. Never fails.
 */
void serial_init(struct serial *serial, struct chardev *chardev, const struct platform *platform,
		 unsigned line);

/* Detaches from the host end and lowers the line. No vCPU may be in a callback. */
void serial_fini(struct serial *serial);

/* For a range of SERIAL_SIZE ports, with the struct serial as context; callable by any thread. */
extern const struct bus_ops serial_bus_ops;

#endif
