/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bzImages: where a good one goes, and that a bad one gets its message and never a crash.
 */
#include <asm/bootparam.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libboot.h"
#include "vmm/util.h"
#include "vmm/x86/layout.h"

static void refused(struct libboot *boot, int error, const char *text)
{
	libboot_use_image(boot);
	libboot_refused(boot, error, "kernel KERNEL: ", text);
}

static void test_loads_code_at_preferred_address(void **state)
{
	struct libboot *boot = *state;
	const uint8_t *code;
	unsigned i;

	assert_int_equal(libboot_load_image(boot), 0);
	code = libboot_at(boot, LIBBOOT_LOAD, LIBBOOT_CODE_SIZE + LIBBOOT_TAIL_SIZE);
	assert_memory_equal(code, boot->image.bytes + LIBBOOT_CODE_OFFSET, LIBBOOT_CODE_SIZE);
	for (i = 0; i < LIBBOOT_TAIL_SIZE; i++)
		assert_int_equal(code[LIBBOOT_CODE_SIZE + i], 0);
	assert_int_equal(boot->entry.rip, LIBBOOT_LOAD + 0x200);
	assert_int_equal(boot->entry.rsi, LAYOUT_ZERO_PAGE);
}

static void test_header_is_cut_at_its_place_in_the_zero_page(void **state)
{
	struct libboot *boot = *state;
	const uint8_t *page = (const uint8_t *)libboot_zero_page(boot);

	boot->image.bytes[0x201] = 0xff;
	assert_int_equal(libboot_load_image(boot), 0);
	assert_memory_equal(page + 0x202, "HdrS", 4);
	assert_int_equal(page[LIBBOOT_HEADER_END], 0);
	assert_int_equal(page[0x2cf], 0);
}

static void test_header_ends_where_it_says(void **state)
{
	struct libboot *boot = *state;
	const uint8_t *page = (const uint8_t *)libboot_zero_page(boot);

	libboot_header(&boot->image)->version = 0x020c;
	boot->image.bytes[0x201] = 0x264 - 0x202;
	memset(boot->image.bytes + 0x264, 0xee, 64);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(page[0x263], MIB(1) >> 24);
	assert_int_equal(page[0x264], 0);
	assert_int_equal(page[0x26b], 0);
}

static void test_relocatable_kernel_is_aligned(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->pref_address = MIB(17);
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(boot->entry.rip, MIB(18) + 0x200);
}

static void test_fixed_kernel_is_where_it_wants(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->pref_address = MIB(17);
	libboot_header(&boot->image)->relocatable_kernel = 0;
	libboot_header(&boot->image)->kernel_alignment = 3;
	assert_int_equal(libboot_load_image(boot), 0);
	assert_int_equal(boot->entry.rip, MIB(17) + 0x200);
}

static void test_kernel_that_just_fits(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->init_size = MIB(48);
	assert_int_equal(libboot_load_image(boot), 0);
	libboot_header(&boot->image)->init_size = MIB(48) + 1;
	refused(boot, -ENOMEM,
		"needs memory up to 65 MiB, and the guest has 64 MiB: give it --memory 65M");
}

static void test_h19_setup_sects_0_means_4(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->setup_sects = 0;
	boot->image.size = 5 * 512 + LIBBOOT_CODE_SIZE;
	assert_int_equal(libboot_load_image(boot), 0);
	assert_memory_equal(libboot_at(boot, LIBBOOT_LOAD, LIBBOOT_CODE_SIZE),
			    boot->image.bytes + 5 * 512, LIBBOOT_CODE_SIZE);
	boot->image.size--;
	refused(boot, -EIO, "shorter than its header says (4160)");
}

static void test_h19_truncated_at_0x1f0(void **state)
{
	struct libboot *boot = *state;

	boot->image.size = 0x1f0;
	refused(boot, -ENOEXEC, "neither a bzImage nor an ELF vmlinux (496 bytes)");
}

static void test_h19_truncated_at_0x264(void **state)
{
	struct libboot *boot = *state;

	boot->image.size = 0x264;
	refused(boot, -EIO, "shorter than its header says");
}

static void test_h19_truncated_at_end_of_setup(void **state)
{
	struct libboot *boot = *state;

	boot->image.size = LIBBOOT_CODE_OFFSET;
	refused(boot, -EIO, "1536 bytes, shorter than its header says (3136)");
}

static void test_h19_truncated_at_half(void **state)
{
	struct libboot *boot = *state;

	boot->image.size = LIBBOOT_IMAGE_SIZE / 2;
	refused(boot, -EIO, "shorter than its header says");
}

static void test_h19_truncated_at_every_byte(void **state)
{
	struct libboot *boot = *state;
	size_t size;

	libboot_use_image(boot);
	for (size = LIBBOOT_IMAGE_SIZE; size-- > 0;) {
		assert_int_equal(ftruncate(boot->files.kernel_fd, (off_t)size), 0);
		assert_int_not_equal(libboot_load(boot), 0);
		if (size >= 0x206)
			assert_non_null(strstr(boot->message, "shorter than its header says"));
	}
}

static void test_h19_header_ends_before_init_size(void **state)
{
	struct libboot *boot = *state;

	boot->image.bytes[0x201] = 0x263 - 0x202;
	refused(boot, -ENOEXEC, "header ends at 0x263");
	boot->image.bytes[0x201] = 6;
	refused(boot, -ENOEXEC, "header ends at 0x208");
	boot->image.bytes[0x201] = 0;
	refused(boot, -ENOEXEC, "too old");
}

