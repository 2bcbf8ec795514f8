/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vmlinux files: a synthetic one with text and data segments, a note that is not to be loaded, and
 * more memory than file in the data; then everything that can be wrong with one.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libboot.h"
#include "vmm/util.h"
#include "vmm/x86/layout.h"

#define TEXT_ADDR      MIB(16)
#define TEXT_OFFSET    0x400u
#define TEXT_SIZE      0x300u
#define DATA_ADDR      MIB(18)
#define DATA_OFFSET    0x700u
#define DATA_FILE_SIZE 0x100u
#define DATA_SIZE      0x2345u
#define FILE_SIZE      (DATA_OFFSET + DATA_FILE_SIZE)
#define HEADERS	       3u

struct vmlinux {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdrs[HEADERS]; /* text, note, data */
	uint8_t rest[FILE_SIZE - sizeof(Elf64_Ehdr) - HEADERS * sizeof(Elf64_Phdr)];
};

_Static_assert(sizeof(struct vmlinux) == FILE_SIZE, "no padding");

static void make_vmlinux(struct vmlinux *v)
{
	unsigned i;

	for (i = 0; i < sizeof(v->rest); i++)
		v->rest[i] = (uint8_t)(i * 11 + i / 256 + 1);
	v->ehdr = (Elf64_Ehdr){ .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB,
					     EV_CURRENT },
				.e_type = ET_EXEC,
				.e_machine = EM_X86_64,
				.e_version = EV_CURRENT,
				.e_entry = TEXT_ADDR + 0x123,
				.e_phoff = offsetof(struct vmlinux, phdrs),
				.e_ehsize = sizeof(Elf64_Ehdr),
				.e_phentsize = sizeof(Elf64_Phdr),
				.e_phnum = HEADERS };
	v->phdrs[0] = (Elf64_Phdr){ .p_type = PT_LOAD,
				    .p_offset = TEXT_OFFSET,
				    .p_vaddr = 0xffffffff80000000ull + TEXT_ADDR,
				    .p_paddr = TEXT_ADDR,
				    .p_filesz = TEXT_SIZE,
				    .p_memsz = TEXT_SIZE };
	v->phdrs[1] = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = UINT64_MAX, .p_filesz = 1 };
	v->phdrs[2] = (Elf64_Phdr){ .p_type = PT_LOAD,
				    .p_offset = DATA_OFFSET,
				    .p_vaddr = 0xffffffff80000000ull + DATA_ADDR,
				    .p_paddr = DATA_ADDR,
				    .p_filesz = DATA_FILE_SIZE,
				    .p_memsz = DATA_SIZE };
}

static int load(struct libboot *boot, const struct vmlinux *v)
{
	libboot_kernel(boot, v, sizeof(*v));
	return libboot_load(boot);
}

static void refused(struct libboot *boot, const struct vmlinux *v, int error, const char *text)
{
	libboot_kernel(boot, v, sizeof(*v));
	libboot_refused(boot, error, "kernel KERNEL: ", text);
}

static void test_loads_segments_and_clears_the_rest(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;
	const uint8_t *data;
	unsigned i;

	make_vmlinux(&v);
	memset(libboot_at(boot, DATA_ADDR, DATA_SIZE + 1), 0xa5, DATA_SIZE + 1);
	assert_int_equal(load(boot, &v), 0);
	assert_memory_equal(libboot_at(boot, TEXT_ADDR, TEXT_SIZE), (uint8_t *)&v + TEXT_OFFSET,
			    TEXT_SIZE);
	data = libboot_at(boot, DATA_ADDR, DATA_SIZE + 1);
	assert_memory_equal(data, (uint8_t *)&v + DATA_OFFSET, DATA_FILE_SIZE);
	for (i = DATA_FILE_SIZE; i < DATA_SIZE; i++)
		assert_int_equal(data[i], 0);
	assert_int_equal(data[DATA_SIZE], 0xa5);
	assert_int_equal(boot->entry.rip, TEXT_ADDR + 0x123);
	assert_int_equal(boot->entry.rsi, LAYOUT_ZERO_PAGE);
}

