# SPDX-License-Identifier: GPL-2.0-or-later
"""Signals at random moments: those that end whelp always do, the others never matter. Tiny kernels."""

import os
import random
import re
import signal
import time

import micro as m
import pytest

SEED = int(os.environ.get('WHELP_SEED', '0')) or random.SystemRandom().randrange(1, 1 << 32)
ROUNDS = int(os.environ.get('WHELP_ROUNDS', '200'))
# From before main() to well after the first guest instruction.
LATEST = 0.08

GUESTS = {
    'idle': m.HALT,
    'busy': m.HANG,
    'console': m.EXITS,
    'mmio': m.MMIO_EXITS,
    'resets': m.count_boots(),
}


def threads(machine):
    return len(os.listdir(f'/proc/{machine.pid}/task'))


def test_h13_ended_at_random_moments(whelp, micro, host):
    """Each one ends by the signal, with its tap, socket and terminal put in order."""
    print(f'WHELP_SEED={SEED}')
    draw = random.Random(SEED)
    kernels = {name: micro(code) for name, code in GUESTS.items()}
    early = 0
    for number in range(ROUNDS):
        name = draw.choice(list(kernels))
        sent = draw.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        moment = draw.uniform(0, LATEST)
        terminal = draw.random() < 0.5
        machine = whelp('--kernel', kernels[name], '--net', 'tap=own0', '--cpus', draw.choice([1, 2, 4]), host=host,
                        serial=True, terminal=terminal)
        time.sleep(moment)
        machine.signal(sent)
        status = machine.wait(timeout=30)
        what = f'round {number}, {name}, {sent.name} after {moment * 1000:.1f} ms: {status}, {machine.errors!r}'
        # Killed by the signal itself while there was nothing yet to put in order.
        early += status == -sent
        assert status in (128 + sent, -sent), what
        assert (machine.errors == '') == (status == -sent), what
        assert re.fullmatch(r'(whelp: whelp-\d+: ended by SIG\w+\n)?', machine.errors), what
        assert host.links() == ['lo'], what
        machine.close()
    assert early < ROUNDS, 'none got as far as its guest'


@pytest.mark.parametrize('name', ['idle', 'console', 'resets'])
def test_h12_harmless_signals(whelp, micro, host, name):
    """A storm of signals that are not whelp's business, from outside and at any thread, changes nothing."""
    print(f'WHELP_SEED={SEED}')
    draw = random.Random(SEED)
    host.tap()
    machine = whelp('--kernel', micro(m.say('x') + GUESTS[name]), '--net', 'tap=tap0', '--cpus', 2, host=host,
                    serial=True)
    machine.wait_console('x')
    before = threads(machine)
    harmless = [signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2,
                signal.SIGPIPE]
    for _ in range(5000):
        machine.signal(draw.choice(harmless))
    assert machine.process.poll() is None, (machine.process.returncode, machine.errors)
    assert name == 'resets' or threads(machine) == before
    if name != 'idle':
        size = machine.log.stat().st_size
        deadline = time.monotonic() + 30
        while machine.log.stat().st_size == size:
            assert time.monotonic() < deadline, 'the guest stands still'
            time.sleep(0.01)
    machine.signal(signal.SIGTERM)
    assert machine.wait() == 128 + signal.SIGTERM
    assert machine.errors.count('\n') == 1, machine.errors


def test_term_among_others(whelp, micro):
    """Two signals of which only one ends whelp, pending at the same time: it is not lost."""
    machine = whelp('--kernel', micro(m.say('x') + m.HALT))
    machine.wait_console('x')
    machine.signal(signal.SIGSTOP)
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT):
        machine.signal(number)
    assert machine.wait() == 128 + signal.SIGTERM


def test_stopped_and_continued(whelp, micro):
    """While it is stopped by SIGTSTP the terminal is as before; afterwards whelp has it again."""
    import termios
    machine = whelp('--kernel', micro(m.say('x') + m.HALT), terminal=True, preexec_fn=None, start_new_session=True)
    machine.expect('x')
    raw = termios.tcgetattr(machine.terminal)
    assert raw != machine.settings
    machine.signal(signal.SIGTSTP)
    wait_for(lambda: state(machine) == 'T')
    assert termios.tcgetattr(machine.terminal) == machine.settings
    machine.signal(signal.SIGCONT)
    wait_for(lambda: termios.tcgetattr(machine.terminal) == raw)
    machine.type('\x01x')
    assert machine.wait() == 7


def state(machine):
    with open(f'/proc/{machine.pid}/stat') as file:
        return file.read().rsplit(') ', 1)[1][0]


def wait_for(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'it never happened'
        time.sleep(0.01)
