/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The console on terminals, pipes, files and nothing. Its loop runs in a thread of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include "tests/unit/libfront.h"
#include "vmm/console.h"
#include "vmm/util.h"

struct rig {
	struct console console;
	struct worker worker;
	struct front front;
	int quit_fd; /* eventfd */
	int in[2];   /* the console reads [0]; a terminal's slave and master */
	int out[2];  /* the console writes [1] */
};

static void on_quit(void *ctx)
{
	struct rig *rig = ctx;

	eventfd_write(rig->quit_fd, 1);
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	rig->quit_fd = eventfd(0, EFD_NONBLOCK);
	rig->in[0] = rig->in[1] = -1;
	worker_init(&rig->worker, "test", NULL);
	console_init(&rig->console);
	front_attach(&rig->front, &rig->console.chardev, 100000);
	*state = rig;
	return pipe(rig->out);
}

static void start(struct rig *rig)
{
	assert_int_equal(console_start(&rig->console, &rig->worker.loop, rig->in[0], rig->out[1],
				       on_quit, rig),
			 0);
	assert_int_equal(worker_start(&rig->worker), 0);
}

static void stop(struct rig *rig, bool drain, int cancel_fd)
{
	worker_stop(&rig->worker);
	console_stop(&rig->console, drain, cancel_fd);
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	stop(rig, false, -1);
	front_detach(&rig->front);
	console_fini(&rig->console);
	worker_fini(&rig->worker);
	for (unsigned i = 0; i < 2; i++) {
		if (rig->in[i] >= 0)
			close(rig->in[i]);
		if (rig->out[i] >= 0)
			close(rig->out[i]);
	}
	close(rig->quit_fd);
	free(rig);
	return 0;
}

static void put(int fd, const void *data, size_t len)
{
	assert_int_equal(write(fd, data, len), len);
}

static void assert_received(struct rig *rig, const void *data, size_t len)
{
	assert_true(front_wait_received(&rig->front, len));
	assert_int_equal(rig->front.received, len);
	assert_memory_equal(rig->front.data, data, len);
}

static void test_terminal_is_raw_and_restored(void **state)
{
	struct rig *rig = *state;
	struct termios before;

	assert_int_equal(open_pty(rig->in), 0);
	tcgetattr(rig->in[0], &before);
	assert_false(is_raw(rig->in[0]));
	start(rig);
	assert_true(is_raw(rig->in[0]));
	assert_false(fcntl(rig->in[0], F_GETFL) & O_NONBLOCK);
	put(rig->in[1], "\003\032\r\004\021", 5); /* Ctrl-C, Ctrl-Z, return, Ctrl-D, Ctrl-Q */
	assert_received(rig, "\003\032\r\004\021", 5);
	stop(rig, true, -1);
	assert_true(has_settings(rig->in[0], &before));
}

static void test_suspend_and_resume(void **state)
{
	struct rig *rig = *state;
	struct termios before;

	assert_int_equal(open_pty(rig->in), 0);
	tcgetattr(rig->in[0], &before);
	start(rig);
	worker_stop(&rig->worker);
	console_suspend(&rig->console);
	assert_true(has_settings(rig->in[0], &before));
	console_resume(&rig->console);
	assert_true(is_raw(rig->in[0]));
	/* Somebody changed them meanwhile: what counts is what was there at first. */
	tcsetattr(rig->in[0], TCSANOW, &before);
	console_resume(&rig->console);
	assert_true(is_raw(rig->in[0]));
	console_stop(&rig->console, true, -1);
	assert_true(has_settings(rig->in[0], &before));
}

/* A failed start is cleaned up by the same calls. */
static void test_failed_start_restores(void **state)
{
	struct rig *rig = *state;
	struct termios before;
	struct loop closed = { .epoll_fd = -1, .stop_fd = -1 };
	char text[256];

	assert_int_equal(open_pty(rig->in), 0);
	tcgetattr(rig->in[0], &before);
	capture_begin();
	assert_true(console_start(&rig->console, &closed, rig->in[0], rig->out[1], on_quit, rig) <
		    0);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	console_stop(&rig->console, true, -1);
	assert_true(has_settings(rig->in[0], &before));
}

static void test_escapes(void **state)
{
	struct rig *rig = *state;
	char text[256];

	assert_int_equal(open_pty(rig->in), 0);
	start(rig);
	capture_begin();
	put(rig->in[1], "a\001ab\001\001c\001h\001de\001", 13);
	put(rig->in[1], "ax", 2); /* an escape in two reads; an x of its own */
	assert_received(rig, "a\001b\001c\001de\001x", 10);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "Ctrl-A x"));
	assert_int_equal(poll(&(struct pollfd){ .fd = rig->quit_fd, .events = POLLIN }, 1, 0), 0);

	put(rig->in[1], "y\001xz", 4);
	assert_true(wait_fd(rig->quit_fd, POLLIN));
	stop(rig, true, -1);
	assert_int_equal(rig->front.received, 10);
}

