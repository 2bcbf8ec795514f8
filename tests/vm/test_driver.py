# SPDX-License-Identifier: GPL-2.0-or-later
"""What ethtool and ip can ask of Linux's own driver, in kernels of three ages: it is done, and read back."""

import collections
import contextlib
import os
import pathlib
import re
import socket
import struct
import subprocess
import time

import libvm
import pytest
from test_features import driver_faults
from test_network import stats

KERNELS = ['cloud', 'backports', 'unstable']
HOST, GUEST, MAC = '192.0.2.1', '192.0.2.2', '52:54:00:12:34:56'


@pytest.fixture
def start(whelp, host):
    def start(name, net, *options, initrd=None):
        return whelp('--kernel', libvm.kernel(name), '--initrd', initrd or libvm.image(name), '--cpus', 2, '--memory',
                     '512M', '--cmdline', f'console=ttyS0 guest.net=eth0:{GUEST}/24', '--net',
                     f'tap=tap0,mac={MAC},{net}', *options, host=host, serial=True).wait_ready()
    return start


def refused(machine, command):
    return machine.channel.run(command, check=False).status != 0


def wait_for(condition, what):
    deadline = time.monotonic() + libvm.PROMPT
    while not condition():
        assert time.monotonic() < deadline, f'no {what()}'


def exchange(host, *tests):
    """A few large requests and responses: they arrive with the right checksums, or never."""
    for test in tests or ('TCP_RR', 'UDP_RR'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {GUEST} -t {test} -l -10 -- -r 9000,9000')


def finish(machine, lines=1):
    assert driver_faults(machine) == []
    machine.poweroff()
    assert machine.errors.count('\n') == lines, machine.errors


# ---- RSS, and interrupts merged by queue ----

FLOWS = range(20000, 20048)


def toeplitz(key, data):
    key_bits, result = int.from_bytes(key, 'big'), 0
    for place in range(8 * len(data)):
        if data[place // 8] & 0x80 >> place % 8:
            result ^= key_bits >> (8 * len(key) - 32 - place) & 0xffffffff
    return result


def steering(machine):
    """The key and the table, as the driver tells them."""
    text = machine.run('ethtool -x eth0')
    table = [int(queue) for line in re.findall(r'^ *\d+: +(.*)$', text, re.M) for queue in line.split()]
    key = bytes.fromhex(re.search(r'hash key:\s+([0-9a-f:]+)', text)[1].replace(':', ''))
    assert table and len(table) & len(table) - 1 == 0 and len(key) == 40, text
    return key, table


def received(machine):
    """What each queue has received, by the guest's statistics."""
    found = collections.Counter()
    for names in re.finditer(r'rx(?:_queue_)?(\d+)(?:_hw)?_packets: (\d+)', machine.run('ethtool -S eth0')):
        found[int(names[1])] = int(names[2])
    assert found
    return found


def send(host, kind, ports):
    """One frame of each flow: a datagram, or a SYN to a port where nobody listens. That one the guest must answer."""
    body = {'udp': f's.sendto(bytes(32), ("{GUEST}", 9))',
            'tcp': f's.settimeout(20); assert s.connect_ex(("{GUEST}", 9)) == errno.ECONNREFUSED, port'}[kind]
    code = (f'import errno, socket\nfor port in range({ports.start}, {ports.stop}):\n'
            f' s = socket.socket(socket.AF_INET, socket.{"SOCK_DGRAM" if kind == "udp" else "SOCK_STREAM"})\n'
            f' s.bind(("{HOST}", port)); {body}\n')
    host.run(f"/usr/bin/python3 -c '{code}'", shell=True)


def keys(machine):
    """What the device may have been told is the key. Linux 6.12.95 sends its own one byte late: its structure has a hole."""
    key = steering(machine)[0]
    return [key, bytes(1) + key[:-1]] if machine.run('uname -r').startswith('6.12.') else [key]


def foretold(key, table, with_ports):
    """How many flows each queue gets."""
    queues = collections.Counter()
    for port in FLOWS:
        data = socket.inet_aton(HOST) + socket.inet_aton(GUEST) + (struct.pack('>HH', port, 9) if with_ports else b'')
        queues[table[toeplitz(key, data) % len(table)]] += 1
    return queues


def check_flows(host, machine, kind='udp', with_ports=True):
    """Sends flows, and that each arrives on the queue that its hash says. The queues."""
    table = steering(machine)[1]
    expected = [foretold(key, table, with_ports) for key in keys(machine)]
    before = received(machine)
    send(host, kind, FLOWS)
    got = collections.Counter()

    def arrived():
        got.clear()
        got.update(received(machine) - before)
        return sum(got.values()) >= len(FLOWS)
    wait_for(arrived, lambda: got)
    assert got in expected, (got, expected, table)
    return set(got)


@pytest.mark.parametrize('name', KERNELS)
def test_steering(start, host, name, tmp_path):
    """RSS as it is set with ethtool -X and -N; with all on one pair, that pair's coalescing is what is seen."""
    host.tap(options='multi_queue')
    machine = start(name, 'queues=4,+rss,+hash_report', '--stats', tmp_path / 'stats')
    # No address is asked for while frames are counted.
    tap_address = host.run('cat /sys/class/net/tap0/address').stdout.strip()
    machine.run(f'ip neigh replace {HOST} lladdr {tap_address} dev eth0 nud permanent')
    host.run(f'ip neigh replace {GUEST} lladdr {MAC} dev tap0 nud permanent')
    machine.run('ethtool -L eth0 combined 4; ethtool -X eth0 equal 4')
    assert steering(machine)[1] == [0, 1, 2, 3] * (len(steering(machine)[1]) // 4)
    # The driver's own key is of chance, and may tell few of so similar flows apart.
    check_flows(host, machine)
    check_flows(host, machine, 'tcp')

    # The key, the table, and both in use.
    key = bytes(range(1, 41))
    machine.run(f'ethtool -X eth0 equal 4 hkey {key.hex(":")}')
    assert steering(machine)[0] == key
    assert check_flows(host, machine) == {0, 1, 2, 3}
    assert check_flows(host, machine, 'tcp') == {0, 1, 2, 3}
    machine.run('ethtool -X eth0 weight 1 0 0 3')
    table = steering(machine)[1]
    assert table.count(0) * 3 == table.count(3) and set(table) == {0, 3}
    assert check_flows(host, machine) == {0, 3}
    machine.run('ethtool -X eth0 equal 4')
    # Fewer channels than the table names are refused.
    assert refused(machine, 'ethtool -L eth0 combined 2')

    # Hash types: UDP by addresses alone is one flow for the hash, and TCP stays.
    machine.run('ethtool -K eth0 rxhash on')
    machine.run('ethtool -N eth0 rx-flow-hash udp4 sd')
    assert 'L4' not in machine.run('ethtool -n eth0 rx-flow-hash udp4')
    assert len(check_flows(host, machine, with_ports=False)) == 1
    assert len(check_flows(host, machine, 'tcp')) > 1
    machine.run('ethtool -N eth0 rx-flow-hash udp4 sdfn')
    assert 'L4' in machine.run('ethtool -n eth0 rx-flow-hash udp4')
    assert len(check_flows(host, machine)) > 1

    # What one pair receives is answered on any: none may be out of use since the table does not name it.
    machine.run('ethtool -X eth0 weight 0 1 0 0')
    assert check_flows(host, machine, 'tcp') == {1}
    check_coalescing(host, machine, per_queue=name != 'cloud')
    counted = machine.counters(tmp_path / 'stats')[0]
    assert counted['rx']['dropped'] == counted['tx']['dropped'] == 0, counted
    finish(machine)


SLOW = 300  # ms


def fastest(host):
    """The least that a ping took, of some that came one after the other."""
    return min(float(re.search(r'= ([\d.]+)/', host.ping('-c 1'))[1]) for _ in range(3))


def coalescing(text):
    return re.findall(r'([rt]x-(?:usecs|frames)): (\d+)', text)


def check_coalescing(host, machine, per_queue):
    """With all flows on pair 1."""
    wanted = [('rx-usecs', f'{SLOW * 1000}'), ('rx-frames', '64'), ('tx-usecs', '50'), ('tx-frames', '16')]
    usual = fastest(host)
    machine.run('ethtool -C eth0 ' + ' '.join(' '.join(pair) for pair in wanted))
    assert coalescing(machine.run('ethtool -c eth0')) == wanted
    assert fastest(host) >= SLOW * 0.9 > usual
    machine.run('ethtool -C eth0 rx-usecs 0 rx-frames 0')
    assert fastest(host) < SLOW * 0.9
    if not per_queue:
        assert refused(machine, 'ethtool -Q eth0 queue_mask 2 --coalesce rx-usecs 50')
        return
    # Queue 1 alone; all flows on it, and then elsewhere.
    machine.run(f'ethtool -Q eth0 queue_mask 2 --coalesce rx-usecs {SLOW * 1000} rx-frames 64')
    shown = machine.run('ethtool -Q eth0 queue_mask 3 --show-coalesce').split('Queue: ')
    assert ('rx-usecs', '0') in coalescing(shown[1]) and wanted[0] in coalescing(shown[2]), shown
    assert fastest(host) >= SLOW * 0.9
    machine.run('ethtool -X eth0 weight 1 0 0 0')
    assert fastest(host) < SLOW * 0.9


# ---- channels, rings, offloads, statistics ----

def channels(machine):
    return int(re.search(r'Current.*Combined:\s+(\d+)', machine.run('ethtool -l eth0'), re.S)[1])


def rings(machine):
    return [int(size) for size in re.findall(r'^[RT]X:\s+(\d+)', machine.run('ethtool -g eth0').split('Current')[1],
                                             re.M)]


def switches(machine):
    """Every feature that can be switched by itself, and whether it is on."""
    groups = ('tx-checksumming', 'scatter-gather', 'tcp-segmentation-offload')
    found = re.findall(r'^\s*([\w-]+): (on|off)( \[.*\])?$', machine.run('ethtool -k eth0'), re.M)
    return {name: state for name, state, note in found if 'fixed' not in note and name not in groups}


@pytest.mark.parametrize('name', KERNELS)
def test_settings(start, host, name, tmp_path):
    host.tap(options='multi_queue')
    path = tmp_path / 'stats'
    machine = start(name, 'queues=4', '--stats', path)

    with host.background(f'ping -q -i 0.01 {GUEST}'):
        for count in (4, 3, 1, 2):
            machine.run(f'ethtool -L eth0 combined {count}')
            assert channels(machine) == count
            host.ping('-f -l 8 -c 100')
        assert refused(machine, 'ethtool -L eth0 combined 0')
        assert refused(machine, 'ethtool -L eth0 combined 5')
        for rx, tx in ((64, 128), (256, 32), (32, 64), (256, 256)):
            machine.run(f'ethtool -G eth0 rx {rx} tx {tx}')
            assert rings(machine) == [rx, tx]
            host.ping('-f -l 8 -c 100')
        assert refused(machine, 'ethtool -G eth0 rx 512')
    exchange(host)

    # One by one to the other side and back; then all of them.
    before = switches(machine)
    assert len(before) > 8, before
    for feature, state in before.items():
        other = {'on': 'off', 'off': 'on'}[state]
        machine.run(f'ethtool -K eth0 {feature} {other}')
        assert switches(machine)[feature] == other
        exchange(host, 'TCP_RR')
        machine.run(f'ethtool -K eth0 {feature} {state}')
    assert switches(machine) == before
    on = [feature for feature, state in before.items() if state == 'on']
    machine.run('ethtool -K eth0 ' + ' '.join(f'{feature} off' for feature in on))
    assert 'on' not in switches(machine).values()
    exchange(host)
    machine.run('ethtool -K eth0 ' + ' '.join(f'{feature} on' for feature in on))
    assert switches(machine) == before
    exchange(host)

    # The driver's statistics, its own and the device's, and the device's own count go up by the same.
    def counts():
        text = machine.run('ethtool -S eth0')
        own = {kind: sum(int(n) for n in re.findall(rf'{kind}(?:_queue_)?\d+(?:_hw)?_packets: (\d+)', text))
               for kind in ('rx', 'tx')}
        ours = stats(machine, path)
        return [own['rx'], own['tx'], ours['rx']['packets'], ours['tx']['packets']]
    first = counts()
    host.ping('-c 100 -i 0.005')
    moved = [after - before for before, after in zip(first, counts())]
    assert all(100 <= more <= 110 for more in moved) and moved[:2] == moved[2:], moved
    finish(machine)


# ---- addresses, modes, VLANs ----

class Counted:
    """What of the host's frames the guest's NIC lets through."""

    def __init__(self, host, machine, nic):
        self.host, self.machine, self.nic = host, machine, nic
        self.tap, self.network = f'tap{nic[-1]}', f'192.0.{2 + int(nic[-1])}'

    def packets(self):
        return int(self.machine.run(f'cat /sys/class/net/{self.nic}/statistics/rx_packets'))

    def through(self, command):
        """Whether 20 frames that the command sends arrive: all or none. A ping after them has arrived after them."""
        before = self.packets()
        self.host.run(command, check=False)
        self.host.ping('-c 1 -W 20', address=f'{self.network}.2')
        more = self.packets() - before
        assert more < 10 or 20 < more < 30, more
        return more > 20

    def unicast(self, mac):
        """To a station by that address."""
        self.host.run(f'ip neigh replace {self.network}.77 lladdr {mac} dev {self.tap} nud permanent')
        return self.through(f'ping -q -c 20 -l 20 -W 0.1 {self.network}.77')

    def multicast(self, group):
        return self.through(f'ping -q -c 20 -l 20 -W 0.1 -t 1 -I {self.tap} {group}')

    def vlan(self):
        """Tagged with VLAN 5, which the host has on this tap."""
        return self.through(f'ping -q -c 20 -l 20 -W 0.1 198.51.100.{self.nic[-1]}')


def check_modes(counted, machine):
    nic = counted.nic
    assert not counted.unicast('02:00:00:00:00:99')
    machine.run(f'ip link set {nic} promisc on')
    assert counted.unicast('02:00:00:00:00:99')
    machine.run(f'ip link set {nic} promisc off')
    assert not counted.unicast('02:00:00:00:00:99')

    assert not counted.multicast('239.1.2.3')
    machine.run(f'ip link set {nic} allmulticast on')
    assert counted.multicast('239.1.2.3')
    assert not counted.unicast('02:00:00:00:00:99')
    machine.run(f'ip link set {nic} allmulticast off')
    assert not counted.multicast('239.1.2.3')
    machine.run(f'ip maddr add 01:00:5e:01:02:03 dev {nic}')
    assert counted.multicast('239.1.2.3') and not counted.multicast('239.1.2.4')
    machine.run(f'ip maddr del 01:00:5e:01:02:03 dev {nic}')
    assert not counted.multicast('239.1.2.3')


def check_address(counted, host, machine):
    nic, network = counted.nic, counted.network
    for mac in ('02:00:00:00:00:77', '02:00:00:00:00:78'):
        machine.run(f'ip link set {nic} address {mac}')
        host.run(f'ip neigh replace {network}.2 lladdr {mac} dev {counted.tap} nud permanent')
        host.ping('-c 3 -i 0.02', address=f'{network}.2')
        assert machine.run(f'cat /sys/class/net/{nic}/address') == mac
    assert not counted.unicast('02:00:00:00:00:77')


def check_mtu(host, machine):
    host.run('ip link set tap0 mtu 9000')
    for mtu in (9000, 576, 1500):
        machine.run(f'ip link set eth0 mtu {mtu}')
        host.ping(f'-c 3 -i 0.05 -M do -s {mtu - 28}')
        assert ' 3 received' in machine.run(f'ping -q -c 3 -i 0.05 -M do -s {mtu - 28} {HOST}')
        exchange(host)
    # The other NIC was told 1400: no more than that.
    assert machine.run('cat /sys/class/net/eth1/mtu') == '1400'
    assert refused(machine, 'ip link set eth1 mtu 1401')
    machine.run('ip link set eth1 mtu 1000; ip link set eth1 mtu 1400')


@pytest.mark.parametrize('name', KERNELS)
def test_interface(start, host, name):
    """With all that the control queue does, and a second NIC without VLAN filter and with an MTU."""
    host.tap()
    host.tap('tap1', address='192.0.3.1/24', mtu=1400)
    machine = start(name, '+ctrl_vlan', '--net', 'tap=tap1,mtu=1400,-ctrl_vlan')
    machine.run('ip addr add 192.0.3.2/24 dev eth1')
    first, second = (Counted(host, machine, nic) for nic in ('eth0', 'eth1'))
    host.ping('-c 3 -i 0.02')
    check_modes(first, machine)
    check_modes(second, machine)

    # VLANs: filtered unless there is an interface; without the filter they come to the NIC in any case.
    for number, counted in enumerate((first, second)):
        host.run(f'ip link add link tap{number} name tap{number}.5 type vlan id 5')
        host.run(f'ip link set tap{number}.5 up')
        host.run(f'ip route add 198.51.100.{number}/32 dev tap{number}.5 src {counted.network}.1')
        mac = machine.run(f'cat /sys/class/net/eth{number}/address')
        host.run(f'ip neigh replace 198.51.100.{number} lladdr {mac} dev tap{number}.5 nud permanent')
        assert counted.vlan() == bool(number)
        # Answers go the same way.
        machine.run(f'n=eth{number}.5; ip link add link eth{number} name $n type vlan id 5 && ip link set $n up && '
                    f'ip addr add 198.51.100.{number}/32 dev $n && ip route replace {counted.network}.1 dev $n')
        host.ping('-c 5 -i 0.02', address=f'198.51.100.{number}')
        machine.run(f'ip link del eth{number}.5')
        assert counted.vlan() == bool(number)

    check_address(first, host, machine)
    check_address(second, host, machine)
    check_mtu(host, machine)
    finish(machine)


# ---- a driver, and a kernel, that go and come under traffic ----

def image(name):
    """The guest's initramfs with kexec, whose package is not installed: it would change how the host reboots."""
    tree = libvm.BUILD / 'kexec'
    if not (tree / 'sbin/kexec').exists():
        subprocess.run([libvm.ROOT / 'tools/apt-private', '@', 'main', 'tree', 'kexec-tools', tree],
                       stdin=subprocess.DEVNULL, check=True)
    return libvm.image(name, '--tree', str(tree), '--add', f'{tree}/sbin/kexec')


def prepare():
    """The images, made unless they are there: tools/check does so before it starts a lab."""
    for name in KERNELS:
        image(name)


@pytest.fixture
def with_kernel(tmp_path):
    """The guest's initramfs, with the kernel and the initramfs itself in it, for kexec: archives may be joined."""
    def make(name):
        source, path = pathlib.Path(image(name)), tmp_path / 'initrd.cpio'
        os.symlink(libvm.kernel(name), tmp_path / 'kernel')
        os.symlink(source, tmp_path / 'initrd')
        more = subprocess.run(['cpio', '--quiet', '-L', '-o', '-H', 'newc'], input=b'kernel\ninitrd\n', cwd=tmp_path,
                              stdout=subprocess.PIPE, check=True).stdout
        path.write_bytes(source.read_bytes() + more)
        return path
    return make


@contextlib.contextmanager
def traffic(host, machine):
    """A flood into the guest; from it, unless it restarts before, another one."""
    machine.run(f'/usr/bin/ping -q -f -s 1000 {HOST} >/dev/null 2>&1 & echo $! >/tmp/flood')
    with host.background(f'ping -q -f -s 1000 {GUEST}'):
        yield
    machine.run('[ ! -e /tmp/flood ] || kill $(cat /tmp/flood) || true')


def alive(host):
    """Answers come again. Besides a flood a single one may get lost: ping's socket gets the flood's answers, too."""
    host.run(f'ping -q -c 5 -i 0.1 -w 40 {GUEST}')


@pytest.mark.parametrize('name', KERNELS if 'WHELP_LONG' in os.environ else ['unstable'])
def test_g2_restarts(start, host, with_kernel, name):
    """Unbind and bind, reboot, and kexec, with frames on their way in both directions."""
    host.tap()
    machine = start(name, 'queues=1', initrd=with_kernel(name))
    up = f'ip addr add {GUEST}/24 dev eth0; ip link set eth0 up'
    device = machine.run('basename $(readlink /sys/class/net/eth0/device)')
    pci = machine.run('basename $(readlink -f /sys/class/net/eth0/device/..)')
    with traffic(host, machine):
        for _ in range(3):
            machine.run(f'cd /sys/bus/virtio/drivers/virtio_net; echo {device} >unbind; echo {device} >bind; {up}')
            alive(host)
        for _ in range(2):
            machine.run(f'cd /sys/bus/pci/drivers/virtio-pci; echo {pci} >unbind; echo {pci} >bind; {up}')
            alive(host)
    host.ping('-c 50 -i 0.01')
    assert driver_faults(machine) == []

    with traffic(host, machine):
        machine.channel.post('reboot -f')
        machine.channel.wait_restart(libvm.BOOT)
        alive(host)
    host.ping('-c 50 -i 0.01')
    assert driver_faults(machine) == []

    machine.run('kexec -s -l /kernel --initrd=/initrd --command-line="$(cat /proc/cmdline) kexeced=1"', timeout=120)
    with traffic(host, machine):
        machine.channel.post('kexec -e')
        machine.channel.wait_restart(libvm.BOOT)
        assert 'kexeced=1' in machine.run('cat /proc/cmdline')
        alive(host)
    host.ping('-c 50 -i 0.01')
    # The old kernel's timer may still fire once in the new one.
    assert [line for line in driver_faults(machine) if 'Spurious LAPIC timer interrupt' not in line] == []
    exchange(host)
    with host.background(f'ping -q -f -s 1000 {GUEST}'):
        machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


# ---- guest to guest ----

BRIDGED = [('cloud', 'backports'), *([('unstable', 'unstable')] if 'WHELP_LONG' in os.environ else [])]


@pytest.mark.parametrize('name, other', BRIDGED)
def test_bridge(whelp, host, tmp_path, name, other):
    """Two guests and a bridge: large frames pass whole between those that take them, and checksums are right."""
    guests = [(name, '198.51.100.1', ''), (other, '198.51.100.2', ''),
              (other, '198.51.100.3', ',-csum,-guest_csum,-mrg_rxbuf')]
    host.run('ip link add br0 type bridge && ip link set br0 up', shell=True)
    machines = []
    for number, (kernel, address, net) in enumerate(guests):
        host.tap(f'tap{number}', address=None)
        host.run(f'ip link set tap{number} master br0')
        machines.append(whelp(
            '--kernel', libvm.kernel(kernel), '--initrd', libvm.image(kernel), '--memory', '512M', '--cmdline',
            f'console=ttyS0 guest.net=eth0:{address}/24', '--net', f'tap=tap{number},mac=52:54:00:00:00:1{number}{net}',
            '--stats', tmp_path / f'stats{number}', host=host, serial=True))
    for machine in machines:
        machine.wait_ready()

    def counts(number):
        return stats(machines[number], tmp_path / f'stats{number}')

    def stream(sender, receiver):
        """How long the frames were on average that the receiver got, and that the sender sent."""
        before = counts(receiver)['rx'], counts(sender)['tx']
        machines[sender].run(f'netperf -P 0 -H {guests[receiver][1]} -t TCP_STREAM -l -3000000', timeout=120)
        after = counts(receiver)['rx'], counts(sender)['tx']
        return [(b['bytes'] - a['bytes']) / (b['packets'] - a['packets']) for a, b in zip(before, after)]

    for sender, receiver in ((0, 1), (1, 0), (0, 2), (2, 0)):
        address = guests[receiver][1]
        assert ' 200 received' in machines[sender].run(f'ping -q -f -l 8 -c 200 {address}', timeout=60)
        assert ' 5 received' in machines[sender].run(f'ping -q -i 0.02 -c 5 -s 20000 {address}', timeout=60)
        for test in ('TCP_RR', 'UDP_RR'):
            machines[sender].run(f'netperf -P 0 -H {address} -t {test} -l -20 -- -r 9000,9000', timeout=60)
        got, sent = stream(sender, receiver)
        # Who takes no large frames gets none, and who may not send them does not.
        large = sender != 2 and receiver != 2
        assert (got > 2000) == large and (sent > 2000) == (sender != 2), (sender, receiver, got, sent)

    for machine in machines:
        names, values = (line.split() for line in machine.run('grep ^Tcp: /proc/net/snmp').splitlines())
        tcp = dict(zip(names, values))
        assert tcp['InCsumErrors'] == '0' and int(tcp['InSegs']) > 100, tcp
        names, values = (line.split() for line in machine.run('grep ^Udp: /proc/net/snmp').splitlines())
        udp = dict(zip(names, values))
        assert udp['InCsumErrors'] == udp['InErrors'] == '0' and int(udp['InDatagrams']) >= 20, udp
        finish(machine)
