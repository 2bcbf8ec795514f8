/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Loading goes in the order of what may fail: kernel, command line, initrd. Then the zero page and
 * the tables of the 64-bit entry are written afresh, so that a reboot finds nothing of the last
 * kernel's in them.
 *
 * The entry (boot.rst, "64-bit boot protocol") wants paging on with all that is loaded mapped one
 * to one, flat segments __BOOT_CS and __BOOT_DS in a GDT, interrupts off, and the zero page in
 * %rsi.
 */
#include "vmm/x86/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/boot_internal.h"
#include "vmm/x86/layout.h"

#define LOADER_UNDEFINED 0xffu /* type_of_loader of one that has no number assigned */

#define E820_RAM      1u
#define E820_RESERVED 2u

#define PTE_PRESENT	   0x1ull
#define PTE_WRITE	   0x2ull
#define PTE_LARGE	   0x80ull
#define PAGE_TABLE_ENTRIES 512u
#define MAPPED_GIB	   4u

/* Flat code at selector 0x10 and flat data at 0x18, as the protocol numbers them. */
static const uint64_t boot_gdt[] = { 0, 0, 0x00af9b000000ffffull, 0x00cf93000000ffffull };

_Static_assert(sizeof(struct boot_params) == PAGE_SIZE, "the zero page is a page");
_Static_assert(LAYOUT_PML4 + (2 + MAPPED_GIB) * PAGE_SIZE <= LAYOUT_CMDLINE, "page tables fit");
_Static_assert(LAYOUT_GDT + sizeof(boot_gdt) <= LAYOUT_ZERO_PAGE, "GDT fits");

uint64_t boot_low_ram_end(const struct mem *mem)
{
	if (!mem->count || mem->regions[0].gpa)
		return 0;
	return MIN(mem->regions[0].size, LAYOUT_GAP);
}

bool boot_range_usable(const struct mem *mem, uint64_t start, uint64_t len)
{
	uint64_t end = boot_low_ram_end(mem);

	return end > LAYOUT_HIGH_RAM && len &&
	       range_inside(start, len, LAYOUT_HIGH_RAM, end - LAYOUT_HIGH_RAM);
}