/* A guest that does not read must not keep the user from quitting. */
static void test_quit_while_guest_is_deaf(void **state)
{
	struct rig *rig = *state;

	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 0);
	assert_int_equal(open_pty(rig->in), 0);
	start(rig);
	for (unsigned i = 0; i < 50; i++)
		put(rig->in[1], "hello, is anybody there?\r", 25);
	put(rig->in[1], "\001x", 2);
	assert_true(wait_fd(rig->quit_fd, POLLIN));
	assert_int_equal(rig->front.received, 0);
}

/* Much more than is read ahead, against a guest that takes little at a time. */
static void test_paste(void **state)
{
	struct rig *rig = *state;
	uint8_t text[20000];
	size_t put_so_far = 0;
	size_t received = 0;

	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 0);
	for (unsigned i = 0; i < sizeof(text); i++)
		text[i] = 2 + i % 250; /* no Ctrl-A */
	assert_int_equal(open_pty(rig->in), 0);
	fcntl(rig->in[1], F_SETFL, O_NONBLOCK);
	start(rig);
	while (received < sizeof(text)) {
		ssize_t n =
			write(rig->in[1], text + put_so_far, MIN(sizeof(text) - put_so_far, 500u));

		size_t target;

		put_so_far += MAX(n, 0);
		target = MIN(received + 1, put_so_far);
		front_add_room(&rig->front, 100);
		assert_true(front_wait_received(&rig->front, target));
		received = rig->front.received;
	}
	assert_received(rig, text, sizeof(text));
}

/* Types `text` and lets the console, whose loop is not running, read until it holds `held` bytes.
 */
static void type_until(struct rig *rig, const char *text, size_t len, size_t held)
{
	put(rig->in[1], text, len);
	do {
		assert_true(wait_fd(rig->in[0], POLLIN));
		rig->console.input.ready(&rig->console.input, POLLIN);
	} while (rig->console.in_used < held);
	assert_int_equal(rig->console.in_used, held);
}

/* A Ctrl-A that turns out to be no escape needs room, too. */
static void test_escape_when_full(void **state)
{
	struct rig *rig = *state;
	char zs[CONSOLE_INPUT_SIZE];

	memset(zs, 'z', sizeof(zs));
	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 0);
	assert_int_equal(open_pty(rig->in), 0);
	assert_int_equal(console_start(&rig->console, &rig->worker.loop, rig->in[0], rig->out[1],
				       on_quit, rig),
			 0);
	type_until(rig, zs, sizeof(zs) - 6, sizeof(zs) - 6);
	type_until(rig, "\001", 1, sizeof(zs) - 6);
	assert_true(rig->console.escape);
	type_until(rig, zs, 20, sizeof(zs));
	front_add_room(&rig->front, sizeof(zs));
	assert_int_equal(worker_start(&rig->worker), 0);
	assert_true(front_wait_received(&rig->front, sizeof(zs)));
	assert_memory_equal(rig->front.data, zs, sizeof(zs) - 6);
	assert_memory_equal(rig->front.data + sizeof(zs) - 6, "\001zzzzz", 6);
}

static void test_terminal_hangs_up(void **state)
{
	struct rig *rig = *state;
	uint8_t byte;

	assert_int_equal(open_pty(rig->in), 0);
	start(rig);
	put(rig->in[1], "bye", 3);
	assert_received(rig, "bye", 3);
	close(rig->in[1]);
	rig->in[1] = -1;
	chardev_write(&rig->console.chardev, (const uint8_t *)"x", 1);
	assert_int_equal(read_exactly(rig->out[0], &byte, 1), 1);
	stop(rig, true, -1);
	assert_true(rig->console.ended);
}

static void test_pipe_is_verbatim(void **state)
{
	struct rig *rig = *state;
	uint8_t all[256];

	for (unsigned i = 0; i < 256; i++)
		all[i] = i;
	assert_int_equal(pipe(rig->in), 0);
	start(rig);
	put(rig->in[1], all, 256);
	put(rig->in[1], "\001x\001a\001h", 6);
	assert_true(front_wait_received(&rig->front, 262));
	assert_memory_equal(rig->front.data, all, 256);
	assert_memory_equal(rig->front.data + 256, "\001x\001a\001h", 6);
	assert_false(fcntl(rig->in[0], F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(rig->out[1], F_GETFL) & O_NONBLOCK);
	assert_int_equal(poll(&(struct pollfd){ .fd = rig->quit_fd, .events = POLLIN }, 1, 0), 0);
}

/* What the guest does not take stays in the pipe, and survives its reset there. */
static void test_pipe_is_not_read_ahead(void **state)
{
	struct rig *rig = *state;
	int left;

	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 5);
	assert_int_equal(pipe(rig->in), 0);
	put(rig->in[1], "0123456789", 10);
	close(rig->in[1]);
	rig->in[1] = -1;
	start(rig);
	assert_received(rig, "01234", 5);
	worker_stop(&rig->worker);
	assert_int_equal(ioctl(rig->in[0], FIONREAD, &left), 0);
	assert_int_equal(left, 5);

	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 100);
	rig->console.input.ready(&rig->console.input, POLLIN);
	assert_received(rig, "56789", 5);
}

