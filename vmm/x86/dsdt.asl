// SPDX-License-Identifier: GPL-2.0-or-later
//
// The devices that cannot be found by probing. The numbers are those of vmm/x86/layout.h;
// tests/unit/test_acpi.c holds the compiled table against it.

DefinitionBlock ("", "DSDT", 2, "WHELP ", "WHELPDSD", 1)
{
	Name (\_S5, Package () { 5, 0, 0, 0 })

	Scope (\_SB)
	{
		Device (PCI0)
		{
			Name (_HID, EisaId ("PNP0A08"))
			Name (_CID, EisaId ("PNP0A03"))
			Name (_UID, 0)
			Name (_SEG, 0)
			Name (_BBN, 0)
			Name (_CRS, ResourceTemplate ()
			{
				WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
					0, 0, 0, 0, 1)
				IO (Decode16, 0x0CF8, 0x0CF8, 1, 8)
				WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode,
					EntireRange, 0, 0x1000, 0xFFFF, 0, 0xF000)
				DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed,
					NonCacheable, ReadWrite,
					0, 0xC0000000, 0xDFFFFFFF, 0, 0x20000000)
			})
			// All pins of a slot share one IOAPIC input: 16 + slot % 8.
			Name (_PRT, Package ()
			{
			  Package () { 0x0000FFFF, 0, 0, 16 }, Package () { 0x0000FFFF, 1, 0, 16 },
			  Package () { 0x0000FFFF, 2, 0, 16 }, Package () { 0x0000FFFF, 3, 0, 16 },
			  Package () { 0x0001FFFF, 0, 0, 17 }, Package () { 0x0001FFFF, 1, 0, 17 },
			  Package () { 0x0001FFFF, 2, 0, 17 }, Package () { 0x0001FFFF, 3, 0, 17 },
			  Package () { 0x0002FFFF, 0, 0, 18 }, Package () { 0x0002FFFF, 1, 0, 18 },
			  Package () { 0x0002FFFF, 2, 0, 18 }, Package () { 0x0002FFFF, 3, 0, 18 },
			  Package () { 0x0003FFFF, 0, 0, 19 }, Package () { 0x0003FFFF, 1, 0, 19 },
			  Package () { 0x0003FFFF, 2, 0, 19 }, Package () { 0x0003FFFF, 3, 0, 19 },
			  Package () { 0x0004FFFF, 0, 0, 20 }, Package () { 0x0004FFFF, 1, 0, 20 },
			  Package () { 0x0004FFFF, 2, 0, 20 }, Package () { 0x0004FFFF, 3, 0, 20 },
			  Package () { 0x0005FFFF, 0, 0, 21 }, Package () { 0x0005FFFF, 1, 0, 21 },
			  Package () { 0x0005FFFF, 2, 0, 21 }, Package () { 0x0005FFFF, 3, 0, 21 },
			  Package () { 0x0006FFFF, 0, 0, 22 }, Package () { 0x0006FFFF, 1, 0, 22 },
			  Package () { 0x0006FFFF, 2, 0, 22 }, Package () { 0x0006FFFF, 3, 0, 22 },
			  Package () { 0x0007FFFF, 0, 0, 23 }, Package () { 0x0007FFFF, 1, 0, 23 },
			  Package () { 0x0007FFFF, 2, 0, 23 }, Package () { 0x0007FFFF, 3, 0, 23 },
			  Package () { 0x0008FFFF, 0, 0, 16 }, Package () { 0x0008FFFF, 1, 0, 16 },
			  Package () { 0x0008FFFF, 2, 0, 16 }, Package () { 0x0008FFFF, 3, 0, 16 },
			  Package () { 0x0009FFFF, 0, 0, 17 }, Package () { 0x0009FFFF, 1, 0, 17 },
			  Package () { 0x0009FFFF, 2, 0, 17 }, Package () { 0x0009FFFF, 3, 0, 17 },
			  Package () { 0x000AFFFF, 0, 0, 18 }, Package () { 0x000AFFFF, 1, 0, 18 },
			  Package () { 0x000AFFFF, 2, 0, 18 }, Package () { 0x000AFFFF, 3, 0, 18 },
			  Package () { 0x000BFFFF, 0, 0, 19 }, Package () { 0x000BFFFF, 1, 0, 19 },
			  Package () { 0x000BFFFF, 2, 0, 19 }, Package () { 0x000BFFFF, 3, 0, 19 },
			  Package () { 0x000CFFFF, 0, 0, 20 }, Package () { 0x000CFFFF, 1, 0, 20 },
			  Package () { 0x000CFFFF, 2, 0, 20 }, Package () { 0x000CFFFF, 3, 0, 20 },
			  Package () { 0x000DFFFF, 0, 0, 21 }, Package () { 0x000DFFFF, 1, 0, 21 },
			  Package () { 0x000DFFFF, 2, 0, 21 }, Package () { 0x000DFFFF, 3, 0, 21 },
			  Package () { 0x000EFFFF, 0, 0, 22 }, Package () { 0x000EFFFF, 1, 0, 22 },
			  Package () { 0x000EFFFF, 2, 0, 22 }, Package () { 0x000EFFFF, 3, 0, 22 },
			  Package () { 0x000FFFFF, 0, 0, 23 }, Package () { 0x000FFFFF, 1, 0, 23 },
			  Package () { 0x000FFFFF, 2, 0, 23 }, Package () { 0x000FFFFF, 3, 0, 23 },
			  Package () { 0x0010FFFF, 0, 0, 16 }, Package () { 0x0010FFFF, 1, 0, 16 },
			  Package () { 0x0010FFFF, 2, 0, 16 }, Package () { 0x0010FFFF, 3, 0, 16 },
			  Package () { 0x0011FFFF, 0, 0, 17 }, Package () { 0x0011FFFF, 1, 0, 17 },
			  Package () { 0x0011FFFF, 2, 0, 17 }, Package () { 0x0011FFFF, 3, 0, 17 },
			  Package () { 0x0012FFFF, 0, 0, 18 }, Package () { 0x0012FFFF, 1, 0, 18 },
			  Package () { 0x0012FFFF, 2, 0, 18 }, Package () { 0x0012FFFF, 3, 0, 18 },
			  Package () { 0x0013FFFF, 0, 0, 19 }, Package () { 0x0013FFFF, 1, 0, 19 },
			  Package () { 0x0013FFFF, 2, 0, 19 }, Package () { 0x0013FFFF, 3, 0, 19 },
			  Package () { 0x0014FFFF, 0, 0, 20 }, Package () { 0x0014FFFF, 1, 0, 20 },
			  Package () { 0x0014FFFF, 2, 0, 20 }, Package () { 0x0014FFFF, 3, 0, 20 },
			  Package () { 0x0015FFFF, 0, 0, 21 }, Package () { 0x0015FFFF, 1, 0, 21 },
			  Package () { 0x0015FFFF, 2, 0, 21 }, Package () { 0x0015FFFF, 3, 0, 21 },
			  Package () { 0x0016FFFF, 0, 0, 22 }, Package () { 0x0016FFFF, 1, 0, 22 },
			  Package () { 0x0016FFFF, 2, 0, 22 }, Package () { 0x0016FFFF, 3, 0, 22 },
			  Package () { 0x0017FFFF, 0, 0, 23 }, Package () { 0x0017FFFF, 1, 0, 23 },
			  Package () { 0x0017FFFF, 2, 0, 23 }, Package () { 0x0017FFFF, 3, 0, 23 },
			  Package () { 0x0018FFFF, 0, 0, 16 }, Package () { 0x0018FFFF, 1, 0, 16 },
			  Package () { 0x0018FFFF, 2, 0, 16 }, Package () { 0x0018FFFF, 3, 0, 16 },
			  Package () { 0x0019FFFF, 0, 0, 17 }, Package () { 0x0019FFFF, 1, 0, 17 },
			  Package () { 0x0019FFFF, 2, 0, 17 }, Package () { 0x0019FFFF, 3, 0, 17 },
			  Package () { 0x001AFFFF, 0, 0, 18 }, Package () { 0x001AFFFF, 1, 0, 18 },
			  Package () { 0x001AFFFF, 2, 0, 18 }, Package () { 0x001AFFFF, 3, 0, 18 },
			  Package () { 0x001BFFFF, 0, 0, 19 }, Package () { 0x001BFFFF, 1, 0, 19 },
			  Package () { 0x001BFFFF, 2, 0, 19 }, Package () { 0x001BFFFF, 3, 0, 19 },
			  Package () { 0x001CFFFF, 0, 0, 20 }, Package () { 0x001CFFFF, 1, 0, 20 },
			  Package () { 0x001CFFFF, 2, 0, 20 }, Package () { 0x001CFFFF, 3, 0, 20 },
			  Package () { 0x001DFFFF, 0, 0, 21 }, Package () { 0x001DFFFF, 1, 0, 21 },
			  Package () { 0x001DFFFF, 2, 0, 21 }, Package () { 0x001DFFFF, 3, 0, 21 },
			  Package () { 0x001EFFFF, 0, 0, 22 }, Package () { 0x001EFFFF, 1, 0, 22 },
			  Package () { 0x001EFFFF, 2, 0, 22 }, Package () { 0x001EFFFF, 3, 0, 22 },
			  Package () { 0x001FFFFF, 0, 0, 23 }, Package () { 0x001FFFFF, 1, 0, 23 },
			  Package () { 0x001FFFFF, 2, 0, 23 }, Package () { 0x001FFFFF, 3, 0, 23 }
			})
			// PCI Firmware Specification 4.5.1: whatever native control the guest
			// asks for, it gets.
			Method (_OSC, 4)
			{
				CreateDWordField (Arg3, 0, STAT)
				If (Arg0 != ToUUID ("33DB4D5B-1FF7-401C-9657-7441C03DD766"))
				{
					STAT |= 4
				}
				ElseIf (Arg1 != 1)
				{
					STAT |= 8
				}
				Return (Arg3)
			}
		}

		// What must not be given to a device: the ECAM window, and the power port.
		Device (MBRD)
		{
			Name (_HID, EisaId ("PNP0C02"))
			Name (_UID, 0)
			Name (_CRS, ResourceTemplate ()
			{
				Memory32Fixed (ReadWrite, 0xE0000000, 0x00100000)
				IO (Decode16, 0x0600, 0x0600, 1, 3)
			})
		}

		Device (COM1)
		{
			Name (_HID, EisaId ("PNP0501"))
			Name (_UID, 1)
			Name (_CRS, ResourceTemplate ()
			{
				IO (Decode16, 0x03F8, 0x03F8, 1, 8)
				Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 4 }
			})
		}

		Device (COM2)
		{
			Name (_HID, EisaId ("PNP0501"))
			Name (_UID, 2)
			Name (_CRS, ResourceTemplate ()
			{
				IO (Decode16, 0x02F8, 0x02F8, 1, 8)
				Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 3 }
			})
		}

		// pvpanic: the guest's kernel writes here when it panics.
		Device (PEVT)
		{
			Name (_HID, "QEMU0001")
			Name (_CRS, ResourceTemplate ()
			{
				IO (Decode16, 0x0505, 0x0505, 1, 1)
			})
		}
	}
}
