# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent and its client against each other, on a pseudo-terminal in place of the serial port: no guest needed."""

import os
import pty
import select
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from guestchannel import (CommandFailed, GuestChannel, GuestError, GuestGone, GuestRestarted, GuestTimeout,
                          decode, encode)

HERE = Path(__file__).parent


class Port:
    """A listening unix socket joined to a pty, as a machine joins one to its UART; starts the agent on it."""

    def __init__(self, agent, path):
        self.agent, self.path = agent, path
        self.master, self.slave = pty.openpty()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.stop_read, self.stop_write = os.pipe()
        self.process = None
        self.damage = None
        self.thread = threading.Thread(target=self.relay)
        self.thread.start()

    def start(self):
        self.process = subprocess.Popen([self.agent, os.ttyname(self.slave)], stdin=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def relay(self):
        client = None
        while True:
            fds = [self.stop_read, self.listener] + ([client, self.master] if client else [])
            ready, _, _ = select.select(fds, [], [])
            if self.stop_read in ready:
                break
            if self.listener in ready:
                client = self.listener.accept()[0]
                continue
            if client in ready:
                try:
                    data = client.recv(4096)
                except ConnectionResetError:  # it left with output unread
                    data = b''
                if not data:
                    client.close()
                    client = None
                    continue
                while data:
                    data = data[os.write(self.master, data):]
            if self.master in ready:
                data = os.read(self.master, 4096)
                if self.damage:
                    data = self.damage(data)
                try:
                    client.sendall(data)
                except OSError:
                    client.close()
                    client = None
        if client:
            client.close()
        self.listener.close()

    def close(self):
        if self.process:
            self.kill()
        os.write(self.stop_write, b'x')
        self.thread.join()
        for fd in (self.master, self.slave, self.stop_read, self.stop_write):
            os.close(fd)


@pytest.fixture(scope='session')
def agent(tmp_path_factory):
    path = tmp_path_factory.mktemp('agent') / 'agent'
    subprocess.run([os.environ.get('CC', 'cc'), '-std=gnu17', '-g', '-fsanitize=address,undefined', '-o', path,
                    HERE / 'agent.c'], check=True)
    return str(path)


@pytest.fixture
def port(agent, tmp_path):
    port = Port(agent, str(tmp_path / 'port'))
    yield port
    port.close()


@pytest.fixture
def guest(port):
    port.start()
    with GuestChannel(port.path) as guest:
        guest.wait_ready(20)
        yield guest


def test_status_and_output(guest):
    assert guest.release == os.uname().release
    result = guest.run('echo out; echo err >&2; exit 7', check=False)
    assert (result.status, sorted(result.text.split())) == (7, ['err', 'out'])
    assert guest.run('kill -9 $$', check=False).status == 137
    assert guest.run('cat; echo end').text == 'end\n'
    with pytest.raises(CommandFailed, match='status 3'):
        guest.run('exit 3')
    with pytest.raises(ValueError):
        guest.run('x' * 40000)


def test_bytes_are_exact(guest, tmp_path):
    data = bytes(range(256)) * 40 + b'\x7e\x7d\x7d\x5e\x7d\x5d' * 3000 + os.urandom(300000)
    path = str(tmp_path / "a b'c")
    guest.push(data, path, 0o755)
    assert Path(path).read_bytes() == data
    assert os.stat(path).st_mode & 0o777 == 0o755
    assert guest.pull(path) == data
    with pytest.raises(CommandFailed):
        guest.pull('/nonexistent')


def test_large_output(guest):
    assert guest.run('head -c 3000000 /dev/zero').output == bytes(3000000)


def test_input_that_nobody_reads(guest):
    data = bytes(500000)
    assert guest.run('exec <&-; sleep 0.1; echo closed', stdin=data).text == 'closed\n'
    assert guest.run('echo short', stdin=data).text == 'short\n'
    assert guest.run('wc -c', stdin=data).text.strip() == '500000'
    assert guest.run('cat', stdin=b'').output == b''


def test_background_process(guest):
    pid = int(guest.run('(sleep 0.3; echo late; sleep 600) & echo $!').text)
    try:
        assert guest.run('echo next').text == 'next\n'
        time.sleep(0.5)
        assert guest.run(f'kill -0 {pid}').status == 0, 'its late output killed it'
    finally:
        guest.run(f'kill {pid}; pkill -P {pid}', check=False)
    pid = int(guest.run('yes & echo $!').output.split()[0].replace(b'y', b'') or 0)
    assert guest.run('echo alive').text == 'alive\n'
    guest.run(f'kill {pid}' if pid else 'true')


def test_time_limit(guest):
    with pytest.raises(GuestTimeout) as caught:
        guest.run('echo before; sleep 600', timeout=0.5)
    assert caught.value.output == b'before\n'
    assert guest.run('echo after').text == 'after\n'


def test_new_client_ends_old_command(port, guest, tmp_path):
    mark = tmp_path / 'pid'
    guest.post(f'echo $$ >{mark}.new; mv {mark}.new {mark}; while :; do echo noise; done')
    while not mark.exists():
        time.sleep(0.01)
    guest.close()
    with GuestChannel(port.path) as other:
        other.wait_ready(20)
        assert other.run('echo mine').text == 'mine\n'
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_restart_during_command(port, guest):
    guest.post('sleep 600')
    port.kill()
    port.start()
    guest.wait_restart(20)
    assert guest.run('echo again').text == 'again\n'
    threading.Timer(0.3, lambda: (port.kill(), port.start())).start()
    with pytest.raises(GuestRestarted):
        guest.run('sleep 600')


def test_junk_before_agent(port):
    os.write(port.slave, b'SeaBIOS \x7e\x7e~junk~\x7d')
    with GuestChannel(port.path) as guest:
        with pytest.raises(GuestTimeout, match='junk'):
            guest.wait_ready(0.7)
        port.start()
        guest.wait_ready(20)
        assert guest.run('echo ok').text == 'ok\n'


def test_lost_byte_is_noticed(port, guest):
    port.damage = lambda data: data.replace(b'precious', b'precous')
    with pytest.raises(GuestError, match='damaged'):
        guest.run('echo precious')
    port.damage = None
    guest.wait_ready(20)
    assert guest.run('echo precious').text == 'precious\n'


def test_agent_rejects(port, guest):
    guest._tx += b'\x7etoo short\x7e' + encode(b'?', 5) + encode(b'R', 6, b'x') + encode(b'D', 7, b'late')
    answers = [guest._receive(time.monotonic() + 10) for _ in range(3)]
    assert [(kind, ident) for kind, ident, _ in answers] == [(b'N', 0), (b'N', 5), (b'N', 6)]
    guest._tx += b'\x7e' + bytes(200000) + b'\x7e'
    assert guest._receive(time.monotonic() + 10)[:2] == (b'N', 0)
    assert guest.run('echo ok').text == 'ok\n'


def test_machine_ends(port, guest):
    port.close()
    port.close = lambda: None
    with pytest.raises(GuestGone):
        guest.run('true')


def test_no_port(agent):
    assert subprocess.run([agent, '/nonexistent']).returncode == 3
    assert subprocess.run([agent, '/dev/null']).returncode == 3


def test_frames():
    for payload in (b'', b'\x7e', b'\x7d\x5e\x7d\x5d', bytes(range(256))):
        wire = encode(b'O', 0x7d7e5d5e, payload)
        assert wire.count(b'\x7e') == 2
        assert decode(wire[1:-1]) == (b'O', 0x7d7e5d5e, payload)
        assert decode(wire[1:-2]) is None


def test_ctl(port):
    port.start()
    ctl = [HERE / 'ctl', port.path]
    done = subprocess.run(ctl + ['--', 'echo a b; exit 4'], capture_output=True)
    assert (done.returncode, done.stdout) == (4, b'a b\n')
    done = subprocess.run(ctl + ['--', 'echo', 'a  b'], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b'a  b\n')
    assert subprocess.run(ctl + ['-t', '0.3', '--', 'sleep 99'], capture_output=True).returncode == 124
    assert subprocess.run(ctl, capture_output=True).returncode == 2
    done = subprocess.run([HERE / 'ctl', '/nonexistent', '-w', '0.1', '--', 'true'], capture_output=True)
    assert done.returncode == 125 and done.stderr.count(b'\n') == 1
