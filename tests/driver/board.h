/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine without CPUs, for tests that play the guest: memory, both buses, a PCI host bridge, and
 * a platform that does what KVM would: eventfds catch kicks, messages and lines can be waited for.
 *
 * Every board_ function may be called by any thread, unless it says otherwise.
 */
#ifndef WHELP_TESTS_BOARD_H
#define WHELP_TESTS_BOARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/pci_host.h"
#include "vmm/bus.h"
#include "vmm/mem.h"
#include "vmm/platform.h"

/* Two regions of memory with a gap between them. */
#define BOARD_LOW_SIZE	0x400000ull
#define BOARD_HIGH_BASE 0x100000000ull
#define BOARD_HIGH_SIZE 0x2000000ull

#define BOARD_ECAM	0xe0000000ull
#define BOARD_PCI_BASE	0xc0000000ull
#define BOARD_PCI_SIZE	0x10000000ull
#define BOARD_IO_BASE	0xc000ull
#define BOARD_IO_SIZE	0x3000ull
#define BOARD_PCI_PORTS 0xcf8ull
#define BOARD_LINE	16u /* slot n's INTA# is line BOARD_LINE + n % BOARD_LINES */
#define BOARD_LINES	4u

#define BOARD_SOURCES  80u
#define BOARD_KICKS    80u
#define BOARD_JOINED   16u
#define BOARD_MAX_LINE 24u

/* How long a wait for something that has to happen may take, in ms. */
#define BOARD_PATIENCE 20000

struct board_source {
	bool used;
	bool live; /* `address` and `data` were committed */
	int fd;
	uint64_t staged_address, address;
	uint32_t staged_data, data;
};

struct board_kick {
	enum platform_space space;
	uint64_t addr;
	int fd;
};

/* An eventfd by which somebody else raises a source's message. */
struct board_joined {
	unsigned source;
	int fd;
};

struct board {
	struct mem mem;
	struct bus mmio;
	struct bus pio;
	struct platform platform;
	struct pci_host pci;
	uint64_t next; /* the lowest free byte of guest memory */
	pthread_mutex_t *exits; /* the caller's, held during accesses to devices; or NULL */

	pthread_mutex_t lock; /* all below */
	struct board_source sources[BOARD_SOURCES];
	unsigned commits;
	struct board_kick kicks[BOARD_KICKS];
	unsigned kick_count;
	struct board_joined joined[BOARD_JOINED];
	unsigned joined_count;
	bool lines[BOARD_MAX_LINE];
	unsigned rises[BOARD_MAX_LINE];
};

/*
 * Before and after all threads. What is plugged is the caller's: it is taken down after
 * board_unplug(), which ends its BARs, and before board_fini().
 */
void board_init(struct board *board);
void board_unplug(struct board *board);
void board_fini(struct board *board);

/* Takes `size` bytes of guest memory, zeroed, aligned to a power of two. One thread at a time. */
uint64_t board_alloc(struct board *board, uint64_t size, uint64_t align);

/* Gives all of it back. */
void board_free_all(struct board *board);

/* Host pointer to guest memory that must be there. */
void *board_ptr(const struct board *board, uint64_t gpa, uint64_t len);

/* What a vCPU's accesses do; a write that a kick eventfd waits for goes no further. */
uint64_t board_mmio_read(struct board *board, uint64_t addr, unsigned len);
void board_mmio_write(struct board *board, uint64_t addr, unsigned len, uint64_t value);
uint64_t board_pio_read(struct board *board, uint64_t port, unsigned len);
void board_pio_write(struct board *board, uint64_t port, unsigned len, uint64_t value);

/* Configuration space of bus 0, by ECAM. */
uint32_t board_config_read(struct board *board, unsigned slot, unsigned offset, unsigned len);
void board_config_write(struct board *board, unsigned slot, unsigned offset, unsigned len,
			uint32_t value);

/* The eventfd of the source whose committed message is this; -1 when there is none. */
int board_message_fd(struct board *board, uint64_t address, uint32_t data);

/*
 * Waits up to `timeout` ms (0: looks) for the message, and takes it; returns how many were raised
 * since it was last taken: 0 at the end of the time.
 */
uint64_t board_wait_message(struct board *board, uint64_t address, uint32_t data, int timeout);

/* Whether a count on the eventfd, which is no source's own, would raise the message. */
bool board_raises(struct board *board, int fd, uint64_t address, uint32_t data);

unsigned board_commits(struct board *board);
bool board_line(struct board *board, unsigned line);
unsigned board_rises(struct board *board, unsigned line);

/* The number of kick eventfds in [base, base + size) of MMIO. */
unsigned board_kicks_inside(struct board *board, uint64_t base, uint64_t size);

/* poll() of one fd: what is ready of `events` within `timeout` ms, or 0. */
short board_wait_fd(int fd, short events, int timeout);

#endif
