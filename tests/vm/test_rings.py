# SPDX-License-Identifier: GPL-2.0-or-later
"""Both ring formats, with what is off by default switched on, under the newest driver; and without MSI (G21)."""

import pytest
from test_features import driver_faults, taken

import libvm


@pytest.mark.parametrize('net, features, cmdline', [
    ('+ring_packed,+in_order,ring=256', {'ring_packed', 'in_order'}, ''),
    ('+ring_packed,rx_ring=100,tx_ring=33,notify=pio', {'ring_packed'}, ''),
    ('+rss,+hash_report,+notification_data,-mrg_rxbuf', {'rss', 'hash_report', 'notification_data'}, ''),
    ('ring=128', set(), 'pci=nomsi'),
])
def test_rings(whelp, host, net, features, cmdline):
    host.tap(options='multi_queue')
    machine = whelp('--kernel', libvm.kernel('unstable'), '--initrd', libvm.image('unstable'), '--cpus', 2,
                    '--memory', '512M', '--cmdline', f'console=ttyS0 guest.net=eth0:192.0.2.2/24 {cmdline}', '--net',
                    f'tap=tap0,queues=2,{net}', host=host, serial=True).wait_ready()
    assert features <= taken(machine), taken(machine)
    host.ping('-f -l 16 -c 2000', timeout=120)
    for test in ('TCP_STREAM', 'TCP_MAERTS', 'TCP_RR', 'UDP_RR'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t {test} -l 1')
    assert driver_faults(machine) == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors
