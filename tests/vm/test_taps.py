# SPDX-License-Identifier: GPL-2.0-or-later
"""H6, H7: an unprivileged user's guest, on taps with one and with many queues: the user's, or passed as files."""

import os
import pathlib
import shutil
import tempfile

import libvm
import pytest
import tuntap


@pytest.fixture
def public():
    """A directory that everybody may enter, with whelp and what it reads in it; the user may write there."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='whelp-test-'))
    path.chmod(0o777)
    shutil.copy(libvm.WHELP, path / 'whelp')
    shutil.copy(libvm.kernel('cloud'), path / 'kernel')
    shutil.copy(libvm.image('cloud'), path / 'initrd')
    yield path
    shutil.rmtree(path)


def check_unprivileged(machine):
    status = pathlib.Path(f'/proc/{machine.pid}/status').read_text()
    assert f'Uid:\t{libvm.NOBODY}\t{libvm.NOBODY}' in status and 'CapEff:\t0000000000000000' in status, status


def test_h7_unprivileged_owner(whelp, host, public):
    options = f'user {libvm.NOBODY}'
    host.tap('one', address='192.0.2.1/24', options=options)
    host.tap('many', address='198.51.100.1/24', options=f'multi_queue {options}')
    machine = whelp('--kernel', public / 'kernel', '--initrd', public / 'initrd', '--net', 'tap=one', '--net',
                    'tap=many', '--serial', public / 'sock', '--cmdline',
                    'console=ttyS0 guest.net=eth0:192.0.2.2/24,eth1:198.51.100.2/24', host=host,
                    prefix=libvm.as_user(libvm.NOBODY, public), program=public / 'whelp')
    machine.channel = libvm.GuestChannel(str(public / 'sock'))
    machine.wait_ready()
    check_unprivileged(machine)
    for address in ('192.0.2.2', '198.51.100.2'):
        host.ping('-f -l 16 -c 500', address=address)
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {address} -t TCP_STREAM -l 1')
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {address} -t TCP_MAERTS -l 1')
    host.ping('-c 5 -i 0.05')
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


@pytest.fixture
def elsewhere():
    """A network namespace that whelp is not in."""
    made = libvm.Host()
    yield made
    made.close()


def test_dirty_taps(whelp, host, elsewhere, public):
    """Two queues passed as files, and a persistent tap with a name, both left dirty; before and after a reboot."""
    queues = [tuntap.attach(elsewhere, 'many', tuntap.MANY) for _ in range(2)]
    elsewhere.run('ip addr add 192.0.2.1/24 dev many')
    elsewhere.run('ip link set many up')
    tuntap.dirty(queues[0])
    tuntap.set_queue(queues[0], tuntap.IFF_DETACH_QUEUE)
    host.tap('one', address='198.51.100.1/24', options=f'user {libvm.NOBODY}')
    named = tuntap.attach(host, 'one')
    tuntap.dirty(named)
    os.close(named)
    machine = whelp('--kernel', public / 'kernel', '--initrd', public / 'initrd', '--cpus', 2, '--net',
                    f'fd={queues[0]}:{queues[1]}', '--net', 'tap=one', '--serial', public / 'sock', '--cmdline',
                    'console=ttyS0 guest.net=eth0:192.0.2.2/24,eth1:198.51.100.2/24', host=host,
                    prefix=libvm.as_user(libvm.NOBODY, public), program=public / 'whelp', pass_fds=queues)
    machine.channel = libvm.GuestChannel(str(public / 'sock'))
    machine.wait_ready()
    check_unprivileged(machine)
    for life in range(2):
        for where, address in ((elsewhere, '192.0.2.2'), (host, '198.51.100.2')):
            where.ping('-f -l 16 -c 500', address=address)
            for test in ('TCP_STREAM', 'TCP_MAERTS', 'TCP_CRR'):
                where.run(f'{libvm.NETPERF}/netperf -P 0 -H {address} -t {test} -l 1')
        # The driver's two pairs: both queues are in use.
        assert not any(tuntap.flags_of(fd) & tuntap.IFF_DETACH_QUEUE for fd in queues)
        if not life:
            machine.channel.post('reboot -f')
            machine.channel.wait_restart(libvm.BOOT)
    assert machine.dmesg_faults() == []
    machine.poweroff()
    for fd in queues:
        os.close(fd)
    assert machine.errors.count('\n') == 1, machine.errors
