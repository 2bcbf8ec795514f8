/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel-loading tests share: guest memory as the machine lays it out, files made of
 * bytes, and the one line that a refusal says.
 */
#ifndef WHELP_TESTS_LIBBOOT_H
#define WHELP_TESTS_LIBBOOT_H

#include <asm/bootparam.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/mem.h"
#include "vmm/util.h"
#include "vmm/x86/boot.h"

#define LIBBOOT_MESSAGE_MAX 1024

/*
 * A synthetic bzImage: three sectors of setup, 100 paragraphs of "code", and something behind that
 * is no part of the kernel, as a signature is. It wants to be at 16 MiB, and 1 MiB there.
 */
#define LIBBOOT_CODE_OFFSET   1536u
#define LIBBOOT_CODE_SIZE     1600u
#define LIBBOOT_IMAGE_SIZE    (LIBBOOT_CODE_OFFSET + LIBBOOT_CODE_SIZE)
#define LIBBOOT_TAIL_SIZE     48u
#define LIBBOOT_LOAD	      MIB(16)
#define LIBBOOT_HEADER_OFFSET 0x1f1u
#define LIBBOOT_HEADER_END    (LIBBOOT_HEADER_OFFSET + sizeof(struct setup_header))

struct libboot_image {
	uint8_t bytes[8192];
	size_t size;
};

void libboot_image(struct libboot_image *image);
struct setup_header *libboot_header(struct libboot_image *image);

/* A machine to boot on. Kernel and initrd are "KERNEL" and "INITRD" in messages. */
struct libboot {
	struct mem mem;
	struct boot_files files;
	struct boot_entry entry;
	struct libboot_image image;
	char message[LIBBOOT_MESSAGE_MAX]; /* all that the last libboot_load() or _open() said */
};

/*
 * A machine with `memory` bytes, a libboot_image() that is not its kernel file yet, no initrd and
 * the command line "console=ttyS0".
 */
void libboot_init(struct libboot *boot, uint64_t memory);
void libboot_fini(struct libboot *boot);

/* cmocka's set-up: `*state` is a struct libboot with 64 MiB. */
int libboot_setup(void **state);
int libboot_teardown(void **state);

/* Replaces the file of which `*fd` is open (-1: none) by one with these bytes. */
void libboot_file(int *fd, const void *data, size_t len);
void libboot_kernel(struct libboot *boot, const void *data, size_t len);
void libboot_use_image(struct libboot *boot);
void libboot_initrd(struct libboot *boot, const void *data, size_t len);

/*
 * boot_load() and boot_open() with stderr captured. A failure must have said exactly one line that
 * begins "whelp: ", a success nothing.
 */
int libboot_load(struct libboot *boot);
int libboot_open(struct libboot *boot, const char *kernel, const char *initrd);

/* libboot_use_image() and libboot_load(). */
int libboot_load_image(struct libboot *boot);

/* Asserts that loading fails with `error` (negative) and that the message contains each of the
 * texts. */
void libboot_refused(struct libboot *boot, int error, const char *text1, const char *text2);

/* Guest memory, asserted to be there. */
void *libboot_at(const struct libboot *boot, uint64_t gpa, uint64_t len);
struct boot_params *libboot_zero_page(const struct libboot *boot);

/* A seed for random tests: $WHELP_TEST_SEED, or one of the moment's; printed. */
uint64_t libboot_seed(void);
uint64_t libboot_random(uint64_t *state);

#endif
