/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens around a kernel of whatever format: opening, zero page, memory map, page tables,
 * command line, initrd.
 */
#include <asm/bootparam.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "libboot.h"
#include "vmm/util.h"
#include "vmm/x86/boot_internal.h"
#include "vmm/x86/layout.h"

/* Linux's last resort is a jump there in real mode, and it has to end in a reset. */
static void test_reset_vector_resets(void **state)
{
	static const uint8_t out_dx_al = 0xee, mov_dx = 0xba, mov_al = 0xb0;
	struct libboot *boot = *state;
	const uint8_t *code;

	assert_int_equal(libboot_load_image(boot), 0);
	code = libboot_at(boot, LAYOUT_RESET_VECTOR, 16);
	assert_int_equal(code[0], mov_dx);
	assert_int_equal(code[1] | code[2] << 8, LAYOUT_POWER + 2);
	assert_int_equal(code[3], mov_al);
	assert_int_equal(code[4], LAYOUT_RESET_VALUE);
	assert_int_equal(code[5], out_dx_al);
}

static void test_zero_page(void **state)
{
	struct libboot *boot = *state;
	struct setup_header expected = *libboot_header(&boot->image);
	const struct boot_params *params = libboot_zero_page(boot);

	libboot_header(&boot->image)->setup_data = 0x9abc;
	libboot_header(&boot->image)->ramdisk_image = 0x1234;
	libboot_header(&boot->image)->ramdisk_size = 0x5678;
	assert_int_equal(libboot_load_image(boot), 0);
	expected.type_of_loader = 0xff;
	expected.cmd_line_ptr = LAYOUT_CMDLINE;
	assert_memory_equal(&params->hdr, &expected, sizeof(expected));
	assert_int_equal(params->acpi_rsdp_addr, LAYOUT_ACPI);
	assert_int_equal(params->ext_ramdisk_image, 0);
	assert_int_equal(params->ext_ramdisk_size, 0);
	assert_int_equal(params->ext_cmd_line_ptr, 0);
	assert_string_equal(libboot_at(boot, LAYOUT_CMDLINE, 64), "console=ttyS0");
}

static void test_page_tables_map_4_gib(void **state)
{
	struct libboot *boot = *state;
	const uint64_t *pml4, *pdpt, *directory;
	uint64_t address;

	assert_int_equal(libboot_load_image(boot), 0);
	pml4 = libboot_at(boot, LAYOUT_PML4, PAGE_SIZE);
	assert_int_equal(pml4[0] & 3, 3);
	assert_int_equal(pml4[1], 0);
	pdpt = libboot_at(boot, align_down(pml4[0], PAGE_SIZE), PAGE_SIZE);
	assert_int_equal(pdpt[4], 0);
	for (address = 0; address < GIB(4); address += MIB(2)) {
		assert_int_equal(pdpt[address >> 30] & 3, 3);
		directory = libboot_at(boot, align_down(pdpt[address >> 30], PAGE_SIZE), PAGE_SIZE);
		assert_int_equal(directory[address >> 21 & 511], address | 0x83);
	}
}

static void test_gdt(void **state)
{
	struct libboot *boot = *state;
	const uint64_t *gdt;

	assert_int_equal(libboot_load_image(boot), 0);
	gdt = libboot_at(boot, LAYOUT_GDT, 32);
	assert_int_equal(gdt[0], 0);
	assert_int_equal(gdt[2], 0x00af9b000000ffffull);
	assert_int_equal(gdt[3], 0x00cf93000000ffffull);
}

static void test_reload_leaves_nothing_of_before(void **state)
{
	struct libboot *boot = *state;
	uint8_t first[PAGE_SIZE];

	assert_int_equal(libboot_load_image(boot), 0);
	memcpy(first, libboot_zero_page(boot), sizeof(first));
	memset(libboot_at(boot, 0, LAYOUT_LOW_RAM_END), 0xa5, LAYOUT_LOW_RAM_END);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_memory_equal(libboot_zero_page(boot), first, sizeof(first));
	test_page_tables_map_4_gib(state);
	test_gdt(state);
}

/* ---- what is no kernel */

static void test_h19_empty(void **state)
{
	struct libboot *boot = *state;

	boot->image.size = 0;
	libboot_use_image(boot);
	libboot_refused(boot, -ENOEXEC, "kernel KERNEL: ", "is empty");
}

