/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One walk serves both directions: it finds the next piece of [offset, offset + len). */
#include "vmm/iov.h"

#include <string.h>

#include "vmm/util.h"

size_t iov_total(const struct iovec *iov, unsigned count)
{
	size_t total = 0;

	for (unsigned i = 0; i < count; i++)
		total += iov[i].iov_len;
	return total;
}

struct cursor {
	const struct iovec *iov;
	unsigned count;
	size_t skip;
};

/* Yields the next piece of at most `max` bytes; false at the end. */
static bool next_piece(struct cursor *c, size_t max, void **base, size_t *len)
{
	while (c->count && c->skip >= c->iov->iov_len) {
		c->skip -= c->iov->iov_len;
		c->iov++;
		c->count--;
	}
	if (!c->count)
		return false;
	*base = (char *)c->iov->iov_base + c->skip;
	*len = MIN(max, c->iov->iov_len - c->skip);
	c->skip += *len;
	return true;
}

size_t iov_read(const struct iovec *iov, unsigned count, size_t offset, void *data, size_t len)
{
	struct cursor c = { .iov = iov, .count = count, .skip = offset };
	size_t done = 0, piece;
	void *base;

	while (done < len && next_piece(&c, len - done, &base, &piece)) {
		memcpy((char *)data + done, base, piece);
		done += piece;
	}
	return done;
}

size_t iov_write(const struct iovec *iov, unsigned count, size_t offset, const void *data,
		 size_t len)
{
	struct cursor c = { .iov = iov, .count = count, .skip = offset };
	size_t done = 0, piece;
	void *base;

	while (done < len && next_piece(&c, len - done, &base, &piece)) {
		memcpy(base, (const char *)data + done, piece);
		done += piece;
	}
	return done;
}
