# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbered frames to a tap whose other end sends each back with its addresses swapped; run in the tap's namespace.

    bounce.py TAP MAC COUNT FLOWS LONGEST SEED

Each must come back once, with its contents, and in order within its flow; else the status is 1 and a line says
what is wrong. FLOWS UDP flows, frames of 60 to LONGEST bytes.
"""

import random
import select
import socket
import struct
import sys
import time

WINDOW = 64  # on their way at a time: less than a tap's queue holds
PATIENCE = 30  # seconds without a frame
ETH_P_ALL, SO_RCVBUFFORCE = 3, 33
OURS = bytes.fromhex('020000000001')


def make(number, mac, flow, size, chance):
    """A frame of `size` bytes: Ethernet, IPv4, UDP, its number, and bytes of chance."""
    rest = size - 14 - 20
    header = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + rest, number & 0xffff, 0, 64, 17, 0,
                         bytes([198, 18, 0, 1]), bytes([198, 18, 0, 2]))
    total = sum(struct.unpack('>10H', header))
    total = (total & 0xffff) + (total >> 16)
    header = header[:10] + struct.pack('>H', ~(total + (total >> 16)) & 0xffff) + header[12:]
    return mac + OURS + b'\x08\x00' + header + struct.pack('>HHHHI', 10000 + flow, 9, rest, 0, number) + \
        chance.randbytes(rest - 12)


def main(tap, mac, count, flows, longest, seed):
    chance = random.Random(seed)
    mac = bytes.fromhex(mac.replace(':', ''))
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    sock.bind((tap, ETH_P_ALL))
    flying = [{} for _ in range(flows)]  # number: frame, in the order of sending
    sent = returned = 0
    last = time.monotonic()
    while returned < count:
        while sent < count and sent - returned < WINDOW:
            flow = chance.randrange(flows)
            size = chance.choice((60, chance.randint(60, 300), chance.randint(60, longest), longest))
            frame = make(sent, mac, flow, size, chance)
            sock.send(frame)
            flying[flow][sent] = frame
            sent += 1
        if not select.select([sock], [], [], 1)[0]:
            if time.monotonic() - last > PATIENCE:
                missing = sorted(number for flow in flying for number in flow)
                return f'{sent} sent, {returned} returned, none any more; missing: {missing[:20]}'
            continue
        frame, address = sock.recvfrom(65536)
        if address[2] == socket.PACKET_OUTGOING or frame[6:12] != mac:
            continue
        if len(frame) < 46 or frame[:6] != OURS:
            return f'after {returned} a strange frame: {frame[:64].hex()}'
        flow, number = struct.unpack('>H', frame[34:36])[0] - 10000, struct.unpack('>I', frame[42:46])[0]
        if not (0 <= flow < flows and flying[flow]):
            return f'after {returned} a frame of flow {flow}, of which none is missing: number {number}'
        expected, original = next(iter(flying[flow].items()))
        if number != expected:
            return f'flow {flow}: number {number} came when it was the turn of {expected}'
        if frame != OURS + mac + original[12:]:
            return f'number {number}: {len(original)} bytes were sent, {len(frame)} came, other ones: {frame.hex()}'
        del flying[flow][number]
        returned += 1
        last = time.monotonic()
    sock.setblocking(False)
    try:
        while True:
            frame, address = sock.recvfrom(65536)
            if address[2] != socket.PACKET_OUTGOING and frame[6:12] == mac:
                return f'one frame too many: {frame[:64].hex()}'
    except BlockingIOError:
        return None


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:3], *map(int, sys.argv[3:6]), sys.argv[6]))
