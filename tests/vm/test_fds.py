# SPDX-License-Identifier: GPL-2.0-or-later
"""Taps passed as open files, and taps that another program left dirty: set right or refused. Tiny kernels."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import libvm
import micro as m
import pytest
import tuntap
from test_ends import descriptors
from tuntap import GOOD, IFF_NAPI, IFF_NAPI_FRAGS, IFF_NO_PI, IFF_TAP, IFF_TUN, IFF_VNET_HDR, MANY

RUNS = m.say('x') + m.HALT
O_CLOEXEC = 0o2000000
SIOCGIFHWADDR = 0x8927


@pytest.fixture
def fds():
    """A list whose files are closed in the end."""
    opened = []
    yield opened
    for fd in opened:
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture
def attach(host, fds):
    def attach(*arguments, where=host, **options):
        fds.append(tuntap.attach(where, *arguments, **options))
        return fds[-1]
    return attach


@pytest.fixture
def other():
    made = libvm.Host()
    yield made
    made.close()


def net(*fds, more=''):
    return f'fd={":".join(map(str, fds))}{more}'


def refused(kernel, fds, *words, nets=None):
    """With status 1, and one line that names a file and has these words."""
    options = [word for value in nets or [net(*fds)] for word in ('--net', value)]
    libvm.one_line(libvm.run('run', '--kernel', kernel, *options, pass_fds=fds), 1, '--net fd=', *words)


def test_not_a_tap(micro, fds, attach, host, tmp_path):
    kernel = micro(m.POWEROFF)
    # The first file that whelp opens itself must not be taken for one that was passed.
    for number in (3, 4, 200):
        libvm.one_line(libvm.run('run', '--kernel', kernel, '--net', f'fd={number}'), 1, f'--net fd={number}',
                       'no file of that number is open')
    fds += [os.open(tmp_path, os.O_RDONLY), os.open('/dev/null', os.O_RDWR), *os.pipe()]
    for fd in fds:
        refused(kernel, [fd], f'fd={fd} is not a tap')
    fds.append(os.open('/dev/net/tun', os.O_RDWR))
    refused(kernel, [fds[-1]], 'has no interface', 'TUNSETIFF')
    gone = attach('gone')
    host.run('ip link del gone')
    refused(kernel, [gone], 'has no interface')
    refused(kernel, [attach('one-way', mode=os.O_RDONLY)], 'not open for both', 'O_RDWR')


def test_wrong_kinds(micro, attach):
    """What is chosen at the opening, and cannot be set right by the file."""
    kernel = micro(m.POWEROFF)
    for name, flags, words in (('tun0', IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, ['is a tun', 'IFF_TAP']),
                               ('plain', IFF_TAP | IFF_NO_PI, ['no virtio header', 'IFF_VNET_HDR']),
                               ('pi', IFF_TAP | IFF_VNET_HDR, ['packet information', 'IFF_NO_PI']),
                               ('pieces', GOOD | IFF_NAPI | IFF_NAPI_FRAGS, ['IFF_NAPI_FRAGS'])):
        refused(kernel, [attach(name, flags)], name, *words)
    # The flag of a tap without PI is that of one without a filter, too.
    filtered = attach('pi2', IFF_TAP | IFF_VNET_HDR)
    tuntap.attach_filter(filtered, 0)
    refused(kernel, [filtered], 'pi2', 'packet information')


def test_queues_that_do_not_fit(micro, attach, fds, other):
    kernel = micro(m.POWEROFF)
    single = attach('single')
    fds.append(os.dup(single))
    refused(kernel, [single, fds[-1]], 'single', 'one queue only', 'IFF_MULTI_QUEUE')
    queues = [attach('many', MANY) for _ in range(2)]
    fds.append(os.dup(queues[0]))
    refused(kernel, [*queues, fds[-1]], f'fd={fds[-1]} is the same file')
    queues.append(attach('many', MANY))
    # A queue of which nobody reads the frames; whether it can be seen in /sys does not matter.
    refused(kernel, queues[:2], 'many', 'besides those passed')
    refused(kernel, [queues[2]], 'many', 'besides those passed')
    more = attach('more', MANY)
    refused(kernel, [queues[0], more], 'many', 'more', 'of one tap')
    # The same name elsewhere is another tap.
    refused(kernel, [queues[0], attach('many', MANY, where=other)], 'many', 'of one tap')


def test_taps_of_two_nics(micro, attach, fds, other):
    kernel = micro(m.POWEROFF)
    single, queues = attach('single'), [attach('many', MANY) for _ in range(2)]
    fds.append(os.dup(single))
    refused(kernel, [single, fds[-1]], 'single', 'earlier --net', nets=[net(single), net(fds[-1])])
    refused(kernel, queues, 'many', 'besides those passed', nets=[net(fd) for fd in queues])
    namesake = attach('single', where=other)
    machine = libvm.run('run', '--kernel', kernel, '--net', net(single), '--net', net(namesake),
                        pass_fds=[single, namesake])
    assert machine.returncode == 0, machine


@contextlib.contextmanager
def running(whelp, kernel, fds, *options, **more):
    machine = whelp('--kernel', kernel, *options, pass_fds=fds, **more)
    machine.wait_console('x')
    yield machine
    machine.signal()
    assert machine.wait() == 143, machine.errors
    assert machine.errors.count('\n') == 1, machine.errors


def state(fd):
    """What a tap is set to, of what can be read."""
    return {'header': tuntap.number(fd, tuntap.GETVNETHDRSZ), 'little': tuntap.number(fd, tuntap.GETVNETLE),
            'send buffer': tuntap.number(fd, tuntap.GETSNDBUF),
            'no filter': bool(tuntap.flags_of(fd) & tuntap.IFF_NOFILTER),
            'detached': bool(tuntap.flags_of(fd) & tuntap.IFF_DETACH_QUEUE)}


CLEAN = {'header': 12, 'little': 1, 'send buffer': 2**31 - 1, 'no filter': True, 'detached': False}


def kept(fd):
    """What of a tap may be another's business: all that state() has, and its link's type."""
    return state(fd), struct.unpack('16xH22x', fcntl.ioctl(fd, SIOCGIFHWADDR, bytes(40)))[0]


def test_refused_is_left_as_found(micro, attach, fds, other, host):
    """Whoever passed them may have another use for them: header, filter, send buffer, type, queues in use or not."""
    kernel = micro(m.POWEROFF)
    queues = [attach('many', MANY) for _ in range(3)]
    again, no_tap = os.dup(queues[0]), os.open('/dev/null', os.O_RDWR)
    fds += [again, no_tap]
    with_info = attach('info', IFF_TAP | IFF_VNET_HDR | tuntap.IFF_MULTI_QUEUE)
    filtered = attach('filtered', IFF_TAP | IFF_VNET_HDR)
    for fd in (queues[0], with_info, filtered):
        tuntap.put(fd, tuntap.SETVNETHDRSZ, 20)
        tuntap.put(fd, tuntap.SETSNDBUF, 4096)
        fcntl.ioctl(fd, tuntap.SETLINK, 512)
    for fd in (queues[0], filtered):
        tuntap.attach_filter(fd, 100)
    tuntap.set_queue(queues[1], tuntap.IFF_DETACH_QUEUE)
    elsewhere = attach('many', MANY, where=other)
    before = {fd: kept(fd) for fd in (*queues, with_info, filtered, elsewhere)}
    assert before[queues[0]][0]['header'] == 20 and before[queues[1]][0]['detached']
    for passed, words in (([*queues, again], 'is the same file'),
                          ([*queues, no_tap], 'is not a tap'),
                          ([*queues, elsewhere], 'of one tap'),
                          ([elsewhere, *queues], 'of one tap'),
                          ([with_info], 'packet information'),
                          ([filtered], 'packet information')):
        refused(kernel, passed, words)
        assert {fd: kept(fd) for fd in before} == before, (passed, words)
    host.run('ip link set many up')
    libvm.one_line(libvm.run('run', '--kernel', kernel, '--net', net(*queues), pass_fds=queues), 1, 'link type 512')
    assert {fd: kept(fd) for fd in before} == before
    # To see that others use the tap, the queues are detached, and a filter is lost.
    host.run('ip link set many down')
    refused(kernel, queues[:2], 'many', 'besides those passed')
    for fd in queues:
        before[fd][0]['no filter'] = True
    assert {fd: kept(fd) for fd in before} == before


def test_passed_dirty(whelp, micro, attach, fds, host):
    """Set right, whatever it was; the second queue waits, detached, for a driver. Left as a new tap."""
    queues = [attach('many', MANY) for _ in range(2)]
    tuntap.dirty(queues[0])
    # With its filter, which a detached queue keeps.
    tuntap.set_queue(queues[1], tuntap.IFF_DETACH_QUEUE)
    single = attach('single')
    tuntap.dirty(single)
    fcntl.fcntl(single, fcntl.F_SETFL, os.O_ASYNC)
    fds.append(os.dup(single))
    names = [*queues, single]
    with running(whelp, micro(RUNS), names, '--net', net(*queues), '--net', net(single)) as machine:
        assert state(single) == CLEAN and state(queues[0]) == CLEAN, (state(single), state(queues[0]))
        assert state(queues[1]) == {**CLEAN, 'detached': True}
        for name in ('single', 'many'):
            host.run(f'ip link set {name} up')
            assert host.run(f'cat /sys/class/net/{name}/carrier').stdout == '1\n'
        for fd in names:
            info = pathlib.Path(f'/proc/{machine.pid}/fdinfo/{fd}').read_text()
            flags = int(info.split('flags:')[1].split()[0], 8)
            assert flags & os.O_NONBLOCK and flags & O_CLOEXEC and not flags & os.O_ASYNC, info
    for fd in (single, queues[0]):
        assert {**CLEAN, 'header': 10, 'little': 0} == state(fd)


def test_named_dirty(whelp, micro, attach, host):
    """A persistent tap, of which the last user has gone without a word."""
    for name, flags in (('single', GOOD), ('many', MANY)):
        fd = attach(name, flags)
        tuntap.put(fd, tuntap.SETPERSIST, 1)
        tuntap.dirty(fd)
        os.close(fd)
        host.run(f'ip link set {name} up')
        with running(whelp, micro(RUNS), [], '--net', f'tap={name}', host=host):
            assert host.run(f'cat /sys/class/net/{name}/carrier').stdout == '1\n'
        fd = attach(name, flags)
        assert state(fd) == {**CLEAN, 'header': 10, 'little': 0}
        os.close(fd)


def test_named_of_other_kinds(micro, host):
    """What a tap was made with, and its name gets it without: packet information, no virtio header."""
    for kind in ('pi', 'pi vnet_hdr', 'multi_queue pi'):
        host.tap('kind', options=kind, address=None)
        machine = subprocess.run(host.command([libvm.WHELP, 'run', '--kernel', micro(m.POWEROFF), '--net',
                                                     'tap=kind']), check=False, env={'PATH': libvm.PATH})
        assert machine.returncode == 0
        flags = int(host.run('cat /sys/class/net/kind/tun_flags').stdout, 16)
        assert flags & IFF_NO_PI and flags & IFF_VNET_HDR, (kind, flags)
        host.run('ip link del dev kind')


def test_link_type(whelp, micro, attach, host):
    """Another than Ethernet is set right while the link is down, and refused while it is up."""
    fd = attach('odd')
    fcntl.ioctl(fd, tuntap.SETLINK, 512)
    host.run('ip link set odd up')
    libvm.one_line(libvm.run('run', '--kernel', micro(m.POWEROFF), '--net', net(fd), pass_fds=[fd]), 1, 'tap odd',
                   'link type 512', 'ip link set odd down')
    host.run('ip link set odd down')
    with running(whelp, micro(RUNS), [fd], '--net', net(fd)):
        assert host.run('cat /sys/class/net/odd/type').stdout == '1\n'


def test_warned(whelp, micro, attach, host, other):
    """A tap that is down, in our own namespace; of one elsewhere there is nothing that can be known."""
    fd = attach('down')
    host.run('ip link set dev down mtu 1400')
    # A namesake, down as well.
    other.tap('down', address=None, up=False)
    for where, lines in ((host, 3), (None, 1), (other, 1)):
        machine = whelp('--kernel', micro(m.POWEROFF), '--net', net(fd, more=',mtu=1300'), pass_fds=[fd], host=where)
        assert machine.wait() == 0
        assert machine.errors.count('\n') == lines, machine.errors
        assert lines == 1 or 'tap down is down' in machine.errors and 'MTU of 1400' in machine.errors


def test_h8_reboots_unprivileged(whelp, attach):
    """Twenty-five lives on the same files, by a user who may do nothing else, outside of the tap's namespace."""
    queues = [attach('many', MANY) for _ in range(4)]
    tuntap.dirty(queues[0])
    path = pathlib.Path(tempfile.mkdtemp(prefix='whelp-test-'))
    try:
        path.chmod(0o777)
        shutil.copy(libvm.WHELP, path / 'whelp')
        (path / 'kernel').write_bytes(m.elf(m.count_boots()))
        machine = whelp('--kernel', path / 'kernel', '--cpus', 2, '--net', net(*reversed(queues), more=',queues=4'),
                        pass_fds=queues, prefix=libvm.as_user(libvm.NOBODY, path), program=path / 'whelp')
        machine.wait_console('b{5}')
        before = descriptors(machine)
        machine.wait_console('b{30}')
        assert min(descriptors(machine)) < min(before) + 10
        assert [state(fd)['detached'] for fd in queues] == [True, True, True, False]
        machine.signal()
        assert machine.wait() == 143
        assert machine.errors.count('\n') == 1, machine.errors
        # With none but these rights, RSS cannot be had.
        libvm.one_line(subprocess.run(
            [*libvm.as_user(libvm.NOBODY, path), path / 'whelp', 'run', '--kernel', path / 'kernel', '--net',
             net(*queues, more=',+rss')], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False, pass_fds=queues), 1, '+rss', 'many cannot do it')
    finally:
        shutil.rmtree(path)
