/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Theory of operation. Everything but write() and room() runs in the main loop. The client is
 * watched edge-triggered, and its callback moves whatever can be moved, both ways; whoever finds
 * out that more can be moved (the guest wrote or read) wakes the loop, which does the same.
 *
 * The client is gone when it has hung up, not when its input ends: it may have shut down only its
 * sending side. Input that the guest has not taken by then stays in the kernel, in the leaver's
 * socket, and is read first. There is one such place: a guest that does not listen at all must not
 * keep clients from seeing its output.
 */
#include "vmm/serial_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLIENT_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

#define OUTPUT_CHUNK 4096u

/* Reads or sends in a row before the loop's other sources get their turn. */
#define ROUNDS 64u

static void wake(struct serial_socket *serial)
{
	if (serial->wake.fd >= 0)
		eventfd_write(serial->wake.fd, 1);
}

/* ---- input ---- */

static void deliver(struct serial_socket *serial)
{
	while (serial->in_used && chardev_front_room(&serial->chardev)) {
		size_t taken = chardev_front_receive(&serial->chardev, serial->in, serial->in_used);

		serial->in_used -= taken;
		memmove(serial->in, serial->in + taken, serial->in_used);
	}
}

/* Nothing more comes from where input is read now. */
static void end_input(struct serial_socket *serial)
{
	if (serial->leaver_fd < 0) {
		serial->client_ended = true;
		return;
	}
	close(serial->leaver_fd);
	serial->leaver_fd = -1;
}

/* Reads once, and returns whether there may be more. */
static bool read_some(struct serial_socket *serial)
{
	int fd = serial->leaver_fd >= 0 ? serial->leaver_fd : serial->client.fd;
	size_t room;
	ssize_t n;

	if (serial->in_used || fd < 0 || (fd == serial->client.fd && serial->client_ended))
		return false;
	room = MIN(chardev_front_room(&serial->chardev), sizeof(serial->in));
	if (!room)
		return false;
	n = recv(fd, serial->in, room, MSG_DONTWAIT);
	if (n > 0)
		serial->in_used = n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		end_input(serial);
	else if (errno == EAGAIN)
		return false;
	return true;
}

static void pull_input(struct serial_socket *serial)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		deliver(serial);
		if (!read_some(serial))
			return;
	}
	wake(serial);
}

/* ---- output ---- */

/* Sends once, and returns whether there may be more to send. */
static bool send_some(struct serial_socket *serial)
{
	uint8_t chunk[OUTPUT_CHUNK];
	size_t len;
	ssize_t n;
	bool owed;

	pthread_mutex_lock(&serial->lock);
	len = byte_ring_peek(&serial->out, chunk, sizeof(chunk));
	pthread_mutex_unlock(&serial->lock);
	if (!len)
		return false;

	n = send(serial->client.fd, chunk, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;

	pthread_mutex_lock(&serial->lock);
	/* A client that reads no more is as good as none, though its input may go on. */
	if (n < 0)
		serial->connected = false;
	byte_ring_drop(&serial->out, n < 0 ? serial->out.used : (size_t)n);
	owed = serial->starved && byte_ring_room(&serial->out) >= CHARDEV_BURST;
	if (owed)
		serial->starved = false;
	pthread_mutex_unlock(&serial->lock);
	if (owed)
		chardev_front_writable(&serial->chardev);
	return n >= 0;
}

static void push_output(struct serial_socket *serial)
{
	if (serial->client.fd < 0)
		return;
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (!send_some(serial))
			return;
	}
	wake(serial);
}

static size_t socket_write(struct chardev *chardev, const uint8_t *data, size_t len)
{
	struct serial_socket *serial = container_of(chardev, struct serial_socket, chardev);
	size_t taken = len;

	pthread_mutex_lock(&serial->lock);
	if (serial->connected) {
		/* If there was some, the loop knows, or waits for the client to take it. */
		if (!serial->out.used)
			wake(serial);
		taken = byte_ring_put(&serial->out, data, len);
	}
	pthread_mutex_unlock(&serial->lock);
	return taken;
}

