/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vmm/json_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int json_file_write(const char *path, const json_t *root)
{
	char temporary[PATH_MAX];
	int err;

	/* A reader never sees half a file: it is written beside its name, then moved there. */
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
		return -ENAMETOOLONG;
	errno = 0;
	if (root && !json_dump_file(root, temporary, JSON_INDENT(2) | JSON_FILE_FLAGS) &&
	    !rename(temporary, path))
		return 0;
	err = errno ? -errno : -ENOMEM;
	unlink(temporary);
	return err;
}
