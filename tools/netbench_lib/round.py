#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One lab of tools/netbench, beside the guests, in a network namespace of its own.

usage: round.py SPEC

SPEC is a file of JSON: cases, machines, sets and settings of the plan; files: programs, kernels and initrds. Boots each
machine, then measures set by set, and prints a line of JSON for each event as it happens (journal.py), the last one
{"event": "end"}. On a fault: status 1 and a line on stderr; what was printed before holds.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import benchlib  # noqa: E402
from netbench_lib import figures, probes, traffic  # noqa: E402
from netbench_lib.machines import NBRUN, SNAPSHOTS, GuestError, Machine  # noqa: E402

TRIES = 3
IN_GUEST = {'netperf': '/usr/bin/netperf', 'iperf3': '/usr/bin/iperf3', 'ping': '/usr/bin/ping'}
# The ports of iperf3's servers, 5201 to 5328, listening, in /proc/net/tcp.
LISTENING = r':14[5-9A-D][0-9A-F] 0*:0000 0A '


class Discard(benchlib.Failed):
    """A run that does not count; another one may."""


def say(**event):
    print(json.dumps(event), flush=True)


class Servers:
    """netserver and iperf3's servers on the host, for clients in guests and for the loopback."""

    def __init__(self, files, prefix):
        self._files, self._prefix = files, prefix
        self._running = {}

    def _listening(self):
        text = ''.join(pathlib.Path(f'/proc/net/{name}').read_text(encoding='ascii') for name in ('tcp', 'tcp6')
                       if os.path.exists(f'/proc/net/{name}'))
        return {int(line.split()[1].rsplit(':', 1)[1], 16) for line in text.splitlines()
                if ':' in line and line.split()[3] == '0A'}

    def _start(self, port, command):
        process, _ = benchlib.spawn([*self._prefix, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        self._running[port] = process
        deadline = time.monotonic() + 60
        while port not in self._listening():
            if process.poll() is not None or time.monotonic() > deadline:
                raise benchlib.Failed(f'{command[0]} does not listen on port {port}')
            time.sleep(0.02)

    def prepare(self, case):
        """Fresh ones where an earlier test may have left some at work."""
        if traffic.TESTS[case['test']].mode == 'iperf3':
            for port in [port for port in self._running if port != traffic.NETSERVER]:
                benchlib.end(self._running.pop(port))
            for number in range(case['sessions']):
                port = traffic.IPERF3 + number
                self._start(port, [self._files['iperf3'], '-s', '-p', port])
        elif traffic.NETSERVER not in self._running:
            self._start(traffic.NETSERVER, [self._files['netserver'], '-D', '-p', traffic.NETSERVER])

    def forget_netserver(self):
        """UDP servers wait long for a client that is gone."""
        if traffic.NETSERVER in self._running:
            benchlib.end(self._running.pop(traffic.NETSERVER))

    def stop(self):
        for process in self._running.values():
            benchlib.end(process)
        self._running = {}


class Lab:
    def __init__(self, spec, work):
        self.spec, self.work = spec, work
        self.cases = spec['cases']
        self.load_prefix = ['taskset', '-c', spec['load_cpus']] if spec['load_cpus'] else []
        self.machines = {}
        self.files = {}
        self.servers = None

    def warm_up(self):
        """Copies what is read into memory: in the lab files are slow to read the first time."""
        copies = {}
        for name, path in self.spec['files'].items():
            # A script that finds its libraries beside it stays where it is.
            if name.split(':')[0] in ('kernel', 'initrd', 'whelp', 'nbrun', 'netperf', 'netserver'):
                if path not in copies:
                    copies[path] = shutil.copy2(path, f'{self.work}/{len(copies)}-{os.path.basename(path)}')
                path = copies[path]
            self.files[name] = path
        self.files.update(iperf3='iperf3', ping='ping')

    def boot(self):
        if not probes.KVM.exists():
            subprocess.run(['mount', '-t', 'debugfs', 'debugfs', '/sys/kernel/debug'], stderr=subprocess.DEVNULL,
                           check=False)
        ways = {case['way'] for case in self.cases}
        prefix = ['taskset', '-c', self.spec['vmm_cpus']] if self.spec['vmm_cpus'] else []
        for number, entry in enumerate(self.spec['machines'], 1):
            files = {'program': self.files.get(f'{entry["kind"]}:{entry["name"]}'), 'memory': self.spec['memory'],
                     **{name: self.files.get(f'{name}:{entry.get("kernel", self.spec["kernel"])}')
                        for name in ('kernel', 'initrd')}}
            machine = Machine(entry, number, files, ways, self.work, prefix)
            self.machines[entry['name']] = machine
            since = time.monotonic()
            try:
                machine.start()
            except (benchlib.Failed, GuestError):
                say(event='no_boot', machine=entry['name'])
                raise
            say(event='booted', machine=entry['name'], seconds=round(time.monotonic() - since, 1),
                releases=[guest.release for guest in machine.guests])
        for machine in self.machines.values():
            for guest in machine.guests:
                guest.kernel_threads = probes.kernel_threads([guest.process.pid])
        self.servers = Servers(self.files, self.load_prefix)

    # ---- one run ----

    def prepare(self, machine, case):
        """Servers, and pktgen's settings."""
        way, test = case['way'], traffic.TESTS[case['test']]
        if case['test'] == 'PKTGEN':
            # To an address that is not the receiver's own, so that it answers nothing.
            target = machine.nic(way, 1)['mac'] if way == 'guest-guest' else '02:00:00:00:00:01'
            machine.guests[0].run(traffic.pktgen_setup(machine.nic(way)['name'], target, '198.18.255.1', case,
                                                       self.spec['burst']))
        elif case['test'] != 'PING':
            if way == 'guest-host' or not machine.guests:
                self.servers.prepare(case)
            elif test.mode == 'iperf3':
                machine.guests[-1 if way == 'guest-guest' else 0].run(
                    'killall iperf3; '
                    f'for n in $(seq 1 {case["sessions"]}); do iperf3 -s -D -p $((5200 + n)) >/dev/null; done; '
                    f'until [ $(cat /proc/net/tcp /proc/net/tcp6 | grep -c "{LISTENING}") -ge {case["sessions"]} ]; '
                    'do usleep 20000; done')

    def clean_up(self, machine, case):
        if traffic.TESTS[case['test']].udp and traffic.TESTS[case['test']].mode == 'netperf':
            if case['way'] == 'guest-host' or not machine.guests:
                self.servers.forget_netserver()
            else:
                machine.guests[-1 if case['way'] == 'guest-guest' else 0].run(
                    'killall netserver; netserver >/dev/null')

    def run_once(self, machine, case, attempt):
        """(nbrun's result, the host's looks at both ends)"""
        way, seconds, patience = case['way'], self.spec['seconds'], 2 * traffic.patience(case)
        in_guest = way != 'host-guest'
        involved = machine.involved(way)
        others = involved[1:] if in_guest else involved
        command = traffic.client(case, machine.server_address(way), seconds, IN_GUEST if in_guest else self.files,
                                 attempt)
        argv = traffic.nbrun(NBRUN if in_guest else self.files['nbrun'], case, seconds,
                             SNAPSHOTS if in_guest else '-', command)
        runner = traffic.InGuest(machine.guests[0].channel, argv) if in_guest else \
            traffic.Here(argv, self.load_prefix)
        looks = []
        try:
            if runner.expect('running', patience):
                for guest in others:
                    guest.snapshot('begin')
                looks.append(machine.look(way, last=False))
                runner.say('go')
                if runner.expect('begin', patience) and runner.expect('end', patience + seconds):
                    looks.append(machine.look(way, last=True))
                    for guest in others:
                        guest.snapshot('end')
                    runner.say('stop')
            result = traffic.parse(runner.finish(2 * patience))
        finally:
            runner.close()
        return result, looks

    def measure(self, machine, case, attempt):
        """A run's figures."""
        self.prepare(machine, case)
        try:
            result, looks = self.run_once(machine, case, attempt)
        finally:
            self.clean_up(machine, case)
        overlap = traffic.overlap(result)
        if overlap < self.spec['overlap']:
            idle = traffic.idle(result)
            raise Discard(f'{idle} of {case["sessions"]} sessions never got to work' if idle else
                          f'all sessions worked for {overlap:.0f} % of the time only')
        way = case['way']
        involved = machine.involved(way)
        guests = [guest.snapshots() for guest in involved]
        nics = [machine.nic(way, number) for number in range(len(involved))]
        return figures.of_run(case, result, looks, guests, [nic['tap'] for nic in nics],
                              [nic['name'] for nic in nics],
                              [guest.virtio[nic['name']] for guest, nic in zip(involved, nics)])

    def measure_set(self, entry):
        case = self.cases[entry['case']]
        for name in entry['machines']:
            if name not in self.machines:
                say(event='left_out', set=entry['id'], case=entry['case'], machine=name, why='it did not boot, twice')
                continue
            for attempt in range(TRIES):
                since = time.monotonic()
                try:
                    run = self.measure(self.machines[name], case, attempt)
                except benchlib.Failed as err:
                    # A guest that is gone is the lab's end; what only failed is tried again.
                    for guest in self.machines[name].guests:
                        guest.alive()
                    say(event='discarded' if attempt + 1 < TRIES else 'left_out', set=entry['id'], case=entry['case'],
                        machine=name, why=str(err))
                    continue
                say(event='run', set=entry['id'], case=entry['case'], machine=name,
                    took=round(time.monotonic() - since, 2), **run)
                break
        say(event='set', set=entry['id'])

    def run(self):
        try:
            self.warm_up()
            self.boot()
            for entry in self.spec['sets']:
                say(event='begun', set=entry['id'])
                self.measure_set(entry)
        finally:
            if self.servers:
                self.servers.stop()
            for machine in self.machines.values():
                machine.stop()
        say(event='end')


def main():
    benchlib.end_on_signals()
    try:
        spec = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding='utf-8'))
        about = benchlib.machine()
        say(event='machine', host=about['host'], kvm=about['kvm'], in_lab=about['lab'], cpus=os.cpu_count())
        with tempfile.TemporaryDirectory(prefix='netbench.') as work:
            Lab(spec, work).run()
    except (benchlib.Failed, GuestError, OSError) as err:
        print(f'netbench: {err}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