/* However the room changes meanwhile, no more is read than the console's buffer holds. */
static void test_room_grows_meanwhile(void **state)
{
	struct rig *rig = *state;
	uint8_t data[5 * CONSOLE_INPUT_SIZE];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = i * 13;
	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 0);
	assert_int_equal(pipe(rig->in), 0);
	start(rig);
	put(rig->in[1], data, sizeof(data));
	front_grow_room(&rig->front, sizeof(data));
	assert_received(rig, data, sizeof(data));
}

static void test_reset_keeps_both_ways(void **state)
{
	struct rig *rig = *state;
	uint8_t got[4];

	assert_int_equal(pipe(rig->in), 0);
	start(rig);
	chardev_write(&rig->console.chardev, (const uint8_t *)"ab", 2);
	front_detach(&rig->front);
	put(rig->in[1], "waiting", 7);
	front_attach(&rig->front, &rig->console.chardev, 100);
	chardev_write(&rig->console.chardev, (const uint8_t *)"cd", 2);
	assert_int_equal(read_exactly(rig->out[0], got, 4), 4);
	assert_memory_equal(got, "abcd", 4);
	assert_received(rig, "waiting", 7);
}

static void test_end_of_input(void **state)
{
	struct rig *rig = *state;
	uint8_t got[3];
	char text[256];

	assert_int_equal(pipe(rig->in), 0);
	put(rig->in[1], "last", 4);
	close(rig->in[1]);
	rig->in[1] = -1;
	capture_begin();
	start(rig);
	assert_received(rig, "last", 4);
	chardev_write(&rig->console.chardev, (const uint8_t *)"on!", 3);
	assert_int_equal(read_exactly(rig->out[0], got, 3), 3);
	stop(rig, true, -1);
	assert_int_equal(capture_end(text, sizeof(text)), 0);
	assert_true(rig->console.ended);
}

static void test_regular_file(void **state)
{
	struct rig *rig = *state;
	uint8_t data[50000];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = i * 13;
	rig->in[0] = memfd_create("input", 0);
	put(rig->in[0], data, sizeof(data));
	lseek(rig->in[0], 0, SEEK_SET);
	front_detach(&rig->front);
	front_attach(&rig->front, &rig->console.chardev, 0);
	start(rig);
	for (unsigned i = 0; i < 50; i++) {
		front_add_room(&rig->front, 1000);
		assert_true(front_wait_received(&rig->front, (i + 1) * 1000));
		/* No further than that. */
		assert_int_equal(lseek(rig->in[0], 0, SEEK_CUR), (i + 1) * 1000);
	}
	assert_received(rig, data, sizeof(data));
	front_add_room(&rig->front, 1000);
	stop(rig, true, -1);
	assert_int_equal(rig->front.received, sizeof(data));
}

/* No input at all, and what is said about it. */
static void test_no_input(void **state)
{
	static const struct {
		const char *path; /* NULL: closed */
		unsigned lines;
	} table[] = { { "/dev/null", 0 }, { NULL, 0 }, { "/", 1 } };

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		struct rig *rig;
		char text[256];
		uint8_t got;

		setup(state);
		rig = *state;
		if (table[i].path)
			rig->in[0] = open(table[i].path, O_RDONLY);
		capture_begin();
		start(rig);
		chardev_write(&rig->console.chardev, (const uint8_t *)"x", 1);
		assert_int_equal(read_exactly(rig->out[0], &got, 1), 1);
		/* Whether the loop had its turn already or not, it has now. */
		worker_stop(&rig->worker);
		if (rig->console.wake.fd >= 0)
			rig->console.input.ready(&rig->console.input, POLLIN);
		assert_int_equal(capture_end(text, sizeof(text)), table[i].lines);
		assert_true(rig->console.ended);
		assert_int_equal(rig->front.received, 0);
		teardown(state);
	}
}

static void test_reader_gone(void **state)
{
	struct rig *rig = *state;
	char text[512];
	size_t taken;

	rig->in[0] = open("/dev/null", O_RDONLY);
	taken = front_fill(&rig->front, 1); /* before the start: it stays in the buffer */
	assert_int_equal(taken, BYTE_RING_SIZE);
	close(rig->out[0]);
	rig->out[0] = -1;
	capture_begin();
	start(rig);
	/* The guest was waiting, and goes on; nothing holds it up from now on. */
	assert_true(front_wait_writables(&rig->front, 1));
	for (unsigned i = 0; i < 10 * BYTE_RING_SIZE / 16; i++)
		assert_int_equal(chardev_write(&rig->console.chardev, (const uint8_t *)text, 16),
				 16);
	assert_true(chardev_room(&rig->console.chardev) >= CHARDEV_BURST);
	stop(rig, true, -1);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "standard output"));
}

/* Fills pipe and buffer: from then on the writer is blocked. Returns how many bytes there are. */
static size_t stuff(struct rig *rig)
{
	struct pollfd pollfd = { .fd = rig->out[1], .events = POLLOUT };
	size_t total = 0;

	for (;;) {
		unsigned seen = front_writables(&rig->front);

		total += front_fill(&rig->front, total);
		if (!poll(&pollfd, 1, 0))
			return total;
		assert_true(front_wait_writables(&rig->front, seen + 1));
	}
}

static void test_stuck_reader(void **state)
{
	struct rig *rig = *state;

	rig->in[0] = open("/dev/null", O_RDONLY);
	start(rig);
	assert_true(stuff(rig) > BYTE_RING_SIZE);
	stop(rig, false, -1);
	assert_false(rig->console.writing);
}

static void test_stuck_reader_is_cancelled(void **state)
{
	struct rig *rig = *state;
	int cancel_fd = eventfd(0, 0);

	rig->in[0] = open("/dev/null", O_RDONLY);
	start(rig);
	stuff(rig);
	eventfd_write(cancel_fd, 1);
	stop(rig, true, cancel_fd);
	assert_false(rig->console.writing);
	assert_true(wait_fd(cancel_fd, POLLIN)); /* not read */
	close(cancel_fd);
}

static void *read_all(void *arg)
{
	struct rig *rig = arg;
	static uint8_t data[FRONT_SIZE];
	size_t *count = malloc(sizeof(*count));

	*count = read_exactly(rig->out[0], data, sizeof(data));
	return count;
}

static void test_drain_waits_for_a_late_reader(void **state)
{
	struct rig *rig = *state;
	size_t total;
	size_t *count;
	pthread_t reader;

	rig->in[0] = open("/dev/null", O_RDONLY);
	start(rig);
	total = stuff(rig);
	pthread_create(&reader, NULL, read_all, rig);
	stop(rig, true, -1);
	close(rig->out[1]);
	rig->out[1] = -1;
	pthread_join(reader, (void **)&count);
	assert_int_equal(*count, total);
	free(count);
}

/* A terminal that nobody reads blocks otherwise than a pipe. */
static void test_stuck_terminal(void **state)
{
	struct rig *rig = *state;
	struct termios before;

	assert_int_equal(open_pty(rig->in), 0);
	tcgetattr(rig->in[0], &before);
	close(rig->out[1]);
	rig->out[1] = dup(rig->in[0]);
	start(rig);
	while (front_fill(&rig->front, 0) != 0)
		;
	stop(rig, false, -1);
	assert_true(has_settings(rig->in[0], &before));
}

static void test_non_blocking_output(void **state)
{
	struct rig *rig = *state;
	uint8_t data[BYTE_RING_SIZE + 65536];
	size_t total;

	rig->in[0] = open("/dev/null", O_RDONLY);
	fcntl(rig->out[1], F_SETFL, O_NONBLOCK);
	start(rig);
	total = stuff(rig);
	assert_int_equal(read_exactly(rig->out[0], data, total), total);
	assert_true(fcntl(rig->out[1], F_GETFL) & O_NONBLOCK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_terminal_is_raw_and_restored),
		TEST(test_suspend_and_resume),
		TEST(test_failed_start_restores),
		TEST(test_escapes),
		TEST(test_quit_while_guest_is_deaf),
		TEST(test_paste),
		TEST(test_escape_when_full),
		TEST(test_terminal_hangs_up),
		TEST(test_pipe_is_verbatim),
		TEST(test_pipe_is_not_read_ahead),
		TEST(test_room_grows_meanwhile),
		TEST(test_reset_keeps_both_ways),
		TEST(test_end_of_input),
		TEST(test_regular_file),
		cmocka_unit_test(test_no_input),
		TEST(test_reader_gone),
		TEST(test_stuck_reader),
		TEST(test_stuck_reader_is_cancelled),
		TEST(test_drain_waits_for_a_late_reader),
		TEST(test_stuck_terminal),
		TEST(test_non_blocking_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
