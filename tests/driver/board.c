/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The platform's tables stand under one lock. A message is known by its address and data, as an
 * interrupt controller knows it, hence a wrong route shows as an interrupt that never comes.
 */
#include "tests/driver/board.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/util.h"

/* A test that cannot go on ends here; this is never the code under test's fault. */
static void need(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "board: %s\n", what);
	abort();
}

static int msi_alloc(void *ctx, unsigned *source, int *fd)
{
	struct board *board = ctx;
	int err = -ENOSPC;

	pthread_mutex_lock(&board->lock);
	for (unsigned i = 0; i < BOARD_SOURCES && err; i++) {
		struct board_source *s = &board->sources[i];

		if (s->used)
			continue;
		*s = (struct board_source){ .used = true };
		s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		need(s->fd >= 0, "no eventfd");
		*source = i;
		*fd = s->fd;
		err = 0;
	}
	pthread_mutex_unlock(&board->lock);
	return err;
}

static void msi_free(void *ctx, unsigned source)
{
	struct board *board = ctx;

	pthread_mutex_lock(&board->lock);
	need(board->sources[source].used, "a source is freed twice");
	close(board->sources[source].fd);
	board->sources[source].used = false;
	pthread_mutex_unlock(&board->lock);
}

static void msi_set(void *ctx, unsigned source, uint64_t address, uint32_t data)
{
	struct board *board = ctx;

	pthread_mutex_lock(&board->lock);
	board->sources[source].staged_address = address;
	board->sources[source].staged_data = data;
	pthread_mutex_unlock(&board->lock);
}

static int msi_commit(void *ctx)
{
	struct board *board = ctx;

	pthread_mutex_lock(&board->lock);
	for (unsigned i = 0; i < BOARD_SOURCES; i++) {
		struct board_source *s = &board->sources[i];

		s->address = s->staged_address;
		s->data = s->staged_data;
		s->live = s->used && s->address;
	}
	board->commits++;
	pthread_mutex_unlock(&board->lock);
	return 0;
}

static int find_joined(const struct board *board, int fd)
{
	for (unsigned i = 0; i < board->joined_count; i++)
		if (board->joined[i].fd == fd)
			return (int)i;
	return -1;
}

static int msi_fd(void *ctx, unsigned source, int fd, bool on)
{
	struct board *board = ctx;
	int at, err = 0;

	pthread_mutex_lock(&board->lock);
	at = find_joined(board, fd);
	if (on && at >= 0)
		err = -EBUSY;
	else if (on && board->joined_count == BOARD_JOINED)
		err = -ENOSPC;
	else if (on)
		board->joined[board->joined_count++] =
			(struct board_joined){ .source = source, .fd = fd };
	else if (at < 0 || board->joined[at].source != source)
		err = -ENOENT;
	else
		board->joined[at] = board->joined[--board->joined_count];
	pthread_mutex_unlock(&board->lock);
	return err;
}

static int find_kick(const struct board *board, enum platform_space space, uint64_t addr)
{
	for (unsigned i = 0; i < board->kick_count; i++)
		if (board->kicks[i].space == space && board->kicks[i].addr == addr)
			return (int)i;
	return -1;
}

static int kick_fd(void *ctx, enum platform_space space, uint64_t addr, int fd, bool on)
{
	struct board *board = ctx;
	int at, err = 0;

	pthread_mutex_lock(&board->lock);
	at = find_kick(board, space, addr);
	if (on && at >= 0)
		err = -EEXIST;
	else if (on && board->kick_count == BOARD_KICKS)
		err = -ENOSPC;
	else if (on)
		board->kicks[board->kick_count++] =
			(struct board_kick){ .space = space, .addr = addr, .fd = fd };
	else if (at < 0 || board->kicks[at].fd != fd)
		err = -ENOENT;
	else
		board->kicks[at] = board->kicks[--board->kick_count];
	pthread_mutex_unlock(&board->lock);
	return err;
}

