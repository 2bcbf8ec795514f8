# SPDX-License-Identifier: GPL-2.0-or-later
"""DPDK's virtio driver in the guest (testpmd): split and packed rings, each of the driver's ways to receive and send.

One guest has a NIC for each case. testpmd takes them in turn, by uio_pci_generic, and sends back what the host sends;
then Linux's driver gets the NIC back, and must find it as new.
"""

import os
import re
import time
from dataclasses import dataclass

import pytest
from test_features import BITS

import libvm

IMAGE = libvm.BUILD / 'guests/cloud-dpdk.cpio'
COUNT = 20000 if 'WHELP_LONG' in os.environ else 2000
SEED = os.environ.get('WHELP_SEED') or str(time.time_ns() % 1000000)
START = 120


@dataclass
class Case:
    net: str  # the NIC's features
    receive: str  # what the driver says that it uses
    send: str
    vectorized: bool = False
    queues: int = 1
    mtu: int = 1500
    generate: bool = False  # txonly, too
    long: bool = False  # only with WHELP_LONG


SPLIT = [
    Case('', 'mergeable buffer Rx', 'standard Tx', mtu=9000, generate=True),
    Case('-mrg_rxbuf', 'standard Rx', 'standard Tx', long=True),
    Case('-mrg_rxbuf', 'vectorized Rx', 'standard Tx', vectorized=True),
    Case('+in_order', 'inorder Rx', 'inorder Tx', mtu=9000),
    Case('+in_order,-mrg_rxbuf', 'inorder Rx', 'inorder Tx', long=True),
    Case('+notification_data,+order_platform', 'mergeable buffer Rx', 'standard Tx', queues=2),
]
# DPDK marks the header in an indirect table of a packed ring as writable: frames of several segments do without.
PACKED = [
    Case('+ring_packed,-indirect_desc', 'packed ring mergeable buffer Rx', 'packed ring standard Tx', mtu=9000,
         generate=True),
    Case('+ring_packed,-mrg_rxbuf', 'packed ring standard Rx', 'packed ring standard Tx', long=True),
    Case('+ring_packed,+in_order,-mrg_rxbuf', 'packed ring vectorized Rx', 'packed ring vectorized Tx',
         vectorized=True),
    Case('+ring_packed,+in_order,-indirect_desc', 'packed ring mergeable buffer Rx', 'packed ring standard Tx',
         mtu=9000),
    Case('+ring_packed,+in_order,-mrg_rxbuf', 'packed ring standard Rx', 'packed ring standard Tx', long=True),
    Case('+ring_packed,+notification_data,+order_platform,ring=512', 'packed ring mergeable buffer Rx',
         'packed ring standard Tx', queues=2),
]


class Guest:
    """A machine with a NIC for each case; the commands that move them between drivers."""

    def __init__(self, whelp, host, cases, path):
        self.host, self.path = host, path
        options, nets = [], []
        for number, case in enumerate(cases):
            host.tap(f'tap{number}', f'192.0.{number}.1/24', mtu=case.mtu,
                     options='multi_queue' if case.queues > 1 else '')
            keys = [f'tap=tap{number}', f'mac={self.mac(number)}', f'queues={case.queues}', f'mtu={case.mtu}']
            options += ['--net', ','.join(filter(None, [*keys, case.net]))]
            nets.append(f'eth{number}:192.0.{number}.2/24')
        self.machine = whelp(
            '--kernel', libvm.kernel('cloud'), '--initrd', IMAGE, '--cpus', 2, '--memory', '512M', '--stats', path,
            '--cmdline', f'console=ttyS0 hugepages=64 guest.shell=0 guest.net={",".join(nets)}', *options,
            host=host, serial=True).wait_ready()
        self.machine.run('modprobe uio_pci_generic && mkfifo /tmp/in')

    @staticmethod
    def mac(number):
        return f'52:54:00:00:00:{number:02x}'

    @staticmethod
    def slot(number):
        return f'0000:00:{number + 1:02x}.0'

    def bind(self, number, driver):
        """The only driver that may have the NIC from now on; '': as the kernel likes."""
        slot = self.slot(number)
        self.machine.run(f'cd /sys/bus/pci/devices/{slot} && echo {slot} >driver/unbind && echo "{driver}" '
                         f'>driver_override && echo {slot} >/sys/bus/pci/drivers_probe && readlink driver')

    def testpmd(self, number, case, mode, meanwhile):
        """Runs testpmd, calls meanwhile() when it forwards, and stops it. All that it wrote.

        It writes to the console, for what it writes to a file or pipe is kept back in its memory.
        """
        marker = f'testpmd-{number}-{mode}'
        vectorized = ',vectorized=1 --force-max-simd-bitwidth=512' if case.vectorized else ''
        ports = '--max-pkt-len=9018 --rx-offloads=0x2000 --tx-offloads=0x8000' if case.mtu > 1500 else ''
        self.machine.run(
            f'(echo {marker}; dpdk-testpmd -l 0-1 --in-memory --no-telemetry --log-level=pmd.net.virtio.*:debug '
            f'-a {self.slot(number)}{vectorized} -- --total-num-mbufs=4096 '
            f'--forward-mode={mode} --rxq={case.queues} --txq={case.queues} {ports} <>/tmp/in; '
            f'echo {marker}-status $?) >/dev/ttyS0 2>&1 &')
        self.machine.wait_console(rf'(?s){marker}\s.*(Press enter to exit|{marker}-status)', START)
        assert f'{marker}-status' not in self.machine.console, self.machine.console
        meanwhile()
        self.machine.run('echo 1<>/tmp/in')
        # The whole line: the console is read while it is written.
        self.machine.wait_console(rf'{marker}-status \d+\s', START)
        output, status = re.search(rf'(?s){marker}\s(.*){marker}-status (\d+)', self.machine.console).groups()
        assert status == '0', output[-4000:]
        return output.replace('\r', '')

    def stats(self, number):
        """The NIC's counters."""
        return self.machine.counters(self.path)[number]

    def back_to_linux(self, number):
        self.bind(number, '')
        self.machine.run(f'ip addr add 192.0.{number}.2/24 dev eth{number} && ip link set eth{number} up')
        self.host.run(f'ping -q -c 1 -W 20 192.0.{number}.2')
        self.host.ping('-c 20 -i 0.01', address=f'192.0.{number}.2')


