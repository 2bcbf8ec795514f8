/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whole serial lines, both directions at full speed at once: a guest's driver in one thread, the
 * host end's loop and writer in theirs, and peers that read and write chunks of random sizes.
 *
 * The driver works as Linux's does: it sleeps until an edge of its interrupt line, then handles
 * causes until there are none, but a few at most. So a lost edge is a hung test, which gives up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "devices/serial.h"
#include "tests/unit/libfront.h"
#include "vmm/console.h"
#include "vmm/serial_socket.h"
#include "vmm/util.h"

#define MOST	   1048576u
#define PASS_LIMIT 3u /* Linux: 512 */
#define PATIENCE_S 20

struct line {
	struct chardev *chardev;
	struct platform platform;
	struct serial serial;
	size_t len; /* to move, each way */
	bool escapes;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool level;
	unsigned edges;

	/* The guest's. */
	uint8_t ier;
	bool reset_midway;
	size_t sent;
	size_t received;
	bool gave_up;

	int to_guest; /* the peer's ends */
	int from_guest;
	size_t peer_sent;
	size_t peer_received;
	bool peer_wrong;
};

/* What each side sends: no two stretches alike. A terminal's user sends no Ctrl-A by accident. */
static uint8_t guest_byte(size_t i)
{
	return i * 31 + (i >> 8) * 7 + (i >> 16);
}

static uint8_t peer_byte(const struct line *line, size_t i)
{
	uint8_t byte = i * 17 + (i >> 8) * 5 + (i >> 16) * 3;

	return line->escapes && byte == 1 ? 2 : byte;
}

static void set_irq_line(void *ctx, unsigned input, bool level)
{
	struct line *line = ctx;

	(void)input;
	pthread_mutex_lock(&line->lock);
	if (level && !line->level) {
		line->edges++;
		pthread_cond_signal(&line->changed);
	}
	line->level = level;
	pthread_mutex_unlock(&line->lock);
}

static const struct platform_ops platform_ops = { .irq_line = set_irq_line };

/* Waits for another edge than the `seen` ones; returns how many there are, or `seen`. */
static unsigned wait_edge(struct line *line, unsigned seen)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&line->lock);
	while (line->edges == seen && !pthread_cond_timedwait(&line->changed, &line->lock, &until))
		;
	seen = line->edges;
	pthread_mutex_unlock(&line->lock);
	return seen;
}

static uint8_t in(struct line *line, unsigned reg)
{
	uint8_t value;

	serial_bus_ops.read(&line->serial, reg, &value, 1);
	return value;
}

static void out(struct line *line, unsigned reg, uint8_t value)
{
	serial_bus_ops.write(&line->serial, reg, &value, 1);
}

static void start_port(struct line *line)
{
	out(line, 2, 0x81);
	out(line, 4, 0x0b);
	line->ier = 0x03;
	out(line, 1, line->ier);
}

static bool handle_cause(struct line *line)
{
	uint8_t lsr;

	if (in(line, 2) & 1)
		return false;
	lsr = in(line, 5);
	while (lsr & 1) {
		if (in(line, 0) != peer_byte(line, line->received))
			line->peer_wrong = true;
		line->received++;
		lsr = in(line, 5);
	}
	if ((lsr & 0x20) && (line->ier & 0x02)) {
		for (unsigned i = 0; i < SERIAL_FIFO && line->sent < line->len; i++)
			out(line, 0, guest_byte(line->sent++));
		if (line->sent == line->len) {
			line->ier &= ~0x02;
			out(line, 1, line->ier);
		}
	}
	return true;
}

static void reset(struct line *line)
{
	line->reset_midway = false;
	/* What is in the FIFO would be lost, as on any machine: the guest reads that first. */
	out(line, 1, 0);
	while (in(line, 5) & 1) {
		in(line, 0);
		line->received++;
	}
	serial_fini(&line->serial);
	serial_init(&line->serial, line->chardev, &line->platform, 4);
	start_port(line);
}

static void *guest_main(void *arg)
{
	struct line *line = arg;
	unsigned seen = 0;

	start_port(line);
	while (line->sent < line->len || line->received < line->len) {
		unsigned edges = wait_edge(line, seen);

		if (edges == seen) {
			line->gave_up = true;
			break;
		}
		seen = edges;
		for (unsigned pass = 0; pass < PASS_LIMIT && handle_cause(line); pass++)
			;
		if (line->reset_midway && line->sent > line->len / 2)
			reset(line);
	}
	return NULL;
}

static size_t random_chunk(unsigned *seed)
{
	unsigned random = rand_r(seed);

	return 1 + (random >> 8) % (random & 1 ? 20 : 5000);
}

static void *peer_sends(void *arg)
{
	struct line *line = arg;
	unsigned seed = 3;

	while (line->peer_sent < line->len && wait_fd(line->to_guest, POLLOUT)) {
		uint8_t data[5000];
		size_t random = random_chunk(&seed);
		size_t chunk = MIN(random, line->len - line->peer_sent);
		ssize_t n;

		for (size_t i = 0; i < chunk; i++)
			data[i] = peer_byte(line, line->peer_sent + i);
		n = write(line->to_guest, data, chunk);
		line->peer_sent += MAX(n, 0);
	}
	return NULL;
}

