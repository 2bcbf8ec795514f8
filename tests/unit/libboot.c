/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kernels and initrds are memfds, which fstat and pread like any regular file. Messages are caught
 * by putting a memfd in stderr's place for the length of one call.
 */
#include "libboot.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/util.h"
#include "vmm/x86/layout.h"

struct setup_header *libboot_header(struct libboot_image *image)
{
	return (struct setup_header *)(image->bytes + LIBBOOT_HEADER_OFFSET);
}

void libboot_image(struct libboot_image *image)
{
	struct setup_header *header = libboot_header(image);
	unsigned i;

	for (i = 0; i < sizeof(image->bytes); i++)
		image->bytes[i] = (uint8_t)(i * 7 + i / 256 + 1);
	image->size = LIBBOOT_IMAGE_SIZE + LIBBOOT_TAIL_SIZE;
	memset(header, 0, sizeof(*header));
	header->setup_sects = LIBBOOT_CODE_OFFSET / 512 - 1;
	header->syssize = LIBBOOT_CODE_SIZE / 16;
	header->boot_flag = 0xaa55;
	header->jump = (uint16_t)(0xeb | (LIBBOOT_HEADER_END - 0x202) << 8);
	header->header = 0x53726448;
	header->version = 0x020f;
	header->loadflags = LOADED_HIGH;
	header->initrd_addr_max = 0x7fffffff;
	header->kernel_alignment = MIB(2);
	header->relocatable_kernel = 1;
	header->xloadflags = XLF_KERNEL_64;
	header->cmdline_size = 2047;
	header->pref_address = LIBBOOT_LOAD;
	header->init_size = MIB(1);
}

void libboot_init(struct libboot *boot, uint64_t memory)
{
	memset(boot, 0, sizeof(*boot));
	boot->files.kernel_fd = -1;
	boot->files.initrd_fd = -1;
	boot->files.kernel_path = "KERNEL";
	boot->files.initrd_path = "INITRD";
	boot->files.cmdline = "console=ttyS0";
	libboot_image(&boot->image);
	mem_init(&boot->mem);
	assert_int_equal(mem_add(&boot->mem, 0, MIN(memory, LAYOUT_GAP)), 0);
	if (memory > LAYOUT_GAP)
		assert_int_equal(mem_add(&boot->mem, LAYOUT_GAP_END, memory - LAYOUT_GAP), 0);
}

void libboot_fini(struct libboot *boot)
{
	boot_close(&boot->files);
	mem_fini(&boot->mem);
}

int libboot_setup(void **state)
{
	struct libboot *boot = malloc(sizeof(*boot));

	assert_non_null(boot);
	libboot_init(boot, LAYOUT_MIN_MEMORY);
	*state = boot;
	return 0;
}

int libboot_teardown(void **state)
{
	libboot_fini(*state);
	free(*state);
	return 0;
}

void libboot_file(int *fd, const void *data, size_t len)
{
	if (*fd >= 0)
		close(*fd);
	*fd = memfd_create("file", MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(pwrite(*fd, data, len, 0), len);
}

void libboot_kernel(struct libboot *boot, const void *data, size_t len)
{
	libboot_file(&boot->files.kernel_fd, data, len);
}

void libboot_use_image(struct libboot *boot)
{
	libboot_kernel(boot, boot->image.bytes, boot->image.size);
}

void libboot_initrd(struct libboot *boot, const void *data, size_t len)
{
	libboot_file(&boot->files.initrd_fd, data, len);
}

static int capture_begin(int *saved)
{
	int fd = memfd_create("stderr", MFD_CLOEXEC);

	assert_true(fd >= 0);
	*saved = dup(STDERR_FILENO);
	assert_true(*saved >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	return fd;
}

static void capture_end(struct libboot *boot, int fd, int saved, int ret)
{
	ssize_t n;

	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	close(saved);
	n = pread(fd, boot->message, sizeof(boot->message) - 1, 0);
	close(fd);
	assert_true(n >= 0);
	boot->message[n] = '\0';
	if (!ret) {
		assert_string_equal(boot->message, "");
		return;
	}
	assert_true(ret < 0);
	assert_int_equal(strncmp(boot->message, "whelp: ", 7), 0);
	assert_ptr_equal(strchr(boot->message, '\n'), boot->message + n - 1);
}

int libboot_load(struct libboot *boot)
{
	int saved, ret, fd = capture_begin(&saved);

	ret = boot_load(&boot->files, &boot->mem, &boot->entry);
	capture_end(boot, fd, saved, ret);
	return ret;
}

int libboot_load_image(struct libboot *boot)
{
	libboot_use_image(boot);
	return libboot_load(boot);
}

int libboot_open(struct libboot *boot, const char *kernel, const char *initrd)
{
	int saved, ret, fd = capture_begin(&saved);

	boot_close(&boot->files);
	ret = boot_open(&boot->files, kernel, initrd, "");
	capture_end(boot, fd, saved, ret);
	return ret;
}

void libboot_refused(struct libboot *boot, int error, const char *text1, const char *text2)
{
	assert_int_equal(libboot_load(boot), error);
	if (!strstr(boot->message, text1) || !strstr(boot->message, text2))
		fail_msg("expected '%s' and '%s' in: %s", text1, text2, boot->message);
}

void *libboot_at(const struct libboot *boot, uint64_t gpa, uint64_t len)
{
	void *p = mem_ptr(&boot->mem, gpa, len);

	assert_non_null(p);
	return p;
}

uint64_t libboot_seed(void)
{
	const char *given = getenv("WHELP_TEST_SEED");
	uint64_t seed;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	print_message("WHELP_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

struct boot_params *libboot_zero_page(const struct libboot *boot)
{
	return libboot_at(boot, LAYOUT_ZERO_PAGE, sizeof(struct boot_params));
}

/* splitmix64 */
uint64_t libboot_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}