int boot_read(const struct boot_image *image, uint64_t offset, void *data, uint64_t len)
{
	uint8_t *to = data;

	while (len) {
		ssize_t n = pread(image->fd, to, MIN(len, GIB(1)), (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			n = -errno;
			log_error("%s %s: cannot be read: %s: check the disk it is on", image->what,
				  image->path, strerror((int)-n));
			return (int)n;
		}
		if (!n) {
			log_error("%s %s: became shorter while it was read: start again when "
				  "nothing writes to it",
				  image->what, image->path);
			return -EIO;
		}
		to += n;
		offset += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* O_NONBLOCK: opening a FIFO that nobody writes to must not hang; regular files ignore it. */
static int open_file(const char *what, const char *path, int *fd)
{
	struct stat st;
	int ret;

	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (*fd < 0) {
		ret = -errno;
		log_error("%s %s: cannot be opened: %s: give the path of a readable file", what,
			  path, strerror(-ret));
		return ret;
	}
	if (fstat(*fd, &st)) {
		ret = -errno;
		log_error("%s %s: cannot be examined: %s: give the path of a readable file", what,
			  path, strerror(-ret));
		return ret;
	}
	if (S_ISREG(st.st_mode))
		return 0;
	log_error("%s %s: is %s: give the path of a regular file", what, path,
		  S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
	return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
}

int boot_open(struct boot_files *files, const char *kernel, const char *initrd, const char *cmdline)
{
	int ret;

	*files = (struct boot_files){ .kernel_path = kernel,
				      .initrd_path = initrd,
				      .cmdline = cmdline,
				      .kernel_fd = -1,
				      .initrd_fd = -1 };
	ret = open_file("kernel", kernel, &files->kernel_fd);
	if (!ret && initrd)
		ret = open_file("initrd", initrd, &files->initrd_fd);
	return ret;
}

void boot_close(struct boot_files *files)
{
	if (files->kernel_fd >= 0)
		close(files->kernel_fd);
	if (files->initrd_fd >= 0)
		close(files->initrd_fd);
	files->kernel_fd = -1;
	files->initrd_fd = -1;
}

/* Takes the file's present size and, with `head`, its beginning. */
static int image_init(struct boot_image *image, const char *what, const char *path, int fd,
		      bool head)
{
	struct stat st;
	int ret;

	image->what = what;
	image->path = path;
	image->fd = fd;
	image->head_size = 0;
	if (fstat(fd, &st)) {
		ret = -errno;
		log_error("%s %s: cannot be examined: %s: check the disk it is on", what, path,
			  strerror(-ret));
		return ret;
	}
	image->size = (uint64_t)st.st_size;
	if (!image->size) {
		log_error("%s %s: is empty: fetch or build it again%s", what, path,
			  head ? "" : ", or leave out --initrd");
		return head ? -ENOEXEC : -EINVAL;
	}
	if (!head)
		return 0;
	memset(image->head, 0, sizeof(image->head));
	image->head_size = MIN(image->size, sizeof(image->head));
	return boot_read(image, 0, image->head, image->head_size);
}

/* What people give by mistake, by its first bytes. */
static const struct {
	unsigned offset;
	unsigned len;
	const char *bytes;
	const char *name;
} known_files[] = {
	{ 56, 4, "ARM\x64", "an arm64 Image" },
	{ 0, 2, "\x1f\x8b", "a gzip file" },
	{ 0, 6, "\xfd\x37zXZ\0", "an xz file" },
	{ 0, 4, "\x28\xb5\x2f\xfd", "a zstd file" },
	{ 0, 6, "070701", "a cpio archive (an initrd?)" },
	{ 0, 2, "#!", "a script" },
	{ 0, 7, "!<arch>", "an ar archive (a Debian package?)" },
};

static int refuse_unknown(const struct boot_image *image)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(known_files); i++) {
		if (memcmp(image->head + known_files[i].offset, known_files[i].bytes,
			   known_files[i].len))
			continue;
		log_error("kernel %s: is %s: give an x86-64 bzImage or vmlinux", image->path,
			  known_files[i].name);
		return -ENOEXEC;
	}
	log_error("kernel %s: is neither a bzImage nor an ELF vmlinux (%" PRIu64
		  " bytes): give one of these for x86-64",
		  image->path, image->size);
	return -ENOEXEC;
}

static int load_kernel(const struct boot_files *files, const struct mem *mem,
		       struct boot_kernel *kernel)
{
	struct boot_image image;
	int ret;

	ret = image_init(&image, "kernel", files->kernel_path, files->kernel_fd, true);
	if (ret)
		return ret;
	if (bzimage_match(&image))
		return bzimage_load(&image, mem, kernel);
	if (elf_match(&image))
		return elf_load(&image, mem, kernel);
	return refuse_unknown(&image);
}

/*
 * As high as the kernel takes it, so that it is out of the way of what grows up from the kernel; in
 * a small guest there may be room only below.
 */
static bool place_initrd(const struct mem *mem, const struct boot_kernel *kernel, uint64_t size,
			 uint64_t *addr)
{
	uint64_t end = MIN(boot_low_ram_end(mem), (uint64_t)kernel->header.initrd_addr_max + 1);

	if (size <= end) {
		*addr = align_down(end - size, PAGE_SIZE);
		if (*addr >= kernel->end)
			return true;
	}
	end = MIN(end, kernel->start);
	if (size > end)
		return false;
	*addr = align_down(end - size, PAGE_SIZE);
	return *addr >= LAYOUT_HIGH_RAM;
}

static int load_initrd(const struct boot_files *files, const struct mem *mem,
		       const struct boot_kernel *kernel, struct boot_params *params)
{
	struct boot_image image;
	uint64_t addr;
	void *data;
	int ret;

	if (files->initrd_fd < 0)
		return 0;
	ret = image_init(&image, "initrd", files->initrd_path, files->initrd_fd, false);
	if (ret)
		return ret;
	if (!place_initrd(mem, kernel, image.size, &addr)) {
		log_error("initrd %s: its %" PRIu64
			  " KiB do not fit into memory beside the kernel: give the guest more "
			  "--memory or use a smaller initrd",
			  image.path, align_up(image.size, 1024) >> 10);
		return -ENOMEM;
	}
	data = mem_ptr(mem, addr, image.size);
	if (!data)
		return -ENOMEM;
	ret = boot_read(&image, 0, data, image.size);
	if (ret)
		return ret;
	params->hdr.ramdisk_image = (uint32_t)addr;
	params->ext_ramdisk_image = (uint32_t)(addr >> 32);
	params->hdr.ramdisk_size = (uint32_t)image.size;
	params->ext_ramdisk_size = (uint32_t)(image.size >> 32);
	return 0;
}

static int load_cmdline(const struct boot_files *files, const struct mem *mem,
			const struct boot_kernel *kernel)
{
	uint64_t limit =
		MIN((uint64_t)kernel->header.cmdline_size, LAYOUT_LOW_RAM_END - LAYOUT_CMDLINE - 1);
	uint64_t len = strlen(files->cmdline);

	if (len > limit) {
		log_error("--cmdline has %" PRIu64 " bytes, kernel %s takes at most %" PRIu64
			  ": shorten it",
			  len, files->kernel_path, limit);
		return -EINVAL;
	}
	return mem_write(mem, LAYOUT_CMDLINE, files->cmdline, len + 1);
}

static void add_e820(struct boot_params *params, uint64_t start, uint64_t end, uint32_t type)
{
	struct boot_e820_entry *entry = &params->e820_table[params->e820_entries];

	if (start >= end)
		return;
	params->e820_entries++;
	entry->addr = start;
	entry->size = end - start;
	entry->type = type;
}

static void fill_e820(struct boot_params *params, const struct mem *mem)
{
	unsigned i;

	add_e820(params, 0, LAYOUT_LOW_RAM_END, E820_RAM);
	add_e820(params, LAYOUT_LOW_RAM_END, LAYOUT_HIGH_RAM, E820_RESERVED);
	add_e820(params, LAYOUT_HIGH_RAM, boot_low_ram_end(mem), E820_RAM);
	add_e820(params, LAYOUT_ECAM, LAYOUT_ECAM + LAYOUT_ECAM_SIZE, E820_RESERVED);
	add_e820(params, LAYOUT_KVM_IDENTITY_MAP, LAYOUT_KVM_TSS + 3 * PAGE_SIZE, E820_RESERVED);
	for (i = 1; i < mem->count; i++)
		add_e820(params, mem->regions[i].gpa, mem->regions[i].gpa + mem->regions[i].size,
			 E820_RAM);
}

/*
 * Without firmware there is none to jump to, which is how Linux resets a hardware-reduced machine
 * when all else is ruled out: in real mode, to the reset vector. What stands there does what
 * firmware would.
 */
static int write_reset_vector(const struct mem *mem)
{
	static const uint8_t code[] = {
		0xba, (LAYOUT_POWER + 2) & 0xff, (LAYOUT_POWER + 2) >> 8, /* mov dx, its address */
		0xb0, LAYOUT_RESET_VALUE,				  /* mov al, its value */
		0xee,							  /* out dx, al */
		0xf4,							  /* hlt */
		0xeb, 0xfd,						  /* jmp to the hlt */
	};

	_Static_assert(LAYOUT_RESET_VECTOR + sizeof(code) <= LAYOUT_HIGH_RAM, "it fits");
	return mem_write(mem, LAYOUT_RESET_VECTOR, code, sizeof(code));
}


/* One to one, in 2 MiB pages. */
static void fill_page_tables(uint64_t *tables)
{
	uint64_t pdpt = LAYOUT_PML4 + PAGE_SIZE;
	uint64_t directories = pdpt + PAGE_SIZE;
	unsigned i;

	memset(tables, 0, 2 * PAGE_SIZE);
	tables[0] = pdpt | PTE_PRESENT | PTE_WRITE;
	tables += PAGE_TABLE_ENTRIES;
	for (i = 0; i < MAPPED_GIB; i++)
		tables[i] = (directories + i * PAGE_SIZE) | PTE_PRESENT | PTE_WRITE;
	tables += PAGE_TABLE_ENTRIES;
	for (i = 0; i < MAPPED_GIB * PAGE_TABLE_ENTRIES; i++)
		tables[i] = i * MIB(2) | PTE_PRESENT | PTE_WRITE | PTE_LARGE;
}

int boot_load(const struct boot_files *files, const struct mem *mem, struct boot_entry *entry)
{
	uint64_t *tables = mem_ptr(mem, LAYOUT_PML4, (2 + MAPPED_GIB) * PAGE_SIZE);
	struct boot_params *params = mem_ptr(mem, LAYOUT_ZERO_PAGE, sizeof(*params));
	struct boot_kernel kernel;
	int ret;

	if (!params || !tables || boot_low_ram_end(mem) <= LAYOUT_HIGH_RAM) {
		log_error(
			"guest memory is too small to load a kernel: give the guest more --memory");
		return -ENOMEM;
	}
	ret = load_kernel(files, mem, &kernel);
	if (ret)
		return ret;
	ret = load_cmdline(files, mem, &kernel);
	if (ret)
		return ret;
	memset(params, 0, sizeof(*params));
	params->hdr = kernel.header;
	params->hdr.type_of_loader = LOADER_UNDEFINED;
	params->hdr.setup_data = 0;
	params->hdr.ramdisk_image = 0;
	params->hdr.ramdisk_size = 0;
	params->hdr.cmd_line_ptr = LAYOUT_CMDLINE;
	params->acpi_rsdp_addr = LAYOUT_ACPI;
	fill_e820(params, mem);
	ret = load_initrd(files, mem, &kernel, params);
	if (ret)
		return ret;
	fill_page_tables(tables);
	ret = mem_write(mem, LAYOUT_GDT, boot_gdt, sizeof(boot_gdt));
	if (!ret)
		ret = write_reset_vector(mem);
	if (ret)
		return ret;
	entry->rip = kernel.entry;
	entry->rsi = LAYOUT_ZERO_PAGE;
	return 0;
}
