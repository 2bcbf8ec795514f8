/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's physical memory: a few regions of host memory, added while the machine is built and
 * immutable once it runs, hence read from every thread without a lock.
 *
 * A pointer into guest memory comes only from mem_ptr() or mem_iov(), which take a length: an
 * address that the guest chose can never yield a pointer to less than what the caller asked for.
 * The guest may change the bytes behind it at any moment.
 */
#ifndef WHELP_MEM_H
#define WHELP_MEM_H

#include <stdint.h>
#include <sys/uio.h>

#define MEM_MAX_REGIONS 4

struct mem_region {
	uint64_t gpa;  /* guest physical address, page-aligned */
	uint64_t size; /* bytes, a multiple of the page size */
	uint8_t *host; /* owned mapping of `size` bytes */
};

struct mem {
	struct mem_region regions[MEM_MAX_REGIONS]; /* sorted by gpa, no overlap */
	unsigned count;
};

/* Makes an empty map. */
void mem_init(struct mem *mem);

/*
 * Adds `size` bytes of zeroed memory at `gpa`, above all regions added before; both page-aligned.
 * Returns 0, -EINVAL (alignment, order, wrap), -ENOSPC (too many regions) or -ENOMEM.
 */
int mem_add(struct mem *mem, uint64_t gpa, uint64_t size);

/* Unmaps everything; every pointer into the map dies. Fine on a map only mem_init() touched. */
void mem_fini(struct mem *mem);

/*
 * A pointer to the `len` bytes at `gpa`, or NULL unless all of them lie in one region. `len` 0
 * gives NULL too: there is nothing to point to.
 */
void *mem_ptr(const struct mem *mem, uint64_t gpa, uint64_t len);

/*
 * The same for one who asks often: `*near` is a region of the map, the first one at first, and then
 * the one that was hit last. Where each user has its own, they are as good as the few that there
 * are.
 */
void *mem_ptr_far(const struct mem *mem, const struct mem_region **near, uint64_t gpa,
		  uint64_t len);

static inline void *mem_ptr_near(const struct mem *mem, const struct mem_region **near,
				 uint64_t gpa, uint64_t len)
{
	const struct mem_region *r = *near;
	uint64_t offset = gpa - r->gpa; /* below the region: beyond any size */

	/* One less than no bytes is more than any region has. */
	if (offset < r->size && len - 1 < r->size - offset)
		return r->host + offset;
	return mem_ptr_far(mem, near, gpa, len);
}

/*
 * Describes the `len` bytes at `gpa` as at most `max` pieces in `iov`, splitting where regions
 * meet. Returns the number of pieces, -EFAULT when a byte lies outside every region or `len` is 0,
 * -E2BIG when `max` pieces do not suffice.
 */
int mem_iov(const struct mem *mem, uint64_t gpa, uint64_t len, struct iovec *iov, unsigned max);

/* Copies into guest memory; 0 or -EFAULT, then nothing was copied. */
int mem_write(const struct mem *mem, uint64_t gpa, const void *data, uint64_t len);

#endif
