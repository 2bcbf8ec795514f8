/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An uncompressed vmlinux: its loadable segments go to their physical addresses, and its entry
 * point, which Linux gives as a physical address too, gets the same 64-bit environment as a
 * bzImage's. It has no setup header, so one is made up with the limits that every x86-64 kernel
 * has.
 *
 * All program headers are checked before a byte is loaded.
 */
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/boot_internal.h"

#define MAX_HEADERS	       64
#define KERNEL_CMDLINE_SIZE    2047u /* COMMAND_LINE_SIZE less the terminator */
#define KERNEL_INITRD_ADDR_MAX 0x7fffffffu
#define KERNEL_ALIGNMENT       0x1000000u
#define SETUP_MAGIC	       0x53726448u
#define SETUP_BOOT_FLAG	       0xaa55u
#define PROTOCOL	       0x020fu

bool elf_match(const struct boot_image *image)
{
	return image->head_size >= SELFMAG && !memcmp(image->head, ELFMAG, SELFMAG);
}

static int bad_elf(const struct boot_image *image, const char *fault)
{
	log_error("kernel %s: %s: give an x86-64 bzImage or vmlinux", image->path, fault);
	return -ENOEXEC;
}

static int too_short(const struct boot_image *image)
{
	log_error("kernel %s: the file has %" PRIu64
		  " bytes, shorter than its header says: fetch or build it again",
		  image->path, image->size);
	return -EIO;
}

static int check_ehdr(const struct boot_image *image, const Elf64_Ehdr *ehdr)
{
	if (image->head_size > EI_CLASS && ehdr->e_ident[EI_CLASS] != ELFCLASS64)
		return bad_elf(image, "it is not a 64-bit ELF file");
	if (image->head_size > EI_DATA && ehdr->e_ident[EI_DATA] != ELFDATA2LSB)
		return bad_elf(image, "it is a big-endian ELF file");
	if (image->head_size < sizeof(*ehdr))
		return too_short(image);
	if (ehdr->e_machine != EM_X86_64)
		return bad_elf(image, "it is an ELF file for another machine");
	if (ehdr->e_type != ET_EXEC)
		return bad_elf(image,
			       "it is an ELF file, but not an executable with fixed addresses");
	if (ehdr->e_phentsize != sizeof(Elf64_Phdr) || !ehdr->e_phnum ||
	    ehdr->e_phnum > MAX_HEADERS)
		return bad_elf(image,
			       "its ELF program headers are too many, none, or of an unknown size");
	return 0;
}

static int check_segment(const struct boot_image *image, const struct mem *mem,
			 const Elf64_Phdr *phdr)
{
	if (!range_inside(phdr->p_offset, phdr->p_filesz, 0, image->size))
		return too_short(image);
	if (phdr->p_filesz > phdr->p_memsz)
		return bad_elf(image, "an ELF segment is larger in the file than in memory");
	if (boot_range_usable(mem, phdr->p_paddr, phdr->p_memsz))
		return 0;
	log_error("kernel %s: a segment wants %" PRIu64 " KiB of memory at 0x%" PRIx64
		  ", and usable RAM is 0x100000 to 0x%" PRIx64
		  ": give the guest more --memory or use another kernel",
		  image->path, phdr->p_memsz >> 10, phdr->p_paddr, boot_low_ram_end(mem));
	return -ENOMEM;
}

static int check_overlap(const struct boot_image *image, const Elf64_Phdr *phdrs, unsigned count)
{
	unsigned i, j;

	for (i = 0; i < count; i++)
		for (j = 0; j < i; j++)
			if (ranges_overlap(phdrs[i].p_paddr, phdrs[i].p_memsz, phdrs[j].p_paddr,
					   phdrs[j].p_memsz))
				return bad_elf(image, "its ELF segments overlap in memory");
	return 0;
}

/* Gathers the segments that take memory, each of them checked; returns their number or -errno. */
static int read_segments(const struct boot_image *image, const struct mem *mem,
			 const Elf64_Ehdr *ehdr, Elf64_Phdr phdrs[MAX_HEADERS])
{
	uint64_t bytes = (uint64_t)ehdr->e_phnum * sizeof(phdrs[0]);
	unsigned i, count = 0;
	int ret;

	if (!range_inside(ehdr->e_phoff, bytes, 0, image->size))
		return too_short(image);
	ret = boot_read(image, ehdr->e_phoff, phdrs, bytes);
	if (ret)
		return ret;
	for (i = 0; i < ehdr->e_phnum; i++) {
		Elf64_Phdr phdr = phdrs[i];

		if (phdr.p_type != PT_LOAD || (!phdr.p_memsz && !phdr.p_filesz))
			continue;
		ret = check_segment(image, mem, &phdr);
		if (ret)
			return ret;
		phdrs[count++] = phdr;
	}
	if (!count)
		return bad_elf(image, "it is an ELF file with nothing to load");
	ret = check_overlap(image, phdrs, count);
	return ret ? ret : (int)count;
}

static int load_segment(const struct boot_image *image, const struct mem *mem,
			const Elf64_Phdr *phdr)
{
	uint8_t *data = mem_ptr(mem, phdr->p_paddr, phdr->p_memsz);
	int ret;

	if (!data)
		return -ENOMEM;
	ret = boot_read(image, phdr->p_offset, data, phdr->p_filesz);
	if (ret)
		return ret;
	/* After a reboot memory holds what the last kernel left. */
	memset(data + phdr->p_filesz, 0, phdr->p_memsz - phdr->p_filesz);
	return 0;
}

static void make_header(struct setup_header *header)
{
	memset(header, 0, sizeof(*header));
	header->boot_flag = SETUP_BOOT_FLAG;
	header->header = SETUP_MAGIC;
	header->version = PROTOCOL;
	header->loadflags = LOADED_HIGH;
	header->initrd_addr_max = KERNEL_INITRD_ADDR_MAX;
	header->kernel_alignment = KERNEL_ALIGNMENT;
	header->cmdline_size = KERNEL_CMDLINE_SIZE;
}

int elf_load(const struct boot_image *image, const struct mem *mem, struct boot_kernel *kernel)
{
	Elf64_Phdr phdrs[MAX_HEADERS];
	Elf64_Ehdr ehdr;
	bool entry_loaded = false;
	int i, count, ret;

	memcpy(&ehdr, image->head, sizeof(ehdr));
	ret = check_ehdr(image, &ehdr);
	if (ret)
		return ret;
	count = read_segments(image, mem, &ehdr, phdrs);
	if (count < 0)
		return count;
	for (i = 0; i < count; i++)
		if (range_inside(ehdr.e_entry, 1, phdrs[i].p_paddr, phdrs[i].p_memsz))
			entry_loaded = true;
	if (!entry_loaded)
		return bad_elf(image, "its ELF entry point lies in none of its segments");

	kernel->start = UINT64_MAX;
	kernel->end = 0;
	for (i = 0; i < count; i++) {
		ret = load_segment(image, mem, &phdrs[i]);
		if (ret)
			return ret;
		kernel->start = MIN(kernel->start, phdrs[i].p_paddr);
		kernel->end = MAX(kernel->end, phdrs[i].p_paddr + phdrs[i].p_memsz);
	}
	kernel->entry = ehdr.e_entry;
	make_header(&kernel->header);
	return 0;
}
