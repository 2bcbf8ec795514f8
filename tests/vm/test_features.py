# SPDX-License-Identifier: GPL-2.0-or-later
"""What Linux drivers of three ages take of the device, and each thing switched both ways with ethtool and ip."""

import re

import libvm
import pytest

# What each kernel's driver takes of what is offered by default with two pairs, an MTU and a speed; measured,
# and the table in docs/virtio-net.md.
COMMON = {'csum', 'guest_csum', 'ctrl_guest_offloads', 'mtu', 'mac', 'guest_tso4', 'guest_tso6', 'guest_ecn',
          'guest_ufo', 'host_ufo', 'host_tso4', 'host_tso6', 'host_ecn', 'mrg_rxbuf', 'status', 'ctrl_vq', 'ctrl_rx', 'ctrl_vlan',
          'guest_announce', 'mq', 'ctrl_mac_addr', 'indirect_desc', 'event_idx', 'version_1', 'ring_reset',
          'notf_coal', 'speed_duplex'}
NEWER = COMMON | {'guest_uso4', 'guest_uso6', 'host_uso', 'vq_notf_coal', 'device_stats', 'guest_hdrlen'}
TAKEN = {'cloud': COMMON, 'backports': NEWER, 'unstable': NEWER}
# And of what is off by default, each asked for.
EXTRA = ['access_platform', 'ring_packed', 'in_order', 'order_platform', 'notification_data', 'hash_report', 'rss']
EXTRA_TAKEN = {'cloud': set(EXTRA) - {'in_order', 'notification_data'}, 'backports': set(EXTRA) - {'in_order'},
               'unstable': set(EXTRA)}

BITS = {'csum': 0, 'guest_csum': 1, 'ctrl_guest_offloads': 2, 'mtu': 3, 'mac': 5, 'guest_tso4': 7, 'guest_tso6': 8,
        'guest_ecn': 9, 'guest_ufo': 10, 'host_tso4': 11, 'host_tso6': 12, 'host_ecn': 13, 'host_ufo': 14,
        'mrg_rxbuf': 15, 'status': 16, 'ctrl_vq': 17, 'ctrl_rx': 18, 'ctrl_vlan': 19, 'ctrl_rx_extra': 20,
        'guest_announce': 21, 'mq': 22, 'ctrl_mac_addr': 23, 'indirect_desc': 28, 'event_idx': 29, 'version_1': 32,
        'access_platform': 33, 'ring_packed': 34, 'in_order': 35, 'order_platform': 36, 'notification_data': 38,
        'ring_reset': 40, 'device_stats': 50, 'vq_notf_coal': 52, 'notf_coal': 53, 'guest_uso4': 54,
        'guest_uso6': 55, 'host_uso': 56, 'hash_report': 57, 'guest_hdrlen': 59, 'rss': 60, 'speed_duplex': 63,
        'guest_udp_tunnel_gso': 65, 'guest_udp_tunnel_gso_csum': 66, 'host_udp_tunnel_gso': 67,
        'host_udp_tunnel_gso_csum': 68}


def start(whelp, host, name, net, queues=2, cmdline=''):
    host.tap(options='multi_queue' if queues > 1 else '', mtu=1400)
    return whelp('--kernel', libvm.kernel(name), '--initrd', libvm.image(name), '--cpus', 2, '--memory', '512M',
                 '--cmdline', f'console=ttyS0 guest.net=eth0:192.0.2.2/24 {cmdline}', '--net',
                 f'tap=tap0,queues={queues},{net}', host=host, serial=True).wait_ready()


def taken(machine):
    bits = machine.run('cat /sys/bus/virtio/devices/virtio0/features')
    names = {bit: name for name, bit in BITS.items()}
    return {names[number] for number, bit in enumerate(bits) if bit == '1'}


def driver_faults(machine):
    """Without the one that Linux's driver has of itself: its statistics index an array of one element (UBSAN)."""
    log = machine.run('dmesg -r', timeout=libvm.BOOT)
    reports = re.findall(r'<.>[^\n]*\[ cut here \].*?\[ end trace [^\n]*', log, re.S)
    own = {line for report in reports for line in report.splitlines()
           if 'UBSAN: array-index-out-of-bounds' in report and 'virtnet_get_hw_stats' in report}
    return [line for line in machine.dmesg_faults() if line not in own]


def flows(host, count=1):
    """Short flows both ways, many of them: each has its own ports, and so its own queue."""
    for _ in range(count):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_CRR -l 1')