static size_t socket_room(struct chardev *chardev)
{
	struct serial_socket *serial = container_of(chardev, struct serial_socket, chardev);
	size_t room;

	pthread_mutex_lock(&serial->lock);
	room = serial->connected ? byte_ring_room(&serial->out) : SIZE_MAX;
	if (room < CHARDEV_BURST)
		serial->starved = true;
	pthread_mutex_unlock(&serial->lock);
	return room;
}

static void socket_input_ready(struct chardev *chardev)
{
	wake(container_of(chardev, struct serial_socket, chardev));
}

static const struct chardev_ops socket_ops = {
	.write = socket_write,
	.room = socket_room,
	.input_ready = socket_input_ready,
};

/* ---- clients come and go ---- */

/* Output from now on is dropped, or the next client's. */
static void set_connected(struct serial_socket *serial, bool connected)
{
	bool owed;

	pthread_mutex_lock(&serial->lock);
	serial->connected = connected;
	byte_ring_drop(&serial->out, serial->out.used);
	owed = serial->starved;
	serial->starved = false;
	pthread_mutex_unlock(&serial->lock);
	if (owed)
		chardev_front_writable(&serial->chardev);
}

static bool hung_up(int fd)
{
	struct pollfd pollfd = { .fd = fd };

	return poll(&pollfd, 1, 0) == 1 && (pollfd.revents & (POLLHUP | POLLERR));
}

static bool has_input(int fd)
{
	uint8_t byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
}

static void drop_client(struct serial_socket *serial)
{
	int fd = serial->client.fd;

	loop_remove(serial->loop, &serial->client);
	serial->client.fd = -1;
	set_connected(serial, false);
	if (!has_input(fd)) {
		close(fd);
	} else if (serial->leaver_fd < 0) {
		serial->leaver_fd = fd;
	} else {
		log_limited(&serial->dropped_limit,
			    "serial socket %s: the guest did not read what a client sent; dropped",
			    serial->address.sun_path);
		close(fd);
	}
	/* Armed anew, it reports who is waiting already. */
	loop_change(serial->loop, &serial->listener, EPOLLIN | EPOLLET);
}

static void client_ready(struct loop_source *source, uint32_t events)
{
	struct serial_socket *serial = container_of(source, struct serial_socket, client);

	(void)events;
	pull_input(serial);
	push_output(serial);
	if (!hung_up(source->fd))
		return;
	drop_client(serial);
	pull_input(serial);
}

static void woken(struct loop_source *source, uint32_t events)
{
	struct serial_socket *serial = container_of(source, struct serial_socket, wake);
	eventfd_t count;

	(void)events;
	eventfd_read(source->fd, &count);
	pull_input(serial);
	push_output(serial);
}

static void listener_ready(struct loop_source *source, uint32_t events)
{
	struct serial_socket *serial = container_of(source, struct serial_socket, listener);
	int fd;

	(void)events;
	if (serial->client.fd >= 0)
		return;
	fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			log_limited(&serial->accept_limit,
				    "serial socket %s: cannot accept a client: %s",
				    serial->address.sun_path, strerror(errno));
		return;
	}
	serial->client.fd = fd;
	serial->client.ready = client_ready;
	serial->client_ended = false;
	if (loop_add(serial->loop, &serial->client, CLIENT_EVENTS)) {
		serial->client.fd = -1;
		close(fd);
		return;
	}
	set_connected(serial, true);
}

/* ---- the socket's file ---- */

static int refuse(const char *path, int err, const char *why)
{
	log_error("--serial %s: %s", path, why);
	return err;
}

/* Removes a socket that nobody listens on; anything else there is an error. */
static int clear_path(const struct sockaddr_un *address)
{
	const char *path = address->sun_path;
	struct stat st;
	int err;
	int fd;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : refuse(path, -errno, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return refuse(path, -EEXIST,
			      "exists and is not a socket; remove it or choose another path");

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return refuse(path, -errno, strerror(errno));
	err = connect(fd, (const struct sockaddr *)address, sizeof(*address)) ? errno : 0;
	close(fd);
	if (err == EACCES || err == EPERM)
		return refuse(path, -err, "is another user's socket; choose another path");
	if (err != ECONNREFUSED && err != ENOENT)
		return refuse(path, -EADDRINUSE,
			      "another process uses this socket; choose another path");
	if (unlink(path) && errno != ENOENT)
		return refuse(path, -errno, "is a stale socket that cannot be removed");
	return 0;
}

static int bind_path(struct serial_socket *serial)
{
	const char *path = serial->address.sun_path;
	struct stat st;

	if (bind(serial->listener.fd, (struct sockaddr *)&serial->address, sizeof(serial->address)))
		return refuse(path, -errno, strerror(errno));
	serial->bound = !lstat(path, &st);
	if (serial->bound) {
		serial->dev = st.st_dev;
		serial->ino = st.st_ino;
	}
	if (listen(serial->listener.fd, SOMAXCONN))
		return refuse(path, -errno, strerror(errno));
	return 0;
}

static int start_serving(struct serial_socket *serial, struct loop *loop)
{
	int err;

	serial->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (serial->wake.fd < 0)
		return -errno;
	serial->loop = loop;
	serial->wake.ready = woken;
	serial->listener.ready = listener_ready;
	err = loop_add(loop, &serial->wake, EPOLLIN);
	if (err)
		return err;
	return loop_add(loop, &serial->listener, EPOLLIN | EPOLLET);
}

/* ---- life ---- */

void serial_socket_init(struct serial_socket *serial)
{
	memset(serial, 0, sizeof(*serial));
	chardev_init(&serial->chardev, &socket_ops);
	pthread_mutex_init(&serial->lock, NULL);
	serial->listener.fd = -1;
	serial->client.fd = -1;
	serial->wake.fd = -1;
	serial->leaver_fd = -1;
}

int serial_socket_open(struct serial_socket *serial, struct loop *loop, const char *path)
{
	int err;

	if (!*path)
		return refuse(path, -EINVAL, "the path is empty");
	if (strlen(path) >= sizeof(serial->address.sun_path))
		return refuse(path, -ENAMETOOLONG,
			      "too long for a socket's path, which has at most 107 bytes");
	serial->address.sun_family = AF_UNIX;
	strcpy(serial->address.sun_path, path);

	err = clear_path(&serial->address);
	if (err)
		return err;
	serial->listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (serial->listener.fd < 0)
		return refuse(path, -errno, strerror(errno));
	err = bind_path(serial);
	if (err)
		return err;
	err = start_serving(serial, loop);
	return err ? refuse(path, err, strerror(-err)) : 0;
}

static void close_source(struct serial_socket *serial, struct loop_source *source)
{
	if (source->fd < 0)
		return;
	if (serial->loop)
		loop_remove(serial->loop, source);
	close(source->fd);
	source->fd = -1;
}

static void remove_file(struct serial_socket *serial)
{
	struct stat st;

	if (!serial->bound)
		return;
	serial->bound = false;
	if (!lstat(serial->address.sun_path, &st) && st.st_dev == serial->dev &&
	    st.st_ino == serial->ino)
		unlink(serial->address.sun_path);
}

void serial_socket_close(struct serial_socket *serial)
{
	push_output(serial);
	/* First the file, so that nobody finds it and is refused. */
	remove_file(serial);
	close_source(serial, &serial->client);
	close_source(serial, &serial->listener);
	close_source(serial, &serial->wake);
	if (serial->leaver_fd >= 0)
		close(serial->leaver_fd);
	serial->leaver_fd = -1;
	set_connected(serial, false);
}

void serial_socket_fini(struct serial_socket *serial)
{
	pthread_mutex_destroy(&serial->lock);
	chardev_fini(&serial->chardev);
}
