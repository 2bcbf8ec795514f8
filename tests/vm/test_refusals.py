# SPDX-License-Identifier: GPL-2.0-or-later
"""What cannot be set up is refused in one line, with status 1, and nothing is left. No guest gets to run."""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile

import libvm
import micro as m
import pytest
from libvm import WHELP, one_line

NOBODY = libvm.NOBODY


@pytest.fixture
def public():
    """A directory that everybody may enter, with whelp in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='whelp-test-'))
    path.chmod(0o755)
    shutil.copy(WHELP, path / 'whelp')
    (path / 'kernel').write_bytes(m.elf(m.say('x') + m.POWEROFF))
    yield path
    shutil.rmtree(path)


def as_nobody(public, *argv):
    return [*libvm.as_user(NOBODY, public), *map(str, argv)]


def call(argv, **options):
    return subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False, env={**os.environ, 'PATH': libvm.PATH}, **options)


# ---- the host's KVM ----

@pytest.mark.parametrize('prepare, user, words', [
    ('mount -t tmpfs dev /dev', 0, ['does not exist', 'kvm_intel or kvm_amd']),
    ('mknod -m 000 {0}/kvm c 10 232 && mount --bind {0}/kvm /dev/kvm', NOBODY, ['permission denied', 'kvm']),
    ('mount --bind /dev/null /dev/kvm', 0, ['does not answer as KVM']),
], ids=['missing', 'mode 000', 'not KVM'])
def test_h15_kvm(public, prepare, user, words):
    script = f'{prepare.format(public)} && exec setpriv --reuid={user} --regid={user} --clear-groups "$@"'
    result = call(['unshare', '-m', 'sh', '-c', script, 'sh', public / 'whelp', 'run', '--kernel',
                   public / 'kernel'])
    one_line(result, 1, '/dev/kvm', *words)


@pytest.mark.parametrize('prepare, user, words', [
    ('true', 0, ['No such file', 'modprobe vhost_net']),
    ('mknod -m 600 /dev/vhost-net c 10 238', NOBODY, ['Permission denied', 'group']),
    ('mknod -m 666 /dev/vhost-net c 1 3', 0, ['does not answer as vhost-net']),
], ids=['missing', 'mode 600', 'not vhost-net'])
def test_vhost(public, host, prepare, user, words):
    """Among devices of the test's own: all that a guest needs, and vhost-net or what stands in its place."""
    host.tap(options=f'user {NOBODY}')
    script = f'''
        mount -t tmpfs dev /dev && mkdir /dev/net && mknod -m 666 /dev/kvm c 10 232 &&
        mknod -m 666 /dev/net/tun c 10 200 && mknod -m 666 /dev/null c 1 3 && {prepare} &&
        exec setpriv --reuid={user} --regid={user} --clear-groups "$@"'''
    result = call(host.command(['unshare', '-m', 'sh', '-c', script, 'sh', public / 'whelp', 'run', '--kernel',
                                public / 'kernel', '--net', 'tap=tap0,vhost=on']))
    one_line(result, 1, '--net vhost=on', '/dev/vhost-net', *words)


def test_h17_memory(micro):
    kernel = micro(m.POWEROFF)
    one_line(libvm.run('run', '--kernel', kernel, '--memory', '512G'), 1, '--memory', '524288M')
    limited = call(['prlimit', f'--as={300 << 20}', WHELP, 'run', '--kernel', kernel, '--memory', '1G'])
    one_line(limited, 1, '--memory', '1024M', 'ulimit -v')


def test_no_descriptors(micro):
    """However few there are, whelp says so or works; it does not crash."""
    kernel = micro(m.POWEROFF)
    statuses = set()
    for limit in range(3, 40):
        result = call(['prlimit', f'--nofile={limit}', WHELP, 'run', '--kernel', kernel, '--cpus', 4])
        assert result.returncode in (0, 1, 127), (limit, result)
        if result.returncode == 1:
            assert result.stderr.startswith('whelp: ') and result.stdout == '', (limit, result)
        statuses.add(result.returncode)
    assert statuses >= {0, 1}, statuses


@pytest.mark.parametrize('options, names', [
    (['--affinity', '0:CPU'], ['--affinity']),
    (['--net', 'tap=tap0', '--net', 'tap=tap1,affinity=CPU'], ['--net affinity=', 'net1']),
], ids=['vCPUs', 'workers'])
def test_no_such_host_cpu(micro, host, options, names):
    """A CPU that is not there, one that may not be there, and one that this process may not use."""
    host.tap('tap0', address=None)
    host.tap('tap1', address=None)
    kernel = micro(m.POWEROFF)
    others = [str(cpu) for cpu in sorted(os.sched_getaffinity(0))[1:2]]
    for cpu in ('1023', '65535', *others):
        given = [word.replace('CPU', cpu) for word in options]
        result = call(host.command(['taskset', '-c', str(min(os.sched_getaffinity(0))), WHELP, 'run', '--kernel',
                                    kernel, *given]))
        one_line(result, 1, *names, f'host CPU {cpu}', 'taskset')


# ---- taps ----

def test_h7_somebody_elses_tap(public, host):
    host.tap('mine', options=f'user {NOBODY}', address=None)
    host.tap('root', options='user 0', address=None)
    host.tap('team', options='group 0', address=None)

    def attach(tap):
        return call(host.command(as_nobody(public, public / 'whelp', 'run', '--kernel', public / 'kernel', '--net',
                                           f'tap={tap}')))
    ok = attach('mine')
    assert (ok.returncode, ok.stdout) == (0, 'x'), ok
    one_line(attach('root'), 1, 'tap root', 'belongs to user 0', str(NOBODY))
    one_line(attach('team'), 1, 'tap team', 'belongs to group 0')
    one_line(attach('new'), 1, 'tap new does not exist', 'ip tuntap add', str(NOBODY))


def test_h8_two_on_one_tap(whelp, micro, host):
    host.tap()
    first = whelp('--kernel', micro(m.say('x') + m.HALT), '--net', 'tap=tap0', host=host)
    first.wait_console('x')
    second = whelp('--kernel', micro(m.POWEROFF), '--net', 'tap=tap0', host=host, serial=True)
    assert second.wait() == 1
    assert 'tap tap0 is in use by another process' in second.errors and second.errors.count('\n') == 1
    first.signal()
    assert first.wait() == 143
    third = whelp('--kernel', micro(m.POWEROFF), '--net', 'tap=tap0', host=host)
    assert third.wait() == 0, third.errors


def test_h6_kinds_of_taps(whelp, micro, host):
    """A tap with many queues works with one pair; what is no tap is named as such."""
    host.tap('many', options='multi_queue', address=None)
    host.run('ip link add bridge0 type bridge')
    host.run('ip tuntap add tun0 mode tun')
    for tap, status in (('many', 0), ('bridge0', 1), ('tun0', 1)):
        machine = whelp('--kernel', micro(m.POWEROFF), '--net', f'tap={tap}', host=host)
        assert machine.wait() == status, machine.errors
        if status:
            assert f'{tap} is not a tap' in machine.errors and machine.errors.count('\n') == 1, machine.errors


def test_tap_made_and_unmade(whelp, micro, host):
    """With privilege whelp makes the tap, up and with the MTU, and it is gone with whelp."""
    machine = whelp('--kernel', micro(m.say('x') + m.HALT), '--net', 'tap=made,mtu=9000', host=host)
    machine.wait_console('x')
    link = host.run('ip -o link show made').stdout
    assert 'mtu 9000' in link and 'UP' in link, link
    machine.signal()
    assert machine.wait() == 143
    assert host.links() == ['lo', ]


# ---- kernel, initrd, command line ----

@pytest.fixture(scope='module')
def bzimage():
    return pathlib.Path(libvm.kernel('cloud')).read_bytes()


def refused(tmp_path, data, *words):
    path = tmp_path / 'kernel'
    path.write_bytes(data)
    one_line(libvm.run('run', '--kernel', path), 1, f'kernel {path}', *words)


def test_h19_truncated(bzimage, tmp_path):
    setup_end = (bzimage[0x1f1] + 1) * 512
    for size in (0, 1, 0x1f0, 0x1f1, 0x202, 0x264, setup_end - 1, setup_end, setup_end + 1, len(bzimage) // 2,
                 len(bzimage) - 100000):
        refused(tmp_path, bzimage[:size])


def patched(data, offset, value):
    return data[:offset] + value + data[offset + len(value):]


def test_h19_other_headers(bzimage, tmp_path, whelp):
    refused(tmp_path, b'MZ' + bytes(100000), 'neither a bzImage nor an ELF vmlinux')
    refused(tmp_path, patched(bzimage, 0x202, b'HdrX'))
    refused(tmp_path, patched(bzimage, 0x206, struct.pack('<H', 0x20b)), '2.11', 'too old')
    refused(tmp_path, patched(bzimage, 0x206, struct.pack('<H', 0x300)), '3.00', 'newer')
    refused(tmp_path, patched(bzimage, 0x260, struct.pack('<I', 0x40000000)), '--memory')
    refused(tmp_path, patched(m.elf(m.POWEROFF), 18, struct.pack('<H', 3)), 'another machine')
    refused(tmp_path, m.elf(m.POWEROFF)[:100], 'shorter than its header says')
    # No setup sectors means four, which is wrong here: whatever is run then, whelp stays whole.
    (tmp_path / 'odd').write_bytes(patched(bzimage, 0x1f1, b'\0'))
    machine = whelp('--kernel', tmp_path / 'odd', '--no-reboot', terminal=True)
    try:
        machine.process.wait(2)
    except subprocess.TimeoutExpired:
        machine.signal()
    assert machine.wait() in (0, 1, 3, 5, 6, 143)


def test_h19_unreadable(public, tmp_path):
    one_line(libvm.run('run', '--kernel', tmp_path), 1, str(tmp_path), 'directory')
    one_line(libvm.run('run', '--kernel', tmp_path / 'none'), 1, 'No such file')
    (public / 'kernel').chmod(0)
    one_line(call(as_nobody(public, public / 'whelp', 'run', '--kernel', public / 'kernel')), 1, 'Permission denied')


# Writes the initrd's address and size as the zero page gives them, then the initrd.
#   mov $0x3f8, %dx; push %rsi; mov $8, %ecx; lea 0x218(%rsi), %rsi; rep outsb; pop %rsi
#   mov 0x21c(%rsi), %ecx; mov 0x218(%rsi), %esi; rep outsb
SHOW_INITRD = (b'\x66\xba\xf8\x03' + b'\x56' + b'\xb9\x08\0\0\0' + b'\x48\x8d\xb6\x18\x02\0\0' + b'\xf3\x6e' + b'\x5e' +
               b'\x8b\x8e\x1c\x02\0\0' + b'\x8b\xb6\x18\x02\0\0' + b'\xf3\x6e' + m.POWEROFF)


def test_h20_initrd(whelp, micro, tmp_path):
    kernel = micro(SHOW_INITRD)
    path = tmp_path / 'initrd'
    for size in (1, 4095, 4097, 10001):
        data = os.urandom(size)
        path.write_bytes(data)
        machine = whelp('--kernel', kernel, '--initrd', path, '--memory', '4G')
        assert machine.wait() == 0, machine.errors
        output = machine.log.read_bytes()
        address, length = struct.unpack('<II', output[:8])
        assert length == size and output[8:] == data
        assert address + size - 1 <= 0x7fffffff and address > m.LOAD
    path.write_bytes(b'')
    one_line(libvm.run('run', '--kernel', kernel, '--initrd', path), 1, f'initrd {path}', 'empty')
    one_line(libvm.run('run', '--kernel', kernel, '--initrd', tmp_path), 1, f'initrd {tmp_path}', 'directory')
    with open(path, 'wb') as file:
        file.truncate(300 << 20)
    one_line(libvm.run('run', '--kernel', kernel, '--initrd', path, '--memory', '256M'), 1, f'initrd {path}',
             '--memory')


