# SPDX-License-Identifier: GPL-2.0-or-later
"""The machines that are compared: their VMMs' command lines, taps, bridges, and guests. Runs beside the guests.

Machine number N has 198.18.N.0/24 between host (.1) and its first guest (.2), and 198.19.N.0/24 between its guests (.2
and .3) over a bridge; both are of the block that is set aside for benches (RFC 2544). NICs are there as the ways that are
measured need them.
"""

import gzip
import os
import pathlib
import re
import select
import socket
import subprocess
import sys
import threading
import time
import tty

import benchlib
from netbench_lib import probes

sys.path.insert(0, str(benchlib.ROOT / 'guest'))
from guestchannel import GuestChannel, GuestError  # noqa: E402

BOOT_LIMIT = 150
READY = b'whelp-guest: ready'
NBRUN = '/sbin/nbrun'
SNAPSHOTS = '/tmp/nb'
QEMU = ('-accel', 'kvm', '-cpu', 'host', '-nodefaults', '-no-user-config', '-nographic', '-serial', 'stdio')
QEMU_NICS = {'qemu': ('', ''), 'qemu-vhost': (',vhost=on', ''), 'qemu-timer': ('', ',tx=timer')}
NEXT = '== 0 next\n'


def netdev(entry, nic):
    queues = f',queues={entry["pairs"]}' if entry['pairs'] > 1 else ''
    return f'tap,id={nic["id"]},ifname={nic["tap"]},script=no,downscript=no{queues}{QEMU_NICS[entry["kind"]][0]}'


def device(entry, nic):
    queues = f',mq=on,vectors={2 * entry["pairs"] + 2}' if entry['pairs'] > 1 else ''
    keys = f',{entry["keys"]}' if entry['keys'] else ''
    return f'virtio-net-pci,netdev={nic["id"]},mac={nic["mac"]},romfile={queues}{QEMU_NICS[entry["kind"]][1]}{keys}'


def whelp_net(entry, nic):
    queues = f',queues={entry["pairs"]}' if entry['pairs'] > 1 else ''
    return f'tap={nic["tap"]},mac={nic["mac"]}{queues}' + (f',{entry["keys"]}' if entry['keys'] else '')


def kvmtool_network(entry, nic):
    queues = f',mq={entry["pairs"]}' if entry['pairs'] > 1 else ''
    return f'mode=tap,tapif={nic["tap"]},guest_mac={nic["mac"]}{queues}' + \
        (f',{entry["keys"]}' if entry['keys'] else '')


def argv(entry, files, nics, place, cmdline):
    """A VMM's command line; `place` is a guest's directory. Kernel, initrd, CPUs, memory, taps are the same for each."""
    common = {'kernel': files['kernel'], 'initrd': files['initrd']}
    memory = f'{files["memory"]}M'
    if entry['kind'] == 'whelp':
        found = [files['program'], 'run', '--name', f'netbench-{os.getpid()}-{pathlib.Path(place).name}',
                 '--kernel', common['kernel'], '--initrd', common['initrd'], '--cmdline', cmdline,
                 '--memory', memory, '--cpus', entry['cpus'], '--serial', f'{place}/serial', '--stats', f'{place}/stats']
        return found + [word for nic in nics for word in ('--net', whelp_net(entry, nic))]
    if entry['kind'] == 'kvmtool':
        found = [files['program'], 'run', '--name', f'netbench-{os.getpid()}-{pathlib.Path(place).name}',
                 '--kernel', common['kernel'], '--initrd', common['initrd'], '--params', cmdline,
                 '--mem', memory, '--cpus', entry['cpus'], '--console', 'serial', '--tty', 1]
        return found + [word for nic in nics for word in ('--network', kvmtool_network(entry, nic))]
    found = [files['program'], '-name', f'{entry["name"]},debug-threads=on', *QEMU,
             '-serial', f'unix:{place}/serial,server=on,wait=off', '-M', entry.get('machine', 'pc'),
             '-kernel', common['kernel'], '-initrd', common['initrd'], '-append', cmdline, '-m', memory,
             '-smp', entry['cpus']]
    return found + [word for nic in nics
                    for word in ('-netdev', netdev(entry, nic), '-device', device(entry, nic))]


