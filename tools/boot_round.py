#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One round of tools/bench-boot, beside the guests, in a private network namespace: boots each VMM once.

usage: boot_round.py SPEC

SPEC is JSON: whelp (its program), kernel, initrd, cmdline, memory (MiB), cpus, order (of the VMMs). Prints one
line of JSON: for each VMM the seconds from exec to init and the resident bytes beyond the guest's memory at that
moment.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import benchlib

TAP, MAC = 'whelp0', '52:54:00:12:34:56'
INIT = b'whelp-guest: init'
LIMIT = 120
QEMU = ('-accel', 'kvm', '-cpu', 'host', '-nodefaults', '-no-user-config', '-nographic',
        '-serial', 'stdio')
MICROVM = 'microvm,acpi=on,x-option-roms=off,isa-serial=on,rtc=on,pic=on,pit=on'
NETDEV = f'tap,id=n0,ifname={TAP},script=no,downscript=no'


def argv(vmm, spec):
    """The command line of a VMM; the same kernel, initrd, command line, memory, CPUs and tap for each."""
    if vmm == 'whelp':
        return [spec['whelp'], 'run', '--kernel', spec['kernel'], '--initrd', spec['initrd'],
                '--cmdline', spec['cmdline'], '--memory', f'{spec["memory"]}M', '--cpus', spec['cpus'],
                '--net', f'tap={TAP},mac={MAC}']
    common = [spec['qemu'], *QEMU, '-kernel', spec['kernel'], '-initrd', spec['initrd'], '-append', spec['cmdline'],
              '-m', f'{spec["memory"]}M', '-smp', spec['cpus'], '-netdev', NETDEV]
    machine, nic = {
        'microvm': (['-M', MICROVM, '-bios', 'qboot.rom'], 'virtio-net-device'),
        'microvm-pci': (['-M', f'{MICROVM},pcie=on', '-bios', 'qboot.rom'], 'virtio-net-pci,romfile='),
        'pc': (['-M', 'pc'], 'virtio-net-pci'),
    }[vmm]
    return [*common, *machine, '-device', f'{nic},netdev=n0,mac={MAC}']


def beyond_guest(pid, memory):
    """Resident bytes of a process in mappings smaller than the guest's memory, which is one mapping."""
    total, size = 0, 0
    for line in pathlib.Path(f'/proc/{pid}/smaps').read_text(encoding='ascii', errors='replace').splitlines():
        head = re.match(r'([0-9a-f]+)-([0-9a-f]+) ', line)
        if head:
            size = int(head.group(2), 16) - int(head.group(1), 16)
        elif line.startswith('Rss:') and size < memory << 20:
            total += int(line.split()[1]) << 10
    return total


def boot(vmm, spec):
    process, start = benchlib.spawn(argv(vmm, spec), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL)
    try:
        console = benchlib.Console(process)
        seconds = console.wait(INIT, LIMIT, vmm) - start.clock
        resident = beyond_guest(process.pid, spec['memory'])
    finally:
        benchlib.end(process)
        process.stdout.close()
    return {'seconds': round(seconds, 4), 'resident': resident}


def warm_up(spec, work):
    """Brings what is read into the page cache: in the lab files are slow to read the first time."""
    for name in ('kernel', 'initrd'):
        spec[name] = shutil.copy(spec[name], f'{work}/{name}')
    benchlib.run([spec['whelp'], '--version'])
    if set(spec['order']) - {'whelp'}:
        benchlib.run([spec['qemu'], '--version'])
        own = pathlib.Path(spec['qemu']).parent / 'usr'
        for directory in ('share/qemu', 'share/seabios'):
            for rom in ((own if own.exists() else pathlib.Path('/usr')) / directory).glob('*.[br][io][nm]'):
                rom.read_bytes()


def round_of(spec, work):
    benchlib.run(['ip', 'tuntap', 'add', TAP, 'mode', 'tap', 'vnet_hdr'])
    benchlib.run(['ip', 'link', 'set', TAP, 'up'])
    warm_up(spec, work)
    return {'machine': benchlib.machine(), 'order': spec['order'], 'cpus': spec['cpus'],
            'vmms': {vmm: boot(vmm, spec) for vmm in spec['order']}}


if __name__ == '__main__':
    sys.exit(benchlib.round_main('bench-boot', round_of))
