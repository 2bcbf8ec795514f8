/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vmm/runtime_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer ones are no machine's. */
#define LONGEST_NAME 64

/* Sets the path; false if it is too long, or `base` is no absolute one. */
static bool set_path(struct runtime_dir *dir, const char *base, const char *rest)
{
	if (!base || base[0] != '/')
		return false;
	return (size_t)snprintf(dir->path, sizeof(dir->path), "%s%s", base, rest) <
	       sizeof(dir->path);
}

/* $XDG_RUNTIME_DIR may be there from before a change of user. */
static bool is_own_directory(const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static void choose(struct runtime_dir *dir)
{
	uid_t user = geteuid();
	char text[64];

	if (set_path(dir, getenv("WHELP_RUNTIME_DIR"), ""))
		return;
	if (!user) {
		set_path(dir, "/run", "/whelp");
		return;
	}
	if (is_own_directory(getenv("XDG_RUNTIME_DIR")) &&
	    set_path(dir, getenv("XDG_RUNTIME_DIR"), "/whelp"))
		return;
	snprintf(text, sizeof(text), "/run/user/%u", (unsigned)user);
	if (is_own_directory(text)) {
		set_path(dir, text, "/whelp");
		return;
	}
	snprintf(text, sizeof(text), "/tmp/whelp-%u", (unsigned)user);
	set_path(dir, text, "");
}

/* Whoever could write there could answer in a machine's place, or keep it from starting. */
static int check_owner(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_uid != geteuid() && st.st_uid)
		return -EPERM;
	return st.st_mode & (S_IWGRP | S_IWOTH) ? -EPERM : 0;
}

int runtime_dir_open(struct runtime_dir *dir, int make)
{
	int err;

	choose(dir);
	dir->fd = -1;
	if (make && mkdir(dir->path, 0700) && errno != EEXIST)
		return -errno;
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir->fd < 0)
		return -errno;
	err = make ? check_owner(dir->fd) : 0;
	if (err)
		runtime_dir_close(dir);
	return err;
}

void runtime_dir_close(struct runtime_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

void runtime_dir_lock(struct runtime_dir *dir)
{
	while (flock(dir->fd, LOCK_EX) && errno == EINTR)
		;
}

void runtime_dir_unlock(struct runtime_dir *dir)
{
	flock(dir->fd, LOCK_UN);
}

void runtime_dir_address(const struct runtime_dir *dir, const char *name,
			 struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%.*s", dir->fd,
		 LONGEST_NAME, name);
}

int runtime_dir_connect(const struct runtime_dir *dir, const char *name, pid_t *pid)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (fd < 0)
		return -errno;
	runtime_dir_address(dir, name, &address);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
		int err = errno;

		close(fd);
		return -err;
	}
	*pid = peer.pid;
	return fd;
}

static bool is_socket(const struct runtime_dir *dir, const char *name)
{
	struct stat st;

	return !fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(st.st_mode);
}

int runtime_dir_remove_stale(const struct runtime_dir *dir, const char *name)
{
	pid_t pid;
	int fd = runtime_dir_connect(dir, name, &pid);

	if (fd >= 0) {
		close(fd);
		return -EBUSY;
	}
	if (fd == -ENOENT)
		return 0;
	/* EAGAIN: so many wait for its answer that there is no room for one more. */
	if (fd != -ECONNREFUSED)
		return fd == -EAGAIN ? -EBUSY : fd;
	/* Any other file refuses connections, too, and is not ours to remove. */
	if (!is_socket(dir, name))
		return -EEXIST;
	return unlinkat(dir->fd, name, 0) && errno != ENOENT ? -errno : 0;
}

char **runtime_dir_names(const struct runtime_dir *dir, unsigned *count)
{
	struct dirent **entries;
	int found = scandirat(dir->fd, ".", &entries, NULL, alphasort);
	char **names = found > 0 ? calloc((unsigned)found, sizeof(*names)) : NULL;

	*count = 0;
	for (int i = 0; i < found; i++) {
		const char *name = entries[i]->d_name;

		if (names && is_socket(dir, name) && strlen(name) <= LONGEST_NAME &&
		    (names[*count] = strdup(name)))
			++*count;
		free(entries[i]);
	}
	if (found >= 0)
		free(entries);
	return names;
}
