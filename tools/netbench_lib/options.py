# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/netbench's command line. `parse` gives a plan, which is JSON, or ends with a message and status 2."""

import argparse
import os
import pathlib
import re

import benchlib
from netbench_lib import traffic

DESCRIPTION = '''\
Measures whelp's network device, with any of its options, beside other VMMs: netperf, flood pings, pktgen and iperf3
between the host and a guest or between two guests. All machines that are compared are up at the same time, and take
turns for each measurement. Writes a journal and four reports (JSON, CSV, Markdown, HTML) into a directory.
docs/netbench.md defines every figure.'''

EPILOG = '''\
tests, as TEST or TEST:SIZE[+SIZE...] (sizes in bytes; K is 1024):
{tests}

ways: host-guest (the client is on the host), guest-host (in the guest), guest-guest (over a bridge).

variants of whelp, as NAME or NAME:KEYS: KEYS are those of whelp's --net, such as ring=512,-mrg_rxbuf.
peers, as KIND or KIND=NAME or either with :KEYS: KEYS are of QEMU's -device virtio-net-pci, or of kvmtool's --network.
  qemu         QEMU's own virtio-net            qemu-vhost   QEMU with vhost-net
  qemu-timer   QEMU's own, with tx=timer        kvmtool      needs --kvmtool
  loopback     no guest: the host with itself
In both, queues=N is the number of queue pairs, and keys that begin with @ are netbench's own:
  @kernel=NAME     the guest's kernel           @cpus=N          the guest's CPUs
  @program=PATH    another whelp, or QEMU       @machine=TYPE    QEMU's -M (pc)
  @offloads=off    ethtool -K tso off gso off gro off, on the tap and in the guest
Without --variant and --peer: whelp with its defaults, qemu and qemu-vhost.

examples:
  tools/netbench --tests TCP_STREAM,TCP_RR --variant on --variant off:-event_idx --peer qemu-vhost --rounds 5
  tools/netbench --tests TCP_STREAM:64+1K+64K --sessions 1,4,16 --variant one:queues=1 --variant four:queues=4 --cpus 4
  tools/netbench --resume build/bench/netbench-20250101-120000

exit status: 0 measured; 1 it failed (one line says why; the journal is kept); 2 wrong usage; 3 measured, but
something had to be left out (the reports say what); 130 interrupted (--resume goes on)'''

KINDS = ('qemu', 'qemu-vhost', 'qemu-timer', 'kvmtool', 'loopback')
WAYS = ('host-guest', 'guest-host', 'guest-guest')
OWN_KEYS = ('kernel', 'cpus', 'program', 'machine', 'offloads')
DEFAULT_TESTS = 'TCP_STREAM,TCP_MAERTS,TCP_RR,UDP_RR,PING'
MOST_SESSIONS, MOST_PAIRS, MOST_CPUS = 128, 32, 64


class Wrong(Exception):
    """What is wrong with the command line."""


def number(text, what, low, high):
    if not re.fullmatch(r'[0-9]{1,9}', text) or not low <= int(text) <= high:
        raise Wrong(f'{what}: "{text}" is not a number from {low} to {high}')
    return int(text)


def numbers(text, what, low, high):
    """A list of different numbers with commas between."""
    found = [number(word, what, low, high) for word in text.split(',')]
    if len(set(found)) < len(found):
        raise Wrong(f'{what}: "{text}" names something twice')
    return found


def size(text, what):
    match = re.fullmatch(r'([0-9]{1,6})([kK]?)', text)
    value = int(match.group(1)) * (1024 if match.group(2) else 1) if match else 0
    if not 1 <= value <= 1 << 20:
        raise Wrong(f'{what}: "{text}" is not a size from 1 to 1024K')
    return value


def tests(text, sizes):
    """(test, size) of each; `sizes` for those that name none of their own."""
    found = []
    for word in text.split(','):
        name, colon, own = word.partition(':')
        if name not in traffic.TESTS:
            raise Wrong(f'--tests: there is no "{name}"; there are {", ".join(traffic.TESTS)}')
        test = traffic.TESTS[name]
        if colon:
            wanted = [size(part, f'--tests {word}') for part in own.split('+')]
        elif sizes:
            wanted = [size(part, '--sizes') for part in sizes.split(',')]
        else:
            wanted = [test.size]
        for value in wanted:
            if not test.low <= value <= test.high:
                raise Wrong(f'{name}: a size of {value} is not from {test.low} to {test.high}')
            if (name, value) in found:
                raise Wrong(f'--tests: {name} with {value} bytes is there twice')
            found.append((name, value))
    return found


def ways(text):
    found = text.split(',')
    for way in found:
        if way not in WAYS:
            raise Wrong(f'--ways: there is no "{way}"; there are {", ".join(WAYS)}')
    if len(set(found)) < len(found):
        raise Wrong(f'--ways: "{text}" names something twice')
    return found


