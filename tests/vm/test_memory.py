# SPDX-License-Identifier: GPL-2.0-or-later
"""H18: memory of every size around the gap below 4 GiB. Tiny kernels read the map; Linux counts what it got."""

import os
import pathlib
import re
import struct
import subprocess

import libvm
import micro as m
import pytest

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GAP = 3 * GIB

SIZES = [64 * MIB, 65 * MIB + 4 * KIB, GAP - MIB, GAP - 4 * KIB, GAP, GAP + 4 * KIB, GAP + MIB, 3584 * MIB,
         4 * GIB - 4 * KIB, 4 * GIB, 4 * GIB + 4 * KIB, 8 * GIB]
# Debian's kernels unpack themselves beyond 64 MiB.
LINUX_SIZES = [80 * MIB, GAP + MIB, 4 * GIB + 4 * KIB]
if 'WHELP_LONG' in os.environ:
    LINUX_SIZES += [GAP - MIB, GAP, 3584 * MIB, 4 * GIB - 4 * KIB, 8 * GIB]


def needs(size):
    """Linux touches little of it; but a host has to have it."""
    if size > os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'):
        pytest.skip('more than this host has')


@pytest.mark.parametrize('size', SIZES, ids=lambda size: f'{size >> 10}K')
def test_h18_map(whelp, micro, size):
    needs(size)
    low = min(size, GAP)
    machine = whelp('--kernel', micro(m.touch(0x200000, low - 1) + m.E820), '--memory', f'{size >> 10}K')
    assert machine.wait() == 0, machine.errors
    output = machine.log.read_bytes()
    entries = [struct.unpack_from('<QQI', output, 1 + 20 * number) for number in range(output[0])]
    assert len(output) == 1 + 20 * len(entries)
    ram = [(start, start + length) for start, length, kind in entries if kind == 1]
    expected = [(0x100000, low)] + ([(4 * GIB, 4 * GIB + size - low)] if size > low else [])
    assert ram[1:] == expected, entries
    assert ram[0][0] == 0 and 0x80000 <= ram[0][1] <= 0xa0000, entries
    spans = sorted((start, start + length) for start, length, _ in entries)
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:])), entries


@pytest.fixture(scope='module')
def small_image(tmp_path_factory):
    """busybox and a script: the least memory has no room for the test guest's tools."""
    root = tmp_path_factory.mktemp('root')
    for name in ('dev', 'proc', 'bin'):
        (root / name).mkdir()
    (root / 'bin/busybox').write_bytes(pathlib.Path('/bin/busybox').read_bytes())
    (root / 'init').write_text('#!/bin/busybox sh\n'
                               '/bin/busybox mount -t proc proc /proc\n'
                               '/bin/busybox mount -t devtmpfs dev /dev\n'
                               'exec >/dev/console 2>&1\n'
                               '/bin/busybox grep -E "MemTotal" /proc/meminfo\n'
                               '/bin/busybox poweroff -f\n')
    for name in ('init', 'bin/busybox'):
        (root / name).chmod(0o755)
    path = root.parent / 'small.cpio'
    with open(path, 'wb') as file:
        subprocess.run('find . | cpio --quiet -o -H newc', shell=True, cwd=root, stdout=file, check=True)
    return path


@pytest.mark.parametrize('size', LINUX_SIZES, ids=lambda size: f'{size >> 10}K')
def test_h18_linux(whelp, small_image, size):
    """MemTotal lacks what the kernel takes: itself, 1/64 for page structs, bounce buffers if memory needs them."""
    needs(size)
    machine = whelp('--kernel', libvm.kernel('cloud'), '--initrd', small_image, '--memory', f'{size >> 10}K')
    assert machine.wait(libvm.BOOT) == 0, machine.errors
    total = int(re.search(r'MemTotal: *(\d+) kB', machine.console)[1]) << 10
    assert size * 63 // 64 - 56 * MIB - (64 * MIB if size > GAP else 0) < total < size


@pytest.mark.parametrize('name', ['cloud', 'generic', 'backports', 'unstable'] if 'WHELP_LONG' in os.environ
                         else ['generic', 'unstable'])
def test_memory_for_the_guest(whelp, host, name):
    """What docs/guest.md says is enough for the test guest with all its tools, at work."""
    host.tap()
    machine = whelp('--kernel', libvm.kernel(name), '--initrd', libvm.image(name), '--memory', '128M', '--cmdline',
                    'console=ttyS0 guest.net=eth0:192.0.2.2/24', '--net', 'tap=tap0', host=host,
                    serial=True).wait_ready()
    host.ping('-f -l 8 -c 200')
    for test in ('TCP_STREAM', 'TCP_MAERTS'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t {test} -l 1')
    assert machine.dmesg_faults() == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


def test_least_memory():
    """With less than its header asks for, a kernel is not started."""
    libvm.one_line(libvm.run('run', '--kernel', libvm.kernel('cloud'), '--memory', '64M'), 1, 'needs memory up to',
                   'the guest has 64 MiB', '--memory')
