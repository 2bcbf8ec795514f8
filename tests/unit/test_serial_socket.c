/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * COM2's socket: its file, and clients that come, go, and do not read. Its loop runs in a thread of
 * its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/libfront.h"
#include "vmm/serial_socket.h"
#include "vmm/util.h"

struct rig {
	struct serial_socket serial;
	struct worker worker;
	struct front front;
	char dir[64];
	char path[80];
};

static void bring_up(struct rig *rig)
{
	worker_init(&rig->worker, "test", NULL);
	serial_socket_init(&rig->serial);
	front_attach(&rig->front, &rig->serial.chardev, 100000);
}

static void take_down(struct rig *rig)
{
	worker_stop(&rig->worker);
	serial_socket_close(&rig->serial);
	front_detach(&rig->front);
	serial_socket_fini(&rig->serial);
	worker_fini(&rig->worker);
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	const char *tmp = getenv("TMPDIR");

	if (!tmp || strlen(tmp) > 32)
		tmp = "/tmp";
	snprintf(rig->dir, sizeof(rig->dir), "%s/whelp-test-XXXXXX", tmp);
	if (!mkdtemp(rig->dir))
		return -1;
	snprintf(rig->path, sizeof(rig->path), "%s/com2", rig->dir);
	bring_up(rig);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;
	int err;

	take_down(rig);
	unlink(rig->path);
	err = rmdir(rig->dir);
	free(rig);
	return err;
}

static void start(struct rig *rig)
{
	assert_int_equal(serial_socket_open(&rig->serial, &rig->worker.loop, rig->path), 0);
	assert_int_equal(worker_start(&rig->worker), 0);
}

static int try_client(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

static int client(struct rig *rig)
{
	int fd = try_client(rig->path);

	assert_true(fd >= 0);
	return fd;
}

static void put(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static void assert_got(int fd, const char *text)
{
	uint8_t got[64];

	assert_int_equal(read_exactly(fd, got, strlen(text)), strlen(text));
	assert_memory_equal(got, text, strlen(text));
}

static void guest_prints(struct rig *rig, const char *text)
{
	assert_int_equal(chardev_write(&rig->serial.chardev, (const uint8_t *)text, strlen(text)),
			 strlen(text));
}

/* A client that the loop knows: its input, the `total`th byte ever, has arrived. */
static void introduce(struct rig *rig, int fd, size_t total)
{
	put(fd, "?", 1);
	assert_true(front_wait_received(&rig->front, total));
}

/* The one line that refusing to open printed, with what it must name. */
static void assert_refused(struct rig *rig, const char *path, int err, const char *word)
{
	char text[512];
	int got;

	capture_begin();
	got = serial_socket_open(&rig->serial, &rig->worker.loop, path);
	assert_int_equal(capture_end(text, sizeof(text)), 1);
	assert_int_equal(got, err);
	assert_non_null(strstr(text, word));
	serial_socket_close(&rig->serial);
}

static void test_both_ways(void **state)
{
	struct rig *rig = *state;
	int fd;

	start(rig);
	fd = client(rig);
	put(fd, "hello\0\377\001x", 9);
	assert_true(front_wait_received(&rig->front, 9));
	assert_memory_equal(rig->front.data, "hello\0\377\001x", 9);
	guest_prints(rig, "login: ");
	assert_got(fd, "login: ");
	close(fd);
}

static void test_file_is_removed(void **state)
{
	struct rig *rig = *state;

	start(rig);
	assert_int_equal(access(rig->path, F_OK), 0);
	worker_stop(&rig->worker);
	serial_socket_close(&rig->serial);
	assert_int_equal(access(rig->path, F_OK), -1);
}

static void test_a_successors_file_is_left(void **state)
{
	struct rig *rig = *state;
	int fd;

	start(rig);
	unlink(rig->path);
	fd = open(rig->path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	worker_stop(&rig->worker);
	serial_socket_close(&rig->serial);
	assert_int_equal(access(rig->path, F_OK), 0);
}

static void test_stale_is_replaced(void **state)
{
	struct rig *rig = *state;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, rig->path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	close(fd);
	start(rig);
	fd = client(rig);
	introduce(rig, fd, 1);
	close(fd);
}

static void test_in_use(void **state)
{
	struct rig *rig = *state;
	static struct rig second;
	int fd;

	start(rig);
	bring_up(&second);
	assert_refused(&second, rig->path, -EADDRINUSE, "choose another");
	take_down(&second);
	/* The first one goes on. */
	fd = client(rig);
	introduce(rig, fd, 1);
	close(fd);
}

static void test_refused_paths(void **state)
{
	struct rig *rig = *state;
	char path[256];
	int fd = open(rig->path, O_CREAT | O_WRONLY, 0600);

	close(fd);
	assert_refused(rig, rig->path, -EEXIST, "not a socket");
	unlink(rig->path);
	assert_int_equal(symlink("/nonexistent", rig->path), 0);
	assert_refused(rig, rig->path, -EEXIST, "not a socket");
	unlink(rig->path);
	assert_refused(rig, rig->dir, -EEXIST, "not a socket");
	assert_refused(rig, "", -EINVAL, "empty");
	snprintf(path, sizeof(path), "%s/no/such/folder", rig->dir);
	assert_refused(rig, path, -ENOENT, "No such file");

	memset(path, 'x', sizeof(path));
	memcpy(path, rig->dir, strlen(rig->dir));
	path[strlen(rig->dir)] = '/';
	path[108] = '\0';
	assert_refused(rig, path, -ENAMETOOLONG, "107");
	path[107] = '\0';
	assert_int_equal(serial_socket_open(&rig->serial, &rig->worker.loop, path), 0);
	serial_socket_close(&rig->serial);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_no_client(void **state)
{
	struct rig *rig = *state;
	int fd;

	start(rig);
	for (unsigned i = 0; i < 20000; i++)
		guest_prints(rig, "nobody reads it\n");
	assert_true(chardev_room(&rig->serial.chardev) >= CHARDEV_BURST);
	fd = client(rig);
	introduce(rig, fd, 1);
	guest_prints(rig, "fresh");
	assert_got(fd, "fresh");
	close(fd);
}

static void test_reconnect(void **state)
{
	struct rig *rig = *state;

	start(rig);
	for (unsigned i = 1; i <= 20; i++) {
		int fd = client(rig);

		introduce(rig, fd, i);
		guest_prints(rig, "hi");
		assert_got(fd, "hi");
		close(fd);
	}
}

/* The second is let in when the first has left, and has missed what was before. */
static void test_second_client_waits(void **state)
{
	struct rig *rig = *state;
	int first;
	int second;

	start(rig);
	first = client(rig);
	introduce(rig, first, 1);
	second = client(rig);
	put(second, "2", 1);
	guest_prints(rig, "one");
	assert_got(first, "one");
	assert_int_equal(front_received(&rig->front), 1);
	assert_int_equal(poll(&(struct pollfd){ .fd = second, .events = POLLIN }, 1, 0), 0);
	close(first);
	assert_true(front_wait_received(&rig->front, 2));
	guest_prints(rig, "two");
	assert_got(second, "two");
	close(second);
}

static void test_half_closed_client_still_reads(void **state)
{
	struct rig *rig = *state;
	int fd;
	uint8_t byte;

	start(rig);
	fd = client(rig);
	put(fd, "ls\n", 3);
	shutdown(fd, SHUT_WR);
	assert_true(front_wait_received(&rig->front, 3));
	guest_prints(rig, "bin dev");
	assert_got(fd, "bin dev");
	worker_stop(&rig->worker);
	serial_socket_close(&rig->serial);
	assert_int_equal(read_exactly(fd, &byte, 1), 0);
	close(fd);
}

/* All that a client sent before it left arrives, at the guest's pace. */
static void test_leavers_input_arrives(void **state)
{
	struct rig *rig = *state;
	uint8_t data[30000];
	int fd;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = i * 11;
	front_detach(&rig->front);
	front_attach(&rig->front, &rig->serial.chardev, 1);
	start(rig);
	fd = client(rig);
	put(fd, data, sizeof(data));
	close(fd);
	/* Meanwhile the next client sees output, and its input comes after the leaver's. */
	fd = client(rig);
	put(fd, "next", 4);
	while (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1) == 0)
		guest_prints(rig, "x");
	for (unsigned i = 0; i < sizeof(data); i += 1000) {
		front_add_room(&rig->front, 1000);
		assert_true(front_wait_received(&rig->front, i + 1000));
	}
	front_add_room(&rig->front, 3);
	assert_true(front_wait_received(&rig->front, sizeof(data) + 4));
	assert_memory_equal(rig->front.data, data, sizeof(data));
	assert_memory_equal(rig->front.data + sizeof(data), "next", 4);
	close(fd);
}

/* However the room changes meanwhile, no more is read than the socket's buffer holds. */
static void test_room_grows_meanwhile(void **state)
{
	struct rig *rig = *state;
	uint8_t data[5000];
	int fd;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = i * 13;
	front_detach(&rig->front);
	front_attach(&rig->front, &rig->serial.chardev, 0);
	start(rig);
	fd = client(rig);
	put(fd, data, sizeof(data));
	front_grow_room(&rig->front, sizeof(data));
	assert_true(front_wait_received(&rig->front, sizeof(data)));
	assert_memory_equal(rig->front.data, data, sizeof(data));
	close(fd);
}

/* A guest that never listens does not keep later clients out. */
static void test_deaf_guest(void **state)
{
	struct rig *rig = *state;
	char text[1024];

	front_detach(&rig->front);
	front_attach(&rig->front, &rig->serial.chardev, 0);
	start(rig);
	capture_begin();
	for (unsigned i = 0; i < 4; i++) {
		int fd = client(rig);

		put(fd, "anybody?", 8);
		while (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1) == 0)
			guest_prints(rig, "x");
		assert_int_equal(front_received(&rig->front), 0);
		close(fd);
	}
	worker_stop(&rig->worker);
	assert_in_range(capture_end(text, sizeof(text)), 2,
			3); /* the last may not be noticed yet */
	assert_non_null(strstr(text, "dropped"));
}

static void test_slow_client_holds_the_guest_up(void **state)
{
	struct rig *rig = *state;
	static uint8_t expected[FRONT_SIZE * 4];
	static uint8_t got[FRONT_SIZE * 4];
	size_t printed = 0;
	size_t read_so_far = 0;
	int fd;

	start(rig);
	fd = client(rig);
	introduce(rig, fd, 1);
	while (printed < 600000) {
		unsigned seen = front_writables(&rig->front);

		while (chardev_room(&rig->serial.chardev) >= CHARDEV_BURST) {
			for (unsigned i = 0; i < CHARDEV_BURST; i++)
				expected[printed + i] = (printed + i) * 5 + printed / 256;
			printed += chardev_write(&rig->serial.chardev, expected + printed,
						 CHARDEV_BURST);
		}
		/* Full. It takes more only as the client reads; the kernel lets that be a lot
		 * first. */
		while (front_writables(&rig->front) == seen && read_so_far < printed)
			read_so_far += read_exactly(fd, got + read_so_far,
						    MIN(printed - read_so_far, 1000u));
		assert_true(front_wait_writables(&rig->front, seen + 1));
	}
	read_so_far += read_exactly(fd, got + read_so_far, printed - read_so_far);
	assert_int_equal(read_so_far, printed);
	assert_memory_equal(got, expected, printed);
	close(fd);
}

/* The guest is held up by a client that leaves without reading. */
static void test_stuck_client_leaves(void **state)
{
	struct rig *rig = *state;
	unsigned seen;
	int fd;

	start(rig);
	fd = client(rig);
	introduce(rig, fd, 1);
	do {
		seen = front_writables(&rig->front);
		front_fill(&rig->front, 0);
	} while (poll(&(struct pollfd){ .fd = rig->serial.client.fd, .events = POLLOUT }, 1, 0));
	seen = front_writables(&rig->front);
	front_fill(&rig->front, 0);
	close(fd);
	assert_true(front_wait_writables(&rig->front, seen + 1));
	assert_true(chardev_room(&rig->serial.chardev) >= CHARDEV_BURST);
	fd = client(rig);
	introduce(rig, fd, 2);
	guest_prints(rig, "again");
	assert_got(fd, "again");
	close(fd);
}

static void test_close_sends_what_is_left(void **state)
{
	struct rig *rig = *state;
	uint8_t byte;
	int fd;

	start(rig);
	fd = client(rig);
	introduce(rig, fd, 1);
	worker_stop(&rig->worker);
	guest_prints(rig, "power down");
	serial_socket_close(&rig->serial);
	assert_got(fd, "power down");
	assert_int_equal(read_exactly(fd, &byte, 1), 0);
	assert_int_equal(try_client(rig->path), -1);
	close(fd);
}

static void test_reset(void **state)
{
	struct rig *rig = *state;
	int fd;

	start(rig);
	fd = client(rig);
	introduce(rig, fd, 1);
	guest_prints(rig, "going down");
	front_detach(&rig->front);
	put(fd, "still here", 10);
	front_attach(&rig->front, &rig->serial.chardev, 100);
	guest_prints(rig, ", up");
	assert_got(fd, "going down, up");
	assert_true(front_wait_received(&rig->front, 10));
	assert_memory_equal(rig->front.data, "still here", 10);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_both_ways),
		TEST(test_file_is_removed),
		TEST(test_a_successors_file_is_left),
		TEST(test_stale_is_replaced),
		TEST(test_in_use),
		TEST(test_refused_paths),
		TEST(test_no_client),
		TEST(test_reconnect),
		TEST(test_second_client_waits),
		TEST(test_half_closed_client_still_reads),
		TEST(test_leavers_input_arrives),
		TEST(test_room_grows_meanwhile),
		TEST(test_deaf_guest),
		TEST(test_slow_client_holds_the_guest_up),
		TEST(test_stuck_client_leaves),
		TEST(test_close_sends_what_is_left),
		TEST(test_reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
