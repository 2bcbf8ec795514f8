/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An answer is one message with a file in it, whatever its size: it goes out at once or not at all,
 * so that no client, stopped or slow, can hold up the loop.
 */
#include "vmm/stat_server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/json_file.h"
#include "vmm/util.h"

/* ---- answers ---- */

/* A file that holds `object`; -errno. */
static int make_file(const json_t *object)
{
	int fd = memfd_create("whelp stat", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!object || json_dumpfd(object, fd, JSON_COMPACT | JSON_FILE_FLAGS)) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

static int send_file(int client, int file)
{
	char byte = 0, control[CMSG_SPACE(sizeof(file))] = { 0 };
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(file));
	memcpy(CMSG_DATA(header), &file, sizeof(file));
	return sendmsg(client, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int answer(struct stat_server *server, int client)
{
	json_t *object = server->snapshot(server->ctx);
	int file = make_file(object), err = file;

	json_decref(object);
	if (file >= 0) {
		err = send_file(client, file);
		close(file);
	}
	return err;
}

static void client_waits(struct loop_source *source, uint32_t events)
{
	struct stat_server *server = container_of(source, struct stat_server, listener);
	int client = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), err = client;

	(void)events;
	if (client >= 0) {
		err = answer(server, client);
		close(client);
	} else {
		err = -errno;
	}
	/* One that did not wait for the answer is no fault; nor is none being there any more. */
	if (err && err != -EPIPE && err != -ECONNRESET && err != -EAGAIN && err != -ECONNABORTED)
		log_limited(&server->losses, "whelp stat %s: cannot answer: %s", server->name,
			    strerror(-err));
}

/* ---- the name ---- */

static int complain(const struct stat_server *server, int err)
{
	pid_t pid;
	int fd = runtime_dir_connect(&server->dir, server->name, &pid);

	if (fd >= 0) {
		close(fd);
		log_error("--name %s: a machine of that name is running (process %ld): choose "
			  "another name", server->name, (long)pid);
	} else {
		log_error("--name %s: a machine of that name is running: choose another name",
			  server->name);
	}
	return err;
}

static int bind_name(struct stat_server *server)
{
	struct sockaddr_un address;
	struct stat st;
	int err = runtime_dir_remove_stale(&server->dir, server->name);

	if (err)
		return err;
	/* The file gets this mode: whoever may write to it may connect. */
	fchmod(server->listener.fd, 0600);
	runtime_dir_address(&server->dir, server->name, &address);
	if (bind(server->listener.fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	server->bound = !fstatat(server->dir.fd, server->name, &st, AT_SYMLINK_NOFOLLOW);
	server->device = st.st_dev;
	server->inode = st.st_ino;
	return listen(server->listener.fd, SOMAXCONN) ? -errno : 0;
}

static int start(struct stat_server *server)
{
	int err = runtime_dir_open(&server->dir, true);

	if (err)
		return err;
	server->listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server->listener.fd < 0)
		return -errno;
	runtime_dir_lock(&server->dir);
	err = bind_name(server);
	runtime_dir_unlock(&server->dir);
	return err ? err : loop_add(server->loop, &server->listener, EPOLLIN);
}

void stat_server_init(struct stat_server *server)
{
	memset(server, 0, sizeof(*server));
	server->listener = (struct loop_source){ .fd = -1, .ready = client_waits };
	server->dir.fd = -1;
}

int stat_server_open(struct stat_server *server, struct loop *loop, const char *name,
		     json_t *(*snapshot)(void *ctx), void *ctx)
{
	int err;

	server->loop = loop;
	server->snapshot = snapshot;
	server->ctx = ctx;
	snprintf(server->name, sizeof(server->name), "%s", name);
	err = start(server);
	if (!err)
		return 0;
	if (err == -EBUSY)
		return complain(server, -EADDRINUSE);
	log_warn("whelp stat will not find this machine: %s: %s; WHELP_RUNTIME_DIR names another "
		 "directory", server->dir.path, strerror(-err));
	stat_server_close(server);
	return 0;
}

static void give_back(struct stat_server *server)
{
	struct stat st;

	if (!server->bound)
		return;
	server->bound = false;
	runtime_dir_lock(&server->dir);
	/* It may have been taken for stale, and be another's now. */
	if (!fstatat(server->dir.fd, server->name, &st, AT_SYMLINK_NOFOLLOW) &&
	    st.st_dev == server->device && st.st_ino == server->inode)
		unlinkat(server->dir.fd, server->name, 0);
	runtime_dir_unlock(&server->dir);
}

void stat_server_close(struct stat_server *server)
{
	/* First the file, so that nobody finds it and is refused. */
	give_back(server);
	if (server->listener.fd >= 0) {
		loop_remove(server->loop, &server->listener);
		close(server->listener.fd);
	}
	server->listener.fd = -1;
	runtime_dir_close(&server->dir);
}