@pytest.mark.parametrize('name', ['cloud', 'backports', 'unstable'])
def test_features(whelp, host, name):
    machine = start(whelp, host, name, 'mtu=1400,speed=10000,duplex=full')
    assert taken(machine) - {'guest_udp_tunnel_gso', 'guest_udp_tunnel_gso_csum', 'host_udp_tunnel_gso',
                             'host_udp_tunnel_gso_csum'} == TAKEN[name]
    assert machine.run('cat /sys/class/net/eth0/mtu /sys/class/net/eth0/speed /sys/class/net/eth0/duplex') == \
        '1400\n10000\nfull'

    # Each offload off and on again, with traffic in between.
    for switch in ('tx', 'sg', 'tso', 'gso', 'gro', 'lro', 'rx-gro-hw'):
        for way in ('off', 'on'):
            machine.run(f'ethtool -K eth0 {switch} {way}', check=False)
            host.ping('-c 3 -i 0.02')
    host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_STREAM -l 1')
    host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_MAERTS -l 1')

    # G3: as many pairs as there are; one; a count that is not there is refused.
    for pairs in (1, 2, 1, 2):
        machine.run(f'ethtool -L eth0 combined {pairs}')
        assert re.search(rf'Combined:\s+{pairs}\s*$', machine.run('ethtool -l eth0'))
        flows(host)
        host.ping('-f -l 8 -c 200')
    assert machine.channel.run('ethtool -L eth0 combined 3', check=False).status != 0

    # RX modes, addresses, VLANs.
    machine.run('ip link set eth0 promisc on; ip link set eth0 promisc off; ip link set eth0 allmulticast on; '
                'ip link set eth0 allmulticast off; ip maddr add 01:00:5e:00:00:7b dev eth0')
    machine.run('ip link set eth0 address 02:00:00:00:00:77')
    host.run('ip neigh flush dev tap0')
    host.run('ping -q -c 1 -W 20 192.0.2.2')
    machine.run('ip link add link eth0 name eth0.5 type vlan id 5 && ip addr add 198.51.100.2/24 dev eth0.5 && '
                'ip link set eth0.5 up')
    host.run('ip link add link tap0 name tap0.5 type vlan id 5; ip addr add 198.51.100.1/24 dev tap0.5; '
             'ip link set tap0.5 up', shell=True)
    host.run('ping -q -c 1 -W 20 198.51.100.2')
    machine.run('ip link del eth0.5')

    # Coalescing and ring sizes, where the driver has them.
    machine.run('ethtool -C eth0 rx-usecs 50 rx-frames 16', check=name != 'cloud')
    host.ping('-c 20 -i 0.01')
    machine.run('ethtool -C eth0 rx-usecs 0 rx-frames 1', check=False)
    machine.run('ethtool -g eth0; ethtool -S eth0; ethtool -x eth0', check=False)
    if name != 'cloud':
        machine.run('ethtool -G eth0 rx 128 tx 128')
        assert re.search(r'RX:\s+128', machine.run('ethtool -g eth0').split('Current')[1])
        host.ping('-f -l 8 -c 200')
        machine.run('ethtool -G eth0 rx 256 tx 256')
    host.ping('-c 5 -i 0.02')
    assert driver_faults(machine) == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


@pytest.mark.parametrize('name', EXTRA_TAKEN)
def test_off_by_default(whelp, host, name):
    machine = start(whelp, host, name, ','.join(f'+{feature}' for feature in EXTRA))
    assert taken(machine) & set(EXTRA) == EXTRA_TAKEN[name]
    host.ping('-f -l 8 -c 500')
    flows(host)
    for test in ('TCP_STREAM', 'TCP_MAERTS'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t {test} -l 1')
    assert driver_faults(machine) == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


@pytest.mark.parametrize('rings', ['-ring_packed', '+ring_packed'])
def test_access_platform(whelp, host, rings):
    """The addresses are then those of the guest's DMA layer: here of its bounce buffers, which nothing else uses."""
    for feature in ('+access_platform', '-access_platform'):
        machine = start(whelp, host, 'unstable', f'{feature},{rings}', queues=1, cmdline='swiotlb=force')
        assert ('access_platform' in taken(machine)) == feature.startswith('+')
        machine.run('[ -d /sys/kernel/debug/swiotlb ] || mount -t debugfs debugfs /sys/kernel/debug')
        host.ping('-f -l 8 -c 300')
        for test in ('TCP_STREAM', 'TCP_MAERTS'):
            host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t {test} -l 1')
        used = int(machine.run('cat /sys/kernel/debug/swiotlb/io_tlb_used'))
        # The receive ring's buffers are mapped all the time.
        assert (used > 100) == feature.startswith('+'), used
        assert driver_faults(machine) == []
        machine.poweroff()
        assert machine.errors.count('\n') == 1, machine.errors
        host.run('ip link del tap0')
