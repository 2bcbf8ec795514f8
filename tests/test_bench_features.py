# SPDX-License-Identifier: GPL-2.0-or-later
"""The arithmetic of tools/bench-features, with figures whose result is known; needs neither root nor KVM."""

import pytest

import libtools
import features_result as fr


@pytest.fixture(scope='module')
def bench():
    return libtools.load('bench-features')


def run(name, figure, test='TCP_STREAM', kicks=10.0, interrupts=20.0):
    return {'test': test, 'name': name, 'figure': figure, 'unit': '10^6bits/s', 'packets': 1000, 'kicks': kicks,
            'interrupts': interrupts}


def lab(figures, again=1.0, tests=fr.TESTS):
    """A lab whose speed halves from one run of the full set to the next, and the variants between them with it."""
    runs = []
    for test in tests:
        runs.append(run(fr.FULL, 800.0, test))
        runs += [run(name, 600.0 * ratio, test) for name, ratio in {fr.AGAIN: again, **figures}.items()]
        runs.append(run(fr.FULL, 400.0, test))
    return {'runs': runs, 'taken': {fr.FULL: '1', fr.AGAIN: '1', **{name: '0' for name in figures}}}


def verdicts(labs):
    return {name: text for name, _, _, text in fr.judge(labs, 'TCP_STREAM')}


@pytest.mark.parametrize('variants, between, order', [
    ([], 3, [0]),
    ([1], 3, [0, 1, 0]),
    ([1, 2, 3], 3, [0, 1, 2, 3, 0]),
    ([1, 2, 3, 4], 3, [0, 1, 2, 3, 0, 4, 0]),
])
def test_sequence(variants, between, order):
    assert fr.sequence(variants, between) == order


def test_a_ratio_is_to_the_neighbouring_runs_of_the_same_test():
    runs = [run(fr.FULL, 100), run('-a', 150), run(fr.FULL, 200), run('-b', 50), run(fr.FULL, 50),
            run(fr.FULL, 10, 'TCP_RR'), run('-a', 5, 'TCP_RR'), run(fr.FULL, 10, 'TCP_RR')]
    assert [(found['test'], found['name'], ratio) for found, ratio in fr.with_ratios(runs)] == [
        ('TCP_STREAM', '-a', 1.0), ('TCP_STREAM', '-b', 0.4), ('TCP_RR', '-a', 0.5)]


def test_noise_is_the_larger_of_the_two():
    def found(again, variant):
        return {fr.AGAIN: {'ratio': again}, '-a': {'ratio': variant}, fr.FULL: {'ratio': []}}
    assert fr.noise(found([1.0], [1.0])) == 0
    # A variant that is always the same has none, wherever it lies; the second full set should lie at 1.
    assert fr.noise(found([1.0, 1.0], [0.5, 0.5])) == 0
    assert fr.noise(found([1.1], [1.0])) == pytest.approx(0.0953, abs=1e-4)
    assert fr.noise(found([1.0, 1.0], [0.9, 1.1])) == pytest.approx(0.1003, abs=1e-4)
    assert fr.limit_of(0.1, 1) > fr.limit_of(0.1, 4) == pytest.approx(1.2062, abs=1e-4)


def test_verdicts():
    labs = [lab({'-same': 1 + 0.01 * n, '-slow': 1.3 + 0.01 * n, '-good': 0.7 + 0.01 * n, '-vital': 0.4, '-evil': 2.5,
                 '+new': 1.3, '+heavy': 0.7, '+bad': 0.3, '+great': 2.2}, again=1.01) for n in (-1, 0, 1)]
    assert verdicts(labs) == {
        fr.AGAIN: '', '-same': '', '-slow': 'costs more than noise', '-good': 'gains',
        '-vital': 'gains; cliff without it', '-evil': 'costs more than noise; cliff with it', '+new': 'gains',
        '+heavy': 'costs more than noise', '+bad': 'costs more than noise; cliff with it',
        '+great': 'gains; cliff without it'}


def test_one_ratio_on_the_other_side_is_noise():
    labs = [lab({'-a': ratio, '-b': 1.5}) for ratio in (1.5, 0.99, 1.5)]
    assert verdicts(labs)['-a'] == ''
    labs = [lab({'-a': ratio}) for ratio in (1.5, 1.45, 1.5)]
    assert verdicts(labs)['-a'] == 'costs more than noise'


def test_what_is_in_the_noise_of_the_second_full_set():
    assert verdicts([lab({'-a': 1.1}, again=again) for again in (1.0, 1.01, 0.99)])['-a'] == 'costs more than noise'
    assert verdicts([lab({'-a': 1.1}, again=again) for again in (1.2, 0.8, 1.1)])['-a'] == ''


def test_flags_and_tables():
    labs = [lab({'-a': 1.5, '-b': 1.0}) for _ in range(3)]
    labs[0]['taken']['-none'] = '1'
    assert fr.untaken(labs) == ['-none']
    flags = fr.flags(labs)
    assert flags[0] == 'noise, up to a factor of: TCP_STREAM 1.00, TCP_MAERTS 1.00, TCP_RR 1.00'
    assert flags[1] == 'costs more than noise: -a (TCP_STREAM, 1.50); -a (TCP_MAERTS, 1.50); -a (TCP_RR, 1.50)'
    assert flags[2].endswith(': none') and flags[3].endswith(': -none')
    (head, rows), *others = fr.tables(labs)
    assert len(head) == len(rows[0]) and rows[0][1:6] == ['400', '600', '800', '219', 6]
    for head, rows in others:
        assert [row[0] for row in rows] == [fr.AGAIN, '-a', '-b']
        assert all(len(row) == len(head) for row in rows)
        assert rows[1][1:6] == ['1.50', '1.50', '1.50', '0.00', 3]
        assert rows[1][7:9] == ['10.0 (10.0 to 10.0)', '20.0 (20.0 to 20.0)']


def test_net_leaves_out_the_keys_of_what_is_off(bench):
    assert bench.net('') == 'mtu=1500,queues=2,speed=10000'
    assert bench.net('-mtu') == 'queues=2,speed=10000,-mtu'
    assert bench.net('-ctrl_vq') == 'mtu=1500,speed=10000,-ctrl_vq'
    assert bench.net('-mq,+rss') == 'mtu=1500,speed=10000,-mq,+rss'


def test_nics_begin_with_the_full_set(bench):
    assert bench.nics(['-mtu', fr.AGAIN]) == [
        [fr.FULL, bench.net('')], ['-mtu', bench.net('-mtu')], [fr.AGAIN, bench.net('')]]


def test_shares_have_every_variant_once(bench):
    wanted = [f'-f{number}' for number in range(45)]
    parts = [bench.shares(wanted, number) for number in range(3)]
    for share in parts:
        assert len(share) == 4 and all(fr.AGAIN in part and len(part) <= bench.MOST + 1 for part in share)
        assert sorted(name for part in share for name in part if name != fr.AGAIN) == sorted(wanted)
    assert parts[0] != parts[1] and parts[0] == bench.shares(wanted, 0)