static void test_header_is_made_up(void **state)
{
	struct libboot *boot = *state;
	const struct setup_header *header = &libboot_zero_page(boot)->hdr;
	struct vmlinux v;

	make_vmlinux(&v);
	assert_int_equal(load(boot, &v), 0);
	assert_int_equal(header->header, 0x53726448);
	assert_int_equal(header->boot_flag, 0xaa55);
	assert_true(header->version >= 0x020c);
	assert_int_equal(header->type_of_loader, 0xff);
	assert_int_equal(header->loadflags & LOADED_HIGH, LOADED_HIGH);
	assert_int_equal(header->cmd_line_ptr, LAYOUT_CMDLINE);
	assert_int_equal(header->cmdline_size, 2047);
	assert_int_equal(header->initrd_addr_max, 0x7fffffff);
	assert_int_equal(header->setup_data, 0);
}

static void test_h21_limit(void **state)
{
	struct libboot *boot = *state;
	char cmdline[2049];
	struct vmlinux v;

	make_vmlinux(&v);
	memset(cmdline, 'a', sizeof(cmdline));
	cmdline[2047] = '\0';
	boot->files.cmdline = cmdline;
	assert_int_equal(load(boot, &v), 0);
	cmdline[2047] = 'a';
	cmdline[2048] = '\0';
	libboot_kernel(boot, &v, sizeof(v));
	libboot_refused(boot, -EINVAL, "--cmdline has 2048 bytes", "at most 2047");
}

static void test_h20_initrd_is_clear_of_the_segments(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	/* The data ends 16 bytes into the last page: nothing fits above. */
	make_vmlinux(&v);
	v.phdrs[2].p_paddr = MIB(64) - PAGE_SIZE - DATA_SIZE + 16;
	libboot_initrd(boot, "x", 1);
	assert_int_equal(load(boot, &v), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, TEXT_ADDR - PAGE_SIZE);
	v.phdrs[2].p_paddr -= 16;
	assert_int_equal(load(boot, &v), 0);
	assert_int_equal(libboot_zero_page(boot)->hdr.ramdisk_image, MIB(64) - PAGE_SIZE);
}

static void test_h19_truncated_at_every_byte(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;
	size_t size;

	make_vmlinux(&v);
	libboot_kernel(boot, &v, sizeof(v));
	for (size = sizeof(v); size-- > 0;) {
		assert_int_equal(ftruncate(boot->files.kernel_fd, (off_t)size), 0);
		assert_int_not_equal(libboot_load(boot), 0);
		if (size >= SELFMAG)
			assert_non_null(strstr(boot->message, "shorter than its header says"));
	}
}

static void test_h19_header_of_another_kind(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.ehdr.e_ident[EI_CLASS] = ELFCLASS32;
	refused(boot, &v, -ENOEXEC, "not a 64-bit ELF file");
	make_vmlinux(&v);
	v.ehdr.e_ident[EI_DATA] = ELFDATA2MSB;
	refused(boot, &v, -ENOEXEC, "big-endian");
	make_vmlinux(&v);
	v.ehdr.e_machine = EM_AARCH64;
	refused(boot, &v, -ENOEXEC, "another machine");
	make_vmlinux(&v);
	v.ehdr.e_type = ET_DYN;
	refused(boot, &v, -ENOEXEC, "fixed addresses");
}

static void test_h19_program_header_table(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.ehdr.e_phentsize--;
	refused(boot, &v, -ENOEXEC, "program headers");
	make_vmlinux(&v);
	v.ehdr.e_phnum = 0;
	refused(boot, &v, -ENOEXEC, "program headers");
	v.ehdr.e_phnum = PN_XNUM;
	refused(boot, &v, -ENOEXEC, "program headers");
	make_vmlinux(&v);
	v.ehdr.e_phoff = UINT64_MAX - 8;
	refused(boot, &v, -EIO, "shorter than its header says");
	v.ehdr.e_phoff = FILE_SIZE - HEADERS * sizeof(Elf64_Phdr) + 1;
	refused(boot, &v, -EIO, "shorter than its header says");
}

static void test_h19_segment_outside_the_file(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.phdrs[2].p_offset++;
	refused(boot, &v, -EIO, "shorter than its header says");
	v.phdrs[2].p_offset = UINT64_MAX;
	refused(boot, &v, -EIO, "shorter than its header says");
	make_vmlinux(&v);
	v.phdrs[2].p_filesz = v.phdrs[2].p_memsz = UINT64_MAX;
	refused(boot, &v, -EIO, "shorter than its header says");
}

