/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ACPI tables as a guest finds them: checksums, links, and every number that layout.h fixes.
 * The compiled DSDT is searched for the bytes that the numbers there must have given, so that the
 * ASL and layout.h cannot part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/mem.h"
#include "vmm/util.h"
#include "vmm/x86/acpi.h"
#include "vmm/x86/layout.h"

#define CPUS 5u

static int setup(void **state)
{
	struct mem *mem = malloc(sizeof(*mem));

	assert_non_null(mem);
	mem_init(mem);
	assert_int_equal(mem_add(mem, 0, LAYOUT_MIN_MEMORY), 0);
	assert_int_equal(acpi_build(mem, CPUS), LAYOUT_ACPI);
	*state = mem;
	return 0;
}

static int teardown(void **state)
{
	mem_fini(*state);
	free(*state);
	return 0;
}

static uint64_t get(const uint8_t *table, unsigned offset, unsigned len)
{
	return load_le(table + offset, len);
}

static unsigned sum(const uint8_t *bytes, uint64_t len)
{
	unsigned total = 0;

	while (len--)
		total += *bytes++;
	return total & 0xff;
}

/* The table at a guest address, its header checked. */
static const uint8_t *table_at(const struct mem *mem, uint64_t address, const char *signature)
{
	const uint8_t *table = mem_ptr(mem, address, 36);
	uint64_t length;

	assert_non_null(table);
	assert_memory_equal(table, signature, 4);
	length = get(table, 4, 4);
	assert_true(range_inside(address, length, LAYOUT_ACPI, LAYOUT_ACPI_END - LAYOUT_ACPI));
	assert_int_equal(sum(table, length), 0);
	return table;
}

static const uint8_t *find_table(const struct mem *mem, const char *signature)
{
	const uint8_t *rsdp = mem_ptr(mem, LAYOUT_ACPI, 36);
	const uint8_t *xsdt = table_at(mem, get(rsdp, 24, 8), "XSDT");
	uint64_t offset, length = get(xsdt, 4, 4);

	for (offset = 36; offset < length; offset += 8) {
		uint64_t address = get(xsdt, (unsigned)offset, 8);

		if (!memcmp(mem_ptr(mem, address, 4), signature, 4))
			return table_at(mem, address, signature);
	}
	fail_msg("no table %s", signature);
	return NULL;
}

static const uint8_t *find_dsdt(const struct mem *mem)
{
	return table_at(mem, get(find_table(mem, "FACP"), 140, 8), "DSDT");
}

static void test_rsdp(void **state)
{
	const uint8_t *rsdp = mem_ptr(*state, LAYOUT_ACPI, 36);

	assert_memory_equal(rsdp, "RSD PTR ", 8);
	assert_int_equal(rsdp[15], 2);
	assert_int_equal(get(rsdp, 20, 4), 36);
	assert_int_equal(sum(rsdp, 20), 0);
	assert_int_equal(sum(rsdp, 36), 0);
}

static void test_fadt_is_hardware_reduced(void **state)
{
	const uint8_t *fadt = find_table(*state, "FACP");
	uint32_t flags = (uint32_t)get(fadt, 112, 4);
	unsigned i;

	assert_int_equal(fadt[8], 6);
	assert_int_equal(get(fadt, 4, 4), 276);
	assert_true(flags & 1u << 20);
	assert_true(flags & 1u << 10);
	/* Neither button is a fixed one. */
	assert_int_equal(flags & 0x30, 0x30);
	for (i = 46; i < 109; i++)
		assert_int_equal(fadt[i], 0);
	for (i = 148; i < 244; i++)
		assert_int_equal(fadt[i], 0);
	/* No 8042, no VGA, no CMOS clock; MSI is fine. */
	assert_int_equal(get(fadt, 109, 2), 1u << 2 | 1u << 5);
	assert_int_equal(get(fadt, 132, 8), 0);
}

static void check_port(const uint8_t *gas, uint64_t port)
{
	static const uint8_t io_byte[] = { 1, 8, 0, 1 };

	assert_memory_equal(gas, io_byte, sizeof(io_byte));
	assert_int_equal(get(gas, 4, 8), port);
}

static void test_fadt_power_port(void **state)
{
	const uint8_t *fadt = find_table(*state, "FACP");

	check_port(fadt + 244, LAYOUT_POWER);
	check_port(fadt + 256, LAYOUT_POWER + 1);
	check_port(fadt + 116, LAYOUT_POWER + 2);
	assert_int_equal(fadt[128], LAYOUT_RESET_VALUE);
}

static void check_madt(const struct mem *mem, unsigned cpus)
{
	const uint8_t *madt = find_table(mem, "APIC");
	uint64_t offset = 44, length = get(madt, 4, 4);
	unsigned found = 0, io_apics = 0, nmis = 0;

	assert_int_equal(get(madt, 36, 4), LAYOUT_LAPIC);
	assert_int_equal(get(madt, 40, 4), 0);
	while (offset < length) {
		const uint8_t *entry = madt + offset;

		assert_true(entry[1] >= 2 && entry[1] <= length - offset);
		offset += entry[1];
		switch (entry[0]) {
		case 0:
			assert_int_equal(entry[1], 8);
			assert_int_equal(entry[2], found);
			assert_int_equal(entry[3], found);
			assert_int_equal(get(entry, 4, 4), 1);
			found++;
			break;
		case 1:
			assert_int_equal(entry[1], 12);
			assert_int_equal(get(entry, 4, 4), LAYOUT_IOAPIC);
			assert_int_equal(get(entry, 8, 4), 0);
			io_apics++;
			break;
		case 4:
			assert_int_equal(entry[1], 6);
			assert_int_equal(entry[2], 0xff);
			assert_int_equal(entry[5], 1);
			nmis++;
			break;
		default:
			fail_msg("MADT entry of type %u", entry[0]);
		}
	}
	assert_int_equal(offset, length);
	assert_int_equal(found, cpus);
	assert_int_equal(io_apics, 1);
	assert_int_equal(nmis, 1);
}

static void test_madt(void **state)
{
	static const unsigned counts[] = { 1, 2, 16, 253, 254 };
	unsigned i;

	check_madt(*state, CPUS);
	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		assert_int_equal(acpi_build(*state, counts[i]), LAYOUT_ACPI);
		check_madt(*state, counts[i]);
	}
}

static void test_mcfg(void **state)
{
	const uint8_t *mcfg = find_table(*state, "MCFG");

	assert_int_equal(get(mcfg, 4, 4), 60);
	assert_int_equal(get(mcfg, 44, 8), LAYOUT_ECAM);
	assert_int_equal(get(mcfg, 52, 2), 0);
	assert_int_equal(mcfg[54], 0);
	/* A bus has 1 MiB. */
	assert_int_equal((mcfg[55] + 1u) * MIB(1), LAYOUT_ECAM_SIZE);
}

/* ---- DSDT */

/* Bytes that must be somewhere in the DSDT. */
struct pattern {
	uint8_t bytes[96];
	unsigned len;
};

static void put(struct pattern *p, uint64_t value, unsigned len)
{
	assert_true(p->len + len <= sizeof(p->bytes));
	store_le(p->bytes + p->len, len, value);
	p->len += len;
}

/* ACPI 6.4.2.5, I/O port descriptor: 16 bits decoded. */
static void put_io(struct pattern *p, unsigned port, unsigned len, unsigned align)
{
	put(p, 0x0147, 2);
	put(p, port, 2);
	put(p, port, 2);
	put(p, align, 1);
	put(p, len, 1);
}

/* ACPI 6.4.3.6, extended interrupt descriptor: edge, active high, not shared, consumed. */
static void put_irq(struct pattern *p, unsigned irq)
{
	put(p, 0x0689, 3);
	put(p, 0x03, 1);
	put(p, 1, 1);
	put(p, irq, 4);
}

/* ACPI 6.4.3.5: address space descriptor with `width` bytes per field, fixed minimum and maximum.
 */
static void put_window(struct pattern *p, unsigned tag, unsigned type, unsigned type_flags,
		       unsigned width, uint64_t first, uint64_t end)
{
	put(p, tag, 1);
	put(p, 3 + 5 * width, 2);
	put(p, type, 1);
	put(p, 0x0c, 1);
	put(p, type_flags, 1);
	put(p, 0, width);
	put(p, first, width);
	put(p, end - 1, width);
	put(p, 0, width);
	put(p, end - first, width);
}

static const uint8_t *find_pattern(const struct mem *mem, const struct pattern *p)
{
	const uint8_t *dsdt = find_dsdt(mem);
	const uint8_t *found = memmem(dsdt, get(dsdt, 4, 4), p->bytes, p->len);

	assert_non_null(found);
	return found;
}

static void test_dsdt_s5(void **state)
{
	static const char name[] = { 0x08, '_', 'S', '5', '_', 0x12 };
	struct pattern p = { .len = sizeof(name) };
	const uint8_t *package;

	memcpy(p.bytes, name, sizeof(name));
	package = find_pattern(*state, &p) + sizeof(name);
	/* Length, 4 elements, the first a byte. */
	assert_int_equal(package[1], 4);
	assert_int_equal(package[2], 0x0a);
	assert_int_equal(package[3], LAYOUT_SLEEP_TYPE_S5);
}

