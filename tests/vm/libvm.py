# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests that boot something share: a network namespace as the host, a running whelp, guest images.

Everything made here is taken down by close(), which also checks that whelp left nothing behind.
"""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import termios
import time

from guestchannel import GuestChannel, GuestError

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get('O', 'build')
WHELP = pathlib.Path(os.environ.get('WHELP', BUILD / 'whelp'))
NETPERF = BUILD / 'netperf/usr/bin'
PATH = f'{os.environ["PATH"]}:/usr/sbin:/sbin'

# Against a hang only: an emulated guest on a busy machine is slow.
BOOT = 150
PROMPT = 60

NOBODY = 65534

_numbers = itertools.count()
machines = []  # all since the last test's start; conftest.py shows their output when a test fails


def kernel(name):
    """The path of a stock Debian kernel."""
    return subprocess.run([ROOT / 'tools/get-kernel', name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          check=True, text=True).stdout.strip()


def image(name, *options):
    """The test guest's initramfs for a kernel; made unless it is there and newer than its parts."""
    path = BUILD / 'guests' / f'{name}{"".join(options).replace("/", "_")}.cpio'
    source = pathlib.Path(kernel(name))
    parts = [source, *(ROOT / 'guest' / part for part in ('mkguest', 'init', 'agent.c'))]
    if not path.exists() or any(part.stat().st_mtime > path.stat().st_mtime for part in parts):
        path.parent.mkdir(exist_ok=True)
        subprocess.run([ROOT / 'guest/mkguest', '--kernel', source, '-o', path, '--netperf', NETPERF, *options],
                       stdin=subprocess.DEVNULL, check=True)
    return str(path)


def environment(directory):
    """A whelp's: machines of other tests, which may have the same names, are not to be found."""
    return {**os.environ, 'PATH': PATH, 'WHELP_RUNTIME_DIR': f'{directory}/run'}


class Host:
    """A network namespace that plays the host."""

    def __init__(self):
        self.name = f'whelp-{os.getpid()}-{next(_numbers)}'
        subprocess.run(['ip', 'netns', 'add', self.name], check=True, env={'PATH': PATH})
        self.run('ip link set lo up')
        # No chatter of the host's own: counts then are the test's.
        self.run('echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6', shell=True)

    def command(self, argv):
        return ['ip', 'netns', 'exec', self.name, *argv]

    def run(self, command, timeout=60, check=True, shell=False, env=()):
        """Runs a command line; returns its CompletedProcess, stderr in stdout."""
        argv = ['sh', '-c', command] if shell else command.split()
        result = subprocess.run(self.command(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
                                env={**os.environ, 'PATH': PATH, **dict(env)})
        assert not check or result.returncode == 0, f'{command}: status {result.returncode}: {result.stdout}'
        return result

    @contextlib.contextmanager
    def background(self, command):
        """A command line that runs meanwhile; it must not end by itself."""
        process = subprocess.Popen(self.command(command.split()), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, 'PATH': PATH})
        try:
            yield process
            assert process.poll() is None, f'{command}: ended with status {process.returncode}'
        finally:
            process.kill()
            process.wait()

    def tap(self, name='tap0', address='192.0.2.1/24', options='', mtu=None, up=True):
        self.run(f'ip tuntap add dev {name} mode tap {options}')
        if mtu:
            self.run(f'ip link set dev {name} mtu {mtu}')
        if address:
            self.run(f'ip addr add {address} dev {name}')
        if up:
            self.run(f'ip link set dev {name} up')
        return name

    def socket(self, *arguments):
        """A socket of the namespace: what this thread makes while it is in there."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open('/proc/thread-self/ns/net', 'rb') as here, open(f'/run/netns/{self.name}', 'rb') as there:
            assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                return socket.socket(*arguments)
            finally:
                assert libc.setns(here.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def links(self):
        return [line.split()[1].rstrip(':') for line in self.run('ip -o link').stdout.splitlines()]

    def counter(self, name, counter):
        return int(self.run(f'cat /sys/class/net/{name}/statistics/{counter}').stdout)

    def ping(self, options='-c 3', address='192.0.2.2', timeout=60):
        """Pings the guest; every packet must come back. Returns ping's output.

        ping waits for the last answers for hardly longer than one took. The kernel counts those that come later.
        """
        before = self.echo_replies()
        output = self.run(f'ping -q {options} {address}', timeout=timeout, check=False).stdout
        match = re.search(r'(\d+) packets transmitted, (\d+) received', output)
        assert match and match[1] != '0', output
        assert 'duplicate' not in output and 'error' not in output, output
        if match[2] != match[1]:
            deadline = time.monotonic() + PROMPT
            while self.echo_replies() - before < int(match[1]):
                assert time.monotonic() < deadline, output
                time.sleep(0.02)
        return output

    def echo_replies(self):
        """How many answers to pings have reached this host."""
        names, values = (line.split() for line in self.run('grep ^Icmp: /proc/net/snmp').stdout.splitlines())
        return int(values[names.index('InEchoReps')])

    def close(self):
        subprocess.run(['ip', 'netns', 'del', self.name], check=True, env={'PATH': PATH})


# For a guest of two CPUs and more: those that serve the NIC's interrupts change every 10 ms, until /tmp/mover is killed.
MOVE_INTERRUPTS = '''
    irqs=$(grep virtio0- /proc/interrupts | cut -d: -f1)
    while :; do
        for cpu in 1 2; do
            for irq in $irqs; do echo $cpu >/proc/irq/$irq/smp_affinity && echo >>/tmp/moves; done
            usleep 10000
        done
    done >/dev/null 2>&1 &
    echo $! >/tmp/mover'''


class Whelp:
    """One `whelp run`. Its stdout goes to a file and its stdin is empty, unless given, or `terminal`."""

    def __init__(self, directory, *options, host=None, serial=False, terminal=False, stdin=subprocess.DEVNULL,
                 stdout=None, prefix=(), program=WHELP, **popen):
        self.directory = pathlib.Path(directory)
        self.number = next(_numbers)
        self.log = self.directory / f'console-{self.number}'
        self.error_log = self.directory / f'stderr-{self.number}'
        self.channel = None
        self.terminal = None
        self.read_from_terminal = b''
        argv = [*prefix, str(program), 'run', *map(str, options)]
        if serial:
            self.socket = self.directory / f's{self.number}'
            argv += ['--serial', str(self.socket)]
            self.channel = GuestChannel(str(self.socket))
        else:
            self.socket = None
        if host:
            argv = host.command(argv)
        if terminal:
            self.terminal, slave = pty.openpty()
            self.settings = termios.tcgetattr(self.terminal)
            stdin = stdout = slave
            popen.setdefault('start_new_session', True)
            popen.setdefault('preexec_fn', lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))
        with open(self.log, 'wb') as log, open(self.error_log, 'wb') as errors:
            self.process = subprocess.Popen(argv, stdin=stdin, stdout=log if stdout is None else stdout,
                                            stderr=errors, **{'env': environment(directory), **popen})
        if terminal:
            os.close(slave)
        machines.append(self)

    @property
    def pid(self):
        return self.process.pid

    @property
    def errors(self):
        """whelp's messages until now."""
        return self.error_log.read_text(errors='replace')

    @property
    def console(self):
        """What the guest wrote to its console until now."""
        if self.terminal is not None:
            return self.read_from_terminal.decode(errors='replace')
        return self.log.read_text(errors='replace')

    def threads(self):
        """For a report: what each thread is doing, and the CPU time that it takes meanwhile."""
        def look():
            found = {}
            for task in sorted(pathlib.Path(f'/proc/{self.pid}/task').glob('*'), key=lambda path: int(path.name)):
                try:
                    stat = (task / 'stat').read_text().rsplit(') ', 1)[1].split()
                    found[task.name] = ((task / 'comm').read_text().strip(), stat[0], (task / 'wchan').read_text(),
                                        int(stat[11]), int(stat[12]))
                except OSError:
                    continue
            return found
        before = look()
        time.sleep(0.5)
        return '\n'.join(f'{comm} {state} {wchan} user +{user - before[task][3]} system +{system - before[task][4]}'
                         for task, (comm, state, wchan, user, system) in look().items() if task in before)

    # ---- the guest ----

    def wait_ready(self, timeout=BOOT):
        try:
            self.channel.wait_ready(timeout)
        except GuestError as err:
            raise AssertionError(f'no agent: {err}; status {self.process.poll()}: {self.errors}') from err
        return self

    def run(self, command, **options):
        """A command in the guest; its output as text, without the last newline."""
        return self.channel.run(command, **options).text.rstrip('\n')

    def counters(self, path):
        """Each NIC's, from the file of --stats, which is written anew when asked for and appears in one piece."""
        path.unlink(missing_ok=True)
        self.signal(signal.SIGUSR2)
        deadline = time.monotonic() + PROMPT
        while not path.exists():
            assert time.monotonic() < deadline, 'no counters'
            time.sleep(0.01)
        return json.loads(path.read_text())['nics']

    def dmesg_faults(self):
        """What the guest's kernel log has of errors, warnings, and the like. Known good lines are listed here."""
        allowed = [
            # The host's CPU has this fault and no microcode for it, as the lab's emulated one.
            r'Speculative Return Stack Overflow: ',
            # The host is slow or busy.
            r'hrtimer: interrupt took \d+ ns',
            r'sched: DL replenish lagged too much',
            r'Unstable clock detected|keep using the local clock|trace_clock=local|on the kernel command line',
            r"clocksource: .*(tsc|kvm-clock|skew|watchdog|interval)|clocksource:\s+'",
        ]
        # Tens of kilobytes over an emulated serial port: a busy host was seen to take a second for each.
        lines = self.run('dmesg -r', timeout=BOOT).splitlines()
        assert len(lines) > 100, lines
        bad = [line for line in lines
               if re.match(r'<[0-4]>', line) or re.search(r'BUG|WARNING|Call Trace|ACPI.*(Error|Exception)', line)]
        return [line for line in bad if not any(re.search(pattern, line) for pattern in allowed)]

    # ---- the terminal ----

    def type(self, text):
        os.write(self.terminal, text if isinstance(text, bytes) else text.encode())

    def pump(self, wait):
        """Reads what the terminal has, waiting for some; False at the end or when none came."""
        if not select.select([self.terminal], [], [], wait)[0]:
            return False
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.read_from_terminal += data
        return bool(data)

    def expect(self, pattern, timeout=PROMPT, start=0):
        """Waits for a regular expression in what was read of the terminal from `start` on."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.compile(pattern.encode()).search(self.read_from_terminal, start)
            if match:
                return match
            left = deadline - time.monotonic()
            assert left > 0, f'no {pattern!r} within {timeout} s: {self.read_from_terminal[start:][-2000:]!r}'
            if not self.pump(min(left, 1)):
                assert self.process.poll() is None, f'ended: {self.process.returncode}: {self.errors}'

    # ---- the end ----

    def wait_console(self, pattern, timeout=PROMPT):
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.console):
            assert self.process.poll() is None, f'whelp ended: {self.process.returncode}: {self.errors}'
            assert time.monotonic() < deadline, f'no {pattern!r} within {timeout} s: {self.console[-2000:]}'
            time.sleep(0.01)

    def wait(self, timeout=PROMPT):
        """The exit status, a negative one if a signal killed whelp. What it must take away is gone by then."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f'whelp does not end within {timeout} s: {self.errors}'
            if self.terminal is None:
                try:
                    self.process.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    pass
            else:
                self.pump(0.02)
        if self.terminal is not None:
            while self.pump(0):
                pass
            assert termios.tcgetattr(self.terminal) == self.settings, 'the terminal is not as it was'
        assert not self.socket or not self.socket.exists(), 'the socket is still there'
        return self.process.returncode

    def signal(self, number=signal.SIGTERM):
        os.kill(self.pid, number)

    def poweroff(self, timeout=PROMPT):
        """Powers the guest off by the agent; whelp must end with 0."""
        self.channel.post('poweroff -f')
        status = self.wait(timeout)
        assert status == 0, f'status {status}: {self.errors}'

    def close(self):
        if self.channel:
            self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None


