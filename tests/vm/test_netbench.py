# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/netbench: a small matrix, whelp beside QEMU, stopped and resumed. What it measures is no matter here."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import libvm

sys.path.insert(0, str(libvm.ROOT / 'tools'))
import benchlib  # noqa: E402
from netbench_lib import rounds  # noqa: E402

LIMIT = 400
MATRIX = ['--tests', 'TCP_RR,PING,UDP_STREAM:1024', '--seconds', '1', '--rounds', '1', '--kernel', 'cloud',
          '--variant', 'ours:ring=512', '--peer', 'qemu']


def prepare():
    """Makes what is slow to make in the lab."""
    (libvm.BUILD / 'bench').mkdir(exist_ok=True)
    netperf = benchlib.tool(libvm.ROOT / 'tools/get-netperf')
    rounds.kernel_files('cloud', netperf, rounds.compile_nbrun(), False)
    benchlib.tool(libvm.ROOT / 'tools/get-qemu')


def start(*argv):
    return subprocess.Popen([libvm.ROOT / 'tools/netbench', *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env={**os.environ, 'PATH': libvm.PATH})


def finish(process):
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    return output


def events(directory, kind):
    lines = (directory / 'journal.jsonl').read_text().splitlines()
    return [event for event in map(json.loads, lines) if event['event'] == kind]


def left_behind():
    """Processes and files of a bench, wherever they are."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
        try:
            words = path.read_bytes().split(b'\0')
        except OSError:
            continue
        text = b' '.join(words).decode(errors='replace')
        if re.search(r'netbench_lib/round.py|netbench\.\w+/|tools/netbench ', text) and 'pytest' not in text:
            found.append(text)
    return found + [str(path) for path in (libvm.BUILD / 'bench').glob('netbench.*')]


def test_a_matrix_is_stopped_and_resumed(tmp_path):
    prepare()
    there = left_behind()
    directory = tmp_path / 'result'
    process = start(*MATRIX, '--out', str(directory))
    deadline = time.monotonic() + LIMIT
    journal = directory / 'journal.jsonl'
    while not journal.exists() or not events(directory, 'set'):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline, 'no set is complete'
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130 and f'--resume {directory} goes on' in output, output
    assert re.search(r'^measuring (directly|in the lab): \S', output, re.M), output
    assert set(left_behind()) <= set(there)
    before = events(directory, 'set')

    process = start('--resume', str(directory))
    output = finish(process)
    assert process.returncode == 0, output
    assert set(left_behind()) <= set(there)
    # Each set is complete once: what was there was not measured again.
    sets = [event['set'] for event in events(directory, 'set')]
    assert sorted(sets) == ['0.0.0.0', '0.0.1.0', '0.0.2.0'] and sets[:len(before)] == [e['set'] for e in before]

    result = json.loads((directory / 'result.json').read_text())
    cells = {(cell['test'], cell['machine']): cell for cell in result['cells']}
    assert set(cells) == {(test, name) for test in ('TCP_RR', 'PING', 'UDP_STREAM') for name in ('ours', 'qemu')}
    for (test, name), cell in cells.items():
        metrics = cell['metrics']
        assert cell['figure']['n'] == 1 and metrics['overlap']['min'] >= 95
        # The lab has one CPU, so that a flood may leave the receiver nothing.
        if test != 'UDP_STREAM':
            assert cell['figure']['min'] > 0 and cell['ratio']['min'] > 0
            for column in ('cpu_guest', 'sd_host', 'sd_guest', 'packets', 'irq_rx', 'exits'):
                assert metrics[column]['min'] > 0, (test, name, column)
        assert metrics['cpu_vmm']['min'] > 0 and ('kicks' in metrics) == (name == 'ours')
        assert any(thread.startswith(('vcpu', 'CPU ')) for thread in cell['threads'])
    # A transaction is a kick and a received frame; answers are some of what interrupts, so at most one each.
    assert 200 < cells['TCP_RR', 'ours']['metrics']['kicks']['min'] <= 520

    rows = list(csv.DictReader((directory / 'result.csv').read_text().splitlines()))
    assert {row['machine'] for row in rows if row['what'] == 'figure'} == {'ours', 'qemu'}
    text = (directory / 'result.md').read_text()
    assert 'ours: whelp, 1 CPU, 1 queue pair, ring=512' in text and '## TCP_RR, host-guest, 1 bytes' in text
    page = (directory / 'result.html').read_text()
    tree = xml.etree.ElementTree.fromstring(page.replace('<!doctype html>', ''))
    assert len(list(tree.iter('svg'))) >= 6
