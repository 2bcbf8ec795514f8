# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab and the choice between it and this host: what tools/lab and tools/with-kvm promise.

Runs on the host and boots some labs; where the lab is not needed, those tests are skipped (WHELP_KVM=lab runs them).
"""
import os
import pathlib
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / 'tools/lab'
WITH_KVM = ROOT / 'tools/with-kvm'

pytestmark = pytest.mark.skipif(os.environ.get('WHELP_LAB') == '1', reason='this is the lab already')


def run(*argv, **env):
    """Runs a tool; a lab that takes three minutes will not come."""
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False,
                          env={**os.environ, **env})


def emulators(directory):
    """The processes whose command line names the directory."""
    found = []
    for entry in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
        try:
            if os.fsencode(directory) in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture(name='lab')
def fixture_lab(tmp_path):
    """Runs tools/lab with temporary files of its own, and checks that it leaves none, and no process."""
    if run(WITH_KVM, '--decide').stdout.startswith(b'direct'):
        pytest.skip('this host needs no lab')
    temporary = tmp_path / 'tmp'
    temporary.mkdir()
    yield lambda *argv: run(LAB, '-m', '2048', *argv, TMPDIR=str(temporary))
    assert list(temporary.iterdir()) == []
    assert emulators(temporary) == []


def faults(result):
    return [line for line in result.stderr.decode().splitlines() if line.startswith('lab: fault: ')]


def test_result_comes_back(lab, tmp_path):
    """Output byte for byte, the two streams apart, the exit status, files; a job that fails runs only once."""
    out = tmp_path / 'out'
    out.mkdir()
    blob = os.urandom(3_000_000)
    (out / 'blob').write_bytes(blob)
    job = '''
        cd "$1" && echo run >>runs
        test -c /dev/kvm && test -c /dev/net/tun && test -c /dev/vhost-net || exit 99
        cat blob
        echo "$WHELP_LAB $GIVEN" >/dev/stderr
        seq 20000 >&2
        sleep 1000 &
        exit 42
    '''
    result = lab('-e', 'GIVEN=a  b', '--out', out, '--', 'sh', '-c', job, 'job', out)
    assert result.returncode == 42, result.stderr[-2000:]
    assert result.stdout == blob
    assert result.stderr.decode() == '1 a  b\n' + ''.join(f'{i}\n' for i in range(1, 20001))
    assert (out / 'runs').read_text() == 'run\n'


def test_time_limit(lab):
    result = lab('-t', '1', '--', 'sh', '-c', 'echo started; exec sleep 1000')
    assert result.returncode == 124
    assert result.stdout == b'started\n'
    assert result.stderr == b'lab: the job was ended at its time limit of 1 seconds\n'


def test_fault_is_retried_once(lab, tmp_path):
    """A panic of the lab's kernel is the lab's fault: told as such, tried again once, then 125."""
    out = tmp_path / 'out'
    result = lab('--out', out, '--', 'sh', '-c', f'echo run >>{out}/runs; echo c >/proc/sysrq-trigger; sleep 1000')
    assert result.returncode == 125
    assert (out / 'runs').read_text() == 'run\nrun\n'
    first, second = faults(result)
    assert 'kernel panic on the console; trying once more in a fresh lab' in first
    assert 'kernel panic on the console; giving up' in second
    for line in first, second:
        log = pathlib.Path(line.rpartition('(console: ')[2].rstrip(')'))
        assert 'Kernel panic' in log.read_text(errors='replace')
        log.unlink()


def test_fault_then_success(lab, tmp_path):
    """The second try's result counts: here the machine stops in the first one only."""
    out = tmp_path / 'out'
    job = f'mkdir {out}/first && exec sh -c "echo o >/proc/sysrq-trigger; sleep 1000"; echo second; exit 7'
    result = lab('--out', out, '--', 'sh', '-c', job)
    assert result.returncode == 7
    assert result.stdout == b'second\n'
    line, = faults(result)
    assert 'the machine stopped before the job was done; trying once more' in line
    pathlib.Path(line.rpartition('(console: ')[2].rstrip(')')).unlink()


def test_signal_ends_all(lab, tmp_path):
    """A signal in the middle of a job ends the lab; the fixture sees that nothing is left of it."""
    with subprocess.Popen([LAB, '--', 'sh', '-c', 'echo started; exec sleep 1000'], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, env={**os.environ, 'TMPDIR': str(tmp_path / 'tmp')}) as process:
        assert process.stdout.readline() == b'started\n'
        assert emulators(tmp_path / 'tmp')
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize('argv, words', [
    (['-c', '0', 'true'], "option -c: '0'"),
    (['-t', '1m', 'true'], "option -t: '1m'"),
    (['-m'], 'option -m needs a value'),
    (['--bogus', 'true'], 'unknown option --bogus'),
    (['-k', 'nosuch', 'true'], "no kernel is named 'nosuch'"),
    (['-k', '/nosuch/vmlinuz-1', 'true'], 'cannot read the kernel /nosuch/vmlinuz-1'),
    ([], 'no command given'),
])
def test_wrong_usage(lab, argv, words):
    result = lab(*argv)
    assert result.returncode == 125
    assert words in result.stderr.decode()
    assert result.stderr.count(b'\n') == 1


@pytest.fixture(name='doctor')
def fixture_doctor(tmp_path):
    """Makes a stand-in for whelp whose doctor finds what the test says."""
    def make(native):
        program = tmp_path / 'whelp'
        program.write_text('#!/bin/sh\n'
                           f'echo \'{{"ok": true, "kvm": {{"present": true, "native": {native}}}, "rows": []}}\'\n')
        program.chmod(0o755)
        return str(program)
    return make


@pytest.mark.skipif(not os.access('/dev/kvm', os.R_OK | os.W_OK), reason='no usable /dev/kvm to ask about')
@pytest.mark.parametrize('native, place', [('true', 'direct'), ('false', 'lab'), ('null', 'lab')])
def test_decision_follows_doctor(doctor, native, place):
    result = run(WITH_KVM, '--decide', WHELP=doctor(native), WHELP_KVM='')
    assert result.returncode == 0
    assert result.stdout.decode().split()[0] == place


def test_direct_run():
    """Run directly: status and streams as they are, one line that says so, the time limit as the lab's."""
    result = run(WITH_KVM, '-c', '4', '-e', 'GIVEN=x', '--', 'sh', '-c', 'echo "$GIVEN"; exit 3', WHELP_KVM='direct')
    assert (result.returncode, result.stdout) == (3, b'x\n')
    assert result.stderr == b'with-kvm: running directly: WHELP_KVM=direct says so\n'
    assert run(WITH_KVM, '-t', '1', '--', 'sleep', '1000', WHELP_KVM='direct').returncode == 124
