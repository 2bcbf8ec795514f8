/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Theory of operation. vCPUs access registers, the host end's threads bring input and say when
 * there is room for output; one mutex serialises them all.
 *
 * There is no transmit FIFO: a byte goes to the host end's buffer at once, and the transmitter
 * counts as empty while that buffer has room for a full FIFO. So a guest that waits for THRE loses
 * nothing, a reset loses nothing, and no vCPU ever waits in the kernel for a slow reader. A guest
 * that writes without THRE loses what finds no room.
 *
 * The receive FIFO is filled only when it is empty. The interrupt line is level here, but the guest
 * programs the IOAPIC for edges, and Linux's handler leaves its loop after many passes even if
 * there is more to do: a FIFO that was always topped up would keep the line high, with no edge to
 * call the handler again. For the same reason the line pulses when the transmitter empties again
 * and the guest has not been told of the last time.
 *
 * As on a PC, the line is driven only while MCR's OUT2 is set. There is no timer for the receiver's
 * time-out: fewer bytes than the trigger level count as timed out at once.
 */
#include "devices/serial.h"

#include <string.h>

/* Register offsets; DLAB switches the first two to the divisor. */
#define REG_DATA    0u
#define REG_IER	    1u
#define REG_IIR_FCR 2u
#define REG_LCR	    3u
#define REG_MCR	    4u
#define REG_LSR	    5u
#define REG_MSR	    6u
#define REG_SCRATCH 7u

#define IER_RX	  0x01u
#define IER_TX	  0x02u
#define IER_LINE  0x04u
#define IER_MODEM 0x08u
#define IER_MASK  0x0fu

#define IIR_MODEM   0x00u
#define IIR_NONE    0x01u
#define IIR_TX	    0x02u
#define IIR_RX	    0x04u
#define IIR_LINE    0x06u
#define IIR_TIMEOUT 0x0cu
#define IIR_FIFOS   0xc0u

#define FCR_ENABLE	  0x01u
#define FCR_CLEAR_RX	  0x02u
#define FCR_TRIGGER_SHIFT 6u

#define LCR_DLAB 0x80u

#define MCR_DTR	 0x01u
#define MCR_RTS	 0x02u
#define MCR_OUT1 0x04u
#define MCR_OUT2 0x08u
#define MCR_LOOP 0x10u
#define MCR_MASK 0x1fu

#define LSR_DATA    0x01u
#define LSR_OVERRUN 0x02u
#define LSR_EMPTY   0x60u /* THRE and TEMT */

#define MSR_DELTAS 0x0fu
#define MSR_CTS	   0x10u
#define MSR_DSR	   0x20u
#define MSR_RI	   0x40u
#define MSR_DCD	   0x80u

#define DIVISOR_9600 12u

/*
 * So many reads of LSR in a row are a guest that polls for input. Linux's console and its probing
 * read it once or twice between other accesses.
 */
#define LISTENING_POLLS 3u

static unsigned rx_size(const struct serial *serial)
{
	return serial->fcr & FCR_ENABLE ? SERIAL_FIFO : 1;
}

static unsigned rx_trigger(const struct serial *serial)
{
	static const unsigned levels[] = { 1, 4, 8, 14 };

	return serial->fcr & FCR_ENABLE ? levels[serial->fcr >> FCR_TRIGGER_SHIFT] : 1;
}

/* The cause of highest priority, as IIR shows it. */
static unsigned interrupt_cause(const struct serial *serial)
{
	if ((serial->ier & IER_LINE) && serial->overrun)
		return IIR_LINE;
	if ((serial->ier & IER_RX) && serial->rx_used)
		return serial->rx_used >= rx_trigger(serial) ? IIR_RX : IIR_TIMEOUT;
	if ((serial->ier & IER_TX) && serial->tx_pending)
		return IIR_TX;
	if ((serial->ier & IER_MODEM) && (serial->msr & MSR_DELTAS))
		return IIR_MODEM;
	return IIR_NONE;
}

static void set_line(struct serial *serial, bool level)
{
	if (level == serial->irq_level)
		return;
	serial->irq_level = level;
	irq_line_set(&serial->irq, level);
}

static void update_line(struct serial *serial)
{
	bool connected = (serial->mcr & (MCR_OUT2 | MCR_LOOP)) == MCR_OUT2;

	set_line(serial, connected && interrupt_cause(serial) != IIR_NONE);
}

static size_t input_room(const struct serial *serial)
{
	bool by_interrupt = (serial->ier & IER_RX) && (serial->mcr & MCR_OUT2);

	if (serial->mcr & MCR_LOOP)
		return 0;
	if ((serial->mcr & (MCR_DTR | MCR_RTS)) == MCR_DTR)
		return 0;
	if (!by_interrupt && serial->polls < LISTENING_POLLS)
		return 0;
	return serial->rx_used ? 0 : rx_size(serial);
}

/* After each access: what the registers' new state means to the line and the host end. */
static void settle(struct serial *serial)
{
	update_line(serial);
	if (!serial->rx_wanted || !input_room(serial))
		return;
	serial->rx_wanted = false;
	chardev_input_ready(serial->chardev);
}

static void rx_put(struct serial *serial, uint8_t byte)
{
	if (serial->rx_used >= rx_size(serial)) {
		serial->overrun = true;
		return;
	}
	serial->rx[(serial->rx_start + serial->rx_used) % SERIAL_FIFO] = byte;
	serial->rx_used++;
}

static uint8_t rx_get(struct serial *serial)
{
	uint8_t byte;

	if (!serial->rx_used)
		return 0;
	byte = serial->rx[serial->rx_start];
	serial->rx_start = (serial->rx_start + 1) % SERIAL_FIFO;
	serial->rx_used--;
	return byte;
}

static void transmit(struct serial *serial, uint8_t byte)
{
	if (serial->mcr & MCR_LOOP) {
		rx_put(serial, byte);
	} else {
		chardev_write(serial->chardev, &byte, 1);
		serial->tx_ready = chardev_room(serial->chardev) >= CHARDEV_BURST;
	}
	serial->tx_pending = serial->tx_ready;
	if (serial->tx_stale)
		set_line(serial, false);
	serial->tx_stale = false;
}

static uint8_t read_iir(struct serial *serial)
{
	unsigned cause = interrupt_cause(serial);

	if (cause == IIR_TX)
		serial->tx_pending = false;
	serial->tx_stale = serial->tx_pending;
	return cause | (serial->fcr & FCR_ENABLE ? IIR_FIFOS : 0);
}

static uint8_t read_lsr(struct serial *serial)
{
	uint8_t lsr = 0;

	if (serial->rx_used)
		lsr |= LSR_DATA;
	if (serial->overrun)
		lsr |= LSR_OVERRUN;
	if (serial->tx_ready)
		lsr |= LSR_EMPTY;
	serial->overrun = false;
	return lsr;
}

static void write_ier(struct serial *serial, uint8_t value)
{
	uint8_t enabled = value & ~serial->ier;

	/* Enabling it with an empty transmitter raises it, each time: Linux tests for that. */
	if (enabled & IER_TX)
		serial->tx_pending = serial->tx_ready;
	serial->ier = value & IER_MASK;
}

static void write_fcr(struct serial *serial, uint8_t value)
{
	bool toggled = (value ^ serial->fcr) & FCR_ENABLE;

	if (toggled || (value & FCR_CLEAR_RX)) {
		serial->rx_start = 0;
		serial->rx_used = 0;
	}
	serial->fcr = value & FCR_ENABLE ? value : 0;
}

/* The modem's lines are constant, in loopback our own outputs. Sets MSR's state and deltas. */
static void update_modem(struct serial *serial)
{
	uint8_t old = serial->msr;
	uint8_t state = MSR_CTS | MSR_DSR | MSR_DCD;
	uint8_t deltas;

	if (serial->mcr & MCR_LOOP) {
		state = 0;
		state |= serial->mcr & MCR_RTS ? MSR_CTS : 0;
		state |= serial->mcr & MCR_DTR ? MSR_DSR : 0;
		state |= serial->mcr & MCR_OUT1 ? MSR_RI : 0;
		state |= serial->mcr & MCR_OUT2 ? MSR_DCD : 0;
	}
	deltas = (old ^ state) & (MSR_CTS | MSR_DSR | MSR_DCD);
	deltas |= old & ~state & MSR_RI; /* only its trailing edge */
	serial->msr = state | (old & MSR_DELTAS) | deltas >> 4;
}

static uint8_t read_msr(struct serial *serial)
{
	uint8_t msr = serial->msr;

	serial->msr &= ~MSR_DELTAS;
	return msr;
}

