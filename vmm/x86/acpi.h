/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ACPI tables of a hardware-reduced machine (ACPI 6.x): RSDP, XSDT, FADT, MADT, MCFG and the
 * DSDT that iasl compiled from dsdt.asl.
 */
#ifndef WHELP_X86_ACPI_H
#define WHELP_X86_ACPI_H

#include <stdint.h>

#include "vmm/mem.h"

/*
 * Writes the tables for CPUs with APIC ids 0 to cpus - 1 at LAYOUT_ACPI. Returns the RSDP's guest
 * physical address, or 0 if they do not fit there (a fault of ours: asserted in tests).
 */
uint64_t acpi_build(const struct mem *mem, unsigned cpus);

#endif
