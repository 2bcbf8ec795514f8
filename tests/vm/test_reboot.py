# SPDX-License-Identifier: GPL-2.0-or-later
"""A Linux guest reboots, panics, and loses its CPU: what the machine makes of it."""

import os

import libvm
import pytest

REBOOTS = int(os.environ.get('WHELP_REBOOTS', '3'))


@pytest.fixture
def start(whelp, host):
    def start(*options, cmdline=''):
        host.tap()
        return whelp('--kernel', libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--net', 'tap=tap0',
                     '--cmdline', f'console=ttyS0 guest.net=eth0:192.0.2.2/24 {cmdline}', *options, host=host,
                     serial=True).wait_ready()
    return start


def test_h8_reboots(start, host):
    """Each time the machine comes back whole: all CPUs, a fresh uptime, the network."""
    machine = start('--cpus', 2)
    descriptors = len(os.listdir(f'/proc/{machine.pid}/fd'))
    for number in range(REBOOTS):
        host.ping('-c 20 -i 0.01')
        machine.run(f'echo {number} >/tmp/mark')
        machine.channel.post('reboot -f')
        machine.channel.wait_restart(libvm.BOOT)
        assert machine.run('nproc; ls /tmp/mark 2>&1 | tail -n 1') == '2\nls: /tmp/mark: No such file or directory'
        assert len(os.listdir(f'/proc/{machine.pid}/fd')) == descriptors
    host.ping('-c 20 -i 0.01')
    machine.channel.post('poweroff -f')
    assert machine.wait() == 0
    assert machine.errors.count('\n') == 1, machine.errors


def test_no_reboot(start):
    """The same guest, without: status 3. By ACPI's register, then by the keyboard controller's pulse."""
    machine = start('--no-reboot', cmdline='reboot=k')
    machine.channel.post('reboot -f')
    assert machine.wait() == 3, machine.errors


def test_panic(start):
    """All of Debian's kernels have pvpanic, which tells the machine; it waits for no time limit of the guest's."""
    machine = start()
    assert 'pvpanic' in machine.run('ls /sys/bus/platform/drivers')
    machine.channel.post('echo c >/proc/sysrq-trigger')
    assert machine.wait() == 4, machine.errors
    assert 'sysrq triggered crash' in machine.console
    assert "the guest's kernel panicked" in machine.errors


def test_triple_fault(start):
    """Linux restarts by a triple fault when told so; it is reported as one, and not taken for a reboot."""
    machine = start('--no-reboot', cmdline='reboot=t')
    machine.channel.post('reboot -f')
    assert machine.wait() == 5, machine.errors
