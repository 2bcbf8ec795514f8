/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's command agent: runs shell commands for the host over a serial port.
 *
 * Theory of operation: one poll loop serves the port, at most one command at a time, and the pipes
 * left behind by background processes of finished commands. The port is always read, so that a
 * client's hello gets through whatever the command does; that hello kills the command of a client
 * that went away. A command ends when its shell exits, not when its pipe closes: a background
 * process may hold the pipe for ever, and what it writes later is discarded.
 *
 * The bytes on the wire are described in docs/guest.md. A frame is type, id, payload and CRC-32,
 * between two FLAG bytes; FLAG and ESC inside are escaped, so the next FLAG always starts afresh
 * after junk, a lost byte or a new client.
 *
 * Usage: agent DEVICE. Exit status 3: there is no such port.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/serial.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { FLAG = 0x7e, ESC = 0x7d, ESC_XOR = 0x20 };
enum { HEADER = 5, TRAILER = 4, RUN_HEADER = 5 };
enum { FRAME_MAX = 65536, CHUNK = 8192, STDIN_MAX = 65536, ORPHANS = 32 };
enum { RUN_STDIN = 1, END_TIME_LIMIT = 1, EXIT_NO_PORT = 3 };

/* The guest's functions for programs that busybox has an applet for, if there are any. */
#define PRELUDE "[ ! -r /etc/guest.rc ] || . /etc/guest.rc; "

struct job {
	bool active;
	bool expired;
	bool stdin_end;
	uint32_t id;
	pid_t pid;
	int pidfd;
	int out;
	int in;
	uint64_t deadline_ms; /* 0: none */
	size_t in_len;
	uint8_t in_buf[STDIN_MAX];
};

struct agent {
	int tty;
	size_t rx_len;
	bool rx_esc;
	uint8_t rx[FRAME_MAX];
	int orphans[ORPHANS]; /* output pipes of finished commands; -1: free */
	unsigned int next_orphan;
	struct job job;
};

static uint32_t crc32_add(uint32_t crc, const uint8_t *p, size_t len)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};

	while (len--) {
		crc ^= *p++;
		crc = (crc >> 4) ^ table[crc & 15];
		crc = (crc >> 4) ^ table[crc & 15];
	}
	return crc;
}

static void put_le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void tty_write(struct agent *a, const uint8_t *p, size_t len)
{
	while (len) {
		ssize_t n = write(a->tty, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			exit(EXIT_FAILURE); /* the port is gone; init starts us again */
		p += n;
		len -= (size_t)n;
	}
}

static size_t escape(uint8_t *dst, const uint8_t *src, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (src[i] == FLAG || src[i] == ESC) {
			dst[n++] = ESC;
			dst[n++] = src[i] ^ ESC_XOR;
		} else {
			dst[n++] = src[i];
		}
	}
	return n;
}

/* len is at most CHUNK */
static void send_frame(struct agent *a, char type, uint32_t id, const void *payload, size_t len)
{
	uint8_t head[HEADER] = { (uint8_t)type }, tail[TRAILER];
	uint8_t wire[2 * (HEADER + CHUNK + TRAILER) + 2];
	uint32_t crc;
	size_t n = 0;

	put_le32(head + 1, id);
	crc = crc32_add(~0u, head, sizeof(head));
	crc = crc32_add(crc, payload, len);
	put_le32(tail, ~crc);
	wire[n++] = FLAG;
	n += escape(wire + n, head, sizeof(head));
	n += escape(wire + n, payload, len);
	n += escape(wire + n, tail, sizeof(tail));
	wire[n++] = FLAG;
	tty_write(a, wire, n);
}

static void send_text(struct agent *a, char type, uint32_t id, const char *text)
{
	send_frame(a, type, id, text, strlen(text));
}

static void send_hello(struct agent *a, uint32_t id)
{
	struct utsname u;
	char text[sizeof(u.release) + 8];

	uname(&u);
	snprintf(text, sizeof(text), "1 %s", u.release);
	send_text(a, 'H', id, text);
}

static void ack_stdin(struct agent *a, uint32_t count)
{
	uint8_t payload[4];

	put_le32(payload, count);
	send_frame(a, 'A', a->job.id, payload, sizeof(payload));
}

/* Keeps an output pipe open for background processes, which a closed one would kill by SIGPIPE. */
static void adopt_pipe(struct agent *a, int fd)
{
	int *slot = &a->orphans[a->next_orphan++ % ORPHANS];

	close_fd(slot);
	*slot = fd;
}

static void drain_orphan(int *fd)
{
	static uint8_t sink[CHUNK];

	if (read(*fd, sink, sizeof(sink)) <= 0)
		close_fd(fd);
}

