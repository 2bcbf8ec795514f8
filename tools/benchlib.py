# SPDX-License-Identifier: GPL-2.0-or-later
"""What the demo and the benches share: programs that are timed and watched, statistics, the machine's description.

Times are of the host's monotonic clock, in seconds. Nothing here leaves a process behind: each is killed when
the one that started it ends, however that ends.
"""

import ctypes
import ctypes.util
import datetime
import json
import os
import pathlib
import platform
import re
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAB_WARNING = 'in the lab: figures are for comparison with each other only, not with those of other machines'

_PR_SET_PDEATHSIG = 1
_IN_MOVED_TO = 0x80
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """Something that was to work did not; the message is one line for the user."""


def build_dir():
    return ROOT / os.environ.get('O', 'build')


def in_lab():
    return os.environ.get('WHELP_LAB') == '1'


# ---- processes -------------------------------------------------------------------------------------


def end_on_signals():
    """SIGINT, SIGTERM and SIGHUP end the program through the `finally`s; which another one cannot cut short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number, _frame):
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
    for number in numbers:
        signal.signal(number, stop)


class Start(typing.NamedTuple):
    """The moment just before a program's exec."""
    clock: float
    cpu: float  # seconds of CPU that its process had used by then


def spawn(argv, **options):
    """Starts a program that dies with this one. Returns it and its Start."""
    reader, writer = os.pipe()

    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # Away from the terminal's group: Ctrl-C is for this program, which ends the other in order.
        os.setsid()
        os.write(writer, struct.pack('dd', time.monotonic(), time.process_time()))

    try:
        process = subprocess.Popen([str(word) for word in argv], preexec_fn=prepare, **options)
        return process, Start(*struct.unpack('dd', os.read(reader, 16)))
    finally:
        os.close(reader)
        os.close(writer)


def send(process, number):
    try:
        process.send_signal(number)
    except PermissionError:
        # One that was started by sudo.
        subprocess.run(['sudo', '-n', 'kill', f'-{int(number)}', str(process.pid)], check=False)