static void test_h19_segment_larger_in_file_than_in_memory(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.phdrs[0].p_memsz--;
	refused(boot, &v, -ENOEXEC, "larger in the file than in memory");
	v.phdrs[0].p_memsz = 0;
	refused(boot, &v, -ENOEXEC, "larger in the file than in memory");
}

static void test_h19_segment_outside_ram(void **state)
{
	static const uint64_t bad[] = { 0,
					LAYOUT_ZERO_PAGE,
					LAYOUT_HIGH_RAM - 1,
					MIB(64) - DATA_SIZE + 1,
					MIB(64),
					GIB(3),
					GIB(4),
					UINT64_MAX - DATA_SIZE,
					UINT64_MAX };
	struct libboot *boot = *state;
	struct vmlinux v;
	unsigned i;

	make_vmlinux(&v);
	v.phdrs[2].p_paddr = MIB(64) - DATA_SIZE;
	assert_int_equal(load(boot, &v), 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		v.phdrs[2].p_paddr = bad[i];
		refused(boot, &v, -ENOMEM, "a segment wants");
	}
	make_vmlinux(&v);
	v.phdrs[2].p_memsz = UINT64_MAX;
	refused(boot, &v, -ENOMEM, "a segment wants");
}

static void test_h19_segments_overlap(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.phdrs[2].p_paddr = TEXT_ADDR + TEXT_SIZE;
	assert_int_equal(load(boot, &v), 0);
	v.phdrs[2].p_paddr--;
	refused(boot, &v, -ENOEXEC, "segments overlap");
	v.phdrs[2].p_paddr = TEXT_ADDR - DATA_SIZE + 1;
	refused(boot, &v, -ENOEXEC, "segments overlap");
}

static void test_h19_entry_outside_segments(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.ehdr.e_entry = TEXT_ADDR + TEXT_SIZE;
	refused(boot, &v, -ENOEXEC, "entry point");
	v.ehdr.e_entry += 0xffffffff80000000ull;
	refused(boot, &v, -ENOEXEC, "entry point");
}

static void test_h19_nothing_to_load(void **state)
{
	struct libboot *boot = *state;
	struct vmlinux v;

	make_vmlinux(&v);
	v.phdrs[0].p_type = v.phdrs[2].p_type = PT_NULL;
	refused(boot, &v, -ENOEXEC, "nothing to load");
}

static void test_h19_refusal_loads_nothing(void **state)
{
	struct libboot *boot = *state;
	const uint8_t *text = libboot_at(boot, TEXT_ADDR, TEXT_SIZE);
	struct vmlinux v;
	unsigned i;

	make_vmlinux(&v);
	v.phdrs[2].p_paddr = 0;
	refused(boot, &v, -ENOMEM, "a segment wants");
	for (i = 0; i < TEXT_SIZE; i++)
		assert_int_equal(text[i], 0);
}

static void test_h19_header_fuzz(void **state)
{
	struct libboot *boot = *state;
	uint64_t seed = libboot_seed();
	unsigned round, i, loaded = 0;
	struct vmlinux v;

	for (round = 0; round < 4000; round++) {
		make_vmlinux(&v);
		for (i = libboot_random(&seed) % 4 + 1; i > 0; i--)
			((uint8_t *)&v)[libboot_random(&seed) % offsetof(struct vmlinux, rest)] =
				(uint8_t)libboot_random(&seed);
		if (load(boot, &v))
			continue;
		loaded++;
		assert_true(boot->entry.rip >= LAYOUT_HIGH_RAM);
		assert_true(boot->entry.rip < LAYOUT_MIN_MEMORY);
	}
	assert_true(loaded > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, libboot_setup, libboot_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_loads_segments_and_clears_the_rest),
		TEST(test_header_is_made_up),
		TEST(test_h21_limit),
		TEST(test_h20_initrd_is_clear_of_the_segments),
		TEST(test_h19_truncated_at_every_byte),
		TEST(test_h19_header_of_another_kind),
		TEST(test_h19_program_header_table),
		TEST(test_h19_segment_outside_the_file),
		TEST(test_h19_segment_larger_in_file_than_in_memory),
		TEST(test_h19_segment_outside_ram),
		TEST(test_h19_segments_overlap),
		TEST(test_h19_entry_outside_segments),
		TEST(test_h19_nothing_to_load),
		TEST(test_h19_refusal_loads_nothing),
		TEST(test_h19_header_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
