/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tables stand one after another from LAYOUT_ACPI, the RSDP first: that is where boot.c tells
 * the kernel to look. Each is composed in a structure whose fields are named and ordered as in the
 * ACPI specification 6.3 (chapter 5.2), appended, and gets its checksum there.
 *
 * The machine is hardware-reduced: no SCI, no PM timer, no fixed-feature registers but the sleep
 * control, sleep status and reset registers at LAYOUT_POWER; no 8259, no CMOS clock, no 8042.
 */
#include "vmm/x86/acpi.h"

#include <string.h>

#include "vmm/util.h"
#include "vmm/x86/layout.h"

/* iasl writes an array definition without qualifiers. */
static const
#include "vmm/x86/dsdt.hex"
	_Static_assert(sizeof(dsdt_aml_code) > 36, "more than a header");

#define TABLE_ALIGN	64u
#define GAS_SYSTEM_IO	1u
#define GAS_BYTE_ACCESS 1u

#define RSDP_REVISION 2u
#define XSDT_REVISION 1u
#define FADT_REVISION 6u
#define MADT_REVISION 5u
#define MCFG_REVISION 1u

#define FADT_PROFILE_ENTERPRISE_SERVER 4u
#define FADT_BOOT_NO_VGA	       (1u << 2)
#define FADT_BOOT_NO_CMOS_RTC	       (1u << 5)
#define FADT_WBINVD		       (1u << 0)
#define FADT_NO_FIXED_POWER_BUTTON     (1u << 4)
#define FADT_NO_FIXED_SLEEP_BUTTON     (1u << 5)
#define FADT_NO_FIXED_RTC_WAKE	       (1u << 6)
#define FADT_RESET_REGISTER	       (1u << 10)
#define FADT_HW_REDUCED		       (1u << 20)

#define MADT_LOCAL_APIC	    0u
#define MADT_IO_APIC	    1u
#define MADT_LOCAL_APIC_NMI 4u
#define MADT_CPU_ENABLED    1u
#define MADT_ALL_CPUS	    0xffu
#define MADT_LINT1	    1u

#define PACKED __attribute__((packed))

struct acpi_header {
	char signature[4];
	uint32_t length;
	uint8_t revision;
	uint8_t checksum;
	char oem_id[6];
	char oem_table_id[8];
	uint32_t oem_revision;
	char creator_id[4];
	uint32_t creator_revision;
} PACKED;

struct acpi_rsdp {
	char signature[8];
	uint8_t checksum; /* of the first 20 bytes */
	char oem_id[6];
	uint8_t revision;
	uint32_t rsdt_address;
	uint32_t length;
	uint64_t xsdt_address;
	uint8_t extended_checksum;
	uint8_t reserved[3];
} PACKED;

#define RSDP_V1_SIZE 20u

struct acpi_address {
	uint8_t space;
	uint8_t bit_width;
	uint8_t bit_offset;
	uint8_t access_size;
	uint64_t address;
} PACKED;

struct acpi_xsdt {
	struct acpi_header header;
	uint64_t tables[3];
} PACKED;

struct acpi_fadt {
	struct acpi_header header;
	uint32_t firmware_ctrl;
	uint32_t dsdt;
	uint8_t reserved0;
	uint8_t preferred_pm_profile;
	uint8_t fixed_hardware[63]; /* SCI_INT to CENTURY: none in a hardware-reduced machine */
	uint16_t iapc_boot_arch;
	uint8_t reserved1;
	uint32_t flags;
	struct acpi_address reset_reg;
	uint8_t reset_value;
	uint16_t arm_boot_arch;
	uint8_t minor_version;
	uint64_t x_firmware_ctrl;
	uint64_t x_dsdt;
	struct acpi_address x_fixed_hardware[8]; /* X_PM1a_EVT_BLK to X_GPE1_BLK */
	struct acpi_address sleep_control_reg;
	struct acpi_address sleep_status_reg;
	char hypervisor_vendor[8];
} PACKED;

struct acpi_madt {
	struct acpi_header header;
	uint32_t local_apic_address;
	uint32_t flags; /* PCAT_COMPAT clear: no 8259 */
} PACKED;

struct acpi_madt_local_apic {
	uint8_t type;
	uint8_t length;
	uint8_t uid;
	uint8_t apic_id;
	uint32_t flags;
} PACKED;

struct acpi_madt_io_apic {
	uint8_t type;
	uint8_t length;
	uint8_t id;
	uint8_t reserved;
	uint32_t address;
	uint32_t gsi_base;
} PACKED;

struct acpi_madt_nmi {
	uint8_t type;
	uint8_t length;
	uint8_t uid;
	uint16_t flags; /* 0: as the bus has it */
	uint8_t lint;
} PACKED;

struct acpi_mcfg {
	struct acpi_header header;
	uint64_t reserved;
	uint64_t base;
	uint16_t segment;
	uint8_t bus_first;
	uint8_t bus_last;
	uint32_t reserved1;
} PACKED;

_Static_assert(sizeof(struct acpi_header) == 36, "ACPI 5.2.6");
_Static_assert(sizeof(struct acpi_rsdp) == 36, "ACPI 5.2.5.3");
_Static_assert(sizeof(struct acpi_fadt) == 276, "ACPI 5.2.9");
_Static_assert(offsetof(struct acpi_fadt, iapc_boot_arch) == 109, "ACPI 5.2.9");
_Static_assert(offsetof(struct acpi_fadt, reset_reg) == 116, "ACPI 5.2.9");
_Static_assert(offsetof(struct acpi_fadt, x_dsdt) == 140, "ACPI 5.2.9");
_Static_assert(offsetof(struct acpi_fadt, sleep_control_reg) == 244, "ACPI 5.2.9");
_Static_assert(sizeof(struct acpi_madt_local_apic) == 8, "ACPI 5.2.12.2");
_Static_assert(sizeof(struct acpi_madt_io_apic) == 12, "ACPI 5.2.12.3");
_Static_assert(sizeof(struct acpi_madt_nmi) == 6, "ACPI 5.2.12.7");
_Static_assert(sizeof(struct acpi_mcfg) == 60, "PCI Firmware Specification 4.1.2");
_Static_assert(LAYOUT_ECAM_SIZE == MIB(1), "one bus");

/* Where the next table goes. */
struct writer {
	uint8_t *base; /* the host's view of LAYOUT_ACPI */
	size_t used;
	size_t room;
	bool full;
};

static uint8_t checksum(const void *data, size_t len)
{
	const uint8_t *bytes = data;
	uint8_t sum = 0;

	while (len--)
		sum = (uint8_t)(sum + *bytes++);
	return (uint8_t)-sum;
}

static void append(struct writer *w, const void *data, size_t len)
{
	if (w->full || len > w->room - w->used) {
		w->full = true;
		return;
	}
	memcpy(w->base + w->used, data, len);
	w->used += len;
}

/* Begins a table; its guest address is returned, its length and checksum come with end_table(). */
static uint64_t begin_table(struct writer *w)
{
	size_t start = align_up(w->used, TABLE_ALIGN);

	if (start > w->room) {
		w->full = true;
		return 0;
	}
	w->used = start;
	return LAYOUT_ACPI + start;
}

static void end_table(struct writer *w, uint64_t address)
{
	struct acpi_header header;
	uint8_t *table;

	if (w->full)
		return;
	table = w->base + (address - LAYOUT_ACPI);
	memcpy(&header, table, sizeof(header));
	header.length = (uint32_t)(w->used - (address - LAYOUT_ACPI));
	header.checksum = 0;
	memcpy(table, &header, sizeof(header));
	header.checksum = checksum(table, header.length);
	memcpy(table, &header, sizeof(header));
}

static struct acpi_header make_header(const char *signature, uint8_t revision)
{
	struct acpi_header header = {
		.revision = revision,
		.oem_revision = 1,
		.creator_revision = 1,
	};

	memcpy(header.signature, signature, sizeof(header.signature));
	memcpy(header.oem_id, "WHELP ", sizeof(header.oem_id));
	memcpy(header.oem_table_id, "WHELPTBL", sizeof(header.oem_table_id));
	memcpy(header.creator_id, "WHLP", sizeof(header.creator_id));
	return header;
}

static struct acpi_address port_register(uint64_t port)
{
	return (struct acpi_address){ .space = GAS_SYSTEM_IO,
				      .bit_width = 8,
				      .access_size = GAS_BYTE_ACCESS,
				      .address = port };
}

/* One whole table that needs nothing appended. */
static uint64_t add_table(struct writer *w, const void *table, size_t len)
{
	uint64_t address = begin_table(w);

	append(w, table, len);
	end_table(w, address);
	return address;
}