/* Sends one chunk of at most max bytes; returns its size, 0 at the end of the pipe. */
static size_t send_output(struct agent *a, size_t max)
{
	uint8_t buf[CHUNK];
	ssize_t n = read(a->job.out, buf, max < CHUNK ? max : CHUNK);

	if (n <= 0)
		return 0;
	send_frame(a, 'O', a->job.id, buf, (size_t)n);
	return (size_t)n;
}

static void feed_stdin(struct agent *a)
{
	struct job *j = &a->job;
	ssize_t n = write(j->in, j->in_buf, j->in_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) { /* the command reads no more */
		n = (ssize_t)j->in_len;
		close_fd(&j->in);
	}
	memmove(j->in_buf, j->in_buf + n, j->in_len - (size_t)n);
	j->in_len -= (size_t)n;
	ack_stdin(a, (uint32_t)n);
	if (!j->in_len && j->stdin_end)
		close_fd(&j->in);
}

static int reap(struct job *j)
{
	int status = 0;

	while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR)
		;
	close_fd(&j->pidfd);
	close_fd(&j->in);
	j->active = false;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void finish_job(struct agent *a)
{
	struct job *j = &a->job;
	uint8_t payload[8];
	int left = 0;

	put_le32(payload, (uint32_t)reap(j));
	put_le32(payload + 4, j->expired ? END_TIME_LIMIT : 0);

	/* Only what is there now: a background process may never stop writing. */
	if (j->out >= 0 && ioctl(j->out, FIONREAD, &left) < 0)
		left = 0;
	while (left > 0) {
		size_t n = send_output(a, (size_t)left);

		if (!n)
			break;
		left -= (int)n;
	}
	send_frame(a, 'E', j->id, payload, sizeof(payload));
	if (j->out >= 0)
		adopt_pipe(a, j->out);
	j->out = -1;
}

static void abort_job(struct job *j)
{
	if (!j->active)
		return;
	kill(-j->pid, SIGKILL);
	reap(j);
	close_fd(&j->out);
}

/*
 * A shell ignores the keyboard's signals in what it starts in the background, and so did init with
 * us.
 */
static void default_signals(void)
{
	static const int signals[] = { SIGPIPE, SIGINT, SIGQUIT };

	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_DFL);
}

static void exec_shell(const char *command, int in, int out)
{
	setsid();
	default_signals();
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(127);
	execl("/bin/sh", "sh", "-c", PRELUDE "eval \"$1\"", "sh", command, (char *)NULL);
	_exit(127);
}

/* Returns 0 or -errno, with nothing left open. in[] and out[] are {read end, write end}. */
static int spawn(struct job *j, const char *command, int in[2], int out[2])
{
	int flags;

	j->pid = fork();
	if (j->pid < 0)
		return -errno;
	if (!j->pid)
		exec_shell(command, in[0], out[1]);
	setpgid(j->pid, j->pid); /* a kill may come before the child's setsid() */
	j->pidfd = (int)syscall(SYS_pidfd_open, j->pid, 0);
	if (j->pidfd < 0) {
		int err = errno;

		kill(j->pid, SIGKILL);
		reap(j);
		return -err;
	}
	flags = fcntl(in[1], F_GETFL);
	fcntl(in[1], F_SETFL, flags | O_NONBLOCK);
	return 0;
}

static int start_job(struct job *j, uint32_t limit_ms, bool with_stdin, const char *command)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	int err = 0;

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		err = -errno;
	if (!err)
		err = spawn(j, command, in, out);
	close_fd(&in[0]);
	close_fd(&out[1]);
	if (err || !with_stdin)
		close_fd(&in[1]);
	if (err) {
		close_fd(&out[0]);
		return err;
	}
	j->in = in[1];
	j->out = out[0];
	j->in_len = 0;
	j->stdin_end = !with_stdin;
	j->expired = false;
	j->deadline_ms = limit_ms ? now_ms() + limit_ms : 0;
	j->active = true;
	return 0;
}

static void on_run(struct agent *a, uint32_t id, const uint8_t *p, size_t len)
{
	char *command;
	int err;

	if (len < RUN_HEADER || a->job.active) {
		send_text(a, 'N', id, len < RUN_HEADER ? "bad request" : "a command is running");
		return;
	}
	command = strndup((const char *)p + RUN_HEADER, len - RUN_HEADER);
	err = command ? start_job(&a->job, get_le32(p), p[4] & RUN_STDIN, command) : -ENOMEM;
	free(command);
	a->job.id = id;
	if (err)
		send_text(a, 'N', id, strerror(-err));
}

static void on_stdin(struct agent *a, uint32_t id, const uint8_t *p, size_t len)
{
	struct job *j = &a->job;

	if (!j->active || id != j->id || j->stdin_end)
		return; /* the command ended while its input was on the way */
	if (j->in < 0) {
		ack_stdin(a, (uint32_t)len);
		return;
	}
	if (len > STDIN_MAX - j->in_len) {
		send_text(a, 'N', id, "more input than was acknowledged");
		return;
	}
	memcpy(j->in_buf + j->in_len, p, len);
	j->in_len += len;
}

