# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench-ring: its arithmetic, with figures whose result is known, and one short round of it. Needs no KVM."""

import json
import os
import subprocess
import sys

import pytest

import libtools
import ring_result as rr
import ring_round


@pytest.fixture(scope='module')
def bench():
    return libtools.load('bench-ring')


def sample(ns, backend='tap', subject='device', number=0, **changes):
    ring = '-' if subject == 'bare' else 'split'
    return {'backend': backend, 'dir': 'tx', 'size': 60, 'pairs': 1, 'ring': ring, 'subject': subject, 'round': number,
            'net': '', 'ns': ns, 'cycles': 2 * ns, 'mpps': 1000 / ns, 'cpu_ns': ns, 'cpu_all_ns': 3 * ns,
            'instructions': None, **changes}


def by_name(samples):
    return {target['what']: target for target in rr.targets(samples)}


def test_a_ratio_is_taken_within_a_round():
    # The machine is twice as slow in the second round: the ratio is not.
    samples = [sample(100, subject='bare'), sample(105), sample(200, subject='bare', number=1), sample(210, number=1),
               sample(1, number=2)]
    (name, target), = by_name(samples).items()
    assert name == 'tap tx 60, 1 pair, split, device: time per frame, of the bare loop'
    assert target['median'] == target['min'] == target['max'] == pytest.approx(1.05)
    assert target['met'] and target['by'] == pytest.approx(1 - 1.05 / 1.10)


def test_a_target_missed():
    (target,) = rr.targets([sample(100, subject='bare'), sample(121)])
    assert not target['met'] and rr.verdict(target) == 'MISSED by 10.0%'
    (target,) = rr.targets([sample(250.0, backend='null')])
    assert target['median'] == 4.0 and rr.verdict(target) == 'MISSED by 60.0%'


def test_with_io_uring_more_is_asked():
    samples = [sample(100, subject='bare'), sample(90), sample(90, subject='device u', net='io=uring')]
    assert [target['met'] for target in rr.targets(samples)] == [True, False]
    assert not any('io=uring' in line for line in rr.remarks(samples, samples))
    assert any('io=uring' in line for line in rr.remarks(samples[:2], samples[:2]))


def test_pairs_and_counters():
    samples = [sample(50, backend='null'), sample(50, backend='null', pairs=2, mpps=36.0),
               sample(48, backend='null', subject='uncounted')]
    targets = by_name(samples)
    assert targets['null tx 60, split, device: two pairs, of one']['median'] == pytest.approx(1.8)
    assert not targets['null tx 60, split, device: two pairs, of one']['met']
    assert targets['null tx 60, 1 pair, split: with counters, of without']['median'] == pytest.approx(50 / 48)
    assert targets['null tx 60, split, device: frames per second of CPU time']['median'] == 20.0


def test_table_and_remarks():
    failed = {**sample(1, pairs=2), 'failed': 'no tap: it needs root'}
    samples = [sample(100, subject='bare'), sample(110), sample(140, number=1, no_instructions='not there'), failed]
    head, rows = rr.table(samples)
    assert [len(row) for row in rows] == [len(head)] * 2
    assert rows[0][:4] == ['tap tx 60', 1, '-', 'bare'] and rows[0][-1] == '-'
    assert rows[1][4:9] == ['110.0', '125.0', '140.0', '21.2', 2] and rows[1][-1] == '1.10'
    lines = rr.remarks(samples, samples)
    assert 'failed in 1 round: tap tx 60, 2 pairs, split, device: no tap: it needs root' in lines
    assert 'no instructions: perf_event_open says: not there' in lines


def options(bench, monkeypatch, *words):
    monkeypatch.setattr(sys, 'argv', ['bench-ring', *words])
    return bench.arguments()


def test_samples_of_a_round(bench, monkeypatch):
    everything = bench.all_samples(options(bench, monkeypatch))
    keys = [rr.key(found) for found in everything]
    assert len(set(keys)) == len(keys)
    for backend in ('null', 'socketpair', 'tap'):
        for subject in ('device', 'uncounted', *(['bare'] * (backend != 'null'))):
            assert any(key[0] == backend and key[-1] == subject for key in keys)
    chosen = bench.all_samples(options(bench, monkeypatch, '--only', 'backend=tap,ring=packed,dir=tx,size=256,pairs=1',
                                       '--net', 'mtu=1500', '--variant', 'p:poll=off'))
    assert [(found['subject'], found['ring'], found.get('net')) for found in chosen] == [
        ('bare', '-', None), ('device', 'packed', 'mtu=1500'), ('device syscall', 'packed', 'mtu=1500,io=syscall'),
        ('device uring', 'packed', 'mtu=1500,io=uring'), ('device p', 'packed', 'mtu=1500,poll=off')]
    assert ring_round.arguments({'seconds': 0.1, 'pin': True}, chosen[0]) == [
        'backend=tap', 'dir=tx', 'size=256', 'pairs=1', 'subject=bare', 'ms=100', 'pin=1']


@pytest.mark.parametrize('words', [('--only', 'backend=tun'), ('--only', 'size=x'), ('--variant', 'u'), ('-n', '0')])
def test_wrong_options(bench, monkeypatch, words):
    with pytest.raises(SystemExit):
        options(bench, monkeypatch, *words)


@pytest.fixture(scope='module')
def short_round(tmp_path_factory):
    """The result of one, and what was printed."""
    file = tmp_path_factory.mktemp('ring') / 'ring.json'
    subprocess.run(['make', '-s', 'all', 'bench-programs'], cwd=libtools.ROOT, check=True, timeout=600)
    only = [word for backend in rr.BACKENDS for word in ('--only', f'backend={backend},pairs=1')]
    done = subprocess.run([libtools.ROOT / 'tools/bench-ring', '-n', '1', '--seconds', '0.001', '--json', file, *only],
                          stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return json.loads(file.read_text()), done.stdout


def test_a_short_round(short_round):
    result, printed = short_round
    for backend, subjects in {'null': ('device', 'uncounted'), 'socketpair': ('bare', 'device', 'uncounted')}.items():
        found = [found for found in result['samples'] if found['backend'] == backend]
        assert {found['subject'] for found in found} == set(subjects)
        for one in found:
            assert 'failed' not in one and one['bursts'] >= 1 and one['burst'] >= 2
            assert one['ns'] > 0 and one['cycles'] > 0 and one['cpu_all_ns'] > 0
    assert '| null tx 60 | 1 | split | device |' in printed and '| socketpair rx 65000 | 1 | - | bare |' in printed


def test_taps_are_measured_or_said_to_be_left_out(short_round):
    result, printed = short_round
    found = [found for found in result['samples'] if found['backend'] == 'tap']
    if os.path.exists('/dev/net/tun') and not result['left_out']:
        # A tap is free again as soon as the one before is done with it, or the next could not be made.
        assert found and not any('failed' in one for one in found if one['subject'] != 'device uring')
        assert any(target['what'].startswith('tap rx 60') for target in result['targets'])
    else:
        assert 'left out: tap' in printed or all('failed' in one for one in found)
