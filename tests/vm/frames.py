# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames as captured at either end, and what their checksums are worth."""

import socket
import struct
from dataclasses import dataclass

SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_OUTGOING, ETH_P_ALL = 263, 6, 15, 4, 3
NEEDS_CSUM, GSO_UDP_L4, GSO_ECN = 1, 5, 0x80  # of struct virtio_net_hdr
TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP


class Bad(Exception):
    """A frame that is not what it should be; the text says why."""


def ones_sum(data):
    """The ones' complement sum of the 16-bit words, 0 for either zero: 65536 is 1 modulo 65535."""
    return int.from_bytes(data + bytes(len(data) % 2), 'big') % 0xffff


@dataclass(frozen=True)
class Look:
    """What there is to a TCP or UDP frame; `partial` if its checksum is still to be filled in."""
    version: int
    protocol: int
    ports: tuple
    partial: bool
    checksum: int


def look(frame):
    """Checks lengths and checksums down to the last byte. None for what is neither TCP nor UDP."""
    kind = struct.unpack_from('!H', frame, 12)[0]
    packet = frame[14:]
    if kind == 0x0800:
        length = struct.unpack_from('!H', packet, 2)[0]
        head, protocol, addresses = packet[0] % 16 * 4, packet[9], packet[12:20]
        if ones_sum(packet[:head]):
            raise Bad('IPv4 header checksum')
        if struct.unpack_from('!H', packet, 6)[0] & 0x3fff:
            raise Bad('a fragment')
    elif kind == 0x86dd:
        length = 40 + struct.unpack_from('!H', packet, 4)[0]
        head, protocol, addresses = 40, packet[6], packet[8:40]
    else:
        return None
    if protocol not in (TCP, UDP):
        return None
    if length != len(packet):
        raise Bad(f'{len(packet)} bytes of IP, its header says {length}')
    segment = packet[head:]
    if protocol == UDP and struct.unpack_from('!H', segment, 4)[0] != len(segment):
        raise Bad(f'{len(segment)} bytes of UDP, its header says {struct.unpack_from("!H", segment, 4)[0]}')
    checksum = struct.unpack_from('!H', segment, 16 if protocol == TCP else 6)[0]
    pseudo = addresses + struct.pack('!II', len(segment), protocol)
    # 0 says that there is none, which we never want.
    full = checksum != 0 or protocol == TCP
    full = full and ones_sum(pseudo + segment) == 0
    # To be filled in: it holds the sum of the pseudo-header.
    partial = checksum % 0xffff == ones_sum(pseudo)
    if not full and not partial:
        raise Bad(f'{"TCP" if protocol == TCP else "UDP"} checksum {checksum:#06x}')
    return Look(packet[0] >> 4, protocol, struct.unpack_from('!HH', segment), not full, checksum)


@dataclass(frozen=True)
class Captured:
    outgoing: bool
    flags: int
    gso_type: int
    frame: bytes


class Capture:
    """All that passes an interface from now on, with what the stack knows of each frame's checksum and segments."""

    def __init__(self, host, interface):
        self.sock = host.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.sock.bind((interface, ETH_P_ALL))

    def stop(self):
        """The frames. None may have been missed."""
        found = []
        while True:
            try:
                data, address = self.sock.recvfrom(1 << 17, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            found.append(Captured(address[2] == PACKET_OUTGOING, data[0], data[1], data[10:]))
        seen, dropped = struct.unpack('=II', self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self.sock.close()
        assert seen == len(found) and not dropped, (seen, len(found), dropped)
        return found


def read_pcap(data):
    """The frames of a file that tcpdump wrote on a machine of this byte order."""
    magic, _, _, _, _, snap, link = struct.unpack_from('=IHHiIII', data)
    assert magic == 0xa1b2c3d4 and link == 1, (magic, link)
    found, at = [], 24
    while at < len(data):
        _, _, length, original = struct.unpack_from('=IIII', data, at)
        assert length == original <= snap, (length, original)
        found.append(data[at + 16:at + 16 + length])
        at += 16 + length
    assert at == len(data), 'a frame is cut short'
    return found