def moved(after, before):
    return [(b['rx']['packets'] - a['rx']['packets'], b['tx']['packets'] - a['tx']['packets'])
            for a, b in zip(before['pairs'], after['pairs'])]


def counted(output):
    """What testpmd says that it received and sent."""
    found = re.search(r'(?s)Forward statistics for port 0 .*?RX-packets: (\d+) .*?TX-packets: (\d+) ', output)
    return int(found[1]), int(found[2])


def wished(case):
    return {'version_1', 'mac', 'status', *re.findall(r'\+(\w+)', case.net)} | ({'mq'} if case.queues > 1 else set())


def macswap(guest, number, case):
    """What is sent comes back; and the driver, the device and the tap counted the same."""
    before = guest.stats(number)
    flows = 16 if case.queues > 1 else 1
    output = guest.testpmd(number, case, 'macswap', lambda: guest.host.run(
        f'/usr/bin/python3 {libvm.ROOT}/tests/vm/bounce.py tap{number} {guest.mac(number)} {COUNT} {flows} '
        f'{case.mtu + 14} {SEED}', timeout=600))
    pairs = moved(guest.stats(number), before)
    receive, send = case.receive, case.send
    if 'packed ring vectorized' in receive and 'avx512f' not in guest.machine.run('grep -m 1 flags /proc/cpuinfo'):
        assert 'disabled packed ring vectorized path for requirements not met' in output
        receive, send = receive.replace('vectorized', 'standard'), send.replace('vectorized', 'standard')
    taken = int(re.search(r'features after negotiate = ([0-9a-f]+)', output)[1], 16)
    for feature in wished(case):
        assert taken >> BITS[feature] & 1, (feature, output)
    for feature in re.findall(r'-(\w+)', case.net):
        assert not taken >> BITS[feature] & 1, (feature, output)
    assert f'using {receive} path' in output and f'using {send} path' in output, output
    assert counted(output) == (COUNT, COUNT), output
    assert sum(rx for rx, _ in pairs) == COUNT == sum(tx for _, tx in pairs), pairs
    assert all(rx == tx > 0 for rx, tx in pairs), pairs


def txonly(guest, number, case):
    """As fast as it can. A reset may find the last of a ring not yet sent."""
    before, tap = guest.stats(number), guest.host.counter(f'tap{number}', 'rx_packets')

    def meanwhile():
        deadline = time.monotonic() + 60
        while guest.host.counter(f'tap{number}', 'rx_packets') - tap < 5 * COUNT:
            assert time.monotonic() < deadline, 'too few frames'
            time.sleep(0.05)

    output = guest.testpmd(number, case, 'txonly', meanwhile)
    sent = counted(output)[1]
    (_, device), = moved(guest.stats(number), before)
    assert device == guest.host.counter(f'tap{number}', 'rx_packets') - tap
    assert sent - 256 <= device <= sent, output


def lose_link(guest, number, case):
    """The tap goes for good. testpmd hears of it by INTx, which its driver masks by the command register's bit."""
    def meanwhile():
        guest.host.run(f'ip link del tap{number}')
        guest.machine.wait_console('Port 0: link state change event')

    guest.testpmd(number, case, 'rxonly', meanwhile)


@pytest.mark.parametrize('cases', [SPLIT, PACKED], ids=['split', 'packed'])
def test_dpdk(whelp, host, tmp_path, cases):
    cases = [case for case in cases if not case.long or 'WHELP_LONG' in os.environ]
    print(f'WHELP_SEED={SEED}')
    assert IMAGE.exists(), f'{IMAGE} is missing; tools/check dpdk makes it'
    guest = Guest(whelp, host, cases, tmp_path / 'stats')
    for number, case in enumerate(cases):
        print(case)
        guest.bind(number, 'uio_pci_generic')
        macswap(guest, number, case)
        if case.generate:
            txonly(guest, number, case)
        guest.back_to_linux(number)
    assert guest.machine.errors == ''
    guest.bind(number, 'uio_pci_generic')
    lose_link(guest, number, case)
    assert guest.machine.dmesg_faults() == []
    guest.machine.poweroff()
    *lines, last = guest.machine.errors.splitlines()
    assert 'powered off' in last and all(f'net{number}: tap{number} ' in line for line in lines), lines
