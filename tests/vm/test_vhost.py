# SPDX-License-Identifier: GPL-2.0-or-later
"""vhost=on: the kernel's vhost-net behind the NIC, under whatever its guest and its host do to it."""

import json
import os
import pathlib
import re
import struct
import time

import libvm
import micro as m
import pytest
from libvm import one_line
from test_driver import exchange, finish, rings, switches
from test_features import driver_faults, taken
from test_refusals import call

HOST, GUEST = '192.0.2.1', '192.0.2.2'

# What whelp's own workers do and vhost-net does not.
WORKERS_ONLY = {'ctrl_rx', 'ctrl_vlan', 'ctrl_rx_extra', 'device_stats', 'vq_notf_coal', 'notf_coal', 'hash_report',
                'notification_data', 'ring_packed'}


@pytest.fixture
def start(whelp, host, tmp_path):
    def start(*options, name='cloud', net='', cmdline=''):
        return whelp('--kernel', libvm.kernel(name), '--initrd', libvm.image(name), '--cpus', 2, '--memory', '512M',
                     '--cmdline', f'console=ttyS0 guest.net=eth0:{GUEST}/24 {cmdline}', '--net',
                     f'tap=tap0,vhost=on{net}', '--stats', tmp_path / 'stats', *options, host=host,
                     serial=True).wait_ready()
    return start


def relay(machine):
    """How often the thread has slept that passes on what KVM does not: once a second it looks after the tap."""
    tasks = [task for task in pathlib.Path(f'/proc/{machine.pid}/task').iterdir()
             if 'relay' in (task / 'comm').read_text()]
    assert len(tasks) == 1, machine.threads()
    return int(re.search(r'^voluntary_ctxt_switches:\s+(\d+)', (tasks[0] / 'status').read_text(), re.M)[1])


def interrupts(machine):
    """How many each CPU has taken of the NIC's queues, or of the NIC."""
    counts = [0, 0]
    for line in machine.run('cat /proc/interrupts').splitlines():
        if re.search(r'virtio0(-(in|out)put|$)', line):
            counts = [count + int(number) for count, number in zip(counts, line.split()[1:3])]
    return counts


def netperf(host, *tests):
    for test in tests:
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {GUEST} -t {test} -l 1')


def alive(host):
    """Answers come again. Besides a flood a single one may get lost: ping's socket gets the flood's answers, too."""
    host.run(f'ping -q -c 5 -i 0.1 -w 40 {GUEST}')


@pytest.mark.parametrize('name', ['cloud', 'unstable'] if 'WHELP_LONG' in os.environ else ['cloud'])
def test_traffic(start, host, tmp_path, name):
    """Both ways and with large frames; and while all goes well no interrupt comes through whelp."""
    host.tap(options='multi_queue')
    machine = start(name=name, net=',queues=2')
    features = taken(machine)
    assert not features & WORKERS_ONLY, features
    assert {'mq', 'mrg_rxbuf', 'event_idx', 'indirect_desc', 'ring_reset', 'ctrl_mac_addr',
            'ctrl_guest_offloads'} <= features, features
    slept, raised, since = relay(machine), interrupts(machine), time.monotonic()
    host.ping('-f -l 64 -c 3000', timeout=300)
    netperf(host, 'TCP_STREAM', 'TCP_MAERTS', 'TCP_CRR')
    exchange(host)
    assert sum(interrupts(machine)) - sum(raised) > 200
    assert relay(machine) - slept < 2 * (time.monotonic() - since) + 20

    # They move all the time, which masks their vectors and passes through the relay: no frame is lost.
    machine.run(libvm.MOVE_INTERRUPTS)
    host.ping('-f -l 16 -c 3000', timeout=300)
    netperf(host, 'TCP_STREAM', 'TCP_MAERTS')
    machine.run('kill $(cat /tmp/mover)')
    assert int(machine.run('wc -l </tmp/moves')) > 50
    assert min(interrupts(machine)) > 100
    host.ping('-c 50 -i 0.01')

    nic = machine.counters(tmp_path / 'stats')[0]
    assert nic['vhost'] is True and nic['rx'] is None and nic['tx'] is None and nic['pairs'] is None, nic
    finish(machine)


def test_settings(start, host):
    """Pairs in use, sizes of rings and offloads change under traffic; and RSS, which is the tap's to do."""
    host.tap(options='multi_queue')
    machine = start(net=',queues=2,+rss')
    with host.background(f'ping -q -i 0.01 {GUEST}'):
        for count in (2, 1, 2):
            machine.run(f'ethtool -L eth0 combined {count}')
            host.ping('-f -l 8 -c 200')
            netperf(host, 'TCP_CRR')
        for rx, tx in ((64, 128), (32, 256), (256, 256)):
            machine.run(f'ethtool -G eth0 rx {rx} tx {tx}')
            assert rings(machine) == [rx, tx]
            host.ping('-f -l 8 -c 200')
    # All on one pair, and on the other: its interrupts tell.
    for weights, queue in (('1 0', 0), ('0 1', 1)):
        machine.run(f'ethtool -X eth0 weight {weights}')
        count = f"awk '/virtio0-input.{queue}/ {{ print $2 + $3 }}' /proc/interrupts"
        before = int(machine.run(count))
        host.ping('-c 50 -i 0.01')
        assert int(machine.run(count)) - before >= 50, weights
    # Offloads all off, and as they were.
    before = switches(machine)
    on = [feature for feature, state in before.items() if state == 'on']
    with host.background(f'ping -q -i 0.01 {GUEST}'):
        for way in ('off', 'on'):
            machine.run('ethtool -K eth0 ' + ' '.join(f'{feature} {way}' for feature in on))
            assert ('on' in switches(machine).values()) == (way == 'on')
            exchange(host)
            netperf(host, 'TCP_STREAM')
    assert switches(machine) == before
    finish(machine)


def test_upsets(start, host, tmp_path):
    """The driver leaves and comes back, the guest reboots, and the tap goes away, each in a flood of both sides."""
    host.tap()
    machine = start()
    with host.background(f'ping -q -f -s 1000 {GUEST}'):
        machine.run(f'/usr/bin/ping -q -f -s 500 {HOST} >/dev/null 2>&1 &')
        machine.run('readlink /sys/class/net/eth0/device >/tmp/device')
        for _ in range(3):
            machine.run('cd /sys/bus/virtio/drivers/virtio_net; d=$(basename $(cat /tmp/device)); echo $d >unbind && '
                        f'echo $d >bind && ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up')
            alive(host)
        machine.channel.post('reboot -f')
        machine.channel.close()
        machine.wait_ready()
        alive(host)
        host.run('ip link del tap0')
        deadline = time.monotonic() + libvm.PROMPT
        while 'tap0 is gone' not in machine.errors:
            assert time.monotonic() < deadline, machine.errors
            time.sleep(0.05)
    assert machine.run('cat /sys/class/net/eth0/carrier') == '0'
    assert driver_faults(machine) == []
    machine.poweroff()
    assert json.loads((tmp_path / 'stats').read_text())['nics'][0]['vhost'] is True


def test_plain(start, host):
    """With INTx, kicks by I/O ports, and neither mergeable buffers nor event indices."""
    host.tap()
    machine = start(net=',notify=pio,-mrg_rxbuf,-event_idx,ring=128', cmdline='pci=nomsi')
    slept = relay(machine)
    host.ping('-f -l 16 -c 1000', timeout=300)
    netperf(host, 'TCP_STREAM', 'TCP_MAERTS')
    exchange(host)
    # Every interrupt has come through whelp.
    assert relay(machine) - slept > 300
    finish(machine)


class Registers:
    """The NIC's registers, by the window in its configuration space: all that the guest needs is dd."""

    COMMON, NOTIFY, WINDOW = 1, 2, 5

    def __init__(self, machine):
        self.machine, self.path = machine, '/sys/bus/pci/devices/0000:00:01.0/config'
        self.config = bytes.fromhex(machine.run(f"od -An -tx1 -v {self.path} | tr -d ' \n'"))
        at = self.config[0x34]
        self.blocks = {}
        while at:
            if self.config[at] == 9:
                self.blocks[self.config[at + 3]] = at
            at = self.config[at + 1]
        self.window = self.blocks[self.WINDOW]

    def point(self, block, offset, size):
        block = self.blocks[block]
        base = int.from_bytes(self.config[block + 8:block + 12], 'little')
        self.put(self.window + 4, self.config[block + 4:block + 5])
        self.put(self.window + 8, struct.pack('<II', base + offset, size))

    def put(self, at, data):
        text = ''.join(f'\\{byte:03o}' for byte in data)
        self.machine.run(f"printf '{text}' | dd of={self.path} bs={len(data)} count=1 seek={at} oflag=seek_bytes")

    def write(self, block, offset, value, size):
        self.point(block, offset, size)
        self.put(self.window + 16, value.to_bytes(size, 'little'))

    def read(self, block, offset, size):
        self.point(block, offset, size)
        return int(self.machine.run(f'od -An -j {self.window + 16} -N {size} -tu{size} {self.path}'))


def memory_at(machine, gpa):
    """Where that is in whelp: RAM is the one mapping of its size."""
    for line in pathlib.Path(f'/proc/{machine.pid}/maps').read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split('-'))
        if end - start == 512 << 20:
            return start + gpa
    raise AssertionError('no guest memory')


def test_bad_ring(start, host):
    """The guest makes more buffers available than the ring has places: the device needs a reset, which helps."""
    host.tap()
    machine = start()
    registers = Registers(machine)
    registers.write(registers.COMMON, 0x16, 1, 2)
    available = registers.read(registers.COMMON, 0x28, 4) | registers.read(registers.COMMON, 0x2c, 4) << 32
    with open(f'/proc/{machine.pid}/mem', 'r+b', buffering=0) as memory:
        memory.seek(memory_at(machine, available) + 2)
        index = struct.unpack('<H', memory.read(2))[0]
        memory.seek(memory_at(machine, available) + 2)
        memory.write(struct.pack('<H', (index + 0x4000) & 0xffff))
    # It is found at the next kick, if the driver does not put it right before.
    registers.write(registers.NOTIFY, 4, 1, 2)
    deadline = time.monotonic() + libvm.PROMPT
    while 'queue 1: the guest' not in machine.errors:
        assert time.monotonic() < deadline, machine.errors
        time.sleep(0.05)
    assert registers.read(registers.COMMON, 0x14, 1) & 0x40
    machine.run('cd /sys/bus/virtio/drivers/virtio_net; echo virtio0 >unbind && echo virtio0 >bind && '
                f'ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up')
    alive(host)
    host.ping('-f -l 8 -c 500')
    machine.poweroff()
    assert machine.errors.count('\n') == 2, machine.errors


def test_refusals(micro, host):
    """What vhost-net cannot do and was asked for by name."""
    kernel = micro(m.POWEROFF)
    host.tap()
    for name in sorted(WORKERS_ONLY):
        result = call(host.command([libvm.WHELP, 'run', '--kernel', kernel, '--net', f'tap=tap0,vhost=on,+{name}']))
        one_line(result, 1, f'+{name}', 'vhost=on', 'workers')
    # It is there all the same if it was not asked for by name.
    result = call(host.command([libvm.WHELP, 'run', '--kernel', kernel, '--net', 'tap=tap0,vhost=on,features=all']))
    assert result.returncode == 0, result
