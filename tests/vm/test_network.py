# SPDX-License-Identifier: GPL-2.0-or-later
"""virtio-net on a tap, with Linux at both ends: nothing lost, every offload, and the counters tell so."""

import json
import os
import re

import libvm
import pytest

FLOOD = int(os.environ.get('WHELP_FLOOD', '100000'))
MAC = '52:54:00:12:34:56'


@pytest.fixture
def start(whelp, host):
    def start(*options, nets='eth0:192.0.2.2/24', kernel='cloud', cmdline=''):
        return whelp('--kernel', libvm.kernel(kernel), '--initrd', libvm.image(kernel), '--cpus', 2, '--cmdline',
                     f'console=ttyS0 guest.net={nets} {cmdline}', *options, host=host, serial=True).wait_ready()
    return start


def netperf(host, test, *more):
    """Mbit/s of a stream, transactions per second of a request/response test: the number of netperf's output."""
    output = host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.2.2 -t {test} -l 2 {" ".join(more)}').stdout
    fields = output.split()
    return float(fields[-1] if 'RR' not in test else output.splitlines()[0].split()[-1])


def faults(host, machine):
    """Errors that either end counted, and what the guest dropped."""
    names = ('rx_errors', 'tx_errors', 'tx_dropped', 'rx_crc_errors', 'rx_frame_errors', 'rx_fifo_errors')
    bad = {f'host {name}': host.counter('tap0', name) for name in names}
    values = machine.run('cd /sys/class/net/eth0/statistics; cat ' + ' '.join(names)).split()
    bad.update({f'guest {name}': int(value) for name, value in zip(names, values)})
    return {name: value for name, value in bad.items() if value}


def stats(machine, path):
    """The first NIC's counters."""
    return machine.counters(path)[0]


def test_traffic(start, host, tmp_path):
    host.tap()
    path = tmp_path / 'stats'
    machine = start('--net', f'tap=tap0,mac={MAC}', '--stats', path)

    assert machine.run('cat /sys/class/net/eth0/address') == MAC
    assert machine.run('basename $(readlink /sys/class/net/eth0/device/driver)') == 'virtio_net'
    features = machine.run('ethtool -k eth0')
    for feature in ('rx-checksumming', 'tx-checksumming', 'tcp-segmentation-offload', 'tx-tcp-segmentation',
                    'tx-tcp6-segmentation', 'tx-tcp-ecn-segmentation'):
        assert re.search(rf'{feature}: on', features), features

    # A flood, with some dozens of packets on their way at any time, loses nothing; every packet is counted.
    before = stats(machine, path)
    host.ping(f'-f -l 64 -c {FLOOD}', timeout=400)
    after = stats(machine, path)
    moved = {way: {name: value - before[way][name] for name, value in after[way].items() if isinstance(value, int)}
             for way in ('rx', 'tx')}
    for way in ('rx', 'tx'):
        assert FLOOD <= moved[way]['packets'] <= FLOOD + 20, moved
        assert moved[way]['dropped'] == 0, moved
        assert 98 * FLOOD <= moved[way]['bytes'] <= 120 * FLOOD, moved
        assert 0 < moved[way]['interrupts'] <= moved[way]['packets'] + 20, moved
        assert moved[way]['kicks'] <= moved[way]['packets'] + 20, moved
        assert 0 < moved[way]['batches'] <= moved[way]['packets'], moved

    assert netperf(host, 'TCP_STREAM') > 1
    assert netperf(host, 'TCP_MAERTS') > 1
    assert netperf(host, 'TCP_RR') > 1
    # Large frames went through whole: on average more than an MTU fits.
    large = stats(machine, path)
    for way in ('rx', 'tx'):
        assert large[way]['bytes'] - after[way]['bytes'] > 2 * (large[way]['packets'] - after[way]['packets']), large
    assert faults(host, machine) == {}
    assert machine.dmesg_faults() == []
    machine.poweroff()
    final = json.loads(path.read_text())
    assert final['machine'].startswith('whelp-') and final['nics'][0]['backend'] == 'tap0', final
    assert machine.errors.count('\n') == 1, machine.errors


def test_link_and_driver(start, host):
    """H23, G1: the interface goes down and up under traffic; the driver leaves and comes back."""
    host.tap()
    machine = start('--net', 'tap=tap0')
    host.ping('-c 100 -i 0.005')
    for _ in range(3):
        machine.run('ip link set eth0 down', timeout=30)
        lost = host.run('ping -q -c 3 -i 0.2 -W 1 192.0.2.2', check=False)
        assert '0 received' in lost.stdout, lost.stdout
        machine.run('ip link set eth0 up')
        ping_again(host)
    # The host's end, too: frames are dropped, and the guest does not care.
    host.run('ip link set tap0 down')
    assert machine.run('ping -q -c 3 -i 0.2 -W 1 192.0.2.1', check=False)
    host.run('ip link set tap0 up')
    ping_again(host)

    machine.run('readlink /sys/class/net/eth0/device >/tmp/device')
    for _ in range(10):
        machine.run('cd /sys/bus/virtio/drivers/virtio_net; d=$(basename $(cat /tmp/device)); '
                    'echo $d >unbind && echo $d >bind && ip addr add 192.0.2.2/24 dev eth0 && ip link set eth0 up')
        ping_again(host)
    machine.run('cd /sys/bus/pci/drivers/virtio-pci; d=0000:00:01.0; echo $d >unbind && echo $d >bind && '
                'ip addr add 192.0.2.2/24 dev eth0 && ip link set eth0 up')
    ping_again(host)
    assert machine.dmesg_faults() == []
    machine.poweroff()
    # That the tap was down is worth a line or some, but not one for each frame.
    lines = machine.errors.splitlines()
    assert all('sending to tap0: Input/output error' in line for line in lines[:-1]) and len(lines) < 20, lines


def ping_again(host):
    """The first may have to wait for the address to be found again; none is lost after it."""
    host.run('ping -q -c 1 -W 20 192.0.2.2')
    host.ping('-c 10 -i 0.01')


def test_h11_several_with_mtus(start, host):
    """Each --net is a NIC of its own, in their order, with its MTU, which is the longest frame both ways."""
    mtus = {'tap0': 68, 'tap1': 1500, 'tap2': 9000, 'tap3': 65521, 'tap4': None}
    options, nets = [], []
    for number, (tap, mtu) in enumerate(mtus.items()):
        host.tap(tap, address=f'192.0.{number}.1/24', mtu=mtu)
        options += ['--net', f'tap={tap},mac=52:54:00:00:00:0{number}' + (f',mtu={mtu}' if mtu else '')]
        nets.append(f'eth{number}:192.0.{number}.2/24')
    machine = start(*options, nets=','.join(nets))
    for number, mtu in enumerate(mtus.values()):
        assert machine.run(f'cd /sys/class/net/eth{number}; cat mtu address') == \
            f'{mtu or 1500}\n52:54:00:00:00:0{number}'
        size = (mtu or 1500) - 28
        host.ping(f'-c 3 -i 0.05 -M do -s {size}', address=f'192.0.{number}.2')
        machine.run(f'ping -q -c 1 -W 20 -M do -s {size} 192.0.{number}.1')
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors
