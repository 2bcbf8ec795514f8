/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Puts a Linux kernel, its initrd, command line and zero page into guest memory, by the 64-bit
 * entry of the x86 boot protocol (the kernel's Documentation/arch/x86/boot.rst) for a bzImage, or
 * by the program headers of an uncompressed ELF vmlinux.
 */
#ifndef WHELP_X86_BOOT_H
#define WHELP_X86_BOOT_H

#include <stdint.h>

#include "vmm/mem.h"

/* The files stay open for as long as the machine lives: a reboot loads the same ones again. */
struct boot_files {
	const char *kernel_path; /* borrowed, for messages */
	const char *initrd_path; /* NULL: none */
	const char *cmdline;	 /* borrowed */
	int kernel_fd;
	int initrd_fd; /* -1: none */
};

/*
 * Opens both files and refuses what is not a readable, regular file; sets every field. Logs; 0 or
 * -errno. boot_close() is fine on what a failed boot_open() left.
 */
int boot_open(struct boot_files *files, const char *kernel, const char *initrd,
	      const char *cmdline);
void boot_close(struct boot_files *files);

/* Where the boot CPU starts, in 64-bit mode with paging on. */
struct boot_entry {
	uint64_t rip;
	uint64_t rsi; /* the zero page */
};

/*
 * Loads everything into `mem`, laid out as layout.h says, and writes the page tables and GDT that
 * the entry needs. Any file content is survivable. Logs one line that names the file; 0 or -errno
 * (-ENOEXEC: not a kernel, or one that cannot be booted here; -ENOMEM: does not fit into guest
 * memory; -EIO: file shorter than it says; -EINVAL: the command line is too long for this kernel,
 * or the initrd is empty).
 */
int boot_load(const struct boot_files *files, const struct mem *mem, struct boot_entry *entry);

#endif
