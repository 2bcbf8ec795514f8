# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs and memory in Linux: the cloud kernel, which knows of both by ACPI and e820 alone, and a vmlinux."""

import lzma
import struct

import libvm
import pytest

GIB = 1 << 30


def boot(whelp, *options, name='cloud', kernel=None, host=None):
    return whelp('--kernel', kernel or libvm.kernel(name), '--initrd', libvm.image(name), '--cmdline',
                 'console=ttyS0 guest.net=eth0:192.0.2.2/24', *options, host=host, serial=True).wait_ready()


def meminfo(machine):
    return int(machine.run("sed -n 's/^MemTotal: *//p' /proc/meminfo").split()[0]) << 10


def test_16_cpus(whelp):
    machine = boot(whelp, '--cpus', 16, '--memory', '512M')
    assert machine.run('cat /sys/devices/system/cpu/online; nproc') == '0-15\n16'
    assert len(machine.run("grep '^processor' /proc/cpuinfo").splitlines()) == 16
    # Each of them takes work and interrupts of its own.
    assert machine.run('for i in $(seq 0 15); do taskset -c $i sh -c "echo $i"; done').split() == \
        [str(cpu) for cpu in range(16)]
    timers = machine.run("grep -E '^ *LOC:' /proc/interrupts").split()[1:17]
    assert len(timers) == 16 and all(int(count) > 0 for count in timers), timers
    assert machine.dmesg_faults() == []
    machine.poweroff()


def test_4_cpus_8_gib(whelp, host):
    """All of it is there, and the NIC reaches what lies above 4 GiB: there the buffers are, once the rest is full."""
    host.tap()
    machine = boot(whelp, '--cpus', 4, '--memory', '8G', '--net', 'tap=tap0', host=host)
    assert machine.run('cat /sys/devices/system/cpu/online') == '0-3'
    assert 8 * GIB * 0.96 < meminfo(machine) < 8 * GIB
    ram = [line for line in machine.run('grep "System RAM" /proc/iomem').splitlines() if ':' in line]
    assert '100000000-23fffffff : System RAM' in ram, ram
    # A zone above 4 GiB comes first in Linux's order of allocation: so buffers lie there without any help.
    assert int(machine.run("sed -n '/Normal/,$s/^ *present *//p' /proc/zoneinfo").split()[0]) * 4096 >= 5 * GIB * 0.99
    host.ping('-f -c 2000')
    sent = machine.run('cat /sys/class/net/eth0/statistics/rx_bytes')
    host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_STREAM -l 1')
    host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_MAERTS -l 1')
    assert int(machine.run('cat /sys/class/net/eth0/statistics/rx_bytes')) > int(sent) + 100000
    assert machine.dmesg_faults() == []
    machine.poweroff()


@pytest.fixture(scope='module')
def vmlinux(tmp_path_factory):
    """The ELF file that a bzImage carries compressed (this one by xz): its place is in the setup header."""
    with open(libvm.kernel('generic'), 'rb') as file:
        data = file.read()
    offset, length = struct.unpack('<II', data[0x248:0x250])
    start = (data[0x1f1] + 1) * 512 + offset
    path = tmp_path_factory.mktemp('kernel') / 'vmlinux'
    path.write_bytes(lzma.decompress(data[start:start + length - 4]))  # its last four bytes are the size
    return path


def test_vmlinux(whelp, host, vmlinux):
    host.tap()
    machine = boot(whelp, '--cpus', 1, '--net', 'tap=tap0', host=host, kernel=vmlinux, name='generic')
    assert machine.channel.release in libvm.kernel('generic')
    assert machine.run('nproc') == '1'
    host.ping('-c 5 -i 0.05')
    assert machine.dmesg_faults() == []
    machine.poweroff()
