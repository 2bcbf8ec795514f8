/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arrays of iovecs as one stretch of bytes, counted from 0. Nothing here writes beyond what the
 * array describes; each function says how much it did.
 */
#ifndef WHELP_IOV_H
#define WHELP_IOV_H

#include <stddef.h>
#include <sys/uio.h>

/* The sum of the lengths. The caller knows that it does not wrap (guest memory cannot). */
size_t iov_total(const struct iovec *iov, unsigned count);

/* Copies up to `len` bytes from `offset` on; returns how many there were. */
size_t iov_read(const struct iovec *iov, unsigned count, size_t offset, void *data, size_t len);
size_t iov_write(const struct iovec *iov, unsigned count, size_t offset, const void *data,
		 size_t len);

#endif
