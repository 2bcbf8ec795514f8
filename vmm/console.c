/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Theory of operation.
 *
 * Input is pulled by the thread in the main loop whenever there may be some (epoll says so, edge
 * triggered) or the front has room again (the wake eventfd). Before each read, poll() says whether
 * it would block: O_NONBLOCK is out of question, since the open file is shared with the shell. A
 * raw terminal has VMIN 0 for the same purpose. Of a pipe or file no more is read than the front
 * takes: the rest stays there. A terminal is read ahead, to see the escapes.
 *
 * Output goes through a ring to a thread which simply blocks in write(). To end it, it is told to
 * and then sent a signal without SA_RESTART until it has seen that: one signal might come just
 * before the write. Chunks are small, because a chunk's room is given back only when all of it is
 * written, and a kernel's console in the guest waits only 10 ms for room before it gives up on a
 * character.
 */
#include "vmm/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "vmm/log.h"

#define CTRL_A 0x01

#define OUTPUT_CHUNK 1024u

/* How long output may wait for more of it, in ns: nobody sees that. */
#define GATHER_NS 2000000

/* Reads in a row before the loop's other sources get their turn. */
#define INPUT_ROUNDS 64u

/* Interrupts the writer. Ignored by default, so one from outside is harmless at any time. */
#define INTERRUPT_SIGNAL    SIGURG
#define INTERRUPT_PERIOD_MS 5

int console_reserve_stdio(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* All lower ones are open, so it gets this number. */
		if (open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0)
			return -errno;
	}
	return 0;
}

static void wake(struct console *console)
{
	if (console->wake.fd >= 0)
		eventfd_write(console->wake.fd, 1);
}

/* ---- the terminal ---- */

/* False also for a terminal that is not our controlling one: it has no job control over us. */
static bool in_background(const struct console *console)
{
	pid_t foreground = tcgetpgrp(console->input.fd);

	return foreground > 0 && foreground != getpgrp();
}

/* Blocked, SIGTTIN and SIGTTOU do not stop us: their call succeeds or fails with EIO. */
static void block_job_control(sigset_t *old)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTTIN);
	sigaddset(&set, SIGTTOU);
	pthread_sigmask(SIG_BLOCK, &set, old);
}

static int set_terminal(struct console *console, const struct termios *settings)
{
	sigset_t old;
	int err;

	block_job_control(&old);
	err = tcsetattr(console->input.fd, TCSANOW, settings) ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static void enter_raw(struct console *console)
{
	struct termios raw;

	if (!console->terminal || in_background(console))
		return;
	if (!console->saved_valid && tcgetattr(console->input.fd, &console->saved))
		return;
	console->saved_valid = true;
	raw = console->saved;
	cfmakeraw(&raw);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	if (!set_terminal(console, &raw))
		console->raw = true;
}

/* In the background the settings are another job's by now, and the shell saw to ours. */
static void leave_raw(struct console *console)
{
	if (console->raw && !in_background(console))
		set_terminal(console, &console->saved);
	console->raw = false;
}

void console_suspend(struct console *console)
{
	leave_raw(console);
}

void console_resume(struct console *console)
{
	enter_raw(console);
	wake(console);
}

/* ---- input ---- */

static void end_input(struct console *console, int err)
{
	console->ended = true;
	if (err)
		log_warn("console: cannot read standard input: %s; the guest goes on without",
			 strerror(err));
}

/* Appends `len` bytes to those in `in`, less the escapes, which it obeys. */
static void filter_escapes(struct console *console, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len && !console->ended; i++) {
		uint8_t byte = data[i];

		if (!console->escape) {
			console->escape = byte == CTRL_A;
			if (byte != CTRL_A)
				console->in[console->in_used++] = byte;
			continue;
		}
		console->escape = false;
		switch (byte) {
		case 'x':
			console->ended = true;
			console->quit(console->quit_ctx);
			break;
		case 'h':
			/* A raw terminal does not return the carriage by itself. */
			log_info("Ctrl-A x: quit; Ctrl-A a: send Ctrl-A; Ctrl-A h: this help\r");
			break;
		case 'a':
		case CTRL_A:
			console->in[console->in_used++] = CTRL_A;
			break;
		default:
			console->in[console->in_used++] = CTRL_A;
			console->in[console->in_used++] = byte;
			break;
		}
	}
}

static void deliver(struct console *console)
{
	while (console->in_used && chardev_front_room(&console->chardev)) {
		size_t taken =
			chardev_front_receive(&console->chardev, console->in, console->in_used);

		console->in_used -= taken;
		memmove(console->in, console->in + taken, console->in_used);
	}
}

/* poll()'s events; a regular file is always readable. */
static short input_events(const struct console *console)
{
	struct pollfd pollfd = { .fd = console->input.fd, .events = POLLIN };

	if (!console->watched)
		return POLLIN;
	return poll(&pollfd, 1, 0) == 1 ? pollfd.revents : 0;
}

static size_t input_room(struct console *console)
{
	size_t room = sizeof(console->in) - console->in_used;

	/* The Ctrl-A kept back may come on top of what is read. */
	if (console->terminal)
		return room ? room - 1 : 0;
	return console->in_used ? 0 : MIN(chardev_front_room(&console->chardev), room);
}

/* Reads once, and returns whether there may be more. */
static bool read_terminal(struct console *console, size_t room, short events)
{
	uint8_t data[CONSOLE_INPUT_SIZE];
	sigset_t old;
	ssize_t n;
	int err;

	if (in_background(console))
		return false;
	if (!console->raw)
		enter_raw(console);
	block_job_control(&old);
	n = read(console->input.fd, data, room);
	err = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);

	if (n > 0) {
		filter_escapes(console, data, n);
		return !console->ended;
	}
	if (n == 0 && (events & POLLHUP))
		end_input(console, 0);
	else if (n < 0 && err == EIO && !in_background(console))
		end_input(console, 0); /* hung up */
	else if (n < 0 && err != EIO && err != EAGAIN && err != EINTR)
		end_input(console, err);
	return n < 0 && err == EINTR;
}

static bool read_stream(struct console *console, size_t room)
{
	ssize_t n = read(console->input.fd, console->in, room);

	if (n > 0) {
		console->in_used = n;
		return true;
	}
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	end_input(console, n < 0 ? errno : 0);
	return false;
}

static bool read_some(struct console *console)
{
	size_t room;
	short events;

	if (console->ended)
		return false;
	room = input_room(console);
	if (!room)
		return false;
	events = input_events(console);
	if (!events)
		return false;
	return console->terminal ? read_terminal(console, room, events)
				 : read_stream(console, room);
}

static void pull_input(struct console *console)
{
	for (unsigned round = 0; round < INPUT_ROUNDS; round++) {
		deliver(console);
		if (!read_some(console))
			return;
	}
	wake(console);
}

static void input_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	pull_input(container_of(source, struct console, input));
}

static void woken(struct loop_source *source, uint32_t events)
{
	eventfd_t count;

	(void)events;
	eventfd_read(source->fd, &count);
	pull_input(container_of(source, struct console, wake));
}

/* ---- output ---- */

static size_t console_write(struct chardev *chardev, const uint8_t *data, size_t len)
{
	struct console *console = container_of(chardev, struct console, chardev);
	size_t taken = len;

	pthread_mutex_lock(&console->lock);
	if (!console->discard) {
		bool was_empty = !console->out.used;

		taken = byte_ring_put(&console->out, data, len);
		/* In between, the writer is awake or about to be. */
		if (was_empty || console->out.used >= OUTPUT_CHUNK)
			pthread_cond_signal(&console->work);
	}
	pthread_mutex_unlock(&console->lock);
	return taken;
}

static size_t console_room(struct chardev *chardev)
{
	struct console *console = container_of(chardev, struct console, chardev);
	size_t room;

	pthread_mutex_lock(&console->lock);
	room = console->discard ? SIZE_MAX : byte_ring_room(&console->out);
	if (room < CHARDEV_BURST)
		console->starved = true;
	pthread_mutex_unlock(&console->lock);
	return room;
}

static void console_input_ready(struct chardev *chardev)
{
	wake(container_of(chardev, struct console, chardev));
}

static const struct chardev_ops console_ops = {
	.write = console_write,
	.room = console_room,
	.input_ready = console_input_ready,
};

/* Writes some of it, or waits. Returns how much, or -errno when the reader is gone for good. */
static ssize_t put_out(const struct console *console, const uint8_t *data, size_t len)
{
	struct pollfd pollfd = { .fd = console->out_fd, .events = POLLOUT };
	ssize_t n = write(console->out_fd, data, len);

	if (n >= 0)
		return n;
	if (errno == EINTR)
		return 0;
	if (errno != EAGAIN)
		return -errno;
	/* Somebody who shares it made it non-blocking. */
	poll(&pollfd, 1, -1);
	return 0;
}

/* Called with the lock held, like a condition wait: it is released meanwhile. */
static void write_chunk(struct console *console)
{
	uint8_t chunk[OUTPUT_CHUNK];
	size_t len = byte_ring_peek(&console->out, chunk, sizeof(chunk));
	ssize_t n;
	bool owed;

	pthread_mutex_unlock(&console->lock);
	n = put_out(console, chunk, len);
	if (n < 0)
		log_warn("console: cannot write to standard output: %s; dropping output",
			 strerror((int)-n));
	pthread_mutex_lock(&console->lock);

	console->discard = n < 0;
	byte_ring_drop(&console->out, n < 0 ? console->out.used : (size_t)n);
	owed = console->starved &&
	       (console->discard || byte_ring_room(&console->out) >= CHARDEV_BURST);
	if (!owed)
		return;
	console->starved = false;
	pthread_mutex_unlock(&console->lock);
	chardev_front_writable(&console->chardev);
	pthread_mutex_lock(&console->lock);
}

