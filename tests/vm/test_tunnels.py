# SPDX-License-Identifier: GPL-2.0-or-later
"""TCP in UDP tunnels crosses the tap in large frames. It needs a host of Linux 6.17 and a guest of that age."""

import os
import re

import libvm
import pytest
from test_features import driver_faults, taken

# tools/check starts this module's labs with that kernel.
LAB_KERNEL = 'unstable'

BITS = {'guest_udp_tunnel_gso', 'guest_udp_tunnel_gso_csum', 'host_udp_tunnel_gso', 'host_udp_tunnel_gso_csum'}


@pytest.mark.parametrize('tunnel, net', [('vxlan id 7 dstport 4789 noudpcsum', ''),
                                         ('vxlan id 7 dstport 4789 udpcsum', ''),
                                         ('geneve id 7 udpcsum', ''),
                                         ('vxlan id 7 dstport 4789 udpcsum', ',vhost=on,+in_order')],
                         ids=['vxlan', 'vxlan-csum', 'geneve-csum', 'vhost'])
def test_tunnel(whelp, host, tunnel, net):
    if [int(number) for number in re.findall(r'\d+', os.uname().release)[:2]] < [6, 17]:
        pytest.skip("this host's tap does not have it")
    host.tap()
    machine = whelp('--kernel', libvm.kernel('unstable'), '--initrd', libvm.image('unstable'), '--cpus', 2, '--memory',
                    '512M', '--cmdline', 'console=ttyS0 guest.net=eth0:192.0.2.2/24', '--net', f'tap=tap0{net}',
                    host=host, serial=True).wait_ready()
    assert BITS <= taken(machine), taken(machine)
    # What vhost-net has to know is among it, too.
    assert ('in_order' in taken(machine)) == ('in_order' in net)
    for run, there, here in ((host.run, '192.0.2.2', '198.51.100.1'), (machine.run, '192.0.2.1', '198.51.100.2')):
        run(f'ip link add t0 type {tunnel} remote {there}')
        run(f'ip addr add {here}/24 dev t0')
        run('ip link set t0 up')
    host.ping('-c 3 -i 0.05', address='198.51.100.2')

    def moved(test, way):
        """The mean length of a stream's frames, on the way of its data, as the tap counts them."""
        before = [host.counter('tap0', f'{way}_{what}') for what in ('bytes', 'packets')]
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 198.51.100.2 -t {test} -l -3000000', timeout=120)
        count, packets = (host.counter('tap0', f'{way}_{what}') - old
                          for what, old in zip(('bytes', 'packets'), before))
        return count / packets
    assert moved('TCP_STREAM', 'tx') > 2500
    assert moved('TCP_MAERTS', 'rx') > 2500
    host.run(f'{libvm.NETPERF}/netperf -P 0 -H 198.51.100.2 -t UDP_RR -l -20 -- -r 9000,9000')
    # And without, in the guest: still right.
    machine.run('ethtool -K eth0 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off')
    assert moved('TCP_MAERTS', 'rx') < 1600
    for line in machine.run('grep -E "^(Tcp|Udp):" /proc/net/snmp').splitlines():
        fields = line.split()
        if 'InCsumErrors' in fields:
            place = fields.index('InCsumErrors')
        else:
            assert fields[place] == '0', line
    assert driver_faults(machine) == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors
