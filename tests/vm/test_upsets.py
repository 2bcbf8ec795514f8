# SPDX-License-Identifier: GPL-2.0-or-later
"""Under traffic, what the device stands on is moved, taken away, or stopped: the guest and its network go on."""

import os
import pathlib
import re
import signal
import time

import libvm
import pytest
from test_network import stats

HOST, GUEST = '192.0.2.1', '192.0.2.2'


@pytest.fixture
def start(whelp, host, tmp_path):
    def start(*options, name='cloud', net=''):
        return whelp('--kernel', libvm.kernel(name), '--initrd', libvm.image(name), '--cpus', 2, '--memory', '512M',
                     '--cmdline', f'console=ttyS0 guest.net=eth0:{GUEST}/24', '--net', f'tap=tap0{net}', '--stats',
                     tmp_path / 'stats', *options, host=host, serial=True)
    return start


def wait_for(condition, what):
    deadline = time.monotonic() + libvm.PROMPT
    while not condition():
        assert time.monotonic() < deadline, f'no {what} within {libvm.PROMPT} s'
        time.sleep(0.05)


def cpu_time(machine):
    """That the NIC's workers took until now, in seconds."""
    ticks = 0
    for task in pathlib.Path(f'/proc/{machine.pid}/task').iterdir():
        if not re.search('net|pair|tap', (task / 'comm').read_text()):
            continue
        fields = (task / 'stat').read_text().rsplit(') ', 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def guest_floods(machine):
    machine.run(f'/usr/bin/ping -q -f -s 500 {HOST} >/dev/null 2>&1 & echo $! >/tmp/flood')


def alive(host):
    """Answers come again. Besides a flood a single one may get lost: ping's socket gets the flood's answers, too."""
    host.run(f'ping -q -c 5 -i 0.1 -w 40 {GUEST}')


@pytest.mark.parametrize('name', ['cloud', 'unstable'])
def test_g18_interrupts_move(start, host, name):
    """The interrupts' CPU changes every 10 ms: not one frame is lost, and no interrupt comes where none should."""
    host.tap()
    machine = start(name=name).wait_ready()
    machine.run(libvm.MOVE_INTERRUPTS)
    host.ping('-f -l 16 -c 10000', timeout=300)
    for test in ('TCP_STREAM', 'TCP_MAERTS'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {GUEST} -t {test} -l 1')
    host.ping('-c 50 -i 0.01')
    machine.run('kill $(cat /tmp/mover)')
    assert int(machine.run('wc -l </tmp/moves')) > 100
    # Both CPUs took their part, and the kernel found nothing to complain of ("No irq handler", "nobody cared").
    inputs = re.search(r'\d+: +(\d+) +(\d+) .*virtio0-input', machine.run('cat /proc/interrupts'))
    assert int(inputs[1]) > 100 and int(inputs[2]) > 100, inputs[0]
    assert machine.dmesg_faults() == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


def test_h2_tap_down(start, host, tmp_path):
    """While it is down, the guest's frames are dropped and counted, with few lines about it; then all is well."""
    host.tap()
    machine = start().wait_ready()
    path = tmp_path / 'stats'
    guest_floods(machine)
    with host.background(f'ping -q -f {GUEST}'):
        wait_for(lambda: stats(machine, path)['tx']['packets'] > 1000, 'traffic')
        host.run('ip link set tap0 down')
        before = stats(machine, path)['tx']['dropped']
        # The guest's flood goes on without answers, a hundred frames a second.
        wait_for(lambda: stats(machine, path)['tx']['dropped'] - before > 500, 'dropped frames')
        assert machine.run('echo here') == 'here'
        host.run('ip link set tap0 up')
        alive(host)
    machine.run('kill $(cat /tmp/flood)')
    dropped = stats(machine, path)['tx']['dropped']
    host.ping('-f -l 8 -c 500')
    assert stats(machine, path)['tx']['dropped'] == dropped
    assert machine.dmesg_faults() == []
    machine.poweroff()
    lines = [line for line in machine.errors.splitlines() if 'sending to tap0: Input/output error' in line]
    # The limit is a few lines each few seconds.
    assert 1 <= len(lines) < 30 and machine.errors.count('\n') == len(lines) + 1, machine.errors


def test_h4_tap_deleted(start, host, tmp_path):
    """Under load: one line, nothing spins, and the guest goes on; before DRIVER_OK the same."""
    host.tap()
    machine = start().wait_ready()
    guest_floods(machine)
    with host.background(f'ping -q -f {GUEST}'):
        wait_for(lambda: stats(machine, tmp_path / 'stats')['rx']['packets'] > 1000, 'traffic')
        host.run('ip link del tap0')
        wait_for(lambda: 'tap0 is gone' in machine.errors, 'line about the tap')
    expect_cut_off(machine)

    host.tap()
    machine = start()
    # It is attached when the tap has its carrier.
    wait_for(lambda: host.run('cat /sys/class/net/tap0/carrier').stdout == '1\n', 'whelp on the tap')
    host.run('ip link del tap0')
    assert 'whelp-guest' not in machine.console
    machine.wait_ready()
    guest_floods(machine)
    expect_cut_off(machine)


def expect_cut_off(machine):
    assert machine.run('echo here; kill $(cat /tmp/flood)') == 'here'
    # Nothing comes and nothing is sent: then the workers sleep.
    before, since = cpu_time(machine), time.monotonic()
    machine.run('sleep 2')
    assert cpu_time(machine) - before < 0.2 * (time.monotonic() - since)
    # What is sent now is dropped, and the queue does not fill up.
    machine.run(f'/usr/bin/ping -q -f -c 300 -W 1 {HOST}', check=False, timeout=60)
    machine.run('ip link set eth0 down; ip link set eth0 up')
    assert machine.dmesg_faults() == []
    machine.poweroff()
    lines = [line for line in machine.errors.splitlines() if 'tap0' in line and '--net' not in line]
    assert sum('is gone' in line for line in lines) == 1, machine.errors


@pytest.mark.parametrize('full', [False, True], ids=['empty', 'full'])
def test_h14_stopped(start, host, tmp_path, full):
    """SIGSTOP, a flood that fills all that stands before the guest, SIGCONT: the network recovers.

    With a ring that is full when it stops, which the guest has to empty before anything can come (G29).
    """
    host.tap()
    machine = start(net=',rx_ring=16' if full else '').wait_ready()
    guest_floods(machine)
    for _ in range(2):
        alive(host)
        waits = stats(machine, tmp_path / 'stats')['rx']['waits']
        dropped = host.counter('tap0', 'tx_dropped')
        if not full:
            machine.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        # More at once than the tap's queue holds.
        with host.background(f'ping -q -f -l 3000 -s 1000 {GUEST}'):
            wait_for(lambda: host.counter('tap0', 'tx_dropped') > dropped + 100, 'full queue')
            if full:
                machine.signal(signal.SIGSTOP)
            if 'WHELP_LONG' in os.environ:
                time.sleep(max(0, 60 - (time.monotonic() - stopped)))
            taken = host.counter('tap0', 'tx_packets')
            since = time.monotonic()
            machine.signal(signal.SIGCONT)
            # The tap has counted a frame once it was taken from its queue.
            wait_for(lambda: host.counter('tap0', 'tx_packets') > taken + 100, 'frames')
            print(f'100 frames after {time.monotonic() - since:.2f} s')
            alive(host)
        assert not full or stats(machine, tmp_path / 'stats')['rx']['waits'] > waits
    machine.run('kill $(cat /tmp/flood)')
    host.ping('-f -l 8 -c 500')
    # To the guest a CPU stood still: a kernel may say so after a long time, but nothing else.
    late = 'lockup|stall|clocksource|workqueue' if 'WHELP_LONG' in os.environ else 'clocksource'
    assert [line for line in machine.dmesg_faults() if not re.search(late, line)] == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors
