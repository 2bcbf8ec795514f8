/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef WHELP_JSON_FILE_H
#define WHELP_JSON_FILE_H

#include <jansson.h>

/* How all of whelp's statistics are written: microseconds, also of a host that is up for years. */
#define JSON_FILE_FLAGS JSON_REAL_PRECISION(15)

/*
 * Writes `root` to `path`, for people to read; the file appears whole or not at all. 0 or -errno,
 * which for NULL is -ENOMEM.
 */
int json_file_write(const char *path, const json_t *root);

#endif