static void on_stdin_end(struct agent *a, uint32_t id)
{
	struct job *j = &a->job;

	if (!j->active || id != j->id)
		return;
	j->stdin_end = true;
	if (!j->in_len)
		close_fd(&j->in);
}

static void on_frame(struct agent *a)
{
	uint8_t *f = a->rx;
	size_t len = a->rx_len;
	uint32_t id;

	if (!len)
		return;
	if (len < HEADER + TRAILER ||
	    ~crc32_add(~0u, f, len - TRAILER) != get_le32(f + len - TRAILER)) {
		send_text(a, 'N', 0, "damaged frame");
		return;
	}
	id = get_le32(f + 1);
	len -= HEADER + TRAILER;
	switch (f[0]) {
	case 'H':
		abort_job(&a->job);
		send_hello(a, id);
		break;
	case 'R':
		on_run(a, id, f + HEADER, len);
		break;
	case 'D':
		on_stdin(a, id, f + HEADER, len);
		break;
	case 'Z':
		on_stdin_end(a, id);
		break;
	default:
		send_text(a, 'N', id, "unknown request");
	}
}

static void on_byte(struct agent *a, uint8_t c)
{
	if (c == FLAG) {
		on_frame(a);
		a->rx_len = 0;
		a->rx_esc = false;
	} else if (c == ESC) {
		a->rx_esc = true;
	} else if (a->rx_len < FRAME_MAX) {
		a->rx[a->rx_len++] = a->rx_esc ? c ^ ESC_XOR : c;
		a->rx_esc = false;
	}
}

static void read_tty(struct agent *a)
{
	uint8_t buf[4096];
	ssize_t n = read(a->tty, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0)
		exit(EXIT_FAILURE);
	for (ssize_t i = 0; i < n; i++)
		on_byte(a, buf[i]);
}

static int poll_timeout(struct job *j)
{
	uint64_t now;

	if (!j->active || !j->deadline_ms || j->expired)
		return -1;
	now = now_ms();
	if (now < j->deadline_ms)
		return j->deadline_ms - now < 60000 ? (int)(j->deadline_ms - now) : 60000;
	j->expired = true;
	kill(-j->pid, SIGKILL);
	return -1;
}

/* The port last: a frame may replace the command, whose descriptors must be those polled. */
static void serve(struct agent *a)
{
	struct job *j = &a->job;
	int timeout = poll_timeout(j);
	struct pollfd fds[4 + ORPHANS] = {
		{ .fd = a->tty, .events = POLLIN },
		{ .fd = j->active ? j->out : -1, .events = POLLIN },
		{ .fd = j->active && j->in_len ? j->in : -1, .events = POLLOUT },
		{ .fd = j->active ? j->pidfd : -1, .events = POLLIN },
	};

	for (int i = 0; i < ORPHANS; i++)
		fds[4 + i] = (struct pollfd){ .fd = a->orphans[i], .events = POLLIN };
	if (poll(fds, 4 + ORPHANS, timeout) <= 0)
		return;
	for (int i = 0; i < ORPHANS; i++)
		if (fds[4 + i].revents)
			drain_orphan(&a->orphans[i]);
	if (fds[1].revents && !send_output(a, CHUNK))
		close_fd(&j->out);
	if (fds[2].revents)
		feed_stdin(a);
	if (fds[3].revents)
		finish_job(a);
	if (fds[0].revents)
		read_tty(a);
}

static int open_port(const char *path)
{
	struct serial_struct ss;
	struct termios t;
	int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (!ioctl(fd, TIOCGSERIAL, &ss) && ss.type == PORT_UNKNOWN)
		return -1; /* a node without a UART */
	if (tcgetattr(fd, &t) < 0)
		return -1;
	cfmakeraw(&t);
	t.c_iflag |= IGNBRK;
	t.c_cflag |= CLOCAL | CREAD;
	cfsetspeed(&t, B115200);
	if (tcsetattr(fd, TCSANOW, &t) < 0)
		return -1;
	return fd;
}

int main(int argc, char **argv)
{
	static struct agent a;

	if (argc > 2 && !strcmp(argv[1], "--exec")) {
		default_signals();
		execvp(argv[2], &argv[2]);
		perror(argv[2]);
		return EXIT_FAILURE;
	}
	if (argc != 2) {
		fprintf(stderr, "usage: agent DEVICE\n       agent --exec COMMAND... (with default "
				"signals)\n");
		return EXIT_FAILURE;
	}
	a.tty = open_port(argv[1]);
	if (a.tty < 0)
		return EXIT_NO_PORT;
	for (int i = 0; i < ORPHANS; i++)
		a.orphans[i] = -1;
	a.job.in = a.job.out = a.job.pidfd = -1;
	signal(SIGPIPE, SIG_IGN);
	send_hello(&a, 0);
	for (;;)
		serve(&a);
}
