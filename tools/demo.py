#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of the demo beside the guest, in a private network namespace; tools/demo starts it.

usage: demo.py KERNEL INITRD NETPERF SECONDS CPUS
"""

import os
import re
import subprocess
import sys
import tempfile

import benchlib

sys.path.insert(0, str(benchlib.ROOT / 'guest'))
from guestchannel import GuestChannel, GuestError  # noqa: E402

HOST, GUEST, TAP = '192.0.2.1', '192.0.2.2', 'whelp0'
PINGS = 1000
MEMORY = '512M'
BOOT_LIMIT = 90
INIT, READY = b'whelp-guest: init', b'whelp-guest: ready\r\n'
NETPERF = (('TCP_STREAM', 'host to guest'), ('TCP_MAERTS', 'guest to host'), ('TCP_RR', 'one byte there and back'))


def say(text):
    print(f'demo: {text}', flush=True)


def show(data):
    """Puts the guest's console on ours, as it comes."""
    sys.stdout.buffer.write(data.replace(b'\r\n', b'\n'))
    sys.stdout.buffer.flush()


def ping():
    output = benchlib.run(['ping', '-q', '-n', '-f', '-c', PINGS, '-w', 120, GUEST], 150, f'ping -f -c {PINGS}')
    got = re.search(r'(\d+) packets transmitted, (\d+) received', output)
    times = re.search(r'= ([\d.]+)/([\d.]+)/([\d.]+)/[\d.]+ ms', output)
    if not got or not times:
        raise benchlib.Failed(f'ping: printed something unexpected: {output.strip()!r}')
    sent, received = map(int, got.groups())
    if received != PINGS:
        raise benchlib.Failed(f'ping -f: {received} answers to {sent} pings, {PINGS} were to come')
    low, mean, high = times.groups()
    return f'{low} / {mean} / {high} ms, none lost'


def netperf(program, test, seconds):
    figure, unit = benchlib.netperf(program, GUEST, test, seconds)
    if unit == '10^6bits/s':
        return f'{figure:,.1f} Mbit/s'
    return f'{figure:,.0f} transactions/s' if unit == 'Trans/s' else f'{figure:,.1f} {unit}'


def traffic(program, seconds, counters):
    """Runs every phase; rows of name, figure, packets, kicks and interrupts per 1,000 packets."""
    phases = [(f'ping -f -c {PINGS}, min/avg/max', ping)]
    for test, direction in NETPERF:
        phases.append((f'netperf {test}, {direction}', lambda test=test: netperf(program, test, seconds)))
    rows = []
    for name, run in phases:
        say(name)
        before = counters.read()
        figure = run()
        after = counters.read()
        packets = after['packets'] - before['packets']
        if not packets:
            raise benchlib.Failed(f'{name}: worked, but whelp counted no packet')
        rows.append([name, figure, f'{packets:,}',
                     *(f'{benchlib.per_thousand(before, after, what):,.1f}' for what in ('kicks', 'interrupts'))])
    return rows


def print_table(rows, boot, release, cpus):
    machine = benchlib.machine()
    version = benchlib.run([benchlib.build_dir() / 'whelp', '--version']).strip()
    print(f'\n{version}, guest Linux {release} with {cpus} CPU{"s" * (cpus > 1)} and {MEMORY}')
    print(f'host: {machine["host"]}')
    if machine['lab']:
        print(f'KVM: {machine["kvm"]}, {os.cpu_count()} CPU{"s" * (os.cpu_count() > 1)}')
        print(benchlib.LAB_WARNING)
    else:
        print('KVM: native')
    print()
    print(benchlib.table(['what', 'figure', 'packets', 'kicks/1000', 'interrupts/1000'],
                         [['boot, from exec to init, console shown', f'{boot:.2f} s', '', '', ''], *rows]),
          flush=True)


def demo(kernel, initrd, program, seconds, cpus, work):
    serial, stats = os.path.join(work, 'serial.sock'), os.path.join(work, 'stats.json')
    benchlib.make_tap(TAP, f'{HOST}/24')
    say(f'booting {kernel}')
    whelp, start = benchlib.spawn(
        [benchlib.build_dir() / 'whelp', 'run', '--name', 'demo', '--kernel', kernel, '--initrd', initrd,
         '--cpus', cpus, '--memory', MEMORY, '--net', f'tap={TAP}', '--serial', serial, '--stats', stats,
         '--cmdline', f'console=ttyS0 guest.net=eth0:{GUEST}/24 guest.shell=0'],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        console = benchlib.Console(whelp, show)
        boot = console.wait(INIT, BOOT_LIMIT, 'whelp') - start.clock
        console.wait(READY, BOOT_LIMIT, 'whelp')
        counters = benchlib.Counters(whelp, stats)
        with GuestChannel(serial) as guest:
            guest.wait_ready(BOOT_LIMIT)
            # Neighbours find each other here, and not in what is measured.
            benchlib.run(['ping', '-q', '-c', 1, '-w', 60, GUEST], 90, 'the first ping')
            rows = traffic(program, seconds, counters)
            say('powering the guest off')
            guest.post('poweroff')
            status = console.wait_end(60, 'whelp, after the guest was told to power off')
        counters.close()
        if status:
            raise benchlib.Failed(f'whelp ended with status {status}, not 0, after the poweroff')
    finally:
        benchlib.end(whelp)
    print_table(rows, boot, guest.release, cpus)


def main():
    kernel, initrd, program, seconds, cpus = sys.argv[1:]
    benchlib.end_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix='whelp-demo.') as work:
            demo(kernel, initrd, program, int(seconds), int(cpus), work)
    except (benchlib.Failed, GuestError, OSError) as err:
        sys.stdout.flush()
        print(f'demo: {err}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('demo: interrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
