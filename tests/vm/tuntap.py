# SPDX-License-Identifier: GPL-2.0-or-later
"""Taps as another program has them: opened in any network namespace, and left in whatever state."""

import ctypes
import fcntl
import os
import struct
import threading

IFF_TUN, IFF_TAP, IFF_NAPI, IFF_NAPI_FRAGS, IFF_MULTI_QUEUE = 1, 2, 0x10, 0x20, 0x100
IFF_ATTACH_QUEUE, IFF_DETACH_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x200, 0x400, 0x1000, 0x4000
IFF_NOFILTER = IFF_NO_PI  # in TUNGETIFF's answer
GOOD = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
MANY = GOOD | IFF_MULTI_QUEUE


def _code(direction, number, size=4):
    return direction << 30 | size << 16 | ord('T') << 8 | number


SETIFF, SETPERSIST, SETLINK, SETOFFLOAD, SETTXFILTER = (_code(1, n) for n in (202, 203, 205, 208, 209))
GETIFF, GETSNDBUF, GETVNETHDRSZ, GETVNETLE, GETVNETBE = (_code(2, n) for n in (210, 211, 215, 221, 223))
SETSNDBUF, SETVNETHDRSZ, SETQUEUE, SETVNETLE, SETVNETBE, SETCARRIER = (
    _code(1, n) for n in (212, 216, 217, 220, 222, 226))
ATTACHFILTER = _code(1, 213, 16)
SETSTEERINGEBPF, SETFILTEREBPF = _code(2, 224), _code(2, 225)

_libc = ctypes.CDLL(None, use_errno=True)


def _in_namespace(host, function):
    """Runs a function in the network namespace of a libvm.Host, which is its thread's alone."""
    result = []

    def work():
        try:
            with open(f'/run/netns/{host.name}', 'rb') as namespace:
                if _libc.setns(namespace.fileno(), 0x40000000):
                    raise OSError(ctypes.get_errno(), 'setns')
            result.append(function())
        except OSError as err:
            result.append(err)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


def attach(host, name='tap0', flags=GOOD, mode=os.O_RDWR):
    """A file that is attached to the interface of that name in the host's namespace, made if there is none."""
    def work():
        fd = os.open('/dev/net/tun', mode)
        fcntl.ioctl(fd, SETIFF, struct.pack('16sH22x', name.encode(), flags))
        return fd
    return _in_namespace(host, work)


def flags_of(fd):
    return struct.unpack('16xH22x', fcntl.ioctl(fd, GETIFF, bytes(40)))[0]


def number(fd, code):
    return struct.unpack('i', fcntl.ioctl(fd, code, bytes(4)))[0]


def put(fd, code, value):
    fcntl.ioctl(fd, code, struct.pack('i', value))


def set_queue(fd, how):
    fcntl.ioctl(fd, SETQUEUE, struct.pack('16xH22x', how))


def attach_filter(fd, verdict):
    """A socket filter on all queues: frames are cut to that many bytes, 0 drops them."""
    program = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, verdict))
    fcntl.ioctl(fd, ATTACHFILTER, struct.pack('H6xQ', 1, ctypes.addressof(program)))


def load_program(verdict):
    """An eBPF program that answers the same to every frame; its fd."""
    code = ctypes.create_string_buffer(struct.pack('BBhi', 0xb7, 0, 0, verdict) + struct.pack('BBhi', 0x95, 0, 0, 0))
    text = ctypes.create_string_buffer(b'GPL')
    attr = struct.pack('IIQQ', 1, 2, ctypes.addressof(code), ctypes.addressof(text)) + bytes(96)
    fd = _libc.syscall(321, 5, attr, len(attr))
    if fd < 0:
        raise OSError(ctypes.get_errno(), 'bpf')
    return fd


def dirty(fd):
    """Everything that the files of a tap can set and that would harm the next one: no frame gets through."""
    put(fd, SETVNETHDRSZ, 20)
    put(fd, SETVNETLE, 0)
    try:
        put(fd, SETVNETBE, 1)
    except OSError:
        pass  # a kernel without
    fcntl.ioctl(fd, SETOFFLOAD, 0x01 | 0x02 | 0x04)
    put(fd, SETSNDBUF, 1)
    attach_filter(fd, 0)
    # One address, which nobody has.
    fcntl.ioctl(fd, SETTXFILTER, struct.pack('HH6s', 0, 1, b'\x02\0\0\0\0\x99'))
    for code, verdict in ((SETSTEERINGEBPF, 1), (SETFILTEREBPF, 0)):
        program = load_program(verdict)
        put(fd, code, program)
        os.close(program)
    put(fd, SETCARRIER, 0)