static void irq_line(void *ctx, unsigned line, bool level)
{
	struct board *board = ctx;

	need(line < BOARD_MAX_LINE, "no such interrupt line");
	pthread_mutex_lock(&board->lock);
	if (level && !board->lines[line])
		board->rises[line]++;
	board->lines[line] = level;
	pthread_mutex_unlock(&board->lock);
}

static const struct platform_ops platform_ops = {
	.msi_alloc = msi_alloc,
	.msi_free = msi_free,
	.msi_set = msi_set,
	.msi_commit = msi_commit,
	.msi_fd = msi_fd,
	.kick_fd = kick_fd,
	.irq_line = irq_line,
};

void board_init(struct board *board)
{
	struct pci_host_config config = {
		.mmio = &board->mmio,
		.pio = &board->pio,
		.platform = &board->platform,
		.memory = { .base = BOARD_PCI_BASE, .size = BOARD_PCI_SIZE },
		.io = { .base = BOARD_IO_BASE, .size = BOARD_IO_SIZE },
		.first_line = BOARD_LINE,
		.lines = BOARD_LINES,
	};

	memset(board, 0, sizeof(*board));
	pthread_mutex_init(&board->lock, NULL);
	mem_init(&board->mem);
	need(!mem_add(&board->mem, 0, BOARD_LOW_SIZE), "no memory");
	need(!mem_add(&board->mem, BOARD_HIGH_BASE, BOARD_HIGH_SIZE), "no memory");
	board->next = PAGE_SIZE;
	bus_init(&board->mmio);
	bus_init(&board->pio);
	board->platform = (struct platform){ .ops = &platform_ops, .ctx = board };
	pci_host_init(&board->pci, &config);
	need(!bus_add(&board->mmio, BOARD_ECAM, MIB(1), &pci_host_ecam_ops, &board->pci),
	     "no ECAM");
	need(!bus_add(&board->pio, BOARD_PCI_PORTS, 8, &pci_host_port_ops, &board->pci),
	     "no ports");
}

void board_unplug(struct board *board)
{
	pci_host_fini(&board->pci);
}

void board_fini(struct board *board)
{
	bus_fini(&board->mmio);
	bus_fini(&board->pio);
	mem_fini(&board->mem);
	for (unsigned i = 0; i < BOARD_SOURCES; i++)
		if (board->sources[i].used)
			close(board->sources[i].fd);
	pthread_mutex_destroy(&board->lock);
}

uint64_t board_alloc(struct board *board, uint64_t size, uint64_t align)
{
	uint64_t gpa = align_up(board->next, align);

	/* What does not fit below goes above the gap. */
	if (gpa < BOARD_LOW_SIZE && gpa + size > BOARD_LOW_SIZE)
		gpa = BOARD_HIGH_BASE;
	board->next = gpa + size;
	memset(board_ptr(board, gpa, size), 0, size);
	return gpa;
}

void board_free_all(struct board *board)
{
	board->next = PAGE_SIZE;
}

void *board_ptr(const struct board *board, uint64_t gpa, uint64_t len)
{
	void *p = mem_ptr(&board->mem, gpa, len);

	need(p, "out of guest memory");
	return p;
}

static void enter(struct board *board)
{
	if (board->exits)
		pthread_mutex_lock(board->exits);
}

static void leave(struct board *board)
{
	if (board->exits)
		pthread_mutex_unlock(board->exits);
}

uint64_t board_mmio_read(struct board *board, uint64_t addr, unsigned len)
{
	uint64_t value = 0;

	enter(board);
	bus_read(&board->mmio, addr, &value, len);
	leave(board);
	return value;
}

static bool kick(struct board *board, enum platform_space space, uint64_t addr)
{
	uint64_t one = 1;
	int at;

	pthread_mutex_lock(&board->lock);
	at = find_kick(board, space, addr);
	if (at >= 0)
		need(write(board->kicks[at].fd, &one, sizeof(one)) == sizeof(one), "a lost kick");
	pthread_mutex_unlock(&board->lock);
	return at >= 0;
}

