/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What boot.c and the two kernel formats share. Nothing outside vmm/x86 includes it.
 */
#ifndef WHELP_X86_BOOT_INTERNAL_H
#define WHELP_X86_BOOT_INTERNAL_H

#include <asm/bootparam.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/mem.h"

#define BOOT_HEAD_SIZE 4096

/* An opened file with its beginning, from which its format is told. */
struct boot_image {
	const char *what; /* "kernel" or "initrd", for messages */
	const char *path;
	int fd;
	uint64_t size;
	uint8_t head[BOOT_HEAD_SIZE]; /* zero beyond head_size */
	size_t head_size;
};

/* Where a format put the kernel, and what the zero page will say of it. */
struct boot_kernel {
	uint64_t start; /* [start, end) is the kernel's, also where it holds nothing of the file */
	uint64_t end;
	uint64_t entry;
	struct setup_header header;
};

bool bzimage_match(const struct boot_image *image);
bool elf_match(const struct boot_image *image);

/* Check the headers against file and memory, then load. Log; 0 or -errno as boot_load() does. */
int bzimage_load(const struct boot_image *image, const struct mem *mem, struct boot_kernel *kernel);
int elf_load(const struct boot_image *image, const struct mem *mem, struct boot_kernel *kernel);

/*
 * Reads exactly `len` bytes at `offset` of the file into `data`. Logs; 0, -EIO when the file ends
 * early, or pread's error.
 */
int boot_read(const struct boot_image *image, uint64_t offset, void *data, uint64_t len);

/* The end of the RAM that starts at 0: what a kernel or an initrd must lie below. */
uint64_t boot_low_ram_end(const struct mem *mem);

/* Whether [start, start + len) is RAM between 1 MiB and the PCI gap, where a kernel may be put. */
bool boot_range_usable(const struct mem *mem, uint64_t start, uint64_t len);

#endif
