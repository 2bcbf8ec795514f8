# SPDX-License-Identifier: GPL-2.0-or-later
"""The stock kernels of Debian 12, of its backports and of unstable boot, and find nothing to complain of."""

import libvm
import pytest


@pytest.mark.parametrize('name', ['cloud', 'generic', 'backports', 'unstable'])
def test_boots(whelp, host, name):
    host.tap()
    machine = whelp('--kernel', libvm.kernel(name), '--initrd', libvm.image(name), '--cpus', 2, '--memory', '512M',
                    '--cmdline', 'console=ttyS0 guest.net=eth0:192.0.2.2/24', '--net', 'tap=tap0', host=host,
                    serial=True).wait_ready()
    assert machine.channel.release in libvm.kernel(name)
    assert machine.run('nproc') == '2'
    host.ping('-c 10 -i 0.01')
    assert machine.dmesg_faults() == []
    machine.poweroff()
    assert machine.errors.splitlines()[1:] == []
    assert 'the guest powered off' in machine.errors