static uint64_t add_fadt(struct writer *w, uint64_t dsdt)
{
	struct acpi_fadt fadt = {
		.header = make_header("FACP", FADT_REVISION),
		.preferred_pm_profile = FADT_PROFILE_ENTERPRISE_SERVER,
		.iapc_boot_arch = FADT_BOOT_NO_VGA | FADT_BOOT_NO_CMOS_RTC,
		.flags = FADT_WBINVD | FADT_NO_FIXED_POWER_BUTTON | FADT_NO_FIXED_SLEEP_BUTTON |
			 FADT_NO_FIXED_RTC_WAKE | FADT_RESET_REGISTER | FADT_HW_REDUCED,
		.reset_reg = port_register(LAYOUT_POWER + 2),
		.reset_value = LAYOUT_RESET_VALUE,
		.minor_version = 3,
		.x_dsdt = dsdt,
		.sleep_control_reg = port_register(LAYOUT_POWER),
		.sleep_status_reg = port_register(LAYOUT_POWER + 1),
		.hypervisor_vendor = "whelp",
	};

	return add_table(w, &fadt, sizeof(fadt));
}

static uint64_t add_madt(struct writer *w, unsigned cpus)
{
	const struct acpi_madt madt = {
		.header = make_header("APIC", MADT_REVISION),
		.local_apic_address = LAYOUT_LAPIC,
	};
	const struct acpi_madt_io_apic io_apic = {
		.type = MADT_IO_APIC,
		.length = sizeof(io_apic),
		.address = LAYOUT_IOAPIC,
	};
	const struct acpi_madt_nmi nmi = {
		.type = MADT_LOCAL_APIC_NMI,
		.length = sizeof(nmi),
		.uid = MADT_ALL_CPUS,
		.lint = MADT_LINT1,
	};
	uint64_t address = begin_table(w);
	unsigned i;

	append(w, &madt, sizeof(madt));
	for (i = 0; i < cpus; i++) {
		const struct acpi_madt_local_apic cpu = {
			.type = MADT_LOCAL_APIC,
			.length = sizeof(cpu),
			.uid = (uint8_t)i,
			.apic_id = (uint8_t)i,
			.flags = MADT_CPU_ENABLED,
		};

		append(w, &cpu, sizeof(cpu));
	}
	append(w, &io_apic, sizeof(io_apic));
	append(w, &nmi, sizeof(nmi));
	end_table(w, address);
	return address;
}

static uint64_t add_mcfg(struct writer *w)
{
	const struct acpi_mcfg mcfg = {
		.header = make_header("MCFG", MCFG_REVISION),
		.base = LAYOUT_ECAM,
	};

	return add_table(w, &mcfg, sizeof(mcfg));
}

static void fill_rsdp(struct writer *w, uint64_t xsdt)
{
	struct acpi_rsdp rsdp = {
		.revision = RSDP_REVISION,
		.length = sizeof(rsdp),
		.xsdt_address = xsdt,
	};

	memcpy(rsdp.signature, "RSD PTR ", sizeof(rsdp.signature));
	memcpy(rsdp.oem_id, "WHELP ", sizeof(rsdp.oem_id));
	rsdp.checksum = checksum(&rsdp, RSDP_V1_SIZE);
	rsdp.extended_checksum = checksum(&rsdp, sizeof(rsdp));
	memcpy(w->base, &rsdp, sizeof(rsdp));
}

uint64_t acpi_build(const struct mem *mem, unsigned cpus)
{
	struct writer w = { .room = LAYOUT_ACPI_END - LAYOUT_ACPI };
	struct acpi_xsdt xsdt = { .header = make_header("XSDT", XSDT_REVISION) };
	uint64_t dsdt, address;

	w.base = mem_ptr(mem, LAYOUT_ACPI, w.room);
	if (!w.base || cpus > MADT_ALL_CPUS)
		return 0;
	w.used = sizeof(struct acpi_rsdp);
	dsdt = add_table(&w, dsdt_aml_code, sizeof(dsdt_aml_code));
	xsdt.tables[0] = add_fadt(&w, dsdt);
	xsdt.tables[1] = add_madt(&w, cpus);
	xsdt.tables[2] = add_mcfg(&w);
	address = add_table(&w, &xsdt, sizeof(xsdt));
	if (w.full)
		return 0;
	fill_rsdp(&w, address);
	return LAYOUT_ACPI;
}