static uint8_t read_register(struct serial *serial, unsigned reg)
{
	if (reg != REG_LSR || !serial->tx_ready)
		serial->polls = 0;
	else if (serial->polls < LISTENING_POLLS)
		serial->polls++;

	switch (reg) {
	case REG_DATA:
		return serial->lcr & LCR_DLAB ? serial->divisor[0] : rx_get(serial);
	case REG_IER:
		return serial->lcr & LCR_DLAB ? serial->divisor[1] : serial->ier;
	case REG_IIR_FCR:
		return read_iir(serial);
	case REG_LCR:
		return serial->lcr;
	case REG_MCR:
		return serial->mcr;
	case REG_LSR:
		return read_lsr(serial);
	case REG_MSR:
		return read_msr(serial);
	default:
		return serial->scratch;
	}
}

static void write_register(struct serial *serial, unsigned reg, uint8_t value)
{
	serial->polls = 0;

	switch (reg) {
	case REG_DATA:
		if (serial->lcr & LCR_DLAB)
			serial->divisor[0] = value;
		else
			transmit(serial, value);
		break;
	case REG_IER:
		if (serial->lcr & LCR_DLAB)
			serial->divisor[1] = value;
		else
			write_ier(serial, value);
		break;
	case REG_IIR_FCR:
		write_fcr(serial, value);
		break;
	case REG_LCR:
		serial->lcr = value;
		break;
	case REG_MCR:
		serial->mcr = value & MCR_MASK;
		update_modem(serial);
		break;
	case REG_SCRATCH:
		serial->scratch = value;
		break;
	default: /* LSR and MSR are for reading */
		break;
	}
}

/* A wider access is one of each byte in turn, as on an 8-bit device behind an ISA bridge. */
static void serial_read(void *ctx, uint64_t offset, void *data, unsigned len)
{
	struct serial *serial = ctx;
	uint8_t *bytes = data;

	pthread_mutex_lock(&serial->lock);
	for (unsigned i = 0; i < len; i++)
		bytes[i] = read_register(serial, (offset + i) % SERIAL_SIZE);
	settle(serial);
	pthread_mutex_unlock(&serial->lock);
}

static void serial_write(void *ctx, uint64_t offset, const void *data, unsigned len)
{
	struct serial *serial = ctx;
	const uint8_t *bytes = data;

	pthread_mutex_lock(&serial->lock);
	for (unsigned i = 0; i < len; i++)
		write_register(serial, (offset + i) % SERIAL_SIZE, bytes[i]);
	settle(serial);
	pthread_mutex_unlock(&serial->lock);
}

const struct bus_ops serial_bus_ops = {
	.name = "serial",
	.read = serial_read,
	.write = serial_write,
};

static size_t front_room(void *ctx)
{
	struct serial *serial = ctx;
	size_t room;

	pthread_mutex_lock(&serial->lock);
	room = input_room(serial);
	if (!room)
		serial->rx_wanted = true;
	pthread_mutex_unlock(&serial->lock);
	return room;
}

static size_t front_receive(void *ctx, const uint8_t *data, size_t len)
{
	struct serial *serial = ctx;
	size_t room;
	size_t taken;

	pthread_mutex_lock(&serial->lock);
	room = input_room(serial);
	for (taken = 0; taken < len && taken < room; taken++)
		rx_put(serial, data[taken]);
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	return taken;
}

static void front_writable(void *ctx)
{
	struct serial *serial = ctx;

	pthread_mutex_lock(&serial->lock);
	if (!serial->tx_ready && chardev_room(serial->chardev) >= CHARDEV_BURST) {
		serial->tx_ready = true;
		serial->tx_pending = true;
		update_line(serial);
	}
	pthread_mutex_unlock(&serial->lock);
}

static const struct chardev_front_ops front_ops = {
	.room = front_room,
	.receive = front_receive,
	.writable = front_writable,
};

void serial_init(struct serial *serial, struct chardev *chardev, const struct platform *platform,
		 unsigned line)
{
	memset(serial, 0, sizeof(*serial));
	pthread_mutex_init(&serial->lock, NULL);
	serial->chardev = chardev;
	serial->irq.platform = platform;
	serial->irq.line = line;
	serial->msr = MSR_CTS | MSR_DSR | MSR_DCD;
	serial->divisor[0] = DIVISOR_9600;

	/* Room is asked for last: the host end's `writable` must find the front. */
	chardev_attach(chardev, &front_ops, serial);
	pthread_mutex_lock(&serial->lock);
	serial->tx_ready = chardev_room(chardev) >= CHARDEV_BURST;
	pthread_mutex_unlock(&serial->lock);
}

void serial_fini(struct serial *serial)
{
	chardev_detach(serial->chardev);
	set_line(serial, false);
	pthread_mutex_destroy(&serial->lock);
}
