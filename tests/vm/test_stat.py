# SPDX-License-Identifier: GPL-2.0-or-later
"""`whelp stat`: machines that run, are stopped, were killed, or never were. Tiny kernels."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import libvm
import micro as m
import pytest
from libvm import NOBODY, WHELP, one_line, stat

IDLE = m.say('x') + m.HALT
BUSY = m.say('x') + m.EXITS


@pytest.fixture
def start(whelp, micro):
    """start(NAME, CODE, OPTION...) is a machine that has begun to run it."""
    def make(name, code, *options, **more):
        machine = whelp('--kernel', micro(code), *(('--name', name) if name else ()), *options, **more)
        machine.wait_console('x|b')
        return machine
    return make


def sockets(directory):
    """What is in the runtime directory."""
    return sorted(path.name for path in (directory / 'run').iterdir())


def ask(directory, name):
    result = stat(directory, name, '--json')
    assert (result.returncode, result.stderr) == (0, ''), result
    return json.loads(result.stdout)


def wait_for(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'it never happened'
        time.sleep(0.01)


def test_a_machine(start, host, tmp_path):
    host.tap()
    machine = start('puppy', BUSY, '--cpus', 2, '--net', 'tap=tap0,queues=1', host=host)
    first = ask(tmp_path, 'puppy')
    assert (first['machine'], first['pid'], first['boots']) == ('puppy', machine.pid, 1)
    assert [nic['backend'] for nic in first['nics']] == ['tap0']
    assert first['nics'][0]['rx']['drops'] == dict.fromkeys(
        ['too_short', 'malformed', 'refused', 'gone', 'offload', 'no_room'], 0)
    assert len(first['cpus']) == 2
    wait_for(lambda: ask(tmp_path, 'puppy')['cpus'][0]['exits']['io_out'] > first['cpus'][0]['exits']['io_out'] + 100)
    second = ask(tmp_path, 'puppy')
    exits, devices, kvm = (second['cpus'][0][group] for group in ('exits', 'devices', 'kvm'))
    assert sum(exits.values()) == exits['io_out'], exits
    assert abs(devices['serial'] - exits['io_out']) <= 1 and list(devices) == ['serial'], (exits, devices)
    assert kvm is None or kvm['exits'] >= devices['serial'], kvm
    assert sum(second['cpus'][1]['exits'].values()) == 0, 'the second CPU was never started'
    assert second['up'] - first['up'] == pytest.approx(second['time'] - first['time'], abs=1e-3)
    table = stat(tmp_path, 'puppy')
    assert (table.returncode, table.stderr) == (0, ''), table
    assert table.stdout.startswith(f'puppy: process {machine.pid}, up ')
    assert re.search(r'\nnet0 on tap0\n', table.stdout) and re.search(r'\ncpu0 .*: io_out \d+\n', table.stdout), table


def test_devices(start, tmp_path):
    """Accesses are counted by cause and by who answers."""
    code = m.say('xyz') + m.out(m.PANIC, 0) + m.out(0x7777, 1) + m.MMIO_EXITS
    start('puppy', code)
    wait_for(lambda: ask(tmp_path, 'puppy')['cpus'][0]['exits']['mmio_read'] > 10)
    cpu = ask(tmp_path, 'puppy')['cpus'][0]
    assert cpu['exits']['io_out'] == 5, cpu
    assert (cpu['devices']['serial'], cpu['devices']['panic']) == (3, 1), cpu
    assert cpu['devices']['none'] >= 10, cpu


def test_at_the_end(start, tmp_path):
    """The file of --stats has the same."""
    path = tmp_path / 'stats'
    machine = start('puppy', m.say('x' * 20) + m.POWEROFF, '--stats', path)
    assert machine.wait() == 0
    root = json.loads(path.read_text())
    assert root['machine'] == 'puppy' and root['nics'] == []
    assert root['cpus'][0]['exits']['io_out'] == 21 and root['cpus'][0]['devices']['serial'] == 20, root


def test_resets(start, tmp_path):
    """It answers between resets, each of which begins with new counters."""
    start('puppy', m.count_boots())
    seen = set()
    wait_for(lambda: seen.add(ask(tmp_path, 'puppy')['boots']) or len(seen) > 5)
    assert ask(tmp_path, 'puppy')['cpus'][0]['exits']['io_out'] <= 2


def test_list(start, tmp_path):
    empty = stat(tmp_path)
    assert (empty.returncode, empty.stdout.count('\n'), empty.stderr) == (0, 1, ''), empty
    assert json.loads(stat(tmp_path, '--json').stdout) == []
    puppy, other = start('puppy', IDLE), start(None, IDLE, '--cpus', 3)
    listed = stat(tmp_path)
    assert listed.returncode == 0, listed
    rows = {line.split()[0]: line.split()[1:] for line in listed.stdout.splitlines()[1:]}
    assert set(rows) == {'puppy', f'whelp-{other.pid}'}, listed
    assert rows['puppy'][0] == str(puppy.pid) and rows[f'whelp-{other.pid}'][3] == '3', listed
    puppy.signal(signal.SIGSTOP)
    listed = json.loads(stat(tmp_path, '--json').stdout)
    assert listed == [{'machine': 'puppy', 'pid': puppy.pid, 'answers': False},
                      {'machine': f'whelp-{other.pid}', 'pid': other.pid, 'answers': True}]
    one_line(stat(tmp_path, 'puppy'), 1, 'stat puppy', 'does not answer', str(puppy.pid))
    puppy.signal(signal.SIGCONT)
    ask(tmp_path, 'puppy')


def test_unknown(start, tmp_path):
    one_line(stat(tmp_path, 'puppy'), 1, 'stat puppy', 'no such machine', 'none is running', f'{tmp_path}/run')
    start('kitten', IDLE)
    start('gosling', IDLE)
    one_line(stat(tmp_path, 'puppy'), 1, 'stat puppy', 'no such machine', 'gosling, kitten')
    one_line(stat(tmp_path, 'puppy', '--watch'), 1, 'stat puppy', 'no such machine')


def test_two_of_a_name(start, micro, tmp_path):
    machine = start('puppy', IDLE)
    environment = libvm.environment(tmp_path)
    again = libvm.run('run', '--kernel', micro(IDLE), '--name', 'puppy', env=environment)
    one_line(again, 1, '--name puppy', 'is running', str(machine.pid), 'another name')
    assert ask(tmp_path, 'puppy')['pid'] == machine.pid
    machine.signal()
    assert machine.wait() == 128 + signal.SIGTERM
    second = start('puppy', IDLE)
    assert ask(tmp_path, 'puppy')['pid'] == second.pid


def test_many_of_a_name_at_once(micro, whelp, tmp_path):
    """However they meet, one of them runs."""
    kernel = micro(IDLE)
    for _ in range(5):
        machines = [whelp('--kernel', kernel, '--name', 'puppy') for _ in range(6)]
        wait_for(lambda: sum(machine.process.poll() is None for machine in machines) == 1)
        runs, = (machine for machine in machines if machine.process.poll() is None)
        assert all(machine.process.returncode == 1 for machine in machines if machine is not runs)
        runs.wait_console('x')
        assert ask(tmp_path, 'puppy')['pid'] == runs.pid
        runs.signal()
        runs.wait()
        assert sockets(tmp_path) == []


@pytest.mark.parametrize('code, status', [(m.say('x') + m.POWEROFF, 0), (m.say('x') + m.CRASH, 4),
                                          (m.say('x') + m.TRIPLE_FAULT, 5)], ids=['poweroff', 'panic', 'triple fault'])
def test_nothing_is_left(start, tmp_path, code, status):
    machine = start('puppy', code)
    assert machine.wait() == status
    assert sockets(tmp_path) == []


@pytest.mark.parametrize('sent', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_by_a_signal(start, tmp_path, sent):
    machine = start('puppy', IDLE)
    assert sockets(tmp_path) == ['puppy']
    machine.signal(sent)
    machine.wait()
    assert sockets(tmp_path) == []


def test_killed(start, tmp_path):
    """What a killed machine leaves is replaced, or found out and removed."""
    for _ in range(2):
        machine = start('puppy', IDLE)
        machine.signal(signal.SIGKILL)
        assert machine.wait() == -signal.SIGKILL
        assert sockets(tmp_path) == ['puppy']
    one_line(stat(tmp_path, 'puppy'), 1, 'stat puppy', 'that machine is gone', 'removed')
    assert sockets(tmp_path) == []
    one_line(stat(tmp_path, 'puppy'), 1, 'stat puppy', 'no such machine')
    machine = start('puppy', IDLE)
    machine.signal(signal.SIGKILL)
    machine.wait()
    assert json.loads(stat(tmp_path, '--json').stdout) == []
    assert sockets(tmp_path) == []


class Watch:
    """A `whelp stat NAME --watch` that runs."""

    def __init__(self, directory, *arguments):
        self.process = subprocess.Popen([WHELP, 'stat', *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=libvm.environment(directory))

    def line(self):
        return self.process.stdout.readline()

    def end(self, timeout=30):
        """Its status, and what it still had to say."""
        out, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, errors

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()


def test_watch(start, tmp_path):
    """Counters grow; it ends with the machine, at once."""
    machine = start('puppy', BUSY)
    with Watch(tmp_path, 'puppy', '--watch', '--json') as watch:
        seen = [json.loads(watch.line()) for _ in range(3)]
        exits = [one['cpus'][0]['exits']['io_out'] for one in seen]
        assert exits == sorted(set(exits)), exits
        assert seen[2]['time'] - seen[0]['time'] >= 1.5
        machine.signal()
        assert watch.end() == (0, '', '')
    machine.wait()


def test_watch_as_a_table(start, tmp_path):
    machine = start('puppy', BUSY)
    with Watch(tmp_path, 'puppy', '--watch=1') as watch:
        lines = [watch.line() for _ in range(9)]
        assert sum(line.startswith(f'puppy: process {machine.pid}, ') for line in lines) == 2, lines
        assert sum(bool(re.match(r'cpu0 +[1-9]\d+ exits/s: io_out [1-9]\d+\n', line)) for line in lines) >= 1, lines
        watch.process.send_signal(signal.SIGINT)
        assert watch.end()[0] == 0


def test_watch_ends_long_before_the_next_report(start, tmp_path):
    machine = start('puppy', IDLE)
    with Watch(tmp_path, 'puppy', '--json', '--watch=3600') as watch:
        watch.line()
        machine.signal(signal.SIGKILL)
        assert watch.end() == (0, '', '')


def test_watch_and_another_of_the_name(start, tmp_path):
    """It was not asked about that one."""
    first = start('puppy', IDLE)
    with Watch(tmp_path, 'puppy', '--json', '--watch') as watch:
        watch.line()
        watch.process.send_signal(signal.SIGSTOP)
        first.signal()
        first.wait()
        start('puppy', IDLE)
        watch.process.send_signal(signal.SIGCONT)
        status, out, errors = watch.end()
        assert (status, errors) == (0, ''), errors
        assert all(json.loads(line)['pid'] == first.pid for line in out.splitlines())


def test_watch_without_a_reader(start, tmp_path):
    start('puppy', IDLE)
    with Watch(tmp_path, 'puppy', '--json', '--watch') as watch:
        watch.line()
        watch.process.stdout.close()
        watch.process.stdout = None
        status, _, errors = watch.end()
        assert status == 1 and 'standard output: cannot write' in errors, errors


# ---- users and directories ----

@pytest.fixture
def public():
    """A directory that everybody may enter, with whelp in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='whelp-test-'))
    path.chmod(0o755)
    shutil.copy(WHELP, path / 'whelp')
    (path / 'kernel').write_bytes(m.elf(IDLE))
    yield path
    shutil.rmtree(path)


