# SPDX-License-Identifier: GPL-2.0-or-later
"""What is sent is what arrives: frames captured at both ends, their checksums, and files by their hash.

A guest here has many NICs, each with other features; far.c is its part.
"""

import concurrent.futures
import contextlib
import ctypes
import hashlib
import os
import re
import shlex
import socket
import struct
import subprocess

import frames
import libvm
import pytest
from frames import TCP, UDP
from test_features import BITS

KERNEL = 'backports'
PORT = 7
UDP_SEGMENT = 103
# Around the MTU, odd ones, and such as need many segments.
STREAM_SIZES = [1, 2, 3, 1447, 1448, 1449, 4097, 30001, 65001]
DATAGRAM_SIZES = [1, 2, 3, 63, 1024, 1451, 1452]
FILE_SIZE = (1 << 30) if 'WHELP_LONG' in os.environ else (16 << 20)
CHUNK, ROTATION = 1 << 20, 1 << 16
# The fastest one on an emulated processor, which makes 12 MB/s of os.urandom and 29 of SHA-256; nobody forges files here.
HASH = 'md5'
PATIENCE = 120  # seconds, against a hang only


def prepare():
    """(the guest's image, its program), made unless they are there: tools/check does so before it starts a lab."""
    source, program = libvm.ROOT / 'tests/vm/far.c', libvm.BUILD / 'guests/far'
    image = libvm.image(KERNEL, '--tools', 'ip,ethtool,tcpdump', '--add', '/usr/bin/openssl:/bin/openssl')
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = shlex.split(os.environ.get('CC', 'cc'))
        subprocess.run([*compiler, '-std=gnu17', '-D_GNU_SOURCE', '-O2', '-Wall', '-Wextra', '-Werror', '-s', '-o',
                        program, source], stdin=subprocess.DEVNULL, check=True)
    return image, program


class Nic:
    """One of the guest's NICs, and the interface `near` of the namespace `host` that is its other end."""

    def __init__(self, host, number, features, near=None):
        self.host, self.number, self.features = host, number, features
        self.tap, self.name = f'tap{number}', f'eth{number}'
        self.near = near or self.tap
        self.here = {4: f'198.18.{number}.1', 6: f'2001:db8:{number}::1'}
        self.there = {4: f'198.18.{number}.2', 6: f'2001:db8:{number}::2'}

    def addresses(self):
        """Those of the near end; the guest's are on its command line."""
        self.host.run(f'echo 0 >/proc/sys/net/ipv6/conf/{self.near}/disable_ipv6; '
                      f'ip addr add {self.here[4]}/24 dev {self.near}; '
                      f'ip addr add {self.here[6]}/64 dev {self.near} nodad; ip link set {self.near} up', shell=True)

    def open(self, version, kind):
        sock = self.host.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, kind)
        sock.settimeout(PATIENCE)
        return sock

    def listen(self, version, kind=socket.SOCK_STREAM):
        sock = self.open(version, kind)
        sock.bind((self.here[version], 0))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        else:
            sock.setsockopt(socket.SOL_SOCKET, frames.SO_RCVBUFFORCE, 16 << 20)
        return sock, sock.getsockname()[1]


def plug_in(host, nics):
    """A tap for each, which is its near end."""
    for nic in nics:
        host.tap(nic.tap, address=None)
        nic.addresses()


def start(whelp, host, nics, more=''):
    """The guest, with far listening; the taps must be there."""
    image, program = prepare()
    nets = [f'{nic.name}:{nic.there[4]}/24,{nic.name}:{nic.there[6]}/64' for nic in nics]
    options = []
    for nic in nics:
        options += ['--net', ','.join(filter(None, [f'tap={nic.tap}', nic.features, more]))]
    machine = whelp('--kernel', libvm.kernel(KERNEL), '--initrd', image, '--memory', '512M', '--cmdline',
                    f'console=ttyS0 guest.net={",".join(nets)}', *options, host=host, serial=True).wait_ready()
    machine.channel.push(program, '/bin/far', mode=0o755)
    machine.run(f'far echo {PORT}')
    return machine


def negotiated(machine, nic):
    bits = machine.run(f'cat /sys/class/net/{nic.name}/device/features')
    return {name for name, bit in BITS.items() if bits[bit:bit + 1] == '1'}


def finish(machine):
    assert machine.dmesg_faults() == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


def receive(sock, size):
    data = b''
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part, f'the end after {len(data)} of {size} bytes'
        data += part
    return data


