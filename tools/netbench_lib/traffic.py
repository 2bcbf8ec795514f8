# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests: how each one's clients and servers are started, and what nbrun's output says of them."""

import os
import re
import select
import shlex
import subprocess
import time
import typing

import benchlib

BOTH = ('host-guest', 'guest-host', 'guest-guest')
NETSERVER, IPERF3 = 12865, 5201
# Clients are ended by nbrun; this is only how long they would go on by themselves.
FOREVER = 100000


class Test(typing.NamedTuple):
    text: str
    kind: str  # stream, rr, ping or packets: what the figure is
    mode: str  # nbrun's
    size: int  # of a message, when none is asked for
    low: int
    high: int
    ways: tuple = BOTH
    udp: bool = False


_K64 = 65507  # the largest UDP datagram
TESTS = {
    'TCP_STREAM': Test('netperf: client sends', 'stream', 'netperf', 16384, 1, 1 << 20),
    'TCP_MAERTS': Test('netperf: client receives', 'stream', 'netperf', 16384, 1, 1 << 20),
    'TCP_RR': Test('netperf: a message there and back', 'rr', 'netperf', 1, 1, 1 << 20),
    'TCP_CRR': Test('netperf: with a connection for each', 'rr', 'netperf', 1, 1, 1 << 20),
    'UDP_STREAM': Test('netperf: client sends; what arrives counts', 'stream', 'netperf', 1472, 1, _K64, udp=True),
    'UDP_RR': Test('netperf: a datagram there and back', 'rr', 'netperf', 1, 1, _K64, udp=True),
    'PING': Test('flood ping (ping -f)', 'ping', 'whole', 56, 16, _K64),
    'PKTGEN': Test('pktgen in the guest; what arrives counts; a session is a CPU', 'packets', 'timed', 60, 60, 1514,
                   ('guest-host', 'guest-guest')),
    'IPERF3': Test('iperf3: client sends', 'stream', 'iperf3', 131072, 1, 1 << 20),
    'IPERF3_R': Test('iperf3: client receives', 'stream', 'iperf3', 131072, 1, 1 << 20),
    'IPERF3_UDP': Test('iperf3: client sends UDP; what arrives counts', 'stream', 'iperf3', 1460, 16, _K64, udp=True),
}
UNITS = {'stream': 'Mbit/s', 'rr': 'transactions/s', 'ping': 'ms', 'packets': 'packets/s'}


def higher_is_better(case):
    return TESTS[case['test']].kind != 'ping'


def unit_and_sense(case):
    """The unit of the figure, and which way is better where one may be mistaken."""
    return UNITS[TESTS[case['test']].kind] + ('' if higher_is_better(case) else ', less is better')


# ---- commands --------------------------------------------------------------------------------------


def interval(seconds):
    """Between two lines of a client, so that a window has about ten."""
    return round(min(1.0, max(0.1, seconds / 10)), 2)