def test_another_users_machine(whelp, public):
    """Root sees it, where it is; a third user does not."""
    machine = whelp('--kernel', public / 'kernel', '--name', 'puppy', prefix=libvm.as_user(NOBODY, public),
                    program=public / 'whelp')
    machine.wait_console('x')
    assert ask(public, 'puppy')['machine'] == 'puppy'
    (public / 'run').chmod(0o755)
    third = ['setpriv', '--reuid=65533', '--regid=65533', '--clear-groups', public / 'whelp', 'stat']

    def as_third(*arguments):
        return subprocess.run([*third, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False, env=libvm.environment(public))
    one_line(as_third('puppy'), 1, 'stat puppy', 'Permission denied')
    listed = as_third()
    assert (listed.returncode, listed.stdout.count('\n'), listed.stderr) == (0, 1, ''), listed
    (public / 'run').chmod(0o700)
    one_line(as_third(), 1, f'{public}/run', 'Permission denied')
    machine.signal()
    assert machine.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize('directory', ['/proc/whelp', '/dev/null'])
def test_no_directory(whelp, micro, directory):
    """A machine that cannot be found runs all the same."""
    machine = whelp('--kernel', micro(IDLE), '--name', 'puppy',
                    env={**os.environ, 'PATH': libvm.PATH, 'WHELP_RUNTIME_DIR': directory})
    machine.wait_console('x')
    machine.signal()
    assert machine.wait() == 128 + signal.SIGTERM
    warning, end = machine.errors.splitlines()
    assert warning.startswith('whelp: warning: whelp stat will not find this machine') and directory in warning
    assert end == 'whelp: puppy: ended by SIGTERM'


@pytest.mark.parametrize('variables, expected', [
    ({'XDG_RUNTIME_DIR': '{0}/own'}, '{0}/own/whelp'),
    ({'XDG_RUNTIME_DIR': '/nowhere'}, f'/tmp/whelp-{NOBODY}'),
    ({'XDG_RUNTIME_DIR': '/root'}, f'/tmp/whelp-{NOBODY}'),
    ({}, f'/tmp/whelp-{NOBODY}'),
    ({'XDG_RUNTIME_DIR': '{0}/own', 'WHELP_RUNTIME_DIR': '{0}/special'}, '{0}/special'),
], ids=['own', 'missing', "another's", 'unset', 'special'])
def test_which_directory(public, variables, expected):
    (public / 'own').mkdir()
    os.chown(public / 'own', NOBODY, NOBODY)
    result = subprocess.run(
        ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', public / 'whelp', 'stat', 'puppy'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={'PATH': libvm.PATH, **{name: value.format(public) for name, value in variables.items()}})
    one_line(result, 1, 'no such machine', f'(in {expected.format(public)})')
