/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/libfront.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vmm/util.h"

#define PATIENCE_S 10

static int captured_fd;
static int stderr_fd;

static size_t front_room(void *ctx)
{
	struct front *front = ctx;
	size_t room;

	pthread_mutex_lock(&front->lock);
	room = front->room;
	front->room += front->growth;
	pthread_mutex_unlock(&front->lock);
	return room;
}

static size_t front_receive(void *ctx, const uint8_t *data, size_t len)
{
	struct front *front = ctx;
	size_t taken;

	pthread_mutex_lock(&front->lock);
	taken = MIN(MIN(len, front->room), FRONT_SIZE - front->received);
	memcpy(front->data + front->received, data, taken);
	front->received += taken;
	front->room -= taken;
	pthread_cond_broadcast(&front->changed);
	pthread_mutex_unlock(&front->lock);
	return taken;
}

static void front_writable(void *ctx)
{
	struct front *front = ctx;

	pthread_mutex_lock(&front->lock);
	front->writables++;
	pthread_cond_broadcast(&front->changed);
	pthread_mutex_unlock(&front->lock);
}

static const struct chardev_front_ops front_ops = {
	.room = front_room,
	.receive = front_receive,
	.writable = front_writable,
};

void front_attach(struct front *front, struct chardev *chardev, size_t room)
{
	memset(front, 0, sizeof(*front));
	pthread_mutex_init(&front->lock, NULL);
	pthread_cond_init(&front->changed, NULL);
	front->chardev = chardev;
	front->room = room;
	chardev_attach(chardev, &front_ops, front);
}

void front_detach(struct front *front)
{
	chardev_detach(front->chardev);
	pthread_cond_destroy(&front->changed);
	pthread_mutex_destroy(&front->lock);
}

void front_add_room(struct front *front, size_t room)
{
	pthread_mutex_lock(&front->lock);
	front->room += room;
	pthread_mutex_unlock(&front->lock);
	chardev_input_ready(front->chardev);
}

void front_grow_room(struct front *front, size_t growth)
{
	pthread_mutex_lock(&front->lock);
	front->growth = growth;
	front->room = 1;
	pthread_mutex_unlock(&front->lock);
	chardev_input_ready(front->chardev);
}

static bool front_wait(struct front *front, size_t received, unsigned writables)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&front->lock);
	do {
		done = front->received >= received && front->writables >= writables;
	} while (!done && !pthread_cond_timedwait(&front->changed, &front->lock, &until));
	pthread_mutex_unlock(&front->lock);
	return done;
}

bool front_wait_received(struct front *front, size_t count)
{
	return front_wait(front, count, 0);
}

bool front_wait_writables(struct front *front, unsigned count)
{
	return front_wait(front, 0, count);
}

unsigned front_writables(struct front *front)
{
	unsigned writables;

	pthread_mutex_lock(&front->lock);
	writables = front->writables;
	pthread_mutex_unlock(&front->lock);
	return writables;
}

size_t front_received(struct front *front)
{
	size_t received;

	pthread_mutex_lock(&front->lock);
	received = front->received;
	pthread_mutex_unlock(&front->lock);
	return received;
}

size_t front_fill(struct front *front, unsigned seed)
{
	size_t total = 0;

	do {
		uint8_t data[CHARDEV_BURST];

		for (unsigned i = 0; i < sizeof(data); i++)
			data[i] = (total + i) * 7 + (total >> 8) + seed;
		total += chardev_write(front->chardev, data, sizeof(data));
	} while (chardev_room(front->chardev) >= CHARDEV_BURST);
	return total;
}

short wait_fd(int fd, short events)
{
	struct pollfd pollfd = { .fd = fd, .events = events };

	return poll(&pollfd, 1, PATIENCE_S * 1000) == 1 ? pollfd.revents : 0;
}

size_t read_exactly(int fd, uint8_t *data, size_t len)
{
	size_t done = 0;

	while (done < len && wait_fd(fd, POLLIN)) {
		ssize_t n = read(fd, data + done, len - done);

		if (n <= 0)
			break;
		done += n;
	}
	return done;
}

int open_pty(int fds[2])
{
	fds[1] = posix_openpt(O_RDWR | O_NOCTTY);
	if (fds[1] < 0 || grantpt(fds[1]) || unlockpt(fds[1]))
		return -1;
	fds[0] = open(ptsname(fds[1]), O_RDWR | O_NOCTTY);
	return fds[0] < 0 ? -1 : 0;
}

bool is_raw(int fd)
{
	struct termios now;

	return !tcgetattr(fd, &now) && !(now.c_lflag & (ICANON | ECHO | ISIG | IEXTEN)) &&
	       !(now.c_oflag & OPOST) && !(now.c_iflag & (ICRNL | IXON)) && !now.c_cc[VMIN] &&
	       !now.c_cc[VTIME];
}

bool has_settings(int fd, const struct termios *settings)
{
	struct termios now;

	return !tcgetattr(fd, &now) && now.c_iflag == settings->c_iflag &&
	       now.c_oflag == settings->c_oflag && now.c_cflag == settings->c_cflag &&
	       now.c_lflag == settings->c_lflag &&
	       !memcmp(now.c_cc, settings->c_cc, sizeof(now.c_cc));
}

void capture_begin(void)
{
	stderr_fd = dup(STDERR_FILENO);
	captured_fd = memfd_create("stderr", MFD_CLOEXEC);
	dup2(captured_fd, STDERR_FILENO);
}

unsigned capture_end(char *text, size_t size)
{
	ssize_t n = pread(captured_fd, text, size - 1, 0);
	unsigned lines = 0;

	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
	close(captured_fd);
	text[MAX(n, 0)] = '\0';
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	return lines;
}