static void test_h19_other_files_are_named(void **state)
{
	static const struct {
		unsigned offset;
		const char *bytes;
		unsigned len;
		const char *name;
	} others[] = {
		{ 56, "ARM\x64", 4, "an arm64 Image" }, { 0, "\x1f\x8b\x08", 3, "a gzip file" },
		{ 0, "\xfd\x37zXZ", 6, "an xz file" },	{ 0, "\x28\xb5\x2f\xfd", 4, "a zstd file" },
		{ 0, "070701", 6, "a cpio archive" },	{ 0, "#!/bin/sh", 9, "a script" },
		{ 0, "!<arch>\n", 8, "an ar archive" },
	};
	struct libboot *boot = *state;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(others); i++) {
		memset(boot->image.bytes, 0, sizeof(boot->image.bytes));
		memcpy(boot->image.bytes + others[i].offset, others[i].bytes, others[i].len);
		libboot_use_image(boot);
		libboot_refused(boot, -ENOEXEC, "kernel KERNEL: ", others[i].name);
	}
}

static void test_h19_file_shrinks_while_read(void **state)
{
	struct libboot *boot = *state;
	struct boot_image image = { .what = "kernel", .path = "KERNEL", .size = 100 };
	char buffer[100];

	libboot_kernel(boot, "short", 5);
	image.fd = boot->files.kernel_fd;
	assert_int_equal(boot_read(&image, 0, buffer, 5), 0);
	assert_int_equal(boot_read(&image, 0, buffer, sizeof(buffer)), -EIO);
}

/* A template for mkdtemp() and mkstemp(). */
static void temp_template(char *path, size_t size)
{
	const char *dir = getenv("TMPDIR");

	assert_in_range(snprintf(path, size, "%s/test_boot.XXXXXX", dir ? dir : "/tmp"), 1,
			size - 1);
}

static void test_h19_what_cannot_be_a_kernel(void **state)
{
	struct libboot *boot = *state;
	char dir[PATH_MAX], path[PATH_MAX + 8];

	temp_template(dir, sizeof(dir));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(libboot_open(boot, dir, NULL), -EISDIR);
	assert_non_null(strstr(boot->message, "is a directory"));
	assert_non_null(strstr(boot->message, dir));
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(libboot_open(boot, path, NULL), -ENOENT);
	assert_non_null(strstr(boot->message, path));
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(libboot_open(boot, path, NULL), -EINVAL);
	assert_non_null(strstr(boot->message, "not a regular file"));
	assert_int_equal(libboot_open(boot, "/dev/null", NULL), -EINVAL);
	unlink(path);
	rmdir(dir);
}

static void test_h19_unreadable(void **state)
{
	struct libboot *boot = *state;
	char path[PATH_MAX];
	bool root = geteuid() == 0;
	int ret, fd;

	temp_template(path, sizeof(path));
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0), 0);
	if (root)
		assert_int_equal(seteuid(65534), 0);
	ret = libboot_open(boot, path, NULL);
	if (root)
		assert_int_equal(seteuid(0), 0);
	unlink(path);
	close(fd);
	assert_int_equal(ret, -EACCES);
	assert_non_null(strstr(boot->message, "Permission denied"));
}

static void test_open_sets_every_field(void **state)
{
	struct libboot *boot = *state;

	assert_int_equal(libboot_open(boot, "/proc/self/exe", "/proc/self/exe"), 0);
	assert_true(boot->files.kernel_fd >= 0);
	assert_true(boot->files.initrd_fd >= 0);
	assert_string_equal(boot->files.initrd_path, "/proc/self/exe");
	assert_int_equal(libboot_open(boot, "/proc/self/exe", NULL), 0);
	assert_int_equal(boot->files.initrd_fd, -1);
	assert_null(boot->files.initrd_path);
	boot_close(&boot->files);
	assert_int_equal(boot->files.kernel_fd, -1);
}

/* ---- initrd */

static void test_h20_empty(void **state)
{
	struct libboot *boot = *state;

	libboot_use_image(boot);
	libboot_initrd(boot, "", 0);
	libboot_refused(boot, -EINVAL, "initrd INITRD: is empty", "leave out --initrd");
}

static void test_h20_1_byte(void **state)
{
	struct libboot *boot = *state;

	libboot_initrd(boot, "x", 1);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, MIB(64) - PAGE_SIZE);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_size, 1);
	assert_int_equal(*(char *)libboot_at(boot, MIB(64) - PAGE_SIZE, 1), 'x');
}

static void test_h20_odd_size(void **state)
{
	struct libboot *boot = *state;

	libboot_initrd(boot, boot->image.bytes, PAGE_SIZE + 1);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, MIB(64) - 2 * PAGE_SIZE);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_size, PAGE_SIZE + 1);
	assert_memory_equal(libboot_at(boot, MIB(64) - 2 * PAGE_SIZE, PAGE_SIZE + 1),
			    boot->image.bytes, PAGE_SIZE + 1);
}

/* A sparse initrd: only its size counts. */
static void sparse_initrd(struct libboot *boot, uint64_t size)
{
	libboot_initrd(boot, "", 0);
	assert_int_equal(ftruncate(boot->files.initrd_fd, (off_t)size), 0);
}

static void test_h20_larger_than_ram(void **state)
{
	static const uint64_t sizes[] = { MIB(64) - 1, MIB(64), MIB(64) + 1, GIB(5), 1ull << 40 };
	struct libboot *boot = *state;
	unsigned i;

	libboot_use_image(boot);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		sparse_initrd(boot, sizes[i]);
		libboot_refused(boot, -ENOMEM, "initrd INITRD: its ", "--memory");
	}
}

static void test_h20_directory(void **state)
{
	struct libboot *boot = *state;

	assert_int_equal(libboot_open(boot, "/proc/self/exe", "/"), -EISDIR);
	assert_non_null(strstr(boot->message, "initrd /: is a directory"));
}

static void test_h20_is_below_initrd_addr_max(void **state)
{
	struct libboot boot;

	(void)state;
	libboot_init(&boot, GIB(8));
	libboot_initrd(&boot, "x", 1);
	assert_int_equal(libboot_load_image(&boot), 0);
	assert_int_equal(libboot_zero_page(&boot)->hdr.ramdisk_image, 0x80000000 - PAGE_SIZE);
	libboot_header(&boot.image)->initrd_addr_max = 0x37ffffff;
	assert_int_equal(libboot_load_image(&boot), 0);
	assert_int_equal(libboot_zero_page(&boot)->hdr.ramdisk_image, 0x38000000 - PAGE_SIZE);
	libboot_header(&boot.image)->initrd_addr_max = UINT32_MAX;
	assert_int_equal(libboot_load_image(&boot), 0);
	assert_int_equal(libboot_zero_page(&boot)->hdr.ramdisk_image, LAYOUT_GAP - PAGE_SIZE);
	libboot_fini(&boot);
}

static void test_h20_goes_below_the_kernel_if_it_must(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->init_size = MIB(48);
	sparse_initrd(boot, MIB(15));
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, MIB(1));
	sparse_initrd(boot, MIB(15) + 1);
	libboot_refused(boot, -ENOMEM, "initrd INITRD: its 15361 KiB do not fit", "--memory");
}

static void test_h20_touches_the_kernel_only(void **state)
{
	struct libboot *boot = *state;

	/* Page-exact between the kernel's end and the end of memory. */
	libboot_header(&boot->image)->init_size = MIB(24);
	sparse_initrd(boot, MIB(24));
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, MIB(40));
	sparse_initrd(boot, MIB(24) + 1);
	libboot_refused(boot, -ENOMEM, "do not fit", "--memory");
}

/* ---- command line */

static void with_cmdline(struct libboot *boot, size_t len, char *room)
{
	memset(room, 'a', len);
	room[len] = '\0';
	boot->files.cmdline = room;
}

static void test_h21_limit(void **state)
{
	struct libboot *boot = *state;
	char room[2049];

	with_cmdline(boot, 2046, room);
	assert_int_equal(libboot_load_image(boot), 0);
	with_cmdline(boot, 2047, room);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_string_equal(libboot_at(boot, LAYOUT_CMDLINE, 2048), room);
	with_cmdline(boot, 2048, room);
	libboot_use_image(boot);
	libboot_refused(boot, -EINVAL, "--cmdline has 2048 bytes", "KERNEL takes at most 2047");
}

static void test_h21_empty(void **state)
{
	struct libboot *boot = *state;

	memset(libboot_at(boot, LAYOUT_CMDLINE, 16), 'z', 16);
	boot->files.cmdline = "";
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(*(char *)libboot_at(boot, LAYOUT_CMDLINE, 1), 0);
}

static void test_h21_limit_of_the_kernel(void **state)
{
	struct libboot *boot = *state;
	char room[32];

	libboot_header(&boot->image)->cmdline_size = 10;
	with_cmdline(boot, 10, room);
	assert_int_equal(libboot_load_image(boot), 0);
	with_cmdline(boot, 11, room);
	libboot_use_image(boot);
	libboot_refused(boot, -EINVAL, "11 bytes", "at most 10");
}

static void test_h21_kernel_without_limit(void **state)
{
	struct libboot *boot = *state;
	size_t room = LAYOUT_LOW_RAM_END - LAYOUT_CMDLINE;
	char *cmdline = malloc(room + 1);

	assert_non_null(cmdline);
	libboot_header(&boot->image)->cmdline_size = UINT32_MAX;
	with_cmdline(boot, room - 1, cmdline);
	assert_int_equal(libboot_load_image(boot), 0);
	with_cmdline(boot, room, cmdline);
	assert_int_equal(libboot_load_image(boot), -EINVAL);
	free(cmdline);
}

/* ---- memory map */

static void check_e820(uint64_t memory)
{
	const struct boot_params *params;
	struct libboot boot;
	uint64_t ram = 0, end = 0;
	bool ecam = false;
	unsigned i;

	libboot_init(&boot, memory);
	assert_int_equal(libboot_load_image(&boot), 0);
	params = libboot_zero_page(&boot);
	for (i = 0; i < params->e820_entries; i++) {
		const struct boot_e820_entry *entry = &params->e820_table[i];

		assert_true(entry->addr >= end);
		assert_true(entry->size > 0);
		end = entry->addr + entry->size;
		if (entry->type == 1) {
			ram += entry->size;
			assert_non_null(mem_ptr(&boot.mem, entry->addr, entry->size));
		} else {
			assert_int_equal(entry->type, 2);
			ecam |= range_inside(LAYOUT_ECAM, LAYOUT_ECAM_SIZE, entry->addr,
					     entry->size);
		}
	}
	assert_int_equal(ram, memory - (LAYOUT_HIGH_RAM - LAYOUT_LOW_RAM_END));
	assert_true(ecam);
	if (memory <= LAYOUT_GAP)
		assert_true(end <= GIB(4));
	else
		assert_int_equal(end, GIB(4) + memory - LAYOUT_GAP);
	libboot_fini(&boot);
}

static void test_h18_e820_at_the_gap(void **state)
{
	(void)state;
	check_e820(MIB(64));
	check_e820(GIB(3) - MIB(1));
	check_e820(GIB(3));
	check_e820(GIB(3) + MIB(1));
	check_e820(MIB(3584));
	check_e820(GIB(4) - PAGE_SIZE);
	check_e820(GIB(4));
	check_e820(GIB(4) + PAGE_SIZE);
	check_e820(GIB(8));
}

static void test_h17_no_memory(void **state)
{
	struct libboot *boot = *state;

	libboot_use_image(boot);
	mem_fini(&boot->mem);
	mem_init(&boot->mem);
	libboot_refused(boot, -ENOMEM, "too small", "--memory");
	assert_int_equal(mem_add(&boot->mem, 0, MIB(1)), 0);
	libboot_refused(boot, -ENOMEM, "too small", "--memory");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, libboot_setup, libboot_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_reset_vector_resets),
		TEST(test_zero_page),
		TEST(test_page_tables_map_4_gib),
		TEST(test_gdt),
		TEST(test_reload_leaves_nothing_of_before),
		TEST(test_h19_empty),
		TEST(test_h19_other_files_are_named),
		TEST(test_h19_file_shrinks_while_read),
		TEST(test_h19_what_cannot_be_a_kernel),
		TEST(test_h19_unreadable),
		TEST(test_open_sets_every_field),
		TEST(test_h20_empty),
		TEST(test_h20_1_byte),
		TEST(test_h20_odd_size),
		TEST(test_h20_larger_than_ram),
		TEST(test_h20_directory),
		cmocka_unit_test(test_h20_is_below_initrd_addr_max),
		TEST(test_h20_goes_below_the_kernel_if_it_must),
		TEST(test_h20_touches_the_kernel_only),
		TEST(test_h21_limit),
		TEST(test_h21_empty),
		TEST(test_h21_limit_of_the_kernel),
		TEST(test_h21_kernel_without_limit),
		cmocka_unit_test(test_h18_e820_at_the_gap),
		TEST(test_h17_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
