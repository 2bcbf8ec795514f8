# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench-performance without measuring: what it says of results that are made up, the page, and the plots."""

import importlib
import json
import math
import re
import sys

import pytest

import libtools
import benchlib
from netbench_lib import campaign, journal, options, plan, tables
from performance_lib import campaigns, condensed, page, plots, targets


@pytest.fixture(scope='module')
def bench():
    return libtools.load('bench-performance')


# ---- made-up results -------------------------------------------------------------------------------


def plan_of(name, rounds=3):
    return options.make_plan(options.parser().parse_args([*campaigns.CAMPAIGNS[name].argv, '--rounds', str(rounds)]))


METRICS = {'sd_host': 10.0, 'kicks': 1.0, 'irq_rx': 1.0, 'irq_tx': 1.0, 'interrupts_sent': 2.0, 'packets': 1000.0,
           'packets_sent': 500.0, 'exits': 9.0, 'latency': 100.0}


def canned(name, figures=None, metrics=None, without=()):
    """A result of a campaign. figures: {(test, way) or test or machine: figures of the rounds, or one}, first found of
    (test, machine), machine; metrics likewise, {(test, machine) or machine: metrics}. Each round is slower."""
    found, figures, metrics = plan_of(name), figures or {}, metrics or {}
    events = [{'event': 'start', 'versions': {'whelp (whelp)': 'whelp 1.2', 'netperf': 'Netperf version 2.7.0'},
               'time': '2026-01-02 03:04:05'},
              {'event': 'lab', 'lab': 1, 'load': 0.1},
              {'event': 'machine', 'host': 'h', 'kvm': 'native', 'in_lab': False, 'cpus': 1, 'lab': 1}]
    for lab in plan.labs(found):
        for entry in lab['sets']:
            test = found['cases'][entry['case']]['test']
            for machine in entry['machines']:
                if machine in without:
                    continue
                figure = figures.get((test, machine), figures.get(machine, 1.0))
                figure = figure[lab['round']] if isinstance(figure, list) else figure
                own = {**METRICS, **metrics.get(machine, {}), **metrics.get((test, machine), {})}
                events.append({'event': 'run', 'set': entry['id'], 'case': entry['case'], 'machine': machine, 'lab': 1,
                               'figure': figure / (1 + lab['round']), 'window': 1.0,
                               'metrics': {key: value for key, value in own.items() if value is not None},
                               'threads': {}, 'exit_causes': {}, 'protocols': {'host': {}}, 'sessions': []})
            events.append({'event': 'set', 'set': entry['id'], 'lab': 1})
    return tables.gather(found, events)


def sample(ns, backend='tap', subject='device', number=0, **changes):
    return {'backend': backend, 'dir': 'tx', 'size': 60, 'pairs': 1, 'ring': '-' if subject == 'bare' else 'split',
            'subject': subject, 'round': number, 'net': '', 'ns': ns, 'cycles': 2 * ns, 'mpps': 1000 / ns, 'cpu_ns': ns,
            'cpu_all_ns': 3 * ns, 'instructions': None, **changes}


def ring_result(samples):
    return {'version': 'whelp 1.2', 'compiler': 'gcc 12', 'machine': {'host': 'h', 'kvm': 'native'}, 'rounds': 2,
            'seconds': 0.1, 'load': [0.1, 0.2], 'left_out': ['tap: it needs root'], 'remarks': ['a remark'],
            'samples': samples}


RING = ring_result([sample(100, subject='bare'), sample(200, subject='bare', number=1), sample(105), sample(210, number=1),
                    sample(120, ring='packed'), sample(90, subject='device uring', net='io=uring')])
COSTS = {'kick': 10000, 'kick_latency': 5000, 'timer_set': 500, 'timer': 4000, 'overshoot_min': 1000,
         'overshoot_max': 9000, 'look': 50, 'send': 1000}
BOUND = 200 * 1000 + 9000 + 500 + 5000 + 100


