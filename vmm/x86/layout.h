/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where things are in the guest's physical and port address spaces. RAM fills [0, PCI gap) and goes
 * on at 4 GiB.
 */
#ifndef WHELP_X86_LAYOUT_H
#define WHELP_X86_LAYOUT_H

#include "vmm/util.h"

/* Below 1 MiB: what the boot protocol and the 64-bit entry need, out of the kernel's way. */
#define LAYOUT_GDT	   0x500ull
#define LAYOUT_ZERO_PAGE   0x7000ull
#define LAYOUT_BOOT_STACK  0x8ff0ull
#define LAYOUT_PML4	   0x9000ull /* then one PDPT page and four page directories */
#define LAYOUT_CMDLINE	   0x20000ull
#define LAYOUT_LOW_RAM_END 0x9fc00ull
#define LAYOUT_ACPI	   0xe0000ull /* RSDP, where the BIOS area is searched, then all tables */
#define LAYOUT_ACPI_END	   0xffff0ull
#define LAYOUT_RESET_VECTOR 0xffff0ull /* f000:fff0, where a PC's firmware starts */
#define LAYOUT_HIGH_RAM	   0x100000ull

/* The gap below 4 GiB that holds no RAM. */
#define LAYOUT_GAP		GIB(3)
#define LAYOUT_GAP_END		GIB(4)
#define LAYOUT_PCI_MEM		GIB(3) /* 32-bit BARs */
#define LAYOUT_PCI_MEM_END	0xe0000000ull
#define LAYOUT_ECAM		0xe0000000ull /* bus 0 only: 1 MiB */
#define LAYOUT_ECAM_SIZE	MIB(1)
#define LAYOUT_IOAPIC		0xfec00000ull
#define LAYOUT_LAPIC		0xfee00000ull
#define LAYOUT_KVM_TSS		0xfffbd000ull /* three pages, for Intel's real mode */
#define LAYOUT_KVM_IDENTITY_MAP 0xfffbc000ull

#define LAYOUT_MIN_MEMORY MIB(64)

/* Ports. */
#define LAYOUT_COM1	       0x3f8u
#define LAYOUT_COM2	       0x2f8u
#define LAYOUT_COM_SIZE	       8u
#define LAYOUT_PANIC	       0x505u /* pvpanic's customary port */
#define LAYOUT_POWER	       0x600u /* sleep control, sleep status, reset: one byte each */
#define LAYOUT_POWER_SIZE      3u
#define LAYOUT_PCI_CONFIG      0xcf8u
#define LAYOUT_PCI_CONFIG_SIZE 8u
#define LAYOUT_KEYBOARD	       0x64u   /* only its reset pulse */
#define LAYOUT_PCI_IO	       0x1000u /* I/O BARs */
#define LAYOUT_PCI_IO_END      0x10000u

/* Interrupt lines: IOAPIC inputs. */
#define LAYOUT_COM1_IRQ 4u
#define LAYOUT_COM2_IRQ 3u
/* INTA of slot n: this + n % LAYOUT_PCI_IRQS, level-triggered, active high. */
#define LAYOUT_PCI_IRQ	     16u
#define LAYOUT_PCI_IRQS	     8u
#define LAYOUT_IOAPIC_INPUTS 24u

/* FADT's values for the power port. */
#define LAYOUT_SLEEP_TYPE_S5 5u
#define LAYOUT_RESET_VALUE   1u

#endif
