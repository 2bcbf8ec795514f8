# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs, one after the other, from the plan and the journal: what tools/netbench does until the reports."""

import collections
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import benchlib
from netbench_lib import plan as plans
from netbench_lib import traffic

# A lab, a machine or a set that fails this often is given up.
FAILURES = 2
# Of one lab in all, when now this and now that machine does not boot.
MOST_FAILURES = 8


# ---- what the guests need --------------------------------------------------------------------------


def up_to_date(made, *parts):
    return made.exists() and all(made.stat().st_mtime > pathlib.Path(part).stat().st_mtime for part in parts)


def compile_nbrun():
    """nbrun, for the host and for guests alike."""
    source, program = pathlib.Path(__file__).with_name('nbrun.c'), benchlib.build_dir() / 'bench/nbrun'
    if not up_to_date(program, source):
        part = f'{program}.{os.getpid()}'
        benchlib.run([*shlex.split(os.environ.get('CC', 'cc')), '-std=gnu17', '-D_GNU_SOURCE', '-O2', '-static',
                      '-o', part, source], 300, 'compiling nbrun.c')
        os.replace(part, program)
    return str(program)


def kernel_files(name, netperf, nbrun, with_pktgen):
    """A kernel by its name or path, and the guest's initrd for it."""
    kernel = name if '/' in name else benchlib.tool(benchlib.ROOT / 'tools/get-kernel', name)
    short = re.sub(r'[^A-Za-z0-9._-]', '-', name.strip('/'))
    initrd = benchlib.build_dir() / f'bench/netbench-{short}{"-pktgen" * with_pktgen}.cpio'
    guest = benchlib.ROOT / 'guest'
    if not up_to_date(initrd, kernel, nbrun, guest / 'mkguest', guest / 'init', guest / 'agent.c'):
        benchlib.tool(guest / 'mkguest', '--kernel', kernel, '--netperf', netperf, '--add', f'{nbrun}:/sbin/nbrun',
                      *(['--module', 'pktgen'] if with_pktgen else []), '-o', initrd)
    return kernel, str(initrd)


def keep_programs(plan, directory):
    """Copies of each whelp in the result's directory: a build in the meantime, or before --resume, changes nothing."""
    kept = directory / 'programs'
    kept.mkdir(exist_ok=True)
    found = {}
    for entry in plan['machines']:
        if entry['kind'] != 'whelp':
            continue
        source = pathlib.Path(entry.get('program') or benchlib.build_dir() / 'whelp').resolve()
        if source not in found:
            found[source] = kept / f'whelp-{len(found)}'
            if not found[source].exists():
                if not os.access(source, os.X_OK):
                    raise benchlib.Failed(f'there is no {source}: run make')
                shutil.copy2(source, found[source])
        entry['kept'] = str(found[source])


def prepare(plan, directory, staging):
    """{name: path} of all files that a lab needs, and {program: version}."""
    (benchlib.build_dir() / 'bench').mkdir(parents=True, exist_ok=True)
    nbrun, netperf = compile_nbrun(), benchlib.tool(benchlib.ROOT / 'tools/get-netperf')
    files = {'nbrun': nbrun, 'netperf': f'{netperf}/netperf', 'netserver': f'{netperf}/netserver'}
    versions = {'netperf': benchlib.run([files['netperf'], '-V']).strip()}
    if any(case['test'].startswith('IPERF3') for case in plan['cases']):
        if not shutil.which('iperf3'):
            raise benchlib.Failed('iperf3 is missing: apt-get install iperf3')
        versions['iperf3'] = benchlib.run(['iperf3', '--version']).splitlines()[0]
    with_pktgen = any(case['test'] == 'PKTGEN' for case in plan['cases'])
    for name in {entry.get('kernel', plan['kernel']): None for entry in plan['machines']}:
        files[f'kernel:{name}'], files[f'initrd:{name}'] = kernel_files(name, netperf, nbrun, with_pktgen)
        versions[f'kernel {name}'] = pathlib.Path(files[f'kernel:{name}']).name.removeprefix('vmlinuz-')
    keep_programs(plan, directory)
    for entry in plan['machines']:
        kind = entry['kind']
        if kind == 'loopback':
            continue
        if kind == 'whelp':
            program = shutil.copy2(entry['kept'], f'{staging}/{pathlib.Path(entry["kept"]).name}')
            versions[f'whelp ({entry["name"]})'] = benchlib.run([program, '--version']).strip()
        elif kind == 'kvmtool':
            program = os.path.abspath(entry.get('program') or plan['kvmtool'])
            versions[f'kvmtool ({entry["name"]})'] = benchlib.run([program, 'version']).strip()
        else:
            program = os.path.abspath(entry.get('program') or benchlib.tool(benchlib.ROOT / 'tools/get-qemu'))
            line = benchlib.run([program, '--version']).splitlines()[0]
            versions[f'QEMU ({entry["name"]})'] = line.replace('QEMU emulator version ', '')
        files[f'{kind}:{entry["name"]}'] = program
    return files, versions


