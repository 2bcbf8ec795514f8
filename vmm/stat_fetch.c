/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The other side of stat_server.c: a message with a file in it. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/stat.h"

/* The file in the message that waits; -errno. */
static int receive_file(int fd)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header;
	int file;

	if (got < 0)
		return -errno;
	if (!got)
		return -ECONNRESET;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(file)))
		return -EBADMSG;
	memcpy(&file, CMSG_DATA(header), sizeof(file));
	return file;
}

/*
 * It comes from another process: only a file that can be read at once, and holds an object, will
 * do.
 */
static json_t *read_object(int file)
{
	struct stat st;
	json_t *object;

	if (fstat(file, &st) || !S_ISREG(st.st_mode) || lseek(file, 0, SEEK_SET))
		return NULL;
	object = json_loadfd(file, 0, NULL);
	if (json_is_object(object))
		return object;
	json_decref(object);
	return NULL;
}

int stat_fetch(const struct runtime_dir *dir, const char *name, int timeout, json_t **object,
	       pid_t *pid)
{
	int fd = runtime_dir_connect(dir, name, pid), file, ready;
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	if (fd < 0)
		return fd;
	ready = poll(&wait, 1, timeout);
	file = ready == 1 ? receive_file(fd) : ready ? -errno : -ETIMEDOUT;
	close(fd);
	if (file < 0)
		return file;
	*object = read_object(file);
	close(file);
	return *object ? 0 : -EBADMSG;
}