def split_keys(text, what):
    """The keys for the VMM, as a string, and netbench's own, as a dict with a number of queue pairs."""
    keys, own = [], {}
    for word in filter(None, text.split(',')):
        name, _, value = word.partition('=')
        if name.startswith('@'):
            if name[1:] not in OWN_KEYS or not value:
                raise Wrong(f'{what}: "{word}" is none of {", ".join(f"@{key}=..." for key in OWN_KEYS)}')
            own[name[1:]] = value
        elif name == 'queues':
            own['pairs'] = number(value, f'{what}: queues', 1, MOST_PAIRS)
        else:
            keys.append(word)
    if 'cpus' in own:
        own['cpus'] = number(own['cpus'], f'{what}: @cpus', 1, MOST_CPUS)
    if own.get('offloads', 'off') != 'off':
        raise Wrong(f'{what}: @offloads is "off" or is not there')
    return ','.join(keys), own


def machine(kind, name, text, what):
    if not re.fullmatch(r'[A-Za-z0-9][A-Za-z0-9._+-]{0,31}', name):
        raise Wrong(f'{what}: "{name}" is no name: 1 to 32 of A-Z a-z 0-9 . _ + -')
    keys, own = split_keys(text, what)
    if kind == 'loopback' and (keys or own):
        raise Wrong(f'{what}: loopback has no keys')
    if 'machine' in own and not kind.startswith('qemu'):
        raise Wrong(f'{what}: @machine is for QEMU')
    return {'kind': kind, 'name': name, 'keys': keys, **own}


def variants(given):
    found = []
    for text in given:
        name, _, keys = text.partition(':')
        found.append(machine('whelp', name, keys, f'--variant {text}'))
    return found


def peers(given):
    found = []
    for text in given:
        head, _, keys = text.partition(':')
        kind, equals, name = head.partition('=')
        if kind not in KINDS:
            raise Wrong(f'--peer {text}: there is no "{kind}"; there are {", ".join(KINDS)}')
        found.append(machine(kind, name if equals else kind, keys, f'--peer {text}'))
    return found


def expand(bare, cpus, pairs):
    """Each machine with each number of CPUs and queue pairs, unless it has its own; those of one number together."""
    found = []
    for cpu in cpus:
        for pair in pairs:
            for entry in bare:
                full = {'cpus': cpu, 'pairs': pair, **entry}
                if len(cpus) > 1 and 'cpus' not in entry and entry['kind'] != 'loopback':
                    full['name'] += f'/{cpu}cpu'
                if len(pairs) > 1 and 'pairs' not in entry and entry['kind'] != 'loopback':
                    full['name'] += f'/{pair}q'
                full['block'] = f'{cpu}/{pair}'
                if full['name'] not in [other['name'] for other in found]:
                    found.append(full)
    return found


def check_machines(found, options):
    names = [entry['name'] for entry in found]
    for name in names:
        if names.count(name) > 1:
            raise Wrong(f'two machines are called "{name}": give one another name')
    for entry in found:
        if entry['kind'] == 'kvmtool' and not (options.kvmtool or entry.get('program')):
            raise Wrong('--peer kvmtool needs --kvmtool PATH')
    for path in [options.kvmtool, *(entry.get('program') for entry in found)]:
        if path and not os.access(path, os.X_OK):
            raise Wrong(f'{path}: no such program')


def cpu_list(text, what):
    if text and not re.fullmatch(r'\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*', text):
        raise Wrong(f'{what}: "{text}" is no list of CPUs such as 0-3,8')
    return text


def make_plan(options):
    """The plan of checked options; Wrong if something is."""
    cases = [{'test': test, 'size': value, 'way': way, 'sessions': sessions}
             for test, value in tests(options.tests, options.sizes)
             for way in ways(options.ways) if way in traffic.TESTS[test].ways
             for sessions in numbers(options.sessions, '--sessions', 1, MOST_SESSIONS)]
    if not cases:
        raise Wrong('none of the tests goes any of these ways: pktgen sends from a guest only')
    bare = variants(options.variant) + peers(options.peer)
    if not bare:
        bare = variants(['whelp']) + peers(['qemu', 'qemu-vhost'])
    check_machines(bare, options)
    machines = expand(bare, numbers(options.cpus, '--cpus', 1, MOST_CPUS),
                      numbers(options.pairs, '--pairs', 1, MOST_PAIRS))
    if all(entry['kind'] == 'loopback' for entry in machines) and all(c['way'] != 'host-guest' for c in cases):
        raise Wrong('loopback goes the way host-guest only')
    try:
        seconds = float(options.seconds)
    except ValueError:
        seconds = 0
    if not 0.2 <= seconds <= 3600:
        raise Wrong(f'--seconds: "{options.seconds}" is not a number from 0.2 to 3600')
    return {
        'machines': machines, 'cases': cases, 'seconds': seconds,
        'rounds': number(options.rounds, '--rounds', 1, 1000),
        'repeat': number(options.repeat, '--repeat', 1, 1000),
        'overlap': number(options.overlap, '--overlap', 1, 100),
        'guests': number(options.guests, '--guests', 1, 64),
        'memory': number(options.memory, '--memory', 128, 65536),
        'burst': number(options.pktgen_burst, '--pktgen-burst', 1, 1024),
        'lab_cpus': number(options.lab_cpus, '--lab-cpus', 1, 16),
        'kernel': options.kernel or default_kernel(),
        'kvmtool': options.kvmtool and os.path.abspath(options.kvmtool),
        'vmm_cpus': cpu_list(options.vmm_cpus, '--vmm-cpus'),
        'load_cpus': cpu_list(options.load_cpus, '--load-cpus'),
    }


