# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs and memory in Linux: the cloud kernel, which knows of both by ACPI and e820 alone, and a vmlinux."""

import lzma
import struct
import subprocess

import libvm
import pytest

GIB = 1 << 30


def boot(whelp, *options, kernel=None, host=None, cmdline='', **more):
    return whelp('--kernel', kernel or libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--cmdline',
                 f'console=ttyS0 guest.net=eth0:192.0.2.2/24 {cmdline}', *options, host=host, serial=True,
                 **more).wait_ready()


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
    """The ELF file that a bzImage carries compressed: its place is in the setup header."""
    data = open(libvm.kernel('cloud'), 'rb').read()
    offset, length = struct.unpack('<II', data[0x248:0x250])
    start = (data[0x1f1] + 1) * 512 + offset
    payload = data[start:start + length - 4]  # then comes its size
    path = tmp_path_factory.mktemp('kernel') / 'vmlinux'
    if payload.startswith(b'\xfd7zXZ'):
        path.write_bytes(lzma.decompress(payload))
    else:
        program = 'lz4' if payload.startswith(b'\x02\x21\x4c\x18') else 'zstd'
        with open(path, 'wb') as file:
            subprocess.run([program, '-dc'], input=payload, stdout=file, stderr=subprocess.DEVNULL, check=False)
    assert path.read_bytes()[:4] == b'\x7fELF', payload[:8]
    return path


def test_vmlinux(whelp, host, vmlinux):
    host.tap()
    machine = boot(whelp, '--cpus', 1, '--net', 'tap=tap0', host=host, kernel=vmlinux)
    assert machine.channel.release in libvm.kernel('cloud')
    assert machine.run('nproc') == '1'
    host.ping('-c 5 -i 0.05')
    assert machine.dmesg_faults() == []
    machine.poweroff()
