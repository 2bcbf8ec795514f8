# SPDX-License-Identifier: GPL-2.0-or-later
"""The console of a Linux guest: an interactive shell on a terminal, pipes and files, and every byte of it."""

import hashlib
import os
import random
import subprocess
import threading

import libvm
import pytest

SIZE = 200_000


@pytest.fixture(scope='module')
def cloud():
    return ['--kernel', libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--memory', '256M']


def noise(size):
    """Bytes of every value."""
    return random.Random(size).randbytes(size)


def test_shell_on_a_terminal(whelp, cloud):
    machine = whelp(*cloud, terminal=True)
    machine.expect(r'guest:~# ', timeout=libvm.BOOT)

    machine.type('echo $((6 * 7))-"$(uname -s)"\r')
    machine.expect(r'\n42-Linux\r\n.*guest:~# ')

    # Ctrl-C ends what runs in the foreground, Ctrl-Z stops it, and the shell goes on.
    # Not before the command runs: until then the shell itself reads the keys.
    machine.type('(echo runs""-1; exec sleep 1000); echo "status $?"\r')
    start = machine.expect('runs-1').end()
    machine.type('\x03')
    machine.expect(r'guest:~# ', start=start)
    machine.type('sh -c "echo runs\'\'-2; exec sleep 1000"\r')
    start = machine.expect('runs-2', start=start).end()
    machine.type('\x1a')
    machine.expect('Stopped', start=start)
    machine.type('kill %1; wait; echo "[killed]"\r')
    machine.expect(r'\n\[killed\]', start=start)

    # Backspace edits the line; keys that are whelp's own elsewhere are the guest's.
    machine.type('echo abX\x7fc-ed""ited\r')
    machine.expect(r'\nabc-edited\r\n', start=start)

    # All bytes, both ways, as fast as they go. Ctrl-A is an escape on a terminal: typed twice, it is one.
    data = noise(SIZE)
    machine.type('stty raw -echo; echo go""ing; head -c %d >/tmp/in; stty sane; sha256sum /tmp/in\r' % SIZE)
    at = machine.expect('going').end()
    typist = threading.Thread(target=write_all, args=(machine.terminal, data.replace(b'\x01', b'\x01\x01')))
    typist.start()
    found = machine.expect('([0-9a-f]{64})  /tmp/in', timeout=120, start=at)
    typist.join()
    assert found[1].decode() == hashlib.sha256(data).hexdigest()

    machine.type('stty raw -echo; echo be""gin; cat /tmp/in; echo; echo the""end; stty sane\r')
    at = machine.expect('begin\r?\n', start=found.end()).end()
    end = machine.expect('\ntheend\n', timeout=120, start=at + SIZE)
    assert machine.read_from_terminal[at:end.start()] == data

    machine.type('\x01x')
    assert machine.wait() == 7


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data[:4096]):]


def test_files(whelp, cloud, tmp_path):
    """stdin is a file of commands, stdout another: the shell reads them and the log has all of its output."""
    script = tmp_path / 'script'
    # Not more than the tty's own buffer: a shell that is busy leaves the rest there.
    script.write_text('echo from-a-$((1 + 1))-file\nseq 5000\npoweroff -f\n')
    with open(script, 'rb') as stdin:
        machine = whelp(*cloud, '--cmdline', 'console=ttyS0 loglevel=1', stdin=stdin)
        assert machine.wait(libvm.BOOT) == 0, machine.errors
    text = machine.console.replace('\r\n', '\n')
    assert '\nfrom-a-2-file\n' in text
    at = text.index('\n1\n2\n') + 1
    expected = ''.join(f'{number}\n' for number in range(1, 5001))
    assert text[at:at + len(expected)] == expected


def test_pipes(whelp, cloud):
    """A pipe each way, with bytes of all values and a reader that is slow at first; they pass untouched."""
    data = noise(SIZE)
    command = f'stty raw -echo; echo begin; head -c {SIZE} >/tmp/in; cat /tmp/in; echo; sha256sum /tmp/in'
    machine = whelp(*cloud, '--cmdline', f'console=ttyS0 loglevel=1 guest.run="{command}"', stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE)
    output = b''
    while b'begin\n' not in output:
        output += os.read(machine.process.stdout.fileno(), 65536)
    typist = threading.Thread(target=write_all, args=(machine.process.stdin.fileno(), data))
    typist.start()
    while chunk := os.read(machine.process.stdout.fileno(), 65536):
        output += chunk
    typist.join()
    machine.process.stdin.close()
    assert machine.wait() == 0
    at = output.index(b'begin\n') + 6
    assert output[at:at + SIZE] == data
    assert hashlib.sha256(data).hexdigest().encode() in output[at + SIZE:]