def behaviour(cost=1000, p50=1000, waited_max=5):
    return {'cost': cost, 'packets': 100, 'latency_mean': p50, 'latency_p50': p50, 'latency_p99': p50,
            'waited_max': waited_max, 'overhead': cost, 'kicks': 7}


def simulation(*traces):
    """(name, policies' behaviour) of each trace; off is the usual unless said otherwise. The optimum is 1000."""
    return {'versions': {'whelp': '1.2', 'compiler': 'gcc 12'}, 'machine': {'host': 'h'}, 'load': 0.1, 'costs': COSTS,
            'latency_us': 200, 'packets': 100, 'seeds': 1, 'verdicts': [],
            'results': [{'trace': name, 'packets': 100, 'optimum': 1000,
                         'policies': {'off': behaviour(), 'adaptive,crowded': behaviour(), 'adaptive': behaviour(), **own}}
                        for name, own in traces]}


def rows_of(name, rows):
    return {row['what']: row for row in rows if row['group'] == name}


# ---- netbench's part -------------------------------------------------------------------------------


@pytest.mark.parametrize('name', campaigns.CAMPAIGNS)
def test_all_machines_of_a_campaign_are_up_together(name):
    found = plan_of(name)
    assert len(plan.groups(found)) == 1
    cases = [{key: case[key] for key in ('test', 'way', 'size')} for case in found['cases']]
    assert all(case in cases for case in targets.CASES) and len(cases) == len(targets.CASES)


def test_every_target_has_rows():
    results = {'targets': canned('targets'), 'policies': canned('policies'), 'pairs': canned('pairs'),
               'ring': ring_result([sample(50, backend, subject, dir=way, ring=ring, pairs=pairs,
                                           net='io=uring' * (subject == 'device uring'))
                                    for backend in ('null', 'tap') for way in ('tx', 'rx') for pairs in (1, 2)
                                    for subject, ring in (('bare', '-'), ('device', 'split'), ('device uring', 'split'),
                                                          ('uncounted', 'split'))]),
               'policy': simulation(('request-1ms', {}))}
    rows = targets.rows(results)
    assert {row['group'] for row in rows} == set(targets.GROUPS)
    assert [row for row in rows if row['met'] is None] == []
    # Whoever is like all others is not 1.3 of them.
    assert {row['group'] for row in rows if not row['met']} >= {'stream', 'rr', 'ping', 'udp64'}
    assert len(rows_of('demand', rows)) == len(targets.CASES) == 12


def test_ratios_are_within_a_set_and_beside_the_best():
    rows = targets.rows({'targets': canned('targets', {'whelp': [2.7, 2.6, 2.8], 'qemu': 1.0, 'qemu-vhost': 2.0})})
    row = rows_of('stream', rows)['TCP_STREAM guest-host']
    assert row['figure'] == pytest.approx(1.35) and (row['min'], row['max']) == pytest.approx((1.3, 1.4))
    assert row['met'] and row['why'] == 'beside qemu-vhost' and targets.verdict(row) == 'met (beside qemu-vhost)'
    # qemu-timer is no yardstick, and UDP's is qemu alone.
    assert rows_of('udp64', rows)['UDP_STREAM 64 B host-guest']['figure'] == pytest.approx(2.7)


def test_a_miss_says_by_how_much():
    rows = targets.rows({'targets': canned('targets', {'whelp': 1.04})})
    assert targets.verdict(rows_of('stream', rows)['TCP_MAERTS host-guest']).startswith('**MISSED** by 20.0 %')
    assert targets.verdict(rows_of('ping', rows)['PING guest-host']) == '**MISSED** by 15.6 %'
    assert rows_of('ping', targets.rows({'targets': canned('targets', {'whelp': 0.89})}))['PING guest-host']['met']


def test_service_demand_is_less_where_it_is_better():
    rows = targets.rows({'targets': canned('targets', metrics={'qemu': {'sd_host': 9.0}, 'qemu-vhost': {'sd_host': 20.0}})})
    row = rows_of('demand', rows)['TCP_RR host-guest']
    assert not row['met'] and row['figure'] == pytest.approx(10 / 9) and row['why'] == 'beside qemu'


