# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs commands in the test guest: the host's end of the agent's channel (docs/guest.md has the protocol).

    with GuestChannel('serial.sock') as guest:
        guest.wait_ready(60)
        print(guest.run('uname -r').text)

Every call ends by its own time limit. Only one client can use a channel at a time.
"""

import os
import re
import select
import shlex
import socket
import struct
import time
import zlib
from dataclasses import dataclass

FLAG, ESC = b'\x7e', b'\x7d'
COMMAND_MAX = 32768
CHUNK = 4096
WINDOW = 4 * CHUNK  # input on its way to a command; the guest's tty and the agent hold more
GRACE = 20  # seconds for the guest to report that a time limit passed: it may be an emulated one


class GuestError(Exception):
    """The channel or the guest failed; the message ends with the last bytes seen."""


class GuestGone(GuestError):
    """The other end closed the socket: the machine ended."""


class GuestRestarted(GuestError):
    """The agent started anew while a command was running: the guest was reset."""


class GuestTimeout(GuestError):
    """No end within the time limit. `output` is what the command printed till then."""

    def __init__(self, message, output=b''):
        super().__init__(message)
        self.output = output


class CommandFailed(GuestError):
    """A command's status was not 0; `result` has it."""

    def __init__(self, command, result):
        super().__init__(f'guest command {command!r}: status {result.status}, '
                         f'output {result.text[-2000:]!r}')
        self.result = result


@dataclass(frozen=True)
class Result:
    status: int  # as in the shell: 128 + N if signal N ended it
    output: bytes  # stdout and stderr

    @property
    def text(self):
        return self.output.decode(errors='replace')


def encode(kind, ident, payload=b''):
    body = kind + struct.pack('<I', ident) + payload
    body += struct.pack('<I', zlib.crc32(body))
    return FLAG + body.replace(ESC, b'\x7d\x5d').replace(FLAG, b'\x7d\x5e') + FLAG


def decode(wire):
    """(kind, ident, payload) of the bytes between two flags, or None if they are damaged."""
    body = wire.replace(b'\x7d\x5e', FLAG).replace(b'\x7d\x5d', ESC)
    if len(body) < 9 or zlib.crc32(body[:-4]) != struct.unpack('<I', body[-4:])[0]:
        return None
    return body[:1], struct.unpack('<I', body[1:5])[0], body[5:-4]