static void test_h19_wrong_magic(void **state)
{
	struct libboot *boot = *state;

	boot->image.bytes[0x202] = 'h';
	refused(boot, -ENOEXEC, "neither a bzImage nor an ELF vmlinux");
}

static void test_h19_wrong_boot_flag(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->boot_flag = 0x55aa;
	refused(boot, -ENOEXEC, "boot flag");
}

static void test_h19_protocol_too_old(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->version = 0x020b;
	refused(boot, -ENOEXEC, "boot protocol 2.11 is too old, whelp needs 2.12");
	libboot_header(&boot->image)->version = 0;
	refused(boot, -ENOEXEC, "too old");
}

static void test_h19_protocol_too_new(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->version = 0x02ff;
	assert_int_equal(libboot_load_image(boot), 0);
	libboot_header(&boot->image)->version = 0x0300;
	refused(boot, -ENOEXEC, "boot protocol 3.00 is newer than whelp knows");
}

static void test_h19_zimage(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->loadflags = 0;
	refused(boot, -ENOEXEC, "zImage");
}

static void test_h19_32_bit_only(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->xloadflags = (uint16_t)~XLF_KERNEL_64;
	refused(boot, -ENOEXEC, "no 64-bit entry: use an x86-64 kernel");
}

static void test_h19_bad_alignment(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->kernel_alignment = 0;
	refused(boot, -ENOEXEC, "power of two");
	libboot_header(&boot->image)->kernel_alignment = MIB(3);
	refused(boot, -ENOEXEC, "power of two");
}

static void test_h19_no_code(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->syssize = 0x200 / 16;
	refused(boot, -ENOEXEC, "only 512 bytes of code");
	libboot_header(&boot->image)->syssize++;
	assert_int_equal(libboot_load_image(boot), 0);
}

static void test_h19_syssize_beyond_all(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->syssize = UINT32_MAX;
	refused(boot, -EIO, "shorter than its header says");
}

static void test_h19_too_large_for_memory(void **state)
{
	struct libboot *boot = *state;

	/* A sparse file: only its size counts. */
	libboot_header(&boot->image)->syssize = MIB(49) / 16;
	libboot_use_image(boot);
	assert_int_equal(ftruncate(boot->files.kernel_fd, MIB(50)), 0);
	libboot_refused(boot, -ENOMEM, "kernel KERNEL: needs memory", "--memory 65M");
}

static void test_h19_init_size_beyond_any_guest(void **state)
{
	struct libboot *boot = *state;

	libboot_header(&boot->image)->init_size = UINT32_MAX;
	refused(boot, -ENOEXEC, "no guest has");
}

static void test_h19_pref_address_out_of_place(void **state)
{
	static const uint64_t bad[] = { 0,	0x7000,	    LAYOUT_HIGH_RAM - 1, LAYOUT_GAP,
					GIB(4), 1ull << 63, UINT64_MAX };
	struct libboot *boot = *state;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		libboot_header(&boot->image)->relocatable_kernel = 0;
		libboot_header(&boot->image)->pref_address = bad[i];
		refused(boot, -ENOEXEC, "no guest has");
	}
	libboot_header(&boot->image)->relocatable_kernel = 1;
	refused(boot, -ENOEXEC, "no guest has");
}

static void test_h19_header_fuzz(void **state)
{
	struct libboot *boot = *state;
	uint64_t seed = libboot_seed();
	unsigned round, i, loaded = 0;

	for (round = 0; round < 4000; round++) {
		libboot_image(&boot->image);
		for (i = libboot_random(&seed) % 4 + 1; i > 0; i--)
			boot->image.bytes[LIBBOOT_HEADER_OFFSET +
					  libboot_random(&seed) % sizeof(struct setup_header)] =
				(uint8_t)libboot_random(&seed);
		if (libboot_random(&seed) % 4 == 0)
			boot->image.size = libboot_random(&seed) % boot->image.size;
		if (libboot_load_image(boot))
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
		TEST(test_loads_code_at_preferred_address),
		TEST(test_header_is_cut_at_its_place_in_the_zero_page),
		TEST(test_header_ends_where_it_says),
		TEST(test_relocatable_kernel_is_aligned),
		TEST(test_fixed_kernel_is_where_it_wants),
		TEST(test_kernel_that_just_fits),
		TEST(test_h19_setup_sects_0_means_4),
		TEST(test_h19_truncated_at_0x1f0),
		TEST(test_h19_truncated_at_0x264),
		TEST(test_h19_truncated_at_end_of_setup),
		TEST(test_h19_truncated_at_half),
		TEST(test_h19_truncated_at_every_byte),
		TEST(test_h19_header_ends_before_init_size),
		TEST(test_h19_wrong_magic),
		TEST(test_h19_wrong_boot_flag),
		TEST(test_h19_protocol_too_old),
		TEST(test_h19_protocol_too_new),
		TEST(test_h19_zimage),
		TEST(test_h19_32_bit_only),
		TEST(test_h19_bad_alignment),
		TEST(test_h19_no_code),
		TEST(test_h19_syssize_beyond_all),
		TEST(test_h19_too_large_for_memory),
		TEST(test_h19_init_size_beyond_any_guest),
		TEST(test_h19_pref_address_out_of_place),
		TEST(test_h19_header_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