# ---- one lab ---------------------------------------------------------------------------------------


def time_limit(plan, lab, sets):
    count = sum(len(entry['machines']) for entry in sets)
    guests = sum(plans.guests_of(entry, plan['cases']) for entry in lab['machines'])
    return min(86400, int(300 + 90 * guests + count * (2 * plan['seconds'] + 45)))


def memory_of_lab(plan, lab):
    guests = sum(plans.guests_of(entry, plan['cases']) for entry in lab['machines'])
    return 2048 + guests * (plan['memory'] + 128)


def run_lab(plan, lab, sets, files, staging, without, on_event):
    """Runs a lab; on_event gets each event as it happens. Failed if it did not come to its end."""
    machines = [entry for entry in lab['machines'] if entry['name'] not in without]
    spec = {**{name: plan[name] for name in ('cases', 'seconds', 'overlap', 'memory', 'burst', 'kernel', 'vmm_cpus',
                                             'load_cpus')},
            'machines': machines, 'sets': sets, 'files': files}
    path = pathlib.Path(staging, 'spec.json')
    path.write_text(json.dumps(spec), encoding='utf-8')
    events, ended = [], False
    with open(f'{staging}/errors', 'w+', encoding='utf-8', errors='replace') as errors:
        process, _ = benchlib.spawn(
            [*benchlib.as_root(), benchlib.ROOT / 'tools/with-kvm', '--once', '-c', plan['lab_cpus'],
             '-m', memory_of_lab(plan, lab), '-t', time_limit(plan, lab, sets),
             '-e', f'WHELP_HOST={benchlib.describe_host()}', '--', benchlib.ROOT / 'tools/private-net',
             '/usr/bin/python3', '-B', pathlib.Path(__file__).with_name('round.py'), path],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            for line in process.stdout:
                event = json.loads(line)
                events.append(event)
                ended = event['event'] == 'end'
                on_event(event)
            process.wait()
        finally:
            benchlib.end(process)
            process.stdout.close()
        errors.seek(0)
        words = [line for line in errors.read().splitlines() if not line.startswith('with-kvm: running')]
    if process.returncode or not ended:
        last = words[-1] if words else f'the lab ended with status {process.returncode} without a word'
        # Whether it is given up is not the lab's to say: it is told to try once.
        raise benchlib.Failed(re.sub(r'^(netbench|lab): |; giving up(?= \(console)', '', last))


# ---- all labs --------------------------------------------------------------------------------------


class Progress:
    """Lines about each run, with the time that is likely left."""

    def __init__(self, plan, events):
        self._plan, self._total = plan, plans.count_runs(plan)
        self._done = len(plans.runs(events))
        self._begun, self._measured = time.monotonic(), 0
        self._references = {}

    def left(self):
        if not self._measured:
            return ''
        seconds = (time.monotonic() - self._begun) / self._measured * max(0, self._total - self._done)
        return f', {datetime.timedelta(seconds=round(seconds))} left'

    def run(self, event):
        self._done += 1
        self._measured += 1
        case = self._plan['cases'][event['case']]
        unit = traffic.UNITS[traffic.TESTS[case['test']].kind]
        print(f'[{self._done}/{self._total}{self.left()}] {plans.case_name(case)}: {event["machine"]} '
              f'{event["figure"]:.{3 if unit == "ms" else 1}f} {unit}', flush=True)

    def set_was_lost(self, runs):
        self._done -= runs


def complain(text):
    print(f'netbench: {text}', file=sys.stderr, flush=True)


class Campaign:
    """All labs of a plan that the journal does not have yet."""

    def __init__(self, plan, journal, files, staging):
        self.plan, self.journal, self.files, self.staging = plan, journal, files, staging
        self.progress = Progress(plan, journal.events)
        self.number = max((event['lab'] for event in journal.events if 'lab' in event), default=0)
        self.no_boot = collections.Counter()

    def _lab(self, lab, sets, without):
        """One try. The set that had begun when it failed, or None before any."""
        self.number += 1
        current, runs = None, 0
        self.journal.add(event='lab', lab=self.number, round=lab['round'], group=lab['group'],
                         load=round(os.getloadavg()[0], 2), time=benchlib.now())

        def on_event(event):
            nonlocal current, runs
            kind = event['event']
            if kind == 'begun':
                current, runs = event['set'], 0
                return
            if kind == 'end':
                return
            self.journal.add(**event, lab=self.number)
            if kind == 'run':
                runs += 1
                self.progress.run(event)
            elif kind == 'set':
                current = None
            elif kind == 'booted':
                self.no_boot[event['machine']] = 0
            elif kind == 'no_boot':
                self.no_boot[event['machine']] += 1
            elif kind in ('discarded', 'left_out'):
                complain(f'{plans.case_name(self.plan["cases"][event["case"]])}, {event["machine"]}: '
                         f'{kind.replace("_", " ")}: {event["why"]}')
        try:
            run_lab(self.plan, lab, sets, self.files, self.staging, without, on_event)
        except benchlib.Failed as err:
            self.progress.set_was_lost(runs if current else 0)
            self.journal.add(event='fault', lab=self.number, why=str(err))
            return current, str(err)
        return None, None

    def give_up(self, sets, why):
        for entry in sets:
            self.journal.add(event='given_up', set=entry['id'], case=entry['case'], lab=self.number, why=why)

    def run(self):
        todo = plans.labs(self.plan)
        for index, lab in enumerate(todo, 1):
            failures = collections.Counter()
            names = [entry['name'] for entry in lab['machines']]
            while sets := plans.left(lab, self.journal.events):
                without = [name for name in names if self.no_boot[name] >= FAILURES]
                print(f'-- lab {index} of {len(todo)}: round {lab["round"] + 1}, '
                      f'{", ".join(name for name in names if name not in without)}', flush=True)
                failed_boots = self.no_boot.copy()
                current, why = self._lab(lab, sets, without)
                if not why:
                    continue
                failures[current] += 1
                lost = [name for name in names if self.no_boot[name] == FAILURES > failed_boots[name]]
                if lost and any(self.no_boot[name] < FAILURES for name in names):
                    complain(f'{why}; once more, without {lost[0]}')
                elif self.no_boot != failed_boots and not lost and failures.total() < MOST_FAILURES:
                    complain(f'{why}; once more, in a fresh lab')
                elif failures[current] < FAILURES:
                    complain(f'{why}; once more, in a fresh lab')
                else:
                    complain(f'{why}; given up')
                    self.give_up(sets if current is None else [entry for entry in sets if entry['id'] == current], why)


def measure(plan, journal, directory):
    """Measures what is left of a plan."""
    decision = benchlib.tool(benchlib.ROOT / 'tools/with-kvm', '--decide')
    place, _, reason = decision.partition(' ')
    print(f'measuring {"directly" if place == "direct" else "in the lab"}: {reason}')
    (benchlib.build_dir() / 'bench').mkdir(parents=True, exist_ok=True)
    # Not below /tmp, which a lab does not see.
    with tempfile.TemporaryDirectory(prefix='netbench.', dir=benchlib.build_dir() / 'bench') as staging:
        os.chmod(staging, 0o755)
        files, versions = prepare(plan, directory, staging)
        journal.add(event='start', versions=versions, place=place, reason=reason, host=benchlib.describe_host(),
                    time=benchlib.now())
        for name, version in versions.items():
            print(f'{name}: {version}')
        print(f'host: {benchlib.describe_host()}, load {os.getloadavg()[0]:.2f}', flush=True)
        Campaign(plan, journal, files, staging).run()
