# SPDX-License-Identifier: GPL-2.0-or-later
"""Each way in which a machine ends: its exit status, its message, and what it leaves (nothing). Tiny kernels."""

import signal

import micro as m
import pytest

ENDS = [
    ('poweroff', m.say('x') + m.POWEROFF, (), 0, 'the guest powered off'),
    ('reboot', m.say('x') + m.REBOOT, ('--no-reboot',), 3, 'the guest rebooted, and --no-reboot was given'),
    ('keyboard', m.say('x') + m.KEYBOARD_RESET, ('--no-reboot',), 3, 'the guest rebooted'),
    ('panic', m.say('x') + m.CRASH, (), 4, "the guest's kernel panicked"),
    ('triple fault', m.say('x') + m.TRIPLE_FAULT, (), 5, 'triple fault'),
    ('internal error', m.say('x') + m.JUMP_TO_NOWHERE, (), 6, 'KVM could not go on'),
]


@pytest.mark.parametrize('code, options, status, message', [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_guest_ends(whelp, micro, host, code, options, status, message):
    """With a tap of its own, a socket and a terminal: all as before in the end, nothing of the console lost."""
    machine = whelp('--kernel', micro(code), '--name', 'puppy', '--net', 'tap=own0', *options, host=host,
                    serial=True, terminal=True)
    assert machine.wait() == status, machine.errors
    lines = machine.errors.splitlines()
    assert lines[-1].startswith('whelp: puppy: ') and message in lines[-1], lines
    assert len(lines) == (2 if status == 6 else 1), lines
    assert machine.console == 'x'
    assert host.links() == ['lo']


def test_reboot_loop(whelp, micro, host):
    """H8: twenty resets and then some in one process: no EBUSY, no descriptor more than at the start."""
    host.tap()
    machine = whelp('--kernel', micro(m.count_boots()), '--net', 'tap=tap0', '--cpus', 2, host=host, serial=True)
    machine.wait_console('b{5}')
    before = descriptors(machine)
    machine.wait_console('b{30}')
    after = descriptors(machine)
    # One that a life leaves is left by 25 of them. How many a machine has depends on the moment; the fewest are those
    # that it has always.
    assert min(after) < min(before) + 10, (before, after)
    machine.signal()
    assert machine.wait() == 128 + signal.SIGTERM
    assert machine.errors.count('\n') == 1, machine.errors


def descriptors(machine):
    import os
    import time
    counts = []
    for _ in range(20):
        counts.append(len(os.listdir(f'/proc/{machine.pid}/fd')))
        time.sleep(0.005)
    return counts


@pytest.mark.parametrize('name', ['TERM', 'INT', 'HUP'])
def test_ended_by_signal(whelp, micro, host, name):
    machine = whelp('--kernel', micro(m.say('x') + m.HALT), '--net', 'tap=own0', host=host, serial=True,
                    terminal=True)
    machine.expect('x')
    number = getattr(signal, f'SIG{name}')
    machine.signal(number)
    assert machine.wait() == 128 + number
    assert machine.errors == f'whelp: whelp-{machine.pid}: ended by SIG{name}\n'
    assert host.links() == ['lo']


def test_quit(whelp, micro):
    """Ctrl-A x; Ctrl-A and anything else is the guest's."""
    machine = whelp('--kernel', micro(m.say('x') + m.HALT), terminal=True)
    machine.expect('x')
    machine.type('abc\x01y\x01\x01x')
    machine.type('\x01x')
    assert machine.wait() == 7
    assert 'quit by Ctrl-A x' in machine.errors
