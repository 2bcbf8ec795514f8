#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One lab of tools/bench-features, beside the guest, in a private network namespace: a guest, a NIC for each variant.

usage: features_round.py SPEC

SPEC is JSON: whelp and netperf (the programs), kernel, initrd, memory (MiB), seconds, tests (of netperf), between (how
many variants are measured between two measurements of the full set), and nics: a list of [name, keys of --net]. The
first is the full set. All NICs are the same guest's, so that what changes with the lab, the guest or the time changes all of them, and no
boot lies between a variant and the full set. Prints one line of JSON: the machine, the guest's kernel, the bits that its
driver took on each NIC, and the runs, in the order in which they were made.
"""

import os
import subprocess
import sys

import benchlib
import features_result

sys.path.insert(0, str(benchlib.ROOT / 'guest'))
from guestchannel import GuestChannel, GuestError  # noqa: E402

BOOT_LIMIT = 150


def address(number, end):
    """Of a NIC's own network, from the block that is set aside for benches (RFC 2544)."""
    return f'198.18.{number}.{end}'


def command(spec, serial, stats):
    nets, addresses = [], []
    for number, (_, keys) in enumerate(spec['nics']):
        nets += ['--net', f'tap=bench{number},{keys}'.rstrip(',')]
        addresses.append(f'eth{number}:{address(number, 2)}/24')
    return [spec['whelp'], 'run', '--name', 'features', '--kernel', spec['kernel'], '--initrd', spec['initrd'],
            '--cpus', 1, '--memory', f'{spec["memory"]}M', *nets, '--serial', serial, '--stats', stats,
            '--cmdline', f'console=ttyS0 quiet guest.net={",".join(addresses)} guest.shell=0']


def taken(guest, count):
    """The bits that the driver took of each NIC."""
    files = ' '.join(f'/sys/class/net/eth{number}/device/features' for number in range(count))
    bits = guest.run(f'cat {files}', 60).text.split()
    if len(bits) != count:
        raise benchlib.Failed(f'the guest has {len(bits)} NICs of {count}')
    return bits


def measure(spec, number, test, counters):
    before = counters.read(number)
    figure, unit = benchlib.netperf(spec['netperf'], address(number, 2), test, spec['seconds'])
    after = counters.read(number)
    run = {'test': test, 'name': spec['nics'][number][0], 'figure': figure, 'unit': unit,
           'packets': after['packets'] - before['packets']}
    if not run['packets'] or not figure:
        raise benchlib.Failed(f'{test} with "{run["name"]}": no packet came through')
    for what in ('kicks', 'interrupts'):
        run[what] = round(benchlib.per_thousand(before, after, what), 3)
    return run


def round_of(spec, work):
    serial, stats = os.path.join(work, 'serial.sock'), os.path.join(work, 'stats.json')
    for number in range(len(spec['nics'])):
        benchlib.make_tap(f'bench{number}', f'{address(number, 1)}/24', 'multi_queue')
    whelp, _ = benchlib.spawn(command(spec, serial, stats), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    try:
        benchlib.Console(whelp).wait(b'whelp-guest: ready', BOOT_LIMIT, 'whelp')
        counters = benchlib.Counters(whelp, stats)
        with GuestChannel(serial) as guest:
            guest.wait_ready(BOOT_LIMIT)
            bits = taken(guest, len(spec['nics']))
            # What the driver does not take makes no difference that could be measured.
            numbers = [number for number, other in enumerate(bits)
                       if number and (other != bits[0] or spec['nics'][number][0] == features_result.AGAIN)]
            for number in (0, *numbers):
                # Neighbours find each other here, and not in what is measured.
                benchlib.run(['ping', '-q', '-c', 1, '-w', 60, address(number, 2)], 90, 'the first ping')
            # The first after a boot warms things up and is not counted.
            benchlib.netperf(spec['netperf'], address(0, 2), spec['tests'][0], spec['seconds'])
            runs = [measure(spec, number, test, counters) for test in spec['tests']
                    for number in features_result.sequence(numbers, spec['between'])]
        counters.close()
    finally:
        benchlib.end(whelp)
        whelp.stdout.close()
    return {'machine': benchlib.machine(), 'release': guest.release, 'runs': runs,
            'taken': {name: bits[number] for number, (name, _) in enumerate(spec['nics'])}}


if __name__ == '__main__':
    sys.exit(benchlib.round_main('bench-features', round_of, GuestError))