/*
 * A kernel prints a byte at a time. A wake-up and a write() for each would cost more than the
 * guest's own work, and take the CPU from it: so the writer lets a little come together first.
 */
static void gather(struct console *console)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += GATHER_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	while (!console->stopping && !console->draining && console->out.used < OUTPUT_CHUNK)
		if (pthread_cond_timedwait(&console->work, &console->lock, &until))
			return;
}

static void *writer_main(void *arg)
{
	struct console *console = arg;

	prctl(PR_SET_NAME, "console");
	pthread_mutex_lock(&console->lock);
	while (!console->stopping) {
		if (console->out.used) {
			gather(console);
			write_chunk(console);
			continue;
		}
		if (console->draining)
			eventfd_write(console->writer_fd, 1);
		pthread_cond_wait(&console->work, &console->lock);
	}
	eventfd_write(console->writer_fd, 1);
	pthread_mutex_unlock(&console->lock);
	return NULL;
}

static void interrupted(int signal)
{
	(void)signal;
}

/* With all signals blocked but the one that interrupts it: so SIGPIPE is EPIPE, SIGTTOU no stop. */
static int start_writer(struct console *console)
{
	struct sigaction action = { .sa_handler = interrupted };
	sigset_t set;
	sigset_t old;
	int err;

	if (sigaction(INTERRUPT_SIGNAL, &action, NULL))
		return -errno;
	sigfillset(&set);
	sigdelset(&set, INTERRUPT_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &set, &old);
	err = pthread_create(&console->writer, NULL, writer_main, console);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	console->writing = !err;
	return -err;
}

static void wait_drained(struct console *console, int cancel_fd)
{
	struct pollfd fds[] = {
		{ .fd = console->writer_fd, .events = POLLIN },
		{ .fd = cancel_fd, .events = POLLIN },
	};

	pthread_mutex_lock(&console->lock);
	console->draining = true;
	pthread_cond_signal(&console->work);
	pthread_mutex_unlock(&console->lock);
	while (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno == EINTR)
		;
}

static void stop_writer(struct console *console)
{
	struct pollfd ended = { .fd = console->writer_fd, .events = POLLIN };
	eventfd_t count;

	pthread_mutex_lock(&console->lock);
	console->stopping = true;
	eventfd_read(console->writer_fd, &count);
	pthread_cond_signal(&console->work);
	pthread_mutex_unlock(&console->lock);
	do {
		pthread_kill(console->writer, INTERRUPT_SIGNAL);
	} while (poll(&ended, 1, INTERRUPT_PERIOD_MS) != 1);
	pthread_join(console->writer, NULL);
	console->writing = false;
}

/* ---- life ---- */

void console_init(struct console *console)
{
	pthread_condattr_t monotonic;

	memset(console, 0, sizeof(*console));
	chardev_init(&console->chardev, &console_ops);
	pthread_mutex_init(&console->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&console->work, &monotonic);
	pthread_condattr_destroy(&monotonic);
	console->input.fd = -1;
	console->wake.fd = -1;
	console->writer_fd = -1;
	console->out_fd = -1;
}

static int start_input(struct console *console, struct loop *loop, int in_fd)
{
	int err;

	console->loop = loop;
	console->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (console->wake.fd < 0)
		return -errno;
	console->wake.ready = woken;
	err = loop_add(loop, &console->wake, EPOLLIN);
	if (err)
		return err;

	console->input.fd = in_fd;
	console->input.ready = input_ready;
	console->terminal = isatty(in_fd);
	enter_raw(console);
	err = loop_add(loop, &console->input, EPOLLIN | EPOLLET);
	console->watched = !err;
	if (err == -EBADF)
		console->ended = true; /* no stdin */
	else if (err && err != -EPERM)
		return err;
	wake(console);
	return 0;
}

int console_start(struct console *console, struct loop *loop, int in_fd, int out_fd,
		  void (*quit)(void *ctx), void *ctx)
{
	int err;

	console->quit = quit;
	console->quit_ctx = ctx;
	console->out_fd = out_fd;
	console->writer_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = console->writer_fd < 0 ? -errno : start_input(console, loop, in_fd);
	if (!err)
		err = start_writer(console);
	if (err)
		log_error("console: cannot start: %s", strerror(-err));
	return err;
}

void console_stop(struct console *console, bool drain, int cancel_fd)
{
	if (console->writing && drain)
		wait_drained(console, cancel_fd);
	if (console->writing)
		stop_writer(console);
	leave_raw(console);
	if (console->watched)
		loop_remove(console->loop, &console->input);
	console->watched = false;
	console->ended = true;
	if (console->wake.fd >= 0) {
		loop_remove(console->loop, &console->wake);
		close(console->wake.fd);
		console->wake.fd = -1;
	}
}

void console_fini(struct console *console)
{
	if (console->writer_fd >= 0)
		close(console->writer_fd);
	pthread_cond_destroy(&console->work);
	pthread_mutex_destroy(&console->lock);
	chardev_fini(&console->chardev);
}
