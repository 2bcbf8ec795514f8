# SPDX-License-Identifier: GPL-2.0-or-later
"""The arithmetic of tools/bench-policy and tools/record-traces, with figures whose result is known; needs neither root
nor KVM."""

import struct
import types

import pytest

import libtools
import benchlib


@pytest.fixture(scope='module')
def bench():
    return libtools.load('bench-policy')


@pytest.fixture(scope='module')
def recorder():
    return libtools.load('record-traces')


COSTS = {'kick': 10000, 'kick_latency': 5000, 'timer_set': 500, 'timer': 4000, 'overshoot_min': 1000,
         'overshoot_max': 9000, 'look': 50, 'send': 1000}
LATENCY = 200


def found(cost, p50=1000, p99=2000, waited_max=0):
    return {'cost': cost, 'packets': 100, 'latency_p50': p50, 'latency_p99': p99, 'waited_max': waited_max}


def result(trace, adaptive, optimum=1000, off=None):
    return {'trace': trace, 'optimum': optimum, 'policies': {'off': off or found(1000), 'adaptive': adaptive}}


def test_traces_keep_their_order_and_their_seeds(bench):
    results = [result('b', found(1)), result('a', found(2)), result('b', found(3)), result('a', found(4))]
    traces = bench.by_trace(results)
    assert list(traces) == ['b', 'a']
    assert [run['policies']['adaptive']['cost'] for run in traces['b']] == [1, 3]


def test_ratio(bench):
    assert bench.ratio(result('a', found(1500)), 'adaptive') == 1.5
    assert bench.ratio(result('a', found(0), optimum=0), 'adaptive') == 1
    assert bench.ratio(result('a', found(1), optimum=0), 'adaptive') == float('inf')


@pytest.mark.parametrize('values, text', [
    ([1.234], '1.23'), ([9.949], '9.95'), ([9.96], '10.0'), ([99.4], '99.4'), ([99.6], '100'), ([12345], '12,345'),
    ([1, 3, 2], '2.00 (1.00-3.00)'), ([1.001, 1.002], '1.00'),
])
def test_cells(bench, values, text):
    assert bench.cells(values) == text


def verdicts(bench, *results):
    return bench.verdicts(bench.by_trace(results), COSTS, LATENCY)


def test_cost_target(bench):
    met = verdicts(bench, result('a', found(1990)), result('b', found(1200)), result('a', found(1000)))
    assert 'met on 2 of 2 traces' in met[0] and '1.99, on a' in met[0]
    missed = verdicts(bench, result('a', found(1990)), result('b', found(2500)), result('b', found(1000)))
    assert 'met on 1 of 2 traces, missed on b (2.50)' in missed[0]


def test_bound(bench):
    allowed = 200 * 1000 + 9000 + 500 + 5000 + 100
    assert ': met' in verdicts(bench, result('a', found(1000, waited_max=allowed)))[1]
    assert ': missed' in verdicts(bench, result('a', found(1000, waited_max=allowed + 1)))[1]


def test_latency_target(bench):
    off = found(1000, p50=1000, p99=2000)
    assert verdicts(bench, result('request-1ms', found(1000, 1100, 2200), off=off))[2].endswith(': met')
    assert 'request-1ms, p50: 1.20' in verdicts(bench, result('request-1ms', found(1000, 1200, 2200), off=off))[2]
    # Under load a packet may wait.
    assert verdicts(bench, result('constant-300k', found(1000, 9000, 9000), off=off))[2].endswith(': met')


def test_costs_from_a_file(bench, tmp_path):
    path = tmp_path / 'costs.json'
    path.write_text('{"costs": {"kick": 1}}')
    with pytest.raises(benchlib.Failed, match='no costs'):
        bench.measure('none', types.SimpleNamespace(costs=path))


def capture(*times):
    """A capture with frames of different lengths at these times."""
    data = struct.pack('<IHHiIII', 0xa1b23c4d, 2, 4, 0, 0, 64, 1)
    for number, time in enumerate(times):
        data += struct.pack('<IIII', time // 10**9, time % 10**9, number, 1000) + b'x' * number
    return data


def test_a_capture_becomes_a_trace(recorder):
    times = [5 * 10**9 - 1, 5 * 10**9 + 7, 5 * 10**9 + 7, 6 * 10**9]
    assert recorder.times_of(capture(*times)) == times
    lines = recorder.as_text('x', [['TCP_RR'], ['UDP_STREAM', '-m', '64']], times).splitlines()
    assert lines[0] == 'whelp-trace 1'
    assert 'netperf TCP_RR beside netperf UDP_STREAM -m 64' in lines[1]
    assert [line for line in lines[1:] if not line.startswith('#')] == ['0', '8', '0', '999999993']


def test_another_capture_is_refused(recorder):
    with pytest.raises(benchlib.Failed, match='another kind'):
        recorder.times_of(struct.pack('<I', 0xa1b2c3d4) + bytes(20))