def end(process, patience=10):
    """Ends a program: politely, then by force."""
    if process.poll() is None:
        send(process, signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            send(process, signal.SIGKILL)
    process.wait()


def run(argv, timeout=60, what=None):
    """A short program's output. Failed, with the last line it printed, if it fails or takes too long."""
    what = what or ' '.join(str(word) for word in argv)
    process, _ = spawn(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, errors='replace')
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as err:
        raise Failed(f'{what}: no end within {timeout} s') from err
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        last = (output.strip().splitlines() or ['no output'])[-1]
        raise Failed(f'{what}: status {process.returncode}: {last}')
    return output


def tool(*argv):
    """Runs one of the project's tools; the path it prints, its messages on stderr."""
    done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failed(f'{pathlib.Path(argv[0]).name} failed with status {done.returncode}')
    return done.stdout.strip()


def as_root():
    """What to put before a command that needs root here. The lab's job is root in any case."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which('sudo')
    if sudo and not subprocess.run([sudo, '-n', 'true'], stderr=subprocess.DEVNULL, check=False).returncode:
        return ['sudo', '-n', f'O={build_dir()}', f'WHELP_KVM={os.environ.get("WHELP_KVM", "")}']
    if tool(ROOT / 'tools/with-kvm', '--decide').startswith('direct'):
        raise Failed('a network namespace and a tap need root: run it as root or with sudo')
    return []


def run_beside_guest(program, spec, cpus, limit):
    """Runs one of tools/*_round.py where KVM runs guests, in a lab that is fresh, and in a network namespace of its own.

    Returns what it printed, from JSON; Failed with its last words.
    """
    process, _ = spawn(
        [*as_root(), ROOT / 'tools/with-kvm', '-c', cpus, '-m', 3072, '-t', limit,
         '-e', f'WHELP_HOST={describe_host()}', '--', ROOT / 'tools/private-net',
         '/usr/bin/python3', ROOT / 'tools' / program, json.dumps(spec)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate()
    finally:
        end(process)
    for line in errors.splitlines():
        if line.startswith('lab: fault'):
            print(line, file=sys.stderr)
    if process.returncode:
        last = (errors.strip().splitlines() or ['a round failed without a word'])[-1]
        raise Failed(re.sub(r'^bench-\w+: ', '', last))
    return json.loads(output)


class Console:
    """Reads a guest's console from a VMM's stdout, and knows when each marker came."""

    def __init__(self, process, show=None):
        self.process = process
        self.text = b''
        self._fd = process.stdout.fileno()
        self._show = show
        os.set_blocking(self._fd, False)

    def pump(self, timeout):
        """Takes what is there, waiting for it. False at the console's end."""
        if not select.select([self._fd], [], [], max(0, timeout))[0]:
            return True
        data = os.read(self._fd, 65536)
        self.text += data
        if self._show and data:
            self._show(data)
        return bool(data)

    def wait(self, marker, timeout, what):
        """The time at which `marker` arrived. Failed if the console ends or time passes first."""
        deadline = time.monotonic() + timeout
        while marker not in self.text:
            if time.monotonic() >= deadline:
                raise Failed(f'{what}: no "{marker.decode().strip()}" on its console within {timeout} s{self.last()}')
            if not self.pump(deadline - time.monotonic()):
                # It ends a moment after its console.
                status = self.process.wait(5)
                raise Failed(f'{what} ended with status {status} before "{marker.decode().strip()}"{self.last()}')
        return time.monotonic()

    def wait_end(self, timeout, what):
        """The program's exit status, once it ended by itself."""
        deadline = time.monotonic() + timeout
        while self.pump(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                raise Failed(f'{what}: did not end within {timeout} s')
        return self.process.wait(5)

    def last(self):
        lines = self.text.decode(errors='replace').strip().splitlines()
        return f'; its last line: {lines[-1].strip()}' if lines else ''


class Replacement:
    """Waits for a file to be replaced by a rename, as whelp writes its counters."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self._fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0 or _libc.inotify_add_watch(self._fd, os.fsencode(self.path.parent), _IN_MOVED_TO) < 0:
            raise Failed(f'cannot watch {self.path.parent}: {os.strerror(ctypes.get_errno())}')

    def wait(self, timeout, what):
        deadline = time.monotonic() + timeout
        name = os.fsencode(self.path.name) + b'\0'
        while select.select([self._fd], [], [], max(0, deadline - time.monotonic()))[0]:
            events = os.read(self._fd, 65536)
            while events:
                length = struct.unpack_from('IIII', events)[3]
                if events[16:16 + length].startswith(name):
                    return
                events = events[16 + length:]
        raise Failed(f'{what}: did not come within {timeout} s')

    def close(self):
        os.close(self._fd)


# ---- whelp's counters ------------------------------------------------------------------------------


class Counters:
    """The counters of a running whelp's NICs: `read` has it write them now and returns their sums, or one NIC's."""

    def __init__(self, process, path):
        self._process = process
        self._file = Replacement(path)

    def read(self, number=None):
        self._process.send_signal(signal.SIGUSR2)
        self._file.wait(20, f'the counters of whelp ({self._file.path})')
        nics = json.loads(self._file.path.read_text())['nics']
        sums = {}
        for nic in nics if number is None else [nics[number]]:
            # With vhost-net there are none.
            for direction in (nic['rx'] or {}, nic['tx'] or {}):
                for name, value in direction.items():
                    # Drops by cause and histograms are more than a number.
                    if isinstance(value, int):
                        sums[name] = sums.get(name, 0) + value
        return sums

    def close(self):
        self._file.close()


def per_thousand(before, after, name):
    """Growth of a counter per 1,000 packets; None without packets."""
    packets = after['packets'] - before['packets']
    return (after[name] - before[name]) * 1000 / packets if packets else None


# ---- traffic ---------------------------------------------------------------------------------------


def make_tap(name, address, *options):
    run(['ip', 'tuntap', 'add', name, 'mode', 'tap', *options])
    # The host's own IPv6 chatter would count as the guest's packets.
    pathlib.Path(f'/proc/sys/net/ipv6/conf/{name}/disable_ipv6').write_text('1', encoding='ascii')
    run(['ip', 'address', 'add', address, 'dev', name])
    run(['ip', 'link', 'set', name, 'up'])


def netperf(program, address, test, seconds):
    """A netperf run's figure and its unit."""
    output = run([program, '-H', address, '-t', test, '-l', seconds, '-P', 0, '--',
                  '-o', 'THROUGHPUT,THROUGHPUT_UNITS'], seconds + 60, f'netperf {test}')
    got = re.search(r'^([\d.]+),(\S+)\s*$', output, re.M)
    if not got:
        raise Failed(f'netperf {test}: printed something unexpected: {output.strip()!r}')
    return float(got.group(1)), got.group(2)


# ---- statistics ------------------------------------------------------------------------------------


def summary(values):
    """min, median, max, standard deviation and number of a list of figures."""
    return {
        'n': len(values),
        'min': min(values),
        'median': statistics.median(values),
        'max': max(values),
        'stddev': statistics.stdev(values) if len(values) > 1 else 0.0,
    }


# ---- the machine -----------------------------------------------------------------------------------


def cpu_model():
    match = re.search(r'^model name\s*: (.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    return match.group(1) if match else platform.machine()


def describe_host():
    """One line about the machine this runs on; inside the lab it is handed down as WHELP_HOST."""
    given = os.environ.get('WHELP_HOST')
    if given:
        return given
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30
    return f'{cpu_model()}, {os.cpu_count()} CPUs, {memory:.0f} GiB, Linux {platform.release()}'


def now():
    return f'{datetime.datetime.now():%Y-%m-%d %H:%M:%S}'


def machine():
    """What a figure has to be published with."""
    return {
        'host': describe_host(),
        'kvm': f'lab, emulated {cpu_model()}, Linux {platform.release()}' if in_lab() else 'native',
        'lab': in_lab(),
    }


# ---- tables ----------------------------------------------------------------------------------------


def table(head, rows):
    """Aligned columns: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]

    def line(row):
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return '  '.join([row[0].ljust(widths[0]), *rest]).rstrip()
    return '\n'.join([line(cells[0]), '  '.join('-' * width for width in widths), *map(line, cells[1:])])


def markdown(head, rows):
    lines = [head, ['---'] + ['---:'] * (len(head) - 1), *rows]
    return '\n'.join('| ' + ' | '.join(str(cell) for cell in row) + ' |' for row in lines)


def spread(values, form, scale=1.0):
    """Four cells: min, median, max and standard deviation."""
    figures = summary(values)
    return [format(figures[name] * scale, form) for name in ('min', 'median', 'max', 'stddev')]


def document(lines, tables):
    """A result's lines, as a list, and its tables, in Markdown."""
    parts = ['\n'.join(f'- {line}' for line in lines), *(markdown(head, rows) for head, rows in tables)]
    return '\n\n'.join(parts) + '\n'


def put_between(path, begin, end_mark, text):
    """Puts a text between two marks in a document; everything else in it stays."""
    before, found, rest = path.read_text(encoding='utf-8').partition(begin)
    _, found_end, after = rest.partition(end_mark)
    if not found or not found_end:
        raise Failed(f'{path}: no place for the result between "{begin}" and "{end_mark}"')
    path.write_text(f'{before}{begin}\n{text}{end_mark}{after}', encoding='utf-8')


def write_docs(path, begin, end_mark, lines, tables):
    """Puts a result's lines and tables between two marks in a document."""
    put_between(path, begin, end_mark, document(lines, tables))


def round_main(name, measure, *errors):
    """The main program of a bench's part where the guests run: prints measure(spec, work) as JSON, and gives the exit
    status. The spec is the only argument, as JSON; work is a directory that ends with it; `errors` are failures, too."""
    end_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix='whelp-bench.') as work:
            print(json.dumps(measure(json.loads(sys.argv[1]), work)))
    except (Failed, OSError, *errors) as err:
        print(f'{name}: {err}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