static void test_dsdt_serial_ports(void **state)
{
	struct pattern com1 = { 0 }, com2 = { 0 };

	put_io(&com1, LAYOUT_COM1, LAYOUT_COM_SIZE, 1);
	put_irq(&com1, LAYOUT_COM1_IRQ);
	find_pattern(*state, &com1);
	put_io(&com2, LAYOUT_COM2, LAYOUT_COM_SIZE, 1);
	put_irq(&com2, LAYOUT_COM2_IRQ);
	find_pattern(*state, &com2);
}

static void test_dsdt_pvpanic(void **state)
{
	struct pattern name = { .bytes = "QEMU0001", .len = 9 }, port = { 0 };

	put_io(&port, LAYOUT_PANIC, 1, 1);
	assert_true(find_pattern(*state, &port) > find_pattern(*state, &name));
}

static void test_dsdt_pci_windows(void **state)
{
	struct pattern p = { 0 };

	/* Bus 0, the configuration ports, then I/O and memory windows, in one _CRS. */
	put_window(&p, 0x88, 2, 0, 2, 0, 1);
	put_io(&p, LAYOUT_PCI_CONFIG, LAYOUT_PCI_CONFIG_SIZE, 1);
	put_window(&p, 0x88, 1, 3, 2, LAYOUT_PCI_IO, LAYOUT_PCI_IO_END);
	put_window(&p, 0x87, 0, 1, 4, LAYOUT_PCI_MEM, LAYOUT_PCI_MEM_END);
	find_pattern(*state, &p);
}

static void test_dsdt_reserves_ecam_and_power_port(void **state)
{
	struct pattern p = { 0 };

	put(&p, 0x000986, 3);
	put(&p, 1, 1);
	put(&p, LAYOUT_ECAM, 4);
	put(&p, LAYOUT_ECAM_SIZE, 4);
	put_io(&p, LAYOUT_POWER, LAYOUT_POWER_SIZE, 1);
	find_pattern(*state, &p);
}

/* AML integers take as few bytes as they can. */
static void put_integer(struct pattern *p, uint64_t value)
{
	if (value < 2)
		put(p, value, 1);
	else if (value <= 0xff)
		put(p, value << 8 | 0x0a, 2);
	else if (value <= 0xffff)
		put(p, value << 8 | 0x0b, 3);
	else
		put(p, value << 8 | 0x0c, 5);
}

static void test_dsdt_pci_routes(void **state)
{
	unsigned slot, pin;

	for (slot = 0; slot < 32; slot++) {
		for (pin = 0; pin < 4; pin++) {
			struct pattern p = { 0 };

			put(&p, 4, 1);
			put_integer(&p, (uint64_t)slot << 16 | 0xffff);
			put_integer(&p, pin);
			put_integer(&p, 0);
			put_integer(&p, LAYOUT_PCI_IRQ + slot % LAYOUT_PCI_IRQS);
			find_pattern(*state, &p);
		}
	}
	assert_true(LAYOUT_PCI_IRQ + LAYOUT_PCI_IRQS <= LAYOUT_IOAPIC_INPUTS);
}

static void test_no_room(void **state)
{
	struct mem mem;

	assert_int_equal(acpi_build(*state, 256), 0);
	mem_init(&mem);
	assert_int_equal(acpi_build(&mem, 1), 0);
	assert_int_equal(mem_add(&mem, 0, align_down(LAYOUT_ACPI_END, PAGE_SIZE)), 0);
	assert_int_equal(acpi_build(&mem, 1), 0);
	mem_fini(&mem);
}

static void test_rebuild_gives_the_same(void **state)
{
	uint64_t size = LAYOUT_ACPI_END - LAYOUT_ACPI;
	uint8_t *tables = mem_ptr(*state, LAYOUT_ACPI, size);
	const uint8_t *dsdt = find_dsdt(*state);
	uint8_t *before = malloc(size);
	uint64_t end;

	assert_non_null(before);
	end = (uint64_t)(dsdt - tables) + get(dsdt, 4, 4);
	memcpy(before, tables, size);
	memset(tables, 0xa5, end);
	assert_int_equal(acpi_build(*state, CPUS), LAYOUT_ACPI);
	assert_memory_equal(tables, before, 36);
	assert_memory_equal(find_dsdt(*state), before + (dsdt - tables), get(dsdt, 4, 4));
	check_madt(*state, CPUS);
	free(before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_rsdp),
		TEST(test_fadt_is_hardware_reduced),
		TEST(test_fadt_power_port),
		TEST(test_madt),
		TEST(test_mcfg),
		TEST(test_dsdt_s5),
		TEST(test_dsdt_serial_ports),
		TEST(test_dsdt_pvpanic),
		TEST(test_dsdt_pci_windows),
		TEST(test_dsdt_reserves_ecam_and_power_port),
		TEST(test_dsdt_pci_routes),
		TEST(test_no_room),
		TEST(test_rebuild_gives_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