class PtyRelay(threading.Thread):
    """Gives a pseudo-terminal, which is what kvmtool has for a serial port, as the unix socket that GuestChannel wants."""

    def __init__(self, terminal, path):
        super().__init__(daemon=True)
        self._terminal = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._terminal)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(1)
        self.start()

    def run(self):
        client, _ = self._listener.accept()
        try:
            while True:
                for source in select.select([client, self._terminal], [], [])[0]:
                    if source is client:
                        data = client.recv(4096)
                        if not data:
                            return
                        os.write(self._terminal, data)
                    else:
                        client.sendall(os.read(self._terminal, 4096))
        except OSError:
            # The machine ended, and its terminal with it.
            pass
        finally:
            client.close()


def make_tap(name, multi_queue, address=None, bridge=None):
    benchlib.run(['ip', 'tuntap', 'add', name, 'mode', 'tap', *(['multi_queue'] if multi_queue else [])])
    # The host's own IPv6 chatter would count as the guest's packets.
    pathlib.Path(f'/proc/sys/net/ipv6/conf/{name}/disable_ipv6').write_text('1', encoding='ascii')
    if address:
        benchlib.run(['ip', 'address', 'add', address, 'dev', name])
    if bridge:
        benchlib.run(['ip', 'link', 'set', name, 'master', bridge])
    benchlib.run(['ip', 'link', 'set', name, 'up'])