def zero_sum(nic, version, ports):
    """A datagram of two bytes whose checksum comes out as 0, and so is sent as 0xffff."""
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    rest = socket.inet_pton(family, nic.here[version]) + socket.inet_pton(family, nic.there[version])
    rest += struct.pack('!IIHHH', 10, UDP, *ports, 10)
    return struct.pack('!H', 0xffff - frames.ones_sum(rest))


def converse(nic, version):
    """Streams and datagrams of all sizes to the guest and back."""
    with nic.open(version, socket.SOCK_STREAM) as sock:
        sock.connect((nic.there[version], PORT))
        for size in STREAM_SIZES:
            data = os.urandom(size)
            sock.sendall(data)
            assert receive(sock, size) == data, f'TCP over IPv{version}: {size} bytes are not the same'
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b''
    with nic.open(version, socket.SOCK_DGRAM) as sock:
        sock.connect((nic.there[version], PORT))
        ports = (sock.getsockname()[1], PORT)
        for data in [os.urandom(size) for size in DATAGRAM_SIZES] + [zero_sum(nic, version, ports)]:
            sock.send(data)
            assert sock.recv(65536) == data, f'UDP over IPv{version}: {len(data)} bytes are not the same'


def ours(captured):
    """Those of far's port, each with its Look."""
    looks = [(one, frames.look(one.frame)) for one in captured]
    return [(one, seen) for one, seen in looks if seen and PORT in seen.ports]


class GuestCapture:
    """tcpdump on a NIC in the guest."""

    def __init__(self, machine, nic):
        self.machine, self.nic, self.path = machine, nic, f'/tmp/{nic.name}'
        machine.run(f'tcpdump -i {nic.name} -Z root -U -B 32768 -w {self.path} port {PORT} '
                    f'>{self.path}.log 2>&1 & echo $! >{self.path}.pid; '
                    f'until grep -q listening {self.path}.log; do sleep 0.05; done')

    def stop(self, size):
        """Its frames, once there are `size` bytes of them; tcpdump writes them when it comes to it."""
        self.machine.run(f'n=0; until [ $(wc -c <{self.path}) -ge {size} ] || [ $n = 200 ]; do sleep 0.05; n=$((n+1)); '
                         f'done; kill -INT $(cat {self.path}.pid); '
                         f'while kill -0 $(cat {self.path}.pid) 2>/dev/null; do sleep 0.05; done')
        log = self.machine.run(f'cat {self.path}.log')
        assert re.search(r'^0 packets dropped by kernel', log, re.M), log
        listener, port = self.nic.listen(4)
        with listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
            data = pool.submit(take_file, listener)
            self.machine.run(f'nc {self.nic.here[4]} {port} <{self.path}; rm {self.path}', timeout=PATIENCE)
            return frames.read_pcap(data.result())


def take_file(listener):
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(PATIENCE)
        return b''.join(iter(lambda: connection.recv(CHUNK), b''))


def test_g8_checksums_agree(whelp, host):
    """CSUM x GUEST_CSUM: both ends see the same bytes, and filled in or not as was agreed."""
    nics = [Nic(host, number, features) for number, features in enumerate(
        ['', '-csum', '-guest_csum', '-csum,-guest_csum'])]
    plug_in(host, nics)
    machine = start(whelp, host, nics)
    for nic in nics:
        bits = negotiated(machine, nic)
        to_fill = {True: '-guest_csum' not in nic.features, False: '-csum' not in nic.features.split(',')}
        assert ('guest_csum' in bits, 'csum' in bits) == (to_fill[True], to_fill[False])
        tap = host.run(f'ethtool -k {nic.tap}').stdout
        assert f'tx-checksum-ip-generic: {"on" if to_fill[True] else "off"}' in tap, tap

        # Else the guest would see frames that it put together itself.
        machine.run(f'ethtool -K {nic.name} gro off')
        there = GuestCapture(machine, nic)
        here = frames.Capture(host, nic.tap)
        for version in (4, 6):
            converse(nic, version)
        here = ours(here.stop())
        there = there.stop(24 + sum(16 + len(one.frame) for one, _ in here))
        for to_guest in (True, False):
            compare(machine, nic, to_guest, to_fill[to_guest], here, there)
    finish(machine)


def compare(machine, nic, to_guest, to_fill, here, there):
    """One direction. Whoever sends fills in unless the other takes it without, and no frame is another at the end."""
    address = machine.run(f'cat /sys/class/net/{nic.name}/address')
    mac = bytes.fromhex(address.replace(':', ''))
    at = slice(0, 6) if to_guest else slice(6, 12)
    where = f'{nic.features or "all"}, {"to" if to_guest else "from"} the guest'
    near = [(one, seen) for one, seen in here if one.outgoing == to_guest]
    assert all(one.frame[at] == mac for one, _ in near), where
    assert [one.frame for one, _ in near] == [frame for frame in there if frame[at] == mac], where
    for one, seen in near:
        assert seen.partial == bool(one.flags & frames.NEEDS_CSUM), (where, one.flags, seen)
    for version in (4, 6):
        for protocol in (TCP, UDP):
            some = [(one, seen) for one, seen in near if (seen.version, seen.protocol) == (version, protocol)]
            assert len(some) >= len(STREAM_SIZES if protocol == TCP else DATAGRAM_SIZES), (where, len(some))
            assert any(seen.partial for _, seen in some) == to_fill, (where, version, protocol)
            if protocol == TCP:
                # Segments are left to be made only where checksums are, too.
                assert (max(len(one.frame) for one, _ in some) > 1514) == to_fill, (where, version)
            elif not to_fill:
                assert some[-1][1].checksum == 0xffff, (where, version)
    # That a wrong byte would have been seen.
    for one, seen in near:
        if not seen.partial:
            with pytest.raises(frames.Bad):
                frames.look(one.frame[:-1] + bytes([one.frame[-1] ^ 1]))
            break


# Without checksums there is no TSO.
MRG, NO_MRG = '', '-mrg_rxbuf'
TSO, NO_TSO = '', '-host_tso4,-host_tso6,-guest_tso4,-guest_tso6'
NO_CSUM = '-csum,-guest_csum'
FILE_FEATURES = {f'{merges}-{offloads}': ','.join(filter(None, (merge, offload)))
                 for merges, merge in (('merged', MRG), ('unmerged', NO_MRG))
                 for offloads, offload in (('tso', TSO), ('csum', NO_TSO), ('plain', NO_CSUM))}
# A long file has a guest to itself.
FILE_SETS = [[name] for name in FILE_FEATURES] if 'WHELP_LONG' in os.environ else [list(FILE_FEATURES)]


@pytest.mark.parametrize('ring', ['split', 'packed'])
@pytest.mark.parametrize('names', FILE_SETS, ids=lambda names: names[0] if len(names) == 1 else 'each')
def test_files(whelp, host, ring, names):
    """A file to the guest, which sends it on as it comes: both have the hash that it started with."""
    nics = [Nic(host, number, FILE_FEATURES[name]) for number, name in enumerate(names)]
    plug_in(host, nics)
    machine = start(whelp, host, nics, '+ring_packed' if ring == 'packed' else '')
    for nic in nics:
        bits = negotiated(machine, nic)
        assert ('ring_packed' in bits) == (ring == 'packed'), (nic.features, bits)
        for feature, off in (('mrg_rxbuf', NO_MRG), ('csum', NO_CSUM), ('guest_csum', NO_CSUM), ('host_tso4', NO_TSO),
                             ('host_tso6', NO_TSO), ('guest_tso4', NO_TSO), ('guest_tso6', NO_TSO)):
            wanted = off not in nic.features and not ('tso' in feature and NO_CSUM in nic.features)
            assert (feature in bits) == wanted, (nic.features, feature, bits)
        # Both directions by both versions of IP, over the NICs.
        versions = (4, 6) if list(FILE_FEATURES.values()).index(nic.features) % 2 else (6, 4)
        sent, seen, returned = pass_file(machine, nic, *versions)
        assert sent == seen, f'{nic.features}, {ring}: not the same file in the guest'
        assert sent == returned, f'{nic.features}, {ring}: not the same file from the guest'
        for way in ('rx', 'tx'):
            size, count = (host.counter(nic.tap, f'{way}_{what}') for what in ('bytes', 'packets'))
            assert size > FILE_SIZE
            if nic.features.endswith((NO_TSO, NO_CSUM)):
                assert size <= 1514 * count, (nic.features, way, size, count)
    finish(machine)