def test_a_peer_that_is_missing_is_named():
    rows = targets.rows({'targets': canned('targets', {'whelp': 1.5}, without=('qemu-vhost',))})
    assert rows_of('stream', rows)['TCP_STREAM guest-host']['why'] == 'beside qemu; qemu-vhost not measured'
    assert rows_of('rr', rows)['TCP_RR guest-host']['met'] is None
    assert targets.verdict(rows_of('rr', rows)['TCP_RR guest-host']) == 'not measured'


def test_a_receiver_that_got_nothing_is_beaten_by_any():
    rows = targets.rows({'targets': canned('targets', {('UDP_STREAM', 'qemu'): 0.0, 'whelp': 1.0})})
    assert rows_of('udp64', rows)['UDP_STREAM 64 B guest-host']['figure'] == math.inf


@pytest.mark.parametrize('kicks, met', [(8.0, True), (8.1, False)])
def test_kicks_are_for_the_packets_of_the_bulk(kicks, met):
    own = {'whelp': {'kicks': kicks, 'packets': 1000.0, 'packets_sent': 400.0}}
    found = rows_of('tx-kicks', targets.rows({'targets': canned('targets', metrics=own)}))
    assert set(found) == {'TCP_STREAM guest-host', 'TCP_MAERTS host-guest', 'UDP_STREAM 64 B guest-host'}
    assert found['TCP_STREAM guest-host']['figure'] == pytest.approx(kicks * 2.5)
    assert found['TCP_STREAM guest-host']['met'] == met


@pytest.mark.parametrize('interrupts, met', [(30.0, True), (30.1, False)])
def test_interrupts_are_for_the_packets_of_the_bulk(interrupts, met):
    own = {'whelp': {'irq_rx': interrupts, 'packets': 1000.0, 'packets_sent': 400.0}}
    found = rows_of('rx-interrupts', targets.rows({'targets': canned('targets', metrics=own)}))
    assert set(found) == {'TCP_STREAM host-guest', 'TCP_MAERTS guest-host', 'UDP_STREAM 64 B host-guest'}
    assert found['UDP_STREAM 64 B host-guest']['figure'] == pytest.approx(interrupts / 0.6)
    assert found['UDP_STREAM 64 B host-guest']['met'] == met


def test_counts_that_a_run_does_not_have_are_not_measured():
    own = {'whelp': {'packets_sent': None, 'interrupts_sent': None}}
    rows = targets.rows({'targets': canned('targets', metrics=own)})
    for name in ('tx-kicks', 'rx-interrupts', 'rr-kicks', 'rr-interrupts'):
        assert all(row['met'] is None for row in rows_of(name, rows).values()), name


@pytest.mark.parametrize('kicks, interrupts, met', [(500.0, 1000.0, True), (504.0, 1008.0, True), (506.0, 1011.0, False)])
def test_one_event_for_each_message(kicks, interrupts, met):
    own = {('TCP_RR', 'whelp'): {'kicks': kicks, 'interrupts_sent': interrupts}}
    rows = targets.rows({'targets': canned('targets', metrics=own)})
    assert rows_of('rr-kicks', rows)['TCP_RR guest-host']['met'] == met
    assert rows_of('rr-interrupts', rows)['TCP_RR guest-host']['met'] == met
    assert rows_of('rr-kicks', rows)['UDP_RR guest-host']['figure'] == pytest.approx(0.002)


def test_adaptive_beside_the_best_other_policy():
    figures = {'adaptive': 0.96, 'lguest': 1.0, 'off': 0.9, 'fixed': 0.5, 'window': 0.5}
    result = canned('policies', figures, {'adaptive': {'latency': 111.0}, 'off': {'latency': 100.0}})
    rows = targets.rows({'policies': result})
    speed = rows_of('policy-speed', rows)
    assert not speed['TCP_RR guest-host']['met'] and speed['TCP_RR guest-host']['why'] == 'beside lguest'
    assert not any('PING' in what for what in speed) and len(speed) == 10
    latency = rows_of('policy-latency', rows)
    assert set(latency) == {f'{test} {way}' for test in ('TCP_RR', 'UDP_RR', 'PING') for way in targets.WAYS}
    assert not latency['TCP_RR guest-host']['met'] and latency['TCP_RR guest-host']['figure'] == pytest.approx(1.11)
    # Of a ping its own time.
    assert latency['PING guest-host']['met'] and latency['PING guest-host']['figure'] == pytest.approx(0.96 / 0.9)


def test_one_session_over_several_pairs():
    rows = targets.rows({'pairs': canned('pairs', {'four': 0.98, ('PING', 'four'): 1.02, ('TCP_RR', 'four'): 0.96,
                                                   ('UDP_RR', 'four'): 1.5})})
    found = rows_of('one-session', rows)
    assert found['TCP_STREAM guest-host']['met'] and not found['TCP_RR guest-host']['met']
    assert found['UDP_RR host-guest']['met']
    assert found['PING guest-host']['figure'] == pytest.approx(1 / 1.02) and found['PING guest-host']['met']
    slow = targets.rows({'pairs': canned('pairs', {('PING', 'four'): 1.1})})
    assert not rows_of('one-session', slow)['PING host-guest']['met']


# ---- the other benches' parts ----------------------------------------------------------------------


def test_ring_rows_are_the_worst_of_their_kind():
    rows = targets.rows({'ring': RING})
    (row,) = rows_of('ring-tap', rows).values()
    assert row['what'] == 'tap tx 60' and row['figure'] == pytest.approx(1.2) and row['min'] == pytest.approx(1.05)
    assert targets.verdict(row) == '**MISSED** by 9.1 % (1 of 2: packed)'
    # What was forced to io=uring is judged by itself.
    (row,) = rows_of('ring-batch', rows).values()
    assert row['figure'] == pytest.approx(0.9) and not row['met']
    (row,) = rows_of('ring-null', rows).values()
    assert row['met'] is None and 'do not have it' in row['why']


def test_simulated_targets():
    good = targets.rows({'policy': simulation(('a', {}), ('request-1ms', {}))})
    assert all(row['met'] for name in ('policy-bound', 'policy-optimum', 'policy-idle')
               for row in rows_of(name, good).values())
    bad = targets.rows({'policy': simulation(
        ('a', {'adaptive': behaviour(cost=2500)}),
        ('b', {'adaptive,crowded': behaviour(waited_max=BOUND + 500), 'adaptive': behaviour(cost=2004)}),
        ('request-1ms', {'adaptive': behaviour(p50=1200)}))})
    (row,) = rows_of('policy-optimum', bad).values()
    assert row['figure'] == 2.5 and targets.verdict(row) == '**MISSED** by 25.0 % (1 of 3: a)'
    (row,) = rows_of('policy-bound', bad).values()
    assert not row['met'] and row['why'] == '1 of 3: b'
    (row,) = rows_of('policy-idle', bad).values()
    assert not row['met'] and row['figure'] == pytest.approx(1.2)


def test_a_part_that_is_missing_is_said_to_be():
    rows = targets.rows({'policy': simulation(('a', {}))})
    assert 'make bench-ring' in rows_of('ring-tap', rows)['all']['why']
    assert '--parts pairs' in rows_of('one-session', rows)['all']['why']
    made = page.blocks({'ring': None})
    for name in page.ABOUT:
        assert made[name].startswith('**Not measured**') and f'results of "{name}"' in made['machine']
    assert f'0 are met, 0 missed, {len(targets.GROUPS)} not measured' in made['all targets']


# ---- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def results():
    policy = simulation(*((name, {'lguest': behaviour(cost=3000)}) for name in ('a', 'b')))
    return {'ring': RING, 'policy': policy, 'targets': canned('targets', {'whelp': 1.04}, {
        name: {'kicks': None, 'interrupts_sent': None} for name in campaigns.PEERS}),
        'policies': canned('policies'), 'pairs': canned('pairs')}


def test_tables(results):
    for head, rows in (condensed.ring(results['ring']), condensed.policy_costs(results['policy']),
                       condensed.policy_figures(results['policy']),
                       *(condensed.netbench(results[name]) for name in campaigns.CAMPAIGNS)):
        assert rows and all(len(row) == len(head) for row in rows), head
    head, rows = condensed.netbench(results['targets'])
    assert len(rows) == 12 * 4
    assert rows[0][:4] == ['TCP_STREAM guest-host, Mbit/s', 'whelp', '0.52 (0.35 to 1.04)', 'reference']
    assert rows[1][:4] == ['', 'qemu', '0.50 (0.33 to 1.00)', '0.96 (0.96 to 0.96)']
    assert dict(zip(head, rows[0]))['kicks'] == '1.0' and dict(zip(head, rows[1]))['kicks'] == ''
    _, rows = condensed.policy_costs(results['policy'])
    assert rows == [['a', '1.00', '1.00', '3.00'], ['b', '1.00', '1.00', '3.00']]


def test_the_page_tells_machine_versions_date_and_spread(results):
    text = page.machine(results)
    assert 'whelp 1.2; Netperf version 2.7.0' in text and '2026-01-02 03:04:05; 3 rounds' in text
    assert 'left out: tap: it needs root' in text and 'a remark' in text
    # Figures of 1, 1/2, 1/3.
    assert '133 % of the median for half of the figures' in text


def test_what_a_page_has_to_have():
    text = (libtools.ROOT / 'docs/performance.md').read_text()
    for name in page.blocks({}):
        for mark in page.marks(name):
            assert text.count(mark) == 1, mark
    assert text.count(f'\n{page.HEADING}\n') == 1
    assert not set(re.findall(r'plots/(\w+\.svg)', text)) - {path.name for path in (libtools.ROOT / 'docs/plots').glob('*')}


def empty_page():
    parts = '\n'.join(f'by hand, {name}\n' + '\n'.join(page.marks(name)) + '\n' for name in page.blocks({}))
    return f'# Title\n\n{page.HEADING}\n\nThe `ring-tap` is explained.\n\n## Next\n{parts}last words\n'


def test_the_page_keeps_what_is_written_by_hand(results, tmp_path):
    path = tmp_path / 'page.md'
    path.write_text(empty_page())
    page.write(path, results)
    first = path.read_text()
    for name in page.blocks({}):
        assert f'by hand, {name}\n' in first
    assert first.startswith('# Title\n') and first.endswith('last words\n')
    assert 'The `ring-tap` is explained.\n\n- `ring-batch`, missed in tap tx 60:\n' in first
    assert '- `rr`, missed in TCP_RR guest-host; TCP_RR host-guest; UDP_RR guest-host; UDP_RR host-guest:\n' in first
    assert '- `ring-tap`' not in first and '- `demand`' not in first
    # What is written behind the colon stays, and nothing is added twice.
    path.write_text(first.replace('- `ring-batch`, missed in tap tx 60:', '- `ring-batch`: the tap.'))
    page.write(path, results)
    assert path.read_text() == first.replace('- `ring-batch`, missed in tap tx 60:', '- `ring-batch`: the tap.')


def test_an_explanation_of_what_is_not_missed_is_told():
    text, stale = page.misses(empty_page(), [])
    assert stale == ['ring-tap'] and text == empty_page()
    with pytest.raises(benchlib.Failed, match='heading'):
        page.misses('# Title\n', [])


def test_misses_at_the_end_of_a_page():
    text, _ = page.misses(f'# Title\n\n{page.HEADING}\n', targets.rows({'ring': RING}))
    assert text == f'# Title\n\n{page.HEADING}\n\n- `ring-tap`, missed in tap tx 60:\n- `ring-batch`, missed in tap tx 60:\n'


# ---- the plots -------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def matplotlib():
    return importlib.import_module('matplotlib')


def test_plots_are_small_and_the_same_each_time(matplotlib, results, tmp_path):
    drawn = []
    for name in ('one', 'other'):
        plots.draw(results, tmp_path / name)
        drawn.append({path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())})
    assert drawn[0] == drawn[1] and set(drawn[0]) == {file for file, _ in plots.PLOTS.values()}
    assert set(page.CAPTIONS) == set(plots.PLOTS)
    for name, body in drawn[0].items():
        text = body.decode()
        assert len(body) < 60000 and '<svg' in text and not re.search(r'dc:date|20\d\d-\d\d', text), name
    assert '>qemu-vhost<' in drawn[0]['lab.svg'].decode() and '>bare loop<' in drawn[0]['ring.svg'].decode()
    assert '>lguest<' in drawn[0]['policies.svg'].decode()


def test_nothing_of_a_plot_is_outside_of_it(matplotlib, monkeypatch, results, tmp_path):
    seen = []

    def save(figure, path):
        figure.tight_layout()
        figure.canvas.draw()
        width, height = figure.canvas.get_width_height()
        # A tick's label beyond the ends of its axis is not drawn.
        ticks = {label for axes in figure.axes for label in axes.get_xticklabels() + axes.get_yticklabels()}
        for word in figure.findobj(matplotlib.text.Text):
            if word.get_visible() and word.get_text().strip() and word not in ticks:
                box = word.get_window_extent()
                seen.append(path.name)
                assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (path.name, word)
    monkeypatch.setattr(plots, 'save', save)
    plots.draw(results, tmp_path)
    assert set(seen) == {file for file, _ in plots.PLOTS.values()}


def test_a_plot_names_units_and_tells_policies_apart(matplotlib, monkeypatch, results, tmp_path):
    drawn = {}
    monkeypatch.setattr(plots, 'save', lambda figure, path: drawn.setdefault(path.name, figure))
    plots.draw(results, tmp_path)
    assert all(axes.get_ylabel() for figure in drawn.values() for axes in figure.axes if axes.axison)
    marks = [line.get_marker() for line in drawn['policies.svg'].axes[0].lines if line.get_marker() != 'D']
    assert len(marks) > 1 and len(marks) == len(set(marks))
    both = drawn['ring.svg'].axes
    assert both[0].get_ylim() == both[1].get_ylim()


def test_a_plot_of_what_is_not_there_goes(matplotlib, results, tmp_path):
    plots.draw(results, tmp_path)
    plots.draw({**results, 'targets': None}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {'ring.svg', 'policies.svg'}


def test_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr(plots, 'matplotlib', None)
    with pytest.raises(benchlib.Failed, match='install-deps bench-performance'):
        plots.draw({}, tmp_path)


# ---- the command -----------------------------------------------------------------------------------


def chosen_of(bench, monkeypatch, *words):
    monkeypatch.setattr(sys, 'argv', ['bench-performance', *words])
    return bench.arguments()


@pytest.mark.parametrize('words', [('--parts', 'rings'), ('-n', '0'), ('-s', 'x'), ('--lab-cpus', '99'), ('ring',)])
def test_wrong_options(bench, monkeypatch, words):
    with pytest.raises(SystemExit) as ended:
        chosen_of(bench, monkeypatch, *words)
    assert ended.value.code == 2


def test_options_reach_each_part(bench, monkeypatch):
    chosen = chosen_of(bench, monkeypatch, '-n', '7', '-s', '2.5', '--parts', 'pairs,ring,pairs')
    assert chosen.parts == ['pairs', 'ring']
    assert bench.command_of('ring', chosen) == ['tools/bench-ring', '--rounds', '7']
    assert chosen.plans['policies']['rounds'] == 7 and chosen.plans['policies']['seconds'] == 2.5


@pytest.fixture
def place(bench, monkeypatch, tmp_path):
    """A build of nothing but whelp, and a page; what would have been measured is in .asked."""
    (tmp_path / 'bench').mkdir()
    (tmp_path / 'whelp').touch(0o755)
    (tmp_path / 'page.md').write_text(empty_page())
    asked = []
    monkeypatch.setattr(benchlib, 'build_dir', lambda: tmp_path)
    monkeypatch.setattr(bench, 'DOCS', tmp_path / 'page.md')
    monkeypatch.setattr(bench, 'PLOTS', tmp_path / 'plots')
    monkeypatch.setattr(bench.plots, 'draw', lambda found, where: asked.append('plots'))
    monkeypatch.setattr(bench.campaign, 'measure',
                        lambda plan, directory, fresh: asked.append((directory.name, fresh)) or directory.name == 'pairs')
    return tmp_path, asked


def test_only_what_is_asked_for_is_measured(bench, monkeypatch, place):
    path, asked = place
    (path / 'bench/ring.json').write_text(json.dumps(RING))
    monkeypatch.setattr(benchlib, 'spawn', lambda *_, **__: pytest.fail('it was there'))
    assert bench.run(chosen_of(bench, monkeypatch, '--docs-only')) == 0 and asked == ['plots']
    assert '| tap tx 60 |' in (path / 'page.md').read_text()
    assert bench.run(chosen_of(bench, monkeypatch, '--parts', 'policies')) == 0
    assert asked == ['plots', ('policies', False), 'plots']
    # The page is written, and the status says that something is missing.
    assert bench.run(chosen_of(bench, monkeypatch, '--parts', 'ring,pairs')) == 3
    (path / 'bench/ring.json').write_text(json.dumps({**RING, 'left_out': []}))
    assert bench.run(chosen_of(bench, monkeypatch, '--parts', 'ring')) == 0


def test_a_bench_that_fails_or_left_nothing_usable(bench, monkeypatch, place):
    path, asked = place
    monkeypatch.setattr(benchlib, 'ROOT', path)
    (path / 'tools').mkdir()
    (path / 'tools/bench-policy').write_text('#!/bin/sh\nexit 1\n')
    (path / 'tools/bench-policy').chmod(0o755)
    with pytest.raises(benchlib.Failed, match='bench-policy ended with status 1'):
        bench.run(chosen_of(bench, monkeypatch, '--parts', 'policy'))
    (path / 'bench/policy.json').write_text('{"half')
    with pytest.raises(benchlib.Failed, match='policy.json is damaged'):
        bench.run(chosen_of(bench, monkeypatch, '--docs-only'))
    assert asked == []


# ---- a campaign's directory ------------------------------------------------------------------------


def test_a_campaign_goes_on_and_another_plan_begins_anew(monkeypatch, tmp_path):
    found, went = plan_of('pairs', 1), []

    def measure(wanted, kept, directory):
        """Half of the sets each time, and what measuring adds to a plan."""
        assert directory == tmp_path / 'pairs'
        went.append((wanted['seconds'], len(kept.events)))
        wanted['machines'][0]['kept'] = 'programs/whelp-0'
        sets = [entry for lab in plan.labs(wanted) for entry in plan.left(lab, kept.events)]
        for entry in sets[:6]:
            kept.add(event='given_up', set=entry['id'], case=entry['case'], lab=1, why='no reason')
    monkeypatch.setattr(campaign.rounds, 'measure', measure)
    assert campaign.read(tmp_path / 'pairs') is None
    for _ in range(3):
        assert campaign.measure(plan_of('pairs', 1), tmp_path / 'pairs') is True
    # Twelve sets: the third time there is nothing to do.
    assert went == [(found['seconds'], 0), (found['seconds'], 6)]
    assert len(journal.read(tmp_path / 'pairs/journal.jsonl')) == 12
    campaign.measure({**plan_of('pairs', 1), 'seconds': 9.0}, tmp_path / 'pairs')
    assert went[-1] == (9.0, 0)
    campaign.measure({**plan_of('pairs', 1), 'seconds': 9.0}, tmp_path / 'pairs', fresh=True)
    assert went[-1] == (9.0, 0) and len(went) == 4