def default_kernel():
    return 'backports-cloud' if (benchlib.build_dir() / 'kernels/backports-cloud').exists() else 'cloud'


def parser():
    lines = '\n'.join(f'  {name:12} {test.text}' for name, test in traffic.TESTS.items())
    made = argparse.ArgumentParser(prog='tools/netbench', usage='tools/netbench [OPTION...]',
                                   formatter_class=argparse.RawDescriptionHelpFormatter,
                                   description=DESCRIPTION, epilog=EPILOG.format(tests=lines), allow_abbrev=False)
    add = made.add_argument_group('what is measured').add_argument
    add('--tests', metavar='LIST', default=DEFAULT_TESTS, help='(%(default)s)')
    add('--ways', metavar='LIST', default='host-guest', help='(%(default)s)')
    add('--sizes', metavar='LIST', default='', help='for tests without sizes of their own (each has a default)')
    add('--sessions', metavar='LIST', default='1', help='at the same time, 1 to 128 (%(default)s)')
    add('--variant', metavar='NAME[:KEYS]', action='append', default=[], help='a whelp; may be repeated')
    add('--peer', metavar='KIND[=NAME][:KEYS]', action='append', default=[], help='another VMM; may be repeated')
    add('--pairs', metavar='LIST', default='1', help='queue pairs (%(default)s)')
    add('--cpus', metavar='LIST', default='1', help='CPUs of a guest (%(default)s)')
    add('--memory', metavar='MIB', default='512', help='of a guest (%(default)s)')
    add('--kernel', metavar='NAME', help='one that tools/get-kernel knows, or a path (backports-cloud if it was '
        'fetched, else cloud)')
    add('--kvmtool', metavar='PATH', help="kvmtool's program, lkvm")
    add = made.add_argument_group('how').add_argument
    add('--rounds', metavar='N', default='3', help='with fresh guests, and a fresh lab, for each (%(default)s)')
    add('--repeat', metavar='N', default='1', help='runs of each test in a round, A B A B (%(default)s)')
    add('--seconds', metavar='S', default='5', help='length of a run (%(default)s)')
    add('--overlap', metavar='PERCENT', default='95', help='how much of a run all sessions must have worked (%(default)s)')
    add('--guests', metavar='N', default='4', help='up at the same time (%(default)s)')
    add('--pktgen-burst', metavar='N', default='1', help='packets that pktgen hands over with one kick (%(default)s)')
    add('--vmm-cpus', metavar='LIST', default='', help='pin the VMMs to these CPUs of the host')
    add('--load-cpus', metavar='LIST', default='', help="pin the host's clients and servers to these")
    add('--lab-cpus', metavar='N', default='1', help='of the lab; see docs/lab.md about more than one (%(default)s)')
    add = made.add_argument_group('where').add_argument
    add('--out', metavar='DIR', help='a new directory for journal and reports (build/bench/netbench-DATE)')
    add('--resume', metavar='DIR', help='go on with what is left in DIR; no other options')
    add('--report', metavar='DIR', help='write the reports of DIR anew; measure nothing')
    add('--list', action='store_true', help='print what would be measured, and in which order; measure nothing')
    return made


def parse(argv):
    """(options, plan); the plan is None with --resume and --report."""
    made = parser()
    options = made.parse_args(argv)
    for name in ('resume', 'report'):
        directory = getattr(options, name)
        if not directory:
            continue
        if len(argv) > 2 or (len(argv) == 2 and '=' in argv[0]):
            made.error(f'--{name} takes everything from {directory}: no other options')
        if not pathlib.Path(directory, 'plan.json').is_file():
            made.error(f'--{name} {directory}: there is no plan.json in it')
        return options, None
    if options.out and pathlib.Path(options.out).exists() and any(pathlib.Path(options.out).iterdir()):
        made.error(f'--out {options.out}: it exists and is not empty; --resume goes on with a journal')
    try:
        return options, make_plan(options)
    except Wrong as err:
        made.error(str(err))