def show_cmdline(count):
    """mov $0x3f8, %dx; mov $count, %ecx; mov 0x228(%rsi), %esi; rep outsb"""
    return (b'\x66\xba\xf8\x03' + b'\xb9' + struct.pack('<I', count) + b'\x8b\xb6\x28\x02\0\0' + b'\xf3\x6e' +
            m.POWEROFF)


def test_h21_cmdline(whelp, micro, bzimage, tmp_path):
    for size in (0, 1, 2046, 2047):
        text = ''.join(chr(ord('a') + i % 26) for i in range(size))
        machine = whelp('--kernel', micro(show_cmdline(size + 1)), f'--cmdline={text}')
        assert machine.wait() == 0, machine.errors
        assert machine.console == text + '\0'
    one_line(libvm.run('run', '--kernel', micro(m.POWEROFF), '--cmdline', 'x' * 2048), 1, '--cmdline', '2048', '2047')
    limit = struct.unpack('<I', bzimage[0x238:0x23c])[0]
    (tmp_path / 'bzimage').write_bytes(bzimage)
    one_line(libvm.run('run', '--kernel', tmp_path / 'bzimage', '--cmdline', 'x' * (limit + 1)), 1, '--cmdline',
             str(limit))


# ---- the terminal and the rest ----

def test_h22_terminal_after_failures(whelp, micro, host, tmp_path):
    good = micro(m.POWEROFF)
    (tmp_path / 'file').write_bytes(b'not a socket')
    failures = [
        ('--kernel', tmp_path / 'none'),
        ('--kernel', good, '--initrd', tmp_path),
        ('--kernel', good, '--cmdline', 'x' * 5000),
        ('--kernel', good, '--memory', '511G'),
        ('--kernel', good, '--net', 'tap=lo'),
        ('--kernel', good, '--serial', tmp_path / 'no/directory'),
        ('--kernel', good, '--serial', tmp_path / 'file'),
        ('--kernel', good, '--serial', tmp_path / ('x' * 108)),
        ('--kernel', good, '--bogus'),
        ('--kernel', good, '--cpus', '255'),
    ]
    for options in failures:
        machine = whelp(*options, host=host, terminal=True)
        assert machine.wait() in (1, 2), options
        assert machine.errors.count('\n') == 1, machine.errors
        assert machine.console == ''
    assert (tmp_path / 'file').read_bytes() == b'not a socket'


def test_socket_of_another(whelp, micro, tmp_path):
    """The socket of a running machine is not taken over; one left by a machine that was killed is."""
    path = tmp_path / 'sock'
    first = whelp('--kernel', micro(m.say('x') + m.HALT), '--serial', path)
    first.wait_console('x')
    one_line(libvm.run('run', '--kernel', micro(m.POWEROFF), '--serial', path), 1, f'--serial {path}')
    first.process.kill()
    first.wait()
    assert path.exists()
    second = whelp('--kernel', micro(m.say('x') + m.HALT), '--serial', path)
    second.wait_console('x')
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    second.signal()
    assert second.wait() == 143
    assert not path.exists()


@pytest.mark.parametrize('options, words', [
    (['--nonsense'], ['--nonsense']),
    (['--cpus', '0'], ['--cpus', '1 to 254']),
    (['--cpus', '2', '--cpus', '2'], ['--cpus', 'once']),
    (['--memory', '63M'], ['--memory', '64M']),
    (['--memory', '1GB'], ['--memory', '1GB']),
    (['--memory'], ['--memory', 'needs a value']),
    (['--net', 'mac=52:54:00:12:34:56'], ['--net', 'tap']),
    (['--net', 'tap=a,mtu=67'], ['mtu', '68']),
    (['--net', 'tap=a,mac=01:00:5e:00:00:01'], ['mac']),
    (['--net', 'tap=a', '--net', 'tap=a'], ['tap']),
    (['stray'], ['stray']),
])
def test_wrong_options(options, words):
    one_line(libvm.run('run', '--kernel', 'k', *options), 2, *words)