void board_mmio_write(struct board *board, uint64_t addr, unsigned len, uint64_t value)
{
	if (kick(board, PLATFORM_MMIO, addr))
		return;
	enter(board);
	bus_write(&board->mmio, addr, &value, len);
	leave(board);
}

uint64_t board_pio_read(struct board *board, uint64_t port, unsigned len)
{
	uint64_t value = 0;

	enter(board);
	bus_read(&board->pio, port, &value, len);
	leave(board);
	return value;
}

void board_pio_write(struct board *board, uint64_t port, unsigned len, uint64_t value)
{
	if (kick(board, PLATFORM_PIO, port))
		return;
	enter(board);
	bus_write(&board->pio, port, &value, len);
	leave(board);
}

uint32_t board_config_read(struct board *board, unsigned slot, unsigned offset, unsigned len)
{
	return (uint32_t)board_mmio_read(board, BOARD_ECAM + (slot << 15) + offset, len);
}

void board_config_write(struct board *board, unsigned slot, unsigned offset, unsigned len,
			uint32_t value)
{
	board_mmio_write(board, BOARD_ECAM + (slot << 15) + offset, len, value);
}

int board_message_fd(struct board *board, uint64_t address, uint32_t data)
{
	int fd = -1;

	pthread_mutex_lock(&board->lock);
	for (unsigned i = 0; i < BOARD_SOURCES; i++) {
		const struct board_source *s = &board->sources[i];

		if (s->used && s->live && s->address == address && s->data == data)
			fd = s->fd;
	}
	pthread_mutex_unlock(&board->lock);
	return fd;
}

uint64_t board_wait_message(struct board *board, uint64_t address, uint32_t data, int timeout)
{
	int fd = board_message_fd(board, address, data);
	uint64_t count = 0;

	if (fd < 0 || !board_wait_fd(fd, POLLIN, timeout))
		return 0;
	return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

bool board_raises(struct board *board, int fd, uint64_t address, uint32_t data)
{
	const struct board_source *s;
	bool raises = false;
	int at;

	pthread_mutex_lock(&board->lock);
	at = find_joined(board, fd);
	if (at >= 0) {
		s = &board->sources[board->joined[at].source];
		raises = s->used && s->live && s->address == address && s->data == data;
	}
	pthread_mutex_unlock(&board->lock);
	return raises;
}

unsigned board_commits(struct board *board)
{
	unsigned commits;

	pthread_mutex_lock(&board->lock);
	commits = board->commits;
	pthread_mutex_unlock(&board->lock);
	return commits;
}

bool board_line(struct board *board, unsigned line)
{
	bool level;

	pthread_mutex_lock(&board->lock);
	level = board->lines[line];
	pthread_mutex_unlock(&board->lock);
	return level;
}

unsigned board_rises(struct board *board, unsigned line)
{
	unsigned rises;

	pthread_mutex_lock(&board->lock);
	rises = board->rises[line];
	pthread_mutex_unlock(&board->lock);
	return rises;
}

unsigned board_kicks_inside(struct board *board, uint64_t base, uint64_t size)
{
	unsigned count = 0;

	pthread_mutex_lock(&board->lock);
	for (unsigned i = 0; i < board->kick_count; i++)
		count += board->kicks[i].space == PLATFORM_MMIO &&
			 range_inside(board->kicks[i].addr, 1, base, size);
	pthread_mutex_unlock(&board->lock);
	return count;
}

short board_wait_fd(int fd, short events, int timeout)
{
	struct pollfd pollfd = { .fd = fd, .events = events };
	int n;

	do
		n = poll(&pollfd, 1, timeout);
	while (n < 0 && errno == EINTR);
	return n == 1 ? pollfd.revents : 0;
}
