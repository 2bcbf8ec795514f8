# SPDX-License-Identifier: GPL-2.0-or-later
"""H6, H7: an unprivileged user's guest, on taps with one and with many queues, all of them the user's."""

import pathlib
import shutil
import tempfile

import libvm
import pytest


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
    status = pathlib.Path(f'/proc/{machine.pid}/status').read_text()
    assert f'Uid:\t{libvm.NOBODY}\t{libvm.NOBODY}' in status and 'CapEff:\t0000000000000000' in status, status
    for address in ('192.0.2.2', '198.51.100.2'):
        host.ping('-f -l 16 -c 500', address=address)
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {address} -t TCP_STREAM -l 1')
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {address} -t TCP_MAERTS -l 1')
    host.ping('-c 5 -i 0.05')
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors
