/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The bzImage format. A boot sector and real-mode code (`setup_sects` sectors) come first and are
 * skipped but for the setup header at 0x1f1; what follows is the protected-mode kernel, `syssize` *
 * 16 bytes, which is loaded as one piece and entered 0x200 bytes into it, in 64-bit mode.
 *
 * The kernel is always put at its preferred address: one loaded lower moves itself there before it
 * decompresses, hence needs the same memory, [pref_address, pref_address + init_size).
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/boot_internal.h"
#include "vmm/x86/layout.h"

#define SECTOR		    512u
#define SETUP_HEADER_OFFSET 0x1f1u
#define SETUP_JUMP_OFFSET   0x201u /* its byte is the header's length, counted from 0x202 */
#define SETUP_MAGIC_OFFSET  0x202u
#define SETUP_MAGIC	    0x53726448u /* "HdrS" */
#define SETUP_BOOT_FLAG	    0xaa55u
#define SETUP_DEFAULT_SECTS 4u
#define PROTOCOL_MIN	    0x020cu /* the first with xloadflags */
#define PROTOCOL_END	    0x0300u /* every 2.x keeps the fields of those before */
#define ENTRY64_OFFSET	    0x200u

/* The setup header's fixed place ends here: a header that claims to be longer is cut. */
_Static_assert(offsetof(struct boot_params, hdr) == SETUP_HEADER_OFFSET, "boot protocol");
_Static_assert(SETUP_HEADER_OFFSET + sizeof(struct setup_header) < BOOT_HEAD_SIZE, "fits the head");

bool bzimage_match(const struct boot_image *image)
{
	return image->head_size >= SETUP_MAGIC_OFFSET + 4 &&
	       load_le(image->head + SETUP_MAGIC_OFFSET, 4) == SETUP_MAGIC;
}

static int too_short(const struct boot_image *image, uint64_t need)
{
	log_error("kernel %s: the file has %" PRIu64
		  " bytes, shorter than its header says (%" PRIu64 "): fetch or build it again",
		  image->path, image->size, need);
	return -EIO;
}

/* Copies as much of the setup header as this kernel has. */
static int read_header(const struct boot_image *image, struct setup_header *header)
{
	uint64_t end = SETUP_MAGIC_OFFSET + image->head[SETUP_JUMP_OFFSET];
	uint64_t need = SETUP_HEADER_OFFSET + offsetof(struct setup_header, handover_offset);

	memset(header, 0, sizeof(*header));
	if (image->head_size < end)
		return too_short(image, end);
	end = MIN(end, SETUP_HEADER_OFFSET + sizeof(*header));
	memcpy(header, image->head + SETUP_HEADER_OFFSET, end - SETUP_HEADER_OFFSET);
	if (header->version < PROTOCOL_MIN) {
		log_error("kernel %s: boot protocol %u.%02u is too old, whelp needs 2.12 or a "
			  "later 2.x: use Linux 3.8 or newer",
			  image->path, header->version >> 8, header->version & 0xff);
		return -ENOEXEC;
	}
	if (header->version >= PROTOCOL_END) {
		log_error("kernel %s: boot protocol %u.%02u is newer than whelp knows (2.x): use "
			  "another kernel or a newer whelp",
			  image->path, header->version >> 8, header->version & 0xff);
		return -ENOEXEC;
	}
	if (end < need) {
		log_error("kernel %s: its setup header ends at 0x%" PRIx64
			  ", before init_size: the file is damaged, fetch or build it again",
			  image->path, end);
		return -ENOEXEC;
	}
	return 0;
}

static int check_header(const struct boot_image *image, const struct setup_header *header)
{
	const char *fault = NULL;

	if (header->boot_flag != SETUP_BOOT_FLAG)
		fault = "its boot flag is not 0xaa55: the file is damaged";
	else if (!(header->loadflags & LOADED_HIGH))
		fault = "it is a zImage: use a bzImage";
	else if (!(header->xloadflags & XLF_KERNEL_64))
		fault = "it has no 64-bit entry: use an x86-64 kernel";
	else if (header->relocatable_kernel && !is_power_of_two(header->kernel_alignment))
		fault = "its alignment is not a power of two: the file is damaged";
	if (!fault)
		return 0;
	log_error("kernel %s: %s", image->path, fault);
	return -ENOEXEC;
}

/* The boot protocol's "kernel runtime start address". */
static uint64_t runtime_start(const struct setup_header *header)
{
	uint64_t start = header->pref_address;

	/* One that wraps gives 0, which the caller finds unusable. */
	return header->relocatable_kernel ? align_up(start, header->kernel_alignment) : start;
}

static int no_room(const struct boot_image *image, const struct mem *mem, uint64_t start,
		   uint64_t room)
{
	if (!range_inside(start, room, LAYOUT_HIGH_RAM, LAYOUT_GAP - LAYOUT_HIGH_RAM)) {
		log_error("kernel %s: wants %" PRIu64 " bytes of memory at 0x%" PRIx64
			  ", where no guest has it: fetch or build it again",
			  image->path, room, start);
		return -ENOEXEC;
	}
	log_error("kernel %s: needs memory up to %" PRIu64 " MiB, and the guest has %" PRIu64
		  " MiB: give it --memory %" PRIu64 "M or more, or use a smaller kernel",
		  image->path, align_up(start + room, MIB(1)) >> 20, boot_low_ram_end(mem) >> 20,
		  align_up(start + room, MIB(1)) >> 20);
	return -ENOMEM;
}

int bzimage_load(const struct boot_image *image, const struct mem *mem, struct boot_kernel *kernel)
{
	struct setup_header *header = &kernel->header;
	uint64_t offset, size, start, room;
	void *data;
	int ret;

	ret = read_header(image, header);
	if (ret)
		return ret;
	ret = check_header(image, header);
	if (ret)
		return ret;

	/* No sum here can wrap: a byte's worth of sectors, and 2^32 paragraphs. */
	offset = (1u + (header->setup_sects ? header->setup_sects : SETUP_DEFAULT_SECTS)) * SECTOR;
	size = (uint64_t)header->syssize * 16;
	if (image->size < offset + size)
		return too_short(image, offset + size);
	if (size <= ENTRY64_OFFSET) {
		log_error("kernel %s: its header says that it holds only %" PRIu64
			  " bytes of code: the file is damaged, fetch or build it again",
			  image->path, size);
		return -ENOEXEC;
	}

	start = runtime_start(header);
	room = MAX((uint64_t)header->init_size, size);
	if (!boot_range_usable(mem, start, room))
		return no_room(image, mem, start, room);
	data = mem_ptr(mem, start, size);
	if (!data)
		return -ENOMEM;
	ret = boot_read(image, offset, data, size);
	if (ret)
		return ret;
	kernel->start = start;
	kernel->end = start + room;
	kernel->entry = start + ENTRY64_OFFSET;
	return 0;
}