def as_user(user, public):
    """The start of a command line: runs the rest as a user, with KVM and tun devices that everybody may use.

    Their nodes are made in the directory `public`, and seen by that process alone, and so is its runtime directory.
    """
    script = ' && '.join(
        [f'{{ [ -e {public}/{name} ] || mknod -m 666 {public}/{name} c 10 {minor}; }} && '
         f'mount --bind {public}/{name} {device}'
         for name, minor, device in (('kvm', 232, '/dev/kvm'), ('tun', 200, '/dev/net/tun'))])
    run = f'install -d -m 700 -o {user} -g {user} {public}/run && WHELP_RUNTIME_DIR={public}/run exec "$@"'
    return ['unshare', '-m', 'sh', '-c', f'{script} && {run}', 'sh', 'setpriv', f'--reuid={user}', f'--regid={user}',
            '--clear-groups']


def run(*arguments, timeout=60, **options):
    """A whelp that ends by itself; its CompletedProcess."""
    return subprocess.run([WHELP, *map(str, arguments)], **{
        'stdin': subprocess.DEVNULL, 'capture_output': True, 'text': True, 'timeout': timeout, 'check': False,
        **options})


def stat(directory, *arguments, **options):
    """`whelp stat` of the machines of a directory; its CompletedProcess."""
    return run('stat', *arguments, env=environment(directory), **options)


def one_line(result, status, *words):
    """That whelp ended with a status, printed nothing, and said why in one line that holds all words."""
    assert result.returncode == status, result
    assert result.stdout in ('', b''), result
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith('whelp: '), result
    assert all(word in lines[0] for word in words), f'{words} not in {lines[0]!r}'


def read_all(path):
    """What a connection to a unix socket gives until its end."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        return b''.join(iter(lambda: sock.recv(65536), b''))