static void *peer_receives(void *arg)
{
	struct line *line = arg;
	unsigned seed = 4;

	while (line->peer_received < line->len && wait_fd(line->from_guest, POLLIN)) {
		uint8_t data[5000];
		ssize_t n = read(line->from_guest, data, random_chunk(&seed));

		for (ssize_t i = 0; i < n; i++) {
			if (data[i] != guest_byte(line->peer_received++))
				line->peer_wrong = true;
		}
	}
	return NULL;
}

static struct line *new_line(struct chardev *chardev, size_t len, int to_guest, int from_guest)
{
	struct line *line = calloc(1, sizeof(*line));

	line->chardev = chardev;
	line->len = len;
	line->to_guest = to_guest;
	line->from_guest = from_guest;
	line->platform = (struct platform){ .ops = &platform_ops, .ctx = line };
	pthread_mutex_init(&line->lock, NULL);
	pthread_cond_init(&line->changed, NULL);
	serial_init(&line->serial, chardev, &line->platform, 4);
	return line;
}

static void run_line(struct line *line)
{
	void *(*const mains[])(void *) = { guest_main, peer_sends, peer_receives };
	pthread_t threads[ARRAY_SIZE(mains)];

	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, mains[i], line), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		pthread_join(threads[i], NULL);
	assert_false(line->gave_up);
	assert_false(line->peer_wrong);
	assert_int_equal(line->received, line->len);
	assert_int_equal(line->peer_received, line->len);
}

static void end_line(struct line *line)
{
	serial_fini(&line->serial);
	pthread_cond_destroy(&line->changed);
	pthread_mutex_destroy(&line->lock);
	free(line);
}

static void no_quit(void *ctx)
{
	(void)ctx;
	abort();
}

/* The console reads in_fd and writes out_fd; the peer has to_guest and from_guest. */
static void run_console(size_t len, int in_fd, int to_guest, int out_fd, int from_guest,
			bool reset_midway)
{
	struct console *console = malloc(sizeof(*console));
	struct worker worker;
	struct line *line;

	assert_int_equal(worker_init(&worker, "test", NULL), 0);
	console_init(console);
	line = new_line(&console->chardev, len, to_guest, from_guest);
	line->escapes = isatty(in_fd);
	line->reset_midway = reset_midway;
	assert_int_equal(console_start(console, &worker.loop, in_fd, out_fd, no_quit, NULL), 0);
	assert_int_equal(worker_start(&worker), 0);
	run_line(line);
	worker_stop(&worker);
	end_line(line);
	console_stop(console, true, -1);
	console_fini(console);
	worker_fini(&worker);
	free(console);
}

static void test_pipes(void **state)
{
	int in_fds[2];
	int out_fds[2];

	(void)state;
	assert_int_equal(pipe(in_fds) | pipe(out_fds), 0);
	run_console(MOST, in_fds[0], in_fds[1], out_fds[1], out_fds[0], false);
	for (unsigned i = 0; i < 2; i++) {
		close(in_fds[i]);
		close(out_fds[i]);
	}
}

static void test_pipes_with_a_reset(void **state)
{
	int in_fds[2];
	int out_fds[2];

	(void)state;
	assert_int_equal(pipe(in_fds) | pipe(out_fds), 0);
	run_console(MOST / 16, in_fds[0], in_fds[1], out_fds[1], out_fds[0], true);
	for (unsigned i = 0; i < 2; i++) {
		close(in_fds[i]);
		close(out_fds[i]);
	}
}

static void test_socketpair(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	run_console(MOST / 16, fds[0], fds[1], fds[0], fds[1], false);
	close(fds[0]);
	close(fds[1]);
}

static void test_terminal(void **state)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	int slave;

	(void)state;
	assert_int_equal(grantpt(master) | unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(slave >= 0);
	/* Else the peer could block in a write that the terminal has room for only in part. */
	fcntl(master, F_SETFL, O_NONBLOCK);
	run_console(MOST / 16, slave, master, slave, master, false);
	close(slave);
	close(master);
}

static void test_socket(void **state)
{
	struct serial_socket *serial = malloc(sizeof(*serial));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *tmp = getenv("TMPDIR");
	char path[100];
	struct worker worker;
	struct line *line;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	snprintf(path, sizeof(path), "%.32s/whelp-test-%d", tmp ? tmp : "/tmp", (int)getpid());
	assert_int_equal(worker_init(&worker, "test", NULL), 0);
	serial_socket_init(serial);
	assert_int_equal(serial_socket_open(serial, &worker.loop, path), 0);
	strcpy(address.sun_path, path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	/* The client must be known before the guest speaks. */
	serial->listener.ready(&serial->listener, POLLIN);
	line = new_line(&serial->chardev, MOST / 16, fd, fd);
	assert_int_equal(worker_start(&worker), 0);
	run_line(line);
	worker_stop(&worker);
	serial_socket_close(serial);
	end_line(line);
	serial_socket_fini(serial);
	worker_fini(&worker);
	close(fd);
	free(serial);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipes),	   cmocka_unit_test(test_pipes_with_a_reset),
		cmocka_unit_test(test_socketpair), cmocka_unit_test(test_terminal),
		cmocka_unit_test(test_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