class GuestChannel:
    def __init__(self, path):
        self.path = path
        self.release = None  # the guest's kernel, once ready
        self._sock = None
        self._ready = False
        self._ident = 0
        self._rx = b''
        self._tx = b''
        self._frames = []
        self._last = b''

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._sock:
            self._sock.close()
        self._sock = None

    def connect(self, timeout=10):
        """Connects, waiting for the socket to appear. Harmless when connected."""
        deadline = time.monotonic() + timeout
        while not self._sock:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(max(0.01, deadline - time.monotonic()))
                sock.connect(self.path)
            except OSError as err:
                sock.close()
                if time.monotonic() >= deadline:
                    raise GuestError(f'cannot connect to {self.path}: {err}') from err
                time.sleep(0.02)
                continue
            sock.setblocking(False)
            self._sock = sock
            self._ready = False
            self._rx, self._tx, self._frames = b'', b'', []

    def wait_ready(self, timeout=60):
        """Connects if need be and waits for the agent. Ends a command that an earlier client left."""
        deadline = time.monotonic() + timeout
        self.connect(timeout)
        self._ready = False
        self._tx = b''  # a half-sent frame is harmless: the hello's first flag ends it
        sent = set()
        settled = None
        while not self._ready:
            # A guest that is still booting loses hellos; those which it does not lose wait in order.
            if time.monotonic() >= deadline:
                raise GuestTimeout(f'{self.path}: no agent within {timeout} s{self._seen()}')
            sent.add(self._hello())
            again = min(deadline, time.monotonic() + 0.5)
            while (frame := self._receive(again)) and not self._ready:
                kind, ident, payload = frame
                if kind != b'H' or ident not in sent:
                    continue
                # Hellos that came before the guest's port was raw may be damaged, and are complained of
                # after this answer: all of that lies before the answer to one more.
                if not settled:
                    settled = self._hello()
                    sent.add(settled)
                elif ident >= settled:
                    self._ready = True
                    self.release = payload.decode(errors='replace').partition(' ')[2]

    def _hello(self):
        self._ident = self._ident % 0xffffffff + 1
        self._tx += encode(b'H', self._ident)
        return self._ident

    def wait_restart(self, timeout=60):
        """Waits for the agent of a guest that was told to reboot, then for it to be ready."""
        deadline = time.monotonic() + timeout
        while frame := self._receive(deadline):
            if frame[:2] == (b'H', 0):
                self.wait_ready(max(1, deadline - time.monotonic()))
                return
        raise GuestTimeout(f'{self.path}: no restart within {timeout} s{self._seen()}')

    def post(self, command):
        """Starts a command whose end cannot be awaited (poweroff, reboot)."""
        self._request(command, 0, False)
        deadline = time.monotonic() + GRACE
        while self._tx:
            if time.monotonic() >= deadline:
                raise GuestTimeout(f'the guest does not take {command!r}{self._seen()}')
            self._pump(deadline)

    def run(self, command, timeout=30, check=True, stdin=None, on_output=None):
        """Runs a shell command and returns its Result.

        Its process group is killed after `timeout` seconds (GuestTimeout). With `check`, a status other than 0
        raises CommandFailed. `stdin`: bytes for it. `on_output(bytes)` gets the output as it comes.
        """
        ident = self._request(command, timeout, stdin is not None)
        deadline = time.monotonic() + timeout + GRACE
        pending, flying, output = stdin, 0, []
        while True:
            while pending and flying + CHUNK <= WINDOW:
                self._tx += encode(b'D', ident, pending[:CHUNK])
                flying += len(pending[:CHUNK])
                pending = pending[CHUNK:]
            if pending == b'':
                self._tx += encode(b'Z', ident)
                pending = None
            frame = self._receive(deadline)
            if not frame:
                raise GuestTimeout(f'guest command {command!r}: no end within {timeout} s, nor a word of '
                                   f'the agent{self._seen()}', b''.join(output))
            kind, got, payload = frame
            if kind == b'H' and got == 0:
                raise GuestRestarted(f'the guest restarted during {command!r}')
            if kind == b'N' and got in (0, ident):
                raise GuestError(f'guest command {command!r}: {payload.decode(errors="replace")}')
            if got != ident:
                continue
            if kind == b'O':
                output.append(payload)
                if on_output:
                    on_output(payload)
            elif kind == b'A':
                flying -= struct.unpack('<I', payload)[0]
            elif kind == b'E':
                break
        status, flags = struct.unpack('<II', payload)
        result = Result(status, b''.join(output))
        if flags & 1:
            raise GuestTimeout(f'guest command {command!r}: ended by its limit of {timeout} s, '
                               f'output {result.text[-500:]!r}', result.output)
        if check and status:
            raise CommandFailed(command, result)
        return result

    def push(self, source, path, mode=0o644, timeout=60):
        """Writes `source` (bytes, or the name of a file here) to `path` in the guest, all or nothing."""
        if not isinstance(source, bytes):
            with open(source, 'rb') as file:
                source = file.read()
        path, temp = shlex.quote(path), shlex.quote(path + '.part')
        self.run(f'cat >{temp} && [ $(wc -c <{temp}) = {len(source)} ] && chmod {mode:o} {temp} && '
                 f'mv {temp} {path}', timeout, stdin=source)

    def pull(self, path, timeout=60):
        """The bytes of `path` in the guest."""
        return self.run(f'cat <{shlex.quote(path)}', timeout).output

    def _seen(self):
        return f'; last bytes seen: {self._last!r}' if self._last else '; nothing was received'

    def _request(self, command, timeout, with_stdin):
        data = os.fsencode(command)
        if len(data) > COMMAND_MAX or b'\0' in data:
            raise ValueError(f'a command has at most {COMMAND_MAX} bytes and no NUL; push a script instead')
        if not self._ready:
            self.wait_ready()
        self._ident = self._ident % 0xffffffff + 1
        self._tx += encode(b'R', self._ident, struct.pack('<IB', int(timeout * 1000), with_stdin) + data)
        return self._ident

    def _receive(self, deadline):
        """The next frame, or None at the deadline. Damaged ones raise once the agent is ready."""
        while True:
            while self._frames:
                wire = self._frames.pop(0)
                frame = decode(wire)
                if frame:
                    return frame
                # The start of a boot cuts a frame short; its agent's hello then follows.
                if self._ready and not self._restart_follows():
                    raise GuestError(f'damaged frame from the guest: {wire[-200:]!r}')
            if time.monotonic() >= deadline:
                return None
            self._pump(deadline)

    def _restart_follows(self):
        soon = time.monotonic() + 1
        while not self._frames and time.monotonic() < soon:
            self._pump(soon)
        frame = decode(self._frames[0]) if self._frames else None
        return bool(frame) and frame[:2] == (b'H', 0)

    def _pump(self, deadline):
        """Sends what can be sent and receives what is there, waiting for either till the deadline."""
        if not self._sock:
            raise GuestGone(f'{self.path}: not connected')
        wait = max(0, deadline - time.monotonic())
        readable, writable, _ = select.select([self._sock], [self._sock] if self._tx else [], [], wait)
        try:
            if writable:
                self._tx = self._tx[self._sock.send(self._tx[:65536]):]
            data = self._sock.recv(65536) if readable else None
        except BlockingIOError:
            return
        except OSError as err:
            self.close()
            raise GuestGone(f'{self.path}: {err}{self._seen()}') from err
        if data == b'':
            self.close()
            raise GuestGone(f'{self.path}: closed by the machine{self._seen()}')
        if data:
            self._last = (self._last + data)[-200:]
            *frames, self._rx = re.split(FLAG, self._rx + data)
            self._frames += [frame for frame in frames if frame]
            if len(self._rx) > 65536:
                self._rx = self._rx[-65536:]
