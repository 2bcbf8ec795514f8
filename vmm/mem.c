/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest memory is private, anonymous and not reserved: a page of it costs the host nothing until
 * the guest touches it. With at most four regions a linear search beats anything cleverer, and
 * there is no lock because nothing changes once vCPUs or workers run.
 */
#include "vmm/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm/util.h"

#define HUGE_PAGE MIB(2)

void mem_init(struct mem *mem)
{
	memset(mem, 0, sizeof(*mem));
}

/*
 * Reserves `size` bytes whose host address is a multiple of a huge page, as every region's gpa is:
 * only where both agree can the host map the guest with huge pages.
 */
static void *map_aligned(uint64_t size)
{
	uint8_t *whole, *start;
	size_t before;

	if (size > SIZE_MAX - HUGE_PAGE)
		return MAP_FAILED;
	whole = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (whole == MAP_FAILED)
		return MAP_FAILED;
	start = (uint8_t *)align_up((uintptr_t)whole, HUGE_PAGE);
	before = (size_t)(start - whole);
	if (before)
		munmap(whole, before);
	if (before < HUGE_PAGE)
		munmap(start + size, HUGE_PAGE - before);
	return start;
}

int mem_add(struct mem *mem, uint64_t gpa, uint64_t size)
{
	struct mem_region *last = mem->count ? &mem->regions[mem->count - 1] : NULL;
	void *host;

	if (!size || gpa % PAGE_SIZE || size % PAGE_SIZE || size > UINT64_MAX - gpa)
		return -EINVAL;
	if (last && gpa < last->gpa + last->size)
		return -EINVAL;
	if (mem->count == MEM_MAX_REGIONS)
		return -ENOSPC;
	host = map_aligned(size);
	if (host == MAP_FAILED)
		return -ENOMEM;
	/*
	 * Fewer, larger page faults and TLB entries; a kernel without them says no, and that is
	 * fine.
	 */
	madvise(host, size, MADV_HUGEPAGE);
	madvise(host, size, MADV_DONTDUMP);
	mem->regions[mem->count++] = (struct mem_region){ .gpa = gpa, .size = size, .host = host };
	return 0;
}

void mem_fini(struct mem *mem)
{
	for (unsigned i = 0; i < mem->count; i++)
		munmap(mem->regions[i].host, mem->regions[i].size);
	mem->count = 0;
}

static const struct mem_region *find_region(const struct mem *mem, uint64_t gpa)
{
	for (unsigned i = 0; i < mem->count; i++) {
		const struct mem_region *r = &mem->regions[i];

		if (gpa >= r->gpa && gpa - r->gpa < r->size)
			return r;
	}
	return NULL;
}

void *mem_ptr(const struct mem *mem, uint64_t gpa, uint64_t len)
{
	const struct mem_region *r = find_region(mem, gpa);

	if (!r || !len || len > r->size - (gpa - r->gpa))
		return NULL;
	return r->host + (gpa - r->gpa);
}

void *mem_ptr_far(const struct mem *mem, const struct mem_region **near, uint64_t gpa, uint64_t len)
{
	const struct mem_region *r = find_region(mem, gpa);

	if (r)
		*near = r;
	return mem_ptr(mem, gpa, len);
}

int mem_iov(const struct mem *mem, uint64_t gpa, uint64_t len, struct iovec *iov, unsigned max)
{
	unsigned count = 0;

	if (!len)
		return -EFAULT;
	while (len) {
		const struct mem_region *r = find_region(mem, gpa);
		uint64_t piece;

		if (!r)
			return -EFAULT;
		if (count == max)
			return -E2BIG;
		piece = MIN(len, r->size - (gpa - r->gpa));
		iov[count].iov_base = r->host + (gpa - r->gpa);
		iov[count].iov_len = piece;
		count++;
		/* A region never ends at 2^64, so this cannot wrap. */
		gpa += piece;
		len -= piece;
	}
	return (int)count;
}

int mem_write(const struct mem *mem, uint64_t gpa, const void *data, uint64_t len)
{
	void *p = mem_ptr(mem, gpa, len);

	if (!p)
		return -EFAULT;
	memcpy(p, data, len);
	return 0;
}