def settling(case, attempt):
    """Seconds between a netperf's setup and its start. All sessions set up while none floods yet what they set up over;
    if that was not long enough for all, the next attempt is more patient."""
    if case['sessions'] == 1:
        return 0
    return (1 + case['sessions'] // (8 if benchlib.in_lab() else 32)) * 2 ** attempt


def client(case, address, seconds, programs, attempt=0):
    """A client's command line; `programs` has netperf, ping and iperf3 where it runs."""
    name, size = case['test'], case['size']
    test = TESTS[name]
    if test.mode == 'netperf':
        sizes = ['-r', f'{size},{size}'] if test.kind == 'rr' else ['-m', size, '-M', size]
        wait = settling(case, attempt)
        return [programs['netperf'], '-H', address, '-t', name, '-l', FOREVER, '-D', interval(seconds), '-P', 0,
                *(['-s', wait] if wait else []), '-f', 'x' if test.kind == 'rr' else 'm', '--', *sizes]
    if test.mode == 'iperf3':
        more = {'IPERF3_R': ['-R'], 'IPERF3_UDP': ['-u', '-b', 0]}.get(name, [])
        return [programs['iperf3'], '-c', address, '-p', '%p', '--forceflush', '-f', 'm', '-i', interval(seconds),
                '-t', min(FOREVER, 86400), '-l', size, *more]
    if name == 'PING':
        return [programs['ping'], '-q', '-f', '-n', '-s', size, address]
    return ['sh', '-c', 'echo start >/proc/net/pktgen/pgctrl']


def pktgen_setup(nic, mac, address, case, burst):
    """A script for the guest: one thread of pktgen on each of its first CPUs, to a given address."""
    # Of each packet of `burst`, pktgen asks the driver to wait for the next one.
    settings = ['count 0', f'pkt_size {case["size"]}', 'delay 0', f'dst {address}', f'dst_mac {mac}',
                f'burst {burst}', 'flag QUEUE_MAP_CPU']
    device = f'{nic}@$cpu'
    return '; '.join([
        'set -e', 'modprobe pktgen', 'cd /proc/net/pktgen', 'echo reset >pgctrl',
        f'for cpu in $(seq 0 {case["sessions"] - 1})',
        'do [ -e kpktgend_$cpu ] || { echo "the guest has no CPU $cpu for pktgen"; exit 1; }',
        f'echo "add_device {device}" >kpktgend_$cpu',
        *(f'echo "{setting}" >{device}' for setting in settings), 'done'])


def nbrun(program, case, seconds, snapshots, command):
    sessions = 1 if case['test'] == 'PKTGEN' else case['sessions']
    return [str(word) for word in [program, 'run', TESTS[case['test']].mode, sessions, seconds * 1000,
                                   patience(case) * 1000, snapshots, *command]]


def patience(case):
    """Seconds for a step of nbrun: emulated guests, or many sessions, take long to get going."""
    return 60 + case['sessions'] + settling(case, 2)


# ---- running ---------------------------------------------------------------------------------------


class Here:
    """nbrun on this host, as nbrun.c says: `expect` waits for a word of its, `say` gives it one."""

    def __init__(self, argv, prefix=()):
        self.lines, self._rest = [], b''
        self._process, _ = benchlib.spawn([*prefix, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT)

    def _line(self, deadline):
        """The next line; None at the end."""
        while b'\n' not in self._rest:
            if not select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise benchlib.Failed('nbrun hangs')
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b'\n')
        self.lines.append(line.decode(errors='replace'))
        return self.lines[-1]

    def expect(self, word, seconds):
        """Whether the word came; otherwise it is no use to go on, and `finish` says why."""
        deadline = time.monotonic() + seconds
        while (line := self._line(deadline)) is not None:
            if line.split(' ')[0] == word:
                return True
            if line == 'done':
                return False
        return False

    def say(self, word):
        try:
            self._process.stdin.write(word.encode() + b'\n')
            self._process.stdin.flush()
        except BrokenPipeError:
            # It ended early, which the next line, or the lack of it, tells.
            pass

    def finish(self, seconds):
        """All lines."""
        deadline = time.monotonic() + seconds
        while self.lines[-1:] != ['done'] and self._line(deadline) is not None:
            pass
        return self.lines

    def close(self):
        benchlib.end(self._process)
        self._process.stdin.close()
        self._process.stdout.close()


class InGuest:
    """The same in a guest. There it runs in the background, behind two FIFOs, as the agent runs one command at a time.

    A shell keeps the FIFOs open until it is told "bye": what nobody holds open, loses what is in it.
    """

    def __init__(self, channel, argv):
        self._channel, self.lines = channel, []
        channel.run('killall nbrun 2>/dev/null; rm -f /tmp/nb.in /tmp/nb.out; mkfifo /tmp/nb.in /tmp/nb.out; '
                    f'{{ {shlex.join(argv)}; echo exit; read -r bye; }} <>/tmp/nb.in 1<>/tmp/nb.out 2>&1 &', 60)

    def expect(self, word, seconds):
        while self.lines[-1:] != ['exit']:
            line = self._channel.run('read -r line </tmp/nb.out; echo "$line"', seconds).text.rstrip('\n')
            self.lines.append(line)
            if line.split(' ')[0] == word:
                return True
        return False

    def say(self, word):
        self._channel.run(f'echo {word} >/tmp/nb.in', 60)

    def finish(self, seconds):
        if self.lines[-1:] != ['exit']:
            self.lines += self._channel.run(
                'while read -r line; do echo "$line"; [ "$line" != exit ] || break; done </tmp/nb.out',
                seconds).text.splitlines()
        self.say('bye')
        return self.lines[:-1]

    def close(self):
        pass


# ---- what came out ---------------------------------------------------------------------------------


def parse(lines):
    """nbrun's lines. Failed if it failed, or a session did."""
    found = {'begin': None, 'end': None, 'sessions': [], 'out': {}}
    for line in lines:
        words = line.split()
        if words[:1] in (['begin'], ['end']):
            found[words[0]] = float(words[1])
        elif words[:1] == ['session']:
            first, last, covered, rate = map(float, words[2:6])
            found['sessions'].append({'first': first, 'last': last, 'covered': covered, 'rate': rate,
                                      'status': int(words[6])})
        elif words[:1] == ['out']:
            # An empty line has lost its last space in a guest's shell.
            found['out'].setdefault(int(words[1]), []).append(line.partition(' ')[2].partition(' ')[2])
    if lines[-1:] != ['done']:
        raise benchlib.Failed(f'nbrun did not come to its end: {(lines or ["no output"])[-1]}')
    for number, session in enumerate(found['sessions']):
        if session['status']:
            last = (found['out'].get(number) or ['without a word'])[-1]
            raise benchlib.Failed(f'session {number} ended too early, with status {session["status"]}: {last}')
    return found


def idle(result):
    """How many sessions were never seen at work."""
    return sum(not session['first'] for session in result['sessions'])


def overlap(result):
    """How much of the window every session was at work in, in percent: that of the session with the least.

    0 if there was no window, as not all got to work.
    """
    if result['begin'] is None or result['end'] is None or not result['sessions']:
        return 0.0
    begin, end = result['begin'], result['end']
    if end <= begin:
        return 0.0
    covered = min(min(session['covered'], min(session['last'], end) - max(session['first'], begin))
                  for session in result['sessions'])
    # Clients' times are rounded to milliseconds.
    return round(100 * min(1.0, max(0.0, covered / (end - begin))), 2)


def ping_times(result):
    """Over all sessions: milliseconds min, avg, max, mdev; how many were sent, and came back."""
    found = {'sent': 0, 'received': 0}
    times = []
    for lines in result['out'].values():
        text = '\n'.join(lines)
        counts = re.search(r'(\d+) packets transmitted, (\d+) received', text)
        rtt = re.search(r'= ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms', text)
        if not counts or not rtt:
            raise benchlib.Failed(f'ping: no answers: {(lines or ["no output"])[-1]}')
        found['sent'] += int(counts.group(1))
        found['received'] += int(counts.group(2))
        times.append([float(value) for value in rtt.groups()])
    if not times:
        raise benchlib.Failed('ping printed nothing')
    lows, means, highs, deviations = zip(*times)
    return {**found, 'min': min(lows), 'avg': sum(means) / len(means), 'max': max(highs),
            'mdev': sum(deviations) / len(deviations)}
