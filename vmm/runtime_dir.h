/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The directory in which running machines are found by their names: each has a unix socket there,
 * of its name, on which it answers (stat_server.h). It is the first of these that is set, or in a
 * directory of the user's:
 *
 *   $WHELP_RUNTIME_DIR
 *   /run/whelp              for root
 *   $XDG_RUNTIME_DIR/whelp
 *   /run/user/UID/whelp
 *   /tmp/whelp-UID
 *
 * It is made if need be, open to its owner alone. A machine that was killed leaves its socket;
 * whoever connects to that is refused, and may remove it.
 */
#ifndef WHELP_RUNTIME_DIR_H
#define WHELP_RUNTIME_DIR_H

#include <limits.h>
#include <sys/types.h>
#include <sys/un.h>

struct runtime_dir {
	int fd; /* -1: not open */
	char path[PATH_MAX];
};

/*
 * Opens it; `make`: makes it if it is not there, and refuses one in which others could put things.
 * `path` is set in any case. 0 or -errno; -ENOENT without `make`: no machine has run.
 * runtime_dir_close() is fine then.
 */
int runtime_dir_open(struct runtime_dir *dir, int make);
void runtime_dir_close(struct runtime_dir *dir);

/* Keeps others that call this from it until runtime_dir_unlock(): for looking and then changing. */
void runtime_dir_lock(struct runtime_dir *dir);
void runtime_dir_unlock(struct runtime_dir *dir);

/*
 * The address of a machine's socket, which is good while the directory is open. It is short,
 * however long the directory's path is: it goes by the number of the open file.
 */
void runtime_dir_address(const struct runtime_dir *dir, const char *name,
			 struct sockaddr_un *address);

/*
 * Connects to the machine `name`, and waits for nothing. The fd, which is the caller's, with the
 * number of the process at its other side in `*pid`; or -ENOENT: there is none, -ECONNREFUSED:
 * there was one, which is gone; or another -errno.
 */
int runtime_dir_connect(const struct runtime_dir *dir, const char *name, pid_t *pid);

/*
 * Removes the socket `name` if nobody listens on it. 0 or -errno; -EBUSY: somebody does, -EEXIST:
 * it is no socket. Fine on one that is not there. Under the lock.
 */
int runtime_dir_remove_stale(const struct runtime_dir *dir, const char *name);

/*
 * The names of all sockets there, sorted; `*count` of them. Free the array and each of them. NULL
 * if there is none.
 */
char **runtime_dir_names(const struct runtime_dir *dir, unsigned *count);

#endif