def pass_file(machine, nic, to_guest, from_guest):
    """The hashes of a file sent to the guest, seen there, and as it came back; each way with its version of IP."""
    (source, source_port), (sink, sink_port) = nic.listen(to_guest), nic.listen(from_guest)
    with source, sink, concurrent.futures.ThreadPoolExecutor(2) as pool:
        sent, returned = pool.submit(send_file, source), pool.submit(hash_file, sink)
        output = machine.run(f'far relay {nic.here[to_guest]} {source_port} {nic.here[from_guest]} {sink_port} | '
                             f'openssl dgst -r -{HASH}', timeout=PATIENCE + FILE_SIZE // 1000000)
        return sent.result(), output.split()[0], returned.result()


def send_file(listener, size=FILE_SIZE):
    """Random data, each chunk rotated by another odd amount: what stood in a buffer before is never right again."""
    connection, _ = listener.accept()
    digest = hashlib.new(HASH)
    source = memoryview(os.urandom(CHUNK + ROTATION))
    with connection:
        connection.settimeout(PATIENCE)
        for number in range(size // CHUNK):
            start = number * 4099 % ROTATION
            data = source[start:start + CHUNK]
            digest.update(data)
            connection.sendall(data)
    return digest.hexdigest()


def hash_file(listener):
    connection, _ = listener.accept()
    digest = hashlib.new(HASH)
    with connection:
        connection.settimeout(PATIENCE)
        while data := connection.recv(CHUNK):
            digest.update(data)
    return digest.hexdigest()


# Each offload alone, and what needs it.
OFFLOADS = ['csum', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ecn', 'guest_ufo', 'host_tso4', 'host_tso6',
            'host_ecn', 'host_ufo', 'guest_uso4', 'guest_uso6', 'host_uso']


def test_p9_to_an_interface_without_offloads(whelp, host):
    """Guest, bridge, veth that fills in nothing: what comes out there is complete, whatever the guest left to do."""
    nics = []
    with contextlib.closing(libvm.Host()) as far:
        for number, off in enumerate([None, *OFFLOADS]):
            nic = Nic(far, number, f'-{off}' if off else '', near=f'near{number}')
            host.tap(nic.tap, address=None)
            host.run(f'ip link add br{number} type bridge mcast_snooping 0; ip link set {nic.tap} master br{number}; '
                     f'ip link add port{number} type veth peer name near{number} netns {far.name}; '
                     f'ip link set port{number} master br{number}; ip link set br{number} up; '
                     f'ip link set port{number} up; ethtool -K port{number} tx off', shell=True)
            nic.addresses()
            nics.append(nic)
        machine = start(whelp, host, nics)
        for nic in nics:
            assert nic.features.lstrip('-') not in negotiated(machine, nic)
            capture = frames.Capture(far, nic.near)
            for version in (4, 6):
                converse(nic, version)
            seen = [(one, look) for one, look in ours(capture.stop()) if not one.outgoing]
            assert {(look.version, look.protocol) for _, look in seen} == {(4, TCP), (4, UDP), (6, TCP), (6, UDP)}
            for one, look in seen:
                assert not look.partial and not one.flags & frames.NEEDS_CSUM, (nic.features, look)
                assert len(one.frame) <= 1514, (nic.features, look)
        finish(machine)


CWR = 0x80  # among TCP's flags: the sender has slowed down, as ECN asked it to
SO_ATTACH_FILTER = 26


def drop_some(sock, one_in):
    """A socket filter that drops frames by chance."""
    code = [(0x20, 0, 0, 0xfffff038), (0x94, 0, 0, one_in), (0x15, 0, 1, 0), (6, 0, 0, 0), (6, 0, 0, 0xffffffff)]
    program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack('H6xQ', len(code), ctypes.addressof(program)))


def slowed_down(captured, to_guest):
    """Of one direction's TCP frames that say so, how many are large, as (with the header's mark, without)."""
    large = {True: 0, False: 0}
    for one in captured:
        seen = frames.look(one.frame)
        if seen and seen.protocol == TCP and one.outgoing == to_guest and len(one.frame) > 1514:
            flags = one.frame[14 + (20 if seen.version == 4 else 40) + 13]
            assert bool(one.gso_type & frames.GSO_ECN) == bool(flags & CWR), (one.gso_type, flags)
            large[bool(flags & CWR)] += 1
    return large[True], large[False]


@pytest.mark.parametrize('features', ['', '-guest_ecn,-host_ecn'], ids=['on', 'off'])
def test_ecn(whelp, host, features):
    """Streams that ECN slows down: a large frame says so in its header, or there are only small ones that do."""
    nic = Nic(host, 0, features)
    plug_in(host, [nic])
    machine = start(whelp, host, [nic])
    assert ({'guest_ecn', 'host_ecn'} <= negotiated(machine, nic)) == (not features)
    machine.run('echo 1 >/proc/sys/net/ipv4/tcp_ecn')
    host.run('echo 1 >/proc/sys/net/ipv4/tcp_ecn; modprobe sch_netem; '
             f'tc qdisc add dev {nic.tap} root netem loss 10% ecn', shell=True)
    capture = frames.Capture(host, nic.tap)
    (source, source_port), (sink, sink_port) = nic.listen(4), nic.listen(4)
    # The host's frames are marked, as they go out. The guest's are lost behind the tap, which has the same effect.
    drop_some(sink, 20)
    with source, sink, concurrent.futures.ThreadPoolExecutor(2) as pool:
        sent, returned = pool.submit(send_file, source, 8 << 20), pool.submit(hash_file, sink)
        machine.run(f'far relay {nic.here[4]} {source_port} {nic.here[4]} {sink_port} >/dev/null', timeout=PATIENCE)
        assert sent.result() == returned.result()
    captured = capture.stop()
    for to_guest in (True, False):
        marked, others = slowed_down(captured, to_guest)
        assert others > 0 and (marked > 0) == (not features), (features, to_guest, marked, others)
    finish(machine)


def pattern(number, size):
    """What far sends."""
    return bytes((7 * number + 13 * i + (i >> 8)) & 0xff for i in range(size))


SEGMENTED = 8  # datagrams that become many


def datagrams(size):
    """(the whole of each, what arrives of it)"""
    whole = [pattern(number, 20 * size + 77) for number in range(SEGMENTED)]
    return whole, [[data[at:at + size] for at in range(0, len(data), size)] for data in whole]


def expect(sock, wanted, where):
    got = []
    try:
        got += (sock.recv(65536) for _ in wanted)
    except TimeoutError:
        pass
    assert [len(data) for data in got] == [len(data) for data in wanted], where
    assert got == wanted, where


def segments_to_guest(nic, version, size):
    """Each comes back by itself. Returns the port."""
    with nic.open(version, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, frames.SO_RCVBUFFORCE, 16 << 20)
        sock.connect((nic.there[version], PORT))
        sock.setsockopt(UDP, UDP_SEGMENT, size)
        for whole, parts in zip(*datagrams(size)):
            sock.send(whole)
            expect(sock, parts, (nic.features, version, 'to the guest and back'))
        return sock.getsockname()[1]


def segments_from_guest(machine, nic, version, size):
    """Returns the port."""
    sock, port = nic.listen(version, socket.SOCK_DGRAM)
    with sock:
        machine.run(f'far segment {nic.here[version]} {port} {size} {20 * size + 77} {SEGMENTED}')
        for parts in datagrams(size)[1]:
            expect(sock, parts, (nic.features, version, 'from the guest'))
        return port


def test_p10_udp_segment(whelp, host):
    """Datagrams made by UDP_SEGMENT arrive whole, with USO and without, in both directions."""
    nics = [Nic(host, number, features) for number, features in enumerate(['', '-host_uso,-guest_uso4,-guest_uso6'])]
    plug_in(host, nics)
    machine = start(whelp, host, nics)
    for nic in nics:
        bits = negotiated(machine, nic)
        uso = not nic.features
        assert all((name in bits) == uso for name in ('host_uso', 'guest_uso4', 'guest_uso6')), bits
        tap = host.run(f'ethtool -k {nic.tap}').stdout
        assert f'tx-udp-segmentation: {"on" if uso else "off"}' in tap, tap
        # Linux's driver has it, and leaves it off.
        machine.run(f'ethtool -K {nic.name} tx-udp-segmentation on', check=uso)
        for version in (4, 6):
            for size in (1000, 1452):
                pass_segments(machine, nic, version, size, uso)
    finish(machine)


def pass_segments(machine, nic, version, size, uso):
    """Both ways, and as many large frames as there were sends if these are left to the other end."""
    capture = frames.Capture(nic.host, nic.tap)
    # The guest knows our address after the first: of what waits for one, it drops what gets too much.
    ports = {True: segments_to_guest(nic, version, size), False: segments_from_guest(machine, nic, version, size)}
    seen = [(one, look) for one in capture.stop() if (look := frames.look(one.frame))]
    for to_guest, port in ports.items():
        large = [one for one, look in seen if port in look.ports and one.outgoing == to_guest
                 and one.gso_type == frames.GSO_UDP_L4]
        assert len(large) == (SEGMENTED if uso else 0), (nic.features, version, size, to_guest, len(large))
