# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of some bytes: an ELF vmlinux around hand-written machine code, for what needs no Linux.

They do so little that even a KVM which only emulates guest code runs them at once. The code starts in 64-bit
mode, the first 4 GiB mapped one to one, interrupts off, no interrupt table, %rsi at the zero page.
"""

import struct

LOAD = 0x100000

COM1, POWER, RESET, PANIC, KEYBOARD = 0x3f8, 0x600, 0x602, 0x505, 0x64


def out(port, value):
    """mov $port, %dx; mov $value, %al; out %al, (%dx)"""
    return b'\x66\xba' + struct.pack('<H', port) + bytes([0xb0, value]) + b'\xee'


def say(text):
    """Writes to the console, slower than any host reads."""
    return b''.join(out(COM1, byte) for byte in text.encode())


HANG = b'\xeb\xfe'  # 1: jmp 1b
HALT = b'\xfa\xf4\xeb\xfc'  # cli; 1: hlt; jmp 1b
POWEROFF = out(POWER, 5 << 2 | 1 << 5) + HANG
REBOOT = out(RESET, 1) + HANG
KEYBOARD_RESET = out(KEYBOARD, 0xfe) + HANG
CRASH = out(PANIC, 1) + HANG
# lidt 1f(%rip), whose limit is 0; ud2; 1:
TRIPLE_FAULT = b'\x0f\x01\x1d\x02\0\0\0' + b'\x0f\x0b' + bytes(10)
# mov $0xd0000000, %eax; jmp *%rax: there is no memory to fetch from, and KVM cannot emulate what it cannot read.
JUMP_TO_NOWHERE = b'\xb8\0\0\0\xd0\xff\xe0'
# 1: out %al, (%dx); jmp 1b: an exit every few instructions.
EXITS = out(COM1, ord('.')) + b'\xee\xeb\xfd'
# 1: mov (%rax), %ecx; jmp 1b, with %rax where no device is: an exit each, by the MMIO path.
MMIO_EXITS = b'\xb8\0\0\0\xd0' + b'\x8b\x08\xeb\xfc'


def count_boots(port=COM1):
    """Says one letter and reboots, again and again."""
    return out(port, ord('b')) + REBOOT


# For each e820 entry of the zero page, writes its 20 bytes to the console, preceded by one with their number.
# RAM above 1 MiB and below 4 GiB is touched at both ends first: a missing page would end the machine with an error.
#   movzbl 0x1e8(%rsi), %ecx; mov %cl, %al; mov $0x3f8, %dx; out %al, (%dx)
#   lea 0x2d0(%rsi), %rsi; imul $20, %ecx, %ecx; rep outsb
E820 = (b'\x0f\xb6\x8e\xe8\x01\0\0' + b'\x88\xc8' + b'\x66\xba\xf8\x03' + b'\xee' +
        b'\x48\x8d\xb6\xd0\x02\0\0' + b'\x6b\xc9\x14' + b'\xf3\x6e' + POWEROFF)


def touch(*addresses):
    """Below 4 GiB: writes a pattern to each address and reads it back; hangs if it is not there."""
    code = b''
    for address in addresses:
        code += b'\xb8' + struct.pack('<I', address)  # mov $address, %eax
        code += b'\xc6\x00\x5a'  # movb $0x5a, (%rax)
        code += b'\x80\x38\x5a'  # cmpb $0x5a, (%rax)
        code += b'\x75\xfe'  # 1: jne 1b
    return code


def elf(code):
    """The file's bytes: one segment at LOAD that holds the file itself, the code after the headers."""
    header = 64 + 56
    size = header + len(code)
    return (b'\x7fELF\x02\x01\x01' + bytes(9) +
            struct.pack('<HHIQQQIHHHHHH', 2, 62, 1, LOAD + header, 64, 0, 0, 64, 56, 1, 0, 0, 0) +
            struct.pack('<IIQQQQQQ', 1, 7, 0, LOAD, LOAD, size, size, 4096) + code)