class Guest:
    """One guest and its VMM."""

    def __init__(self, entry, files, nics, place, prefix):
        self.name, self.nics, self.place = entry['name'], nics, place
        self.kind = entry['kind']
        os.mkdir(place)
        addresses = ','.join(f'{nic["name"]}:{nic["address"]}/24' for nic in nics)
        cmdline = f'console=ttyS0 quiet guest.net={addresses} guest.shell=0'
        self.process, _ = benchlib.spawn([*prefix, *argv(entry, files, nics, place, cmdline)], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.console = benchlib.Console(self.process)
        self.channel = GuestChannel(f'{place}/serial')
        self.counters = None
        self.release, self.virtio = None, {}
        self.kernel_threads = []

    def boot(self):
        self.console.wait(READY, BOOT_LIMIT, self.name)
        if self.kind == 'kvmtool':
            terminal = re.search(rb'terminal 1 to pty (\S+)', self.console.text)
            if not terminal:
                raise benchlib.Failed(f'{self.name}: kvmtool does not say where its second serial port is')
            PtyRelay(terminal.group(1).decode(), f'{self.place}/serial')
        self.channel.wait_ready(BOOT_LIMIT)
        self.release = self.channel.release
        if self.kind == 'whelp':
            self.counters = benchlib.Counters(self.process, f'{self.place}/stats')
        listing = self.run('for nic in /sys/class/net/eth*; do echo ${nic##*/} $(readlink $nic/device); done').split()
        self.virtio = {nic: pathlib.PurePath(path).name for nic, path in zip(listing[::2], listing[1::2])}
        if len(self.virtio) != len(self.nics):
            raise benchlib.Failed(f'{self.name}: the guest has {len(self.virtio)} NICs of {len(self.nics)}')

    def run(self, command, timeout=60):
        return self.channel.run(command, timeout).text

    def snapshot(self, suffix):
        """Leaves the guest's counters in the guest."""
        self.run(f'{NBRUN} snap {SNAPSHOTS}.{suffix}')

    def snapshots(self):
        """Both, as probes' snapshots."""
        packed = self.channel.run(f'{{ cat {SNAPSHOTS}.begin; echo "{NEXT.strip()}"; cat {SNAPSHOTS}.end; }} | gzip -c',
                                  60)
        text = gzip.decompress(packed.output).decode(errors='replace')
        before, _, after = text.partition(NEXT)
        return probes.parse_snapshot(before), probes.parse_snapshot(after)

    def alive(self):
        if self.process.poll() is not None:
            self.console.pump(0)
            raise benchlib.Failed(f'{self.name} ended with status {self.process.returncode}{self.console.last()}')

    def stop(self):
        self.channel.close()
        if self.counters:
            self.counters.close()
        benchlib.end(self.process)
        self.process.stdout.close()


class Machine:
    """One of the machines that are compared, with as many guests as the ways that are measured need."""

    def __init__(self, entry, number, files, ways, work, prefix):
        self.entry, self.number, self._files, self._work, self._prefix = entry, number, files, work, prefix
        self.guests = []
        self.direct = 'host-guest' in ways or 'guest-host' in ways
        self.bridged = 'guest-guest' in ways
        if entry['kind'] == 'loopback':
            self.direct = self.bridged = False

    def _nic(self, guest, index, network, end, **more):
        return {'id': f'n{index}', 'name': f'eth{index}', 'tap': f'nb{self.number}g{guest}n{index}',
                'mac': f'52:54:00:{self.number:02x}:{guest:02x}:{index:02x}',
                'address': f'198.{network}.{self.number}.{end}', **more}

    def _plug_in(self):
        """The NICs of each guest, their taps made."""
        plans = [[], []] if self.bridged else [[]]
        if self.direct:
            plans[0].append(self._nic(0, 0, 18, 2, host=f'198.18.{self.number}.1/24'))
        if self.bridged:
            bridge = f'nbb{self.number}'
            benchlib.run(['ip', 'link', 'add', bridge, 'type', 'bridge', 'forward_delay', 0])
            pathlib.Path(f'/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6').write_text('1', encoding='ascii')
            benchlib.run(['ip', 'link', 'set', bridge, 'up'])
            plans[0].append(self._nic(0, len(plans[0]), 19, 2, bridge=bridge))
            plans[1].append(self._nic(1, 0, 19, 3, bridge=bridge))
        for nic in (nic for nics in plans for nic in nics):
            make_tap(nic['tap'], self.entry['pairs'] > 1, nic.get('host'), nic.get('bridge'))
        return plans

    def start(self):
        if self.entry['kind'] == 'loopback':
            # Netperf wants an address other than lo's to be there.
            make_tap(f'nb{self.number}lo', False, f'198.18.{self.number}.1/24')
            return
        for index, nics in enumerate(self._plug_in()):
            guest = Guest(self.entry, self._files, nics, f'{self._work}/m{self.number}g{index}', self._prefix)
            self.guests.append(guest)
            guest.boot()
        if self.entry.get('offloads') == 'off':
            self._offloads_off()
        # Neighbours find each other here, and not in what is measured.
        if self.direct:
            benchlib.run(['ping', '-q', '-c', 1, '-w', 60, self.guests[0].nics[0]['address']], 90, 'the first ping')
        if self.bridged:
            self.guests[0].run(f'/usr/bin/ping -q -c 1 -w 60 {self.guests[1].nics[0]["address"]}', 90)

    def _offloads_off(self):
        for guest in self.guests:
            for nic in guest.nics:
                benchlib.run(['ethtool', '-K', nic['tap'], 'tso', 'off', 'gso', 'off', 'gro', 'off'])
                guest.run(f'ethtool -K {nic["name"]} tso off gso off gro off')

    def nic(self, way, guest=0):
        """The NIC that a way leads through."""
        return self.guests[guest].nics[-1 if way == 'guest-guest' else 0]

    def involved(self, way):
        return self.guests if way == 'guest-guest' else self.guests[:1]

    def taps(self, way):
        return [self.nic(way, number)['tap'] for number in range(len(self.involved(way)))]

    def server_address(self, way):
        if way == 'guest-host' or not self.guests:
            return f'198.18.{self.number}.1'
        return self.nic(way, 1 if way == 'guest-guest' else 0)['address']

    def look(self, way, last):
        """The host's view of this moment. What matters most is read nearest to the window: at its beginning as the
        last thing, at its end as the first, so that what it costs to look is not part of what is seen."""
        parts = [self._look_at_whelp, self._look_at_kvm, self._look_at_threads, self._look_at_files]
        found = {}
        for part in reversed(parts) if last else parts:
            part(way, found)
        return found

    def _look_at_files(self, _, found):
        found.update(files=probes.read_files(), self=time.process_time())

    def _look_at_threads(self, way, found):
        found.update(threads_time=time.time(), threads={})
        for guest in self.involved(way):
            for pid in [guest.process.pid, *guest.kernel_threads]:
                found['threads'].update(probes.thread_times(pid))

    def _look_at_kvm(self, way, found):
        found.update(kvm_time=time.time(), kvm={})
        for guest in self.involved(way):
            for name, value in probes.kvm_counters(guest.process.pid).items():
                found['kvm'][name] = found['kvm'].get(name, 0) + value

    def _look_at_whelp(self, way, found):
        found['whelp'] = {}
        for number, guest in enumerate(self.involved(way)):
            if guest.counters:
                for name, value in guest.counters.read(guest.nics.index(self.nic(way, number))).items():
                    found['whelp'][name] = found['whelp'].get(name, 0) + value

    def stop(self):
        for guest in self.guests:
            guest.stop()
        self.guests = []


__all__ = ['GuestError', 'Machine', 'NBRUN', 'SNAPSHOTS', 'argv']
